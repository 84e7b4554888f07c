//! The keys `aqm` and `jitter`.

use units::{Bytes, Rate, Span};

use super::error::{Problem, Result};
use super::reader::{Section, Value};
use super::values::{positive, queue};
use crate::{Aqm, Bucket, CoDel, DualPi2, FqCoDel, Jitter, Limit, Pie, Red, Spread, Threshold};

#[derive(Clone, Copy)]
enum Kind {
    DropTail,
    Red,
    Pie,
    CoDel,
    FqCoDel,
    Step,
    DualPi2,
    Policer,
    Shaper,
}

const KINDS: &[(&str, Kind)] = &[
    ("drop-tail", Kind::DropTail),
    ("red", Kind::Red),
    ("pie", Kind::Pie),
    ("codel", Kind::CoDel),
    ("fq-codel", Kind::FqCoDel),
    ("step", Kind::Step),
    ("dualpi2", Kind::DualPi2),
    ("policer", Kind::Policer),
    ("shaper", Kind::Shaper),
];

/// The packet size by which a limit in bytes is converted to packets.
const USUAL_PACKET: u64 = 1_500;

/// `"red"`, or a table. The default thresholds of RED depend on `limit`.
pub(super) fn aqm(value: &Value<'_>, limit: Limit) -> Result<Aqm> {
    if !value.is_table() {
        return Ok(match value.word(KINDS)? {
            Kind::DropTail => Aqm::DropTail,
            Kind::Red => Aqm::Red(red(limit)),
            Kind::Pie => Aqm::Pie(Pie::default()),
            Kind::CoDel => Aqm::CoDel(CoDel::default()),
            Kind::FqCoDel => Aqm::FqCoDel(FqCoDel::default()),
            Kind::DualPi2 => Aqm::DualPi2(DualPi2::default()),
            Kind::Step => {
                return Err(value.error(Problem::Sense(
                    "wants a threshold: { kind = \"step\", threshold = \"65 packets\" }",
                )));
            }
            Kind::Policer | Kind::Shaper => {
                return Err(value.error(Problem::Sense(
                    "wants a rate and a burst: { kind = \"policer\", rate = \"10 Mbit/s\", burst \
                     = \"100 kB\" }",
                )));
            }
        });
    }
    let section = value.section()?;
    match section.require("kind")?.word(KINDS)? {
        Kind::DropTail => {
            section.allow(&["kind"])?;
            Ok(Aqm::DropTail)
        }
        Kind::Red => red_table(&section, limit).map(Aqm::Red),
        Kind::Pie => pie_table(&section).map(Aqm::Pie),
        Kind::CoDel => {
            section.allow(&["kind", "target", "interval", "ecn", "mtu"])?;
            codel_table(&section).map(Aqm::CoDel)
        }
        Kind::FqCoDel => fq_codel_table(&section).map(Aqm::FqCoDel),
        Kind::Step => {
            section.allow(&["kind", "threshold"])?;
            threshold(&section.require("threshold")?).map(Aqm::Step)
        }
        Kind::DualPi2 => dual_table(&section).map(Aqm::DualPi2),
        Kind::Policer => bucket(&section).map(Aqm::Policer),
        Kind::Shaper => bucket(&section).map(Aqm::Shaper),
    }
}

/// RED with thresholds at a sixth and a half of the queue.
#[expect(clippy::cast_precision_loss, reason = "a number of packets")]
fn red(limit: Limit) -> Red {
    let packets = match limit {
        Limit::Packets(packets) => packets as f64,
        Limit::Bytes(bytes) => (bytes.0 / USUAL_PACKET) as f64,
    };
    Red::new(packets / 6.0, packets / 2.0)
}

