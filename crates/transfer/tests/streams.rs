//! Streams, whose size shows as they grow.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    dead_code,
    missing_docs,
    unreachable_pub
)]

mod harness;

use harness::tcp::LinkSpec;
use harness::{Outcome, World, cv_of, ideal};
use policy::sched::{Options, by_name};
use transfer::digest::Merge;
use transfer::{
    BLOCK, Cv, Extent, ExtentSet, Layout, PathTraits, PeerError, Receiver, Sender, SenderConfig,
    Transmit,
};
use units::{Bytes, PathId, Span, Time};

fn link(mbit: f64, delay_ms: u64, queue_kib: u64) -> LinkSpec {
    LinkSpec::new(mbit, delay_ms, queue_kib)
}

fn sender() -> Sender {
    let scheduler = by_name("self-adaptive", Options::default()).expect("a known name");
    Sender::new(&Layout::stream(0), &ExtentSet::new(), scheduler, SenderConfig::default())
}

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// The hash that a file of these blocks has.
fn root(size: u64) -> Option<Cv> {
    let mut merge = Merge::new(size);
    for block in 0..size.div_ceil(BLOCK) {
        merge.insert(block, cv_of(block)).expect("a new block");
    }
    merge.root()
}

/// Sends a stream and checks its hash.
#[track_caller]
fn check(name: &str, sizes: &[(Time, u64)], links: &[LinkSpec]) -> Outcome {
    let outcome = World::streaming(sizes, links).run();
    println!("{name}: {:.3} s, {} sent twice", outcome.seconds, outcome.duplicates);
    assert_eq!(outcome.root, root(sizes.last().expect("an end").1), "{name}");
    outcome
}

/// Sizes of a stream of `bytes` that grows by random steps at random times.
fn growth(seed: u64, bytes: u64, over_ms: u64) -> Vec<(Time, u64)> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % below
    };
    let (mut sizes, mut size, mut now) = (Vec::new(), 2 * BLOCK, 0);
    let steps = bytes / (8 * BLOCK);
    while size < bytes {
        sizes.push((at(now), size));
        size += BLOCK * draw(16);
        now += draw(2 * over_ms / steps);
    }
    sizes.push((at(now), bytes));
    sizes
}

#[test]
fn a_stream_that_grows_at_random_arrives_whole_over_bad_paths() {
    for seed in 1..=12 {
        let links = [
            LinkSpec { loss: 0.01, ..link(30.0, 10, 128) },
            // Dies in mid-stream, and comes back.
            link(20.0, 30, 128).then(1.0 + seed as f64 / 10.0, 0.0).then(6.0, 20.0),
            link(5.0, 100, 64),
        ];
        let bytes = 20_000_000 + seed * 77_777;
        check(&format!("seed {seed}"), &growth(seed, bytes, 3_000), &links);
    }
}

#[test]
fn a_stream_as_fast_as_the_paths_gets_all_of_them() {
    let links = [link(50.0, 5, 128), link(20.0, 30, 256)];
    let bytes = 60_000_000;
    // The producer is a little ahead of the paths, by no more than 4 MiB.
    let mut sizes = Vec::new();
    for step in 1..bytes / (2 * BLOCK) {
        let size = step * 2 * BLOCK;
        sizes.push((at((size.saturating_sub(16 * BLOCK)) * 8 / 70_000), size));
    }
    let last = sizes.last().expect("many").0;
    sizes.push((last, bytes));
    let outcome = check("as fast", &sizes, &links);
    let fraction = ideal(bytes, &links) / outcome.seconds;
    assert!(fraction > 0.93, "{fraction:.4} of the ideal");
    assert!(outcome.duplicates < Bytes::mib(1), "{} repeated", outcome.duplicates);
}

#[test]
fn nothing_is_repeated_while_the_producer_thinks() {
    let links = [link(50.0, 10, 128), link(5.0, 80, 128)];
    // A block every 200 ms: each arrives long before the next.
    let mut sizes: Vec<(Time, u64)> = (2..40).map(|n| (at(n * 200), n * BLOCK)).collect();
    sizes.push((at(8_000), 40 * BLOCK));
    let outcome = check("slow", &sizes, &links);
    assert!(outcome.duplicates <= Bytes(BLOCK), "{} repeated", outcome.duplicates);
    assert!(outcome.seconds < 9.0, "{:.3} s", outcome.seconds);
}

#[test]
fn a_sender_sleeps_while_its_stream_does() {
    let mut sender = sender();
    let path = PathId(0);
    sender.handle_path_open(at(0), path, PathTraits::default());
    let idle = Transmit::Wait { until: None };
    assert_eq!(sender.poll_transmit(at(1), path, Bytes(BLOCK)), idle);
    assert_eq!(sender.poll_deadline(at(1)), None);
    while sender.poll_wake().is_some() {}
    sender.handle_grown(at(2), 2 * BLOCK, false).expect("it grows");
    assert_eq!(sender.poll_wake(), Some(path));
    let Transmit::Data(extent) = sender.poll_transmit(at(3), path, Bytes(BLOCK)) else {
        panic!("there is data")
    };
    assert_eq!(extent.start, 0);
    sender.handle_acked(at(4), path, extent).expect("it was sent");
    assert!(!sender.is_complete());
}

#[test]
fn the_end_completes_a_stream_that_has_arrived() {
    let mut sender = sender();
    sender.handle_grown(at(0), 0, true).expect("an empty stream");
    assert!(sender.is_complete());
    let mut receiver = Receiver::new(&Layout::stream(0), &ExtentSet::new());
    assert!(!receiver.is_complete() && receiver.has_all_known());
    let empty = transfer::digest::empty_root();
    assert_eq!(receiver.handle_grown(0, true), Ok(Some((0, empty))));
    assert!(receiver.is_complete());
    // The end comes by every path.
    assert_eq!(receiver.handle_grown(0, true), Ok(None));
}

#[test]
fn impossible_sizes_are_refused() {
    let stream = || Receiver::new(&Layout::stream(0), &ExtentSet::new());
    for size in [0, 1, BLOCK, 2 * BLOCK + 1, (1 << 56) + BLOCK, u64::MAX] {
        assert_eq!(stream().handle_grown(size, false), Err(PeerError::Grown(size)), "{size}");
    }
    assert_eq!(stream().handle_grown(u64::MAX, true), Err(PeerError::Grown(u64::MAX)));
    let mut grown = stream();
    grown.handle_grown(4 * BLOCK, false).expect("it grows");
    // A path that was told earlier.
    grown.handle_grown(2 * BLOCK, false).expect("it was so once");
    assert_eq!(grown.handle_grown(4 * BLOCK - 1, true), Err(PeerError::Grown(4 * BLOCK - 1)));
    grown.handle_grown(4 * BLOCK + 9, true).expect("its end");
    grown.handle_grown(3 * BLOCK, false).expect("it was so once");
    for (size, is_end) in [(5 * BLOCK, false), (4 * BLOCK, true), (4 * BLOCK + 10, true)] {
        assert_eq!(grown.handle_grown(size, is_end), Err(PeerError::Grown(size)), "{size}");
    }
    let beyond = Extent::new(4 * BLOCK, 10);
    assert!(grown.handle_data(beyond).is_err(), "data behind the end");
    let mut file = Receiver::new(&harness::layout(BLOCK), &ExtentSet::new());
    assert_eq!(file.handle_grown(4 * BLOCK, false), Err(PeerError::Grown(4 * BLOCK)));
}
