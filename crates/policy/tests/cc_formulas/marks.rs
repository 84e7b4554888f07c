//! Controllers that look at marks: DCTCP and Prague.

use policy::cc::{Acked, Congestion, Signal};
use units::{Bytes, Rate, Span};

use super::{ID, MSS, One, acked, near};

fn mark(one: &mut One) -> u64 {
    let congestion = Congestion { signal: Signal::Mark, in_flight: Bytes(1) };
    one.controller.handle_congestion(one.now, ID, &congestion);
    one.window()
}

/// RFC 8257, section 3.3: the average part of marked bytes, and half of it less at a mark.
#[test]
fn dctcp_falls_by_half_of_what_was_marked() {
    let mut dctcp = One::new("dctcp", 100);
    assert_eq!(mark(&mut dctcp), 50_000, "the first mark halves");
    // Round trips of which a tenth is marked: alpha goes from 1 towards 0.1.
    let mut alpha = 1.0;
    let round = |dctcp: &mut One, marked: u64| {
        for number in 0..10 {
            dctcp.round += u64::from(number == 9);
            let ce_bytes = Bytes(if number < marked { MSS } else { 0 });
            let acked = Acked {
                ce_bytes,
                is_app_limited: true,
                ..acked(MSS, Span::from_millis(100), dctcp.round)
            };
            dctcp.controller.handle_acked(dctcp.now, ID, &acked);
        }
    };
    // The first acknowledgement begins the count of round trips.
    dctcp.ack(0);
    for _ in 0..40 {
        round(&mut dctcp, 1);
        alpha += (0.1 - alpha) / 16.0;
    }
    let before = f64::from(u32::try_from(dctcp.window()).expect("small"));
    let after = f64::from(u32::try_from(mark(&mut dctcp)).expect("small"));
    near(after, before * (1.0 - alpha / 2.0), 1.0);
    // Without marks it forgets them; a loss is a loss.
    for _ in 0..100 {
        round(&mut dctcp, 0);
    }
    let before = dctcp.window();
    assert!(before - mark(&mut dctcp) < before / 1_000);
    assert_eq!(dctcp.cut(40_000), 20_000);
    assert_eq!(dctcp.time_out(20_000), 1_000);
}

/// Of one packet more a round trip and no mark it is Reno.
#[test]
fn dctcp_grows_as_reno_does() {
    let (mut dctcp, mut reno) = (One::new("dctcp(g=0.5)", 10), One::new("reno", 10));
    for step in 0..200 {
        let apply = |one: &mut One| match step % 50 {
            20 => one.cut(15_000),
            40 => one.time_out(9_000),
            _ => one.ack(MSS),
        };
        assert_eq!(apply(&mut dctcp), apply(&mut reno), "{step}");
    }
}

/// An acknowledgement of a packet after `millis`, of which the receiver counted `marked` bytes.
fn ack(one: &mut One, millis: u64, marked: u64) -> u64 {
    let acked = Acked {
        ce_packets: u64::from(marked > 0),
        ce_bytes: Bytes(marked),
        ..acked(MSS, Span::from_millis(millis), one.round)
    };
    one.controller.handle_acked(one.now, ID, &acked);
    one.window()
}

/// Round trips of ten packets and `millis`, of which the first `marked` packets are marked.
fn rounds(one: &mut One, count: u32, millis: u64, marked: u64) {
    for _ in 0..count {
        for number in 0..10 {
            one.round += u64::from(number == 9);
            ack(one, millis, if number < marked { MSS } else { 0 });
        }
        one.now += Span::from_millis(millis);
    }
}

fn as_f64(whole: u64) -> f64 {
    f64::from(u32::try_from(whole).expect("small"))
}

/// Section 2.4.1: the average begins at the first mark, however late that comes; section 2.4.2: a
/// mark takes half of it.
#[test]
fn prague_falls_by_half_of_what_was_marked() {
    let mut one = One::new("prague", 100);
    one.cut(200_000);
    ack(&mut one, 100, 0);
    rounds(&mut one, 100, 100, 0);
    let before = one.window();
    near(as_f64(mark(&mut one)), as_f64(before) / 2.0, 1.0);
    // A tenth is marked from then on.
    let mut alpha = 1.0;
    for _ in 0..40 {
        rounds(&mut one, 1, 100, 1);
        alpha += (0.1 - alpha) / 16.0;
    }
    let before = one.window();
    let found = 1.0 - as_f64(mark(&mut one)) / as_f64(before);
    near(found, alpha / 2.0, 0.003);
    assert_eq!(one.cut(40_000), 20_000, "losses are Reno's");
    assert_eq!(one.time_out(20_000), 1_000);
}

