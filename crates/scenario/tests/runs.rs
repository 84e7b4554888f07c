//! Runs: the same seed gives the same digest, with traces and with other flows; every lost packet
//! is counted.

use netsim::{Event, Trace};
use scenario::file::Scenario;
use scenario::sweep::Plan;
use scenario::{Document, Packet, RunOptions, Setting};
use std::collections::BTreeMap;
use std::sync::Mutex;
use units::{Seed, Time};

/// All kinds of flows, on a network that loses packets.
const MIXED: &str = r#"
name = "mixed"
runs = 3
duration = "3 s"

[parameters]
controller = "cubic"
transport = "tcp"

[sweep]
controller = ["reno", "cubic", "vegas", "fast(alpha=20)", "lia", "olia", "balia"]

[[link]]
name = "first"
between = ["left", "right"]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "20 packets"
loss = 0.002

[[link]]
name = "second"
between = ["left", "right"]
rate = "5 Mbit/s"
delay = "20 ms"
queue = "32 KiB"
duplicate = 0.001
reorder = { probability = 0.01, delay = "3 ms" }

[[link]]
name = "near"
between = ["sender", "left"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "100 KiB"

[[link]]
name = "far"
between = ["right", "receiver"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "100 KiB"

[[flow]]
name = "striped"
from = "sender"
to = "receiver"
transport = "$transport"
controller = "$controller"
subflows = [["near", "first", "far"], ["near", "second", "far"]]

[[flow]]
name = "pages"
from = "sender"
to = "receiver"
source = { web = { mean = "20 kB", think = "50 ms" } }

[[flow]]
name = "file"
from = "receiver"
to = "sender"
source = { file = "300 kB" }
start = "500 ms"

[[flow]]
name = "replayed"
from = "receiver"
to = "sender"
source = { trace = [{ at = "100 ms", bytes = "5 kB" }, { at = "900 ms", bytes = "70 kB" }] }

[[flow]]
name = "feed"
from = "sender"
to = "receiver"
source = { stream = "800 kbit/s" }
tcp = { ecn = true, pacing = true, hystart = true }

[[flow]]
name = "bursts"
transport = "udp"
from = "sender"
to = "receiver"
rate = "2 Mbit/s"
on_off = { on = "100 ms", off = "100 ms" }
"#;

fn mixed(controller: &str) -> Scenario {
    mixed_over("tcp", controller)
}

fn mixed_over(transport: &str, controller: &str) -> Scenario {
    let document = Document::new(MIXED, "mixed.toml").expect("nothing is wrong with it");
    let settings = [("transport", transport), ("controller", controller)];
    let settings = settings.map(|(key, value)| Setting { key: key.into(), value: value.into() });
    document.scenario(&settings).expect("nothing is wrong with it")
}

/// Counts events.
#[derive(Default)]
struct Counts(BTreeMap<&'static str, u64>);

impl Trace<Packet> for Counts {
    fn record(&mut self, _: Time, event: Event<'_, Packet>) {
        let what = match event {
            Event::Sent { .. } => "sent",
            Event::Delivered { .. } => "delivered",
            Event::Offered { .. } => "offered",
            Event::Passed { .. } => "passed",
            Event::Deadline { .. } => "deadline",
        };
        *self.0.entry(what).or_default() += 1;
    }
}

/// Golden digests: a change here means that every figure changes, and must be deliberate. They are
/// the same in debug and release builds and on every machine.
#[test]
fn digests_are_golden() {
    let digest = |controller: &str, run: &Scenario| {
        let run = run.run(Seed(1), RunOptions::default()).expect("there is a route for every flow");
        format!("{controller} {}", run.digest)
    };
    let plain = ["reno", "cubic", "vegas", "fast(alpha=20)", "lia", "olia", "balia"];
    let striped = ["reno", "lia", "bbr", "waimd(weight=4)"];
    let plain = plain.map(|controller| digest(controller, &mixed(controller)));
    let striped = striped
        .map(|controller| digest(&format!("ptcp {controller}"), &mixed_over("ptcp", controller)));
    let sockets = digest("sockets reno", &mixed_over("sockets", "reno"));
    let digests = plain.into_iter().chain(striped).chain([sockets]).collect::<Vec<_>>().join("\n");
    let golden = include_str!("golden/digests.txt");
    assert_eq!(digests, golden.trim(), "digests differ from tests/golden/digests.txt");
}

#[test]
fn traces_change_nothing() {
    let scenario = mixed("olia");
    let plain = scenario.run(Seed(7), RunOptions::default()).expect("it runs");
    let drawn = scenario.run(Seed(7), RunOptions { series: true }).expect("it runs");
    let mut counts = Counts::default();
    let traced = scenario.run_traced(Seed(7), RunOptions::default(), &mut counts).expect("it runs");
    assert_eq!((plain.digest, &plain.measures), (drawn.digest, &drawn.measures));
    assert_eq!((plain.digest, plain.totals), (traced.digest, traced.totals));
    assert_eq!(counts.0["sent"], plain.totals.sent);
    assert_eq!(counts.0["delivered"], plain.totals.delivered);
    let series = drawn.series.expect("it was asked for");
    assert_eq!(series.at.len(), 30);
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let document = Document::new(MIXED, "mixed.toml").expect("nothing is wrong with it");
    let plan = Plan::new(&document, &[], Some(2)).expect("it runs");
    assert_eq!(plan.jobs().len(), 14);
    let digests = |threads: usize| {
        let found = Mutex::new(BTreeMap::new());
        let keep = |number, run: scenario::Run| {
            found.lock().expect("no thread panics").insert(number, run.digest);
            true
        };
        plan.run(threads, RunOptions::default(), |_| true, keep).expect("it runs");
        found.into_inner().expect("all threads have ended")
    };
    let alone = digests(1);
    assert_eq!(alone.len(), 14);
    assert_eq!(alone, digests(5));
}

/// Each thread has a heap arena of its own: in the arena of the calling thread, two simulations
/// wrote to the same cache lines.
#[test]
fn parallel_runs_are_not_on_the_calling_thread() {
    let document = Document::new(MIXED, "mixed.toml").expect("nothing is wrong with it");
    let plan = Plan::new(&document, &[], Some(2)).expect("it runs");
    let asking = std::thread::current().id();
    let runs_here = |threads: usize| {
        let mut here = 0;
        let count = |_, _| {
            here += usize::from(std::thread::current().id() == asking);
            true
        };
        plan.run(threads, RunOptions::default(), |_| true, count).expect("it runs");
        here
    };
    assert_eq!((runs_here(1), runs_here(2)), (14, 0));
}

#[test]
fn another_flow_leaves_the_draws_of_the_others_alone() {
    let starts = |text: &str| -> Vec<Time> {
        let scenario =
            Document::new(text, "starts.toml").expect("fine").scenario(&[]).expect("fine");
        scenario.build(Seed(5)).expect("fine").flows.iter().map(|ends| ends.start).collect()
    };
    let flow = |name: &str| {
        format!(
            "[[flow]]\nname = \"{name}\"\nfrom = \"sender\"\nto = \"receiver\"\nstart = {{ from = \
             \"0 s\", to = \"1 s\" }}\n"
        )
    };
    let head = MIXED.split("[[flow]]").next().expect("the links");
    let two = starts(&format!("{head}{}{}", flow("a"), flow("b")));
    let three = starts(&format!("{head}{}{}{}", flow("a"), flow("new"), flow("b")));
    assert_eq!((two[0], two[1]), (three[0], three[2]));
    assert_ne!(two[0], two[1]);
}

#[test]
fn every_packet_is_delivered_dropped_or_in_flight() {
    let scenario = mixed("lia");
    for seed in 1..6 {
        let mut built = scenario.build(Seed(seed)).expect("there is a route for every flow");
        for step in 1..=30u64 {
            built.sim.run_until(Time::ZERO + units::Span::from_millis(step * 100));
            let totals = built.sim.totals();
            let dropped: u64 = built.sim.all_counters().map(|counters| counters.dropped()).sum();
            let copies: u64 = built.sim.all_counters().map(|counters| counters.duplicated).sum();
            assert_eq!(
                totals.sent + copies,
                totals.delivered + totals.damaged + dropped + built.sim.held(),
                "seed {seed}, {step}00 ms"
            );
        }
    }
}

#[test]
fn requests_complete_in_plausible_times() {
    let run = mixed("reno").run(Seed(3), RunOptions::default()).expect("it runs");
    let of = |flow: &str, name: &str| {
        run.measure("flow", flow, name).unwrap_or_else(|| panic!("{flow} has no {name}"))
    };
    assert!((of("file", "requests") - 1.0).abs() < 1e-9);
    assert!((of("replayed", "requests") - 2.0).abs() < 1e-9);
    assert!(of("pages", "requests") > 5.0);
    // 300 kB take 160 ms at 15 Mbit/s and two round trips of 14 ms at least.
    assert!(of("file", "completion") > 0.19, "{}", of("file", "completion"));
    // An on-off source is on half of the time.
    assert!((of("bursts", "goodput") - 1.0).abs() < 0.7, "{}", of("bursts", "goodput"));
    assert!((of("feed", "goodput") - 0.8).abs() < 0.1, "{}", of("feed", "goodput"));
    let used = run.measure("link", "second/up", "utilisation").expect("a link has one");
    assert!(used > 0.5, "the second subflow uses the second link: {used}");
}

/// Slow start runs into RED: hundreds of packets and retransmissions are lost. A bulk source must
/// always have more to send, also behind gaps. When new data was written only as old data was
/// acknowledged in order, the goodput was 45 Mbit/s.
#[test]
fn a_bulk_source_is_never_the_limit() {
    let text = r#"
name = "overshoot"
duration = "2 s"

[[link]]
name = "line"
between = ["a", "b"]
rate = "100 Mbit/s"
delay = "10 ms"
queue = "168 packets"
up = { aqm = "red" }

[[flow]]
name = "bulk*"
count = 2
from = "a"
to = "b"
controller = "reno"
tcp = { detection = "sack", delayed_ack = "off", timestamps = false, rate_reduction = false }
"#;
    let scenario =
        Document::new(text, "overshoot.toml").expect("fine").scenario(&[]).expect("fine");
    for seed in 1..4 {
        let run = scenario.run(Seed(seed), RunOptions::default()).expect("it runs");
        let goodput = run.measure("all", "", "goodput").expect("there is one");
        assert!(goodput > 75.0, "{goodput} Mbit/s");
    }
}

#[test]
fn numbered_subflows_each_draw_a_route() {
    const PARALLEL: &str = r#"
        name = "parallel"
        duration = "1 s"

        [parameters]
        n = 1

        [[link]]
        name = "hop-*"
        count = 3
        between = ["left", "right"]
        rate = "10 Mbit/s"
        delay = "5 ms"
        queue = "20 packets"

        [[flow]]
        name = "bulk"
        from = "left"
        to = "right"
        via = ["hop-?"]
        subflows = "$n"
    "#;
    let document = Document::new(PARALLEL, "parallel").unwrap();
    let used = |n: u32, seed: u64| {
        let settings = [Setting { key: "n".into(), value: n.to_string() }];
        let run =
            document.scenario(&settings).unwrap().run(Seed(seed), RunOptions::default()).unwrap();
        let carries = |link: &u32| {
            run.measure("link", &format!("hop-{link}/up"), "throughput").is_some_and(|t| t > 0.0)
        };
        (1..=3).filter(carries).collect::<Vec<u32>>()
    };
    let alone: Vec<Vec<u32>> = (1..=8).map(|seed| used(1, seed)).collect();
    assert!(alone.iter().all(|links| links.len() == 1), "{alone:?}");
    assert!(alone.iter().any(|links| *links != alone[0]), "{alone:?}");
    assert_eq!(used(1, 1), alone[0], "the same seed draws the same");
    assert_eq!(used(20, 1), [1, 2, 3]);
    let error =
        Document::new(&PARALLEL.replace("hop-?", "hip-?"), "parallel").unwrap_err().to_string();
    assert!(error.contains("hip-?"), "{error}");
}
