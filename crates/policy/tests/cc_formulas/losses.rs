//! Controllers that look at losses: Reno, many of it, CUBIC.

use policy::cc::Acked;
use units::{Span, Time};

use super::{ID, MSS, One, acked, near};

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
