//! Golden delivery times to the nanosecond.

use link::{Blackout, Change, Limit, Link, Outcome, Profile, RatePlan, Reorder};
use units::{Bytes, Rate, Seed, Span, Time};

fn profile(rate: Rate) -> Profile {
    Profile { queue: Limit::Packets(1_000_000), ..Profile::new(rate, Span::ZERO) }
}

fn arrivals<P: Clone>(link: &mut Link<P>) -> Vec<u64> {
    let end = Time::from_nanos(u64::MAX / 2);
    std::iter::from_fn(|| link.poll_deliver(end)).map(|delivery| delivery.at.as_nanos()).collect()
}

fn burst(profile: Profile, sizes: &[u64]) -> Vec<u64> {
    let mut link = Link::new(profile, Seed(1));
    for size in sizes {
        assert_eq!(link.enqueue(Time::ZERO, Bytes(*size), ()), Outcome::Queued);
    }
    arrivals(&mut link)
}

fn ms(n: u64) -> Span {
    Span::from_millis(n)
}

#[test]
fn ten_gigabits_carry_the_remainder() {
    // 1514 bytes take 1211.2 ns. Rounding each packet up would take 1212 ns each, and 0.07 % of the
    // rate.
    let times = burst(profile(Rate::mbit(10_000)), &[1_514; 5]);
    assert_eq!(times, [1_212, 2_423, 3_634, 4_845, 6_056]);
}

#[test]
fn a_billion_bits_take_a_second_at_any_packet_size() {
    for size in [1, 7, 64, 1_499, 1_500, 9_000] {
        let n = 125_000_000 / size / 200;
        let mut link = Link::new(profile(Rate::mbit(1_000)), Seed(1));
        for _ in 0..n {
            link.enqueue(Time::ZERO, Bytes(size), ());
        }
        let last = arrivals(&mut link).last().copied().expect("some");
        assert_eq!(last, n * size * 8, "{size} bytes");
    }
}

#[test]
fn packets_below_a_nanosecond_share_one() {
    // At 100 Gbit/s a byte takes 0.08 ns.
    let times = burst(profile(Rate::mbit(100_000)), &[1; 26]);
    assert_eq!(times[..12], [1; 12]);
    assert_eq!(times[12..25], [2; 13]);
    assert_eq!(times[25], 3);
}

#[test]
fn a_rate_change_counts_from_its_nanosecond() {
    // 1500 bytes at 12 Mbit/s take 1 ms. After 0.25 ms, three quarters are left: at 6 Mbit/s, 1.5
    // ms.
    let change = Change { at: Span::from_micros(250), rate: Rate::mbit(6) };
    let rate = RatePlan { changes: vec![change], ..RatePlan::constant(Rate::mbit(12)) };
    let times = burst(Profile { rate, ..profile(Rate::ZERO) }, &[1_500; 2]);
    assert_eq!(times, [1_750_000, 3_750_000]);
}

#[test]
fn at_rate_zero_packets_wait() {
    let changes =
        vec![Change { at: ms(1), rate: Rate::ZERO }, Change { at: ms(5), rate: Rate::mbit(12) }];
    let rate = RatePlan { changes, ..RatePlan::constant(Rate::mbit(6)) };
    // Half of it went out before; the other half takes 0.5 ms at twice the rate.
    assert_eq!(burst(Profile { rate, ..profile(Rate::ZERO) }, &[1_500]), [5_500_000]);
    let mut link = Link::new(profile(Rate::ZERO), Seed(1));
    assert_eq!(link.enqueue(Time::ZERO, Bytes(1_500), ()), Outcome::Queued);
    assert_eq!((link.poll_deadline(), link.poll_deliver(Time::from_nanos(u64::MAX))), (None, None));
}

#[test]
fn a_link_that_was_idle_starts_afresh() {
    let mut link = Link::new(profile(Rate::mbit(10_000)), Seed(1));
    link.enqueue(Time::ZERO, Bytes(1_514), ());
    link.enqueue(Time::from_nanos(1_212), Bytes(1_514), ());
    assert_eq!(arrivals(&mut link), [1_212, 2_424], "0.8 ns of idleness are not made up for");
}

