//! Workloads: flows that arrive one after the other, sizes from distributions and files, requests,
//! packets of UDP.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts and sizes are small"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use scenario::distribution::Distribution;
use scenario::file::{Scenario, Start};
use scenario::host::AgentState;
use scenario::results::Store;
use scenario::sweep::Plan;
use scenario::{Document, Measure, Run, RunOptions, Setting};
use units::{Seed, Time};

/// Two senders and two receivers around one link of 100 Mbit/s.
fn text(duration: &str, flows: &str) -> String {
    let access = |name: &str, between: &str| {
        format!(
            "[[link]]\nname = \"{name}*\"\ncount = 2\nbetween = {between}\nrate = \"1 Gbit/s\"\n\
             delay = \"1 ms\"\nqueue = \"1 MB\"\n"
        )
    };
    format!(
        "name = \"workloads\"\nduration = \"{duration}\"\n[[link]]\nname = \"line\"\n\
         between = [\"left\", \"right\"]\nrate = \"100 Mbit/s\"\ndelay = \"3 ms\"\n\
         queue = \"1 MB\"\n{}{}{flows}",
        access("near", "[\"server*\", \"left\"]"),
        access("far", "[\"right\", \"client*\"]"),
    )
}

fn scenario(duration: &str, flows: &str) -> Scenario {
    let document = Document::new(&text(duration, flows), "workloads.toml");
    document.unwrap_or_else(|error| panic!("{error}")).scenario(&[]).expect("it was valid")
}

fn run(scenario: &Scenario) -> Run {
    scenario.run(scenario.seed, RunOptions::default()).expect("there are routes")
}

fn error(flows: &str) -> String {
    Document::new(&text("10 s", flows), "workloads.toml").expect_err("it is wrong").to_string()
}

/// The starts of the flows in a run, in seconds.
fn starts(scenario: &Scenario, seed: Seed) -> Vec<f64> {
    let built = scenario.build(seed).expect("there are routes");
    built.flows.iter().map(|ends| (ends.start - Time::ZERO).as_secs_f64()).collect()
}

fn close(found: f64, wanted: f64, within: f64) -> bool {
    (found / wanted - 1.0).abs() < within
}

const WEB: &str = "[[flow]]\nname = \"web*\"\ncount = 400\nfrom = \"server1\"\nto = \"client1\"\n";

#[test]
fn poisson_arrivals_have_exponential_intervals() {
    let flows = format!(
        "{}start = {{ poisson = \"100 per s\", from = \"2 s\" }}\n\
         source = {{ file = \"1 kB\" }}\n",
        WEB.replace("400", "20000")
    );
    let starts = starts(&scenario("10 s", &flows), Seed(3));
    assert!(starts[0] > 2.0 && starts.windows(2).all(|pair| pair[0] < pair[1]));
    let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let part = |count: usize| count as f64 / gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() * part(1);
    let square = gaps.iter().map(|gap| gap * gap).sum::<f64>() * part(1);
    assert!(close(mean, 0.01, 0.02), "mean {mean}");
    assert!(close(square, 0.0002, 0.05), "second moment {square}");
    let short = part(gaps.iter().filter(|gap| **gap < 0.01 * std::f64::consts::LN_2).count());
    assert!(close(short, 0.5, 0.02), "median at {short}");
}

#[test]
fn arrivals_depend_on_the_seed_and_on_no_other_flow() {
    let flows =
        format!("{WEB}start = {{ poisson = \"100 per s\" }}\nsource = {{ file = \"1 kB\" }}\n");
    let more = format!("[[flow]]\nname = \"b\"\nfrom = \"server2\"\nto = \"client2\"\n{flows}");
    let (alone, joined) = (scenario("10 s", &flows), scenario("10 s", &more));
    assert_eq!(starts(&alone, Seed(1)), starts(&alone, Seed(1)));
    assert_ne!(starts(&alone, Seed(1)), starts(&alone, Seed(2)));
    assert_eq!(starts(&alone, Seed(1)), starts(&joined, Seed(1))[1..]);
}

#[test]
fn a_load_fills_its_part_of_the_link() {
    for (size, within) in [("\"100 kB\"", 0.08), ("{ exponential = \"50 kB\" }", 0.1)] {
        let flows = format!(
            "{}start = {{ load = 0.5, of = \"line\" }}\nsource = {{ file = {size} }}\n",
            WEB.replace("400", "3000")
        );
        let run = run(&scenario("20 s", &flows));
        let used = run.measure("link", "line/up", "utilisation").expect("it is measured");
        assert!(close(used, 0.5, within), "{size}: {used}");
    }
}

