//! What holds paths back, and the command that mends it.
//!
//! [`examine`] gathers facts about this host and its paths, lets data flow over each path alone and
//! then over all together if it may, and judges what it found; docs/doctor.md has every check.

mod facts;
mod judge;

use std::net::SocketAddr;

use units::Rate;

use crate::dial::{PathProbe, Terms, probe_each_and_all};
use crate::{Error, PathSpec, Remote};

/// What to examine.
#[derive(Clone, Debug)]
pub enum Scope {
    /// This host and whichever interfaces lead to the world.
    Host,
    /// The paths to a host, as far as a connection shows them; all, or those named.
    Remote(Remote, Vec<PathSpec>),
    /// The paths to a receiver, with data.
    Receiver(Box<Terms>),
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// What there is to say, troubles first.
    pub findings: Vec<Finding>,
    /// What each path carries, if data flowed.
    pub probes: Vec<PathProbe>,
    /// What each of the paths carried while all did, in the order of `probes`; zero for one that
    /// carries nothing.
    pub together: Vec<Rate>,
    /// How long a connection over each path took to open, or why none did, if no data flowed.
    pub connections: Vec<Connection>,
}

/// A connection over one path.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The interface.
    pub interface: String,
    /// To where.
    pub remote: SocketAddr,
    /// A round trip, or what the kernel said.
    pub opened: Result<units::Span, String>,
}

impl Examination {
    /// Whether nothing was found that holds a path back.
    #[must_use]
    pub fn all_is_well(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It holds a path back.
    Trouble,
    /// It is worth knowing.
    Note,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Which check found it, by its name in docs/doctor.md.
    pub check: &'static str,
    /// The path or the interface that it is about; empty for the host.
    pub subject: String,
    /// What it is, as a sentence.
    pub text: String,
    /// The command that mends it.
    pub mend: Option<Mend>,
}

/// A command to be typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mend {
    /// On which side.
    pub at_receiver: bool,
    /// The line.
    pub command: String,
}

/// Examines this host and its paths.
///
/// # Errors
/// Those of finding paths; [`Error::WrongPeer`] if somebody else answers. What a path fails of is a
/// finding.
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
