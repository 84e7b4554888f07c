//! Real losses and spurious ones: the undo of reductions, and duplicate acknowledgements after
//! recovery.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::Host;
use policy::cc::by_name;
use tcp::{Config, Detection, Endpoint, Stats};
use testnet::{Fate, Link, Network, Sent};
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::Segment;

const MSS: u64 = 1_448;
const PACKETS: u64 = 120;

/// A link that takes a millisecond for each packet with data, and 20 ms to the other end in both
/// directions. Packets are numbered from 0.
#[derive(Clone, Debug)]
struct Script {
    /// Packets to lose, each as often as it is listed.
    drops: Vec<u64>,
    /// Packets that are delayed further at their first transmission.
    late: Vec<Late>,
    /// Hosts process arrivals only at multiples of this.
    tick: Span,
    /// The number of packets to send.
    packets: u64,
}

impl Default for Script {
    fn default() -> Script {
        Script { drops: Vec::new(), late: Vec::new(), tick: Span::from_nanos(1), packets: PACKETS }
    }
}

impl Script {
    fn losing(drops: &[u64]) -> Script {
        Script { drops: drops.to_vec(), ..Script::default() }
    }

    /// What becomes of a segment.
    fn fate(&mut self, sent: &Sent<Segment>) -> Fate {
        if sent.packet.len > 0 {
            let number = (sent.packet.seq - 1) / MSS;
            if let Some(index) = self.drops.iter().position(|drop| *drop == number) {
                self.drops.remove(index);
                return Fate::Lost;
            }
            if let Some(index) = self.late.iter().position(|late| late.number == number) {
                return Fate::Late(self.late.remove(index).by);
            }
        }
        Fate::Arrives
    }
}

/// A packet that comes late.
#[derive(Clone, Copy, Debug)]
struct Late {
    number: u64,
    by: Span,
}

fn late(number: u64, millis: u64) -> Late {
    Late { number, by: Span::from_millis(millis) }
}

/// The result of a transfer.
struct Outcome {
    stats: Stats,
    /// The slow start threshold at the end.
    threshold: Option<Bytes>,
    /// The largest window.
    window: Bytes,
    /// The most bytes sent and not acknowledged cumulatively.
    unacked: Bytes,
    /// From the SYN until all is acknowledged.
    took: Span,
}

fn run(config: Config, drops: &[u64]) -> Stats {
    run_over(config, Script::losing(drops)).stats
}

fn run_over(config: Config, script: Script) -> Outcome {
    let id = SubflowId(1);
    let total = Bytes(script.packets * MSS);
    let host = |endpoint| Host::new(endpoint, by_name("reno").expect("known"));
    let ends = [Endpoint::client(config.clone(), id), Endpoint::server(config, id)].map(host);
    let delay = Span::from_millis(20);
    let link = Link { rate: Some(Bytes(MSS) / Span::from_millis(1)), ..Link::new(delay) };
    let mut network = Network::new(ends, [link], 0);
    network.set_tick(script.tick);
    let script = Rc::new(RefCell::new(script));
    let rest = Rc::clone(&script);
    network.set_fates(move |sent| script.borrow_mut().fate(sent));
    network.ends[0].open();
    network.ends[0].endpoint.write(total);
    let (mut window, mut unacked) = (Bytes::ZERO, Bytes::ZERO);
    let limit = Time::ZERO + Span::from_secs(60);
    let is_over = network.run_until(limit, |network| {
        let [Host { endpoint: client, controller, .. }, server] = &network.ends[..] else {
            unreachable!("there are two")
        };
        window = window.max(controller.allowance(id).window);
        unacked = unacked.max(total - client.unsent() - client.acked());
        server.endpoint.received() == total && client.in_flight() == Bytes::ZERO
    });
    let Host { endpoint: client, controller, .. } = &network.ends[0];
    assert!(is_over, "the transfer does not end: {:?}", client.stats());
    let rest = rest.borrow();
    assert!(rest.drops.is_empty() && rest.late.is_empty(), "never sent: {rest:?}");
    let threshold = controller.threshold(id);
    let took = network.now() - Time::ZERO;
    Outcome { stats: client.stats(), threshold, window, unacked, took }
}

fn config(detection: Detection) -> Config {
    Config {
        detection,
        delayed_ack: None,
        timestamps: true,
        rate_reduction: false,
        ..Config::default()
    }
}

