//! `feed` and `collect` as processes that are killed.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::home::{Home, Running, announced, lines_of, text};
use super::ports::free_port;
use super::schema::Schema;

/// A collector that one host may feed by its key, at a port that stays.
pub(crate) struct Site {
    pub(crate) source: Arc<Home>,
    pub(crate) collector: Home,
    pub(crate) port: u16,
}

impl Site {
    pub(crate) fn new() -> Site {
        Site::of(Arc::new(Home::new()))
    }

    /// A further collector of a source.
    pub(crate) fn of(source: Arc<Home>) -> Site {
        let collector = Home::new();
        let port = free_port();
        let key = |home: &Home| home.run(&["keys"]).1.trim().to_string();
        let (own, theirs) = (key(&source), key(&collector));
        let trusted = collector.run(&["keys", "trust", "sender", &own, "anna", "--may", "feed"]);
        assert_eq!(trusted.0, 0, "{trusted:?}");
        let to = format!("127.0.0.1:{port}");
        let trusted = source.run(&["keys", "trust", "receiver", &to, &theirs]);
        assert_eq!(trusted.0, 0, "{trusted:?}");
        Site { source, collector, port }
    }

    /// A collector with this target.
    pub(crate) fn collector(&self, target: &[&str]) -> Command {
        let port = self.port.to_string();
        let words = ["--listen", "127.0.0.1", "--port", &port];
        self.collector.command(&[&["collect"], target, &words].concat())
    }

