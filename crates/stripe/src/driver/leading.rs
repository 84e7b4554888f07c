//! Routes that lead over relays: their preambles, and the labels that the relays have to know.

use units::{SubflowId, Time};
use wire::relay::LabelPair;

use super::link::Link;
use super::preambles::serve_preamble;
use super::routes::RouteEnd;
use super::sockets::Sockets;
use crate::RouteId;
use crate::preamble::Preamble;
use crate::stats::RouteChange;

/// Relays are told the labels of so many paths that do not exist yet, so that no path waits for
/// its labels, ...
const AHEAD: u16 = 16;
/// ... and of further ones when there are labels for no more than so many.
const FEW_AHEAD: u16 = 4;

impl RouteEnd {
    pub(super) fn lead(&self) -> Option<&dyn Preamble> {
        self.wish.as_ref()?.lead.as_ref().map(|lead| &*lead.0)
    }
}

impl Link {
    /// Tells the relays of all routes, or that of one, the labels of paths that exist, and of those
    /// that come next.
    pub(super) fn tell_labels(&mut self, only: Option<RouteId>) {
        if self.routes.values().all(|route| route.lead().is_none()) {
            return;
        }
        let next = self.session.next_path();
        let mut fresh = Vec::new();
        if self.labelled < next.saturating_add(FEW_AHEAD) {
            let last = next.saturating_add(AHEAD);
            fresh.extend(self.labelled.max(next)..last);
            self.labelled = last;
        }
        let of = |number: u16| labels(&self.session, SubflowId(number));
        let known = self.route_of.keys().map(|path| path.0).chain(next..self.labelled);
        let all: Vec<LabelPair> = known.map(of).collect();
        let fresh: Vec<LabelPair> = fresh.into_iter().map(of).collect();
        for (number, route) in &self.routes {
            let Some(lead) = route.lead() else { continue };
            match only {
                Some(only) if only == *number => lead.handle_labels(&all),
                _ if !fresh.is_empty() => lead.handle_labels(&fresh),
                _ => {}
            }
        }
    }

    /// Tells the relays that a path has ended.
    pub(super) fn retire_label(&self, path: SubflowId) {
        let retired = [labels(&self.session, path)];
        let leads = self.routes.values().filter_map(RouteEnd::lead);
        leads.for_each(|lead| lead.handle_retired(&retired));
    }

    /// Serves the preambles. A route whose relay has come to know it gets its paths or, if it has
    /// them, proves them again.
    pub(super) fn serve_leads(&mut self, now: Time, sockets: &Sockets) {
        let mut opened = Vec::new();
        let (mut failed, mut moved) = (Vec::new(), Vec::new());
        for (number, route) in &mut self.routes {
            let Some(wish) = &route.wish else { continue };
            let Some(lead) = &wish.lead else { continue };
            serve_preamble(now, (wish, lead), route.socket, sockets);
            let is_open = lead.0.is_open();
            if is_open && !std::mem::replace(&mut route.lead_state.is_open, is_open) {
                opened.push(*number);
            }
            route.lead_state.is_open = is_open;
            let remote = lead.0.remote();
            if remote != route.lead_state.remote {
                route.lead_state.remote = remote;
                let before = std::mem::replace(&mut route.remote, remote.unwrap_or(wish.remote));
                moved.push((*number, before != route.remote));
            }
            let failure = lead.0.failure().filter(|_| !is_open);
            if failure != route.lead_state.failure {
                route.lead_state.failure.clone_from(&failure);
                failed.extend(failure.map(|reason| (route.name.clone(), reason)));
            }
        }
        for (name, reason) in failed {
            tracing::debug!(route = name.text, reason, "the relay is of no use");
            self.tell_route(&name, RouteChange::Failing { reason });
        }
        // What was sent to another address may have proven nothing.
        let again = moved.iter().map(|(number, _)| *number);
        let is_new = |number: &RouteId| self.has_paths(*number) && !opened.contains(number);
        let again: Vec<RouteId> = again.filter(is_new).collect();
        opened.extend(again);
        for number in opened {
            self.open_paths(now, number);
            let paths = self.routes.get(&number).map(|route| route.paths.clone());
            for path in paths.unwrap_or_default() {
                self.core.rebind_path(now, path);
            }
        }
        for (number, _) in moved.into_iter().filter(|(_, is_elsewhere)| *is_elsewhere) {
            let Some(route) = self.routes.get(&number) else { continue };
            let change = RouteChange::Moved { remote: route.remote };
            self.tell_route(&route.name, change);
        }
        self.tell_labels(None);
        let leads = self.routes.values().filter_map(RouteEnd::lead);
        self.leads_due = leads.map(|lead| lead.poll_deadline(now)).min();
    }
    fn has_paths(&self, number: RouteId) -> bool {
        self.routes.get(&number).is_some_and(|route| !route.paths.is_empty())
    }
}

/// The labels of a path, as the side that dials sends and receives.
fn labels(session: &secure::Session, path: SubflowId) -> LabelPair {
    let (to, from) = session.labels_of(path);
    LabelPair { to, from }
}
