//! Managed queues on whole links: delays, shares and queue lengths.

use std::collections::BTreeMap;

use link::{
    Aqm, Bucket, Change, CoDel, Delivery, DualPi2, FqCoDel, Limit, Link, Offer, Outcome, Pie,
    Profile, Red, Threshold,
};
use proptest::prelude::*;
use units::{Bytes, Rate, Seed, Span, Time};

/// Random arrivals from a seed.
struct Random(u64);

impl Random {
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    fn unit(&mut self) -> f64 {
        self.0 = Seed(self.0).stream("next").0;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Time to the next arrival of a Poisson process with this mean gap.
    fn gap(&mut self, mean: Span) -> Span {
        Span::from_secs_f64(-mean.as_secs_f64() * (1.0 - self.unit()).ln())
    }
}

fn offer(bytes: u64, flow: u64, is_ecn_capable: bool) -> Offer {
    Offer { bytes: Bytes(bytes), is_ecn_capable, is_scalable: false, flow }
}

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// The packets that have arrived by `now`.
fn arrived<P: Clone>(link: &mut Link<P>, now: Time) -> Vec<Delivery<P>> {
    std::iter::from_fn(|| link.poll_deliver(now)).collect()
}

/// 12 Mbit/s, where a packet of 1500 bytes takes 1 ms.
fn profile(aqm: Aqm) -> Profile {
    Profile { aqm, queue: Limit::Packets(1_000), ..Profile::new(Rate::mbit(12), Span::ZERO) }
}

/// A minute of Poisson arrivals at 1.05 times the rate: the mean of RED's average length in the
/// second half, and the share of drops.
#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn red_under_overload(profile: Profile) -> (f64, f64, Link<()>) {
    let mut link = Link::new(profile, Seed(4));
    let (mut random, mut now, mut lengths) = (Random(7), Time::ZERO, Vec::new());
    while now < at(60_000) {
        now += random.gap(Span::from_micros(952));
        arrived(&mut link, now);
        link.offer(now, offer(1_500, 0, true), ());
        if now > at(30_000) {
            lengths.push(link.average_queue().expect("it has RED"));
        }
    }
    let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
    let counters = *link.counters();
    (mean, counters.dropped_aqm as f64 / counters.offered.packets as f64, link)
}

#[test]
fn red_keeps_the_queue_between_its_thresholds() {
    let (mean, dropped, link) = red_under_overload(profile(Aqm::Red(Red::new(28.0, 84.0))));
    // An overload of 5 %: the mean drop probability, 2p/3 after evening out, must be 1 - 1/1.05.
    // That holds at an average of 28 + 56 · 0.71.
    assert!((28.0..84.0).contains(&mean), "{mean}");
    assert!((mean - 68.0).abs() < 5.0, "{mean}");
    assert!((dropped - 0.0476).abs() < 0.006, "{dropped}");
    assert_eq!((link.counters().dropped_queue, link.counters().marked), (0, 0));
}

#[test]
fn red_marks_instead() {
    // Marks do not slow this source down: the queue grows up to `max`, where packets are dropped.
    let (mean, dropped, link) =
        red_under_overload(profile(Aqm::Red(Red { ecn: true, ..Red::new(28.0, 84.0) })));
    assert!(link.counters().marked > 500);
    assert!(dropped > 0.0 && mean > 80.0, "{dropped} {mean}");
}

#[test]
fn red_is_the_same_on_both_transmitters() {
    let plain = profile(Aqm::Red(Red::new(5.0, 15.0)));
    let mut general = plain.clone();
    general.rate.changes.push(Change { at: Span::from_secs(1_000_000_000), rate: Rate::ZERO });
    let [a, b] = [plain, general].map(red_under_overload);
    assert_eq!((a.0.to_bits(), a.2.counters()), (b.0.to_bits(), b.2.counters()));
}

