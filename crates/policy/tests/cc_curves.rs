//! The controllers on model links: golden curves, response functions and equilibria.

#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::{Drops, Link, MSS, Marks, Model, secs};
use units::{Rate, Span};

const RTT: Span = Span::from_millis(100);

/// The window of each subflow, in packets, at the end of each of its first 300 round trips, twenty
/// a line.
fn drawing(title: &str, model: &Model, flow: usize) -> String {
    let mut text = format!("# {title}\n# the window in packets at the end of each round trip\n");
    for (i, subflow) in model.flows[flow].subflows.iter().enumerate() {
        writeln!(text, "subflow {i}").expect("a string takes everything");
        for (line, windows) in subflow.curve[..subflow.curve.len().min(300)].chunks(20).enumerate()
        {
            write!(text, "{:4}:", line * 20).expect("a string takes everything");
            for window in windows {
                write!(text, " {window:3}").expect("a string takes everything");
            }
            text.push('\n');
        }
    }
    text
}

/// Compares a curve with the golden file. `UPDATE_GOLDEN=1` writes the file anew; review the
/// difference before committing it.
fn compare(name: &str, drawing: &str) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, drawing).expect("the golden directory can be written");
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    for (at, (found, expected)) in drawing.lines().zip(golden.lines()).enumerate() {
        assert_eq!(found, expected, "{name}, line {}: UPDATE_GOLDEN=1 takes the new curve", at + 1);
    }
    assert_eq!(
        drawing.lines().count(),
        golden.lines().count(),
        "{name}: UPDATE_GOLDEN=1 takes the new curve"
    );
}

#[test]
fn curves_alone() {
    let controllers = [
        ("reno", "reno"),
        ("cubic", "cubic"),
        ("vegas", "vegas"),
        ("fast", "fast(alpha=20)"),
        ("waimd", "waimd(weight=4)"),
        ("bbr", "bbr"),
        ("dctcp", "dctcp"),
        ("ledbat", "ledbat"),
        ("ledbat_plus_plus", "ledbat++"),
        ("lp", "lp"),
        ("nice", "nice"),
    ];
    for (name, controller) in controllers {
        let mut model = Model::default();
        let link = model.link(Link::new(Rate::mbit(10), 42.0, Drops::None));
        let flow = model.flow(controller, &[(link, Span::from_millis(50))], Span::ZERO);
        model.run(secs(30));
        compare(
            name,
            &drawing(
                &format!("{controller} alone: 10 Mbit/s, 50 ms, 42 packets may wait"),
                &model,
                flow,
            ),
        );
    }
}

#[test]
fn curves_of_coupled_controllers() {
    for name in ["lia", "olia", "balia", "wvegas", "coupled-bbr", "coupled-cubic", "mpfast"] {
        let mut model = Model::default();
        let wide = model.link(Link::new(Rate::mbit(10), 42.0, Drops::None));
        let narrow = model.link(Link::new(Rate::mbit(5), 42.0, Drops::None));
        let flow = model.flow(
            name,
            &[(wide, Span::from_millis(50)), (narrow, Span::from_millis(80))],
            Span::ZERO,
        );
        model.flow("reno", &[(narrow, Span::from_millis(80))], secs(5));
        model.run(secs(40));
        let title = format!(
            "{name} over 10 Mbit/s, 50 ms and 5 Mbit/s, 80 ms; on the latter a Reno flow from 5 s \
             on"
        );
        compare(&name.replace('-', "_"), &drawing(&title, &model, flow));
    }
}

/// Marks above a threshold of four packets, as L4S queues have it: Prague stays there.
#[test]
fn a_curve_at_a_queue_that_marks() {
    let mut model = Model::default();
    let link = model.link(Link::new(Rate::mbit(10), 42.0, Drops::None));
    model.links[link].marks = Marks::Above(4.0);
    let flow = model.flow("prague", &[(link, Span::from_millis(50))], Span::ZERO);
    model.run(secs(30));
    let title = "prague alone: 10 Mbit/s, 50 ms, marks above 4 packets that wait";
    compare("prague", &drawing(title, &model, flow));
}

