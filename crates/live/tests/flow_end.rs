//! The process of a host, with both ends of its flows on loopback: no namespaces, real sockets.

use std::io::{BufRead as _, BufReader, Read, Write as _, pipe};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;

use live::flow_end::{self, FlowEndError};
use live::{
    Answer, Begin, Description, FlowEnd, PathEnd, Side, Source, StripedSettings, Traffic, Write,
};
use peer::{Fingerprint, Identity, Relaying, Remote};
use scenario::Registry;

const MS: u64 = 1_000_000;

/// Both ends of a flow over paths between 127.0.0.1 and 127.0.0.2 and so on.
fn ends(flow: &str, port: u16, paths: u8, traffic: &Traffic) -> [FlowEnd; 2] {
    let address = |last: u8| Ipv4Addr::new(127, 0, 0, last);
    let path = |number: u8, side: Side| {
        let (local, remote) = (address(2 * number + 1), address(2 * number + 2));
        match side {
            Side::Sender => PathEnd { local, remote },
            Side::Receiver => PathEnd { local: remote, remote: local },
        }
    };
    [Side::Sender, Side::Receiver].map(|side| FlowEnd {
        flow: flow.into(),
        side,
        port,
        paths: (0..paths).map(|number| path(number, side)).collect(),
        relays: Vec::new(),
        start: 50 * MS,
        stop: None,
        traffic: traffic.clone(),
    })
}

/// The client of relays, of which these flows have none.
fn no_relays(_: Identity, _: Vec<(Remote, Fingerprint)>) -> Arc<dyn Relaying> {
    unreachable!("no path leads over a relay")
}

/// Runs the ends of flows for 500 ms; returns their answers after the first one.
fn run(flows: Vec<FlowEnd>) -> (Vec<Answer>, Result<(), FlowEndError>) {
    let description = Description {
        flows,
        edges: vec![250 * MS, 500 * MS],
        duration: 500 * MS,
        ..Description::default()
    };
    let (input, mut tell) = pipe().expect("a pipe");
    let (mut heard, output) = pipe().expect("a pipe");
    let host = thread::spawn(move || {
        flow_end::run(&Registry::default(), no_relays, BufReader::new(input), output)
    });
    let mut say = |text: String| tell.write_all((text + "\n").as_bytes()).expect("it listens");
    say(serde_json::to_string(&description).expect("plain fields"));
    let mut heard = BufReader::new(&mut heard);
    let mut text = String::new();
    heard.read_line(&mut text).expect("an answer");
    let keys = match serde_json::from_str(&text).expect("an answer") {
        Answer::Ready { keys } => keys,
        _ => Vec::new(),
    };
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |n: i64| u64::try_from(n).expect("a time since the start of the system");
    let at = part(now.tv_sec) * 1_000 * MS + part(now.tv_nsec) + 20 * MS;
    // A host that failed reads no more.
    let _ = tell.write_all(
        (serde_json::to_string(&Begin { at, keys, relays: Vec::new() }).expect("plain") + "\n")
            .as_bytes(),
    );
    let outcome = host.join().expect("no panic");
    heard.read_to_string(&mut text).expect("lines");
    let answers = text.lines().map(|line| serde_json::from_str(line).expect("an answer"));
    (answers.collect(), outcome)
}

/// What a flow's receiver got in all, and when it was complete.
fn received<'a>(answers: &'a [Answer], wanted: &str) -> (&'a [Vec<u64>], Option<u64>) {
    let found = answers.iter().find_map(|answer| match answer {
        Answer::Received { flow, bytes, completed } if flow == wanted => Some((bytes, completed)),
        _ => None,
    });
    let (bytes, completed) = found.unwrap_or_else(|| panic!("no {wanted} in {answers:?}"));
    (bytes, *completed)
}

fn tcp(source: Source) -> Traffic {
    Traffic::Tcp { controller: "reno".into(), pacing: false, mss: None, source }
}

fn striped(controller: &str, source: Source) -> Traffic {
    Traffic::Striped {
        controller: controller.into(),
        scheduler: "lowest-rtt".into(),
        settings: StripedSettings {
            restripe_window: false,
            reinject: true,
            pacing: true,
            hystart: true,
            ecn: true,
        },
        source,
    }
}

