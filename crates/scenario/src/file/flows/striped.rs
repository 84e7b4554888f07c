//! Flows over striped connections.

use link::config::Problem;
use link::config::reader::Section;
use ptcp::{Config, Restripe};

use super::endpoint::MOST_BUFFER;
use super::{controller, count, subflows};
use crate::far_clock::FarClock;
use crate::file::values::{Result, bytes_up_to, positive};
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
    "clock",
];
const CLOCK_KEYS: &[&str] = &["ahead", "drift", "unstamped"];
/// The fastest drift that is taken, in parts of a million: oscillators stay below 200.
const MOST_DRIFT: f64 = 1_000.0;

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
    let settings = section.get("ptcp").map(|value| value.section()).transpose()?;
    let clock = settings.as_ref().and_then(|settings| settings.get("clock"));
    Ok(PtcpSpec {
        controller: controller(section, CONTROLLER, registry)?,
        scheduler,
        config: settings.map_or(Ok(unlimited()), |settings| config(&settings))?,
        clock: clock.map(|value| far_clock(&value.section()?)).transpose()?,
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
        ("pacing", &mut config.pacing),
        ("hystart", &mut config.hystart),
        ("reinject", &mut config.reinject),
        ("test_bottlenecks", &mut config.test_bottlenecks),
    ] {
        if let Some(value) = section.get(key) {
            *slot = value.boolean()?;
        }
    }
    if let Some(value) = section.get("ecn") {
        config.is_scalable = value.is_text();
        config.ecn =
            if value.is_text() { value.word(&[("l4s", true)])? } else { value.boolean()? };
    }
    if let Some(value) = section.get("restripe") {
        config.restripe = value.word(&[("lost", Restripe::Lost), ("window", Restripe::Window)])?;
    }
    Ok(config)
}

fn far_clock(section: &Section<'_>) -> Result<FarClock> {
    section.allow(CLOCK_KEYS)?;
    let mut clock = FarClock::default();
    if let Some(value) = section.get("ahead") {
        clock.ahead = value.quantity()?;
    }
    if let Some(value) = section.get("drift") {
        let drift = value.number()?;
        if drift.fract() != 0.0 || drift.abs() > MOST_DRIFT {
            return Err(value.error(Problem::Sense(
                "wants a whole number of parts of a million, -1000 to 1000",
            )));
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
        let drift = drift as i32;
        clock.drift = drift;
    }
    if let Some(value) = section.get("unstamped") {
        clock.unstamped = Some(count(&value)?);
    }
    Ok(clock)
}
