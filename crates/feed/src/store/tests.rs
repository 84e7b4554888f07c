//! Streams in a folder: what is kept, what is cut off, what is refused.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use wire::feed::{Form, Offer, Records, StreamId, push_record};

use super::arrived::Arrived;
use super::*;
use crate::bounds::{EARLY_FRAME, FILE, FILES_EACH, OWN};

fn offer(stream: u8, form: Form) -> Offer {
    let (feed, label) = ("logs".to_string(), "/var/log/a".to_string());
    Offer { stream: StreamId([stream; 16]), first: 0, elsewhere: 0, form, feed, label }
}

fn add(stream: &KeptStream, first: u64, records: &[&[u8]]) -> Result<usize, AddError> {
    let mut body = Vec::new();
    for record in records {
        push_record(&mut body, record);
    }
    stream.add(&Records::of(first, &body).expect("records"), false)
}

/// Waits until a stream is safe up to a record.
fn wait(stream: &KeptStream, next: u64) {
    for _ in 0..1_000 {
        if stream.kept() == Ok(next) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{:?} is safe, not {next}", stream.kept());
}

/// The files of a feed but for its list, by their names, with what is in them.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder.join("anna/logs")).expect("a folder");
    let entries = entries.map(|entry| entry.expect("it is listed"));
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .filter(|(name, _)| name != "index")
        .collect();
    files.sort();
    files
}

fn text(folder: &Path) -> String {
    let all: Vec<u8> = files(folder).into_iter().flat_map(|(_, octets)| octets).collect();
    String::from_utf8(all).expect("text")
}

#[test]
fn records_are_kept_once_whoever_sends_them_again() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), FILE).unwrap();
    let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    assert_eq!(stream.begin(0, 0), Ok((0, 0)));
    add(&stream, 0, &[b"a", b"", b"c"]).unwrap();
    store.commit(&stream);
    wait(&stream, 3);
    // Another connection of the same stream, which overlaps.
    let again = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    assert!(Arc::ptr_eq(&stream, &again));
    add(&again, 1, &[b"", b"c", b"d"]).unwrap();
    add(&stream, 0, &[b"a"]).unwrap();
    store.commit(&again);
    wait(&again, 4);
    assert_eq!(text(folder.path()), "a\n\nc\nd\n");
    assert!(add(&stream, 4, &[b"two\nlines"]).is_err(), "it would be two");
}

/// A collector said of what had only arrived that it was safe, when a source connected again.
#[test]
fn a_source_goes_on_behind_what_is_safe_and_not_behind_what_has_arrived() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), FILE).unwrap();
    let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    add(&stream, 0, &[b"a"]).unwrap();
    assert_eq!((stream.begin(0, 0), stream.next()), (Ok((0, 0)), 1));
    store.commit(&stream);
    wait(&stream, 1);
    assert_eq!(stream.begin(0, 0), Ok((1, 0)));
}

#[test]
fn what_comes_before_its_turn_waits_for_it() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), FILE).unwrap();
    let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    let heard = Arc::new(tokio::sync::Notify::new());
    stream.listen(&heard);
    for (first, records) in [(4, &[&b"e"[..], b"f"][..]), (2, &[b"c", b"d"]), (2, &[b"c"])] {
        add(&stream, first, records).unwrap();
        assert_eq!((stream.next(), stream.waiting()), (0, 0));
    }
    assert!(matches!(add(&stream, 9, &[b"two\nlines"]), Err(AddError::Wrong(_))));
    add(&stream, 0, &[b"a", b"b", b"c"]).unwrap();
    assert_eq!(stream.next(), 6);
    store.commit(&stream);
    wait(&stream, 6);
    assert_eq!(text(folder.path()), "a\nb\nc\nd\ne\nf\n");
}

/// A store whose hosts share so much memory for what comes in its turn, and before.
fn roomy(folder: &Path, in_turn: Bytes, early: Bytes) -> Store {
    Store { room: Room::of(in_turn, early), ..Store::open(folder, FILE).unwrap() }
}

#[test]
fn what_comes_before_its_turn_has_so_much_room() {
    let folder = TempDir::new().unwrap();
    // A host alone has the half.
    let store = roomy(folder.path(), Bytes::mib(1), Bytes::mib(6));
    let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    let long = vec![b'x'; 200_000];
    let add = |first| add(&stream, first, &[&long]);
    for first in 1..16 {
        assert_eq!(add(first), Ok(0), "{first}");
    }
    assert_eq!(add(16), Err(AddError::NoRoom));
    assert_eq!(add(0), Ok(16 * 200_001));
    assert_eq!(stream.next(), 16);
    store.commit(&stream);
    wait(&stream, 16);
    assert_eq!(store.room.taken(), (Bytes::ZERO, Bytes::ZERO), "the room is free again");
    // However much room there is, a stream has so much of it.
    let other = Store::open(folder.path(), FILE).unwrap();
    let stream = other.stream("bert", &offer(1, Form::Lines)).unwrap();
    let mut added = (1..).map(|first| self::add(&stream, first, &[&long]));
    let most = wire::feed::FEED_WINDOW / (long.len() + 4);
    assert!((0..most).all(|_| added.next().unwrap().is_ok()));
    assert!(matches!(added.next(), Some(Err(AddError::Wrong(_)))));
}

