//! The side that uses a relay: a control connection, which is opened again whenever it ends, and
//! data connections to destinations.

mod asking;
mod association;
mod binding;
mod chain;
mod dialing;
mod finding;
mod keeper;
mod leading;
mod registering;
mod shelf;
mod translator;
mod waiting;
mod ways;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use net::Clock;
use peer::carrier::{Attempt, BoxFuture, Carrier, Stream, Tcp};
use peer::tls::ClientTls;
use peer::{Credential, Error, Fingerprint, Identity, Remote, Token};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use units::Time;
use wire::meet::Knock;
use wire::relay::{Reason, Ticket};
use wire::tunnel::Target;

use association::AssociationState;
pub use binding::Binding;
pub use dialing::RelayDialing;
pub use finding::{AskedRelay, find_translator};
use leading::Association;
pub(crate) use leading::ClientLeading;
use registering::Registering;
pub use registering::WaitState;
use shelf::Shelves;
pub use translator::{Filtering, Mapping, Translator, TranslatorTest};
pub(crate) use waiting::CallListener;
pub use waiting::{WaitingPlace, calls};

/// How a relay is reached.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The address to dial: the relay's or, if it is behind another one, that one's.
    pub dial: Remote,
    /// How the relay is known, and this host there.
    pub credential: Credential,
    /// The key of this host.
    pub identity: Identity,
    /// What opens connections to the relay.
    pub carrier: Arc<dyn Carrier>,
    /// What a guest of the relay shows it; `None`: this host is none.
    pub knock: Option<Knock>,
    /// The relay's own address, for people.
    pub name: String,
}

impl ClientOptions {
    /// A relay that is dialed itself.
    #[must_use]
    pub fn new(dial: Remote, credential: Credential, identity: Identity) -> ClientOptions {
        let name = dial.to_string();
        ClientOptions { dial, credential, identity, carrier: Arc::new(Tcp), knock: None, name }
    }

    /// A relay with this key, which lets this host in as the guest of the one with that token.
    #[must_use]
    pub fn guest(dial: Remote, key: Fingerprint, identity: Identity, of: &Token) -> ClientOptions {
        let knock = Knock::Invitation(of.invitation());
        let known = ClientOptions::new(dial, Credential::Pinned(key), identity);
        ClientOptions { knock: Some(knock), ..known }
    }

    /// A relay that this host may use, and at which the one with that key waits.
    #[must_use]
    pub fn meeting(
        dial: Remote,
        credential: Credential,
        identity: Identity,
        host: Fingerprint,
    ) -> ClientOptions {
        let knock = Some(Knock::Key(*host.as_bytes()));
        ClientOptions { knock, ..ClientOptions::new(dial, credential, identity) }
    }

    /// A relay that is a destination of another one.
    #[must_use]
    pub fn behind(
        other: &Arc<Client>,
        own: &Target,
        credential: Credential,
        identity: Identity,
    ) -> ClientOptions {
        let (carrier, name) = (Arc::new(other.to(own.clone())), own.to_string());
        let dial = other.shared.options.dial.clone();
        ClientOptions { dial, credential, identity, carrier, knock: None, name }
    }
}

/// A relay in use. It stays connected until it is dropped.
pub struct Client {
    shared: Arc<ClientShared>,
    keeping: AbortHandle,
}

/// How the control connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// It is being opened; the last failure, if there was one.
    Connecting(Option<String>),
    /// It is open.
    Open,
    /// The relay is being stopped: it opens nothing new.
    Parting,
    /// The relay does not let this host in, and says why. It is asked again now and then.
    Refused(String),
}

struct ClientShared {
    options: ClientOptions,
    tls: ClientTls,
    clock: Clock,
    state: Mutex<State>,
    /// Rings when somebody asks for a ticket.
    asked: Notify,
    /// Rings when there are tickets, or news of them.
    told: Notify,
}

struct State {
    link: ClientState,
    /// When the control connection last failed.
    failed: Time,
    shelves: Shelves,
    /// Those in use, by their numbers; and those that the relay is yet to be told are over.
    associations: BTreeMap<u32, Weak<Association>>,
    gone: Vec<u32>,
    next_association: u32,
    /// Until when the relay, which knows nothing of associations, hears of no more.
    tcp_alone_until: Time,
    /// The places at which this host waits.
    registering: Registering,
    /// The attempt that opened the last control connection.
    reached: Option<Attempt>,
}

impl State {
    /// The associations in use.
    fn associations(&self) -> Vec<Arc<Association>> {
        self.associations.values().filter_map(Weak::upgrade).collect()
    }
}