/// An AIMD source with an RTT of 40 ms, which halves its window at most once per RTT after losses
/// or marks. Returns the sojourn times in the second half, in ms, and the link.
#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn aimd_over(aqm: Aqm, is_ecn_capable: bool) -> (Vec<f64>, Link<(u64, Time)>) {
    const ROUND: Span = Span::from_millis(40);
    let mut link = Link::new(profile(aqm), Seed(2));
    // Acknowledgements in flight: arrival, packet, and whether it was marked.
    let mut acks: BTreeMap<(Time, u64), bool> = BTreeMap::new();
    let (mut window, mut inflight, mut next, mut expected) = (10.0f64, 0u64, 0u64, 0u64);
    let (mut now, mut recover, mut waits) = (Time::ZERO, 0, Vec::new());
    while now < at(120_000) {
        while (inflight as f64) < window {
            if link.offer(now, offer(1_500, 0, is_ecn_capable), (next, now)) == Outcome::Queued {
                inflight += 1;
            }
            next += 1;
        }
        let due = link
            .poll_deadline()
            .into_iter()
            .chain(acks.first_key_value().map(|(key, _)| key.0))
            .min();
        now = now.max(due.expect("something is on its way"));
        for delivery in arrived(&mut link, now) {
            acks.insert((delivery.at + ROUND, delivery.packet.0), delivery.is_marked);
            if now > at(60_000) {
                waits.push((delivery.at - delivery.packet.1).as_secs_f64() * 1e3 - 1.0);
            }
        }
        while let Some(((_, number), is_marked)) =
            acks.first_key_value().filter(|(key, _)| key.0 <= now)
        {
            let (number, is_marked) = (*number, *is_marked);
            acks.pop_first();
            let lost = number - expected;
            expected = number + 1;
            inflight -= 1 + lost;
            window += 1.0 / window;
            if (lost > 0 || is_marked) && number >= recover {
                recover = next;
                window = (window / 2.0).max(2.0);
            }
        }
    }
    (waits, link)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn codel_keeps_the_sojourn_time_near_its_target() {
    let codel = CoDel { ecn: true, ..CoDel::default() };
    let (waits, link) = aimd_over(Aqm::CoDel(CoDel::default()), false);
    let waiting = median(waits);
    assert!((1.0..10.0).contains(&waiting), "{waiting} ms");
    assert!(link.counters().dropped_aqm > 10 && link.counters().marked == 0);
    assert!(
        link.counters().delivered.packets > 100_000,
        "the link stays busy: {:?}",
        link.counters()
    );
    let (waits, link) = aimd_over(Aqm::CoDel(codel), true);
    let waiting = median(waits);
    assert!((1.0..10.0).contains(&waiting), "{waiting} ms with marks");
    assert!(link.counters().marked > 10 && link.counters().dropped() == 0);
}

/// Greedy flows at twice the rate each, and a sparse flow with a small packet each 20 ms. Returns
/// the delivered packets by flow, and the longest delay of the sparse flow.
fn share(aqm: Aqm, queue: Limit, greedy: &[u64]) -> (BTreeMap<u64, u64>, Span) {
    let mut link = Link::new(Profile { queue, ..profile(aqm) }, Seed(3));
    let (mut bytes, mut longest) = (BTreeMap::new(), Span::ZERO);
    for tick in 0..20_000u64 {
        let now = Time::ZERO + Span::from_micros(500) * tick;
        for delivery in arrived(&mut link, now) {
            let (flow, sent): (u64, Time) = delivery.packet;
            *bytes.entry(flow).or_insert(0) += delivery.bytes.0;
            if flow == 0 {
                longest = longest.max(delivery.at - sent);
            }
        }
        for (flow, size) in (1..).zip(greedy) {
            link.offer(now, offer(*size, flow, false), (flow, now));
        }
        if tick % 40 == 20 {
            link.offer(now, offer(100, 0, false), (0, now));
        }
    }
    (bytes, longest)
}

#[test]
fn fq_codel_isolates_a_sparse_flow_and_shares_equally() {
    let fair = Aqm::FqCoDel(FqCoDel::default());
    let greedy = [1_500, 1_500];
    let (bytes, delay) = share(fair, Limit::Packets(200), &greedy);
    // It waits for the packet on the wire, but not for a turn of another flow, as no other queue is
    // new. Its own 100 bytes take 67 us.
    assert!(delay <= Span::from_micros(1_000 + 67), "{delay:?}");
    assert_eq!(bytes[&0], 50_000, "none of the sparse flow is lost");
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    let ratio = bytes[&1] as f64 / bytes[&2] as f64;
    assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    // Shares are equal in bytes, not in packets.
    let (bytes, _) = share(fair, Limit::Bytes(Bytes::kib(256)), &[1_500, 500]);
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    let ratio = bytes[&1] as f64 / bytes[&2] as f64;
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
    // With drop-tail, the sparse flow waits behind the others.
    let (_, delay) = share(Aqm::DropTail, Limit::Packets(200), &greedy);
    assert!(delay > Span::from_millis(100), "{delay:?}");
}