#[test]
fn a_blackout_drops_arrivals_and_departures() {
    let blackouts = vec![Blackout { from: ms(2), to: Some(ms(4)), every: None }];
    let mut link = Link::new(Profile { blackouts, ..profile(Rate::mbit(12)) }, Seed(1));
    for n in 0..3 {
        link.enqueue(Time::ZERO, Bytes(1_500), n);
    }
    assert_eq!(link.enqueue(Time::ZERO + ms(3), Bytes(1_500), 3), Outcome::DroppedBlackout);
    assert_eq!(link.enqueue(Time::ZERO + ms(4), Bytes(1_500), 4), Outcome::Queued);
    // The first leaves at 1 ms; the second at 2 ms, in the blackout; the third at 3 ms.
    assert_eq!(arrivals(&mut link), [1_000_000, 5_000_000]);
    assert_eq!(link.counters().dropped_blackout, 3);
}

#[test]
fn the_queue_counts_the_packet_on_the_wire() {
    let mut link = Link::new(
        Profile { queue: Limit::Bytes(Bytes(3_000)), ..profile(Rate::mbit(12)) },
        Seed(1),
    );
    assert_eq!(link.enqueue(Time::ZERO, Bytes(1_500), ()), Outcome::Queued);
    assert_eq!(link.enqueue(Time::ZERO, Bytes(1_500), ()), Outcome::Queued);
    assert_eq!(link.enqueue(Time::from_nanos(999_999), Bytes(1), ()), Outcome::DroppedQueue);
    assert_eq!(link.enqueue(Time::from_nanos(1_000_000), Bytes(1_500), ()), Outcome::Queued);
    assert_eq!(link.counters().max_queue, Bytes(3_000));
    let mut tiny =
        Link::new(Profile { queue: Limit::Bytes(Bytes(1)), ..profile(Rate::mbit(12)) }, Seed(1));
    assert_eq!(
        tiny.enqueue(Time::ZERO, Bytes(1_500), ()),
        Outcome::Queued,
        "an idle link takes one"
    );
}

#[test]
fn a_packet_held_back_is_overtaken() {
    let reorder = Some(Reorder { probability: 0.5, delay: ms(100) });
    let mut link = Link::new(Profile { reorder, ..profile(Rate::mbit(12)) }, Seed(1));
    for n in 0..50 {
        link.enqueue(Time::ZERO, Bytes(1_500), n);
    }
    let end = Time::ZERO + Span::from_secs(1);
    let mut previous = Time::ZERO;
    let mut order = Vec::new();
    while let Some(delivery) = link.poll_deliver(end) {
        assert!(delivery.at >= previous);
        previous = delivery.at;
        order.push(delivery.packet);
    }
    let held = link.counters().reordered;
    assert!((10..40).contains(&held), "{held}");
    assert!(order.windows(2).any(|pair| pair[0] > pair[1]));
    order.sort_unstable();
    assert_eq!(order, (0..50).collect::<Vec<_>>());
}

#[test]
fn the_deadline_is_kept() {
    let mut link = Link::new(Profile { delay: ms(7), ..profile(Rate::mbit(12)) }, Seed(1));
    link.enqueue(Time::ZERO, Bytes(1_500), ());
    let deadline = link.poll_deadline().expect("one is in flight");
    assert_eq!(deadline, Time::ZERO + ms(8));
    assert_eq!(link.poll_deliver(deadline - Span::from_nanos(1)), None);
    assert!(link.poll_deliver(deadline).is_some());
    assert_eq!(link.poll_deadline(), None);
}

#[test]
fn a_schedule_waits_for_its_start() {
    let change = Change { at: ms(1), rate: Rate::mbit(6) };
    let rate = RatePlan { changes: vec![change], ..RatePlan::constant(Rate::mbit(12)) };
    let mut link = Link::unstarted(Profile { rate, ..profile(Rate::ZERO) }, Seed(1));
    link.enqueue(Time::ZERO + ms(10), Bytes(1_500), ());
    assert_eq!(arrivals(&mut link), [11_000_000]);
    let mut link = Link::unstarted(link.profile().clone(), Seed(1));
    link.start(Time::ZERO + ms(20));
    link.enqueue(Time::ZERO + ms(20), Bytes(1_500), ());
    link.enqueue(Time::ZERO + ms(20), Bytes(1_500), ());
    assert_eq!(arrivals(&mut link), [21_000_000, 23_000_000]);
}
