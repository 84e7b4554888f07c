//! Measures in runs where their values are known.

use scenario::watch::{EventLog, figure};
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

/// All that is sent arrives or is lost, whatever loses it.
#[test]
fn the_losses_of_flows_are_those_of_their_link() {
    let line = |more: &str| {
        format!("rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"\n{more}")
    };
    for more in [
        "",
        "loss = 0.01",
        "aqm = { kind = \"red\" }",
        "aqm = { kind = \"codel\" }",
        "aqm = { kind = \"fq-codel\" }",
        "aqm = { kind = \"policer\", rate = \"8 Mbit/s\", burst = \"9 kB\" }",
        "aqm = { kind = \"shaper\", rate = \"8 Mbit/s\", burst = \"9 kB\" }",
        "blackout = [{ from = \"1.2 s\", to = \"1.5 s\" }]",
    ] {
        let udp = udp("u*", "6 Mbit/s", "count = 2");
        let run = run("duration = \"4 s\"\nwarmup = \"1 s\"", &line(more), &udp);
        let lost = line_losses(&run);
        let of = |scope, of| run.measure(scope, of, "loss").expect("packets were sent");
        assert!(lost > 10.0, "{more}: {lost}");
        // 500 packets of 1500 bytes each second.
        assert_near((of("flow", "u1") + of("flow", "u2")) * 1_500.0, lost, 1e-6);
        assert_near(of("group", "u") * 3_000.0, lost, 1e-6);
        assert_near(of("all", "") * 3_000.0, lost, 1e-6);
    }
}

fn line_losses(run: &Run) -> f64 {
    line(run, "drops") + line(run, "losses")
}

#[test]
fn corrupted_packets_are_lost() {
    let run = run(
        "duration = \"10 s\"",
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"\ncorrupt = 0.5",
        &udp("u", "1 Mbit/s", ""),
    );
    assert_near(flow(&run, "steady", "u", "loss"), 0.5, 0.06);
}

/// Each 10 ms, eight packets arrive at once: the queue is empty for 1.6 ms and has each length from
/// one to seven for 1.2 ms, and packet n needs n times 1.2 ms and 5 ms.
#[test]
fn percentiles_of_periodic_traffic_are_exact() {
    let run = run(
        "duration = \"2 s\"\nwarmup = \"1 s\"\nmeasure = [\"delay\", \"queue\"]",
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"",
        &udp("u*", "1.2 Mbit/s", "count = 8\njitter = \"off\""),
    );
    for (name, wanted) in
        [("queue_p50", 3.0), ("queue_p95", 7.0), ("queue_p99", 7.0), ("queue_max", 7.0)]
    {
        assert_near(line(&run, name), wanted, 0.0);
    }
    let group = |name| run.measure("group", "u", name).unwrap_or_else(|| panic!("no {name}"));
    assert_near(group("delay"), 5.0 + 4.5 * 1.2, 1e-9);
    assert_near(group("delay_p50"), 5.0 + 4.0 * 1.2, 1e-9);
    assert_near(group("delay_max"), 5.0 + 8.0 * 1.2, 1e-9);
    assert_near(flow(&run, "steady", "u3", "delay_p99"), 5.0 + 3.0 * 1.2, 1e-9);
    assert_near(flow(&run, "steady", "u3", "jitter"), 0.0, 1e-9);
}

/// A packet of the second flow is between each second pair of packets of the first.
#[test]
fn jitter_is_the_difference_of_consecutive_delays() {
    let flows = udp("fast", "2.4 Mbit/s", "jitter = \"off\"\nstart = \"0.1 ms\"")
        + &udp("slow", "1.2 Mbit/s", "jitter = \"off\"");
    let run = run(
        "duration = \"2 s\"\nwarmup = \"1 s\"\nmeasure = [\"delay\"]",
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"",
        &flows,
    );
    // It waits for 1.1 ms and for nothing in turn.
    assert_near(flow(&run, "steady", "fast", "jitter"), 1.1, 1e-9);
    assert_near(flow(&run, "steady", "slow", "jitter"), 0.0, 1e-9);
}

/// As above: eight delays, each as often, in windows of two and of one half second.
#[test]
fn the_distribution_of_delays_is_that_of_packets() {
    let run = run(
        "duration = \"2 s\"\nwarmup = \"1 s\"\nmeasure = [\"delay\"]\nwindow = [{ name = \
         \"early\", from = \"0.5 s\", to = \"1 s\" }]",
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"",
        &(udp("u*", "1.2 Mbit/s", "count = 4\njitter = \"off\"")
            + &udp("v*", "1.2 Mbit/s", "count = 4\njitter = \"off\"")),
    );
    let of = |window: usize, group: &str| {
        let rows = run.delays.iter().filter(|row| row.window == window && &*row.group == group);
        rows.map(|row| (row.upto.as_secs_f64() * 1e3, row.packets)).collect::<Vec<_>>()
    };
    for (window, packets) in [(0, 100), (1, 50)] {
        for (group, first) in [("u", 1), ("v", 5)] {
            let rows = of(window, group);
            assert_eq!(rows.len(), 4, "{rows:?}");
            for ((upto, count), number) in rows.into_iter().zip(first..) {
                let delay = 5.0 + f64::from(number) * 1.2;
                assert!((delay..delay * (1.0 + 1.0 / 128.0)).contains(&upto), "{upto}, {delay}");
                assert_eq!(count, packets, "{group}, {delay}");
            }
        }
    }
}

/// The measures of delays change nothing else.
#[test]
fn delays_are_measured_beside_the_run() {
    let text = |measure: &str| {
        format!(
            "name = \"known\"\nduration = \"3 s\"\n{measure}\n[[link]]\nname = \"line\"\nbetween = \
             [\"a\", \"b\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"\n\
             loss = 0.01\n[[flow]]\nname = \"tcp*\"\ncount = 3\nfrom = \"a\"\nto = \"b\"\n"
        )
    };
    let of = |measure: &str| {
        let document = Document::new(&text(measure), "known.toml").expect("it is right");
        let scenario = document.scenario(&[]).expect("it is right");
        scenario.run(Seed(1), RunOptions::default()).expect("there is a route")
    };
    let (plain, measured) = (of(""), of("measure = [\"delay\"]"));
    assert_eq!(plain.digest, measured.digest);
    assert_eq!(plain.measure("flow", "tcp1", "delay_p99"), None);
    let p99 = measured.measure("flow", "tcp1", "delay_p99").expect("it is measured");
    assert!(p99 > 5.0 && p99 < 40.0, "{p99}");
    let problem = Document::new(&text("measure = [\"latency\"]"), "known.toml")
        .and_then(|document| document.scenario(&[]))
        .expect_err("there is no such measure");
    let said = problem.to_string();
    for part in ["known.toml", "measure", "latency", "delay, queue"] {
        assert!(said.contains(part), "{said}");
    }
}

/// With a window for the whole file, a transfer takes what the documentation calls ideal.
#[test]
fn a_file_alone_in_a_large_window_has_no_slowdown() {
    let text = r#"
        name = "known"
        duration = "5 s"
        [[link]]
        name = "slow"
        between = ["a", "r"]
        rate = "10 Mbit/s"
        delay = "5 ms"
        queue = "1000 packets"
        [[link]]
        name = "fast"
        between = ["r", "b"]
        rate = "100 Mbit/s"
        delay = "7 ms"
        queue = "1000 packets"
    "#;
    let flow = |name: &str, source: &str, start: &str| {
        format!(
            "[[flow]]\nname = \"{name}\"\nfrom = \"a\"\nto = \"b\"\nstart = \"{start}\"\njitter = \
             \"off\"\nsource = {source}\ntcp = {{ initial_window = 1000 }}\n"
        )
    };
    let flows = flow("one", "{ file = \"1 kB\" }", "0 s")
        + &flow("many", "{ file = \"500 kB\" }", "1 s")
        + &flow("later", "{ trace = [{ at = \"1 s\", bytes = \"100 kB\" }] }", "2 s");
    let document = Document::new(&format!("{text}{flows}"), "known.toml").expect("it is right");
    let scenario = document.scenario(&[]).expect("it is right");
    let run = scenario.run(Seed(1), RunOptions::default()).expect("there is a route");
    for name in ["one", "many", "later"] {
        // At most an acknowledgement of 52 bytes is between the data.
        let slowdown = run.measure("flow", name, "slowdown").expect("it is done");
        assert!((1.0 - 1e-9..1.0002).contains(&slowdown), "{name}: {slowdown}");
    }
    // Both packets of the handshake, and the data, on each link.
    let one = 3.0 * 0.012 + 2.0 * 52.0 * (0.8e-6 + 0.08e-6) + 1_052.0 * (0.8e-6 + 0.08e-6);
    assert_near(run.measure("flow", "one", "completion").expect("it is done"), one, 1e-8);
    let all = |name| run.measure("all", "", name).expect("three are done");
    assert_near(all("requests"), 3.0, 0.0);
    assert_near(all("completion_p50"), run.measure("flow", "later", "completion").unwrap(), 0.0);
    assert_near(all("completion_p99"), run.measure("flow", "many", "completion").unwrap(), 0.0);
    let sizes: Vec<u64> = run.requests.iter().map(|request| request.bytes.0).collect();
    assert_eq!(sizes, [1_000, 500_000, 100_000]);
}

/// Data that waits for other data counts for its subflow, and not yet for the flow: up to 40 kB at
/// either end of the window.
#[test]
fn subflows_add_up_to_their_flow() {
    for transport in ["tcp", "sockets", "ptcp"] {
        let transport = if transport == "tcp" {
            String::new()
        } else {
            format!("transport = \"{transport}\"\n")
        };
        let text = format!(
            "name = \"known\"\nduration = \"14 s\"\nwarmup = \"2 s\"\n[[link]]\nname = \"l*\"\n\
             count = 2\nbetween = [\"a\", \"b\"]\nrate = \"5 Mbit/s\"\ndelay = \"10 ms\"\nqueue = \
             \"20 packets\"\n[[flow]]\nname = \"both\"\nfrom = \"a\"\nto = \"b\"\n{transport}\
             subflows = [[\"l1\"], [\"l2\"]]\ncontroller = \"reno\"\n"
        );
        let document = Document::new(&text, "known.toml").expect("it is right");
        let scenario = document.scenario(&[]).expect("it is right");
        let run = scenario.run(Seed(1), RunOptions::default()).expect("there is a route");
        let of = |number: u32, name: &str| {
            let found = run.measure("subflow", &format!("both/{number}"), name);
            found.unwrap_or_else(|| panic!("{transport}: no {name} of both/{number}"))
        };
        let whole = |name: &str| run.measure("flow", "both", name).expect("it is measured");
        assert_near(of(0, "goodput") + of(1, "goodput"), whole("goodput"), 0.05);
        assert_near(of(0, "window") + of(1, "window"), whole("window"), 1e-6);
        assert_near(
            of(0, "retransmissions") + of(1, "retransmissions"),
            whole("retransmissions"),
            0.0,
        );
        assert!(of(0, "rtt").max(of(1, "rtt")) <= whole("rtt") + 1e-9);
        assert!(of(0, "loss") > 0.0 && of(0, "loss") < 0.1, "{transport}: {}", of(0, "loss"));
    }
}

#[test]
fn flows_that_have_not_begun_do_not_count_as_unfair() {
    let flows = udp("u1", "1 Mbit/s", "")
        + &udp("u2", "1 Mbit/s", "start = \"5 s\"")
        + &udp("u3", "1 Mbit/s", "stop = \"1 s\"");
    let run = run(
        "duration = \"10 s\"\nwindow = [{ name = \"early\", from = \"2 s\", to = \"4 s\" }]",
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"",
        &flows,
    );
    let jain = |window, name| run.measure_in(window, "all", "", name).expect("packets flow");
    assert_near(jain("early", "jain"), 1.0, 1e-12);
    // Over all of the time, shares of 1, 1/2 and 1/10.
    assert_near(jain("steady", "jain"), 1.6 * 1.6 / (3.0 * 1.26), 0.01);
    // In each tenth of a second, equal flows.
    assert_near(jain("steady", "jain_short"), 1.0, 0.01);
}

#[test]
fn marks_of_a_flow_are_those_that_arrived() {
    let run = run(
        "duration = \"10 s\"",
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"100 packets\"\naqm = { kind = \"red\", \
         ecn = true }",
        "[[flow]]\nname = \"tcp\"\nfrom = \"a\"\nto = \"b\"\ntcp = { ecn = true }\n[[flow]]\n\
         name = \"plain\"\nfrom = \"a\"\nto = \"b\"\n",
    );
    let marked = flow(&run, "steady", "tcp", "marks");
    assert!(marked > 5.0 && (marked - line(&run, "marks")).abs() <= 1.0, "{marked}");
    assert_eq!(run.measure("flow", "plain", "marks"), None);
}

/// Samples of 500 ms: 200 packets of 1500 bytes at 4.8 Mbit/s, and the same over a link whose rate
/// is half of that.
#[test]
fn samples_of_links_and_subflows_are_what_they_carry() {
    let text = r#"
        name = "known"
        duration = "10 s"
        sample = "500 ms"
        [[link]]
        name = "fast"
        between = ["a", "b"]
        rate = "10 Mbit/s"
        delay = "5 ms"
        queue = "2000 packets"
        [[link]]
        name = "slow"
        between = ["b", "c"]
        rate = "2.4 Mbit/s"
        delay = "5 ms"
        queue = "2000 packets"
        [[flow]]
        name = "datagrams"
        from = "a"
        to = "c"
        transport = "udp"
        rate = "4.8 Mbit/s"
        jitter = "off"
        [[link]]
        name = "way*"
        count = 2
        between = ["near", "far"]
        rate = "8 Mbit/s"
        delay = "10 ms"
        queue = "50 packets"
        [[flow]]
        name = "striped"
        from = "near"
        to = "far"
        transport = "ptcp"
        subflows = [["way1"], ["way2"]]
    "#;
    let document = Document::new(text, "known.toml").expect("nothing is wrong with it");
    let scenario = document.scenario(&[]).expect("nothing is wrong with it");
    let run = scenario.run(Seed(1), RunOptions { series: true }).expect("there is a route");
    let series = run.series.expect("it was asked for");
    assert_eq!((series.at.len(), series.links.len()), (20, 4));
    let up = |link: usize| &series.links[link][0];
    for index in 2..20 {
        assert_near(up(0).throughput[index], 4.8, 0.05);
        assert_near(up(1).throughput[index], 2.4, 0.025);
    }
    assert!(series.links[0][1].throughput.iter().all(|rate| *rate == 0.0), "nothing comes back");
    // 100 packets more in each half second.
    assert_near(up(1).queue[10] - up(1).queue[9], 100.0, 2.0);

    let names: Vec<&str> = series.subflows.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["striped/0", "striped/1"]);
    for (index, (_, subflow)) in series.subflows.iter().enumerate() {
        assert_eq!((subflow.goodput.len(), subflow.window.len(), subflow.rtt.len()), (20, 20, 20));
        let (goodput, link) = (subflow.goodput[15], up(2 + index).throughput[15]);
        // A packet more or less fits into a sample: 0.024 Mbit/s.
        assert!((7.0..8.03).contains(&link), "{link}");
        assert!((0.93..0.99).contains(&(goodput / link)), "{goodput} of {link}");
    }
    let windows: f64 = series.subflows.iter().map(|(_, subflow)| subflow.window[15]).sum();
    assert_near(series.flows[1].window[15], windows, 1e-9);
}

