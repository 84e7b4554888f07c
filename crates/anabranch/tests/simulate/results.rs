//! The tables of a sweep, what the terminal shows of them, and figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{folder, simulate};

/// A scenario whose flows complete requests, with a sweep over two parameters.
const SWEPT: &str = r#"
name = "swept"
duration = "6 s"
runs = 2
measure = ["delay", "queue"]
size_classes = ["30 kB"]
[parameters]
controller = "reno"
[sweep]
controller = ["reno", "cubic"]
"link.line.queue" = ["10 packets", "300 packets"]
[[link]]
name = "line"
between = ["a", "b"]
rate = "10 Mbit/s"
delay = "10 ms"
queue = "10 packets"
[[flow]]
name = "bulk*"
count = 2
from = "a"
to = "b"
start = { from = "0 s", to = "1 s" }
controller = "$controller"
[[flow]]
name = "short"
from = "a"
to = "b"
start = "1 s"
source = { trace = [{ at = "0 s", bytes = "20 kB" }, { at = "1 s", bytes = "50 kB" }] }
"#;

fn swept(name: &str) -> PathBuf {
    let folder = folder(name);
    fs::write(folder.join("swept.toml"), SWEPT).unwrap();
    folder
}

#[test]
fn tables_of_requests_and_samples_resume_too() {
    let folder = swept("simulate-tables");
    let arguments = ["swept.toml", "--out", "out", "--tables", "requests,samples"];
    let (code, _, said) = simulate(&folder, &arguments);
    assert_eq!(code, 0, "{said}");
    let read = |name: &str| fs::read_to_string(folder.join("out").join(name)).unwrap();
    let (requests, samples) = (read("requests.csv"), read("samples.csv"));
    let columns = "controller,link.line.queue,seed,flow,group,start,size,size_class,completion,\
                   ideal,slowdown";
    assert_eq!(requests.lines().next(), Some(columns));
    assert_eq!(requests.lines().count(), 1 + 8 * 2, "{requests}");
    for line in requests.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<f64>().unwrap();
        assert_eq!((fields[3], fields[4]), ("short", "short"));
        assert!(number(8) >= number(9) && number(10) >= 1.0, "{line}");
        assert!((number(8) / number(9) - number(10)).abs() < 1e-9, "{line}");
    }
    let columns = "controller,link.line.queue,seed,time,scope,of,measure,value,unit";
    assert_eq!(samples.lines().next(), Some(columns));
    assert!(samples.contains("reno,10 packets,1,6,all,,jain,"), "{samples}");
    assert!(samples.contains("reno,10 packets,1,6,link,line/up,throughput,"), "{samples}");
    assert!(read("requests.schema.json").contains("\"slowdown\""));
    assert!(read("samples.schema.json").contains("\"jain\""));

    let lost = fs::read_dir(folder.join("out/runs")).unwrap().map(|f| f.unwrap().path());
    let lost = lost.into_iter().find(|file| file.to_string_lossy().ends_with("samples.tsv"));
    fs::remove_file(lost.unwrap()).unwrap();
    let (code, _, said) = simulate(&folder, &arguments);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("7 of 8 runs are there already"), "{said}");
    assert_eq!((read("requests.csv"), read("samples.csv")), (requests, samples));
    // Fewer tables want no run.
    let (_, _, said) = simulate(&folder, &["swept.toml", "--out", "out", "--tables", "requests"]);
    assert!(said.contains("8 of 8 runs are there already"), "{said}");
}

