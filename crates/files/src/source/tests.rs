//! Another process changes what is being sent: nothing outside the named folders is read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, RenameFlags, Timespec, Timestamps, renameat_with, utimensat,
};
use rustix::thread::CapabilitySet;
use transfer::{BLOCK, Packing};
use wire::files::FileFrame;
use wire::manifest::Kind;

use super::{Buffer, Source, SourceRoot, Supply, open_directory};
use crate::left_out::{LeftOuts, MOST_NAMED};
use crate::{Error, Selection};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("anabranch-source-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SECRET: &[u8] = b"secret";
const PUBLIC: &[u8] = b"public";

/// Writes a file with a time that all files here share: only its inode tells it from another.
fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
    let time = Timespec { tv_sec: 1_500_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

fn open(root: &SourceRoot, paths: &[PathBuf], selection: &Selection) -> Result<Source, Error> {
    let found = Source::open(root.clone(), paths, selection, true, None, &mut |_| Ok(()));
    found.map(|(source, _)| source)
}

/// Everything that a source gives: the contents of its files.
fn read(source: Source) -> Result<Vec<u8>, Error> {
    let packing = Packing::new(source.tree(), |_| true).unwrap();
    let blocks = packing.layout().blocks();
    let supply = Supply::new(Arc::new(source), packing);
    let mut all = Vec::new();
    for block in 0..blocks {
        let mut buffer = Buffer::default();
        supply.read(supply.packing().layout().block_extent(block).unwrap(), &mut buffer)?;
        all.extend_from_slice(buffer.bytes());
    }
    Ok(all)
}

fn leaks(content: &[u8]) -> bool {
    content.windows(SECRET.len()).any(|part| part == SECRET)
}

/// A tree in which `folder/file` and `folder` may be exchanged with links to a secret of the same
/// size and time.
fn exchangeable(scratch: &Scratch) -> (PathBuf, [(PathBuf, PathBuf); 2]) {
    let (tree, outside) = (scratch.0.join("tree"), scratch.0.join("outside"));
    for folder in [&tree, &outside] {
        fs::create_dir_all(folder).unwrap();
    }
    let inner = tree.join("folder");
    fs::create_dir_all(&inner).unwrap();
    for number in 0..40 {
        let name = format!("{number:02}");
        write(&inner.join(&name), PUBLIC);
        write(&outside.join(&name), SECRET);
    }
    write(&tree.join("file"), PUBLIC);
    let aside = scratch.0.join("aside");
    fs::create_dir_all(&aside).unwrap();
    symlink(&outside, aside.join("folder")).unwrap();
    symlink(outside.join("00"), aside.join("file")).unwrap();
    let pairs = ["folder", "file"].map(|name| (tree.join(name), aside.join(name)));
    (tree, pairs)
}

fn exchange((a, b): &(PathBuf, PathBuf)) {
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
}

/// The roots and the names of the tree from which it may be sent, by itself or by a list.
fn ways(scratch: &Scratch, tree: &Path) -> Vec<(SourceRoot, Vec<PathBuf>, Selection)> {
    let listed = |names: &[&str]| Selection {
        files_from: Some(names.iter().map(PathBuf::from).collect()),
        ..Selection::default()
    };
    let below = SourceRoot::Below(Arc::new(open_directory(&scratch.0).unwrap()));
    vec![
        (SourceRoot::Anywhere, vec![tree.to_path_buf()], Selection::default()),
        (SourceRoot::Anywhere, vec![tree.to_path_buf()], listed(&["folder/07", "file"])),
        (below, vec!["tree".into()], Selection::default()),
    ]
}

#[test]
fn what_is_swapped_for_a_link_after_the_walk_is_not_read() {
    let scratch = Scratch::new("after");
    let (tree, pairs) = exchangeable(&scratch);
    for (root, paths, selection) in ways(&scratch, &tree) {
        for pair in &pairs {
            let source = open(&root, &paths, &selection).unwrap();
            exchange(pair);
            let got = read(source);
            exchange(pair);
            assert!(
                matches!(&got, Err(Error::SourceChanged { .. })),
                "{root:?}, {}: {got:?}",
                pair.0.display()
            );
        }
    }
}

/// The sizes and times are the same: another file is another file all the same.
#[test]
fn another_file_in_the_place_of_one_is_a_change() {
    let scratch = Scratch::new("other");
    let (tree, [_, (file, _)]) = exchangeable(&scratch);
    let large = tree.join("large");
    let size = usize::try_from(BLOCK).unwrap() + 10;
    for (path, content) in [(&file, PUBLIC.to_vec()), (&large, vec![b'p'; size])] {
        // As the source itself, and in the folder that is one.
        for named in [path, &tree] {
            write(path, &content);
            let source =
                open(&SourceRoot::Anywhere, std::slice::from_ref(named), &Selection::default())
                    .unwrap();
            let other = scratch.0.join("other");
            write(&other, &vec![b's'; content.len()]);
            fs::rename(&other, path).unwrap();
            assert!(matches!(read(source), Err(Error::SourceChanged { .. })), "{named:?}");
        }
    }
}

/// A local user swaps a folder and a file of the tree for links, over and over, while the tree is
/// walked and read.
#[test]
fn a_link_that_is_swapped_in_during_the_walk_leads_nowhere() {
    let scratch = Scratch::new("race");
    let (tree, pairs) = exchangeable(&scratch);
    let stop = AtomicBool::new(false);
    let (swaps, rounds) = std::thread::scope(|scope| {
        let swapping = scope.spawn(|| {
            let mut swaps = 0u32;
            while !stop.load(Ordering::Relaxed) {
                pairs.iter().for_each(exchange);
                swaps += 1;
                // Half of the walks meet the tree as it is.
                std::thread::sleep(Duration::from_micros(u64::from(swaps % 16) * 20));
            }
            swaps
        });
        let (began, mut rounds) = (Instant::now(), 0);
        let mut leak = None;
        while leak.is_none() && rounds < 400 && began.elapsed() < Duration::from_secs(10) {
            rounds += 1;
            for (root, paths, selection) in ways(&scratch, &tree) {
                let got = open(&root, &paths, &selection).and_then(read);
                if got.is_ok_and(|content| leaks(&content)) {
                    leak = Some(format!("{root:?} in round {rounds}"));
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        let swaps = swapping.join().unwrap();
        assert_eq!(leak, None, "the secret is read");
        (swaps, rounds)
    });
    assert!(swaps > rounds / 4, "{swaps} swaps in {rounds} rounds");
}

/// Links in a requested name are followed below the root, and no further.
#[test]
fn a_requested_link_is_followed_below_the_root_only() {
    let scratch = Scratch::new("root");
    let root = scratch.0.join("root");
    fs::create_dir_all(root.join("in")).unwrap();
    fs::write(scratch.0.join("secret"), SECRET).unwrap();
    fs::write(root.join("in/file"), PUBLIC).unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink(scratch.0.join("secret"), root.join("absolute")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("in", root.join("inside")).unwrap();
    let root = SourceRoot::Below(Arc::new(open_directory(&root).unwrap()));
    let ask = |path: &str| open(&root, &[path.into()], &Selection::default());
    let out = ["out", "absolute", "up", "up/secret", "../secret", "/etc/passwd"];
    for path in out.into_iter().chain(["in/../../secret", "in/../../root/in"]) {
        assert!(matches!(ask(path), Err(Error::Source { .. })), "{path}");
    }
    for path in ["in/file", "inside/file", "inside/", "in"] {
        assert_eq!(read(ask(path).unwrap()).unwrap(), PUBLIC, "{path}");
    }
    // In a folder, links are links.
    let all = ask(".").unwrap();
    let links = all.tree().entries().iter().filter_map(|entry| match &entry.kind {
        Kind::Symlink { target, .. } => Some((&entry.path[..], &target[..])),
        _ => None,
    });
    assert_eq!(links.filter(|link| *link == (b"up", b"..")).count(), 1);
    assert_eq!(all.tree().entries().len(), 6);
    assert_eq!(read(all).unwrap(), PUBLIC);
}

/// With more named folders than are kept open, each is opened again, and is then the same folder.
#[test]
fn many_named_folders_are_read_and_none_is_confused_with_another() {
    let scratch = Scratch::new("many");
    let folders: Vec<PathBuf> = (0..100)
        .map(|number| {
            let folder = scratch.0.join(format!("{number:03}"));
            fs::create_dir_all(&folder).unwrap();
            write(&folder.join("file"), format!("{number:03}").as_bytes());
            folder
        })
        .collect();
    let expected: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
    let expected = expected.concat();
    let source = open(&SourceRoot::Anywhere, &folders, &Selection::default()).unwrap();
    assert_eq!(read(source).unwrap(), expected.as_bytes());
    let source = open(&SourceRoot::Anywhere, &folders, &Selection::default()).unwrap();
    fs::rename(&folders[0], scratch.0.join("aside")).unwrap();
    symlink(&folders[1], &folders[0]).unwrap();
    assert!(matches!(read(source), Err(Error::SourceChanged { .. })));
}

/// A folder that was received into, in part, below a folder that is sent.
#[test]
fn staging_folders_are_left_out_wherever_they_are() {
    let scratch = Scratch::new("staging");
    for folder in [".anabranch-partial", "deep/.anabranch-partial/deeper"] {
        fs::create_dir_all(scratch.0.join(folder)).unwrap();
        write(&scratch.0.join(folder).join("spool"), SECRET);
    }
    write(&scratch.0.join("deep/file"), PUBLIC);
    let names = ["deep/file", "deep/.anabranch-partial/deeper/spool", ".anabranch-partial/spool"];
    let listed = names.iter().map(PathBuf::from).collect();
    let listed = Selection { files_from: Some(listed), ..Selection::default() };
    for selection in [Selection::default(), listed] {
        let (source, notices) = Source::open(
            SourceRoot::Anywhere,
            &[scratch.0.join("")],
            &selection,
            true,
            None,
            &mut |_| Ok(()),
        )
        .unwrap();
        let entries = source.tree().entries();
        let paths: Vec<_> =
            entries.iter().map(|entry| entry.path.escape_ascii().to_string()).collect();
        assert_eq!(paths, ["deep", "deep/file"]);
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(notices.iter().all(|text| text.contains("staging folder")), "{notices:?}");
    }
}

/// Runs `walk` in a thread that root's right to read everything does not help.
fn without_privilege<T: Send>(walk: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let walking = scope.spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            let both = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            sets.effective -= both;
            sets.permitted -= both;
            rustix::thread::set_capabilities(None, sets).unwrap();
            walk()
        });
        walking.join().unwrap()
    })
}

/// The paths of a source, and of what was left out, below `scratch`.
fn found(scratch: &Scratch, source: &Source) -> (Vec<String>, Vec<(String, String)>) {
    let paths = source.tree().entries().iter();
    let paths = paths.map(|entry| entry.path.escape_ascii().to_string()).collect();
    let left_out = source.left_out().named().iter().map(|(path, reason)| {
        let path = path.strip_prefix(&scratch.0).unwrap().display().to_string();
        (path, reason.clone())
    });
    (paths, left_out.collect())
}

#[test]
fn what_may_not_be_read_is_left_out_and_the_rest_is_not() {
    let scratch = Scratch::new("unreadable");
    let tree = scratch.0.join("tree");
    for folder in ["closed", "open", "unlisted"] {
        fs::create_dir_all(tree.join(folder)).unwrap();
        write(&tree.join(folder).join("file"), PUBLIC);
    }
    write(&tree.join("open/secret"), SECRET);
    let mode = |name: &str, mode| {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let close = [("open/secret", 0o200), ("closed", 0o000), ("unlisted", 0o100)];
    for (name, bits) in close {
        mode(name, bits);
    }
    let walk = |selection: Selection, path: &str| {
        let path = scratch.0.join(path);
        without_privilege(|| open(&SourceRoot::Anywhere, &[path], &selection))
    };
    let lenient = walk(Selection::default(), "tree");
    let strict = walk(Selection { strict: true, ..Selection::default() }, "tree");
    let named = walk(Selection::default(), "tree/open/secret");
    let listed = ["open/file", "open/secret", "closed/file", "gone"].map(PathBuf::from);
    let listed = Selection { files_from: Some(listed.to_vec()), ..Selection::default() };
    let listed = walk(listed, "tree");
    for (name, _) in close {
        mode(name, 0o700);
    }
    let (paths, left_out) = found(&scratch, &lenient.unwrap());
    assert_eq!(paths, ["tree", "tree/closed", "tree/open", "tree/open/file", "tree/unlisted"]);
    let missing: Vec<&str> = left_out.iter().map(|(path, _)| &path[..]).collect();
    assert_eq!(missing, ["tree/closed", "tree/open/secret", "tree/unlisted"]);
    assert!(left_out.iter().all(|(_, why)| why.starts_with("Permission denied")), "{left_out:?}");
    for (error, path) in [(strict.err(), "tree/closed"), (named.err(), "tree/open/secret")] {
        let error = error.unwrap();
        assert!(error.to_string().contains(path) && error.exit_code() == 3, "{error}");
    }
    let (paths, left_out) = found(&scratch, &listed.unwrap());
    assert_eq!(paths, ["closed", "open", "open/file"]);
    let missing: Vec<&str> = left_out.iter().map(|(path, _)| &path[..]).collect();
    assert_eq!(missing, ["tree/closed/file", "tree/gone", "tree/open/secret"]);
}

/// Another process removes files and folders of a folder that has been listed.
#[test]
fn what_vanishes_during_the_walk_is_left_out() {
    for strict in [false, true] {
        let scratch = Scratch::new("vanishing");
        let tree = scratch.0.join("tree");
        for name in ["a", "folder/file", "link", "file", "z"] {
            fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
            write(&tree.join(name), PUBLIC);
        }
        let mut looks = 0;
        let mut remove = |_: usize| {
            looks += 1;
            // The tree and what is in it are listed, and 'a' is found.
            if looks == 3 {
                fs::remove_file(tree.join("file")).unwrap();
                fs::remove_dir_all(tree.join("folder")).unwrap();
                fs::remove_file(tree.join("link")).unwrap();
            }
            Ok(())
        };
        let selection = Selection { strict, ..Selection::default() };
        let all = [tree.clone()];
        let source = Source::open(SourceRoot::Anywhere, &all, &selection, true, None, &mut remove);
        if strict {
            let error = source.map(drop).unwrap_err();
            assert!(error.to_string().contains("tree/f") && error.exit_code() == 3, "{error}");
            continue;
        }
        let (paths, left_out) = found(&scratch, &source.unwrap().0);
        assert_eq!(paths, ["tree", "tree/a", "tree/z"]);
        let missing: Vec<&str> = left_out.iter().map(|(path, _)| &path[..]).collect();
        assert_eq!(missing, ["tree/file", "tree/folder", "tree/link"]);
        assert!(left_out.iter().all(|(_, why)| why.contains("vanished")), "{left_out:?}");
    }
}

/// A folder of pipes does not fill the memory with their names.
#[test]
fn only_the_first_thousand_that_are_left_out_are_named() {
    let scratch = Scratch::new("pipes");
    write(&scratch.0.join("file"), PUBLIC);
    for number in 0..=MOST_NAMED {
        let path = scratch.0.join(format!("pipe-{number}"));
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
    }
    let source =
        open(&SourceRoot::Anywhere, std::slice::from_ref(&scratch.0), &Selection::default());
    let source = source.unwrap();
    assert_eq!(source.left_out().count(), MOST_NAMED + 1);
    assert_eq!(source.left_out().named().len(), MOST_NAMED);
    let mut heard = LeftOuts::default();
    for frame in source.left_out().frames(3) {
        let FileFrame::LeftOut(one) = frame else { panic!("{frame:?}") };
        heard.hear(&one, 3).unwrap();
    }
    assert_eq!((heard.count(), heard.named().len()), (MOST_NAMED + 1, 3));
}

/// The names in it are known, so that it need not be listed.
#[test]
fn a_folder_that_cannot_be_listed_gives_what_is_named() {
    let scratch = Scratch::new("listed");
    let folder = scratch.0.join("folder");
    fs::create_dir_all(&folder).unwrap();
    write(&folder.join("file"), PUBLIC);
    let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o300);
    let files_from = Some(vec!["folder/file".into()]);
    let selection = Selection { files_from, ..Selection::default() };
    let top = std::slice::from_ref(&scratch.0);
    let found = open(&SourceRoot::Anywhere, top, &selection).and_then(read);
    mode(0o700);
    assert_eq!(found.unwrap(), PUBLIC);
}

/// Found on disks whose clock had been wrong: such a time was sent as another one in silence.
#[test]
fn times_that_cannot_be_sent_are_said() {
    let scratch = Scratch::new("times");
    let file = scratch.0.join("late");
    write(&file, b"x");
    let late = std::time::UNIX_EPOCH + std::time::Duration::from_secs(12_000_000_000);
    fs::File::options().write(true).open(&file).unwrap().set_modified(late).unwrap();
    if fs::metadata(&file).unwrap().modified().unwrap() != late {
        println!("skipped: this file system has no such time");
        return;
    }
    let found =
        Source::open(SourceRoot::Anywhere, &[file], &Selection::default(), true, None, &mut |_| {
            Ok(())
        });
    let (_, notices) = found.unwrap();
    assert!(notices.iter().any(|text| text.contains("after 2262")), "{notices:?}");
}
