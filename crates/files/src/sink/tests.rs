//! What a crash, a rotten disk or somebody else in the directory leaves.

mod archive;
mod lacking;
mod mirror;
mod shared;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use transfer::digest::block_cv;
use transfer::{BLOCK, Cv, Packing, Tree};
use wire::files::Wishes;
use wire::manifest::{Entry, File, Kind};

use super::directory::Directory;
use super::large::{JournaledBlock, Part};
use super::settle::{AtEnd, Completed, PendingSync, Target};
use super::staging::{Staging, name_prefix};
use super::survey::Survey;
use crate::Error;
use crate::blocking::Wanted;
use peer::Fingerprint;

pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("anabranch-target-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn left(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.0.join(".anabranch-partial")) else {
            return Vec::new();
        };
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn file(size: u64) -> File {
    File { size, mtime: 1_500_000_000, mode: 0o640, hash: None, data: None }
}

pub(super) fn tree(files: &[(&str, File)]) -> Tree {
    let entry = |(name, file): &(&str, File)| Entry {
        path: name.as_bytes().to_vec(),
        kind: Kind::File(file.clone()),
    };
    Tree::new(files.iter().map(entry).collect()).unwrap()
}

fn target(scratch: &Scratch, tree: &Tree, overwrite: bool) -> Target {
    let directory = Arc::new(Directory::open(&scratch.0).unwrap());
    let staging = Arc::new(Staging::open(&directory).unwrap());
    let packing = Arc::new(Packing::new(tree, |_| true).unwrap());
    let wishes = Wishes { overwrite, verify: true, ..Wishes::default() };
    Target::new(directory, staging, tree.clone(), packing, wishes)
}

fn part(target: &Target, sender: u8) -> Result<(Part, Vec<JournaledBlock>), Error> {
    let (path, file) = (&target.tree.entries()[0].path, target.tree.file(0).unwrap());
    Part::open(
        &target.staging,
        &target.packing,
        0,
        path,
        file,
        Fingerprint::from([sender; 32]),
        [2; 16],
        false,
    )
}

pub(super) fn content(size: u64) -> Vec<u8> {
    let size = usize::try_from(size).unwrap();
    let mut content = (0..251).collect::<Vec<u8>>().repeat(size / 251 + 1);
    content.truncate(size);
    content
}

fn cv(content: &[u8], block: u64) -> Cv {
    let start = usize::try_from(block * BLOCK).unwrap();
    let end = content.len().min(start + usize::try_from(BLOCK).unwrap());
    block_cv(content.len() as u64, block * BLOCK, &content[start..end])
}

#[test]
fn only_blocks_that_hash_right_are_taken_up_again() {
    let scratch = Scratch::new("resume");
    let content = content(2 * BLOCK + 10);
    let tree = tree(&[("disk.img", file(2 * BLOCK + 10))]);
    {
        let target = target(&scratch, &tree, false);
        let (part, held) = part(&target, 1).unwrap();
        assert!(held.is_empty());
        part.write(0, &content).unwrap();
        (0..3).for_each(|block| part.record_block(block, cv(&content, block)).unwrap());
        // Block 1 rots on disk behind its journal entry.
        part.write(BLOCK, b"rot").unwrap();
        // The last record is torn.
        let journal = scratch.0.join(".anabranch-partial").join(&part.journal_name);
        let length = fs::metadata(&journal).unwrap().len();
        fs::OpenOptions::new().write(true).open(journal).unwrap().set_len(length - 1).unwrap();
    }
    let target = target(&scratch, &tree, false);
    let (part, held) = part(&target, 1).unwrap();
    assert_eq!(held, [(0, cv(&content, 0))]);
    part.write(BLOCK, &content[usize::try_from(BLOCK).unwrap()..]).unwrap();
    (1..3).for_each(|block| part.record_block(block, cv(&content, block)).unwrap());
    let root = Cv(*blake3::hash(&content).as_bytes());
    let mut settled = PendingSync::default();
    target.settle(&[Completed::Large(0, root, Arc::new(part))], &mut settled).unwrap();
    target.finish(&AtEnd::default(), &mut settled).unwrap();
    assert_eq!(fs::read(scratch.0.join("disk.img")).unwrap(), content);
    let metadata = fs::metadata(scratch.0.join("disk.img")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mtime(&metadata), 1);
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777, 0o640);
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1, "no part and no journal is left");
}

