//! Long paths, many losses, and windows of time that begin in the middle of a recovery.

use scenario::{Document, Run, RunOptions};
use units::Seed;

/// Two hosts joined by `line`, and one flow from `a` to `b`.
fn run(head: &str, line: &str, flow: &str) -> Run {
    let text = format!(
        "name = \"extreme\"\n{head}\n[[link]]\nname = \"line\"\nbetween = [\"a\", \
         \"b\"]\n{line}\n[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\n{flow}\n"
    );
    let document = Document::new(&text, "extreme.toml").expect("nothing is wrong with it");
    let scenario = document.scenario(&[]).expect("nothing is wrong with it");
    scenario.run(Seed(1), RunOptions::default()).expect("there is a route")
}

fn goodput(run: &Run, window: &str) -> f64 {
    run.measure_in(window, "flow", "f", "goodput").expect("it flows")
}

/// When a gap is filled, much that arrived before becomes readable at once. It counts when it
/// arrived.
#[test]
fn no_window_has_more_than_its_capacity() {
    let windows: Vec<String> = (0..50)
        .map(|number| {
            let (from, to) = (number * 200, number * 200 + 200);
            format!("{{ name = \"w{number}\", from = \"{from} ms\", to = \"{to} ms\" }}")
        })
        .collect();
    let head = format!("duration = \"10 s\"\nwindow = [{}]", windows.join(", "));
    let line = "rate = \"50 Mbit/s\"\ndelay = \"40 ms\"\nqueue = \"400 packets\"\nloss = 0.0005";
    let capacity = 50.0 * 1_448.0 / 1_500.0;
    let subflows = "transport = \"ptcp\"\nsubflows = [[\"line\"], [\"line\"]]\n";
    let sockets = "transport = \"sockets\"\nsubflows = [[\"line\"], [\"line\"]]\n";
    for flow in ["controller = \"cubic\"", subflows, sockets] {
        let run = run(&head, line, flow);
        let found: Vec<f64> = (0..50).map(|number| goodput(&run, &format!("w{number}"))).collect();
        let most = found.iter().copied().fold(0.0, f64::max);
        // A packet of 0.24 ms on an edge of the window.
        assert!(most <= capacity * 1.003, "{flow}: {most} of {capacity}");
        assert!(most > 0.7 * capacity, "{flow}: {most} of {capacity}");
        let mean = found.iter().sum::<f64>() / 50.0;
        assert!((goodput(&run, "steady") - mean).abs() < 0.02, "{flow}: {mean}");
    }
}

/// Slow start ends with hundreds of losses. One by one, they would take a round trip each.
#[test]
fn many_losses_without_selective_acknowledgements_are_soon_repaired() {
    let run = run(
        "duration = \"60 s\"",
        "rate = \"1 Gbit/s\"\ndelay = \"25 ms\"\nqueue = \"4000 packets\"",
        "tcp = { detection = \"newreno\" }\ncontroller = \"reno\"\nsource = { file = \"60 MB\" }",
    );
    let took = run.measure("flow", "f", "completion").expect("it completes");
    assert!(took < 10.0, "{took} s");
}

/// The periods of `ProbeRTT` take two round trips, which are longer than the draft's interval.
#[test]
fn bbr_uses_a_path_of_twenty_seconds() {
    let run = run(
        "duration = \"3000 s\"\nwarmup = \"1000 s\"",
        "rate = \"1 Mbit/s\"\ndelay = \"10 s\"\nqueue = \"1700 packets\"",
        "controller = \"bbr\"",
    );
    let share = goodput(&run, "steady") / (1_448.0 / 1_500.0);
    assert!(share > 0.8, "{share}");
}
