//! `relay status`: what a relay does for each host, asked over a Unix socket of its user.

use std::io;

use ::relay::KeyFigures;
use files::Error;
use serde_json::{Value, json};
use units::Bytes;

use crate::dirs::Dirs;
use crate::sanitize::{clean, clean_json};
use crate::status::ask;

/// Arguments of `relay status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Write JSON to standard output, an object on each line, one for each host
    #[arg(long)]
    json: bool,
}

/// What a relay says of its hosts: an object of JSON on each line.
pub(super) fn lines(figures: &[KeyFigures]) -> String {
    let lines = figures.iter().map(|own| {
        let value = json!({
            "key": own.fingerprint.to_string(),
            "name": own.label,
            "paths": own.paths,
            "opened": own.opened,
            "refused": own.refused,
            "up": own.up,
            "down": own.down,
        });
        format!("{value}\n")
    });
    lines.collect()
}

/// `anabranch relay status`.
///
/// # Errors
/// [`Error::System`] if no relay of this user runs.
pub(super) fn show(args: &StatusArgs, dirs: &Dirs) -> Result<(), Error> {
    let text = ask(&dirs.relay_status(), "relay")?;
    if args.json {
        text.lines().for_each(|line| outln!("{}", clean_json(line)));
        return Ok(());
    }
    outln!(
        "{:20} {:>6} {:>9} {:>9} {:>12} {:>12}",
        "host",
        "paths",
        "opened",
        "refused",
        "up",
        "down"
    );
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).map_err(|error| {
            Error::system("read the answer of the relay", io::Error::other(error))
        })?;
        let number = |key: &str| row[key].as_u64().unwrap_or_default();
        let name = clean(row["name"].as_str().unwrap_or_default()).into_owned();
        let name: String = name.chars().take(20).collect();
        let [up, down] = ["up", "down"].map(|key| Bytes(number(key)).to_string());
        outln!(
            "{name:20} {:>6} {:>9} {:>9} {up:>12} {down:>12}",
            number("paths"),
            number("opened"),
            number("refused"),
        );
    }
    Ok(())
}
