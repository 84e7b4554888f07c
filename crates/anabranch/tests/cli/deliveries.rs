//! `collect` that hands records to commands and to standard output.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::feeds::{Site, kill, numbered};
use super::home::{Home, Running, lines_of, text};

/// A script of the collector's home, which is its command.
fn command(site: &Site, script: &str) -> String {
    site.collector.file("take", script.as_bytes());
    "sh take".into()
}

/// Writes what it gets into the file `out`, behind a line that says what it is.
const APPEND: &str = "{ echo \"# $ANABRANCH_FIRST $ANABRANCH_RECORDS\"; cat; } >>out\n";

/// A collector that listens, with what it says to standard error in the file `said`.
fn start(site: &Site, target: &[&str]) -> Child {
    let said = site.collector.0.join("said");
    let said = fs::OpenOptions::new().create(true).append(true).open(said).unwrap();
    let mut collector = site.collector(target);
    let mut child = collector.stdout(Stdio::piped()).stderr(said).spawn().unwrap();
    let mut lines = lines_of(child.stdout.take().unwrap());
    assert!(lines.any(|line| line.starts_with("listening ")), "it listens");
    std::thread::spawn(move || lines.for_each(drop));
    child
}

fn read(site: &Site, name: &str) -> String {
    fs::read_to_string(site.collector.0.join(name)).unwrap_or_default()
}

/// The records of [`APPEND`]: each batch follows the one before, or begins where that one began.
fn check(out: &str) -> String {
    let (mut records, mut last): (Vec<&str>, _) = (Vec::new(), (0, 0));
    let mut lines = out.lines();
    while let Some(head) = lines.next() {
        let numbers = head.strip_prefix("# ").expect(head).split(' ');
        let numbers: Vec<usize> = numbers.map(|number| number.parse().expect(head)).collect();
        let [first, count] = numbers[..] else { panic!("{head}") };
        assert!(first == last.0 || first == last.1, "{first} after {last:?}");
        last = (first, first + count);
        records.truncate(first);
        records.extend(lines.by_ref().take(count));
        assert_eq!(records.len(), last.1, "{head}");
    }
    records.into_iter().flat_map(|record| [record, "\n"]).collect()
}

fn end(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_command_takes_all_in_order_whatever_is_killed() {
    let site = Site::new();
    let exec = command(&site, APPEND);
    let content = numbered(200_000);
    site.source.file("data.log", content.as_bytes());
    let mut collector = start(&site, &["--exec", &exec]);
    // At 8 Mbit/s it takes four seconds.
    let mut feed = site.feed(&["data.log", "--max-rate", "8mbit"]).spawn().unwrap();
    for _ in 0..4 {
        let before = read(&site, "out").len();
        site.until("more has arrived", |site| read(site, "out").len() > before + 200_000);
        kill(collector);
        collector = start(&site, &["--exec", &exec]);
    }
    assert!(feed.wait().unwrap().success());
    kill(collector);
    let out = read(&site, "out");
    assert!(check(&out) == content, "each record, in order");
    // All was acknowledged: nothing is sent again.
    let _collector = Running(start(&site, &["--exec", &exec]));
    assert!(site.feed(&["data.log"]).status().unwrap().success());
    assert!(read(&site, "out") == out);
    let said = read(&site, "said");
    assert!(said.contains("at least once"), "{said}");
}

#[test]
fn records_of_any_form_go_to_standard_output_and_nothing_else() {
    for (form, content) in [
        ("lines", numbered(100_000)),
        ("nul", numbered(1_000).replace('\n', "\0")),
        ("counted", "5 a\nb c0 3 xyz".to_string()),
    ] {
        let site = Site::new();
        site.source.file("data", content.as_bytes());
        let mut command = site.collector(&["-", "--positions", "far"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = lines_of(child.stderr.take().unwrap());
        assert!(lines.any(|line| line.starts_with("listening ")), "on standard error");
        std::thread::spawn(move || lines.for_each(drop));
        let mut output = child.stdout.take().unwrap();
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).unwrap();
            text
        });
        assert!(site.feed(&["data", "--records", form]).status().unwrap().success());
        end(&child, Signal::TERM);
        assert_eq!(child.wait().unwrap().code(), Some(143));
        assert!(reading.join().unwrap() == content, "{form}");
        assert!(site.collector.0.join("far/anna/data").is_dir());
    }
}