/// The trace of a run names nodes and links as the file does.
#[test]
fn a_trace_names_the_hosts() {
    let text = "name = \"trace\"\nduration = \"1 s\"\n[[link]]\nname = \"line\"\nbetween = \
                [\"near\", \"far\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"50 \
                packets\"\n[[flow]]\nname = \"f\"\nfrom = \"near\"\nto = \"far\"\nsource = { file \
                = \"20 kB\" }\n";
    let document = Document::new(text, "trace.toml").expect("nothing is wrong with it");
    let scenario = document.scenario(&[]).expect("nothing is wrong with it");
    let built = scenario.build(Seed(1)).expect("there is a route");
    let mut written = Vec::new();
    let mut log = EventLog::new(&mut written, &scenario, &built).expect("it is memory");
    scenario.run_watched(Seed(1), RunOptions::default(), &mut log).expect("it runs");
    log.finish().expect("it is memory");
    let written = String::from_utf8(written).expect("it is text");
    let mut places: Vec<&str> =
        written.lines().skip(1).filter_map(|line| line.split(',').nth(2)).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places, ["f", "far", "line/down", "line/up", "near"]);
}

#[test]
fn a_flow_that_has_not_begun_has_no_round_trip() {
    let text = "name = \"late\"\nduration = \"2 s\"\n[[link]]\nname = \"line\"\nbetween = [\"a\", \
                \"b\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"50 \
                packets\"\n[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nstart = \"1 s\"\n";
    let document = Document::new(text, "late.toml").expect("nothing is wrong with it");
    let scenario = document.scenario(&[]).expect("nothing is wrong with it");
    let run = scenario.run(Seed(1), RunOptions { series: true }).expect("there is a route");
    let series = run.series.expect("it was asked for");
    for (at, rtt) in series.at.iter().zip(&series.flows[0].rtt) {
        assert_eq!(rtt.is_nan(), *at <= 1.011, "{rtt} at {at}");
        assert!(rtt.is_nan() || *rtt > 10.0, "{rtt} at {at}");
    }
    // A plot has no line at zero before.
    let picture = figure(&scenario, &series, "late").svg();
    assert!(!picture.contains("NaN"), "{picture}");
}

