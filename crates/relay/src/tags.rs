//! The tags of bind datagrams.

use aws_lc_rs::{constant_time, hmac};
use wire::bind::{BIND_TAG, BindDatagram, TAGGED};

/// The key of the tags of one association, on either side.
#[derive(Clone, Debug)]
pub(crate) struct TagKey(hmac::Key);

impl TagKey {
    pub(crate) fn new(secret: &[u8]) -> TagKey {
        TagKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The first 16 octets of HMAC-SHA256.
    pub(crate) fn sign(&self, octets: &[u8]) -> [u8; BIND_TAG] {
        let tag = hmac::sign(&self.0, octets);
        *tag.as_ref().first_chunk().expect("SHA-256 has 32 octets")
    }

    /// The datagram with its tag.
    pub(crate) fn tagged(&self, datagram: BindDatagram) -> BindDatagram {
        BindDatagram { tag: self.sign(&datagram.octets()[..TAGGED]), ..datagram }
    }

    /// Whether a datagram has its tag.
    pub(crate) fn has_tagged(&self, datagram: &BindDatagram) -> bool {
        let own = self.sign(&datagram.octets()[..TAGGED]);
        constant_time::verify_slices_are_equal(&own, &datagram.tag).is_ok()
    }

    /// Whether octets have this tag.
    pub(crate) fn has_signed(&self, octets: &[u8], tag: &[u8; BIND_TAG]) -> bool {
        constant_time::verify_slices_are_equal(&self.sign(octets), tag).is_ok()
    }
}
