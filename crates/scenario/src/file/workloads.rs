//! What the applications of flows send.

use std::sync::Arc;

use link::config::reader::{Section, Value};
use link::config::{ConfigError, Problem};
use units::{Bytes, Rate, Span};

use super::distributions::{sizes, times};
use super::tables::RowTable;
use super::values::{Result, positive};
use super::{Lines, Pace, Requests, UdpSpec, Workload};
use crate::distribution::Distribution;

/// The size of a request, unless the file says another.
const REQUEST: Bytes = Bytes(300);
/// The most connections of the requests of a flow.
const MOST_LINES: u64 = 100_000;
/// The sizes of IP packets, UDP's headers included.
const PACKETS: std::ops::RangeInclusive<u64> = 28..=65_535;
/// What is wrong with another size.
const NO_PACKET: &str = "wants 28 to 65535 bytes, headers included";

/// The source of a flow.
pub(super) fn workload(value: &Value<'_>) -> Result<Workload> {
    if value.is_text() {
        return value.word(&[("bulk", ())]).map(|()| Workload::Bulk);
    }
    let section = value.section()?;
    section.allow(&["file", "stream", "requests", "web", "trace"])?;
    if let Some(file) = section.get("file") {
        return sizes(&file).map(Workload::File);
    }
    if let Some(stream) = section.get("stream") {
        return stream.quantity().map(Workload::Stream);
    }
    if let Some(value) = section.get("requests") {
        return requests(&value.section()?).map(|spec| Workload::Requests(Arc::new(spec)));
    }
    if let Some(web) = section.get("web") {
        return self::web(&web.section()?).map(|spec| Workload::Requests(Arc::new(spec)));
    }
    if let Some(trace) = section.get("trace") {
        return writes(&trace).map(|writes| Workload::Trace(writes.into()));
    }
    Err(value.error(Problem::Sense(
        "wants \"bulk\", or one of `file`, `stream`, `requests`, `web` and `trace`",
    )))
}

/// UDP has no source: it neither retransmits nor answers.
pub(super) fn no_udp_source(value: &Value<'_>) -> ConfigError {
    let name = match workload(value) {
        Ok(Workload::Bulk) => "bulk",
        Ok(Workload::File(_)) => "file",
        Ok(Workload::Stream(_)) => "stream",
        Ok(Workload::Requests(_)) => {
            let is_web = value.section().is_ok_and(|section| section.get("web").is_some());
            if is_web { "web" } else { "requests" }
        }
        Ok(Workload::Trace(_)) => "trace",
        Err(error) => return error,
    };
    value.error(Problem::Because(format!(
        "'{name}' wants a transport that delivers everything, and `transport` is \"udp\"; it has \
         `rate`, `interval` or `trace`, `size` for a number of bytes, and `on_off` for bursts"
    )))
}

fn requests(section: &Section<'_>) -> Result<Requests> {
    section.allow(&["size", "request", "think", "count", "objects", "connections"])?;
    let count = section.get("count").map(|value| super::values::count(&value)).transpose()?;
    let requests = Requests {
        size: at_least_a_byte(&section.require("size")?)?,
        request: section
            .get("request")
            .map_or(Ok(Distribution::Constant(REQUEST.as_f64())), |value| {
                at_least_a_byte(&value)
            })?,
        think: section
            .get("think")
            .map_or(Ok(Distribution::Constant(0.0)), |value| times(&value))?,
        count: count.map(u64::from),
        objects: section.get("objects").map_or(Ok(1), |value| super::values::count(&value))?,
        lines: section.get("connections").map_or(Ok(Lines::One), |value| lines(&value))?,
    };
    if requests.lines == Lines::Each && requests.count.is_none() {
        return Err(section.error(
            "count",
            Problem::Sense("is missing: how many connections may `connections = \"each\"` open?"),
        ));
    }
    if requests.connections() > MOST_LINES {
        return Err(section.error(
            "connections",
            Problem::Sense("are more than 100000: of `count` times `objects`, or as given"),
        ));
    }
    Ok(requests)
}

/// `"one"`, `"each"`, or a number.
fn lines(value: &Value<'_>) -> Result<Lines> {
    if value.is_text() {
        return value.word(&[("one", Lines::One), ("each", Lines::Each)]);
    }
    super::values::count(value).map(Lines::UpTo)
}

/// The sizes of requests or answers: of nothing, none would ever arrive.
fn at_least_a_byte(value: &Value<'_>) -> Result<Distribution> {
    let sizes = sizes(value)?;
    if sizes == Distribution::Constant(0.0) {
        return Err(value.error(Problem::Sense("wants at least a byte")));
    }
    Ok(sizes)
}

