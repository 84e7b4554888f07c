//! Associations of one connection: a host that names a relay by two of its addresses, or by one and
//! behind another relay, has an association over each. Each has routes of its own; the labels are
//! those of the connection, and a pair that several have registered goes over any route of theirs.

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
        let known = self.associations.get(&way.association)?.pairs.get(&pair.to)?;
        let is_kept = self.associations[&way.association].ends_at.is_none();
        let is_there = |kin: &&u64| self.associations.contains_key(kin);
        let has_room =
            known.kin.contains(&id) || known.kin.iter().filter(is_there).count() < MOST_KIN;
        let is_kin = self.are_of_one_connection(id, way.association) && is_kept;
        (is_kin && has_room && known.from == pair.from).then_some(way.association)
    }

    fn are_of_one_connection(&self, one: u64, other: u64) -> bool {
        let both = self.associations.get(&one).zip(self.associations.get(&other));
        both.is_some_and(|(one, other)| {
            (one.key, one.owner, one.destination) == (other.key, other.owner, other.destination)
        })
    }

    /// One shares a pair of another one from now on.
    pub(super) fn add_kin(&mut self, other: u64, to: u64, id: u64) {
        let mut kin = self.kin_of(other, to, id).unwrap_or_default();
        kin.push(id);
        let pair = self.associations.get_mut(&other).and_then(|other| other.pairs.get_mut(&to));
        if let Some(pair) = pair {
            pair.kin = kin;
        }
    }

    /// Those that share a pair of one and could share it of another one, but for that.
    pub(super) fn kin_of(&self, one: u64, to: u64, other: u64) -> Option<Vec<u64>> {
        let pair = self.associations.get(&one)?.pairs.get(&to)?;
        let may = |kin: &&u64| **kin != other && self.are_of_one_connection(**kin, other);
        Some(pair.kin.iter().filter(may).copied().collect())
    }

    /// An association has a pair no more: the first one that shares it has it. Whether there is
    /// one, or it was that one's own part of another one's pair.
    pub(super) fn leave_to_kin(&mut self, id: u64, to: u64) -> bool {
        let Some(way) = self.ways.get(&to).copied() else { return false };
        if way.association != id {
            let other = self.associations.get_mut(&way.association);
            if let Some(pair) = other.and_then(|other| other.pairs.get_mut(&to)) {
                pair.kin.retain(|kin| *kin != id);
            }
            return true;
        }
        let has_room = |heir: &u64| {
            let heir = self.associations.get(heir);
            heir.is_some_and(|heir| heir.pairs.len() < PAIRS_OF_ONE)
        };
        let Some(ending) = self.associations.get(&id) else { return false };
        let heard_at = ending.heard_at;
        let Some(heir) =
            ending.pairs.get(&to).and_then(|pair| pair.kin.iter().copied().find(has_room))
        else {
            return false;
        };
        let kin = self.kin_of(id, to, heir).unwrap_or_default();
        let pair = self.associations.get_mut(&id).and_then(|ending| ending.pairs.remove(&to));
        let (Some(pair), Some(inheriting)) = (pair, self.associations.get_mut(&heir)) else {
            return false;
        };
        for label in [to, pair.from] {
            if let Some(way) = self.ways.get_mut(&label) {
                way.association = heir;
            }
        }
        let route = pair.route.filter(|at| at.association != id);
        inheriting.pairs.insert(to, Pair { kin, route, ..pair });
        inheriting.heard_at = inheriting.heard_at.max(heard_at);
        true
    }

    /// The route of the association that has a pair, or of those that share it, between these
    /// addresses.
    pub(super) fn route_from(
        &self,
        now: Time,
        way: &Way,
        place: &DatagramPlace,
    ) -> Option<RouteAt> {
        let of = |id: u64| {
            let number = route_of(&self.associations.get(&id)?.routes, now, place)?;
            Some(RouteAt { association: id, number })
        };
        of(way.association).or_else(|| {
            let pair = self.associations.get(&way.association)?.pairs.get(&way.pair)?;
            pair.kin.iter().find_map(|kin| of(*kin))
        })
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
