//! What was asked of another host, and so the only source of names here.
//!
//! Whatever a server, or the far side of a copy, says: a path is made here only if it follows from
//! what the person at this host asked for. [`AskedFor::tree`] is the one place where entries of
//! another host become paths here.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use transfer::Tree;
use wire::files::MAX_NAME;
use wire::manifest::{AttributesOf, Entry, Kind, is_plain};

use crate::source::{is_glob, matches_glob};
use crate::{Error, FetchOptions};

/// What was asked for.
#[derive(Clone, Debug)]
pub struct AskedFor {
    names: Vec<PathBuf>,
    /// The name here of the one file or folder.
    rename: Option<OsString>,
    served: Option<ServedNames>,
}

/// The names that the other host has for what was asked for, if it says so itself: the far side of
/// a copy resolves links and wildcards. They are its words, and [`AskedFor::answered`] checks them.
#[derive(Clone, Debug)]
pub struct ServedNames {
    /// Its names for what was asked for, relative to the root that it serves; a slash at the end
    /// means the contents of the folder.
    pub names: Vec<OsString>,
    /// The name under which the only one of them was asked for, if it differs.
    pub rename: Option<OsString>,
}

impl AskedFor {
    /// Files and folders, of which the last component counts. `folder/` asks for the contents of a
    /// folder, and so do an empty name, `.` and `..`; a name with wildcards asks for what matches
    /// it. With `rename`, the one file or folder has that name here.
    #[must_use]
    pub fn new(names: Vec<PathBuf>, rename: Option<OsString>) -> AskedFor {
        AskedFor { names, rename, served: None }
    }

    /// What `options` ask for.
    ///
    /// # Errors
    /// As [`AskedFor::answered`]; [`Error::usage`] for names that no server has.
    pub(crate) fn of(options: &FetchOptions) -> Result<AskedFor, Error> {
        let usage = |text: String| Err(Error::usage(text));
        let asked = AskedFor::new(options.names.clone(), options.rename.clone());
        if asked.names.is_empty() {
            return usage("no file is named".into());
        }
        if let Some(name) = &asked.rename
            && !is_component(name.as_bytes())
        {
            return usage(format!("{} is no plain name for a file", Path::new(name).display()));
        }
        if let Some(served) = &options.served {
            return asked.answered(served.clone());
        }
        for name in &asked.names {
            if !is_servable(plain_name(name)) {
                return usage(format!(
                    "{} is no plain name below what a server offers: '..' and the like lead \
                     nowhere there",
                    name.display()
                ));
            }
        }
        Ok(asked)
    }

    /// The same, in the words of the other host.
    ///
    /// # Errors
    /// [`Error::protocol`] if they name anything that was not asked for.
    pub fn answered(self, served: ServedNames) -> Result<AskedFor, Error> {
        let refused = |text: String| Err(Error::protocol(text));
        if served.names.is_empty() {
            return refused("the far side offers nothing".into());
        }
        if let Some(rename) = &served.rename {
            // One name for several would be a name for none: each keeps its own.
            if served.names.len() > 1 || !is_component(rename.as_bytes()) {
                return refused(format!("the far side cannot rename to {}", rename.display()));
            }
        }
        for name in &served.names {
            let bytes = name.as_bytes();
            let is_asked = match &served.rename {
                _ if !is_servable(bytes) => false,
                Some(rename) => !asks_for_contents(bytes) && self.has_name(rename.as_bytes()),
                None if asks_for_contents(bytes) => self.has_contents(),
                None => self.has_name(last(bytes)),
            };
            if !is_asked {
                return refused(format!(
                    "the far side offers {}, which nobody asked for",
                    served.rename.as_ref().unwrap_or(name).display()
                ));
            }
        }
        Ok(AskedFor { served: Some(served), ..self })
    }

