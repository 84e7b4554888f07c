//! The side that dials: routes from plans, the connection, and its upkeep.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use stripe::{ConnectError, Connection, Endpoint, EndpointError, HandshakeError, Route};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use wire::closing::CloseCode;

use super::follow::Follower;
use super::listen::{RECEIVE_BUFFER, system};
use super::route::{Leads, route};
use crate::Error;
use crate::dial::{Keeper, Plan, PlanKind, Terms, Via};
use crate::tls::wrong_key;
use events::Events;

/// How long the end of a connection may take.
const CLOSING: Duration = Duration::from_secs(2);
/// How long a connection over TCP may take that is to show what a line lets pass.
const TRIED: Duration = Duration::from_secs(1);

/// A striped connection to a peer, with routes over all planned interfaces.
#[derive(Debug)]
pub struct Striped {
    connection: Connection,
    /// Its thread drives the connection.
    _endpoint: Arc<Endpoint>,
    keeper: Arc<Keeper>,
    following: JoinHandle<()>,
}

impl Striped {
    /// The connection.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The keeper of the plans of its routes; events and counters have their numbers.
    #[must_use]
    pub fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    /// Closes the connection in order, within two seconds.
    pub async fn close(&self) {
        self.connection.close(CloseCode::Done.number());
        let _ = timeout(CLOSING, self.connection.parted()).await;
    }
}

impl Drop for Striped {
    fn drop(&mut self) {
        self.following.abort();
        // The endpoint may have others.
        self.connection.close(CloseCode::Done.number());
    }
}

/// Connects to the first host of `terms`, over all interfaces that its options allow. Notices are
/// told to `events`.
///
/// # Errors
/// [`Error::NoPath`] if no route leads to an answer, [`Error::WrongPeer`] if another key answers,
/// and those of planning paths.
pub async fn connect(
    terms: &Terms,
    options: stripe::Options,
    events: Events,
) -> Result<Striped, Error> {
    let keeper = Keeper::plan(terms, &[PlanKind::Udp], events).await?;
    let mut none = match connect_over(Arc::clone(&keeper), 0, options).await {
        Ok(striped) => return Ok(striped),
        Err(none) => none,
    };
    if none.is_silent
        && takes_tcp(&keeper, 0).await
        && let Error::NoPath { why, .. } = &mut none.error
    {
        *why = format!("{why}; {TAKES_TCP}");
    }
    Err(none.error)
}

/// What the reasons begin with.
pub(super) const OVER_UDP: &str = "over UDP: ";

/// What is said of a host that answers over TCP alone.
pub(super) const TAKES_TCP: &str =
    "the same port is open over TCP: a firewall may keep UDP out, or who listens there takes none";

/// Whether a host takes connections over TCP where nothing came of UDP.
pub(super) async fn takes_tcp(keeper: &Keeper, host: usize) -> bool {
    let plans = keeper.routes(host);
    // Those of a relay say nothing of the host.
    let mut direct = plans.iter().filter(|plan| plan.via == Via::Direct);
    let named: Option<SocketAddr> = direct.find_map(|plan| plan.named().into_iter().next());
    let Some(address) = named else { return false };
    matches!(timeout(TRIED, TcpStream::connect(address)).await, Ok(Ok(_)))
}

/// Why there is no connection.
pub struct NotConnected {
    pub(super) error: Error,
    /// Whether the system knows of each line that it is too narrow for the handshake.
    pub(super) is_narrow: bool,
    /// Whether nothing came of it because nobody answered.
    pub(super) is_silent: bool,
}

impl From<NotConnected> for Error {
    fn from(none: NotConnected) -> Error {
        none.error
    }
}

impl From<Error> for NotConnected {
    fn from(error: Error) -> NotConnected {
        NotConnected { error, is_narrow: false, is_silent: false }
    }
}

/// Connects to the host of that number over the paths over UDP that `keeper` has planned.
///
/// # Errors
/// As [`connect`].
pub async fn connect_over(
    keeper: Arc<Keeper>,
    host: usize,
    options: stripe::Options,
) -> Result<Striped, NotConnected> {
    connect_by(endpoint().map_err(system)?, keeper, host, options).await
}

/// Connects to the one host of `terms`, by an endpoint of the caller's, as a connection that a
/// guest of this endpoint is to have.
///
/// # Errors
/// As [`connect`].
pub async fn connect_at(
    endpoint: Arc<Endpoint>,
    terms: &Terms,
    options: stripe::Options,
    events: Events,
) -> Result<Striped, Error> {
    let keeper = Keeper::plan(terms, &[PlanKind::Udp], events).await?;
    Ok(connect_by(endpoint, keeper, 0, options).await?)
}