/// Each frame takes memory beside its octets.
#[test]
fn many_short_frames_before_their_turn_have_no_more_memory() {
    let folder = TempDir::new().unwrap();
    let store = roomy(folder.path(), Bytes::mib(1), Bytes::mib(1));
    let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    let taken = (1..100_000).take_while(|first| add(&stream, *first, &[b""]).is_ok()).count();
    assert_eq!(taken, (512 << 10) / (4 + EARLY_FRAME));
    assert!(store.room.taken().1 <= Bytes::kib(512));
}

/// Nothing is written here, as on a disk that hangs.
#[test]
fn what_waits_of_all_hosts_is_bounded_and_each_stream_has_some_room() {
    const MOST: Bytes = Bytes::mib(4);
    let folder = TempDir::new().unwrap();
    let store = roomy(folder.path(), MOST, Bytes::mib(1));
    let frame = vec![b'x'; usize::try_from(OWN.0).unwrap() - 4];
    let mut streams = Vec::new();
    for host in 0..40 {
        for number in 0..2 {
            let stream = store.stream(&format!("h{host}"), &offer(number, Form::Lines)).unwrap();
            let full = (0..).map(|first| add(&stream, first, &[&frame])).find_map(Result::err);
            assert_eq!(full, Some(AddError::Full));
            assert!(stream.next() > 0, "a frame of it is taken in any case");
            streams.push(stream);
        }
    }
    let waiting: usize = streams.iter().map(|stream| stream.waiting()).sum();
    let shared = waiting as u64 - OWN.0 * streams.len() as u64;
    assert!(shared <= MOST.0, "{waiting} octets wait");
    assert!(streams[0].waiting() as u64 > MOST.0 / 8, "one that was there alone had more");
    // What waits before its turn takes none of it.
    assert_eq!(add(&streams[0], 1_000, &[b"early"]), Ok(streams[0].waiting()));
    let kept = streams[0].next();
    store.commit(&streams[0]);
    wait(&streams[0], kept);
    let last = streams.last().unwrap();
    assert!(add(last, last.next(), &[&frame]).is_ok(), "others have what is written");
}

#[test]
fn what_is_torn_is_cut_off_and_the_stream_goes_on() {
    for (form, tail) in [
        (Form::Lines, &b"torn"[..]),
        (Form::Nul, b"torn"),
        (Form::Counted, b"9 torn"),
        // What a file system may leave of what it has not written.
        (Form::Counted, b"\0\0\0\0"),
    ] {
        let folder = TempDir::new().unwrap();
        {
            let store = Store::open(folder.path(), FILE).unwrap();
            let stream = store.stream("anna", &offer(1, form)).unwrap();
            add(&stream, 0, &[b"first", b"second"]).unwrap();
            store.commit(&stream);
            wait(&stream, 2);
        }
        let (name, before) = files(folder.path()).remove(0);
        let path = folder.path().join("anna/logs").join(name);
        fs::write(&path, [&before, tail].concat()).unwrap();
        let store = Store::open(folder.path(), FILE).unwrap();
        let stream = store.stream("anna", &offer(1, form)).unwrap();
        assert_eq!(stream.begin(0, 0), Ok((2, 0)), "{form:?}");
        assert_eq!(fs::read(&path).unwrap(), before, "{form:?}");
        add(&stream, 2, &[b"third"]).unwrap();
        store.commit(&stream);
        wait(&stream, 3);
        assert!(fs::read(&path).unwrap().len() > before.len());
    }
}

#[test]
fn a_stream_goes_on_in_further_files_and_each_says_where_it_begins() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), Bytes(10)).unwrap();
    let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    for number in 0..5_u64 {
        add(&stream, number, &[format!("rec {number}").as_bytes()]).unwrap();
        store.commit(&stream);
        wait(&stream, number + 1);
    }
    let names: Vec<String> = files(folder.path()).into_iter().map(|(name, _)| name).collect();
    let expected: Vec<String> =
        (0..5).map(|first| format!("{}-{first:020}.log", "01".repeat(16))).collect();
    assert_eq!(names, expected);
    let index = fs::read_to_string(folder.path().join("anna/logs/index")).unwrap();
    assert_eq!(index.lines().count(), 5);
    assert!(index.lines().all(|line| line.contains("\"from\":\"/var/log/a\"")), "{index}");
    // Old files are taken away, and then all.
    drop((stream, store));
    for (at, name) in names.iter().enumerate() {
        fs::remove_file(folder.path().join("anna/logs").join(name)).unwrap();
        let store = Store::open(folder.path(), Bytes(10)).unwrap();
        let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
        // Of the last file the list knows the first record alone.
        let next = if at == 4 { 4 } else { 5 };
        assert_eq!(stream.begin(0, 0), Ok((next, 0)), "without {name}");
    }
}

