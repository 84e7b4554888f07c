//! The log of the drivers on standard error: `--log` and `ANABRANCH_LOG`.

use std::io::{self, Write};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::sanitize;

/// Writes what passes `filter` from now on, each record as a line.
pub(crate) fn start(filter: Targets) {
    let lines = fmt::layer().with_ansi(false).with_timer(fmt::time::uptime()).with_writer(|| Clean);
    tracing_subscriber::registry().with(filter).with(lines).init();
}

/// Whether a log is written: bars would be torn by its lines.
pub(crate) fn is_written() -> bool {
    LevelFilter::current() != LevelFilter::OFF
}

/// Reads a filter as the command line has it.
///
/// # Errors
/// An example of a filter that would do.
pub(crate) fn parse_filter(text: &str) -> Result<Targets, String> {
    text.parse().map_err(|error| {
        format!(
            "{error}; write for example debug, or peer=debug,files=info (levels: error, warn, \
                 info, debug, trace)"
        )
    })
}

/// Standard error, without the control characters that a peer may have put into a text.
struct Clean;

/// The lines of a record without control characters.
fn cleaned(record: &str) -> String {
    let lines = record.split_inclusive('\n').map(|line| {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        sanitize::clean(body).into_owned() + end
    });
    lines.collect()
}

impl Write for Clean {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = cleaned(&String::from_utf8_lossy(bytes));
        io::stderr().lock().write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_levels_by_crate() {
        for text in ["debug", "peer=debug,files=info", "off", "warn,peer::dial=trace"] {
            assert!(parse_filter(text).is_ok(), "{text}");
        }
        let error = parse_filter("peer=loud").expect_err("there is no such level");
        assert!(error.contains("peer=debug,files=info"), "{error}");
    }

    #[test]
    fn what_a_peer_says_cannot_steer_the_terminal() {
        let record = "0.1s  INFO peer: refused reason=\u{1b}[2Jgone\rover\n";
        let shown = cleaned(record);
        assert!(shown.ends_with("over\n") && shown.matches('\n').count() == 1, "{shown:?}");
        assert!(!shown.contains(['\u{1b}', '\r']), "{shown:?}");
    }
}