/// Each class of sizes has a row on the terminal, and those of the tidy table fit the requests.
#[test]
fn completion_times_are_shown_by_size() {
    let folder = swept("simulate-sizes");
    let (code, shown, said) = simulate(&folder, &["swept.toml", "--out", "out"]);
    assert_eq!(code, 0, "{said}");
    let (_, table) = shown.split_once("by size").expect("there is a table of sizes");
    for (line, class) in table.lines().filter(|line| line.contains(" kB ")).zip(0..) {
        let (of, class) = (["short", "all flows"][class / 2 % 2], ["up to", "above"][class % 2]);
        assert!(line.starts_with(&format!("{of:9}  {class} 30 kB")), "{of}, {class}: {line}");
        assert!(line.split_whitespace().any(|cell| cell == "1"), "a request of each: {line}");
    }
    assert_eq!(table.lines().filter(|line| line.contains(" kB ")).count(), 4 * 4, "{table}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");

    let read = |name: &str| fs::read_to_string(folder.join("out").join(name)).unwrap();
    let (measures, requests) = (read("measures.csv"), read("requests.csv"));
    let run = "cubic,300 packets,2,";
    let [small, large] = ["up to 30 kB", "above 30 kB"].map(|class| {
        let request = requests.lines().find(|line| line.starts_with(run) && line.contains(class));
        request.expect("each size is there once").split(',').collect::<Vec<_>>()
    });
    assert_eq!((small[6], large[6]), ("20000", "50000"));
    for (class, completion) in [("up to 30 kB", small[8]), ("above 30 kB", large[8])] {
        for of in ["short", ""] {
            for measure in ["completion", "completion_p50", "completion_p99"] {
                let row = format!("{run}steady,class,{of},{class},{measure},{completion},s\n");
                assert!(measures.contains(&row), "{row}");
            }
        }
    }
    assert!(!measures.contains(",class,bulk,"), "it completes nothing");
    // A key of the file, and therefore an option.
    let classes = ["swept.toml", "--set", "size_classes=[\"20 kB\", \"1 MB\"]", "--seeds", "1"];
    let (_, shown, said) = simulate(&folder, &classes);
    assert!(shown.contains("20 kB to 1 MB") && shown.contains("above 1 MB"), "{shown}{said}");
    for wrong in ["[]", "[\"1 MB\", \"20 kB\"]", "[\"0 B\"]", "\"20 kB\"", "[20]"] {
        let (code, _, said) =
            simulate(&folder, &["swept.toml", "--set", &format!("size_classes={wrong}")]);
        assert!(code == 2 && said.contains("size_classes"), "{wrong}: {said}");
    }
}

