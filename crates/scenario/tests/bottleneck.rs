//! Detection of shared bottlenecks, in simulations: `scenarios/shared-bottleneck.toml` at a
//! quarter of its rates, under OLIA, which the cuts that test a suspicion disturb. The bar
//! `ptcp-shared-bottleneck` has it at full length.

use scenario::sweep::Plan;
use scenario::{Document, RunOptions};

/// One narrow link for both subflows, one for each, and one for each with equal rates.
const SHARED: &[(&str, &str)] = &[];
const SEPARATE: &[(&str, &str)] =
    &[("common", "1 Gbit/s"), ("access", "3 Mbit/s"), ("other", "4 Mbit/s")];
const IN_STEP: &[(&str, &str)] =
    &[("common", "1 Gbit/s"), ("access", "3 Mbit/s"), ("other", "3 Mbit/s")];

/// For each seed and each time in seconds, whether the two subflows were taken to share a
/// bottleneck.
fn together(
    seeds: usize,
    settings: &[(&str, &str)],
    schedule: &str,
    times: &[u32],
) -> Vec<Vec<bool>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/shared-bottleneck.toml");
    let mut text = std::fs::read_to_string(path).expect("it is there");
    let mut set = |from: String, to: &str| {
        assert_eq!(text.matches(&from).count(), 1, "{from}");
        text = text.replace(&from, to);
    };
    let windows: Vec<String> = times
        .iter()
        .map(|at| format!(r#"{{ name = "{at}", from = "{} s", to = "{at} s" }}"#, at - 1))
        .collect();
    set(
        "duration = \"60 s\"".into(),
        &format!("duration = \"{} s\"\nwindow = [{}]", times[times.len() - 1], windows.join(", ")),
    );
    set("controller = \"coupled-bbr\"".into(), "controller = \"olia\"");
    set("runs = 10".into(), &format!("runs = {seeds}"));
    set("warmup = \"20 s\"".into(), "warmup = \"1 s\"");
    set("schedule = []".into(), &format!("schedule = {schedule}"));
    set("queue = \"60 packets\"".into(), "queue = \"20 packets\"");
    for (key, old, usual) in [
        ("common", "20 Mbit/s", "5 Mbit/s"),
        ("access", "1 Gbit/s", "1 Gbit/s"),
        ("other", "1 Gbit/s", "1 Gbit/s"),
    ] {
        let new = settings.iter().find(|(name, _)| *name == key).map_or(usual, |(_, value)| value);
        set(format!("\n{key} = \"{old}\""), &format!("\n{key} = \"{new}\""));
    }
    let document = Document::new(&text, "shared-bottleneck.toml").expect("it is a scenario");
    let plan = Plan::new(&document, &[], None).expect("its settings are right");
    let mut found = vec![Vec::new(); plan.jobs().len()];
    let run = |number: usize, run: scenario::Run| {
        found[number] = times
            .iter()
            .map(|at| {
                let at = at.to_string();
                let of = |name: &str| {
                    let is_it = |m: &scenario::Measure<'_>| {
                        m.window == at && m.name() == "bottleneck" && m.of == name
                    };
                    run.measures.iter().find(is_it).expect("it is measured").value
                };
                let (one, two) = (of("striped/0"), of("striped/1"));
                one > 0.0 && one.to_bits() == two.to_bits()
            })
            .collect();
        true
    };
    plan.run(2, RunOptions::default(), |_| true, run).expect("all run");
    assert_eq!(found.len(), seeds);
    found
}

#[test]
fn one_narrow_link_for_both_subflows() {
    for (seed, found) in together(10, SHARED, "[]", &[25]).iter().enumerate() {
        assert_eq!(found, &[true], "seed {}", seed + 1);
    }
}

#[test]
fn a_narrow_link_for_each_subflow() {
    for (seed, found) in together(10, SEPARATE, "[]", &[25]).iter().enumerate() {
        assert_eq!(found, &[false], "seed {}", seed + 1);
    }
}

#[test]
fn two_equal_links_that_fill_in_step() {
    for (seed, found) in together(10, IN_STEP, "[]", &[25]).iter().enumerate() {
        assert_eq!(found, &[false], "seed {}", seed + 1);
    }
}

#[test]
fn detection_follows_a_change() {
    let schedule = r#"[{ at = "25 s", rate = "2 Mbit/s" }, { at = "55 s", rate = "1 Gbit/s" }]"#;
    for (seed, found) in together(5, SHARED, schedule, &[25, 50, 85]).iter().enumerate() {
        assert_eq!(found, &[true, false, true], "seed {}", seed + 1);
    }
}

/// What four subflows at one bottleneck take over what one subflow of another connection takes.
fn over_one(controller: &str) -> f64 {
    let link = |name: &str, between: &str, rate: &str, delay: &str, queue: &str| {
        format!(
            "[[link]]\nname = \"{name}\"\nbetween = {between}\nrate = \"{rate}\"\ndelay = \
             \"{delay}\"\nqueue = \"{queue}\"\n"
        )
    };
    let flow = |name: &str, accesses: std::ops::Range<u32>| {
        let ways: Vec<String> =
            accesses.map(|number| format!("[\"access{number}\", \"common\"]")).collect();
        let ways = ways.join(", ");
        format!(
            "[[flow]]\nname = \"{name}\"\nfrom = \"near\"\nto = \"far\"\ntransport = \
             \"ptcp\"\ncontroller = \"{controller}\"\nsubflows = [{ways}]\nstart = {{ from = \"0 \
             s\", to = \"1 s\" }}\n"
        )
    };
    let mut parts = vec![
        "name = \"four beside one\"\nduration = \"120 s\"\nwarmup = \"60 s\"\n".to_owned(),
        link("common", r#"["left", "far"]"#, "10 Mbit/s", "20 ms", "40 packets"),
    ];
    let access = r#"["near", "left"]"#;
    parts.extend((0..5).map(|n| link(&format!("access{n}"), access, "1 Gbit/s", "1 ms", "1 MiB")));
    parts.extend([flow("four", 0..4), flow("one", 4..5)]);
    let text = parts.concat();
    let document = Document::new(&text, "four.toml").expect("it is a scenario");
    let scenario = document.scenario(&[]).expect("its settings are right");
    let run = scenario.run(units::Seed(1), RunOptions::default()).expect("it runs");
    let [four, one] =
        ["four", "one"].map(|name| run.measure("flow", name, "goodput").expect("it is measured"));
    println!("{controller}: {four:.2} and {one:.2} Mbit/s");
    four / one
}

#[test]
fn a_controller_that_couples_hears_of_shared_bottlenecks() {
    let (coupled, uncoupled) = (over_one("coupled-bbr"), over_one("bbr(tolerance=0.02)"));
    assert!(coupled < 1.6, "{coupled}");
    assert!(uncoupled > 2.0, "{uncoupled}");
}
