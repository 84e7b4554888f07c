//! Classes and rates of paths.

use ptcp::{Class, Config};
use units::{Bytes, Rate, Span, SubflowId};

use crate::pair::{Fate, Pair, line, ms};

/// Two paths under the default controller of striped connections, of which the first carries 20
/// Mbit/s.
fn pair(second: u64) -> Pair {
    let names = ("coupled-bbr", "lowest-rtt");
    Pair::new(&Config::default(), names, &[line(10, 20), line(15, second)])
}

/// The rates at which both paths sent for so many seconds.
fn rates(pair: &mut Pair, seconds: u64, mut then: impl FnMut(&mut Pair)) -> [Rate; 2] {
    let sent = |pair: &mut Pair| {
        [0, 1].map(|path| pair.client().path_bytes(SubflowId(path)).expect("it is open").sent)
    };
    let before = sent(pair);
    for _ in 0..seconds * 100 {
        then(pair);
        pair.run_for(ms(10));
    }
    let after = sent(pair);
    [0, 1].map(|at| (after[at] - before[at]) / Span::from_secs(seconds))
}

/// What a usual path was about to send went over the overflow path, so that the usual one ran dry
/// between two writes.
#[test]
fn overflow_paths_carry_what_usual_ones_cannot() {
    let mut pair = pair(10);
    pair.run_for(ms(500));
    pair.client().set_path_class(SubflowId(1), Class::Overflow);
    let stream = pair.client().open_stream();
    // 24 Mbit/s.
    let mut write = |pair: &mut Pair| pair.client().write(stream, Bytes(30_000));
    rates(&mut pair, 5, &mut write);
    let [usual, overflow] = rates(&mut pair, 10, &mut write);
    assert!(usual > Rate::kbit(18_800) && overflow > Rate::mbit(3), "{usual} and {overflow}");
    // 12 Mbit/s, of which the usual path carries all.
    let mut write = |pair: &mut Pair| pair.client().write(stream, Bytes(15_000));
    rates(&mut pair, 5, &mut write);
    let [usual, overflow] = rates(&mut pair, 10, &mut write);
    assert!(usual > Rate::kbit(11_800) && overflow < Rate::kbit(100), "{usual} and {overflow}");
}

/// Headers are not counted, and whatever the controller looks for meanwhile is made up for.
#[test]
fn a_limited_path_carries_its_rate() {
    let mut pair = pair(10);
    pair.run_for(ms(500));
    pair.client().set_path_rate(SubflowId(0), Some(Rate::mbit(8)));
    pair.fates(|_| Fate::Arrives);
    pair.bulk(Bytes::mib(100));
    pair.run_for(ms(5_000));
    let from = pair.now();
    pair.run_for(ms(20_000));
    let data = pair.data_since(from).filter(|(sent, _)| sent.path == SubflowId(0));
    let rate = data.map(|(_, data)| f64::from(data.len)).sum::<f64>() * 8e-6 / 20.0;
    assert!((7.9..8.02).contains(&rate), "{rate:.2} Mbit/s");
}
