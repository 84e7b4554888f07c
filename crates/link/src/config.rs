//! Network files: several links between two places, written by humans in TOML.
//!
//! ```
//! let text = r#"
//!     name = "wifi-lte"
//!     [[link]]
//!     name = "wifi"
//!     rate = "50 Mbit/s"
//!     delay = "5 ms"
//!     queue = "128 KiB"
//!     [[link]]
//!     name = "lte"
//!     rate = "20 Mbit/s"
//!     delay = "30 ms"
//!     queue = "256 KiB"
//! "#;
//! let network = link::config::Network::parse(text, "wifi-lte.toml", None)?;
//! assert_eq!(network.links[1].up.profile.delay, units::Span::from_millis(30));
//! # Ok::<(), link::config::ConfigError>(())
//! ```
//!
//! `bench/networks/README.md` lists every key. A key that is not known is an error, and so is a
//! value that makes no sense.

mod aqm;
mod error;
mod parse;
pub mod reader;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::path::Path;

pub use error::{ConfigError, Problem};
pub use parse::{PROFILE_KEYS, profiles};
use units::{Bytes, Seed, Span};

use crate::profile::Profile;
use crate::schedule;

/// TCP payload in an IPv4 packet of 1500 bytes with timestamps: what a link can carry at most.
pub const TCP_PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

/// Several links between two places, `near` and `far`. Data goes from near to far.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// All random draws come from this seed.
    pub seed: Seed,
    /// What a measurement on it transfers unless told otherwise; schedules may depend on it.
    pub bytes: Option<Bytes>,
    /// The links, at least one.
    pub links: Vec<LinkSpec>,
}

/// One link of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Its name, unique in the network; a device may be called so.
    pub name: String,
    /// From near to far.
    pub up: Direction,
    /// From far to near.
    pub down: Direction,
    /// The MTU of the devices at both ends; [`Profile::mtu`] may be less, and then drops without a
    /// word.
    pub device_mtu: u32,
    /// A NAT on the link forgets a flow after this long a silence.
    pub nat_idle: Option<Span>,
    /// The link with this index is the bottleneck of this one too: its packets pass through that
    /// link's queues.
    pub shares: Option<usize>,
    /// The far address does not exist.
    pub unreachable: Option<Unreachable>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// Rate, delay, queue and impairments.
    pub profile: Profile,
    /// What it lets pass.
    pub carry: Carry,
}

/// What a direction lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Everything.
    All,
    /// TCP segments and UDP datagrams without payload: connections come up, and then nothing
    /// arrives.
    NoPayload,
    /// Nothing.
    Nothing,
}

/// How a link answers for a far address that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Not at all.
    Silent,
    /// With an ICMP "host unreachable".
    Icmp,
}

impl Network {
    /// Reads a network file. `bytes` takes the place of what the file says.
    ///
    /// # Errors
    /// If the file cannot be read, or says something that is not understood.
    pub fn read(path: &Path, bytes: Option<Bytes>) -> Result<Network, ConfigError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Network::parse(&text, &file, bytes),
            Err(error) => Err(ConfigError {
                file,
                line: None,
                key: String::new(),
                problem: Problem::Read(error),
            }),
        }
    }

    /// Reads a network from `text`; `file` is for messages. `bytes` takes the place of what the
    /// text says.
    ///
    /// # Errors
    /// If the text says something that is not understood.
    pub fn parse(text: &str, file: &str, bytes: Option<Bytes>) -> Result<Network, ConfigError> {
        parse::network(text, file, bytes)
    }

    /// The fluid time of `bytes` of payload over all links together, from near to far: see
    /// [`schedule::ideal`]. Links that cannot carry payload, and those that share another's
    /// bottleneck, add nothing.
    #[must_use]
    pub fn ideal(&self, bytes: Bytes, payload_share: f64) -> Option<Span> {
        let links = self.links.iter().filter(|link| {
            link.shares.is_none()
                && link.unreachable.is_none()
                && link.up.carry == Carry::All
                && link.down.carry != Carry::Nothing
        });
        schedule::ideal(
            links.map(|link| (&link.up.profile, &link.down.profile)),
            bytes,
            payload_share,
        )
    }

    /// The seed of the draws on one direction of a link: `up` or `down`.
    #[must_use]
    pub fn stream(&self, link: &LinkSpec, direction: &str) -> Seed {
        self.seed.stream(&alloc::format!("link/{}/{direction}", link.name))
    }
}
