//! When slow start ends by the delays of packets (RFC 9406).

use ptcp::Config;
use recovery::SendPhase;
use testnet::Link;
use units::{Bytes, Rate, SubflowId};

use super::pair::{Fate, Pair, line, ms};

const PATH: SubflowId = SubflowId(0);
/// Of 20 Mbit/s and 40 ms, in bytes.
const PRODUCT: u64 = 100_000;

/// A bulk transfer of Reno over a line whose queue holds thirty bandwidth-delay products.
fn bulk(hystart: bool) -> Pair {
    let config = Config { hystart, ..Config::default() };
    let link = Link { queue: Bytes(30 * PRODUCT), ..line(20, 20) };
    let mut pair = Pair::new(&config, ("reno", "lowest-rtt"), &[link]);
    pair.bulk(Bytes(100_000_000));
    pair
}

/// What follows slow start, and the window then, in products.
fn end_of_slow_start(pair: &mut Pair) -> (SendPhase, f64) {
    let mut was_seen = false;
    for _ in 0..5_000 {
        pair.run_for(ms(1));
        let now = pair.now();
        let Some(sending) = pair.client().path_sending(now, PATH) else { continue };
        was_seen |= sending.phase == SendPhase::SlowStart;
        if was_seen && sending.phase != SendPhase::SlowStart {
            let window = pair.client().path_metrics(PATH).expect("it is open").window;
            return (sending.phase, window.as_f64() / Bytes(PRODUCT).as_f64());
        }
    }
    panic!("no slow start, or no end of it");
}

#[test]
fn a_queue_ends_slow_start() {
    let [(next, window), (after_loss, _)] =
        [true, false].map(|hystart| end_of_slow_start(&mut bulk(hystart)));
    // Once it stands for a round, the window grows by a quarter a round trip for five more.
    assert_eq!(next, SendPhase::Avoidance);
    assert!((8.0..20.0).contains(&window), "{window}");
    assert_eq!(after_loss, SendPhase::Recovery, "it overruns the queue");
}

/// A timeout leaves half of what was in flight as the threshold. Of a line that has a quarter of
/// its rate since, the queue ends slow start earlier.
#[test]
fn a_queue_ends_the_slow_start_after_a_timeout() {
    let mut pair = bulk(true);
    end_of_slow_start(&mut pair);
    pair.run_for(ms(30_000));
    let in_flight = pair.client().path_metrics(PATH).expect("it is open").in_flight;
    let threshold = in_flight.as_f64() / Bytes(PRODUCT).as_f64() / 2.0;
    pair.fates(|_| Fate::Lost);
    pair.run_for(ms(5_000));
    pair.set_rate(0, Rate::mbit(5));
    pair.fates(|_| Fate::Arrives);
    let (next, end) = end_of_slow_start(&mut pair);
    assert_eq!(next, SendPhase::Avoidance);
    assert!(end < 0.8 * threshold, "{end} of {threshold}");
}
