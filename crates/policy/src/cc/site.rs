//! One background controller for all connections of a program to one host (*site mode*).
//!
//! Each place in the network (a local and a remote address) has one window of [`Harp`], which the
//! subflows of all connections share: a hundred connections are as shy as one. What a place has
//! learnt, its window and the range of its delays, is kept while no connection uses it, so that the
//! next transfer need not learn it beside others that fill the queue.

use alloc::vec::Vec;

use units::{Bytes, Rate, Span, SubflowId, Time};

use super::harp::SuspendedPath;
use super::{
    Acked, Allowance, Congestion, Controller, Harp, HarpOptions, HarpStanding, Sent, Start,
};

/// How long a place is remembered that nobody uses: as long as its delays.
const MEMORY: Span = Span::from_secs(600);
/// The most places that are remembered.
const MOST_REMEMBERED: usize = 16;

/// Where the packets of a subflow go: the caller's number of a pair of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u64);

/// The controller of all connections to one host.
#[derive(Clone, Debug)]
pub struct Site {
    harp: Harp,
    /// Places in use.
    shared: Vec<SharedPath>,
    remembered: Vec<Remembered>,
    /// The places of subflows, also of those that have not joined yet.
    named: Vec<(u64, SubflowId, Place)>,
    next: u16,
}

/// A place with the subflows that use it.
#[derive(Clone, Debug)]
struct SharedPath {
    /// Its number in the controller.
    id: SubflowId,
    place: Option<Place>,
    start: Start,
    min_rtt: Option<Span>,
    members: Vec<SiteMember>,
    in_flight: u64,
    /// How often its window changed for more than the subflow that brought the news.
    changes: u64,
}

/// A subflow of a connection.
#[derive(Clone, Debug)]
struct SiteMember {
    connection: u64,
    id: SubflowId,
    in_flight: u64,
    rate: Option<Rate>,
    /// Of [`SharedPath::changes`], those that its connection was told.
    told: u64,
}

#[derive(Clone, Debug)]
struct Remembered {
    place: Place,
    path: SuspendedPath,
    id: SubflowId,
    min_rtt: Option<Span>,
    since: Time,
}

impl Site {
    /// A site without connections.
    #[must_use]
    pub fn new(options: HarpOptions) -> Site {
        Site {
            harp: Harp::new(options),
            shared: Vec::new(),
            remembered: Vec::new(),
            named: Vec::new(),
            next: 0,
        }
    }

