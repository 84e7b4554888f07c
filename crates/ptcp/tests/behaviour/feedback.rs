//! What a controller hears of marks and of one-way delays.

use std::sync::{Arc, Mutex};

use policy::cc::{Acked, Allowance, Congestion, SinglePath, Start, Uncoupled};
use policy::sched::packet;
use ptcp::{Config, Connection};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Span, SubflowId, Time};
use wire::ptcp::Body;

use crate::pair::{Fate, Pair, Sent, line, ms};

/// A fixed window of 20 packets, and all that was acknowledged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
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
        Allowance::window(Bytes(20 * 1_500))
    }
}

/// A client with a recorder, and a server, over a path of 10 ms and 100 Mbit/s.
pub(crate) fn recorded(config: &Config) -> (Pair, Recorder) {
    let recorder = Recorder::default();
    let end = |is_client: bool| {
        let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(u64::from(is_client)));
        let controller = Box::new(Uncoupled::new(recorder.clone()));
        let scheduler = packet::by_name("lowest-rtt").expect("it is known");
        let make = if is_client { Connection::client } else { Connection::server };
        make(config.clone(), controller, scheduler, tokens)
    };
    (Pair::of([end(true), end(false)], &[line(10, 100)]), recorder)
}

/// All that was acknowledged so far.
fn taken(recorder: &Recorder) -> Vec<Acked> {
    std::mem::take(&mut recorder.acked.lock().expect("no thread panics"))
}

/// A tenth of the packets is marked, more than 8 bits count in all, and most acknowledgements are
/// lost.
#[test]
fn marks_are_counted_by_packet_and_byte() {
    let (mut pair, recorder) = recorded(&Config { ecn: true, ..Config::default() });
    pair.bulk(Bytes::mib(6));
    pair.run_for(ms(100));
    let loses = pair.now() + Span::from_secs(1);
    pair.fates(move |sent: &Sent| match sent.packet.body {
        Body::Data(_) if sent.packet.number % 10 == 3 => Fate::Marked,
        Body::Ack(_) if sent.at < loses && !sent.packet.number.is_multiple_of(4) => Fate::Lost,
        _ => Fate::Arrives,
    });
    let from = pair.now();
    pair.run_for(Span::from_secs(20));
    let marked: Vec<u64> = pair
        .data_since(from)
        .filter(|(sent, _)| sent.packet.number % 10 == 3)
        .map(|(sent, _)| sent.packet.datagram_len() as u64)
        .collect();
    assert!(marked.len() > 256, "{}", marked.len());
    let acked = taken(&recorder);
    let packets: u64 = acked.iter().map(|acked| acked.ce_packets).sum();
    let bytes: Bytes = acked.iter().map(|acked| acked.ce_bytes).sum();
    assert_eq!((packets, bytes.0), (marked.len() as u64, marked.iter().sum()));
    let stats = *pair.client().stats(SubflowId(0)).expect("the path is open");
    assert_eq!((stats.marks, stats.marked_bytes), (packets, bytes));
}

/// A path that no packet was marked on pays nothing for the counters.
#[test]
fn counters_take_room_once_they_count() {
    let (mut pair, _) = recorded(&Config { ecn: true, ..Config::default() });
    pair.bulk(Bytes::mib(1));
    pair.run_for(ms(60));
    let marks = pair.now();
    pair.fates(move |sent| {
        let is_it = sent.is_ecn_capable && sent.at < marks + ms(1);
        if is_it { Fate::Marked } else { Fate::Arrives }
    });
    pair.run_for(ms(200));
    let sizes = |is_early: bool| -> Vec<usize> {
        let sent = pair.log().into_iter();
        let sent = sent.filter(|sent| !sent.to_server && (sent.at < marks) == is_early);
        let size = |sent: Sent| match &sent.packet.body {
            Body::Ack(ack) => Some(sent.packet.body_len() - 4 * ack.older.len()),
            _ => None,
        };
        sent.filter_map(size).collect()
    };
    let (before, after) = (sizes(true), sizes(false));
    assert!(before.iter().all(|size| *size == 34), "{before:?}");
    assert_eq!(after.last(), Some(&40), "{after:?}");
}

/// A window with many losses, none of whose acknowledgements arrives: the answer to the probe names
/// all that did.
#[test]
fn what_arrives_while_acknowledgements_fail_is_not_lost() {
    let (mut pair, _) = recorded(&Config::default());
    pair.bulk(Bytes::mib(8));
    pair.run_for(ms(100));
    let begin = pair.now();
    let end = begin + ms(30);
    let is_lost = move |sent: &Sent| {
        sent.to_server && (begin..end).contains(&sent.at) && sent.packet.number.is_multiple_of(3)
    };
    pair.fates(move |sent| {
        let fails = !sent.to_server && (begin..end).contains(&sent.at);
        if fails || is_lost(sent) { Fate::Lost } else { Fate::Arrives }
    });
    pair.run_for(Span::from_secs(3));
    let lost = pair.log().iter().filter(|sent| is_lost(sent)).count() as u64;
    let stats = *pair.client().stats(SubflowId(0)).unwrap();
    assert!(lost > 5, "{lost}");
    assert_eq!((stats.lost, stats.spurious), (lost, 0));
}

/// Both directions' delays, apart.
#[test]
fn stamps_give_delays_of_both_directions() {
    let (mut pair, recorder) = recorded(&Config::default());
    pair.bulk(Bytes::mib(8));
    pair.run_for(ms(400));
    let means = |acked: &[Acked]| {
        let sums = acked.iter().fold((0, 0, 0), |sums, acked| {
            match (acked.one_way_delay, acked.ack_delay) {
                (Some(data), Some(ack)) => {
                    (sums.0 + 1, sums.1 + data.as_micros(), sums.2 + ack.as_micros())
                }
                _ => sums,
            }
        });
        assert!(sums.0 > 20, "{} samples", sums.0);
        (sums.1 / sums.0, sums.2 / sums.0)
    };
    taken(&recorder);
    pair.run_for(ms(100));
    let (data, back) = means(&taken(&recorder));
    pair.fates(|sent| if sent.to_server { Fate::Late(ms(4)) } else { Fate::Arrives });
    pair.run_for(ms(100));
    taken(&recorder);
    pair.run_for(ms(100));
    let (late, back_again) = means(&taken(&recorder));
    assert!((3_700..4_300).contains(&(late - data)), "{data} and {late}");
    assert!(back.abs_diff(back_again) < 300, "{back} and {back_again}");
    pair.fates(|sent| if sent.to_server { Fate::Arrives } else { Fate::Late(ms(4)) });
    pair.run_for(ms(100));
    taken(&recorder);
    pair.run_for(ms(100));
    let (data_again, late) = means(&taken(&recorder));
    assert!((3_700..4_300).contains(&(late - back)), "{back} and {late}");
    assert!(data.abs_diff(data_again) < 300, "{data} and {data_again}");
}

/// Datagrams carry no time of sending.
#[test]
fn a_packet_without_a_stamp_has_no_delay() {
    let (mut pair, recorder) = recorded(&Config::default());
    pair.run_for(ms(200));
    for _ in 0..10 {
        pair.client().send_datagram(Bytes(100)).expect("there is room");
    }
    pair.run_for(ms(200));
    let acked = taken(&recorder);
    assert!(!acked.is_empty());
    for acked in acked {
        assert_eq!((acked.one_way_delay, acked.ack_delay), (None, None));
    }
}
