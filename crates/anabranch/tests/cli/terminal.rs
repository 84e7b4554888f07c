//! The program on a terminal: a pseudo-terminal, and an emulator that reads it.

use std::fs::{self, File};
use std::io::Read;
use std::num::NonZeroU16;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::home::{Home, Running, receiver};

/// The longest run of a test.
const PATIENCE: Duration = Duration::from_secs(120);
/// Without output for this long, no frame is half drawn: each is one write.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 30_000_000 };

/// A terminal with a program on it.
struct Terminal {
    master: File,
    child: Running,
    parser: vt100::Parser,
    began: Instant,
}

impl Terminal {
    fn start(mut command: Command, columns: u16, rows: u16) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        tcsetwinsize(&master, size(columns, rows)).unwrap();
        let twin = slave.try_clone().unwrap();
        command.env("TERM", "xterm-256color").env_remove("ANABRANCH_LOG");
        let child = command.stdin(Stdio::null()).stdout(slave).stderr(twin).spawn().unwrap();
        // The command holds the other end, which must close when the program ends.
        drop(command);
        let parser = vt100::Parser::new(cells(rows), cells(columns), 0);
        Terminal { master: master.into(), child: Running(child), parser, began: Instant::now() }
    }

    fn resize(&mut self, columns: u16, rows: u16) {
        self.parser.screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.master, size(columns, rows)).unwrap();
    }

    /// Reads until the program is silent for a moment. Returns whether it still runs.
    fn read(&mut self) -> bool {
        loop {
            assert!(self.began.elapsed() < PATIENCE, "{}", self.rows().join("\n"));
            let mut ready = [PollFd::new(&self.master, PollFlags::IN)];
            if poll(&mut ready, Some(&QUIET)).unwrap() == 0 {
                return true;
            }
            let mut bytes = [0; 4_096];
            match self.master.read(&mut bytes) {
                // The last program on the terminal has closed it.
                Err(_) | Ok(0) => return false,
                Ok(length) => self.parser.process(&bytes[..length]),
            }
        }
    }

    /// Reads until the screen has a row for which `find` returns something.
    fn until<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> T {
        loop {
            let runs = self.read();
            if let Some(found) = self.rows().iter().find_map(|row| find(row)) {
                return found;
            }
            assert!(runs, "{}", self.rows().join("\n"));
        }
    }

    /// The rows of the screen.
    fn rows(&self) -> Vec<String> {
        let columns = self.parser.screen().size().1.get();
        self.parser.screen().rows(0, columns).map(|row| row.trim_end().to_string()).collect()
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

fn count(rows: &[String], is_one: impl Fn(&str) -> bool) -> usize {
    rows.iter().filter(|row| is_one(row)).count()
}

fn has_bar(row: &str) -> bool {
    row.contains(['━', '─'])
}

fn is_hash_line(row: &str) -> bool {
    row.split_once("  ").is_some_and(|(hash, name)| {
        hash.len() == 64
            && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            && name.starts_with("src/")
    })
}

/// Checks a screen in the middle of a transfer over paths whose names begin with `path`.
fn check(rows: &[String], path: &str, paths: usize) {
    let screen = rows.join("\n");
    assert!(count(rows, |row| row.starts_with("file ")) <= 1, "{screen}");
    assert!(count(rows, |row| row.starts_with(path) && row.contains(" % ")) <= paths, "{screen}");
    assert!(count(rows, |row| has_bar(row) && !row.starts_with(path)) <= 1, "{screen}");
    for row in rows.iter().filter(|row| row.contains("  src/")) {
        assert!(is_hash_line(row), "'{row}' in {screen}");
    }
    // The live rows are the last ones.
    let first = rows.iter().position(|row| has_bar(row)).unwrap_or(rows.len());
    assert!(!rows[first..].iter().any(|row| is_hash_line(row)), "{screen}");
}

/// Checks the screen after a transfer of `files` files.
fn check_end(rows: &[String], files: usize) {
    let screen = rows.join("\n");
    assert_eq!(count(rows, has_bar), 0, "{screen}");
    assert_eq!(count(rows, is_hash_line), files, "{screen}");
    let is_summary = |row: &str| row.starts_with(&format!("{files} files, 3.0 MB in "));
    assert_eq!(count(rows, is_summary), 1, "{screen}");
    assert_eq!(count(rows, |row| row.contains("lost")), 0, "{screen}");
    assert_eq!(count(rows, |row| row.starts_with("file ") || row.contains("ETA")), 0, "{screen}");
}

#[test]
fn a_transfer_on_two_terminals_leaves_hashes_and_summaries() {
    let home = Home::new();
    let (source, target) = (home.0.join("src"), home.0.join("in"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    for n in 0..5_u8 {
        fs::write(source.join(format!("photo {n}")), vec![n; 600_000]).unwrap();
    }
    fs::write(source.join("empty"), b"").unwrap();
    let listen = ["--listen", "127.0.0.1", "--port", "0"];
    let receive = home.command(&[&["receive", target.to_str().unwrap()], &listen[..]].concat());
    let mut receiver = Terminal::start(receive, 80, 40);
    let after =
        |row: &str, mark| row.split_once(mark).map(|(_, rest): (&str, &str)| rest.to_string());
    let address = receiver.until(|row| after(row, "anabranch send PATH… --to "));
    // In one row of 80 columns.
    let token = receiver.until(|row| (row.starts_with("ab1-")).then(|| row.to_string()));
    let arguments = ["send", "src", "--to", &address, "--max-rate", "20mbit"];
    let paths = ["--path", "lo", "--path", "127.0.0.1"];
    let mut send = home.command(&[&arguments[..], &paths].concat());
    send.env("ANABRANCH_TOKEN", &token);
    let mut sender = Terminal::start(send, 100, 24);
    let (mut sizes, mut screens) = ([(120, 30), (101, 20)].into_iter(), 0);
    let (mut runs, mut has_begun) = ((true, true), false);
    while runs.0 || runs.1 {
        runs = (runs.0 && sender.read(), runs.1 && receiver.read());
        check(&sender.rows(), "lo>127.0.0.1 ", 2);
        receiver.resize(100, 40);
        check(&receiver.rows(), "127.0.0.1 ", 1);
        screens += 2;
        has_begun |= count(&sender.rows(), has_bar) > 0;
        if runs.0
            && has_begun
            && let Some((columns, rows)) = sizes.next()
        {
            sender.resize(columns, rows);
        }
    }
    println!("screens {screens}");
    assert!(has_begun, "there were bars");
    assert!(sizes.next().is_none(), "the size changed twice");
    check_end(&sender.rows(), 6);
    check_end(&receiver.rows(), 6);
    assert!(sender.child.0.wait().unwrap().success());
    assert!(receiver.child.0.wait().unwrap().success());
}

/// A far side that answers nothing: one row says how long the transfer waits, in the place of the
/// end. There is no rate, and no path that carries; once it answers, all of that is back.
fn stand_still(carrier: &str) {
    let home = Home::new();
    fs::write(home.0.join("data"), vec![7; 6_000_000]).unwrap();
    let target = home.0.join("in");
    fs::create_dir(&target).unwrap();
    let (far, address, token) = receiver(&home, &target, &[]);
    let arguments = ["send", "data", "--to", &address, "--max-rate", "8mbit"];
    let more = ["--carrier", carrier, "--compress", "off"];
    let mut send = home.command(&[&arguments[..], &more].concat());
    send.env("ANABRANCH_TOKEN", &token);
    let mut sender = Terminal::start(send, 100, 24);
    sender.until(|row| row.contains("ETA").then_some(()));
    let far = Pid::from_child(&far.0);
    kill_process(far, Signal::STOP).unwrap();
    let waits = |row: &str| row.contains("nothing for").then(|| row.to_string());
    let total = sender.until(waits);
    let screen = sender.rows().join("\n");
    assert!(total.contains(" of 2:00") && total.contains("  0 bit/s"), "{screen}");
    assert!(!screen.contains("ETA"), "{screen}");
    let rows = sender.rows();
    let path = rows.iter().find(|row| row.starts_with("lo")).expect("the path has a row");
    assert!(path.contains("stalled") && !path.contains("bit/s"), "{screen}");
    kill_process(far, Signal::CONT).unwrap();
    let mut screens = 0;
    while sender.read() {
        screens += 1;
    }
    println!("screens {screens}");
    let screen = sender.rows().join("\n");
    assert!(sender.child.0.wait().unwrap().success(), "{screen}");
    assert!(screen.contains("1 file, 6.0 MB in ") && !screen.contains("nothing for"), "{screen}");
}

#[test]
fn a_standstill_over_tcp_says_how_long_it_waits() {
    stand_still("tcp");
}

#[test]
fn a_standstill_over_udp_says_how_long_it_waits() {
    stand_still("udp");
}
