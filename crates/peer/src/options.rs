//! Options of the side that dials and of the side that listens.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use net::CongestionControl;
use stripe::{Effort, Lead};
use tokio::sync::watch;
use units::{Bytes, Rate, Span};

use crate::caps::Allowance;
use crate::carrier::{BoxFuture, Carrier};
use crate::limit::Limit;
use crate::{
    AuthorizedPeers, Cap, DEFAULT_PORT, Error, Fingerprint, Identity, PathClass, PathSpec, Remote,
    Timetable, Token,
};

/// The means by which the dialing and the listening side know each other.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A token from the listening side: its key, and a secret to show it once.
    Token(Token),
    /// A key known from before; the listening side has ours among its authorized peers.
    Pinned(Fingerprint),
}

/// The source of the key that the other side must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A token has its fingerprint.
    Token,
    /// It is known from before.
    Trusted,
}

impl fmt::Display for KeySource {
    /// Completes "another key than".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeySource::Token => "the token says",
            KeySource::Trusted => "the key that is trusted for it",
        })
    }
}

impl Credential {
    /// Where the key of the listening side is known from.
    #[must_use]
    pub fn key_source(&self) -> KeySource {
        match self {
            Credential::Token(_) => KeySource::Token,
            Credential::Pinned(_) => KeySource::Trusted,
        }
    }

    /// The key of the listening side.
    #[must_use]
    pub fn pin(&self) -> Fingerprint {
        match self {
            Credential::Token(token) => token.fingerprint,
            Credential::Pinned(fingerprint) => *fingerprint,
        }
    }

    /// The secret to show the listening side after its key is verified.
    #[must_use]
    pub fn secret(&self) -> Option<[u8; 16]> {
        match self {
            Credential::Token(token) => Some(*token.secret()),
            Credential::Pinned(_) => None,
        }
    }
}

/// The paths of a session, of each kind, if nothing else is said.
pub const MAX_PATHS: usize = 16;

/// Paths of the dialing side, and its patience.
#[derive(Clone, Debug)]
pub struct DialOptions {
    /// Our key.
    pub identity: Identity,
    /// Paths to use; empty: every unmetered interface with a route.
    pub paths: Vec<PathSpec>,
    /// Interfaces to leave out.
    pub no_paths: Vec<String>,
    /// Relays: over each, every interface that reaches it is one more path.
    pub relays: Vec<RelayOptions>,
    /// Whether there are direct paths beside those over relays.
    pub has_direct: bool,
    /// Whether the hosts are met at the relays: direct paths lead to addresses that they announce,
    /// and to no others.
    pub is_met: bool,
    /// Congestion control of the data sent from here.
    pub congestion_control: CongestionControl,
    /// Upper bound of the total rate, over the week.
    pub max_rate: Option<Timetable>,
    /// The transfers that share its bounds.
    pub parts: Parts,
    /// The folder with the monthly counts of capped interfaces; without one, no path can have a
    /// cap.
    pub usage: Option<PathBuf>,
    /// The time to keep trying while no path is open.
    pub patience: Span,
    /// The most paths of a session, of each kind.
    pub most_paths: usize,
    /// Of the usual paths of a striped connection use so many, those that carry most; `None`: all.
    pub use_paths: Option<usize>,
    /// How many subflows each path has over a carrier where several are possible.
    pub weight: u16,
    /// Whether connections are in the background. That of striped ones is in their own
    /// [options](stripe::Options).
    pub effort: Effort,
}

impl DialOptions {
    /// The defaults of the command line for the holder of this key: every path, [`MAX_PATHS`] at
    /// most, no bound, a patience of two minutes.
    #[must_use]
    pub fn new(identity: Identity) -> DialOptions {
        DialOptions {
            identity,
            paths: Vec::new(),
            no_paths: Vec::new(),
            relays: Vec::new(),
            has_direct: true,
            is_met: false,
            congestion_control: CongestionControl::Auto,
            max_rate: None,
            parts: Parts::default(),
            usage: None,
            patience: Span::from_secs(120),
            most_paths: MAX_PATHS,
            use_paths: None,
            weight: 1,
            effort: Effort::Usual,
        }
    }

    /// Meets the hosts at these relays, whose paths are the only ones until the hosts have
    /// announced addresses.
    pub fn meet_at(&mut self, relays: Vec<RelayOptions>) {
        self.relays = relays;
        self.is_met = true;
    }
}

/// The transfers of this process that share bounds: each has an equal part of every rate, and what
/// an interface with a cap carries is counted for all of them together. Clones are the same ones.
#[derive(Clone, Debug)]
pub struct Parts(Arc<PartsState>);

#[derive(Debug)]
struct PartsState {
    transfers: AtomicU64,
    /// By interface and cap. Two counts of one interface would book ahead of each other.
    allowances: Mutex<BTreeMap<Capped, Weak<Allowance>>>,
}

/// An interface with its cap.
type Capped = (String, Option<Bytes>);

impl Default for Parts {
    fn default() -> Parts {
        Parts::of(1)
    }
}

