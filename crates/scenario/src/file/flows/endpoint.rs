//! The settings of TCP endpoints.

use link::config::Problem;
use link::config::reader::{Section, Value};
use tcp::Detection;
use units::{Bytes, Span, Time};

use crate::file::values::{Result, bytes_up_to, count, positive};

const ENDPOINT_KEYS: &[&str] = &[
    "mss",
    "headers",
    "initial_window",
    "initial_threshold",
    "min_rto",
    "receive_buffer",
    "receive_window",
    "delayed_ack",
    "detection",
    "ecn",
    "pacing",
    "hystart",
    "rate_reduction",
    "timestamps",
];

/// The largest buffer in bytes: more is taken for a typing error.
pub(super) const MOST_BUFFER: u64 = 1_000_000_000_000;
/// The settings that a section has, over the defaults.
pub(super) fn endpoint(section: &Section<'_>) -> Result<tcp::Config> {
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
    if let Some(value) = section.get("receive_window") {
        config.receive_windows = receive_windows(&value)?;
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
    if let Some(value) = section.get("ecn") {
        // L4S wants accurate feedback (RFC 9331, section 4.2).
        config.accurate_ecn = value.is_text();
        (config.ecn, config.is_scalable) = if value.is_text() {
            value.word(&[("accurate", (true, false)), ("l4s", (true, true))])?
        } else {
            (value.boolean()?, false)
        };
    }
    for (key, slot) in [
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

/// The windows that the receiving application lets be offered, each with the time from which on.
fn receive_windows(value: &Value<'_>) -> Result<Vec<(Time, Bytes)>> {
    let mut windows: Vec<(Time, Bytes)> = Vec::new();
    for value in value.list()? {
        let step = value.list()?;
        let [at, window] = step.as_slice() else {
            return Err(value.error(Problem::Sense(
                "wants times with the largest window from then on, for example [[\"50 s\", \
                 \"10 kB\"], [\"80 s\", \"30 kB\"]]",
            )));
        };
        let time = Time::ZERO + at.quantity::<Span>()?;
        if windows.last().is_some_and(|(before, _)| *before >= time) {
            return Err(at.error(Problem::Sense("is not after the time before it")));
        }
        windows.push((time, bytes_up_to(window, MOST_BUFFER, "wants up to 1 TB")?));
    }
    Ok(windows)
}
