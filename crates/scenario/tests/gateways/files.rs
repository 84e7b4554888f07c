//! Gateways in scenario files: several at once, relays, keys, and mistakes.

use scenario::file::Through;
use scenario::{Document, RunOptions};

use super::{PAIR, read};

#[test]
fn an_entry_stands_for_several_pairs() {
    let mut text = PAIR.replace("\"S1\"", "\"S*\"").replace("\"R1\"", "\"R*\"");
    for name in ["home", "t1-t3", "t1-t2", "t2-t3", "away", "site", "backup"] {
        text =
            text.replace(&format!("name = \"{name}\""), &format!("name = \"{name}-*\"\ncount = 3"));
    }
    for node in ["T1", "T2", "T3"] {
        text = text.replace(&format!("\"{node}\""), &format!("\"{node}-*\""));
    }
    text = text
        .replace("paths = [[\"t1-t3\"]]", "paths = [[\"t1-t3-*\"], [\"t1-t2-*\", \"t2-t3-*\"]]");
    text = text.replace("gateway = \"site\"", "gateway = \"site-*\"");
    let scenario = read(&text, &["gateway.site-.coupling=joint"]);
    let names: Vec<&str> = scenario.gateways.iter().map(|spec| &*spec.name).collect();
    assert_eq!(names, ["site-1", "site-2", "site-3"]);
    for (number, flow) in scenario.flows.iter().enumerate() {
        assert_eq!(flow.gateway, Some(Through { gateway: number, is_reverse: false }));
        let spec = &scenario.gateways[number];
        assert_eq!(&*spec.ends[1], format!("T3-{}", number + 1));
        assert_eq!(spec.paths[1][1], format!("t2-t3-{}", number + 1));
    }
    let table = scenario.gateway_paths().expect("there are gateways").to_string();
    assert!(table.contains("modern, joint, by connection"), "{table}");
    assert!(table.contains("t1-t2-3, t2-t3-3"), "{table}");
}

