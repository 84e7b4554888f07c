//! `gateway status`: what a gateway does for each site.

use std::io;

use ::gateway::{FlowFigures, PathFigures, PathQueue, SiteFigures};
use files::Error;
use serde_json::{Map, Value, json};
use units::Bytes;

use crate::dirs::Dirs;
use crate::sanitize::{clean, clean_json};
use crate::status::ask;

/// Arguments of `gateway status`.
#[derive(Debug, clap::Args)]
pub(super) struct GatewayStatusArgs {
    /// Write JSON to standard output, an object on each line, one for each site
    #[arg(long)]
    json: bool,
}

/// What a gateway says of its sites: an object of JSON on each line.
pub(super) fn lines(figures: &[SiteFigures]) -> String {
    figures.iter().fold(String::new(), |text, site| text + &object(site).to_string() + "\n")
}

fn object(site: &SiteFigures) -> Value {
    let networks: Vec<String> = site.networks.iter().map(ToString::to_string).collect();
    let path = |path: &PathFigures| {
        json!({
            "number": path.number,
            "window": path.window,
            "in_flight": path.in_flight,
            "choked": path.is_choked,
            "admitted": path.is_admitted,
            "round_trip_us": path.round_trip.map(units::Span::as_micros),
            "least_round_trip_us": path.least_round_trip.map(units::Span::as_micros),
            "xi": path.xi,
            "decreases": path.falls.decreases,
            "chokes": path.falls.chokes,
        })
    };
    let queue = |queue: &PathQueue| {
        json!({
            "latest_us": queue.latest.as_micros(),
            "longest_us": queue.longest.as_micros(),
        })
    };
    let flow = |flow: &FlowFigures| {
        json!({
            "near": flow.near.to_string(),
            "far": flow.far.to_string(),
            "sent": flow.sent,
            "received": flow.received,
            "governed": flow.is_governed,
        })
    };
    let counters: Map<String, Value> =
        site.counters().into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    json!({
        "name": site.name,
        "connected": site.is_connected,
        "answering": site.is_answering,
        "networks": networks,
        "room": site.room,
        "paths": site.paths.iter().map(path).collect::<Vec<_>>(),
        "queues": site.queues.iter().map(queue).collect::<Vec<_>>(),
        "arrived": site.arrivals.packets,
        "late": site.arrivals.late,
        "reordered": site.arrivals.waited,
        "gaps": site.arrivals.lost,
        "flows": site.flows,
        "governed": site.governed,
        "counters": counters,
        "largest": site.largest.iter().map(flow).collect::<Vec<_>>(),
    })
}

/// `anabranch gateway status`.
///
/// # Errors
/// [`Error::System`] if no gateway of this user runs.
pub(super) fn show(args: &GatewayStatusArgs, dirs: &Dirs) -> Result<(), Error> {
    let path = dirs.gateway_status();
    let text = ask(&path).map_err(|source| {
        Error::system(format!("ask a gateway of this user at {}", path.display()), source)
    })?;
    if args.json {
        text.lines().for_each(|line| outln!("{}", clean_json(line)));
        return Ok(());
    }
    outln!(
        "{:14} {:7} {:>6} {:>8} {:>5} {:>9} {:>8} {:>8} {:>9} {:>9} {:>6}",
        "site",
        "state",
        "flows",
        "governed",
        "paths",
        "window",
        "RTT",
        "queue",
        "sent",
        "received",
        "normal"
    );
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).map_err(|error| {
            Error::system("read the answer of the gateway", io::Error::other(error))
        })?;
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let name = clean(row["name"].as_str().unwrap_or_default()).into_owned();
        let name: String = name.chars().take(14).collect();
        let state = match (&row["connected"], &row["answering"]) {
            (Value::Bool(true), Value::Bool(true)) => "answers",
            (Value::Bool(true), _) => "silent",
            _ => "absent",
        };
        let counters = &row["counters"];
        let [sent, received] = ["sent_octets", "received_octets"]
            .map(|name| Bytes(number(&counters[name])).to_string());
        let paths = row["paths"].as_array().map(Vec::as_slice).unwrap_or_default();
        let window: u64 = paths.iter().map(|path| number(&path["window"])).sum();
        let round_trip = paths.iter().filter_map(|path| path["round_trip_us"].as_u64()).min();
        let queues = row["queues"].as_array().map(Vec::as_slice).unwrap_or_default();
        let queue = queues.iter().filter_map(|queue| queue["latest_us"].as_u64()).max();
        let [round_trip, queue] = [round_trip, queue].map(millis);
        outln!(
            "{name:14} {state:7} {:>6} {:>8} {:>5} {:>9} {round_trip:>8} {queue:>8} {sent:>9} \
             {received:>9} {:>6}",
            number(&row["flows"]),
            number(&row["governed"]),
            paths.len(),
            Bytes(window).to_string(),
            number(&counters["normal_packets"]),
        );
    }
    Ok(())
}

/// "12.3 ms"; "-" if it is not known.
fn millis(micros: Option<u64>) -> String {
    micros
        .map_or_else(|| "-".into(), |micros| format!("{}.{} ms", micros / 1_000, micros / 100 % 10))
}
