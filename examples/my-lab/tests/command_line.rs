//! The whole command line with a controller and a scheduler of one's own: sweeps that are stored
//! and resumed, plots, captures, names, help.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MY_LAB: &str = env!("CARGO_BIN_EXE_my-lab");

/// Calm and Reno at one bottleneck; a striped connection over two paths.
const SCENARIO: &str = r#"
name = "both"
duration = "4 s"
warmup = "2 s"

[sweep]
"flow.first.controller" = ["calm", "calm(target=50 ms)", "reno"]
"flow.striped.scheduler" = ["turns", "lowest-rtt"]

[[link]]
name = "bottleneck"
between = ["near", "far"]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "100 packets"

[[link]]
name = "detour"
between = ["near", "far"]
rate = "10 Mbit/s"
delay = "20 ms"
queue = "100 packets"

[[link]]
name = "direct"
between = ["near", "far"]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "100 packets"

[[flow]]
name = "first"
from = "near"
to = "far"
via = ["bottleneck"]
controller = "calm"

[[flow]]
name = "striped"
from = "near"
to = "far"
transport = "ptcp"
subflows = [["direct"], ["detour"]]
source = { stream = "4 Mbit/s" }
ptcp = { reinject = false }
controller = "calm"
scheduler = "turns"
"#;

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("both.toml"), SCENARIO).unwrap();
    path
}

