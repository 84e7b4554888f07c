//! What a collector tells sources that control the rates of their paths: what has arrived over
//! each, and what relays were seen to carry.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use overlay::Peak;
use peer::Fingerprint;
use tokio::time::Instant;
use units::{Bytes, Span, Time};
use wire::feed::{ArrivalReport, MOST_FEED_RELAYS, Watch};
use wire::session::RunId;

/// A process of a host.
pub(crate) type SourceId = (Fingerprint, RunId);

/// The shortest time between reports over a connection, and the longest.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));
/// The age at which the largest rate of a relay is forgotten.
const MEMORY: Span = Span::from_secs(300);

/// What arrives from all sources that control their rates.
pub(crate) struct Reports {
    began: Instant,
    sources: Mutex<HashMap<SourceId, Vec<Weak<CountedPath>>>>,
    relays: Mutex<HashMap<u32, Arc<RelayRate>>>,
}

/// A connection that is a path of a source.
struct CountedPath {
    number: u32,
    received: AtomicU64,
    relay: Option<Arc<RelayRate>>,
    began: Instant,
}

/// What was seen of a relay.
struct RelayRate {
    /// Whence its connections come. What a source says of another one is not believed as long as
    /// anything is known of this one.
    address: IpAddr,
    peak: Mutex<Peak>,
}

/// A connection that is a path of a source, as the one who reads it has it.
pub(crate) struct WatchedPath {
    path: Arc<CountedPath>,
    relay: Option<u32>,
    interval: Option<Duration>,
    next: Instant,
}

impl Reports {
    pub(crate) fn new() -> Reports {
        Reports { began: Instant::now(), sources: Mutex::default(), relays: Mutex::default() }
    }

    /// A connection from `address` is a path of a source.
    pub(crate) fn watch(&self, source: SourceId, watch: Watch, address: IpAddr) -> WatchedPath {
        let tag = watch.relay.map(std::num::NonZeroU32::get);
        let relay = tag.and_then(|tag| self.relay(tag, address));
        let received = AtomicU64::new(0);
        let path = Arc::new(CountedPath { number: watch.path, received, relay, began: self.began });
        let mut sources = self.sources();
        // Those whose connections are over are forgotten: there are as many as connections.
        sources.retain(|_, paths| {
            paths.retain(|path| path.strong_count() > 0);
            !paths.is_empty()
        });
        sources.entry(source).or_default().push(Arc::downgrade(&path));
        drop(sources);
        let mut watched = WatchedPath { path, relay: tag, interval: None, next: Instant::now() };
        watched.set_interval(watch);
        watched
    }

    /// What has arrived from a source over the paths that are open.
    pub(crate) fn report(&self, source: SourceId, now: Instant) -> ArrivalReport {
        let paths = {
            let sources = self.sources();
            let own = sources.get(&source).into_iter().flatten().filter_map(Weak::upgrade);
            let count = |path: &CountedPath| (path.number, path.received.load(Ordering::Relaxed));
            own.map(|path| count(&path)).collect()
        };
        let time = self.time(now);
        let highest = |(tag, relay): (&u32, &Arc<RelayRate>)| {
            let rate = relay.peak().highest(time).as_f64() / 1e3;
            // A rate that is known is not none.
            let kbit = if rate > 0.0 { rate.clamp(1.0, f64::from(u32::MAX)) } else { 0.0 };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            (kbit > 0.0).then_some((*tag, kbit as u32))
        };
        let relays = self.relays().iter().filter_map(highest).collect();
        let stamp = time.as_nanos();
        ArrivalReport { stamp, paths, relays }
    }

    /// What is known of a relay; `None` for one whose connections come from elsewhere, or if there
    /// are too many.
    fn relay(&self, tag: u32, address: IpAddr) -> Option<Arc<RelayRate>> {
        let now = self.time(Instant::now());
        let mut relays = self.relays();
        relays.retain(|_, relay| {
            Arc::strong_count(relay) > 1 || relay.peak().highest(now) > units::Rate::ZERO
        });
        if relays.len() >= MOST_FEED_RELAYS && !relays.contains_key(&tag) {
            return None;
        }
        let fresh = || Arc::new(RelayRate { address, peak: Mutex::new(Peak::new(MEMORY)) });
        let relay = relays.entry(tag).or_insert_with(fresh);
        (relay.address == address).then(|| Arc::clone(relay))
    }

    fn time(&self, now: Instant) -> Time {
        time_since(self.began, now)
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<SourceId, Vec<Weak<CountedPath>>>> {
        self.sources.lock().expect("no panic while held")
    }

    fn relays(&self) -> MutexGuard<'_, HashMap<u32, Arc<RelayRate>>> {
        self.relays.lock().expect("no panic while held")
    }
}

fn time_since(began: Instant, now: Instant) -> Time {
    let elapsed = u64::try_from((now - began).as_nanos()).unwrap_or(u64::MAX);
    Time::ZERO + Span::from_nanos(elapsed)
}

