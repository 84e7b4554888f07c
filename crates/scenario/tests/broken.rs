//! Scenario files with one mistake each: the message names the line, the key, and a remedy.

use proptest::prelude::*;
use scenario::sweep::Plan;
use scenario::{Document, Setting};

const GOOD: &str = r#"name = "good"
runs = 2
duration = "2 s"
warmup = "1 s"
window = [{ name = "all", from = "0 s", to = "2 s" }]

[parameters]
n = 2
controller = "reno"

[sweep]
controller = ["reno", "cubic"]

[[link]]
name = "bottleneck"
between = ["left", "right"]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "20 packets"

[[link]]
name = "near*"
count = "$n"
between = ["sender*", "left"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "100 KiB"

[[flow]]
name = "tcp*"
count = "$n"
from = "sender*"
to = "right"
start = { spread = "100 ms" }
controller = "$controller"
tcp = { detection = "sack", delayed_ack = "off" }

[[flow]]
name = "cbr"
transport = "udp"
from = "sender1"
to = "right"
rate = "1 Mbit/s"
on_off = { on = "1 s", off = "1 s" }
"#;

/// The text to replace, its replacement, and the required parts of the message.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    (
        "duration = \"2 s\"",
        "duraton = \"2 s\"",
        &["broken.toml:3", "duraton", "did you mean `duration`"],
    ),
    ("duration = \"2 s\"\n", "", &["duration", "is missing"]),
    (
        "duration = \"2 s\"",
        "duration = 2",
        &["broken.toml:3", "duration", "a string with a number and a unit"],
    ),
    ("duration = \"2 s\"", "duration = \"2 sec\"", &["broken.toml:3", "'2 sec' is not a"]),
    ("warmup = \"1 s\"", "warmup = \"3 s\"", &["warmup", "not shorter than the `duration`"]),
    ("to = \"2 s\" }]", "to = \"9 s\" }]", &["broken.toml:5", "window.to", "not between"]),
    (
        "[[flow]]\nname = \"cbr\"",
        "[[flow]]\nname = \"late*\"\ncount = 3\nfrom = \"sender1\"\nto = \"right\"\n\
         start = { spread = \"900 ms\" }\nstop = \"600 ms\"\n\n[[flow]]\nname = \"cbr\"",
        &["flow.late.stop", "is not after the start", "late3 can begin at 600"],
    ),
    (
        "on_off = { on = \"1 s\", off = \"1 s\" }",
        "start = \"1 s\"\nstop = \"500 ms\"",
        &["flow.cbr.stop", "is not after the start"],
    ),
    (
        "rate = \"1 Mbit/s\"",
        "rate = \"0.5 bit/s\"",
        &["flow.cbr.rate", "'0.5 bit/s' is not a rate"],
    ),
    (
        "controller = \"$controller\"\n",
        "source = { requests = { size = \"0 B\" } }\n",
        &["flow.tcp.source.requests.size", "at least a byte"],
    ),
    (
        "controller = \"$controller\"\n",
        "source = { requests = { size = \"1 B\", request = { constant = \"0 B\" } } }\n",
        &["flow.tcp.source.requests.request", "at least a byte"],
    ),
    (
        "controller = \"$controller\"\n",
        "source = { web = { mean = \"0 B\" } }\n",
        &["flow.tcp.source.web.mean", "at least a byte"],
    ),
    ("runs = 2", "runs = 0", &["broken.toml:2", "runs", "from 1 to 1000000"]),
    ("runs = 2", "runs = 2\nruns = 3", &["broken.toml:3", "duplicate key"]),
    ("[[link]]\nname = \"near*\"", "[link]\nname = \"near*\"", &["broken.toml:"]),
    (
        "rate = \"10 Mbit/s\"",
        "rate = \"10 Mbps\"",
        &["broken.toml:17", "link.bottleneck.rate", "50 Mbit/s"],
    ),
    ("queue = \"20 packets\"", "queue = \"20\"", &["broken.toml:19", "link.bottleneck.queue"]),
    ("queue = \"20 packets\"\n", "", &["link.bottleneck.queue", "is missing"]),
    ("delay = \"5 ms\"", "dealy = \"5 ms\"", &["broken.toml:18", "did you mean `delay`"]),
    (
        "between = [\"left\", \"right\"]",
        "between = [\"left\"]",
        &["broken.toml:16", "wants two nodes"],
    ),
    (
        "between = [\"left\", \"right\"]",
        "between = [\"left\", \"left\"]",
        &["broken.toml:16", "leads back"],
    ),
    ("name = \"near*\"", "name = \"near\"", &["put a '*'"]),
    ("name = \"near*\"\ncount = \"$n\"", "name = \"near*\"", &["link.near.count", "is missing"]),
    (
        "count = \"$n\"\nbetween",
        "count = \"$m\"\nbetween",
        &["broken.toml:23", "no parameter '$m'", "controller, n"],
    ),
    (
        "to = \"right\"\nstart",
        "to = \"rigth\"\nstart",
        &["broken.toml:33", "flow.tcp.to", "did you mean 'right'"],
    ),
    ("to = \"right\"\nrate", "to = \"sender1\"\nrate", &["flow.cbr.to", "where the flow begins"]),
    (
        "controller = \"$controller\"",
        "controller = \"renu\"",
        &["broken.toml:35", "no congestion controller 'renu'", "did you mean 'reno'"],
    ),
    (
        "controller = \"$controller\"",
        "controller = \"vegas(delta=1)\"",
        &["no parameter 'delta'", "alpha=2, beta=4"],
    ),
    (
        "detection = \"sack\"",
        "detection = \"sac\"",
        &["broken.toml:36", "detection", "did you mean 'sack'"],
    ),
    ("delayed_ack = \"off\"", "delayedack = \"off\"", &["did you mean `delayed_ack`"]),
    (
        "transport = \"udp\"",
        "transport = \"upd\"",
        &["broken.toml:40", "did you mean 'udp'? There are: tcp, ptcp, sockets, udp"],
    ),
    (
        "rate = \"1 Mbit/s\"",
        "colour = \"blue\"",
        &["flow.cbr.colour", "no such key; there are: name, count, group, from"],
    ),
    (
        "rate = \"1 Mbit/s\"",
        "source = \"bulk\"",
        &["flow.cbr.source", "'bulk'", "`transport`", "`rate`"],
    ),
    ("on = \"1 s\",", "", &["on_off.on", "is missing"]),
    (
        "controller = [\"reno\", \"cubic\"]",
        "controler = [\"reno\"]",
        &["controler", "did you mean 'controller'"],
    ),
    (
        "controller = [\"reno\", \"cubic\"]",
        "controller = []",
        &["sweep.controller", "at least one value"],
    ),
    ("name = \"tcp*\"", "name = \"cbr*\"\nstop = 3", &["flow.cbr.stop"]),
];

