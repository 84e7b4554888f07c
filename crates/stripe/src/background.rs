//! Connections in the background: all of a program's connections to one peer are under one
//! controller.

use std::collections::{BTreeMap, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use policy::cc::{
    Acked, Allowance, Choke, Congestion, Controller, HarpOptions, HarpStanding, Place, Sent, Site,
    Start,
};
use units::{Bytes, Rate, Span, SubflowId, Time};

use crate::Route;
use crate::memory::PeerKey;

/// The time from one moment to the next in which all background senders leave the queue to empty
/// itself, at multiples of it on the wall clock.
const DRAIN: Span = Span::from_secs(30);
/// The most peers that are remembered without a connection.
const MOST_SITES: usize = 256;

/// The background controllers of a program: one for each peer, which outlives its connections.
/// Clones share them.
///
/// ```
/// use stripe::{Effort, Options};
///
/// // Two connections with copies of these options share windows, and what they learn of lines.
/// let mut options = Options::default();
/// options.config.effort = Effort::Lower;
/// let _both = [options.clone(), options];
/// ```
#[derive(Clone, Debug)]
pub struct Sites(Arc<SharedSites>);

#[derive(Debug)]
struct SharedSites {
    of_peers: Mutex<BTreeMap<PeerKey, Arc<Mutex<Site>>>>,
    next: AtomicU64,
    /// The wall clock when this was made, on which all hosts agree to some milliseconds; steps of
    /// it later on are not followed.
    epoch: (Time, Instant),
}

impl Default for Sites {
    fn default() -> Sites {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = Time::from_nanos(u64::try_from(wall.as_nanos()).unwrap_or(0));
        Sites(Arc::new(SharedSites {
            of_peers: Mutex::default(),
            next: AtomicU64::new(0),
            epoch: (wall, Instant::now()),
        }))
    }
}

impl Sites {
    /// The controller of a new connection to a peer; `now` is the time of its driver.
    pub(crate) fn join(&self, now: Time, peer: &PeerKey) -> Member {
        let mut of_peers = self.0.of_peers.lock().expect("no panic while held");
        let is_used = |site: &Arc<_>| Arc::strong_count(site) > 1;
        if of_peers.len() >= MOST_SITES {
            // Most peers were never in the background: they take no place of those that were.
            of_peers.retain(|_, site| {
                is_used(site) || !site.lock().expect("no panic while held").is_blank()
            });
        }
        if of_peers.len() >= MOST_SITES {
            of_peers.retain(|_, site| is_used(site));
        }
        let new = || {
            let options = HarpOptions { drain: Some(DRAIN), ..HarpOptions::modern() };
            Arc::new(Mutex::new(Site::new(options)))
        };
        let site = Arc::clone(of_peers.entry(Arc::clone(peer)).or_insert_with(new));
        let (wall, began) = self.0.epoch;
        let elapsed = u64::try_from(began.elapsed().as_nanos()).unwrap_or(0);
        let shared = wall + Span::from_nanos(elapsed);
        let connection = self.0.next.fetch_add(1, Ordering::Relaxed);
        Member { site, connection, ahead: shared.since(now) }
    }
}

/// A connection's part of the controller of its peer.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    site: Arc<Mutex<Site>>,
    connection: u64,
    /// The time of all connections less that of this one's driver.
    ahead: Span,
}

/// What the background is like at a path, at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundStats {
    /// Whether others have the line: less than three quarters of what it carried at best in the
    /// last minutes is asked of it.
    pub is_backed_off: bool,
    /// For how long that was so.
    pub backed_off: Span,
    /// What the line carried at best in the last minutes; `None` before it is known.
    pub best: Option<Rate>,
    /// The longest queue that was seen: the largest delay less the smallest one.
    pub queue: Option<Span>,
}

impl Member {
    fn site(&self) -> MutexGuard<'_, Site> {
        self.site.lock().expect("no panic while held")
    }

    fn shared(&self, now: Time) -> Time {
        now + self.ahead
    }

    /// The subflow goes over this route.
    pub(crate) fn name_route(&self, now: Time, id: SubflowId, route: &Route) {
        self.name_place(now, id, &(&route.device, route.local, route.remote.ip()));
    }

    /// The subflow goes between these addresses.
    pub(crate) fn name_addresses(
        &self,
        now: Time,
        id: SubflowId,
        local: Option<IpAddr>,
        remote: IpAddr,
    ) {
        self.name_place(now, id, &(local, remote));
    }

    fn name_place(&self, now: Time, id: SubflowId, ends: &impl Hash) {
        let mut hasher = DefaultHasher::new();
        ends.hash(&mut hasher);
        let place = Place(hasher.finish());
        self.site().name_place(self.shared(now), self.connection, id, place);
    }

    /// The subflow has ended, and its number goes nowhere.
    pub(crate) fn forget(&self, now: Time, id: SubflowId) {
        self.site().remove(self.shared(now), self.connection, id);
    }

    /// The connection has ended: what it has in flight is nobody's.
    pub(crate) fn leave(&self, now: Time) {
        self.site().leave(self.shared(now), self.connection);
    }

    pub(crate) fn stats(&self, id: SubflowId) -> Option<BackgroundStats> {
        let (standing, min_rtt) = self.site().standing(self.connection, id)?;
        let HarpStanding { extent, delays, is_backed_off, backed_off, .. } = standing;
        let best = min_rtt.filter(|rtt| *rtt > Span::ZERO).map(|rtt| extent / rtt);
        let queue = delays.map(|(least, most)| most - least);
        Some(BackgroundStats { is_backed_off, backed_off, best, queue })
    }
}