impl RelayRate {
    fn peak(&self) -> MutexGuard<'_, Peak> {
        self.peak.lock().expect("no panic while held")
    }
}

impl WatchedPath {
    /// So many octets of records have arrived.
    pub(crate) fn count(&self, octets: Bytes) {
        let CountedPath { received, relay, began, .. } = &*self.path;
        received.fetch_add(octets.0, Ordering::Relaxed);
        if let Some(relay) = relay {
            let now = time_since(*began, Instant::now());
            relay.peak().handle_received(now, octets);
        }
    }

    /// The source wants other reports. The error is what it did wrong.
    pub(crate) fn change(&mut self, watch: Watch) -> Result<(), String> {
        let relay = watch.relay.map(std::num::NonZeroU32::get);
        if (watch.path, relay) != (self.path.number, self.relay) {
            return Err(format!("the connection is path {} already", self.path.number));
        }
        self.set_interval(watch);
        Ok(())
    }

    fn set_interval(&mut self, watch: Watch) {
        let (least, most) = INTERVALS;
        let wanted = watch.interval.map(|millis| Duration::from_millis(millis.get().into()));
        let interval = wanted.map(|wanted| wanted.clamp(least, most));
        if interval != self.interval {
            self.interval = interval;
            self.next = Instant::now() + interval.unwrap_or_default();
        }
    }

    pub(crate) fn next_report(&self) -> Option<Instant> {
        self.interval.map(|_| self.next)
    }

    /// Whether a report is due; the next one is after an interval.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let Some(interval) = self.interval.filter(|_| self.next <= now) else { return false };
        // Late ones are not made up for.
        self.next = (self.next + interval).max(now + interval / 2);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn watch(path: u32, relay: u32) -> Watch {
        Watch { path, interval: NonZeroU32::new(200), relay: NonZeroU32::new(relay) }
    }

    fn source(octet: u8) -> SourceId {
        let identity = peer::Identity::generate().expect("random numbers");
        (identity.fingerprint(), [octet; 16])
    }

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[tokio::test(start_paused = true)]
    async fn a_source_hears_of_its_own_paths_and_of_all_relays() {
        let (reports, own, others) = (Reports::new(), source(1), source(2));
        let first = reports.watch(own, watch(1, 7), ONE);
        let second = reports.watch(own, watch(2, 0), TWO);
        let other = reports.watch(others, watch(1, 7), ONE);
        for _ in 0..2 {
            tokio::time::advance(Duration::from_secs(1)).await;
            first.count(Bytes(100_000));
            other.count(Bytes(25_000));
            second.count(Bytes(9));
        }
        let report = reports.report(own, Instant::now());
        assert_eq!(report.paths, [(1, 200_000), (2, 18)]);
        // Of both sources together, in the second that is over.
        assert_eq!(report.relays, [(7, 1_000)]);
        drop(first);
        assert_eq!(reports.report(own, Instant::now()).paths, [(2, 18)]);
        tokio::time::advance(Duration::from_secs(301)).await;
        assert_eq!(reports.report(others, Instant::now()).relays, []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_lies_about_its_relay_is_not_believed() {
        let reports = Reports::new();
        let honest = reports.watch(source(1), watch(1, 7), ONE);
        let liar = reports.watch(source(2), watch(1, 7), TWO);
        for _ in 0..2 {
            tokio::time::advance(Duration::from_secs(1)).await;
            honest.count(Bytes(1_000));
            liar.count(Bytes(9_000_000));
        }
        assert_eq!(reports.report(source(1), Instant::now()).relays, [(7, 8)]);
        // Relays without end cost no more than a table.
        for tag in 1..2 * u32::try_from(MOST_FEED_RELAYS).expect("a few") {
            let watched = reports.watch(source(2), watch(tag, tag), TWO);
            watched.count(Bytes(1));
            std::mem::forget(Arc::clone(&watched.path));
        }
        assert_eq!(reports.relays().len(), MOST_FEED_RELAYS);
    }

    #[tokio::test(start_paused = true)]
    async fn reports_come_once_in_an_interval_that_has_bounds() {
        let reports = Reports::new();
        let mut watched = reports.watch(source(1), watch(1, 0), ONE);
        assert!(!watched.is_due(Instant::now()));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert!(watched.is_due(Instant::now()) && !watched.is_due(Instant::now()));
        // None is made up for.
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(watched.is_due(Instant::now()) && !watched.is_due(Instant::now()));
        assert_eq!(watched.change(Watch { interval: None, ..watch(1, 0) }), Ok(()));
        assert_eq!(watched.next_report(), None);
        let hasty = Watch { interval: NonZeroU32::new(1), ..watch(1, 0) };
        assert_eq!(watched.change(hasty), Ok(()));
        assert_eq!(watched.next_report(), Some(Instant::now() + INTERVALS.0));
        assert!(watched.change(watch(2, 0)).is_err() && watched.change(watch(1, 3)).is_err());
    }
}
