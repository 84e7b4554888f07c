//! Traces and jitter on whole links.

use link::{
    Aqm, CoDel, Jitter, Link, Loss, Opportunities, Outcome, Profile, RatePlan, Spread, Trace,
    TraceProblem, schedule,
};
use proptest::prelude::*;
use units::{Bytes, Rate, Seed, Span, Time};

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

fn plan(text: &str) -> RatePlan {
    Trace::parse(text).unwrap_or_else(|error| panic!("{error}")).rate
}

fn link(plan: RatePlan) -> Link<u32> {
    Link::new(Profile { rate: plan, ..Profile::new(Rate::ZERO, Span::from_millis(10)) }, Seed(1))
}

/// The arrivals of packets that are offered at given times, in ms, less the delay of 10 ms.
fn arrivals(plan: RatePlan, offers: &[(u64, u64)]) -> Vec<u64> {
    let mut link = link(plan);
    let mut out = Vec::new();
    for (millis, bytes) in offers {
        assert_eq!(link.enqueue(at(*millis), Bytes(*bytes), 0), Outcome::Queued);
    }
    while let Some(deadline) = link.poll_deadline() {
        out.extend(link.poll_deliver(deadline).map(|delivery| (delivery.at - at(10)).as_millis()));
    }
    out
}

#[test]
fn opportunities_carry_1500_bytes_each_and_repeat() {
    let trace = || plan("3\n3\n# a comment\n\n5\n10\n");
    assert_eq!(trace().base, Rate::from_bits(4 * 12_000 * 100));
    // Two at 3, one at 5, one at 10; then 13, 13, 15, 20, …
    assert_eq!(arrivals(trace(), &[(0, 1_500); 6]), [3, 3, 5, 10, 13, 13]);
    // Small packets share an opportunity; a large one takes several; a partly used one goes on.
    assert_eq!(arrivals(trace(), &[(0, 500); 4]), [3, 3, 3, 3]);
    assert_eq!(arrivals(trace(), &[(0, 3_100), (0, 1_400)]), [5, 5]);
    assert_eq!(arrivals(trace(), &[(0, 3_100), (0, 1_401)]), [5, 10]);
    // An unused opportunity is lost, and so is one at the arrival of a packet.
    assert_eq!(arrivals(trace(), &[(3, 1_500)]), [5]);
    assert_eq!(arrivals(trace(), &[(10, 1_500), (11, 1_500), (11, 1_500)]), [13, 13, 15]);
    assert_eq!(arrivals(trace(), &[(123_456, 1_500)]), [123_460]);
    // A time of zero coincides with the end of the period before.
    assert_eq!(arrivals(plan("0\n4"), &[(1, 1_500), (1, 1_500), (1, 1_500)]), [4, 4, 8]);
}

#[test]
fn a_trace_restarts_with_the_schedule() {
    let mut link: Link<u32> = Link::unstarted(
        Profile { rate: plan("7"), ..Profile::new(Rate::ZERO, Span::ZERO) },
        Seed(1),
    );
    link.enqueue(at(1), Bytes(100), 1);
    link.start(at(2));
    assert_eq!(link.poll_deadline(), Some(at(9)));
}

#[test]
fn codel_decides_at_the_opportunity() {
    // Nothing leaves for 4 s: at the first opportunity the sojourn times are above the target, at
    // the first one after the interval packets are dropped.
    let times: String = (4_000..5_000).map(|n| n.to_string() + "\n").collect();
    let profile =
        Profile { aqm: Aqm::CoDel(CoDel::default()), ..Profile::new(Rate::ZERO, Span::ZERO) };
    let mut link = Link::new(
        Profile { rate: plan(&times), queue: link::Limit::Packets(900), ..profile },
        Seed(1),
    );
    for _ in 0..900 {
        link.enqueue(at(0), Bytes(1_500), 0);
    }
    link.queue(at(4_099));
    assert_eq!(link.counters().dropped_aqm, 0);
    link.queue(at(4_101));
    assert_eq!(link.counters().dropped_aqm, 1);
}

#[test]
fn the_fluid_time_follows_the_trace() {
    let profile = Profile { rate: plan("3\n3\n5\n10\n"), ..Profile::new(Rate::ZERO, Span::ZERO) };
    let ideal =
        |bytes| schedule::ideal([(&profile, &profile)], Bytes(bytes), 1.0).map(Span::as_micros);
    assert_eq!(ideal(3_000), Some(3_000));
    assert_eq!(ideal(3_750), Some(4_000));
    assert_eq!(ideal(6_000 * 7 + 1_500), Some(71_500));
}

#[test]
fn rates_from_a_list() {
    let plan = plan("0, 8 Mbit/s\n  1.5 s , 0 # dark\n2 s,16 Mbit/s");
    assert_eq!(plan.base, Rate::mbit(8));
    let changes: Vec<(u64, Rate)> =
        plan.changes.iter().map(|change| (change.at.as_millis(), change.rate)).collect();
    assert_eq!(changes, [(1_500, Rate::ZERO), (2_000, Rate::mbit(16))]);
}

