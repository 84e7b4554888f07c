//! The folder and the name that a copy goes to.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use files::Error;
use peer::private::create_fresh;

use crate::dirs::Dirs;
use crate::exit::Failure;
use crate::sanitize::clean;

/// The exit code if the target cannot hold the copy.
const EXIT_CODE: u8 = 8;

/// The place that a copy goes to.
#[derive(Debug)]
pub(crate) struct Target {
    /// The folder that receives it.
    pub(crate) directory: PathBuf,
    /// The new name of the one source, if it does not keep its own.
    pub(crate) rename: Option<OsString>,
    /// A file that exists while a copy under a new name is incomplete. Repeating the command then
    /// resumes the copy, although a folder of that name exists by now.
    note: PathBuf,
}

impl Target {
    /// Finds the place as scp does: an existing folder receives the sources; a target that does not
    /// exist is the new name of `one` source.
    ///
    /// # Errors
    /// Errors of the file system; [`Failure::Message`] if a folder is needed and missing.
    pub(crate) fn find(target: &Path, one: Option<&OsStr>, dirs: &Dirs) -> Result<Target, Failure> {
        let target = if target.as_os_str().is_empty() { Path::new(".") } else { target };
        let (parent, name) = (target.parent(), target.file_name());
        let note = dirs.copies().join(digest(target, one));
        let is_folder = match fs::metadata(target) {
            Ok(metadata) => Some(metadata.is_dir()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(source) => {
                return Err(Error::Disk { action: "copy to", path: target.into(), source }.into());
            }
        };
        let renamed = |parent: &Path, name: &OsStr| {
            let directory = if parent.as_os_str().is_empty() {
                PathBuf::from(".")
            } else {
                parent.to_path_buf()
            };
            (directory, Some(name.to_os_string()))
        };
        let (directory, rename) = match (is_folder, one, parent, name) {
            (Some(true), Some(_), Some(parent), Some(name)) if note.exists() => {
                renamed(parent, name)
            }
            (Some(true), ..) => (target.to_path_buf(), None),
            (Some(false), None, ..) => {
                let path = target.to_path_buf();
                return Err(Error::InTheWay { path, what: "a folder", found: "a file" }.into());
            }
            (Some(false), Some(_), Some(parent), Some(name)) => renamed(parent, name),
            (None, Some(_), Some(parent), Some(name))
                if !target.as_os_str().as_bytes().ends_with(b"/") =>
            {
                if !fs::metadata(if parent.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    parent
                })
                .is_ok_and(|metadata| metadata.is_dir())
                {
                    return Err(no_folder(parent, ""));
                }
                renamed(parent, name)
            }
            (None, None, ..) => {
                return Err(no_folder(target, ", which several sources need"));
            }
            _ => return Err(no_folder(target, "")),
        };
        Ok(Target { directory, rename, note })
    }

    /// Records that the copy has begun.
    pub(crate) fn begin(&self) {
        if self.rename.is_some() {
            // Without the note, repeating the command copies into the folder instead of resuming:
            // inconvenient, and no reason to fail.
            let _ = self.note.parent().map(fs::create_dir_all);
            let _ = create_fresh(&self.note);
        }
    }

    /// Records that the copy is complete.
    pub(crate) fn complete(&self) {
        let _ = fs::remove_file(&self.note);
    }
}

fn no_folder(path: &Path, why: &str) -> Failure {
    let text = format!("there is no folder {}{why}; make it first", clean(&path.to_string_lossy()));
    Failure::Message { code: EXIT_CODE, text }
}

/// The name of the note for a copy of `one` to `target`.
fn digest(target: &Path, one: Option<&OsStr>) -> String {
    let absolute = std::path::absolute(target).unwrap_or_else(|_| target.to_path_buf());
    let mut hasher = blake3::Hasher::new();
    hasher.update(absolute.as_os_str().as_bytes());
    hasher.update(&[0]);
    hasher.update(one.unwrap_or_default().as_bytes());
    hasher.finalize().to_hex()[..32].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("anabranch-target-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("folder")).unwrap();
        fs::write(path.join("file"), "x").unwrap();
        path
    }

    #[test]
    fn existing_folders_receive_and_other_names_are_new() {
        let root = scratch("takes");
        let dirs = Dirs::below(&root.join("home"));
        let find = |target: &str, one: Option<&str>| {
            let found = Target::find(&root.join(target), one.map(OsStr::new), &dirs);
            found.map(|found| {
                let folder = found.directory.strip_prefix(&root).unwrap().display().to_string();
                (folder, found.rename.map(|name| name.to_string_lossy().into_owned()))
            })
        };
        let into =
            |folder: &str, name: Option<&str>| (folder.to_string(), name.map(str::to_string));
        for (target, one, expected) in [
            ("folder", Some("a"), into("folder", None)),
            ("folder/", Some("a"), into("folder", None)),
            ("folder", None, into("folder", None)),
            ("folder/..", None, into("folder/..", None)),
            ("file", Some("a"), into("", Some("file"))),
            ("new", Some("a"), into("", Some("new"))),
            ("folder/new", Some("a"), into("folder", Some("new"))),
        ] {
            assert_eq!(find(target, one).unwrap(), expected, "{target} {one:?}");
        }
        for (target, one, said) in [
            ("new", None, "several sources"),
            ("new/", Some("a"), "no folder"),
            ("nowhere/new", Some("a"), "nowhere; make it first"),
            ("file", None, "a file at"),
            ("file/", Some("a"), "ot a directory"),
            ("file/new", Some("a"), "ot a directory"),
            ("new/..", Some("a"), "no folder"),
        ] {
            let error = find(target, one).unwrap_err();
            assert_eq!(error.exit_code(), EXIT_CODE, "{target} {one:?}");
            assert!(
                error.message().unwrap().contains(said),
                "{target} {one:?}: {:?}",
                error.message()
            );
        }
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_copy_that_began_goes_on_under_its_name() {
        let root = scratch("begun");
        let dirs = Dirs::below(&root.join("home"));
        let target = root.join("new");
        let find = |one: &str| Target::find(&target, Some(OsStr::new(one)), &dirs).unwrap().rename;
        let begun = Target::find(&target, Some(OsStr::new("photos")), &dirs).unwrap();
        begun.begin();
        fs::create_dir(&target).unwrap();
        assert_eq!(find("photos"), Some("new".into()));
        assert_eq!(find("other"), None);
        begun.complete();
        assert_eq!(find("photos"), None);
        fs::remove_dir_all(root).unwrap();
    }
}
