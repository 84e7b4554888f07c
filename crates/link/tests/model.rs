//! The link, compared with a simple model, and its invariants.

use link::{
    Blackout, Change, GilbertElliott, Limit, Link, Loss, Outcome, Profile, RatePlan, Redraw,
    Reorder,
};
use proptest::prelude::*;
use units::{Bytes, Rate, Seed, Span, Time};

#[derive(Clone, Copy, Debug)]
enum Op {
    Wait(u64),
    Offer(u64),
    Deliver,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0..3_000_000u64).prop_map(Op::Wait),
        (0..2_000u64).prop_map(Op::Wait),
        (1..9_001u64).prop_map(Op::Offer),
        (1_400..1_501u64).prop_map(Op::Offer),
        Just(Op::Deliver),
    ];
    prop::collection::vec(op, 1..200)
}

/// Drop-tail at a constant rate in exact fractions: times are in units of 1/rate ns, and only
/// compared values are rounded.
struct Model {
    rate: u128,
    delay: u64,
    limit: Limit,
    /// Exact departure and size of every queued packet.
    taken: Vec<(u128, u64)>,
    /// The arrival of every queued packet.
    arrivals: Vec<u64>,
}

impl Model {
    fn departures(&self) -> impl Iterator<Item = (u64, u64)> {
        self.taken
            .iter()
            .map(|(at, bytes)| (u64::try_from(at.div_ceil(self.rate)).expect("soon"), *bytes))
    }

    /// Each packet's time in the queue until `now`, and that time for each of its bytes.
    fn area(&self, now: u64) -> (u128, u128, u64) {
        let mut free = 0;
        let mut area = (0, 0, 0);
        for ((departure, bytes), arrival) in self.departures().zip(&self.arrivals) {
            let turn = free.max(*arrival);
            let wait = u128::from(turn.min(now) - arrival);
            let left = area.2 + u64::from(turn <= now);
            area = (area.0 + wait, area.1 + wait * u128::from(bytes), left);
            free = departure;
        }
        area
    }

    fn offer(&mut self, now: u64, bytes: u64) -> bool {
        let waiting: Vec<u64> =
            self.departures().filter(|(at, _)| *at > now).map(|(_, bytes)| bytes).collect();
        let has_room = match self.limit {
            Limit::Bytes(limit) => waiting.iter().sum::<u64>() + bytes <= limit.0,
            Limit::Packets(limit) => (waiting.len() as u64) < limit,
        };
        let takes = waiting.is_empty() || has_room;
        if takes {
            let free = self.taken.last().map_or(0, |(at, _)| *at);
            let begin = free.max(u128::from(now) * self.rate);
            self.taken.push((begin + u128::from(bytes) * 8_000_000_000, bytes));
            self.arrivals.push(now);
        }
        takes
    }
}

fn limits() -> impl Strategy<Value = Limit> {
    prop_oneof![
        (1..100_000u64).prop_map(|n| Limit::Bytes(Bytes(n))),
        (1..50u64).prop_map(Limit::Packets)
    ]
}