#[test]
fn a_full_fair_queue_drops_from_the_longest() {
    let mut link = Link::new(
        Profile { queue: Limit::Packets(5), ..profile(Aqm::FqCoDel(FqCoDel::default())) },
        Seed(1),
    );
    for number in 0..5 {
        assert_eq!(link.offer(Time::ZERO, offer(1_500, 1, false), number), Outcome::Queued);
    }
    assert_eq!(link.offer(Time::ZERO, offer(100, 2, false), 9), Outcome::Queued);
    assert_eq!(link.counters().dropped_queue, 1);
    let order: Vec<u32> =
        arrived(&mut link, at(100)).iter().map(|delivery| delivery.packet).collect();
    // Packet 0 is on the wire; 1 is dropped for room; flow 2 is new, behind flow 1 whose turn is
    // not over.
    assert_eq!(order, [0, 2, 9, 3, 4]);
}

fn managed() -> impl Strategy<Value = Aqm> {
    let codel = || {
        (1..20u64, 1..100u64, any::<bool>()).prop_map(|(target, interval, ecn)| CoDel {
            target: Span::from_millis(target),
            interval: Span::from_millis(interval),
            ecn,
            ..CoDel::default()
        })
    };
    let bucket = || {
        (1..30u64, 1_500..20_000u64)
            .prop_map(|(rate, burst)| Bucket { rate: Rate::mbit(rate), burst: Bytes(burst) })
    };
    prop_oneof![
        Just(Aqm::DropTail),
        (0.0..10.0f64, 1.0..20.0f64, 0.001..1.0f64, any::<(bool, bool)>()).prop_map(
            |(min, more, weight, (gentle, ecn))| {
                Aqm::Red(Red { weight, gentle, ecn, ..Red::new(min, min + more) })
            }
        ),
        codel().prop_map(Aqm::CoDel),
        Just(Aqm::DualPi2(DualPi2::default())),
        bucket().prop_map(Aqm::Policer),
        bucket().prop_map(Aqm::Shaper),
        (codel(), 1..5_000u64, 1..8u32).prop_map(|(codel, quantum, queues)| Aqm::FqCoDel(
            FqCoDel { codel, quantum: Bytes(quantum), queues }
        )),
    ]
}

proptest! {
    /// The model has only the times of the offers, and the wire times of delivered packets.
    #[test]
    fn a_managed_link_is_a_wire_behind_a_bounded_queue(
        aqm in managed(),
        limit in 1..40u64,
        general: bool,
        seed: u64,
        offers in prop::collection::vec((0..3_000u64, 1..1_501u64, 0..5u64, any::<bool>()), 1..300),
    ) {
        let mut profile = Profile { queue: Limit::Packets(limit), ..profile(aqm) };
        if general {
            profile
                .rate
                .changes
                .push(Change { at: Span::from_secs(1_000_000_000), rate: Rate::ZERO });
        }
        let mut link = Link::new(profile, Seed(seed));
        let (mut now, mut out) = (Time::ZERO, Vec::new());
        let mut came = Vec::new();
        for (number, (gap, bytes, flow, capable)) in offers.into_iter().enumerate() {
            now += Span::from_micros(gap);
            out.extend(arrived(&mut link, now));
            link.offer(now, offer(bytes, flow, capable), number);
            came.push((now, bytes, flow, capable));
            prop_assert!(link.queue(now).packets <= limit.max(1));
            let counters = link.counters();
            let known = counters.delivered.packets + counters.dropped() + link.held();
            prop_assert_eq!(counters.offered.packets, known);
        }
        out.extend(arrived(&mut link, at(1_000_000)));
        prop_assert_eq!(link.held(), 0);
        let mut last_of_flow = BTreeMap::new();
        let mut free = Time::ZERO;
        for delivery in &out {
            let (sent, bytes, flow, capable) = came[delivery.packet];
            prop_assert_eq!(delivery.bytes, Bytes(bytes));
            // Not before its offer and the end of the packet before, plus its own wire time.
            let wire = Span::from_nanos(bytes * 8_000_000_000 / 12_000_000);
            prop_assert!(delivery.at + Span::from_nanos(1) >= sent.max(free) + wire);
            free = delivery.at;
            prop_assert!(!delivery.is_marked || (capable && aqm.marks()));
            if let Some(before) = last_of_flow.insert(flow, delivery.packet) {
                prop_assert!(before < delivery.packet, "a flow stays in order");
            }
        }
        let marked = out.iter().filter(|delivery| delivery.is_marked).count();
        prop_assert_eq!(link.counters().marked, marked as u64);
    }
}

