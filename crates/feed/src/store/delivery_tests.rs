//! Streams whose records somebody else keeps: positions, repetitions, and those that hang.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tempfile::TempDir;
use tokio::sync::Notify;
use wire::feed::{Form, Offer, Records, StreamId, push_record};

use super::*;
use crate::bounds;

/// Somebody who notes what it gets, and does with each batch what is asked for.
#[derive(Clone, Default)]
struct Taker(Arc<Taken>);

#[derive(Default)]
struct Taken {
    /// What was handed over: the feed, the first record, and the octets.
    seen: Mutex<Vec<(String, u64, String)>>,
    /// What becomes of the next ones; without any, they are taken.
    next: Mutex<Vec<Next>>,
    /// The feed of which nothing ends.
    hanging: Mutex<String>,
    heard: Notify,
}

#[derive(Clone, Copy, PartialEq)]
enum Next {
    Fails,
    /// It takes them, and nobody hears of it.
    Dies,
}

impl Taker {
    fn seen(&self) -> Vec<(String, u64, String)> {
        self.0.seen.lock().unwrap().clone()
    }

    async fn until(&self, is_so: impl Fn(&[(String, u64, String)]) -> bool) {
        while !is_so(&self.seen()) {
            self.0.heard.notified().await;
        }
    }
}

impl Sink for Taker {
    fn take(&self, mut batch: Delivery) -> Taking {
        let taken = Arc::clone(&self.0);
        Box::pin(async move {
            let mut text = String::new();
            batch.file.read_to_string(&mut text).unwrap();
            assert_eq!(text.lines().count() as u64, batch.records, "whole records");
            let next = taken.next.lock().unwrap().pop();
            taken.seen.lock().unwrap().push((batch.feed.clone(), batch.first, text));
            taken.heard.notify_one();
            if next == Some(Next::Dies) || *taken.hanging.lock().unwrap() == batch.feed {
                std::future::pending::<()>().await;
            }
            match next {
                Some(_) => Err(NotTaken { why: "it failed".into(), said: None }),
                None => Ok(()),
            }
        })
    }
}

fn offer(feed: &str) -> Offer {
    let (feed, label) = (feed.to_string(), "a test".to_string());
    Offer { stream: StreamId([1; 16]), first: 0, elsewhere: 0, form: Form::Lines, feed, label }
}

fn open(folder: &Path, taker: &Taker) -> Store {
    Store::hand_over(folder, taker.clone(), Events::new()).unwrap()
}

fn add(store: &Store, stream: &Arc<KeptStream>, from: u64, to: u64) {
    let mut body = Vec::new();
    (from..to).for_each(|number| push_record(&mut body, format!("r{number}").as_bytes()));
    stream.add(&Records::of(from, &body).unwrap(), false).unwrap();
    store.commit(stream);
}

fn text(from: u64, to: u64) -> String {
    let lines: Vec<String> = (from..to).map(|number| format!("r{number}\n")).collect();
    lines.concat()
}

async fn kept(stream: &KeptStream, next: u64) {
    let heard = Arc::new(Notify::new());
    stream.listen(&heard);
    while stream.kept() != Ok(next) {
        heard.notified().await;
    }
}

fn position(folder: &Path, feed: &str) -> PathBuf {
    folder.join("anna").join(feed).join(format!("{}.position", "01".repeat(16)))
}

