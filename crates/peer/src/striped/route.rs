//! The routes of plans.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use stripe::{Class, Lead, Route};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::punching::{PunchKey, PunchedRoute};
use crate::dial::{Candidate, Plan, Terms, Via};
use crate::{Error, Leading, PathClass};

/// What leads the routes of one connection over relays, each from its first route on, and what
/// opens direct ways to a host that was met at one.
#[derive(Debug)]
pub(super) struct Leads {
    /// By the number of the relay.
    relays: Mutex<BTreeMap<usize, Arc<dyn Leading>>>,
    /// `None`: the host was not met.
    punches: Option<PunchKey>,
    /// The number of times that a relay saw other addresses of this host.
    news: watch::Sender<u64>,
    following: Mutex<JoinSet<()>>,
}

impl Leads {
    /// Those of a connection by these terms.
    pub(super) fn new(terms: &Terms) -> Leads {
        let key = terms.options.is_met.then(PunchKey::generate);
        let punches = key.and_then(|key| {
            key.inspect_err(|error| tracing::debug!(%error, "no way can be opened")).ok()
        });
        let (relays, following) = (Mutex::default(), Mutex::default());
        Leads { relays, punches, news: watch::Sender::new(0), following }
    }

    /// What the other side is asked for with, if ways are to be opened.
    pub(super) fn punches(&self) -> Option<&PunchKey> {
        self.punches.as_ref()
    }

    /// Tells of other addresses.
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// There is something new to tell.
    pub(super) fn note_news(&self) {
        self.news.send_modify(|news| *news += 1);
    }

    /// The addresses of this host that relays see.
    pub(super) fn seen(&self) -> BTreeSet<SocketAddr> {
        let of = |leading: &Arc<dyn Leading>| -> Vec<SocketAddr> {
            leading.seen().borrow().values().copied().collect()
        };
        self.relays().values().flat_map(of).collect()
    }

    /// What asks a relay that is in use for the address of a direct route of the plan.
    fn asks(&self, plan: &Plan, plans: &[Arc<Plan>]) -> Option<(Lead, SocketAddr)> {
        let relays = self.relays();
        plans.iter().filter(|other| other.interface == plan.interface).find_map(|other| {
            let Via::Relay(relay) = other.via else { return None };
            let candidates = other.candidates();
            let place = candidates.iter().find(|candidate| candidate.remote.is_ipv4())?;
            Some((relays.get(&relay)?.lead()?, place.remote))
        })
    }

    /// What leads the routes over a relay, if any does.
    pub(super) fn of_relay(&self, relay: usize) -> Option<Arc<dyn Leading>> {
        self.relays().get(&relay).cloned()
    }

    /// Runs something as long as the connection lives.
    pub(super) fn accompany(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.following.lock().expect("no panic while held").spawn(work);
    }

    fn relays(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<dyn Leading>>> {
        self.relays.lock().expect("no panic while held")
    }

    /// Tells of what a relay sees from now on.
    fn follow(&self, leading: &Arc<dyn Leading>) {
        let (mut seen, news) = (leading.seen(), self.news.clone());
        let follow = async move {
            while seen.changed().await.is_ok() {
                news.send_modify(|news| *news += 1);
            }
        };
        self.accompany(follow);
    }

    /// That of a further route of a plan over a relay; `None`: there may be no more.
    fn lead(&self, terms: &Terms, host: usize, relay: usize) -> Result<Option<Lead>, Error> {
        let mut leads = self.relays();
        if let Some(leading) = leads.get(&relay) {
            return Ok(leading.lead());
        }
        let leading = terms.options.relays[relay].relaying.leading(&terms.to[host].0)?;
        if self.punches.is_some() {
            self.follow(&leading);
        }
        Ok(leads.entry(relay).or_insert(leading).lead())
    }
}

/// The route of a plan, which is one of these, between two addresses; `None`: there can be none.
pub(super) fn route(
    terms: &Terms,
    (plan, plans): (&Plan, &[Arc<Plan>]),
    candidate: Candidate,
    leads: &Leads,
) -> Option<Route> {
    let lead = match plan.via {
        Via::Direct => leads.punches().map(|key| {
            let asks = candidate.remote.is_ipv4().then(|| leads.asks(plan, plans)).flatten();
            PunchedRoute::lead(key, candidate.remote, asks)
        }),
        Via::Relay(relay) => match leads.lead(terms, plan.host, relay) {
            Ok(lead) => Some(lead?),
            Err(error) => {
                tracing::debug!(plan = plan.name, %error, "no route over the relay");
                return None;
            }
        },
    };
    let bounds = [&plan.max, &plan.relay_max].into_iter().flatten();
    Some(Route {
        path: plan.id,
        name: plan.name.clone(),
        device: plan.device.clone(),
        local: Some(candidate.local),
        remote: candidate.remote,
        class: match plan.class {
            PathClass::Primary | PathClass::Background => Class::Usual,
            // Until it is needed.
            PathClass::Overflow | PathClass::Backup => Class::Reserve,
        },
        is_background: plan.class == PathClass::Background,
        max_rate: bounds.filter_map(|limit| limit.rate()).min(),
        weight: terms.options.weight,
        lead,
    })
}
