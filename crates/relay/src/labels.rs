//! Where datagrams go, by their labels: a core, whose caller has the clock, the sockets and the
//! random numbers.
//!
//! An **association** is one striped connection of a key's host to one destination. It has pairs of
//! labels, and up to 16 **routes**: addresses of the host that dials, each of which has proven that
//! it receives what is sent there. A datagram with a label of the association goes from such an
//! address to the destination, and from the destination to the route over which the last datagram
//! of its pair came. Nothing else is passed on.
//!
//! The destination may be a host that waits at the relay. It has an association of its own, without
//! labels, and binds its addresses as routes of that; what is sent to it goes to the one over which
//! it last used the pair, or else, and if another one was bound since, to the one that was bound or
//! used last: the first one may be gone.
//!
//! An address proves itself with two datagrams of 42 octets: one that is answered with a cookie,
//! which is good for that address alone, and one with the cookie. Both have a tag under the secret
//! of the association, which the relay told over the control connection, so that a datagram that
//! was seen is of no use at another address. No answer is longer than what it answers, so that with
//! a forged source nothing is gained. An address that has proven itself so may ask for an answer
//! from each of the relay's two ports, by which it sees what stands in front of it. The destination
//! was looked at when the association was made, by the rights of the key; until something with a
//! label of the association comes from there, and when nothing has for a while, the key's datagrams
//! to such destinations are few.

mod kin;
mod proving;
mod telling;
mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use peer::tags::TagKey;
use units::{Bytes, Rate, Span, Time, TokenBucket};
use wire::bind::{BIND, BindDatagram, BindKind, MOST_ROUTES};
use wire::datagram::Outer;
use wire::meet::Place;
use wire::relay::{LabelPair, SECRET};

use waiting::route_of;

/// Pairs of labels of one association: of as many paths as a connection has at a time, and of its
/// handshake.
pub const PAIRS_OF_ONE: usize = 96;
/// Associations of one key.
pub const ASSOCIATIONS_EACH: usize = 256;
/// Those of one guest of a key's host, ...
pub const ASSOCIATIONS_OF_GUEST: usize = 16;
/// ... and of all its guests: some are left for the host.
pub const ASSOCIATIONS_OF_GUESTS: usize = 192;
/// Associations of all keys.
pub const ASSOCIATIONS_IN_ALL: usize = 4_096;
/// Pairs of labels of one key.
pub const PAIRS_EACH: usize = 8_192;
/// Those of all keys.
pub const PAIRS_IN_ALL: usize = 65_536;
/// How long an association is kept whose control connection has ended: time for another one, which
/// makes its own and takes the labels over.
pub const GRACE: Span = Span::from_secs(30);
/// A route over which nothing has come for so long has to prove its address again, and a
/// destination that has said nothing for so long is as one that never did.
pub const SILENCE: Span = Span::from_secs(60);
/// What a key may send to destinations that have said nothing, in the long run, ...
pub const UNANSWERED: Rate = Rate::kbit(256);
/// ... and at once.
pub const UNANSWERED_AT_ONCE: Bytes = Bytes::kib(64);
/// Where a datagram comes from, or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramPlace {
    /// The other host's address; one of IPv4 is written as such.
    pub address: SocketAddr,
    /// The relay's address, where its socket has several.
    pub local: Option<IpAddr>,
    /// The number of the relay's socket.
    pub socket: usize,
}

impl DatagramPlace {
    /// Whether they are the same two addresses.
    fn is_of(&self, other: &DatagramPlace) -> bool {
        (self.address, self.local) == (other.address, other.local)
    }
}

/// Where the datagrams of an association go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramsTo {
    /// To an address.
    Address(DatagramPlace),
    /// To the host that waits at this place.
    Waiting(Place),
    /// Nowhere: it has the addresses of a host that waits.
    Nowhere,
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<K> {
    /// It is passed on as it is.
    Forward {
        /// To there.
        to: DatagramPlace,
        /// The key that it counts for.
        key: K,
        /// Whether it goes to the destination.
        is_up: bool,
        /// Whether it is a guest's of the key's host, or for one.
        is_guests: bool,
    },
    /// Whoever sent it gets this.
    Answer([u8; BIND]),
    /// The same from both of the relay's ports, if it came to the first one.
    Tell([u8; BIND]),
    /// It leads nowhere.
    Drop,
}

/// Why there is no association, or why labels are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The key has as many associations as it may.
    #[error("this host has as many associations as it may")]
    Associations,
    /// The relay has as many associations as it takes.
    #[error("the relay has as many associations as it takes")]
    Full,
    /// There are as many labels of the association, of its key or in all as there may be.
    #[error("there are too many labels")]
    Labels,
    /// A label is another key's, or has another use.
    #[error("a label is taken")]
    Taken,
    /// There is no such association.
    #[error("there is no such association")]
    Unknown,
}

