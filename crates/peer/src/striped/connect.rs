//! The side that dials: routes from plans, the connection, and its upkeep.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use stripe::{Class, ConnectError, Connection, Endpoint, EndpointError, Route};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use wire::closing::CloseCode;

use super::follow::Follower;
use super::listen::{RECEIVE_BUFFER, system};
use crate::dial::{Candidate, Keeper, Plan, PlanKind, Terms};
use crate::tls::wrong_key;
use crate::{Error, PathClass};
use events::Events;

/// How long the end of a connection may take.
const CLOSING: Duration = Duration::from_secs(2);

/// A striped connection to a peer, with routes over all planned interfaces.
#[derive(Debug)]
pub struct Striped {
    connection: Connection,
    /// That of all connections which this process dials.
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
    Ok(connect_over(keeper, 0, options).await?)
}

/// Why there is no connection.
pub struct NotConnected {
    pub(super) error: Error,
    /// Whether the system knows of each line that it is too narrow for the handshake.
    pub(super) is_narrow: bool,
}

impl From<NotConnected> for Error {
    fn from(none: NotConnected) -> Error {
        none.error
    }
}

impl From<Error> for NotConnected {
    fn from(error: Error) -> NotConnected {
        NotConnected { error, is_narrow: false }
    }
}

/// Connects to the host of that number over the paths over UDP that `keeper` has planned.
///
/// # Errors
/// As [`connect`].
pub async fn connect_over(
    keeper: Arc<Keeper>,
    host: usize,
    mut options: stripe::Options,
) -> Result<Striped, NotConnected> {
    let terms = keeper.terms();
    let (remote, credential) = &terms.to[host];
    let tls = terms.tls()?.swap_remove(host);
    options.config.max_receive_buffer = options.config.max_receive_buffer.max(RECEIVE_BUFFER);
    let endpoint = endpoint().map_err(system)?;
    let plans = keeper.routes(host);
    let usable: Vec<_> = plans.iter().filter(|plan| plan.used_up().is_none()).cloned().collect();
    let routes = first_routes(terms, &usable);
    if routes.is_empty() {
        let used_up = plans.iter().filter_map(|plan| Some((&plan.name, plan.used_up()?)));
        let why: Vec<_> = used_up.map(|(name, why)| format!("{name}: {why}")).collect();
        return Err(Error::NoPath { to: remote.to_string(), why: why.join("; ") }.into());
    }
    let named: Vec<SocketAddr> = plans.iter().flat_map(|plan| plan.named()).collect();
    let connected = endpoint.connect(routes, tls.config(), options).await;
    let connection = connected.map_err(|error| {
        if let ConnectError::Handshake(secure_error) = &error
            && let Some(found) = tls_error(secure_error).and_then(wrong_key)
        {
            let address = named.first().map_or_else(String::new, ToString::to_string);
            let (host, known_from) = (remote.to_string(), credential.key_source());
            return Error::WrongPeer { host, address, found, known_from }.into();
        }
        let is_narrow = matches!(error, ConnectError::Narrow { .. });
        let why = format!("over UDP: {error}");
        NotConnected { error: Error::NoPath { to: remote.to_string(), why }, is_narrow }
    })?;
    let follower = Follower::new(connection.clone(), Arc::clone(&keeper), host);
    let following = tokio::spawn(follower.run());
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

fn tls_error(error: &stripe::HandshakeError) -> Option<&rustls::Error> {
    match error {
        stripe::HandshakeError::Tls(error) => Some(error),
        _ => None,
    }
}

/// The routes to try first: of each plan the best guess, then the second ones, and so on.
fn first_routes(terms: &Terms, plans: &[Arc<Plan>]) -> Vec<Route> {
    let candidates: Vec<_> = plans.iter().map(|plan| plan.candidates()).collect();
    let most = candidates.iter().map(Vec::len).max().unwrap_or(0);
    let nth = |at: usize| {
        let of_plan = plans.iter().zip(&candidates);
        of_plan.filter_map(move |(plan, all)| all.get(at).map(|one| route(terms, plan, *one)))
    };
    (0..most).flat_map(nth).collect()
}

/// The route of a plan between two addresses.
pub(super) fn route(terms: &Terms, plan: &Plan, candidate: Candidate) -> Route {
    Route {
        path: plan.id,
        name: plan.name.clone(),
        device: plan.device.clone(),
        local: Some(candidate.local),
        remote: candidate.remote,
        class: match plan.class {
            PathClass::Primary => Class::Usual,
            // Until it is needed.
            PathClass::Overflow | PathClass::Backup => Class::Reserve,
        },
        max_rate: plan.max.as_ref().and_then(|limit| limit.rate()),
        weight: terms.options.weight,
    }
}