/// Runs a program; gives its exit code and what it wrote to standard output and standard error.
fn run(program: &Path, folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(program).current_dir(folder).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn my_lab(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    run(Path::new(MY_LAB), folder, arguments)
}

/// A value of the table of measures, in a row with all of these.
fn value(table: &str, keys: &[&str]) -> f64 {
    let row = table.lines().find(|row| keys.iter().all(|key| row.contains(key)));
    let row = row.unwrap_or_else(|| panic!("no row with {keys:?} in {table}"));
    row.rsplit(',').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_sweep_is_stored_drawn_captured_and_resumed() {
    let folder = folder("sweep");
    let arguments =
        ["simulate", "both.toml", "--out", "out", "--plot", "p.svg", "--pcap", "p.pcap"];
    let (code, printed, said) = my_lab(&folder, &arguments);
    assert_eq!(code, 0, "{said}");
    assert!(printed.contains("flow.first.controller = calm(target=50 ms)"), "{printed}");
    let table = fs::read_to_string(folder.join("out/measures.csv")).unwrap();
    // Reno and a larger target fill the queue, the default target does not.
    let queue = |controller: &str| {
        value(&table, &[&format!("{controller},turns,1,steady"), ",bottleneck/up,all,queue,"])
    };
    let queues = ["calm", "calm(target=50 ms)", "reno"].map(queue);
    assert!(queues[0] < 10.0 && queues[1] > 20.0 && queues[2] > 20.0, "{queues:?}");
    // In turns, half of the packets take the detour; otherwise none need it.
    let rate = |scheduler: &str| {
        value(&table, &[&format!("calm,{scheduler},1,steady"), ",detour/up,all,throughput,"])
    };
    let rates = [rate("turns"), rate("lowest-rtt")];
    assert!((1.8..2.6).contains(&rates[0]) && rates[1] < 0.5, "{rates:?}");
    let plot = fs::read_to_string(folder.join("p.svg")).unwrap();
    assert!(plot.contains("goodput") && plot.contains("striped"), "the plot lacks its curves");
    let capture = fs::read(folder.join("p.pcap")).unwrap();
    assert!(capture.len() > 100_000 && capture[..4] == [0xa1, 0xb2, 0x3c, 0x4d]);

    // An interruption: two runs are missing.
    let runs = fs::read_dir(folder.join("out/runs")).unwrap().map(|entry| entry.unwrap().path());
    // Each has its measures, and a table of requests.
    let measures = runs.filter(|file| !file.to_string_lossy().ends_with(".requests.tsv"));
    measures.take(2).for_each(|run| fs::remove_file(run).unwrap());
    let (code, again, said) = my_lab(&folder, &arguments[..4]);
    assert_eq!((code, &again), (0, &printed), "{said}");
    assert!(said.contains("4 of 6 runs are there already"), "{said}");
    assert_eq!(fs::read_to_string(folder.join("out/measures.csv")).unwrap(), table);
}

#[test]
fn results_of_a_changed_program_are_not_used() {
    let folder = folder("changed");
    // The same code with a byte behind it is another build, as an edited controller makes one.
    let changed = folder.join("my-lab");
    // Written by other processes: one that another test starts meanwhile would inherit the open
    // file for a moment, and a file that is open for writing cannot be run.
    let shell = |command: &str| {
        let words = ["-c", command, "sh", MY_LAB, changed.to_str().unwrap()];
        assert!(Command::new("sh").args(words).status().unwrap().success(), "{command}");
    };
    shell(r#"cp "$1" "$2""#);
    let arguments = ["simulate", "both.toml", "--set", "duration=3 s", "--out", "out", "--restart"];
    let resume = &arguments[..6];
    assert_eq!(run(&changed, &folder, resume).0, 0);
    let (code, _, said) = my_lab(&folder, resume);
    assert!(code == 0 && said.contains("6 of 6 runs are there already"), "{said}");
    shell(r#"echo >> "$2""#);
    let (code, _, said) = run(&changed, &folder, resume);
    assert!(code == 2 && said.contains("another build of the program"), "{said}");
    assert!(said.contains("--restart"), "{said}");
    let (code, _, said) = run(&changed, &folder, &arguments);
    assert!(code == 0 && !said.contains("already"), "{said}");
    let (code, _, said) = run(&changed, &folder, resume);
    assert!(code == 0 && said.contains("6 of 6 runs are there already"), "{said}");
}

/// A file goes over UDP under the own controller and scheduler, by flag and by configuration file.
#[test]
fn own_code_carries_files_over_udp() {
    let folder = folder("udp");
    let data = vec![7; 300_000];
    fs::write(folder.join("data"), &data).unwrap();
    fs::write(folder.join("own.toml"), "[send]\npacket-scheduler = \"turns\"\n").unwrap();
    let lab = |arguments: &[&str]| {
        let mut command = Command::new(MY_LAB);
        command.current_dir(&folder).args(arguments).env("ANABRANCH_HOME", folder.join("home"));
        command
    };
    let receive = ["receive", "in", "--listen", "127.0.0.1", "--port", "0", "--json"];
    fs::create_dir(folder.join("in")).unwrap();
    let mut receiver = lab(&receive).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(receiver.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = |key: &str| {
        let line = lines.find(|line| line.contains(&format!("\"{key}\":"))).expect("it says so");
        let value = line.split(&format!("\"{key}\":")).nth(1).unwrap().to_string();
        value.trim_start_matches('[').split('"').nth(1).unwrap().to_string()
    };
    let (token, to) = (said("token"), said("addresses"));
    let send = ["send", "data", "--to", &to, "--carrier", "udp", "--json", "--config", "own.toml"];
    let mut send = lab(&[&send[..], &["--controller", "calm(target=20 ms)"]].concat());
    let sent = send.env("ANABRANCH_TOKEN", token).stdin(Stdio::null()).output().unwrap();
    let text = [sent.stdout, sent.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert!(sent.status.success(), "{text}");
    assert!(text.contains("\"congestion_control\":\"calm\""), "{text}");
    assert!(receiver.wait().unwrap().success());
    assert!(fs::read(folder.join("in/data")).unwrap() == data);

    for command in [
        &["send", "data", "--to", "127.0.0.1"][..],
        &["get", "--from", "127.0.0.1"],
        &["cp", "data", "host:"],
        &["tunnel", "127.0.0.1", "--socks", "0"],
        &["perf", "127.0.0.1"],
    ] {
        // The mistake is found when the command line is read: nobody is dialed.
        let all = [command, &["--controller", "calm(target=0 ms)"]].concat();
        let (code, _, said) = my_lab(&folder, &all);
        assert!(code == 2 && said.contains("'0 ms' is no value for 'target' of 'calm'"), "{said}");
    }
}

#[test]
fn messages_help_and_completions_have_the_name_of_the_program() {
    let folder = folder("names");
    let (code, _, said) = my_lab(&folder, &["simulate", "both.toml", "--set", "duration=1"]);
    assert!(code == 2 && said.starts_with("my-lab: --set duration=1: duration: "), "{said}");
    let (code, _, said) = my_lab(&folder, &["simulate"]);
    assert!(code == 2 && said.contains("Usage: my-lab simulate"), "{said}");
    for arguments in [&["--help"][..], &["simulate", "--help"], &["cp", "--help"]] {
        let (code, help, _) = my_lab(&folder, arguments);
        assert!(code == 0 && help.contains("Usage: my-lab"), "{help}");
        assert!(!help.contains("anabranch cp"), "{help}");
    }
    let (_, version, _) = my_lab(&folder, &["--version"]);
    assert!(version.starts_with("my-lab (anabranch "), "{version}");
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = my_lab(&folder, &["completions", shell]);
        assert!(code == 0 && script.contains("my-lab"), "{script}");
        let own = script.replace("ANABRANCH_COMPLETE", "");
        assert!(!own.contains("anabranch"), "{script}");
    }
    let mut command = Command::new(MY_LAB);
    command.args(["--", "my-lab", "simul"]).env("ANABRANCH_COMPLETE", "bash");
    let output = command.env("_CLAP_COMPLETE_INDEX", "1").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "simulate");
    let (_, page, _) = my_lab(&folder, &["man"]);
    assert!(page.contains(".TH my-lab"), "{page}");
    fs::create_dir(folder.join("man")).unwrap();
    assert_eq!(my_lab(&folder, &["man", "man"]).0, 0);
    let page = fs::read_to_string(folder.join("man/my-lab-cp.1")).unwrap();
    assert!(page.contains("\nmy\\-lab cp disk.img me@nas:backup\n"), "{page}");
}

#[test]
fn the_list_has_what_is_known_and_what_is_added() {
    let folder = folder("list");
    let (code, list, said) = my_lab(&folder, &["simulate", "--list"]);
    assert_eq!(code, 0, "{said}");
    let [controllers, schedulers, measures] =
        list.split("\n\n").collect::<Vec<_>>().try_into().expect("three lists");
    let line = |list: &str, name: &str| {
        let found = list.lines().find(|line| line.split_whitespace().next() == Some(name));
        found.unwrap_or_else(|| panic!("no {name} in {list}")).to_string()
    };
    assert!(controllers.lines().next().unwrap().contains("controller = "), "{controllers}");
    assert!(line(controllers, "olia").contains("as lia"));
    assert!(line(controllers, "calm").contains("a fifth less when packets wait"));
    assert!(controllers.contains("target=5 ms"), "{controllers}");
    assert!(line(schedulers, "ecf").contains("fast path") && schedulers.contains("beta=0.25"));
    assert_eq!(line(schedulers, "turns").trim(), "turns");
    assert!(line(measures, "goodput").contains("goodput (Mbit/s) "), "{measures}");
    let (code, _, said) = my_lab(&folder, &["simulate", "--list", "both.toml"]);
    assert!(code == 2 && said.contains("cannot be used with"), "{said}");
    let (code, _, said) =
        my_lab(&folder, &["simulate", "both.toml", "--set", "flow.striped.scheduler=turn"]);
    assert!(
        code == 2
            && said.contains("--set flow.striped.scheduler=turn: ")
            && said.contains("no packet scheduler 'turn' (did you mean 'turns'?)")
            && said.trim_end().ends_with("ecf, weighted, redundant, turns"),
        "{said}"
    );
}

/// Between real hosts the same controller and scheduler run over UDP sockets: in turns, half of the
/// packets take the detour.
#[test]
fn real_hosts_know_them_too() {
    let folder = folder("emulated");
    let at = |text: &str| SCENARIO.find(text).unwrap();
    let (head, links) = (&SCENARIO[..at("[sweep]")], &SCENARIO[at("[[link]]")..at("[[flow]]")]);
    let striped = &SCENARIO[at("[[flow]]\nname = \"striped\"")..];
    fs::write(folder.join("striped.toml"), [head, links, striped].concat()).unwrap();
    let (code, printed, said) = my_lab(&folder, &["emulate", "striped.toml"]);
    if said.contains("making network namespaces and devices needs root") {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{said}");
        println!("SKIPPED: {said}");
        return;
    }
    assert_eq!(code, 0, "{said}");
    let rate = |name: &str| -> f64 {
        let row = printed.lines().find(|line| line.starts_with(name)).unwrap();
        row.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    assert!((1.5..2.6).contains(&rate("detour/up")) && rate("striped") > 3.0, "{printed}");
}
