//! Findings from the facts, and their remedies.

use units::{Bytes, Rate, Span};

use super::facts::{Host, LocalEnd};
use super::{Connection, Finding, Mend, Severity};
use crate::probe::{Carries, PathProbe};

/// The share of its time for which a buffer holds a connection back that makes a finding.
const HELD_BACK: f64 = 0.2;
/// The share of the largest send buffer from which it bounds the bytes in flight: the kernel counts
/// its own bookkeeping too.
const FULL: f64 = 0.6;
/// The share of retransmitted packets that makes a finding.
const LOSSY: f64 = 0.01;
/// Paths share a bottleneck if their rate together is less than this share of the sum of their
/// rates alone.
const SHARED: f64 = 0.85;
/// The queue from which on a transfer in the background sees others (docs/background.md).
const SEEN: Span = Span::from_millis(3);
/// The smallest buffer that a remedy sets, in bytes.
const BUFFER: u64 = 16 << 20;

fn trouble(
    check: &'static str,
    subject: &str,
    text: String,
    mend: impl Into<Option<Mend>>,
) -> Finding {
    Finding {
        severity: Severity::Trouble,
        check,
        subject: subject.to_string(),
        text,
        mend: mend.into(),
    }
}

fn note(
    check: &'static str,
    subject: &str,
    text: String,
    mend: impl Into<Option<Mend>>,
) -> Finding {
    Finding {
        severity: Severity::Note,
        check,
        subject: subject.to_string(),
        text,
        mend: mend.into(),
    }
}

fn here(command: impl Into<String>) -> Mend {
    Mend { at_receiver: false, command: command.into() }
}

fn there(command: impl Into<String>) -> Mend {
    Mend { at_receiver: true, command: command.into() }
}

/// Findings about the host.
pub(super) fn host(host: &Host) -> Vec<Finding> {
    let mut found = Vec::new();
    if host.window_scaling == Some(false) {
        let text = "TCP window scaling is off: no connection has more than 64 KiB under way".into();
        found.push(trouble(
            "window-scaling",
            "",
            text,
            here("sudo sysctl -w net.ipv4.tcp_window_scaling=1"),
        ));
    }
    if host.sack == Some(false) {
        let text =
            "selective acknowledgements are off: a few lost packets cost a round trip each".into();
        found.push(trouble("sack", "", text, here("sudo sysctl -w net.ipv4.tcp_sack=1")));
    }
    let has = |list: &Option<String>, name| {
        list.as_ref().is_none_or(|list| list.split_whitespace().any(|n| n == name))
    };
    if !has(&host.allowed, "bbr") {
        let load = if has(&host.available, "bbr") { "" } else { "sudo modprobe tcp_bbr && " };
        let allowed = host.allowed.as_deref().unwrap_or_default();
        let text =
            "BBR may not be used: a path that loses packets without a queue stays slow".into();
        let command =
            format!("{load}sudo sysctl -w net.ipv4.tcp_allowed_congestion_control='{allowed} bbr'");
        found.push(note("congestion-control", "", text, here(command)));
    }
    if host.synchronised == Some(false) {
        let text = "nothing keeps the clock right, and timetables and monthly caps go by it".into();
        found.push(note("clock", "", text, here("sudo timedatectl set-ntp true")));
    }
    if host.aes == Some(false) {
        let text = "the processor has no instructions for AES, or does not show them to this \
                    virtual machine: encryption may be what bounds a fast path"
            .into();
        found.push(note("aes", "", text, None));
    }
    found
}

/// Findings from the system's settings about one path.
pub(super) fn path(way: &LocalEnd) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = &way.local.interface;
    if way.local.metered {
        let text = "looks metered, and is a backup unless --path says otherwise".into();
        found.push(note("metered", name, text, None));
    }
    let Some(reversal) = &way.reversal else { return found };
    let other = &reversal.interface;
    if way.rp_filter == Some(1) {
        let text = format!(
            "answers that come in over {name} are dropped: rp_filter is strict there, and the \
             route back is over {other}"
        );
        found.push(trouble(
            "rp-filter",
            name,
            text,
            here(format!("sudo sysctl -w net.ipv4.conf.{name}.rp_filter=2")),
        ));
    }
    let table = 100 + way.local.index;
    let (family, address) =
        (if way.local.address.is_ipv4() { "" } else { " -6" }, way.local.address);
    let via = reversal.gateway.map_or_else(String::new, |gateway| format!(" via {gateway}"));
    let text = format!(
        "what other programs send from {address} leaves by {other}; a receiver here would answer \
         by {other} to what comes in over {name}"
    );
    let command = format!(
        "sudo ip{family} route add default{via} dev {name} table {table} && sudo ip{family} rule \
         add from {address} lookup {table}"
    );
    found.push(note("source-routing", name, text, here(command)));
    found
}