#[test]
fn a_file_that_somebody_removes_is_not_written_into_the_void() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), FILE).unwrap();
    let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    add(&stream, 0, &[b"a"]).unwrap();
    store.commit(&stream);
    wait(&stream, 1);
    let (name, _) = files(folder.path()).remove(0);
    fs::remove_file(folder.path().join("anna/logs").join(name)).unwrap();
    add(&stream, 1, &[b"b"]).unwrap();
    store.commit(&stream);
    wait(&stream, 2);
    let files = files(folder.path());
    assert_eq!(files.len(), 1);
    assert!(files[0].0.ends_with("-00000000000000000001.log") && files[0].1 == b"b\n");
}

#[test]
fn records_that_the_source_lost_are_a_gap_between_two_files() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), FILE).unwrap();
    let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    add(&stream, 0, &[b"a"]).unwrap();
    store.commit(&stream);
    wait(&stream, 1);
    assert_eq!(stream.begin(7, 0), Ok((7, 6)));
    add(&stream, 7, &[b"h"]).unwrap();
    store.commit(&stream);
    wait(&stream, 8);
    drop((stream, store));
    let store = Store::open(folder.path(), FILE).unwrap();
    let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    assert_eq!(stream.begin(0, 0), Ok((8, 0)));
    assert_eq!(files(folder.path()).len(), 2);
}

#[test]
fn what_a_host_may_have_is_bounded() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), FILE).unwrap();
    for number in 0..FEEDS_EACH {
        let offer = Offer { feed: format!("feed-{number}"), ..offer(1, Form::Lines) };
        store.stream("anna", &offer).unwrap();
    }
    let further = Offer { feed: "further".into(), ..offer(1, Form::Lines) };
    let refused = store.stream("anna", &further).err().expect("it has enough");
    assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
    assert!(store.stream("bert", &further).is_ok(), "another host has its own");
    let full = folder.path().join("bert/further");
    for number in 0..FILES_EACH {
        fs::write(full.join(number.to_string()), b"").unwrap();
    }
    let other = Offer { feed: "further".into(), ..offer(2, Form::Lines) };
    let refused = store.stream("bert", &other).err().expect("it has enough");
    assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
}

#[test]
fn another_form_is_refused() {
    let folder = TempDir::new().unwrap();
    {
        let store = Store::open(folder.path(), FILE).unwrap();
        let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
        add(&stream, 0, &[b"a"]).unwrap();
        store.commit(&stream);
        wait(&stream, 1);
    }
    let store = Store::open(folder.path(), FILE).unwrap();
    let refused = store.stream("anna", &offer(1, Form::Nul)).err().expect("it had lines");
    assert_eq!(refused.kind(), ErrorKind::InvalidData);
}

/// A disk that is full says so before anything is acknowledged, and the rest goes on later.
#[test]
fn what_cannot_be_written_is_not_acknowledged() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), FILE).unwrap();
    let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    add(&stream, 0, &[b"a"]).unwrap();
    store.commit(&stream);
    wait(&stream, 1);
    // The next file cannot be made: its folder is gone.
    let moved = folder.path().join("moved");
    fs::rename(folder.path().join("anna/logs"), &moved).unwrap();
    fs::remove_file(
        fs::read_dir(&moved)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| !path.ends_with("index"))
            .unwrap(),
    )
    .unwrap();
    add(&stream, 1, &[b"b"]).unwrap();
    store.commit(&stream);
    for _ in 0..1_000 {
        if stream.kept().is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(stream.kept().is_err(), "it is told");
    let again = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    assert_eq!(again.begin(0, 0), Ok((0, 0)), "in a folder without anything it begins anew");
}

#[test]
fn records_that_another_collector_has_are_no_loss() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), FILE).unwrap();
    let stream = store.stream("anna", &offer(1, Form::Lines)).unwrap();
    add(&stream, 0, &[b"a"]).unwrap();
    store.commit(&stream);
    wait(&stream, 1);
    // Three are there, two are nobody's.
    assert_eq!(stream.begin(6, 4), Ok((6, 2)));
    assert_eq!(stream.begin(0, 9), Ok((9, 0)));
    assert_eq!(stream.begin(0, 4), Ok((9, 0)), "an older word changes nothing");
    add(&stream, 9, &[b"j"]).unwrap();
    store.commit(&stream);
    wait(&stream, 10);
    assert_eq!(files(folder.path()).len(), 2);
}

/// Found on a busy machine: a spool had more than its size, because what was being written counted
/// neither as waiting nor as written.
#[test]
fn what_is_being_written_waits_until_it_is() {
    let mut arrived = Arrived::new(Form::Lines, 0, ("anna", &Room::default()));
    let mut body = Vec::new();
    (0..4).for_each(|_| push_record(&mut body, b"abc"));
    arrived.add(&Records::of(0, &body).unwrap(), false).unwrap();
    assert_eq!(arrived.waiting(), 16);
    // Whole records alone.
    assert_eq!(arrived.take(11), (0..2, b"abc\nabc\n".to_vec()));
    assert_eq!(arrived.waiting(), 16);
    arrived.handle_written();
    assert_eq!(arrived.waiting(), 8);
    assert_eq!(arrived.take(11), (2..4, b"abc\nabc\n".to_vec()));
}