/// Offers full packets to a link that marks at a step: which of them are marked, and the link.
fn stepped(
    threshold: Threshold,
    queue: Limit,
    offers: impl IntoIterator<Item = (u64, bool)>,
) -> (Vec<usize>, Link<usize>) {
    let mut link = Link::new(Profile { queue, ..profile(Aqm::Step(threshold)) }, Seed(1));
    let mut marked = Vec::new();
    let mut take = |link: &mut Link<usize>, now| {
        marked.extend(arrived(link, now).into_iter().filter(|it| it.is_marked).map(|it| it.packet));
    };
    for (number, (millis, is_ecn_capable)) in offers.into_iter().enumerate() {
        take(&mut link, at(millis));
        link.offer(at(millis), offer(1_500, 0, is_ecn_capable), number);
    }
    take(&mut link, at(1_000_000));
    (marked, link)
}

#[test]
fn a_step_marks_arrivals_that_find_more_waiting() {
    // Packet 0 is on the wire, packets 1 to 5 find at most four waiting.
    let burst = || (0..10).map(|_| (0, true));
    let four = Threshold::Backlog(Limit::Packets(4));
    let (marked, link) = stepped(four, Limit::Packets(1_000), burst());
    assert_eq!(marked, [6, 7, 8, 9]);
    assert_eq!((link.counters().marked, link.counters().dropped_aqm), (4, 0));
    let bytes = Threshold::Backlog(Limit::Bytes(Bytes(4 * 1_500 - 1)));
    assert_eq!(stepped(bytes, Limit::Packets(1_000), burst()).0, [5, 6, 7, 8, 9]);
    // Those that cannot be marked are only dropped when the queue is full.
    let mixed = (0..10).map(|number| (0, number % 2 == 0));
    let (marked, link) = stepped(four, Limit::Packets(9), mixed);
    assert_eq!(marked, [6, 8]);
    assert_eq!((link.counters().dropped_queue, link.counters().delivered.packets), (1, 9));
}

#[test]
fn a_step_of_time_marks_what_waited_longer() {
    // A packet takes 1 ms: the n-th of a burst waits n ms.
    let five = Threshold::Sojourn(Span::from_millis(5));
    let (marked, link) = stepped(five, Limit::Packets(1_000), (0..9).map(|n| (0, n != 7)));
    assert_eq!((marked, link.counters().marked), (vec![6, 8], 2));
}

proptest! {
    /// Marks compared with a walk over the packets that wait.
    #[test]
    fn steps_agree_with_a_walk(
        most in 0..12u64,
        is_time: bool,
        gaps in prop::collection::vec((0..4u64, any::<bool>()), 1..80),
    ) {
        let threshold = if is_time {
            Threshold::Sojourn(Span::from_millis(most))
        } else {
            Threshold::Backlog(Limit::Packets(most))
        };
        let times = gaps.iter().scan(0, |now, (gap, is_capable)| {
            *now += gap;
            Some((*now, *is_capable))
        });
        let offers: Vec<(u64, bool)> = times.collect();
        // The time at which each packet's transmission begins.
        let mut begins: Vec<u64> = Vec::new();
        let mut expected = Vec::new();
        for (number, (now, is_capable)) in offers.iter().enumerate() {
            let waiting = begins.iter().filter(|begin| **begin > *now).count() as u64;
            let begin = begins.last().map_or(0, |last| last + 1).max(*now);
            let is_above = if is_time { begin - now > most } else { waiting > most };
            if is_above && *is_capable {
                expected.push(number);
            }
            begins.push(begin);
        }
        prop_assert_eq!(stepped(threshold, Limit::Packets(1_000), offers).0, expected);
    }
}

