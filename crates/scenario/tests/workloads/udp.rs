//! Packets of UDP.

use std::fs;

use scenario::Document;

use super::{close, run, scenario, text};

#[test]
fn udp_draws_packets_and_intervals() {
    let flows = "[[flow]]\nname = \"u\"\nfrom = \"server1\"\nto = \"client1\"\n\
                 transport = \"udp\"\n\
                 interval = { exponential = \"1 ms\" }\n\
                 packet = { uniform = { from = \"100 B\", to = \"1100 B\" } }\n";
    let run = run(&scenario("60 s", flows));
    // 600 bytes a millisecond.
    let goodput = run.measure("flow", "u", "goodput").expect("it is measured");
    assert!(close(goodput, 4.8, 0.02), "{goodput}");
}

#[test]
fn udp_sends_a_trace_of_packets() {
    let folder = tempfile::tempdir().expect("a folder");
    let packets = "time,size\n0,100\n0.5,200\n# more\n0.5,300\n4,1000\n12 s,5000\n";
    fs::write(folder.path().join("packets.csv"), packets).expect("it is written");
    let flows = "[[flow]]\nname = \"u\"\nfrom = \"server1\"\nto = \"client1\"\n\
                 transport = \"udp\"\n\
                 start = \"1 s\"\ntrace = \"packets.csv\"\n";
    let lines = "window = [{ name = \"early\", from = \"0 s\", to = \"2 s\" }]\n";
    let file = folder.path().join("scenario.toml").display().to_string();
    let text = text("10 s", flows).replacen("[[link]]", &format!("{lines}[[link]]"), 1);
    let scenario = Document::new(&text, &file).expect("it is valid").scenario(&[]).expect("same");
    let run = run(&scenario);
    let bytes = |window: &str, seconds: f64| {
        let rate = run.measure_in(window, "flow", "u", "goodput").expect("it is measured");
        (rate * 1e6 / 8.0 * seconds).round()
    };
    assert_eq!((bytes("steady", 10.0), bytes("early", 2.0)), (1_600.0, 600.0));
}

/// A burst of datagrams is complete when its last byte has arrived.
#[test]
fn udp_flows_with_a_size_end() {
    let flows = "[[flow]]\nname = \"burst*\"\ncount = 20\nfrom = \"server1\"\nto = \"client1\"\n\
                 transport = \"udp\"\nrate = \"10 Gbit/s\"\npacket = \"1000 B\"\njitter = \"off\"\n\
                 size = \"10500 B\"\nstart = { interval = \"500 ms\" }\n";
    let run = run(&scenario("9 s", flows));
    assert_eq!(run.measure("all", "", "flows"), Some(20.0));
    assert_eq!(run.measure("all", "", "begun"), Some(18.0));
    assert_eq!(run.measure("all", "", "completed"), Some(17.0));
    // The first packet on the first wire, all on the second, the last on the third; 5 ms of way.
    let wanted = (1_000.0 * 8.0 + 10_500.0 * 80.0 + 500.0 * 8.0) / 1e9 + 0.005;
    let found = run.measure("flow", "burst3", "completion").expect("it is complete");
    assert!((found - wanted).abs() < 1e-7, "{found} and not {wanted}");
}

#[test]
fn datagrams_arrive_by_a_trace_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = "size,start\n9 kB,1\n100,2 s\n1,20\n5000,9.9999\n";
    fs::write(folder.path().join("flows.csv"), rows).expect("it is written");
    let flows = "[[flow]]\nname = \"u*\"\nfrom = \"server1\"\nto = \"client1\"\n\
                 transport = \"udp\"\nrate = \"10 Mbit/s\"\narrivals = \"flows.csv\"\n";
    let file = folder.path().join("scenario.toml").display().to_string();
    let document = Document::new(&text("10 s", flows), &file).expect("it is valid");
    let run = run(&document.scenario(&[]).expect("it is valid"));
    let counts = ["flows", "begun", "completed"].map(|name| run.measure("group", "u", name));
    assert_eq!(counts, [Some(4.0), Some(3.0), Some(2.0)]);
    let bytes = run.measure("flow", "u1", "goodput").map(|rate| (rate * 10e6 / 8.0).round());
    assert_eq!(bytes, Some(9_000.0));
}
