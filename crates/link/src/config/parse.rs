//! Parses a [`Network`] from TOML.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use units::{Bytes, Rate, Seed, Span};

use super::aqm::{aqm, jitter};
use super::changes::Changing;
use super::error::{Problem, Result};
use super::reader::{Section, Source, Value};
use super::values::{Build, LinkPath, positive, queue};
use super::{Carry, Direction, LinkSpec, Network, Unreachable};
use crate::{Aqm, Limit, Profile, Reorder};

const NETWORK_KEYS: &[&str] = &["name", "seed", "bytes", "link"];
/// Keys that a direction may override.
const DIRECTION_KEYS: &[&str] = &[
    "rate",
    "delay",
    "queue",
    "aqm",
    "jitter",
    "trace",
    "loss",
    "blackhole_above",
    "schedule",
    "redraw",
    "blackout",
    "duplicate",
    "reorder",
    "corrupt",
    "carry",
];
const LINK_KEYS: &[&str] = &["name", "mtu", "nat_idle", "shares", "unreachable", "up", "down"];

/// The minimum MTU of IPv6 (RFC 8200, section 5).
const MIN_MTU: u64 = 1_280;
const MAX_MTU: u64 = 65_535;
/// A device name has at most 15 bytes (IFNAMSIZ - 1).
const MAX_NAME: usize = 15;

pub(super) fn network(text: &str, file: &str, bytes: Option<Bytes>) -> Result<Network> {
    let source = Source { file, text };
    let table = source.table()?;
    let root = Section::root(source, table.get_ref());
    root.allow(NETWORK_KEYS)?;
    let name = root.require("name")?.text()?.to_owned();
    let seed = root.get("seed").map_or(Ok(1), |value| value.integer()).map(Seed)?;
    let bytes = match bytes {
        Some(bytes) => Some(bytes),
        None => root.get("bytes").map(|value| value.quantity()).transpose()?,
    };
    let values = root.require("link")?;
    let mut links = Vec::new();
    for value in values.list()? {
        let link = link(&value.section()?, seed, bytes, &links)?;
        links.push(link);
    }
    if links.is_empty() {
        return Err(values.error(Problem::Sense("wants at least one link")));
    }
    if links.len() > 250 {
        return Err(values.error(Problem::Sense("wants at most 250 links")));
    }
    Ok(Network { name, seed, bytes, links })
}

fn link(
    section: &Section<'_>,
    seed: Seed,
    bytes: Option<Bytes>,
    earlier: &[LinkSpec],
) -> Result<LinkSpec> {
    let known: Vec<&'static str> = LINK_KEYS.iter().chain(DIRECTION_KEYS).copied().collect();
    section.allow(&known)?;
    let name = name(&section.require("name")?, earlier)?;
    let section = section.clone().renamed(format!("link.{name}"));
    let device_mtu = section.get("mtu").map_or(Ok(1_500), |value| mtu(&value))?;
    let shares = section.get("shares").map(|value| index(&value, earlier)).transpose()?;
    let unreachable = section
        .get("unreachable")
        .map(|value| value.word(&[("silent", Unreachable::Silent), ("icmp", Unreachable::Icmp)]))
        .transpose()?;
    let build =
        Build { seed: seed.stream(&format!("link/{name}/rate")), bytes, device_mtu, path: None };
    Ok(LinkSpec {
        up: build.direction(&section, "up")?,
        down: build.direction(&section, "down")?,
        device_mtu,
        nat_idle: section.get("nat_idle").map(|value| positive(&value)).transpose()?,
        shares,
        unreachable,
        name,
    })
}

/// The keys that [`profiles()`] reads.
pub const PROFILE_KEYS: &[&str] = DIRECTION_KEYS;

/// Reads both directions of a link from a section of another kind of file: `rate`, `delay`, `queue`
/// and so on, with overrides in `up` and `down`. The keys of the section must have been checked.
/// `mtu` is the size of the largest packet. With a `path`, the queue may be a number of `bdp`.
///
/// # Errors
/// The first key that is not valid.
pub fn profiles(
    section: &Section<'_>,
    seed: Seed,
    mtu: u32,
    path: Option<LinkPath>,
) -> Result<(Profile, Profile)> {
    let build = Build { seed, bytes: None, device_mtu: mtu, path };
    Ok((build.direction(section, "up")?.profile, build.direction(section, "down")?.profile))
}

