//! The formulas, with numbers calculated from the papers and RFCs.

use policy::cc::{
    Acked, Balia, Congestion, Controller, Coupled, Coupling, Lia, Olia, PathState, Signal, Start,
    by_name,
};
use units::{Bytes, Span, SubflowId, Time};

const ID: SubflowId = SubflowId(1);
const MSS: u64 = 1_000;

fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "found {found}, expected {expected}");
}

fn acked(bytes: u64, rtt: Span, round: u64) -> Acked {
    Acked {
        bytes: Bytes(bytes),
        in_flight: Bytes::ZERO,
        sent_at: Time::ZERO,
        window_at_sending: None,
        rtt: Some(rtt),
        smoothed_rtt: rtt,
        min_rtt: rtt,
        one_way_delay: None,
        ack_delay: None,
        delivery_rate: None,
        round,
        ce_packets: 0,
        ce_bytes: Bytes::ZERO,
        is_app_limited: false,
        in_recovery: false,
        slow_start_divisor: 1,
    }
}

/// A controller with one subflow of packets of 1000 bytes.
struct One {
    controller: Box<dyn Controller>,
    now: Time,
    round: u64,
}

impl One {
    fn new(name: &str, packets: u64) -> One {
        One::after_handshake(name, packets, None)
    }

    fn after_handshake(name: &str, packets: u64, rtt: Option<Span>) -> One {
        let mut controller = by_name(name).expect("known");
        controller.handle_add(
            Time::ZERO,
            ID,
            &Start { mss: Bytes(MSS), initial_window: Bytes(packets * MSS), rtt },
        );
        One { controller, now: Time::ZERO, round: 0 }
    }

    fn ack(&mut self, bytes: u64) -> u64 {
        self.controller.handle_acked(
            self.now,
            ID,
            &acked(bytes, Span::from_millis(100), self.round),
        );
        self.window()
    }

    fn cut(&mut self, in_flight: u64) -> u64 {
        let congestion = Congestion { signal: Signal::Loss, in_flight: Bytes(in_flight) };
        self.controller.handle_congestion(self.now, ID, &congestion);
        self.window()
    }

    fn time_out(&mut self, in_flight: u64) -> u64 {
        self.controller.handle_timeout(self.now, ID, Bytes(in_flight));
        self.window()
    }

    fn undo(&mut self) -> u64 {
        self.controller.handle_undo(self.now, ID);
        self.window()
    }

    /// A round trip of ten packets with a round-trip time of `millis`, sent with a window of `old`
    /// packets.
    fn round(&mut self, millis: u64, old: u64) -> u64 {
        self.round += 1;
        for _ in 0..10 {
            let window_at_sending = Some(Bytes(old * MSS));
            let acked =
                Acked { window_at_sending, ..acked(MSS, Span::from_millis(millis), self.round) };
            self.controller.handle_acked(self.now, ID, &acked);
        }
        self.window()
    }

    fn window(&self) -> u64 {
        self.controller.allowance(ID).window.0
    }

    fn threshold(&self) -> Option<u64> {
        self.controller.threshold(ID).map(|threshold| threshold.0)
    }
}

#[test]
fn reno_grows_and_halves() {
    let mut reno = One::new("reno", 10);
    assert_eq!((reno.window(), reno.threshold()), (10_000, None));
    assert_eq!(reno.ack(MSS), 11_000);
    // RFC 9406: L = 8, and a quarter in conservative slow start.
    assert_eq!(reno.ack(20 * MSS), 19_000);
    reno.controller.handle_acked(
        Time::ZERO,
        ID,
        &Acked { slow_start_divisor: 4, ..acked(MSS, Span::from_millis(100), 0) },
    );
    assert_eq!(reno.window(), 19_250);
    // RFC 5681, equations 4 and 3.
    assert_eq!(reno.cut(10_000), 5_000);
    assert_eq!(reno.ack(MSS), 5_200);
    let idle = Acked { is_app_limited: true, ..acked(MSS, Span::from_millis(100), 0) };
    reno.controller.handle_acked(Time::ZERO, ID, &idle);
    assert_eq!(reno.window(), 5_200);
    assert_eq!(reno.undo(), 19_250);
    assert_eq!(reno.threshold(), None);
}

