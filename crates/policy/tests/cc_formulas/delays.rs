//! Controllers that look at delays: Vegas, FAST, MPFAST, wVegas.

use policy::cc::{Acked, Start, by_name};
use units::{Bytes, Span, SubflowId, Time};

use super::{ID, MSS, One, acked, near};

#[test]
fn vegas_counts_its_backlog() {
    let mut vegas = One::new("vegas", 20);
    vegas.controller.handle_slow_start_end(Time::ZERO, ID);
    vegas.round(100, 20);
    // A round is evaluated when the next one begins. 20 * 10 / 110 = 1.8 packets: one more.
    vegas.round(110, 20);
    assert_eq!(vegas.round(125, 20), 22_000, "and one for the round without a queue");
    // 22 * 25 / 125 = 4.4: one less.
    assert_eq!(vegas.round(114, 20), 21_000);
    // 21 * 14 / 114 = 2.6: within the bounds.
    assert_eq!(vegas.round(114, 20), 21_000);
    assert_eq!(vegas.cut(21_000), 10_500);
    assert_eq!(vegas.time_out(10_500), 2_000, "two packets at least");
}

#[test]
fn vegas_doubles_every_other_round_until_there_is_a_queue() {
    let mut vegas = One::new("vegas", 20);
    let windows: Vec<u64> = [100, 100, 100, 100, 160].map(|millis| vegas.round(millis, 0)).into();
    assert_eq!(windows[..4], [30_000, 30_000, 40_000, 40_000]);
    // Two packets of growth, then the third sample: 42 * 60 / 160 = 15.75 packets in the queue;
    // 42 * 100 / 160 + 1 = 27.25 remain.
    assert_eq!(windows[4], 27_250);
}

#[test]
fn fast_goes_half_way() {
    let mut fast = One::new("fast(alpha=20,every=1)", 100);
    // No queue: one packet for each acknowledged one.
    assert_eq!(fast.round(100, 100), 110_000);
    // Until the average is 200 ms to three digits, with increases and decreases on the way.
    for _ in 0..100 {
        fast.round(200, 100);
    }
    // Fixed point of w = w/2 + (100 * 100/200 + 20)/2.
    near(f64::from(u32::try_from(fast.window()).expect("small")), 70_000.0, 300.0);
    let before = fast.window();
    // 0.5 w + 0.5 (20 * 0.5 + 20), at once.
    let expected = before.midpoint(30_000);
    near(
        f64::from(u32::try_from(fast.round(200, 20)).expect("small")),
        f64::from(u32::try_from(expected).expect("small")),
        300.0,
    );
    let before = fast.window();
    // The increase is 25 packets over the round's 50; ten are acknowledged, and the first of them
    // only starts the step.
    let found = fast.round(200, 160) - before;
    near(f64::from(u32::try_from(found).expect("small")), 25_000.0 * 9.0 / 50.0, 300.0);
    assert_eq!(fast.cut(0), fast.threshold().expect("cut"));
    assert_eq!(fast.time_out(0), 2_000);
}

#[test]
fn fast_counts_the_handshake_as_base() {
    let mut fast =
        One::after_handshake("fast(alpha=20,every=1)", 100, Some(Span::from_millis(100)));
    for _ in 0..100 {
        fast.round(200, 100);
    }
    // As above, although none of its own packets had a round-trip time of 100 ms.
    near(f64::from(u32::try_from(fast.window()).expect("small")), 70_000.0, 300.0);
}

/// Rounds of ten packets with a window of 100, after a handshake of 100 ms; the last window is the
/// fixed point of w = w/2 + (100 * 100/200 + backlog)/2, and half a packet, because senders round
/// down.
fn settled(controller: &str) -> f64 {
    let mut one = One::after_handshake(controller, 100, Some(Span::from_millis(100)));
    for _ in 0..100 {
        one.round(200, 100);
    }
    f64::from(u32::try_from(one.window()).expect("small"))
}

#[test]
fn mpfast_goes_half_way_to_its_backlog() {
    near(settled("mpfast(alpha=20)"), 70_500.0, 300.0);
    near(settled("mpfast(alpha=40)"), 90_500.0, 300.0);
    // Without a delivery rate the class is by the window: 70 packets of 1000 bytes in 200 ms are
    // 2.8 Mbit/s.
    near(settled("mpfast(alpha=class)"), 58_500.0, 300.0);
}

/// θ is ½ for each of two equal subflows, and no `α_r` is below a packet.
#[test]
fn mpfast_divides_alpha_by_rates() {
    for (alpha, expected) in [(20, 60_500.0), (1, 51_500.0)] {
        let mut mpfast = by_name(&format!("mpfast(alpha={alpha})")).expect("known");
        let rtt = Some(Span::from_millis(100));
        let start = Start { mss: Bytes(MSS), initial_window: Bytes(100 * MSS), rtt };
        let ids = [SubflowId(1), SubflowId(2)];
        for id in ids {
            mpfast.handle_add(Time::ZERO, id, &start);
        }
        for round in 0..1_000 {
            for id in ids {
                let window_at_sending = Some(Bytes(100 * MSS));
                let acked =
                    Acked { window_at_sending, ..acked(MSS, Span::from_millis(200), round / 10) };
                mpfast.handle_acked(Time::ZERO, id, &acked);
            }
        }
        for id in ids {
            let window = mpfast.allowance(id).window.0;
            near(f64::from(u32::try_from(window).expect("small")), expected, 300.0);
        }
    }
}

/// The pacing rate leaves room for `α_r` in a round trip; in slow start it doubles the window.
#[test]
fn mpfast_paces() {
    let mut mpfast = One::after_handshake("mpfast(alpha=20)", 100, Some(Span::from_millis(100)));
    mpfast.round(100, 100);
    let pacing = mpfast.controller.allowance(ID).pacing.expect("paced");
    near(pacing.as_f64(), 2.0 * 110_000.0 * 8.0 / 0.1, 1_000.0);
    for _ in 0..100 {
        mpfast.round(200, 100);
    }
    let pacing = mpfast.controller.allowance(ID).pacing.expect("paced");
    near(pacing.as_f64() / 8.0 * 0.2, 90_000.0, 500.0);
}

#[test]
fn wvegas_moves_by_a_packet_and_drains() {
    let mut wvegas = One::new("wvegas", 100);
    wvegas.round(100, 0);
    // Ten packets of slow start, and a round without a queue.
    assert_eq!(wvegas.round(100, 0), 120_000);
    // 130 * 100/125 + 1 when the round with a mean of 125 ms is evaluated; above the threshold
    // there is no slow start.
    wvegas.round(125, 0);
    assert_eq!(wvegas.round(100, 0), 105_000);
    // No queue: one packet more.
    assert_eq!(wvegas.round(110, 0), 106_000);
    // 106 * 10/110 = 9.6 packets are less than ten, but more than two, with which a path begins.
    // The only path has the weight 1, so now it is to have ten.
    assert_eq!(wvegas.round(110, 0), 107_000);
    // 107 * 10/110 = 9.7: one more; then a mean of 125 ms, a queue over twice as long as 10 ms:
    // 21.6 packets are too many, and half of the pipe remains.
    assert_eq!(wvegas.round(125, 0), 108_000);
    near(f64::from(u32::try_from(wvegas.round(100, 0)).expect("small")), 42_800.0, 1.0);
}
