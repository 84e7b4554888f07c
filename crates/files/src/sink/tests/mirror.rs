//! Between the survey and the deletion another process changes the folder: nothing else is deleted
//! than what was found.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use transfer::{Packing, Tree};
use wire::files::Wishes;
use wire::manifest::{Entry, Kind};

use super::{Scratch, file};
use crate::Error;
use crate::blocking::Wanted;
use crate::sink::mirror::Mirror;
use crate::sink::settle::{AtEnd, PendingSync, Target};
use crate::sink::survey::{Fate, Survey, Tally};
use crate::sink::{Directory, Staging};

fn write(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "x").unwrap();
}

/// A source with one folder, `tree`, and a file in it.
fn tree() -> Tree {
    let folder = Kind::Directory { mtime: 0, mode: 0o755 };
    let entries = vec![
        Entry { path: b"tree".to_vec(), kind: folder },
        Entry { path: b"tree/file".to_vec(), kind: Kind::File(file(1)) },
    ];
    Tree::new(entries).unwrap()
}

fn survey(scratch: &Scratch) -> Result<Survey, Error> {
    let directory = Directory::open(&scratch.0).unwrap();
    let mirror = Mirror { folders: vec![b"tree".to_vec()], ..Mirror::default() };
    let wishes = Wishes { delete: true, overwrite: true, ..Wishes::default() };
    Survey::new(&directory, None, &tree(), wishes, Some(&mirror), &Wanted::always())
}

/// Ends a transfer whose files are there.
fn finish(scratch: &Scratch, at_end: &AtEnd) -> Result<usize, Error> {
    let directory = Arc::new(Directory::open(&scratch.0).unwrap());
    let staging = Arc::new(Staging::open(&directory).unwrap());
    let packing = Arc::new(Packing::new(&tree(), |_| false).unwrap());
    let wishes = Wishes::default();
    let target = Target::new(directory, staging, tree(), packing, wishes);
    target.finish(at_end, &mut PendingSync::default())
}

#[test]
fn what_changes_before_the_deletion_is_left() {
    let scratch = Scratch::new("delete-changed");
    let folder = scratch.0.join("tree");
    for name in ["file", "changed", "replaced", "old", "sub/old", "filled/old"] {
        write(&folder.join(name));
    }
    let survey = survey(&scratch).unwrap();
    assert_eq!(survey.at_end.doomed.len(), 7);
    fs::write(folder.join("changed"), "by its user").unwrap();
    fs::rename(folder.join("replaced"), scratch.0.join("kept")).unwrap();
    write(&folder.join("replaced"));
    write(&folder.join("filled/new"));
    assert_eq!(finish(&scratch, &survey.at_end).unwrap(), 4);
    for name in ["file", "changed", "replaced", "filled/new"] {
        assert!(folder.join(name).exists(), "{name}");
    }
    assert!(!folder.join("old").exists() && !folder.join("sub").exists());
    assert!(!folder.join("filled/old").exists());
}

#[test]
fn a_link_that_takes_the_place_of_a_folder_leads_nowhere() {
    let scratch = Scratch::new("delete-link");
    let (folder, outside) = (scratch.0.join("tree"), scratch.0.join("outside"));
    write(&folder.join("sub/old"));
    write(&outside.join("old"));
    let survey = survey(&scratch).unwrap();
    assert_eq!(survey.at_end.doomed.len(), 2);
    fs::rename(folder.join("sub"), scratch.0.join("aside")).unwrap();
    symlink(&outside, folder.join("sub")).unwrap();
    assert_eq!(finish(&scratch, &survey.at_end).unwrap(), 0);
    assert!(outside.join("old").exists() && scratch.0.join("aside/old").exists());
}

#[test]
fn a_folder_that_forbids_writing_is_emptied_and_keeps_its_mode() {
    let scratch = Scratch::new("delete-mode");
    let folder = scratch.0.join("tree");
    for name in ["file", "old", "closed/old"] {
        write(&folder.join(name));
    }
    for name in ["closed", ""] {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o555)).unwrap();
    }
    let survey = survey(&scratch).unwrap();
    assert_eq!(finish(&scratch, &survey.at_end).unwrap(), 3);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn the_changes_of_a_transfer_are_counted() {
    let scratch = Scratch::new("changes");
    let folder = scratch.0.join("tree");
    write(&folder.join("file"));
    write(&folder.join("old"));
    let survey = survey(&scratch).unwrap();
    assert_eq!(survey.fates, [Fate::Same, Fate::Replaced]);
    let changes = survey.changes(&tree());
    let one = |bytes| Tally { entries: 1, bytes: units::Bytes(bytes) };
    assert_eq!((changes.replaced, changes.deleted), (one(1), one(1)));
    assert_eq!((changes.created, changes.kept), Default::default());
}
