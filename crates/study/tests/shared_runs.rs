//! Figures that share runs.

use std::sync::atomic::{AtomicUsize, Ordering};

use report::verdict::{Outcome, Row};
use study::{Context, Experiment, Folder, find};
use tempfile::TempDir;

/// A short version of the file of figures 8(b) and 8(c).
const BRIEF: &str = r#"
name = "brief"
duration = "4 s"
window = [
    { name = "paper", from = "1 s", to = "2 s" },
    { name = "default", from = "3 s", to = "4 s" },
]

[parameters]
p = 1

[sweep]
p = [1, 2]

[[link]]
name = "way-*"
count = 2
between = ["a", "b"]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "20 packets"

[[flow]]
name = "paper*"
count = 10
from = "a"
to = "b"
transport = "ptcp"
via = ["way-?"]
subflows = "$p"
stop = "2 s"

[[flow]]
name = "default*"
count = 10
from = "a"
to = "b"
transport = "ptcp"
via = ["way-?"]
subflows = "$p"
start = "2 s"
"#;

/// A folder with that file in the place of the paper's.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("ptcp")).expect("a folder");
    std::fs::write(folder.path().join("ptcp/8bc.toml"), BRIEF).expect("a file");
    folder
}

fn context(folder: &TempDir, seeds: Option<u32>) -> Context {
    let papers = Some(folder.path().into());
    Context { papers, seeds, jobs: 1, experiment: Experiment::default() }
}

#[test]
fn shared_runs_are_run_once() {
    let folder = folder();
    let study = find("ptcp").expect("there is one");
    let context = |seeds| context(&folder, Some(seeds));
    let mut out =
        Folder::create(&folder.path().join("out"), study, String::new()).expect("a folder");
    let runs = AtomicUsize::new(0);
    let mut make = |name: &str, seeds: u32| {
        let before = runs.load(Ordering::Relaxed);
        let figure = study.figure(name).expect("there is one");
        let outcome = out.make(&context(seeds), figure, &|done, _| {
            runs.fetch_add(usize::from(done > 0), Ordering::Relaxed);
        });
        let outcome = outcome.expect("it can be made");
        (runs.load(Ordering::Relaxed) - before, outcome.data.rows.len())
    };
    let utilisation = make("8b", 2);
    assert_eq!(utilisation.0, 4, "two values, two seeds");
    let fairness = make("8c", 2);
    assert_eq!(fairness, (0, utilisation.1), "the same runs");
    assert_eq!(make("8c", 1).0, 2, "other seeds are other runs");
}

/// The brief links carry far less than the paper's.
#[test]
fn rows_that_differ_with_seeds_of_ones_own_may_do_so_by_chance() {
    let folder = folder();
    let study = find("ptcp").expect("there is one");
    let figure = study.figure("8b").expect("there is one");
    for (seeds, reason) in [
        (None, "no cause is written down"),
        (Some(1), "perhaps by chance: without --seeds and --quick all is run"),
    ] {
        let out = folder.path().join("out");
        let mut out = Folder::create(&out, study, String::new()).expect("a folder");
        let outcome = out.make(&context(&folder, seeds), figure, &|_, _| {}).expect("it is made");
        let mut rows = outcome.verdict.rows().iter();
        let is_it = |row: &&Row| row.outcome() == Outcome::Differs && row.reason() == reason;
        assert!(rows.any(|row| is_it(&row)), "{seeds:?}");
    }
}
