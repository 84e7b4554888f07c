//! Simulated packets as on the wire: a run in which every packet of a striped flow is encoded,
//! sealed as it leaves, opened as it arrives, and parsed. What is read is what was simulated, so
//! that the run is the same, to its digest.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use netsim::{Event, HostId};
use scenario::{Document, Packet, RunOptions};
use secure::testing::Strangers;
use secure::{Limits, OpenError, PacketNumber, Session, Settings};
use units::{Seed, SubflowId, Time};
use wire::datagram::{self, Outer};
use wire::ptcp::{Body, Piece, TAG};

/// One flow, whose subflows are the connections 0 and 1.
const TWO_PATHS: &str = r#"
name = "sealed"
runs = 1
duration = "8 s"

[[link]]
name = "first"
between = ["sender", "receiver"]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "20 packets"
loss = 0.005

[[link]]
name = "second"
between = ["sender", "receiver"]
rate = "5 Mbit/s"
delay = "20 ms"
queue = "32 KiB"
duplicate = 0.01
reorder = { probability = 0.01, delay = "3 ms" }

[[flow]]
name = "striped"
from = "sender"
to = "receiver"
transport = "ptcp"
controller = "balia"
subflows = [["first"], ["second"]]
"#;

/// The label of the handshake.
const LABEL: u64 = 0x1234_5678_9abc_def0;

/// The keys of both ends, and the datagrams in flight or kept for their copies.
struct Wire {
    sessions: [Session; 2],
    /// The host that sent first.
    client: Option<HostId>,
    datagrams: BTreeMap<(usize, u16, u64), Vec<u8>>,
    opened: BTreeSet<(usize, u16, u64)>,
    flights: u32,
}

impl Wire {
    fn new() -> Wire {
        let settings = Settings { update_after: 1_000, ..Settings::default() };
        let (client, server) = Strangers::new(settings, Limits::default()).shake_hands(|_| ());
        Wire {
            sessions: [client, server],
            client: None,
            datagrams: BTreeMap::new(),
            opened: BTreeSet::new(),
            flights: 0,
        }
    }

    fn record(&mut self, now: Time, event: Event<'_, Packet>) {
        match event {
            Event::Sent { host, packet } => {
                let client = *self.client.get_or_insert(host);
                self.seal(now, usize::from(host != client), packet);
            }
            Event::Delivered { host, packet, .. } => {
                self.open(now, usize::from(Some(host) == self.client), packet);
            }
            _ => {}
        }
    }

    fn seal(&mut self, now: Time, from: usize, packet: &Packet) {
        let Packet::Ptcp { connection, packet, .. } = packet else { panic!("there is one flow") };
        let path = u16::try_from(*connection).unwrap();
        let mut bytes = Vec::new();
        if let Body::Flight(piece) = packet.body {
            let number = (packet.number, 2);
            let level = piece.flight.level();
            datagram::emit_handshake(level, datagram::VERSION, LABEL, &[], number, &mut bytes);
            packet.emit(&mut bytes);
            bytes.extend([0; TAG]);
            self.flights += 1;
        } else {
            let session = &mut self.sessions[from];
            // It may be open.
            let _ = session.open_path(SubflowId(path));
            let mut plain = Vec::new();
            packet.emit(&mut plain);
            plain.extend(payload(packet));
            let number = PacketNumber { path: SubflowId(path), number: packet.number };
            session.seal(now, number, &plain, &mut bytes).unwrap();
        }
        assert_eq!(bytes.len(), packet.datagram_len(), "{packet:?}");
        self.datagrams.insert((from, path, packet.number), bytes);
    }

    fn open(&mut self, now: Time, from: usize, packet: &Packet) {
        let Packet::Ptcp { connection, packet, .. } = packet else { panic!("there is one flow") };
        let path = u16::try_from(*connection).unwrap();
        let id = (from, path, packet.number);
        let mut bytes = self.datagrams[&id].clone();
        let is_first = self.opened.insert(id);
        match Outer::parse(&bytes).unwrap() {
            Outer::Handshake { level, label, number_at, .. } => {
                assert_eq!(label, LABEL);
                let sealed = &bytes[number_at + 2..bytes.len() - TAG];
                let piece = Piece::parse(level, from == 0, sealed).unwrap();
                assert_eq!(Body::Flight(piece), packet.body);
            }
            Outer::Data { label } => {
                let session = &mut self.sessions[1 - from];
                assert!(session.path_of(label).is_none_or(|of_label| of_label == SubflowId(path)));
                match session.open(now, SubflowId(path), &mut bytes) {
                    Ok(opened) => {
                        let parsed = wire::ptcp::Packet::parse(opened.number, opened.payload);
                        let parsed = parsed.unwrap();
                        assert_eq!(parsed.packet, *packet);
                        assert!(parsed.payload.iter().copied().eq(payload(packet)));
                        assert!(is_first, "{packet:?} was opened twice");
                    }
                    Err(error) => {
                        assert_eq!(error, OpenError::Replayed, "{packet:?}");
                        assert!(!is_first, "{packet:?} was not opened");
                    }
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The payload of a packet, made from what it says of it.
fn payload(packet: &wire::ptcp::Packet) -> impl Iterator<Item = u8> {
    let from = if let Body::Data(data) = packet.body { data.offset } else { 0 };
    (from..from + packet.payload_len() as u64).map(|at| (at.wrapping_mul(31) >> 3).to_le_bytes()[0])
}

#[test]
fn sealed_packets_have_the_digest_of_simulated_ones() {
    let document = Document::new(TWO_PATHS, "sealed.toml").unwrap();
    let scenario = document.scenario(&[]).unwrap();
    let plain = scenario.run(Seed(1), RunOptions::default()).unwrap();
    let mut wire = Wire::new();
    let mut trace = |now: Time, event: Event<'_, Packet>| wire.record(now, event);
    let sealed = scenario.run_traced(Seed(1), RunOptions::default(), &mut trace).unwrap();
    assert_eq!(sealed.digest, plain.digest);
    // All kinds of events have happened: two packets of a hello, many of data, lost and repeated
    // ones, two key updates.
    assert!(wire.flights >= 7, "{} flights", wire.flights);
    assert!(wire.opened.len() > 10_000, "{} packets", wire.opened.len());
    assert!(wire.opened.len() < wire.datagrams.len());
    assert!(wire.sessions.iter().all(|session| session.generation() >= 2));
}