impl Client {
    /// Connects to a relay. Needs a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the own key. Whether the relay is there shows when
    /// somebody opens something.
    pub fn start(options: ClientOptions) -> Result<Arc<Client>, Error> {
        let tls = ClientTls::new(&options.identity, options.credential.pin())?;
        let link = ClientState::Connecting(None);
        let state = Mutex::new(State {
            link,
            failed: Time::ZERO,
            shelves: Shelves::default(),
            associations: BTreeMap::new(),
            gone: Vec::new(),
            next_association: 0,
            tcp_alone_until: Time::ZERO,
            registering: Registering::default(),
            reached: None,
        });
        let (clock, asked, told) = (Clock::start(), Notify::new(), Notify::new());
        let shared = Arc::new(ClientShared { options, tls, clock, state, asked, told });
        let keeping = tokio::spawn(keeper::keep(Arc::clone(&shared))).abort_handle();
        Ok(Arc::new(Client { shared, keeping }))
    }

    /// Opens a connection to a destination: `attempt` is one to the relay, or to the one before it.
    /// Whether the destination is reached shows in what it says; see [`Client::failure`].
    ///
    /// # Errors
    /// Those of the attempt. [`io::ErrorKind::PermissionDenied`] with the relay's reason if it
    /// issues no ticket; any other kind if there is no control connection.
    pub async fn open(&self, attempt: &Attempt, target: &Target) -> io::Result<Box<dyn Stream>> {
        let ticket = self.ticket(target).await?;
        let stream = self.shared.options.carrier.connect(attempt).await?;
        show(&*stream, &ticket).await?;
        Ok(stream)
    }

    /// The carrier of paths to a destination: its attempts go to the relay's address.
    #[must_use]
    pub fn to(self: &Arc<Self>, target: Target) -> RelayCarrier {
        RelayCarrier { client: Arc::clone(self), target }
    }

    /// What leads the routes of a further striped connection to a destination, or `None`: datagrams
    /// of whoever comes to a host that waits. Attempts go to the relay's address. Whether the relay
    /// takes part shows in the routes.
    pub(crate) fn associate(self: &Arc<Self>, target: Option<Target>) -> ClientLeading {
        let mut state = self.shared.state();
        let number = state.next_association;
        state.next_association = number.wrapping_add(1);
        let own = Arc::new(Association::new(self, AssociationState::new(number, target)));
        state.associations.insert(number, Arc::downgrade(&own));
        drop(state);
        self.shared.asked.notify_one();
        ClientLeading(own)
    }

    /// The relay's address, as it was named.
    #[must_use]
    pub fn dial(&self) -> &Remote {
        &self.shared.options.dial
    }

    /// How the control connection is.
    #[must_use]
    pub fn state(&self) -> ClientState {
        self.shared.state().link.clone()
    }

    /// What the relay last said of a connection to a destination that came to nothing, since a time
    /// of [`Client::now`].
    #[must_use]
    pub fn failure(&self, target: &Target, since: Time) -> Option<Reason> {
        self.shared.state().shelves.failure(target, since).cloned()
    }

    /// The time by the client's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    async fn ticket(&self, target: &Target) -> io::Result<Ticket> {
        let begin = self.now();
        loop {
            let told = self.shared.told.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if let Some(ticket) = self.try_ticket(begin, target)? {
                self.shared.asked.notify_one();
                return Ok(ticket);
            }
            self.shared.asked.notify_one();
            told.await;
        }
    }

    /// A ticket, if one is there.
    fn try_ticket(&self, begin: Time, target: &Target) -> io::Result<Option<Ticket>> {
        let now = self.now();
        let mut state = self.shared.state();
        if let Some(reason) = state.shelves.failure(target, begin) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason.to_string()));
        }
        let ticket = state.shelves.take(now, target);
        if ticket.is_some() || state.failed < begin {
            return Ok(ticket);
        }
        match &state.link {
            ClientState::Connecting(Some(why)) | ClientState::Refused(why) => {
                Err(io::Error::other(format!("the relay {}: {why}", self.shared.options.name)))
            }
            _ => Ok(None),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.shared.options.name).finish_non_exhaustive()
    }
}

impl ClientShared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
}

/// Writes the ticket in front of everything else.
pub(crate) async fn show(stream: &dyn Stream, ticket: &Ticket) -> io::Result<()> {
    let mut left = &ticket.octets()[..];
    while !left.is_empty() {
        poll_fn(|cx| stream.poll_write_ready(cx)).await?;
        match stream.try_write(&[IoSlice::new(left)]) {
            Ok(written) => left = &left[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Opens connections to one destination through a relay.
#[derive(Clone, Debug)]
pub struct RelayCarrier {
    client: Arc<Client>,
    target: Target,
}

impl RelayCarrier {
    /// The relay.
    #[must_use]
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The destination.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }
}

impl Carrier for RelayCarrier {
    fn connect<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(self.client.open(attempt, &self.target))
    }
}