#[test]
fn reno_times_out() {
    let mut reno = One::new("reno", 10);
    reno.cut(10_000);
    assert_eq!((reno.time_out(5_200), reno.threshold()), (1_000, Some(2_600)));
    // A second timeout for the same packet keeps the threshold.
    assert_eq!((reno.time_out(1_000), reno.threshold()), (1_000, Some(2_600)));
    assert_eq!(reno.ack(MSS), 2_000);
    // 600 bytes to the threshold, then 1000 * 400 / 2600.
    assert_eq!(reno.ack(MSS), 2_753);
    assert_eq!((reno.time_out(1_000), reno.threshold()), (1_000, Some(2_000)), "two MSS at least");
    assert_eq!(reno.time_out(1_000), 1_000);
    assert_eq!(reno.undo(), 2_753, "back to before the first of the two");
    reno.controller.handle_idle_restart(Time::ZERO, ID);
    assert_eq!(reno.window(), 2_753, "no more than the initial window: less may stay");
}

#[test]
fn waimd_is_as_many_flows() {
    let mut waimd = One::new("waimd(weight=4)", 100);
    assert_eq!((waimd.cut(100_000), waimd.threshold()), (87_500, Some(87_500)), "1 - 1/8");
    // A round trip adds almost four packets, because the window grows meanwhile.
    for _ in 0..87 {
        waimd.ack(MSS);
    }
    near(f64::from(u32::try_from(waimd.window()).expect("small")), 91_400.0, 100.0);
    assert_eq!(waimd.undo(), 100_000);
    assert_eq!((waimd.time_out(80_000), waimd.threshold()), (1_000, Some(70_000)));
    // 4^(ln 3 / (ln 3 - ln 2)) = 42.77 packets: three times as much a round trip up to there, then
    // twice, up to the threshold.
    let mut round = || {
        for _ in 0..waimd.window() / MSS {
            waimd.ack(MSS);
        }
        waimd.window()
    };
    assert_eq!([(); 4].map(|()| round()), [3_000, 9_000, 27_000, 62_000], "27 + 2 · 8 + 19");
}

#[test]
fn plain_waimd_starts_as_one_flow_does() {
    let mut waimd = One::new("waimd(weight=4,plain=true)", 1);
    assert_eq!([(); 2].map(|()| waimd.ack(MSS)), [2_000, 3_000], "doubling");
    assert_eq!(
        (waimd.cut(100_000), waimd.threshold()),
        (50_000, Some(50_000)),
        "slow start ends with a half"
    );
    assert_eq!(waimd.cut(50_000), 43_750, "then it is 1 - 1/8");
    assert_eq!(waimd.ack(MSS), 43_841, "four packets a round trip");
    assert_eq!((waimd.time_out(40_000), waimd.threshold()), (1_000, Some(20_000)));
}

#[test]
fn waimd_of_weight_one_is_reno() {
    let (mut waimd, mut reno) = (One::new("waimd(weight=1)", 10), One::new("reno", 10));
    for i in 0..400_u64 {
        let apply = |one: &mut One| match i % 90 {
            40 => one.cut(one.window()),
            70 => one.time_out(one.window()),
            75 => one.undo(),
            n => one.ack(n * 50),
        };
        assert_eq!(apply(&mut waimd), apply(&mut reno), "{i}");
        assert_eq!(waimd.threshold(), reno.threshold());
    }
}

#[test]
fn cubic_follows_its_curve() {
    let mut cubic = One::new("cubic", 100);
    assert_eq!((cubic.cut(100_000), cubic.threshold()), (70_000, Some(70_000)));
    // K = (30 / 0.4)^(1/3) = 4.2172 s. At t = 0 the curve is at 70, Reno's estimate at 70 + (0.9 /
    // 1.7) / 70.
    assert_eq!(cubic.ack(MSS), 70_007);
    // t = 1 s: the target is 0.4 (1.1 - 4.2172)^3 + 100 = 87.884, of which a seventieth is taken.
    cubic.now = Time::ZERO + Span::from_secs(1);
    near(f64::from(u32::try_from(cubic.ack(MSS)).expect("small")), 70_262.9, 2.0);
    // Ten application-limited seconds do not count: t = 1 s again, one step more.
    cubic.now += Span::from_secs(10);
    let idle = Acked { is_app_limited: true, ..acked(MSS, Span::from_millis(100), 0) };
    cubic.controller.handle_acked(cubic.now, ID, &idle);
    near(f64::from(u32::try_from(cubic.ack(MSS)).expect("small")), 70_513.7, 2.0);
    // Far beyond the plateau the target is half as much again, so the window grows by half a
    // packet.
    cubic.now += Span::from_secs(100);
    near(f64::from(u32::try_from(cubic.ack(MSS)).expect("small")), 71_013.7, 2.0);
}

