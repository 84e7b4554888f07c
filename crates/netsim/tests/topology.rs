//! Routes, and mistakes in topologies.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Planned, ns, packet, planned};
use link::Profile;
use netsim::{Topology, TopologyError};
use units::{Rate, Seed, Span};

fn wire(millis: u64) -> Profile {
    Profile::new(Rate::mbit(1_000), Span::from_millis(millis))
}

/// a - r1 - r2 - b with a detour r1 - r3 - r2, a second and slower link r1 - r2, and a second path
/// through the host c.
fn net() -> Topology {
    let mut net = Topology::new();
    for host in ["a", "b", "c"] {
        net.add_host(host).unwrap();
    }
    for router in ["r1", "r2", "r3"] {
        net.add_router(router).unwrap();
    }
    net.duplex("a", "a", "r1", &wire(1)).unwrap();
    net.duplex("slow", "r1", "r2", &wire(9)).unwrap();
    net.duplex("fast", "r1", "r2", &wire(3)).unwrap();
    net.duplex("in", "r1", "r3", &wire(1)).unwrap();
    net.duplex("out", "r3", "r2", &wire(1)).unwrap();
    net.duplex("b", "r2", "b", &wire(1)).unwrap();
    net.duplex("ac", "a", "c", &wire(0)).unwrap();
    net.duplex("cb", "c", "b", &wire(0)).unwrap();
    net
}

/// The delay of a route from a to b in milliseconds, without wire times.
fn millis(net: &Topology, route: netsim::Route) -> u64 {
    let (a, b) = (net.host_id("a").unwrap(), net.host_id("b").unwrap());
    let mut sim = planned(net, Seed(1), vec![(a, vec![(ns(0), route, packet(1, 1))])]);
    sim.run_until(ns(1_000_000_000));
    sim.host(b).heard[0].0 / 1_000_000
}

#[test]
fn the_shortest_route_has_the_fewest_links_then_the_least_delay() {
    let mut net = net();
    let route = net.route("a", "b").unwrap();
    assert_eq!(millis(&net, route), 5);
}

#[test]
fn a_flow_can_have_a_route_of_its_own() {
    let mut net = net();
    let route = net.route_via("a", &["a/up", "in/up", "out/up", "b/up"]).unwrap();
    assert_eq!(millis(&net, route), 4);
    let route = net.route_via("a", &["a/up", "slow/up", "b/up"]).unwrap();
    assert_eq!(millis(&net, route), 11);
}

fn message<T: std::fmt::Debug>(result: Result<T, TopologyError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn mistakes_are_named() {
    let mut net = net();
    assert!(message(net.add_host("r1")).contains("two nodes named 'r1'"));
    assert!(message(net.add_link("a/up", "a", "r1", wire(1))).contains("two links named 'a/up'"));
    let unknown = message(net.add_link("x", "a", "r11", wire(1)));
    assert_eq!(
        unknown,
        "the link 'x' names the node 'r11', which does not exist; did you mean 'r1'?"
    );
    assert!(
        message(net.route("a", "zebra")).ends_with("names the node 'zebra', which does not exist")
    );
    assert!(message(net.route("a", "r1")).contains("'r1' is a router"));
    assert!(message(net.jitter("r1", Span::ZERO)).contains("'r1' is a router"));
    net.add_host("island").unwrap();
    assert!(
        message(net.route("a", "island")).starts_with("there is no route from 'a' to 'island'")
    );
    assert!(message(net.route("a", "a")).starts_with("there is no route from 'a' to 'a'"));
    assert!(message(net.route_via("a", &[])).starts_with("there is no route"));
    assert!(
        message(net.route_via("a", &["b/up"])).contains("begins at 'r2', but is at 'a' by then")
    );
    assert!(message(net.route_via("a", &["a/upp"])).contains("did you mean 'a/up'?"));
    assert!(message(net.route_via("a", &["ac/up", "cb/up"])).contains("through the host 'c'"));
    assert!(message(net.route_via("a", &["a/up"])).contains("'r1' is a router"));
}

#[test]
#[should_panic(expected = "along a route that begins elsewhere")]
fn a_host_sends_along_its_own_routes() {
    let mut net = net();
    let route = net.route("a", "b").unwrap();
    let b = net.host_id("b").unwrap();
    let mut sim = net.build(Seed(1), |_| Planned::default()).unwrap();
    sim.with_host(b, |_, _, out| out.send(route, packet(1, 1)));
}