/// Each retransmission of a recovery is acknowledged after later ones have left. That does not make
/// the first one spurious.
#[test]
fn many_losses_in_one_window_are_not_undone() {
    let drops = [20, 22, 24, 26, 28, 30, 32, 34, 36];
    for detection in [Detection::Sack, Detection::Rack] {
        let stats = run(config(detection), &drops);
        assert_eq!(
            (stats.recoveries, stats.undone, stats.timeouts),
            (1, 0, 0),
            "{detection:?}: {stats:?}"
        );
        assert_eq!(stats.retransmitted, 9, "{detection:?}");
    }
}

#[test]
fn a_timeout_after_real_losses_is_not_undone() {
    // One packet is lost twice, with many losses behind it: slow start retransmits them.
    let drops = [20, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32];
    for detection in [Detection::Reno, Detection::NewReno, Detection::Sack] {
        let stats = run(config(detection), &drops);
        assert_eq!((stats.undone, stats.timeouts), (0, 1), "{detection:?}: {stats:?}");
    }
}

/// After a timeout everything is retransmitted, most of it needlessly; the duplicate
/// acknowledgements for it are no loss (RFC 6582, section 3.2).
#[test]
fn duplicates_after_a_timeout_are_no_loss() {
    for detection in [Detection::Reno, Detection::NewReno] {
        let stats = run(Config { timestamps: false, ..config(detection) }, &[20, 20]);
        assert_eq!((stats.recoveries, stats.timeouts), (1, 1), "{detection:?}: {stats:?}");
    }
}

/// With four packets a round trip, the third duplicate arrives late. The retransmission restarts
/// the timer.
#[test]
fn a_fast_retransmission_restarts_the_timer() {
    for detection in [Detection::NewReno, Detection::Sack] {
        let small = Config {
            initial_window: Bytes(4 * MSS),
            initial_threshold: Some(Bytes(4 * MSS)),
            min_rto: Span::from_millis(50),
            timestamps: false,
            ..config(detection)
        };
        let stats = run(small, &[16]);
        assert_eq!(
            (stats.recoveries, stats.timeouts, stats.retransmitted),
            (1, 0, 1),
            "{detection:?}: {stats:?}"
        );
    }
}

/// Only the first partial acknowledgement restarts the timer: a window with many losses costs a
/// timeout, not a round trip for each of them (RFC 6582, section 4).
#[test]
fn many_losses_without_selective_acknowledgements_end_in_a_timeout() {
    let packets = 400;
    let with = |losses: usize| {
        let drops: Vec<u64> = (100..).step_by(2).take(losses).collect();
        let script = Script { packets, ..Script::losing(&drops) };
        run_over(config(Detection::NewReno), script)
    };
    // A round trip is at least 41 ms, the least timeout 200 ms.
    let few = with(3);
    assert_eq!((few.stats.recoveries, few.stats.timeouts), (1, 0), "{:?}", few.stats);
    let many = with(40);
    assert_eq!((many.stats.recoveries, many.stats.timeouts), (1, 1), "{:?}", many.stats);
    let one_by_one = Span::from_millis(41) * 40;
    assert!(many.took < one_by_one, "{} ms", many.took.as_millis());
}

/// A retransmission is lost too, and new data is sent until the timer expires. That must not raise
/// the threshold.
#[test]
fn a_timeout_reduces_the_window_not_the_data_behind_the_gap() {
    let patient = Config {
        initial_threshold: Some(Bytes(16 * MSS)),
        min_rto: Span::from_millis(400),
        timestamps: false,
        ..config(Detection::Sack)
    };
    let Outcome { stats, threshold, .. } = run_over(patient, Script::losing(&[30, 30]));
    assert_eq!((stats.recoveries, stats.timeouts), (1, 1), "{stats:?}");
    assert!(threshold.is_some_and(|threshold| threshold <= Bytes(10 * MSS)), "{threshold:?}");
}

/// A retransmission is lost too, with much more to send: arrivals behind the gap do not delay the
/// timeout.
#[test]
fn arrivals_behind_a_gap_do_not_delay_the_timeout() {
    let config = Config {
        initial_threshold: Some(Bytes(16 * MSS)),
        timestamps: false,
        ..config(Detection::Sack)
    };
    let Outcome { stats, unacked, .. } =
        run_over(config, Script { packets: 2_000, ..Script::losing(&[30, 30]) });
    assert_eq!((stats.recoveries, stats.timeouts), (1, 1), "{stats:?}");
    assert!(unacked < Bytes(400 * MSS), "{unacked}");
}

