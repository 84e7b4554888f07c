//! `gateway status`: what a gateway does for each site.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use ::gateway::{FlowFigures, OtherPath, PathFigures, PathQueue, SiteFigures};
use files::Error;
use serde_json::{Map, Value, json};
use units::{Bytes, Rate, Span};

use crate::dirs::Dirs;
use crate::sanitize::{clean, clean_json};
use crate::status::ask;

/// Arguments of `gateway status`.
#[derive(Debug, clap::Args)]
pub(super) struct GatewayStatusArgs {
    /// Write JSON to standard output, an object on each line, one for each site
    #[arg(long)]
    json: bool,
    /// Show the busiest connections instead, with their rates in the last second
    #[arg(long, conflicts_with = "json")]
    flows: bool,
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
            "name": path.name,
            "window": path.window,
            "in_flight": path.in_flight,
            "choked": path.is_choked,
            "admitted": path.is_admitted,
            "round_trip_us": path.round_trip.map(Span::as_micros),
            "least_round_trip_us": path.least_round_trip.map(Span::as_micros),
            "xi": path.xi,
            "capacity": path.capacity.map(Rate::as_bits),
            "decreases": path.falls.decreases,
            "chokes": path.falls.chokes,
        })
    };
    let other = |path: &OtherPath| {
        json!({
            "name": path.name,
            "why": path.why.name(),
            "round_trip_us": path.round_trip.map(Span::as_micros),
            "failure": path.failure,
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
            "sent_rate": flow.sent_rate.as_bits(),
            "received_rate": flow.received_rate.as_bits(),
            "age_ms": flow.age.as_millis(),
            "governed": flow.is_governed,
        })
    };
    let wait = |(below, packets): (Option<Span>, u64)| {
        let below = below.map(Span::as_micros);
        json!({ "below_us": below, "packets": packets })
    };
    let counters: Map<String, Value> =
        site.counters().into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    json!({
        "name": site.name,
        "connected": site.is_connected,
        "answering": site.is_answering,
        "led": site.is_led,
        "networks": networks,
        "room": site.room,
        "paths": site.paths.iter().map(path).collect::<Vec<_>>(),
        "others": site.others.iter().map(other).collect::<Vec<_>>(),
        "queues": site.queues.iter().map(queue).collect::<Vec<_>>(),
        "arrived": site.arrivals.packets,
        "late": site.arrivals.late,
        "reordered": site.arrivals.waited,
        "gaps": site.arrivals.lost,
        "waits": site.arrivals.waits.buckets().map(wait).collect::<Vec<_>>(),
        "expired": site.arrivals.waits.expired(),
        "flows": site.flows,
        "governed": site.governed,
        "counters": counters,
        "busiest": site.busiest.iter().map(flow).collect::<Vec<_>>(),
    })
}

/// `anabranch gateway status`.
///
/// # Errors
/// [`Error::System`] if no gateway of this user runs.
pub(super) fn show(args: &GatewayStatusArgs, dirs: &Dirs) -> Result<(), Error> {
    let text = ask(&dirs.gateway_status(), "gateway")?;
    if args.json {
        text.lines().for_each(|line| outln!("{}", clean_json(line)));
        return Ok(());
    }
    let mut rows = Vec::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).map_err(|error| {
            Error::system("read the answer of the gateway", io::Error::other(error))
        })?;
        rows.push(row);
    }
    if args.flows {
        show_flows(&rows);
    } else {
        show_sites(&rows);
    }
    Ok(())
}

/// A line for each of the busiest connections.
fn show_flows(rows: &[Value]) {
    outln!(
        "{:14} {:28} {:28} {:8} {:>6} {:>9} {:>9} {:>12} {:>12}",
        "site",
        "here",
        "there",
        "governed",
        "age",
        "sent",
        "received",
        "sending",
        "receiving"
    );
    for row in rows {
        let name = name_of(row);
        for flow in row["busiest"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let [near, far] =
                ["near", "far"].map(|end| clean(flow[end].as_str().unwrap_or_default()));
            let governed = if flow["governed"] == Value::Bool(true) { "yes" } else { "no" };
            let [sent, received] =
                ["sent", "received"].map(|key| Bytes(number(&flow[key])).to_string());
            let [sending, receiving] = ["sent_rate", "received_rate"]
                .map(|key| Rate::from_bits(number(&flow[key])).to_string());
            let age = number(&flow["age_ms"]) / 1_000;
            outln!(
                "{name:14} {near:28} {far:28} {governed:8} {age:>4} s {sent:>9} {received:>9} \
                 {sending:>12} {receiving:>12}"
            );
        }
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn name_of(row: &Value) -> String {
    let name = clean(row["name"].as_str().unwrap_or_default()).into_owned();
    name.chars().take(14).collect()
}

/// A line for each site, and below it one for each path where there are several.
fn show_sites(rows: &[Value]) {
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
    for row in rows {
        let name = name_of(row);
        let is = |name: &str| row[name] == Value::Bool(true);
        let state = match (is("connected"), is("answering"), is("led")) {
            (true, true, true) => "answers",
            (true, true, false) => "begins",
            (true, false, _) => "silent",
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
        let others = row["others"].as_array().map(Vec::as_slice).unwrap_or_default();
        // Between most pairs of addresses there is none, and nobody has to know.
        let is_known = |path: &&Value| path["why"] != "opening";
        let (known, tried): (Vec<&Value>, Vec<&Value>) = others.iter().partition(is_known);
        if paths.len() + known.len() > 1 {
            for path in paths {
                show_path(path, state_of(path));
            }
            for path in &known {
                show_path(path, path["why"].as_str().unwrap_or("-"));
            }
        }
        let open: BTreeSet<&str> = paths.iter().chain(known).map(way_of).collect();
        let mut silent = BTreeMap::new();
        for path in tried.into_iter().filter(|path| !open.contains(way_of(path))) {
            let failure = silent.entry(way_of(path)).or_insert("");
            *failure = path["failure"].as_str().unwrap_or(failure);
        }
        for (way, failure) in silent {
            let line = format!("  {:31} no answer  {}", clean(way), clean(failure));
            outln!("{}", line.trim_end());
        }
    }
}

/// What a path leads over, by its name: a relay, or none.
fn way_of(path: &Value) -> &str {
    let name = path["name"].as_str().unwrap_or_default();
    name.split_once(" via ").map_or("direct", |(_, relay)| relay)
}

/// What a path that may carry does.
fn state_of(path: &Value) -> &'static str {
    match (path["choked"] == Value::Bool(true), path["admitted"] == Value::Bool(true)) {
        (true, _) => "choked",
        (false, true) => "carries",
        (false, false) => "too long",
    }
}

/// A line for a path, with its window and round-trip time below those of the site.
fn show_path(path: &Value, state: &str) {
    let name = clean(path["name"].as_str().unwrap_or_default());
    let window = path["window"].as_u64().map_or_else(|| "-".into(), |at| Bytes(at).to_string());
    let round_trip = millis(path["round_trip_us"].as_u64());
    outln!("  {name:31} {state:10} {window:>9} {round_trip:>8}");
}

/// "12.3 ms"; "-" if it is not known.
fn millis(micros: Option<u64>) -> String {
    micros
        .map_or_else(|| "-".into(), |micros| format!("{}.{} ms", micros / 1_000, micros / 100 % 10))
}
