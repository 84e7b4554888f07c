//! Associations of one connection: a host that names a relay by two of its addresses, or by one and
//! behind another relay, has an association over each. Each has routes of its own; the labels are
//! those of the connection, and any of the routes carries them.

use units::Time;
use wire::relay::LabelPair;

use super::{
    BoundRoute, DatagramPlace, Labels, PAIRS_OF_ONE, Pair, RouteAt, SILENCE, Way, route_of,
};

/// Associations beside the one that has the pair: with it as many as one has routes.
const MOST_KIN: usize = 15;

impl<K: Ord + Copy> Labels<K> {
    /// The association that has this pair, if one may share it: of the same host, to the same
    /// destination, and kept by its control connection.
    pub(super) fn kin_with(&self, id: u64, pair: LabelPair) -> Option<u64> {
        let way = self.ways.get(&pair.to)?;
        let (own, other) = (self.associations.get(&id)?, self.associations.get(&way.association)?);
        let is_of_one = (own.key, own.owner) == (other.key, other.owner)
            && own.destination == other.destination
            && other.ends_at.is_none();
        let is_same = other.pairs.get(&pair.to).is_some_and(|known| known.from == pair.from);
        let is_there = |kin: &&u64| self.associations.contains_key(kin);
        let has_room =
            other.kin.contains(&id) || other.kin.iter().filter(is_there).count() < MOST_KIN;
        (is_of_one && is_same && has_room).then_some(way.association)
    }

    /// One shares the pairs of another one from now on.
    pub(super) fn add_kin(&mut self, other: u64, id: u64) {
        let Some(mut kin) =
            self.associations.get_mut(&other).map(|one| std::mem::take(&mut one.kin))
        else {
            return;
        };
        kin.retain(|known| *known != id && self.associations.contains_key(known));
        kin.push(id);
        if let Some(other) = self.associations.get_mut(&other) {
            other.kin = kin;
        }
    }

    /// One takes pairs of another one over, and those that share them.
    pub(super) fn inherit_kin(&mut self, other: u64, id: u64) {
        let (Some(from), Some(to)) = (self.associations.get(&other), self.associations.get(&id))
        else {
            return;
        };
        if from.destination == to.destination {
            for kin in from.kin.clone().into_iter().filter(|kin| *kin != id) {
                self.add_kin(id, kin);
            }
        }
    }

    /// The pairs of an association that ends are those of the first one that shares them.
    pub(super) fn leave_to_kin(&mut self, id: u64) {
        let Some(ending) = self.associations.get(&id) else { return };
        let heir = ending.kin.iter().find(|kin| self.associations.contains_key(kin)).copied();
        let Some(heir) = heir else { return };
        let mut labels: Vec<u64> = ending.pairs.keys().copied().collect();
        labels.sort_unstable();
        let (heard_at, room) =
            (ending.heard_at, PAIRS_OF_ONE - self.associations[&heir].pairs.len());
        self.inherit_kin(id, heir);
        for to in labels.into_iter().take(room) {
            let Some(pair) = self.associations.get_mut(&id).and_then(|own| own.pairs.remove(&to))
            else {
                continue;
            };
            for label in [to, pair.from] {
                if let Some(way) = self.ways.get_mut(&label) {
                    way.association = heir;
                }
            }
            let route = pair.route.filter(|at| at.association != id);
            if let Some(heir) = self.associations.get_mut(&heir) {
                heir.pairs.insert(to, Pair { route, ..pair });
                heir.heard_at = heir.heard_at.max(heard_at);
            }
        }
    }

    /// The route of an association, or of those that share its pairs, between these addresses.
    pub(super) fn route_from(&self, now: Time, id: u64, place: &DatagramPlace) -> Option<RouteAt> {
        let of = |id: u64| {
            let number = route_of(&self.associations.get(&id)?.routes, now, place)?;
            Some(RouteAt { association: id, number })
        };
        of(id).or_else(|| self.associations.get(&id)?.kin.iter().find_map(|kin| of(*kin)))
    }

    /// That route, if it is bound.
    pub(super) fn route_at(&self, at: RouteAt) -> Option<BoundRoute> {
        self.associations.get(&at.association)?.routes[at.number]
    }

    /// A pair was used over a route. Whether its destination has answered not long ago.
    pub(super) fn note_used(&mut self, now: Time, way: &Way, at: RouteAt) -> bool {
        if let Some(own) = self.associations.get_mut(&at.association)
            && let Some(route) = &mut own.routes[at.number]
        {
            route.used_at = now;
        }
        let Some(association) = self.associations.get_mut(&way.association) else { return false };
        if let Some(pair) = association.pairs.get_mut(&way.pair) {
            pair.route = Some(at);
        }
        association.heard_at.is_some_and(|at| at + SILENCE > now)
    }
}