#[test]
fn a_reader_that_leaves_ends_the_collector_and_records_stay() {
    let site = Site::new();
    let content = numbered(200_000);
    site.source.file("data", content.as_bytes());
    let mut command = site.collector(&["-"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let feed = site.feed(&["data"]).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert_eq!(first, "record 0\n");
    drop(output);
    let (code, _, stderr) = text(&child.wait_with_output().unwrap());
    assert!(code == 8 && stderr.contains("standard output: broken pipe"), "{code}: {stderr}");
    kill(feed);
    // The batch that was not written whole comes again.
    let mut command = site.collector(&["-"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut collector = Running(child);
    let mut output = collector.0.stdout.take().unwrap();
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        text
    });
    assert!(site.feed(&["data"]).status().unwrap().success());
    drop(collector);
    let rest = reading.join().unwrap();
    assert!(content.ends_with(&rest) && rest.len() > content.len() / 4, "{}", rest.len());
}

#[test]
fn mistakes_of_targets_are_answered_at_once() {
    let home = Home::new();
    for (arguments, said) in [
        (&["collect", "--token"][..], "say where records go"),
        (&["collect", "kept", "--token", "--exec", "true"], "leave the other one out"),
        (&["collect", "-", "--token", "--exec", "true"], "leave the other one out"),
        (&["collect", "-", "--token", "--rotate", "1 MB"], "--rotate is for the files"),
        (&["collect", "--exec", "true", "--token", "--rotate", "1 MB"], "--rotate is for"),
        (&["collect", "kept", "--token", "--positions", "at"], "--positions is for"),
        (&["collect", "kept", "--token", "--exec-timeout", "1 s"], "--exec"),
        (&["collect", "--token", "--exec", "no-such-program"], "there is no program"),
        (&["collect", "--token", "--exec", "sh -c 'x"], "has a quote"),
        (&["collect", "-", "--token", "--json"], "which is for the records"),
    ] {
        let (found, stdout, stderr) = home.run(arguments);
        assert!(found == 2 && stderr.contains(said), "{arguments:?}: {found} {stdout} {stderr}");
    }
    let site = Site::new();
    for (table, said) in [
        ("", "names no target"),
        ("directory = \"kept\"\nexec = \"true\"", "leave the other one out"),
        ("exec = \"true\"\nrotate = \"1 MB\"", "--rotate is for the files"),
        ("directory = \"-\"", "standard output is no target here"),
    ] {
        site.collector.file("host.toml", format!("[collect]\n{table}\n").as_bytes());
        let (found, _, stderr) = site.collector.run(&["host", "--config", "host.toml"]);
        assert!(found == 2 && stderr.contains(said), "{table}: {found} {stderr}");
    }
    // Positions are one collector's.
    let _collector = Running(start(&site, &["--exec", "true"]));
    let (found, _, stderr) = site.collector.run(&["collect", "-", "--port", "0"]);
    assert!(found == 2 && stderr.contains("another collector uses these"), "{found} {stderr}");
    let path = site.collector.0.join("own");
    fs::write(&path, "").unwrap();
    let words = ["collect", "-", "--port", "0", "--positions", "own"];
    let (found, _, stderr) = site.collector.run(&words);
    assert!(found == 10 && stderr.contains("own"), "{found} {stderr}");
}

#[test]
fn a_command_that_fails_gets_the_same_batch_until_it_works() {
    let site = Site::new();
    let exec = command(
        &site,
        "echo \"$ANABRANCH_FIRST $(cksum)\" >>tries\n\
         [ \"$(wc -l <tries)\" -gt 3 ] && exit 0\n\
         printf 'no\\033broker\\n' >&2; exit 5\n",
    );
    let collector = Running(start(&site, &["--exec", &exec]));
    site.source.file("data", b"one\ntwo\n");
    assert!(site.feed(&["data"]).status().unwrap().success());
    let tries = read(&site, "tries");
    let tries: Vec<&str> = tries.lines().collect();
    assert_eq!(tries.len(), 4, "{tries:?}");
    assert!(tries.iter().all(|one| *one == tries[0]), "{tries:?}");
    drop(collector);
    let said = read(&site, "said");
    let failure =
        "anna/data (data): the command failed (exit status: 5), and said: no\\u{1b}broker";
    assert_eq!(said.matches(failure).count(), 1, "{said}");
    assert_eq!(said.matches("records are taken again").count(), 1, "{said}");
}

fn is_gone(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    // A killed process is gone, or waits for whoever inherits it.
    stat.map_or(true, |stat| stat.contains(") Z "))
}

/// One stream's command hangs; others go on, over either carrier, and the end of the collector is
/// the command's.
#[test]
fn a_command_that_hangs_holds_up_its_stream_alone_and_ends_with_the_collector() {
    for carrier in ["udp", "tcp"] {
        let site = Site::new();
        let exec = command(
            &site,
            "read -r line\n\
             case $line in hang*) sleep 3600 & echo $$ $! >pids; wait;; esac\n\
             { echo \"$line\"; cat; } >>out\n",
        );
        let mut collector = start(&site, &["--exec", &exec]);
        // More than waits anywhere.
        let hanging = format!("hang {}\n", "x".repeat(200)).repeat(150_000);
        site.source.file("a.log", hanging.as_bytes());
        let words = ["--tail", "*.log", "--name", "logs", "--carrier", carrier];
        let feed = Running(site.feed(&words).spawn().unwrap());
        site.until("one hangs", |site| read(site, "pids").ends_with('\n'));
        let content = numbered(100_000);
        site.source.file("b.log", content.as_bytes());
        site.until("the other one arrives", |site| read(site, "out") == content);
        end(&collector, Signal::TERM);
        assert_eq!(collector.wait().unwrap().code(), Some(143));
        let pids = read(&site, "pids");
        site.until("the command is killed", |_| pids.split(' ').all(is_gone));
        drop(feed);
        // Nothing of it was acknowledged.
        let exec = command(&site, "read -r line; echo \"$ANABRANCH_FIRST $line\" >>again");
        let _collector = Running(start(&site, &["--exec", &exec]));
        let _feed = Running(site.feed(&words).spawn().unwrap());
        site.until("it begins anew", |site| read(site, "again").starts_with("0 hang"));
    }
}
