//! Flows through pairs of background gateways.

use std::fmt::Write as _;

use scenario::file::Through;
use scenario::watch::Capture;
use scenario::{Document, Run, RunOptions, Scenario, Setting};

/// Two hosts, a gateway before each, a direct path between these and one through a router.
const PAIR: &str = r#"name = "pair"
duration = "20 s"
warmup = "5 s"
[[link]]
name = "home"
between = ["S1", "T1"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "1000 packets"
[[link]]
name = "t1-t3"
between = ["T1", "T3"]
rate = "10 Mbit/s"
delay = "20 ms"
queue = "40 packets"
[[link]]
name = "t1-t2"
between = ["T1", "T2"]
rate = "10 Mbit/s"
delay = "12 ms"
queue = "40 packets"
[[link]]
name = "t2-t3"
between = ["T2", "T3"]
rate = "10 Mbit/s"
delay = "12 ms"
queue = "40 packets"
[[link]]
name = "away"
between = ["T3", "R1"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "1000 packets"
[[gateway]]
name = "site"
entry = "T1"
exit = "T3"
paths = [["t1-t3"]]
[[flow]]
name = "backup"
from = "S1"
to = "R1"
gateway = "site"
controller = "reno"
"#;

/// Both paths.
const BOTH: &str = "gateway.site.paths=[[\"t1-t3\"], [\"t1-t2\", \"t2-t3\"]]";
/// A receive buffer within the pipe and its queue, and a gateway that never reduces a window.
const MILD: [&str; 2] =
    ["flow.backup.tcp={ receive_buffer = \"90 kB\" }", "gateway.site.controller={ beta = 0 }"];

fn read(text: &str, settings: &[&str]) -> Scenario {
    let settings: Vec<Setting> =
        settings.iter().map(|text| Setting::parse(text).expect("it is one")).collect();
    let document = Document::new(text, "gateways.toml").unwrap_or_else(|error| panic!("{error}"));
    document.scenario(&settings).unwrap_or_else(|error| panic!("{error}"))
}

fn run(text: &str, settings: &[&str]) -> Run {
    let scenario = read(text, settings);
    scenario.run(scenario.seed, RunOptions { series: true }).expect("it runs")
}

fn goodput(run: &Run) -> f64 {
    run.measure("all", "", "goodput").expect("it is measured")
}

fn of_flow(run: &Run, flow: &str, name: &str) -> f64 {
    run.measure("flow", flow, name).unwrap_or_else(|| panic!("{name} of {flow} is measured"))
}

#[test]
fn one_path_carries_what_a_direct_connection_does() {
    let [buffer, mild] = MILD;
    let direct = goodput(&run(PAIR, &[buffer, "flow.backup.gateway=off"]));
    let through = goodput(&run(PAIR, &[buffer, mild, "gateway.site.overhead=0 B"]));
    assert!((through / direct - 1.0).abs() < 0.02, "{through} beside {direct}");
    // A datagram of IPv4 and UDP, and ten bytes of Harp's.
    let tunnelled = goodput(&run(PAIR, &MILD));
    let share = 1_500.0 / 1_538.0;
    assert!((tunnelled / through / share - 1.0).abs() < 0.01, "{tunnelled} beside {through}");
}

#[test]
fn slow_start_ends_before_the_queue_is_full() {
    for seed in 1..=4 {
        let run = run(PAIR, &["duration=5 s", "warmup=0 s", &format!("seed={seed}")]);
        assert!(run.measure("link", "t1-t3/up", "drops").unwrap() < 1.0, "seed {seed}");
        assert!(of_flow(&run, "backup", "timeouts") < 1.0, "seed {seed}");
        assert!(goodput(&run) > 6.0, "seed {seed}: {}", goodput(&run));
    }
}

#[test]
fn two_paths_carry_twice_as_much() {
    let [_, mild] = MILD;
    let one = goodput(&run(PAIR, &MILD));
    let run = run(PAIR, &[BOTH, mild, "flow.backup.tcp={ receive_buffer = \"180 kB\" }"]);
    let both = goodput(&run);
    assert!((both / one - 2.0).abs() < 0.02, "{both} beside {one}");
    assert!(of_flow(&run, "backup", "retransmissions") < 1.0, "segments come in order");
}

#[test]
fn what_is_lost_on_the_paths_arrives_in_the_end() {
    for (profile, loss) in [("modern", "loss = 0.002"), ("paper", "loss = 0.002"), ("modern", "")] {
        let lossy = format!("queue = \"40 packets\"\n{loss}");
        let text = PAIR.replace("queue = \"40 packets\"", &lossy);
        let profile = format!("gateway.site.profile={profile}");
        let source = "flow.backup.source={ file = \"2 MB\" }";
        let scenario = read(&text, &[BOTH, &profile, source, "duration=200 s", "warmup=0 s"]);
        // Of connections of this size, one in eight counts past the end of 32 bits.
        for seed in 1..=4 {
            let run = scenario.run(units::Seed(seed), RunOptions::default()).expect("it runs");
            let sizes: Vec<u64> = run.requests.iter().map(|request| request.bytes.0).collect();
            assert_eq!(sizes, [2_000_000], "seed {seed}, {profile}, {loss}");
            let arrived = goodput(&run) * 200.0 / 8.0;
            assert!((arrived - 2.0).abs() < 1e-9, "{arrived} MB");
        }
    }
}

/// The pair with flows in both directions.
fn both_directions() -> String {
    format!("{PAIR}[[flow]]\nname = \"restore\"\nfrom = \"R1\"\nto = \"S1\"\ngateway = \"site\"\n")
}

#[test]
fn flows_cross_in_both_directions() {
    let text = both_directions();
    let scenario = read(&text, &[]);
    let through = |is_reverse| Some(Through { gateway: 0, is_reverse });
    assert_eq!(scenario.flows[0].gateway, through(false));
    assert_eq!(scenario.flows[1].gateway, through(true), "R1 is nearer to the exit");
    let run = run(&text, &[]);
    for (flow, link) in [("backup", "t1-t3/up"), ("restore", "t1-t3/down")] {
        let goodput = of_flow(&run, flow, "goodput");
        let throughput = run.measure("link", link, "throughput").unwrap();
        assert!(goodput > 1.0 && goodput < throughput, "{flow}: {goodput}, {link}: {throughput}");
    }
    let series = run.series.expect("it was asked for");
    let names: Vec<&str> = series.paths.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["site/0/up", "site/0/down"]);
    for (name, path) in &series.paths {
        let last = |values: &[f64]| *values.last().expect("there are samples");
        let all = [&path.window, &path.in_flight, &path.rtt, &path.choked];
        assert!(all.iter().all(|values| values.len() == series.at.len()), "{name}");
        assert!(last(&path.window) > 10_000.0 && last(&path.in_flight) > 10_000.0, "{name}");
        let rtt = last(&path.rtt);
        assert!(rtt > 40.0 && rtt < 100.0, "{name}: {rtt} ms");
        assert!(last(&path.choked).abs() < f64::EPSILON, "the direct path is never choked alone");
    }
}

#[test]
fn paths_have_samples_for_each_direction_that_flows_send_in() {
    let names = |text: &str, settings: &[&str]| -> Vec<String> {
        let series = run(text, settings).series.expect("it was asked for");
        series.paths.iter().map(|(name, _)| name.to_string()).collect()
    };
    assert_eq!(names(PAIR, &[BOTH, "duration=6 s"]), ["site/0/up", "site/1/up"]);
    assert!(names(PAIR, &["flow.backup.gateway=off", "duration=6 s"]).is_empty());
}

#[test]
fn requests_go_over_many_connections() {
    for (connections, most) in [("\"each\"", 40), ("6", 6)] {
        let source = format!(
            "flow.backup.source={{ requests = {{ size = \"20 kB\", count = 20, objects = 2, \
             connections = {connections} }} }}"
        );
        let scenario = read(PAIR, &[BOTH, &source, "warmup=0 s", "duration=60 s"]);
        let built = scenario.build(scenario.seed).expect("it is built");
        assert_eq!(built.connections.len(), most);
        let run = scenario.run(scenario.seed, RunOptions::default()).expect("it runs");
        assert_eq!(run.requests.len(), 20, "{connections}");
        assert!(run.requests.iter().all(|page| page.bytes.0 == 40_000), "{connections}");
        let slowdown = of_flow(&run, "backup", "slowdown");
        assert!(slowdown > 1.0, "{connections}: {slowdown}");
    }
}

#[test]
fn flows_arrive_and_end() {
    let text = PAIR.replace(
        "name = \"backup\"",
        "name = \"backup*\"\ncount = 200\nstart = { poisson = \"20 per s\" }\n\
         source = { file = \"10 kB\" }",
    );
    let run = run(&text, &[BOTH, "duration=25 s", "warmup=0 s"]);
    assert_eq!(run.measure("group", "backup", "completed"), Some(200.0));
    assert!((goodput(&run) * 25.0 / 8.0 - 2.0).abs() < 1e-9, "200 files of 10 kB");
}

#[test]
fn a_node_has_two_gateways_and_the_end_of_a_flow() {
    // A line of gateways, each with a host: T2 is an exit, an entry, and a host of its own.
    let mut text = String::from("name = \"line\"\nduration = \"10 s\"\nwarmup = \"3 s\"\n");
    let links = [("T1", "a"), ("a", "T2"), ("T2", "b"), ("b", "T3")];
    let hosts = [("H1", "T1"), ("H2", "T2"), ("H3", "T3"), ("X", "b")];
    for (rate, list) in [(10, links), (100, hosts)] {
        for (from, to) in list {
            writeln!(
                text,
                "[[link]]\nname = \"{from}-{to}\"\nbetween = [\"{from}\", \"{to}\"]\n\
                 rate = \"{rate} Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"50 packets\""
            )
            .expect("memory takes all");
        }
    }
    text += r#"
[[gateway]]
name = "first"
entry = "T1"
exit = "T2"
[[gateway]]
name = "second"
entry = "T2"
exit = "T3"
[[flow]]
name = "one"
from = "H1"
to = "H2"
gateway = "first"
[[flow]]
name = "two"
from = "H2"
to = "H3"
gateway = "second"
[[flow]]
name = "own"
from = "T2"
to = "X"
source = { stream = "1 Mbit/s" }
"#;
    let run = run(&text, &[]);
    for (flow, least, most) in [("one", 2.0, 10.0), ("two", 2.0, 9.0), ("own", 0.99, 1.01)] {
        let goodput = of_flow(&run, flow, "goodput");
        assert!(goodput > least && goodput < most, "{flow}: {goodput} Mbit/s");
    }
}

#[test]
fn an_entry_stands_for_several_pairs() {
    let mut text = PAIR.replace("\"S1\"", "\"S*\"").replace("\"R1\"", "\"R*\"");
    for name in ["home", "t1-t3", "t1-t2", "t2-t3", "away", "site", "backup"] {
        text =
            text.replace(&format!("name = \"{name}\""), &format!("name = \"{name}-*\"\ncount = 3"));
    }
    for node in ["T1", "T2", "T3"] {
        text = text.replace(&format!("\"{node}\""), &format!("\"{node}-*\""));
    }
    text = text
        .replace("paths = [[\"t1-t3\"]]", "paths = [[\"t1-t3-*\"], [\"t1-t2-*\", \"t2-t3-*\"]]");
    text = text.replace("gateway = \"site\"", "gateway = \"site-*\"");
    let scenario = read(&text, &["gateway.site-.coupling=joint"]);
    let names: Vec<&str> = scenario.gateways.iter().map(|spec| &*spec.name).collect();
    assert_eq!(names, ["site-1", "site-2", "site-3"]);
    for (number, flow) in scenario.flows.iter().enumerate() {
        assert_eq!(flow.gateway, Some(Through { gateway: number, is_reverse: false }));
        let spec = &scenario.gateways[number];
        assert_eq!(&*spec.ends[1], format!("T3-{}", number + 1));
        assert_eq!(spec.paths[1][1], format!("t2-t3-{}", number + 1));
    }
    let table = scenario.gateway_paths().expect("there are gateways").to_string();
    assert!(table.contains("modern, joint, by connection"), "{table}");
    assert!(table.contains("t1-t2-3, t2-t3-3"), "{table}");
}

#[test]
fn relays_make_the_paths_that_their_links_would() {
    // A relay T4 beside the way through T2, with a link of its own, and a longer way between them.
    let relay = r#"[[link]]
name = "relay"
between = ["T2", "T4"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "40 packets"
[[link]]
name = "detour"
between = ["T4", "T5"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "40 packets"
[[link]]
name = "slower"
between = ["T1", "T2"]
rate = "100 Mbit/s"
delay = "13 ms"
queue = "40 packets"
[[gateway]]"#;
    let listed = PAIR.replace(
        "paths = [[\"t1-t3\"]]",
        "paths = [[\"t1-t3\"], [\"t1-t2\", \"t2-t3\"], \
         [\"t1-t2\", \"relay\", \"relay\", \"t2-t3\"]]",
    );
    let listed = listed.replace("[[gateway]]", relay);
    let relayed = PAIR.replace("paths = [[\"t1-t3\"]]", "relays = [\"T2\", \"T4\"]");
    let relayed = relayed.replace("[[gateway]]", relay);
    let [listed, relayed] = [read(&listed, &[]), read(&relayed, &[])];
    assert_eq!(relayed.gateways[0].paths[0], Vec::<String>::new(), "the shortest route");
    assert_eq!(relayed.gateways[0].paths[1..], listed.gateways[0].paths[1..]);
    let [run, same] =
        [relayed, listed].map(|it| it.run(it.seed, RunOptions::default()).expect("it runs"));
    assert_eq!(run.digest, same.digest);
    let busy = run.measure("link", "relay/up", "throughput").expect("it is measured");
    let back = run.measure("link", "relay/down", "throughput").expect("it is measured");
    assert!(busy > 1.0 && (back / busy - 1.0).abs() < 0.01, "{busy} {back}");
}

#[test]
fn keys_of_gateways_are_set_and_swept() {
    let sweep = "[sweep]\n\"gateway.site.coupling\" = [\"joint\", \"adaptive\"]\n[[link]]";
    let document = Document::new(&PAIR.replacen("[[link]]", sweep, 1), "swept.toml").unwrap();
    assert_eq!(document.points().len(), 2);
    let set = [
        "gateway.site.profile=paper",
        "gateway.site.sharing=site",
        "gateway.site.reorder=2",
        "gateway.site.admission=off",
        "gateway.site.choke=false",
        "gateway.site.hold=true",
        "gateway.site.overhead=0 B",
        "gateway.site.paths=2",
        "gateway.site.controller={ alpha = 0.1, delta = 0.2, needed = 20, memory = \"off\", \
         threshold_most = \"5 ms\", slow_start = true }",
    ];
    let scenario = read(PAIR, &set);
    let spec = &scenario.gateways[0];
    let config = harp::Config {
        sharing: harp::Sharing::Site,
        reorder: 2.0,
        admission: None,
        holds: true,
        ..harp::Config::paper(2)
    };
    let mut controller = config.controller;
    (controller.alpha, controller.needed, controller.lateness.share) = (0.1, 20.0, 0.2);
    (controller.memory, controller.slow_start, controller.chokes) = (None, true, false);
    controller.lateness.most = Some(units::Span::from_millis(5));
    assert_eq!(spec.config, harp::Config { controller, ..config });
    assert_eq!((spec.profile, spec.overhead), ("paper", Some(units::Bytes(0))));
}

#[test]
fn losses_and_delays_are_those_of_the_whole_way() {
    let lossy = PAIR.replacen("delay = \"20 ms\"", "delay = \"20 ms\"\nloss = 0.02", 1);
    let settings =
        ["measure=[\"delay\"]", "flow.backup.source={ stream = \"500 kbit/s\" }", "duration=60 s"];
    let lost = |seed| {
        let seed = format!("seed={seed}");
        let settings = [&settings[..], &[&seed]].concat();
        of_flow(&run(&lossy, &settings), "backup", "loss")
    };
    let mean = (1..=8).map(lost).sum::<f64>() / 8.0;
    assert!(mean > 0.016 && mean < 0.024, "{mean}");
    let direct = [&settings[..], &["flow.backup.gateway=off"]].concat();
    let [direct, through] = [&direct[..], &settings[..]].map(|settings| {
        let run = run(PAIR, settings);
        ["delay_p50", "delay_max"].map(|name| of_flow(&run, "backup", name))
    });
    // 22 ms of propagation; packets of 677 bytes in the mean, and the jitter of the sender.
    for (direct, through) in direct.into_iter().zip(through) {
        assert!(direct > 22.0 && through > direct && through < direct + 5.0, "{direct}, {through}");
    }
}

#[test]
fn the_ideal_counts_all_legs_and_the_tunnel() {
    let ideal = |settings: &[&str]| {
        let more = ["flow.backup.source={ file = \"1 MB\" }", "warmup=0 s"];
        let run = run(PAIR, &[settings, &more].concat());
        run.requests[0].ideal.expect("it is known")
    };
    let direct = ideal(&["flow.backup.gateway=off"]);
    let through = ideal(&[]);
    // 38 bytes more for the SYN and each packet of data, 29 for the answer to the SYN.
    let packets = 1_000_000_f64 / 1_448.0;
    let more = (38.0 * (1.0 + packets.ceil()) + 29.0) * 8.0 / 10e6;
    assert!((through - direct - more).abs() < 1e-9, "{through} - {direct} is not {more}");
    assert!((ideal(&["gateway.site.overhead=0 B"]) - direct).abs() < 1e-9);
    // Two paths of equal rates.
    let both = ideal(&[BOTH]);
    assert!(both < 0.6 * through && both > 0.5 * through, "{both} of {through}");
}

#[test]
fn marks_pass_through_the_tunnel() {
    let text = PAIR.replacen(
        "queue = \"40 packets\"",
        "queue = \"400 packets\"\naqm = { kind = \"step\", threshold = \"3 packets\" }",
        1,
    );
    let run = run(&text, &["flow.backup.tcp={ ecn = true }"]);
    let marks = of_flow(&run, "backup", "marks");
    assert!(marks > 0.0, "{marks}");
    assert!((run.measure("link", "t1-t3/up", "marks").unwrap() - marks).abs() < 20.0);
}

#[test]
fn a_mark_counts_as_a_late_packet() {
    // Marked from 10 packets on, which is 12 ms, and late from 30 ms on.
    let text = PAIR.replacen(
        "queue = \"40 packets\"",
        "queue = \"400 packets\"\naqm = { kind = \"step\", threshold = \"10 packets\" }",
        1,
    );
    let queue = |mark: &str| {
        let thresholds = "threshold_least = \"30 ms\", threshold_most = \"30 ms\"";
        let controller = format!("gateway.site.controller={{ {thresholds}{mark} }}");
        // The host itself does not slow down: its window is what the gateway says.
        let host = "flow.backup.tcp={ ecn = true }";
        let run = run(&text, &[host, &controller, "flow.backup.controller=fast(alpha=400)"]);
        run.measure("link", "t1-t3/up", "queue_time").expect("it is measured")
    };
    let (heeded, ignored) = (queue(""), queue(", mark = 0"));
    assert!(heeded < 15.0, "{heeded} ms");
    assert!(ignored > 1.4 * heeded, "{ignored} ms without marks, {heeded} ms with them");
}

#[test]
fn traces_change_nothing_and_show_tunnels() {
    let scenario = read(PAIR, &[BOTH, "duration=6 s"]);
    let plain = scenario.run(scenario.seed, RunOptions::default()).expect("it runs");
    let mut octets = Vec::new();
    let built = scenario.build(scenario.seed).expect("it is built");
    let mut capture = Capture::new(&mut octets, &built).expect("memory takes all");
    let traced = scenario.run_traced(scenario.seed, RunOptions::default(), &mut capture);
    assert_eq!(traced.expect("it runs").digest, plain.digest);
    capture.finish().expect("memory takes all");

    let word = |at: usize| u32::from_be_bytes(octets[at..at + 4].try_into().unwrap()) as usize;
    let [mut data, mut returned, mut reports, mut plain] = [0; 4];
    let mut at = 24;
    while at < octets.len() {
        let (captured, original) = (word(at + 8), word(at + 12));
        let packet = &octets[at + 16..at + 16 + captured];
        at += 16 + captured;
        if packet[9] == 6 {
            plain += 1;
            continue;
        }
        assert_eq!((packet[9], &packet[20..24]), (17, &[16, 181, 16, 181][..]), "UDP, our port");
        let length = usize::from(u16::from_be_bytes([packet[24], packet[25]]));
        assert_eq!(length + 20, original);
        let (header, inner) = wire::harp::parse(&packet[28..]).expect("it is a message");
        match header {
            wire::harp::Header::Data(stamp) => {
                assert!(stamp.path < 2);
                data += 1;
            }
            wire::harp::Header::Return => returned += 1,
            wire::harp::Header::Probe(_) => {}
            wire::harp::Header::Report(flow, _) => {
                assert_eq!(flow, 0);
                reports += 1;
            }
        }
        if !inner.is_empty() {
            let length = usize::from(u16::from_be_bytes([inner[2], inner[3]]));
            let before = packet.len() - inner.len();
            assert_eq!((inner[0], inner[9], length + before), (0x45, 6, original), "TCP inside");
        }
    }
    assert!(data > 100 && returned > 50 && reports > 10, "{data}, {returned}, {reports}");
    assert!(plain >= data, "what the sender sent is there too: {plain}, {data}");
}

#[test]
fn the_window_of_a_receiver_follows_its_times() {
    let text = PAIR.replace("gateway = \"site\"\n", "").replace(
        "warmup = \"5 s\"",
        "warmup = \"5 s\"\nwindow = [{ name = \"ten\", from = \"2 s\", to = \"6 s\" }, \
         { name = \"four\", from = \"7 s\", to = \"11 s\" }, \
         { name = \"twenty\", from = \"12 s\", to = \"16 s\" }]",
    );
    let run = run(
        &text,
        &[
            "flow.backup.tcp={ delayed_ack = \"off\", receive_window = [[\"0 s\", \"14480 B\"], \
             [\"6 s\", \"5792 B\"], [\"11 s\", \"28960 B\"]] }",
            "flow.backup.jitter=off",
        ],
    );
    // 44 ms of propagation, and the time on the wire of a packet and of its acknowledgement.
    let rtt = 0.044 + (1_500.0 + 52.0) * 8.0 * (1.0 / 10e6 + 2.0 / 100e6);
    for (window, packets) in [("ten", 10.0), ("four", 4.0), ("twenty", 20.0)] {
        let goodput = run.measure_in(window, "flow", "backup", "goodput").unwrap();
        let wanted = packets * 1_448.0 * 8.0 / rtt / 1e6;
        assert!((goodput / wanted - 1.0).abs() < 0.01, "{window}: {goodput} of {wanted}");
    }
}

/// The text to replace, its replacement, and the required parts of the message.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    ("gateway = \"site\"", "gateway = \"sit\"", &[":43", "flow.backup.gateway", "'site'"]),
    ("gateway = \"site\"", "gateway = 3", &[":43", "flow.backup.gateway", "a string"]),
    ("entry = \"T1\"\n", "", &["gateway.site.entry", "is missing"]),
    ("entry = \"T1\"", "entry = \"T9\"", &[":36", "gateway.site.entry", "'T1'"]),
    ("exit = \"T3\"", "exit = \"T1\"", &[":37", "gateway.site.exit", "two nodes"]),
    ("exit = \"T3\"", "exits = \"T3\"", &[":37", "exits", "did you mean `exit`"]),
    ("name = \"site\"", "name = \"the site\"", &[":35", "gateway", "letters, digits"]),
    ("name = \"site\"", "name = \"off\"", &[":35", "without gateways", "another name"]),
    (
        "[[flow]]",
        "[[gateway]]\nname = \"site\"\nentry = \"T1\"\nexit = \"T2\"\n[[flow]]",
        &[":40", "earlier gateway"],
    ),
    ("[[\"t1-t3\"]]", "[[\"t1-t9\"]]", &[":38", "gateway.site.paths", "t1-t9"]),
    (
        "[[\"t1-t3\"]]",
        "[[\"t1-t2\"]]",
        &[":38", "gateway.site.paths", "from T1 to T3", "ends at T2", "list all links"],
    ),
    (
        "[[\"t1-t3\"]]",
        "[[\"t1-t2\", \"away\"]]",
        &["gateway.site.paths", "`away` does not begin at T2"],
    ),
    ("[[\"t1-t3\"]]", "[[\"t1-t3/down\"]]", &["gateway.site.paths", "does not begin at T1"]),
    ("[[\"t1-t3\"]]", "[[]]", &["gateway.site.paths", "ends at T1"]),
    ("[[\"t1-t3\"]]", "[]", &["gateway.site.paths", "1 to 8 paths"]),
    ("[[\"t1-t3\"]]", "0", &["gateway.site.paths", "1 to 8 paths"]),
    ("[[\"t1-t3\"]]", "9", &["gateway.site.paths", "1 to 8 paths"]),
    ("[[\"t1-t3\"]]", "\"t1-t3\"", &["gateway.site.paths", "a list"]),
    (
        "exit = \"T3\"",
        "exit = \"T3\"\nrelays = [\"T2\"]",
        &[":38", "gateway.site.relays", "exclude each other"],
    ),
    ("paths = [[\"t1-t3\"]]", "relays = []", &["gateway.site.relays", "1 to 7"]),
    ("paths = [[\"t1-t3\"]]", "relays = [\"T1\"]", &["gateway.site.relays", "an end of the pair"]),
    ("paths = [[\"t1-t3\"]]", "relays = [\"T8\"]", &[":38", "gateway.site.relays", "'T1'"]),
    (
        "exit = \"T3\"",
        "exit = \"T3\"\nprofile = \"old\"",
        &["gateway.site.profile", "modern, paper"],
    ),
    ("exit = \"T3\"", "exit = \"T3\"\ncoupling = \"join\"", &["site.coupling", "'joint'"]),
    ("exit = \"T3\"", "exit = \"T3\"\nsharing = \"sites\"", &["site.sharing", "'site'"]),
    ("exit = \"T3\"", "exit = \"T3\"\nreorder = -1", &["site.reorder", "0 or more"]),
    ("exit = \"T3\"", "exit = \"T3\"\nadmission = 0.5", &["site.admission", "\"off\""]),
    ("exit = \"T3\"", "exit = \"T3\"\nchoke = 1", &["site.choke", "true or false"]),
    ("exit = \"T3\"", "exit = \"T3\"\noverhead = \"2 kB\"", &["site.overhead", "1000 bytes"]),
    (
        "[[flow]]",
        "[gateway.controller]\nalhpa = 1\n[[flow]]",
        &[":40", "gateway.site.controller.alhpa", "did you mean `alpha`"],
    ),
    ("[[flow]]", "[gateway.controller]\nbeta = 2\n[[flow]]", &["controller.beta", "from 0 to 1"]),
    (
        "[[flow]]",
        "[gateway.controller]\nneeded = -1\n[[flow]]",
        &["controller.needed", "0 or more"],
    ),
    (
        "[[flow]]",
        "[gateway.controller]\nthreshold_most = \"1 ms\"\n[[flow]]",
        &[":40", "controller.threshold_most", "`threshold_least` up to `threshold_most`"],
    ),
    ("[[flow]]", "[gateway.controller]\nmemory = \"0 s\"\n[[flow]]", &["memory", "no time"]),
    (
        "gateway = \"site\"",
        "gateway = \"site\"\nvia = [\"t1-t3\"]",
        &[":43", "flow.backup.gateway", "`via` exclude each other", "`paths`", "\"off\""],
    ),
    ("gateway = \"site\"", "gateway = \"site\"\nsubflows = 2", &["`subflows` exclude each other"]),
    (
        "gateway = \"site\"",
        "gateway = \"site\"\nreroute = [{ at = \"1 s\", via = [\"t1-t3\"] }]",
        &["`reroute` exclude each other"],
    ),
    (
        "controller = \"reno\"",
        "transport = \"ptcp\"",
        &[":43", "flow.backup.gateway", "for TCP", "leave out the `transport`"],
    ),
    (
        "from = \"S1\"",
        "from = \"T1\"",
        &["flow.backup.gateway", "its own node T1", "a host behind the gateway"],
    ),
    ("to = \"R1\"", "to = \"T3\"", &["flow.backup.gateway", "its own node T3"]),
    (
        "from = \"S1\"",
        "from = \"T2\"",
        &[":43", "flow.backup.gateway", "T2", "1 links from the entry T1", "move it nearer"],
    ),
    (
        "from = \"S1\"\nto = \"R1\"",
        "from = [\"S1\", \"R1\"]\nto = \"T2\"",
        &["flow.backup.gateway", "a flow of its own"],
    ),
    (
        "controller = \"reno\"",
        "tcp = { receive_window = [[\"1 s\"]] }",
        &[":44", "flow.backup.tcp.receive_window", "for example"],
    ),
    (
        "controller = \"reno\"",
        "tcp = { receive_window = [[\"2 s\", \"1 kB\"], [\"2 s\", \"2 kB\"]] }",
        &["flow.backup.tcp.receive_window", "not after the time before it"],
    ),
    (
        "gateway = \"site\"",
        "transport = \"sockets\"\ntcp = { receive_window = [[\"2 s\", \"1 kB\"]] }",
        &["flow.backup.tcp.receive_window", "not for sockets"],
    ),
];

#[test]
fn mistakes_are_named() {
    for (found, replacement, wanted) in MISTAKES {
        assert!(PAIR.contains(found), "{found}");
        let text = PAIR.replacen(found, replacement, 1);
        let error = match Document::new(&text, "gateways.toml") {
            Ok(_) => panic!("{replacement}: no mistake was found"),
            Err(error) => error.to_string(),
        };
        assert!(error.starts_with("gateways.toml"), "{error}");
        for part in *wanted {
            assert!(error.contains(part), "{replacement}: '{part}' is missing in: {error}");
        }
    }
}
