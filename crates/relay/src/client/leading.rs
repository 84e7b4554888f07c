//! What leads the routes of one striped connection through a relay.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use peer::Leading;
use peer::carrier::BoxFuture;
use stripe::{Lead, Preamble};
use tokio::sync::watch;
use units::{Span, Time};
use wire::bind::MOST_ROUTES;
use wire::relay::LabelPair;

use super::asking::ask_one;
use super::association::AssociationState;
use super::binding::Binding;
use super::{Client, ClientState};

/// How soon it is looked for news of the control connection: while there are to be some, ...
const SOON: Span = Span::from_millis(10);
/// ... while the relay is not there, ...
const LATER: Span = Span::from_millis(200);
/// ... and while all is well.
const SELDOM: Span = Span::from_secs(1);

/// An association in use; it ends when this is dropped.
pub(super) struct Association {
    client: Arc<Client>,
    number: u32,
    state: Mutex<AssociationState>,
    /// A bit for each number of a route that is in use.
    routes: AtomicU16,
    /// The addresses under which the relay knows routes.
    seen: watch::Sender<BTreeMap<u8, SocketAddr>>,
}

impl Association {
    pub(super) fn new(client: &Arc<Client>, state: AssociationState) -> Association {
        let (client, number) = (Arc::clone(client), state.number());
        let (state, routes, seen) =
            (Mutex::new(state), AtomicU16::new(0), watch::Sender::default());
        Association { client, number, state, routes, seen }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, AssociationState> {
        self.state.lock().expect("no panic while held")
    }

    /// The lowest number of a route that is free.
    fn take_number(&self) -> Option<u8> {
        let most = u32::try_from(MOST_ROUTES).expect("a few");
        let mut free = None;
        let take = |routes: u16| {
            free = Some(routes.trailing_ones()).filter(|free| *free < most);
            free.map(|number| routes | 1 << number)
        };
        self.routes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        free.and_then(|number| u8::try_from(number).ok())
    }

    /// The relay knows a route under this address, or no longer.
    fn note_seen(&self, route: u8, address: Option<SocketAddr>) {
        self.seen.send_if_modified(|seen| {
            let before = match address {
                Some(address) => seen.insert(route, address),
                None => seen.remove(&route),
            };
            before != address
        });
    }

    fn note_news(&self) {
        self.client.shared.asked.notify_one();
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        let mut state = self.client.shared.state();
        if state.associations.remove(&self.number).is_some() {
            state.gone.push(self.number);
        }
        drop(state);
        self.note_news();
    }
}

impl fmt::Debug for Association {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Association").field(&self.client).field(&self.number).finish()
    }
}

/// The association of one striped connection.
#[derive(Debug)]
pub(crate) struct ClientLeading(pub(super) Arc<Association>);

impl ClientLeading {
    /// The relay's number of the association, which it has as a label too.
    pub(super) fn granted(&self) -> Option<u64> {
        self.0.state().granted().map(|grant| grant.id)
    }
}

impl Leading for ClientLeading {
    fn lead(&self) -> Option<Lead> {
        let number = self.0.take_number()?;
        let association = Arc::clone(&self.0);
        let binding = Mutex::new(None);
        Some(Lead(Arc::new(RouteLead { association, number, binding })))
    }

    fn seen(&self) -> watch::Receiver<BTreeMap<u8, SocketAddr>> {
        self.0.seen.subscribe()
    }

    fn in_front(
        &self,
        relay: SocketAddr,
        local: IpAddr,
        device: Option<String>,
    ) -> BoxFuture<'_, Option<String>> {
        let grant = self.0.state().granted();
        Box::pin(async move {
            let grant = grant?;
            let found =
                ask_one((grant.id, &grant.secret[..]), relay, local, device.as_deref()).await;
            let error = |error: &std::io::Error| tracing::debug!(%error, "no question to a relay");
            found.inspect_err(error).ok()?.map(|found| found.kind().to_owned())
        })
    }
}