#[test]
fn cubic_makes_room_when_it_shrinks() {
    for (name, plateau) in [("cubic", 0.85 * 70.0), ("cubic(fast_convergence=false)", 70.0)] {
        let mut cubic = One::new(name, 100);
        cubic.cut(100_000);
        // A cut at 70 packets, before the plateau of 100 was reached again.
        assert_eq!(cubic.cut(70_000), 49_000);
        cubic.ack(MSS);
        // Shortly before the curve reaches its plateau, many small steps bring the window close to
        // it.
        let k = f64::cbrt((plateau - 49.0) / 0.4);
        cubic.now = Time::ZERO + Span::from_secs_f64(k - 0.1);
        for _ in 0..1_000 {
            cubic.ack(MSS);
        }
        near(f64::from(u32::try_from(cubic.window()).expect("small")), plateau * 1_000.0, 100.0);
    }
}

#[test]
fn cubic_begins_with_the_middle_of_the_curve_after_a_timeout() {
    let mut cubic = One::new("cubic", 100);
    assert_eq!((cubic.time_out(100_000), cubic.threshold()), (1_000, Some(70_000)));
    for _ in 0..69 {
        cubic.ack(MSS);
    }
    assert_eq!(cubic.window(), 70_000);
    cubic.ack(MSS);
    cubic.now = Time::ZERO + Span::from_secs(3);
    // K = 0: the target is 70 + 0.4 * 3.1^3 = 81.916 (the epoch began at 70.000).
    near(f64::from(u32::try_from(cubic.ack(MSS)).expect("small")), 70_007.6 + 170.1, 2.0);
    cubic.undo();
    assert_eq!(cubic.window(), 100_000);
    assert_eq!(cubic.threshold(), None);
}

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

/// Alone it is CUBIC; beside an equal subflow it has a sixteenth of C, so a quarter of the growth
/// of Reno's estimate.
#[test]
fn coupled_cubic_is_cubic_with_its_share() {
    let run = |name: &str, subflows: u16| {
        let mut controller = by_name(name).expect("known");
        let start = Start { mss: Bytes(MSS), initial_window: Bytes(100 * MSS), rtt: None };
        let ids: Vec<SubflowId> = (0..subflows).map(SubflowId).collect();
        for &id in &ids {
            controller.handle_add(Time::ZERO, id, &start);
            controller.handle_slow_start_end(Time::ZERO, id);
            controller.handle_acked(Time::ZERO, id, &acked(0, Span::from_millis(100), 0));
        }
        // A stage begins, and 4 s later it has come this far.
        for secs in [0, 4] {
            let now = Time::ZERO + Span::from_secs(secs);
            for &id in &ids {
                let acked = acked(100 * MSS, Span::from_millis(100), secs);
                controller.handle_acked(now, id, &acked);
            }
        }
        controller.allowance(ids[0]).window.0
    };
    assert_eq!(run("cubic", 1), run("coupled-cubic", 1));
    let growth = |windows: u64| f64::from(u32::try_from(windows - 100 * MSS).expect("small"));
    // The curve begins at its middle: C t³.
    near(growth(run("cubic", 1)) / growth(run("coupled-cubic", 2)), 16.0, 0.5);
}

fn path(window: f64, rtt: f64, between_losses: f64) -> PathState {
    PathState { mss: 1.0, window, rtt, between_losses }
}

#[test]
fn lia_takes_what_the_best_path_would_give() {
    // Σw = 30, max w/rtt² = 4000, Σ w/rtt = 400: α = 0.75, 0.025 packets a packet on both.
    let paths = [path(20.0, 0.1, 0.0), path(10.0, 0.05, 0.0)];
    near(Lia.growth(&paths, 0), 0.025, 1e-12);
    near(Lia.growth(&paths, 1), 0.025, 1e-12);
    // One path of 1 packet at 10 ms beside 100 at 1 s: α/Σw = (1 / 0.0001) / 200² = 0.25; Reno's
    // 1/100 is less.
    let paths = [path(100.0, 1.0, 0.0), path(1.0, 0.01, 0.0)];
    near(Lia.growth(&paths, 0), 0.01, 1e-12);
    near(Lia.growth(&paths, 1), 0.25, 1e-12);
    near(Lia.remainder(&paths, 1), 0.5, 0.0);
}

