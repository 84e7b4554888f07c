//! Flows over striped connections.

use link::config::Problem;
use link::config::reader::Section;
use ptcp::{Config, Restripe};

use super::endpoint::MOST_BUFFER;
use super::{controller, count, subflows};
use crate::file::parse::{Result, bytes_up_to, positive};
use crate::file::workloads::workload;
use crate::file::{LinkSpec, PtcpSpec, Workload};
use crate::registry::Registry;

/// The defaults of a striped connection.
const CONTROLLER: &str = "coupled-bbr";
const SCHEDULER: &str = "lowest-rtt";

const CONFIG_KEYS: &[&str] = &[
    "datagram",
    "max_datagram",
    "initial_window",
    "receive_buffer",
    "max_receive_buffer",
    "max_ack_delay",
    "min_timeout",
    "ecn",
    "pacing",
    "hystart",
    "restripe",
    "reinject",
    "test_bottlenecks",
];

pub(super) fn ptcp(
    section: &Section<'_>,
    number: u32,
    links: &[LinkSpec],
    registry: &Registry,
) -> Result<PtcpSpec> {
    let scheduler = match section.get("scheduler") {
        None => SCHEDULER.to_owned(),
        Some(value) => {
            let name = value.text()?;
            registry
                .make_scheduler(name)
                .map_err(|error| value.error(Problem::Because(error.to_string())))?;
            name.to_owned()
        }
    };
    Ok(PtcpSpec {
        controller: controller(section, CONTROLLER, registry)?,
        scheduler,
        config: section.get("ptcp").map_or(Ok(unlimited()), |value| config(&value.section()?))?,
        subflows: subflows(section, number, links)?,
        workload: section.get("source").map_or(Ok(Workload::Bulk), |value| workload(&value))?,
    })
}

/// The defaults, without timeouts: a simulated flow lasts as long as its application, as over TCP,
/// however long its paths are down or it has nothing to say.
fn unlimited() -> Config {
    Config { handshake_timeout: None, idle_timeout: None, ..Config::default() }
}

fn config(section: &Section<'_>) -> Result<Config> {
    section.allow(CONFIG_KEYS)?;
    let mut config = unlimited();
    for (key, slot) in
        [("datagram", &mut config.datagram), ("max_datagram", &mut config.max_datagram)]
    {
        if let Some(value) = section.get(key) {
            *slot = value.quantity()?;
            if !(1_200..=9_000).contains(&slot.0) {
                return Err(value.error(Problem::Sense("wants 1200 to 9000 bytes")));
            }
        }
    }
    if let Some(value) = section.get("initial_window") {
        config.initial_window = count(&value)?;
    }
    for (key, slot) in [
        ("receive_buffer", &mut config.receive_buffer),
        ("max_receive_buffer", &mut config.max_receive_buffer),
    ] {
        if let Some(value) = section.get(key) {
            *slot = bytes_up_to(&value, MOST_BUFFER, "wants up to 1 TB")?;
        }
    }
    for (key, slot) in
        [("max_ack_delay", &mut config.max_ack_delay), ("min_timeout", &mut config.min_timeout)]
    {
        if let Some(value) = section.get(key) {
            *slot = positive(&value)?;
        }
    }
    for (key, slot) in [
        ("ecn", &mut config.ecn),
        ("pacing", &mut config.pacing),
        ("hystart", &mut config.hystart),
        ("reinject", &mut config.reinject),
        ("test_bottlenecks", &mut config.test_bottlenecks),
    ] {
        if let Some(value) = section.get(key) {
            *slot = value.boolean()?;
        }
    }
    if let Some(value) = section.get("restripe") {
        config.restripe = value.word(&[("lost", Restripe::Lost), ("window", Restripe::Window)])?;
    }
    Ok(config)
}