/// The finding of a connection that did not open.
pub(super) fn connection(connection: &Connection) -> Option<Finding> {
    let why = connection.opened.as_ref().err()?;
    Some(does_not_open(&connection.interface, connection.remote, why))
}

fn does_not_open(name: &str, remote: std::net::SocketAddr, why: &str) -> Finding {
    let port = remote.port();
    let (text, mend) = if why.contains("refused") {
        let text = format!("{remote} refuses connections: no receiver listens on that port");
        (text, there(format!("anabranch receive --port {port} FOLDER")))
    } else if why.contains("unreachable") || why.contains("No route") {
        (
            format!("{remote} cannot be reached: {why}"),
            here(format!("ip route get {} oif {name}", remote.ip())),
        )
    } else {
        let text = format!(
            "{remote} does not answer ({why}): a firewall drops what goes there, or the line is \
             dead"
        );
        (
            text,
            there(format!("sudo ufw allow {port}/tcp || sudo firewall-cmd --add-port={port}/tcp")),
        )
    };
    trouble("connect", name, text, mend)
}

/// Findings from data over one path.
pub(super) fn probe(probe: &PathProbe, host: &Host) -> Vec<Finding> {
    let name = &probe.name;
    let carries = match &probe.carries {
        Ok(carries) => carries,
        Err(why) if probe.used_up => return vec![trouble("cap", name, why.clone(), None)],
        Err(why) => {
            let Some(remote) = probe.remote else {
                let text = "its interface has a route to none of the receiver's addresses";
                return vec![trouble("connect", name, text.into(), None)];
            };
            return vec![does_not_open(&probe.interface, remote, why)];
        }
    };
    let mut found = Vec::new();
    if probe.small_segments_only {
        let text = "large packets vanish and nobody says so: a line on the way has a smaller MTU, \
                    and the ICMP messages that would tell are blocked. Transfers use small packets \
                    over TCP, and find the size by themselves over UDP; other programs stall"
            .into();
        // Any MTU of the interface would be a guess, and below 1280 it would lose IPv6.
        let mend = here("sudo sysctl -w net.ipv4.tcp_mtu_probing=1");
        found.push(trouble("mtu", name, text, mend));
    }
    let under_way = carries.rate * carries.rtt;
    // The kernel does not count all of the time that it waits for room in the buffer.
    let is_full =
        host.send_buffer.is_some_and(|largest| under_way.as_f64() > FULL * Bytes(largest).as_f64());
    if is_full || carries.held_by_send_buffer > HELD_BACK {
        let text = format!(
            "this host's send buffer holds it back: {under_way} are under way at {} with a round \
             trip of {:.0} ms",
            carries.rate,
            carries.rtt.as_secs_f64() * 1e3
        );
        let largest = ample(carries).max(host.send_buffer.unwrap_or(0).saturating_mul(4));
        let command = format!("sudo sysctl -w net.ipv4.tcp_wmem='4096 65536 {largest}'");
        found.push(trouble("send-buffer", name, text, here(command)));
    }
    if carries.held_by_receiver > HELD_BACK {
        let text = format!(
            "the receiver's buffer held it back {:.0} % of the time, at {} with a round trip of \
             {:.0} ms",
            carries.held_by_receiver * 100.0,
            carries.rate,
            carries.rtt.as_secs_f64() * 1e3
        );
        let command = format!("sudo sysctl -w net.ipv4.tcp_rmem='4096 131072 {}'", ample(carries));
        found.push(trouble("receive-buffer", name, text, there(command)));
    }
    if carries.loss > LOSSY {
        let text = format!("{:.1} % of its packets had to be sent again", carries.loss * 100.0);
        found.push(note("loss", name, text, None));
    }
    let is_held =
        is_full || carries.held_by_send_buffer > HELD_BACK || carries.held_by_receiver > HELD_BACK;
    found.push(note("buffer", name, buffer(carries.queue, is_held), None));
    found
}