#[test]
fn olia_moves_to_the_best_path() {
    // The best path by l/rtt² (1e5 against 4e4) also has the largest window: nothing to move.
    let paths = [path(20.0, 0.1, 1_000.0), path(10.0, 0.05, 100.0)];
    near(Olia.growth(&paths, 0), 2_000.0 / 160_000.0, 1e-12);
    near(Olia.growth(&paths, 1), 4_000.0 / 160_000.0, 1e-12);
    // The best path has the smaller window: ε = 1/2 and -1/2.
    let paths = [path(20.0, 0.1, 100.0), path(10.0, 0.05, 1_000.0)];
    near(Olia.growth(&paths, 0), 0.0125 - 0.5 / 20.0, 1e-12);
    near(Olia.growth(&paths, 1), 0.025 + 0.5 / 10.0, 1e-12);
    // Three paths; the best one is not among the two largest: 1/(3·1) and -1/(3·2). Σ w/rtt = 500.
    let paths = [path(20.0, 0.1, 1.0), path(20.4, 0.1, 1.0), path(9.6, 0.1, 50.0)];
    near(Olia.growth(&paths, 0), 2_000.0 / 250_000.0 - 1.0 / 6.0 / 20.0, 1e-12);
    near(Olia.growth(&paths, 2), 960.0 / 250_000.0 + 1.0 / 3.0 / 9.6, 1e-12);
    // The best path by l/rtt² (1e4 against 7500), though not by l/rtt, has the largest window:
    // nothing to move. Σ w/rtt = 250.
    let unequal = [path(20.0, 0.1, 100.0), path(10.0, 0.2, 300.0)];
    near(Olia.growth(&unequal, 1), 250.0 / 62_500.0, 1e-12);
    // Alone it is Reno.
    near(Olia.growth(&paths[..1], 0), 1.0 / 20.0, 1e-12);
}

#[test]
fn balia_cuts_slow_paths_deeper() {
    // x = 200, 100: Σx = 300, α = 1, 2.
    let paths = [path(20.0, 0.1, 0.0), path(5.0, 0.05, 0.0)];
    near(Balia.growth(&paths, 0), 200.0 / (0.1 * 90_000.0), 1e-12);
    near(Balia.growth(&paths, 1), 100.0 / (0.05 * 90_000.0) * 1.5 * 1.2, 1e-12);
    near(Balia.remainder(&paths, 0), 0.5, 1e-12);
    near(Balia.remainder(&paths, 1), 0.25, 1e-12);
    near(Balia.growth(&paths[..1], 0), 1.0 / 20.0, 1e-12);
}

/// A coupling that grows by OLIA's `l_r`, in bytes, for each acknowledged byte.
#[derive(Clone, Debug)]
struct Probe;

impl Coupling for Probe {
    const NAME: &'static str = "probe";

    fn growth(&self, paths: &[PathState], at: usize) -> f64 {
        paths[at].between_losses
    }
}

#[test]
fn distances_between_losses_are_kept() {
    let controller = Box::new(Coupled::new(Probe));
    let mut one = One { controller, now: Time::ZERO, round: 0 };
    one.controller.handle_add(
        Time::ZERO,
        ID,
        &Start { mss: Bytes(MSS), initial_window: Bytes(10 * MSS), rtt: None },
    );
    one.controller.handle_slow_start_end(Time::ZERO, ID);
    let in_recovery = Acked { in_recovery: true, ..acked(5_000, Span::from_millis(100), 0) };
    let probe = |one: &mut One| {
        let before = one.window();
        one.ack(1) - before
    };
    one.controller.handle_acked(Time::ZERO, ID, &in_recovery);
    assert_eq!(probe(&mut one), 5_001, "since the beginning");
    one.cut(10_000);
    assert_eq!(probe(&mut one), 5_001, "between the last two");
    one.cut(10_000);
    one.cut(10_000);
    assert_eq!(probe(&mut one), 1, "two at once are one: 1 byte since, 1 byte between");
    one.controller.handle_acked(Time::ZERO, ID, &in_recovery);
    assert_eq!(probe(&mut one), 5_002);
    one.cut(10_000);
    one.undo();
    assert_eq!(probe(&mut one), 5_003, "the undone one does not count");
}