/// The first gap is a late packet, the second a loss. After the undo for the first, the second must
/// still be detected, and cost half the window, not half of the data sent meanwhile.
#[test]
fn a_loss_behind_a_late_packet_is_detected_and_reduces_the_window() {
    for detection in [Detection::Sack, Detection::Rack] {
        let config = Config { initial_threshold: Some(Bytes(16 * MSS)), ..config(detection) };
        let script = Script { late: vec![late(40, 32)], packets: 400, ..Script::losing(&[42]) };
        let Outcome { stats, threshold, window, .. } = run_over(config, script);
        assert_eq!(
            (stats.undone, stats.recoveries, stats.timeouts),
            (1, 2, 0),
            "{detection:?}: {stats:?}"
        );
        let half = Bytes(window.0 / 2);
        assert!(
            threshold.is_some_and(|threshold| threshold <= half),
            "{detection:?}: {threshold:?} of {window}"
        );
    }
}

/// Here the lost packet is retransmitted before the late one arrives. The loss was real, so the
/// reduction stays.
#[test]
fn one_loss_among_late_packets_justifies_the_reduction() {
    for detection in [Detection::Sack, Detection::Rack] {
        let config = Config { initial_threshold: Some(Bytes(16 * MSS)), ..config(detection) };
        let script = Script { late: vec![late(40, 45)], packets: 400, ..Script::losing(&[42]) };
        let Outcome { stats, threshold, window, .. } = run_over(config, script);
        assert_eq!(
            (stats.undone, stats.recoveries, stats.timeouts),
            (0, 1, 0),
            "{detection:?}: {stats:?}"
        );
        let half = Bytes(window.0 / 2);
        assert!(
            threshold.is_some_and(|threshold| threshold <= half),
            "{detection:?}: {threshold:?} of {window}"
        );
    }
}

#[test]
fn several_late_packets_are_undone_together() {
    for detection in [Detection::Sack, Detection::Rack] {
        let late = [40, 42, 44].map(|number| late(number, 35)).to_vec();
        let stats = run_over(config(detection), Script { late, ..Script::default() }).stats;
        assert_eq!(
            (stats.undone, stats.recoveries, stats.timeouts),
            (1, 1, 0),
            "{detection:?}: {stats:?}"
        );
    }
}

/// Only the first late packet has been retransmitted when it arrives. The others must not count as
/// lost, although later packets have arrived.
#[test]
fn reordering_is_detected_once() {
    let late = [100, 102, 104].map(|number| late(number, 8)).to_vec();
    for detection in [Detection::Sack, Detection::Rack] {
        let config = Config { initial_threshold: Some(Bytes(60 * MSS)), ..config(detection) };
        let stats =
            run_over(config, Script { late: late.clone(), packets: 400, ..Script::default() })
                .stats;
        let seen = (stats.undone, stats.recoveries, stats.retransmitted, stats.timeouts);
        assert_eq!(seen, (1, 1, 1, 0), "{detection:?}: {stats:?}");
    }
}

/// The same without selective acknowledgements: the duplicates after the late packet do not come
/// from retransmissions, because there was only one.
#[test]
fn three_duplicates_after_a_late_packet_are_a_loss() {
    for detection in [Detection::Reno, Detection::NewReno] {
        let config = Config { initial_threshold: Some(Bytes(16 * MSS)), ..config(detection) };
        let script = Script { late: vec![late(40, 32)], ..Script::losing(&[44]) };
        let stats = run_over(config, script).stats;
        assert_eq!(
            (stats.undone, stats.recoveries, stats.timeouts),
            (1, 2, 0),
            "{detection:?}: {stats:?}"
        );
    }
}

/// Segments that are processed together echo the timestamp of the one that filled the gap.
#[test]
fn a_slow_receiver_does_not_make_a_loss_look_spurious() {
    for detection in [Detection::Sack, Detection::Rack] {
        for tick in 2..8 {
            let script = Script { tick: Span::from_millis(tick), ..Script::losing(&[30]) };
            let stats = run_over(config(detection), script).stats;
            assert_eq!(
                (stats.undone, stats.recoveries),
                (0, 1),
                "{detection:?}, {tick} ms: {stats:?}"
            );
        }
    }
}

/// At the end of the data too few packets arrive behind a loss to declare it. In recovery they are
/// sent again all the same: those below the highest delivery, and the last one (RFC 6675, rules 3
/// and 4 of `NextSeg`).
#[test]
fn the_tail_of_a_recovery_needs_no_timeout() {
    for drops in [&[100, 118][..], &[100, 119], &[100, 118, 119], &[100, 116, 117, 118, 119]] {
        let stats = run(config(Detection::Sack), drops);
        assert_eq!((stats.timeouts, stats.recoveries), (0, 1), "{drops:?}: {stats:?}");
        // The last one may only have been on its way.
        let lost = drops.len() as u64;
        assert!((lost..=lost + 1).contains(&stats.retransmitted), "{drops:?}: {stats:?}");
    }
}