#[test]
fn striped_connections_carry_sources_over_all_paths() {
    let trace = vec![Write { at: 100 * MS, bytes: 5_000 }, Write { at: 300 * MS, bytes: 7_000 }];
    let mut stopped = ends("stopped", 42_134, 1, &striped("lia", Source::Bulk));
    for end in &mut stopped {
        end.stop = Some(150 * MS);
    }
    let flows = [
        ends("file", 42_131, 3, &striped("coupled-bbr", Source::File(3_000_000))),
        ends("stream", 42_132, 2, &striped("lia", Source::Stream(8_000_000))),
        ends("trace", 42_133, 1, &striped("mpfast(alpha=40)", Source::Trace(trace))),
        stopped,
    ];
    let (answers, outcome) = run(flows.into_iter().flatten().collect());
    outcome.expect("all flows run");
    let Answer::Ready { keys } = &answers[0] else { panic!("{answers:?}") };
    let distinct: std::collections::BTreeSet<&str> =
        keys.iter().map(|key| key.key.as_str()).collect();
    assert_eq!(distinct.len(), 8, "a key for each end: {keys:?}");
    let (file, completed) = received(&answers, "file");
    assert_eq!(file, [[file[0][0], 3_000_000]], "all paths are one");
    assert!(completed.is_some_and(|at| (50 * MS..500 * MS).contains(&at)), "{completed:?}");
    let (stream, _) = received(&answers, "stream");
    assert!((200_000..=450_000).contains(&stream[0][1]), "{stream:?}");
    let (trace, completed) = received(&answers, "trace");
    assert_eq!(trace, [[5_000, 12_000]]);
    assert!(completed.is_some_and(|at| at >= 350 * MS), "{completed:?}");
    let (stopped, _) = received(&answers, "stopped");
    assert!(stopped[0][0] > 0 && stopped[0][0] == stopped[0][1], "{stopped:?}");
}

#[test]
fn sources_arrive_and_are_counted() {
    let trace = vec![Write { at: 100 * MS, bytes: 5_000 }, Write { at: 300 * MS, bytes: 7_000 }];
    let udp = Traffic::Udp { packet: 1_000, rate: 8_000_000, size: Some(200_000) };
    let flows = [
        ends("file", 42_101, 2, &tcp(Source::File(3_000_000))),
        ends("stream", 42_102, 1, &tcp(Source::Stream(8_000_000))),
        ends("trace", 42_103, 1, &tcp(Source::Trace(trace))),
        ends("udp", 42_104, 1, &udp),
    ];
    let (answers, outcome) = run(flows.into_iter().flatten().collect());
    outcome.expect("all flows run");
    assert_eq!(answers[0], Answer::Ready { keys: Vec::new() });
    let (file, completed) = received(&answers, "file");
    assert_eq!(file.iter().map(|path| path[1]).sum::<u64>(), 3_000_000);
    assert!(completed.is_some_and(|at| (50 * MS..500 * MS).contains(&at)), "{completed:?}");
    // 10 kB every 10 ms for 450 ms; the bounds leave room for a slow machine.
    let (stream, completed) = received(&answers, "stream");
    assert!((200_000..=450_000).contains(&stream[0][1]), "{stream:?}");
    assert_eq!(completed, None);
    let (trace, completed) = received(&answers, "trace");
    assert_eq!(trace, [[5_000, 12_000]]);
    assert!(completed.is_some_and(|at| at >= 350 * MS), "{completed:?}");
    // 1 MB/s for 200 ms, headers included.
    let (udp, completed) = received(&answers, "udp");
    assert_eq!(udp, [[200_000, 200_000]]);
    assert!(completed.is_some_and(|at| at >= 249 * MS), "{completed:?}");
}

#[test]
fn a_flow_ends_at_its_stop() {
    let mut flow = ends("bulk", 42_111, 1, &tcp(Source::Bulk));
    for end in &mut flow {
        end.stop = Some(150 * MS);
    }
    let (answers, outcome) = run(flow.into());
    outcome.expect("it runs");
    let (bytes, _) = received(&answers, "bulk");
    assert!(bytes[0][0] > 0 && bytes[0][0] == bytes[0][1], "{bytes:?}");
}

#[test]
fn a_flow_that_this_host_cannot_do_ends_the_run() {
    let unknown = Traffic::Tcp {
        controller: "no-such-control".into(),
        pacing: false,
        mss: None,
        source: Source::Bulk,
    };
    let striped = striped("no-such-rule", Source::Bulk);
    for (traffic, part) in [
        (unknown, "`controller`: this kernel has no congestion control 'no-such-control'"),
        (striped, "no-such-rule"),
    ] {
        let (answers, outcome) = run(ends("bulk", 42_121, 1, &traffic).into());
        outcome.expect_err("it cannot run");
        let [Answer::Failed { flow, error }] = &answers[..] else { panic!("{answers:?}") };
        assert!(flow == "bulk" && error.contains(part), "{error}");
    }
}
