//! `reproduce` from outside.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn reproduce(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let output = command.current_dir(folder).arg("reproduce").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Writes an edited copy of a scenario file, without its longest runs.
fn edited(folder: &Path, edits: &[(&str, &str)]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/theory/reno-loss.toml");
    let mut text = fs::read_to_string(file).unwrap();
    for (from, to) in [("0.0001, 0.00032, 0.001, 0.0032, 0.01", "0.0032, 0.01")].iter().chain(edits)
    {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    fs::create_dir_all(folder.join("mine/theory")).unwrap();
    fs::write(folder.join("mine/theory/reno-loss.toml"), text).unwrap();
}

#[test]
fn papers_and_figures_are_listed() {
    let (code, out, said) = reproduce(&folder("reproduce-list"), &[]);
    assert_eq!(code, 0, "{said}");
    for name in ["theory", "reno-loss", "cubic-loss", "fast-queue", "coupled-shared"] {
        assert!(out.contains(name), "{name}: {out}");
    }
}

/// Ended from outside, nothing of it goes on; what it had not finished is made the next time.
#[test]
fn all_papers_end_with_the_command() {
    let folder = folder("reproduce-all");
    let (code, _, said) = reproduce(&folder, &["all"]);
    assert!(code == 2 && said.contains("--out"), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.current_dir(&folder).args(["reproduce", "all", "--seeds", "1", "--out", "o"]);
    let mut all = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(all.stdout.take().unwrap()).lines();
    // The paper's own first line: its process is there.
    assert!(lines.any(|line| line.unwrap().starts_with("reno-loss: ")), "it begins");
    let id = all.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let child = children.trim().to_owned();
    assert!(!child.is_empty());
    assert!(Command::new("kill").arg(id.to_string()).status().unwrap().success());
    assert_eq!(all.wait().unwrap().signal(), Some(15));
    // The paper has the other end of this pipe, and would keep it open.
    lines.for_each(drop);
    let is_gone = || {
        let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    };
    let began = Instant::now();
    while !is_gone() {
        assert!(began.elapsed() < Duration::from_secs(20), "its paper goes on");
        sleep(Duration::from_millis(20));
    }
    assert!(!folder.join("o/index.html").exists(), "no paper was finished");
}

#[test]
fn a_figure_is_made_with_its_page() {
    let folder = folder("reproduce-figure");
    edited(&folder, &[]);
    let figure = ["theory", "reno-loss", "--papers", "mine", "--seeds", "1"];
    let (code, out, said) = reproduce(&folder, &figure);
    assert_eq!(code, 0, "{out}{said}");
    assert!(out.contains("√(3/2p)") && out.contains("pass"), "{out}");
    assert!(out.ends_with("2 of 2 agree: --out FOLDER keeps plots, tables and a page\n"), "{out}");
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(left.len(), 1, "nobody asked for a folder: {left:?}");
    let (_, out, _) = reproduce(&folder, &[&figure[..], &["--out", "o"]].concat());
    assert!(out.ends_with("2 of 2 agree: o/index.html\n"), "{out}");
    let read = |name: &str| fs::read_to_string(folder.join("o").join(name)).unwrap();
    let page = read("index.html");
    let tree = roxmltree::Document::parse(page.split_once('\n').unwrap().1).unwrap();
    let links: Vec<&str> = tree.descendants().filter_map(|node| node.attribute("href")).collect();
    for name in ["reno-loss.svg", "reno-loss.csv", "reno-loss.schema.json", "reno-loss.toml"] {
        assert!(links.contains(&name), "{name} is not among {links:?}");
        assert!(!read(name).is_empty());
    }
    assert_eq!(
        tree.descendants().filter(|node| node.attribute("class") == Some("pass")).count(),
        2
    );
    roxmltree::Document::parse(&read("reno-loss.svg")).unwrap();
    assert!(
        read("reno-loss.csv")
            .starts_with("loss,seed,window,scope,of,size_class,measure,value,unit\n")
    );
    assert!(read("reno-loss.toml").contains("loss = [0.0032, 0.01]"), "the file that was used");
}

#[test]
fn figures_that_differ_end_with_1() {
    let folder = folder("reproduce-differs");
    // With a bottleneck of a tenth of the flow's rate, the queue limits the window instead of the
    // loss.
    edited(
        &folder,
        &[("\"10 Gbit/s\"", "\"200 kbit/s\""), ("\"100000 packets\"", "\"5 packets\"")],
    );
    let (code, out, said) = reproduce(
        &folder,
        &["theory", "reno-loss", "--papers", "mine", "--seeds", "1", "--out", "o"],
    );
    assert_eq!(code, 1, "{out}{said}");
    assert!(out.contains("differs by") && folder.join("o/index.html").exists(), "{out}");
}

#[test]
fn mistakes_end_with_2_and_a_hint() {
    let folder = folder("reproduce-mistakes");
    let wrong = |arguments: &[&str], wanted: &str| {
        let (code, _, said) = reproduce(&folder, arguments);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(wanted), "{said}");
    };
    wrong(&["theorie"], "did you mean 'theory'?");
    wrong(&["theory", "reno-los"], "did you mean 'reno-loss'?");
    wrong(&["theory", "reno-loss", "--papers", "nowhere"], "nowhere/theory is no folder");
    wrong(&["theory", "reno-loss", "--scale", "1"], "theory has no real transfers");
    wrong(&["wang2007-live", "--scale", "1"], "wang2007-live has no sizes; --scale does not apply");
    wrong(&["harp-live", "--told"], "harp-live has no files to transfer; --told does not apply");
    wrong(&["sar-rmtp", "--quick"], "sar-rmtp has no cases to leave out; --quick does not apply");
    wrong(&["sar-rmtp", "--scale", "0"], "a share of the paper's sizes");
    wrong(&["sar-rmtp", "--sizes", "101.5MB,big"], "'big'");
    edited(&folder, &[("controller = \"reno\"", "contoller = \"reno\"")]);
    wrong(&["theory", "reno-loss", "--papers", "mine"], "did you mean `controller`?");
    edited(&folder, &[("loss = [0.0032, 0.01]", "\"link.line.delay\" = [\"50 ms\"]")]);
    wrong(
        &["theory", "reno-loss", "--papers", "mine", "--seeds", "1"],
        "mine/theory/reno-loss.toml: `sweep` has no loss",
    );
}

/// What the documentation says: a file in the output of an earlier run is edited, and used.
#[test]
fn the_file_of_an_earlier_run_is_edited() {
    let folder = folder("reproduce-edited");
    edited(&folder, &[("\"1000 s\"", "\"100 s\""), ("\"50 s\"", "\"20 s\"")]);
    for out in ["reproduced/theory", "elsewhere"] {
        let figure = ["theory", "reno-loss", "--papers", "mine", "--seeds", "1", "--out", out];
        let (code, _, said) = reproduce(&folder, &figure);
        assert!(code < 2, "{said}");
        let file = folder.join(out).join("reno-loss.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("loss = [0.0032, 0.01]", "loss = [0.02]")).unwrap();
        let papers = out.split('/').next().unwrap();
        let figure =
            ["theory", "reno-loss", "--papers", papers, "--seeds", "1", "--out", "changed"];
        let (code, shown, said) = reproduce(&folder, &figure);
        assert!(
            code < 2 && shown.contains("p = 0.02") && !shown.contains("0.0032"),
            "{shown}{said}"
        );
    }
}