#[tokio::test]
async fn a_position_survives_its_collector() {
    let (folder, taker) = (TempDir::new().unwrap(), Taker::default());
    {
        let store = open(folder.path(), &taker);
        let stream = store.stream("anna", &offer("logs")).unwrap();
        assert_eq!(stream.begin(0, 0), Ok((0, 0)));
        add(&store, &stream, 0, 3);
        kept(&stream, 3).await;
        let refused = Store::hand_over(folder.path(), taker.clone(), Events::new()).err();
        assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::WouldBlock), "it has one");
        store.close().await;
    }
    assert_eq!(fs::read_to_string(position(folder.path(), "logs")).unwrap(), "3 log\n");
    let store = open(folder.path(), &taker);
    let stream = store.stream("anna", &offer("logs")).unwrap();
    assert_eq!(stream.begin(0, 0), Ok((3, 0)));
    add(&store, &stream, 0, 5);
    kept(&stream, 5).await;
    // The source has no longer what is between.
    assert_eq!(stream.begin(9, 0), Ok((9, 4)));
    add(&store, &stream, 9, 10);
    kept(&stream, 10).await;
    let seen = taker.seen();
    let expected = [(0, text(0, 3)), (3, text(3, 5)), (9, text(9, 10))];
    assert_eq!(seen, expected.map(|(first, text)| ("logs".to_string(), first, text)));
    let left = fs::read_dir(folder.path().join("anna/logs")).unwrap().count();
    assert_eq!(left, 1, "the position alone");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_taken_is_handed_over_again_as_it_was() {
    let (folder, taker) = (TempDir::new().unwrap(), Taker::default());
    *taker.0.next.lock().unwrap() = vec![Next::Fails; 3];
    let (events, mut heard) = Events::observed();
    let store = Store::hand_over(folder.path(), taker.clone(), events).unwrap();
    let stream = store.stream("anna", &offer("logs")).unwrap();
    add(&store, &stream, 0, 3);
    taker.until(|seen| !seen.is_empty()).await;
    // What comes meanwhile is no part of it.
    add(&store, &stream, 3, 5);
    assert_eq!(stream.begin(7, 0), Err("what came before the next records is not kept yet"));
    kept(&stream, 5).await;
    let seen: Vec<_> = taker.seen().into_iter().map(|(_, first, text)| (first, text)).collect();
    assert_eq!(seen.len(), 5);
    assert!(seen[..4].iter().all(|batch| *batch == (0, text(0, 3))), "{seen:?}");
    assert_eq!(seen[4], (3, text(3, 5)));
    drop((stream, store));
    let mut said = Vec::new();
    while let Some(event) = heard.try_recv() {
        if let events::Event::Notice { text } = event {
            said.push(text);
        }
    }
    assert_eq!(
        said,
        [
            "anna/logs (a test): it failed; 3 records from 0 on wait, and are handed over again",
            "anna/logs (a test): records are taken again",
        ]
    );
}