/// Section 2.4.3: what was marked adds nothing, and the round trip after a mark grows as any other.
#[test]
fn prague_grows_by_what_was_not_marked() {
    let mut one = One::new("prague", 100);
    let slow = one.window();
    assert_eq!(ack(&mut one, 100, 0), slow + 1_000);
    assert_eq!(ack(&mut one, 100, MSS), slow + 1_000, "in slow start too");
    mark(&mut one);
    let window = one.window();
    assert_eq!(ack(&mut one, 100, MSS), window);
    assert_eq!(ack(&mut one, 100, 2 * MSS), window, "some were acknowledged before");
    let step = as_f64(ack(&mut one, 100, 0) - window);
    near(step, 1e6 / as_f64(window), 1.0);
    let recovering = |one: &mut One| {
        let acked = Acked { in_recovery: true, ..acked(MSS, Span::from_millis(100), one.round) };
        one.controller.handle_acked(one.now, ID, &acked);
        one.window()
    };
    let before = mark(&mut one);
    assert!(recovering(&mut one) > before, "nothing is repaired after a mark");
    let before = one.cut(40_000);
    assert_eq!(recovering(&mut one), before);
}

/// Section 2.4.4: after 500 round trips one of 10 ms adds (10 / 25)² of a packet; averages and
/// reductions are 25 ms apart.
#[test]
fn prague_counts_short_round_trips_as_longer_ones() {
    // Of a window of ten packets, an acknowledged one adds a tenth of what a round trip does.
    let growth = |one: &mut One| {
        let before = as_f64(one.cut(20_000));
        (as_f64(ack(one, 10, 0)) - before) / 100.0
    };
    let mut one = One::new("prague", 1_000);
    ack(&mut one, 10, 0);
    mark(&mut one);
    // The first of them began in slow start.
    rounds(&mut one, 498, 10, 5);
    near(growth(&mut one), 1.0, 0.011);
    rounds(&mut one, 4, 10, 5);
    near(growth(&mut one), 0.16, 0.011);
    one.now += Span::from_secs(1);
    let before = one.window();
    let first = mark(&mut one);
    near(as_f64(first) / as_f64(before), 0.75, 0.02);
    one.now += Span::from_millis(24);
    assert_eq!(mark(&mut one), first, "a mark within the virtual round trip");
    // The sender gives no other sign for a round trip, but acknowledgements tell of further marks.
    one.now += Span::from_millis(1);
    let second = ack(&mut one, 10, MSS);
    near(as_f64(second) / as_f64(first), 0.75, 0.02);
    assert_eq!(ack(&mut one, 10, MSS), second, "once in a virtual round trip");
    one.now += Span::from_millis(25);
    assert!(mark(&mut one) < second);
    let alpha = |one: &mut One| {
        one.now += Span::from_secs(1);
        let before = as_f64(one.window());
        2.0 * (1.0 - as_f64(mark(one)) / before)
    };
    // Of ten round trips four average: each third one from the first on.
    one.now += Span::from_secs(1);
    rounds(&mut one, 10, 10, 0);
    near(alpha(&mut one), 0.5 * f64::powi(15.0 / 16.0, 4), 0.03);
    // Others are what they are.
    let mut long = One::new("prague", 1_000);
    ack(&mut long, 100, 0);
    mark(&mut long);
    rounds(&mut long, 700, 100, 0);
    let before = as_f64(long.cut(20_000));
    near((as_f64(ack(&mut long, 100, 0)) - before) / 100.0, 1.0, 0.011);
}

/// Section 2.5: a window a round trip, two in slow start, with bursts of a quarter of a
/// millisecond.
#[test]
fn prague_is_paced() {
    let mut one = One::new("prague", 100);
    let pace = |one: &One| {
        let allowance = one.controller.allowance(ID);
        (allowance.pacing, allowance.burst)
    };
    assert_eq!(pace(&one).0, None, "no round trip is known");
    let mut known = One::after_handshake("prague", 100, Some(Span::from_millis(100)));
    assert_eq!(pace(&known).0, Some(Rate::mbit(16)));
    assert_eq!(ack(&mut known, 50, MSS), 100_000);
    assert_eq!(pace(&known), (Some(Rate::mbit(32)), Bytes(1_000)));
    // A hundredth of the acknowledged packets is marked: the threshold is where the window is.
    mark(&mut known);
    assert_eq!(pace(&known), (Some(Rate::mbit(8)), Bytes(250)));
    // Slow start after a timeout goes up to half of the threshold at twice the rate.
    ack(&mut one, 100, MSS);
    one.time_out(80_000);
    assert_eq!(one.threshold(), Some(40_000));
    let double = |one: &One| {
        let rate = pace(one).0.expect("a round trip is known").as_bits();
        rate / (one.window() * 80)
    };
    assert_eq!(double(&one), 2);
    while one.window() < 20_000 {
        ack(&mut one, 100, 0);
    }
    assert_eq!(double(&one), 1);
}