/// The preamble of one route.
#[derive(Debug)]
struct RouteLead {
    association: Arc<Association>,
    number: u8,
    /// For the grant with that number.
    binding: Mutex<Option<(u64, Binding)>>,
}

impl RouteLead {
    fn binding(&self) -> MutexGuard<'_, Option<(u64, Binding)>> {
        self.binding.lock().expect("no panic while held")
    }

    fn is_bound(&self) -> bool {
        self.binding().as_ref().is_some_and(|(_, binding)| binding.is_bound())
    }
}

impl Preamble for RouteLead {
    fn handle_labels(&self, labels: &[LabelPair]) {
        if self.association.state().handle_labels(labels) {
            self.association.note_news();
        }
    }

    fn handle_retired(&self, labels: &[LabelPair]) {
        self.association.state().handle_retired(labels);
        self.association.note_news();
    }

    fn handle_reopened(&self) {
        *self.binding() = None;
    }

    fn handle_datagram(&self, now: Time, _: SocketAddr, datagram: &[u8]) {
        if let Some((_, binding)) = &mut *self.binding() {
            binding.handle_datagram(now, datagram);
            self.association.note_seen(self.number, binding.seen());
        }
    }

    fn poll_transmit(&self, now: Time) -> Option<Vec<u8>> {
        let grant = self.association.state().granted()?;
        let mut own = self.binding();
        let (_, binding) = match &mut *own {
            Some(known) if known.0 == grant.number => known,
            other => {
                let binding = Binding::begin(now, grant.id, &grant.secret, self.number);
                other.insert((grant.number, binding))
            }
        };
        binding.poll_transmit(now).map(|octets| octets.to_vec())
    }

    fn poll_deadline(&self, now: Time) -> Time {
        let news = match (self.is_open(), self.failure()) {
            (true, _) => SELDOM,
            (false, None) => SOON,
            (false, Some(_)) => LATER,
        };
        let bind = self.binding().as_ref().map(|(_, binding)| binding.poll_deadline());
        bind.unwrap_or(now + news).min(now + news)
    }

    fn is_open(&self) -> bool {
        self.association.state().is_labelled() && self.is_bound()
    }

    fn failure(&self) -> Option<String> {
        let name = &self.association.client.shared.options.name;
        let of_relay = |why: &str| format!("the relay {name}: {why}");
        if let Some(why) = self.association.state().refusal() {
            return Some(of_relay(why));
        }
        match &self.association.client.shared.state().link {
            ClientState::Connecting(Some(why)) | ClientState::Refused(why) => Some(of_relay(why)),
            ClientState::Parting => Some(of_relay("it is being stopped")),
            ClientState::Connecting(None) | ClientState::Open => None,
        }
    }
}

impl Drop for RouteLead {
    fn drop(&mut self) {
        self.association.note_seen(self.number, None);
        self.association.routes.fetch_and(!(1 << self.number), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use peer::{Credential, Identity};
    use reach::parse_target;

    use super::*;
    use crate::ClientOptions;

    #[tokio::test]
    async fn routes_have_numbers_of_their_own_and_leave_them_to_others() {
        let identity = Identity::generate().unwrap();
        let known = Credential::Pinned(identity.fingerprint());
        let options = ClientOptions::new("127.0.0.1:9".parse().unwrap(), known, identity);
        let client = Client::start(options).unwrap();
        let leading = client.associate(parse_target("127.0.0.1:9").ok());
        let association = Arc::clone(&leading.0);
        let leads: Vec<Lead> = (0..MOST_ROUTES).map(|_| leading.lead().unwrap()).collect();
        assert!(leading.lead().is_none());
        drop(leads.into_iter().nth(3));
        assert_eq!(association.routes.load(Ordering::Relaxed), 0);
        assert_eq!(client.shared.state().associations.len(), 1);
        drop((leading, association));
        assert!(client.shared.state().associations.is_empty());
        assert_eq!(client.shared.state().gone.len(), 1);
    }
}
