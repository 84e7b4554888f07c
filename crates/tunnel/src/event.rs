//! Reports of a tunnel to its owner.

use std::fmt;
use std::sync::Arc;

use peer::PathEvent;

/// A report.
#[derive(Clone, Debug)]
pub enum Report {
    /// Something listens.
    Listening {
        /// For what: `SOCKS`, `HTTP` or `forward`, for example.
        what: String,
        /// The address, or the path of a Unix socket.
        address: String,
    },
    /// A message for a person; nothing ends.
    Notice(String),
    /// A path of the striped connection changed.
    Path(PathEvent),
    /// A connection began or ended, for those who ask for each.
    Detail(String),
}

/// The observer of reports: a function that must not block.
#[derive(Clone)]
pub struct Reports(Arc<dyn Fn(Report) + Send + Sync>);

impl Reports {
    /// An observer that calls `observe` with each report.
    pub fn new(observe: impl Fn(Report) + Send + Sync + 'static) -> Reports {
        Reports(Arc::new(observe))
    }

    pub(crate) fn send(&self, report: Report) {
        (self.0)(report);
    }

    /// Reports a message for a person.
    pub fn notice(&self, text: impl Into<String>) {
        self.send(Report::Notice(text.into()));
    }

    pub(crate) fn detail(&self, text: impl FnOnce() -> String) {
        self.send(Report::Detail(text()));
    }

    pub(crate) fn listening(&self, what: &str, address: impl fmt::Display) {
        let (what, address) = (what.to_string(), address.to_string());
        self.send(Report::Listening { what, address });
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reports")
    }
}