    /// Whether nobody uses it, and nothing is remembered.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.shared.is_empty() && self.remembered.is_empty()
    }

    /// A subflow of a connection joins. If nobody has named its place, it shares with nobody.
    pub fn add(&mut self, now: Time, connection: u64, id: SubflowId, start: &Start) {
        let mut named = self.named.iter();
        let place = named.find(|one| (one.0, one.1) == (connection, id)).map(|one| one.2);
        let place = place.map(|place| self.free_place(connection, place));
        let at =
            match self.shared.iter().position(|path| path.place.is_some() && path.place == place) {
                Some(at) => at,
                None => self.open(now, place, start),
            };
        let told = self.shared[at].changes;
        self.shared[at].members.push(SiteMember { connection, id, in_flight: 0, rate: None, told });
    }

    /// The place of a subflow is known, before it joins or sends anything; later on nothing
    /// changes.
    pub fn name_place(&mut self, now: Time, connection: u64, id: SubflowId, place: Place) {
        self.named.push((connection, id, place));
        let Some((at, member)) = self.find(connection, id) else { return };
        let path = &self.shared[at];
        if path.place.is_none() && path.members[member].in_flight == 0 {
            let start = path.start;
            self.take_out(now, connection, id);
            self.add(now, connection, id, &start);
        }
    }

    /// Two subflows of one connection are at two places, even between the same addresses: behind a
    /// translator they may take different lines.
    fn free_place(&self, connection: u64, place: Place) -> Place {
        let is_taken = |place: Place| {
            let here = self.shared.iter().find(|path| path.place == Some(place));
            here.is_some_and(|path| path.members.iter().any(|one| one.connection == connection))
        };
        let mut free = place;
        while is_taken(free) {
            free = Place(free.0.wrapping_add(1));
        }
        free
    }

    /// Takes a place into use.
    fn open(&mut self, now: Time, place: Option<Place>, start: &Start) -> usize {
        self.remembered.retain(|one| now.since(one.since) < MEMORY);
        let known = self.remembered.iter().position(|one| Some(one.place) == place);
        let known = known.map(|at| self.remembered.swap_remove(at));
        let (id, min_rtt) = if let Some(Remembered { path, id, min_rtt, .. }) = known {
            self.harp.resume(path);
            (id, min_rtt)
        } else {
            let id = self.free_number();
            self.harp.handle_add(now, id, start);
            (id, None)
        };
        let (members, in_flight, changes) = (Vec::new(), 0, 0);
        let start = *start;
        self.shared.push(SharedPath { id, place, start, min_rtt, members, in_flight, changes });
        self.shared.len() - 1
    }

    fn free_number(&mut self) -> SubflowId {
        loop {
            let id = SubflowId(self.next);
            self.next = self.next.wrapping_add(1);
            let is_used = self.shared.iter().any(|path| path.id == id)
                || self.remembered.iter().any(|one| one.id == id);
            if !is_used {
                return id;
            }
        }
    }

    /// A subflow leaves. With the last one of its place, that is remembered.
    pub fn remove(&mut self, now: Time, connection: u64, id: SubflowId) {
        self.named.retain(|one| (one.0, one.1) != (connection, id));
        self.take_out(now, connection, id);
    }

    fn take_out(&mut self, now: Time, connection: u64, id: SubflowId) {
        let Some((at, member)) = self.find(connection, id) else { return };
        let path = &mut self.shared[at];
        let member = path.members.swap_remove(member);
        path.in_flight -= member.in_flight;
        path.changes += 1;
        if !path.members.is_empty() {
            return;
        }
        let SharedPath { id, place, min_rtt, .. } = self.shared.swap_remove(at);
        if let (Some(place), Some(path)) = (place, self.harp.suspend(id)) {
            self.remembered.retain(|one| now.since(one.since) < MEMORY);
            if self.remembered.len() >= MOST_REMEMBERED {
                self.remembered.remove(0);
            }
            self.remembered.push(Remembered { place, path, id, min_rtt, since: now });
        }
    }

    /// All subflows of a connection leave.
    pub fn leave(&mut self, now: Time, connection: u64) {
        self.named.retain(|one| one.0 != connection);
        let of = |path: &SharedPath| {
            path.members.iter().find(|one| one.connection == connection).map(|one| one.id)
        };
        while let Some(id) = self.shared.iter().find_map(of) {
            self.take_out(now, connection, id);
        }
    }

    /// A packet left.
    pub fn handle_sent(&mut self, now: Time, connection: u64, id: SubflowId, sent: &Sent) {
        let Some((at, _)) = self.set_in_flight(connection, id, sent.in_flight) else { return };
        self.harp.handle_sent(now, self.shared[at].id, sent);
    }

    /// As [`Controller::handle_acked`].
    pub fn handle_acked(&mut self, now: Time, connection: u64, id: SubflowId, acked: &Acked) {
        let Some(at) = self.set_in_flight(connection, id, acked.in_flight) else { return };
        let (at, member) = at;
        let path = &mut self.shared[at];
        // A connection that began while others filled the queue never saw the line without them.
        let min_rtt = path.min_rtt.map_or(acked.min_rtt, |least| least.min(acked.min_rtt));
        path.min_rtt = Some(min_rtt);
        path.members[member].rate = acked.delivery_rate;
        // What this one delivered, and those that have more on its way.
        let all = path.members.iter().enumerate();
        let all = all.filter(|(at, one)| one.in_flight > 0 || *at == member);
        let sum = all.filter_map(|(_, one)| one.rate).fold(Rate::ZERO, |sum, rate| sum + rate);
        let delivery_rate = acked.delivery_rate.map(|_| sum);
        let shared = path.id;
        self.harp.handle_acked(now, shared, &Acked { min_rtt, delivery_rate, ..*acked });
        self.note_changes();
    }

    /// As [`Controller::handle_congestion`].
    pub fn handle_congestion(
        &mut self,
        now: Time,
        connection: u64,
        id: SubflowId,
        congestion: &Congestion,
    ) {
        let Some((at, _)) = self.find(connection, id) else { return };
        self.harp.handle_congestion(now, self.shared[at].id, congestion);
        self.note_changes();
    }

    /// As [`Controller::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Time, connection: u64, id: SubflowId, in_flight: Bytes) {
        let Some((at, _)) = self.set_in_flight(connection, id, Bytes::ZERO) else { return };
        self.harp.handle_timeout(now, self.shared[at].id, in_flight);
        self.note_changes();
    }

    /// As [`Controller::poll_deadline`].
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        self.harp.poll_deadline()
    }

    /// As [`Controller::handle_deadline`]; any connection may call it.
    pub fn handle_deadline(&mut self, now: Time) {
        if self.poll_deadline().is_some_and(|at| at <= now) {
            self.harp.handle_deadline(now);
            self.note_changes();
        }
    }

    /// What a subflow may send: what the others leave of the window, and its equal part at least.
    /// One that joins has that at once, and the others give it up in the next round trip.
    #[must_use]
    pub fn allowance(&self, connection: u64, id: SubflowId) -> Allowance {
        let Some((at, member)) = self.find(connection, id) else {
            return Allowance::window(Bytes::ZERO);
        };
        let path = &self.shared[at];
        let allowance = self.harp.allowance(path.id);
        let others = path.in_flight - path.members[member].in_flight;
        if others == 0 {
            return allowance;
        }
        let is_other =
            |one: &&SiteMember| one.in_flight > 0 && (one.connection, one.id) != (connection, id);
        let active = 1 + path.members.iter().filter(is_other).count() as u64;
        let whole = allowance.window.0;
        let window = whole.saturating_sub(others).max(whole / active);
        let pacing = allowance.pacing.map(|pace| Rate::from_bits((pace.as_bits() / active).max(1)));
        Allowance { window: Bytes(window), pacing, ..allowance }
    }

    /// As [`Controller::threshold`].
    #[must_use]
    pub fn threshold(&self, connection: u64, id: SubflowId) -> Option<Bytes> {
        let (at, _) = self.find(connection, id)?;
        self.harp.threshold(self.shared[at].id)
    }

    /// As [`Controller::poll_changed`], of this connection.
    pub fn poll_changed(&mut self, connection: u64) -> Option<SubflowId> {
        self.shared.iter_mut().find_map(|path| {
            let changes = path.changes;
            let is_news =
                |one: &&mut SiteMember| one.connection == connection && one.told < changes;
            let member = path.members.iter_mut().find(is_news)?;
            member.told = changes;
            Some(member.id)
        })
    }

    /// What the place of a subflow is like, and its smallest round-trip time.
    #[must_use]
    pub fn standing(&self, connection: u64, id: SubflowId) -> Option<(HarpStanding, Option<Span>)> {
        let (at, _) = self.find(connection, id)?;
        Some((self.harp.standing(self.shared[at].id)?, self.shared[at].min_rtt))
    }

    fn note_changes(&mut self) {
        while let Some(id) = self.harp.poll_changed() {
            if let Some(path) = self.shared.iter_mut().find(|path| path.id == id) {
                path.changes += 1;
            }
        }
    }

    fn set_in_flight(
        &mut self,
        connection: u64,
        id: SubflowId,
        bytes: Bytes,
    ) -> Option<(usize, usize)> {
        let (at, member) = self.find(connection, id)?;
        let path = &mut self.shared[at];
        let before = core::mem::replace(&mut path.members[member].in_flight, bytes.0);
        path.in_flight = path.in_flight - before + bytes.0;
        Some((at, member))
    }

    /// The indices of a place, and of a subflow there.
    fn find(&self, connection: u64, id: SubflowId) -> Option<(usize, usize)> {
        self.shared.iter().enumerate().find_map(|(at, path)| {
            let is_it = |one: &SiteMember| one.connection == connection && one.id == id;
            path.members.iter().position(is_it).map(|member| (at, member))
        })
    }
}

#[cfg(test)]
mod tests;
