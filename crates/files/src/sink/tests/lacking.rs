//! File systems that lack a system call: everything arrives all the same, or its loss is counted,
//! and a second run finds what is there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use transfer::digest::{Merge, block_cv};
use transfer::{BLOCK, Extent, Packing, Tree};
use wire::files::{Archived, Wishes};
use wire::manifest::{Entry, File, Kind};

use super::{Scratch, content};
use crate::Error;
use crate::blocking::Wanted;
use crate::sink::settle::{Completed, PendingSync, Target};
use crate::sink::survey::{Fate, Survey};
use crate::sink::{Directory, Staging};

/// Calls that some file system, or some container, lacks; on this architecture alone their numbers
/// are these.
#[cfg(target_arch = "x86_64")]
const CALLS: [(&str, &[i64]); 10] = [
    ("renameat2", &[316]),
    ("linkat", &[265]),
    ("renameat2 and linkat", &[316, 265]),
    ("symlinkat", &[266]),
    ("fchmod", &[91]),
    ("utimensat", &[280]),
    ("flock", &[73]),
    ("fsync, fdatasync and syncfs", &[74, 75, 306]),
    ("fallocate", &[285]),
    ("lseek", &[8]),
];

const SIZE: u64 = 3 * BLOCK;

/// A large file with a hole in its middle, a small and an empty one, and links.
fn tree() -> Tree {
    let small = |size| File { size, mtime: 1_500_000_001, mode: 0o640, hash: None, data: None };
    let large = File { data: Some(vec![(0, BLOCK + 1), (2 * BLOCK, BLOCK)]), ..small(SIZE) };
    let entry = |path: &str, kind| Entry { path: path.as_bytes().to_vec(), kind };
    Tree::new(vec![
        entry("tree", Kind::Directory { mtime: 1_000_000_000_000_000_007, mode: 0o750 }),
        entry("tree/empty", Kind::File(small(0))),
        entry("tree/large", Kind::File(large)),
        entry("tree/small", Kind::File(small(1_000))),
        entry("tree/soft", Kind::Symlink { mtime: 1, target: b"small".to_vec() }),
        entry("tree/twin", Kind::HardLink { to: 3 }),
    ])
    .unwrap()
}

/// Forbids this thread these calls.
fn forbid(calls: &[i64], errno: Errno) {
    // Every file system has the other positions of `lseek`.
    let holes = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Ge, 3).unwrap();
    let of_holes = SeccompRule::new(vec![holes]).unwrap();
    let rules = calls.iter().map(|call| match call {
        8 => (8, vec![of_holes.clone()]),
        call => (*call, Vec::new()),
    });
    let rules = rules.collect();
    let action = SeccompAction::Errno(u32::try_from(errno.raw_os_error()).unwrap());
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

/// Surveys the folder, and brings what is wanted. Returns the fates, and what was lost.
fn run(scratch: &Scratch) -> Result<(Vec<Fate>, Archived), Error> {
    let directory = Arc::new(Directory::open(&scratch.0)?);
    let staging = Arc::new(Staging::open(&directory)?);
    let (tree, wishes) = (tree(), Wishes { verify: true, ..Wishes::default() });
    let wanted = Wanted::always();
    let survey = Survey::new(&directory, Some(&staging), &tree, wishes, None, &wanted)?;
    let packing = Arc::new(Packing::new(&tree, |index| survey.wanted.contains(&index)).unwrap());
    let target = Target::new(directory, Arc::clone(&staging), tree, Arc::clone(&packing), wishes);
    let mut batch = Vec::new();
    let mut small = Vec::new();
    let whole = content(SIZE);
    let file =
        |index: usize| (&target.tree.entries()[index].path, target.tree.file(index).unwrap());
    for index in [1, 3] {
        if survey.wanted.contains(&index) || survey.empty.contains(&index) {
            let (path, file) = file(index);
            let size = usize::try_from(file.size).unwrap();
            small.push(staging.put(index, path, file, &whole[..size])?);
        }
    }
    batch.push(Completed::Small(None, small));
    if let Some(object) = packing.object_of_large(2) {
        let (path, file) = file(2);
        let from = peer::Fingerprint::from([1; 32]);
        let opened = crate::sink::large::Part::open(
            &staging, &packing, object, path, file, from, [2; 16], false,
        );
        let (part, _) = opened?;
        let at = packing.layout().object_extent(object).unwrap();
        let data: Vec<u8> = file
            .extents()
            .flat_map(|(offset, len)| {
                let start = usize::try_from(offset).unwrap();
                whole[start..start + usize::try_from(len).unwrap()].to_vec()
            })
            .collect();
        let mut merge = Merge::new(at.len);
        for block in 0..at.len.div_ceil(BLOCK) {
            let extent = Extent::new(at.start + block * BLOCK, BLOCK).intersection(at);
            let start = usize::try_from(extent.start - at.start).unwrap();
            let bytes = &data[start..start + usize::try_from(extent.len).unwrap()];
            part.write(extent.start, bytes)?;
            let cv = block_cv(at.len, block * BLOCK, bytes);
            part.record_block(block, cv)?;
            merge.insert(block, cv).unwrap();
        }
        // Another process wrote into the hole since an earlier attempt.
        fs::File::options()
            .write(true)
            .open(scratch.0.join(".anabranch-partial").join(&part.name))
            .and_then(|file| {
                std::os::unix::fs::FileExt::write_all_at(&file, b"stale", BLOCK + 50_000)
            })
            .unwrap();
        part.sync()?;
        batch.push(Completed::Large(object, merge.root().unwrap(), Arc::new(part)));
    }
    let mut pending = PendingSync::default();
    target.settle(&batch, &mut pending)?;
    target.finish(&survey.at_end, &mut pending)?;
    Ok((survey.fates.clone(), target.archived()))
}

