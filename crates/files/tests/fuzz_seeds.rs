//! The seeds of the file mover's fuzz targets through the same functions as under the fuzzer.

use std::fs;
use std::path::{Path, PathBuf};

#[expect(unreachable_pub, reason = "under the fuzzer it is a crate")]
#[path = "../../../fuzz/src/transfers.rs"]
mod targets;

fn seeds(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name)
}

/// Runs a target on each of its seeds, and on each seed cut off at every byte. Returns the number
/// of seeds.
fn feed(name: &str, target: fn(&[u8])) -> usize {
    let files = fs::read_dir(seeds(name))
        .expect("the folder is there")
        .map(|entry| entry.expect("it is listed").path());
    let feed = |path: PathBuf| {
        let bytes = fs::read(path).expect("it can be read");
        (0..=bytes.len()).for_each(|cut| target(&bytes[..cut]));
    };
    files.map(feed).count()
}

fn seed(target: &str, name: &str) -> String {
    fs::read_to_string(seeds(target).join(name)).expect("it can be read")
}

#[test]
fn journals() {
    assert!(feed("journal", targets::journal) >= 3);
    // The parser must accept the seed: a refused one teaches the fuzzer nothing.
    for (name, at_least) in [("begun", 2), ("torn", 1), ("rotten", 1)] {
        let bytes = fs::read(seeds("journal").join(name)).expect("it can be read");
        let parsed = transfer::journal::Journal::parse(&bytes).expect("a journal");
        assert!(parsed.records.count() >= at_least, "{name}");
    }
}

#[test]
fn quantities() {
    assert!(feed("quantity", targets::quantity) >= 5);
    assert!("1.5 GB".parse::<units::Bytes>().is_ok() && "250 ms".parse::<units::Span>().is_ok());
}

#[test]
fn words() {
    assert!(feed("words", targets::words) >= 5);
    assert!(seed("words", "path").parse::<peer::PathSpec>().is_ok());
    assert!(seed("words", "path6").parse::<peer::PathSpec>().is_ok());
    assert!(seed("words", "timetable").parse::<peer::Timetable>().is_ok());
    assert!(seed("words", "token").parse::<peer::Token>().is_ok());
    assert!(seed("words", "fingerprint").parse::<peer::Fingerprint>().is_ok());
}

#[test]
fn trees() {
    assert!(feed("tree", targets::tree) >= 3);
}

#[test]
fn offers() {
    assert!(
        feed("offer", |data| {
            targets::offer(data);
        }) >= 8
    );
    for (name, is_accepted) in [
        ("file", true),
        ("glob", true),
        ("contents", true),
        ("served", true),
        ("renamed", true),
        ("link", false),
        ("two-renamed", false),
        ("unasked", false),
    ] {
        let bytes = fs::read(seeds("offer").join(name)).expect("it can be read");
        assert_eq!(targets::offer(&bytes), is_accepted, "{name}");
    }
}

#[test]
fn receivers() {
    assert!(feed("receiver", targets::receiver) >= 3);
}
