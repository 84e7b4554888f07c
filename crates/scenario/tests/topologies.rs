//! Named topologies, equal-cost routes, and routes that change.

use link::{Aqm, Limit, Threshold};
use scenario::file::Scenario;
use scenario::sweep::Plan;
use scenario::{Document, RunOptions, Setting};
use units::{Bytes, Rate, Seed, Span};

/// A scenario with these keys and flows.
fn read(keys: &str, flows: &str) -> Result<Scenario, String> {
    let text = format!("name = \"t\"\nduration = \"2 s\"\n{keys}\n{flows}");
    let document = Document::new(&text, "t.toml").map_err(|error| error.to_string())?;
    document.scenario(&[]).map_err(|error| error.to_string())
}

fn flow(from: &str, to: &str) -> String {
    format!("[[flow]]\nname = \"f\"\nfrom = \"{from}\"\nto = \"{to}\"\n")
}

/// Each link as "name from to".
fn listed(scenario: &Scenario) -> Vec<String> {
    let line = |link: &scenario::file::LinkSpec| {
        format!("{} {} {}", link.name, link.between[0], link.between[1])
    };
    scenario.links.iter().map(line).collect()
}

const MAIN: &str = "rate = \"100 Mbit/s\", delay = \"10 ms\", queue = \"50 packets\"";

#[test]
fn a_dumbbell_is_the_same_as_its_links() {
    let flows = "[[flow]]\nname = \"f*\"\ncount = 2\nfrom = \"sender*\"\nto = \"receiver*\"\n";
    let short = read(&format!("topology = {{ dumbbell = {{ pairs = 2, {MAIN} }} }}"), flows);
    let access = "rate = \"1 Gbit/s\"\ndelay = \"1 ms\"\nqueue = \"10000 packets\"\n";
    let main = MAIN.replace(", ", "\n");
    let long = format!(
        "[[link]]\nname = \"bottleneck\"\nbetween = [\"left\", \"right\"]\n{main}\n\
         [[link]]\nname = \"in*\"\ncount = 2\nbetween = [\"sender*\", \"left\"]\n{access}\
         [[link]]\nname = \"out*\"\ncount = 2\nbetween = [\"right\", \"receiver*\"]\n{access}"
    );
    let [short, long] = [short, read(&long, flows)].map(|it| it.expect("nothing is wrong"));
    assert_eq!(
        listed(&short),
        [
            "bottleneck left right",
            "in1 sender1 left",
            "out1 right receiver1",
            "in2 sender2 left",
            "out2 right receiver2"
        ]
    );
    let profile = |scenario: &Scenario, name: &str| {
        let link = scenario.links.iter().find(|link| &*link.name == name).expect("it is there");
        link.up.profile().clone()
    };
    for name in ["bottleneck", "in2", "out1"] {
        assert_eq!(profile(&short, name), profile(&long, name));
    }
    let goodput = |scenario: &Scenario| {
        let run = scenario.run(Seed(1), RunOptions::default()).expect("it runs");
        (run.totals.sent, run.totals.delivered)
    };
    let (sent, delivered) = goodput(&short);
    assert!(sent > 10_000 && delivered > 10_000, "{sent} {delivered}");
}

#[test]
fn queues_in_bandwidth_delay_products() {
    // 100 Mbit/s times 2 (10 + 2 · 3) ms.
    let main = MAIN.replace("50 packets", "0.5 bdp");
    let access = "access = { delay = \"3 ms\", rate = \"300 Mbit/s\" }";
    let text = format!("topology = {{ dumbbell = {{ {main}, {access} }} }}");
    let read_it = read(&text, &flow("sender1", "receiver1")).expect("nothing is wrong");
    assert_eq!(read_it.links[0].up.profile().queue, Limit::Bytes(Bytes(200_000)));
    assert_eq!(read_it.links[1].up.profile().rate.base, Rate::mbit(300));
    // Three hops of 10 ms, and the default access.
    let text = format!("topology = {{ parking_lot = {{ hops = 3, {main} }} }}");
    let read_it = read(&text, &flow("sender", "receiver")).expect("nothing is wrong");
    assert_eq!(read_it.links[0].up.profile().queue, Limit::Bytes(Bytes(400_000)));
}