#[test]
fn a_changed_source_begins_anew() {
    let scratch = Scratch::new("changed");
    let content = content(BLOCK + 1);
    {
        let target = target(&scratch, &tree(&[("disk.img", file(BLOCK + 1))]), false);
        let (part, _) = part(&target, 1).unwrap();
        part.write(0, &content).unwrap();
        part.record_block(0, cv(&content, 0)).unwrap();
    }
    let newer = tree(&[("disk.img", File { mtime: 2_500_000_000, ..file(BLOCK + 1) })]);
    assert!(part(&target(&scratch, &newer, false), 1).unwrap().1.is_empty());
}

#[test]
fn what_another_sender_began_is_not_taken_up() {
    let scratch = Scratch::new("sender");
    let content = content(BLOCK + 1);
    let tree = tree(&[("disk.img", file(BLOCK + 1))]);
    {
        let (part, _) = part(&target(&scratch, &tree, false), 1).unwrap();
        part.write(0, &content).unwrap();
        part.record_block(0, cv(&content, 0)).unwrap();
    }
    assert_eq!(part(&target(&scratch, &tree, false), 1).unwrap().1.len(), 1);
    assert!(part(&target(&scratch, &tree, false), 2).unwrap().1.is_empty());
}

/// A record in the middle that the disk lost costs its block, over the boundary of what is read at
/// once too.
#[test]
fn a_corrupt_journal_record_costs_its_block_only() {
    let scratch = Scratch::new("record");
    let blocks = 1_100;
    let content = content(BLOCK);
    let tree = tree(&[("disk.img", file(blocks * BLOCK))]);
    let hash = |block: u64| block_cv(blocks * BLOCK, block * BLOCK, &content);
    {
        let (part, _) = part(&target(&scratch, &tree, false), 1).unwrap();
        for block in (0..blocks).step_by(50).chain([1_023, 1_024, 1_025]) {
            part.write(block * BLOCK, &content).unwrap();
        }
        (0..blocks).for_each(|block| part.record_block(block, hash(block)).unwrap());
        let journal = scratch.0.join(".anabranch-partial").join(&part.journal_name);
        let length = fs::metadata(&journal).unwrap().len();
        let journal = fs::OpenOptions::new().write(true).open(journal).unwrap();
        for record in [100, 1_023, 1_099] {
            let at =
                length - (blocks - record) * u64::try_from(transfer::journal::RECORD_LEN).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&journal, &[0; 48], at).unwrap();
        }
    }
    let expected: Vec<u64> =
        (0..1_050).step_by(50).chain([1_024, 1_025, 1_050]).filter(|block| *block != 100).collect();
    for _ in 0..2 {
        let (part, held) = part(&target(&scratch, &tree, false), 1).unwrap();
        assert_eq!(held.iter().map(|(block, _)| *block).collect::<Vec<_>>(), expected);
        let journal = scratch.0.join(".anabranch-partial").join(&part.journal_name);
        assert_eq!(
            (fs::metadata(journal).unwrap().len() - 96) % 48,
            0,
            "records stay where records belong"
        );
    }
}

#[test]
fn what_was_written_into_holes_of_a_part_is_gone() {
    let scratch = Scratch::new("holes");
    let entry =
        File { size: 5 * BLOCK, data: Some(vec![(BLOCK, BLOCK + 1), (4 * BLOCK, 10)]), ..file(0) };
    let tree = tree(&[("disk.img", entry.clone())]);
    let (part, _) = part(&target(&scratch, &tree, false), 1).unwrap();
    let content = content(BLOCK + 11);
    part.write(0, &content).unwrap();
    let path = scratch.0.join(".anabranch-partial").join(&part.name);
    let rot = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for at in [0, 3 * BLOCK, 5 * BLOCK - 5] {
        std::os::unix::fs::FileExt::write_all_at(&rot, b"rot", at).unwrap();
    }
    part.finish(&entry).unwrap();
    let block = usize::try_from(BLOCK).unwrap();
    let mut expected = vec![0; 5 * block];
    expected[block..=2 * block].copy_from_slice(&content[..=block]);
    expected[4 * block..4 * block + 10].copy_from_slice(&content[block + 1..]);
    assert!(fs::read(&path).unwrap() == expected);
}