/// What a line's buffer is like, and what a transfer in the background makes of it. `is_held`:
/// buffers of the hosts held the test back, so that it never filled the line's.
fn buffer(queue: Span, is_held: bool) -> String {
    let millis = queue.as_secs_f64() * 1e3;
    if queue < SEEN && is_held {
        format!(
            "how long its queue becomes is not known: the buffers of the hosts kept the path from \
             being full, and it was at most {millis:.0} ms long"
        )
    } else if queue < SEEN {
        format!(
            "its queue was at most {millis:.0} ms long when the path was full: --background sees \
             others from {} ms on, and goes by losses below",
            SEEN.as_millis()
        )
    } else {
        format!(
            "its queue was up to {millis:.0} ms long when the path was full: --background sees \
             others there and leaves it to them"
        )
    }
}

/// A buffer of four times the bytes in flight at that rate.
fn ample(carries: &Carries) -> u64 {
    let Bytes(under_way) = carries.rate * carries.rtt;
    under_way.saturating_mul(4).max(BUFFER).checked_next_power_of_two().unwrap_or(BUFFER)
}

/// Compares the rates of all paths together with those of each alone.
pub(super) fn together(probes: &[PathProbe], together: &[Rate]) -> Option<Finding> {
    let alone: Vec<Rate> =
        probes.iter().filter_map(|p| p.carries.as_ref().ok()).map(|carries| carries.rate).collect();
    let (apart, both): (Rate, Rate) = (alone.iter().copied().sum(), together.iter().copied().sum());
    if alone.len() < 2 || both.as_f64() >= SHARED * apart.as_f64() {
        return None;
    }
    let text = format!(
        "all paths together carry {both}, one after the other {apart}: some share a bottleneck"
    );
    Some(note("shared-bottleneck", "", text, None))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use net::interfaces::{LocalPath, Reversal};

    fn checks(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.check).collect()
    }

    fn mend(finding: &Finding) -> &str {
        &finding.mend.as_ref().expect("a command").command
    }

    fn remote() -> SocketAddr {
        "192.0.2.7:7707".parse().expect("an address")
    }

    fn carries(rate: Rate) -> Carries {
        Carries {
            rtt: Span::from_millis(40),
            queue: Span::from_millis(80),
            rate,
            loss: 0.0,
            held_by_send_buffer: 0.0,
            held_by_receiver: 0.0,
        }
    }

    fn probed(carries: Result<Carries, String>) -> PathProbe {
        let (name, interface) = ("wifi".to_string(), "wifi".to_string());
        PathProbe {
            name,
            interface,
            local: None,
            remote: Some(remote()),
            candidates: Vec::new(),
            carries,
            small_segments_only: false,
            used_up: false,
        }
    }

    #[test]
    fn a_host_without_trouble_has_no_findings() {
        assert_eq!(host(&Host::default()), [], "what can't be read is no trouble");
        let good = Host {
            aes: Some(true),
            synchronised: Some(true),
            available: Some("reno cubic bbr".into()),
            allowed: Some("reno cubic bbr".into()),
            send_buffer: Some(4 << 20),
            window_scaling: Some(true),
            sack: Some(true),
        };
        assert_eq!(host(&good), []);
    }

    #[test]
    fn a_host_with_all_troubles_hears_of_each() {
        let bad = Host {
            aes: Some(false),
            synchronised: Some(false),
            available: Some("reno cubic".into()),
            allowed: Some("reno cubic".into()),
            send_buffer: None,
            window_scaling: Some(false),
            sack: Some(false),
        };
        let found = host(&bad);
        assert_eq!(
            checks(&found),
            ["window-scaling", "sack", "congestion-control", "clock", "aes"]
        );
        assert_eq!(
            mend(&found[2]),
            "sudo modprobe tcp_bbr && sudo sysctl -w net.ipv4.tcp_allowed_congestion_control='reno \
             cubic bbr'"
        );
    }

    #[test]
    fn strict_rp_filter_is_trouble_only_where_the_way_back_differs() {
        let local = LocalPath {
            interface: "lte".into(),
            index: 3,
            address: "10.0.2.1".parse().expect("an address"),
            prefix: 24,
            metered: false,
            speed: None,
        };
        let reversal = Reversal {
            interface: "wifi".into(),
            gateway: Some("10.0.2.254".parse().expect("an address")),
        };
        let way = |rp_filter, reversal| LocalEnd {
            local: local.clone(),
            remote: None,
            rp_filter,
            reversal,
        };
        assert_eq!(path(&way(Some(1), None)), []);
        let found = path(&way(Some(1), Some(reversal.clone())));
        assert_eq!(checks(&found), ["rp-filter", "source-routing"]);
        assert_eq!(mend(&found[0]), "sudo sysctl -w net.ipv4.conf.lte.rp_filter=2");
        assert_eq!(
            mend(&found[1]),
            "sudo ip route add default via 10.0.2.254 dev lte table 103 && sudo ip rule add from \
             10.0.2.1 lookup 103"
        );
        assert_eq!(checks(&path(&way(Some(2), Some(reversal)))), ["source-routing"]);
    }

    #[test]
    fn connections_fail_for_different_reasons() {
        let failed = |why: &str| does_not_open("wifi", remote(), why);
        assert_eq!(
            mend(&failed("Connection refused (os error 111)")),
            "anabranch receive --port 7707 FOLDER"
        );
        assert_eq!(
            mend(&failed("Network is unreachable (os error 101)")),
            "ip route get 192.0.2.7 oif wifi"
        );
        let blocked = failed("no answer");
        assert!(
            blocked.text.contains("a firewall drops")
                && blocked.mend.as_ref().is_some_and(|mend| mend.at_receiver)
        );
    }

    #[test]
    fn buffers_losses_and_black_holes() {
        let host = Host { send_buffer: Some(64 << 20), ..Host::default() };
        let found = probe(&probed(Ok(carries(Rate::mbit(50)))), &host);
        assert_eq!(checks(&found), ["buffer"]);
        assert!(
            found[0].text.contains("80 ms") && found[0].text.contains("leaves it"),
            "{found:?}"
        );
        let shallow = Carries { queue: Span::from_millis(2), ..carries(Rate::mbit(50)) };
        let found = probe(&probed(Ok(shallow)), &host);
        assert!(found[0].text.contains("at most 2 ms") && found[0].text.contains("losses"));
        let held = Carries {
            queue: Span::from_millis(2),
            held_by_receiver: 0.3,
            ..carries(Rate::mbit(50))
        };
        let found = probe(&probed(Ok(held)), &host);
        assert_eq!(checks(&found), ["receive-buffer", "buffer"]);
        assert!(found[1].text.contains("not known"), "nobody has filled it: {found:?}");
        let slow = Carries {
            held_by_send_buffer: 0.5,
            held_by_receiver: 0.3,
            loss: 0.02,
            ..carries(Rate::mbit(50))
        };
        let found = probe(&PathProbe { small_segments_only: true, ..probed(Ok(slow)) }, &host);
        assert_eq!(checks(&found), ["mtu", "send-buffer", "receive-buffer", "loss", "buffer"]);
        assert_eq!(mend(&found[0]), "sudo sysctl -w net.ipv4.tcp_mtu_probing=1");
        assert_eq!(mend(&found[1]), "sudo sysctl -w net.ipv4.tcp_wmem='4096 65536 268435456'");
        assert_eq!(mend(&found[2]), "sudo sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216'");
        assert_eq!(checks(&probe(&probed(Err("no answer within 4s".into())), &host)), ["connect"]);
        let capped = PathProbe {
            used_up: true,
            ..probed(Err("its cap of 10 GB a month is used up".into()))
        };
        assert_eq!(checks(&probe(&capped, &host)), ["cap"]);
    }

    #[test]
    fn a_shared_bottleneck_shows_when_all_send() {
        let probes = [
            probed(Ok(carries(Rate::mbit(20)))),
            probed(Err(String::new())),
            probed(Ok(carries(Rate::mbit(10)))),
        ];
        assert_eq!(together(&probes, &[Rate::mbit(19), Rate::ZERO, Rate::mbit(9)]), None);
        let found =
            together(&probes, &[Rate::mbit(10), Rate::ZERO, Rate::mbit(10)]).expect("a finding");
        assert_eq!((found.check, found.severity), ("shared-bottleneck", Severity::Note));
        assert_eq!(
            together(&probes[..1], &[Rate::mbit(1)]),
            None,
            "one path alone shares with nobody"
        );
    }

    /// The names in the source, and those of the page.
    #[test]
    fn every_check_is_documented() {
        let page = include_str!("../../../../docs/doctor.md");
        let source =
            include_str!("judge.rs").split("#[cfg(test)]").next().expect("it begins with code");
        let calls = source.split("trouble(").skip(1).chain(source.split("note(").skip(1));
        let names: std::collections::BTreeSet<&str> = calls
            .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
            .collect();
        assert!(names.len() >= 14, "{names:?}");
        for name in names {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
