//! What a caller asks of the side that dials and of the side that listens.

use std::net::SocketAddr;
use std::path::PathBuf;

use net::CongestionControl;
use units::Span;

use crate::{DEFAULT_PORT, Fingerprint, Identity, PathSpec, Peer, Timetable, Token};

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
    #[must_use]
    pub fn pin(&self) -> Fingerprint {
        match self {
            Credential::Token(token) => token.fingerprint,
            Credential::Pinned(fingerprint) => *fingerprint,
        }
    }

    /// What to show the receiver once its key is verified.
    #[must_use]
    pub fn secret(&self) -> Option<[u8; 16]> {
        match self {
            Credential::Token(token) => Some(*token.secret()),
            Credential::Pinned(_) => None,
        }
    }
}

/// How the dialing side opens its paths and how long it keeps trying.
#[derive(Clone, Debug)]
pub struct DialOptions {
    /// Our key.
    pub identity: Identity,
    /// Paths to use; empty: every unmetered interface with a route.
    pub paths: Vec<PathSpec>,
    /// Interfaces to leave out.
    pub no_paths: Vec<String>,
    /// Congestion control of what is sent from here.
    pub congestion_control: CongestionControl,
    /// Upper bound of the total rate, over the week.
    pub max_rate: Option<Timetable>,
    /// The folder that keeps what each capped interface carried this month; without one, no path
    /// can have a cap.
    pub usage: Option<PathBuf>,
    /// How long to keep trying when every path is gone.
    pub patience: Span,
}

impl DialOptions {
    /// The options of the holder of this key over every path, with the defaults of the command
    /// line.
    #[must_use]
    pub fn new(identity: Identity) -> DialOptions {
        DialOptions {
            identity,
            paths: Vec::new(),
            no_paths: Vec::new(),
            congestion_control: CongestionControl::Auto,
            max_rate: None,
            usage: None,
            patience: Span::from_secs(120),
        }
    }
}

/// Where a host listens that others come to, and who may come.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Addresses to listen on; empty: every one, IPv6 and IPv4.
    pub addresses: Vec<SocketAddr>,
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

impl ListenOptions {
    /// The holder of this key, at the default port of all addresses, where nobody may come yet.
    #[must_use]
    pub fn new(identity: Identity) -> ListenOptions {
        ListenOptions {
            addresses: Vec::new(),
            port: DEFAULT_PORT,
            identity,
            token: None,
            holder: None,
            authorized: Vec::new(),
        }
    }
}