proptest! {
    #[test]
    fn drop_tail_agrees_with_the_model(
        rate in 100_000..40_000_000_000u64,
        delay in 0..100_000_000u64,
        limit in limits(),
        general: bool,
        ops in ops(),
    ) {
        let mut profile = Profile {
            queue: limit,
            ..Profile::new(Rate::from_bits(rate), Span::from_nanos(delay))
        };
        if general {
            // A change in the far future keeps the link off its fast path.
            profile
                .rate
                .changes
                .push(Change { at: Span::from_secs(1_000_000_000), rate: Rate::ZERO });
        }
        let mut link = Link::new(profile, Seed(1));
        let mut model = Model {
            rate: u128::from(rate),
            delay,
            limit,
            taken: Vec::new(),
            arrivals: Vec::new(),
        };
        let mut now = 0;
        let mut delivered = Vec::new();
        for op in ops {
            match op {
                Op::Wait(nanos) => now += nanos,
                Op::Offer(bytes) => {
                    let taken = model.offer(now, bytes);
                    let outcome =
                        link.enqueue(Time::from_nanos(now), Bytes(bytes), model.taken.len());
                    prop_assert_eq!(outcome == Outcome::Queued, taken);
                }
                Op::Deliver => delivered.extend(link.poll_deliver(Time::from_nanos(now))),
            }
            prop_assert_eq!(link.held(), (model.taken.len() - delivered.len()) as u64);
            let waiting: u64 =
                model.departures().filter(|(at, _)| *at > now).map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(link.queue(Time::from_nanos(now)).bytes, Bytes(waiting));
            let area = link.queue_area(Time::from_nanos(now));
            prop_assert_eq!((area.packets, area.bytes, area.left), model.area(now));
        }
        while let Some(deadline) = link.poll_deadline() {
            delivered.extend(link.poll_deliver(deadline.max(Time::from_nanos(now))));
        }
        let expected: Vec<(u64, usize)> =
            model.departures().zip(1..).map(|((at, _), n)| (at + model.delay, n)).collect();
        let got: Vec<(u64, usize)> =
            delivered.iter().map(|d| (d.at.as_nanos(), d.packet)).collect();
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn packets_are_conserved(
        seed: u64,
        loss in 0.0..1.0f64,
        duplicate in 0.0..1.0f64,
        hold in 0.0..1.0f64,
        bursts: bool,
        redraw: bool,
        dark in prop::option::of((0..50u64, 1..50u64)),
        limit in limits(),
        ops in ops(),
    ) {
        let mut profile = Profile::new(Rate::mbit(20), Span::from_millis(3));
        profile.queue = limit;
        profile.mtu = Some(Bytes(8_000));
        profile.duplicate = duplicate;
        profile.corrupt = 0.1;
        profile.reorder = Some(Reorder { probability: hold, delay: Span::from_millis(5) });
        profile.loss = if bursts {
            Loss::GilbertElliott(GilbertElliott {
                good_to_bad: loss,
                bad_to_good: 0.5,
                good: 0.0,
                bad: 0.9,
            })
        } else {
            Loss::Bernoulli(loss)
        };
        profile.blackouts = dark
            .map(|(from, length)| {
                let (from, to) = (Span::from_millis(from), Some(Span::from_millis(from + length)));
                Blackout { from, to, every: Some(Span::from_millis(100)) }
            })
            .into_iter()
            .collect();
        if redraw {
            let redraw =
                Redraw { every: Span::from_millis(1), from: 0.2, to: 1.0, seed: Seed(seed) };
            profile.rate = RatePlan { redraw: Some(redraw), ..profile.rate };
        }
        let mut link = Link::new(profile, Seed(seed));
        let (mut now, mut previous) = (Time::ZERO, Time::ZERO);
        let mut bytes_out = Bytes::ZERO;
        let mut check = |delivery: Option<link::Delivery<()>>, now: Time| {
            if let Some(delivery) = delivery {
                assert!(previous <= delivery.at && delivery.at <= now);
                previous = delivery.at;
                bytes_out += delivery.bytes;
            }
        };
        for op in ops {
            match op {
                Op::Wait(nanos) => {
                    // As a driver does: takes out everything that is due.
                    now += Span::from_nanos(nanos);
                    while link.poll_deadline().is_some_and(|deadline| deadline <= now) {
                        check(link.poll_deliver(now), now);
                    }
                }
                Op::Offer(bytes) => {
                    link.enqueue(now, Bytes(bytes), ());
                }
                Op::Deliver => check(link.poll_deliver(now), now),
            }
        }
        while let Some(deadline) = link.poll_deadline() {
            now = now.max(deadline);
            check(link.poll_deliver(now), now);
        }
        let counters = *link.counters();
        prop_assert_eq!(counters.offered.packets, counters.delivered.packets + counters.dropped());
        prop_assert_eq!(counters.delivered.bytes, bytes_out);
        prop_assert_eq!(link.queue(now).packets, 0);
    }
}
