//! A feed over two paths, of which one dies.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::hosts::{Host, until};
use super::{relays, two_hosts, uplink};

/// What a collector has of the feed `lines` of the only host that feeds it.
fn kept(far: &Host) -> String {
    let folders = fs::read_dir(far.home.join("kept")).into_iter().flatten();
    let feeds = folders.map(|entry| entry.unwrap().path().join("lines"));
    let entries = feeds.filter_map(|feed| fs::read_dir(feed).ok()).flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.ends_with("index"));
    files.sort();
    files.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// A collector, and the file with its token.
fn collect(far: &Host) -> (Child, PathBuf) {
    let token = far.home.join("token");
    let mut collect = far.command(env!("CARGO_BIN_EXE_anabranch"));
    collect.args(["collect", "kept", "--quiet", "--token-out"]).arg(&token);
    collect.current_dir(&far.home).stdout(Stdio::null()).stderr(Stdio::null());
    let collector = collect.spawn().unwrap();
    until("there is a token", || fs::read_to_string(&token).is_ok_and(|text| text.len() > 20));
    (collector, token)
}

/// Feeds 800 lines in 8 s; `at` is called with the number of each. Then the collector has each once
/// and in order.
fn feed_lines(near: &Host, far: &Host, more: &[&str], mut at: impl FnMut(u32)) {
    let (mut collector, token) = collect(far);
    let mut feed = near.command(env!("CARGO_BIN_EXE_anabranch"));
    feed.args(["feed", "-", "--to", "10.1.0.2", "--name", "lines", "--token-file"]).arg(&token);
    feed.args(more).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = feed.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut expected = String::new();
    let mut longest = Duration::ZERO;
    let (mut last, mut length) = (Instant::now(), 0);
    for number in 0..800 {
        at(number);
        let line = format!("record {number}\n");
        input.write_all(line.as_bytes()).unwrap();
        expected.push_str(&line);
        sleep(Duration::from_millis(10));
        let now = kept(far).len();
        if now > length {
            if length > 0 {
                longest = longest.max(last.elapsed());
            }
            (last, length) = (Instant::now(), now);
        }
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    let _ = Command::new("kill").arg(collector.id().to_string()).status();
    let _ = collector.wait();
    assert!(kept(far) == expected, "each once, in order");
    // Printed, and bounded by the bar alone: this machine has other work.
    println!("the longest time without a record: {longest:?}");
}

#[test]
fn records_arrive_once_and_in_order_while_paths_die_and_return() {
    let test = "feeds::records_arrive_once_and_in_order_while_paths_die_and_return";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    near.cable(&far, "cable0");
    near.address("cable0", &["192.168.5.1/24"]);
    far.address("cable0", &["192.168.5.2/24"]);
    feed_lines(&near, &far, &[], |number| match number {
        // Both have had time to open.
        200 => near.sh("ip link set wan0 down"),
        400 => near.sh("ip link set wan0 up; ip route replace default via 10.1.0.2"),
        500 => near.sh("ip link set cable0 down"),
        _ => {}
    });
}

/// Of the direct path and a relay one is used, as long as it carries what has to be sent.
#[test]
fn a_feed_with_a_demand_leaves_a_path_that_dies_for_another() {
    let test = "feeds::a_feed_with_a_demand_leaves_a_path_that_dies_for_another";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = relays::between(&scratch, &near, &far);
    let (mut relay, spec) = relays::start(&between, "10.1.0.2:*");
    let file = near.home.join("relays");
    fs::write(&file, format!("# one\n{spec}  # by its token\n")).unwrap();
    let more = ["--demand", "100kbit", "--use", "1", "--relays-file", file.to_str().unwrap()];
    feed_lines(&near, &far, &more, |number| match number {
        // Whichever it is, one of these is the death of the path in use.
        150 => near.sh("ip link set wan0 down"),
        450 => near.sh("ip link set wan0 up; ip route replace default via 10.1.0.2"),
        500 => relay.kill(),
        _ => {}
    });
}

/// All paths together have a demand, and the list of relays changes.
#[test]
fn a_feed_with_a_demand_follows_its_list_of_relays() {
    let test = "feeds::a_feed_with_a_demand_follows_its_list_of_relays";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = relays::between(&scratch, &near, &far);
    let (_relay, spec) = relays::start(&between, "10.1.0.2:*");
    let file = near.home.join("relays");
    fs::write(&file, "").unwrap();
    let more = ["--demand", "100kbit", "--relays-file", file.to_str().unwrap()];
    feed_lines(&near, &far, &more, |number| match number {
        100 => fs::write(&file, "no relay, no port\n").unwrap(),
        200 => fs::write(&file, &spec).unwrap(),
        // The relay is the only way now.
        600 => near.sh("ip link set wan0 down"),
        _ => {}
    });
}

#[test]
fn records_go_over_a_relay_beside_the_direct_path() {
    let test = "feeds::records_go_over_a_relay_beside_the_direct_path";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = relays::between(&scratch, &near, &far);
    let (mut relay, spec) = relays::start(&between, "10.1.0.2:*");
    feed_lines(&near, &far, &["--relay", &spec], |number| match number {
        // What the direct path had in flight goes over the relay.
        150 => near.sh("ip link set wan0 down"),
        400 => near.sh("ip link set wan0 up; ip route replace default via 10.1.0.2"),
        600 => relay.kill(),
        _ => {}
    });
}