/// With a part `p` marked, evenly, a round trip adds `1 - p` packets and takes `p / 2` of the
/// window: `2 (1 - p) / p` packets.
#[test]
fn prague_has_two_marks_a_round_trip() {
    for every in [5, 10, 50] {
        let mut model = Model::default();
        let link =
            model.link(Link::new(Rate::from_bits(1_000_000_000_000), f64::INFINITY, Drops::None));
        model.links[link].marks = Marks::Every(every);
        let flow = model.flow("prague", &[(link, RTT)], Span::ZERO);
        model.measure(secs(50), secs(250));
        let mean = model.rate(model.flows[flow].delivered()) * RTT.as_secs_f64();
        let wanted = 2.0 * (every as f64 - 1.0);
        assert!((mean / wanted - 1.0).abs() < 0.1, "one in {every}: {mean}, not {wanted}");
    }
}

/// Flows of 5, 10 and 25 ms at the same random marks have one rate, unless the short ones count as
/// what they are. Even marks would meet the 25 ms in step.
#[test]
fn prague_takes_no_more_at_a_short_round_trip() {
    let rate = |controller: &str, millis: u64| {
        let mut model = Model::default();
        let link =
            model.link(Link::new(Rate::from_bits(1_000_000_000_000), f64::INFINITY, Drops::None));
        model.links[link].marks = Marks::Random(50_000);
        let flow = model.flow(controller, &[(link, Span::from_millis(millis))], Span::ZERO);
        model.measure(secs(50), secs(450));
        model.rate(model.flows[flow].delivered())
    };
    let long = rate("prague", 25);
    for millis in [5, 10] {
        let short = rate("prague", millis);
        assert!((short / long - 1.0).abs() < 0.25, "{millis} ms: {short}, 25 ms: {long}");
        let own = rate("prague(rtt=0 s)", millis);
        let wanted = 25.0 / millis as f64;
        assert!((own / long / wanted - 1.0).abs() < 0.15, "{millis} ms: {own}, 25 ms: {long}");
    }
}

/// Mean window in packets with the first packet and then every `every`-th lost, and a round-trip
/// time of 100 ms.
fn mean_window(controller: &str, initial: u64, every: u64) -> f64 {
    let mut model = Model::default();
    let link = model.link(Link::new(
        Rate::from_bits(1_000_000_000_000),
        f64::INFINITY,
        Drops::Every(every),
    ));
    let flow = model.flow_from(initial, controller, &[(link, RTT)], Span::ZERO);
    model.measure(secs(50), secs(250));
    let mean = model.rate(model.flows[flow].delivered()) * RTT.as_secs_f64();
    println!("{controller}, one loss in {every}: {mean:.1} packets");
    mean
}

/// RFC 9438, section 5.2: 187 packets at a loss rate of 1e-4. That is the fixed point of a cycle
/// that ends at its plateau, without fast convergence, and with a peak of 202.6; of two other peaks
/// the higher one falls and the lower one rises, but by a thousandth a cycle, so the flow begins at
/// the peak.
#[test]
fn cubic_follows_its_response_function() {
    let mean = mean_window("cubic(fast_convergence=false)", 203, 10_000);
    assert!((mean / 187.4 - 1.0).abs() < 0.05, "{mean}");
    // The mean grows with the fourth root of C, so the test separates constants.
    let peak = 203.0 * f64::powf(2.0, 0.25);
    let steeper = mean_window("cubic(c=0.8,fast_convergence=false)", peak as u64, 10_000);
    assert!((steeper / mean / f64::powf(2.0, 0.25) - 1.0).abs() < 0.03, "{steeper}");
    // Losses shortly before the plateau trigger fast convergence, as a new flow would.
    let yielding = mean_window("cubic", 203, 10_000);
    assert!((0.8..0.97).contains(&(yielding / mean)), "{yielding}");
}