/// RFC 6817, section 2.4.2: `cwnd += GAIN * off_target * bytes * MSS / cwnd`.
#[test]
fn ledbat_follows_the_distance_to_its_target() {
    let mut ledbat = One::new("ledbat", 10);
    assert_eq!(ledbat.window(), 2_000, "INIT_CWND");
    let mut ack = |now: u64, delay: u64, in_flight: u64| {
        let now = Time::ZERO + Span::from_millis(now);
        let acked = Acked {
            in_flight: Bytes(in_flight),
            one_way_delay: Some(Span::from_millis(delay)),
            // A queue shows in the round trip as well.
            rtt: Some(Span::from_millis(150 + delay)),
            ..acked(MSS, Span::from_millis(200), 0)
        };
        ledbat.controller.handle_acked(now, ID, &acked);
        ledbat.window()
    };
    // No queue: half a packet, a packet being half of the window.
    assert_eq!(ack(0, 50, 9_000), 2_500);
    // The least of the last four samples counts, here still without a queue.
    for expected in [2_900, 3_244, 3_553] {
        assert_eq!(ack(1, 100, 9_000), expected);
    }
    // Half of the target: half of the growth.
    assert_eq!(ack(2, 100, 9_000), 3_693);
    for _ in 0..4 {
        ack(3, 250, 9_000);
    }
    // Twice the target: back by as much as without a queue.
    let before = Bytes(ack(4, 250, 9_000)).as_f64();
    near(Bytes(ack(5, 250, 9_000)).as_f64(), before - 1e6 / before, 1.0);
    // No more than a packet beyond what was in flight.
    assert_eq!(ack(6, 50, 0), 2_000);
    assert_eq!(ledbat.cut(9_000), 2_000, "two packets at least");
}

/// draft-irtf-iccrg-ledbat-plus-plus, section 4: with 100 ms of base delay GAIN is 1/2; the initial
/// slow start ends at three quarters of the target; two round trips later the window is two packets
/// for two round trips; the next slowdown comes nine durations later.
#[test]
fn ledbat_plus_plus_slows_down_and_comes_back() {
    let mut flow = One::new("ledbat++", 10);
    let mut now = 0;
    let mut round = |millis: u64| {
        now += 100;
        flow.now = Time::ZERO + Span::from_millis(now);
        flow.round(millis, 0)
    };
    assert_eq!(round(100), 15_000, "ten packets, half of one for each");
    assert_eq!(round(100), 20_000);
    // 46 ms of queue, and the least of four samples: two more packets of growth, then the end.
    let ended = round(146);
    assert_eq!(ended, 21_500 + 7 * 1_000 * 500 / 21_500);
    let grown = round(146);
    assert!(grown > ended, "below the target it grows");
    assert_eq!(round(100), 2_000, "two round trips after the slow start");
    assert_eq!(round(100), 2_000);
    let windows: Vec<u64> = (0..5).map(|_| round(100)).collect();
    assert_eq!(windows[..3], [7_000, 12_000, 17_000]);
    assert!(windows[4] >= grown, "{windows:?}");
    // From the fall to two packets until the window was back it took 600 ms: 5.4 s without.
    let next = (1..100).find(|_| round(100) == 2_000).expect("there is another slowdown");
    assert_eq!(next, 54);
}

/// The decrease beyond the target: `max(GAIN - W (delay / TARGET - 1), -W / 2)` in a round trip.
#[test]
fn ledbat_plus_plus_decreases_in_proportion() {
    for (queue, share) in [(90, 0.5), (66, 0.9), (300, 0.5)] {
        let mut flow = One::new("ledbat++(slowdowns=false)", 40);
        flow.controller.handle_slow_start_end(Time::ZERO, ID);
        flow.round(100, 0);
        let before = Bytes(flow.window()).as_f64();
        // Four rounds' worth of ten packets are a window of forty.
        let steps = 4;
        for _ in 0..steps {
            flow.round(100 + queue, 0);
        }
        // The first three samples are those of the round before, and growth.
        near(Bytes(flow.window()).as_f64() / before, share + 0.0125, 0.12);
    }
}

