//! The exchange by which two hosts find out that both know a code, and nobody else learns it:
//! SPAKE2 over Ed25519, with the keys of both as their names, confirmed by HMAC.

use aws_lc_rs::{constant_time, hmac};
use peer::Fingerprint;
use spake2::{Ed25519Group, Password, Spake2};
use wire::meet::{PAKE, PROOF};

use super::code::Code;

/// A side of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It was told the code.
    Guest,
    /// It has printed the code.
    Host,
}

/// A side that has sent its message.
pub(crate) struct Exchange {
    state: Spake2<Ed25519Group>,
    own: Role,
}

/// What both sides have if both know the code, and TLS runs between them alone.
pub(crate) struct SharedKey {
    key: hmac::Key,
    own: Role,
}

impl Exchange {
    /// Begins, with the keys that TLS has proven. Returns the message to the other side.
    pub(crate) fn begin(
        own: Role,
        code: &Code,
        guest: Fingerprint,
        host: Fingerprint,
    ) -> (Exchange, [u8; PAKE]) {
        let password = Password::new(code.password().as_bytes());
        let [guest, host] = [guest, host].map(|key| spake2::Identity::new(key.as_bytes()));
        let (state, message) = match own {
            Role::Guest => Spake2::start_a(&password, &guest, &host),
            Role::Host => Spake2::start_b(&password, &guest, &host),
        };
        let message = message.try_into().expect("a role and a point of the curve");
        (Exchange { state, own }, message)
    }

    /// The key that follows from the other side's message; `None` if it is none.
    pub(crate) fn finish(self, message: &[u8; PAKE]) -> Option<SharedKey> {
        let key = self.state.finish(message).ok()?;
        Some(SharedKey { key: hmac::Key::new(hmac::HMAC_SHA256, &key), own: self.own })
    }
}

impl SharedKey {
    /// The proof of having the key.
    pub(crate) fn prove(&self) -> [u8; PROOF] {
        let tag = hmac::sign(&self.key, label(self.own));
        tag.as_ref().try_into().expect("SHA-256 has 32 octets")
    }

    /// Whether that is the other side's proof. Takes constant time.
    pub(crate) fn is_proven_by(&self, proof: &[u8; PROOF]) -> bool {
        let other = match self.own {
            Role::Guest => Role::Host,
            Role::Host => Role::Guest,
        };
        let wanted = hmac::sign(&self.key, label(other));
        constant_time::verify_slices_are_equal(wanted.as_ref(), proof).is_ok()
    }
}

fn label(role: Role) -> &'static [u8] {
    match role {
        Role::Guest => b"anabranch code, guest",
        Role::Host => b"anabranch code, host",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(octet: u8) -> Fingerprint {
        Fingerprint::from([octet; 32])
    }

    fn code(text: &str) -> Code {
        text.parse().unwrap()
    }

    /// Whether each side takes the other's proof.
    fn agree(guest: (&Code, [u8; 2]), host: (&Code, [u8; 2])) -> [bool; 2] {
        let begin = |role, (code, [guest, host]): (&Code, [u8; 2])| {
            Exchange::begin(role, code, key(guest), key(host))
        };
        let ((guest, to_host), (host, to_guest)) =
            (begin(Role::Guest, guest), begin(Role::Host, host));
        let (guest, host) = (guest.finish(&to_guest).unwrap(), host.finish(&to_host).unwrap());
        [host.is_proven_by(&guest.prove()), guest.is_proven_by(&host.prove())]
    }

    #[test]
    fn who_knows_the_code_proves_it() {
        let own = code("48213-lantern-orbit-cedar");
        assert_eq!(agree((&own, [1, 2]), (&own, [1, 2])), [true, true]);
        for other in ["48213-lantern-orbit-abandon", "48214-lantern-orbit-cedar"] {
            let Ok(other) = other.parse() else { continue };
            assert_eq!(agree((&other, [1, 2]), (&own, [1, 2])), [false, false]);
        }
    }

    /// Somebody between the two has a key of its own on each side.
    #[test]
    fn keys_that_are_not_the_same_on_both_sides_do_not_agree() {
        let own = code("48213-lantern-orbit-cedar");
        for (guests, hosts) in
            [([1, 3], [1, 2]), ([1, 2], [3, 2]), ([1, 3], [3, 2]), ([2, 1], [1, 2])]
        {
            assert_eq!(agree((&own, guests), (&own, hosts)), [false, false]);
        }
    }

    /// A proof, or a message, that comes back is the own one.
    #[test]
    fn what_is_sent_back_proves_nothing() {
        let own = code("48213-lantern-orbit-cedar");
        let (guest, to_host) = Exchange::begin(Role::Guest, &own, key(1), key(2));
        assert!(guest.finish(&to_host).is_none());
        let (guest, to_host) = Exchange::begin(Role::Guest, &own, key(1), key(2));
        let (host, to_guest) = Exchange::begin(Role::Host, &own, key(1), key(2));
        let (guest, host) = (guest.finish(&to_guest).unwrap(), host.finish(&to_host).unwrap());
        assert!(!guest.is_proven_by(&guest.prove()) && !host.is_proven_by(&host.prove()));
        // Of an exchange that was recorded nothing is of use in the next one.
        let (again, message) = Exchange::begin(Role::Host, &own, key(1), key(2));
        let again = again.finish(&to_host).unwrap();
        assert!(!again.is_proven_by(&guest.prove()) && message != to_guest);
    }

    #[test]
    fn any_message_is_finished_or_refused() {
        let own = code("48213-lantern-orbit-cedar");
        for octet in 0..=u8::MAX {
            for first in [b'A', b'B', octet] {
                let (host, _) = Exchange::begin(Role::Host, &own, key(1), key(2));
                let mut message = [octet; PAKE];
                message[0] = first;
                if let Some(key) = host.finish(&message) {
                    assert!(!key.is_proven_by(&[octet; PROOF]));
                }
            }
        }
    }
}
