//! Controllers and packet schedulers that a program adds: in files, in sweeps, in messages.

use std::panic::catch_unwind;

use policy::cc::{Reno, Uncoupled, Vegas, VegasOptions};
use policy::named::{Parameter, Signature};
use policy::sched::packet::lowest_rtt::LowestRtt;
use policy::sched::packet::weighted::Weighted;
use scenario::sweep::Plan;
use scenario::{Document, Registry, RunOptions, Setting};

const TEXT: &str = r#"
name = "two flows"
duration = "2 s"

[parameters]
controller = "reno"

[sweep]
controller = ["reno", "mine", "vegas", "calm"]

[[link]]
name = "bottleneck"
between = ["near", "far"]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "20 packets"

[[flow]]
name = "bulk*"
count = 2
from = "near"
to = "far"
controller = "$controller"
"#;

/// A striped connection over two links.
const STRIPED: &str = r#"
name = "striped"
duration = "2 s"

[parameters]
controller = "olia"
scheduler = "weighted(weights=3:1)"

[[link]]
name = "path*"
count = 2
between = ["near", "far"]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "20 packets"

[[flow]]
name = "bulk"
from = "near"
to = "far"
transport = "ptcp"
subflows = "each"
controller = "$controller"
scheduler = "$scheduler"
"#;

const SHARE: Signature = Signature {
    name: "share",
    summary: "so many packets over the first path for one over each other",
    parameters: &[Parameter { name: "first", default: "3", summary: "packets, 1 to 9" }],
};

fn registry() -> Registry {
    Registry::default()
        .controller("mine", || Uncoupled::new(Reno::default()))
        .controller("calm", || Uncoupled::new(Vegas::new(VegasOptions::default())))
        .scheduler("fastest", || LowestRtt)
        .scheduler_with(SHARE, |settings| {
            let first = settings.get("first", |first| (1..=9).contains(first))?;
            Ok(Weighted::new(vec![first]))
        })
}

fn set(key: &str, value: &str) -> Setting {
    Setting { key: key.into(), value: value.into() }
}

/// The message about a document with this setting.
fn message(document: &Document, key: &str, value: &str) -> String {
    document.scenario(&[set(key, value)]).expect_err("it is invalid").to_string()
}

#[test]
fn an_added_controller_runs_in_a_sweep() {
    let document = Document::new_with(TEXT, "two.toml", registry()).expect("both are added");
    let plan = Plan::new(&document, &[], None).expect("all four are known");
    let mut digests = [None; 4];
    plan.run(
        2,
        RunOptions::default(),
        |_| true,
        |number, run| {
            digests[number] = Some(run.digest);
            true
        },
    )
    .expect("all run");
    // The same algorithm under another name: the same run, to the last packet.
    assert_eq!(digests[0], digests[1]);
    assert_eq!(digests[2], digests[3]);
    assert_ne!(digests[0], digests[2]);
}

#[test]
fn a_striped_connection_takes_what_is_added() {
    let document = Document::new_with(STRIPED, "striped.toml", registry()).expect("it is valid");
    let digest = |settings: &[Setting]| {
        let scenario = document.scenario(settings).expect("it is known");
        scenario.run(scenario.seed, RunOptions::default()).expect("it runs").digest
    };
    let controller = |name| digest(&[set("controller", name)]);
    assert_eq!(controller("reno"), controller("mine"));
    assert_ne!(controller("reno"), controller("calm"));
    // Bulk data would fill both paths, whatever the scheduler.
    let stream = set("flow.bulk.source", r#"{ stream = "4 Mbit/s" }"#);
    let scheduler = |name| digest(&[set("scheduler", name), stream.clone()]);
    assert_eq!(scheduler("lowest-rtt"), scheduler("fastest"));
    assert_eq!(scheduler("weighted(weights=3:1)"), scheduler("share"));
    assert_eq!(scheduler("weighted(weights=2)"), scheduler("share(first=2)"));
    assert_ne!(scheduler("share"), scheduler("share(first=2)"));
}

#[test]
fn what_is_added_replaces_the_known_one_of_its_name() {
    let slow = Registry::default()
        .controller("Reno", || Uncoupled::new(Vegas::new(VegasOptions::default())))
        .scheduler("blest", || LowestRtt);
    assert_eq!(slow.make_controller("reno").expect("it was added").name(), "vegas");
    assert_eq!(slow.make_scheduler("blest").expect("it was added").name(), "lowest-rtt");
    let names: Vec<&str> = slow.controllers().map(|signature| signature.name).collect();
    assert!(names.contains(&"Reno") && !names.contains(&"reno"), "{names:?}");
    assert_eq!(Registry::default().make_controller("reno").expect("it is known").name(), "reno");
}

#[test]
fn messages_list_what_is_added_too() {
    let plain = TEXT.replace("[sweep]\ncontroller = [\"reno\", \"mine\", \"vegas\", \"calm\"]", "");
    let plain = Document::new(&plain, "two.toml").expect("it is valid");
    let said = message(&plain, "controller", "mien");
    assert!(said.starts_with("two.toml:22: flow.bulk.controller: there is no"), "{said}");
    assert!(said.ends_with(
        "; there are cubic, reno, vegas, fast, bbr, waimd, dctcp, prague, ledbat, \
                            ledbat++, lp, nice, lia, olia, balia, wvegas, coupled-bbr, \
         coupled-cubic, mpfast, harp"
    ));
    let own = Document::new_with(STRIPED, "striped.toml", registry()).expect("it is valid");
    let said = message(&own, "controller", "mien");
    assert!(
        said.contains("no congestion controller 'mien' (did you mean 'mine'?); there are cubic")
            && said.ends_with(", harp, mine, calm"),
        "{said}"
    );
    let said = message(&own, "scheduler", "shard");
    assert!(
        said.starts_with("striped.toml:")
            && said.contains("flow.bulk.scheduler: there is no packet scheduler 'shard' (did you")
            && said.contains("'share'?")
            && said.ends_with("ecf, weighted, redundant, fastest, share"),
        "{said}"
    );
    let said = message(&own, "scheduler", "share(fist=2)");
    assert!(
        said.ends_with(
            "'share' has no parameter 'fist' (did you mean 'first'?); by default it is \
             share(first=3)"
        ),
        "{said}"
    );
    let said = message(&own, "scheduler", "share(first=10)");
    assert!(
        said.contains("'10' is no value for 'first' of 'share': it is packets, 1 to 9"),
        "{said}"
    );
    let said = message(&own, "scheduler", "fastest(first=10)");
    assert!(said.ends_with("'fastest' has no parameter 'first'; it has none"), "{said}");
}

#[test]
fn a_name_that_no_file_could_have_is_refused() {
    for name in ["", "calm(target=2)", " calm", "calm)("] {
        let added = catch_unwind(|| Registry::default().scheduler(name, || LowestRtt));
        assert!(added.is_err(), "{name:?}");
    }
}
