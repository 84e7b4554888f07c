//! `simulate` from outside.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod results;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SCENARIO: &str = r#"
name = "small"
runs = 3
duration = "2 s"
warmup = "1 s"

[parameters]
controller = "reno"

[[link]]
name = "bottleneck"
between = ["near", "far"]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "20 packets"

[[flow]]
name = "bulk"
from = "near"
to = "far"
controller = "$controller"
"#;

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("small.toml"), SCENARIO).unwrap();
    path
}

fn simulate(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let output = command.current_dir(folder).arg("simulate").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_sweep_prints_means_and_resumes_after_an_interruption() {
    let folder = folder("simulate-sweep");
    let (code, table, said) = simulate(&folder, &["small.toml", "--out", "out"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        table.contains("goodput") && table.contains("±") && table.contains("Mbit/s"),
        "{table}"
    );
    let whole = fs::read_to_string(folder.join("out/measures.csv")).unwrap();
    assert!(
        whole.starts_with(
            "seed,window,scope,of,size_class,measure,value,unit\n1,steady,flow,bulk,all,goodput,"
        ),
        "{whole}"
    );
    assert!(folder.join("out/measures.schema.json").exists());
    // One run is missing, one is truncated behind a line.
    let files = fs::read_dir(folder.join("out/runs")).unwrap().map(|f| f.unwrap().path());
    let (tables, mut runs): (Vec<PathBuf>, Vec<PathBuf>) =
        files.partition(|file| file.to_string_lossy().ends_with(".requests.tsv"));
    runs.sort();
    assert_eq!((runs.len(), tables.len()), (3, 3));
    fs::remove_file(&runs[0]).unwrap();
    let text = fs::read_to_string(&runs[1]).unwrap();
    fs::write(&runs[1], &text[..=text.trim_end().rfind('\n').unwrap()]).unwrap();
    let (code, again, said) = simulate(&folder, &["small.toml", "--out", "out", "--jobs", "1"]);
    assert_eq!((code, &again), (0, &table));
    assert!(said.contains("1 of 3 runs are there already"), "{said}");
    assert_eq!(fs::read_to_string(folder.join("out/measures.csv")).unwrap(), whole);
    // Results of other settings are not mixed with these.
    let (code, _, said) =
        simulate(&folder, &["small.toml", "--out", "out", "--set", "controller=cubic"]);
    assert_eq!(code, 2);
    assert!(said.contains("--restart"), "{said}");
    let arguments =
        ["small.toml", "--out", "out", "--set", "controller=cubic", "--restart", "--seeds", "1"];
    assert_eq!(simulate(&folder, &arguments).0, 0);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let folder = folder("simulate-pipe");
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.current_dir(&folder).args(["simulate", "small.toml", "--digests", "--out", "out"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(folder.join("out/measures.csv").exists());
}

#[test]
fn the_first_run_is_drawn_captured_and_logged() {
    let folder = folder("simulate-look");
    let arguments = [
        "small.toml",
        "--seeds",
        "1",
        "--plot",
        "p.svg",
        "--pcap",
        "p.pcap",
        "--trace",
        "p.csv",
        "--digests",
    ];
    let (code, out, said) = simulate(&folder, &arguments);
    assert_eq!(code, 0, "{said}");
    assert!(out.lines().next().unwrap().ends_with(" hops"), "{out}");
    let svg = fs::read_to_string(folder.join("p.svg")).unwrap();
    for label in
        ["goodput (Mbit/s)", "window (packets)", "queue (packets)", "bulk", "bottleneck/up"]
    {
        assert!(svg.contains(label), "the plot lacks {label}");
    }
    let capture = fs::read(folder.join("p.pcap")).unwrap();
    assert_eq!(&capture[..4], [0xa1, 0xb2, 0x3c, 0x4d]);
    let log = fs::read_to_string(folder.join("p.csv")).unwrap();
    let sent = log.lines().filter(|line| line.contains(",sent,")).count();
    let passed = log.lines().filter(|line| line.contains(",passed,")).count();
    assert!(sent > 1_000 && passed > 1_000 && passed <= sent, "{sent} sent, {passed} passed");
    assert!(log.contains(",dropped,bottleneck/up,"), "Reno fills the queue");
}

#[test]
fn mistakes_end_with_2_and_a_hint() {
    let folder = folder("simulate-mistakes");
    let wrong = |arguments: &[&str], wanted: &str| {
        let (code, _, said) = simulate(&folder, arguments);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(wanted), "{said}");
    };
    wrong(&["missing.toml"], "missing.toml");
    wrong(&["small.toml", "--set", "contoller=reno"], "did you mean 'controller'");
    wrong(&["small.toml", "--set", "controller"], "KEY=VALUE");
    wrong(&["small.toml", "--set", "controller=renu"], "--set controller=renu: flow.bulk");
    wrong(&["small.toml", "--seeds", "1", "--plot", "p.jpg"], ".svg, .png or .pdf");
    fs::write(folder.join("split.toml"), SCENARIO.replace("to = \"far\"", "to = \"off\"")).unwrap();
    wrong(&["split.toml"], "split.toml:20");
}

/// The files to write and their formats are checked before the runs, and nothing is left behind.
#[test]
fn files_are_checked_before_the_run() {
    let folder = folder("simulate-files");
    fs::write(folder.join("kept.csv"), "before").unwrap();
    fs::create_dir(folder.join("taken")).unwrap();
    for (flag, path, wanted) in [
        ("--plot", "p.jpg", ".svg, .png or .pdf"),
        ("--plot", "nowhere/p.svg", "nowhere/p.svg"),
        ("--pcap", "nowhere/p.pcap", "nowhere/p.pcap"),
        ("--trace", "taken", "taken"),
    ] {
        let arguments =
            ["small.toml", "--digests", flag, path, "--out", "out", "--trace", "kept.csv"];
        let arguments = if flag == "--trace" { &arguments[..6] } else { &arguments[..] };
        let (code, out, said) = simulate(&folder, arguments);
        assert_eq!((code, &*out), (2, ""), "{flag} {path}: {said}");
        assert!(said.contains(wanted), "{said}");
    }
    assert_eq!(fs::read_to_string(folder.join("kept.csv")).unwrap(), "before");
    assert!(!folder.join("out").exists());
    let arguments = ["small.toml", "--set", "sample=1 ns", "--plot", "p.svg"];
    let (code, _, said) = simulate(&folder, &arguments);
    assert!(code == 2 && said.contains("longer `sample`"), "{said}");
    assert!(!folder.join("p.svg").exists());
}

/// The lines of `measures.csv` without its header.
fn rows(folder: &Path) -> usize {
    fs::read_to_string(folder.join("measures.csv")).unwrap().lines().count() - 1
}

#[test]
fn finished_runs_are_known_by_their_content() {
    let folder = folder("simulate-content");
    let traced = SCENARIO.replace("rate = \"10 Mbit/s\"", "trace = \"rates.csv\"");
    fs::write(folder.join("small.toml"), &traced).unwrap();
    fs::write(folder.join("rates.csv"), "0 s, 10 Mbit/s\n1 s, 5 Mbit/s\n").unwrap();
    let there = |file: &str, more: &[&str]| -> String {
        let mut arguments = vec![file, "--out", "out"];
        arguments.extend(more);
        let (code, _, said) = simulate(&folder, &arguments);
        assert_eq!(code, 0, "{said}");
        let known = said.lines().find(|line| line.contains("there already"));
        known.unwrap_or("none").to_owned()
    };
    assert_eq!(there("small.toml", &[]), "none");
    let once = rows(&folder.join("out"));
    // Another name, more seeds, a comment and a sweep with the same value keep what is there.
    let renamed = format!("# moved\n{traced}\n[sweep]\ncontroller = [\"reno\", \"cubic\"]\n");
    fs::write(folder.join("moved.toml"), renamed).unwrap();
    assert_eq!(there("moved.toml", &[]), "3 of 6 runs are there already");
    assert_eq!(rows(&folder.join("out")), 2 * once);
    assert_eq!(there("small.toml", &["--seeds", "4"]), "3 of 4 runs are there already");
    // Another trace is another scenario, although the scenario's file is the same.
    fs::write(folder.join("rates.csv"), "0 s, 10 Mbit/s\n1 s, 4 Mbit/s\n").unwrap();
    let (code, _, said) = simulate(&folder, &["small.toml", "--out", "out"]);
    assert!(code == 2 && said.contains("another scenario"), "{said}");
}

#[test]
fn a_folder_belongs_to_one_process_at_a_time() {
    let folder = folder("simulate-lock");
    assert_eq!(simulate(&folder, &["small.toml", "--out", "out"]).0, 0);
    let lock = fs::File::options().write(true).open(folder.join("out/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (code, _, said) = simulate(&folder, &["small.toml", "--out", "out"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("out is in use by another simulation"), "{said}");
    drop(lock);
    assert_eq!(simulate(&folder, &["small.toml", "--out", "out"]).0, 0);
}

/// The results folder has what a run needs: it is moved elsewhere, and everything else is deleted.
#[test]
fn the_copy_in_the_results_runs_by_itself() {
    let folder = folder("simulate-copy");
    fs::create_dir_all(folder.join("nets/traces")).unwrap();
    let network = "name = \"two\"\n[[link]]\nname = \"bottleneck\"\ntrace = \
                   \"traces/rates.csv\"\ndelay = \"5 ms\"\nqueue = \"20 packets\"\n";
    fs::write(folder.join("nets/two.toml"), network).unwrap();
    fs::write(folder.join("nets/traces/rates.csv"), "0 s, 10 Mbit/s\n1 s, 5 Mbit/s\n").unwrap();
    fs::create_dir_all(folder.join("here")).unwrap();
    let link = &SCENARIO[SCENARIO.find("[[link]]").unwrap()..SCENARIO.find("[[flow]]").unwrap()];
    let text = SCENARIO
        .replace(link, "")
        .replace("[parameters]", "network = \"$net\"\n[parameters]\nnet = \"none.toml\"");
    let text = format!("{text}\n[sweep]\nnet = ['../nets/two.toml']\n");
    fs::write(folder.join("here/s.toml"), text.replace("none.toml", "../nets/two.toml")).unwrap();
    let arguments = [
        "here/s.toml",
        "--set",
        "controller=vegas",
        "--set",
        "duration=1.5 s",
        "--seeds",
        "2",
        "--out",
        "out",
    ];
    let (code, table, said) = simulate(&folder, &arguments);
    assert_eq!(code, 0, "{said}");
    let whole = fs::read_to_string(folder.join("out/measures.csv")).unwrap();
    fs::rename(folder.join("out"), folder.join("kept")).unwrap();
    for gone in ["here", "nets"] {
        fs::remove_dir_all(folder.join(gone)).unwrap();
    }
    let (code, again, said) = simulate(&folder, &["kept/scenario.toml", "--out", "again"]);
    let copy = fs::read_to_string(folder.join("kept/scenario.toml")).unwrap();
    assert_eq!(code, 0, "{said}\n{copy}");
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_once(',').unwrap().1.to_owned()).collect()
    };
    assert_eq!(
        values(&fs::read_to_string(folder.join("again/measures.csv")).unwrap()),
        values(&whole),
        "all but the name of the swept file"
    );
    assert_eq!(again.lines().count(), table.lines().count());
    // A copy of the copy, with one more value.
    let arguments =
        ["again/scenario.toml", "--set", "controller=reno", "--restart", "--out", "third"];
    let (code, _, said) = simulate(&folder, &arguments);
    assert_eq!(code, 0, "{said}");
    let third = fs::read_to_string(folder.join("third/scenario.toml")).unwrap();
    assert!(third.matches("[set]").count() == 1 && third.contains("\"reno\""), "{third}");
    assert_eq!(simulate(&folder, &["third/scenario.toml", "--out", "fourth"]).0, 0);
}

#[test]
fn the_network_of_a_topology_is_shown_and_nothing_runs() {
    let folder = folder("simulate-network");
    let scenario = r#"
name = "dumbbell"
duration = "2 s"
[topology.dumbbell]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "1 bdp"
access = { down = { rate = "1 Mbit/s", loss = 0.1 } }
[[flow]]
name = "bulk"
from = "sender1"
to = "receiver1"
"#;
    fs::write(folder.join("dumbbell.toml"), scenario).unwrap();
    let set = "topology.dumbbell.rate=20 Mbit/s";
    let (code, table, said) = simulate(&folder, &["dumbbell.toml", "--show-network", "--set", set]);
    assert_eq!((code, said.as_str()), (0, ""), "{table}");
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = |name: &str| {
        let found = rows.iter().find(|row| row.first() == Some(&name));
        found.unwrap_or_else(|| panic!("no {name} in\n{table}")).join(" ")
    };
    assert_eq!(row("bottleneck"), "bottleneck left right 20.0 Mbit/s 5 ms 35.0 kB");
    assert_eq!(row("in1/up"), "in1/up sender1 left 200.0 Mbit/s 1 ms 10000 packets");
    assert_eq!(row("out1/down"), "out1/down receiver1 right 1.0 Mbit/s 1 ms 10000 packets loss");
    assert!(!table.contains("goodput"), "{table}");
}

#[test]
fn gateways_are_shown_and_their_paths_sampled() {
    let folder = folder("simulate-gateways");
    let mut scenario = String::from("name = \"pair\"\nduration = \"2 s\"\n");
    for (name, from, to) in [("in", "s", "e"), ("a", "e", "x"), ("b", "e", "x"), ("out", "x", "r")]
    {
        scenario += &[
            "[[link]]\nname = \"",
            name,
            "\"\nbetween = [\"",
            from,
            "\", \"",
            to,
            "\"]\nrate = \"5 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"50 packets\"\n",
        ]
        .concat();
    }
    scenario += r#"
[[gateway]]
name = "site"
entry = "e"
exit = "x"
paths = [["a"], ["b"]]
profile = "paper"
[[flow]]
name = "bulk"
from = "s"
to = "r"
gateway = "site"
"#;
    fs::write(folder.join("pair.toml"), scenario).unwrap();
    let (code, table, said) = simulate(&folder, &["pair.toml", "--show-network"]);
    assert_eq!((code, said.as_str()), (0, ""), "{table}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = table.lines().map(words).collect();
    assert!(rows.iter().any(|row| row == "site 0 e x a paper, adaptive, by connection"), "{table}");
    assert!(rows.iter().any(|row| row == "site 1 e x b"), "{table}");

    let arguments = ["pair.toml", "--out", "out", "--tables", "samples"];
    let (code, _, said) = simulate(&folder, &arguments);
    assert_eq!(code, 0, "{said}");
    let samples = fs::read_to_string(folder.join("out/samples.csv")).unwrap();
    for (measure, unit) in
        [("window_bytes", "B"), ("in_flight", "B"), ("rtt", "ms"), ("choked", "")]
    {
        let row = |line: &&str| {
            line.contains(&format!(",path,site/0/up,{measure},")) && line.ends_with(unit)
        };
        assert!(samples.lines().filter(row).count() >= 18, "{measure}: {samples}");
    }
}

/// A file with sources has a table of its own, and no options for flows.
#[test]
fn sources_have_a_row_each() {
    let folder = folder("simulate-sources");
    let text = "name = \"feeds\"\nduration = \"20 s\"\n[[relay]]\nname = \"relay*\"\ncount = 3\n\
                capacity = \"4 Mbit/s\"\n[[source]]\nname = \"camera*\"\ncount = 2\nrate = \
                \"2 Mbit/s\"\n";
    fs::write(folder.join("feeds.toml"), text).unwrap();
    let (code, table, said) = simulate(&folder, &["feeds.toml", "--digests", "--seeds", "2"]);
    assert_eq!(code, 0, "{said}");
    assert!(table.contains("seed 2, ") && table.contains("feeds, 2 runs"), "{table}");
    assert!(table.contains("\ncamera1") && table.contains("\ncamera2"), "{table}");
    assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    let (code, _, said) = simulate(&folder, &["feeds.toml", "--plot", "x.svg"]);
    assert!(code == 2 && said.contains("--seeds, --jobs and --digests"), "{code}: {said}");
    fs::write(folder.join("feeds.toml"), text.replace("rate =", "rat =")).unwrap();
    let (code, _, said) = simulate(&folder, &["feeds.toml"]);
    assert!(code == 2 && said.contains("feeds.toml:10: source.rat: no such key"), "{code}: {said}");
}
