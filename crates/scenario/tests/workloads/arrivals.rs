//! Flows that arrive one after the other: when, how they end, and what is kept of them.

use std::fmt::Write as _;
use std::fs;

use scenario::file::Scenario;
use scenario::host::AgentState;
use scenario::{Document, Measure};
use units::{Seed, Time};

use super::{WEB, close, run, scenario, text};

/// The starts of the flows in a run, in seconds.
fn starts(scenario: &Scenario, seed: Seed) -> Vec<f64> {
    let built = scenario.build(seed).expect("there are routes");
    built.flows.iter().map(|ends| (ends.start - Time::ZERO).as_secs_f64()).collect()
}

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
