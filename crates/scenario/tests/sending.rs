//! What senders do and wait for, in runs where it is known.

use scenario::{Document, FlowSeries, RunOptions, Series};
use units::Seed;

const LINE: &str = "rate = \"20 Mbit/s\"\ndelay = \"10 ms\"\nqueue = \"40 packets\"\n";

fn series(line: &str, flow: &str) -> Series {
    let text = format!(
        "name = \"known\"\nduration = \"10 s\"\nsample = \"10 ms\"\n[[link]]\nname = \"l*\"\ncount \
         = 2\nbetween = [\"a\", \"b\"]\n{line}[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \
         \"b\"\n{flow}\n"
    );
    let document = Document::new(&text, "known.toml").unwrap_or_else(|error| panic!("{error}"));
    let scenario = document.scenario(&[]).expect("nothing is wrong with it");
    let run = scenario.run(Seed(1), RunOptions { series: true }).expect("there is a route");
    run.series.expect("it was asked for")
}

/// The part of the samples with this value.
fn share(values: &[f64], value: u8) -> f64 {
    let count = |is_it: &dyn Fn(f64) -> bool| values.iter().filter(|one| is_it(**one)).count();
    let of = u32::try_from(count(&|one| (one - f64::from(value)).abs() < 0.5)).expect("few");
    f64::from(of) / f64::from(u32::try_from(values.len()).expect("few"))
}

const SLOW_START: u8 = 0;
const AVOIDANCE: u8 = 1;
const RECOVERY: u8 = 2;
const TIMEOUT: u8 = 3;

#[test]
fn limits_are_those_of_the_scenario() {
    let (application, receiver, window, pace) = (0, 1, 2, 3);
    for (flow, limit) in [
        ("source = { stream = \"1 Mbit/s\" }", application),
        ("tcp = { receive_buffer = \"20 kB\" }", receiver),
        ("controller = \"reno\"", window),
        ("controller = \"bbr\"", pace),
        ("transport = \"ptcp\"\ncontroller = \"reno\"\nptcp = { pacing = false }", window),
        ("transport = \"ptcp\"\nsource = { stream = \"1 Mbit/s\" }", application),
        (
            "transport = \"ptcp\"\nptcp = { receive_buffer = \"20 KiB\", max_receive_buffer = \
             \"20 KiB\" }",
            receiver,
        ),
        ("transport = \"ptcp\"\ncontroller = \"coupled-bbr\"", pace),
    ] {
        let series = series(LINE, flow);
        let found = share(&series.flows[0].limit, limit);
        assert!(found > 0.8, "{flow}: {found} of the time, {:?}", &series.flows[0].limit[500..520]);
    }
}

/// Before the first loss a flow is in slow start, and in none of the last seconds.
#[test]
fn phases_follow_losses_and_timeouts() {
    for transport in ["", "transport = \"ptcp\"\n"] {
        let calm = series(LINE, &format!("{transport}controller = \"reno\""));
        let FlowSeries { phase, .. } = &calm.flows[0];
        assert!(share(&phase[2..5], SLOW_START) > 0.9, "{transport}{:?}", &phase[..10]);
        assert!(share(&phase[300..], SLOW_START) < 0.01, "{transport}");
        assert!(share(&phase[300..], AVOIDANCE) > 0.7, "{transport}");
        // A loss each second or so, and a round trip of 40 ms to repair it.
        assert!(share(phase, RECOVERY) > 0.005, "{transport}");
        assert!(share(phase, TIMEOUT) < 0.01, "{transport}");
    }
    let black = format!("{LINE}blackout = [{{ from = \"5 s\", to = \"6 s\" }}]\n");
    let black = series(&black, "controller = \"reno\"");
    assert!(share(&black.flows[0].phase[540..600], TIMEOUT) > 0.9, "the timer has run out");
}

#[test]
fn each_subflow_has_its_own_state_and_a_flow_of_several_none() {
    for transport in ["", "transport = \"ptcp\"\n", "transport = \"sockets\"\n"] {
        let both = series(
            LINE,
            &format!("{transport}controller = \"reno\"\nsubflows = [[\"l1\"], [\"l2\"]]"),
        );
        assert!(both.flows[0].phase.is_empty() && both.flows[0].limit.is_empty());
        for (name, subflow) in &both.subflows {
            assert_eq!(subflow.phase.len(), both.at.len(), "{transport}{name}");
            assert!(share(&subflow.phase, AVOIDANCE) > 0.5, "{transport}{name}");
        }
    }
    let udp = series(LINE, "transport = \"udp\"\nrate = \"1 Mbit/s\"");
    assert!(udp.flows[0].phase.is_empty() && udp.flows[0].limit.is_empty());
}

#[test]
fn nothing_is_known_of_a_flow_that_does_not_live() {
    let file = series(LINE, "start = \"2 s\"\nsource = { file = \"1 MB\" }");
    let FlowSeries { phase, limit, .. } = &file.flows[0];
    assert_eq!((phase.len(), limit.len()), (file.at.len(), file.at.len()));
    for (at, values) in file.at.iter().zip(phase.iter().zip(limit)) {
        let is_known = !values.0.is_nan();
        assert_eq!(is_known, !values.1.is_nan());
        assert!(!is_known || (2.0..4.0).contains(at), "{at} s");
    }
    assert!(phase.iter().filter(|phase| !phase.is_nan()).count() > 20, "it takes 0.4 s");
}
