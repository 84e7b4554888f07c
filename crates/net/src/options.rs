//! What a caller asks of a transfer.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use wire::frame::Wishes;

use crate::{Fingerprint, Identity, PathSpec, Peer, Timetable, Token};

/// Where the receiver is: a name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Host name or address literal (without brackets).
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The port used where none is named.
pub const DEFAULT_PORT: u16 = 7707;

impl FromStr for Remote {
    type Err = String;

    /// `host`, `host:port`, `192.0.2.1:7707`, `2001:db8::1`, `[2001:db8::1]:7707`.
    fn from_str(text: &str) -> Result<Remote, String> {
        let bad = || format!("'{text}' is not HOST or HOST:PORT");
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Remote { host: address.ip().to_string(), port: address.port() });
        }
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Remote { host: address.to_string(), port: DEFAULT_PORT });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| bad())?),
            None => (text, DEFAULT_PORT),
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == ':' || c == '/') {
            return Err(bad());
        }
        Ok(Remote { host: host.to_string(), port })
    }
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How the sender knows the receiver, and the receiver the sender.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A token that the receiver printed: its key, and a secret to show it once.
    Token(Token),
    /// A key known from before; the receiver has ours in its `authorized_peers`.
    Pinned(Fingerprint),
}

impl Credential {
    /// The receiver's key.
    pub(crate) fn pin(&self) -> Fingerprint {
        match self {
            Credential::Token(token) => token.fingerprint,
            Credential::Pinned(fingerprint) => *fingerprint,
        }
    }

    /// What to show the receiver once its key is verified.
    pub(crate) fn secret(&self) -> Option<[u8; 16]> {
        match self {
            Credential::Token(token) => Some(*token.secret()),
            Credential::Pinned(_) => None,
        }
    }
}

/// The kernel's congestion control on the paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// CUBIC, and BBR on a path that loses packets without a queue.
    #[default]
    Auto,
    /// The one named, on every path.
    Named(String),
}

/// What of the sources is sent, and how it is told what has not changed.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Patterns as in `.gitignore`; if there are any, only files that match one are sent, or that
    /// are in a folder that does.
    pub include: Vec<String>,
    /// Patterns as in `.gitignore`; what matches one is not sent, and if it is a folder, nothing in
    /// it.
    pub exclude: Vec<String>,
    /// Names below the one source, or below the current folder; nothing else is sent. Folders among
    /// them are sent without what is in them.
    pub files_from: Option<Vec<PathBuf>>,
    /// A file is what it was if its contents hash to the same, instead of if size and time are the
    /// same.
    pub checksum: bool,
}

/// What a transfer goes by on the side that begins it, whichever way its data flow: as whom, over
/// what, and how.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one a flag of the command line")]
pub struct TransferOptions {
    /// Our key.
    pub identity: Identity,
    /// Paths to use; empty: every unmetered interface with a route.
    pub paths: Vec<PathSpec>,
    /// Interfaces to leave out.
    pub no_paths: Vec<String>,
    /// Block scheduler by name (`policy::sched::by_name`).
    pub scheduler: String,
    /// Congestion control of what is sent from here, which is requests where data come here.
    pub congestion_control: CongestionControl,
    /// Upper bound of the total rate, over the week.
    pub max_rate: Option<Timetable>,
    /// The folder where it is kept what each capped interface carried this month; without one, no
    /// path can have a cap.
    pub usage: Option<PathBuf>,
    /// Read everything back from the disk where it arrives before it gets its name, and hash what
    /// an earlier attempt brought over.
    pub verify: bool,
    /// Forget what an earlier attempt brought over.
    pub restart: bool,
    /// Replace targets that exist.
    pub overwrite: bool,
    /// Agree on everything, transfer nothing.
    pub dry_run: bool,
    /// How long to keep trying when every path is gone.
    pub patience: units::Span,
}