#[test]
fn datagrams_take_the_way_that_they_are_given() {
    let link = |name: &str, nodes: &str, delay: &str| {
        format!(
            "[[link]]\nname = \"{name}\"\nbetween = {nodes}\nrate = \"10 Mbit/s\"\ndelay = \
             \"{delay}\"\nqueue = \"50 packets\"\n"
        )
    };
    let text = format!(
        "name = \"ways\"\nduration = \"2 s\"\n{}{}{}{}{}",
        link("direct", "[\"a\", \"b\"]", "1 ms"),
        link("there", "[\"a\", \"r\"]", "20 ms"),
        link("on", "[\"r\", \"b\"]", "20 ms"),
        udp("short", "1 Mbit/s", ""),
        udp("long*", "1 Mbit/s", "count = 2\nvia = [\"there\", \"on\"]"),
    );
    let document = Document::new(&text, "ways.toml").expect("nothing is wrong with it");
    let scenario = document.scenario(&[]).expect("nothing is wrong with it");
    let run = scenario.run(Seed(1), RunOptions::default()).expect("there is a route");
    let delay = |of: &str| flow(&run, "steady", of, "delay");
    assert!((1.0..10.0).contains(&delay("short")), "{}", delay("short"));
    assert!(delay("long1") > 40.0 && delay("long2") > 40.0, "{}", delay("long2"));
}