fn red_table(section: &Section<'_>, limit: Limit) -> Result<Red> {
    section.allow(&[
        "kind",
        "min",
        "max",
        "weight",
        "probability",
        "gentle",
        "ecn",
        "mean_packet",
    ])?;
    let usual = red(limit);
    let min = section.get("min").map_or(Ok(usual.min), |value| length(&value))?;
    let max = section.get("max").map_or(Ok(usual.max), |value| length(&value))?;
    if max <= min {
        let key = if section.get("max").is_some() { "max" } else { "min" };
        let place = section
            .get(key)
            .map(|value| value.error(Problem::Sense("`max` wants to be more than `min`")));
        return Err(place.unwrap_or_else(|| {
            section.error("min", Problem::Sense("the queue is too short for RED"))
        }));
    }
    Ok(Red {
        min,
        max,
        weight: section.get("weight").map_or(Ok(usual.weight), |value| value.probability())?,
        probability: section
            .get("probability")
            .map_or(Ok(usual.probability), |value| value.probability())?,
        gentle: section.get("gentle").map_or(Ok(usual.gentle), |value| value.boolean())?,
        ecn: section.get("ecn").map_or(Ok(usual.ecn), |value| value.boolean())?,
        mean_packet: section
            .get("mean_packet")
            .map_or(Ok(usual.mean_packet), |value| size(&value))?,
    })
}

fn pie_table(section: &Section<'_>) -> Result<Pie> {
    section.allow(&["kind", "target", "interval", "burst", "ecn"])?;
    let usual = Pie::default();
    Ok(Pie {
        target: section.get("target").map_or(Ok(usual.target), |value| positive(&value))?,
        interval: section.get("interval").map_or(Ok(usual.interval), |value| positive(&value))?,
        burst: section.get("burst").map_or(Ok(usual.burst), |value| value.quantity())?,
        ecn: section.get("ecn").map_or(Ok(usual.ecn), |value| value.boolean())?,
    })
}

fn codel_table(section: &Section<'_>) -> Result<CoDel> {
    let usual = CoDel::default();
    Ok(CoDel {
        target: section.get("target").map_or(Ok(usual.target), |value| positive(&value))?,
        interval: section.get("interval").map_or(Ok(usual.interval), |value| positive(&value))?,
        ecn: section.get("ecn").map_or(Ok(usual.ecn), |value| value.boolean())?,
        mtu: section.get("mtu").map_or(Ok(usual.mtu), |value| size(&value))?,
    })
}

fn fq_codel_table(section: &Section<'_>) -> Result<FqCoDel> {
    section.allow(&["kind", "target", "interval", "ecn", "mtu", "quantum", "queues"])?;
    let usual = FqCoDel::default();
    let queues = |value: &Value<'_>| {
        let queues =
            u32::try_from(value.integer()?).ok().filter(|queues| (1..=65_536).contains(queues));
        queues.ok_or_else(|| value.error(Problem::Sense("wants 1 to 65536 queues")))
    };
    Ok(FqCoDel {
        codel: codel_table(section)?,
        quantum: section.get("quantum").map_or(Ok(usual.quantum), |value| size(&value))?,
        queues: section.get("queues").map_or(Ok(usual.queues), |value| queues(&value))?,
    })
}

fn dual_table(section: &Section<'_>) -> Result<DualPi2> {
    section.allow(&["kind", "target", "longest_rtt", "coupling", "ramp_from", "ramp_to"])?;
    let usual = DualPi2::default();
    let time = |key, usual| section.get(key).map_or(Ok(usual), |value| positive(&value));
    let coupling = |value: &Value<'_>| {
        let coupling = value.number()?;
        let is_sane = (0.1..=100.0).contains(&coupling);
        let problem = Problem::Sense("wants 0.1 to 100; the RFC has 2");
        is_sane.then_some(coupling).ok_or_else(|| value.error(problem))
    };
    let dual = DualPi2 {
        target: time("target", usual.target)?,
        longest_rtt: time("longest_rtt", usual.longest_rtt)?,
        coupling: section.get("coupling").map_or(Ok(usual.coupling), |value| coupling(&value))?,
        ramp_from: time("ramp_from", usual.ramp_from)?,
        ramp_to: time("ramp_to", usual.ramp_to)?,
    };
    if dual.ramp_to < dual.ramp_from {
        let key = if section.get("ramp_to").is_some() { "ramp_to" } else { "ramp_from" };
        let problem = Problem::Sense("`ramp_to` wants to be no less than `ramp_from`");
        return Err(section.error(key, problem));
    }
    Ok(dual)
}