#[test]
fn a_parking_lot_has_cross_traffic_at_each_hop() {
    let text = format!("topology = {{ parking_lot = {{ hops = 2, {MAIN} }} }}");
    let flows = "[[flow]]\nname = \"long\"\nfrom = \"sender\"\nto = \"receiver\"\n\
                 [[flow]]\nname = \"cross*\"\ncount = 2\nfrom = \"sender*\"\nto = \"receiver*\"\n";
    let scenario = read(&text, flows).expect("nothing is wrong");
    assert_eq!(
        listed(&scenario),
        [
            "hop1 router1 router2",
            "hop2 router2 router3",
            "in sender router1",
            "out router3 receiver",
            "in1 sender1 router1",
            "out1 router2 receiver1",
            "in2 sender2 router2",
            "out2 router3 receiver2"
        ]
    );
    scenario.build(Seed(1)).expect("every flow has a route");
}

#[test]
fn transit_stub_is_that_of_gt_itm_and_connected() {
    let flows = "[[flow]]\nname = \"f*\"\ncount = 95\nfrom = \"host*\"\nto = \"host96\"\n";
    let count = |scenario: &Scenario, prefix: &str| {
        let is_of = |name: &str| {
            let rest = name.strip_prefix(prefix).unwrap_or_default();
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
        };
        scenario.links.iter().filter(|link| is_of(&link.name)).count()
    };
    let of_seed = |seed: u64| {
        let text = format!("topology = {{ transit_stub = {{ seed = {seed} }} }}");
        read(&text, flows).expect("nothing is wrong")
    };
    let mut edges = 0;
    for seed in 1..=20 {
        let scenario = of_seed(seed);
        assert_eq!((count(&scenario, "uplink"), count(&scenario, "access")), (12, 96));
        assert!((3..=6).contains(&count(&scenario, "transit")));
        edges += count(&scenario, "stub");
        scenario.build(Seed(1)).expect("every flow has a route");
    }
    // Twelve domains of 28 pairs, a few more than .42 of them joined, since the rest is not
    // connected.
    assert!((2_800..3_100).contains(&edges), "{edges}");
    assert_eq!(listed(&of_seed(3)), listed(&of_seed(3)));
    assert_ne!(listed(&of_seed(3)), listed(&of_seed(4)));
    let wide = "topology = { transit_stub = { transits = 3, transit_nodes = 2, stubs = 1, \
                stub_nodes = 1, stub = { rate = \"5 Mbit/s\" }, transit = { delay = \"9 ms\" } } \
                }";
    let scenario = read(wide, &flow("host1", "host6")).expect("nothing is wrong");
    assert_eq!(count(&scenario, "transit"), 6, "a pair in each domain, and three between them");
    assert_eq!(scenario.links[0].up.profile().delay, Span::from_millis(9));
    scenario.build(Seed(1)).expect("every flow has a route");
}

#[test]
fn hosts_of_transit_stub_are_at_random_routers() {
    let links = |keys: &str, to: &str| {
        let text = format!("topology = {{ transit_stub = {{ {keys} }} }}");
        let scenario = read(&text, &flow("host1", to)).expect("nothing is wrong");
        scenario.build(Seed(1)).expect("the flow has a route");
        listed(&scenario)
    };
    let is_access = |link: &String| link.starts_with("access");
    let (access, others): (Vec<_>, Vec<_>) =
        links("hosts = 1000", "host1000").into_iter().partition(is_access);
    assert_eq!(access.len(), 1_000);
    let without: Vec<String> =
        links("", "host96").into_iter().filter(|link| !is_access(link)).collect();
    assert_eq!(others, without, "the links of the routers are the same");
    let routers: std::collections::BTreeSet<&str> =
        access.iter().filter_map(|link| link.split(' ').nth(2)).collect();
    assert_eq!(routers.len(), 100, "a router of 100 is missed by 1000 with 4e-5");
    let transit = access.iter().filter(|link| link.contains(" t")).count();
    assert!((20..=60).contains(&transit), "{transit} of 1000 at 4 routers of 100");
    assert_ne!(access, links("hosts = 1000, seed = 2", "host1000")[..]);
}