/// Were the name lost with the power and the journal not there, all of the file would be sent
/// again.
#[test]
fn a_journal_outlives_the_sync_of_its_files_name() {
    let scratch = Scratch::new("outlives");
    let content = content(BLOCK + 1);
    let tree = tree(&[("folder/disk.img", file(BLOCK + 1))]);
    let target = target(&scratch, &tree, false);
    let (part, _) = part(&target, 1).unwrap();
    part.write(0, &content).unwrap();
    (0..2).for_each(|block| part.record_block(block, cv(&content, block)).unwrap());
    let journal = part.journal_name.clone();
    let root = Cv(*blake3::hash(&content).as_bytes());
    let mut settled = PendingSync::default();
    target.settle(&[Completed::Large(0, root, Arc::new(part))], &mut settled).unwrap();
    assert_eq!(scratch.left(), [journal], "its name is not on the disk yet");
    assert_eq!(settled.folders().collect::<Vec<_>>(), [&b""[..], b"folder"]);
    target.settle(&[], &mut settled).unwrap();
    assert_eq!(settled.folders().count(), 0);
    assert_eq!(scratch.left(), Vec::<String>::new());
}

/// Killed between a name and its sync: the next attempt finds nothing to send, and must sync all
/// the same.
#[test]
fn the_folder_of_an_earlier_attempt_says_that_names_may_not_be_synced() {
    let scratch = Scratch::new("unsynced");
    let directory = Directory::open(&scratch.0).unwrap();
    let staging = Staging::open(&directory).unwrap();
    assert!(!staging.existed());
    std::mem::forget(staging);
    assert!(Staging::open(&directory).unwrap().existed());
}

/// Several transfers into one folder: one that had ended took the folder of one that had begun, and
/// that ended with "No such file or directory".
#[test]
fn a_session_that_ends_leaves_the_folder_of_the_next_one() {
    let scratch = Scratch::new("next");
    let directory = Directory::open(&scratch.0).unwrap();
    let ending = Staging::open(&directory).unwrap();
    ending.remove_if_empty();
    let next = Staging::open(&directory).unwrap();
    drop(ending);
    assert!(scratch.0.join(".anabranch-partial").exists());
    drop(next);
    assert!(!scratch.0.join(".anabranch-partial").exists());
}

/// The comparison of a target's tree with what is there.
fn survey(target: &Target, tree: &Tree) -> Survey {
    let (directory, staging) = (&target.directory, &*target.staging);
    Survey::new(directory, Some(staging), tree, target.wishes, None, &Wanted::always()).unwrap()
}

#[test]
fn a_journal_without_its_part_is_removed() {
    let scratch = Scratch::new("leftover");
    let tree = tree(&[("disk.img", file(BLOCK + 1))]);
    let target = target(&scratch, &tree, false);
    // A crash came after the name and before the end.
    let (part, _) = part(&target, 1).unwrap();
    part.finish(tree.file(0).unwrap()).unwrap();
    fs::rename(scratch.0.join(".anabranch-partial").join(&part.name), scratch.0.join("disk.img"))
        .unwrap();
    assert_eq!(scratch.left(), [part.journal_name]);
    let survey = survey(&target, &tree);
    assert!(survey.wanted.is_empty());
    assert_eq!(scratch.left(), Vec::<String>::new());
}

#[test]
fn two_transfers_of_one_name_do_not_mix() {
    let scratch = Scratch::new("lock");
    let tree = tree(&[("disk.img", file(BLOCK + 1))]);
    let (one, other) = (target(&scratch, &tree, false), target(&scratch, &tree, false));
    let _held = part(&one, 1).unwrap();
    let error = part(&other, 1).err().unwrap();
    assert!(error.to_string().contains("another transfer"), "{error}");
}

#[test]
fn what_the_disk_gives_back_is_checked() {
    let scratch = Scratch::new("verify");
    let tree = tree(&[("small", file(5))]);
    let target = target(&scratch, &tree, false);
    let staged = target.staging.put(0, b"small", &file(5), b"hello").unwrap();
    fs::write(scratch.0.join(".anabranch-partial").join(&staged.name), "hellO").unwrap();
    let settled =
        target.settle(&[Completed::Small(None, vec![staged])], &mut PendingSync::default());
    assert!(matches!(settled, Err(Error::Integrity { .. })));
    assert!(!scratch.0.join("small").exists());
}

