//! The flows of a scenario file.

mod endpoint;
mod reroute;
mod sockets;
mod striped;

use std::sync::Arc;

use hashbrown::HashSet;
use link::config::Problem;
use link::config::reader::{Section, Value};
use units::Span;

use super::arrivals::start;
use super::gateways::Gateways;
use super::names::{Numbered, node, numbered, route, unknown_node};
use super::tables::{RowTable, TableRow};
use super::values::{MOST, Result, count};
use super::workloads::{no_udp_source, udp, workload};
use super::{FlowSpec, Lines, LinkSpec, Place, Start, TcpSpec, Through, Transport, Workload};
use crate::registry::Registry;
use endpoint::endpoint;

const KEYS: &[&str] = &[
    "name",
    "count",
    "group",
    "from",
    "to",
    "start",
    "arrivals",
    "stop",
    "jitter",
    "transport",
    "reroute",
];
const TCP_KEYS: &[&str] = &["controller", "source", "tcp", "via", "subflows", "gateway"];
const PTCP_KEYS: &[&str] = &["controller", "scheduler", "source", "ptcp", "via", "subflows"];
const SOCKETS_KEYS: &[&str] = &["controller", "source", "buffer", "tcp", "via", "subflows"];
const UDP_KEYS: &[&str] = &["rate", "interval", "packet", "trace", "size", "on_off", "via"];

/// The most subflows of a flow.
const MOST_SUBFLOWS: u32 = 10_000;

#[derive(Clone, Copy)]
enum TransportKind {
    Tcp,
    Ptcp,
    Sockets,
    Udp,
}

/// The columns of a trace of arrivals.
const ARRIVALS: &[&str] = &["start", "size", "from", "to"];

/// What the flows of a file refer to.
struct Surroundings<'a> {
    links: &'a [LinkSpec],
    nodes: &'a HashSet<Arc<str>>,
    gateways: &'a Gateways,
    registry: &'a Registry,
}

/// The flows over links that join these nodes.
pub(super) fn flows(
    list: &Value<'_>,
    links: &[LinkSpec],
    nodes: &HashSet<Arc<str>>,
    gateways: &Gateways,
    registry: &Registry,
) -> Result<Vec<FlowSpec>> {
    let around = Surroundings { links, nodes, gateways, registry };
    let mut flows: Vec<FlowSpec> = Vec::new();
    let mut known: HashSet<Arc<str>> = HashSet::new();
    for value in list.list()? {
        let section = value.section()?;
        let name = section.require("name")?;
        let section = section.renamed(format!("flow.{}", name.text()?.trim_end_matches('*')));
        let file = section.get("arrivals");
        let table = file.as_ref().map(|file| RowTable::read(file, ARRIVALS, 2)).transpose()?;
        let before = flows.len();
        match &table {
            None => entry(&section, &name, &around, &mut flows)?,
            Some(table) => arrivals(&section, &name, table, &around, &mut flows)?,
        }
        known.reserve(flows.len() - before);
        if flows[before..].iter().any(|flow| !known.insert(Arc::clone(&flow.name))) {
            return Err(name.error(Problem::Sense("is the name of an earlier flow too")));
        }
    }
    if flows.is_empty() {
        return Err(list.error(Problem::Sense("wants at least one flow")));
    }
    Ok(flows)
}

/// Adds the flows of an entry.
fn entry(
    section: &Section<'_>,
    name: &Value<'_>,
    around: &Surroundings<'_>,
    flows: &mut Vec<FlowSpec>,
) -> Result<()> {
    let Surroundings { links, nodes, .. } = *around;
    let names = Numbered::read(section, name)?;
    let first = flow(section, &names, around)?;
    // An entry may stand for thousands of flows: only the parts that depend on the number are made
    // for each.
    let (from, to) = (section.require("from")?, section.require("to")?);
    let beginning = section.get("start").filter(|_| matches!(first.start, Start::At(_)));
    let has_routes = section.get("via").is_some() || section.get("subflows").is_some();
    let changes = section.get("reroute").filter(|_| names.count() > 1);
    let has_own_ends = [&from, &to].iter().any(|end| has_star(end));
    let gateway = section.get("gateway");
    let has_own_gateway = has_own_ends || gateway.is_some_and(|gateway| has_star(&gateway));
    let mut buffer = String::new();
    flows.reserve(names.count() as usize);
    for number in names.numbers() {
        let mut flow = first.clone();
        if has_own_ends {
            (flow.from, flow.to) = ends(&from, &to, number, nodes, &mut buffer)?;
        }
        if has_own_gateway {
            flow.gateway = through(section, number, &flow.from, &flow.to, around)?;
        }
        if let Some(value) = &beginning {
            flow.start = start(value, &names, number, &first.transport, links)?;
        }
        if has_routes {
            flow.transport = Arc::new(first.transport.over(subflows(section, number, links)?));
        }
        if let Some(value) = &changes {
            let subflows = flow.transport.count();
            flow.reroutes = reroute::reroutes(value, number, subflows, links)?.into();
        }
        flow.name = names.name(number, &mut buffer);
        check_stop(section, &flow)?;
        flows.push(flow);
    }
    Ok(())
}