impl Parts {
    /// So many transfers; none counts as one.
    #[must_use]
    pub fn of(transfers: usize) -> Parts {
        let transfers = AtomicU64::new(transfers.try_into().unwrap_or(u64::MAX));
        Parts(Arc::new(PartsState { transfers, allowances: Mutex::default() }))
    }

    /// One of them is over: its part is for the others.
    pub fn leave(&self) {
        let less = |left: u64| left.checked_sub(1);
        // Below zero nothing is left to leave.
        let _ = self.0.transfers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.0.transfers.load(Ordering::Relaxed).max(1)
    }

    /// The part of a bound that each of them has.
    pub(crate) fn part(&self, bound: Rate) -> Rate {
        Rate::from_bits(bound.as_bits() / self.count())
    }

    /// The allowance of an interface with that cap, which is opened by the first that asks.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn allowance(
        &self,
        interface: &str,
        cap: Option<Cap>,
        open: impl FnOnce() -> Result<Option<Allowance>, Error>,
    ) -> Result<Option<Arc<Allowance>>, Error> {
        let mut allowances = self.0.allowances.lock().expect("no panic while held");
        let key = (interface.to_string(), cap.map(|cap| cap.bytes));
        if let Some(known) = allowances.get(&key).and_then(Weak::upgrade) {
            return Ok(Some(known));
        }
        let opened = open()?.map(Arc::new);
        if let Some(opened) = &opened {
            allowances.insert(key, Arc::downgrade(opened));
        }
        Ok(opened)
    }
}

/// A relay between this host and those that it dials.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Its name for people.
    pub name: String,
    /// Its address.
    pub dial: Remote,
    /// Its key.
    pub key: Fingerprint,
    /// The priority of the paths over it; `None`: that of each interface.
    pub class: Option<PathClass>,
    /// Upper bound of the rate of all paths over it together.
    pub max: Option<Arc<Limit>>,
    /// Its allowance, if it has a cap or had one.
    pub allowance: Option<Arc<Allowance>>,
    /// What opens connections through it.
    pub relaying: Arc<dyn Relaying>,
}

/// What opens connections through a relay.
pub trait Relaying: fmt::Debug + Send + Sync {
    /// The carrier of connections to a host; their attempts go to the relay's address. Needs a
    /// Tokio runtime.
    ///
    /// # Errors
    /// Those of setting up the connection to the relay, not of the relay itself.
    fn carrier(&self, to: &Remote) -> Result<Arc<dyn Carrier>, Error>;

    /// What leads the routes of one striped connection to a host, whose addresses are the relay's.
    /// Needs a Tokio runtime.
    ///
    /// # Errors
    /// As [`Relaying::carrier`].
    fn leading(&self, to: &Remote) -> Result<Arc<dyn Leading>, Error>;
}

/// What leads the routes of one striped connection through a relay.
pub trait Leading: fmt::Debug + Send + Sync {
    /// That of a further route; `None`: it has as many as it may.
    fn lead(&self) -> Option<Lead>;

    /// The addresses of IPv4 under which the relay knows its routes, by what is of no meaning but
    /// that each route has another one.
    fn seen(&self) -> watch::Receiver<BTreeMap<u8, SocketAddr>>;

    /// What translates and filters between a local address on a device and the relay at this
    /// address, in words; `None`: the relay does not tell. It takes some seconds.
    fn in_front(
        &self,
        relay: SocketAddr,
        local: IpAddr,
        device: Option<String>,
    ) -> BoxFuture<'_, Option<String>>;
}

/// A relay over which datagrams come to a host that waits there.
#[derive(Clone, Debug)]
pub struct WaitingRelay {
    /// Its address.
    pub dial: Remote,
    /// What leads them to the host, from the time at which it is first asked on.
    pub leading: Arc<dyn Leading>,
}

/// Addresses of the listening side, and the peers that it lets in.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Addresses to listen at; empty: all addresses of IPv6 and IPv4.
    pub addresses: Vec<SocketAddr>,
    /// Port for the default addresses; 0 takes a free one.
    pub port: u16,
    /// How many ports behind it may take its place, if it is taken and no address is named.
    pub further_ports: u16,
    /// Our key.
    pub identity: Identity,
    /// A token whose secret lets its first holder in, to the whole directory.
    pub token: Option<Token>,
    /// The only key whose holder may show the token; `None`: the first that shows it.
    pub holder: Option<Fingerprint>,
    /// Peers that need no token, and their permissions.
    pub authorized: AuthorizedPeers,
    /// Where the logs of striped connections go; `None`: there are none.
    pub qlog: Option<stripe::Qlog>,
    /// Whether connections are in the background; those of peers that wish so are in any case.
    pub effort: Effort,
}

impl ListenOptions {
    /// The holder of this key at the default port of all addresses; no peer is let in yet.
    #[must_use]
    pub fn new(identity: Identity) -> ListenOptions {
        ListenOptions {
            addresses: Vec::new(),
            port: DEFAULT_PORT,
            further_ports: 0,
            identity,
            token: None,
            holder: None,
            authorized: AuthorizedPeers::default(),
            qlog: None,
            effort: Effort::Usual,
        }
    }
}