#[test]
fn fabrics_of_data_centres() {
    let text = format!(
        "topology = {{ leaf_spine = {{ leaves = 2, spines = 3, hosts = 2, {MAIN}, aqm = {{ kind = \
         \"step\", threshold = \"20 packets\" }} }} }}"
    );
    let scenario = read(&text, &flow("host1", "host4")).expect("nothing is wrong");
    assert_eq!(scenario.links.len(), 2 * 5);
    let step = Aqm::Step(Threshold::Backlog(Limit::Packets(20)));
    assert!(scenario.links.iter().all(|link| link.up.profile().aqm == step));
    let text = format!("topology = {{ fat_tree = {{ ports = 4, {MAIN} }} }}");
    let scenario = read(&text, &flow("host1", "host16")).expect("nothing is wrong");
    // Sixteen hosts, and as many links in each of the two layers above.
    assert_eq!(scenario.links.len(), 48);
    let cores: std::collections::BTreeSet<&str> = scenario
        .links
        .iter()
        .filter(|link| link.name.starts_with("core"))
        .map(|link| &*link.between[1])
        .collect();
    assert_eq!(cores.into_iter().collect::<Vec<_>>(), ["core1", "core2", "core3", "core4"]);
}

const FABRIC: &str = "topology = { leaf_spine = { leaves = 2, spines = 4, hosts = 1, rate = \"1 \
                      Gbit/s\", delay = \"1 ms\", queue = \"100 packets\" } }\nwarmup = \"1 s\"";
/// Flows of a datagram each 10 ms.
const CONSTANT: &str = "[[flow]]\nname = \"f*\"\ncount = 40\nfrom = \"host1\"\nto = \
                        \"host2\"\ntransport = \"udp\"\nrate = \"100 kbit/s\"\npacket = \"125 \
                        B\"\n";

/// The number of those flows over each spine.
fn spread(scenario: &Scenario, seed: u64) -> Vec<f64> {
    let run = scenario.run(Seed(seed), RunOptions::default()).expect("it runs");
    let flows = |spine: u32| {
        let found = run.measure("link", &format!("fabric1-{spine}/up"), "throughput");
        (found.expect("every link has a throughput") / 0.1).round()
    };
    (1..=4).map(flows).collect()
}

/// Each pair of flows shares a route with a probability of a fourth, independent of other pairs.
#[test]
fn collisions_of_equal_cost_routes_are_binomial() {
    let scenario = read(&format!("ecmp = true\n{FABRIC}"), CONSTANT).expect("nothing is wrong");
    let seeds = 25;
    let mut collisions = 0.0;
    for seed in 1..=seeds {
        let counts = spread(&scenario, seed);
        assert!((counts.iter().sum::<f64>() - 40.0).abs() < 1e-9, "{counts:?}");
        collisions += counts.iter().map(|n| n * (n - 1.0) / 2.0).sum::<f64>();
    }
    let pairs = f64::from(u32::try_from(seeds).expect("few")) * 780.0;
    let (mean, deviation) = (pairs / 4.0, (pairs * 0.25 * 0.75).sqrt());
    assert!((collisions - mean).abs() < 3.5 * deviation, "{collisions}, not {mean} ± {deviation}");
    assert_eq!(spread(&scenario, 1), spread(&scenario, 1));
    assert_ne!(spread(&scenario, 1), spread(&scenario, 2));
}

#[test]
fn without_ecmp_all_flows_take_the_first_route() {
    let scenario = read(FABRIC, CONSTANT).expect("nothing is wrong");
    assert_eq!(spread(&scenario, 1), [40.0, 0.0, 0.0, 0.0]);
}