#[test]
fn small_files_are_taken_up_if_they_are_what_their_names_say() {
    let scratch = Scratch::new("staged");
    let holes = File { size: 100, data: Some(vec![(10, 5), (50, 5)]), ..file(0) };
    let files = [
        ("good", file(5)),
        ("rotten", file(5)),
        ("torn", file(5)),
        ("older", file(5)),
        ("holes", holes.clone()),
    ];
    let tree = tree(&files);
    {
        let target = target(&scratch, &tree, false);
        for (index, (name, file)) in files.iter().enumerate().take(3) {
            target.staging.put(index, name.as_bytes(), file, b"hello").unwrap();
        }
        target.staging.put(3, b"older", &File { mtime: 7, ..file(5) }, b"hello").unwrap();
        target.staging.put(4, b"holes", &holes, b"helloworld").unwrap();
        let find = |name: &str| {
            scratch
                .left()
                .into_iter()
                .find(|left| left.starts_with(&name_prefix(name.as_bytes())))
                .unwrap()
        };
        let folder = scratch.0.join(".anabranch-partial");
        for (name, bytes) in [("rotten", "hellO"), ("torn", "hell")] {
            let path = folder.join(find(name));
            fs::write(&path, bytes).unwrap();
            let time = fs::File::open(&path).unwrap();
            rustix::fs::futimens(&time, &super::timestamps::timestamps(1_500_000_000)).unwrap();
        }
    }
    let target = target(&scratch, &tree, false);
    let survey = survey(&target, &tree);
    let staged: Vec<usize> = survey.staged.iter().map(|staged| staged.entry).collect();
    assert_eq!(staged, [0, 4]);
    assert_eq!(survey.wanted.iter().copied().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(scratch.left().len(), 2, "what is of no use is removed");
    // They get their names without a byte being sent.
    let mut settled = PendingSync::default();
    target.settle(&[Completed::Small(None, survey.staged)], &mut settled).unwrap();
    target.finish(&AtEnd::default(), &mut settled).unwrap();
    assert_eq!(fs::read(scratch.0.join("good")).unwrap(), b"hello");
    let arrived = fs::read(scratch.0.join("holes")).unwrap();
    assert_eq!(
        (&arrived[10..15], &arrived[50..55], arrived.len()),
        (&b"hello"[..], &b"world"[..], 100)
    );
    assert_eq!(scratch.left(), Vec::<String>::new());
}

/// Killed after a small file with holes was staged; then something is written into its holes, and
/// nothing else of it changes.
#[test]
fn what_was_written_into_holes_of_a_staged_small_file_is_gone() {
    let scratch = Scratch::new("small-holes");
    let holes = |size, data: &[(u64, u64)]| File { size, data: Some(data.to_vec()), ..file(0) };
    let files = [
        ("as-it-was", holes(4 * BLOCK, &[(BLOCK, 5)])),
        ("before", holes(4 * BLOCK, &[(BLOCK, 5)])),
        ("beside", holes(4 * BLOCK, &[(BLOCK, 5)])),
        ("end", holes(4 * BLOCK, &[(BLOCK, 5)])),
        ("one-hole", holes(4 * BLOCK, &[])),
    ];
    let written = [None, Some(0), Some(BLOCK + 5), Some(4 * BLOCK - 3), Some(BLOCK)];
    let tree = tree(&files);
    {
        let target = target(&scratch, &tree, false);
        for (index, ((name, file), at)) in files.iter().zip(written).enumerate() {
            let data = if file.data_len() == 0 { &b""[..] } else { b"hello" };
            let staged = target.staging.put(index, name.as_bytes(), file, data).unwrap();
            let path = scratch.0.join(".anabranch-partial").join(staged.name);
            let rot = fs::OpenOptions::new().write(true).open(path).unwrap();
            if let Some(at) = at {
                std::os::unix::fs::FileExt::write_all_at(&rot, b"rot", at).unwrap();
                rustix::fs::futimens(&rot, &super::timestamps::timestamps(1_500_000_000)).unwrap();
            }
        }
    }
    let target = target(&scratch, &tree, false);
    let mut survey = survey(&target, &tree);
    let taken_up: Vec<usize> = survey.staged.iter().map(|staged| staged.entry).collect();
    assert_eq!((taken_up, &survey.empty), (vec![0], &vec![4]));
    assert_eq!(survey.wanted.iter().copied().collect::<Vec<_>>(), [1, 2, 3]);
    // What is staged in the place of what was left has none of it.
    for (index, data) in [(1, &b"hello"[..]), (2, b"hello"), (3, b"hello"), (4, b"")] {
        survey.staged.push(
            target.staging.put(index, files[index].0.as_bytes(), &files[index].1, data).unwrap(),
        );
    }
    let mut settled = PendingSync::default();
    target.settle(&[Completed::Small(None, survey.staged)], &mut settled).unwrap();
    target.finish(&AtEnd::default(), &mut settled).unwrap();
    for (name, file) in &files {
        let mut expected = vec![0; usize::try_from(file.size).unwrap()];
        for (offset, len) in file.extents() {
            let start = usize::try_from(offset).unwrap();
            expected[start..start + usize::try_from(len).unwrap()].copy_from_slice(b"hello");
        }
        assert!(fs::read(scratch.0.join(name)).unwrap() == expected, "{name}");
    }
}

#[test]
fn links_lead_nowhere() {
    let scratch = Scratch::new("links");
    let outside = Scratch::new("links-outside");
    let victim = outside.0.join("victim");
    fs::write(&victim, "precious").unwrap();
    let tree = tree(&[("folder/file", file(5))]);
    // The hidden folder is no link that somebody put there, and what is in it neither.
    std::os::unix::fs::symlink(&outside.0, scratch.0.join(".anabranch-partial")).unwrap();
    let directory = Directory::open(&scratch.0).unwrap();
    assert!(Staging::open(&directory).is_err());
    fs::remove_file(scratch.0.join(".anabranch-partial")).unwrap();
    let target = target(&scratch, &tree, true);
    let staged = target.staging.put(0, b"folder/file", &file(5), b"hello").unwrap();
    let path = scratch.0.join(".anabranch-partial").join(&staged.name);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&victim, &path).unwrap();
    assert!(target.staging.put(0, b"folder/file", &file(5), b"hello").is_err());
    fs::remove_file(&path).unwrap();
    // Nor is it another name of somebody else's file.
    fs::hard_link(&victim, &path).unwrap();
    assert!(target.staging.put(0, b"folder/file", &file(5), b"hello").is_err());
    fs::remove_file(&path).unwrap();
    // A folder that becomes a link while files arrive is not gone through.
    let staged = target.staging.put(0, b"folder/file", &file(5), b"hello").unwrap();
    std::os::unix::fs::symlink(&outside.0, scratch.0.join("folder")).unwrap();
    let settled =
        target.settle(&[Completed::Small(None, vec![staged])], &mut PendingSync::default());
    assert!(matches!(settled, Err(Error::InTheWay { found: "a symbolic link", .. })));
    assert_eq!(fs::read_dir(&outside.0).unwrap().count(), 1);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn a_pack_that_comes_in_parts_is_put_together() {
    let scratch = Scratch::new("spool");
    let target = target(&scratch, &tree(&[("a", file(5))]), false);
    let mut buffer = [0; 5];
    target.staging.read_spooled(7, &mut buffer).unwrap();
    for (object, bytes) in [(7, b"hello"), (3, b"world")] {
        target.staging.spool(object, 3, &bytes[3..]).unwrap();
        target.staging.spool(object, 0, &bytes[..3]).unwrap();
    }
    for (object, bytes) in [(7, b"hello"), (3, b"world")] {
        target.staging.read_spooled(object, &mut buffer).unwrap();
        assert_eq!(&buffer, bytes);
        target.staging.free_slot(object);
    }
    assert_eq!(scratch.left(), Vec::<String>::new(), "it has no name");
}

#[test]
fn wishes_are_ranges_of_files() {
    let scratch = Scratch::new("ranges");
    let mut entries =
        tree(&[("a", file(1)), ("b", file(1)), ("d", file(1)), ("e", file(1))]).entries().to_vec();
    entries
        .insert(2, Entry { path: b"c".to_vec(), kind: Kind::Directory { mtime: 0, mode: 0o755 } });
    let tree = Tree::new(entries).unwrap();
    let directory = Directory::open(&scratch.0).unwrap();
    let ranges = |survey: &Survey| {
        survey.ranges(&tree).iter().map(|range| (range.start, range.len)).collect::<Vec<_>>()
    };
    let mut survey =
        Survey::new(&directory, None, &tree, Wishes::default(), None, &Wanted::always()).unwrap();
    assert_eq!(ranges(&survey), [(0, 5)]);
    survey.wanted.remove(&3);
    assert_eq!(ranges(&survey), [(0, 2), (4, 1)]);
}
