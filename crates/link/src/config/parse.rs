//! Parses a [`Network`] from TOML.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::num::NonZeroU64;

use toml::de::DeTable;
use units::{Bytes, Rate, Seed, Span};

use super::aqm::{aqm, jitter};
use super::error::{Problem, Result};
use super::reader::{Section, Source, Value};
use super::{Carry, Direction, LinkSpec, Network, Unreachable};
use crate::{
    Aqm, Blackout, Change, GilbertElliott, Limit, Loss, Profile, RatePlan, Redraw, Reorder,
};

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
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map(|span| span.start);
        source.error(offset, "", Problem::Syntax(error.message().to_owned()))
    })?;
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
    let build = Build { seed: seed.stream(&format!("link/{name}/rate")), bytes, device_mtu };
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
/// `mtu` is the size of the largest packet.
///
/// # Errors
/// The first key that is not valid.
pub fn profiles(section: &Section<'_>, seed: Seed, mtu: u32) -> Result<(Profile, Profile)> {
    let build = Build { seed, bytes: None, device_mtu: mtu };
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

pub(super) fn positive(value: &Value<'_>) -> Result<Span> {
    let span: Span = value.quantity()?;
    if span == Span::ZERO {
        return Err(value.error(Problem::Sense("wants more than no time")));
    }
    Ok(span)
}

/// The context of the keys of a link.
struct Build {
    /// The seed of redraws of the rate, the same for both directions.
    seed: Seed,
    bytes: Option<Bytes>,
    device_mtu: u32,
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
        let queue = queue(&section.require("queue")?)?;
        let profile = Profile {
            rate: self.rate(&section)?,
            delay: section.require("delay")?.quantity()?,
            queue,
            aqm: section.get("aqm").map_or(Ok(Aqm::DropTail), |value| aqm(&value, queue))?,
            jitter: section.get("jitter").map(|value| jitter(&value)).transpose()?,
            mtu: Some(Bytes(mtu)),
            loss: section.get("loss").map_or(Ok(Loss::None), |value| loss(&value))?,
            blackouts: section
                .get("blackout")
                .map_or(Ok(Vec::new()), |value| self.blackouts(&value))?,
            duplicate: chance("duplicate")?,
            reorder: section.get("reorder").map(|value| reorder(&value)).transpose()?,
            corrupt: chance("corrupt")?,
        };
        Ok(Direction { profile, carry })
    }

    fn rate(&self, section: &Section<'_>) -> Result<RatePlan> {
        if let Some((value, has_rate)) = section.get_before("trace", "rate") {
            if has_rate {
                return Err(
                    value.error(Problem::Sense("stands beside `rate`, and says the same thing"))
                );
            }
            for key in ["schedule", "redraw"] {
                if let Some(other) = section.get(key) {
                    return Err(
                        other.error(Problem::Sense("has no meaning for a rate from a `trace`"))
                    );
                }
            }
            return trace(&value);
        }
        let base = section.require("rate")?.quantity()?;
        let changes =
            section.get("schedule").map_or(Ok(Vec::new()), |value| self.changes(&value))?;
        let redraw = section.get("redraw").map(|value| self.redraw(&value)).transpose()?;
        Ok(RatePlan { changes, redraw, ..RatePlan::constant(base) })
    }

    fn changes(&self, value: &Value<'_>) -> Result<Vec<Change>> {
        let mut changes: Vec<Change> = Vec::new();
        for entry in value.list()? {
            let section = entry.section()?;
            section.allow(&["at", "rate"])?;
            let rate = section.require("rate")?;
            let rate = if rate.text().is_ok_and(|text| text.trim() == "0") {
                Rate::ZERO
            } else {
                rate.quantity()?
            };
            let at = section.require("at")?;
            let change = Change { at: self.moment(&at)?, rate };
            if changes.last().is_some_and(|last| last.at >= change.at) {
                return Err(at.error(Problem::Sense("is not later than the entry before it")));
            }
            changes.push(change);
        }
        Ok(changes)
    }

    /// `"2.13 s"`, or the time at which a rate has carried a fraction of an amount, counted from
    /// `after`.
    fn moment(&self, value: &Value<'_>) -> Result<Span> {
        if !value.is_table() {
            return value.quantity();
        }
        let section = value.section()?;
        section.allow(&["fraction", "of", "rate", "after"])?;
        let fraction = section.require("fraction")?.probability()?;
        let rate_value = section.require("rate")?;
        let rate: Rate = rate_value.quantity()?;
        if rate == Rate::ZERO {
            return Err(rate_value.error(Problem::Sense("carries nothing, ever")));
        }
        let of: Option<Bytes> = section.get("of").map(|value| value.quantity()).transpose()?;
        let missing =
            || section.error("of", Problem::Sense("is missing, and the network says no `bytes`"));
        let bytes = of.or(self.bytes).ok_or_else(missing)?;
        let after: Span = section.get("after").map_or(Ok(Span::ZERO), |value| value.quantity())?;
        Ok(after + Span::from_secs_f64((bytes / rate).as_secs_f64() * fraction))
    }

    fn redraw(&self, value: &Value<'_>) -> Result<Redraw> {
        let section = value.section()?;
        section.allow(&["every", "from", "to"])?;
        let every = positive(&section.require("every")?)?;
        let from = section.require("from")?.probability()?;
        let to = section.require("to")?;
        let (to, place) = (to.probability()?, to);
        if to < from {
            return Err(place.error(Problem::Sense("is less than `from`")));
        }
        Ok(Redraw { every, from, to, seed: self.seed })
    }

    fn blackouts(&self, value: &Value<'_>) -> Result<Vec<Blackout>> {
        value.list()?.iter().map(|entry| self.blackout(entry)).collect()
    }

    fn blackout(&self, value: &Value<'_>) -> Result<Blackout> {
        let section = value.section()?;
        section.allow(&["from", "to", "every"])?;
        let from = self.moment(&section.require("from")?)?;
        let to = section.get("to").map(|value| self.moment(&value)).transpose()?;
        if to.is_some_and(|to| to <= from) {
            return Err(section.error("to", Problem::Sense("is not later than `from`")));
        }
        let every = section.get("every").map(|value| positive(&value)).transpose()?;
        if let Some(every) = every
            && to.is_none_or(|to| every <= to - from)
        {
            return Err(section.error(
                "every",
                Problem::Sense("leaves no time between one blackout and the next"),
            ));
        }
        Ok(Blackout { from, to, every })
    }
}

