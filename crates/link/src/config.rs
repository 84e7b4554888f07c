//! Network files: several links between two ends, in TOML.
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
//! `bench/networks/README.md` lists every key. Unknown keys and invalid values are errors.

mod aqm;
mod changes;
mod error;
mod parse;
pub mod reader;
mod values;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::path::Path;

pub use error::{ConfigError, Problem};
pub use parse::{PROFILE_KEYS, profiles};
use units::{Bytes, Seed, Span};
pub use values::LinkPath;

use crate::profile::Profile;
use crate::schedule;

/// The share of TCP payload in an IPv4 packet of 1500 bytes with timestamps.
pub const TCP_PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

/// Several links between two ends, `near` and `far`. Data goes from near to far.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// All random draws come from this seed.
    pub seed: Seed,
    /// The default amount of data of measurements; schedules may depend on it.
    pub bytes: Option<Bytes>,
    /// The links, at least one.
    pub links: Vec<LinkSpec>,
}

/// One link of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Its name, unique in the network and valid as a device name.
    pub name: String,
    /// From near to far.
    pub up: Direction,
    /// From far to near.
    pub down: Direction,
    /// The MTU of the devices at both ends. [`Profile::mtu`] may be less: a black hole for larger
    /// packets.
    pub device_mtu: u32,
    /// The idle timeout of a NAT on the link.
    pub nat_idle: Option<Span>,
    /// The index of a link that is the bottleneck of this one too: packets pass through the queues
    /// of that link.
    pub shares: Option<usize>,
    /// Set if the far address does not exist.
    pub unreachable: Option<Unreachable>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// Rate, delay, queue and impairments.
    pub profile: Profile,
    /// The traffic that it lets pass.
    pub carry: Carry,
}

/// The traffic that a direction lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Everything.
    All,
    /// TCP segments and UDP datagrams without payload: connections are established, but data is
    /// lost.
    NoPayload,
    /// Nothing.
    Nothing,
}

/// The response of a link to packets for a far address that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// None.
    Silent,
    /// An ICMP "host unreachable".
    Icmp,
}

impl Network {
    /// Reads a network file. `bytes` replaces the value of the file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not valid.
    pub fn read(path: &Path, bytes: Option<Bytes>) -> Result<Network, ConfigError> {
        let file = path.display().to_string();
        match reader::read_text(path) {
            Ok(text) => Network::parse(&text, &file, bytes),
            Err(error) => Err(ConfigError {
                file,
                line: None,
                key: String::new(),
                problem: Problem::Read(error),
            }),
        }
    }

    /// Reads a network from `text`; `file` is its name in messages. `bytes` replaces the value of
    /// the text.
    ///
    /// # Errors
    /// If the text is not valid.
    pub fn parse(text: &str, file: &str, bytes: Option<Bytes>) -> Result<Network, ConfigError> {
        parse::network(text, file, bytes)
    }

    /// The fluid time of `bytes` of payload over all links together, from near to far: see
    /// [`schedule::ideal`]. Links that cannot carry payload, or share the bottleneck of another
    /// link, do not count.
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

    /// The seed of the random stream of one direction (`up` or `down`) of a link.
    #[must_use]
    pub fn stream(&self, link: &LinkSpec, direction: &str) -> Seed {
        self.seed.stream(&alloc::format!("link/{}/{direction}", link.name))
    }
}
