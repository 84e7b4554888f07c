//! Which directory the far side offers for a copy from there, and by which names what is asked for
//! is found below it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use files::Error;

use super::expanded;

/// What is offered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Offered {
    /// The directory that has all of it.
    pub(super) root: PathBuf,
    /// Each thing's name below it; with a slash at its end, what is in a folder.
    pub(super) names: Vec<OsString>,
    /// What the one thing is called where it was asked for by a link of another name.
    pub(super) called: Option<OsString>,
}

/// Something that is asked for.
struct Source {
    /// The folder that it is in, without links.
    parent: PathBuf,
    /// Its name there; empty for the root of the file system.
    name: OsString,
    /// What it was asked for by.
    called: OsString,
    /// What is in it is meant.
    contents: bool,
}

/// Finds what is asked for. A pattern of a shell stands for all that match it, unless there is a
/// file of that very name.
///
/// # Errors
/// [`Error::Source`] with what is not there.
pub(super) fn offer(asked: &[OsString]) -> Result<Offered, Error> {
    let mut sources = Vec::new();
    for path in asked {
        let path = expanded(path)?;
        let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path };
        let matching = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => matching(&path),
            _ => Vec::new(),
        };
        if matching.is_empty() {
            sources.push(find(&path)?);
        }
        for path in matching {
            sources.push(find(&path)?);
        }
    }
    let Some(first) = sources.first() else {
        return Err(Error::usage("nothing is asked for"));
    };
    let mut root = first.parent.clone();
    while !sources.iter().all(|source| source.parent.starts_with(&root)) {
        root.pop();
    }
    let mut called = None;
    let mut names = Vec::new();
    for source in &sources {
        if source.called != source.name && !source.contents {
            if sources.len() > 1 {
                let text = format!(
                    "{} is a link to {}, and among several things it would get that name: copy it \
                     alone, or by its own name",
                    source.called.display(),
                    source.parent.join(&source.name).display()
                );
                return Err(Error::usage(text));
            }
            called = Some(source.called.clone());
        }
        let below = source
            .parent
            .strip_prefix(&root)
            .expect("the root is above all of them")
            .join(&source.name);
        let mut name = below.into_os_string().into_vec();
        if source.contents {
            name.push(b'/');
        }
        names.push(OsString::from_vec(name));
    }
    Ok(Offered { root, names, called })
}

/// A link stands for what it leads to, as on the near side.
fn find(path: &Path) -> Result<Source, Error> {
    let failed = |source| Error::Source { path: path.to_path_buf(), source };
    let last = path.as_os_str().as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let contents = matches!(last, b"" | b"." | b"..");
    let called = path.file_name().unwrap_or_default().to_os_string();
    let real = fs::canonicalize(path).map_err(failed)?;
    if contents && !real.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    let name = real.file_name().unwrap_or_default().to_os_string();
    let parent = real.parent().unwrap_or(&real).to_path_buf();
    Ok(Source { parent, name, called, contents })
}

/// What matches a shell's pattern, in order of names; nothing if it is no pattern.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let is_pattern = |part: &OsStr| part.as_bytes().iter().any(|byte| b"*?[".contains(byte));
    let mut found = vec![PathBuf::new()];
    let slash = pattern.as_os_str().as_bytes().ends_with(b"/");
    for part in pattern.components() {
        let part = part.as_os_str();
        if !is_pattern(part) {
            for path in &mut found {
                path.push(part);
            }
            continue;
        }
        let mut deeper = Vec::new();
        for folder in found {
            let here = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
            let names =
                fs::read_dir(here).into_iter().flatten().flatten().map(|entry| entry.file_name());
            let mut names: Vec<OsString> =
                names.filter(|name| matches(part.as_bytes(), name.as_bytes())).collect();
            names.sort_unstable();
            deeper.extend(names.iter().map(|name| folder.join(name)));
        }
        found = deeper;
    }
    if !pattern.components().any(|part| is_pattern(part.as_os_str())) {
        return Vec::new();
    }
    found.retain(|path| fs::symlink_metadata(path).is_ok());
    if slash {
        for path in &mut found {
            path.push("");
        }
    }
    found
}

