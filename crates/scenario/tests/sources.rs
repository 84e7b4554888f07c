//! Every source over every transport that a file can name, over one path and over two: it runs, and
//! it carries its load.

use scenario::{Document, Run, RunOptions};
use units::Seed;

/// Links of 10 and 20 Mbit/s; a full packet is 97 % payload.
const LINKS: &str = r#"
name = "sources"
duration = "20 s"
warmup = "5 s"

[[link]]
name = "slow"
between = ["near", "far"]
rate = "10 Mbit/s"
delay = "15 ms"
queue = "60 packets"

[[link]]
name = "fast"
between = ["near", "far"]
rate = "20 Mbit/s"
delay = "5 ms"
queue = "60 packets"

[[flow]]
name = "flow"
from = "near"
to = "far"
"#;

const ONE: &str = "via = [\"slow\"]";
const TWO: &str = "subflows = [[\"slow\"], [\"fast\"]]";
const TRANSPORTS: [&str; 3] = ["tcp", "ptcp", "sockets"];

fn text(transport: &str, lines: &str) -> String {
    format!("{LINKS}transport = \"{transport}\"\n{lines}\n")
}

fn run(transport: &str, lines: &str) -> Run {
    let scenario = Document::new(&text(transport, lines), "sources.toml")
        .and_then(|document| document.scenario(&[]))
        .unwrap_or_else(|error| panic!("{transport}, {lines}: {error}"));
    scenario.run(Seed(1), RunOptions::default()).expect("there is a route")
}

/// Runs the source over one path and over both, with each transport; `check` gets a description,
/// whether there are two paths, and the measures.
fn each(source: &str, check: impl Fn(&str, bool, &dyn Fn(&str) -> f64)) {
    for transport in TRANSPORTS {
        for routes in [ONE, TWO] {
            let of = format!("{source} over {transport}, {routes}");
            let run = run(transport, &format!("{routes}\nsource = {source}"));
            let measure = |name: &str| run.measure("flow", "flow", name).unwrap_or(0.0);
            check(&of, routes == TWO, &measure);
        }
    }
}

#[test]
fn bulk_fills_the_paths() {
    each("\"bulk\"", |of, is_two, measure| {
        let least = if is_two { 26.0 } else { 9.0 };
        assert!(measure("goodput") > least, "{of}: {}", measure("goodput"));
    });
}

#[test]
fn a_stream_has_its_rate() {
    each("{ stream = \"6 Mbit/s\" }", |of, _, measure| {
        assert!((measure("goodput") - 6.0).abs() < 0.1, "{of}: {}", measure("goodput"));
    });
}

#[test]
fn a_stream_that_needs_both_paths_has_its_rate() {
    for transport in TRANSPORTS {
        let run = run(transport, &format!("{TWO}\nsource = {{ stream = \"25 Mbit/s\" }}"));
        let goodput = run.measure("flow", "flow", "goodput").expect("it is measured");
        assert!((goodput - 25.0).abs() < 0.3, "{transport}: {goodput} Mbit/s");
    }
}

#[test]
fn a_stream_beyond_the_capacity_gets_what_there_is() {
    each("{ stream = \"40 Mbit/s\" }", |of, is_two, measure| {
        let least = if is_two { 26.0 } else { 9.0 };
        assert!(measure("goodput") > least, "{of}: {}", measure("goodput"));
    });
}

#[test]
fn a_file_takes_its_time() {
    // 20 MB at 9.65 and 28.9 Mbit/s; it begins before the window of measures, and ends in it.
    each("{ file = \"20 MB\" }", |of, is_two, measure| {
        let (least, most) = if is_two { (5.5, 6.6) } else { (16.5, 18.5) };
        assert!((measure("requests") - 1.0).abs() < 1e-9, "{of}: {}", measure("requests"));
        let took = measure("completion");
        assert!((least..most).contains(&took), "{of}: {took} s");
    });
}

#[test]
fn each_write_of_a_trace_arrives() {
    // The second write of 3 MB takes 2.5 or 0.83 s alone; 1 byte fits in any packet.
    let writes = "[{ at = \"6 s\", bytes = \"3 MB\" }, { at = \"6 s\", bytes = \"1 B\" }, \
                  { at = \"10 s\", bytes = \"3 MB\" }, { at = \"15 s\", bytes = \"100 B\" }]";
    each(&format!("{{ trace = {writes} }}"), |of, is_two, measure| {
        assert!((measure("requests") - 4.0).abs() < 1e-9, "{of}: {}", measure("requests"));
        let goodput = 6_000_101.0 * 8.0 / 15e6;
        assert!((measure("goodput") - goodput).abs() < 0.01, "{of}: {}", measure("goodput"));
        let (least, most) = if is_two { (0.83, 1.3) } else { (2.5, 3.2) };
        let longest = measure("completion_p95");
        assert!((least..most).contains(&longest), "{of}: {longest} s");
    });
}