/// Checks that a flow does not stop before it can have begun.
fn check_stop(section: &Section<'_>, flow: &FlowSpec) -> Result<()> {
    let latest = match &flow.start {
        Start::At(at) | Start::Within(_, at) => *at,
        Start::Arrival(arrivals) => arrivals.from,
    };
    match (section.get("stop"), flow.stop) {
        (Some(value), Some(stop)) if stop <= latest => Err(value.error(Problem::Because(format!(
            "is not after the start: {} can begin at {latest}",
            flow.name
        )))),
        _ => Ok(()),
    }
}

/// Adds the flows of a trace of arrivals, one for each row.
fn arrivals(
    section: &Section<'_>,
    name: &Value<'_>,
    table: &RowTable<'_>,
    around: &Surroundings<'_>,
    flows: &mut Vec<FlowSpec>,
) -> Result<()> {
    for key in ["count", "start", "size"] {
        if let Some(value) = section.get(key) {
            return Err(
                value.error(Problem::Sense("comes from the file of `arrivals`: leave it out"))
            );
        }
    }
    let names = Numbered::read_for(name, table.rows.len())?;
    let first = flow(section, &names, around)?;
    if let Some(source) = section.get("source") {
        return Err(
            source.error(Problem::Sense("and `arrivals` exclude each other: it has the sizes"))
        );
    }
    if let Some(trace) = section.get("trace") {
        return Err(trace.error(Problem::Sense("and `arrivals` exclude each other")));
    }
    let mut buffer = String::new();
    flows.reserve(table.rows.len());
    for (number, row) in names.numbers().zip(&table.rows) {
        let mut flow = first.clone();
        (flow.from, flow.to) = ends_of_row(table, row, &first, around)?;
        flow.gateway = through(section, number, &flow.from, &flow.to, around)?;
        flow.start = Start::At(table.span(row, 0)?);
        flow.size = Some(table.bytes(row, 1)?);
        flow.name = names.name(number, &mut buffer);
        check_stop(section, &flow)?;
        flows.push(flow);
    }
    Ok(())
}

/// The ends of a flow in a trace of arrivals: those of the row, else those of the entry.
fn ends_of_row(
    table: &RowTable<'_>,
    row: &TableRow,
    entry: &FlowSpec,
    around: &Surroundings<'_>,
) -> Result<(Place, Place)> {
    let end = |column: usize, usual: &Place| {
        let Some(name) = table.cell(row, column) else { return Ok(usual.clone()) };
        around.nodes.get(name).map(|node| Place::Host(Arc::clone(node))).ok_or_else(|| {
            let problem = unknown_node(name, around.nodes);
            table.row_error(row, &format!("`{}`: {problem}", ARRIVALS[column]))
        })
    };
    let ends = (end(2, &entry.from)?, end(3, &entry.to)?);
    if is_one_host(&ends.0, &ends.1) {
        return Err(table.row_error(row, &"`to` is where the flow begins"));
    }
    Ok(ends)
}

/// The first flow of an entry.
fn flow(section: &Section<'_>, names: &Numbered, around: &Surroundings<'_>) -> Result<FlowSpec> {
    let Surroundings { links, nodes, registry, .. } = *around;
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
    if let (TransportKind::Ptcp | TransportKind::Sockets | TransportKind::Udp, Some(value)) =
        (kind, section.get("gateway"))
    {
        return Err(value.error(Problem::Sense(
            "is for TCP, whose windows a gateway can set: leave out the `transport`",
        )));
    }
    section.allow(&KEYS.iter().chain(own).copied().collect::<Vec<_>>())?;
    let stop: Option<Span> = section.get("stop").map(|value| value.quantity()).transpose()?;
    let jitter = match section.get("jitter") {
        None => None,
        Some(value) if value.is_text() && value.text()? == "off" => Some(Span::ZERO),
        Some(value) => Some(value.quantity()?),
    };
    let mut buffer = String::new();
    let (from, to) = (section.require("from")?, section.require("to")?);
    let (from, to) = ends(&from, &to, number, nodes, &mut buffer)?;
    let transport = match kind {
        TransportKind::Tcp => Transport::Tcp(tcp(section, number, links, registry)?),
        TransportKind::Ptcp => Transport::Ptcp(striped::ptcp(section, number, links, registry)?),
        TransportKind::Sockets => {
            Transport::Sockets(sockets::sockets(section, number, links, registry)?)
        }
        TransportKind::Udp => {
            let via = section.get("via").map(|value| route(&value, number, links)).transpose()?;
            Transport::Udp(Arc::new(udp(section, via.unwrap_or_default())?))
        }
    };
    check_lines(section, names, &transport)?;
    let gateway = through(section, number, &from, &to, around)?;
    let reroutes = match section.get("reroute") {
        None => Vec::new(),
        Some(value) => reroute::reroutes(&value, number, transport.count(), links)?,
    };
    Ok(FlowSpec {
        name: names.name(number, &mut buffer),
        group: section.get("group").map_or(Ok(names.group()), |value| group(&value))?,
        from,
        to,
        start: section.get("start").map_or(Ok(Start::At(Span::ZERO)), |value| {
            start(&value, names, number, &transport, links)
        })?,
        size: None,
        stop,
        jitter,
        reroutes: reroutes.into(),
        gateway,
        transport: Arc::new(transport),
    })
}