#[test]
fn results_are_plotted_without_their_runs() {
    let folder = swept("simulate-plot");
    let (code, _, said) = simulate(&folder, &["swept.toml", "--out", "out"]);
    assert_eq!(code, 0, "{said}");
    fs::remove_dir_all(folder.join("out/runs")).unwrap();
    let plot = |arguments: &[&str]| plot(&folder, "figure.svg", arguments);
    let (queue, short) = ("link.line.queue", "link.line.queue=10 packets");
    for (arguments, texts) in [
        (&["--y", "goodput", "--of", "bulk", "--x", queue][..], &["reno", "packets", "Mbit/s"][..]),
        (&["--y", "jain"], &["reno", "cubic", "10 packets", "jain"]),
        (&["--y", "queue_p95", "--of", "line/up", "--x", queue], &["queue p95 of line/up"]),
        (
            &["--cdf", "completion", "--of", "short", "--where", "controller=reno"],
            &["fraction", "queue = 300 packets"],
        ),
        (
            &["--cdf", "delay_p99", "--by", "controller", "--where", "link.line.queue=10 packets"],
            &["flows"],
        ),
        (&["--y", "delay_p99", "--size", "column"], &["width=\"336\""]),
        (
            &["--cdf", "delay", "--by", "controller", "--where", "link.line.queue=10 packets"],
            &["fraction of packets", "reno", "cubic"],
        ),
        (
            &["--y", "completion_p99", "--x", "size_class", "--where", "controller=reno"],
            &["up to 30 kB", "above 30 kB", "queue = 300 packets"],
        ),
        (
            &[
                "--y",
                "slowdown",
                "--of",
                "short",
                "--by",
                "size_class",
                "--where",
                "controller=reno",
            ],
            &["up to 30 kB", "above 30 kB", "packets"],
        ),
        (
            &[
                "--cdf",
                "size",
                "--by",
                "size_class",
                "--where",
                "controller=reno",
                "--where",
                short,
            ],
            &["up to 30 kB", "above 30 kB", "fraction of requests"],
        ),
    ] {
        let (code, said) = plot(arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        let figure = fs::read_to_string(folder.join("figure.svg")).unwrap();
        for text in texts {
            assert!(figure.contains(text), "{arguments:?} without {text}");
        }
        fs::remove_file(folder.join("figure.svg")).unwrap();
    }
    for (arguments, texts) in [
        (&["--y", "goodputs"][..], &["goodputs", "goodput", "completion_p99"][..]),
        (&["--y", "goodput", "--x", "queue"], &["queue", "controller", "link.line.queue"]),
        (&["--y", "goodput", "--of", "bulks"], &["bulks", "bulk", "short"]),
        (&["--y", "goodput", "--window", "late"], &["late", "steady"]),
        (&["--y", "goodput", "--where", "controller=vegas"], &["vegas", "reno, cubic"]),
        (&["--y", "queue"], &["--of", "line/up"]),
        (&["--y", "marks", "--of", "bulk"], &["bulk", "line/up"]),
        (&["--cdf", "completion", "--by", "controller"], &["link.line.queue", "--where"]),
        (&["--cdf", "latency"], &["latency", "delay"]),
        (&["--y", "goodput", "--size", "wide"], &["wide", "column"]),
        (&["--y", "goodput", "--x", "size_class", "--where", "controller=reno"], &["goodput"]),
        (&["--y", "completion", "--where", "size_class=up to 1 kB"], &["up to 30 kB, above"]),
    ] {
        let (code, said) = plot(arguments);
        assert_eq!(code, 2, "{arguments:?}: {said}");
        for text in texts {
            assert!(said.contains(text), "{arguments:?}: {said}");
        }
    }
    assert!(!folder.join("figure.svg").exists());
}

/// Runs `plot` on the results in `out`; gives its exit code and what it said.
fn plot(folder: &Path, figure: &str, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.current_dir(folder).args(["plot", "out", figure]).args(arguments);
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn figures_have_the_axes_legend_and_format_that_are_asked_for() {
    let folder = swept("simulate-formats");
    let (code, _, said) = simulate(&folder, &["swept.toml", "--out", "out", "--seeds", "1"]);
    assert_eq!(code, 0, "{said}");
    let axes = ["--y-label", "index of shares", "--y-limits", "0.1:10", "--log-axes", "y"];
    let arguments = [&["--y", "jain", "--legend-title", "queues of"][..], &axes].concat();
    assert_eq!(plot(&folder, "figure.svg", &arguments), (0, String::new()));
    let figure = fs::read_to_string(folder.join("figure.svg")).unwrap();
    for text in ["queues of", "index of shares", "0.1", "10"] {
        assert!(figure.contains(text), "{text}");
    }
    let (code, said) = plot(&folder, "figure.svg", &["--y", "jain", "--dpi", "300"]);
    assert!(code == 2 && said.contains("--dpi is of PNG"), "{code}: {said}");
    // What this build does not draw, it says how to have.
    let png: &[&str] = &["--y", "jain", "--size", "2inx1in", "--dpi", "300"];
    let formats =
        [("png", cfg!(feature = "png"), png), ("pdf", cfg!(feature = "pdf"), &["--y", "jain"])];
    for (feature, has_it, arguments) in formats {
        let name = format!("figure.{feature}");
        let (code, said) = plot(&folder, &name, arguments);
        assert_eq!(code, if has_it { 0 } else { 2 }, "{name}: {said}");
        assert!(has_it || said.contains(&format!("--features {feature}")), "{said}");
    }
    if cfg!(feature = "png") {
        let png = fs::read(folder.join("figure.png")).unwrap();
        let width = u32::from_be_bytes(png[16..20].try_into().unwrap());
        assert_eq!(width, 600, "two inches");
    }
    if cfg!(feature = "pdf") {
        assert!(fs::read(folder.join("figure.pdf")).unwrap().starts_with(b"%PDF-"));
    }
}

/// Flows that arrive in the course of the run, beside one that lasts.
const ARRIVING: &str = r#"
name = "arriving"
duration = "6 s"
runs = 2
[parameters]
controller = "reno"
[[link]]
name = "line"
between = ["a", "b"]
rate = "10 Mbit/s"
delay = "10 ms"
queue = "50 packets"
[[flow]]
name = "bulk"
from = "a"
to = "b"
controller = "$controller"
[[flow]]
name = "web*"
count = 12
from = "a"
to = "b"
start = { interval = "200 ms" }
source = { file = "20 kB" }
"#;

/// Each of them has rows in a table of its own, which is only written if it is asked for.
#[test]
fn flows_that_arrive_have_a_table_of_their_own() {
    let folder = folder("simulate-arrivals");
    fs::write(folder.join("arriving.toml"), ARRIVING).unwrap();
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let lines = |text: &str, part: &str| text.lines().filter(|line| line.contains(part)).count();

    let (code, _, said) = simulate(&folder, &["arriving.toml", "--out", "out"]);
    assert_eq!(code, 0, "{said}");
    let measures = read("out/measures.csv");
    assert_eq!(lines(&measures, ",flow,bulk,all,goodput,"), 2, "{measures}");
    assert_eq!(lines(&measures, ",group,web,all,completion,"), 2, "{measures}");
    assert_eq!(lines(&measures, ",flow,web"), 0, "{measures}");
    assert!(!folder.join("out/flows.csv").exists());
    let plot = |arguments: &[&str]| plot(&folder, "figure.svg", arguments);
    let rtts = ["--cdf", "rtt", "--of", "web"];
    let (code, said) = plot(&rtts);
    assert!(code == 2 && said.contains("--tables flows"), "{code}: {said}");

    let arguments = ["arriving.toml", "--out", "out", "--tables", "flows"];
    let (code, _, said) = simulate(&folder, &arguments);
    assert!(code == 0 && said.contains("flows.csv"), "{code}: {said}");
    let flows = read("out/flows.csv");
    let columns = "seed,window,scope,of,group,measure,value,unit";
    assert_eq!(flows.lines().next(), Some(columns));
    for name in ["goodput", "completion", "retransmissions"] {
        let row = format!(",web,{name},");
        assert_eq!(lines(&flows, &row), 2 * 12, "{name}: {flows}");
    }
    assert_eq!(lines(&flows, "2,steady,flow,web12,web,completion,"), 1, "{flows}");
    assert_eq!(lines(&flows, "bulk"), 0, "{flows}");
    assert_eq!(read("out/measures.csv"), measures);
    assert!(read("out/flows.schema.json").contains("\"completion\""));
    assert_eq!(plot(&rtts), (0, String::new()));
    assert!(read("figure.svg").contains("fraction of flows"));
    if cfg!(feature = "parquet") {
        let arguments = [&arguments[..], &["--format", "parquet"]].concat();
        let (code, _, said) = simulate(&folder, &arguments);
        assert!(code == 0 && said.contains("flows.parquet"), "{code}: {said}");
        let table = fs::read(folder.join("out/flows.parquet")).unwrap();
        assert!(table.starts_with(b"PAR1") && table.ends_with(b"PAR1"));
    }
    // Of a scenario in which none arrives, there is no such table.
    fs::write(folder.join("swept.toml"), SWEPT).unwrap();
    let arguments = ["swept.toml", "--out", "none", "--tables", "flows", "--seeds", "1"];
    let (code, _, said) = simulate(&folder, &arguments);
    assert!(code == 0 && !said.contains("flows.csv"), "{code}: {said}");
}
