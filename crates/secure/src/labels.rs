//! Labels of paths, derived from the TLS exporter.

use aws_lc_rs::hmac;
use rustls::Side;
use units::SubflowId;
use zeroize::Zeroizing;

/// The exporter's label (RFC 8446, section 7.5; RFC 5705, section 4, for the prefix).
pub(crate) const EXPORTER: &[u8] = b"EXPORTER-anabranch-labels";
/// Octets of what is exported.
pub(crate) const SECRET: usize = 32;

/// Gives every path and direction of one connection its label.
#[derive(Clone, Debug)]
pub(crate) struct Labels(hmac::Key);

impl Labels {
    pub(crate) fn new(exported: &Zeroizing<[u8; SECRET]>) -> Labels {
        Labels(hmac::Key::new(hmac::HMAC_SHA256, &exported[..]))
    }

    /// The label of the packets that `from` sends over a path.
    pub(crate) fn label(&self, from: Side, path: SubflowId) -> u64 {
        let mut input = [0; 5];
        input[0] = match from {
            Side::Client => 1,
            Side::Server => 2,
        };
        input[1..].copy_from_slice(&u32::from(path.0).to_be_bytes());
        let tag = hmac::sign(&self.0, &input);
        let octets = tag.as_ref().first_chunk().expect("SHA-256 has 32 octets");
        u64::from_be_bytes(*octets)
    }
}

/// The other side.
pub(crate) fn peer_of(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}