#[tokio::test]
async fn one_that_hangs_does_not_hold_up_another() {
    let (folder, taker) = (TempDir::new().unwrap(), Taker::default());
    *taker.0.hanging.lock().unwrap() = "hangs".into();
    let store = open(folder.path(), &taker);
    let (hangs, goes) =
        (store.stream("anna", &offer("hangs")).unwrap(), store.stream("anna", &offer("logs")));
    let goes = goes.unwrap();
    add(&store, &hangs, 0, 3);
    taker.until(|seen| !seen.is_empty()).await;
    for number in 0..100 {
        add(&store, &goes, number, number + 1);
        kept(&goes, number + 1).await;
    }
    assert_eq!(hangs.kept(), Ok(0));
    // A host has half of the places: another one has room.
    let others = [2, 3, 4, 5, 6].map(|stream| {
        let offer = Offer { stream: StreamId([stream; 16]), ..offer("hangs") };
        store.stream("anna", &offer).unwrap()
    });
    for stream in &others {
        add(&store, stream, 0, 1);
    }
    taker.until(|seen| seen.iter().filter(|(feed, ..)| feed == "hangs").count() == 4).await;
    let bert = store.stream("bert", &offer("logs")).unwrap();
    add(&store, &bert, 0, 1);
    kept(&bert, 1).await;
    let hanging = taker.seen().into_iter().filter(|(feed, ..)| feed == "hangs");
    assert_eq!(hanging.count(), bounds::DELIVERIES_EACH);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_collector_ends_what_hangs_and_acknowledges_nothing_of_it() {
    let (folder, taker) = (TempDir::new().unwrap(), Taker::default());
    *taker.0.hanging.lock().unwrap() = "hangs".into();
    let store = open(folder.path(), &taker);
    let stream = store.stream("anna", &offer("hangs")).unwrap();
    add(&store, &stream, 0, 3);
    taker.until(|seen| !seen.is_empty()).await;
    store.close().await;
    assert_eq!(stream.kept(), Ok(0));
    drop((stream, store));
    taker.0.hanging.lock().unwrap().clear();
    let store = open(folder.path(), &taker);
    let stream = store.stream("anna", &offer("hangs")).unwrap();
    assert_eq!(stream.begin(0, 0), Ok((0, 0)));
}

#[tokio::test]
async fn what_is_no_position_is_an_error_that_names_it() {
    let (folder, taker) = (TempDir::new().unwrap(), Taker::default());
    let store = open(folder.path(), &taker);
    let path = position(folder.path(), "logs");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for torn in ["", "3", "3 log", "-3 log\n", "3 words\n", "3 log\n4 log\n", "\u{ff}", "+3 log\n"]
    {
        fs::write(&path, torn).unwrap();
        let error = store.stream("anna", &offer("logs")).err().expect(torn);
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{torn:?}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    fs::write(&path, "3 nul\n").unwrap();
    let error = store.stream("anna", &offer("logs")).err().expect("another form");
    assert!(error.to_string().contains("another form"), "{error}");
    // A batch that a command of an earlier collector reads.
    fs::write(&path, "3 log\n").unwrap();
    let batch = path.with_file_name(format!("{}-7.batch", "01".repeat(16)));
    fs::write(&batch, "r3\n").unwrap();
    let read = fs::File::open(&batch).unwrap();
    crate::lock::lock_file(&read).unwrap();
    let error = store.stream("anna", &offer("logs")).err().expect("it is read");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    drop(read);
    assert_eq!(store.stream("anna", &offer("logs")).unwrap().begin(0, 0), Ok((3, 0)));
    assert!(!batch.exists());
}

/// A batch that somebody removes is no reason to wait for ever.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_gone_ends_the_stream_which_begins_anew() {
    let (folder, taker) = (TempDir::new().unwrap(), Taker::default());
    *taker.0.next.lock().unwrap() = vec![Next::Fails];
    let store = open(folder.path(), &taker);
    let stream = store.stream("anna", &offer("logs")).unwrap();
    let heard = Arc::new(Notify::new());
    stream.listen(&heard);
    add(&store, &stream, 0, 3);
    taker.until(|seen| !seen.is_empty()).await;
    for entry in fs::read_dir(folder.path().join("anna/logs")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    while stream.kept() == Ok(0) {
        heard.notified().await;
    }
    assert!(stream.kept().is_err());
    let stream = store.stream("anna", &offer("logs")).unwrap();
    assert_eq!(stream.begin(0, 0), Ok((0, 0)));
    add(&store, &stream, 0, 3);
    kept(&stream, 3).await;
}

/// A connection that has to be read gives what a stream has no room for to what waits for its turn.
#[tokio::test]
async fn what_there_is_no_room_for_is_held_and_follows() {
    let (folder, taker) = (TempDir::new().unwrap(), Taker::default());
    *taker.0.hanging.lock().unwrap() = "hangs".into();
    let store = open(folder.path(), &taker);
    let stream = store.stream("anna", &offer("hangs")).unwrap();
    let line = vec![b'x'; 100_000];
    let mut body = Vec::new();
    push_record(&mut body, &line);
    let most = usize::try_from(bounds::WAITING.0).unwrap() + line.len();
    for number in 0..60 {
        let records = Records::of(number, &body).unwrap();
        stream.add(&records, true).unwrap();
        assert!(stream.waiting() < most);
    }
    assert!(store.room.taken().1 > Bytes::ZERO && stream.next() < 60);
    taker.0.hanging.lock().unwrap().clear();
    store.commit(&stream);
    kept(&stream, 60).await;
    assert_eq!(store.room.taken(), (Bytes::ZERO, Bytes::ZERO), "the room is free again");
    let all: String = taker.seen().into_iter().map(|(.., text)| text).collect();
    assert_eq!(all.lines().count(), 60);
    assert!(taker.seen().iter().all(|(.., text)| text.len() as u64 <= bounds::WAITING.0));
}

/// Collectors that die at any time, and batches that fail: each batch begins where the one before
/// ended, or where that one began.
#[tokio::test(start_paused = true)]
async fn a_batch_follows_the_last_one_or_repeats_it_whatever_dies() {
    for seed in 0..40_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = move |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % most
        };
        let (folder, taker) = (TempDir::new().unwrap(), Taker::default());
        let mut safe = 0;
        while safe < 60 {
            let store = open(folder.path(), &taker);
            let stream = loop {
                match store.stream("anna", &offer("logs")) {
                    Ok(stream) => break stream,
                    // The one before is being ended.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
                }
                tokio::task::yield_now().await;
            };
            let (next, _) = stream.begin(0, 0).unwrap();
            assert!(next >= safe, "seed {seed}: what was acknowledged stays");
            let death = draw(4) == 0;
            let fails = usize::try_from(draw(3)).unwrap();
            let mut to_come = vec![Next::Fails; fails];
            if death {
                // The last of these: they are taken from the end.
                to_come.insert(0, Next::Dies);
            }
            *taker.0.next.lock().unwrap() = to_come;
            let before = taker.seen().len();
            let mut at = next;
            for _ in 0..=draw(4) {
                let more = at + 1 + draw(9);
                add(&store, &stream, at, more);
                at = more;
                if draw(2) == 0 {
                    tokio::task::yield_now().await;
                }
            }
            if death {
                taker.until(|seen| seen.len() > before + fails).await;
            } else {
                kept(&stream, at).await;
            }
            safe = stream.kept().unwrap();
            // The collector dies with what it has.
        }
        let mut last = (0, 0);
        for (_, first, text) in taker.seen() {
            assert!(first == last.0 || first == last.1, "seed {seed}: {first} after {last:?}");
            last = (first, first + text.lines().count() as u64);
            assert_eq!(text, self::text(first, last.1), "seed {seed}");
        }
        assert!(last.1 >= 60, "seed {seed}");
    }
}
