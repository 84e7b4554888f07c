//! Packets as on the wire: encoded, sealed by the sessions of two ends, opened, parsed.

use std::collections::BTreeSet;

use secure::testing::Strangers;
use secure::{Limits, OpenError, PacketNumber, Session, Settings};
use units::{SubflowId, Time};
use wire::datagram::{self, Outer};
use wire::ptcp::{Body, Packet, Piece, TAG};

/// The label of the handshake.
const LABEL: u64 = 0x00c0_ffee_d00d_f00d;

/// Seals and opens the packets of one end.
pub(crate) struct Sealing {
    session: Session,
    is_client: bool,
    /// The paths that it has opened for sending.
    paths: BTreeSet<SubflowId>,
    /// The packets that it has opened.
    opened: BTreeSet<(SubflowId, u64)>,
}

impl Sealing {
    /// Both ends, the client first. Their handshake is over, with a retry if `is_retried`.
    pub(crate) fn pair(is_retried: bool) -> [Sealing; 2] {
        let retry_from = if is_retried { 0 } else { Limits::default().retry_from };
        let limits = Limits { retry_from, ..Limits::default() };
        let (client, server) = Strangers::new(Settings::default(), limits).shake_hands(|_| ());
        [(client, true), (server, false)].map(|(session, is_client)| Sealing {
            session,
            is_client,
            paths: BTreeSet::new(),
            opened: BTreeSet::new(),
        })
    }

    /// Updates the keys if that is possible.
    pub(crate) fn update_keys(&mut self, now: Time) {
        self.session.update_keys(now);
    }

    /// Whether keys were updated, so that late packets are lost.
    pub(crate) fn has_updated(&self) -> bool {
        self.session.generation() > 0
    }

    /// The datagram that carries the packet.
    pub(crate) fn seal(&mut self, now: Time, path: SubflowId, packet: &Packet) -> Vec<u8> {
        let mut datagram = Vec::with_capacity(packet.datagram_len());
        if let Body::Flight(piece) = packet.body {
            let number = (packet.number & 0xffff, 2);
            let level = piece.flight.level();
            datagram::emit_handshake(level, datagram::VERSION, LABEL, &[], number, &mut datagram);
            packet.emit(&mut datagram);
            // The keys of the handshake are the sessions' own.
            datagram.extend([0; TAG]);
        } else {
            if self.paths.insert(path) {
                // It is open already if the peer was first.
                let _ = self.session.open_path(path);
            }
            let mut sealed = Vec::with_capacity(packet.datagram_len());
            packet.emit(&mut sealed);
            sealed.extend(payload(packet));
            let number = PacketNumber { path, number: packet.number };
            self.session.seal(now, number, &sealed, &mut datagram).expect("it can be sealed");
        }
        assert_eq!(datagram.len(), packet.datagram_len(), "{packet:?} says it has another size");
        datagram
    }

    /// The packet in a datagram that arrived over a path; `None` if it is damaged. `sent` is what
    /// was sealed.
    pub(crate) fn open(
        &mut self,
        now: Time,
        path: SubflowId,
        mut datagram: Vec<u8>,
        sent: &Packet,
    ) -> Option<Packet> {
        if let Body::Flight(_) = sent.body {
            return Some(self.open_flight(&datagram, sent.number));
        }
        let is_repeated = self.opened.contains(&(path, sent.number));
        let opened = match self.session.open(now, path, &mut datagram) {
            Ok(opened) => opened,
            Err(OpenError::Replayed) => {
                assert!(is_repeated, "{sent:?} on path {path} has not arrived before");
                return Some(sent.clone());
            }
            Err(error) => {
                assert!(!error.is_fatal(), "{error}");
                return None;
            }
        };
        let parsed = Packet::parse(opened.number, opened.payload).expect("only packets are sealed");
        let wanted: Vec<u8> = payload(&parsed.packet).collect();
        assert_eq!(parsed.payload, wanted, "{:?} carries other bytes", parsed.packet);
        assert!(!is_repeated, "{sent:?} on path {path} was opened twice");
        self.opened.insert((path, sent.number));
        Some(parsed.packet)
    }

    fn open_flight(&self, datagram: &[u8], number: u64) -> Packet {
        let Ok(Outer::Handshake { level, label, number_at, .. }) = Outer::parse(datagram) else {
            panic!("it was a handshake");
        };
        assert_eq!(label, LABEL);
        let sealed = &datagram[number_at + 2..datagram.len() - TAG];
        let piece = Piece::parse(level, !self.is_client, sealed).expect("only pieces are sealed");
        Packet { number, body: Body::Flight(piece) }
    }
}

/// The payload bytes of a packet, derived from stream and offset.
fn payload(packet: &Packet) -> impl Iterator<Item = u8> {
    let (stream, offset) = match packet.body {
        Body::Data(data) => (u64::from(data.stream), data.offset),
        _ => (0, 0),
    };
    (offset..offset + packet.payload_len() as u64)
        .map(move |at| (at.wrapping_mul(0x9e37_79b9) >> 8 ^ stream).to_le_bytes()[0])
}