#[test]
fn flows_that_begin_and_complete_are_counted() {
    // 400 flows at 20 a second: about half of them begin in 10 s. 1 GB does not complete.
    let entry = |name: &str, size: &str| {
        format!(
            "{}group = \"all-sizes\"\nstart = {{ poisson = \"20 per s\" }}\n\
             source = {{ file = \"{size}\" }}\n",
            WEB.replace("web*", name)
        )
    };
    let one = "[[flow]]\nname = \"endless\"\nfrom = \"server2\"\nto = \"client2\"\n\
               stop = \"1 s\"\n";
    let scenario =
        scenario("10 s", &format!("{}{}{one}", entry("a*", "2 kB"), entry("b*", "1 GB")));
    let run = run(&scenario);
    let count = |scope, of, name| run.measure(scope, of, name).expect("it is measured");
    let begun = starts(&scenario, scenario.seed)[..800].iter().filter(|at| **at <= 10.0).count();
    assert!((300..500).contains(&begun), "{begun}");
    for (scope, of) in [("group", "all-sizes"), ("all", "")] {
        assert_eq!(count(scope, of, "flows") as usize, 800, "{scope}");
        assert_eq!(count(scope, of, "begun") as usize, begun, "{scope}");
        let complete = count(scope, of, "completed") as usize;
        assert!(complete > begun / 3 && complete < begun * 2 / 3, "{complete} of {begun}");
    }
    assert_eq!(run.measure("group", "endless", "begun"), None, "it does not arrive");
    assert_eq!(run.measure("group", "a", "goodput"), None, "the entries share a group");
    let both = count("group", "all-sizes", "goodput") + count("group", "endless", "goodput");
    assert!(close(count("all", "", "goodput"), both, 1e-9));
}

/// A flow in a trace of arrivals is made when it begins and put away when it ends; it behaves as
/// one that is there all the time, whatever the network loses.
#[test]
fn arriving_flows_behave_as_flows_of_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut rows = String::from("start,size,from,to\n");
    let mut entries = String::new();
    for number in 1..=40 {
        let (at, size) = (number * 97 % 1_000, 1_000 + number * number * 700);
        let (from, to) = (1 + number % 2, 1 + number % 3 / 2);
        writeln!(rows, "{at} ms, {size}, server{from}, client{to} # {number}").expect("memory");
        writeln!(
            entries,
            "[[flow]]\nname = \"f{number}\"\nfrom = \"server{from}\"\nto = \"client{to}\"\n\
             start = \"{at} ms\"\nsource = {{ file = \"{size} B\" }}\ncontroller = \"reno\"\n"
        )
        .expect("memory");
    }
    fs::write(folder.path().join("flows.csv"), rows).expect("it is written");
    let arriving = "[[flow]]\nname = \"f*\"\nfrom = \"server1\"\nto = \"client1\"\n\
                    controller = \"reno\"\narrivals = \"flows.csv\"\n";
    let lossy = |flows: &str| {
        let loss = "queue = \"1 MB\"\nloss = 0.02\naqm = { kind = \"red\", min = \"3 packets\", \
                    max = \"9 packets\", ecn = true }\n";
        let flows = flows.replace("\"reno\"\n", "\"reno\"\ntcp = { ecn = true }\n");
        let text = text("20 s", &flows).replacen("queue = \"1 MB\"\n", loss, 1);
        text.replacen("duration", "measure = [\"delay\"]\nduration", 1)
    };
    let file = folder.path().join("scenario.toml");
    let of = |flows: &str| {
        let document = Document::new(&lossy(flows), &file.display().to_string());
        let scenario = document.unwrap_or_else(|error| panic!("{error}")).scenario(&[]);
        run(&scenario.expect("it was valid"))
    };
    let (rows, entries) = (of(arriving), of(&entries));
    assert_eq!(rows.measure("all", "", "completed"), Some(40.0));
    for number in 1..=40 {
        for name in [
            "completion",
            "slowdown",
            "goodput",
            "loss",
            "retransmissions",
            "timeouts",
            "marks",
            "delay_p95",
            "jitter",
        ] {
            let flow = format!("f{number}");
            let [one, other] = [&rows, &entries].map(|run| run.measure("flow", &flow, name));
            assert!(one.is_some() && one == other, "{flow}, {name}: {one:?} and {other:?}");
        }
    }
    for name in ["jain", "jain_short", "loss", "slowdown_p99"] {
        let [one, other] = [&rows, &entries].map(|run| run.measure("all", "", name));
        assert!(one.is_some() && one == other, "{name}: {one:?} and {other:?}");
    }
    for name in ["retransmissions", "marks"] {
        let is_there = rows.arrivals.iter().any(|m| m.name() == name && m.value > 0.0);
        assert!(is_there, "{name}");
    }
}

