//! The tags of datagrams that bind addresses and open ways.

use aws_lc_rs::{constant_time, hmac};
use wire::bind::{BIND_TAG, BindDatagram, TAGGED};

/// The key of the tags of one association, or of the datagrams that open ways, on either side.
#[derive(Clone, Debug)]
pub struct TagKey(hmac::Key);

impl TagKey {
    /// That of a secret.
    #[must_use]
    pub fn new(secret: &[u8]) -> TagKey {
        TagKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The first 16 octets of HMAC-SHA256.
    #[must_use]
    pub fn sign(&self, octets: &[u8]) -> [u8; BIND_TAG] {
        let tag = hmac::sign(&self.0, octets);
        *tag.as_ref().first_chunk().expect("SHA-256 has 32 octets")
    }

    /// The datagram with its tag.
    #[must_use]
    pub fn tagged(&self, datagram: BindDatagram) -> BindDatagram {
        BindDatagram { tag: self.sign(&datagram.octets()[..TAGGED]), ..datagram }
    }

    /// Whether a datagram has its tag.
    #[must_use]
    pub fn has_tagged(&self, datagram: &BindDatagram) -> bool {
        let own = self.sign(&datagram.octets()[..TAGGED]);
        constant_time::verify_slices_are_equal(&own, &datagram.tag).is_ok()
    }

    /// Whether octets have this tag.
    #[must_use]
    pub fn has_signed(&self, octets: &[u8], tag: &[u8; BIND_TAG]) -> bool {
        constant_time::verify_slices_are_equal(&self.sign(octets), tag).is_ok()
    }
}
