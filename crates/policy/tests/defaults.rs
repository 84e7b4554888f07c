//! A name without parameters means what the type means without options, and both mean what they are
//! for: a controller of another strength fails here.

#![allow(clippy::cast_precision_loss)]

mod common;

use common::{Drops, Link, Model, rates, secs};
use policy::cc::{
    Bbr, Controller, CoupledBbr, CoupledCubic, Cubic, Dctcp, Fast, Harp, HarpOptions, Ledbat,
    LedbatPlusPlus, Lp, Mpfast, MpfastOptions, Nice, Prague, Reno, SinglePath, Uncoupled, Vegas,
    Waimd, Wvegas, by_name,
};
use units::{Rate, Span};

const RTT: Span = Span::from_millis(100);

#[test]
fn names_without_parameters_are_the_defaults_of_the_types() {
    fn one<P: SinglePath + Default + 'static>() -> (&'static str, Box<dyn Controller>) {
        (P::NAME, Box::new(Uncoupled::new(P::default())))
    }
    let all: [(&str, Box<dyn Controller>); 16] = [
        one::<Reno>(),
        one::<Cubic>(),
        one::<Vegas>(),
        one::<Fast>(),
        one::<Bbr>(),
        one::<Waimd>(),
        one::<Dctcp>(),
        one::<Prague>(),
        one::<Ledbat>(),
        one::<LedbatPlusPlus>(),
        one::<Lp>(),
        one::<Nice>(),
        ("wvegas", Box::new(Wvegas::default())),
        ("coupled-bbr", Box::new(CoupledBbr::default())),
        ("coupled-cubic", Box::new(CoupledCubic::default())),
        ("mpfast", Box::new(Mpfast::new(MpfastOptions::default()))),
    ];
    for (name, controller) in all {
        let named = by_name(name).expect("known");
        assert_eq!(format!("{named:?}"), format!("{controller:?}"), "{name}");
    }
    let harp = by_name("harp").expect("known");
    assert_eq!(format!("{harp:?}"), format!("{:?}", Harp::new(HarpOptions::modern())));
}

/// The queue of a flow that is alone, seven to twenty round trips after the rate of its link fell
/// to a half: what was in flight is in the queue then, and each step takes half of the excess.
fn queue_after_a_fall(controller: &str) -> f64 {
    let mut model = Model::default();
    let link = model.link(Link::new(Rate::mbit(80), f64::INFINITY, Drops::None));
    model.flow(controller, &[(link, RTT)], Span::ZERO);
    model.run(secs(6));
    model.links[link].rate = Rate::mbit(40);
    model.measure(Span::from_millis(7_500), secs(9));
    model.links[link].mean_queue()
}

#[test]
fn mpfast_takes_half_of_the_way_in_a_step() {
    let found = queue_after_a_fall("mpfast");
    assert!((95.0..115.0).contains(&found), "{found}");
    assert!(queue_after_a_fall("mpfast(gamma=0.1)") > 150.0, "a check of the measure");
}

/// The rate over a line that loses so many of a thousand packets.
fn over_a_lossy_line(controller: &str, thousandths: u64) -> f64 {
    let mut model = Model::default();
    let link = model.link(Link::new(Rate::mbit(80), 667.0, Drops::Random(1_000 * thousandths)));
    model.flow(controller, &[(link, RTT)], Span::ZERO);
    model.measure(secs(10), secs(40));
    rates(&model)[0]
}

/// More than three in a hundred are congestion, whatever loses them.
#[test]
fn mpfast_tolerates_few_losses() {
    let few = over_a_lossy_line("mpfast", 20);
    assert!(few > 70.0, "{few}");
    let many = over_a_lossy_line("mpfast", 100);
    assert!(many < 10.0, "{many}");
    let tolerant = over_a_lossy_line("mpfast(tolerance=0.3)", 100);
    assert!(tolerant > 70.0, "a check of the measure: {tolerant}");
}

/// What a flow with a short queue loses, as a share of what it sends.
fn lost_at_a_short_queue(controller: &str) -> f64 {
    let mut model = Model::default();
    let link = model.link(Link::new(Rate::mbit(50), 20.0, Drops::None));
    for number in 0..4 {
        model.flow(controller, &[(link, Span::from_millis(40))], Span::from_millis(130 * number));
    }
    model.run(secs(10));
    let before = model.links[link].dropped;
    model.measure(secs(10), secs(40));
    let sent = rates(&model).iter().sum::<f64>() * 30.0 / 12e-3;
    (model.links[link].dropped - before) as f64 / sent
}

#[test]
fn the_default_takes_a_full_queue_for_congestion() {
    let found = lost_at_a_short_queue("coupled-bbr");
    let tolerant = lost_at_a_short_queue("coupled-bbr(tolerance=0.2)");
    assert!(
        found < 0.001 && tolerant > 1.5 * found,
        "{found}, and {tolerant} with a tenfold share"
    );
}
