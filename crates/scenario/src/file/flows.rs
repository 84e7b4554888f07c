//! The flows of a scenario file.

mod reroute;
mod sockets;
mod striped;

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashSet;
use link::config::reader::{Section, Value, unknown_word};
use link::config::{ConfigError, Problem};
use tcp::Detection;
use units::{Bytes, Span};

use super::parse::{MOST, Numbered, Result, bytes_up_to, count, numbered, positive};
use super::{FlowSpec, LinkSpec, Start, TcpSpec, Transport, UdpSpec, Web, Workload};
use crate::controllers::Controllers;

const KEYS: &[&str] =
    &["name", "count", "from", "to", "start", "stop", "jitter", "transport", "reroute"];
const TCP_KEYS: &[&str] = &["controller", "source", "tcp", "via", "subflows"];
const PTCP_KEYS: &[&str] = &["controller", "scheduler", "source", "ptcp", "via", "subflows"];
const SOCKETS_KEYS: &[&str] = &["controller", "source", "buffer", "tcp", "via", "subflows"];
const UDP_KEYS: &[&str] = &["rate", "packet", "on_off"];
const ENDPOINT_KEYS: &[&str] = &[
    "mss",
    "headers",
    "initial_window",
    "initial_threshold",
    "min_rto",
    "receive_buffer",
    "delayed_ack",
    "detection",
    "ecn",
    "pacing",
    "hystart",
    "rate_reduction",
    "timestamps",
];

/// The largest buffer in bytes: more is taken for a typing error.
const MOST_BUFFER: u64 = 1_000_000_000_000;
/// The most subflows of a flow.
const MOST_SUBFLOWS: u32 = 10_000;

#[derive(Clone, Copy)]
enum TransportKind {
    Tcp,
    Ptcp,
    Sockets,
    Udp,
}

/// The flows over links that join these nodes.
pub(super) fn flows(
    list: &Value<'_>,
    links: &[LinkSpec],
    nodes: &HashSet<Arc<str>>,
    controllers: &Controllers,
) -> Result<Vec<FlowSpec>> {
    let mut flows: Vec<FlowSpec> = Vec::new();
    let mut known: HashSet<Arc<str>> = HashSet::new();
    let mut buffer = String::new();
    for value in list.list()? {
        let section = value.section()?;
        let name = section.require("name")?;
        let section = section.renamed(format!("flow.{}", name.text()?.trim_end_matches('*')));
        let names = Numbered::read(&section, &name)?;
        let first = flow(&section, &names, links, nodes, controllers)?;
        // An entry may stand for thousands of flows: only the parts that depend on the number are
        // made for each.
        let (from, to) = (section.require("from")?, section.require("to")?);
        let beginning = section.get("start").filter(|_| matches!(first.start, Start::At(_)));
        let has_routes = section.get("via").is_some() || section.get("subflows").is_some();
        flows.reserve(names.count() as usize);
        known.reserve(names.count() as usize);
        for number in names.numbers() {
            let (from, to) = ends(&from, &to, number, nodes, &mut buffer)?;
            let start =
                beginning.as_ref().map_or(Ok(first.start), |value| start(value, &names, number))?;
            let transport = if has_routes {
                Arc::new(first.transport.over(subflows(&section, number, links)?))
            } else {
                Arc::clone(&first.transport)
            };
            let reroutes = match section.get("reroute") {
                None => Vec::new(),
                Some(value) => reroute::reroutes(&value, number, transport.count(), links)?,
            };
            let name_now = names.name(number, &mut buffer);
            if !known.insert(Arc::clone(&name_now)) {
                return Err(name.error(Problem::Sense("is the name of an earlier flow too")));
            }
            let (group, stop, jitter) = (Arc::clone(&first.group), first.stop, first.jitter);
            flows.push(FlowSpec {
                name: name_now,
                group,
                from,
                to,
                start,
                stop,
                jitter,
                reroutes,
                transport,
            });
        }
    }
    if flows.is_empty() {
        return Err(list.error(Problem::Sense("wants at least one flow")));
    }
    Ok(flows)
}

