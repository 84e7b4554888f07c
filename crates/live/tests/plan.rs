//! Scenarios as plans of real hosts: devices, addresses, routes, and what is refused.

use std::net::Ipv4Addr;
use std::path::Path;

use emulate::mesh::{DeviceAt, RoutePlan};
use live::{GatewaySite, Plan, RelayHop, Side, Source, Traffic, Write};
use scenario::{Document, RunOptions, Scenario};
use units::Span;

/// A host with two links to routers, behind which there is another one; `flows` are added.
fn scenario(flows: &str) -> Scenario {
    scenario_with("", flows)
}

/// The same with further keys of the file.
fn scenario_with(keys: &str, flows: &str) -> Scenario {
    let link = |name: &str, a: &str, b: &str| {
        format!(
            "[[link]]\nname = '{name}'\nbetween = ['{a}', '{b}']\nrate = '12 Mbit/s'\ndelay = '10 \
             ms'\nqueue = '20 packets'\n"
        )
    };
    let text = format!(
        "name = 'test'\nduration = '10 s'\nwarmup = '2 s'\n{keys}\n{}{}{}{}{flows}",
        link("wifi", "host", "r1"),
        link("a-link-with-a-long-name", "r2", "host"),
        link("core", "r1", "r2"),
        link("server", "r2", "server"),
    );
    Document::new(&text, "test.toml")
        .and_then(|document| document.scenario(&[]))
        .expect("a scenario")
}

fn flow(keys: &str) -> String {
    format!("[[flow]]\nname = 'bulk'\nfrom = 'host'\nto = 'server'\njitter = 'off'\n{keys}\n")
}

fn plan(flows: &str) -> Plan {
    let scenario = scenario(flows);
    Plan::new(&scenario, scenario.seed).expect("real hosts can do it")
}

fn refused(keys: &str) -> String {
    let scenario = scenario(&flow(keys));
    Plan::new(&scenario, scenario.seed).expect_err("real hosts cannot do it").to_string()
}

#[test]
fn each_path_has_addresses_and_a_route_of_its_own() {
    let plan = plan(&flow(
        "controller = 'cubic'\nsource = { file = '1 MB' }\nsubflows = [['wifi', 'core', 'server'], \
         ['a-link-with-a-long-name', 'server'], ['wifi', 'core', 'server']]",
    ));
    let hosts = &plan.mesh.hosts;
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["host", "server"]);
    let devices = |host: usize| -> Vec<(&str, usize)> {
        let devices = hosts[host].devices.iter();
        devices.map(|device| (device.name.as_str(), device.addresses.len())).collect()
    };
    assert_eq!(devices(0), [("wifi", 2), ("link.2", 1)]);
    assert_eq!(devices(1), [("server", 3)]);
    // Links in the order of the file, each up and then down.
    let routes: Vec<&[usize]> =
        plan.mesh.routes.iter().map(|route| route.links.as_slice()).collect();
    assert_eq!(
        routes,
        [&[0, 4, 6][..], &[7, 5, 1], &[3, 6], &[7, 2], &[0, 4, 6], &[7, 5, 1]],
        "{:?}",
        plan.mesh.routes
    );
    let [sender, receiver] = [0, 1].map(|host: usize| &plan.hosts[host].flows[0]);
    assert_eq!((sender.side, receiver.side), (Side::Sender, Side::Receiver));
    for (near, far) in sender.paths.iter().zip(&receiver.paths) {
        assert_eq!((near.local, near.remote), (far.remote, far.local));
    }
    let last = &sender.paths[2];
    assert_eq!((last.local, last.remote), (Ipv4Addr::new(10, 1, 1, 2), Ipv4Addr::new(10, 2, 1, 3)));
    let source = Source::File(1_000_000);
    let expected = Traffic::Tcp { controller: "cubic".into(), pacing: false, mss: None, source };
    assert_eq!(sender.traffic, expected);
}

#[test]
fn windows_starts_and_stops_are_those_of_the_file() {
    let plan = plan(&flow("start = '1 s'\nstop = '9 s'\nsource = { stream = '1 Mbit/s' }"));
    let windows: Vec<(Span, Span)> =
        plan.mesh.windows.iter().map(|window| (window.from, window.to)).collect();
    assert_eq!(windows, [(Span::from_secs(2), Span::from_secs(10))]);
    let host = &plan.hosts[0];
    assert_eq!(host.edges, [2_000_000_000, 10_000_000_000]);
    assert_eq!((host.flows[0].start, host.flows[0].stop), (1_000_000_000, Some(9_000_000_000)));
}

