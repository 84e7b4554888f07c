//! Measures in runs where their values are known.

use scenario::{Document, Run, RunOptions};
use units::Seed;

/// Two hosts joined by `line`, whose keys besides its name and ends are given, and flows.
fn run(head: &str, line: &str, flows: &str) -> Run {
    let text = format!(
        "name = \"known\"\n{head}\n[[link]]\nname = \"line\"\nbetween = [\"a\", \
         \"b\"]\n{line}\n{flows}"
    );
    let document = Document::new(&text, "known.toml").expect("nothing is wrong with it");
    let scenario = document.scenario(&[]).expect("nothing is wrong with it");
    scenario.run(Seed(1), RunOptions::default()).expect("there is a route")
}

fn udp(name: &str, rate: &str, more: &str) -> String {
    format!(
        "[[flow]]\nname = \"{name}\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"udp\"\nrate = \
         \"{rate}\"\n{more}\n"
    )
}

fn line(run: &Run, name: &str) -> f64 {
    run.measure("link", "line/up", name).unwrap_or_else(|| panic!("no {name}"))
}

fn flow(run: &Run, window: &str, of: &str, name: &str) -> f64 {
    run.measure_in(window, "flow", of, name).unwrap_or_else(|| panic!("{of} has no {name}"))
}

fn assert_near(found: f64, wanted: f64, tolerance: f64) {
    assert!((found - wanted).abs() <= tolerance, "{found}, not {wanted} ± {tolerance}");
}

/// Each 10 ms, eight packets arrive at once and take 1.2 ms each: seven wait for 1.2 ms, six for
/// the next 1.2 ms, and so on. A sample each 10 ms sees 0 or 7, depending on the phase.
#[test]
fn the_queue_of_periodic_traffic_is_exact() {
    for start in ["0 ms", "1 ms", "5 ms", "9.9 ms"] {
        let run = run(
            "duration = \"2 s\"\nwarmup = \"1 s\"",
            "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"",
            &udp("u*", "1.2 Mbit/s", &format!("count = 8\njitter = \"off\"\nstart = \"{start}\"")),
        );
        assert_near(line(&run, "queue"), 3.36, 1e-9);
        assert_near(line(&run, "queue_bytes"), 3.36 * 1_500.0, 1e-6);
        assert_near(line(&run, "queue_time"), 4.2, 1e-9);
    }
}

#[test]
fn an_on_off_source_sends_at_its_mean_rate() {
    // Packets are 6 ms apart: on times of 20 ms have 3.3 on average, and would have 3.9 if each
    // began with a packet.
    let run = run(
        "duration = \"2000 s\"",
        "rate = \"100 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"",
        &udp("u", "2 Mbit/s", "on_off = { on = \"20 ms\", off = \"30 ms\" }"),
    );
    assert_near(flow(&run, "steady", "u", "goodput"), 0.8, 0.012);
}

#[test]
fn jitter_separates_the_udp_flows_of_a_host() {
    let run = run(
        "duration = \"20 s\"",
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"",
        &udp("u*", "7 Mbit/s", "count = 2"),
    );
    assert_near(flow(&run, "steady", "u1", "goodput"), 5.0, 0.4);
    assert_near(flow(&run, "steady", "u2", "goodput"), 5.0, 0.4);
}

#[test]
fn nothing_has_no_fairness() {
    let run = run(
        "duration = \"3 s\"\nwindow = [{ name = \"early\", from = \"0 s\", to = \"1 s\" }]",
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"",
        &udp("u*", "1 Mbit/s", "count = 2\nstart = \"2 s\""),
    );
    assert_eq!(run.measure_in("early", "all", "", "goodput"), Some(0.0));
    assert_eq!(run.measure_in("early", "all", "", "jain"), None);
    assert_eq!(run.measure_in("early", "group", "u", "jain"), None);
    assert_near(run.measure("group", "u", "jain").expect("something flows"), 1.0, 1e-9);
}

#[test]
fn the_state_of_a_flow_counts_while_it_lives() {
    let tcp = |name: &str, more: &str| {
        format!("[[flow]]\nname = \"{name}\"\nfrom = \"a\"\nto = \"b\"\n{more}\n")
    };
    let window = "window = [{ name = \"before\", from = \"0 s\", to = \"4 s\" },{ name = \
                  \"after\", from = \"8 s\", to = \"10 s\" }]";
    let run = run(
        &format!("duration = \"10 s\"\n{window}"),
        "rate = \"100 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"2000 packets\"",
        // A file of two seconds in the last half.
        &tcp("late", "start = \"5 s\"\nsource = { file = \"20 MB\" }"),
    );
    let done = 5.0 + flow(&run, "steady", "late", "completion");
    assert!((6.0..7.99).contains(&done), "it ends at {done} s");
    let rtt = flow(&run, "steady", "late", "rtt");
    assert!((40.0..300.0).contains(&rtt), "{rtt} ms, with 40 ms of propagation");
    // At 100 Mbit/s for 40 ms, 333 packets are in flight.
    let window = flow(&run, "steady", "late", "window");
    assert!(window > 150.0, "{window} packets");
    for (window, name) in [("before", "rtt"), ("before", "window"), ("after", "rtt")] {
        assert_eq!(run.measure_in(window, "flow", "late", name), None, "{name} {window}");
    }
}

#[test]
fn delays_are_of_the_window() {
    // In the second half 1.5 Mbit/s do not fit: 50 packets of 12 ms each are in the queue.
    let windows = "window = [{ name = \"first\", from = \"0 s\", to = \"10 s\" },{ name = \
                   \"second\", from = \"15 s\", to = \"20 s\" }]";
    let run = run(
        &format!("duration = \"20 s\"\n{windows}"),
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"50 packets\"\nschedule = [{ at = \"10 \
         s\", rate = \"1 Mbit/s\" }]",
        &udp("u", "1.5 Mbit/s", "jitter = \"off\""),
    );
    assert_near(flow(&run, "first", "u", "delay"), 5.0 + 1.2, 1e-9);
    let late = flow(&run, "second", "u", "delay");
    assert!((590.0..606.0).contains(&late), "{late} ms");
}

#[test]
fn utilisation_is_of_what_the_link_could_carry() {
    for change in [
        "schedule = [{ at = \"5 s\", rate = \"2 Mbit/s\" }]",
        "blackout = [{ from = \"2 s\", to = \"6 s\" }]",
        "redraw = { every = \"1 s\", from = 0.2, to = 0.9 }",
    ] {
        let run = run(
            "duration = \"10 s\"",
            &format!("rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"50 packets\"\n{change}"),
            &udp("u", "20 Mbit/s", ""),
        );
        let used = line(&run, "utilisation");
        assert!((0.995..=1.0001).contains(&used), "{change}: {used}");
    }
}
