//! A session from its first data to its end, and the loop that syncs it.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::Clock;
use peer::Fingerprint;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use transfer::digest::block_cv;
use transfer::{BLOCK, Tree};
use wire::files::FileFrame;
use wire::files::{Data, Wishes};
use wire::session::{AbortCode, SessionFrame};
use wire::{Emit, RawFrame};

use super::{MOST_REFUSALS, MOST_UNSYNCED, Mailbox, SinkSession, finish_files};
use crate::Error;
use crate::blocking::Wanted;
use crate::sink::tests::{Scratch, content, file, tree};
use crate::sink::{Directory, SinkEnd, attend};
use events::{Event, Events, Subscription};

/// Long enough for a busy host, short enough for a test that fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// The interval of syncs that `attend` documents.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

const SMALL: u64 = 5;
const LARGE: u64 = MOST_UNSYNCED + BLOCK;

fn small_and_large() -> Tree {
    tree(&[("large", file(LARGE)), ("small", file(SMALL))])
}

fn open(scratch: &Scratch, tree: Tree) -> (Arc<SinkSession>, Subscription) {
    let (session, heard) = open_own(scratch, tree);
    (Arc::new(session), heard)
}

fn open_own(scratch: &Scratch, tree: Tree) -> (SinkSession, Subscription) {
    let directory = Arc::new(Directory::open(&scratch.0).unwrap());
    let (events, heard) = Events::observed();
    let (sender, wishes) = (Fingerprint::from([1; 32]), Wishes::default());
    let session = SinkSession::open(
        [2; 16],
        sender,
        tree,
        wishes,
        None,
        directory,
        Clock::start(),
        events,
        &Wanted::always(),
    );
    (session.unwrap(), heard)
}

/// Data of the first `bytes` of the only file of `size` arrive.
fn deliver(session: &SinkSession, size: u64, bytes: u64) {
    let layout = session.layout();
    let extents = (0..layout.objects()).filter_map(|object| layout.object_extent(object));
    let object = extents.into_iter().find(|extent| extent.len == size).unwrap();
    let content = content(size);
    for (block, payload) in content.chunks(usize::try_from(BLOCK).unwrap()).enumerate() {
        let offset = block as u64 * BLOCK;
        if offset >= bytes {
            break;
        }
        let block_hash = Some(block_cv(size, offset, payload).0);
        let data = Data { position: object.start + offset, block_hash, payload };
        session.handle_data("lo", &data).unwrap();
    }
}

/// The first block of the large file arrives under another block's hash.
fn deliver_wrong(session: &SinkSession) -> Result<(), peer::ConnError> {
    let payload = vec![7; usize::try_from(BLOCK).unwrap()];
    let data = Data { position: 0, block_hash: Some([1; 32]), payload: &payload };
    session.handle_data("lo", &data).map(drop)
}

/// The loop as a fetch runs it: without reports.
fn attending(session: &Arc<SinkSession>) -> JoinHandle<SinkEnd> {
    let session = Arc::clone(session);
    tokio::spawn(async move { attend(&session, |_| ()).await })
}

async fn end_of(attending: JoinHandle<SinkEnd>) -> SinkEnd {
    timeout(PATIENCE, attending).await.expect("the session ends").expect("the loop does not panic")
}

/// Waits until the small file has its name: only a sync gives it one.
async fn small_is_named(scratch: &Scratch) {
    let path = scratch.0.join("small");
    let named = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, named).await.expect("a sync names the small file");
}