/// Half at the first indication, no growth in the three round trips after it, one packet at a
/// further one in them.
#[test]
fn lp_halves_infers_and_falls_to_one_packet() {
    let mut lp = One::new("lp", 40);
    lp.controller.handle_slow_start_end(Time::ZERO, ID);
    let (mut now, mut round) = (0, 0);
    let mut pass = |delay: u64| {
        now += 100;
        round += 1;
        for _ in 0..20 {
            let acked = Acked {
                sent_at: Time::ZERO + Span::from_millis(now - 100),
                one_way_delay: Some(Span::from_millis(delay)),
                rtt: Some(Span::from_millis(50 + delay)),
                ..acked(MSS, Span::from_millis(100), round)
            };
            lp.controller.handle_acked(Time::ZERO + Span::from_millis(now), ID, &acked);
        }
        lp.window()
    };
    near(Bytes(pass(50)).as_f64(), 40_497.0, 2.0);
    // The first packet with a delay gives the range; 15 % of it are 7.5 ms.
    let halved = pass(100);
    assert!((20_000..20_400).contains(&halved), "{halved}");
    // Packets that were sent up to a round trip after the indication give no other.
    assert_eq!(pass(100), halved);
    assert_eq!(pass(100), 1_000, "a further one in the phase");
    for _ in 0..2 {
        assert_eq!(pass(50), 1_000, "no growth in the phase");
    }
    assert!(pass(50) > 1_000);
}

/// More than half of the window's packets beyond a tenth of the range.
#[test]
fn nice_halves_when_many_packets_met_a_queue() {
    let halves = |late: u64| {
        let mut nice = One::new("nice", 10);
        nice.controller.handle_slow_start_end(Time::ZERO, ID);
        let mut ack = |round: u64, millis: u64| {
            let acked = acked(MSS, Span::from_millis(millis), round);
            nice.controller.handle_acked(Time::ZERO, ID, &acked);
            nice.window()
        };
        ack(1, 200);
        ack(2, 100);
        for packet in 0..10 {
            ack(2, if packet < late { 111 } else { 100 });
        }
        let before = ack(2, 100);
        ack(3, 100) < before
    };
    assert_eq!([5, 6, 7].map(halves), [false, true, true]);
}

/// Below a packet the window is a pace: at a 48th, one packet in 48 round trips.
#[test]
fn nice_paces_windows_below_a_packet() {
    let mut nice = One::new("nice", 4);
    nice.controller.handle_slow_start_end(Time::ZERO, ID);
    let mut least = u64::MAX;
    for round in 0..40 {
        let millis = if round == 0 { 100 } else { 200 };
        let acked = Acked {
            sent_at: Time::ZERO + Span::from_secs(round),
            ..acked(MSS, Span::from_millis(millis), round)
        };
        for _ in 0..5 {
            nice.controller.handle_acked(Time::ZERO + Span::from_secs(round), ID, &acked);
        }
        let allowance = nice.controller.allowance(ID);
        let is_below = allowance.window.0 < MSS;
        assert_eq!(allowance.pacing.is_some(), is_below, "{allowance:?}");
        least = least.min(allowance.window.0);
    }
    assert_eq!(least, MSS / 48);
    // One packet in 48 round trips, which are nearly 200 ms by now.
    let pacing = nice.controller.allowance(ID).pacing.expect("below a packet");
    near(pacing.as_f64() / 8.0, 20.0 / 0.2, 10.0);
    // Without a queue it grows as Vegas does.
    nice.controller.handle_acked(Time::ZERO, ID, &acked(MSS, Span::from_millis(100), 40));
    nice.controller.handle_acked(Time::ZERO, ID, &acked(MSS, Span::from_millis(100), 41));
    assert!(nice.window() > MSS);
}

/// RFC 8257, section 3.3: the average part of marked bytes, and half of it less at a mark.
#[test]
fn dctcp_falls_by_half_of_what_was_marked() {
    let mark = |one: &mut One| {
        let congestion = Congestion { signal: Signal::Mark, in_flight: Bytes(1) };
        one.controller.handle_congestion(one.now, ID, &congestion);
        one.window()
    };
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
