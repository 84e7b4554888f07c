//! Owners and attributes are set on what was received, and on nothing that takes its place.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use transfer::{Packing, Tree};
use wire::files::{Archived, Wishes};
use wire::manifest::{Attributes, AttributesOf, Entry, File, Kind, PRIVATE_FILE, PRIVATE_FOLDER};

use super::{Scratch, file};
use crate::Error;
use crate::blocking::Wanted;
use crate::sink::settle::{Completed, PendingSync, Target};
use crate::sink::survey::{Fate, Survey};
use crate::sink::{Directory, Staging};

/// The time of every file.
const TIME: i64 = 1_500_000_000;

/// A folder, a file and a link in it, and their attributes: this user's; of the link, another's.
fn tree() -> Tree {
    let file = File { mode: PRIVATE_FILE, mtime: TIME, ..file(1) };
    let entries = vec![
        Entry {
            path: b"tree".to_vec(),
            kind: Kind::Directory { mtime: TIME, mode: PRIVATE_FOLDER },
        },
        Entry { path: b"tree/file".to_vec(), kind: Kind::File(file) },
        Entry {
            path: b"tree/link".to_vec(),
            kind: Kind::Symlink { mtime: TIME, target: b"file".to_vec() },
        },
    ];
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let owned = |mode, uid| Attributes { mode, uid, gid, extended: Vec::new() };
    let all = [(0, owned(0o1755, uid)), (1, owned(0o4711, uid)), (2, owned(0o777, uid + 1))];
    Tree::with_attributes(entries, AttributesOf::from(all)).unwrap()
}

fn target(scratch: &Scratch) -> Target {
    let directory = Arc::new(Directory::open(&scratch.0).unwrap());
    let staging = Arc::new(Staging::open(&directory).unwrap());
    let packing = Arc::new(Packing::new(&tree(), |_| false).unwrap());
    let wishes = Wishes { archive: true, ..Wishes::default() };
    Target::new(directory, staging, tree(), packing, wishes)
}

/// What an earlier transfer left without attributes, and a precious file and folder elsewhere.
fn prepared(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    let folder = scratch.0.join("tree");
    for folder in [&folder, &scratch.0.join("outside")] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("file"), "x").unwrap();
        fs::set_permissions(folder.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_500);
        fs::File::open(folder.join("file")).unwrap().set_modified(time).unwrap();
        symlink("file", folder.join("link")).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o750)).unwrap();
    }
    scratch
}

fn survey(scratch: &Scratch) -> Survey {
    let directory = Directory::open(&scratch.0).unwrap();
    let wishes = Wishes { archive: true, ..Wishes::default() };
    Survey::new(&directory, None, &tree(), wishes, None, &Wanted::always()).unwrap()
}

/// Ends the transfer of which this is the survey.
fn finish(scratch: &Scratch, survey: &Survey) -> Result<Archived, Error> {
    let target = target(scratch);
    target.finish(&survey.at_end, &mut PendingSync::default())?;
    Ok(target.archived())
}

fn rights(path: &Path) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.mode() & 0o7777)
}

#[test]
fn what_is_there_gets_its_attributes() {
    let scratch = prepared("archive");
    let survey = survey(&scratch);
    assert_eq!(survey.fates, [Fate::Updated; 3]);
    assert!(survey.wanted.is_empty());
    let archived = finish(&scratch, &survey).unwrap();
    let folder = scratch.0.join("tree");
    assert_eq!((rights(&folder).1, rights(&folder.join("file")).1), (0o1755, 0o4711));
    // Only root gives a link away.
    let is_given = rights(&folder.join("link")).0 == rights(&folder).0 + 1;
    let (updated, lost_owners) = if is_given { (3, 0) } else { (2, 1) };
    assert_eq!(archived, Archived { updated, lost_owners, ..Archived::default() });
}

#[test]
fn what_takes_the_place_of_a_file_keeps_its_rights() {
    for what in ["symbolic link", "hard link", "file", "pipe"] {
        let scratch = prepared(&format!("archive-{}", what.replace(' ', "-")));
        let survey = survey(&scratch);
        let (place, precious) = (scratch.0.join("tree/file"), scratch.0.join("outside/file"));
        fs::remove_file(&place).unwrap();
        match what {
            "symbolic link" => symlink("../outside/file", &place).unwrap(),
            "hard link" => fs::hard_link(&precious, &place).unwrap(),
            "file" => fs::rename(&precious, &place).unwrap(),
            _ => rustix::fs::mkfifoat(rustix::fs::CWD, &place, rustix::fs::Mode::RUSR).unwrap(),
        }
        let error = finish(&scratch, &survey).unwrap_err();
        assert!(error.to_string().contains("tree/file"), "{what}: {error}");
        let found = if what == "file" { place } else { precious };
        assert_eq!(rights(&found).1, 0o600, "{what}");
    }
}

#[test]
fn what_takes_the_place_of_a_link_or_a_folder_keeps_its_rights() {
    let scratch = prepared("archive-link");
    let survey_of_link = survey(&scratch);
    let (place, precious) = (scratch.0.join("tree/link"), scratch.0.join("outside/file"));
    let before = rights(&precious);
    let target = target(&scratch);
    let above = target.directory.folder(b"tree").unwrap();
    for is_hard in [true, false] {
        fs::remove_file(&place).unwrap();
        if is_hard {
            fs::hard_link(&precious, &place).unwrap();
        } else {
            symlink("another", &place).unwrap();
        }
        let was = rights(&place);
        let set = target.set_owner_of_link(2, &above, b"link", true);
        assert!(set.unwrap_err().to_string().contains("tree/link"));
        assert_eq!((rights(&place), rights(&precious)), (was, before));
    }
    drop(target);
    fs::remove_dir_all(scratch.0.join("tree")).unwrap();
    symlink("outside", scratch.0.join("tree")).unwrap();
    assert!(finish(&scratch, &survey_of_link).is_err());
    assert_eq!((rights(&scratch.0.join("outside")).1, rights(&precious)), (0o750, before));
}

#[test]
fn a_file_is_its_owners_alone_until_it_has_its_rights() {
    let scratch = Scratch::new("archive-private");
    let target = target(&scratch);
    let entry = target.tree.file(1).unwrap().clone();
    let staged = target.staging.put(1, b"tree/file", &entry, b"x").unwrap();
    let place = scratch.0.join(".anabranch-partial").join(&staged.name);
    assert_eq!(rights(&place).1, 0o600);
    let mut pending = PendingSync::default();
    target.settle(&[Completed::Small(None, vec![staged])], &mut pending).unwrap();
    assert_eq!(rights(&scratch.0.join("tree/file")).1, 0o4711);
    // The folder around it is private until the end.
    assert_eq!(rights(&scratch.0.join("tree")).1, 0o700);
}
