//! Real losses and spurious ones: the undo of reductions, and duplicate acknowledgements after
//! recovery.

use std::collections::VecDeque;

use policy::cc::by_name;
use tcp::{Config, Detection, Endpoint, Stats};
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::Segment;

const MSS: u64 = 1_448;
const PACKETS: u64 = 120;

/// A link that takes a millisecond for each packet with data, and 20 ms to the other end in both
/// directions. Packets are numbered from 0.
#[derive(Clone, Debug)]
struct Link {
    /// Packets to lose, each as often as it is listed.
    drops: Vec<u64>,
    /// Packets that are delayed further at their first transmission.
    late: Vec<(u64, Span)>,
    /// Hosts process arrivals only at multiples of this.
    tick: Span,
    /// The number of packets to send.
    packets: u64,
}

impl Default for Link {
    fn default() -> Link {
        Link { drops: Vec::new(), late: Vec::new(), tick: Span::from_nanos(1), packets: PACKETS }
    }
}

impl Link {
    fn losing(drops: &[u64]) -> Link {
        Link { drops: drops.to_vec(), ..Link::default() }
    }

    /// The arrival of the packet `number` sent at `sent_at`; `None` if it is lost.
    fn arrival(&mut self, number: u64, sent_at: Time) -> Option<Time> {
        if let Some(index) = self.drops.iter().position(|drop| *drop == number) {
            self.drops.remove(index);
            return None;
        }
        let mut at = sent_at + Span::from_millis(20);
        if let Some(index) = self.late.iter().position(|late| late.0 == number) {
            at += self.late.remove(index).1;
        }
        Some(at)
    }

    fn ticked(&self, at: Time) -> Time {
        Time::from_nanos(at.as_nanos().next_multiple_of(self.tick.as_nanos()))
    }
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
}

fn run(config: Config, drops: &[u64]) -> Stats {
    run_over(config, Link::losing(drops)).stats
}

fn run_over(config: Config, mut link: Link) -> Outcome {
    let id = SubflowId(1);
    let mut ends = [Endpoint::client(config.clone(), id), Endpoint::server(config, id)];
    let mut controllers = [by_name("reno").expect("known"), by_name("reno").expect("known")];
    let mut air: [VecDeque<(Time, Segment)>; 2] = [VecDeque::new(), VecDeque::new()];
    let mut free_at = Time::ZERO;
    let mut now = Time::ZERO;
    let (mut window, mut unacked) = (Bytes::ZERO, Bytes::ZERO);
    ends[0].open(now, controllers[0].as_mut());
    ends[0].write(Bytes(link.packets * MSS));
    while ends[1].received() < Bytes(link.packets * MSS) || ends[0].in_flight() > Bytes::ZERO {
        assert!(
            now < Time::ZERO + Span::from_secs(60),
            "the transfer does not end: {:?}",
            ends[0].stats()
        );
        for side in 0..2 {
            let controller = controllers[side].as_mut();
            if ends[side].poll_deadline().is_some_and(|at| at <= now) {
                ends[side].handle_deadline(now, controller);
            }
            while let Some(transmit) = ends[side].poll_send(now, controller) {
                let segment = transmit.segment;
                let mut at = now + Span::from_millis(20);
                if segment.len > 0 {
                    free_at = free_at.max(now) + Span::from_millis(1);
                    let Some(arrival) = link.arrival((segment.seq - 1) / MSS, free_at) else {
                        continue;
                    };
                    at = arrival;
                }
                let at = link.ticked(at);
                let position = air[1 - side].partition_point(|earlier| earlier.0 <= at);
                air[1 - side].insert(position, (at, segment));
            }
        }
        window = window.max(controllers[0].allowance(id).window);
        unacked = unacked.max(Bytes(link.packets * MSS) - ends[0].unsent() - ends[0].acked());
        let arrivals = air.iter().filter_map(|way| way.front().map(|(at, _)| *at));
        let next = arrivals
            .chain(ends.iter().filter_map(Endpoint::poll_deadline))
            .min()
            .expect("somebody waits");
        now = next.max(now);
        for side in 0..2 {
            while air[side].front().is_some_and(|(at, _)| *at <= now) {
                let (_, segment) = air[side].pop_front().expect("it is there");
                ends[side].handle_segment(now, &segment, false, controllers[side].as_mut());
                while ends[side].poll_event().is_some() {}
            }
        }
    }
    assert!(link.drops.is_empty() && link.late.is_empty(), "never sent: {link:?}");
    Outcome { stats: ends[0].stats(), threshold: controllers[0].threshold(id), window, unacked }
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
    let Outcome { stats, threshold, .. } = run_over(patient, Link::losing(&[30, 30]));
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
        run_over(config, Link { packets: 2_000, ..Link::losing(&[30, 30]) });
    assert_eq!((stats.recoveries, stats.timeouts), (1, 1), "{stats:?}");
    assert!(unacked < Bytes(400 * MSS), "{unacked}");
}

/// The first gap is a late packet, the second a loss. After the undo for the first, the second must
/// still be detected, and cost half the window, not half of the data sent meanwhile.
#[test]
fn a_loss_behind_a_late_packet_is_detected_and_reduces_the_window() {
    for detection in [Detection::Sack, Detection::Rack] {
        let config = Config { initial_threshold: Some(Bytes(16 * MSS)), ..config(detection) };
        let link =
            Link { late: vec![(40, Span::from_millis(32))], packets: 400, ..Link::losing(&[42]) };
        let Outcome { stats, threshold, window, .. } = run_over(config, link);
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
        let link =
            Link { late: vec![(40, Span::from_millis(45))], packets: 400, ..Link::losing(&[42]) };
        let Outcome { stats, threshold, window, .. } = run_over(config, link);
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
        let late = [40, 42, 44].map(|number| (number, Span::from_millis(35))).to_vec();
        let stats = run_over(config(detection), Link { late, ..Link::default() }).stats;
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
    let late =
        [(100, 8), (102, 8), (104, 8)].map(|(number, ms)| (number, Span::from_millis(ms))).to_vec();
    for detection in [Detection::Sack, Detection::Rack] {
        let config = Config { initial_threshold: Some(Bytes(60 * MSS)), ..config(detection) };
        let stats =
            run_over(config, Link { late: late.clone(), packets: 400, ..Link::default() }).stats;
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
        let link = Link { late: vec![(40, Span::from_millis(32))], ..Link::losing(&[44]) };
        let stats = run_over(config, link).stats;
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
            let link = Link { tick: Span::from_millis(tick), ..Link::losing(&[30]) };
            let stats = run_over(config(detection), link).stats;
            assert_eq!(
                (stats.undone, stats.recoveries),
                (0, 1),
                "{detection:?}, {tick} ms: {stats:?}"
            );
        }
    }
}
