//! When flows begin: starts, arrival processes, and traces of arrivals.

use std::sync::Arc;

use link::config::Problem;
use link::config::reader::{Section, Value, unknown_word};
use units::Span;

use super::distributions::times;
use super::names::Numbered;
use super::values::Result;
use super::{Arrivals, LinkSpec, Start, Transport, Workload};
use crate::distribution::Distribution;

/// The ways to say when the flows of an entry begin.
const WAYS: &[&str] = &["from", "to", "spread", "poisson", "interval", "load", "of"];

/// `"2 s"`; `{ from = "0 s", to = "1 s" }` for a random time; `{ spread = "1 s" }` for the flows of
/// the entry at equal distances; `{ poisson = "100 per s" }`, `{ interval = … }` or
/// `{ load = 0.6, of = "LINK" }` for arrivals one after the other.
pub(super) fn start(
    value: &Value<'_>,
    names: &Numbered,
    number: u32,
    transport: &Transport,
    links: &[LinkSpec],
) -> Result<Start> {
    if !value.is_table() {
        return value.quantity().map(Start::At);
    }
    let section = value.section()?;
    section.allow(WAYS)?;
    if let Some(spread) = section.get("spread") {
        section.allow(&["spread"])?;
        let spread: Span = spread.quantity()?;
        let nanos = u128::from(spread.as_nanos()) * u128::from(number.max(1) - 1)
            / u128::from(names.count());
        return Ok(Start::At(Span::from_nanos(
            u64::try_from(nanos).expect("less than the spread"),
        )));
    }
    if let Some(interval) = interval(&section, transport, links)? {
        let from = section.get("from").map_or(Ok(Span::ZERO), |value| value.quantity())?;
        return Ok(Start::Arrival(Arc::new(Arrivals { name: names.group(), from, interval })));
    }
    let from = section.require("from")?.quantity()?;
    let to = section.require("to")?;
    let latest = to.quantity()?;
    if latest < from {
        return Err(to.error(Problem::Sense("is earlier than `from`")));
    }
    Ok(Start::Within(from, latest))
}

/// The intervals of an arrival process, if the section describes one.
fn interval(
    section: &Section<'_>,
    transport: &Transport,
    links: &[LinkSpec],
) -> Result<Option<Distribution>> {
    if let Some(value) = section.get("poisson") {
        section.allow(&["poisson", "from"])?;
        let mean = 1.0 / frequency(&value)?;
        return Ok(Some(Distribution::Exponential { mean }));
    }
    if let Some(value) = section.get("interval") {
        section.allow(&["interval", "from"])?;
        return times(&value).map(Some);
    }
    let Some(value) = section.get("load") else { return Ok(None) };
    section.allow(&["load", "of", "from"])?;
    let load = value.number()?;
    if load <= 0.0 || load > 1_000.0 {
        return Err(value.error(Problem::Sense("wants a part of the link's rate, such as 0.6")));
    }
    let size = wire_size(transport);
    let Some(size) = size.filter(|size| size.is_finite() && *size > 0.0) else {
        return Err(value.error(Problem::Sense(
            "wants flows of a mean size: `source = { file = … }`, or `size` of a UDP flow",
        )));
    };
    let rate = link_rate(&section.require("of")?, links)?;
    Ok(Some(Distribution::Exponential { mean: size * 8.0 / (load * rate) }))
}

/// `"100 per s"`: a number and a unit of time.
fn frequency(value: &Value<'_>) -> Result<f64> {
    let text = value.text()?;
    let parts = text.split_once("per").or_else(|| text.split_once('/'));
    let read = parts.and_then(|(number, unit)| {
        let number = number.trim().parse().ok().filter(|it: &f64| it.is_finite() && *it > 0.0)?;
        let unit: Span = format!("1 {}", unit.trim()).parse().ok()?;
        Some(number / unit.as_secs_f64())
    });
    read.ok_or_else(|| {
        value.error(Problem::Because(format!(
            "'{text}' is not a frequency: write a number above 0 and a time, for example \
             100 per s, 2.5 per min"
        )))
    })
}

/// The mean of the bytes that a flow puts on a link in the direction of its data, headers included;
/// `None` if it has no end.
fn wire_size(transport: &Transport) -> Option<f64> {
    let with_headers = |workload: &Workload, payload: f64, packet: f64| match workload {
        Workload::File(size) => Some(size.mean() * packet / payload),
        _ => None,
    };
    match transport {
        Transport::Tcp(spec) => {
            let (mss, headers) = (spec.config.mss.as_f64(), spec.config.headers.as_f64());
            with_headers(&spec.workload, mss, mss + headers)
        }
        Transport::Sockets(spec) => {
            let (mss, headers) = (spec.config.mss.as_f64(), spec.config.headers.as_f64());
            with_headers(&spec.workload, mss, mss + headers)
        }
        Transport::Ptcp(spec) => with_headers(&spec.workload, 1.0, 1.0),
        Transport::Udp(spec) => spec.size.as_ref().map(Distribution::mean),
    }
}

/// The rate of a link in bit/s, from its first node to its second unless `NAME/down` is named.
fn link_rate(value: &Value<'_>, links: &[LinkSpec]) -> Result<f64> {
    let name = value.text()?;
    let plain = name.trim_end_matches("/up").trim_end_matches("/down");
    let Some(link) = links.iter().find(|link| *link.name == *plain) else {
        return Err(value.error(unknown_word(plain, links.iter().map(|link| &*link.name))));
    };
    let direction = if name.ends_with("/down") { &link.down } else { &link.up };
    let rate = direction.profile().rate.base.as_f64();
    if rate <= 0.0 {
        return Err(value.error(Problem::Sense("has no rate at the begin of the run")));
    }
    Ok(rate)
}
