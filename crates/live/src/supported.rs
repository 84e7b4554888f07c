//! What of a scenario file real hosts can do. All else is an error that names the key: a run that
//! left a key out would measure another scenario.

use std::collections::HashSet;

use ptcp::{Config as PtcpConfig, Restripe};
use scenario::distribution::Distribution;
use scenario::file::{
    FlowSpec, GatewaySpec, Pace, PtcpSpec, Scenario, TcpSpec, Transport, UdpSpec, Workload,
};
use tcp::{Config as TcpConfig, Detection};
use units::{Bytes, Span};

use crate::describe::{Source, StripedSettings, Traffic, Write};
use crate::error::PlanError;
use crate::gateways::OVERHEAD;

/// The controllers that kernels have under these names; which of them this one has, its sockets
/// say.
const KERNEL: [&str; 3] = ["reno", "cubic", "bbr"];

/// The payload of a full segment with timestamps where the MTU is 1500 B.
const LARGEST_SEGMENT: u64 = 1_448;
/// The least one that is asked of a kernel: what every host takes (RFC 9293, 3.7.1).
const LEAST_SEGMENT: u64 = 524;

type Result<T> = std::result::Result<T, PlanError>;

/// Checks the keys that are of no flow.
pub(crate) fn check(scenario: &Scenario) -> Result<()> {
    if scenario.measures_delay {
        return Err(PlanError::Measure("delay"));
    }
    if scenario.measures_gaps {
        return Err(PlanError::Measure("gap"));
    }
    let mut pairs = HashSet::new();
    for (number, spec) in scenario.gateways.iter().enumerate() {
        let flows = scenario.flows.iter().filter_map(|flow| flow.gateway);
        let flows = flows.filter(|through| through.gateway == number).count();
        if flows > 0 {
            gateway(spec, flows)?;
            let mut ends = spec.ends.clone();
            ends.sort();
            if !pairs.insert(ends) {
                let reason = "another pair that flows go through is between the same nodes";
                return refuse_gateway(spec, "exit", reason);
            }
        }
    }
    Ok(())
}

/// Checks that the product's gateways are as the file wants them, for so many flows.
fn gateway(spec: &GatewaySpec, flows: usize) -> Result<()> {
    if let Some(key) = spec.unlike_shipped() {
        return refuse_gateway(spec, key, "real gateways have their own value; leave it out");
    }
    // A connection that is alone is the site.
    if flows > 1 && !spec.is_shared() {
        return refuse_gateway(
            spec,
            "sharing",
            "connections between real gateways share one controller: say 'site'",
        );
    }
    if spec.overhead.is_some_and(|overhead| overhead.0 != OVERHEAD) {
        let reason = format!("real gateways add {OVERHEAD} B to a packet");
        return refuse_gateway(spec, "overhead", reason);
    }
    Ok(())
}

/// Why a pair of gateways cannot be run: the key, and the reason.
fn refuse_gateway<T>(
    spec: &GatewaySpec,
    key: &'static str,
    reason: impl Into<String>,
) -> Result<T> {
    Err(PlanError::Gateway { gateway: spec.name.to_string(), key, reason: reason.into() })
}

/// Why a flow cannot be carried: the key, and the reason.
pub(crate) fn refuse<T>(flow: &FlowSpec, key: &str, reason: impl Into<String>) -> Result<T> {
    Err(PlanError::Flow { flow: flow.name.to_string(), key: key.to_owned(), reason: reason.into() })
}

/// The traffic of a flow whose file, if it has one, has this size.
pub(crate) fn traffic(flow: &FlowSpec, file: Option<Bytes>) -> Result<Traffic> {
    if !flow.reroutes.is_empty() {
        return refuse(flow, "reroute", "the routes of emulated networks do not change");
    }
    match &*flow.transport {
        Transport::Tcp(spec) => tcp(flow, spec, file),
        Transport::Ptcp(spec) => striped(flow, spec, file),
        Transport::Sockets(_) => {
            refuse(flow, "transport", "'sockets' is only simulated; use 'tcp' flows, one a path")
        }
        Transport::Udp(spec) => udp(flow, spec),
    }
}

fn tcp(flow: &FlowSpec, spec: &TcpSpec, file: Option<Bytes>) -> Result<Traffic> {
    if !KERNEL.contains(&spec.controller.as_str()) {
        return refuse(
            flow,
            "controller",
            format!(
                "the kernel's TCP has no '{}'; it may have reno, cubic and bbr, without settings",
                spec.controller
            ),
        );
    }
    endpoint(flow, &spec.config)?;
    let source = source(flow, &spec.workload, file)?;
    if spec.subflows.len() > 1 && matches!(source, Source::Stream(_) | Source::Trace(_)) {
        return refuse(flow, "source", "wants one path where the kernel's TCP carries it");
    }
    let TcpConfig { mss, pacing, .. } = *spec.config;
    let mss = if mss == TcpConfig::default().mss { None } else { Some(segment(flow, mss)?) };
    Ok(Traffic::Tcp { controller: spec.controller.clone(), pacing, mss, source })
}

