//! Sizes, hosts and times from distributions, lists and files; flows of nothing.

use std::fs;
use std::path::Path;

use scenario::distribution::Distribution;
use scenario::file::Start;
use scenario::results::Store;
use scenario::sweep::Plan;
use scenario::{Document, RunOptions, Setting};
use units::{Seed, Time};

use super::{WEB, close, run, scenario, text};

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
