//! MPFAST in the model: what its sources promise, and what this implementation adds.

#![allow(clippy::cast_precision_loss)]

mod common;

use common::{Drops, Link, Model, jain, rates, secs};
use units::{Rate, Span};

const RTT: Span = Span::from_millis(100);

fn link(model: &mut Model, mbit: u64, buffer: f64, drops: Drops) -> usize {
    model.link(Link::new(Rate::mbit(mbit), buffer, drops))
}

#[test]
fn it_keeps_alpha_packets_in_the_queue() {
    for (alpha, mbit) in [(20.0, 100), (100.0, 100), (200.0, 1_000)] {
        let mut model = Model::default();
        let queue = link(&mut model, mbit, f64::INFINITY, Drops::None);
        model.flow(&format!("mpfast(alpha={alpha})"), &[(queue, RTT)], Span::ZERO);
        model.measure(secs(5), Span::from_millis(9_900));
        let mean = model.links[queue].mean_queue();
        assert!((mean - alpha).abs() < (0.02 * alpha).max(1.0), "{alpha}: {mean}");
    }
}

/// Equation 7: two subflows in one queue keep α packets there together, as one flow of FAST does.
#[test]
fn two_subflows_in_one_queue_take_one_share() {
    let mut model = Model::default();
    let queue = link(&mut model, 100, f64::INFINITY, Drops::None);
    let path = (queue, RTT);
    model.flow("mpfast", &[path, path], Span::ZERO);
    model.flow("fast(alpha=100, every=1)", &[path], Span::ZERO);
    model.measure(secs(5), Span::from_millis(9_900));
    let rates = rates(&model);
    assert!((0.9..1.1).contains(&(rates[0] / rates[1])), "{rates:?}");
    let mean = model.links[queue].mean_queue();
    assert!((mean - 200.0).abs() < 10.0, "{mean}");
}

/// Equation 9: θ follows the rates, so that the queueing delay is the same on both paths.
#[test]
fn paths_of_unequal_rate_have_equal_delays() {
    let mut model = Model::default();
    let links = [20, 80].map(|mbit| link(&mut model, mbit, f64::INFINITY, Drops::None));
    model.flow("mpfast", &links.map(|link| (link, RTT)), Span::ZERO);
    model.measure(secs(20), Span::from_millis(29_900));
    let queues = links.map(|link| model.links[link].mean_queue());
    assert!((queues[0] - 20.0).abs() < 3.0 && (queues[1] - 80.0).abs() < 6.0, "{queues:?}");
    assert!(rates(&model)[0] > 98.0, "{:?}", rates(&model));
}

/// 80 Mbit/s have 667 packets in a round trip of 100 ms.
#[test]
fn it_fills_long_paths_in_seconds() {
    let mut model = Model::default();
    let queue = link(&mut model, 80, 667.0, Drops::None);
    model.flow("mpfast", &[(queue, RTT)], Span::ZERO);
    model.measure(secs(2), secs(4));
    let rate = rates(&model)[0];
    assert!(rate > 79.0, "{rate}");
    let dropped = model.links[queue].dropped;
    assert!(dropped < 70, "a tenth of the pipe: {dropped}");
}

/// Each drain shows the latecomers the base. Without them they take the standing queue for it.
#[test]
fn latecomers_get_a_fair_share() {
    for (expiry, least, most) in [(10, 0.99, 1.01), (0, 0.5, 0.9)] {
        let mut model = Model::default();
        let queue = link(&mut model, 100, f64::INFINITY, Drops::None);
        for flow in 0..4 {
            let controller = format!("mpfast(expiry={expiry} s)");
            model.flow(&controller, &[(queue, RTT)], secs(15 * flow));
        }
        model.measure(secs(75), secs(85));
        let rates = rates(&model);
        assert!((least..most).contains(&jain(&rates)), "{expiry} s: {rates:?}");
        assert!(rates.iter().sum::<f64>() > 97.0, "{expiry} s: {rates:?}");
    }
}

/// The start loses most of a round trip, and then the path keeps what the buffer holds.
#[test]
fn a_buffer_shorter_than_alpha_is_enough() {
    let mut model = Model::default();
    let queue = link(&mut model, 100, 60.0, Drops::None);
    model.flow("mpfast", &[(queue, Span::from_millis(200))], Span::ZERO);
    model.measure(secs(10), secs(20));
    let dropped = model.links[queue].dropped;
    assert!(rates(&model)[0] > 95.0, "{:?}", rates(&model));
    model.measure(secs(20), secs(40));
    assert!(rates(&model)[0] > 95.0, "{:?}", rates(&model));
    assert!(model.links[queue].dropped - dropped < 100, "{}", model.links[queue].dropped - dropped);
}

#[test]
fn losses_without_a_queue_cost_nothing() {
    for (controller, least, most) in [
        ("mpfast", 76.0, 80.1),
        // A check of the measure.
        ("mpfast(tolerance=0)", 1.0, 40.0),
    ] {
        let mut model = Model::default();
        let queue = link(&mut model, 80, 667.0, Drops::Random(10_000));
        model.flow(controller, &[(queue, RTT)], Span::ZERO);
        model.measure(secs(10), secs(40));
        let rate = rates(&model)[0];
        assert!((least..most).contains(&rate), "{controller}: {rate}");
    }
}

#[test]
fn beside_cubic_it_yields_unless_it_is_to_coexist() {
    for (controller, least, most) in [("mpfast", 0.05, 0.45), ("mpfast(coexist=true)", 0.5, 2.0)] {
        let mut model = Model::default();
        let queue = link(&mut model, 100, 833.0, Drops::None);
        model.flow(controller, &[(queue, RTT)], Span::ZERO);
        model.flow("cubic", &[(queue, RTT)], secs(5));
        model.measure(secs(30), secs(150));
        let rates = rates(&model);
        let ratio = rates[0] / rates[1];
        assert!((least..most).contains(&ratio), "{controller}: {rates:?}");
    }
}

/// Without rivals the mode changes nothing.
#[test]
fn flows_that_coexist_keep_the_queue_short() {
    let mut model = Model::default();
    let queue = link(&mut model, 100, 5_000.0, Drops::None);
    for flow in 0..3 {
        model.flow("mpfast(coexist=true)", &[(queue, RTT)], secs(7 * flow));
    }
    model.measure(secs(50), secs(70));
    let mean = model.links[queue].mean_queue();
    assert!(mean < 310.0, "{mean}");
    assert!(jain(&rates(&model)) > 0.99, "{:?}", rates(&model));
}

/// A path that stood still gets its share again.
#[test]
fn flows_that_end_leave_their_rate_to_the_others() {
    let mut model = Model::default();
    let links = [(); 2].map(|()| link(&mut model, 80, 667.0, Drops::None));
    model.flow("mpfast", &links.map(|link| (link, RTT)), Span::ZERO);
    model.run(secs(11));
    model.links[links[0]].rate = Rate::mbit(40);
    model.measure(secs(14), secs(19));
    let of = |model: &Model, at: usize| model.rate(model.flows[0].subflows[at].delivered) * 12e-3;
    let found = [of(&model, 0), of(&model, 1)];
    assert!((found[0] - 40.0).abs() < 2.0 && (found[1] - 80.0).abs() < 4.0, "{found:?}");
    model.links[links[0]].rate = Rate::mbit(80);
    model.measure(secs(22), secs(24));
    assert!((of(&model, 0) - 80.0).abs() < 4.0, "{}", of(&model, 0));
}