/// A hundred thousand flows would be nearly all of a run's measures.
#[test]
fn single_flows_that_arrive_are_apart_from_the_measures() {
    let is_single = |m: &Measure<'_>| ["flow", "subflow"].contains(&m.scope());
    let arriving = run(&striped_flows(20, "source = { file = \"60 kB\" }\n"));
    assert!(!arriving.measures.iter().any(|m| is_single(&m)));
    assert!(arriving.measures.iter().any(|m| (m.of, m.name()) == ("f", "completion")));
    assert!(arriving.arrivals.iter().all(|m| is_single(&m)));
    for of in ["f1", "f1/0", "f20/1"] {
        assert!(arriving.arrivals.iter().any(|m| (m.of, m.name()) == (of, "goodput")), "{of}");
    }
    let lasting = "[[flow]]\nname = \"l*\"\ncount = 2\nfrom = \"server1\"\nto = \"client1\"\n";
    let lasting = run(&scenario("2 s", lasting));
    assert!(lasting.measures.iter().any(|m| (m.of, m.name()) == ("l2", "goodput")));
    assert!(lasting.arrivals.is_empty());
}

/// Striped flows that arrive, over two links that lose packets.
fn striped_flows(count: usize, more: &str) -> Scenario {
    let link = |name: &str, delay: u32| {
        format!(
            "[[link]]\nname = \"{name}\"\nbetween = [\"a\", \"b\"]\nrate = \"50 Mbit/s\"\n\
             delay = \"{delay} ms\"\nqueue = \"100 packets\"\nloss = 0.005\n"
        )
    };
    let text = format!(
        "name = \"striped\"\nduration = \"{} s\"\n{}{}[[flow]]\nname = \"f*\"\n\
         count = {count}\nfrom = \"a\"\nto = \"b\"\ntransport = \"ptcp\"\n\
         subflows = \"each\"\nstart = {{ poisson = \"200 per s\" }}\n{more}",
        count / 200 + 20,
        link("one", 5),
        link("two", 10),
    );
    let document = Document::new(&text, "striped.toml").unwrap_or_else(|error| panic!("{error}"));
    document.scenario(&[]).expect("it was valid")
}

/// The ends of flows that live, and those of which only the counters are kept.
fn kept(built: &scenario::Built) -> (usize, usize) {
    let ends = built.flows.iter().flat_map(|ends| [ends.from, ends.to]);
    ends.fold((0, 0), |(live, ended), (host, agent)| match built.sim.host(host).state(agent) {
        AgentState::Live(_) => (live + 1, ended),
        AgentState::Ended(_) => (live, ended + 1),
        AgentState::Planned { .. } => (live, ended),
    })
}

#[test]
fn ended_striped_flows_keep_only_their_counters() {
    let scenario = striped_flows(20_000, "source = { file = \"3 kB\" }\n");
    let mut built = scenario.build(Seed(1)).expect("there is a route");
    let mut most = 0;
    for second in 1..=120 {
        built.sim.run_until(Time::from_nanos(second * 1_000_000_000));
        most = most.max(kept(&built).0);
    }
    let (live, ended) = kept(&built);
    assert_eq!(live + ended, 40_000, "all have begun");
    // 200 begin in a second, and last for some tenths of it, or some seconds after losses.
    assert!(most < 1_000, "{most} ends lived at one time");
    assert!(live <= 40, "{live} ends live for ever, more than one in a thousand");
}