#[test]
fn relays_make_the_paths_that_their_links_would() {
    // A relay T4 beside the way through T2, with a link of its own, and a longer way between them.
    let relay = r#"[[link]]
name = "relay"
between = ["T2", "T4"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "40 packets"
[[link]]
name = "detour"
between = ["T4", "T5"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "40 packets"
[[link]]
name = "slower"
between = ["T1", "T2"]
rate = "100 Mbit/s"
delay = "13 ms"
queue = "40 packets"
[[gateway]]"#;
    let listed = PAIR.replace(
        "paths = [[\"t1-t3\"]]",
        "paths = [[\"t1-t3\"], [\"t1-t2\", \"t2-t3\"], \
         [\"t1-t2\", \"relay\", \"relay\", \"t2-t3\"]]",
    );
    let listed = listed.replace("[[gateway]]", relay);
    let relayed = PAIR.replace("paths = [[\"t1-t3\"]]", "relays = [\"T2\", \"T4\"]");
    let relayed = relayed.replace("[[gateway]]", relay);
    let [listed, relayed] = [read(&listed, &[]), read(&relayed, &[])];
    assert_eq!(relayed.gateways[0].paths[0], Vec::<String>::new(), "the shortest route");
    assert_eq!(relayed.gateways[0].paths[1..], listed.gateways[0].paths[1..]);
    let [run, same] =
        [relayed, listed].map(|it| it.run(it.seed, RunOptions::default()).expect("it runs"));
    assert_eq!(run.digest, same.digest);
    let busy = run.measure("link", "relay/up", "throughput").expect("it is measured");
    let back = run.measure("link", "relay/down", "throughput").expect("it is measured");
    assert!(busy > 1.0 && (back / busy - 1.0).abs() < 0.01, "{busy} {back}");
}

#[test]
fn keys_of_gateways_are_set_and_swept() {
    let sweep = "[sweep]\n\"gateway.site.coupling\" = [\"joint\", \"adaptive\"]\n[[link]]";
    let document = Document::new(&PAIR.replacen("[[link]]", sweep, 1), "swept.toml").unwrap();
    assert_eq!(document.points().len(), 2);
    let set = [
        "gateway.site.profile=paper",
        "gateway.site.sharing=site",
        "gateway.site.reorder=2",
        "gateway.site.admission=off",
        "gateway.site.choke=false",
        "gateway.site.hold=true",
        "gateway.site.overhead=0 B",
        "gateway.site.paths=2",
        "gateway.site.controller={ alpha = 0.1, delta = 0.2, needed = 20, memory = \"off\", \
         threshold_most = \"5 ms\", delay_filter = \"20 ms\", foreground_queue = \"12 ms\", \
         slow_start = true, full_growth = 40, drain = \"30 s\" }",
    ];
    let scenario = read(PAIR, &set);
    let spec = &scenario.gateways[0];
    let config = harp::Config {
        sharing: harp::Sharing::Site,
        reorder: 2.0,
        admission: None,
        holds: true,
        ..harp::Config::paper(2)
    };
    let mut controller = config.controller;
    (controller.alpha, controller.needed, controller.lateness.share) = (0.1, 20.0, 0.2);
    (controller.memory, controller.slow_start, controller.chokes) = (None, true, false);
    (controller.full_growth, controller.drain) = (Some(40.0), Some(units::Span::from_secs(30)));
    controller.lateness.most = Some(units::Span::from_millis(5));
    controller.lateness.filter = Some(units::Span::from_millis(20));
    controller.foreground = Some(units::Span::from_millis(12));
    assert_eq!(spec.config, harp::Config { controller, ..config });
    assert_eq!((spec.profile, spec.overhead), ("paper", Some(units::Bytes(0))));
}

/// The text to replace, its replacement, and the required parts of the message.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    ("gateway = \"site\"", "gateway = \"sit\"", &[":43", "flow.backup.gateway", "'site'"]),
    ("gateway = \"site\"", "gateway = 3", &[":43", "flow.backup.gateway", "a string"]),
    ("entry = \"T1\"\n", "", &["gateway.site.entry", "is missing"]),
    ("entry = \"T1\"", "entry = \"T9\"", &[":36", "gateway.site.entry", "'T1'"]),
    ("exit = \"T3\"", "exit = \"T1\"", &[":37", "gateway.site.exit", "two nodes"]),
    ("exit = \"T3\"", "exits = \"T3\"", &[":37", "exits", "did you mean `exit`"]),
    ("name = \"site\"", "name = \"the site\"", &[":35", "gateway", "letters, digits"]),
    ("name = \"site\"", "name = \"off\"", &[":35", "without gateways", "another name"]),
    (
        "[[flow]]",
        "[[gateway]]\nname = \"site\"\nentry = \"T1\"\nexit = \"T2\"\n[[flow]]",
        &[":40", "earlier gateway"],
    ),
    ("[[\"t1-t3\"]]", "[[\"t1-t9\"]]", &[":38", "gateway.site.paths", "t1-t9"]),
    (
        "[[\"t1-t3\"]]",
        "[[\"t1-t2\"]]",
        &[":38", "gateway.site.paths", "from T1 to T3", "ends at T2", "list all links"],
    ),
    (
        "[[\"t1-t3\"]]",
        "[[\"t1-t2\", \"away\"]]",
        &["gateway.site.paths", "`away` does not begin at T2"],
    ),
    ("[[\"t1-t3\"]]", "[[\"t1-t3/down\"]]", &["gateway.site.paths", "does not begin at T1"]),
    ("[[\"t1-t3\"]]", "[[]]", &["gateway.site.paths", "ends at T1"]),
    ("[[\"t1-t3\"]]", "[]", &["gateway.site.paths", "1 to 8 paths"]),
    ("[[\"t1-t3\"]]", "0", &["gateway.site.paths", "1 to 8 paths"]),
    ("[[\"t1-t3\"]]", "9", &["gateway.site.paths", "1 to 8 paths"]),
    ("[[\"t1-t3\"]]", "\"t1-t3\"", &["gateway.site.paths", "a list"]),
    (
        "exit = \"T3\"",
        "exit = \"T3\"\nrelays = [\"T2\"]",
        &[":38", "gateway.site.relays", "exclude each other"],
    ),
    ("paths = [[\"t1-t3\"]]", "relays = []", &["gateway.site.relays", "1 to 7"]),
    ("paths = [[\"t1-t3\"]]", "relays = [\"T1\"]", &["gateway.site.relays", "an end of the pair"]),
    ("paths = [[\"t1-t3\"]]", "relays = [\"T8\"]", &[":38", "gateway.site.relays", "'T1'"]),
    (
        "exit = \"T3\"",
        "exit = \"T3\"\nprofile = \"old\"",
        &["gateway.site.profile", "modern, paper"],
    ),
    ("exit = \"T3\"", "exit = \"T3\"\ncoupling = \"join\"", &["site.coupling", "'joint'"]),
    ("exit = \"T3\"", "exit = \"T3\"\nsharing = \"sites\"", &["site.sharing", "'site'"]),
    ("exit = \"T3\"", "exit = \"T3\"\nreorder = -1", &["site.reorder", "0 or more"]),
    ("exit = \"T3\"", "exit = \"T3\"\nadmission = 0.5", &["site.admission", "\"off\""]),
    ("exit = \"T3\"", "exit = \"T3\"\nchoke = 1", &["site.choke", "true or false"]),
    ("exit = \"T3\"", "exit = \"T3\"\noverhead = \"2 kB\"", &["site.overhead", "1000 bytes"]),
    (
        "[[flow]]",
        "[gateway.controller]\nalhpa = 1\n[[flow]]",
        &[":40", "gateway.site.controller.alhpa", "did you mean `alpha`"],
    ),
    ("[[flow]]", "[gateway.controller]\nbeta = 2\n[[flow]]", &["controller.beta", "from 0 to 1"]),
    (
        "[[flow]]",
        "[gateway.controller]\nneeded = -1\n[[flow]]",
        &["controller.needed", "0 or more"],
    ),
    (
        "[[flow]]",
        "[gateway.controller]\nthreshold_most = \"1 ms\"\n[[flow]]",
        &[":40", "controller.threshold_most", "`threshold_least` up to `threshold_most`"],
    ),
    ("[[flow]]", "[gateway.controller]\nmemory = \"0 s\"\n[[flow]]", &["memory", "no time"]),
    (
        "gateway = \"site\"",
        "gateway = \"site\"\nvia = [\"t1-t3\"]",
        &[":43", "flow.backup.gateway", "`via` exclude each other", "`paths`", "\"off\""],
    ),
    ("gateway = \"site\"", "gateway = \"site\"\nsubflows = 2", &["`subflows` exclude each other"]),
    (
        "gateway = \"site\"",
        "gateway = \"site\"\nreroute = [{ at = \"1 s\", via = [\"t1-t3\"] }]",
        &["`reroute` exclude each other"],
    ),
    (
        "controller = \"reno\"",
        "transport = \"ptcp\"",
        &[":43", "flow.backup.gateway", "for TCP", "leave out the `transport`"],
    ),
    (
        "from = \"S1\"",
        "from = \"T1\"",
        &["flow.backup.gateway", "its own node T1", "a host behind the gateway"],
    ),
    ("to = \"R1\"", "to = \"T3\"", &["flow.backup.gateway", "its own node T3"]),
    (
        "from = \"S1\"",
        "from = \"T2\"",
        &[":43", "flow.backup.gateway", "T2", "1 links from the entry T1", "move it nearer"],
    ),
    (
        "from = \"S1\"\nto = \"R1\"",
        "from = [\"S1\", \"R1\"]\nto = \"T2\"",
        &["flow.backup.gateway", "a flow of its own"],
    ),
    (
        "controller = \"reno\"",
        "tcp = { receive_window = [[\"1 s\"]] }",
        &[":44", "flow.backup.tcp.receive_window", "for example"],
    ),
    (
        "controller = \"reno\"",
        "tcp = { receive_window = [[\"2 s\", \"1 kB\"], [\"2 s\", \"2 kB\"]] }",
        &["flow.backup.tcp.receive_window", "not after the time before it"],
    ),
    (
        "gateway = \"site\"",
        "transport = \"sockets\"\ntcp = { receive_window = [[\"2 s\", \"1 kB\"]] }",
        &["flow.backup.tcp.receive_window", "not for sockets"],
    ),
];

#[test]
fn mistakes_are_named() {
    for (found, replacement, wanted) in MISTAKES {
        assert!(PAIR.contains(found), "{found}");
        let text = PAIR.replacen(found, replacement, 1);
        let error = match Document::new(&text, "gateways.toml") {
            Ok(_) => panic!("{replacement}: no mistake was found"),
            Err(error) => error.to_string(),
        };
        assert!(error.starts_with("gateways.toml"), "{error}");
        for part in *wanted {
            assert!(error.contains(part), "{replacement}: '{part}' is missing in: {error}");
        }
    }
}
