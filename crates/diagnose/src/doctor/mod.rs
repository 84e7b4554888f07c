//! Checks of a host and its paths, and the commands that correct what they find.
//!
//! [`examine`] reads the system's settings and the paths, sends data over each path alone and then
//! over all together if it has a receiver, and judges the results; docs/doctor.md has every check.

mod facts;
mod judge;

use std::net::SocketAddr;

use peer::dial::Terms;
use peer::{Error, PathSpec, Remote};
use units::Rate;

use crate::probe::{PathProbe, probe_each_and_all};

/// The subject of an examination.
#[derive(Clone, Debug)]
pub enum Scope {
    /// This host and all interfaces with a default route.
    Host,
    /// The paths to a host, all or the named ones, by opening a connection over each.
    Remote(Remote, Vec<PathSpec>),
    /// The paths to a receiver, by sending data over each.
    Receiver(Box<Terms>),
}

/// The results of an examination.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// The findings, troubles first.
    pub findings: Vec<Finding>,
    /// The measurement of each path, if data was sent.
    pub probes: Vec<PathProbe>,
    /// The rate of each path while all sent, in the order of `probes`; zero for a path that passed
    /// no data.
    pub together: Vec<Rate>,
    /// The connection over each path, if no data was sent.
    pub connections: Vec<Connection>,
}

/// An attempt to connect over one path.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The interface.
    pub interface: String,
    /// The remote address.
    pub remote: SocketAddr,
    /// The time until it was open, a round trip; or the kernel's error.
    pub opened: Result<units::Span, String>,
}

impl Examination {
    /// Whether no finding is a trouble.
    #[must_use]
    pub fn all_is_well(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It slows a path down or blocks it.
    Trouble,
    /// It does no harm by itself.
    Note,
}

/// A result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The name of the check in docs/doctor.md.
    pub check: &'static str,
    /// The path or the interface; empty for the host.
    pub subject: String,
    /// The finding as a sentence.
    pub text: String,
    /// The command that corrects it, if there is one.
    pub mend: Option<Mend>,
}

/// A shell command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mend {
    /// Whether it is for the receiver's host; else it is for this one.
    pub at_receiver: bool,
    /// The line.
    pub command: String,
}

/// Examines this host and its paths.
///
/// # Errors
/// Those of finding paths; [`Error::WrongPeer`] if a host with another key answers. The failure of
/// a path is a finding.
pub async fn examine(scope: &Scope) -> Result<Examination, Error> {
    let host = facts::Host::read();
    let paths = facts::paths(scope).await?;
    let mut found = Examination::default();
    if let Scope::Receiver(terms) = scope {
        (found.probes, found.together) = probe_each_and_all(terms).await?;
    } else {
        found.connections = facts::connections(&paths).await;
    }
    found.findings = judge::host(&host);
    found.findings.extend(paths.iter().flat_map(judge::path));
    found.findings.extend(found.connections.iter().filter_map(judge::connection));
    found.findings.extend(found.probes.iter().flat_map(|probe| judge::probe(probe, &host)));
    found.findings.extend(judge::together(&found.probes, &found.together));
    found.findings.sort_by_key(|finding| finding.severity);
    Ok(found)
}
