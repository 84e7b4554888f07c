//! Whatever a hostile far side answers, nothing is made, changed or deleted here but what was asked
//! for.

use events::Events;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use net::Clock;
use peer::Fingerprint;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::time::timeout;
use transfer::Tree;
use transfer::digest::block_cv;
use wire::files::{Data, Wishes};
use wire::manifest::{Attributes, AttributesOf, Entry, File, Kind};

use super::{PATIENCE, Scratch};
use crate::blocking::Wanted;
use crate::sink::{Directory, Mirror, SinkEnd, SinkSession, attend, finish_files};
use crate::{AskedFor, Selection, ServedNames, matches_glob};

/// The names of a far side, and its new name.
type Words = (Vec<Vec<u8>>, Option<Vec<u8>>);

/// What a person asks for, and what the far side says of it.
#[derive(Clone, Debug)]
struct Request {
    names: &'static [&'static str],
    rename: Option<&'static str>,
    served: Option<Words>,
}

impl Request {
    /// What was asked for, if the far side's words are accepted.
    fn asked(&self) -> Option<AskedFor> {
        let names = self.names.iter().map(PathBuf::from).collect();
        let asked = AskedFor::new(names, self.rename.map(OsString::from));
        let Some((names, rename)) = self.served.clone() else { return Some(asked) };
        let names = names.into_iter().map(OsString::from_vec).collect();
        asked.answered(ServedNames { names, rename: rename.map(OsString::from_vec) }).ok()
    }

    /// Whether the person expects this name in the receiving folder.
    fn expects(&self, top: &[u8]) -> bool {
        match self.rename {
            Some(rename) => top == rename.as_bytes(),
            None => self.names.iter().any(|asked| match asked.rsplit('/').next() {
                Some("") => true,
                Some(last) => matches_glob(last.as_bytes(), top),
                None => false,
            }),
        }
    }

    fn asks_for_contents(&self) -> bool {
        self.rename.is_none() && self.names.iter().any(|name| name.ends_with('/'))
    }
}

fn component() -> impl Strategy<Value = Vec<u8>> {
    let asked = select(vec!["file", "b", "x.log", "y.log", "new", "dir"]);
    let hostile = select(vec![
        "",
        ".",
        "..",
        ".ssh",
        ".bash_profile",
        ".x.log",
        "leads",
        "kept",
        "canary",
        "*.log",
        ".anabranch-partial",
        ".Anabranch-Partial",
        "a\0b",
        "authorized_keys",
    ]);
    prop_oneof![
        6 => asked.prop_map(|name| name.as_bytes().to_vec()),
        2 => hostile.prop_map(|name| name.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..3),
    ]
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    let components = prop::collection::vec(component(), 1..4);
    (prop::bool::weighted(0.05), components).prop_map(|(is_absolute, components)| {
        let path = components.join(&b'/');
        if is_absolute { [b"/", &path[..]].concat() } else { path }
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    let sizes = select(vec![0u64, 1, 5_000, 300_000, u64::MAX]);
    let extents = prop::option::weighted(0.2, Just(vec![(4_096u64, 100u64)]));
    let file = (sizes, 0..=0o7777u16, extents).prop_map(|(size, mode, data)| {
        let data = data.filter(|_| size > 5_000);
        Kind::File(File { size, mtime: 1, mode: mode & 0o777, hash: None, data })
    });
    let targets = select(vec!["..", "/etc", "../outside", "leads", "file", "", "."]);
    prop_oneof![
        4 => file,
        3 => (0..=0o3777u16).prop_map(|mode| Kind::Directory { mtime: 1, mode }),
        2 => targets.prop_map(|target| Kind::Symlink { mtime: 1, target: target.into() }),
        1 => (0..8u32).prop_map(|to| Kind::HardLink { to }),
    ]
}

/// Entries of which most have a top that was asked for.
fn entries(tops: Vec<&'static str>) -> impl Strategy<Value = Vec<(Entry, bool)>> {
    let below = prop::collection::vec(component(), 0..3);
    let asked = (select(tops), below).prop_map(|(top, below)| {
        let mut path = top.as_bytes().to_vec();
        for component in below {
            path.extend([b"/", &component[..]].concat());
        }
        path
    });
    let entry = (prop_oneof![9 => asked, 1 => path()], kind(), any::<bool>());
    let entry = entry.prop_map(|(path, kind, is_owned)| (Entry { path, kind }, is_owned));
    prop::collection::vec(entry, 1..5)
}

fn request() -> impl Strategy<Value = Request> {
    let names = select(vec![
        &["file"][..],
        &["a/file"],
        &["*.log"],
        &["file", "b"],
        &["dir"],
        &["dir/"],
        &["file", "dir/"],
        &["b", "?.log"],
    ]);
    let hostile = (prop::collection::vec(path(), 1..3), prop::option::of(component()));
    let served = prop_oneof![
        2 => Just(None),
        1 => Just(Some(None)),
        1 => hostile.prop_map(|words| Some(Some(words))),
    ];
    let rename = prop::option::weighted(0.2, Just("new"));
    (names, rename, served).prop_map(|(names, rename, served)| {
        // An honest far side knows which names match.
        let honest = || {
            let resolved = names.iter().map(|name| name.replace(['*', '?'], "x").into_bytes());
            (resolved.collect(), None)
        };
        let served = served.map(|words| words.unwrap_or_else(honest));
        Request { names, rename, served }
    })
}

/// The tops that an answer to a request may have.
fn tops(request: &Request) -> Vec<&'static str> {
    match request.names {
        ["file" | "a/file"] => vec!["file"],
        ["*.log"] => vec!["x.log", "y.log", ".x.log"],
        ["file", "b"] => vec!["file", "b"],
        ["dir"] => vec!["dir"],
        ["b", "?.log"] => vec!["b", "x.log"],
        _ => vec!["file", "b", "kept", ".ssh", "leads"],
    }
}

/// Everything below a folder, but for what was asked for: its kind, mode and contents.
fn snapshot(root: &Path, inbox: &Path, request: &Request) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().as_bytes();
            let is_staging = name == b".anabranch-partial";
            if folder == inbox && (request.expects(name) || is_staging) {
                continue;
            }
            let stat = fs::symlink_metadata(&path).unwrap();
            let contents = if stat.is_dir() {
                folders.push(path.clone());
                Vec::new()
            } else if stat.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_vec()
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(path, (stat.mode(), contents));
        }
    }
    found
}