fn name(value: &Value<'_>, earlier: &[LinkSpec]) -> Result<String> {
    let name = value.text()?;
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let problem =
        if name.is_empty() || name.len() > MAX_NAME || !is_plain || name == "lo" || name == "all" {
            "names a device: at most 15 letters, digits, '-' and '_'; not `lo`, not `all`"
        } else if earlier.iter().any(|link| link.name == name) {
            "is the name of an earlier link too"
        } else {
            return Ok(name.to_owned());
        };
    Err(value.error(Problem::Sense(problem)))
}

fn mtu(value: &Value<'_>) -> Result<u32> {
    let mtu = value.integer()?;
    if !(MIN_MTU..=MAX_MTU).contains(&mtu) {
        let problem = "wants 1280 to 65535 bytes; a smaller path MTU without ICMP is \
                       `blackhole_above`";
        return Err(value.error(Problem::Sense(problem)));
    }
    Ok(u32::try_from(mtu).expect("checked above"))
}

fn index(value: &Value<'_>, earlier: &[LinkSpec]) -> Result<usize> {
    let wanted = value.text()?;
    let found = earlier.iter().position(|link| link.name == wanted);
    let index =
        found.ok_or_else(|| value.unknown(earlier.iter().map(|link| link.name.as_str())))?;
    if earlier[index].shares.is_some() {
        return Err(
            value.error(Problem::Sense("shares another link's bottleneck itself: name that one"))
        );
    }
    Ok(index)
}

impl Build {
    fn direction(&self, link: &Section<'_>, which: &str) -> Result<Direction> {
        let mut section = link.clone();
        if let Some(over) = link.get(which) {
            let over = over.section()?;
            over.allow(DIRECTION_KEYS)?;
            section = link.overridden(&over);
        }
        let carry = section.get("carry").map_or(Ok(Carry::All), |value| {
            value.word(&[
                ("all", Carry::All),
                ("no-payload", Carry::NoPayload),
                ("nothing", Carry::Nothing),
            ])
        })?;
        let mtu = match section.get("blackhole_above") {
            Some(value) => value.integer()?,
            None => u64::from(self.device_mtu),
        };
        let chance = |key| section.get(key).map_or(Ok(0.0), |value| value.probability());
        let Changing { rate, delay, delays, loss, losses, blackouts } = self.changing(&section)?;
        let queue = self.queue(&section.require("queue")?, rate.base, delay)?;
        let aqm = section.get("aqm").map_or(Ok(Aqm::DropTail), |value| aqm(&value, queue))?;
        if matches!(aqm, Aqm::Shaper(_)) && rate.opportunities.is_some() {
            let problem =
                "is a shaper, which has no meaning for a `trace` of delivery opportunities";
            return Err(section.error("aqm", Problem::Sense(problem)));
        }
        let profile = Profile {
            rate,
            delay,
            delays,
            queue,
            aqm,
            jitter: section.get("jitter").map(|value| jitter(&value)).transpose()?,
            mtu: Some(Bytes(mtu)),
            loss,
            losses,
            blackouts,
            duplicate: chance("duplicate")?,
            reorder: section.get("reorder").map(|value| reorder(&value)).transpose()?,
            corrupt: chance("corrupt")?,
        };
        Ok(Direction { profile, carry })
    }

    /// As [`queue`], or `"1 bdp"`: the rate times the propagation RTT of the path.
    fn queue(&self, value: &Value<'_>, rate: Rate, delay: Span) -> Result<Limit> {
        let Some(number) = value.text()?.trim().strip_suffix("bdp") else { return queue(value) };
        let Some(LinkPath { links, others }) = self.path else {
            return Err(value.error(Problem::Sense(
                "wants a size, for example '128 KiB' or '100 packets': a `bdp` is of the dumbbell \
                 and the parking lot of `topology`, where the RTT is known",
            )));
        };
        let factor = number.trim().parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
        let Some(factor) = factor else {
            return Err(value.error(Problem::Sense("wants a number of bdp, for example '1 bdp'")));
        };
        let rtt = delay * (2 * u64::from(links)) + others;
        Ok(Limit::Bytes(rate * Span::from_secs_f64(rtt.as_secs_f64() * factor)))
    }
}

fn reorder(value: &Value<'_>) -> Result<Reorder> {
    let section = value.section()?;
    section.allow(&["probability", "delay"])?;
    let probability = section.require("probability")?.probability()?;
    Ok(Reorder { probability, delay: positive(&section.require("delay")?)? })
}
