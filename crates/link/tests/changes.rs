//! Delays and losses that change on a schedule or by a trace.

use std::num::NonZeroU64;

use link::{Blackout, Dated, Jitter, Limit, Link, Loss, Outcome, Profile, Spread, Trace};
use proptest::prelude::*;
use units::{Bytes, Rate, Seed, Span, Time};

fn ms(n: u64) -> Span {
    Span::from_millis(n)
}

fn at(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

fn dated<T>(millis: u64, value: T) -> Dated<T> {
    Dated { at: ms(millis), value }
}

/// 12 Mbit/s, where a packet of 1500 bytes takes 1 ms, with a delay of 50 ms that falls to 10 ms
/// after 100 ms and rises to 30 ms after 200 ms.
fn changing() -> Profile {
    Profile {
        delays: vec![dated(100, ms(10)), dated(200, ms(30))],
        ..Profile::new(Rate::mbit(12), ms(50))
    }
}

/// Offers a full packet at each of these times in ms: the numbers of the packets that arrive, with
/// their arrivals in ms.
fn arrivals(profile: Profile, times: impl IntoIterator<Item = u64>) -> Vec<(usize, f64)> {
    let mut link = Link::new(profile, Seed(3));
    let mut arrived = Vec::new();
    let mut take = |link: &mut Link<usize>, until: Time| {
        while let Some(due) = link.poll_deadline().filter(|due| *due <= until) {
            let delivery = link.poll_deliver(due);
            arrived.extend(delivery.map(|it| (it.packet, (it.at - at(0)).as_secs_f64() * 1e3)));
        }
    };
    for (number, time) in times.into_iter().enumerate() {
        take(&mut link, at(time));
        link.enqueue(at(time), Bytes(1_500), number);
    }
    take(&mut link, at(1_000_000));
    arrived
}

#[test]
fn the_delay_of_a_packet_is_that_of_its_departure() {
    // The second packet leaves at 99 ms with a delay of 50 ms; the third, at 111 ms, waits for it.
    let found = arrivals(changing(), [10, 98, 110, 150, 198, 199]);
    let wanted = [61.0, 149.0, 149.0, 161.0, 209.0, 230.0];
    assert_eq!(found, wanted.into_iter().enumerate().collect::<Vec<_>>());
}

#[test]
fn packets_overtake_only_where_jitter_reorders() {
    let jitter = Some(Jitter { spread: Spread::Uniform(Span::ZERO), reorders: true });
    let found = arrivals(Profile { jitter, ..changing() }, [98, 110]);
    assert_eq!(found, [(1, 121.0), (0, 149.0)]);
}

#[test]
fn what_was_sent_has_arrived_one_delay_later() {
    let profile = changing();
    let sent = |millis| profile.sent_by(ms(millis)).as_millis();
    // Nothing arrives before 50 ms. What left by 100 ms has arrived by 150 ms, and what left at
    // 140 ms then too; what leaves from 200 ms on arrives from 230 ms on.
    let found = [0, 50, 120, 149, 150, 180, 210, 229, 231].map(sent);
    assert_eq!(found, [0, 0, 70, 99, 140, 170, 200, 200, 201]);
}

#[test]
fn losses_change_at_their_times() {
    let every = |n| Loss::Every(NonZeroU64::new(n).expect("not zero"));
    let losses = vec![dated(100, every(3)), dated(200, Loss::None), dated(300, every(2))];
    let profile = Profile { losses, ..Profile::new(Rate::mbit(12), ms(5)) };
    // A packet each 10 ms: ten of each model, which begins anew.
    let kept: Vec<usize> =
        arrivals(profile, (0..40).map(|n| n * 10)).into_iter().map(|(number, _)| number).collect();
    let lost: Vec<usize> = (0..40).filter(|number| !kept.contains(number)).collect();
    assert_eq!(lost, [12, 15, 18, 31, 33, 35, 37, 39]);
}

/// A later loss takes its draws from the stream of the first.
#[test]
fn a_change_of_loss_to_itself_changes_no_draw() {
    let steady = Profile { loss: Loss::Bernoulli(0.3), ..Profile::new(Rate::mbit(12), ms(5)) };
    let renewed = Profile { losses: vec![dated(500, Loss::Bernoulli(0.3))], ..steady.clone() };
    let times = || (0..500).map(|n| n * 2);
    let found = arrivals(steady, times());
    assert!((300..400).contains(&found.len()), "{}", found.len());
    assert_eq!(found, arrivals(renewed, times()));
}

#[test]
fn a_schedule_begins_with_the_link() {
    let mut profile = changing();
    profile.losses = vec![dated(100, Loss::of(1.0))];
    profile.blackouts = vec![Blackout { from: ms(500), to: None, every: None }];
    let mut link = Link::unstarted(profile, Seed(1));
    link.enqueue(at(900), Bytes(1_500), 0);
    assert_eq!(link.poll_deadline(), Some(at(951)), "it has not begun");
    assert!(link.poll_deliver(at(951)).is_some());
    link.start(at(1_000));
    assert_eq!(link.enqueue(at(1_050), Bytes(1_500), 1), Outcome::Queued);
    assert_eq!(link.poll_deadline(), Some(at(1_101)));
    assert_eq!(link.enqueue(at(1_100), Bytes(1_500), 2), Outcome::DroppedLoss);
}

#[test]
fn a_trace_may_have_delays_and_losses() {
    let text = "0, 5 Mbit/s, 40 ms\n# handover\n2 s, 20 Mbit/s, 15 ms, 0.01\n3 s, , , 0\n4 s, 0\n";
    let trace = Trace::parse(text).expect("all right");
    assert_eq!(trace.rate.base, Rate::mbit(5));
    let rates: Vec<_> = trace.rate.changes.iter().map(|it| (it.at.as_millis(), it.rate)).collect();
    assert_eq!(rates, [(2_000, Rate::mbit(20)), (4_000, Rate::ZERO)]);
    assert_eq!(trace.delays, [dated(0, ms(40)), dated(2_000, ms(15))]);
    assert_eq!(trace.losses, [dated(2_000, Loss::Bernoulli(0.01)), dated(3_000, Loss::None)]);
}

proptest! {
    /// Any changes of the delay: packets keep their order, and arrive at the departure plus the
    /// delay of that moment, or with the packet before them.
    #[test]
    fn changing_delays_agree_with_the_model(
        first in 0..50_000u64,
        changes in prop::collection::btree_map(0..200_000u64, 0..50_000u64, 0..6),
        packets in prop::collection::vec((0..20_000u64, 40..9_000u64), 1..60),
        rate in 1_000_000..1_000_000_000u64,
        is_lossy: bool,
    ) {
        let us = Span::from_micros;
        let delays: Vec<Dated<Span>> =
            changes.iter().map(|(at, delay)| Dated { at: us(*at), value: us(*delay) }).collect();
        let mut profile = Profile {
            queue: Limit::Packets(1_000),
            delays: delays.clone(),
            ..Profile::new(Rate::from_bits(rate), us(first))
        };
        // A loss that never comes does not change anything.
        profile.losses =
            if is_lossy { vec![dated(1_000_000, Loss::of(1.0))] } else { Vec::new() };
        // The departures are those of the same link without a delay.
        let plain = Profile {
            queue: Limit::Packets(1_000),
            ..Profile::new(Rate::from_bits(rate), Span::ZERO)
        };
        let mut links = [Link::new(profile, Seed(1)), Link::new(plain, Seed(1))];
        let mut now = Time::ZERO;
        for (number, (gap, bytes)) in packets.iter().enumerate() {
            now += us(*gap);
            for link in &mut links {
                prop_assert_eq!(link.enqueue(now, Bytes(*bytes), number), Outcome::Queued);
            }
        }
        let [found, departures] = links.map(|mut link| {
            let mut all = Vec::new();
            while let Some(due) = link.poll_deadline() {
                all.extend(link.poll_deliver(due.max(now)).map(|it| (it.packet, it.at)));
            }
            all
        });
        let mut last = Time::ZERO;
        let expected: Vec<(usize, Time)> = departures
            .into_iter()
            .map(|(number, departure)| {
                let since = departure - Time::ZERO;
                let delay = delays.iter().rev().find(|change| change.at <= since);
                last = last.max(departure + delay.map_or(us(first), |change| change.value));
                (number, last)
            })
            .collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_delivery_tells_how_long_the_packet_waited() {
    // A packet takes 1 ms.
    let mut link = Link::new(Profile::new(Rate::mbit(12), ms(10)), Seed(1));
    for (millis, packet) in [(0, 0), (0, 1), (0, 2), (20, 3)] {
        link.enqueue(at(millis), Bytes(1_500), packet);
    }
    let waited: Vec<(u32, Span)> = std::iter::from_fn(|| link.poll_deliver(at(100)))
        .map(|delivery| (delivery.packet, delivery.waited))
        .collect();
    assert_eq!(waited, [(0, ms(0)), (1, ms(1)), (2, ms(2)), (3, ms(0))]);
}