impl Controller for Member {
    fn name(&self) -> &'static str {
        "harp"
    }

    fn handle_add(&mut self, now: Time, id: SubflowId, start: &Start) {
        self.site().add(self.shared(now), self.connection, id, start);
    }

    fn handle_remove(&mut self, now: Time, id: SubflowId) {
        self.site().remove(self.shared(now), self.connection, id);
    }

    fn handle_sent(&mut self, now: Time, id: SubflowId, sent: &Sent) {
        self.site().handle_sent(self.shared(now), self.connection, id, sent);
    }

    fn handle_acked(&mut self, now: Time, id: SubflowId, acked: &Acked) {
        self.site().handle_acked(self.shared(now), self.connection, id, acked);
    }

    fn handle_congestion(&mut self, now: Time, id: SubflowId, congestion: &Congestion) {
        self.site().handle_congestion(self.shared(now), self.connection, id, congestion);
    }

    fn handle_timeout(&mut self, now: Time, id: SubflowId, in_flight: Bytes) {
        self.site().handle_timeout(self.shared(now), self.connection, id, in_flight);
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.site().poll_deadline().map(|at| Time::ZERO + at.since(Time::ZERO + self.ahead))
    }

    fn handle_deadline(&mut self, now: Time) {
        self.site().handle_deadline(self.shared(now));
    }

    fn allowance(&self, id: SubflowId) -> Allowance {
        let allowance = self.site().allowance(self.connection, id);
        match allowance.state {
            Choke::Choked { probe_at } => {
                let probe_at = Time::ZERO + probe_at.since(Time::ZERO + self.ahead);
                let state = Choke::Choked { probe_at };
                Allowance { state, ..allowance }
            }
            Choke::Open => allowance,
        }
    }

    fn poll_changed(&mut self) -> Option<SubflowId> {
        self.site().poll_changed(self.connection)
    }

    fn threshold(&self, id: SubflowId) -> Option<Bytes> {
        self.site().threshold(self.connection, id)
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Start = Start {
        mss: Bytes(1_000),
        initial_window: Bytes(10_000),
        rtt: Some(Span::from_millis(40)),
    };
    const FIRST: SubflowId = SubflowId(0);

    fn peer(number: usize) -> PeerKey {
        PeerKey::from(number.to_string().as_bytes())
    }

    fn timed_out(member: &mut Member) -> Bytes {
        member.handle_timeout(Time::from_nanos(1), FIRST, Bytes(1_000));
        member.allowance(FIRST).window
    }

    #[test]
    fn a_peer_shares_windows_with_itself_alone() {
        let sites = Sites::default();
        let route = Route::to(([192, 0, 2, 7], 7_707).into());
        let mut all = [1, 1, 2].map(|number| {
            let mut member = sites.join(Time::ZERO, &peer(number));
            member.name_route(Time::ZERO, FIRST, &route);
            member.handle_add(Time::ZERO, FIRST, &START);
            member
        });
        assert_eq!(timed_out(&mut all[0]), Bytes(500));
        assert_eq!(all[1].allowance(FIRST).window, Bytes(500));
        assert_eq!(all[2].allowance(FIRST).window, Bytes(1_000), "another peer's");
    }

    #[test]
    fn peers_that_have_left_are_remembered_to_a_bound() {
        let sites = Sites::default();
        let kept = sites.join(Time::ZERO, &peer(0));
        let route = Route::to(([192, 0, 2, 7], 7_707).into());
        let visit = |number: usize, is_background: bool| {
            let mut member = sites.join(Time::ZERO, &peer(number));
            member.name_route(Time::ZERO, FIRST, &route);
            if is_background {
                member.handle_add(Time::ZERO, FIRST, &START);
            }
            member.leave(Time::ZERO);
        };
        visit(1, true);
        for number in 2..1_000 {
            visit(number, false);
        }
        assert!(
            sites.0.of_peers.lock().expect("no panic while held").contains_key(&peer(1)),
            "peers that were never in the background displace none that was"
        );
        for number in 1_000..2_000 {
            visit(number, true);
        }
        let of_peers = sites.0.of_peers.lock().expect("no panic while held");
        assert!(of_peers.len() <= MOST_SITES + 1, "{}", of_peers.len());
        assert!(Arc::ptr_eq(&of_peers[&peer(0)], &kept.site), "one with a connection stays");
    }

    #[test]
    fn the_times_of_drivers_are_one_for_the_site() {
        let sites = Sites::default();
        let early = sites.join(Time::ZERO, &peer(1));
        let late = sites.join(Time::from_nanos(5_000_000_000), &peer(1));
        let apart = early.shared(Time::ZERO) - late.shared(Time::from_nanos(5_000_000_000));
        assert!(apart < Span::from_secs(1), "{apart}");
        let year = Span::from_secs(365 * 86_400);
        assert!(early.shared(Time::ZERO) > Time::ZERO + year * 50, "by the wall clock");
    }
}