/// Pages of Pareto-distributed size with exponential think times.
fn web(section: &Section<'_>) -> Result<Requests> {
    section.allow(&["mean", "shape", "think"])?;
    let shape = match section.get("shape") {
        None => 1.2,
        Some(value) => {
            let shape = value.number()?;
            if shape <= 1.0 {
                return Err(value.error(Problem::Sense(
                    "wants more than 1: below, a Pareto distribution has no mean",
                )));
            }
            shape
        }
    };
    let mean = match section.get("mean") {
        None => 30_000.0,
        Some(value) => match at_least_a_byte(&value)? {
            Distribution::Constant(mean) => mean,
            _ => return Err(value.error(Problem::Sense("wants a size, for example 30 kB"))),
        },
    };
    let think = section.get("think").map_or(Ok(Span::from_secs(1)), |value| value.quantity())?;
    Ok(Requests {
        size: Distribution::pareto(mean, shape),
        request: Distribution::Constant(REQUEST.as_f64()),
        think: Distribution::Exponential { mean: think.as_secs_f64() },
        count: None,
        objects: 1,
        lines: Lines::One,
    })
}

/// A list of `{ at = "1 s", bytes = "10 kB" }`.
fn writes(value: &Value<'_>) -> Result<Vec<(Span, Bytes)>> {
    let mut writes: Vec<(Span, Bytes)> = Vec::new();
    for value in value.list()? {
        let section = value.section()?;
        section.allow(&["at", "bytes"])?;
        let at = section.require("at")?;
        let write = (at.quantity()?, section.require("bytes")?.quantity()?);
        if writes.last().is_some_and(|last| last.0 > write.0) {
            return Err(at.error(Problem::Sense("is earlier than the entry before it")));
        }
        writes.push(write);
    }
    Ok(writes)
}

/// A UDP flow over these links: by a rate, by intervals, or by a trace of packets.
pub(super) fn udp(section: &Section<'_>, via: Vec<String>) -> Result<UdpSpec> {
    let on_off = section.get("on_off").map(|value| on_off(&value)).transpose()?;
    let size = section.get("size").map(|value| sizes(&value)).transpose()?;
    if let Some(value) = section.get("trace") {
        for key in ["rate", "interval", "packet", "on_off", "size"] {
            if let Some(value) = section.get(key) {
                return Err(value.error(Problem::Sense("and `trace` exclude each other")));
            }
        }
        let packets = packets(&value)?;
        let mean = Distribution::Constant(mean_packet(&packets));
        let pace = Pace::Trace(packets.into());
        return Ok(UdpSpec { pace, packet: mean, on_off: None, size: None, via });
    }
    let pace = match (section.get("rate"), section.get("interval")) {
        (Some(_), Some(interval)) => {
            return Err(interval.error(Problem::Sense("and `rate` exclude each other")));
        }
        (None, Some(interval)) => Pace::Interval(times(&interval)?),
        (None, None) => {
            return Err(section.error(
                "rate",
                Problem::Sense("is missing: give a `rate`, an `interval`, or a `trace` of packets"),
            ));
        }
        (Some(rate), None) => {
            let value: Rate = rate.quantity()?;
            if value == Rate::ZERO {
                return Err(rate.error(Problem::Sense("wants more than nothing")));
            }
            Pace::Rate(value)
        }
    };
    let packet =
        section.get("packet").map_or(Ok(Distribution::Constant(1_500.0)), |value| sizes(&value))?;
    // Drawn sizes are held within these bounds.
    if let Distribution::Constant(bytes) = packet
        && !(28.0..=65_535.0).contains(&bytes)
    {
        return Err(section.error("packet", Problem::Sense(NO_PACKET)));
    }
    Ok(UdpSpec { pace, packet, on_off, size, via })
}

#[expect(clippy::cast_precision_loss, reason = "at most a million packets")]
fn mean_packet(packets: &[(Span, Bytes)]) -> f64 {
    packets.iter().map(|(_, bytes)| bytes.as_f64()).sum::<f64>() / packets.len() as f64
}

/// A trace of packets: time and size in each row.
fn packets(value: &Value<'_>) -> Result<Vec<(Span, Bytes)>> {
    let table = RowTable::read(value, &["time", "size"], 2)?;
    let mut packets: Vec<(Span, Bytes)> = Vec::with_capacity(table.rows.len());
    for row in &table.rows {
        let packet = (table.span(row, 0)?, table.bytes(row, 1)?);
        if !PACKETS.contains(&packet.1.0) {
            return Err(table.row_error(row, &format!("`size` {} {NO_PACKET}", packet.1.0)));
        }
        if packets.last().is_some_and(|last| last.0 > packet.0) {
            let problem = "`time` is earlier than in the row before it";
            return Err(table.row_error(row, &problem));
        }
        packets.push(packet);
    }
    Ok(packets)
}

fn on_off(value: &Value<'_>) -> Result<(Span, Span)> {
    let section = value.section()?;
    section.allow(&["on", "off"])?;
    Ok((positive(&section.require("on")?)?, positive(&section.require("off")?)?))
}