/// Reno's `sqrt(3 / 2p)`; where it has more than CUBIC's own function, CUBIC takes as much (RFC
/// 9438, section 4.3).
#[test]
fn reno_follows_its_response_function() {
    let reno = mean_window("reno", 10, 10_000);
    assert!((reno / 122.5 - 1.0).abs() < 0.05, "{reno}");
    let (reno, cubic) = (mean_window("reno", 10, 200), mean_window("cubic", 10, 200));
    assert!((cubic / reno - 1.0).abs() < 0.2, "{cubic} {reno}");
}

/// N packets up a round trip and 1/(2N) down at a loss have a mean of `N sqrt((2 - 1/(2N)) / p)`,
/// Reno's for N = 1. Of the 17 round trips between two losses recovery takes one.
#[test]
fn waimd_follows_its_response_function() {
    let waimd = mean_window("waimd(weight=4)", 500, 10_000);
    let expected = 4.0 * f64::sqrt(1.875 * 10_000.0);
    assert!((waimd / expected - 1.0).abs() < 0.05, "{waimd} {expected}");
}

/// 100 Mbit/s, 100 ms, nothing lost; flows start at these seconds. Mean queue in packets and the
/// shares from 60 to 80 s.
fn rest(controller: &str, starts: &[u64]) -> (f64, Vec<f64>) {
    let mut model = Model::default();
    let link = model.link(Link::new(Rate::mbit(100), 5_000.0, Drops::None));
    for &start in starts {
        model.flow(controller, &[(link, RTT)], secs(start));
    }
    model.measure(secs(60), secs(80));
    let delivered: Vec<f64> = model.flows.iter().map(|flow| flow.delivered() as f64).collect();
    let total: f64 = delivered.iter().sum();
    assert!(total > 0.99 * 20.0 * 100e6 / 12_000.0, "{controller} leaves the link idle: {total}");
    let shares = delivered.iter().map(|packets| packets / total).collect();
    let queue = model.links[link].mean_queue();
    println!("{controller}, starting at {starts:?} s: queue {queue:.2}, shares {shares:.3?}");
    (queue, shares)
}

/// For comparison, ns-2 2.35 on the same link, with windows in whole packets: 17.4, 98.4, 197.4.
#[test]
fn fast_settles_with_alpha_packets_in_the_queue() {
    for alpha in [20.0, 100.0, 200.0] {
        let (queue, _) = rest(&format!("fast(alpha={alpha})"), &[0]);
        assert!((queue - alpha).abs() < 1.5, "{alpha}: {queue}");
        let (queue, _) = rest(&format!("fast(alpha={alpha},whole=true)"), &[0]);
        assert!(
            (alpha - 2.0..alpha - 0.1).contains(&queue),
            "up to 1/gamma below alpha, {alpha}: {queue}"
        );
    }
}

#[test]
fn fast_flows_share_equally_unless_one_joins_late() {
    let (queue, shares) = rest("fast", &[0, 0]);
    assert!((queue - 200.0).abs() < 4.0, "{queue}");
    assert!((shares[0] - 0.5).abs() < 0.02, "{shares:?}");
    // The new flow takes the standing queue for propagation delay: 1/q + 1/(q - 1) = 1 in units of
    // alpha has q = 2.618.
    let (queue, shares) = rest("fast", &[0, 20]);
    assert!((queue - 261.8).abs() < 8.0, "{queue}");
    assert!((shares[1] - 0.613).abs() < 0.02, "{shares:?}");
}

