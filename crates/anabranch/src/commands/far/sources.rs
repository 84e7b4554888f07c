//! The folder that the remote side serves for a copy, and the names of the requested files below
//! it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use files::{Error, matches_glob};

use super::expanded;

/// A folder to serve, and the requested names in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// The deepest folder that contains all requested files.
    pub(super) root: PathBuf,
    /// Each requested path relative to the root; a slash at its end means the folder's contents.
    pub(super) names: Vec<OsString>,
    /// The name of the only requested path, if it is a symbolic link with another name than its
    /// target.
    pub(super) requested_as: Option<OsString>,
}

/// A requested file or folder.
struct Source {
    /// The folder that contains it, with symbolic links resolved.
    parent: PathBuf,
    /// Its name there; empty for the root of the file system.
    name: OsString,
    /// The last component of the requested path.
    requested_as: OsString,
    /// Whether the contents of the folder are requested instead of the folder.
    contents: bool,
}

/// Finds the requested paths. A shell pattern stands for all matching paths, unless a file has that
/// very name.
///
/// # Errors
/// [`Error::Source`] with a path that does not exist.
pub(super) fn find_all(requested: &[OsString]) -> Result<Offer, Error> {
    let mut sources = Vec::new();
    for path in requested {
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
        return Err(Error::usage("no path is requested"));
    };
    let mut root = first.parent.clone();
    while !sources.iter().all(|source| source.parent.starts_with(&root)) {
        root.pop();
    }
    let mut requested_as = None;
    let mut names = Vec::new();
    for source in &sources {
        if source.requested_as != source.name && !source.contents {
            if sources.len() > 1 {
                let text = format!(
                    "{} is a link to {}, and would arrive under that name among several sources: \
                     copy it alone, or copy its target",
                    source.requested_as.display(),
                    source.parent.join(&source.name).display()
                );
                return Err(Error::usage(text));
            }
            requested_as = Some(source.requested_as.clone());
        }
        let below = source
            .parent
            .strip_prefix(&root)
            .expect("the root contains all of them")
            .join(&source.name);
        let mut name = below.into_os_string().into_vec();
        if source.contents {
            name.push(b'/');
        }
        names.push(OsString::from_vec(name));
    }
    Ok(Offer { root, names, requested_as })
}

/// Follows symbolic links, as `send` does for its sources.
fn find(path: &Path) -> Result<Source, Error> {
    let failed = |source| Error::Source { path: path.to_path_buf(), source };
    let last = path.as_os_str().as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let contents = matches!(last, b"" | b"." | b"..");
    let requested_as = path.file_name().unwrap_or_default().to_os_string();
    let real = fs::canonicalize(path).map_err(failed)?;
    if contents && !real.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    let name = real.file_name().unwrap_or_default().to_os_string();
    let parent = real.parent().unwrap_or(&real).to_path_buf();
    Ok(Source { parent, name, requested_as, contents })
}

/// The paths that match a shell pattern, in order of names; empty if it is no pattern.
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
                names.filter(|name| matches_glob(part.as_bytes(), name.as_bytes())).collect();
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_root_contains_all_requested_paths() {
        let scratch =
            std::env::temp_dir().join(format!("anabranch-sources-{}", std::process::id()));
        fs::create_dir_all(scratch.join("a/deep")).unwrap();
        fs::create_dir_all(scratch.join("b")).unwrap();
        for name in ["a/one.log", "a/two.log", "a/deep/file", "b/[x]", "b/x"] {
            fs::write(scratch.join(name), name).unwrap();
        }
        symlink("../a/one.log", scratch.join("b/link")).unwrap();
        symlink("a", scratch.join("folder")).unwrap();
        let scratch = fs::canonicalize(scratch).unwrap();
        let ask = |paths: &[&str]| {
            let requested: Vec<OsString> =
                paths.iter().map(|path| scratch.join(path).into_os_string()).collect();
            let offer = find_all(&requested)?;
            let root = offer
                .root
                .strip_prefix(&scratch)
                .map_or("outside".into(), |root| root.display().to_string());
            let names: Vec<String> =
                offer.names.iter().map(|name| name.display().to_string()).collect();
            Ok::<_, Error>((
                root,
                names.join(" "),
                offer.requested_as.map(|name| name.display().to_string()),
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
        // The name of an existing file is no pattern.
        assert_eq!(ask(&["b/[x]"]).unwrap(), found("b", "[x]"));
        // Links are followed, and keep their own name.
        assert_eq!(ask(&["folder/one.log"]).unwrap(), found("a", "one.log"));
        assert_eq!(ask(&["b/link"]).unwrap(), ("a".into(), "one.log".into(), Some("link".into())));
        assert_eq!(ask(&["b/link", "b/x"]).unwrap_err().exit_code(), 2);
        for missing in ["c", "a/*.txt", "a/one.log/", "b/*/x"] {
            assert_eq!(ask(&[missing]).unwrap_err().exit_code(), 3, "{missing}");
        }
        fs::remove_dir_all(scratch).unwrap();
    }
}