#[test]
fn the_good_file_is_valid() {
    let document = Document::new(GOOD, "good.toml").expect("nothing is wrong with it");
    assert_eq!(document.points().len(), 2);
    let scenario = document.scenario(&[]).expect("nothing is wrong with it");
    assert_eq!((scenario.flows.len(), scenario.links.len()), (3, 3));
    scenario.build(scenario.seed).expect("its links lead everywhere");
}

#[test]
fn every_mistake_has_a_helpful_message() {
    for (right, wrong, wanted) in MISTAKES {
        assert!(GOOD.contains(right), "no such text: {right}");
        let text = GOOD.replacen(right, wrong, 1);
        let error = match Document::new(&text, "broken.toml") {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{wrong:?} was taken for right"),
        };
        for part in *wanted {
            assert!(error.contains(part), "{wrong:?} gives\n    {error}\nwithout\n    {part}");
        }
    }
    println!("{} mistakes", MISTAKES.len());
}

#[test]
fn a_sweep_over_more_than_fits_into_memory_is_a_mistake() {
    let ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let keys: Vec<String> = (0..19).map(|key| format!("k{key} = {ten}")).collect();
    let text = GOOD.replacen("[sweep]\n", &format!("[sweep]\n{}\n", keys.join("\n")), 1);
    let error = Document::new(&text, "broken.toml").expect_err("these are 2 * 10^19").to_string();
    assert!(error.contains("sweep") && error.contains("more than 100000 combinations"), "{error}");
}