/// Putting a striped flow away loses none of its measures.
#[test]
fn ended_striped_flows_keep_their_measures() {
    for (source, requests) in [
        ("source = { file = \"60 kB\" }\n", 1.0),
        ("source = { requests = { size = \"20 kB\", count = 3 } }\n", 3.0),
    ] {
        let scenario = striped_flows(100, source);
        let run = run(&scenario);
        assert_eq!(run.measure("all", "", "completed"), Some(100.0), "{source}");
        let of = |scope, of: &str, name| run.measure(scope, of, name).unwrap_or(f64::NAN);
        let (mut again, mut sampled) = (0.0, 0);
        for number in 1..=100 {
            let flow = format!("f{number}");
            assert!(close(of("flow", &flow, "requests"), requests, 1e-9), "{source}{flow}");
            let megabits = of("flow", &flow, "goodput") * 20.0;
            assert!(close(megabits, 0.48, 1e-9), "{source}{flow}: {megabits} Mbit");
            let [one, two] = [0, 1].map(|path| format!("{flow}/{path}"));
            for name in ["goodput", "retransmissions"] {
                let sum = of("subflow", &one, name) + of("subflow", &two, name);
                let whole = of("flow", &flow, name);
                // Goodputs of subflows include copies.
                assert!(sum >= whole - 1e-9, "{source}{flow}, {name}: {sum} of {whole}");
            }
            assert!(of("flow", &flow, "slowdown") >= 1.0, "{source}{flow}");
            sampled += usize::from(of("flow", &flow, "window") > 0.0);
            again += of("flow", &flow, "retransmissions");
        }
        // 0.5 % of some 4,500 packets.
        assert!(again > 5.0, "{source}{again}");
        // Those that live at a multiple of the sampling interval, 40 ms.
        assert!(sampled > 50, "{source}{sampled}");
    }
}

#[test]
fn sizes_come_from_the_distribution_and_completion_from_the_start() {
    let flows = "[[flow]]\nname = \"web*\"\ncount = 300\nfrom = \"server1\"\nto = \"client1\"\n\
                 jitter = \"off\"\nstart = { interval = \"100 ms\" }\n\
                 source = { file = { uniform = { from = \"2 kB\", to = \"12 kB\" } } }\n";
    let run = run(&scenario("31 s", flows));
    let flows: Vec<(f64, f64)> = (1..=300)
        .map(|number| {
            let of = |name| run.measure("flow", &format!("web{number}"), name);
            (of("goodput").expect("it flows") * 31e6 / 8.0, of("completion").expect("it ends"))
        })
        .collect();
    let mean = flows.iter().map(|(size, _)| size).sum::<f64>() / 300.0;
    assert!(close(mean, 7_000.0, 0.05), "{mean}");
    assert!(flows.iter().all(|(size, _)| (1_999.0..12_001.0).contains(size)));
    // Two round trips of 10 ms, the handshake and the first window, and the time on the wires.
    assert!(flows.iter().all(|(_, time)| (0.0150..0.0175).contains(time)), "{flows:?}");
}

#[test]
fn files_of_points_give_sizes() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("two.cdf"), "10 50\n100 50\n100 100\n").expect("it is written");
    let flows = format!(
        "{WEB}start = {{ poisson = \"100 per s\" }}\n\
         source = {{ file = {{ cdf = \"two.cdf\", unit = \"1 kB\" }} }}\n"
    );
    let file = folder.path().join("scenario.toml");
    let document = Document::new(&text("10 s", &flows), &file.display().to_string());
    let scenario = document.expect("it is valid").scenario(&[]).expect("it is valid");
    let run = run(&scenario);
    let sizes: Vec<u64> = (1..=400)
        .filter_map(|number| run.measure("flow", &format!("web{number}"), "goodput"))
        .map(|goodput| (goodput * 10e6 / 8.0).round() as u64)
        .filter(|size| *size > 0)
        .collect();
    assert!(sizes.iter().all(|size| [10_000, 100_000].contains(size)), "{sizes:?}");
    let small = sizes.iter().filter(|size| **size == 10_000).count();
    assert!(close(small as f64 / sizes.len() as f64, 0.5, 0.15), "{small} of {}", sizes.len());
}

#[test]
fn the_example_of_a_web_search_cluster_runs() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/web-search.toml");
    let document = Document::load(&file).unwrap_or_else(|error| panic!("{error}"));
    let scenario = document.scenario(&[]).expect("it is valid");
    let Start::Arrival(arrivals) = &scenario.flows[0].start else { panic!("flows arrive") };
    // The mean of the points is 1.71 MB: 0.6 Gbit/s of these, with headers, are 42 a second.
    let rate = 1.0 / arrivals.interval.mean();
    assert!((41.0..45.0).contains(&rate), "{rate}");
}