/// Whether a name matches a pattern of `*`, `?`, `[…]` and `[!…]`. Names that begin with a full
/// stop have to be asked for.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    // Where to go on from when what follows the last star does not match here.
    let (mut at, mut rest, mut star) = (pattern, name, None);
    loop {
        let step = match (at.first(), rest.first()) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                star = Some((&at[1..], rest));
                Some((&at[1..], rest))
            }
            (Some(b'['), Some(&byte)) => match class(at, byte) {
                Some((true, after)) => Some((after, &rest[1..])),
                Some((false, _)) => None,
                None => (byte == b'[').then(|| (&at[1..], &rest[1..])),
            },
            (Some(b'?'), Some(_)) => Some((&at[1..], &rest[1..])),
            (Some(a), Some(b)) if a == b => Some((&at[1..], &rest[1..])),
            _ => None,
        };
        match (step, star) {
            (Some(next), _) => (at, rest) = next,
            (None, Some((after, [_, less @ ..]))) => {
                star = Some((after, less));
                (at, rest) = (after, less);
            }
            (None, _) => return false,
        }
    }
}

/// Whether `byte` is in the class that `pattern` begins with, and what follows that; `None` if it
/// has no end.
fn class(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = if negated { 2 } else { 1 };
    // A bracket right at the start is one of the class.
    let end = start + 1 + pattern.get(start + 1..)?.iter().position(|&byte| byte == b']')?;
    let mut members = &pattern[start..end];
    let mut found = false;
    while let Some((&first, more)) = members.split_first() {
        if let [b'-', last, after @ ..] = more {
            found |= (first..=*last).contains(&byte);
            members = after;
        } else {
            found |= first == byte;
            members = more;
        }
    }
    Some((found != negated, &pattern[end + 1..]))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn patterns_are_a_shells() {
        for (pattern, name, does) in [
            ("*", "a", true),
            ("*", ".a", false),
            (".*", ".a", true),
            ("*.log", "a.log", true),
            ("*.log", "a.log.gz", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("?", "", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[a", "[a", true),
            ("[a", "a", false),
            ("**", "anything", true),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), does, "{pattern} {name}");
        }
    }

    #[test]
    fn one_directory_has_all_of_it() {
        let scratch =
            std::env::temp_dir().join(format!("anabranch-offered-{}", std::process::id()));
        fs::create_dir_all(scratch.join("a/deep")).unwrap();
        fs::create_dir_all(scratch.join("b")).unwrap();
        for name in ["a/one.log", "a/two.log", "a/deep/file", "b/[x]", "b/x"] {
            fs::write(scratch.join(name), name).unwrap();
        }
        symlink("../a/one.log", scratch.join("b/link")).unwrap();
        symlink("a", scratch.join("folder")).unwrap();
        let scratch = fs::canonicalize(scratch).unwrap();
        let ask = |paths: &[&str]| {
            let asked: Vec<OsString> =
                paths.iter().map(|path| scratch.join(path).into_os_string()).collect();
            let offered = offer(&asked)?;
            let root = offered
                .root
                .strip_prefix(&scratch)
                .map_or("outside".into(), |root| root.display().to_string());
            let names: Vec<String> =
                offered.names.iter().map(|name| name.display().to_string()).collect();
            Ok::<_, Error>((
                root,
                names.join(" "),
                offered.called.map(|name| name.display().to_string()),
            ))
        };
        let found = |root: &str, names: &str| (root.to_string(), names.to_string(), None);
        assert_eq!(ask(&["a/one.log"]).unwrap(), found("a", "one.log"));
        assert_eq!(ask(&["a"]).unwrap(), found("", "a"));
        assert_eq!(ask(&["a/"]).unwrap(), found("", "a/"));
        assert_eq!(ask(&["a/deep/.."]).unwrap(), found("", "a/"));
        assert_eq!(ask(&["a/*.log"]).unwrap(), found("a", "one.log two.log"));
        assert_eq!(ask(&["*/deep/file"]).unwrap().1, "file file");
        assert_eq!(ask(&["a/deep/file", "b/x"]).unwrap(), found("", "a/deep/file b/x"));
        // A name that is there is no pattern.
        assert_eq!(ask(&["b/[x]"]).unwrap(), found("b", "[x]"));
        // Links stand for what they lead to, under their own name.
        assert_eq!(ask(&["folder/one.log"]).unwrap(), found("a", "one.log"));
        assert_eq!(ask(&["b/link"]).unwrap(), ("a".into(), "one.log".into(), Some("link".into())));
        assert_eq!(ask(&["b/link", "b/x"]).unwrap_err().exit_code(), 2);
        for missing in ["c", "a/*.txt", "a/one.log/", "b/*/x"] {
            assert_eq!(ask(&[missing]).unwrap_err().exit_code(), 3, "{missing}");
        }
        fs::remove_dir_all(scratch).unwrap();
    }
}
