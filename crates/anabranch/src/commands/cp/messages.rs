//! The messages between `cp` and its remote side over ssh: a JSON object on each line.
//!
//! The remote side begins with a [`Hello`], so that versions are compared before anything else is
//! exchanged. One [`Request`] follows, and one or more [`Answer`]s.

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The version of these messages; both sides must have the same.
pub(crate) const PROTOCOL: u32 = 1;
/// The beginning of every line of the remote side. Output of a shell's start-up files before the
/// first such line is ignored.
pub(crate) const MARKER: &[u8] = b"{\"anabranch\":";
/// The maximum length of a line of the remote side, in bytes.
pub(crate) const MAX_ANSWER: usize = 64 << 10;
/// The maximum length of a request, in bytes: an argument list of Linux is at most 2 MiB, and a
/// byte of a name takes up to four here.
pub(crate) const MAX_REQUEST: usize = 8 << 20;

/// The first line of the remote side.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The version of the program.
    pub(crate) anabranch: String,
    /// The version of the messages, [`PROTOCOL`].
    pub(crate) speaks: u32,
}

/// The version of the requesting side; requests of every version have these fields.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Version {
    /// The version of the program.
    pub(crate) anabranch: String,
    /// The version of the messages, [`PROTOCOL`].
    pub(crate) speaks: u32,
}

/// The request to the remote side.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The version of the requesting side.
    #[serde(flatten)]
    pub(crate) version: Version,
    /// The fingerprint of the requesting side's key.
    pub(crate) key: String,
    /// The only port to listen on; `None` leaves the choice to the remote side.
    pub(crate) port: Option<u16>,
    /// Whether the remote side lets others go first at disks and processors.
    #[serde(default)]
    pub(crate) background: bool,
    /// The relays at which the remote side waits.
    #[serde(default)]
    pub(crate) via: Vec<WaitAt>,
    /// The requested operation.
    pub(crate) what: Operation,
}

/// A relay at which the far side of a copy is to wait, as it is told.
#[derive(Serialize, Deserialize)]
pub(crate) struct WaitAt {
    /// Its host and port.
    pub(crate) relay: String,
    /// The fingerprint of its key.
    pub(crate) key: String,
    /// A token with which a host may use it.
    pub(crate) token: Option<String>,
}

impl fmt::Debug for WaitAt {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitAt").field("relay", &self.relay).finish_non_exhaustive()
    }
}

/// An operation of the remote side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    /// Receive files.
    Put {
        /// The target of the copy.
        target: OsString,
        /// The name of the source, which may get the target's name instead; `None` if there are
        /// several sources.
        one: Option<OsString>,
    },
    /// Serve files.
    Get {
        /// The paths of the files and folders, which may be patterns.
        sources: Vec<OsString>,
    },
}

/// A line of the remote side after its hello.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The status that it reports.
    pub(crate) anabranch: Status,
}

/// The status of the remote side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    /// It listens for connections.
    Ready(Ready),
    /// The transfer succeeded.
    Done,
    /// The transfer failed.
    Failed {
        /// The exit code.
        code: u8,
        /// The reason.
        text: String,
    },
}

/// The parameters for connecting.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// The token for this transfer.
    pub(crate) token: String,
    /// The addresses that it listens on.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The address at which the ssh connection arrived.
    pub(crate) reached: Option<IpAddr>,
    /// The new name of the one source, if it does not keep its own.
    pub(crate) rename: Option<OsString>,
    /// The names under which the requested files are served.
    pub(crate) names: Vec<OsString>,
    /// Whether it waits at a relay; versions that know of none do not say so.
    #[serde(default)]
    pub(crate) waits: bool,
}