/// A receiving folder with what somebody keeps there, and something beside it.
fn furnished(scratch: &Scratch) -> PathBuf {
    let inbox = scratch.0.join("in");
    fs::create_dir_all(scratch.0.join("outside")).unwrap();
    fs::create_dir_all(inbox.join(".ssh")).unwrap();
    for canary in ["canary", "outside/canary", "outside/file", "in/kept", "in/.ssh/authorized_keys"]
    {
        fs::write(scratch.0.join(canary), "kept").unwrap();
    }
    symlink("../outside", inbox.join("leads")).unwrap();
    // A name that is asked for may lead out already.
    symlink("../outside", inbox.join("b")).unwrap();
    fs::hard_link(scratch.0.join("outside/file"), inbox.join("file")).unwrap();
    inbox
}

/// Runs the sink with a tree until it ends; the far side sends all data, as zeros.
async fn receive(inbox: &Path, asked: &AskedFor, tree: Tree) -> bool {
    let wishes = Wishes { overwrite: true, delete: true, archive: true, ..Wishes::default() };
    let mirror =
        Mirror { folders: asked.mirrored(&tree), selection: Selection::default(), is_forced: true };
    let Ok(directory) = Directory::open(inbox) else { return false };
    let events = Events::new();
    let session = SinkSession::open(
        [2; 16],
        Fingerprint::from([1; 32]),
        tree,
        wishes,
        Some(&mirror),
        Arc::new(directory),
        Clock::start(),
        events,
        &Wanted::always(),
    );
    let Ok(session) = session else { return false };
    let session = Arc::new(session);
    let layout = session.layout().clone();
    for object in (0..layout.objects()).filter_map(|object| layout.object_extent(object)) {
        let mut at = object.start;
        while let Some(block) = layout.block_extent(at / transfer::BLOCK) {
            let payload = vec![0; usize::try_from(block.len).unwrap()];
            let hash = block_cv(object.len, block.start - object.start, &payload).0;
            let data = Data { position: block.start, block_hash: Some(hash), payload: &payload };
            let _ = session.handle_data("lo", &data);
            at = block.end();
            if at >= object.end() {
                break;
            }
        }
    }
    finish_files(&session);
    let attending = timeout(PATIENCE, attend(&session, |_| ()));
    matches!(attending.await.expect("it ends"), SinkEnd::Complete(..))
}

#[test]
fn nothing_is_made_but_what_was_asked_for() {
    let (answered, complete) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let config = Config { cases: 400, failure_persistence: None, ..Config::default() };
    let strategy =
        request().prop_flat_map(|request| (Just(request.clone()), entries(tops(&request))));
    // How many get anywhere depends on them.
    let dice = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let result = TestRunner::new_with_rng(config, dice).run(&strategy, |(request, said)| {
        let Some(asked) = request.asked() else { return Ok(()) };
        let owned = |(index, (_, attributed)): (usize, &(Entry, bool))| {
            let attributes = Attributes { mode: 0o4755, uid: 0, gid: 0, extended: Vec::new() };
            attributed.then_some((index, attributes))
        };
        let attributes: AttributesOf = said.iter().enumerate().filter_map(owned).collect();
        let entries = said.into_iter().map(|(entry, _)| entry).collect();
        let Ok(tree) = asked.tree(entries, attributes) else { return Ok(()) };
        answered.fetch_add(1, Ordering::Relaxed);
        for entry in tree.entries() {
            let top = entry.path.split(|&byte| byte == b'/').next().unwrap();
            prop_assert!(request.expects(top), "{:?}", entry.path);
        }
        let scratch = Scratch::new("far-names");
        let inbox = furnished(&scratch);
        let before = snapshot(&scratch.0, &inbox, &request);
        let is_complete = runtime.block_on(receive(&inbox, &asked, tree));
        complete.fetch_add(usize::from(is_complete), Ordering::Relaxed);
        let after = snapshot(&scratch.0, &inbox, &request);
        prop_assert_eq!(before, after);
        for name in ["file", "x.log", "y.log", "new", "dir"] {
            let is_link =
                fs::symlink_metadata(inbox.join(name)).is_ok_and(|found| found.is_symlink());
            prop_assert!(!is_link || request.asks_for_contents(), "{name} is a link");
        }
        Ok(())
    });
    result.unwrap();
    let (answered, complete) = (answered.into_inner(), complete.into_inner());
    // Otherwise the entries would be too hostile to get anywhere.
    assert!(answered >= 40 && complete >= 20, "{answered} answers, {complete} complete");
}
