//! What the caller may choose.

use rustls::{ClientConfig, ServerConfig};
use units::Span;
use wire::datagram::{MOST_VERSIONS, VERSION};

use crate::SettingsError;

/// The most octets of parameters: they travel in a flight, whose length is bounded.
const MOST_PARAMETERS: usize = 2_048;

/// Settings of both sides.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The versions to speak, the preferred one first. One, unless for tests: there is one.
    pub versions: Vec<u32>,
    /// Parameters of the connection above, for the peer: at most 2,048 octets.
    pub parameters: Vec<u8>,
    /// How long a handshake may take.
    pub handshake_time: Span,
    /// After how many sealed packets the keys are updated; half of the cipher's limit if that is
    /// less.
    pub update_after: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            versions: vec![VERSION],
            parameters: Vec::new(),
            handshake_time: Span::from_secs(10),
            update_after: 1 << 22,
        }
    }
}

/// What strangers may cost the side that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Handshakes in progress. Above that the oldest gives way, those first whose address is not
    /// validated, then those of the address that has the most.
    pub handshakes: usize,
    /// From so many handshakes, failed ones included, with addresses that are not validated, a
    /// newcomer has to show with a token that it receives what is sent to its address.
    pub retry_from: usize,
    /// Handshakes that are over and remembered, to answer a peer that has not heard of it.
    pub lingering: usize,
    /// Handshakes that begin in a second from one address of IPv4, or 2^64 of IPv6: each costs a
    /// key agreement.
    pub handshakes_of_one: u64,
    /// Retries in a second: each is a twentieth of its cause, and an honest peer needs one.
    pub retries: u64,
    /// Other answers without state in a second: lists of versions and resets.
    pub answers: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            handshakes: 64,
            retry_from: 16,
            lingering: 256,
            handshakes_of_one: 256,
            retries: 10_000,
            answers: 1_000,
        }
    }
}

impl Settings {
    /// Checks what can be checked before the first handshake.
    fn check(&self) -> Result<(), SettingsError> {
        if self.parameters.len() > MOST_PARAMETERS {
            return Err(SettingsError::Parameters(self.parameters.len()));
        }
        let count = self.versions.len();
        if (1..=MOST_VERSIONS).contains(&count) && !self.versions.contains(&0) {
            Ok(())
        } else {
            Err(SettingsError::Versions(count))
        }
    }

    pub(crate) fn check_client(&self, tls: &ClientConfig) -> Result<(), SettingsError> {
        if tls.enable_early_data {
            return Err(SettingsError::EarlyData);
        }
        self.check()
    }

    pub(crate) fn check_server(&self, tls: &ServerConfig) -> Result<(), SettingsError> {
        if tls.max_early_data_size != 0 {
            return Err(SettingsError::EarlyData);
        }
        if tls.send_tls13_tickets != 0 {
            return Err(SettingsError::Tickets);
        }
        self.check()
    }
}
