//! Names with wildcards, as a client writes them for a server: `logs/*.gz`. They mean what they
//! mean in a shell.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, OFlags};
use wire::manifest::is_reserved;

use super::patterns::Patterns;
use super::root::SourceRoot;
use super::walk::MemoryBudget;
use crate::Error;

/// The most names that one with wildcards stands for.
const MOST_MATCHES: usize = 4_096;

/// Whether a name has wildcards, if no file has this very name.
pub(crate) fn is_glob(name: &[u8]) -> bool {
    name.iter().any(|byte| b"*?[".contains(byte))
}

/// Whether `glob`, one component of a path, matches a file's name. A leading dot is only matched by
/// a dot.
///
/// # Errors
/// If it is no pattern.
pub(crate) fn matches(glob: &[u8], name: &[u8]) -> Result<bool, Error> {
    Ok(compile(glob)?.is_some_and(|pattern| fits(&pattern, glob, name)))
}

/// The paths below `root` that `name` stands for, in order: itself, unless it has wildcards and
/// nothing has this very name.
///
/// # Errors
/// [`Error::Source`] if nothing matches; [`Error::usage`] if too much does, or a component is no
/// pattern.
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
    let Some(pattern) = compile(component)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for above in above {
        let path = if above.is_empty() { b"." } else { above.as_slice() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        // What is no folder, or may not be read, has no names.
        let Ok(folder) = root.open(Path::new(OsStr::from_bytes(path)), flags) else { continue };
        for name in names(&folder) {
            budget(0)?;
            if fits(&pattern, component, &name) && !is_reserved(&name) {
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

fn compile(glob: &[u8]) -> Result<Option<Patterns>, Error> {
    // Anchored, so that no other meaning of .gitignore applies.
    Patterns::new(&[format!("/{}", String::from_utf8_lossy(glob))])
}

fn fits(pattern: &Patterns, glob: &[u8], name: &[u8]) -> bool {
    let is_hidden = name.starts_with(b".") && !glob.starts_with(b".");
    !is_hidden && pattern.match_path(Path::new(OsStr::from_bytes(name)), true)
}

fn names(folder: &OwnedFd) -> impl Iterator<Item = Vec<u8>> {
    let listed = Dir::read_from(folder).into_iter().flatten().flatten();
    let names = listed.map(|entry| entry.file_name().to_bytes().to_vec());
    names.filter(|name| name != b"." && name != b"..")
}
