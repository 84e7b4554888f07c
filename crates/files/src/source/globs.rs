//! Names with wildcards, as a client writes them for a server: `logs/*.gz`. They mean what they
//! mean in a shell, and at the far side of a copy.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, OFlags};
use wire::manifest::is_reserved;

use super::budget::MemoryBudget;
use super::root::SourceRoot;
use crate::Error;

/// The most names that one with wildcards stands for.
const MOST_MATCHES: usize = 4_096;

/// Whether a name has wildcards, if no file has this very name.
pub(crate) fn is_glob(name: &[u8]) -> bool {
    name.iter().any(|byte| b"*?[".contains(byte))
}

/// Whether a name matches a pattern of `*`, `?`, `[…]` and `[!…]`. Only a pattern that begins with
/// a full stop matches names that do.
#[must_use]
pub fn matches_glob(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    // After a mismatch, matching resumes with the last star taking one byte more.
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

/// Whether `byte` is in the class at the start of `pattern`, and the rest of the pattern; `None` if
/// the class is not closed.
fn class(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = if negated { 2 } else { 1 };
    // A bracket right at the start is a member of the class.
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

/// The paths below `root` that `name` stands for, in order: itself, unless it has wildcards and
/// nothing has this very name.
///
/// # Errors
/// [`Error::Source`] if nothing matches; [`Error::usage`] if too much does.
pub(super) fn expand(
    root: &SourceRoot,
    name: &Path,
    budget: MemoryBudget<'_>,
) -> Result<Vec<PathBuf>, Error> {
    let bytes = name.as_os_str().as_bytes();
    let is_below = matches!(root, SourceRoot::Below(_));
    if !is_below || !is_glob(bytes) || root.open(name, OFlags::PATH).is_ok() {
        return Ok(vec![name.to_path_buf()]);
    }
    let (plain, slash) = match bytes.strip_suffix(b"/") {
        Some(plain) => (plain, &b"/"[..]),
        None => (bytes, &b""[..]),
    };
    let mut found = vec![Vec::new()];
    for component in plain.split(|byte| *byte == b'/') {
        found = step(root, &found, component, budget)?;
        if found.len() > MOST_MATCHES {
            let text = format!(
                "{} matches more than {MOST_MATCHES} names: get the folder, with --include",
                name.display()
            );
            return Err(Error::usage(text));
        }
    }
    found.sort_unstable();
    let named = |path: Vec<u8>| PathBuf::from(OsStr::from_bytes(&[&path, slash].concat()));
    let all: Vec<PathBuf> =
        found.into_iter().map(named).filter(|path| root.open(path, OFlags::PATH).is_ok()).collect();
    if all.is_empty() {
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, "nothing there matches");
        return Err(Error::Source { path: name.to_path_buf(), source });
    }
    Ok(all)
}

/// The paths one component further.
fn step(
    root: &SourceRoot,
    above: &[Vec<u8>],
    component: &[u8],
    budget: MemoryBudget<'_>,
) -> Result<Vec<Vec<u8>>, Error> {
    let below = |above: &[u8], name: &[u8]| match above {
        b"" => name.to_vec(),
        above => [above, b"/", name].concat(),
    };
    if !is_glob(component) {
        return Ok(above.iter().map(|above| below(above, component)).collect());
    }
    let mut found = Vec::new();
    for above in above {
        let path = if above.is_empty() { b"." } else { above.as_slice() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        // What is no folder, or may not be read, has no names.
        let Ok(folder) = root.open(Path::new(OsStr::from_bytes(path)), flags) else { continue };
        for name in names(&folder) {
            budget(0)?;
            if matches_glob(component, &name) && !is_reserved(&name) {
                budget(above.len() + name.len())?;
                found.push(below(above, &name));
                if found.len() > MOST_MATCHES {
                    return Ok(found);
                }
            }
        }
    }
    Ok(found)
}

fn names(folder: &OwnedFd) -> impl Iterator<Item = Vec<u8>> {
    let listed = Dir::read_from(folder).into_iter().flatten().flatten();
    let names = listed.map(|entry| entry.file_name().to_bytes().to_vec());
    names.filter(|name| name != b"." && name != b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expected) in [
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
            assert_eq!(
                matches_glob(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }
}