#[test]
fn pages_come_faster_over_two_paths() {
    let source = "{ web = { mean = \"1 MB\", shape = 3, think = \"10 ms\" } }";
    for transport in TRANSPORTS {
        let [one, two] = [ONE, TWO].map(|routes| {
            let run = run(transport, &format!("{routes}\nsource = {source}"));
            ["requests", "completion"].map(|name| {
                let value = run.measure("flow", "flow", name);
                value.unwrap_or_else(|| panic!("{transport}, {routes}: no {name}"))
            })
        });
        // A mean page takes 0.83 s at 9.65 Mbit/s and 0.28 s at 28.9, and some of slow start.
        assert!(one[0] > 13.0 && one[1] < 1.1, "{transport}: {one:?}");
        assert!(two[0] > 1.8 * one[0] && two[1] < one[1] / 1.8, "{transport}: {two:?}");
    }
}

/// What was written before the end of sending arrives, and nothing else. Measured is from 5 s on,
/// the end is at 7 s.
#[test]
fn any_source_stops() {
    let trace = "{ trace = [{ at = \"1 s\", bytes = \"5 MB\" }, \
                 { at = \"15 s\", bytes = \"1 MB\" }] }";
    let over = |source: &str, check: &dyn Fn(&str, bool, f64)| {
        for transport in TRANSPORTS {
            for routes in [ONE, TWO] {
                let lines = format!("{routes}\nsource = {source}\nstart = \"1 s\"\nstop = \"7 s\"");
                let goodput = run(transport, &lines).measure("flow", "flow", "goodput");
                let of = format!("{source} over {transport}, {routes}: {goodput:?} Mbit/s");
                check(&of, routes == TWO, goodput.expect("it is measured") * 15.0);
            }
        }
    };
    for source in ["\"bulk\"", "{ file = \"900 MB\" }"] {
        over(source, &|of, is_two, megabits| {
            let all = if is_two { 57.0..64.0 } else { 19.0..22.0 };
            assert!(all.contains(&megabits), "{of}");
        });
    }
    over("{ stream = \"6 Mbit/s\" }", &|of, _, megabits| {
        assert!((11.9..12.3).contains(&megabits), "{of}");
    });
    // 240 Mbit were written; one path is not done with them.
    over("{ stream = \"40 Mbit/s\" }", &|of, is_two, megabits| {
        let all = if is_two { 240.0 - 4.0 * 29.0..145.0 } else { 140.0..146.0 };
        assert!(all.contains(&megabits), "{of}");
    });
    over("{ web = { mean = \"100 kB\", think = \"50 ms\" } }", &|of, _, megabits| {
        assert!((2.0..30.0).contains(&megabits), "{of}");
    });
    over(trace, &|of, is_two, megabits| {
        let all = if is_two { 0.0..0.001 } else { 40.0 - 3.1 * 9.7..40.0 - 2.8 * 9.7 };
        assert!(all.contains(&megabits), "{of}");
    });
}

#[test]
fn udp_has_a_rate_and_no_source() {
    for (source, name) in [
        ("\"bulk\"", "'bulk'"),
        ("{ file = \"1 MB\" }", "'file'"),
        ("{ stream = \"1 Mbit/s\" }", "'stream'"),
        ("{ web = {} }", "'web'"),
        ("{ trace = [] }", "'trace'"),
    ] {
        let lines = format!("rate = \"1 Mbit/s\"\nsource = {source}");
        let error = Document::new(&text("udp", &lines), "sources.toml").unwrap_err().to_string();
        let parts = ["sources.toml:26: flow.flow.source: ", name, "udp", "`rate`"];
        for part in parts {
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }
}

/// Any source that its file may name runs, whatever its size and time.
#[test]
fn odd_sources_run() {
    for source in [
        "{ file = \"0 B\" }",
        "{ file = \"1 B\" }",
        "{ stream = \"0 bit/s\" }",
        "{ stream = \"1 bit/s\" }",
        "{ trace = [] }",
        "{ trace = [{ at = \"0 s\", bytes = \"0 B\" }, { at = \"0 s\", bytes = \"1449 B\" }] }",
        "{ trace = [{ at = \"1 h\", bytes = \"1 B\" }] }",
        "{ web = { mean = \"1 B\", think = \"0 s\" } }",
    ] {
        for transport in TRANSPORTS {
            for routes in [ONE, TWO] {
                println!("{source} over {transport}, {routes}");
                run(transport, &format!("{routes}\nsource = {source}"));
            }
        }
    }
}