/// The first flow of an entry.
fn flow(
    section: &Section<'_>,
    names: &Numbered,
    links: &[LinkSpec],
    nodes: &HashSet<Arc<str>>,
    controllers: &Controllers,
) -> Result<FlowSpec> {
    let number = *names.numbers().start();
    let kinds = [
        ("tcp", TransportKind::Tcp),
        ("ptcp", TransportKind::Ptcp),
        ("sockets", TransportKind::Sockets),
        ("udp", TransportKind::Udp),
    ];
    let kind =
        section.get("transport").map_or(Ok(TransportKind::Tcp), |value| value.word(&kinds))?;
    let own = match kind {
        TransportKind::Tcp => TCP_KEYS,
        TransportKind::Ptcp => PTCP_KEYS,
        TransportKind::Sockets => SOCKETS_KEYS,
        TransportKind::Udp => UDP_KEYS,
    };
    if let (TransportKind::Udp, Some(value)) = (kind, section.get("source")) {
        return Err(no_udp_source(&value));
    }
    section.allow(&KEYS.iter().chain(own).copied().collect::<Vec<_>>())?;
    let stop: Option<Span> = section.get("stop").map(|value| value.quantity()).transpose()?;
    let jitter = match section.get("jitter") {
        None => None,
        Some(value) if value.is_text() && value.text()? == "off" => Some(Span::ZERO),
        Some(value) => Some(value.quantity()?),
    };
    let from = section.require("from")?;
    let mut buffer = String::new();
    node(&from, number, nodes, &mut buffer)?;
    let (from, to) = ends(&from, &section.require("to")?, number, nodes, &mut buffer)?;
    Ok(FlowSpec {
        name: names.name(number, &mut buffer),
        group: names.group(),
        from,
        to,
        start: section
            .get("start")
            .map_or(Ok(Start::At(Span::ZERO)), |value| start(&value, names, number))?,
        stop,
        jitter,
        reroutes: Vec::new(),
        transport: Arc::new(match kind {
            TransportKind::Tcp => Transport::Tcp(tcp(section, number, links, controllers)?),
            TransportKind::Ptcp => {
                Transport::Ptcp(striped::ptcp(section, number, links, controllers)?)
            }
            TransportKind::Sockets => {
                Transport::Sockets(sockets::sockets(section, number, links, controllers)?)
            }
            TransportKind::Udp => Transport::Udp(udp(section)?),
        }),
    })
}

/// The hosts at which the flow of this number begins and ends.
fn ends(
    from: &Value<'_>,
    to: &Value<'_>,
    number: u32,
    nodes: &HashSet<Arc<str>>,
    buffer: &mut String,
) -> Result<(Arc<str>, Arc<str>)> {
    let ends = (node(from, number, nodes, buffer)?, node(to, number, nodes, buffer)?);
    if ends.0 == ends.1 {
        return Err(to.error(Problem::Sense("is where the flow begins")));
    }
    Ok(ends)
}

/// A node of the network; its name is assembled in `buffer`.
fn node(
    value: &Value<'_>,
    number: u32,
    nodes: &HashSet<Arc<str>>,
    buffer: &mut String,
) -> Result<Arc<str>> {
    let name = numbered(value, number, buffer)?;
    if let Some(known) = nodes.get(name) {
        return Ok(Arc::clone(known));
    }
    // Sorted, so that ties of the nearest name go to the first in the alphabet.
    let nodes: BTreeSet<&Arc<str>> = nodes.iter().collect();
    Err(value.error(unknown_word(name, nodes.into_iter().map(|node| &**node))))
}

/// `"2 s"`; `{ from = "0 s", to = "1 s" }` for a random time; `{ spread = "1 s" }` for the flows of
/// the entry at equal distances.
fn start(value: &Value<'_>, names: &Numbered, number: u32) -> Result<Start> {
    if !value.is_table() {
        return value.quantity().map(Start::At);
    }
    let section = value.section()?;
    section.allow(&["from", "to", "spread"])?;
    if let Some(spread) = section.get("spread") {
        section.allow(&["spread"])?;
        let spread: Span = spread.quantity()?;
        let nanos = u128::from(spread.as_nanos()) * u128::from(number.max(1) - 1)
            / u128::from(names.count());
        return Ok(Start::At(Span::from_nanos(
            u64::try_from(nanos).expect("less than the spread"),
        )));
    }
    let from = section.require("from")?.quantity()?;
    let to = section.require("to")?;
    let latest = to.quantity()?;
    if latest < from {
        return Err(to.error(Problem::Sense("is earlier than `from`")));
    }
    Ok(Start::Within(from, latest))
}

