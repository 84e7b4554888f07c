//! What a controller hears of marks and of one-way delays.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::Host;
use policy::cc::{Acked, Allowance, Congestion, SinglePath, Start, Uncoupled};
use tcp::{Config, Endpoint};
use testnet::{Direction, Fate, Link, Network};
use units::{Bytes, Rate, Span, SubflowId, Time};

const MSS: u64 = 1_448;

/// A fixed window of 20 packets, and all that was acknowledged.
#[derive(Clone, Debug, Default)]
struct Recorder {
    acked: Arc<Mutex<Vec<Acked>>>,
}

impl SinglePath for Recorder {
    const NAME: &'static str = "recorder";

    fn handle_start(&mut self, _: Time, _: &Start) {}

    fn handle_acked(&mut self, _: Time, acked: &Acked) {
        self.acked.lock().expect("no thread panics").push(*acked);
    }

    fn handle_congestion(&mut self, _: Time, _: &Congestion) {}

    fn handle_timeout(&mut self, _: Time, _: Bytes) {}

    fn allowance(&self) -> Allowance {
        Allowance::window(Bytes(20 * MSS))
    }
}

/// Sends `bytes` over a network with a delay of 10 ms each way; `fate` gets the direction and the
/// number of each segment with data, or of each without. Returns what the sender's controller
/// heard, and the ends.
fn send(
    config: &Config,
    bytes: u64,
    mut fate: impl FnMut(Direction, bool, usize) -> Fate + 'static,
) -> (Vec<Acked>, Network<Host>) {
    let recorder = Recorder::default();
    let host = |endpoint| Host::new(endpoint, Box::new(Uncoupled::new(recorder.clone())));
    let client = Endpoint::client(config.clone(), SubflowId(0));
    let server = Endpoint::server(config.clone(), SubflowId(0));
    // A packet at a time.
    let link = Link { rate: Some(Rate::mbit(100)), ..Link::new(Span::from_millis(10)) };
    let mut network = Network::new([client, server].map(host), [link], 0);
    let mut counts = [0, 0];
    network.set_fates(move |sent| {
        let has_data = sent.packet.len > 0;
        let count = &mut counts[usize::from(has_data)];
        *count += 1;
        fate(sent.direction, has_data, *count - 1)
    });
    network.ends[0].open();
    network.ends[0].endpoint.write(Bytes(bytes));
    network.ends[0].endpoint.close();
    network.run_for(Span::from_secs(60));
    assert_eq!(network.ends[1].endpoint.received(), Bytes(bytes), "all has arrived");
    let acked = recorder.acked.lock().expect("no thread panics").clone();
    (acked, network)
}

fn marked(acked: &[Acked]) -> (u64, Bytes) {
    (
        acked.iter().map(|acked| acked.ce_packets).sum(),
        acked.iter().map(|acked| acked.ce_bytes).sum(),
    )
}

/// RFC 3168's flag is repeated until the sender confirms it, and covers all that is acknowledged
/// meanwhile.
#[test]
fn marks_are_counted_by_packet_and_byte() {
    let config = Config { ecn: true, ..Config::default() };
    let marks = [10, 11, 12, 40, 100];
    let (acked, network) = send(&config, 100 * MSS + 300, move |_, has_data, number| {
        if has_data && marks.contains(&number) { Fate::Marked } else { Fate::Arrives }
    });
    assert_eq!(marked(&acked), (5, Bytes(4 * MSS + 300)));
    let stats = network.ends[0].endpoint.stats();
    assert_eq!((stats.ce_packets, stats.ce_bytes), (5, Bytes(4 * MSS + 300)));
    assert!(stats.marks < 5, "the window is reduced once a round trip: {stats:?}");
    // A mark is known with the acknowledgement of its packet.
    let ends: Vec<u64> = acked
        .iter()
        .scan(0, |sum, acked| {
            *sum += acked.bytes.0;
            Some((*sum, acked.ce_packets))
        })
        .flat_map(|(end, marks)| vec![end / MSS; usize::try_from(marks).expect("few")])
        .collect();
    assert_eq!(ends, [11, 12, 13, 41, 100]);
}

/// The counters are sums: an acknowledgement brings what lost ones had brought.
#[test]
fn lost_acknowledgements_lose_no_marks() {
    let config = Config { ecn: true, ..Config::default() };
    let marks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&marks);
    let (acked, network) = send(&config, 400 * MSS, move |direction, has_data, number| {
        match (direction, has_data) {
            (Direction::Forward, true) if number.is_multiple_of(3) => {
                counted.fetch_add(1, Ordering::Relaxed);
                Fate::Marked
            }
            // Not the handshake's, nor the last ones.
            (Direction::Backward, false)
                if (5..120).contains(&number) && !number.is_multiple_of(4) =>
            {
                Fate::Lost
            }
            // It comes after its successors.
            (Direction::Backward, false) if number > 5 && number.is_multiple_of(16) => {
                Fate::Late(Span::from_millis(7))
            }
            _ => Fate::Arrives,
        }
    });
    let marks = marks.load(Ordering::Relaxed);
    assert!(marks >= 134, "{marks}");
    let stats = network.ends[0].endpoint.stats();
    assert_eq!((stats.ce_packets, stats.ce_bytes), (marks, Bytes(marks * MSS)));
    // What came twice at the end delivers nothing, and is not reported any more.
    assert!((marks - 5..=marks).contains(&marked(&acked).0), "{:?}", marked(&acked));
}