#[test]
fn hosts_are_drawn_from_lists_and_patterns() {
    let flows = "[[flow]]\nname = \"a*\"\ncount = 300\nfrom = \"server?\"\n\
                 to = [\"server1\", \"client1\", \"client2\"]\nsource = { file = \"1 kB\" }\n\
                 start = { from = \"0 s\", to = \"9 s\" }\n";
    let scenario = scenario("10 s", flows);
    let built = scenario.build(Seed(5)).expect("there are routes");
    let mut counts = std::collections::BTreeMap::new();
    for ends in &built.flows {
        assert_ne!(ends.from.0, ends.to.0, "a flow leads elsewhere");
        *counts.entry((ends.from.0.index(), ends.to.0.index())).or_insert(0) += 1;
    }
    // Server 1 to either client, server 2 to any of three.
    assert_eq!(counts.len(), 5, "{counts:?}");
    assert!(counts.values().all(|count| (30..110).contains(count)), "{counts:?}");
    assert_eq!(
        run(&scenario).measure("all", "", "goodput").map(|rate| (rate * 10e6 / 8.0).round()),
        Some(300_000.0)
    );
}

#[test]
fn hosts_that_no_flow_draws_are_idle() {
    let flows = "[[flow]]\nname = \"a\"\nfrom = [\"server1\", \"server2\", \"client1\"]\n\
                 to = \"client2\"\nsource = { file = \"1 kB\" }\n";
    let run = run(&scenario("10 s", flows));
    assert_eq!(run.measure("all", "", "requests"), Some(1.0));
}

