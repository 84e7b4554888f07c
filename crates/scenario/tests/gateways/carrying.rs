//! What arrives through gateways: rates, both directions, losses, marks, windows.

use std::fmt::Write;

use scenario::RunOptions;
use scenario::file::Through;

use super::{BOTH, MILD, PAIR, both_directions, goodput, of_flow, read, run};

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

/// Over two paths of 20 and 24 ms packets overtake each other, and over one path they do not.
#[test]
fn what_waits_at_the_exit_is_counted() {
    let [entry, exit] = run(PAIR, &[BOTH]).gateways[0];
    assert_eq!((entry.packets, entry.waited), (0, 0), "nothing is sent there");
    assert!(exit.packets > 10_000 && exit.waited > 100, "{exit:?}");
    let waits: Vec<u64> = exit.waits.buckets().map(|(_, packets)| packets).collect();
    let gone: u64 = waits.iter().sum();
    assert!(exit.waited - gone < 100, "few still wait: {exit:?}");
    // The delays of the paths differ by 5.2 ms, and their queues by the 5 ms that make a packet
    // late.
    assert!(waits[4..].iter().sum::<u64>() * 10 < gone, "nearly all for less than 10 ms: {exit:?}");
    let [_, exit] = run(PAIR, &[]).gateways[0];
    assert_eq!(exit.waits.buckets().map(|(_, packets)| packets).sum::<u64>(), 0, "{exit:?}");
}

/// Over one path whatever is behind a gap made it a loss, which takes half of all windows: with one
/// packet in a thousand overtaken a connection had 9 of 50 Mbit/s.
#[test]
fn what_is_overtaken_on_a_path_is_no_loss() {
    let found = |text: &str| goodput(&run(text, &["duration=30 s", "warmup=10 s"]));
    let reordered = PAIR.replacen(
        "delay = \"20 ms\"",
        "delay = \"20 ms\"\nreorder = { probability = 0.002, delay = \"4 ms\" }",
        1,
    );
    let (usual, overtaken) = (found(PAIR), found(&reordered));
    assert!(overtaken > 0.95 * usual, "{overtaken} beside {usual} Mbit/s");
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
fn drains_take_a_quarter_of_the_windows_and_little_of_the_goodput() {
    let drain = "gateway.site.controller={ drain = \"10 s\" }";
    for sharing in ["gateway.site.sharing=connection", "gateway.site.sharing=site"] {
        let settings = [BOTH, sharing, "duration=60 s"];
        let without = goodput(&run(PAIR, &settings));
        let run = run(PAIR, &[BOTH, sharing, drain, "duration=60 s"]);
        let goodput = goodput(&run);
        assert!(goodput > 0.93 * without, "{sharing}: {goodput} of {without}");
        let series = run.series.expect("it was asked for");
        let window = |second: f64| {
            let place = series.at.iter().position(|at| *at >= second);
            series.paths[0].1.window[place.expect("the run is longer")]
        };
        for begin in [20.0, 30.0, 40.0] {
            let (before, within, after) =
                (window(begin - 0.1), window(begin + 0.2), window(begin + 2.0));
            assert!(within < 0.3 * before, "{sharing}: {within} of {before} at {begin} s");
            assert!(after > 0.7 * before, "{sharing}: {after} of {before} after {begin} s");
        }
    }
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