/// Marks count where data is missing, and do not hide it.
#[test]
fn marks_beside_losses_are_counted() {
    let config = Config { ecn: true, ..Config::default() };
    let (acked, network) = send(&config, 200 * MSS, |direction, has_data, number| {
        match (direction, has_data, number) {
            (Direction::Forward, true, 30 | 33 | 36 | 39) => Fate::Lost,
            (Direction::Forward, true, 31..=45) => Fate::Marked,
            _ => Fate::Arrives,
        }
    });
    assert_eq!(marked(&acked), (12, Bytes(12 * MSS)));
    let stats = network.ends[0].endpoint.stats();
    assert_eq!((stats.lost, stats.retransmitted, stats.timeouts), (4, 4, 0));
}

/// Accurate ECN tells three bits of the number of packets. Of 24 that are acknowledged at once, of
/// which eight are marked, they do not go up at all.
#[test]
fn three_bits_and_bytes_tell_all_marks() {
    let config = Config { ecn: true, accurate_ecn: true, ..Config::default() };
    let marks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&marks);
    let (acked, network) =
        send(&config, 400 * MSS, move |direction, has_data, number| match (direction, has_data) {
            (Direction::Forward, true) if number.is_multiple_of(3) && number < 390 => {
                counted.fetch_add(1, Ordering::Relaxed);
                Fate::Marked
            }
            (Direction::Backward, false) if number > 5 && number % 11 != 0 && number < 150 => {
                Fate::Lost
            }
            _ => Fate::Arrives,
        });
    let marks = marks.load(Ordering::Relaxed);
    assert!(marks >= 130, "{marks}");
    assert_eq!(marked(&acked), (marks, Bytes(marks * MSS)));
    let stats = network.ends[0].endpoint.stats();
    assert_eq!((stats.ce_packets, stats.ce_bytes), (marks, Bytes(marks * MSS)));
}

/// The acknowledgements of 100 packets with these marks, and the reductions.
fn acknowledgements(accurate_ecn: bool, is_marked: impl Fn(usize) -> bool + 'static) -> (u64, u64) {
    let config = Config { ecn: true, accurate_ecn, ..Config::default() };
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let (_, network) = send(&config, 100 * MSS, move |direction, has_data, number| {
        if (direction, has_data) == (Direction::Backward, false) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        if has_data && is_marked(number) { Fate::Marked } else { Fate::Arrives }
    });
    (count.load(Ordering::Relaxed), network.ends[0].endpoint.stats().marks)
}

/// RFC 9768, section 3.2.2.5.1: at once for the first of several marks, then for each second one.
#[test]
fn marks_one_after_the_other_are_acknowledged_in_pairs() {
    let (plain, _) = acknowledgements(true, |_| false);
    let (all, reductions) = acknowledgements(true, |_| true);
    assert!(all <= plain + 2, "{all} beside {plain}");
    assert!((5..=8).contains(&reductions), "once a round trip of 20 packets: {reductions}");
    let (single, _) = acknowledgements(true, |number| number % 5 == 4);
    assert!(single > plain + 5, "{single} beside {plain}");
    let (classic, _) = acknowledgements(false, |_| true);
    assert!(classic > all + 30, "{classic} beside {all}");
}

/// An echo stands until the sender confirms it, a counter grows once: what is marked while a
/// reduction is under way is no further one.
#[test]
fn marks_within_a_round_trip_are_one_reduction() {
    let early = |number: usize| (40..52).contains(&number);
    assert_eq!(acknowledgements(true, early).1, 1);
    assert_eq!(acknowledgements(true, |number| number == 40 || number == 70).1, 2);
}

/// Both directions' delays, apart: a packet that waits on its way changes one of them.
#[test]
fn timestamps_give_delays_of_both_directions() {
    let config = Config { delayed_ack: None, ..Config::default() };
    let late = Span::from_millis(3);
    let (acked, _) = send(&config, 60 * MSS, move |direction, has_data, number| {
        match (direction, has_data) {
            // The last of its flight, so that nothing is reordered.
            (Direction::Forward, true) if number == 39 => Fate::Late(late),
            (Direction::Backward, false) if number > 50 => Fate::Late(late + late),
            _ => Fate::Arrives,
        }
    });
    let delays = |of: fn(&Acked) -> Option<Span>| -> Vec<Span> {
        let all: Vec<Span> = acked.iter().map(|acked| of(acked).expect("stamped")).collect();
        let least = *all.iter().min().expect("some were acknowledged");
        // The clock of timestamps has microseconds. The first flight waits for itself.
        all[20..].iter().map(|delay| Span::from_micros((*delay - least).as_micros() & !3)).collect()
    };
    let data = delays(|acked| acked.one_way_delay);
    let back = delays(|acked| acked.ack_delay);
    assert_eq!(data.len(), 40);
    assert_eq!(data.iter().filter(|delay| **delay == late).count(), 1, "{data:?}");
    assert_eq!(data.iter().filter(|delay| **delay == Span::ZERO).count(), 39, "{data:?}");
    let waited = back.iter().filter(|delay| **delay == late + late).count();
    assert!((8..15).contains(&waited), "{back:?}");
    assert_eq!(back.iter().filter(|delay| **delay == Span::ZERO).count(), 40 - waited, "{back:?}");
}

#[test]
fn without_timestamps_there_is_no_delay() {
    let config = Config { timestamps: false, ..Config::default() };
    let (acked, _) = send(&config, 60 * MSS, |_, _, _| Fate::Arrives);
    assert!(acked.iter().all(|acked| acked.one_way_delay.is_none() && acked.ack_delay.is_none()));
    assert!(!acked.is_empty());
}