/// Subflows have ports of their own.
#[test]
fn subflows_take_equal_routes_of_their_own() {
    let flow = "[[flow]]\nname = \"f\"\nfrom = \"host1\"\nto = \"host2\"\nsubflows = 8\n";
    let scenario = read(&format!("ecmp = true\n{FABRIC}"), flow).expect("nothing is wrong");
    let run = scenario.run(Seed(1), RunOptions::default()).expect("it runs");
    for way in ["up", "down"] {
        let used = (1..=4).filter(|spine| {
            let link = format!("fabric1-{spine}/{way}");
            run.measure("link", &link, "throughput").is_some_and(|rate| rate > 0.0)
        });
        assert!(used.count() >= 3, "{way}");
    }
}

const PHONE: &str = "window = [{ name = \"before\", from = \"500 ms\", to = \"1 s\" }, { name = \
                     \"after\", from = \"1.1 s\", to = \"2 s\" }]\n\
                     [[link]]\nname = \"wifi\"\nbetween = [\"server\", \"phone\"]\nrate = \"20 \
                     Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"50 packets\"\n\
                     [[link]]\nname = \"mobile\"\nbetween = [\"server\", \"phone\"]\nrate = \"10 \
                     Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"50 packets\"\n";

/// The throughput of wifi and mobile in a window.
fn rates(scenario: &Scenario, window: &str) -> [f64; 2] {
    let run = scenario.run(Seed(1), RunOptions::default()).expect("it runs");
    ["wifi/up", "mobile/up"]
        .map(|link| run.measure_in(window, "link", link, "throughput").expect("every link has one"))
}

#[test]
fn a_flow_is_handed_over() {
    let handed = |more: &str| {
        let flow = format!(
            "{}{more}\nreroute = [{{ at = \"1 s\", via = [\"mobile\"] }}]\n",
            flow("server", "phone")
        );
        read(PHONE, &flow).expect("nothing is wrong")
    };
    for more in [
        "via = [\"wifi\"]",
        "transport = \"udp\"\nrate = \"9 Mbit/s\"",
        "transport = \"ptcp\"\nvia = [\"wifi\"]",
        "transport = \"sockets\"\nvia = [\"wifi\"]",
    ] {
        let scenario = handed(more);
        let ([wifi, none], [late, mobile]) =
            (rates(&scenario, "before"), rates(&scenario, "after"));
        assert!(wifi > 8.0 && none <= 0.0, "{more}: {wifi} {none}");
        assert!(late <= 0.0 && mobile > 8.0, "{more}: {late} {mobile}");
    }
}