#[test]
fn datagrams_have_no_way_back() {
    let plan = plan(&flow("transport = 'udp'\nrate = '2 Mbit/s'\npacket = '500 B'"));
    assert_eq!(plan.mesh.routes.len(), 1);
    let expected = Traffic::Udp { packet: 500, rate: 2_000_000, size: None };
    assert_eq!(plan.hosts[1].flows[0].traffic, expected);
}

#[test]
fn writes_keep_their_times() {
    let plan = plan(&flow("source = { trace = [{ at = '1 s', bytes = '10 kB' }] }"));
    let Traffic::Tcp { source, .. } = &plan.hosts[0].flows[0].traffic else { panic!("TCP") };
    assert_eq!(*source, Source::Trace(vec![Write { at: 1_000_000_000, bytes: 10_000 }]));
}

#[test]
fn the_delay_before_each_packet_is_a_lane_of_the_sender() {
    let flows = flow("").replace("jitter = 'off'", "jitter = '3 ms'");
    let plan = plan(&flows);
    assert_eq!(plan.mesh.lanes.len(), 1);
    assert_eq!(plan.mesh.lanes[0].most, Span::from_millis(3));
    let lanes: Vec<Option<usize>> = plan.mesh.routes.iter().map(|route| route.lane).collect();
    assert_eq!(lanes, [Some(0), None]);
}

