//! Packets as on the wire: encoded, sealed with a fixed test key, opened, parsed.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use wire::ptcp::{Body, HEADER, Packet};

/// The label of the connection.
const LABEL: u64 = 0x00c0_ffee_d00d_f00d;
const KEY: [u8; 16] = *b"for tests alone!";

/// Seals and opens packets.
pub(crate) struct Sealing(LessSafeKey);

impl Sealing {
    pub(crate) fn new() -> Sealing {
        Sealing(LessSafeKey::new(
            UnboundKey::new(&AES_128_GCM, &KEY).expect("it has the right length"),
        ))
    }

    /// The datagram that carries the packet.
    pub(crate) fn seal(&self, path: u16, to_server: bool, packet: &Packet) -> Vec<u8> {
        let mut header = Vec::with_capacity(packet.datagram_len());
        packet.emit(LABEL, path, &mut header);
        header.extend(payload(packet));
        let mut body = header.split_off(HEADER);
        let nonce = nonce(path, to_server, packet.number);
        self.0
            .seal_in_place_append_tag(nonce, Aad::from(&header), &mut body)
            .expect("it is short enough");
        header.extend_from_slice(&body);
        assert_eq!(header.len(), packet.datagram_len(), "{packet:?} says it has another size");
        header
    }

    /// The packet in a datagram that arrived over a path; `None` if its tag does not match.
    /// `expected` is the packet number expected next on the path.
    pub(crate) fn open(
        &self,
        path: u16,
        to_server: bool,
        datagram: &[u8],
        expected: u64,
    ) -> Option<Packet> {
        // The header is not encrypted: the packet number, expanded to 64 bits, is part of the
        // nonce.
        let (header, sealed) = datagram.split_at_checked(HEADER)?;
        let lower =
            u64::from(u32::from_be_bytes(header[HEADER - 4..].try_into().expect("four octets")));
        let above = (expected & !0xffff_ffff) | lower;
        let candidates = [above, above.wrapping_add(1 << 32), above.wrapping_sub(1 << 32)];
        let number =
            candidates.into_iter().min_by_key(|number| number.abs_diff(expected)).expect("three");
        let mut body = sealed.to_vec();
        let opened = self
            .0
            .open_in_place(nonce(path, to_server, number), Aad::from(header), &mut body)
            .ok()?;
        let clear = [header, opened].concat();
        let parsed = Packet::parse(&clear, |_| expected).expect("only what we made is sealed");
        assert_eq!((parsed.label, parsed.path, parsed.packet.number), (LABEL, path, number));
        let wanted: Vec<u8> = payload(&parsed.packet).collect();
        assert_eq!(parsed.payload, wanted, "{:?} carries other bytes", parsed.packet);
        Some(parsed.packet)
    }
}

fn nonce(path: u16, to_server: bool, number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[0] = u8::from(to_server);
    nonce[2..4].copy_from_slice(&path.to_be_bytes());
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
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