fn bucket(section: &Section<'_>) -> Result<Bucket> {
    section.allow(&["kind", "rate", "burst"])?;
    let rate = section.require("rate")?;
    let burst = section.require("burst")?;
    let bucket = Bucket { rate: rate.quantity()?, burst: burst.quantity()? };
    if bucket.rate == Rate::ZERO {
        return Err(rate.error(Problem::Sense("wants more than nothing")));
    }
    if !(1..1 << 31).contains(&bucket.burst.0) {
        return Err(burst.error(Problem::Sense("wants at least a packet, and less than 2 GiB")));
    }
    Ok(bucket)
}

/// `"65 packets"`, `"100 KiB"` or `"1 ms"`.
fn threshold(value: &Value<'_>) -> Result<Threshold> {
    let text = value.text()?;
    if let Ok(most) = text.parse() {
        return Ok(Threshold::Sojourn(most));
    }
    queue(value).map(Threshold::Backlog).map_err(|_| {
        value.error(Problem::Sense(
            "wants packets, bytes or a time, for example '65 packets', '100 KiB' or '1 ms'",
        ))
    })
}

/// A number of packets, not necessarily whole: `27.5`, or `"28 packets"`.
#[expect(clippy::cast_precision_loss, reason = "a number of packets")]
fn length(value: &Value<'_>) -> Result<f64> {
    if let Some(number) = value.as_number() {
        return Some(number)
            .filter(|n| n.is_finite() && *n >= 0.0)
            .ok_or_else(|| value.error(WANTS_PACKETS));
    }
    match queue(value)? {
        Limit::Packets(packets) => Ok(packets as f64),
        Limit::Bytes(_) => Err(value.error(WANTS_PACKETS)),
    }
}

const WANTS_PACKETS: Problem =
    Problem::Sense("wants a number of packets, for example 28 or '28 packets'");

/// The size of a packet in bytes.
fn size(value: &Value<'_>) -> Result<Bytes> {
    let bytes = value.integer()?;
    let is_sane = (1..=65_535).contains(&bytes);
    is_sane
        .then_some(Bytes(bytes))
        .ok_or_else(|| value.error(Problem::Sense("wants 1 to 65535 bytes")))
}

/// `"3 ms"`, or a table.
pub(super) fn jitter(value: &Value<'_>) -> Result<Jitter> {
    if !value.is_table() {
        return Ok(Jitter { spread: Spread::Uniform(value.quantity()?), reorders: false });
    }
    let section = value.section()?;
    section.allow(&["most", "mean", "deviation", "reorder"])?;
    let spread = match section.get("most") {
        Some(most) => {
            let other = section.get("mean").or_else(|| section.get("deviation"));
            if let Some(other) = other {
                return Err(other.error(Problem::Sense(
                    "is of a normal distribution, and `most` of a uniform one",
                )));
            }
            Spread::Uniform(most.quantity()?)
        }
        None if section.get("mean").is_none() && section.get("deviation").is_none() => {
            return Err(section.error("most", Problem::Missing));
        }
        None => Spread::Normal {
            mean: section.get("mean").map_or(Ok(Span::ZERO), |value| value.quantity())?,
            deviation: section.require("deviation")?.quantity()?,
        },
    };
    Ok(Jitter {
        spread,
        reorders: section.get("reorder").map_or(Ok(false), |value| value.boolean())?,
    })
}
