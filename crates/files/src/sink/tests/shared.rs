//! Another user of a shared receiving folder prepares the staging folder, or swaps what is in it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;

use transfer::{BLOCK, Cv};

use super::{Scratch, content, cv, file, part, survey, target, tree};
use crate::Error;
use crate::sink::directory::Directory;
use crate::sink::settle::{Completed, PendingSync, Target};
use crate::sink::staging::Staging;
use crate::sink::timestamps::timestamps;

/// A user who runs no tests.
const ANOTHER: u32 = 42_424;

/// Gives a file to another user, as only root can.
fn give_away(path: &Path) -> bool {
    chown(path, Some(ANOTHER), None).is_ok()
}

fn refusal(scratch: &Scratch) -> String {
    let directory = Directory::open(&scratch.0).unwrap();
    let errors = [
        Staging::open(&directory).map(drop).unwrap_err(),
        Staging::open_existing(&directory).map(drop).unwrap_err(),
    ];
    for error in &errors {
        assert_eq!(error.exit_code(), 8);
        let text = error.to_string();
        assert!(text.contains(".anabranch-partial") && text.contains("remove it"), "{text}");
    }
    errors[0].to_string()
}

#[test]
fn a_staging_folder_that_another_user_may_change_is_refused() {
    let scratch = Scratch::new("prepared");
    let folder = scratch.0.join(".anabranch-partial");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("prepared"), "by another").unwrap();
    for mode in [0o777, 0o770, 0o1777, 0o702, 0o720] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        let text = refusal(&scratch);
        assert!(text.contains(&format!("mode {:04o}", mode & 0o777)), "{text}");
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let me = fs::metadata(&folder).unwrap().uid();
    if give_away(&folder) {
        let text = refusal(&scratch);
        assert!(text.contains("belongs to user 42424"), "{text}");
        chown(&folder, Some(me), None).unwrap();
    }
    assert_eq!(fs::read(folder.join("prepared")).unwrap(), b"by another", "it is left alone");
    assert_eq!(scratch.left(), ["prepared"]);
    // This user's own folder is taken, and closed.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let directory = Directory::open(&scratch.0).unwrap();
    drop(Staging::open(&directory).unwrap());
    let mode = || fs::metadata(&folder).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o700);
    fs::remove_dir_all(&folder).unwrap();
    let _staging = Staging::open(&directory).unwrap();
    assert_eq!(mode(), 0o700);
}

/// Puts another file of the same size, mode and time in the place of a staged one.
fn swap(target: &Target, scratch: &Scratch, name: &str, size: u64) {
    let place = scratch.0.join(".anabranch-partial").join(name);
    let other = scratch.0.join("other");
    fs::write(&other, vec![b'x'; usize::try_from(size).unwrap()]).unwrap();
    fs::set_permissions(&other, fs::metadata(&place).unwrap().permissions()).unwrap();
    let opened = fs::File::open(&other).unwrap();
    rustix::fs::futimens(&opened, &timestamps(target.tree.file(0).unwrap().mtime)).unwrap();
    fs::rename(&other, &place).unwrap();
}

fn settle(target: &Target, completed: Completed) -> Result<(), Error> {
    target.settle(&[completed], &mut PendingSync::default())
}

#[test]
fn a_staged_file_that_is_swapped_gets_no_name() {
    let scratch = Scratch::new("swapped");
    let verified = |mut target: Target, verify| {
        target.wishes.verify = verify;
        target
    };
    for verify in [false, true] {
        // A small file, and the same one taken up by the next attempt.
        let small = tree(&[("name", file(5))]);
        for resumed in [false, true] {
            let target = verified(target(&scratch, &small, false), verify);
            let mut staged = target.staging.put(0, b"name", &file(5), b"hello").unwrap();
            if resumed {
                staged = survey(&target, &small).staged.remove(0);
            }
            swap(&target, &scratch, &staged.name, 5);
            let settled = settle(&target, Completed::Small(None, vec![staged]));
            assert!(matches!(settled, Err(Error::Integrity { .. })), "{settled:?}");
            assert!(!scratch.0.join("name").exists());
        }
        let large = tree(&[("name", file(BLOCK + 1))]);
        let target = verified(target(&scratch, &large, false), verify);
        let content = content(BLOCK + 1);
        let (part, _) = part(&target, 1).unwrap();
        part.write(0, &content).unwrap();
        (0..2).for_each(|block| part.record_block(block, cv(&content, block)).unwrap());
        swap(&target, &scratch, &part.name, BLOCK + 1);
        let root = Cv(*blake3::hash(&content).as_bytes());
        let settled = settle(&target, Completed::Large(0, root, Arc::new(part)));
        assert!(matches!(settled, Err(Error::Integrity { .. })), "{settled:?}");
        assert!(!scratch.0.join("name").exists());
    }
}

/// Files that somebody else staged under the right names are not taken up.
#[test]
fn what_another_user_staged_is_not_taken_up() {
    let scratch = Scratch::new("foreign");
    let tree = tree(&[("name", file(5))]);
    let target = target(&scratch, &tree, false);
    let outside = scratch.0.join("outside");
    fs::write(&outside, "hello").unwrap();
    let put = || target.staging.put(0, b"name", &file(5), b"hello");
    let place = scratch.0.join(".anabranch-partial").join(put().unwrap().name);
    let taken_up = || survey(&target, &tree).staged.len();
    assert_eq!(taken_up(), 1, "as this user staged it");
    // Another name of somebody's file with the right contents, mode and time.
    put().unwrap();
    fs::hard_link(&place, scratch.0.join("again")).unwrap();
    assert_eq!(taken_up(), 0, "a hard link");
    symlink(&outside, &place).unwrap();
    assert_eq!(taken_up(), 0, "a symbolic link");
    put().unwrap();
    if give_away(&place) {
        assert!(put().is_err(), "it is not written to");
        assert_eq!(fs::read(&place).unwrap(), b"hello");
        assert_eq!(taken_up(), 0, "a file of another user");
    }
}