    /// The names to ask a server for.
    pub(crate) fn wire_names(&self) -> Vec<&[u8]> {
        match &self.served {
            None => self.names.iter().map(|name| plain_name(name)).collect(),
            Some(served) => {
                // With a new name it is the folder that is renamed, not its contents.
                let is_renamed = self.rename.is_some();
                let plain = |name: &mut &[u8]| {
                    *name = name.strip_suffix(b"/").filter(|_| is_renamed).unwrap_or(name);
                };
                let mut all: Vec<&[u8]> = served.names.iter().map(|name| name.as_bytes()).collect();
                all.iter_mut().for_each(plain);
                all
            }
        }
    }

    /// What a server's entries make here: a tree of which every path follows from what was asked
    /// for. A name, or one that matches a wildcard, is a file or a folder, and never a link, which
    /// would lead what is written there later to a place of the server's choice: servers follow
    /// links that are asked for by name. What lies below a folder, and the contents of one, are the
    /// server's choice.
    ///
    /// # Errors
    /// [`Error::protocol`] if an entry was not asked for, or the entries cannot exist together;
    /// [`Error::usage`] if several of them would share one new name.
    pub fn tree(&self, mut entries: Vec<Entry>, attributes: AttributesOf) -> Result<Tree, Error> {
        let wire_names = self.wire_names();
        let serves = |top: &[u8]| {
            wire_names.iter().any(|name| asks_for_contents(name) || stands_for(last(name), top))
        };
        for entry in &entries {
            if !serves(top(&entry.path)) {
                return Err(unasked(entry, "which nobody asked for"));
            }
        }
        if let Some(name) = self.local_name() {
            rename_top(&mut entries, name)?;
        }
        for entry in &entries {
            if !self.may_make(entry) {
                return Err(unasked(entry, "which nobody asked for"));
            }
            if matches!(entry.kind, Kind::Symlink { .. }) && !self.may_be_link(&entry.path) {
                return Err(unasked(entry, "a symbolic link in the place of what was asked for"));
            }
        }
        let tree = Tree::with_attributes(entries, attributes);
        let tree = tree.map_err(|error| Error::protocol(error.to_string()))?;
        if tree.is_stream() {
            return Err(Error::protocol("it offers a stream, which nobody can ask for"));
        }
        Ok(tree)
    }

    /// The folders here in which everything is deleted that the server does not have: those that
    /// were asked for as folders.
    pub(crate) fn mirrored(&self, tree: &Tree) -> Vec<Vec<u8>> {
        let tops = self.wire_names().into_iter().map(|name| match self.local_name() {
            Some(name) => name.as_bytes().to_vec(),
            None if asks_for_contents(name) => Vec::new(),
            None => last(name).to_vec(),
        });
        let is_folder = |top: &Vec<u8>| {
            let found = tree.entries().iter().find(|entry| entry.path == *top);
            top.is_empty()
                || found.is_some_and(|entry| matches!(entry.kind, Kind::Directory { .. }))
        };
        tops.filter(is_folder).collect()
    }

    /// The name here of the one file or folder, if it is not that of the server.
    fn local_name(&self) -> Option<&OsStr> {
        let served = self.served.as_ref().and_then(|served| served.rename.as_deref());
        self.rename.as_deref().or(served)
    }

    /// Whether this entry, with its path here, may be made.
    fn may_make(&self, entry: &Entry) -> bool {
        let top = top(&entry.path);
        match &self.rename {
            Some(rename) => top == rename.as_bytes(),
            None => self.has_contents() || self.has_name(top),
        }
    }

    /// Whether the entry at this path here may be a link: below a folder, and in the contents of
    /// one.
    fn may_be_link(&self, path: &[u8]) -> bool {
        let is_named = self.rename.is_some()
            || self.names.iter().any(|name| last(name.as_os_str().as_bytes()) == path);
        path.contains(&b'/') || !is_named && self.has_contents()
    }

    /// Whether the contents of any folder were asked for: they have names of their own.
    pub(crate) fn has_contents(&self) -> bool {
        self.names.iter().any(|name| asks_for_contents(name.as_os_str().as_bytes()))
    }

    /// Whether a file or folder of this name was asked for.
    fn has_name(&self, name: &[u8]) -> bool {
        let mut lasts = self.names.iter().map(|asked| last(asked.as_os_str().as_bytes()));
        lasts.any(|asked| stands_for(asked, name))
    }
}