#[test]
fn a_trace_of_routes_is_the_same_as_a_list() {
    let folder = std::env::temp_dir().join(format!("anabranch-routes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let trace = folder.join("handover.txt");
    std::fs::write(&trace, "# time, links\n800 ms, mobile\n1.5 s, wifi\n").expect("a file");
    let with = |reroute: &str| {
        let flow = format!("{}via = [\"wifi\"]\nreroute = {reroute}\n", flow("server", "phone"));
        let scenario = read(PHONE, &flow)?;
        scenario
            .run(Seed(1), RunOptions::default())
            .map(|run| run.digest)
            .map_err(|it| it.to_string())
    };
    let path = trace.display();
    let listed =
        with("[{ at = \"800 ms\", via = [\"mobile\"] }, { at = \"1.5 s\", via = [\"wifi\"] }]");
    assert_eq!(with(&format!("{{ trace = \"{path}\" }}")), listed);
    assert_ne!(with("[]"), listed);
    for (text, wanted) in [
        ("1 s, mobil\n", ":1: 'mobil' is not known here; did you mean 'mobile'?"),
        ("# none\n1 s, wifi\n1 s, mobile\n", ":3: is not later than the line before"),
        ("soon, wifi\n", ":1: 'soon' is not a time"),
        ("5 s\n", ":1: wants a time and the links of a route"),
    ] {
        std::fs::write(&trace, text).expect("a file");
        let error = with(&format!("{{ trace = \"{path}\" }}")).expect_err(text);
        assert!(
            error.starts_with("t.toml:22: flow.f.reroute.trace: ") && error.contains(wanted),
            "{error}"
        );
    }
    std::fs::remove_dir_all(&folder).expect("it was there");
}

#[test]
fn one_subflow_of_several_is_handed_over() {
    let flow = format!(
        "{}subflows = [[\"wifi\"], [\"wifi\"]]\nreroute = [{{ at = \"1 s\", via = [\"mobile\"], \
         subflow = 1 }}]\n",
        flow("server", "phone")
    );
    let scenario = read(PHONE, &flow).expect("nothing is wrong");
    assert!(rates(&scenario, "before")[1] <= 0.0);
    assert!(rates(&scenario, "after").iter().all(|rate| *rate > 5.0));
}

#[test]
fn topologies_are_set_and_swept() {
    let text = format!(
        "name = \"t\"\nduration = \"2 s\"\n[topology.dumbbell]\n{}\n[sweep]\n\
         \"topology.dumbbell.pairs\" = [1, 3]\n{}",
        MAIN.replace(", ", "\n"),
        flow("sender1", "right")
    );
    let document = Document::new(&text, "t.toml").expect("nothing is wrong");
    let settings = [Setting { key: "topology.dumbbell.rate".into(), value: "5 Mbit/s".into() }];
    let plan = Plan::new(&document, &settings, None).expect("nothing is wrong");
    let scenario = |job| plan.scenario(job);
    let scenarios: Vec<(usize, Rate)> = plan
        .jobs()
        .iter()
        .map(scenario)
        .map(|one| (one.links.len(), one.links[0].up.profile().rate.base))
        .collect();
    assert_eq!(scenarios, [(3, Rate::mbit(5)), (7, Rate::mbit(5))]);
}

#[test]
fn further_links_may_be_added() {
    let keys = format!(
        "topology = {{ dumbbell = {{ {MAIN} }} }}\n[[link]]\nname = \"detour\"\nbetween = \
         [\"left\", \"right\"]\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\nqueue = \"9 packets\"\n"
    );
    let over = format!("{}via = [\"in1\", \"detour\", \"out1\"]\n", flow("sender1", "receiver1"));
    read(&keys, &over).expect("nothing is wrong").build(Seed(1)).expect("the flow has a route");
    let twice = keys.replace("\"detour\"", "\"bottleneck\"");
    let error = read(&twice, &over).expect_err("two of a name");
    assert!(error.contains("is the name of an earlier link too"), "{error}");
}

#[test]
fn mistakes_are_named() {
    let flow = flow("sender1", "receiver1");
    for (topology, wanted) in [
        ("{ }", "t.toml:3: topology: wants one of `dumbbell`, `parking_lot`"),
        ("{ dumbell = { } }", "t.toml:3: topology.dumbell: no such key; did you mean `dumbbell`?"),
        (
            "{ dumbbell = { rtae = \"1 Mbit/s\" } }",
            "t.toml:3: topology.dumbbell.rtae: no such key; did you mean `rate`?",
        ),
        ("{ dumbbell = { pairs = 2 } }", "t.toml:3: topology.dumbbell.rate: is missing"),
        (
            "{ dumbbell = { pairs = 0, MAIN } }",
            "topology.dumbbell.pairs: wants a whole number from 1 to 1000000",
        ),
        (
            "{ dumbbell = { pairs = 600000, MAIN } }",
            "topology.dumbbell.pairs: makes 1200001 links, and a topology has up to 1000000",
        ),
        (
            "{ dumbbell = { MAIN, access = { rate = \"1 Gbps\" } } }",
            "t.toml:3: topology.dumbbell.access.rate: '1 Gbps' is not a rate",
        ),
        (
            "{ dumbbell = { MAIN, access = { rat = \"1 Gbit/s\" } } }",
            "topology.dumbbell.access.rat: no such key; did you mean `rate`?",
        ),
        (
            "{ dumbbell = { MAIN, access = { queue = \"1 bdp\" } } }",
            "topology.dumbbell.access.queue: wants a size, for example '128 KiB'",
        ),
        (
            "{ dumbbell = { rate = \"1 Mbit/s\", delay = \"1 ms\", queue = \"no bdp\" } }",
            "topology.dumbbell.queue: wants a number of bdp",
        ),
        ("{ parking_lot = { MAIN, pairs = 2 } }", "topology.parking_lot.pairs: no such key"),
        (
            "{ transit_stub = { stub_edges = 0.01 } }",
            "topology.transit_stub.stub_edges: makes no connected domain of 8 routers",
        ),
        (
            "{ transit_stub = { stub_edges = 2 } }",
            "topology.transit_stub.stub_edges: wants a number from 0 to 1",
        ),
        (
            "{ transit_stub = { stub_nodes = 2000 } }",
            "topology.transit_stub.stub_nodes: wants up to 1000",
        ),
        (
            "{ transit_stub = { hosts = 0 } }",
            "topology.transit_stub.hosts: wants a whole number from 1",
        ),
        (
            "{ transit_stub = { stubs = 50000 } }",
            "topology.transit_stub.stubs: makes 7400006 links",
        ),
        ("{ fat_tree = { MAIN, ports = 5 } }", "topology.fat_tree.ports: wants an even number"),
        (
            "{ leaf_spine = { MAIN, access = { rate = \"1 Mbit/s\" } } }",
            "topology.leaf_spine.access.delay: is missing",
        ),
    ] {
        let keys = format!("topology = {}", topology.replace("MAIN", MAIN));
        let error = read(&keys, &flow).err().unwrap_or_else(|| format!("{topology} is accepted"));
        assert!(error.contains(wanted), "{topology}\n  says   {error}\n  wanted {wanted}");
    }
    for (keys, wanted) in [
        ("ecmp = \"yes\"", "t.toml:3: ecmp: wants true or false"),
        ("relays = [\"phon\"]", "t.toml:3: relays: 'phon' is not known here"),
        ("relays = [\"phone\", \"phone\"]", "t.toml:3: relays: is named twice"),
        (
            "network = \"x.toml\"\ntopology = { dumbbell = { } }",
            "t.toml:4: topology: stands beside `network`, which has all links",
        ),
    ] {
        let keys = format!("{keys}\n{PHONE}");
        let error = read(&keys, &flow).expect_err(&keys);
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn mistakes_in_changes_of_routes_are_named() {
    for (more, wanted) in [
        ("reroute = [{ at = \"1 s\" }]", "flow.f.reroute.via: is missing"),
        ("reroute = [{ at = \"1 s\", via = [] }]", "flow.f.reroute.via: wants at least one link"),
        (
            "reroute = [{ at = \"1 s\", via = [\"wify\"] }]",
            "flow.f.reroute.via: 'wify' is not known here; did you mean 'wifi'?",
        ),
        (
            "reroute = [{ at = \"1 s\", via = [\"wifi\"], subflow = 1 }]",
            "flow.f.reroute.subflow: is no subflow: the flow has 1, counted from 0",
        ),
        (
            "subflows = 2\nreroute = [{ at = \"1 s\", via = [\"wifi\"] }]",
            "flow.f.reroute: wants a `subflow`, counted from 0",
        ),
        (
            "reroute = [{ at = \"1 s\", via = [\"wifi\"] }, { at = \"0 s\", via = [\"wifi\"] }]",
            "flow.f.reroute.at: is earlier than the entry before it",
        ),
        ("reroute = { trace = \"no-such-file\" }", "flow.f.reroute.trace: no-such-file: No such"),
    ] {
        let error = read(PHONE, &format!("{}{more}\n", flow("server", "phone"))).expect_err(more);
        assert!(error.contains(wanted), "{more}\n  says   {error}\n  wanted {wanted}");
    }
}
