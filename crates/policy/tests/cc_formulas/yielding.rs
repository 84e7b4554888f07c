//! Controllers that yield: LEDBAT, LEDBAT++, LP, Nice.

use policy::cc::Acked;
use units::{Bytes, Span, Time};

use super::{ID, MSS, One, acked, near};

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

/// What an application does not use says nothing of more room; a queue counts all the same.
#[test]
fn ledbat_plus_plus_falls_but_does_not_grow_while_the_application_limits_it() {
    let mut flow = One::new("ledbat++(slowdowns=false)", 40);
    flow.controller.handle_slow_start_end(Time::ZERO, ID);
    flow.round(100, 0);
    let before = flow.window();
    let mut idle = |delay: u64| {
        let acked = Acked { is_app_limited: true, ..acked(MSS, Span::from_millis(delay), 2) };
        for _ in 0..40 {
            flow.controller.handle_acked(Time::ZERO, ID, &acked);
        }
        flow.window()
    };
    assert_eq!(idle(100), before);
    assert!(idle(400) < before * 3 / 4);
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

/// A host that wakes late is no queue: over sockets, 300 Mbit/s and 160 ms, Nice fell to its floor.
#[test]
fn nice_takes_no_late_host_for_a_queue() {
    let halves = |late: u64| {
        let mut nice = One::new("nice", 10);
        nice.controller.handle_slow_start_end(Time::ZERO, ID);
        let mut ack = |round: u64, micros: u64| {
            let acked = acked(MSS, Span::from_micros(micros), round);
            nice.controller.handle_acked(Time::ZERO, ID, &acked);
            nice.window()
        };
        ack(1, 101_500);
        ack(2, 100_000);
        for _ in 0..10 {
            ack(2, 100_000 + late);
        }
        let before = ack(2, 100_000);
        ack(3, 100_000) < before
    };
    // A tenth of the range is 150 us.
    assert_eq!([160, 990, 1_010].map(halves), [false, false, true]);
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
