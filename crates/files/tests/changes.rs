//! Files that change while they are sent: the others arrive, whatever these do.

mod common;

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{
    Host, Scratch, fetch_options, parties, receive_options, send_options, serve_options, unheard,
};
use events::{Event, Subscription, Summary};
use files::Error;
use peer::{Timetable, Token};
use tokio::time::timeout;
use units::Rate;

const LARGE: usize = 3_000_000;

/// A folder `tree` with two large files, and small ones before and behind them.
fn tree(scratch: &Scratch) -> PathBuf {
    let root = scratch.0.join("tree");
    fs::create_dir_all(&root).expect("a folder");
    scratch.file("tree/b-live", LARGE);
    scratch.file("tree/c-large", LARGE);
    for index in 0..100 {
        fs::write(root.join(format!("a-{index}")), format!("before {index}")).expect("a file");
        fs::write(root.join(format!("d-{index}")), format!("behind {index}")).expect("a file");
    }
    root
}

/// Which side dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Send,
    Get,
}

/// Moves the tree, held to some 1.6 s; `change` is called once a tenth of it is there.
async fn moved(
    scratch: &Scratch,
    by: By,
    is_strict: bool,
    change: impl FnOnce(&Path),
) -> (Result<Summary, Error>, Vec<Event>) {
    let root = scratch.0.join("tree");
    let (identity, token) = parties();
    let rate = Some(Timetable::always(Rate::mbit(30)));
    let (events, heard) = unheard();
    let (moving, host) = match by {
        By::Send => {
            let host = Host::receive(receive_options(scratch, &identity, &token)).await;
            let mut options = send_options(&[&root], host.port, &token);
            options.selection.strict = is_strict;
            options.transfer.dial.max_rate = rate;
            (tokio::spawn(files::send(options, events)), host)
        }
        By::Get => {
            let host = Host::serve(serve_options(&scratch.0, &identity, &token)).await;
            let mut options = fetch_options(scratch, &["tree"], host.port, &token);
            options.selection.strict = is_strict;
            options.transfer.dial.max_rate = rate;
            (tokio::spawn(files::fetch(options, events)), host)
        }
    };
    let mut heard = heard;
    let mut all = Vec::new();
    until_under_way(&mut heard, &mut all).await;
    change(&root);
    let ended = timeout(Duration::from_secs(60), moving).await.expect("it ends").expect("no panic");
    while let Some(event) = heard.try_recv() {
        all.push(event);
    }
    if ended.is_ok() && by == By::Send {
        let received = host.outcome().await.expect("the receiver has it too");
        assert_eq!(received.left_out, ended.as_ref().map_or(0, |summary| summary.left_out));
    } else {
        host.task.abort();
    }
    (ended, all)
}

/// Waits until a tenth of the data is there.
async fn until_under_way(heard: &mut Subscription, all: &mut Vec<Event>) {
    loop {
        let event = timeout(Duration::from_secs(30), heard.recv()).await.expect("it gets on");
        let event = event.expect("it does not end yet");
        let is_under_way = matches!(&event, Event::Progress(p) if p.done.0 >= LARGE as u64 / 5);
        all.push(event);
        if is_under_way {
            return;
        }
    }
}

fn notices(events: &[Event]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        Event::Notice { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn left_out(events: &[Event]) -> Vec<String> {
    let names = events.iter().filter_map(|event| match event {
        Event::LeftOut { path, .. } => Some(path.file_name()?.to_string_lossy().into_owned()),
        _ => None,
    });
    names.collect()
}

/// Checks that all files but the live one are there, and nothing else.
fn check_rest(scratch: &Scratch, root: &Path) {
    let inbox = scratch.inbox().join("tree");
    let mut count = 0;
    for entry in fs::read_dir(root).expect("the source").map(|entry| entry.expect("an entry")) {
        if entry.file_name() == "b-live" {
            continue;
        }
        count += 1;
        let there = fs::read(inbox.join(entry.file_name())).expect("it has its name");
        let is_same = there == fs::read(entry.path()).expect("the source");
        assert!(is_same, "{}", entry.path().display());
    }
    assert_eq!(count, 201);
    assert!(!scratch.inbox().join(".anabranch-partial").exists(), "nothing is left over");
}

fn append(file: &Path, bytes: &[u8]) {
    let open = OpenOptions::new().append(true).open(file);
    open.and_then(|mut file| file.write_all(bytes)).expect("it grows");
}

fn overwrite(file: &Path, at: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(file).expect("the file");
    file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes)).expect("it changes");
}

/// A change of a file.
type Change = fn(&Path);

/// Does something again and again until it is dropped.
struct Repeatedly(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Repeatedly {
    fn new(mut act: impl FnMut() + Send + 'static) -> Repeatedly {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let acting = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                act();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Repeatedly(stop, Some(acting))
    }
}

impl Drop for Repeatedly {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().expect("it runs").join();
    }
}

