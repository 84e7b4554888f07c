//! Requests over one connection and over many.

use scenario::Document;
use units::Seed;

use super::{close, run, scenario, text};

#[test]
fn requests_have_sizes_think_times_and_a_number() {
    let flows = "[[flow]]\nname = \"r\"\nfrom = \"server1\"\nto = \"client1\"\njitter = \"off\"\n\
                 source = { requests = { size = { uniform = { from = \"1 kB\", to = \"3 kB\" } }, \
                 request = { exponential = \"5 kB\" }, think = \"90 ms\", count = 50 } }\n";
    let run = run(&scenario("10 s", flows));
    let of = |name| run.measure("flow", "r", name).expect("it is measured");
    assert!(close(of("requests"), 50.0, 1e-9), "{}", of("requests"));
    let bytes = of("goodput") * 10e6 / 8.0;
    assert!(close(bytes, 50.0 * 2_000.0, 0.12), "{bytes}");
    // A round trip of 10 ms, and what a request and an answer take on the wire.
    assert!((0.0101..0.0130).contains(&of("completion")), "{}", of("completion"));
}

/// Twenty pages of six objects of 14480 bytes, ten packets each, over connections of each kind.
#[test]
fn requests_go_over_one_or_many_connections() {
    let run = |connections: &str| {
        let flows = format!(
            "[[flow]]\nname = \"r\"\nfrom = \"server1\"\nto = \"client1\"\njitter = \"off\"\n\
             source = {{ requests = {{ size = \"14480 B\", think = \"90 ms\", count = 20, \
             objects = 6, connections = {connections} }} }}\n"
        );
        let scenario = scenario("10 s", &flows);
        let built = scenario.build(Seed(1)).expect("there are routes");
        (run(&scenario), built.connections.len())
    };
    for (connections, number, wanted) in [
        // Two round trips of 10 ms the first time, with a window of ten packets 60 take three
        // more; then one: 60 packets in a window that has grown, 7.2 ms on the wire.
        ("\"one\"", 1, 0.0175..0.0215),
        // Two round trips for each page, and 7.2 ms on the wire.
        ("\"each\"", 120, 0.0268..0.0280),
        // The first page as with `each`, the others in one round trip.
        ("6", 6, 0.0172..0.0180),
        // Three objects one after the other on each connection.
        ("2", 2, 0.0330..0.0365),
    ] {
        let (run, made) = run(connections);
        let of = |name| run.measure("flow", "r", name).expect("it is measured");
        assert_eq!(made, number, "{connections}");
        assert!(close(of("requests"), 20.0, 1e-9), "{connections}: {}", of("requests"));
        let bytes = of("goodput") * 10e6 / 8.0;
        assert!(close(bytes, 120.0 * 14_480.0, 1e-6), "{connections}: {bytes}");
        assert!(wanted.contains(&of("completion")), "{connections}: {}", of("completion"));
        let slowdown = of("slowdown");
        assert!(slowdown >= 1.0, "{connections}: {slowdown}");
        if number >= 6 {
            assert!(slowdown < 1.02, "{connections}: {slowdown}");
        }
        assert_eq!(run.measure("subflow", "r/0", "goodput"), None, "{connections}");
    }
}

#[test]
fn requests_over_many_connections_survive_losses() {
    let flows = "[[flow]]\nname = \"r*\"\ncount = 4\nfrom = \"server1\"\nto = \"client1\"\n\
                 source = { requests = { size = { exponential = \"20 kB\" }, request = \
                 { exponential = \"2 kB\" }, think = { exponential = \"50 ms\" }, count = 50, \
                 objects = 3, connections = KIND } }\n";
    for kind in ["\"each\"", "2", "4"] {
        let lossy = text("40 s", &flows.replace("KIND", kind)).replacen(
            "queue = \"1 MB\"\n",
            "queue = \"1 MB\"\nloss = 0.02\n",
            1,
        );
        let document = Document::new(&lossy, "workloads.toml").expect("it is valid");
        let run = run(&document.scenario(&[]).expect("it is valid"));
        for number in 1..=4 {
            let flow = format!("r{number}");
            let pages = run.measure("flow", &flow, "requests");
            assert_eq!(pages, Some(50.0), "{kind}, {flow}");
            let loss = run.measure("flow", &flow, "loss").expect("it is measured");
            assert!((0.005..0.04).contains(&loss), "{kind}, {flow}: {loss}");
        }
    }
}