#[test]
fn settings_reach_all_values() {
    let document = Document::new(GOOD, "good.toml").expect("nothing is wrong with it");
    let set = |text: &str| document.scenario(&[Setting::parse(text).expect("a setting")]);
    assert_eq!(set("n=7").expect("a parameter").flows.len(), 8);
    assert_eq!(set("duration=9 s").expect("a key").duration, units::Span::from_secs(9));
    let scenario = set("link.bottleneck.rate=3 Mbit/s").expect("a path");
    assert_eq!(scenario.links[0].up.profile().rate.base, units::Rate::mbit(3));
    assert!(set("link.near.loss=0.5").is_ok(), "a key that the file leaves out");
    for (text, wanted) in [
        ("m=7", "the parameters are: controller, n"),
        ("contoller=7", "did you mean 'controller'"),
        ("link.botleneck.rate=3 Mbit/s", "did you mean 'bottleneck'"),
        ("lnk.bottleneck.rate=3 Mbit/s", "did you mean 'link'"),
        ("link.bottleneck.rat=3 Mbit/s", "did you mean `rate`"),
        ("n.x=3", "not known"),
        ("name.x=3", "no keys of its own"),
    ] {
        let error = set(text).expect_err(text).to_string();
        assert!(error.contains(wanted), "{text} gives {error}");
    }
}