impl TransferOptions {
    /// As the holder of this key, over every path, with everything else as the command line has it
    /// where nothing is said.
    #[must_use]
    pub fn new(identity: Identity) -> TransferOptions {
        TransferOptions {
            identity,
            paths: Vec::new(),
            no_paths: Vec::new(),
            scheduler: "self-adaptive".into(),
            congestion_control: CongestionControl::Auto,
            max_rate: None,
            usage: None,
            verify: false,
            restart: false,
            overwrite: false,
            dry_run: false,
            patience: units::Span::from_secs(120),
        }
    }

    /// What the side that receives is told of these.
    pub(crate) fn wishes(&self) -> Wishes {
        Wishes {
            restart: self.restart,
            overwrite: self.overwrite,
            verify: self.verify,
            dry_run: self.dry_run,
        }
    }
}

/// What `send` is asked to do.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Files and folders. `folder` arrives as a folder of that name; of `folder/` and `.` arrives
    /// what is in it.
    pub sources: Vec<PathBuf>,
    /// The name by which the one source arrives instead of its own; a folder is then sent as a
    /// folder, with a slash at its end or not.
    pub rename: Option<OsString>,
    /// What of them is sent.
    pub selection: Selection,
    /// The receiver.
    pub to: Remote,
    /// How it is known.
    pub credential: Credential,
    /// As whom, over what, and how.
    pub transfer: TransferOptions,
}

/// Where a host listens that others come to, and who may come.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Addresses to listen on; empty: every one, IPv6 and IPv4.
    pub listen: Vec<SocketAddr>,
    /// Port for the default addresses; 0 takes a free one.
    pub port: u16,
    /// Our key.
    pub identity: Identity,
    /// Its secret lets in whoever shows it, to the whole directory; the CLI prints it.
    pub token: Option<Token>,
    /// The only key whose holder may show the token; `None` is whoever shows it first.
    pub holder: Option<Fingerprint>,
    /// Who may come without a token, each for what it may do.
    pub authorized: Vec<Peer>,
}

impl HostOptions {
    /// The holder of this key, at the default port of all addresses, where nobody may come yet.
    #[must_use]
    pub fn new(identity: Identity) -> HostOptions {
        HostOptions {
            listen: Vec::new(),
            port: DEFAULT_PORT,
            identity,
            token: None,
            holder: None,
            authorized: Vec::new(),
        }
    }
}

/// What `receive` is asked to do.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// Where files go.
    pub directory: PathBuf,
    /// Where it listens, and who may send.
    pub host: HostOptions,
    /// Serve one transfer after the other instead of ending after the first.
    pub keep: bool,
    /// Replace targets that exist, whatever the sender asks.
    pub overwrite: bool,
}

/// What `serve` is asked to do.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// What is offered: whoever comes sees it as the root, and nothing outside it.
    pub directory: PathBuf,
    /// Where it listens, and who may get something: of those that need no token, the ones with
    /// [`Peer::may_get`].
    pub host: HostOptions,
    /// End after the first fetch that was completed, instead of serving until the future is
    /// dropped.
    pub once: bool,
}

/// A host to get something from.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where it is.
    pub remote: Remote,
    /// How it is known.
    pub credential: Credential,
}

/// What `fetch` is asked to do.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Where from. Several are replicas: each has to have the same.
    pub from: Vec<Server>,
    /// Files and folders, below what the server offers. `folder` arrives as a folder of that name;
    /// of `folder/`, and of an empty name, arrives what is in it.
    pub names: Vec<PathBuf>,
    /// What of them is wanted. `files_from` is for senders only.
    pub selection: Selection,
    /// The folder where it goes; made if it is not there.
    pub into: PathBuf,
    /// The name that the one file or folder gets there in place of its own.
    pub rename: Option<OsString>,
    /// What the one file must hash to.
    pub blake3: Option<[u8; 32]>,
    /// As whom, over what, and how.
    pub transfer: TransferOptions,
}