/// A trace file.
fn trace(value: &Value<'_>) -> Result<RatePlan> {
    let file = value.file()?;
    let path = || file.display().to_string();
    let text = std::fs::read_to_string(&file)
        .map_err(|error| value.error(Problem::ReadTrace { path: path(), error }))?;
    RatePlan::from_trace(&text)
        .map_err(|error| value.error(Problem::Trace { path: path(), error: Box::new(error) }))
}

/// `"128 KiB"` or `"100 packets"`.
pub(super) fn queue(value: &Value<'_>) -> Result<Limit> {
    let text = value.text()?;
    let packets =
        text.trim().strip_suffix("packets").or_else(|| text.trim().strip_suffix("packet"));
    match packets {
        None => value.quantity().map(Limit::Bytes),
        Some(number) => {
            let problem =
                Problem::Sense("wants a whole number of packets, for example '100 packets'");
            number.trim().parse().map(Limit::Packets).map_err(|_| value.error(problem))
        }
    }
}

fn loss(value: &Value<'_>) -> Result<Loss> {
    if !value.is_table() {
        let p = value.probability()?;
        return Ok(if p == 0.0 { Loss::None } else { Loss::Bernoulli(p) });
    }
    let section = value.section()?;
    if let Some(every) = section.get("every") {
        section.allow(&["every"])?;
        let number = NonZeroU64::new(every.integer()?);
        return number.map(Loss::Every).ok_or_else(|| {
            every.error(Problem::Sense("wants a whole number of packets, 1 or more"))
        });
    }
    section.allow(&["good_to_bad", "bad_to_good", "good", "bad", "every"])?;
    Ok(Loss::GilbertElliott(GilbertElliott {
        good_to_bad: section.require("good_to_bad")?.probability()?,
        bad_to_good: section.require("bad_to_good")?.probability()?,
        good: section.get("good").map_or(Ok(0.0), |value| value.probability())?,
        bad: section.get("bad").map_or(Ok(1.0), |value| value.probability())?,
    }))
}

fn reorder(value: &Value<'_>) -> Result<Reorder> {
    let section = value.section()?;
    section.allow(&["probability", "delay"])?;
    let probability = section.require("probability")?.probability()?;
    Ok(Reorder { probability, delay: positive(&section.require("delay")?)? })
}