/// Whether a name that was asked for, without the folders above it, stands for this one.
fn stands_for(asked: &[u8], name: &[u8]) -> bool {
    !asks_for_contents(asked) && (asked == name || is_glob(asked) && matches_glob(asked, name))
}

/// Whether a name stands for the contents of a folder.
fn asks_for_contents(name: &[u8]) -> bool {
    matches!(last(name), b"" | b"." | b"..")
}

/// The last component; empty if there is a slash at the end.
fn last(name: &[u8]) -> &[u8] {
    name.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// The first component.
fn top(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Whether a name has one component, and leads nowhere else.
fn is_component(name: &[u8]) -> bool {
    is_plain(name) && !name.contains(&b'/')
}

/// Whether a server can have this name, with or without a slash at its end.
fn is_servable(name: &[u8]) -> bool {
    name.len() <= MAX_NAME && (name.is_empty() || is_plain(name.strip_suffix(b"/").unwrap_or(name)))
}

/// A name as servers expect it: relative to their root.
fn plain_name(name: &Path) -> &[u8] {
    let bytes = name.as_os_str().as_bytes();
    let start = bytes.iter().position(|&byte| byte != b'/').unwrap_or(bytes.len());
    let mut bytes = &bytes[start..];
    while let Some(rest) = bytes.strip_prefix(b"./") {
        bytes = rest;
    }
    if bytes == b"." { b"" } else { bytes }
}

/// Gives the one top of all entries another name.
fn rename_top(entries: &mut [Entry], name: &OsStr) -> Result<(), Error> {
    let Some(first) = entries.first().map(|entry| top(&entry.path).to_vec()) else {
        return Ok(());
    };
    for entry in entries {
        if top(&entry.path) != first {
            let text = "several entries cannot share one new name: name an existing folder, or \
                        end it with a slash";
            return Err(Error::usage(text));
        }
        entry.path.splice(..first.len(), name.as_bytes().iter().copied());
    }
    Ok(())
}

fn unasked(entry: &Entry, what: &str) -> Error {
    let shown = String::from_utf8_lossy(&entry.path).into_owned();
    Error::protocol(format!("it offers {shown}, {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(sources: &[&str], names: &[&str], rename: Option<&str>) -> bool {
        let asked = AskedFor::new(sources.iter().map(PathBuf::from).collect(), None);
        let names = names.iter().map(OsString::from).collect();
        asked.answered(ServedNames { names, rename: rename.map(OsString::from) }).is_ok()
    }

    #[test]
    fn only_requested_names_are_accepted() {
        for (name, rename, source, expected) in [
            ("file", None, "a/file", true),
            ("below/file", None, "/a/below/file", true),
            (".bashrc", None, "file", false),
            ("file/", None, "file", false),
            ("file/", None, "f*", false),
            ("file/", Some("file"), "file", false),
            ("", None, "file", false),
            ("logs/", None, "*/", true),
            ("a.log", None, "logs/*.log", true),
            ("a.txt", None, "logs/*.log", false),
            (".log", None, "*", false),
            ("target", Some("link"), "a/link", true),
            ("file", Some(".bashrc"), "file", false),
            ("file", Some("../file"), "../file", false),
            ("file", Some("a/file"), "a/file", false),
            ("../file", None, "../file", false),
            ("home/", None, "", true),
            ("a/", None, "a/", true),
            ("a/", None, "a/..", true),
            ("", None, "/", true),
            ("a", None, "a/", false),
            ("a", Some("b"), "a/", false),
        ] {
            assert_eq!(
                answered(&[source], &[name], rename),
                expected,
                "{name} {rename:?} {source}"
            );
        }
    }

    /// A new name stood for each of several names, and then for none of them.
    #[test]
    fn a_far_side_renames_one_file_or_none() {
        assert!(!answered(&["file"], &[".bash_profile", ".ssh"], Some("file")));
        assert!(!answered(&["file", "b"], &["file", "b"], Some("file")));
        assert!(!answered(&["*"], &[], None));
        assert!(answered(&["file", "b"], &["file", "b"], None));
    }
}