async fn connect_by(
    endpoint: Arc<Endpoint>,
    keeper: Arc<Keeper>,
    host: usize,
    mut options: stripe::Options,
) -> Result<Striped, NotConnected> {
    let terms = keeper.terms();
    let (remote, credential) = &terms.to[host];
    let tls = terms.tls()?.swap_remove(host);
    options.config.max_receive_buffer = options.config.max_receive_buffer.max(RECEIVE_BUFFER);
    let plans = keeper.routes(host);
    let usable: Vec<_> = plans.iter().filter(|plan| plan.used_up().is_none()).cloned().collect();
    let leads = Leads::new(terms);
    let routes = first_routes(terms, &usable, &leads);
    if routes.is_empty() {
        let used_up = plans.iter().filter_map(|plan| Some((&plan.name, plan.used_up()?)));
        let why: Vec<_> = used_up.map(|(name, why)| format!("{name}: {why}")).collect();
        return Err(Error::NoPath { to: remote.to_string(), why: why.join("; ") }.into());
    }
    let direct = plans.iter().filter(|plan| plan.via == Via::Direct);
    let named: Vec<SocketAddr> = direct.flat_map(|plan| plan.named()).collect();
    let (led, straight): (Vec<Route>, Vec<Route>) =
        routes.iter().cloned().partition(|route| route.lead.is_some());
    let mut connected = endpoint.connect(routes, tls.config(), options.clone()).await;
    // Who answers behind a relay is the relay's word. What it says ends no direct way.
    if matches!(&connected, Err(ConnectError::Handshake(why)) if !is_silence(why))
        && !led.is_empty()
        && !straight.is_empty()
    {
        connected = endpoint.connect(straight.clone(), tls.config(), options).await;
    }
    let connection = connected.map_err(|error| {
        if !straight.is_empty()
            && let ConnectError::Handshake(secure_error) = &error
            && let Some(found) = tls_error(secure_error).and_then(wrong_key)
        {
            let address = named.first().map_or_else(String::new, ToString::to_string);
            let (host, known_from) = (remote.to_string(), credential.key_source());
            return Error::WrongPeer { host, address, found, known_from }.into();
        }
        let is_narrow = matches!(error, ConnectError::Narrow { .. });
        let is_silent = match &error {
            ConnectError::Refused { .. } => true,
            ConnectError::Handshake(why) => is_silence(why),
            _ => false,
        };
        let why = format!("{OVER_UDP}{error}");
        let error = Error::NoPath { to: remote.to_string(), why };
        NotConnected { error, is_narrow, is_silent }
    })?;
    let follower = Follower::new(connection.clone(), Arc::clone(&keeper), host, leads)?;
    // Before the caller accepts any: one that does so sooner than this task runs would get it.
    let first = connection.accept_stream();
    let following = tokio::spawn(follower.run(first));
    Ok(Striped { connection, _endpoint: endpoint, keeper, following })
}

/// The endpoint of all connections that this process dials, as long as there are any: one thread
/// for any number of peers.
fn endpoint() -> Result<Arc<Endpoint>, EndpointError> {
    static SHARED: Mutex<Weak<Endpoint>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().expect("no panic while held");
    if let Some(endpoint) = shared.upgrade() {
        return Ok(endpoint);
    }
    let endpoint = Arc::new(Endpoint::new()?);
    *shared = Arc::downgrade(&endpoint);
    Ok(endpoint)
}

/// Whether nobody answered.
fn is_silence(why: &HandshakeError) -> bool {
    matches!(why, HandshakeError::TimedOut)
}

fn tls_error(error: &stripe::HandshakeError) -> Option<&rustls::Error> {
    match error {
        stripe::HandshakeError::Tls(error) => Some(error),
        _ => None,
    }
}

/// The routes to try first: of each plan the best guess, then the second ones, and so on.
fn first_routes(terms: &Terms, plans: &[Arc<Plan>], leads: &Leads) -> Vec<Route> {
    let candidates: Vec<_> = plans.iter().map(|plan| plan.candidates()).collect();
    let most = candidates.iter().map(Vec::len).max().unwrap_or(0);
    let nth = |at: usize| {
        let of_plan = plans.iter().zip(&candidates);
        of_plan.filter_map(move |(plan, all)| route(terms, (plan, plans), *all.get(at)?, leads))
    };
    (0..most).flat_map(nth).collect()
}