#[test]
fn errors_name_the_line() {
    for (text, line, problem) in [
        ("", 1, TraceProblem::Empty),
        ("# nothing\n\n", 1, TraceProblem::Empty),
        ("1\n2\nthree\n", 3, TraceProblem::Millis),
        ("1\n-2\n", 2, TraceProblem::Millis),
        ("1\n\n5\n4\n", 4, TraceProblem::Backwards),
        ("0\n0\n", 2, TraceProblem::NoTime),
        ("9999999999999999\n", 1, TraceProblem::TooLate),
        ("0, 1 Mbit/s\n1 s\n", 2, TraceProblem::Fields),
        ("0, 1 Mbit/s, 5 ms, 0.1, 7\n", 1, TraceProblem::Fields),
        ("0, 1 Mbit/s\n1 s, , \n", 2, TraceProblem::Fields),
        ("0, , 5 ms\n", 1, TraceProblem::NoRate),
        ("0, 1 Mbit/s, 5 ms, 1.5\n", 1, TraceProblem::Loss),
        ("1 s, 1 Mbit/s\n", 1, TraceProblem::LateStart),
        ("0, 1 Mbit/s\n2 s, 0\n1 s, 0\n", 3, TraceProblem::Backwards),
        ("0, 1 Mbit/s\n0, 0\n", 2, TraceProblem::Again),
    ] {
        let error = Trace::parse(text).expect_err(text);
        assert_eq!((error.line, &error.problem), (line, &problem), "{text:?}");
        assert!(error.to_string().starts_with(&format!("line {line}: ")));
    }
    let error = Trace::parse("0, 1 Mbit/s\n1 s, 5 parsecs").expect_err("no rate");
    assert_eq!(error.line, 2);
    assert!(error.to_string().contains("5 parsecs"), "{error}");
    assert_eq!(Opportunities::new([5, 4]).expect_err("backwards").line, 2);
}

/// The arrivals of packets sent each ms over a link with jitter, in order of arrival, and the link.
fn jittered(profile: Profile) -> (Vec<(u64, u32)>, Link<u32>) {
    let mut link = Link::new(profile, Seed(5));
    let mut out = Vec::new();
    for number in 0..2_000u32 {
        let now = at(u64::from(number));
        while link.poll_deadline().is_some_and(|deadline| deadline <= now) {
            out.extend(
                link.poll_deliver(now).map(|delivery| (delivery.at.as_nanos(), delivery.packet)),
            );
        }
        link.enqueue(now, Bytes(100), number);
    }
    while let Some(deadline) = link.poll_deadline() {
        out.extend(
            link.poll_deliver(deadline).map(|delivery| (delivery.at.as_nanos(), delivery.packet)),
        );
    }
    (out, link)
}

fn with_jitter(reorders: bool) -> Profile {
    let spread = Spread::Uniform(Span::from_millis(5));
    Profile {
        jitter: Some(Jitter { spread, reorders }),
        ..Profile::new(Rate::mbit(100), Span::from_millis(10))
    }
}

#[test]
fn jitter_keeps_the_order_unless_it_reorders() {
    let (kept, _) = jittered(with_jitter(false));
    assert!(kept.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1));
    let (mixed, _) = jittered(with_jitter(true));
    assert!(mixed.windows(2).all(|pair| pair[0].0 <= pair[1].0), "arrivals come in order of time");
    let overtaken = mixed.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
    assert!(overtaken > 200, "{overtaken}");
    assert_eq!((kept.len(), mixed.len()), (2_000, 2_000));
    for (arrival, number) in kept.iter().chain(&mixed) {
        let extra = arrival - u64::from(*number) * 1_000_000 - 10_008_000;
        assert!(extra <= 5_000_000, "{extra}");
    }
}

#[test]
fn jitter_does_not_change_the_draws_of_losses() {
    let lossy = Profile { loss: Loss::Bernoulli(0.1), ..with_jitter(false) };
    let survivors =
        |profile| jittered(profile).0.iter().map(|(_, number)| *number).collect::<Vec<_>>();
    assert_eq!(survivors(lossy.clone()), survivors(Profile { jitter: None, ..lossy }));
}

proptest! {
    #[test]
    fn the_parser_never_panics_and_names_a_line(
        text in "([0-9a-z,. #-]{0,12}\n){0,12}[^\u{0}]{0,20}",
    ) {
        let lines = text.lines().count().max(1);
        match Trace::parse(&text) {
            Ok(Trace { rate: plan, .. }) => {
                prop_assert!(plan.opportunities.is_none_or(|trace| trace.period() > Span::ZERO));
            }
            Err(error) => prop_assert!((1..=lines).contains(&error.line), "{error}"),
        }
    }

    /// Compared with a walk through all opportunities.
    #[test]
    fn opportunities_agree_with_a_walk(
        gaps in prop::collection::vec(0..8u64, 1..12),
        offers in prop::collection::vec((0..9u64, 1..4_000u64), 1..40),
    ) {
        let times: Vec<u64> = gaps
            .iter()
            .scan(0, |at, gap| {
                *at += gap;
                Some(*at)
            })
            .collect();
        let period = times[times.len() - 1];
        prop_assume!(period > 0);
        let offers: Vec<(u64, u64)> = offers
            .iter()
            .scan(0, |at, (gap, bytes)| {
                *at += gap;
                Some((*at, *bytes))
            })
            .collect();
        let mut unsent: Vec<(u64, u64)> = offers.clone();
        let mut expected = Vec::new();
        'walk: for round in 0.. {
            for time in &times {
                let now = round * period + time;
                let mut left = 1_500;
                while left > 0 {
                    let Some(first) = unsent.first_mut() else { break 'walk };
                    // A packet that arrives at this time has missed it.
                    if first.0 >= now {
                        break;
                    }
                    let part = first.1.min(left);
                    first.1 -= part;
                    left -= part;
                    if first.1 == 0 {
                        unsent.remove(0);
                        expected.push(now);
                    }
                }
            }
        }
        let plan = RatePlan::opportunities(Opportunities::new(times).expect("in order"));
        // Packets that arrive at a busy link at such a time miss it too.
        prop_assert_eq!(arrivals(plan, &offers), expected);
    }
}