/// Found with a folder of logs: nothing of it had its name, and files behind the log never came.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_arrives_while_a_file_of_it_grows() {
    for by in [By::Send, By::Get] {
        let scratch = Scratch::new(&format!("changes-grow-{by:?}"));
        let root = tree(&scratch);
        let live = root.join("b-live");
        let was = fs::read(&live).expect("the source");
        let mut growing = None;
        let (moved, events) = moved(&scratch, by, false, |root| {
            let live = root.join("b-live");
            append(&live, b"more");
            growing = Some(Repeatedly::new(move || append(&live, b"and more")));
        })
        .await;
        drop(growing);
        let summary = moved.unwrap_or_else(|error| panic!("{by:?}: {error}"));
        assert_eq!(summary.left_out, 0, "{by:?}");
        check_rest(&scratch, &root);
        let there = fs::read(scratch.inbox().join("tree/b-live")).expect("it has its name");
        assert!(there == was, "{by:?}: its first bytes");
        assert!(notices(&events).contains("b-live grew"), "{by:?}: {}", notices(&events));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_otherwise_follows_at_the_end() {
    for by in [By::Send, By::Get] {
        let changes: [(&str, Change); 4] = [
            ("shrinks", |live| {
                OpenOptions::new().write(true).open(live).unwrap().set_len(1_000_000).unwrap();
            }),
            ("is overwritten", |live| overwrite(live, 0, b"another beginning")),
            ("is replaced", |live| {
                fs::write(live.with_file_name("new"), vec![7; LARGE + 5]).unwrap();
                fs::rename(live.with_file_name("new"), live).unwrap();
            }),
            // It looks as if it only grew.
            ("grows and is overwritten", |live| {
                append(live, b"more");
                overwrite(live, 0, b"another beginning");
            }),
        ];
        for (what, change) in changes {
            let scratch = Scratch::new(&format!("changes-otherwise-{by:?}"));
            let root = tree(&scratch);
            let was = fs::read(root.join("b-live")).expect("the source");
            let (moved, events) =
                moved(&scratch, by, false, |root| change(&root.join("b-live"))).await;
            let summary = moved.unwrap_or_else(|error| panic!("{by:?}, it {what}: {error}"));
            assert_eq!(summary.left_out, 0, "{by:?}, it {what}: {:?}", left_out(&events));
            check_rest(&scratch, &root);
            let there = fs::read(scratch.inbox().join("tree/b-live")).expect("it has its name");
            // One that is replaced while it is open is read to its end.
            let is_old = there == was && what == "is replaced";
            assert!(is_old || there == fs::read(root.join("b-live")).unwrap(), "{by:?}, it {what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_all_the_time_is_left_out() {
    for by in [By::Send, By::Get] {
        let scratch = Scratch::new(&format!("changes-ever-{by:?}"));
        let root = tree(&scratch);
        let mut changing = None;
        let (moved, events) = moved(&scratch, by, false, |root| {
            let live = root.join("b-live");
            changing = Some(Repeatedly::new(move || {
                overwrite(&live, 0, b"again");
                overwrite(&live, LARGE as u64 - 10, b"again");
            }));
        })
        .await;
        drop(changing);
        let summary = moved.unwrap_or_else(|error| panic!("{by:?}: {error}"));
        assert_eq!((summary.left_out, summary.files), (1, 201), "{by:?}");
        assert_eq!(left_out(&events), ["b-live"], "{by:?}");
        check_rest(&scratch, &root);
        assert!(!scratch.inbox().join("tree/b-live").exists(), "{by:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_vanishes_leaves_the_rest() {
    for by in [By::Send, By::Get] {
        let scratch = Scratch::new(&format!("changes-gone-{by:?}"));
        let root = tree(&scratch);
        let (moved, _) = moved(&scratch, by, false, |root| {
            fs::remove_file(root.join("b-live")).expect("it vanishes");
        })
        .await;
        let summary = moved.unwrap_or_else(|error| panic!("{by:?}: {error}"));
        assert_eq!(summary.left_out, 0, "{by:?}: it is no part of the source any more");
        fs::write(root.join("b-live"), "").expect("for the count");
        check_rest(&scratch, &root);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_strict_any_change_ends_the_transfer() {
    for by in [By::Send, By::Get] {
        let scratch = Scratch::new(&format!("changes-strict-{by:?}"));
        tree(&scratch);
        let mut growing = None;
        let (moved, _) = moved(&scratch, by, true, |root| {
            let live = root.join("b-live");
            growing = Some(Repeatedly::new(move || append(&live, b"more")));
        })
        .await;
        drop(growing);
        assert!(matches!(moved, Err(Error::SourceChanged { .. })), "{by:?}: {moved:?}");
    }
}

/// What is missing may have another name at the source.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_deleted_where_something_is_left_out() {
    let scratch = Scratch::new("changes-delete");
    let root = tree(&scratch);
    let (identity, token) = parties();
    let stays = scratch.inbox().join("tree/stays");
    fs::create_dir_all(scratch.inbox().join("tree")).expect("a folder");
    fs::write(&stays, "only here").expect("a file");
    let mut receive = receive_options(&scratch, &identity, &token);
    receive.allow_delete = true;
    let host = Host::receive(receive).await;
    let (events, mut heard) = unheard();
    let sending = tokio::spawn(files::send(deleting(&root, host.port, &token), events));
    let mut all = Vec::new();
    until_under_way(&mut heard, &mut all).await;
    let live = root.join("b-live");
    let changing = Repeatedly::new(move || overwrite(&live, LARGE as u64 - 10, b"again"));
    let sent = sending.await.expect("no panic").expect("sent");
    drop(changing);
    host.outcome().await.expect("received");
    assert_eq!(sent.left_out, 1);
    assert!(stays.exists());
}

fn deleting(root: &Path, port: u16, token: &Token) -> files::SendOptions {
    let mut options = send_options(&[root], port, token);
    options.transfer.delete = true;
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(30)));
    options
}