/// The labels of keys `K`.
#[derive(Debug)]
pub struct Labels<K> {
    cookies: TagKey,
    /// By a hash with a secret of its own.
    ways: HashMap<u64, Way>,
    associations: HashMap<u64, AssociationEntry<K>>,
    /// The associations with the addresses of hosts, by the places where these wait.
    waiting: HashMap<Place, u64>,
    keys: BTreeMap<K, KeyUse<K>>,
    pairs: usize,
    /// The other port of each socket.
    other_ports: Vec<u16>,
}

/// What a label stands for.
#[derive(Clone, Copy, Debug)]
struct Way {
    association: u64,
    /// The label of packets to the destination, by which the association has the pair.
    pair: u64,
    /// Whether the host that dials may use it.
    is_to: bool,
}

#[derive(Debug)]
struct AssociationEntry<K> {
    key: K,
    /// Whose host has made it: the key's own, or a guest's. Labels move between those of one alone.
    owner: K,
    tags: TagKey,
    destination: DatagramsTo,
    /// When the destination last sent something with one of the labels.
    heard_at: Option<Time>,
    routes: [Option<BoundRoute>; MOST_ROUTES],
    pairs: HashMap<u64, Pair>,
    challenges: TokenBucket,
    /// When it ends, as nobody keeps it.
    ends_at: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct BoundRoute {
    place: DatagramPlace,
    /// When this address was bound first.
    bound_at: Time,
    used_at: Time,
}

#[derive(Debug)]
struct Pair {
    from: u64,
    /// The further associations that have registered it.
    kin: Vec<u64>,
    /// The route that its last packet came over.
    route: Option<RouteAt>,
    /// The same of the last packet from a destination that waits, and when that was.
    waiting_route: Option<(usize, Time)>,
}

/// A route of an association.
#[derive(Clone, Copy, Debug)]
struct RouteAt {
    association: u64,
    number: usize,
}

#[derive(Debug)]
struct KeyUse<K> {
    associations: usize,
    pairs: usize,
    unanswered: TokenBucket,
    /// The associations of guests, by their keys.
    guests: BTreeMap<K, usize>,
}

impl<K: Ord + Copy> Labels<K> {
    /// None; `secret` is random, and the key of the cookies.
    #[must_use]
    pub fn new(secret: &[u8; SECRET]) -> Labels<K> {
        Labels {
            cookies: TagKey::new(secret),
            ways: HashMap::new(),
            associations: HashMap::new(),
            waiting: HashMap::new(),
            keys: BTreeMap::new(),
            pairs: 0,
            other_ports: Vec::new(),
        }
    }

    /// A key's host may reach a destination under a random number, with that secret; or a guest of
    /// it, who has another key, may, at its cost.
    ///
    /// # Errors
    /// [`LabelError`], if there are too many, or the number is in use.
    pub fn associate(
        &mut self,
        (key, owner): (K, K),
        (id, secret): (u64, &[u8; SECRET]),
        destination: DatagramsTo,
    ) -> Result<(), LabelError> {
        if self.associations.len() >= ASSOCIATIONS_IN_ALL {
            return Err(LabelError::Full);
        }
        if self.associations.contains_key(&id) || self.ways.contains_key(&id) {
            return Err(LabelError::Taken);
        }
        let of_key = self.keys.entry(key).or_default();
        let is_guest = owner != key;
        let own = of_key.guests.get(&owner).copied().unwrap_or(0);
        let of_guests: usize = of_key.guests.values().sum();
        if of_key.associations >= ASSOCIATIONS_EACH
            || is_guest && (own >= ASSOCIATIONS_OF_GUEST || of_guests >= ASSOCIATIONS_OF_GUESTS)
        {
            return Err(LabelError::Associations);
        }
        of_key.associations += 1;
        if is_guest {
            of_key.guests.insert(owner, own + 1);
        }
        let association = AssociationEntry {
            key,
            owner,
            tags: TagKey::new(secret),
            destination,
            heard_at: None,
            routes: [None; MOST_ROUTES],
            pairs: HashMap::new(),
            challenges: TokenBucket::default(),
            ends_at: None,
        };
        self.associations.insert(id, association);
        Ok(())
    }

