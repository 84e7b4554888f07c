//! Connections in the background beside each other, and beside others: `scenarios/background.toml`.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use scenario::{Document, RunOptions, Setting, sweep::Plan};

/// The goodput of each flow in a window, by name, in Mbit/s, in the mean of three runs.
fn goodputs(set: &[(&str, &str)], window: &str) -> Vec<(String, f64)> {
    let text = include_str!("../../../scenarios/background.toml");
    let document = Document::new(text, "background.toml").expect("it is a scenario");
    let set: Vec<Setting> = set
        .iter()
        .map(|(key, value)| Setting { key: (*key).into(), value: (*value).into() })
        .collect();
    let plan = Plan::new(&document, &set, None).expect("its settings are right");
    let mut found: Vec<(String, f64)> = Vec::new();
    let mut runs = 0.0;
    let done = |_: usize, run: scenario::Run| {
        runs += 1.0;
        for one in &run.measures {
            if (one.scope(), one.name(), one.window) != ("flow", "goodput", window) {
                continue;
            }
            match found.iter_mut().find(|(of, _)| of == one.of) {
                Some((_, sum)) => *sum += one.value,
                None => found.push((one.of.to_string(), one.value)),
            }
        }
        true
    };
    plan.run(1, RunOptions::default(), |_| true, done).expect("it runs");
    for (_, sum) in &mut found {
        *sum /= runs;
    }
    found
}

fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (squares * f64::from(u32::try_from(shares.len()).expect("a few")))
}

/// Several that begin one after the other share a line that nobody else uses, and fill it.
#[test]
fn connections_in_the_background_share_a_line() {
    // The other flow is there for a moment at the begin.
    let others = [("from", "0 s"), ("until", "1 s")];
    for (count, rate) in [("2", "20 Mbit/s"), ("4", "20 Mbit/s"), ("4", "50 Mbit/s")] {
        let set = [&others[..], &[("n", count), ("rate", rate), ("spread", "60 s")]].concat();
        let found = goodputs(&set, "together");
        let shares: Vec<f64> = found
            .iter()
            .filter(|(of, _)| of.starts_with("background"))
            .map(|(_, share)| *share)
            .collect();
        println!("{count} at {rate}: {shares:.2?}, Jain {:.3}", jain(&shares));
        assert!(jain(&shares) > 0.9, "{count} at {rate}: {shares:?}");
        let line: f64 = if rate.starts_with('2') { 20.0 } else { 50.0 };
        assert!(shares.iter().sum::<f64>() > 0.85 * line, "{count} at {rate}: {shares:?}");
    }
}

/// One that begins while another flow keeps the queue full takes that for the line's delay, until a
/// drain shows what the line is like: from then on it is out of the way.
#[test]
fn one_that_begins_while_the_queue_is_full_learns_the_range() {
    let set = [("from", "0 s"), ("until", "160 s"), ("n", "2"), ("spread", "60 s")];
    let found = goodputs(&set, "beside");
    let foreground = found.iter().find(|(of, _)| of == "foreground").expect("it is there").1;
    println!("beside: {found:.2?}");
    // Alone it has 18.9 of 20 Mbit/s, and less behind its own full queue.
    assert!(foreground > 0.9 * 18.9, "{found:?}");
}

/// A radio link of 12 Mbit/s in the mean, silent for 25 ms of each 50: packets are late by up to 25
/// ms with nobody else there. The background had 2.1 Mbit/s of it.
#[test]
fn what_a_radio_link_holds_is_no_queue() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("radio.trace");
    // Two packets a millisecond in every other 25.
    let busy = (0..1_000).filter(|millisecond| millisecond % 50 < 25);
    let moments: Vec<String> =
        busy.flat_map(|at| [at + 1; 2]).chain([1_000]).map(|at: u32| at.to_string()).collect();
    std::fs::write(&trace, moments.join("\n") + "\n").expect("it is written");
    let run = |more: &str| {
        let text = format!(
            "name = \"radio\"\nduration = \"60 s\"\nwarmup = \"15 s\"\n[[link]]\nname = \
             \"radio\"\nbetween = [\"near\", \"far\"]\ntrace = \"{}\"\ndelay = \"20 ms\"\nqueue = \
             \"300000 B\"\n[[flow]]\nname = \"background\"\nfrom = \"near\"\nto = \
             \"far\"\ntransport = \"ptcp\"\ncontroller = \"harp(drain=30s)\"\n{more}",
            trace.display()
        );
        let scenario = Document::new(&text, "radio.toml").expect("it is a scenario");
        let scenario = scenario.scenario(&[]).expect("it is right");
        let run = scenario.run(scenario.seed, RunOptions::default()).expect("it runs");
        ["background", "foreground"].map(|flow| run.measure("flow", flow, "goodput"))
    };
    let [alone, _] = run("");
    let alone = alone.expect("it sends");
    assert!(alone > 9.5, "alone {alone} of 12 Mbit/s");
    let [background, foreground] = run("[[flow]]\nname = \"foreground\"\nfrom = \"near\"\nto = \
                                        \"far\"\ncontroller = \"cubic\"\n");
    let (background, foreground) = (background.expect("it sends"), foreground.expect("it sends"));
    println!("alone {alone:.2}, beside {foreground:.2}: {background:.2} Mbit/s");
    assert!(background < 0.5 && foreground > 10.5, "{background} beside {foreground} Mbit/s");
}
