//! Controllers that look at marks: DCTCP.

use policy::cc::{Acked, Congestion, Signal};
use units::{Bytes, Span};

use super::{ID, MSS, One, acked, near};

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
