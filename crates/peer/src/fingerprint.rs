//! The name of a host: the hash of its public key.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;
use data_encoding::BASE32_NOPAD;

/// SHA-256 of a public key's `SubjectPublicKeyInfo`; written in base32 (RFC 4648, 6), 52 letters
/// and digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a `SubjectPublicKeyInfo` in DER (RFC 5280, 4.1).
    #[must_use]
    pub fn of_spki(der: &[u8]) -> Fingerprint {
        let hash = digest::digest(&digest::SHA256, der);
        let mut octets = [0; 32];
        octets.copy_from_slice(hash.as_ref());
        Fingerprint(octets)
    }

    /// Its octets.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Fingerprint {
    fn from(octets: [u8; 32]) -> Fingerprint {
        Fingerprint(octets)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE32_NOPAD.encode(&self.0).to_ascii_lowercase())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = String;
    fn from_str(text: &str) -> Result<Fingerprint, String> {
        let octets = BASE32_NOPAD.decode(text.trim().to_ascii_uppercase().as_bytes()).ok();
        let octets = octets.and_then(|octets| <[u8; 32]>::try_from(octets).ok());
        octets
            .map(Fingerprint)
            .ok_or_else(|| format!("'{text}' is not a key's fingerprint (52 letters and digits)"))
    }
}