#[test]
fn what_real_hosts_cannot_do_is_named() {
    for (keys, key, part) in [
        ("controller = 'vegas'", "controller", "the kernel's TCP has no 'vegas'"),
        ("controller = 'bbr(tolerance=0.1)'", "controller", "without settings"),
        ("tcp = { detection = 'sack' }", "tcp.detection", "leave it out"),
        ("tcp = { mss = '1449 B' }", "tcp.mss", "524 to 1448 B with an MTU of 1500 B"),
        ("tcp = { initial_window = 2 }", "tcp.initial_window", "leave it out"),
        ("source = { web = { mean = '30 kB' } }", "source", "only simulated"),
        ("transport = 'sockets'", "transport", "'sockets' is only simulated"),
        ("transport = 'udp'\ninterval = '1 ms'", "interval or trace", "have a `rate`"),
        ("transport = 'udp'\nrate = '1 Mbit/s'\npacket = '3000 B'", "packet", "1500 B"),
        (
            "transport = 'udp'\nrate = '1 Mbit/s'\non_off = { on = '1 s', off = '1 s' }",
            "on_off",
            "only simulated",
        ),
        ("transport = 'ptcp'\nptcp = { initial_window = 2 }", "ptcp", "`restripe`"),
        (
            "reroute = [{ at = '5 s', via = ['a-link-with-a-long-name', 'server'] }]",
            "reroute",
            "do not change",
        ),
        ("subflows = 2\nsource = { stream = '1 Mbit/s' }", "source", "wants one path"),
    ] {
        let error = refused(keys);
        let begin = format!("flow.bulk: `{key}`: ");
        assert!(error.starts_with(&begin) && error.contains(part), "{keys}: {error}");
    }
    let mixed =
        format!("{}{}", flow("tcp = { ecn = true }"), flow("").replace("'bulk'", "'other'"));
    let scenario = scenario(&mixed);
    let error = Plan::new(&scenario, scenario.seed).expect_err("one kernel has one setting");
    let expected = "flow.other: `tcp.ecn`: all TCP flows of the host 'host' need the same value";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn random_sizes_are_those_of_the_simulator() {
    let keys = "source = { file = { exponential = '30 kB' } }\ntcp = { mss = '948 B' }";
    let scenario = scenario(&flow(keys));
    let plan = Plan::new(&scenario, scenario.seed).expect("real hosts can do it");
    let Traffic::Tcp { source, mss, .. } = &plan.hosts[0].flows[0].traffic else { panic!("TCP") };
    assert_eq!(*mss, Some(948));
    let run = scenario.run(scenario.seed, RunOptions::default()).expect("it runs");
    assert_eq!(source.size(), Some(run.requests[0].bytes.0));
}

/// A pair of gateways over both ways between two routers, with a flow from each side; `keys` are of
/// the pair.
fn site(keys: &str) -> Scenario {
    let link = |name: &str, a: &str, b: &str| {
        format!(
            "[[link]]\nname = '{name}'\nbetween = ['{a}', '{b}']\nrate = '12 Mbit/s'\ndelay = '10 \
             ms'\nqueue = '20 packets'\n"
        )
    };
    let flow = |name: &str, from: &str, to: &str, more: &str| {
        format!(
            "[[flow]]\nname = '{name}'\nfrom = '{from}'\nto = '{to}'\njitter = \
                 'off'\n{more}\n"
        )
    };
    let through = "gateway = 'site'\ntcp = { mss = '1380 B' }";
    let text = format!(
        "name = 'site'\nduration = '10 s'\n{}{}{}{}{}{}{}{}",
        link("near", "a", "e"),
        link("one", "e", "x"),
        link("two", "e", "x"),
        link("far", "x", "b"),
        link("beside", "a", "b"),
        format_args!(
            "[[gateway]]\nname = 'site'\nentry = 'e'\nexit = 'x'\npaths = [['one'], ['two']]\n\
             {keys}\n[[gateway]]\nname = 'unused'\nentry = 'x'\nexit = 'e'\nprofile = 'paper'\n"
        ),
        [flow("backup", "a", "b", through), flow("copy", "b", "a", through)].concat(),
        flow("mail", "a", "b", "controller = 'cubic'"),
    );
    Document::new(&text, "site.toml")
        .and_then(|document| document.scenario(&[]))
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_gateway_is_a_host_with_a_device_for_each_path() {
    let scenario = site("sharing = 'site'\noverhead = '68 B'");
    let plan = Plan::new(&scenario, scenario.seed).expect("real gateways can do it");
    let hosts = &plan.mesh.hosts;
    let names: Vec<(&str, bool)> =
        hosts.iter().map(|host| (host.name.as_str(), host.forwards)).collect();
    assert_eq!(names, [("e", true), ("x", true), ("a", false), ("b", false)]);
    let devices = |host: usize| -> Vec<(&str, usize, usize)> {
        let devices = hosts[host].devices.iter();
        devices.map(|one| (one.name.as_str(), one.addresses.len(), one.behind.len())).collect()
    };
    assert_eq!(devices(0), [("path.1", 1, 0), ("path.2", 1, 0), ("near", 0, 2)]);
    assert_eq!(devices(1), [("path.1", 1, 0), ("far", 0, 2)]);
    let address = |host, device, number| Ipv4Addr::new(10, host, device, number);
    let at = address(2, 1, 1);
    let [entry, exit] = [0, 1].map(|host: usize| plan.hosts[host].gateway.clone().expect("one"));
    // The flows through the pair; the third has an address of its own, and a route past it.
    let near = vec![address(3, 1, 1), address(3, 1, 2)];
    let far = vec![address(4, 1, 1), address(4, 1, 2)];
    assert_eq!((&entry.hosts, &exit.hosts), (&near, &far));
    let site = |hosts: &[Ipv4Addr], at, peer| GatewaySite {
        gateway: "site".into(),
        hosts: hosts.to_vec(),
        at,
        paths: 2,
        peer,
    };
    assert_eq!(entry.sites, [site(&far, Some(at), 1)]);
    assert_eq!(exit.sites, [site(&near, None, 0)]);
    // Links in the order of the file, each up and then down.
    let routes: Vec<(&[usize], bool)> = (plan.mesh.routes.iter())
        .map(|route| (route.links.as_slice(), route.between.is_some()))
        .collect();
    let paths = [(&[2][..], false), (&[3], false), (&[4], false), (&[5], false)];
    assert_eq!(routes[..4], paths);
    let backup = [(&[0][..], true), (&[1], true), (&[7], true), (&[6], true)];
    assert_eq!(routes[4..8], backup);
    let copy = [(&[7][..], true), (&[6], true), (&[0], true), (&[1], true)];
    assert_eq!(routes[8..12], copy);
    assert_eq!(routes[12..], [(&[8][..], false), (&[9], false)]);
    let at_device = |host, device| DeviceAt { host, device };
    let first = plan.mesh.routes[4].between.expect("it enters a gateway");
    assert_eq!(first, [at_device(2, 0), at_device(0, 2)]);
    let last = plan.mesh.routes[7].between.expect("it leaves a gateway");
    assert_eq!(last, [at_device(1, 1), at_device(3, 0)]);
}

#[test]
fn what_real_gateways_cannot_do_is_named() {
    for (keys, key, part) in [
        ("", "sharing", "say 'site'"),
        ("sharing = 'site'\noverhead = '38 B'", "overhead", "68 B"),
        ("sharing = 'site'\nprofile = 'paper'", "profile", "leave it out"),
        ("sharing = 'site'\nreorder = 2.0", "reorder", "leave it out"),
        ("sharing = 'site'\nadmission = 'off'", "admission", "leave it out"),
        ("sharing = 'site'\ncontroller = { beta = 0.5 }", "controller", "leave it out"),
    ] {
        let scenario = site(keys);
        let error = Plan::new(&scenario, scenario.seed).expect_err("real gateways cannot");
        let (error, begin) = (error.to_string(), format!("gateway.site: `{key}`: "));
        assert!(error.starts_with(&begin) && error.contains(part), "{keys}: {error}");
    }
    // The same value as the product's may be said.
    let scenario = site("sharing = 'site'\nprofile = 'modern'\nadmission = 1.5\nhold = true");
    Plan::new(&scenario, scenario.seed).expect("real gateways can do it");
}

/// A striped connection with these paths, where both routers have a relay.
fn over_relays(subflows: &str) -> Scenario {
    let striped = flow(&format!("transport = 'ptcp'\njitter = '3 ms'\nsubflows = {subflows}"));
    let flows = striped.replace("jitter = 'off'\n", "");
    scenario_with("relays = ['r1', 'r2']", &flows)
}

#[test]
fn each_hop_between_relays_has_addresses_and_routes_of_its_own() {
    let scenario = over_relays("[['wifi', 'core', 'server']]");
    let plan = Plan::new(&scenario, scenario.seed).expect("real hosts can do it");
    let names: Vec<&str> = plan.mesh.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["host", "server", "r1", "r2"]);
    let routes: Vec<(&[usize], Option<usize>)> =
        plan.mesh.routes.iter().map(|route| (route.links.as_slice(), route.lane)).collect();
    let expected: [(&[usize], Option<usize>); 6] =
        [(&[0], Some(0)), (&[1], None), (&[4], None), (&[5], None), (&[6], None), (&[7], None)];
    assert_eq!(routes, expected);
    // The sender names the first relay, that one the second, and this one the receiver.
    let [sender, receiver] = [0, 1].map(|host: usize| &plan.hosts[host].flows[0]);
    let hops = [
        RelayHop { at: plan.mesh.routes[0].to, node: 2 },
        RelayHop { at: plan.mesh.routes[2].to, node: 3 },
    ];
    assert_eq!((sender.relays[0].as_slice(), receiver.relays.len()), (&hops[..], 0));
    assert_eq!(sender.paths[0].local, plan.mesh.routes[0].from);
    assert_eq!(sender.paths[0].remote, plan.mesh.routes[4].to);
    assert_eq!(receiver.paths[0].local, sender.paths[0].remote);
    // What is sent to the next one, without a word on from where, leaves by the right device.
    let behind = |host: usize| -> Vec<(Ipv4Addr, Ipv4Addr)> {
        let devices = plan.mesh.hosts[host].devices.iter();
        let of = |device: &emulate::mesh::DevicePlan| {
            Some((*device.addresses.first()?, *device.behind.first()?))
        };
        devices.filter_map(of).collect()
    };
    for (host, route) in [(0, 0), (2, 2), (3, 4)] {
        let RoutePlan { from, to, .. } = plan.mesh.routes[route];
        assert_eq!(behind(host), [(from, to)]);
    }
    for node in [2, 3] {
        assert_eq!(plan.hosts[node].relay.as_ref().expect("a relay").flows, ["bulk"]);
    }
}

#[test]
fn what_real_relays_cannot_do_is_named() {
    let refused = |scenario: &Scenario| {
        Plan::new(scenario, scenario.seed).expect_err("real relays cannot").to_string()
    };
    let twice = "[['wifi', 'core', 'server'], ['a-link-with-a-long-name', 'server']]";
    let error = refused(&over_relays(twice));
    assert!(
        error.starts_with("flow.bulk: `subflows`: two paths lead over the relay 'r2'"),
        "{error}"
    );
    let ends = over_relays("[['wifi', 'core', 'server']]");
    let gateways = "[[gateway]]\nname = 'pair'\nentry = 'r1'\nexit = 'r2'\n";
    let striped = flow("transport = 'ptcp'\nsubflows = [['wifi', 'core', 'server']]");
    let both = scenario_with("relays = ['r1', 'r2']", &format!("{gateways}{striped}"));
    assert_eq!(refused(&both), "`relays`: the node 'r1': a background gateway is there");
    // Nodes that no striped connection passes are routers.
    let mut none = ends;
    none.relays.clear();
    let plan = Plan::new(&none, none.seed).expect("real hosts can do it");
    assert_eq!(plan.mesh.hosts.len(), 2);
}

#[test]
fn the_calibration_scenarios_can_be_carried_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/calibration");
    let mut files = 0;
    for entry in folder.read_dir().expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        let scenario = Document::load(&path)
            .and_then(|document| document.scenario(&[]))
            .unwrap_or_else(|error| panic!("{error}"));
        if let Err(error) = Plan::new(&scenario, scenario.seed) {
            panic!("{}: {error}", path.display());
        }
        files += 1;
    }
    assert_eq!(files, 15);
}