/// ns-2: 2.43, 3.43, 10.24, 100.4. With equal bounds the window oscillates by a packet; the queue
/// includes the packet in service.
#[test]
fn vegas_settles_between_alpha_and_beta() {
    for (alpha, beta) in [(1.0, 3.0), (2.0, 4.0), (10.0, 10.0), (100.0, 100.0)] {
        let (queue, _) = rest(&format!("vegas(alpha={alpha},beta={beta})"), &[0]);
        assert!((alpha..beta + 1.0).contains(&queue), "{alpha}, {beta}: {queue}");
    }
}

const RED: Drops = Drops::Red { from: 10.0, to: 200.0, most: 0.02 };

/// One Reno flow and one two-path connection on one link: the connection's rate over the Reno
/// flow's.
fn against_reno(controller: &str) -> f64 {
    beside_reno(controller, 2)
}

/// The same with so many subflows.
fn beside_reno(controller: &str, subflows: usize) -> f64 {
    let mut model = Model::default();
    let link = model.link(Link::new(Rate::mbit(50), 300.0, RED));
    let path = (link, Span::from_millis(30));
    let reno = model.flow("reno", &[path], Span::ZERO);
    let coupled = model.flow(controller, &vec![path; subflows], Span::from_millis(500));
    model.measure(secs(20), secs(220));
    let ratio = model.flows[coupled].delivered() as f64 / model.flows[reno].delivered() as f64;
    println!("{controller} on {subflows} subflows against Reno: {ratio:.3}");
    ratio
}

#[test]
fn coupled_subflows_take_one_share_of_a_shared_link() {
    for controller in ["lia", "olia", "balia"] {
        let ratio = against_reno(controller);
        assert!((0.85..=1.15).contains(&ratio), "{controller}: {ratio}");
    }
    // One flow of CUBIC takes more than Reno here; two coupled ones take as much, two others twice.
    let [one, coupled, two] =
        [("cubic", 1), ("coupled-cubic", 2), ("cubic", 2)].map(|(name, n)| beside_reno(name, n));
    assert!((0.8..1.2).contains(&(coupled / one)) && two > 1.5 * one, "{one} {coupled} {two}");
    // A check of the measure: uncoupled subflows take two shares.
    let ratio = against_reno("reno");
    assert!((1.7..2.3).contains(&ratio), "{ratio}");
}

/// A two-path connection beside one Reno flow on path 0 and five on path 1: the share of its data
/// on path 1.
fn on_the_congested_path(controller: &str) -> f64 {
    let mut model = Model::default();
    let links = [(); 2].map(|()| model.link(Link::new(Rate::mbit(30), 300.0, RED)));
    let paths = links.map(|link| (link, Span::from_millis(30)));
    let flow = model.flow(controller, &paths, Span::ZERO);
    model.flow("reno", &paths[..1], Span::from_millis(100));
    for i in 0..5 {
        model.flow("reno", &paths[1..], Span::from_millis(200 + 10 * i));
    }
    model.measure(secs(20), secs(170));
    let flow = &model.flows[flow];
    let share = flow.subflows[1].delivered as f64 / flow.delivered() as f64;
    println!("{controller}: {share:.3} of its data on the path with five others");
    share
}

#[test]
fn coupled_subflows_move_off_the_congested_path() {
    let names = ["reno", "lia", "olia", "balia", "cubic", "coupled-cubic"];
    let [reno, lia, olia, balia, cubic, coupled] = names.map(on_the_congested_path);
    // Uncoupled: a sixth of one link against half of the other.
    assert!((reno - 0.25).abs() < 0.05, "{reno}");
    assert!(lia < reno, "{lia}");
    assert!(olia < 0.12 && balia < 0.12, "{olia} {balia}");
    assert!(coupled < cubic, "{coupled} {cubic}");
}

