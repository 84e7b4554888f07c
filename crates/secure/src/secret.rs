//! What the listening side proves with, without state: retry and reset tokens.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::hmac;
use units::{Span, Time};
use wire::datagram::RESET_TOKEN;

/// How long a retry token is good for.
pub(crate) const TOKEN_LIFE: Span = Span::from_secs(15);

const TIME: usize = 8;
const TAG: usize = 32;

/// The keys of a listening host's retry and reset tokens. `Debug` does not show them.
#[derive(Clone, Debug)]
pub struct Secret {
    retry: hmac::Key,
    reset: hmac::Key,
}

impl Secret {
    /// Derives the keys from random octets and the listening addresses. A host that keeps both over
    /// a restart can tell the peers of its former connections that these are gone. A process at
    /// other addresses, which does not know the connections of this one, cannot.
    #[must_use]
    pub fn new(random: &[u8; 32], listening: &[SocketAddr]) -> Secret {
        let mut places: Vec<_> = listening.iter().map(ToString::to_string).collect();
        places.sort_unstable();
        let root = hmac::Key::new(hmac::HMAC_SHA256, random);
        let derive = |name: &str| {
            let input = format!("{name} {}", places.join(" "));
            let key = hmac::sign(&root, input.as_bytes());
            hmac::Key::new(hmac::HMAC_SHA256, key.as_ref())
        };
        Secret { retry: derive("anabranch retry"), reset: derive("anabranch reset") }
    }

    /// A token that shows that its bearer receives what is sent to `source`.
    pub(crate) fn retry_token(
        &self,
        now: Time,
        source: SocketAddr,
        version: u32,
        label: u64,
    ) -> Vec<u8> {
        let mut token = now.as_nanos().to_be_bytes().to_vec();
        let tag = hmac::sign(&self.retry, &bound(now, source, version, label));
        token.extend_from_slice(tag.as_ref());
        token
    }

    /// Whether this is a token for `source`, and not too old.
    pub(crate) fn is_retry_token(
        &self,
        now: Time,
        source: SocketAddr,
        version: u32,
        label: u64,
        token: &[u8],
    ) -> bool {
        let Some((time, tag)) = token.split_first_chunk::<TIME>() else { return false };
        let issued = Time::from_nanos(u64::from_be_bytes(*time));
        tag.len() == TAG
            && issued <= now
            && now.since(issued) <= TOKEN_LIFE
            && hmac::verify(&self.retry, &bound(issued, source, version, label), tag).is_ok()
    }

    /// The stateless reset token of the label under which this host receives.
    pub(crate) fn reset_token(&self, label: u64) -> [u8; RESET_TOKEN] {
        let tag = hmac::sign(&self.reset, &label.to_be_bytes());
        *tag.as_ref().first_chunk().expect("SHA-256 has 32 octets")
    }
}

/// What a retry token is bound to.
fn bound(issued: Time, source: SocketAddr, version: u32, label: u64) -> Vec<u8> {
    let mut input = issued.as_nanos().to_be_bytes().to_vec();
    match source.ip() {
        IpAddr::V4(ip) => input.extend(ip.to_ipv6_mapped().octets()),
        IpAddr::V6(ip) => input.extend(ip.octets()),
    }
    input.extend(source.port().to_be_bytes());
    input.extend(version.to_be_bytes());
    input.extend(label.to_be_bytes());
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_one_address_label_version_and_time() {
        let secret = Secret::new(&[7; 32], &[]);
        let source: SocketAddr = "192.0.2.1:4000".parse().unwrap();
        let now = Time::ZERO + Span::from_secs(100);
        let token = secret.retry_token(now, source, 1, 9);
        let at = |later, source: &str, version, label, token: &[u8]| {
            let source = source.parse().unwrap();
            secret.is_retry_token(now + later, source, version, label, token)
        };
        assert!(at(Span::ZERO, "192.0.2.1:4000", 1, 9, &token));
        assert!(at(TOKEN_LIFE, "192.0.2.1:4000", 1, 9, &token));
        assert!(!at(TOKEN_LIFE + Span::from_nanos(1), "192.0.2.1:4000", 1, 9, &token));
        assert!(!secret.is_retry_token(Time::ZERO, source, 1, 9, &token), "from the future");
        assert!(!at(Span::ZERO, "192.0.2.2:4000", 1, 9, &token));
        assert!(!at(Span::ZERO, "192.0.2.1:4001", 1, 9, &token));
        assert!(!at(Span::ZERO, "192.0.2.1:4000", 2, 9, &token));
        assert!(!at(Span::ZERO, "192.0.2.1:4000", 1, 8, &token));
        let another = Secret::new(&[8; 32], &[]);
        assert!(!another.is_retry_token(now, source, 1, 9, &token));
        for bit in 0..8 * token.len() {
            let mut flipped = token.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!at(Span::ZERO, "192.0.2.1:4000", 1, 9, &flipped), "bit {bit}");
        }
        for len in 0..token.len() {
            assert!(!at(Span::ZERO, "192.0.2.1:4000", 1, 9, &token[..len]));
        }
    }

    #[test]
    fn tokens_are_those_of_the_listening_addresses() {
        let [here, there, v6] = ["192.0.2.1:7707", "192.0.2.1:7708", "[::]:7707"].map(|at| {
            let at: SocketAddr = at.parse().unwrap();
            at
        });
        let token = |listening: &[SocketAddr]| Secret::new(&[7; 32], listening).reset_token(9);
        assert_eq!(token(&[here]), token(&[here]), "after a restart");
        assert_eq!(token(&[here, v6]), token(&[v6, here]), "in whatever order");
        let all = [token(&[]), token(&[here]), token(&[there]), token(&[v6]), token(&[here, v6])];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "number {index} is another's");
        }
    }
}
