//! Hosts that wake late: for what arrives, and for their timers.

use ptcp::Config;
use units::{Bytes, Span};

use crate::pair::{Pair, line, ms};

/// How long 100 MB take by a controller over a path of 200 Mbit/s and a round trip of 100 ms, from
/// a sender that always wakes so much late.
fn time_by(controller: &str, late: u64) -> Span {
    let mut pair = Pair::new(&Config::default(), (controller, "lowest-rtt"), &[line(50, 200)]);
    pair.wake_late(ms(late));
    let bytes = Bytes(100_000_000);
    let stream = pair.bulk(bytes);
    pair.time_of(stream, bytes).expect("it arrives")
}

/// Found on a line of 200 Mbit/s: a sender was late by more than a burst a quarter of the time, and
/// what would have left meanwhile never did. One that is always 3 ms late measured less and less
/// bandwidth, and took over a minute.
#[test]
fn waking_late_costs_no_rate() {
    for controller in ["coupled-bbr", "cubic"] {
        let exact = time_by(controller, 0).as_secs_f64();
        for late in [1, 2, 3, 5, 9] {
            let taken = time_by(controller, late).as_secs_f64();
            assert!(
                taken < 1.03 * exact,
                "{controller}: {taken} s at {late} ms, {exact} s at none"
            );
        }
    }
}