/// A minute of Poisson arrivals at so many times the rate of 12 Mbit/s: the mean delay of the
/// packets in the second half, and the shares that were dropped and marked.
#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn pie_under_load(pie: Pie, load: f64) -> (f64, f64, f64) {
    let mut link = Link::new(profile(Aqm::Pie(pie)), Seed(4));
    let (mut random, mut now, mut delays) = (Random(7), Time::ZERO, Vec::new());
    let mut before = *link.counters();
    while now < at(60_000) {
        now += random.gap(Span::from_secs_f64(0.001 / load));
        for delivery in arrived(&mut link, now) {
            if now > at(30_000) {
                let sent: Time = delivery.packet;
                delays.push((delivery.at - sent).as_secs_f64());
            }
        }
        if now < at(30_000) {
            before = *link.counters();
        }
        link.offer(now, offer(1_500, 0, pie.ecn), now);
    }
    let counters = *link.counters();
    let offered = (counters.offered.packets - before.offered.packets) as f64;
    let share = |count: u64| count as f64 / offered;
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    (mean, share(counters.dropped_aqm - before.dropped_aqm), share(counters.marked - before.marked))
}

/// RFC 8033: the delay is held at the target, and what does not fit is dropped.
#[test]
fn pie_holds_the_delay_at_its_target() {
    for (target, load) in [(15, 1.05), (15, 1.3), (40, 1.05)] {
        let pie = Pie { target: Span::from_millis(target), ..Pie::default() };
        let (delay, dropped, marked) = pie_under_load(pie, load);
        // With the wire time of the packet itself, a millisecond.
        let wanted = f64::from(u32::try_from(target).expect("small")) / 1e3 + 0.001;
        assert!((delay / wanted - 1.0).abs() < 0.15, "{target} ms, {load}: {delay}");
        let excess = 1.0 - 1.0 / load;
        // So far may the number of random arrivals be from its mean.
        assert!((dropped - excess).abs() < 0.015, "{target} ms, {load}: {dropped} of {excess}");
        assert!(marked == 0.0, "{marked}");
    }
    // Without overload it stays out of the way.
    let (delay, dropped, _) = pie_under_load(Pie::default(), 0.8);
    assert!(dropped < 1e-4 && delay < 0.006, "{dropped}, {delay}");
}

/// Arrivals that do not answer to marks drive the probability beyond a tenth, where packets are
/// dropped; a little overload is marked alone, until the queue is full.
#[test]
fn pie_marks_up_to_a_tenth() {
    let ecn = Pie { ecn: true, ..Pie::default() };
    let (_, dropped, marked) = pie_under_load(ecn, 1.3);
    assert!(dropped > 0.2 && marked < 0.05, "{dropped} {marked}");
}

/// Poisson arrivals that answer to nothing, a fifth of them scalable, at 1.1 times the rate: the
/// classic queue is held at its target, and the coupled probabilities stand as RFC 9332, equation
/// 1, has them.
#[test]
fn a_dual_queue_couples_its_marks_to_the_classic_drops() {
    let mut link = Link::new(profile(Aqm::DualPi2(DualPi2::default())), Seed(1));
    let (mut random, mut now) = (Random(5), Time::ZERO);
    let (mut sent, mut passed, mut marked) = ([0_u32; 2], [0_u32; 2], 0_u32);
    let mut waits: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    while now < at(200_000) {
        now += random.gap(Span::from_micros(909));
        let is_scalable = random.unit() < 0.2;
        for delivery in arrived(&mut link, now) {
            let is_scalable: bool = delivery.packet;
            if now > at(50_000) {
                passed[usize::from(is_scalable)] += 1;
                marked += u32::from(delivery.is_marked);
                waits[usize::from(is_scalable)].push(delivery.waited.as_secs_f64());
            }
        }
        sent[usize::from(is_scalable)] += u32::from(now > at(50_000));
        let offer = Offer { is_scalable, ..offer(1_500, 0, is_scalable) };
        link.offer(now, offer, is_scalable);
    }
    let mean = |waits: &[f64]| {
        waits.iter().sum::<f64>() / f64::from(u32::try_from(waits.len()).unwrap_or(1))
    };
    let [classic, low] = [mean(&waits[0]), mean(&waits[1])];
    assert!((classic / 0.015 - 1.0).abs() < 0.1, "{classic}");
    assert!(low < 0.002, "{low}");
    let dropped = 1.0 - f64::from(passed[0]) / f64::from(sent[0]);
    let marks = f64::from(marked) / f64::from(passed[1]);
    // Bursts and pauses of arrivals that answer to nothing leave it without a packet now and then.
    let carried = f64::from(passed[0] + passed[1]) / 150_000.0;
    assert!((0.97..1.001).contains(&carried), "{carried} of the rate");
    // The ramp adds few marks.
    let coupled = 2.0 * dropped.sqrt();
    assert!((marks / coupled - 1.0).abs() < 0.03, "{marks}, not {coupled}");
}