    /// Registers labels of an association; those that are known are not counted again. A label of
    /// another association of the same owner leaves it, unless both are of one connection and are
    /// kept: then both have it.
    ///
    /// # Errors
    /// [`LabelError`]; then none of them is registered.
    pub fn register(&mut self, id: u64, pairs: &[LabelPair]) -> Result<(), LabelError> {
        let association = self.associations.get(&id).ok_or(LabelError::Unknown)?;
        let (key, owner) = (association.key, association.owner);
        let mut fresh: Vec<LabelPair> = Vec::new();
        let (mut moved, mut shared, mut kin) = (Vec::new(), Vec::new(), HashMap::new());
        for pair in pairs {
            if association.pairs.get(&pair.to).is_some_and(|known| known.from == pair.from) {
                continue;
            }
            let labels = [pair.to, pair.from];
            // Two of one frame, whose ways would be one.
            let is_twice = |own: &LabelPair| labels.contains(&own.to) || labels.contains(&own.from);
            if labels.iter().any(|label| self.associations.contains_key(label))
                || fresh.iter().any(is_twice)
            {
                return Err(LabelError::Taken);
            }
            if let Some(other) = self.kin_with(id, *pair) {
                shared.push((other, pair.to));
                continue;
            }
            for way in labels.iter().filter_map(|label| self.ways.get(label)) {
                if way.association == id || self.associations[&way.association].owner != owner {
                    return Err(LabelError::Taken);
                }
                moved.push((way.association, way.pair));
            }
            fresh.push(*pair);
        }
        moved.sort_unstable();
        moved.dedup();
        let of_key = self.keys.get(&key).map_or(0, |of_key| of_key.pairs) - moved.len();
        if association.pairs.len() + fresh.len() > PAIRS_OF_ONE
            || of_key + fresh.len() > PAIRS_EACH
            || self.pairs - moved.len() + fresh.len() > PAIRS_IN_ALL
        {
            return Err(LabelError::Labels);
        }
        for (other, to) in moved {
            kin.extend(self.kin_of(other, to, id).map(|kin| (to, kin)));
            self.forget(other, to);
        }
        for (other, to) in shared {
            self.add_kin(other, to, id);
        }
        for LabelPair { to, from } in fresh.iter().copied() {
            self.ways.insert(from, Way { association: id, pair: to, is_to: false });
            self.ways.insert(to, Way { association: id, pair: to, is_to: true });
            let association = self.associations.get_mut(&id).expect("it was there");
            let kin = kin.remove(&to).unwrap_or_default();
            association.pairs.insert(to, Pair { from, kin, route: None, waiting_route: None });
        }
        self.pairs += fresh.len();
        if let Some(of_key) = self.keys.get_mut(&key) {
            of_key.pairs += fresh.len();
        }
        Ok(())
    }

    /// The pairs with these labels to the destination lead nowhere from now on, but for what other
    /// associations have registered too.
    pub fn retire(&mut self, id: u64, to: &[u64]) {
        for label in to {
            if !self.leave_to_kin(id, *label) {
                self.forget(id, *label);
            }
        }
    }

    fn forget(&mut self, id: u64, to: u64) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        let Some(pair) = association.pairs.remove(&to) else { return };
        self.ways.remove(&to);
        self.ways.remove(&pair.from);
        self.pairs -= 1;
        if let Some(of_key) = self.keys.get_mut(&association.key) {
            of_key.pairs -= 1;
        }
    }

    /// Ends an association: its labels lead nowhere from now on.
    pub fn dissociate(&mut self, id: u64) {
        let Some(association) = self.associations.get(&id) else { return };
        let labels: Vec<u64> = association.pairs.keys().copied().collect();
        self.retire(id, &labels);
        let Some(association) = self.associations.remove(&id) else { return };
        self.waiting.retain(|_, known| *known != id);
        if let Some(of_key) = self.keys.get_mut(&association.key) {
            of_key.associations -= 1;
            if let Some(own) = of_key.guests.get_mut(&association.owner) {
                *own -= 1;
                of_key.guests.retain(|_, count| *count > 0);
            }
            if of_key.associations == 0 {
                self.keys.remove(&association.key);
            }
        }
    }

    /// The control connection of an association has ended: it ends after [`GRACE`].
    pub fn handle_orphaned(&mut self, now: Time, id: u64) {
        if let Some(association) = self.associations.get_mut(&id) {
            let end = now + GRACE;
            association.ends_at = Some(association.ends_at.map_or(end, |known| known.min(end)));
        }
    }

    /// Ends associations that nobody has kept for long enough.
    pub fn handle_deadline(&mut self, now: Time) {
        let is_over =
            |(_, one): &(&u64, &AssociationEntry<K>)| one.ends_at.is_some_and(|end| end <= now);
        let over: Vec<u64> = self.associations.iter().filter(is_over).map(|(id, _)| *id).collect();
        for id in over {
            self.dissociate(id);
        }
    }

    /// The associations of a key.
    #[must_use]
    pub fn count_of(&self, key: &K) -> usize {
        self.keys.get(key).map_or(0, |of_key| of_key.associations)
    }

