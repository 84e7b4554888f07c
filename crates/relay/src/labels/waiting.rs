//! Destinations, among them hosts that wait at the relay.

use units::Time;
use wire::bind::{BIND, MOST_ROUTES};
use wire::meet::Place;

use super::{BoundRoute, DatagramPlace, DatagramsTo, Labels, SILENCE, Step};

/// How a datagram stands to the destination of its association.
pub(super) struct ReachedPlace {
    /// Whether it comes from there.
    pub(super) is_from: bool,
    /// The route of a host that waits over which it comes.
    pub(super) route: Option<usize>,
    /// Where the destination is.
    pub(super) to: Option<DatagramPlace>,
}

impl<K: Ord + Copy> Labels<K> {
    /// The host that waits at a place has bound its addresses for the association of this number.
    pub fn wait_at(&mut self, place: Place, id: u64) {
        if self.associations.contains_key(&id) {
            self.waiting.insert(place, id);
        }
    }

    /// The host with this association waits there no longer.
    pub fn leave(&mut self, place: &Place, id: u64) {
        if self.waiting.get(place) == Some(&id) {
            self.waiting.remove(place);
        }
    }

    /// The association ends at this time at the latest.
    pub fn end_at(&mut self, id: u64, end: Time) {
        if let Some(association) = self.associations.get_mut(&id) {
            association.ends_at = Some(end);
        }
    }

    /// How a datagram from an address stands to a destination that last used this route.
    pub(super) fn reach(
        &self,
        now: Time,
        destination: DatagramsTo,
        (from, last): (&DatagramPlace, Option<(usize, Time)>),
    ) -> ReachedPlace {
        let nowhere = ReachedPlace { is_from: false, route: None, to: None };
        match destination {
            DatagramsTo::Address(place) => ReachedPlace {
                is_from: from.address == place.address,
                route: None,
                to: Some(place),
            },
            DatagramsTo::Nowhere => nowhere,
            DatagramsTo::Waiting(place) => {
                let host = self.waiting.get(&place).and_then(|id| self.associations.get(id));
                let Some(host) = host else { return nowhere };
                let is_latest = |at| host.routes.iter().flatten().all(|route| route.bound_at <= at);
                let last = last.filter(|(_, at)| is_latest(*at));
                let last = last.and_then(|(number, _)| host.routes[number]);
                let bound = || host.routes.iter().flatten().filter(|route| is_live(route, now));
                let latest = || bound().max_by_key(|route| route.used_at).copied();
                let to = last.filter(|route| is_live(route, now)).or_else(latest);
                let (route, to) = (route_of(&host.routes, now, from), to.map(|to| to.place));
                ReachedPlace { is_from: route.is_some(), route, to }
            }
        }
    }

    /// Something like what a host that waits sends has come from an address that it has not bound:
    /// a translator may have given it another one. The datagram itself is lost; the host is asked,
    /// if there may be a question, to prove its address.
    pub(super) fn challenge_waiting(
        &mut self,
        now: Time,
        from: DatagramPlace,
        destination: DatagramsTo,
        size: usize,
    ) -> Step<K> {
        if let DatagramsTo::Waiting(place) = destination
            && size >= BIND
            && let Some(id) = self.waiting.get(&place)
            && let Some(host) = self.associations.get_mut(id)
            // It binds with the number of the route that hears this.
            && let Some(challenge) = host.challenge(now, *id, 0, from, &self.cookies)
        {
            return Step::Answer(challenge.octets());
        }
        Step::Drop
    }

    /// The host that waits there has sent something over a route.
    pub(super) fn handle_used(&mut self, now: Time, place: Place, number: usize) {
        if let Some(id) = self.waiting.get(&place)
            && let Some(host) = self.associations.get_mut(id)
            && let Some(route) = &mut host.routes[number]
        {
            route.used_at = now;
        }
    }
}

fn is_live(route: &BoundRoute, now: Time) -> bool {
    route.used_at + SILENCE > now
}

/// The route between these two addresses, if it is bound.
pub(super) fn route_of(
    routes: &[Option<BoundRoute>; MOST_ROUTES],
    now: Time,
    place: &DatagramPlace,
) -> Option<usize> {
    let is_its = |route: &BoundRoute| route.place.is_of(place) && is_live(route, now);
    routes.iter().position(|route| route.as_ref().is_some_and(is_its))
}
