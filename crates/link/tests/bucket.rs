//! Policers and shapers on whole links.

use link::{Aqm, Bucket, Link, Outcome, Profile};
use units::{Bytes, Rate, Seed, Span, Time};

/// A fast link with a bucket of `packets` full packets, whose tokens come in a millisecond each.
fn link(aqm: fn(Bucket) -> Aqm, packets: u64) -> Link<u64> {
    let aqm = aqm(Bucket { rate: Rate::mbit(12), burst: Bytes(1_500 * packets) });
    let profile = Profile { aqm, ..Profile::new(Rate::mbit(1_200), Span::ZERO) };
    Link::new(profile, Seed(1))
}

fn at(micros: u64) -> Time {
    Time::ZERO + Span::from_micros(micros)
}

fn arrivals(link: &mut Link<u64>) -> Vec<(u64, u64)> {
    core::iter::from_fn(|| link.poll_deliver(at(100_000_000)))
        .map(|delivery| (delivery.packet, (delivery.at - Time::ZERO).as_micros()))
        .collect()
}

#[test]
fn a_policer_passes_the_burst_and_then_the_rate() {
    let mut link = link(Aqm::Policer, 3);
    // A packet each quarter of a millisecond.
    let passed: Vec<u64> = (0..24)
        .filter(|number| {
            let outcome = link.enqueue(at(number * 250), Bytes(1_500), *number);
            assert!([Outcome::Queued, Outcome::DroppedAqm].contains(&outcome), "{outcome:?}");
            outcome == Outcome::Queued
        })
        .collect();
    // Three, and the one for which tokens came meanwhile; then each fourth.
    assert_eq!(passed, [0, 1, 2, 4, 8, 12, 16, 20]);
    assert_eq!((link.counters().dropped_aqm, link.counters().dropped_queue), (16, 0));
    // Packets are not held: each is on the wire at once.
    assert!(arrivals(&mut link).iter().all(|(number, at)| *at == number * 250 + 10));
    // After quiet the bucket is full, and no fuller.
    let offer = |link: &mut Link<u64>| link.enqueue(at(900_000), Bytes(1_500), 0);
    let burst: Vec<Outcome> = (0..4).map(|_| offer(&mut link)).collect();
    assert_eq!(burst[2..], [Outcome::Queued, Outcome::DroppedAqm]);
    // Small packets take few tokens: a fifteenth of those that came in a millisecond.
    let small = (0..20).map(|_| link.enqueue(at(901_000), Bytes(100), 0));
    assert_eq!(small.filter(|outcome| *outcome == Outcome::Queued).count(), 15);
}

#[test]
fn a_shaper_holds_what_exceeds_the_rate_and_loses_nothing() {
    let mut link = link(Aqm::Shaper, 3);
    for number in 0..6 {
        assert_eq!(link.enqueue(at(0), Bytes(1_500), number), Outcome::Queued);
    }
    // Those of the burst take 10 us each on the wire, the others come with their tokens.
    assert_eq!(link.queue(at(500)).packets, 3, "the first of them waits for tokens");
    let wanted = [(0, 10), (1, 20), (2, 30), (3, 1_010), (4, 2_010), (5, 3_010)];
    assert_eq!(arrivals(&mut link), wanted);
    assert_eq!(link.counters().dropped(), 0);
}

/// Waiting for tokens is waiting: nothing, 1 ms and 2 ms.
#[test]
fn the_queue_of_a_shaper_has_all_that_wait() {
    let mut link = link(Aqm::Shaper, 1);
    for number in 0..3 {
        link.enqueue(at(0), Bytes(1_500), number);
    }
    let area = link.queue_area(at(1_500));
    assert_eq!((area.packets, area.left), (1_000_000 * 2 + 500_000, 2));
    let area = link.queue_area(at(10_000));
    assert_eq!((area.packets, area.left), (3_000_000, 3));
    assert_eq!(link.queue_levels(at(10_000)).nanos(), [1_000_000, 1_000_000]);
    let waited = core::iter::from_fn(|| link.poll_deliver(at(10_000))).map(|it| it.waited);
    assert_eq!(waited.map(Span::as_millis).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn what_is_larger_than_the_bucket_never_passes() {
    for aqm in [Aqm::Policer, Aqm::Shaper] {
        let mut link = link(aqm, 1);
        assert_eq!(link.enqueue(at(0), Bytes(1_501), 0), Outcome::DroppedAqm);
        assert_eq!(link.enqueue(at(0), Bytes(1_500), 1), Outcome::Queued);
        assert_eq!(arrivals(&mut link), [(1, 10)]);
    }
}
