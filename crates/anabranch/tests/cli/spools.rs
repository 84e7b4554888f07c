//! Records of programs that wait on the disk of their host.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::feeds::{Site, kill, numbered};

/// A feed from a pipe with a spool, of which standard error is in `said`.
fn feed(site: &Site, spool: &str, more: &[&str]) -> Command {
    let mut command = site.feed(&[&["-", "--name", "lines", "--spool", spool], more].concat());
    let said = fs::OpenOptions::new().create(true).append(true).open(site.source.0.join("said"));
    command.stdin(Stdio::piped()).stderr(said.unwrap());
    command
}

fn write(child: &mut Child, text: &str) {
    child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
}

/// What waits in a spool, file by file, but for records that are being written.
fn spooled(site: &Site) -> String {
    let folder = site.source.0.join("spool/spool/lines");
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| !path.ends_with("index"));
    paths.sort();
    let all: Vec<u8> = paths.iter().flat_map(|path| fs::read(path).unwrap_or_default()).collect();
    String::from_utf8(all).unwrap()
}

#[test]
fn what_a_program_wrote_survives_the_death_of_its_source() {
    let site = Site::new();
    let all = numbered(4_000);
    let lines: Vec<&str> = all.split_inclusive('\n').collect();
    let part = |from: usize, to: usize| lines[from..to].concat();
    // Nobody collects.
    let mut child = feed(&site, "spool", &[]).spawn().unwrap();
    write(&mut child, &part(0, 1_500));
    site.until("it is spooled", |site| spooled(site) == part(0, 1_500));
    kill(child);
    let mut child = feed(&site, "spool", &[]).spawn().unwrap();
    write(&mut child, &part(1_500, 3_000));
    site.until("so is this", |site| spooled(site) == part(0, 3_000));
    let collector = site.collect();
    site.until("all arrives", |site| site.kept("lines") == part(0, 3_000));
    kill(child);
    drop(collector);
    // A collector that comes back, and a program that ends.
    let mut child = feed(&site, "spool", &["--carrier", "tcp"]).spawn().unwrap();
    write(&mut child, &part(3_000, 4_000));
    let _collector = site.collect();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(site.kept("lines") == all, "each once, in order");
}

#[test]
fn a_full_spool_drops_the_oldest_and_counts_them() {
    let site = Site::new();
    let mut child = feed(&site, "spool,1MiB", &["--when-full", "drop-oldest"]).spawn().unwrap();
    // More than waits in the memory of the source as well.
    let padding = "x".repeat(100);
    let all = numbered(200_000).replace('\n', &format!(" {padding}\n"));
    write(&mut child, &all);
    let last = format!("record 199999 {padding}\n");
    site.until("the last one is spooled", |site| spooled(site).ends_with(&last));
    let waiting = spooled(&site);
    assert!(waiting.len() < 1 << 20 && all.ends_with(&waiting));
    let _collector = site.collect();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let kept = site.kept("lines");
    assert!(kept.ends_with(&waiting), "{} of {}", kept.len(), all.len());
    let dropped: usize = fs::read_to_string(site.source.0.join("said"))
        .unwrap()
        .lines()
        .filter_map(|line| {
            line.split_once("it is full: ")?.1.split(' ').next()?.parse::<usize>().ok()
        })
        .sum();
    let missing = 200_000 - kept.lines().count();
    assert!(
        dropped == missing && missing > 0,
        "{dropped} are said to be dropped, {missing} are missing"
    );
}

#[test]
fn a_full_spool_ends_the_feed_or_makes_its_program_wait() {
    let site = Site::new();
    let all = numbered(200_000);
    let mut child = feed(&site, "spool,1MiB", &["--when-full", "fail"]).spawn().unwrap();
    // The pipe breaks.
    let _ = child.stdin.as_mut().unwrap().write_all(all.as_bytes());
    assert_eq!(child.wait().unwrap().code(), Some(7));
    let said = fs::read_to_string(site.source.0.join("said")).unwrap();
    assert!(said.contains("--spool spool: it is full"), "{said}");
    // What was spooled is sent by the next one, which waits where this one failed.
    let before = spooled(&site);
    assert!(all.starts_with(&before) && before.len() > 800_000);
    let mut child = feed(&site, "spool,1MiB", &[]).spawn().unwrap();
    let rest = all[before.len()..].to_string();
    let mut input = child.stdin.take().unwrap();
    let writing = std::thread::spawn(move || input.write_all(rest.as_bytes()));
    site.until("it waits", |site| {
        let said = fs::read_to_string(site.source.0.join("said")).unwrap();
        said.contains("what feeds it waits")
    });
    let _collector = site.collect();
    writing.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(site.kept("lines") == all, "each once, in order");
}

#[test]
fn a_spool_has_one_feed_at_a_time_and_forms_do_not_mix() {
    let site = Site::new();
    let mut first = feed(&site, "spool", &[]).spawn().unwrap();
    write(&mut first, "one\n");
    site.until("it is spooled", |site| spooled(site) == "one\n");
    let refused = |more: &[&str], why: &str| {
        let mut command = feed(&site, "spool", more);
        let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
    };
    refused(&[], "another feed uses it");
    kill(first);
    refused(&["--records", "nul"], "--records has to be the same");
    let mode = fs::metadata(site.source.0.join("spool")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o700);
    assert!(Path::new(&site.source.0.join("spool/lock")).exists());
}