#[test]
fn values_of_a_workload_can_be_set() {
    let flows =
        format!("{WEB}start = {{ poisson = \"100 per s\" }}\nsource = {{ file = \"1 kB\" }}\n");
    let document = Document::new(&text("10 s", &flows), "workloads.toml").expect("it is valid");
    let interval = |settings: &[&str]| {
        let settings: Vec<Setting> =
            settings.iter().map(|text| Setting::parse(text).expect("it is a setting")).collect();
        let scenario = document.scenario(&settings).unwrap_or_else(|error| panic!("{error}"));
        match &scenario.flows[7].start {
            Start::Arrival(arrivals) => arrivals.interval.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(interval(&[]), Distribution::Exponential { mean: 0.01 });
    let faster = interval(&["flow.web.start.poisson=200 per s"]);
    assert_eq!(faster, Distribution::Exponential { mean: 0.005 });
    let even = interval(&["flow.web.start={ interval = \"20 ms\" }"]);
    assert_eq!(even, Distribution::Constant(0.02));
    let per_minute = interval(&["flow.web.start.poisson=30/min"]);
    assert_eq!(per_minute, Distribution::Exponential { mean: 2.0 });
}

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

#[test]
#[expect(clippy::too_many_lines, reason = "a list of mistakes")]
fn wrong_workloads_are_explained() {
    let tcp = "[[flow]]\nname = \"w*\"\ncount = 2\nfrom = \"server1\"\nto = \"client1\"\n";
    let udp = format!("{tcp}transport = \"udp\"\n");
    let file = |inner: &str| format!("{tcp}source = {{ file = {inner} }}\n");
    let cases: &[(String, &[&str])] = &[
        (
            format!("{tcp}start = {{ poisson = \"fast\" }}"),
            &["flow.w.start.poisson", "'fast'", "100 per s"],
        ),
        (format!("{tcp}start = {{ poisson = \"0 per s\" }}"), &["start.poisson", "above 0"]),
        (
            format!("{tcp}start = {{ poisson = \"5 per kB\" }}"),
            &["start.poisson", "not a frequency"],
        ),
        (
            format!("{tcp}start = {{ poisson = \"5 per s\", to = \"3 s\" }}"),
            &["start.to", "no such key"],
        ),
        (
            format!("{tcp}start = {{ load = 0.5, of = \"line\" }}"),
            &["start.load", "mean size", "file"],
        ),
        (
            format!("{}start = {{ load = 0.5, of = \"lin\" }}", file("\"1 kB\"")),
            &["start.of", "did you mean 'line'"],
        ),
        (
            format!("{}start = {{ load = 0, of = \"line\" }}", file("\"1 kB\"")),
            &["start.load", "such as 0.6"],
        ),
        (
            format!(
                "{}start = {{ load = 1, of = \"line\" }}",
                file("{ pareto = { min = \"1 kB\", shape = 0.9 } }")
            ),
            &["start.load", "mean size"],
        ),
        (
            format!("{tcp}start = {{ poisson = \"5 per s\", from = \"11 s\" }}"),
            &["flow.w.start", "run ends"],
        ),
        (format!("{tcp}group = \"a b\""), &["flow.w.group", "letters"]),
        (tcp.replace("\"server1\"", "[]"), &["flow.w.from", "at least one host"]),
        (tcp.replace("\"server1\"", "[\"server1\", \"sever2\"]"), &["flow.w.from", "'server2'"]),
        (tcp.replace("\"server1\"", "\"sevrer?\""), &["flow.w.from", "'sevrer?'"]),
        (tcp.replace("\"server1\"", "[\"client1\"]"), &["flow.w.to", "where the flow begins"]),
        (file("{ paretto = 1 }"), &["source.file.paretto", "did you mean `pareto`"]),
        (file("{ exponential = \"1 kB\", constant = \"1 kB\" }"), &["source.file", "one kind"]),
        (file("{ exponential = \"0 B\" }"), &["file.exponential", "more than nothing"]),
        (file("{ exponential = \"1 s\" }"), &["file.exponential", "'1 s' is not an amount"]),
        (
            file("{ uniform = { from = \"2 kB\", to = \"1 kB\" } }"),
            &["file.uniform.to", "below `from`"],
        ),
        (file("{ pareto = { mean = \"1 kB\", shape = 1 } }"), &["pareto.shape", "more than 1"]),
        (file("{ pareto = { min = \"1 kB\", shape = 0 } }"), &["pareto.shape", "more than 0"]),
        (
            file("{ pareto = { min = \"2 kB\", max = \"1 kB\", shape = 1 } }"),
            &["pareto.max", "not above `min`"],
        ),
        (
            file("{ pareto = { max = \"1 kB\", shape = 1.5 } }"),
            &["file.pareto", "`mean`, or `min`"],
        ),
        (file("{ lognormal = { sigma = 11, mean = \"1 kB\" } }"), &["lognormal.sigma", "0 to 10"]),
        (file("{ lognormal = { sigma = 1 } }"), &["file.lognormal", "either `mean` or `median`"]),
        (file("{ exponential = \"1 kB\", unit = \"1 kB\" }"), &["file.unit", "is for `cdf`"]),
        (file("{ cdf = \"none.cdf\" }"), &["file.cdf", "none.cdf", "No such file"]),
        (format!("{udp}interval = \"1 ms\"\nrate = \"1 Mbit/s\""), &["flow.w.interval", "exclude"]),
        (udp.clone(), &["flow.w.rate", "`interval`"]),
        (
            format!("{udp}interval = \"1 ms\"\npacket = \"70 kB\""),
            &["flow.w.packet", "28 to 65535"],
        ),
        (
            format!("{udp}trace = \"none.csv\"\nsize = \"1 kB\""),
            &["flow.w.size", "`trace` exclude"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ think = \"1 s\" }} }}"),
            &["requests.size", "is missing"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ size = \"1 kB\", request = \"0 B\" }} }}"),
            &["requests.request", "at least a byte"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ size = \"1 kB\", count = 0 }} }}"),
            &["requests.count", "1 to 1000000"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ size = \"1 kB\", connections = \"each\" }} }}"),
            &["requests.count", "is missing", "how many connections"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ size = \"1 kB\", connections = \"all\" }} }}"),
            &["requests.connections", "'all'", "one, each"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ size = \"1 kB\", connections = 200000 }} }}"),
            &["requests.connections", "more than 100000"],
        ),
        (
            format!(
                "{tcp}source = {{ requests = {{ size = \"1 kB\", connections = 2 }} }}\n\
                 subflows = 2"
            ),
            &["flow.w.source", "without `subflows`"],
        ),
        (
            format!(
                "{tcp}source = {{ requests = {{ size = \"1 kB\", connections = 2 }} }}\n\
                 transport = \"ptcp\""
            ),
            &["flow.w.source", "TCP"],
        ),
    ];
    for (flows, parts) in cases {
        let error = error(flows);
        for part in *parts {
            assert!(error.contains(part), "{flows}\ngives {error}\nwithout {part}");
        }
        assert!(error.contains("workloads.toml:"), "{error}");
    }
}

#[test]
fn wrong_rows_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("scenario.toml").display().to_string();
    let arriving = "[[flow]]\nname = \"f*\"\nfrom = \"server1\"\nto = \"client1\"\n\
                    arrivals = \"rows\"\n";
    let packets = "[[flow]]\nname = \"u\"\nfrom = \"server1\"\nto = \"client1\"\n\
                   transport = \"udp\"\ntrace = \"rows\"\n";
    let sizes = "[[flow]]\nname = \"f\"\nfrom = \"server1\"\nto = \"client1\"\n\
                 source = { file = { cdf = \"rows\" } }\n";
    for (flows, rows, parts) in [
        (arriving, "", &["flow.f.arrivals", "has no row", "start, size, from, to"][..]),
        (arriving, "1,2\n\n1", &["rows:3: ", "'1' has no `size`"]),
        (arriving, "1,2\nx,2", &["rows:2: `start`: 'x' is not a time", "10 ms"]),
        (arriving, "1,2\n1,-2", &["rows:2: `size` -2 is negative"]),
        (arriving, "1,2,server3", &["rows:1: `from`: 'server3'", "did you mean 'server1'"]),
        (arriving, "1,2,,server1", &["rows:1: `to` is where the flow begins"]),
        (arriving, "1,2,a,b,c", &["rows:1: ", "5 columns", "start, size"]),
        (arriving, "start,bytes\n1,2", &["rows:1: ", "not known", "start, size"]),
        (packets, "0,100\n1,20", &["flow.u.trace", "rows:2: `size` 20 wants 28 to 65535"]),
        (packets, "1,100\n0,100", &["rows:2: `time` is earlier"]),
        (sizes, "1 0.5\n2 0.4\n3 1", &["flow.f.source.file.cdf", "rows:2: ", "it is cumulative"]),
    ] {
        fs::write(folder.path().join("rows"), rows).expect("it is written");
        let error =
            Document::new(&text("10 s", flows), &file).expect_err("it is wrong").to_string();
        for part in parts {
            assert!(error.contains(part), "{rows:?} gives {error}\nwithout {part}");
        }
    }
    fs::write(folder.path().join("rows"), "1,2\n").expect("it is written");
    for (more, part) in [
        ("count = 3\n", "flow.f.count: comes from the file"),
        ("source = \"bulk\"\n", "flow.f.source: and `arrivals` exclude each other"),
    ] {
        let flows = format!("{arriving}{more}");
        let error =
            Document::new(&text("10 s", &flows), &file).expect_err("it is wrong").to_string();
        assert!(error.contains(part), "{error} lacks {part}");
    }
}

/// Flows beyond those that live cost a record, and their host no time.
#[test]
fn thousands_of_flows_at_one_host_run() {
    let flows = "[[flow]]\nname = \"w*\"\ncount = 20000\nfrom = \"server1\"\nto = \"client1\"\n\
                 start = { poisson = \"2000 per s\" }\nsource = { file = \"3 kB\" }\n";
    let scenario = scenario("11 s", flows);
    let run = run(&scenario);
    let count = |name| run.measure("all", "", name).expect("it is measured");
    assert!(count("begun") > 19_000.0 && count("begun") - count("completed") < 100.0);
}

/// A stored run depends on what the files say, and its copy has them.
#[test]
fn files_of_a_workload_are_stored_with_the_results() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("flows.csv"), "0,1000\n1,2000\n").expect("it is written");
    fs::write(path("sizes.cdf"), "1000 0.5\n2000 1\n").expect("it is written");
    let ends = "from = \"server1\"\nto = \"client1\"\n";
    let flows = format!(
        "[[flow]]\nname = \"a*\"\narrivals = \"flows.csv\"\n{ends}[[flow]]\nname = \"b*\"\n\
         count = 3\n{ends}source = {{ file = {{ cdf = \"sizes.cdf\" }} }}\n"
    );
    fs::write(path("scenario.toml"), text("3 s", &flows)).expect("it is written");
    let load = |file: &Path| Document::load(file).unwrap_or_else(|error| panic!("{error}"));
    let plan = |document: &Document| Plan::new(document, &[], None).expect("it is valid");
    let played = |document: &Document| run(&document.scenario(&[]).expect("it is valid"));
    let open = || {
        let document = load(&path("scenario.toml"));
        let plan = plan(&document);
        Store::open(&path("out"), &document, &plan, &[], &[], false).map(|store| (store, plan))
    };
    let (store, plan) = open().expect("the folder is new");
    let stored = played(&load(&path("scenario.toml")));
    store.save(0, &plan, &stored).expect("it is written");
    let measures = stored.measures;
    drop(store);
    assert_eq!(open().expect("nothing changed").0.load(0), Some(measures.clone()));
    let copy = load(&path("out/scenario.toml"));
    assert_eq!(played(&copy).measures, measures);
    for (name, other) in [("flows.csv", "0,1000\n1,2001\n"), ("sizes.cdf", "1001 0.5\n2000 1\n")] {
        let before = fs::read_to_string(path(name)).expect("it is there");
        fs::write(path(name), other).expect("it is written");
        assert!(open().is_err(), "{name} has changed");
        fs::write(path(name), before).expect("it is written");
    }
    assert_eq!(played(&copy).measures, measures, "the copy has its own files");
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