/// The payload of a full segment, which may be less than what the route carries.
fn segment(flow: &FlowSpec, mss: Bytes) -> Result<u16> {
    let (most, why) = match flow.gateway {
        Some(_) => (LARGEST_SEGMENT - OVERHEAD, "through real gateways"),
        None => (LARGEST_SEGMENT, "with an MTU of 1500 B"),
    };
    match u16::try_from(mss.0).ok().filter(|_| (LEAST_SEGMENT..=most).contains(&mss.0)) {
        Some(mss) => Ok(mss),
        None => refuse(flow, "tcp.mss", format!("is {LEAST_SEGMENT} to {most} B {why}")),
    }
}

/// Checks that the kernel's TCP does what a file asks for.
fn endpoint(flow: &FlowSpec, config: &TcpConfig) -> Result<()> {
    let usual = TcpConfig::default();
    // Ten segments of a kernel, too, are as large as its segments.
    let initial_window = Bytes(usual.initial_window.0 / usual.mss.0 * config.mss.0);
    let differs = [
        ("tcp.headers", config.headers != usual.headers),
        ("tcp.initial_window", config.initial_window != initial_window),
        ("tcp.initial_threshold", config.initial_threshold != usual.initial_threshold),
        ("tcp.min_rto", config.min_rto != usual.min_rto),
        ("tcp.receive_buffer", config.receive_buffer != usual.receive_buffer),
        ("tcp.receive_window", !config.receive_windows.is_empty()),
        ("tcp.delayed_ack", config.delayed_ack != usual.delayed_ack),
        ("tcp.detection", config.detection != Detection::Rack),
        ("tcp.rate_reduction", config.rate_reduction != usual.rate_reduction),
        ("tcp.timestamps", config.timestamps != usual.timestamps),
        ("tcp.ecn", config.accurate_ecn),
    ];
    match differs.into_iter().find(|(_, differs)| *differs) {
        Some((key, _)) => refuse(flow, key, "the kernel's TCP has its own value; leave it out"),
        None => Ok(()),
    }
}

fn source(flow: &FlowSpec, workload: &Workload, file: Option<Bytes>) -> Result<Source> {
    if let Some(size) = file {
        return Ok(Source::File(size.0));
    }
    match workload {
        Workload::Bulk => Ok(Source::Bulk),
        Workload::File(_) => unreachable!("the layout of a flow has the size of its file"),
        Workload::Stream(rate) => Ok(Source::Stream(rate.as_bits())),
        Workload::Trace(writes) => Ok(Source::Trace(
            writes.iter().map(|(at, bytes)| Write { at: nanos(*at), bytes: bytes.0 }).collect(),
        )),
        Workload::Requests(_) => refuse(flow, "source", "requests and answers are only simulated"),
    }
}

/// The value of a distribution that has one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of bytes, rounded down as in the simulator"
)]
fn constant(flow: &FlowSpec, key: &str, distribution: &Distribution) -> Result<u64> {
    match distribution {
        Distribution::Constant(value) => Ok(*value as u64),
        _ => refuse(flow, key, "random sizes are only simulated; give a constant"),
    }
}

fn udp(flow: &FlowSpec, spec: &UdpSpec) -> Result<Traffic> {
    let Pace::Rate(rate) = spec.pace else {
        return refuse(flow, "interval or trace", "datagrams of real hosts have a `rate`");
    };
    if spec.on_off.is_some() {
        return refuse(flow, "on_off", "random bursts are only simulated");
    }
    let packet = constant(flow, "packet", &spec.packet)?;
    let Some(packet) = u16::try_from(packet).ok().filter(|packet| *packet <= 1_500) else {
        return refuse(flow, "packet", "the devices of real hosts have an MTU of 1500 B");
    };
    let size = match (&spec.size, flow.size) {
        (_, Some(size)) => Some(size.0),
        (Some(size), None) => Some(constant(flow, "size", size)?),
        (None, None) => None,
    };
    Ok(Traffic::Udp { packet, rate: rate.as_bits(), size })
}

fn striped(flow: &FlowSpec, spec: &PtcpSpec, file: Option<Bytes>) -> Result<Traffic> {
    let PtcpConfig { restripe, reinject, pacing, hystart, ecn, .. } = spec.config;
    let known = PtcpConfig { restripe, reinject, pacing, hystart, ecn, ..unlimited(&spec.config) };
    if known != spec.config {
        return refuse(
            flow,
            "ptcp",
            "real striped connections have `restripe`, `reinject`, `pacing`, `hystart` and `ecn`",
        );
    }
    let settings = StripedSettings {
        restripe_window: restripe == Restripe::Window,
        reinject,
        pacing,
        hystart,
        ecn,
    };
    Ok(Traffic::Striped {
        controller: spec.controller.clone(),
        scheduler: spec.scheduler.clone(),
        settings,
        source: source(flow, &spec.workload, file)?,
    })
}

/// The defaults, with the timeouts of a scenario file: it has none, and a real connection that
/// lasts as long as its application needs none.
fn unlimited(config: &PtcpConfig) -> PtcpConfig {
    let PtcpConfig { handshake_timeout, idle_timeout, .. } = *config;
    PtcpConfig { handshake_timeout, idle_timeout, ..PtcpConfig::default() }
}

pub(crate) fn nanos(span: Span) -> u64 {
    span.as_nanos()
}