/// Checks that requests over several connections are of a TCP flow with one route, and that the
/// entry opens no more connections than a simulation numbers.
fn check_lines(section: &Section<'_>, names: &Numbered, transport: &Transport) -> Result<()> {
    let (workload, is_tcp) = match transport {
        Transport::Tcp(spec) => (&spec.workload, true),
        Transport::Ptcp(spec) => (&spec.workload, false),
        Transport::Sockets(spec) => (&spec.workload, false),
        Transport::Udp(_) => return Ok(()),
    };
    let Workload::Requests(requests) = workload else { return Ok(()) };
    if requests.lines == Lines::One {
        return Ok(());
    }
    let problem = if !is_tcp || section.get("subflows").is_some() {
        "has `connections`, which want TCP without `subflows`"
    } else if requests.connections() * u64::from(names.count()) > MOST {
        "has more than 1000000 connections in all flows of the entry"
    } else {
        return Ok(());
    };
    Err(section.error("source", Problem::Sense(problem)))
}

/// The name of a group that several entries may share.
fn group(value: &Value<'_>) -> Result<Arc<str>> {
    let name = value.text()?;
    if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || "-_".contains(c)) {
        return Err(value.error(Problem::Sense("wants letters, digits, '-' and '_'")));
    }
    Ok(name.into())
}

/// The gateways of the flow of this number between these hosts.
fn through(
    section: &Section<'_>,
    number: u32,
    from: &Place,
    to: &Place,
    around: &Surroundings<'_>,
) -> Result<Option<Through>> {
    let Some(value) = section.get("gateway") else { return Ok(None) };
    let through = around.gateways.through(&value, number, from, to)?;
    let other = ["via", "subflows", "reroute"].into_iter().find(|key| section.get(key).is_some());
    match (through, other) {
        (Some(_), Some(other)) => {
            let problem = format!(
                "and `{other}` exclude each other: list routes in the `paths` of the gateway, or \
                 set it to \"off\""
            );
            Err(value.error(Problem::Because(problem)))
        }
        _ => Ok(through),
    }
}

/// Whether the host's name depends on the number of the flow.
fn has_star(end: &Value<'_>) -> bool {
    end.is_text() && end.text().is_ok_and(|name| name.contains('*'))
}

/// The hosts at which the flow of this number begins and ends.
fn ends(
    from: &Value<'_>,
    to: &Value<'_>,
    number: u32,
    nodes: &HashSet<Arc<str>>,
    buffer: &mut String,
) -> Result<(Place, Place)> {
    let ends = (place(from, number, nodes, buffer)?, place(to, number, nodes, buffer)?);
    if is_one_host(&ends.0, &ends.1) {
        return Err(to.error(Problem::Sense("is where the flow begins")));
    }
    Ok(ends)
}

/// Whether there is no way to choose two different hosts.
fn is_one_host(from: &Place, to: &Place) -> bool {
    from.hosts().iter().chain(to.hosts()).all(|host| *host == from.hosts()[0])
}

/// A host; one of a list at random; or one of those that match `"server?"`.
fn place(
    value: &Value<'_>,
    number: u32,
    nodes: &HashSet<Arc<str>>,
    buffer: &mut String,
) -> Result<Place> {
    if !value.is_text() {
        let values = value.list()?;
        if values.is_empty() {
            return Err(value.error(Problem::Sense("wants at least one host")));
        }
        let hosts = values.iter().map(|value| node(value, number, nodes, buffer));
        return Ok(Place::OneOf(hosts.collect::<Result<_>>()?));
    }
    let name = value.text()?;
    if !name.ends_with('?') {
        return node(value, number, nodes, buffer).map(Place::Host);
    }
    let mut hosts: Vec<&Arc<str>> = nodes.iter().filter(|node| super::one_of(name, node)).collect();
    if hosts.is_empty() {
        return Err(value.error(unknown_node(name, nodes)));
    }
    // By number: the order of the set is not the same in each process.
    hosts.sort_by_key(|name| (name.len(), Arc::clone(name)));
    Ok(Place::OneOf(hosts.into_iter().cloned().collect()))
}

fn tcp(
    section: &Section<'_>,
    number: u32,
    links: &[LinkSpec],
    registry: &Registry,
) -> Result<TcpSpec> {
    let controller = controller(section, "cubic", registry)?;
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

fn controller(section: &Section<'_>, usual: &str, registry: &Registry) -> Result<String> {
    let Some(value) = section.get("controller") else { return Ok(usual.to_owned()) };
    let name = value.text()?;
    registry
        .make_controller(name)
        .map_err(|error| value.error(Problem::Because(error.to_string())))?;
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