/// All kinds of workloads give the same events on every machine.
#[test]
fn workloads_have_these_digests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = Document::load(&root.join("fuzz/seeds/scenario/workloads.toml"));
    let scenario = document.expect("it is valid").scenario(&[]).expect("it is valid");
    let digests = [1, 2].map(|seed| {
        let run = scenario.run(Seed(seed), RunOptions::default()).expect("there are routes");
        run.digest.to_string()
    });
    assert_eq!(digests, ["bcf39030d165eaaf", "5320aed0265a48bb"]);
}

/// What has no bytes is complete when its end arrives, over all transports.
#[test]
fn flows_of_nothing_complete() {
    let flow = |keys: &str| {
        let flow = format!(
            "[[flow]]\nname = \"f\"\nfrom = \"server1\"\nto = \"client1\"\nstart = \"1 s\"\n\
             jitter = \"off\"\n{keys}\n"
        );
        run(&scenario("5 s", &flow))
    };
    let nothing = "source = { file = \"0 B\" }";
    for keys in [
        nothing.to_owned(),
        format!("{nothing}\nsubflows = 2"),
        format!("transport = \"ptcp\"\n{nothing}"),
        format!("transport = \"sockets\"\n{nothing}\nsubflows = 2"),
        "transport = \"udp\"\nrate = \"1 Mbit/s\"\nsize = \"0 B\"".to_owned(),
    ] {
        let run = flow(&keys);
        let completion = run.measure("flow", "f", "completion");
        // One to two round trips of 10 ms; half of one for UDP, which has no handshake.
        let completion = completion.unwrap_or_else(|| panic!("{keys}: it does not complete"));
        assert!((0.005..0.025).contains(&completion), "{keys}: {completion}");
        let slowdown = run.measure("flow", "f", "slowdown").unwrap_or(1.0);
        assert!((0.999..1.5).contains(&slowdown), "{keys}: {slowdown}");
    }
    let writes = |list: &[(&str, &str)]| {
        let list: Vec<String> = list
            .iter()
            .map(|(at, bytes)| format!("{{ at = \"{at}\", bytes = \"{bytes}\" }}"))
            .collect();
        format!("source = {{ trace = [{}] }}", list.join(", "))
    };
    for transport in ["tcp", "ptcp", "sockets"] {
        let trace = writes(&[("0 s", "10 kB"), ("1 s", "0 B"), ("2 s", "5 kB"), ("3 s", "0 B")]);
        let run = flow(&format!("transport = \"{transport}\"\n{trace}"));
        let done: Vec<(f64, u64)> = run
            .requests
            .iter()
            .map(|request| ((request.done - Time::ZERO).as_secs_f64(), request.bytes.0))
            .collect();
        let sizes: Vec<u64> = done.iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(sizes, [10_000, 0, 5_000, 0], "{transport}: {done:?}");
        assert!((1.0..1.06).contains(&done[0].0), "{transport}: {done:?}");
        assert!((done[1].0 - 2.0).abs() < 1e-9, "of nothing, at its time: {done:?}");
        assert!((3.0..3.06).contains(&done[2].0), "{transport}: {done:?}");
        assert!((4.0..4.06).contains(&done[3].0), "{transport}: {done:?}");
    }
    // What was never written is not complete.
    let trace = writes(&[("0 s", "10 kB"), ("2 s", "0 B")]);
    let run = flow(&format!("{trace}\nstop = \"2 s\""));
    assert_eq!(run.requests.len(), 1, "{:?}", run.requests);
}
