//! The routes of plans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use stripe::{Class, Lead, Route};

use crate::dial::{Candidate, Plan, Terms, Via};
use crate::{Error, Leading, PathClass};

/// What leads the routes of one connection over relays, each from its first route on.
#[derive(Debug, Default)]
pub(super) struct Leads(Mutex<BTreeMap<usize, Arc<dyn Leading>>>);

impl Leads {
    /// That of a further route of a plan over a relay; `None`: there may be no more.
    fn lead(&self, terms: &Terms, host: usize, relay: usize) -> Result<Option<Lead>, Error> {
        let mut leads = self.0.lock().expect("no panic while held");
        if let Some(leading) = leads.get(&relay) {
            return Ok(leading.lead());
        }
        let leading = terms.options.relays[relay].relaying.leading(&terms.to[host].0)?;
        Ok(leads.entry(relay).or_insert(leading).lead())
    }
}

/// The route of a plan between two addresses; `None`: there can be none.
pub(super) fn route(
    terms: &Terms,
    plan: &Plan,
    candidate: Candidate,
    leads: &Leads,
) -> Option<Route> {
    let lead = match plan.via {
        Via::Direct => None,
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
            PathClass::Primary => Class::Usual,
            // Until it is needed.
            PathClass::Overflow | PathClass::Backup => Class::Reserve,
        },
        max_rate: bounds.filter_map(|limit| limit.rate()).min(),
        weight: terms.options.weight,
        lead,
    })
}