/// Seventy packets are on their way at any time, and arrive 1.2 ms apart, but for the blackout.
#[test]
fn gaps_are_the_longest_times_without_bytes_in_order() {
    let windows = "window = [{ name = \"calm\", from = \"1 s\", to = \"3 s\" }, { name = \
                   \"within\", from = \"5.1 s\", to = \"5.25 s\" }, { name = \"around\", from = \
                   \"4 s\", to = \"8 s\" }]";
    let of = |head: &str, keys: &str| {
        run(
            &format!("duration = \"10 s\"\n{head}{windows}"),
            "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"200 packets\"\nblackout = [{ from = \
             \"5 s\", to = \"5.3 s\" }]",
            &format!(
                "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\njitter = \"off\"\n{keys}\n"
            ),
        )
    };
    let measured = "measure = [\"gap\"]\n";
    let tcp = "controller = \"reno\"\ntcp = { receive_buffer = \"100 kB\" }";
    assert_eq!(of("", tcp).measure("flow", "f", "gap"), None, "it is not asked for");
    let run = of(measured, tcp);
    assert_near(flow(&run, "calm", "f", "gap"), 1.2, 1e-6);
    assert_near(flow(&run, "within", "f", "gap"), 150.0, 1e-6);
    let around = flow(&run, "around", "f", "gap");
    // The retransmission timer runs out meanwhile, and once more at most.
    assert!((300.0..1_000.0).contains(&around), "{around}");
    assert_eq!(flow(&run, "steady", "f", "gap").to_bits(), around.to_bits());
    assert_eq!(run.measure("group", "f", "gap"), run.measure("flow", "f", "gap"));

    for keys in [
        "transport = \"ptcp\"",
        "transport = \"sockets\"\nsubflows = [[\"line\"]]",
        "source = { requests = { size = \"100 MB\", count = 1, objects = 2, connections = 2 } }",
    ] {
        let run = of(measured, keys);
        assert_near(flow(&run, "within", "f", "gap"), 150.0, 1e-6);
        assert!(flow(&run, "around", "f", "gap") > 295.0, "{keys}");
    }
    let udp = of(measured, "transport = \"udp\"\nrate = \"1 Mbit/s\"");
    assert_eq!(udp.measure("flow", "f", "gap"), None);
}

