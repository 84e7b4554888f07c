//! The reports to a controller: the handshake's round trip, and the state at each packet's sending.

mod common;

use std::sync::{Arc, Mutex};

use common::Host;
use policy::cc::{Acked, Allowance, Congestion, Lost, SinglePath, Start, Uncoupled};
use tcp::{Config, Endpoint};
use testnet::{Direction, Fate, Link, Network};
use units::{Bytes, Rate, Span, SubflowId, Time};

const ONE_WAY: Span = Span::from_millis(10);
const WINDOW: Bytes = Bytes(14_480);
const MSS: u64 = 1_448;

/// The reports that a controller received.
#[derive(Clone, Debug, Default)]
struct Notes {
    /// The initial round-trip times.
    starts: Vec<Option<Span>>,
    acked: Vec<Acked>,
    lost: Vec<Lost>,
}

/// A controller that records the reports.
#[derive(Clone, Debug)]
struct Listener {
    notes: Arc<Mutex<Notes>>,
    wants_snapshots: bool,
    /// The window, and the rate if it paces.
    window: Bytes,
    pacing: Option<Rate>,
}

impl Listener {
    fn new(wants_snapshots: bool) -> Listener {
        Listener { notes: Arc::default(), wants_snapshots, window: WINDOW, pacing: None }
    }

    fn note(&self, note: impl FnOnce(&mut Notes)) {
        note(&mut self.notes.lock().expect("no panic"));
    }
}

impl SinglePath for Listener {
    const NAME: &'static str = "listener";

    fn handle_start(&mut self, _now: Time, start: &Start) {
        self.note(|notes| notes.starts.push(start.rtt));
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        self.note(|notes| notes.acked.push(*acked));
    }

    fn handle_lost(&mut self, _now: Time, lost: &Lost) {
        self.note(|notes| notes.lost.push(*lost));
    }

    fn handle_congestion(&mut self, _now: Time, _congestion: &Congestion) {}

    fn handle_timeout(&mut self, _now: Time, _in_flight: Bytes) {}

    fn allowance(&self) -> Allowance {
        Allowance { pacing: self.pacing, ..Allowance::window(self.window) }
    }

    fn wants_snapshots(&self) -> bool {
        self.wants_snapshots
    }
}

/// The reports to the client's and the server's controllers while the client sends `packets`, of
/// which the packets with the indices `lost` are lost.
fn told(packets: u64, lost: &[u64], wants_snapshots: bool) -> [Notes; 2] {
    told_to(&Listener::new(wants_snapshots), packets, lost)
}

/// The same to copies of `listener`.
fn told_to(listener: &Listener, packets: u64, lost: &[u64]) -> [Notes; 2] {
    let config = Config::default();
    let listeners = [(); 2].map(|()| Listener { notes: Arc::default(), ..listener.clone() });
    let endpoints =
        [Endpoint::client(config.clone(), SubflowId(0)), Endpoint::server(config, SubflowId(0))];
    let hosts = endpoints.into_iter().zip(&listeners).map(|(endpoint, listener)| {
        Host::new(endpoint, Box::new(Uncoupled::new(listener.clone())))
    });
    let mut network = Network::new(hosts, [Link::new(ONE_WAY)], 0);
    let lost: Vec<u64> = lost.to_vec();
    network.set_fates(move |sent| {
        let is_lost = sent.direction == Direction::Forward && lost.contains(&sent.number);
        if is_lost { Fate::Lost } else { Fate::Arrives }
    });
    network.ends[0].endpoint.write(Bytes(packets * MSS));
    network.ends[0].open();
    network.run_for(Span::from_secs(3));
    assert_eq!(network.ends[1].endpoint.received(), Bytes(packets * MSS));
    listeners.map(|listener| listener.notes.lock().expect("no panic").clone())
}

#[test]
fn a_controller_begins_with_the_round_trip_of_the_handshake() {
    let both_ways = Some(ONE_WAY + ONE_WAY);
    assert_eq!(told(0, &[], true).map(|notes| notes.starts), [vec![both_ways], vec![both_ways]]);
}

/// Karn's rule: the answer may belong to either SYN.
#[test]
fn it_begins_without_one_after_a_repeated_syn() {
    let [client, server] = told(0, &[0], true);
    assert_eq!((client.starts, server.starts), (vec![None], vec![Some(ONE_WAY + ONE_WAY)]));
}

/// A window of ten packets; the fourth packet behind the SYN is lost.
#[test]
fn it_gets_the_state_at_sending_if_it_wants_snapshots() {
    let [told_all, _] = told(40, &[4], true);
    assert!(
        told_all.acked.iter().all(|acked| acked.window_at_sending == Some(WINDOW)),
        "{told_all:?}"
    );
    let fastest = told_all.acked.iter().filter_map(|acked| acked.delivery_rate).max();
    let window_a_round_trip: Rate = WINDOW / (ONE_WAY + ONE_WAY);
    assert_eq!(fastest, Some(window_a_round_trip));
    assert_eq!(
        told_all
            .lost
            .iter()
            .map(|lost| lost.in_flight_at_sending.expect("kept").0 / MSS)
            .collect::<Vec<_>>(),
        [4]
    );

    let [told_less, _] = told(40, &[4], false);
    let less = |acked: Acked| Acked { window_at_sending: None, delivery_rate: None, ..acked };
    assert_eq!(told_less.acked, told_all.acked.into_iter().map(less).collect::<Vec<_>>());
    let less = |lost: Lost| Lost { in_flight_at_sending: None, ..lost };
    assert_eq!(told_less.lost, told_all.lost.into_iter().map(less).collect::<Vec<_>>());
}

/// Headers do not count: with them a paced flow would have 3.5 % less than its controller says.
#[test]
fn a_pacing_rate_is_of_payload() {
    let pacing = Rate::mbit(10);
    let listener =
        Listener { window: Bytes(1 << 30), pacing: Some(pacing), ..Listener::new(false) };
    let [client, _] = told_to(&listener, 400, &[]);
    let sent: Vec<Time> = client.acked.iter().map(|acked| acked.sent_at).collect();
    let packets: Bytes = client.acked[1..].iter().map(|acked| acked.bytes).sum();
    let rate = packets / (sent[sent.len() - 1] - sent[0]);
    assert!((rate.as_f64() / pacing.as_f64() - 1.0).abs() < 0.01, "{rate}");
}