    pub(crate) fn collect(&self) -> Running {
        let mut command = self.collector(&["kept"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = lines_of(child.stdout.take().unwrap());
        let child = Running(child);
        assert!(lines.any(|line| line.starts_with("listening ")), "it listens");
        std::thread::spawn(move || lines.for_each(drop));
        child
    }

    pub(crate) fn feed(&self, more: &[&str]) -> Command {
        let to = format!("127.0.0.1:{}", self.port);
        let mut command = self.source.command(&[&["feed", "--to", &to], more].concat());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn folder(&self, feed: &str) -> PathBuf {
        self.collector.0.join("kept/anna").join(feed)
    }

    /// What a feed has, stream by stream.
    pub(crate) fn kept(&self, feed: &str) -> String {
        let Ok(entries) = fs::read_dir(self.folder(feed)) else { return String::new() };
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut paths: Vec<PathBuf> = paths.filter(|path| !path.ends_with("index")).collect();
        paths.sort();
        let all: Vec<u8> = paths.iter().flat_map(|path| fs::read(path).unwrap()).collect();
        String::from_utf8(all).unwrap()
    }

    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut(&Site) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
            sleep(Duration::from_millis(20));
        }
    }
}

pub(crate) fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

pub(crate) fn numbered(count: u32) -> String {
    let lines: Vec<String> = (0..count).map(|number| format!("record {number}\n")).collect();
    lines.concat()
}

#[test]
fn the_lines_of_a_program_arrive_by_token() {
    let (home, schema) = (Home::new(), Schema::of_the_stream());
    let base = ["collect", "kept", "--listen", "127.0.0.1", "--port", "0", "--token"];
    let mut command = home.command(&base);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (_collector, address, token) = announced(child);
    let mut feed = home.command(&["feed", "-", "--to", &address, "--name", "lines", "--json"]);
    feed.env("ANABRANCH_TOKEN", token).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = feed.stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\n\nthree\nlast").unwrap();
    let (code, stdout, stderr) = text(&child.wait_with_output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    for line in stdout.lines() {
        let event = serde_json::from_str(line).unwrap();
        schema.check(&event).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    assert!(stdout.contains("4 records are at the collector"), "{stdout}");
    let mut entries = fs::read_dir(home.0.join("kept")).unwrap().map(|entry| entry.unwrap().path());
    let host = entries.find(|path| path.is_dir()).unwrap();
    let files = fs::read_dir(host.join("lines")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files.filter(|path| !path.ends_with("index")).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(fs::read_to_string(&files[0]).unwrap(), "one\n\nthree\nlast\n");
}

#[test]
fn mistakes_of_feeds_are_answered_at_once() {
    let home = Home::new();
    home.file("data", b"x\n");
    home.file("relays", b"# two\nr1,never\n");
    for (arguments, code, said) in [
        (&["feed", "data"][..], 2, "--to"),
        (&["feed", "--to", "host"], 2, "<FILE>"),
        (&["feed", "data", "--to", "host", "--name", "../x"], 2, "letters, digits"),
        (&["feed", "data", "--to", "host", "--records", "words"], 2, "counted"),
        (&["feed", "-", "--to", "host", "--token-stdin"], 2, "--token-stdin cannot read it"),
        (&["feed", "data", "--to", "host", "--spool", "kept"], 2, "is for standard input"),
        (&["feed", "-", "--to", "host", "--spool", "kept,1kB"], 2, "1.0 MB at least"),
        (&["feed", "-", "--to", "host", "--spool", "kept,1GB,3"], 2, "a time"),
        (&["feed", "-", "--to", "host", "--when-full", "fail"], 2, "--spool"),
        (&["feed", "-", "--to", "host", "--relay", "r", "--carrier", "udp"], 2, "is for TCP"),
        (&["feed", "-", "--to", "host", "--demand", "5mbit", "--carrier", "udp"], 2, "is for TCP"),
        (&["feed", "-", "--to", "host", "--demand", "1kbit"], 2, "8.0 kbit/s at least"),
        (&["feed", "data", "--to", "host", "--use", "2"], 2, "needs --demand"),
        (&["feed", "-", "--to", "host", "--use", "0"], 2, "0 is not in 1..=64"),
        (&["feed", "-", "--to", "host", "--rule", "uniform"], 2, "--use"),
        (&["feed", "-", "--to", "host", "--relays-file", "none"], 2, "none: No such file"),
        (&["feed", "-", "--to", "host", "--relays-file", "relays"], 2, "relays: line 2: "),
        (
            &["feed", "-", "--to", "host", "--relays-only", "--demand", "1mbit"],
            2,
            "no relay is named",
        ),
        (&["send", "data", "--to", "host", "--use", "2", "--carrier", "auto"], 2, "tcp or udp"),
        (&["collect", "kept"], 2, "no host may feed this collector"),
        (&["collect", "data/kept", "--token"], 10, "data/kept"),
        (&["collect", "kept", "--token", "--rotate", "1 B"], 2, "--rotate"),
    ] {
        let (found, _, stderr) = home.run(arguments);
        assert!(found == code && stderr.contains(said), "{arguments:?}: {found} {stderr}");
    }
    let site = Site::new();
    let _collector = site.collect();
    site.source.file("bad", b"5 hello,3 x");
    for (more, code, said) in [
        (&["missing"][..], 3, "missing: No such file"),
        (&["bad", "--records", "counted"], 9, "bad: octet 7: the length of a record"),
        (&["--tail", "no*such/*.log"], 2, "wildcards are for the name"),
    ] {
        let output = site.feed(more).stderr(Stdio::piped()).output().unwrap();
        let (found, _, stderr) = text(&output);
        assert!(found == code && stderr.contains(said), "{more:?}: {found} {stderr}");
    }
}

/// Both sides are killed again and again: each record is there once, in its order.
#[test]
fn a_file_arrives_once_whatever_is_killed() {
    let site = Site::new();
    let content = numbered(200_000);
    site.source.file("data.log", content.as_bytes());
    let mut collector = site.collect();
    // At 4 Mbit/s it takes seven seconds.
    let slowly = ["data.log", "--max-rate", "4mbit"];
    for round in 0..6 {
        let feed = site.feed(&slowly).spawn().unwrap();
        let before = site.kept("data").len();
        site.until("more has arrived", |site| site.kept("data").len() > before + 10_000);
        if round % 2 == 0 {
            kill(feed);
            continue;
        }
        drop(collector);
        collector = site.collect();
        let before = site.kept("data").len();
        site.until("it goes on", |site| site.kept("data").len() > before + 10_000);
        kill(feed);
    }
    let status = site.feed(&["data.log"]).status().unwrap();
    assert!(status.success());
    assert!(site.kept("data") == content, "each record once, in order");
    // All is there: nothing is sent.
    assert!(site.feed(&["data.log"]).status().unwrap().success());
    assert!(site.kept("data") == content);
}

/// A program goes on writing while the collector is away, and nothing of it is lost.
#[test]
fn lines_wait_while_the_collector_is_away() {
    let site = Site::new();
    let mut feed = site.feed(&["-", "--name", "lines"]);
    let mut child = feed.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut collector = None;
    for number in 0..600 {
        if number % 100 == 50 {
            collector = Some(site.collect());
        } else if number % 100 == 99 {
            drop(collector.take());
        }
        writeln!(input, "record {number}").unwrap();
        sleep(Duration::from_millis(5));
    }
    let _collector = site.collect();
    drop(input);
    assert!(child.wait().unwrap().success());
    assert!(site.kept("lines") == numbered(600), "{}", site.kept("lines"));
}

/// Logs are written, renamed and begun anew while the source is there, and while it is not.
#[test]
fn logs_that_are_rotated_are_followed() {
    let site = Site::new();
    let _collector = site.collect();
    let log = site.source.0.join("app.log");
    let append = |path: &Path, from: u32, to: u32| {
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        (from..to).for_each(|number| writeln!(file, "record {number}").unwrap());
    };
    append(&log, 0, 1_000);
    let follow = || site.feed(&["--tail", "app.log*", "--name", "app"]).spawn().unwrap();
    let sorted = |site: &Site| {
        let kept = site.kept("app");
        let mut numbers: Vec<u32> = kept
            .lines()
            .map(|line| line.strip_prefix("record ").expect(line).parse().expect(line))
            .collect();
        numbers.sort_unstable();
        numbers
    };
    let has = |count: u32| move |site: &Site| sorted(site).len() >= count as usize;
    let feed = follow();
    site.until("what was there", has(1_000));
    append(&log, 1_000, 1_500);
    site.until("what came", has(1_500));
    // Renamed while it is written to.
    let old = site.source.0.join("app.log.1");
    fs::rename(&log, &old).unwrap();
    append(&old, 1_500, 1_600);
    append(&log, 1_600, 2_000);
    site.until("both", has(2_000));
    kill(feed);
    // Renamed while nobody looks.
    append(&log, 2_000, 2_100);
    fs::rename(&old, site.source.0.join("app.log.2")).unwrap();
    fs::rename(&log, &old).unwrap();
    append(&old, 2_100, 2_200);
    append(&log, 2_200, 2_500);
    let feed = follow();
    site.until("all of it", has(2_500));
    sleep(Duration::from_secs(1));
    kill(feed);
    assert_eq!(sorted(&site), (0..2_500).collect::<Vec<_>>(), "each once");
    for entry in fs::read_dir(site.folder("app")).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("index") {
            let text = fs::read_to_string(&path).unwrap();
            let numbers: Vec<u32> =
                text.lines().map(|line| line[7..].parse().expect(line)).collect();
            assert!(numbers.is_sorted(), "{}", path.display());
        }
    }
}

/// A host that may feed no longer is cut off.
#[test]
fn a_host_that_is_removed_feeds_no_more() {
    let site = Site::new();
    let _collector = site.collect();
    let mut feed = site.feed(&["-", "--name", "lines", "--patience", "1 s"]);
    let mut child = feed.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "before").unwrap();
    site.until("the first one is kept", |site| site.kept("lines") == "before\n");
    let (code, _, stderr) = site.collector.run(&["keys", "remove", "sender", "anna"]);
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = {
        let output = child.wait_with_output();
        // The pipe is open still: it has not ended by itself.
        let _ = writeln!(input, "after");
        text(&output.unwrap())
    };
    assert_eq!(code, 4, "{stderr}");
    assert_eq!(site.kept("lines"), "before\n");
}

#[test]
fn a_feed_over_tcp_keeps_to_its_rate() {
    let site = Site::new();
    let _collector = site.collect();
    let all = numbered(300_000);
    site.source.file("data", all.as_bytes());
    let began = Instant::now();
    let words = ["data", "--carrier", "tcp", "--max-rate", "20mbit"];
    assert!(site.feed(&words).status().unwrap().success());
    // 5.1 MB: a lower bound of the time.
    assert!(began.elapsed() > Duration::from_millis(1_800), "{:?}", began.elapsed());
    assert!(site.kept("data") == all);
}

/// Found on a busy machine: what was on its way when the cap was used up was lost with the
/// connection, and what had been was sent twice over it. A path that had used its cap but for a
/// batch was opened again, and again.
#[test]
fn what_a_cap_has_paid_for_arrives() {
    let site = Site::new();
    let collector = site.collect();
    let all = numbered(300_000);
    site.source.file("data", all.as_bytes());
    let words = ["data", "--carrier", "tcp", "--path", "lo,cap=3MB/month", "--patience", "4s"];
    let child = site.feed(&words).stderr(Stdio::piped()).spawn().unwrap();
    site.until("the first records are kept", |site| !site.kept("data").is_empty());
    let pid = Pid::from_child(&collector.0);
    kill_process(pid, Signal::STOP).unwrap();
    sleep(Duration::from_millis(1_500));
    kill_process(pid, Signal::CONT).unwrap();
    let (code, _, stderr) = text(&child.wait_with_output().unwrap());
    assert!(
        code == 5 && stderr.contains("its cap of 3.0 MB a month is used up"),
        "{code}: {stderr}"
    );
    assert_eq!(stderr.matches("carrying data").count(), 1, "{stderr}");
    let kept = site.kept("data");
    assert!((2_000_000..3_000_000).contains(&kept.len()), "{}", kept.len());
    assert!(all.starts_with(&kept));
}
