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

/// What `subflows` of a connection take of 50 Mbit/s over what a flow of one subflow takes beside
/// them; all are told at 10 s that they share a bottleneck if `is_known`.
fn over_one(controller: &str, subflows: usize, drops: Drops, is_known: bool) -> f64 {
    let mut model = Model::default();
    let link = model.link(Link::new(Rate::mbit(50), 167.0, drops));
    model.flow(&format!("{controller}(seed=1)"), &vec![(link, RTT); subflows], Span::ZERO);
    model.flow(&format!("{controller}(seed=2)"), &[(link, RTT)], Span::from_millis(500));
    let count = u16::try_from(subflows).expect("a few");
    model.run(secs(10));
    regroup(&mut model, 0, count, is_known);
    model.measure(secs(40), secs(110));
    let found = rates(&model);
    println!("{controller}, {subflows} subflows, {drops:?}, known {is_known}: {found:.1?} Mbit/s");
    found[0] / found[1]
}

#[test]
fn at_one_bottleneck_they_take_one_share() {
    let red = Drops::Red { from: 28.0, to: 167.0, most: 0.05 };
    for drops in [Drops::None, red] {
        for subflows in [2, 4] {
            let coupled = over_one("coupled-bbr", subflows, drops, true);
            assert!((0.6..1.5).contains(&coupled), "{coupled}");
            // The figure of BBR without coupling.
            let apart = over_one("bbr", subflows, drops, false);
            assert!(apart > 1.5, "{apart}");
        }
    }
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
    together.run(Span::ZERO);
    // They are taken to share one, and then each is known to have its own.
    regroup(&mut together, 0, 2, true);
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

/// Scenario C of the paper on OLIA, in small: five connections over a link of their own and one
/// that they share with five flows of Reno, 1 Mbit/s for each. What Reno has of the shared link,
/// and all of both.
fn scenario_c(controller: &str) -> (f64, f64) {
    let mut model = Model::default();
    let red = Drops::Red { from: 12.0, to: 37.0, most: 0.1 };
    let links = [(); 2].map(|()| model.link(Link::new(Rate::mbit(5), 125.0, red)));
    let rtt = Span::from_millis(150);
    for number in 0..5_u64 {
        let start = Span::from_millis(130 * number);
        let name = format!("{controller}(seed={})", number + 1);
        model.flow(&name, &links.map(|link| (link, rtt)), start);
        model.flow("reno", &[(links[1], rtt)], start + Span::from_millis(70));
    }
    model.measure(secs(60), secs(240));
    let found = rates(&model);
    let reno = found.iter().skip(1).step_by(2).sum::<f64>() / 5.0;
    let all = found.iter().sum::<f64>() / 10.0;
    println!("{controller}: Reno has {reno:.2} of the shared link, all have {all:.2} of both");
    (reno, all)
}

#[test]
fn flows_of_others_keep_what_is_theirs() {
    let (reno, all) = scenario_c("coupled-bbr");
    assert!(reno > 0.7 && all > 0.9, "{reno} {all}");
    // Without a ceiling.
    let (reno, _) = scenario_c("bbr");
    assert!(reno < 0.6, "{reno}");
}

/// A loss that no queue explains is the line's own: no ceiling comes of it, and as many are
/// expected from then on. BBR's 2 % are exceeded by chance alone.
#[test]
fn random_losses_are_the_lines_own() {
    let alone = |controller: &str, percent: u64| {
        let mut model = Model::default();
        let link = model.link(Link::new(Rate::mbit(50), 167.0, Drops::Random(10_000 * percent)));
        model.flow(controller, &[(link, RTT)], Span::ZERO);
        model.measure(secs(10), secs(70));
        rates(&model)[0] / 50.0
    };
    for percent in [1, 2] {
        let (coupled, single) =
            (alone("coupled-bbr", percent), alone("bbr(tolerance=0.02)", percent));
        println!("{percent} % lost: {coupled:.3}, as BBR {single:.3} of the rate");
        assert!(coupled > 0.93 && coupled >= single, "{coupled} {single}");
    }
    let single = alone("bbr(tolerance=0.02)", 2);
    assert!(single < 0.8, "{single}");
}