/// A flow that arrives and is over: the handshake, and then ten packets one behind the other.
#[test]
fn the_first_gap_is_that_before_the_first_byte() {
    let run = run(
        "duration = \"5 s\"\nmeasure = [\"gap\"]\nwindow = [{ name = \"late\", from = \"3 s\", to \
         = \"5 s\" }, { name = \"early\", from = \"0 s\", to = \"1.01 s\" }]",
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"200 packets\"",
        "[[flow]]\nname = \"w*\"\ncount = 2\nfrom = \"a\"\nto = \"b\"\njitter = \"off\"\nstart = { \
         interval = \"1 s\" }\nsource = { file = \"14480 B\" }\n",
    );
    let first = 3.0 * 5.0 + (2.0 * 52.0 + 1_500.0) * 8.0 / 1e4;
    for of in ["w1", "w2"] {
        assert_near(flow(&run, "steady", of, "gap"), first, 1e-3);
    }
    assert_near(flow(&run, "early", "w1", "gap"), 10.0, 1e-6);
    for (window, of) in [("late", "w1"), ("early", "w2")] {
        assert_eq!(run.measure_in(window, "flow", of, "gap"), None, "{of} does not live then");
    }
    assert_near(run.measure("group", "w", "gap").expect("it is measured"), first, 1e-3);
}