proptest! {
    /// Any edit of the text gives a scenario or a message, never a panic.
    #[test]
    fn any_edit_gives_a_scenario_or_a_message(
        at in 0..GOOD.len(),
        cut in 0..40usize,
        paste in prop_oneof![".{0,12}", r#"[\[\]={}"$*,.#0-9a-z \n-]{0,24}"#],
    ) {
        let end = (at + cut).min(GOOD.len());
        let text = format!("{}{paste}{}", &GOOD[..at], &GOOD[end..]);
        if let Err(error) = Document::new(&text, "edited.toml") {
            prop_assert!(error.to_string().starts_with("edited.toml"));
        }
    }
}

#[test]
fn too_many_windows_are_refused() {
    let windows = format!("window = [{}]", "{},".repeat(65_536));
    let text =
        GOOD.replace("window = [{ name = \"all\", from = \"0 s\", to = \"2 s\" }]", &windows);
    let error = Document::new(&text, "broken.toml").expect_err("there are too many").to_string();
    assert!(
        error.contains("broken.toml:5") && error.contains("fewer than 65536 windows"),
        "{error}"
    );
}

#[test]
fn the_shipped_scenarios_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("they are there") {
        let path = entry.expect("it can be read").path();
        if path.extension().is_none_or(|kind| kind != "toml") {
            continue;
        }
        let document = Document::load(&path).unwrap_or_else(|error| panic!("{error}"));
        for point in document.points() {
            let scenario = document.scenario(&point).unwrap_or_else(|error| panic!("{error}"));
            scenario
                .build(scenario.seed)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        count += 1;
    }
    assert!(count >= 2);
}

/// Sizes beyond all sense are mistakes with the name of their key, not panics or endless runs.
#[test]
fn absurd_sizes_name_their_key() {
    let document = Document::new(GOOD, "good.toml").expect("nothing is wrong with it");
    let most = "18446744073709551615 B";
    for (setting, wanted) in [
        ("duration=100000000 s", "duration: wants at most 730 days"),
        ("flow.tcp.subflows=1000000", "flow.tcp.subflows: wants up to 10000"),
        ("flow.tcp.subflows=10001", "flow.tcp.subflows: wants up to 10000"),
        (&format!("flow.tcp.tcp={{ receive_buffer = \"{most}\" }}"), "tcp.receive_buffer: wants"),
        (&format!("flow.tcp.tcp={{ headers = \"{most}\" }}"), "tcp.headers: wants up to 1000"),
        (
            "link.bottleneck.redraw={ every = \"1 ns\", from = 0.1, to = 1.0 }",
            "link.bottleneck.redraw.every: is so short",
        ),
        (
            "link.bottleneck.up={ blackout = [{ from = \"0 s\", to = \"1 ns\", every = \"2 ns\" }] \
             }",
            "link.bottleneck.up.blackout.every: is so short",
        ),
    ] {
        let setting = Setting::parse(setting).expect("a setting");
        let error = document.scenario(std::slice::from_ref(&setting)).expect_err(&setting.value);
        assert!(error.to_string().contains(wanted), "{setting:?}: {error}");
    }
    let striped = GOOD.replacen(
        "controller = \"$controller\"\ntcp = { detection = \"sack\", delayed_ack = \"off\" }",
        &format!("transport = \"ptcp\"\nptcp = {{ receive_buffer = \"{most}\" }}"),
        1,
    );
    let error = Document::new(&striped, "striped.toml").expect_err(most).to_string();
    assert!(error.contains("flow.tcp.ptcp.receive_buffer: wants up to 1 TB"), "{error}");
    let sockets = GOOD.replacen(
        "controller = \"$controller\"\ntcp = { detection = \"sack\", delayed_ack = \"off\" }",
        &format!("transport = \"sockets\"\nbuffer = \"{most}\""),
        1,
    );
    let error = Document::new(&sockets, "sockets.toml").expect_err(most).to_string();
    assert!(error.contains("flow.tcp.buffer: wants up to 1 GB"), "{error}");
    let error = Plan::new(&document, &[], Some(u32::MAX)).expect_err("8 billion runs").to_string();
    assert!(error.contains("runs: wants at most a million runs"), "{error}");
}

#[test]
fn a_flow_that_begins_after_the_end_is_a_mistake() {
    for start in ["\"2 s\"", "\"5 s\"", "{ from = \"1 s\", to = \"2 s\" }", "{ spread = \"9 s\" }"]
    {
        let text = GOOD.replacen("{ spread = \"100 ms\" }", start, 1);
        let error = Document::new(&text, "late.toml").expect_err(start).to_string();
        assert!(
            error.starts_with("late.toml:34: flow.tcp.start: flow tcp")
                && error.contains("the run ends after 2 s"),
            "{error}"
        );
    }
}

#[test]
fn the_sweep_can_be_set() {
    let document = Document::new(GOOD, "good.toml").expect("nothing is wrong with it");
    let points = |settings: &[&str]| -> Result<Vec<String>, String> {
        let settings: Vec<Setting> =
            settings.iter().map(|text| Setting::parse(text).expect("a setting")).collect();
        let plan = Plan::new(&document, &settings, Some(1)).map_err(|error| error.to_string())?;
        let values = |point: &[Setting]| {
            let each: Vec<String> =
                point.iter().map(|it| format!("{}={}", it.key, it.value)).collect();
            each.join(";")
        };
        Ok(plan.jobs().iter().map(|job| values(&job.point)).collect())
    };
    assert_eq!(
        points(&["sweep.controller=[\"vegas\", \"lia\"]"]).expect("a list"),
        ["controller=vegas", "controller=lia"]
    );
    assert_eq!(
        points(&["sweep.n=[1, 3]", "controller=reno"]).expect("a list"),
        ["n=1", "n=3"],
        "what is set is not swept over"
    );
    assert_eq!(
        points(&["sweep.link.bottleneck.queue=[\"9 packets\"]", "controller=reno"])
            .expect("a path"),
        ["link.bottleneck.queue=9 packets"]
    );
    for wrong in ["sweep.n=3", "sweep.n=[]", "sweep.n=[1, [2]]"] {
        let error = points(&[wrong]).expect_err(wrong);
        assert!(error.contains("sweep.n: wants a list of values"), "{error}");
    }
    let error = points(&["sweep.m=[1]"]).expect_err("no such parameter");
    assert!(error.contains("the parameters are: controller, n"), "{error}");
}

/// Whoever shortens a run for a trial gets a message and the run.
#[test]
fn flows_after_the_end_of_a_shortened_run_are_told() {
    let text = GOOD.replacen("{ spread = \"100 ms\" }", "\"1.8 s\"", 1);
    let document = Document::new(&text, "late.toml").expect("it begins within the run");
    assert_eq!(document.scenario(&[]).expect("it is valid").late, None);
    let setting = Setting::parse("duration=1.5 s").expect("a setting");
    let windows = Setting::parse("window=[]").expect("a setting");
    let scenario = document.scenario(&[setting, windows]).expect("it is valid");
    let late = scenario.late.expect("tcp begins later");
    assert!(late.contains("flow.tcp.start") && late.contains("the run ends after 1.5 s"), "{late}");
}

#[test]
fn an_error_of_an_option_names_it() {
    let document = Document::new(GOOD, "good.toml").expect("nothing is wrong with it");
    let error = |settings: &[&str]| {
        let settings: Vec<Setting> =
            settings.iter().map(|text| Setting::parse(text).expect("a setting")).collect();
        Plan::new(&document, &settings, Some(1)).expect_err(settings[0].key.as_str()).to_string()
    };
    for (option, wanted) in [
        ("link.bottleneck.rate=50 Mbps", "link.bottleneck.rate: '50 Mbps' is not a rate"),
        ("link.botleneck.rate=50 Mbit/s", "link.botleneck.rate: 'botleneck' is not known here"),
        ("flow.tcp.tcp.detection=sak", "flow.tcp.tcp.detection: 'sak' is not known here"),
        ("duration=2", "duration: wants a string"),
        // Where the parameter stands, with the option that gave it its value.
        ("controller=renoo", "flow.tcp.controller: "),
        ("sweep.controller=[\"renoo\"]", "flow.tcp.controller: "),
        ("sweep.controller=reno", "sweep.controller: wants a list of values"),
        ("m=3", "m: is no key and no parameter"),
    ] {
        let error = error(&["n=1", option]);
        assert!(error.starts_with(&format!("--set {option}: {wanted}")), "{error}");
    }
    // A mistake of the file keeps its line.
    let error = error(&["warmup=2 s", "n=1", "flow.cbr.start=1 s", "duration=1 s"]);
    assert!(!error.contains("n=1"), "{error}");
}

#[test]
fn a_byte_order_mark_is_no_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("marked.toml");
    let arrivals = "arrivals = \"flows.csv\"";
    let text = GOOD
        .replacen("start = { spread = \"100 ms\" }", arrivals, 1)
        .replacen("count = \"$n\"\nfrom", "from", 1)
        .replacen("sender*\"\nto", "sender1\"\nto", 1)
        .replacen("queue = \"20 packets\"", "queue = \"20 packets\"\ntrace = \"rate.csv\"", 1)
        .replacen("rate = \"10 Mbit/s\"\n", "", 1);
    std::fs::write(&path, format!("\u{feff}{text}")).expect("it is written");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), format!("\u{feff}{text}")).expect("written");
    };
    write("flows.csv", "start,size\n0.1,1000\n");
    write("rate.csv", "0 s,10 Mbit/s\n1 s,5 Mbit/s\n");
    let document = Document::load(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        document.scenario(&[]).expect("it is valid").flows[0].size.map(|size| size.0),
        Some(1_000)
    );
}