/// The names of the frames in a mailbox, which is empty afterwards.
fn frames(mailbox: &Mailbox) -> Vec<String> {
    let bytes = mailbox.take();
    let (mut rest, mut names) = (&bytes[..], Vec::new());
    while let Some((frame, used)) = RawFrame::parse(rest).unwrap() {
        let frame = FileFrame::try_from(frame).unwrap();
        names.push(frame.name().to_string());
        rest = &rest[used..];
    }
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn attend_syncs_after_eight_mebibytes_at_once() {
    let scratch = Scratch::new("sync-bytes");
    let (session, _heard) = open(&scratch, small_and_large());
    deliver(&session, SMALL, SMALL);
    deliver(&session, LARGE, MOST_UNSYNCED);
    assert!(session.sync_is_due());
    let began = Instant::now();
    let attending = attending(&session);
    small_is_named(&scratch).await;
    let took = began.elapsed();
    assert!(took < SYNC_INTERVAL, "{took:?}");
    assert!(!session.sync_is_due());
    attending.abort();
}

/// The bytes that make a sync due wake the loop: it does not wait for its next look.
#[tokio::test]
async fn bytes_that_make_a_sync_due_ring_once() {
    let scratch = Scratch::new("sync-rings");
    let (session, _heard) = open(&scratch, small_and_large());
    let rings = async || timeout(Duration::ZERO, session.changed.notified()).await.is_ok();
    session.note_unsynced(MOST_UNSYNCED - 1);
    assert!(!rings().await && !session.sync_is_due());
    session.note_unsynced(1);
    assert!(rings().await && session.sync_is_due());
    session.note_unsynced(1);
    assert!(!rings().await);
    session.settle().unwrap();
    assert!(!session.sync_is_due());
}

#[tokio::test(flavor = "multi_thread")]
async fn attend_syncs_fewer_bytes_after_a_second() {
    let scratch = Scratch::new("sync-time");
    let (session, _heard) = open(&scratch, small_and_large());
    deliver(&session, SMALL, SMALL);
    assert!(!session.sync_is_due());
    let began = Instant::now();
    let attending = attending(&session);
    small_is_named(&scratch).await;
    let took = began.elapsed();
    assert!(took >= SYNC_INTERVAL, "{took:?}");
    attending.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_fails_fails_the_session() {
    let scratch = Scratch::new("sync-fails");
    let (session, _heard) = open(&scratch, small_and_large());
    let (_, mailbox) = session.join();
    deliver(&session, SMALL, SMALL);
    fs::remove_dir_all(scratch.0.join(".anabranch-partial")).unwrap();
    let SinkEnd::Failed(error) = end_of(attending(&session)).await else {
        panic!("the staged file is gone")
    };
    assert!(matches!(error, Error::Disk { .. }), "{error}");
    assert!(session.has_failed() && session.completed().is_none());
    assert!(session.failure_to_report().is_none(), "it is reported once");
    assert_eq!(frames(&mailbox), ["Abort"]);
    assert_eq!(frames(&session.join().1), ["Abort"], "a later path is told too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_panics_fails_the_session() {
    let scratch = Scratch::new("sync-panics");
    let (session, _heard) = open(&scratch, small_and_large());
    let poisoning = Arc::clone(&session);
    let poisoned = std::thread::spawn(move || {
        let _held = poisoning.pending_sync.lock().unwrap();
        panic!("the lock is poisoned for the test")
    });
    assert!(poisoned.join().is_err());
    let SinkEnd::Failed(error) = end_of(attending(&session)).await else {
        panic!("the sync panicked")
    };
    assert!(error.to_string().contains("sync what arrived"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attend_ends_once_the_session_is_complete() {
    let scratch = Scratch::new("complete");
    let (session, mut heard) = open(&scratch, small_and_large());
    let (_, mailbox) = session.join();
    let attending = attending(&session);
    deliver(&session, SMALL, SMALL);
    finish_files(&session);
    assert!(session.completed().is_none(), "the large file has not arrived");
    deliver(&session, LARGE, LARGE);
    finish_files(&session);
    let SinkEnd::Complete(at, sync) = end_of(attending).await else { panic!("everything arrived") };
    assert_eq!(session.completed(), Some((at, sync)));
    assert_eq!(fs::read(scratch.0.join("large")).unwrap(), content(LARGE));
    assert_eq!(fs::read(scratch.0.join("small")).unwrap(), content(SMALL));
    assert!(!scratch.0.join(".anabranch-partial").exists());
    assert_eq!(frames(&mailbox), ["ObjectDone", "ObjectDone", "Done"]);
    assert_eq!(frames(&session.join().1), ["ObjectDone", "ObjectDone", "Done"]);
    let mut done = Vec::new();
    while let Some(event) = heard.try_recv() {
        if let Event::FileDone { name, blake3, .. } = event {
            done.push((name, blake3.unwrap()));
        }
    }
    done.sort();
    let hash = |size| blake3::hash(&content(size)).to_hex().to_string();
    assert_eq!(done, [("large".into(), hash(LARGE)), ("small".into(), hash(SMALL))]);
    // A path that fails afterwards changes nothing.
    let _ = session.fail(Error::usage("too late"));
    assert!(!session.has_failed() && session.completed().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn attend_reports_several_times_a_second_and_ends_when_superseded() {
    let scratch = Scratch::new("superseded");
    let (session, _heard) = open(&scratch, small_and_large());
    let (reports, mut reported) = mpsc::unbounded_channel();
    let attending = {
        let session = Arc::clone(&session);
        let report = move |_: &SinkSession| reports.send(()).expect("the test listens");
        tokio::spawn(async move { attend(&session, report).await })
    };
    for _ in 0..3 {
        timeout(SYNC_INTERVAL, reported.recv()).await.expect("a report within a second");
    }
    // The loop may be at its report when this rings.
    while !attending.is_finished() {
        session.closing.notify_waiters();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(matches!(end_of(attending).await, SinkEnd::Superseded));
}

#[test]
fn only_one_caller_finishes_and_only_a_complete_session() {
    let scratch = Scratch::new("finish-once");
    let (session, _heard) = open(&scratch, tree(&[("small", file(SMALL))]));
    assert!(!session.try_begin_finish());
    deliver(&session, SMALL, SMALL);
    assert!(session.try_begin_finish());
    assert!(!session.try_begin_finish());
}

#[test]
fn every_path_is_told_of_a_refused_block_until_it_arrives() {
    let scratch = Scratch::new("refused");
    let (session, _heard) = open(&scratch, small_and_large());
    let (_, mailbox) = session.join();
    deliver_wrong(&session).unwrap();
    assert_eq!(frames(&mailbox), ["Refused"]);
    let ranges = session.join().1.refusals().unwrap();
    assert_eq!(
        ranges.iter().map(|range| (range.start, range.len)).collect::<Vec<_>>(),
        [(0, BLOCK)]
    );
    deliver(&session, LARGE, BLOCK);
    assert!(session.has_verified(session.layout().block_extent(0).unwrap()));
    assert_eq!(frames(&session.join().1), Vec::<String>::new());
}

#[test]
fn allowed_refusals_postpone_the_failure() {
    let scratch = Scratch::new("allowed");
    let (session, _heard) = open(&scratch, small_and_large());
    session.allow_refusals(2);
    for _ in 0..MOST_REFUSALS + 2 {
        deliver_wrong(&session).unwrap();
    }
    assert!(!session.has_failed());
    assert!(deliver_wrong(&session).is_err());
    assert!(matches!(session.failure_to_report(), Some(Error::Integrity { .. })));
    let (_, mailbox) = session.join();
    let frames = mailbox.take();
    let (told, _) = RawFrame::parse(&frames).unwrap().unwrap();
    let told = SessionFrame::try_from(told).unwrap();
    assert!(matches!(told, SessionFrame::Abort(AbortCode::Integrity, _)));
}

/// A goodbye before the end is one path's; after it, the sender's.
#[test]
fn the_sender_has_left_after_a_goodbye_that_follows_the_end() {
    let scratch = Scratch::new("goodbye");
    let (session, _heard) = open(&scratch, tree(&[("small", file(SMALL))]));
    let (number, _mailbox) = session.join();
    session.note_goodbye();
    deliver(&session, SMALL, SMALL);
    session.finish().unwrap();
    session.leave(number);
    assert!(!session.sender_has_left());
    let (number, _mailbox) = session.join();
    session.note_goodbye();
    assert!(!session.sender_has_left(), "a path is open");
    session.leave(number);
    assert!(session.sender_has_left());
}

/// Found with a path that died just before the end: the receiver waited ten seconds for it.
#[test]
fn a_path_that_died_does_not_keep_a_receiver_whose_sender_said_that_it_leaves() {
    let scratch = Scratch::new("leaves");
    let (session, _heard) = open(&scratch, tree(&[("small", file(SMALL))]));
    let (_dead, _mailbox) = session.join();
    let (alive, _mailbox) = session.join();
    deliver(&session, SMALL, SMALL);
    session.finish().unwrap();
    session.note_goodbye();
    session.leave(alive);
    assert!(!session.sender_has_left(), "one path that closes may be one that is dropped");
    session.note_left();
    assert!(session.sender_has_left());
}

#[test]
fn a_sender_in_the_background_has_its_files_written_so() {
    for background in [false, true] {
        let scratch = Scratch::new("background");
        let (session, _heard) = open_own(&scratch, small_and_large());
        let session = session.in_background(background);
        let place = session.writes.step_back();
        assert_eq!(place.is_some(), background);
        drop(place);
        // What it does at the disk is as ever.
        deliver(&session, SMALL, SMALL);
        deliver(&session, LARGE, LARGE);
        session.finish().unwrap();
        assert!(session.completed().is_some());
    }
}