fn tcp(
    section: &Section<'_>,
    number: u32,
    links: &[LinkSpec],
    controllers: &Controllers,
) -> Result<TcpSpec> {
    let controller = controller(section, "cubic", controllers)?;
    let config = section
        .get("tcp")
        .map_or(Ok(tcp::Config::default()), |value| endpoint(&value.section()?))?;
    Ok(TcpSpec {
        controller,
        config: Arc::new(config),
        subflows: subflows(section, number, links)?,
        workload: section.get("source").map_or(Ok(Workload::Bulk), |value| workload(&value))?,
    })
}

fn controller(section: &Section<'_>, usual: &str, controllers: &Controllers) -> Result<String> {
    let Some(value) = section.get("controller") else { return Ok(usual.to_owned()) };
    let name = value.text()?;
    controllers.make(name).map_err(|message| value.error(Problem::Because(message)))?;
    Ok(name.to_owned())
}

/// The routes of a flow's subflows. `subflows = "each"` makes one over each link that joins its
/// hosts, a number makes that many over `via`.
fn subflows(section: &Section<'_>, number: u32, links: &[LinkSpec]) -> Result<Vec<Vec<String>>> {
    let route = |value: &Value<'_>| route(value, number, links);
    match (section.get("via"), section.get("subflows")) {
        (via, Some(value)) if value.integer().is_ok() => {
            let via = via.map_or(Ok(Vec::new()), |via| route(&via))?;
            let subflows = count(&value)?;
            let flows = section.get("count").map_or(Ok(1), |value| count(&value))?;
            if subflows > MOST_SUBFLOWS || u64::from(subflows) * u64::from(flows) > MOST {
                return Err(value.error(Problem::Sense(
                    "wants up to 10000 subflows, and up to 1000000 of all flows of the entry",
                )));
            }
            Ok(vec![via; subflows as usize])
        }
        (Some(_), Some(value)) => Err(value.error(Problem::Sense("and `via` exclude each other"))),
        (Some(via), None) => Ok(vec![route(&via)?]),
        (None, None) => Ok(vec![Vec::new()]),
        (None, Some(value)) if value.is_text() => {
            value.word(&[("each", ())])?;
            let (from, to) = (section.require("from")?, section.require("to")?);
            let mut buffers = [String::new(), String::new()];
            let [near, far] = &mut buffers;
            let ends = [numbered(&from, number, near)?, numbered(&to, number, far)?];
            let joins = |link: &&LinkSpec| {
                ends.iter().all(|end| link.between.iter().any(|node| **node == **end))
            };
            let each: Vec<_> =
                links.iter().filter(joins).map(|link| vec![link.name.to_string()]).collect();
            if each.is_empty() {
                return Err(value.error(Problem::Sense(
                    "wants links that join the flow's hosts, and there are none",
                )));
            }
            Ok(each)
        }
        (None, Some(value)) => {
            let list = value.list()?;
            if list.is_empty() {
                return Err(value.error(Problem::Sense("wants at least one way, a list of links")));
            }
            list.iter().map(route).collect()
        }
    }
}

/// The names of the links of a route.
fn route(value: &Value<'_>, number: u32, links: &[LinkSpec]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for value in value.list()? {
        let mut buffer = String::new();
        let name = numbered(&value, number, &mut buffer)?.to_owned();
        known_link(&name, links).map_err(|problem| value.error(problem))?;
        names.push(name);
    }
    Ok(names)
}

/// Checks that there is a link of this name, with a direction or not, or one that matches it.
fn known_link(name: &str, links: &[LinkSpec]) -> Result<(), Problem> {
    let plain = name.trim_end_matches("/up").trim_end_matches("/down");
    if links.iter().any(|link| *link.name == *plain || super::one_of(name, &link.name)) {
        return Ok(());
    }
    let mut problem = unknown_word(plain, links.iter().map(|link| &*link.name));
    if let Problem::UnknownWord { found, .. } = &mut problem {
        *found = name.into();
    }
    Err(problem)
}

