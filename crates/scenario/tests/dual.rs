//! A scalable and a classic flow at a dual queue (RFC 9332).

use scenario::{Document, Run, RunOptions};
use units::Seed;

/// Five flows of each kind at 100 Mbit/s and 20 ms. At rates at which a packet takes a good part of
/// the ramp, a flow is marked for its own bursts.
fn both(aqm: &str, scalable: &str) -> Run {
    let flows = |name: &str, keys: &str| {
        format!(
            "[[flow]]\nname = \"{name}*\"\ncount = 5\nfrom = \"a\"\nto = \"b\"\nstart = {{ from = \
             \"0 s\", to = \"1 s\" }}\n{keys}\n"
        )
    };
    let text = format!(
        "name = \"both\"\nduration = \"40 s\"\nwarmup = \"10 s\"\nmeasure = [\"delay\"]\n[[link]]\n\
         name = \"line\"\nbetween = [\"a\", \"b\"]\nrate = \"100 Mbit/s\"\ndelay = \"10 \
         ms\"\nqueue = \"2 MB\"\naqm = {aqm}\n{}{}",
        flows("scalable", scalable),
        flows("classic", "controller = \"reno\"\ntcp = { ecn = true }"),
    );
    let document = Document::new(&text, "both.toml").unwrap_or_else(|error| panic!("{error}"));
    let scenario = document.scenario(&[]).expect("nothing is wrong with it");
    scenario.run(Seed(1), RunOptions::default()).expect("there is a route")
}

fn of(run: &Run, group: &str, name: &str) -> f64 {
    run.measure("group", group, name).unwrap_or_else(|| panic!("no {name} of {group}"))
}

/// The sum over the flows of a group.
fn marks(run: &Run, group: &str) -> f64 {
    (1..=5).filter_map(|number| run.measure("flow", &format!("{group}{number}"), "marks")).sum()
}

const DCTCP: &str = "controller = \"dctcp\"\ntcp = { ecn = \"l4s\" }";
const PRAGUE: &str = "controller = \"prague\"\ntcp = { ecn = \"l4s\" }";
const STRIPED: &str = "controller = \"prague\"\ntransport = \"ptcp\"\nptcp = { ecn = \"l4s\" }";

/// Prague over both transports: a share, and no queue.
#[test]
fn prague_has_its_share_without_a_queue() {
    for scalable in [PRAGUE, STRIPED] {
        let run = both("\"dualpi2\"", scalable);
        let [ours, classic] = ["scalable", "classic"].map(|flow| of(&run, flow, "goodput"));
        assert!((0.5..2.0).contains(&(ours / classic)), "{ours} and {classic} Mbit/s: {scalable}");
        assert!(ours + classic > 90.0, "{ours} and {classic} Mbit/s: {scalable}");
        let [low, high] = ["scalable", "classic"].map(|flow| of(&run, flow, "delay"));
        assert!(low < 11.0 && (20.0..30.0).contains(&high), "{low} and {high} ms: {scalable}");
        assert!(of(&run, "scalable", "loss") < 1e-6, "{scalable}");
    }
}

/// Marks that are told exactly do not need packets of their own: ECT(0) with accurate feedback is
/// classic to the queue, and acknowledged less often than with an echo of each mark.
#[test]
fn accurate_feedback_alone_does_not_make_a_flow_scalable() {
    let accurate = both("\"dualpi2\"", "controller = \"reno\"\ntcp = { ecn = \"accurate\" }");
    let [one, other] = ["scalable", "classic"].map(|flow| of(&accurate, flow, "delay"));
    assert!((one / other - 1.0).abs() < 0.05, "{one} and {other} ms");
    let [one, other] = ["scalable", "classic"].map(|flow| of(&accurate, flow, "goodput"));
    assert!((one / other - 1.0).abs() < 0.15, "{one} and {other} Mbit/s");
}

#[test]
fn both_have_their_share_and_the_scalable_flow_no_queue() {
    let run = both("\"dualpi2\"", DCTCP);
    let [scalable, classic] = ["scalable", "classic"].map(|flow| of(&run, flow, "goodput"));
    assert!((0.5..2.0).contains(&(scalable / classic)), "{scalable} and {classic} Mbit/s");
    assert!(scalable + classic > 90.0, "{scalable} and {classic} Mbit/s");
    let [low, high] = ["scalable", "classic"].map(|flow| of(&run, flow, "delay"));
    // The wire, the random delay of the sender, and less than a millisecond of waiting.
    assert!(low < 11.0, "{low} ms, with 10 of propagation");
    assert!((20.0..30.0).contains(&high), "{high} ms, with a target of 15 of waiting");
    for group in ["scalable", "classic"] {
        assert!(marks(&run, group) > 100.0 && of(&run, group, "loss") < 1e-6, "{group}");
    }
    // Equation 1 of the RFC, by rates: all packets have one size.
    let [low, high] = ["scalable", "classic"].map(|it| marks(&run, it) / of(&run, it, "goodput"));
    let packets = 30.0 * 1e6 / 8.0 / 1_448.0;
    let coupling = (high / packets) / (low / packets / 2.0).powi(2);
    assert!((coupling - 1.0).abs() < 0.1, "{coupling}");
}

/// With one mark for all, at a step, the scalable flow takes nearly everything: that is what the
/// two queues are for.
#[test]
fn at_one_queue_with_early_marks_the_classic_flow_starves() {
    let run = both("{ kind = \"step\", threshold = \"1 ms\" }", DCTCP);
    let [scalable, classic] = ["scalable", "classic"].map(|flow| of(&run, flow, "goodput"));
    assert!(scalable > 4.0 * classic, "{scalable} and {classic} Mbit/s");
}

/// What does not say that it is scalable has no place in the queue for that.
#[test]
fn only_scalable_packets_have_the_low_queue() {
    let run = both("\"dualpi2\"", "controller = \"reno\"\ntcp = { ecn = true }");
    let [one, other] = ["scalable", "classic"].map(|flow| of(&run, flow, "delay"));
    assert!((one / other - 1.0).abs() < 0.05, "{one} and {other} ms");
}

#[test]
fn words_for_ecn_are_l4s_and_accurate() {
    let text = |ecn: &str| {
        format!(
            "name = \"n\"\nduration = \"1 s\"\n[[link]]\nname = \"l\"\nbetween = [\"a\", \
             \"b\"]\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\nqueue = \"9 packets\"\n[[flow]]\nname \
             = \"f\"\nfrom = \"a\"\nto = \"b\"\ntcp = {{ ecn = {ecn} }}\n"
        )
    };
    let read = |ecn: &str| Document::new(&text(ecn), "n.toml").and_then(|it| it.scenario(&[]));
    assert!(["\"l4s\"", "\"accurate\"", "true"].into_iter().all(|word| read(word).is_ok()));
    let said = read("\"l4\"").expect_err("no such word").to_string();
    assert!(said.contains("tcp.ecn") && said.contains("l4s"), "{said}");
}
