//! What the result of a run depends on: the program, the scenario and the seed.

use std::fmt::{self, Write as _};
use std::io;
use std::sync::OnceLock;

use crate::file::Scenario;
use crate::sweep::{Job, Plan};
use blake3::Hasher;

/// A hash of the program that runs: another build may give other results.
///
/// # Errors
/// If the program cannot be read.
pub fn build() -> io::Result<&'static str> {
    static BUILD: OnceLock<String> = OnceLock::new();
    if let Some(known) = BUILD.get() {
        return Ok(known);
    }
    let mut hasher = Hasher::new();
    io::copy(&mut std::fs::File::open(std::env::current_exe()?)?, &mut hasher)?;
    Ok(BUILD.get_or_init(|| short(&hasher)))
}

/// The key of each run of a plan. It is of what the files say, the scenario's and those that it
/// names, and not of their names or of the other values of the sweep.
pub(super) fn keys(plan: &Plan, build: &str) -> Vec<String> {
    let scenarios: Vec<String> = plan.scenarios().iter().map(|one| content(one, build)).collect();
    let key = |job: &Job| {
        let mut hasher = Hasher::new();
        hasher.update(scenarios[job.scenario_index()].as_bytes());
        hasher.update(&job.seed.0.to_le_bytes());
        short(&hasher)
    };
    plan.jobs().iter().map(key).collect()
}

/// A hash of all that a scenario's measures depend on, except the seed of the run.
fn content(scenario: &Scenario, build: &str) -> String {
    let scenario = Scenario {
        name: String::new(),
        runs: 0,
        seed: units::Seed(0),
        late: None,
        ..scenario.clone()
    };
    let mut text = HashedText(Hasher::new());
    write!(text, "{build} {scenario:?}").expect("a hash takes all that is written");
    short(&text.0)
}

/// A hash of the text that is written.
struct HashedText(Hasher);

impl fmt::Write for HashedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// Half of a hash: enough to tell runs apart.
fn short(hasher: &Hasher) -> String {
    hasher.finalize().to_hex()[..32].to_owned()
}
