//! What `cp` and its far side say to each other over ssh: a JSON object a line.
//!
//! The far side begins, with a [`Hello`], so that both know each other's version before anything
//! else is said. Then comes one [`Request`], and as many [`Answer`]s as it takes.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The version of what is said here. Another one is not understood.
pub(crate) const SPEAKS: u32 = 1;
/// How every line of the far side begins. What a shell's start-up files print before the first such
/// line is no concern of ours.
pub(crate) const MARKER: &[u8] = b"{\"anabranch\":";
/// The longest line that the far side may write, in bytes.
pub(crate) const MAX_ANSWER: usize = 64 << 10;
/// The longest request, in bytes: an argument list of Linux is at most 2 MiB, and a byte of a name
/// takes up to four here.
pub(crate) const MAX_REQUEST: usize = 8 << 20;

/// The first line of the far side.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The version of its program.
    pub(crate) anabranch: String,
    /// The version of what it says.
    pub(crate) speaks: u32,
}

/// Who asks; every request, of whatever version, has these.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Asker {
    /// The version of the program that asks.
    pub(crate) anabranch: String,
    /// The version of what it says.
    pub(crate) speaks: u32,
}

/// What the far side is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Who asks.
    #[serde(flatten)]
    pub(crate) asker: Asker,
    /// The fingerprint of the asking side's key.
    pub(crate) key: String,
    /// The port to listen on, and no other; without one, a port of the far side's choice.
    pub(crate) port: Option<u16>,
    /// What is asked for.
    pub(crate) what: What,
}

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// To receive.
    Put {
        /// Where to.
        target: OsString,
        /// The name of the one file or folder that comes, which may then take the target's name;
        /// `None` if it is more than one.
        one: Option<OsString>,
    },
    /// To serve.
    Get {
        /// What is wanted.
        sources: Vec<OsString>,
    },
}

/// What the far side says after its hello.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// What it says.
    pub(crate) anabranch: Said,
}

/// What the far side says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// It waits for the other side's connections.
    Ready(Ready),
    /// The transfer is over, and all is well.
    Done,
    /// It ends without success.
    Failed {
        /// With which exit code.
        code: u8,
        /// Why.
        text: String,
    },
}

/// Where and how to connect.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// What to show, once.
    pub(crate) token: String,
    /// Where it listens.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Its address at which the ssh connection arrived.
    pub(crate) reached: Option<IpAddr>,
    /// The name by which the one thing is to arrive instead of its own.
    pub(crate) rename: Option<OsString>,
    /// By which names what is wanted is served.
    pub(crate) names: Vec<OsString>,
}
