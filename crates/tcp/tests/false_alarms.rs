//! What is lost is lost, and what only looks like it is not: the undoing of reductions, and duplicates after recovery.

use std::collections::VecDeque;

use policy::cc::by_name;
use tcp::{Config, Detection, Endpoint, Stats};
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::Segment;

const MSS: u64 = 1_448;
const PACKETS: u64 = 120;

/// Sends 120 packets over a link that takes a millisecond for each and 20 ms to the other end. `drops` are numbers of packets, the first is 0: each
/// is lost as often as it is listed.
fn run(config: Config, drops: &[u64]) -> Stats {
    run_to_threshold(config, drops).0
}

/// The same, with the slow start threshold in the end.
fn run_to_threshold(config: Config, drops: &[u64]) -> (Stats, Option<Bytes>) {
    let mut drops = drops.to_vec();
    let id = SubflowId(1);
    let mut ends = [Endpoint::client(config.clone(), id), Endpoint::server(config, id)];
    let mut controllers = [by_name("reno").expect("known"), by_name("reno").expect("known")];
    let mut air: [VecDeque<(Time, Segment)>; 2] = [VecDeque::new(), VecDeque::new()];
    let mut free_at = Time::ZERO;
    let mut now = Time::ZERO;
    ends[0].open(now, controllers[0].as_mut());
    ends[0].write(Bytes(PACKETS * MSS));
    while ends[1].received() < Bytes(PACKETS * MSS) || ends[0].in_flight() > Bytes::ZERO {
        assert!(now < Time::ZERO + Span::from_secs(60), "it takes for ever: {:?}", ends[0].stats());
        for side in 0..2 {
            let controller = controllers[side].as_mut();
            if ends[side].poll_deadline().is_some_and(|at| at <= now) {
                ends[side].handle_deadline(now, controller);
            }
            while let Some(transmit) = ends[side].poll_send(now, controller) {
                let segment = transmit.segment;
                let mut at = now;
                if segment.len > 0 {
                    free_at = free_at.max(now) + Span::from_millis(1);
                    at = free_at;
                    let number = (segment.seq - 1) / MSS;
                    if let Some(index) = drops.iter().position(|drop| *drop == number) {
                        drops.remove(index);
                        continue;
                    }
                }
                air[1 - side].push_back((at + Span::from_millis(20), segment));
            }
        }
        let arrivals = air.iter().filter_map(|way| way.front().map(|(at, _)| *at));
        let next = arrivals.chain(ends.iter().filter_map(Endpoint::poll_deadline)).min().expect("somebody waits");
        now = next.max(now);
        for side in 0..2 {
            while air[side].front().is_some_and(|(at, _)| *at <= now) {
                let (_, segment) = air[side].pop_front().expect("it is there");
                ends[side].handle_segment(now, &segment, false, controllers[side].as_mut());
                while ends[side].poll_event().is_some() {}
            }
        }
    }
    assert!(drops.is_empty(), "never sent: {drops:?}");
    (*ends[0].stats(), controllers[0].threshold(id))
}

fn config(detection: Detection) -> Config {
    Config { detection, delayed_ack: None, timestamps: true, rate_reduction: false, ..Config::default() }
}

/// Each retransmission of a recovery is answered after later ones have left. That is no sign that the first was for nothing.
#[test]
fn many_losses_in_one_window_are_not_undone() {
    let drops = [20, 22, 24, 26, 28, 30, 32, 34, 36];
    for detection in [Detection::Sack, Detection::Rack] {
        let stats = run(config(detection), &drops);
        assert_eq!((stats.recoveries, stats.undone, stats.timeouts), (1, 0, 0), "{detection:?}: {stats:?}");
        assert_eq!(stats.retransmitted, 9, "{detection:?}");
    }
}

#[test]
fn a_timeout_after_real_losses_is_not_undone() {
    // Lost twice, and much behind it: what is sent again comes in slow start.
    let drops = [20, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32];
    for detection in [Detection::Reno, Detection::NewReno, Detection::Sack] {
        let stats = run(config(detection), &drops);
        assert_eq!((stats.undone, stats.timeouts), (0, 1), "{detection:?}: {stats:?}");
    }
}

/// After a timeout everything is sent again, most of it for nothing; the duplicates that answer this are no loss (RFC 6582, section 3.2).
#[test]
fn duplicates_after_a_timeout_are_no_loss() {
    for detection in [Detection::Reno, Detection::NewReno] {
        let stats = run(Config { timestamps: false, ..config(detection) }, &[20, 20]);
        assert_eq!((stats.recoveries, stats.timeouts), (1, 1), "{detection:?}: {stats:?}");
    }
}

/// With four packets a round trip, three duplicates come late. The retransmission then has a whole timeout to be answered in.
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
        assert_eq!((stats.recoveries, stats.timeouts, stats.retransmitted), (1, 0, 1), "{detection:?}: {stats:?}");
    }
}

/// A retransmission is lost too, and until the timer runs out new data goes on. That is no reason for a large threshold.
#[test]
fn a_timeout_reduces_the_window_not_all_that_is_behind_the_gap() {
    let patient = Config {
        initial_threshold: Some(Bytes(16 * MSS)),
        min_rto: Span::from_millis(400),
        timestamps: false,
        ..config(Detection::Sack)
    };
    let (stats, threshold) = run_to_threshold(patient, &[30, 30]);
    assert_eq!((stats.recoveries, stats.timeouts), (1, 1), "{stats:?}");
    assert!(threshold.is_some_and(|threshold| threshold <= Bytes(10 * MSS)), "{threshold:?}");
}