    /// Those of all keys, and their pairs of labels.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.associations.len(), self.pairs)
    }

    /// Whether a datagram with this label, or number of an association, is looked at.
    #[must_use]
    pub fn knows(&self, label: u64) -> bool {
        self.ways.contains_key(&label) || self.associations.contains_key(&label)
    }

    /// Whether there is an association of this number.
    #[must_use]
    pub fn has(&self, id: u64) -> bool {
        self.associations.contains_key(&id)
    }

    /// A datagram has come from somewhere.
    pub fn handle_datagram(&mut self, now: Time, from: DatagramPlace, datagram: &[u8]) -> Step<K> {
        self.handle_datagrams(now, from, datagram, datagram.len())
    }

    /// Datagrams of this size with one label, of which the last one may be shorter, have come
    /// together. They go the same way; of several that ask for an answer, one gets it.
    pub fn handle_datagrams(
        &mut self,
        now: Time,
        from: DatagramPlace,
        datagrams: &[u8],
        size: usize,
    ) -> Step<K> {
        let datagram = &datagrams[..size.min(datagrams.len())];
        let Some(label) = Outer::label(datagram) else { return Step::Drop };
        if let Some(way) = self.ways.get(&label).copied() {
            return self.pass(now, from, way, (datagram.len(), datagrams.len()));
        }
        // The destination would be mistaken for the host that dials.
        let Ok(bind) = BindDatagram::parse(datagram) else { return Step::Drop };
        if bind.kind == BindKind::Ask {
            let other = self.other_ports.get(from.socket).copied().unwrap_or(0);
            return self.tell(now, from, &bind, other);
        }
        if bind.kind == BindKind::Bind
            && let Some(destination) = self.associations.get(&label).map(|one| one.destination)
            && !self.reach(now, destination, (&from, None)).is_from
            && let Some(association) = self.associations.get_mut(&label)
        {
            return match association.bind(now, from, &bind, &self.cookies) {
                Some(answer) => Step::Answer(answer.octets()),
                None => Step::Drop,
            };
        }
        Step::Drop
    }

    /// Datagrams with a label that is known: the size of the first one, and of all.
    fn pass(
        &mut self,
        now: Time,
        from: DatagramPlace,
        way: Way,
        (size, all): (usize, usize),
    ) -> Step<K> {
        let Some(association) = self.associations.get(&way.association) else { return Step::Drop };
        let Some(pair) = association.pairs.get(&way.pair) else { return Step::Drop };
        let (key, destination) = (association.key, association.destination);
        let is_guests = matches!(destination, DatagramsTo::Waiting(_));
        let reached = self.reach(now, destination, (&from, pair.waiting_route));
        if let (Some(number), DatagramsTo::Waiting(place)) = (reached.route, destination) {
            self.handle_used(now, place, number);
        }
        let Some(association) = self.associations.get_mut(&way.association) else {
            return Step::Drop;
        };
        let Some(pair) = association.pairs.get_mut(&way.pair) else { return Step::Drop };
        if reached.is_from {
            association.heard_at = Some(now);
            pair.waiting_route = reached.route.map(|number| (number, now));
            let route = pair.route.and_then(|at| self.route_at(at));
            return match route.filter(|route| route.used_at + SILENCE > now) {
                Some(route) => Step::Forward { to: route.place, key, is_up: false, is_guests },
                None => Step::Drop,
            };
        }
        if !way.is_to {
            return self.challenge_waiting(now, from, destination, size);
        }
        let last = pair.route;
        let Some(at) = self.route_from(now, &way, &from) else {
            let Some(association) = self.associations.get_mut(&way.association) else {
                return Step::Drop;
            };
            // The address of the host may have changed. The datagram itself is lost.
            let own = last.filter(|at| at.association == way.association);
            let number = own.map_or(0, |at| at.number);
            return match association.challenge(now, way.association, number, from, &self.cookies) {
                Some(challenge) if size >= BIND => Step::Answer(challenge.octets()),
                _ => Step::Drop,
            };
        };
        // A host that waits has proven its addresses.
        let has_answered = self.note_used(now, &way, at) || is_guests;
        let Some(to) = reached.to else { return Step::Drop };
        if !has_answered && !self.keys.entry(key).or_default().may_send_unanswered(now, all) {
            return Step::Drop;
        }
        Step::Forward { to, key, is_up: true, is_guests }
    }
}

impl<K> Default for KeyUse<K> {
    fn default() -> KeyUse<K> {
        let (unanswered, guests) = (TokenBucket::default(), BTreeMap::new());
        KeyUse { associations: 0, pairs: 0, unanswered, guests }
    }
}

impl<K> KeyUse<K> {
    /// Whether the key may send so much more to destinations that have said nothing.
    fn may_send_unanswered(&mut self, now: Time, length: usize) -> bool {
        if self.unanswered.ready_at(now, Span::ZERO) > now {
            return false;
        }
        let saved = UNANSWERED_AT_ONCE / UNANSWERED;
        self.unanswered.take(now, saved, Bytes(length as u64) / UNANSWERED);
        true
    }
}

#[cfg(test)]
mod tests;