/// Found on NTFS, exFAT, NFS and CIFS: each of these calls ended the whole transfer.
#[cfg(target_arch = "x86_64")]
#[test]
fn what_a_file_system_lacks_is_done_otherwise_or_counted() {
    for (name, calls) in CALLS {
        for errno in [Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL, Errno::PERM] {
            let what = format!("{name}: {errno}");
            let scratch = Scratch::new("lacking");
            let (first, second) = std::thread::scope(|scope| {
                let both = scope.spawn(|| {
                    forbid(calls, errno);
                    (run(&scratch), run(&scratch))
                });
                both.join().unwrap()
            });
            let (_, lost) = first.unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&scratch, name, &what, lost);
            if name == "utimensat" {
                // Without times, what is there seems to be another version.
                assert!(matches!(second, Err(Error::Exists { .. })), "{what}");
                continue;
            }
            let (fates, _) = second.unwrap_or_else(|error| panic!("{what}, again: {error}"));
            let is_symbolic = |index: usize| index == 4 && name == "symlinkat";
            let is_same = |(index, fate): (usize, &Fate)| *fate == Fate::Same || is_symbolic(index);
            assert!(fates.iter().enumerate().all(is_same), "{what}: {fates:?}");
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn check(scratch: &Scratch, name: &str, what: &str, lost: Archived) {
    let at = |file: &str| scratch.0.join("tree").join(file);
    let mut large = content(SIZE);
    let hole = usize::try_from(BLOCK + 1).unwrap()..usize::try_from(2 * BLOCK).unwrap();
    large[hole].fill(0);
    assert!(fs::read(at("large")).unwrap() == large, "{what}");
    assert_eq!(fs::read(at("empty")).unwrap(), b"", "{what}");
    for file in ["small", "twin"] {
        assert_eq!(fs::read(at(file)).unwrap(), content(1_000), "{what}");
    }
    assert!(!scratch.0.join(".anabranch-partial").exists(), "{what}: {:?}", scratch.left());
    let metadata = fs::metadata(at("small")).unwrap();
    let has_link = fs::read_link(at("soft")).is_ok();
    let (links, mode, mtime) = (metadata.nlink(), metadata.permissions().mode(), metadata.mtime());
    let expected = match name {
        "linkat" | "renameat2 and linkat" => (1, 0),
        "symlinkat" => (0, 1),
        // Three files and the folder; of the times also the symbolic link's.
        "fchmod" => (4, 0),
        "utimensat" => (5, 0),
        _ => (0, 0),
    };
    assert_eq!((lost.lost_modes, lost.lost_entries), expected, "{what}");
    assert_eq!(links, if name.contains("linkat") && name != "symlinkat" { 1 } else { 2 }, "{what}");
    assert_eq!(has_link, name != "symlinkat", "{what}");
    assert!(mode & 0o777 == 0o640 || name == "fchmod", "{what}");
    assert!(mtime == 1 || name == "utimensat", "{what}");
}

/// Found on FAT: one file beyond 4 GiB ended the whole transfer.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_file_that_the_file_system_cannot_have_for_its_size_is_counted() {
    let scratch = Scratch::new("too-large");
    // All of it is a hole, so that the disk has room.
    let file = |size| File { size, mtime: 1, mode: 0o640, hash: None, data: Some(Vec::new()) };
    let entry =
        |path: &str, size| Entry { path: path.as_bytes().to_vec(), kind: Kind::File(file(size)) };
    let tree = Tree::new(vec![entry("large", 5 << 30), entry("limit", u32::MAX.into())]).unwrap();
    let survey = std::thread::scope(|scope| {
        let survey = scope.spawn(|| {
            // ftruncate.
            forbid(&[77], Errno::FBIG);
            let directory = Arc::new(Directory::open(&scratch.0).unwrap());
            let staging = Staging::open(&directory).unwrap();
            let wanted = Wanted::always();
            Survey::new(&directory, Some(&staging), &tree, Wishes::default(), None, &wanted)
        });
        survey.join().unwrap()
    });
    let survey = survey.unwrap();
    assert_eq!(survey.fates, [Fate::Kept, Fate::Created]);
    assert_eq!(survey.at_end.nameless.iter().copied().collect::<Vec<_>>(), [0]);
}
