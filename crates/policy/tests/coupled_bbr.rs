//! Coupled BBR on model links: apart from each other its subflows are BBR's, at one bottleneck they
//! are one flow.

#![allow(clippy::cast_precision_loss)]

mod common;

use common::{Drops, Link, Model, rates, secs};
use units::{Rate, Span, SubflowId, Time};

const RTT: Span = Span::from_millis(40);

/// Tells the controller of a flow that its first `subflows` share a bottleneck, or none of them.
fn regroup(model: &mut Model, flow: usize, subflows: u16, is_shared: bool) {
    for id in (0..subflows).map(SubflowId) {
        let bottleneck = is_shared.then_some(SubflowId(0));
        model.flows[flow].controller.handle_bottleneck(Time::ZERO + secs(10), id, bottleneck);
    }
}

/// What `subflows` take of 50 Mbit/s over what a flow of one subflow takes beside them; all are
/// told that they share a bottleneck at 10 s if `is_known`, and that they do not at 20 s if
/// `apart`.
fn over_one(subflows: usize, drops: Drops, is_known: bool, apart: bool) -> f64 {
    let mut model = Model::default();
    let link = model.link(Link::new(Rate::mbit(50), 167.0, drops));
    model.flow("coupled-bbr", &vec![(link, RTT); subflows], Span::ZERO);
    model.flow("coupled-bbr(seed=2)", &[(link, RTT)], Span::from_millis(500));
    let count = u16::try_from(subflows).expect("a few");
    model.run(secs(10));
    regroup(&mut model, 0, count, is_known);
    model.run(secs(20));
    regroup(&mut model, 0, count, is_known && !apart);
    model.measure(secs(40), secs(110));
    let found = rates(&model);
    println!("{subflows} subflows, {drops:?}, known {is_known}: {found:.1?} Mbit/s");
    found[0] / found[1]
}

#[test]
fn at_one_bottleneck_they_take_one_share() {
    let red = Drops::Red { from: 28.0, to: 167.0, most: 0.05 };
    for drops in [Drops::None, red] {
        for subflows in [2, 4] {
            let coupled = over_one(subflows, drops, true, false);
            assert!((0.6..1.5).contains(&coupled), "{coupled}");
            // The figure of BBR without coupling.
            let apart = over_one(subflows, drops, false, false);
            assert!(apart > 1.5, "{apart}");
        }
    }
}

#[test]
fn separated_again_they_are_independent() {
    let found = over_one(4, Drops::None, true, true);
    assert!(found > 1.5, "{found}");
}

/// A connection over two links, and two connections over one each: the same windows.
#[test]
fn at_separate_bottlenecks_nothing_is_coupled() {
    let links = |model: &mut Model| {
        [(10, 42.0, 50), (5, 30.0, 80)].map(|(mbit, buffer, rtt)| {
            let link = Link::new(Rate::mbit(mbit), buffer, Drops::Random(1_000));
            (model.link(link), Span::from_millis(rtt))
        })
    };
    let mut together = Model::default();
    let paths = links(&mut together);
    together.flow("coupled-bbr", &paths, Span::ZERO);
    // Each path is known to have a bottleneck, which is its own.
    for id in [0, 1].map(SubflowId) {
        together.flows[0].controller.handle_bottleneck(Time::ZERO, id, Some(id));
    }
    together.run(secs(30));
    let mut alone = Model::default();
    for path in links(&mut alone) {
        alone.flow("coupled-bbr", &[path], Span::ZERO);
    }
    alone.run(secs(30));
    for (number, subflow) in together.flows[0].subflows.iter().enumerate() {
        assert_eq!(subflow.curve, alone.flows[number].subflows[0].curve);
    }
}

/// As long as cruising finds the queue empty, there is nothing that `ProbeRTT` could find.
#[test]
fn a_round_trip_near_the_shortest_needs_no_probe() {
    let mut found = [0.0; 2];
    for (controller, found) in ["bbr", "coupled-bbr"].into_iter().zip(&mut found) {
        let mut model = Model::default();
        let link = model.link(Link::new(Rate::mbit(10), 200.0, Drops::None));
        model.flow(controller, &[(link, Span::from_millis(50))], Span::ZERO);
        model.measure(secs(5), secs(65));
        *found = rates(&model)[0] / 10.0;
        println!("{controller}: {found:.4} of the link, queue {:.1}", model.links[0].mean_queue());
        assert!(model.links[0].mean_queue() < 8.0);
    }
    let [bbr, coupled] = found;
    assert!(bbr < 0.98 && coupled > 0.985, "{bbr} {coupled}");
}