fn endpoint(section: &Section<'_>) -> Result<tcp::Config> {
    section.allow(ENDPOINT_KEYS)?;
    let mut config = tcp::Config::default();
    if let Some(value) = section.get("mss") {
        config.mss = value.quantity()?;
        if !(64..=9_000).contains(&config.mss.0) {
            return Err(value.error(Problem::Sense("wants 64 to 9000 bytes")));
        }
        config.initial_window = Bytes(10 * config.mss.0);
    }
    if let Some(value) = section.get("headers") {
        config.headers = bytes_up_to(&value, 1_000, "wants up to 1000 bytes")?;
    }
    if let Some(value) = section.get("initial_window") {
        config.initial_window = Bytes(u64::from(count(&value)?) * config.mss.0);
    }
    if let Some(value) = section.get("initial_threshold") {
        config.initial_threshold = Some(value.quantity()?);
    }
    if let Some(value) = section.get("min_rto") {
        config.min_rto = positive(&value)?;
    }
    if let Some(value) = section.get("receive_buffer") {
        config.receive_buffer = bytes_up_to(&value, MOST_BUFFER, "wants up to 1 TB")?;
    }
    if let Some(value) = section.get("delayed_ack") {
        config.delayed_ack =
            if value.is_text() && value.text()? == "off" { None } else { Some(positive(&value)?) };
    }
    if let Some(value) = section.get("detection") {
        config.detection = value.word(&[
            ("reno", Detection::Reno),
            ("newreno", Detection::NewReno),
            ("sack", Detection::Sack),
            ("rack", Detection::Rack),
        ])?;
    }
    for (key, slot) in [
        ("ecn", &mut config.ecn),
        ("pacing", &mut config.pacing),
        ("hystart", &mut config.hystart),
        ("rate_reduction", &mut config.rate_reduction),
        ("timestamps", &mut config.timestamps),
    ] {
        if let Some(value) = section.get(key) {
            *slot = value.boolean()?;
        }
    }
    Ok(config)
}

fn workload(value: &Value<'_>) -> Result<Workload> {
    if value.is_text() {
        return value.word(&[("bulk", ())]).map(|()| Workload::Bulk);
    }
    let section = value.section()?;
    section.allow(&["file", "stream", "web", "trace"])?;
    if let Some(file) = section.get("file") {
        return file.quantity().map(Workload::File);
    }
    if let Some(stream) = section.get("stream") {
        return stream.quantity().map(Workload::Stream);
    }
    if let Some(web) = section.get("web") {
        return self::web(&web.section()?).map(Workload::Web);
    }
    if let Some(trace) = section.get("trace") {
        return writes(&trace).map(Workload::Trace);
    }
    Err(value
        .error(Problem::Sense("wants \"bulk\", or one of `file`, `stream`, `web` and `trace`")))
}

/// UDP has no source: it neither retransmits nor answers.
fn no_udp_source(value: &Value<'_>) -> ConfigError {
    let name = match workload(value) {
        Ok(Workload::Bulk) => "bulk",
        Ok(Workload::File(_)) => "file",
        Ok(Workload::Stream(_)) => "stream",
        Ok(Workload::Web(_)) => "web",
        Ok(Workload::Trace(_)) => "trace",
        Err(error) => return error,
    };
    value.error(Problem::Because(format!(
        "'{name}' wants a transport that delivers everything, and `transport` is \"udp\"; it has \
         `rate`, and `on_off` for bursts"
    )))
}

fn web(section: &Section<'_>) -> Result<Web> {
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
    let mean = section.get("mean").map_or(Ok(Bytes(30_000)), |value| value.quantity())?;
    let think = section.get("think").map_or(Ok(Span::from_secs(1)), |value| value.quantity())?;
    Ok(Web { mean, shape, think })
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

fn udp(section: &Section<'_>) -> Result<UdpSpec> {
    let rate = section.require("rate")?;
    let packet = section.get("packet").map_or(Ok(Bytes(1_500)), |value| value.quantity())?;
    let spec = UdpSpec {
        rate: rate.quantity()?,
        packet,
        on_off: section.get("on_off").map(|value| on_off(&value)).transpose()?,
    };
    if spec.rate == units::Rate::ZERO {
        return Err(rate.error(Problem::Sense("wants more than nothing")));
    }
    if !(28..=65_535).contains(&packet.0) {
        return Err(
            section.error("packet", Problem::Sense("wants 28 to 65535 bytes, headers included"))
        );
    }
    Ok(spec)
}

fn on_off(value: &Value<'_>) -> Result<(Span, Span)> {
    let section = value.section()?;
    section.allow(&["on", "off"])?;
    Ok((positive(&section.require("on")?)?, positive(&section.require("off")?)?))
}
