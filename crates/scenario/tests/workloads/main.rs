//! Workloads: flows that arrive one after the other, sizes from distributions and files, requests,
//! packets of UDP.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts and sizes are small"
)]

mod arrivals;
mod files;
mod requests;
mod udp;
mod wrong;

use scenario::file::Scenario;
use scenario::{Document, Run, RunOptions};

/// Two senders and two receivers around one link of 100 Mbit/s.
pub(crate) fn text(duration: &str, flows: &str) -> String {
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

pub(crate) fn scenario(duration: &str, flows: &str) -> Scenario {
    let document = Document::new(&text(duration, flows), "workloads.toml");
    document.unwrap_or_else(|error| panic!("{error}")).scenario(&[]).expect("it was valid")
}

pub(crate) fn run(scenario: &Scenario) -> Run {
    scenario.run(scenario.seed, RunOptions::default()).expect("there are routes")
}

pub(crate) fn error(flows: &str) -> String {
    Document::new(&text("10 s", flows), "workloads.toml").expect_err("it is wrong").to_string()
}

pub(crate) fn close(found: f64, wanted: f64, within: f64) -> bool {
    (found / wanted - 1.0).abs() < within
}

pub(crate) const WEB: &str =
    "[[flow]]\nname = \"web*\"\ncount = 400\nfrom = \"server1\"\nto = \"client1\"\n";
