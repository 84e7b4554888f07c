//! Relays behind relays: two and three in a row, over both carriers.

use std::collections::BTreeSet;

use super::hosts::{Host, Scratch, until};
use super::relays::{Relay, listening};
use super::relays_udp::passed_on;
use super::{LONG, SHORT, SLOWLY, two_hosts};

/// The far host's address, which only the last relay reaches.
const FAR: &str = "10.1.0.2";

/// A row of relays, of which each reaches its neighbours alone.
struct Row {
    hosts: Vec<Host>,
    relays: Vec<Relay>,
}

/// The address of the relay of that number, as the one before it reaches it.
fn address(number: usize) -> String {
    format!("10.{}.0.2", 20 + number)
}

impl Row {
    fn new(scratch: &Scratch, near: &Host, far: &Host, count: usize) -> Row {
        far.address("lo", &[&format!("{FAR}/32")]);
        let hosts: Vec<Host> =
            (0..count).map(|number| Host::new(scratch, &format!("relay{number}"))).collect();
        let mut before = near;
        for (number, host) in hosts.iter().enumerate() {
            let cable = format!("row{number}");
            before.cable(host, &cable);
            before.address(&cable, &[&format!("10.{}.0.1/24", 20 + number)]);
            host.address(&cable, &[&format!("{}/24", address(number))]);
            before = host;
        }
        let cable = format!("row{count}");
        before.cable(far, &cable);
        before.address(&cable, &[&format!("10.{}.0.1/24", 20 + count)]);
        far.address(&cable, &[&format!("{}/24", address(count))]);
        before.sh(&format!("ip route add {FAR}/32 via {}", address(count)));
        let key = |host: &Host| host.anabranch(&["keys"]).stdout.trim().to_string();
        for (number, host) in hosts.iter().enumerate() {
            let next = if number + 1 < count { address(number + 1) } else { FAR.to_string() };
            let targets = format!("{next}:*");
            let words = ["keys", "trust", "sender", &key(near), "near", "--may", "relay"];
            host.anabranch(&[&words[..], &["--relay", &targets]].concat());
            near.anabranch(&["keys", "trust", "receiver", &address(number), &key(host)]);
        }
        let relays = hosts.iter().map(|host| listening(host, &["relay"]).0).collect();
        Row { hosts, relays }
    }

    /// The value of `--relay`, and the name of the path.
    fn spec(&self) -> (String, String) {
        let all: Vec<String> = (0..self.hosts.len()).map(address).collect();
        let (last, through) = all.split_last().unwrap();
        let through: Vec<String> = through.iter().map(|one| format!(",through={one}")).collect();
        (format!("{last}{}", through.concat()), format!("row0 via {}", all.join(", ")))
    }
}

#[test]
fn two_and_three_relays_in_a_row_carry_a_transfer_over_both_carriers() {
    let test = "chains::two_and_three_relays_in_a_row_carry_a_transfer_over_both_carriers";
    for count in [2, 3] {
        let Some((scratch, near, far)) = two_hosts(test) else { return };
        let row = Row::new(&scratch, &near, &far, count);
        let (spec, name) = row.spec();
        for carrier in ["udp", "tcp"] {
            let before: Vec<u64> = row.hosts.iter().map(passed_on).collect();
            let more = ["--carrier", carrier, "--relays-only", "--relay", &spec];
            let sent = near.send(&far.receive(), FAR, SHORT, &more);
            assert!(sent.arrived && sent.code == Some(0), "{count}, {carrier}: {}", sent.said());
            assert_eq!(sent.names(), BTreeSet::from([name.clone()]), "{}", sent.said());
            for (host, before) in row.hosts.iter().zip(before) {
                assert!(passed_on(host) > before + u64::from(SHORT), "{count}, {carrier}");
            }
        }
    }
}

/// It is waited for, and its successor knows nothing of the labels of before.
#[test]
fn a_relay_in_a_row_that_is_killed_and_started_again_carries_on() {
    let test = "chains::a_relay_in_a_row_that_is_killed_and_started_again_carries_on";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let mut row = Row::new(&scratch, &near, &far, 2);
    let (spec, _) = row.spec();
    for number in [1, 0] {
        let more = [&["--carrier", "udp", "--relays-only", "--relay", &spec[..]], SLOWLY].concat();
        let (hosts, relays, receiver) = (&row.hosts, &mut row.relays, far.receive());
        let sent = std::thread::scope(|scope| {
            let sending = scope.spawn(|| near.send(&receiver, FAR, 2 * LONG, &more));
            let before = passed_on(&hosts[1]);
            until("the row carries", || passed_on(&hosts[1]) > before + 100_000);
            relays[number].kill();
            relays[number] = listening(&hosts[number], &["relay"]).0;
            sending.join().unwrap()
        });
        assert!(sent.arrived && sent.code == Some(0), "{number}: {}", sent.said());
    }
}
