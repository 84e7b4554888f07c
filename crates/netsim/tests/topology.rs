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

/// Two hosts with four paths of two links each between their routers, one of five links, and a
/// third host at the first router.
fn fabric() -> Topology {
    let mut net = Topology::new();
    for host in ["a", "b", "c"] {
        net.add_host(host).unwrap();
    }
    for router in ["left", "right", "s0", "s1", "s2", "s3", "l1", "l2", "l3"] {
        net.add_router(router).unwrap();
    }
    net.duplex("a", "a", "left", &wire(1)).unwrap();
    net.duplex("b", "right", "b", &wire(1)).unwrap();
    net.duplex("c", "c", "left", &wire(1)).unwrap();
    for spine in 0..4 {
        let router = format!("s{spine}");
        // Delays differ, and do not count.
        net.duplex(&format!("up{spine}"), "left", &router, &wire(1 + 10 * spine)).unwrap();
        net.duplex(&format!("down{spine}"), &router, "right", &wire(1)).unwrap();
    }
    for (from, to) in [("left", "l1"), ("l1", "l2"), ("l2", "l3"), ("l3", "right")] {
        net.duplex(&format!("{from}-{to}"), from, to, &wire(0)).unwrap();
    }
    net
}

#[test]
fn flows_share_equal_routes_as_the_binomial_says() {
    let mut net = fabric();
    let flows = 4_000;
    let mut counts = [0.0f64; 4];
    for flow in 0..flows {
        let key = Seed(1).stream(&format!("flow/{flow}"));
        let route = net.equal_cost_route("a", "b", key).unwrap();
        let spine = (millis(&net, route) - 4) / 10;
        counts[usize::try_from(spine).unwrap()] += 1.0;
    }
    let mean = f64::from(flows) / 4.0;
    let chi_square: f64 = counts.iter().map(|count| (count - mean).powi(2) / mean).sum();
    // Three degrees of freedom: above 16.3 in one of a thousand.
    assert!(chi_square < 16.3, "{counts:?}");
    let deviation = (f64::from(flows) * 0.25 * 0.75).sqrt();
    assert!(counts.iter().all(|count| (count - mean).abs() < 4.0 * deviation), "{counts:?}");
}

#[test]
fn equal_routes_are_of_the_flow_and_hosts_at_one_router_are_near() {
    let mut net = fabric();
    let key = Seed(7);
    let first = net.equal_cost_route("a", "b", key).unwrap();
    let again = net.equal_cost_route("a", "b", key).unwrap();
    assert_eq!(millis(&net, first), millis(&net, again));
    // A link that is added later makes the only shortest route.
    net.duplex("bridge", "left", "right", &wire(90)).unwrap();
    let bridged = net.equal_cost_route("a", "b", key).unwrap();
    assert_eq!(millis(&net, bridged), 92);
    let (a, c) = (net.host_id("a").unwrap(), net.host_id("c").unwrap());
    let near = net.equal_cost_route("a", "c", key).unwrap();
    let mut sim = planned(&net, Seed(1), vec![(a, vec![(ns(0), near, packet(1, 1))])]);
    sim.run_until(ns(1_000_000_000));
    assert_eq!(sim.host(c).heard[0].0 / 1_000_000, 2);
    net.add_host("island").unwrap();
    assert!(message(net.equal_cost_route("a", "island", key)).starts_with("there is no route"));
    assert!(message(net.equal_cost_route("a", "a", key)).starts_with("there is no route"));
    assert!(message(net.equal_cost_route("a", "left", key)).contains("'left' is a router"));
}

#[test]
fn routes_change_at_their_times_and_packets_under_way_stay() {
    let mut net = net();
    let route = net.route("a", "b").unwrap();
    let slow = net.route_via("a", &["a/up", "slow/up", "b/up"]).unwrap();
    let (a, b) = (net.host_id("a").unwrap(), net.host_id("b").unwrap());
    let ms = 1_000_000;
    // Added in another order than they come.
    net.reroute(ns(30 * ms), route, route).unwrap();
    net.reroute(ns(10 * ms), route, slow).unwrap();
    let plan = [9, 10, 29, 30].map(|at| (ns(at * ms), route, packet(at, 1)));
    let mut sim = planned(&net, Seed(1), vec![(a, plan.to_vec())]);
    sim.run_until(ns(1_000 * ms));
    let heard: Vec<(u64, u64)> =
        sim.host(b).heard.iter().map(|(at, number)| (*number, at / ms)).collect();
    assert_eq!(heard, [(9, 14), (10, 21), (30, 35), (29, 40)]);
    let other = net.route("a", "c").unwrap();
    let refused = net.reroute(ns(0), route, other).unwrap_err().to_string();
    assert_eq!(refused, "the route from 'a' to 'b' cannot change to one from 'a' to 'c'");
}
