//! One-way delays as the wire has them: the clocks of both sides differ and drift apart, and some
//! packets carry no time. A controller alone on its paths does not mistake that for a queue, nor
//! for the lack of one.

mod common;

use common::{Clocks, Drops, Link, Model, rates, secs};
use policy::cc::NAMES;
use units::{Rate, Span};

/// Two paths of 20 Mbit/s and 40 ms, each with a queue of one bandwidth-delay product: the rate
/// from 20 s to 300 s, and the mean queues in packets.
fn alone(controller: &str, clocks: Clocks) -> (f64, f64) {
    let mut model = Model::default();
    model.clocks = clocks;
    let links = [(); 2].map(|()| model.link(Link::new(Rate::mbit(20), 67.0, Drops::None)));
    model.flow(controller, &links.map(|link| (link, Span::from_millis(40))), Span::ZERO);
    model.measure(secs(20), secs(300));
    let queues = model.links.iter().map(Link::mean_queue);
    (rates(&model)[0], queues.fold(0.0, f64::max))
}

#[test]
fn clocks_that_differ_and_packets_without_a_time_make_no_queue() {
    let ahead = Span::from_secs(4_295);
    let all = [
        ("ahead", Clocks { ahead, ..Clocks::default() }),
        ("one of 2 without", Clocks { ahead, without: 2, ..Clocks::default() }),
        ("one of 50 without", Clocks { ahead, without: 50, ..Clocks::default() }),
        ("faster", Clocks { ahead, drift: 200, ..Clocks::default() }),
        ("slower", Clocks { ahead, drift: -200, without: 50 }),
    ];
    let names = NAMES.iter().map(|known| known.signature.name);
    for controller in names.chain(["harp(drain=30s)"]) {
        let (rate, queue) = alone(controller, Clocks::default());
        for (name, clocks) in all {
            let (found, found_queue) = alone(controller, clocks);
            let what = format!("{controller}, {name}: {found:.1} for {rate:.1} Mbit/s");
            assert!(found > 0.95 * rate, "{what}");
            let what = format!("{controller}, {name}: {found_queue:.1} for {queue:.1} packets");
            assert!(found_queue < 1.3 * queue + 5.0, "{what}");
        }
    }
}