/// A connection over two paths that never queue, the second of which loses 3.8 times as often: its
/// rate over Reno's on the first path, and the share of its data on the second.
fn beside_a_lossy_path(controller: &str, losses: [Drops; 2]) -> (f64, f64) {
    let rate = Rate::from_bits(1_000_000_000_000);
    let path = |model: &mut Model, drops| (model.link(Link::new(rate, f64::INFINITY, drops)), RTT);
    let mut model = Model::default();
    let paths = losses.map(|drops| path(&mut model, drops));
    let coupled = model.flow(controller, &paths, Span::ZERO);
    let alone = path(&mut model, losses[0]);
    let reno = model.flow("reno", &[alone], Span::ZERO);
    model.measure(secs(100), secs(900));
    let flow = &model.flows[coupled];
    let total = flow.delivered() as f64 / model.flows[reno].delivered() as f64;
    let there = flow.subflows[1].delivered as f64 / flow.delivered() as f64;
    println!(
        "{controller}, {losses:?}: {total:.3} of one flow, {there:.3} of it on the second path"
    );
    (total, there)
}

/// The gaps between losses rank OLIA's paths. Periodic losses rank them right at all times. With as
/// many random losses the second path has the largest gap now and then; ε moves the windows there,
/// and the sum falls below a share: a model of the windows alone gives .93, and .98 without ε.
#[test]
fn olia_takes_one_share_if_losses_rank_the_paths() {
    let (total, there) = beside_a_lossy_path("olia", [Drops::Every(2_941), Drops::Every(774)]);
    assert!((0.97..1.03).contains(&total), "{total}");
    assert!(there < 0.06, "{there}");
    let (total, there) = beside_a_lossy_path("olia", [Drops::Random(340), Drops::Random(1_292)]);
    assert!((0.86..0.97).contains(&total), "{total}");
    assert!((0.06..0.2).contains(&there), "{there}");
}

/// The share of a link that a Reno flow keeps beside a flow of this controller, which began first,
/// and what the latter has alone.
fn beside_and_alone(controller: &str, buffer: f64) -> (f64, f64) {
    let path = |link| [(link, Span::from_millis(40))];
    let rate = Rate::mbit(20);
    let share = |model: &Model, flow: usize| {
        model.rate(model.flows[flow].delivered()) * MSS.as_f64() * 8.0 / rate.as_f64()
    };
    let mut model = Model::default();
    let link = model.link(Link::new(rate, buffer, Drops::None));
    model.flow(controller, &path(link), Span::ZERO);
    let reno = model.flow("reno", &path(link), secs(10));
    model.measure(secs(30), secs(150));
    let kept = share(&model, reno);
    let mut model = Model::default();
    let link = model.link(Link::new(rate, buffer, Drops::None));
    let alone = model.flow(controller, &path(link), Span::ZERO);
    model.measure(secs(30), secs(150));
    (kept, share(&model, alone))
}

/// In buffers of one and of four bandwidth-delay products. A drop-tail buffer of less than its
/// target keeps LEDBAT from yielding: it is then a flow like Reno.
#[test]
fn background_flows_yield_to_reno_and_fill_an_idle_link() {
    // LP halves at 15 % of the buffer, and waits: in a buffer of one bandwidth-delay product alone
    // it has three quarters of the link. So has Nice, which takes its own packets for a queue where
    // nobody else fills the buffer.
    for (controller, buffers, kept_least, alone_least) in [
        ("ledbat", [267.0, 534.0], 0.8, 0.95),
        ("ledbat++", [134.0, 267.0], 0.9, 0.9),
        ("lp", [67.0, 267.0], 0.95, 0.7),
        ("nice", [67.0, 267.0], 0.9, 0.7),
    ] {
        for buffer in buffers {
            let (kept, alone) = beside_and_alone(controller, buffer);
            println!("{controller}, {buffer} packets: reno keeps {kept:.3}, alone {alone:.3}");
            assert!(
                kept >= kept_least && alone >= alone_least,
                "{controller}: {kept:.3}, {alone:.3}"
            );
        }
    }
    // A check of the measure.
    let (kept, _) = beside_and_alone("reno", 67.0);
    assert!((0.4..0.65).contains(&kept), "{kept}");
}
