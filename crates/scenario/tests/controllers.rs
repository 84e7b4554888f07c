//! Controllers that a program adds: in files, in sweeps, in messages.

use policy::cc::{Reno, Uncoupled, Vegas, VegasOptions};
use scenario::sweep::Plan;
use scenario::{Controllers, Document, RunOptions, Setting};

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

fn controllers() -> Controllers {
    Controllers::default()
        .with("mine", || Box::new(Uncoupled::new(Reno::default())))
        .with("calm", || Box::new(Uncoupled::new(Vegas::new(VegasOptions::default()))))
}

#[test]
fn an_added_controller_runs_in_a_sweep() {
    let document =
        Document::new_with(TEXT, "two.toml", controllers()).expect("it names what was added");
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
fn a_striped_connection_takes_an_added_controller() {
    let text = TEXT.replace(
        "controller = \"$controller\"",
        "controller = \"$controller\"\ntransport = \"ptcp\"",
    );
    let document =
        Document::new_with(&text, "two.toml", controllers()).expect("it names what was added");
    let digest = |name: &str| {
        let setting = Setting { key: "controller".into(), value: name.into() };
        let scenario = document.scenario(&[setting]).expect("it is known");
        scenario.run(scenario.seed, RunOptions::default()).expect("it runs").digest
    };
    assert_eq!(digest("reno"), digest("mine"));
    assert_ne!(digest("reno"), digest("calm"));
}

#[test]
fn an_added_controller_replaces_a_known_one() {
    let slow = Controllers::default()
        .with("reno", || Box::new(Uncoupled::new(Vegas::new(VegasOptions::default()))));
    assert_eq!(slow.make("reno").expect("it was added").name(), "vegas");
    assert_eq!(Controllers::default().make("reno").expect("it is known").name(), "reno");
}

#[test]
fn messages_list_added_controllers() {
    let text = TEXT.replace("[sweep]\ncontroller = [\"reno\", \"mine\", \"vegas\", \"calm\"]", "");
    let text = text.replace("controller = \"reno\"", "controller = \"mien\"");
    let plain =
        Document::new(&text, "two.toml").expect_err("there is no such controller").to_string();
    assert!(
        plain.contains("two.toml:22") && plain.contains("'mien'") && !plain.contains("adds"),
        "{plain}"
    );
    let own = Document::new_with(&text, "two.toml", controllers())
        .expect_err("nor with these")
        .to_string();
    assert!(own.contains("this program adds calm, mine"), "{own}");
}
