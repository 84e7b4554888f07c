//! The walk beside `openat2`, and beside somebody who swaps folders for links; the tests of this
//! crate in a process that may not use `openat2`.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rustix::fs::{Mode, OFlags, fstat, openat2};
use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use super::{Inode, Links, has_openat2, walk};

/// Says to a process that it is the one without `openat2`.
const WITHOUT: &str = "ANABRANCH_TEST_WITHOUT_OPENAT2";

/// Its number, on all architectures.
const OPENAT2: i64 = 437;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("anabranch-beneath-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn folder(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn identity(opened: Result<OwnedFd, Errno>) -> Result<Inode, Errno> {
    opened.map(|opened| Inode::from(&fstat(opened).unwrap()))
}

/// A tree with all that may stand in a lookup's way, below `root/inside`.
fn tree(root: &Path) {
    let inside = root.join("inside");
    fs::create_dir_all(inside.join("a/b/a")).unwrap();
    fs::create_dir_all(root.join("outside")).unwrap();
    for file in ["f", "a/f", "a/b/f"] {
        fs::write(inside.join(file), file).unwrap();
    }
    fs::write(root.join("outside/f"), "outside").unwrap();
    for (link, to) in [
        ("l", "a"),
        ("a/l", "b/../b"),
        ("a/b/l", "../../f"),
        ("a/up", ".."),
        ("out", "../outside"),
        ("a/out", "../../outside/f"),
        ("abs", "/"),
        ("loop", "loop"),
        ("a/loop", "../l/loop"),
        ("none", "nothing"),
        ("slash", "a/"),
        ("file", "f/"),
    ] {
        symlink(to, inside.join(link)).unwrap();
    }
}

const NAMES: [&str; 16] = [
    "a", "b", "f", "l", "up", "out", "abs", "loop", "none", "slash", "file", "..", ".", "", "x",
    "a/b",
];
const FLAGS: [OFlags; 6] = [
    OFlags::RDONLY,
    OFlags::PATH,
    OFlags::PATH.union(OFlags::DIRECTORY),
    OFlags::RDONLY.union(OFlags::DIRECTORY),
    OFlags::PATH.union(OFlags::NOFOLLOW),
    OFlags::RDONLY.union(OFlags::NOFOLLOW),
];

/// The walk finds what `openat2` finds, and fails as it does.
#[test]
fn the_walk_agrees_with_the_kernel() {
    if !has_openat2() {
        return;
    }
    let scratch = Scratch::new("model");
    tree(&scratch.0);
    let root = folder(&scratch.0.join("inside"));
    let names = proptest::collection::vec(0..NAMES.len(), 1..6);
    let cases = (names, 0..FLAGS.len(), any::<bool>());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4_000) };
    let compare = |(names, flags, follows): (Vec<usize>, usize, bool)| {
        let links = if follows { Links::Beneath } else { Links::Never };
        let path = names.iter().map(|name| NAMES[*name]).collect::<Vec<_>>().join("/");
        prop_assume!(!path.is_empty());
        let flags = FLAGS[flags];
        let kernel = openat2(&root, &*path, flags, Mode::empty(), links.resolve());
        let walked = walk::open(root.as_fd(), path.as_bytes(), flags, links);
        prop_assert_eq!(identity(walked), identity(kernel), "{} {:?} {:?}", path, flags, links);
        Ok(())
    };
    if let Err(error) = TestRunner::new(config).run(&cases, compare) {
        panic!("{error}");
    }
}

/// Folders on the way are swapped for links that lead outside, as fast as it goes.
#[test]
fn a_walk_is_not_led_outside_by_links_that_are_swapped_in() {
    let scratch = Scratch::new("race");
    let at = |path: &str| scratch.0.join(path);
    tree(&scratch.0);
    fs::create_dir_all(at("inside/way/a")).unwrap();
    fs::create_dir_all(at("outside/a")).unwrap();
    fs::write(at("inside/way/a/f"), "inside").unwrap();
    fs::write(at("outside/a/f"), "outside").unwrap();
    symlink("../outside", at("inside/link")).unwrap();
    let forbidden = identity(Ok(folder(&at("outside/a")))).unwrap();
    let secret = identity(rustix::fs::open(at("outside/a/f"), OFlags::PATH, Mode::empty()));
    let root = folder(&at("inside"));
    let is_over = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fs::rename(at("inside/way"), at("inside/kept")).unwrap();
                fs::rename(at("inside/link"), at("inside/way")).unwrap();
                fs::rename(at("inside/way"), at("inside/link")).unwrap();
                fs::rename(at("inside/kept"), at("inside/way")).unwrap();
            }
        });
        let mut found = 0;
        for attempt in 0..30_000 {
            let links = if attempt % 2 == 0 { Links::Never } else { Links::Beneath };
            let file = identity(walk::open(root.as_fd(), b"way/a/f", OFlags::RDONLY, links));
            assert_ne!(file, secret);
            let above = identity(walk::open(root.as_fd(), b"way/a/f/..", OFlags::PATH, links));
            assert_ne!(above, Ok(forbidden));
            found += usize::from(file.is_ok());
        }
        is_over.store(true, Ordering::Relaxed);
        found
    });
    assert!(found > 100, "found {found} times: nothing was raced");
}

/// Makes `openat2` fail with `errno` for this thread and the processes that it starts, as systemd's
/// `RestrictSUIDSGID=` does.
fn forbid_openat2(errno: Errno) {
    let rules = [(OPENAT2, Vec::new())].into_iter().collect();
    let action = SeccompAction::Errno(u32::try_from(errno.raw_os_error()).unwrap());
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

/// Runs tests of this crate in a process without `openat2`. Returns how many passed.
fn tests_without(errno: Errno, filters: &[&str]) -> usize {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(filters).env(WITHOUT, "1");
    let run = move || {
        forbid_openat2(errno);
        command.output().unwrap()
    };
    // The filter is this thread's and its children's.
    let output = std::thread::spawn(run).join().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let passed = said.split("test result: ok. ").nth(1).and_then(|rest| rest.split(' ').next());
    passed.and_then(|count| count.parse().ok()).expect("a test binary says how many passed")
}

/// All tests of links, races, folders and hostile peers.
#[test]
fn links_and_races_lead_nowhere_without_openat2() {
    if std::env::var_os(WITHOUT).is_some() {
        return;
    }
    let filters = ["adversarial::", "beneath::", "listen::", "sink::", "source::"];
    let passed = tests_without(Errno::NOSYS, &filters);
    assert!(passed > 100, "only {passed} tests ran");
}

/// Old filters of containers answer that it is not permitted.
#[test]
fn a_filter_may_forbid_openat2_with_another_error() {
    if std::env::var_os(WITHOUT).is_some() {
        assert!(!has_openat2(), "the filter is not in force");
        return;
    }
    let filters = ["beneath::", "sink::tests::"];
    let passed = tests_without(Errno::PERM, &filters);
    assert!(passed > 20, "only {passed} tests ran");
}
