//! The paths to the other gateway, as the gateway sees them where packets enter: windows, what is
//! in flight, round-trip times, probes.

mod choice;
mod open;

use alloc::vec::Vec;

use policy::cc::{Delivered, Harp, PathFalls};
use recovery::{DeliveryRate, RoundTrip, SendSnapshot};
use units::{Bytes, Rate, Span, SubflowId, Time, TokenBucket};
use wire::harp::Stamp;

use crate::admission::Trials;
use crate::{Config, pairs};

/// A path of which nothing is heard for so long carries nothing until a probe arrives; the same in
/// round trips.
const LEAST_SILENCE: Span = Span::from_secs(1);
/// The same where paths come and go: the packets that a dead one took are lost, and each further
/// one makes a host wait.
const LEAST_SILENCE_LIVE: Span = Span::from_millis(300);
const SILENT_ROUND_TRIPS: u64 = 4;

/// A path is paced at so many times its window a round trip, so that the pace never bounds it.
const PACE: f64 = 1.25;

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathView {
    /// Its window; zero while it is choked.
    pub window: Bytes,
    /// The payload in flight.
    pub in_flight: Bytes,
    /// Whether only probes go over it.
    pub is_choked: bool,
    /// Whether there is such a path at present.
    pub is_present: bool,
    /// Whether its round-trip time admits it.
    pub is_admitted: bool,
    /// The smoothed round-trip time, if it is known.
    pub srtt: Option<Span>,
    /// The least round-trip time, if one is known.
    pub least_rtt: Option<Span>,
    /// ξ: the window as a part of the largest one that it can have.
    pub xi: f64,
    /// The payload that it carries when nobody else uses it, if that was measured.
    pub capacity: Option<Rate>,
    /// How often it stepped back.
    pub falls: PathFalls,
}

/// The windows and the state of all paths: of a connection, or of a site.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    control: Harp,
    states: Vec<PathState>,
    admission: Option<f64>,
    /// Whether packets leave in pairs now and then.
    pairs: bool,
    /// How far packets may be ahead of the pace.
    burst: Span,
    /// The size of full packets; zero before it is known.
    mss: f64,
    /// The paths that there are, a bit for each, where they come and go; `None`: all, of which the
    /// first is the direct one.
    present: Option<u8>,
}

#[derive(Clone, Debug)]
struct PathState {
    in_flight: u64,
    rtt: RoundTrip,
    rate: DeliveryRate,
    /// When the last packet left.
    sent_at: Option<Time>,
    /// When the next packet may leave by the pace.
    pace: TokenBucket,
    pair: Pair,
    capacity: Option<Rate>,
    probe_at: Time,
    trials: Trials,
    /// When the first packet left after the last one that was heard to arrive.
    unheard_since: Option<Time>,
}

/// Where the next pair of packets is.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// Packets since the last one.
    since: u32,
    /// The pace that its first packet owes, once that has left: the second one may leave at once.
    owed: Option<Span>,
    /// Whether the latest packet was a second one.
    is_second: bool,
}

impl PathState {
    /// Whether a packet that leaves now is the second of a pair.
    fn completes_pair(&self, now: Time) -> bool {
        self.pair.owed.is_some() && self.sent_at.is_some_and(|at| now <= at + pairs::TOGETHER)
    }

    /// When it counts as silent if nothing is heard for so long, and for some round trips.
    fn silent_at(&self, least: Span) -> Option<Time> {
        // Before the first answer nobody knows how long one takes.
        let Some(srtt) = self.rtt.smoothed() else {
            return Some(self.unheard_since? + LEAST_SILENCE);
        };
        Some(self.unheard_since? + least.max(srtt * SILENT_ROUND_TRIPS))
    }
}

/// What is noted of a packet that leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) at: Time,
    snapshot: SendSnapshot,
    /// Whether the windows were full enough for a sample of the rate.
    is_limited: bool,
}

/// Bytes of a path that one acknowledgement covers, with the latest of their packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit {
    pub(crate) bytes: u64,
    pub(crate) latest: Departure,
}

impl Paths {
    pub(crate) fn new(now: Time, config: &Config) -> Paths {
        let state = || PathState {
            in_flight: 0,
            rtt: RoundTrip::new(Span::ZERO),
            rate: DeliveryRate::new(now),
            sent_at: None,
            pace: TokenBucket::owing_until(now),
            pair: Pair::default(),
            capacity: None,
            probe_at: now,
            trials: Trials::new(),
            unheard_since: None,
        };
        Paths {
            control: Harp::new(config.controller),
            states: (0..config.paths).map(|_| state()).collect(),
            admission: config.admission,
            pairs: config.pairs && config.holds,
            burst: config.burst,
            mss: 0.0,
            present: None,
        }
    }

    /// The paths that there are, a bit for each. One that comes begins as a new one, and what was
    /// in flight over one that goes is lost.
    pub(crate) fn set_present(&mut self, now: Time, mask: u8) {
        for path in 0..self.states.len() {
            let (was, is) = (self.is_present(path), mask & (1 << path) != 0);
            if was && !is {
                let state = &mut self.states[path];
                (state.in_flight, state.sent_at, state.unheard_since) = (0, None, None);
                state.capacity = None;
                state.rtt = RoundTrip::new(Span::ZERO);
                state.trials = Trials::new();
                self.control.remove(id(path));
            } else if is && !was {
                self.states[path].probe_at = now;
                if self.mss > 0.0 {
                    self.control.add(id(path), whole(self.mss));
                }
            }
        }
        self.present = Some(mask);
    }

    /// Whether there is such a path.
    pub(crate) fn is_present(&self, path: usize) -> bool {
        path < self.states.len() && self.present.is_none_or(|mask| mask & (1 << path) != 0)
    }

    /// The size of full packets is known: windows begin with one. Later ones change nothing.
    pub(crate) fn set_mss(&mut self, mss: Bytes) {
        if self.mss <= 0.0 {
            self.mss = mss.as_f64().max(1.0);
            for path in 0..self.states.len() {
                if self.is_present(path) {
                    self.control.add(id(path), mss);
                }
            }
        }
    }

    /// The number of paths.
    pub(crate) fn count(&self) -> usize {
        self.states.len()
    }

    /// W: the sum of the windows of paths that may carry data.
    pub(crate) fn total(&self) -> f64 {
        self.usable().map(|path| self.control.window(id(path))).sum()
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = PathView> + '_ {
        self.states.iter().enumerate().map(|(path, state)| PathView {
            window: whole(self.control.window(id(path))),
            in_flight: Bytes(state.in_flight),
            is_choked: self.control.is_choked(id(path)),
            is_present: self.is_present(path),
            is_admitted: self.is_admitted(path),
            srtt: state.rtt.smoothed(),
            least_rtt: state.rtt.smoothed().map(|_| state.rtt.min()),
            xi: self.control.xi(id(path)),
            capacity: state.capacity,
            falls: self.control.falls(id(path)),
        })
    }

    /// The smoothed round-trip time of a path; zero before the first sample.
    pub(crate) fn srtt(&self, path: usize) -> Span {
        self.states[path].rtt.smoothed().unwrap_or(Span::ZERO)
    }

    /// The least round-trip time of a path; zero before the first sample.
    pub(crate) fn least_rtt(&self, path: usize) -> Span {
        self.states[path].rtt.min()
    }

    /// The shortest of the smoothed round-trip times of paths that are not choked, if one is known.
    pub(crate) fn shortest_rtt(&self) -> Option<Span> {
        let open = |path: &usize| self.is_present(*path) && !self.control.is_choked(id(*path));
        (0..self.count()).filter(open).filter_map(|path| self.states[path].rtt.smoothed()).min()
    }

    /// The longest of the smoothed round-trip times; zero before the first sample.
    pub(crate) fn longest_rtt(&self) -> Span {
        (0..self.count()).map(|path| self.srtt(path)).max().unwrap_or(Span::ZERO)
    }

    /// A packet leaves over a path.
    pub(crate) fn depart(&mut self, now: Time, path: usize, bytes: u64) -> Departure {
        let is_limited = self.is_half_full();
        let (window, srtt) = (self.control.window(id(path)).max(1.0), self.srtt(path));
        let gap = Span::from_secs_f64(count(bytes) * srtt.as_secs_f64() / (PACE * window));
        // In slow start the first packet that waits tells that the path is full.
        let pairs = self.pairs && !self.control.is_in_slow_start(id(path));
        let state = &mut self.states[path];
        let is_second = state.completes_pair(now);
        let owed = state.pair.owed.take();
        state.pair.is_second = is_second;
        state.pair.since = if is_second { 0 } else { state.pair.since + 1 };
        if pairs && owed.is_none() && state.pair.since >= pairs::EVERY {
            state.pair.owed = Some(gap);
        } else {
            state.pace.take(now, Span::ZERO, gap + owed.unwrap_or(Span::ZERO));
        }
        if state.in_flight == 0 {
            state.rate.restart(now);
        }
        let departure = Departure { at: now, snapshot: state.rate.snapshot(), is_limited };
        state.in_flight += bytes;
        state.sent_at = Some(now);
        state.unheard_since.get_or_insert(now);
        departure
    }

    /// Bytes left the path without a credit: lost, or sent again over another.
    pub(crate) fn forget(&mut self, path: usize, bytes: u64) {
        let in_flight = &mut self.states[path].in_flight;
        *in_flight = in_flight.saturating_sub(bytes);
    }

    /// Bytes arrived: windows grow if at least half of them was in flight. `credits` has an entry
    /// for each path.
    pub(crate) fn arrive(&mut self, now: Time, credits: &[Option<Credit>]) {
        let may_grow = self.is_half_full();
        for (path, credit) in credits.iter().enumerate() {
            let Some(Credit { bytes, latest }) = *credit else { continue };
            let state = &mut self.states[path];
            state.in_flight = state.in_flight.saturating_sub(bytes);
            state.rate.handle_delivered(now, Bytes(bytes), latest.at);
            let base = state.rtt.min();
            let rate: Option<Rate> = state
                .rate
                .sample(now, latest.at, &latest.snapshot, base)
                .filter(|_| latest.is_limited);
            let delivered = Delivered {
                bytes: Bytes(bytes),
                smoothed_rtt: state.rtt.smoothed().unwrap_or(Span::ZERO),
                min_rtt: base,
                rate,
                may_grow,
            };
            self.control.handle_delivered(now, id(path), &delivered);
        }
    }

    /// A round-trip time of a path.
    pub(crate) fn handle_rtt(&mut self, path: usize, rtt: Span) {
        self.states[path].unheard_since = None;
        let expected = self.states[path].in_flight / 1_500 + 1;
        self.states[path].rtt.handle_sample(rtt, expected);
    }

    /// What a path carries when nobody else uses it.
    pub(crate) fn handle_capacity(&mut self, path: usize, rate: Rate) {
        self.states[path].capacity = Some(rate);
        let base = self.states[path].rtt.min();
        self.control.handle_capacity(id(path), rate * base);
    }

    /// Packets were late, with this weight in all; the round-trip time of the latest, if it is
    /// known. That has the queue on the way back too; the other gateway tells no delays.
    pub(crate) fn handle_late(&mut self, now: Time, path: usize, weight: f64, rtt: Option<Span>) {
        self.tell_left_out();
        let least = self.states[path].rtt.min();
        self.control.handle_late(now, id(path), weight, rtt.map(|rtt| rtt - least));
        self.note_choke(now, path);
    }

    pub(crate) fn handle_missing(&mut self, now: Time, path: usize) {
        self.tell_left_out();
        self.control.handle_missing(now, id(path));
        self.note_choke(now, path);
    }

    pub(crate) fn handle_queue(&mut self, now: Time, path: usize) {
        self.control.handle_queue(now, id(path));
    }

    pub(crate) fn handle_open(&mut self, now: Time, path: usize) {
        self.control.handle_open(now, id(path));
    }

    /// Chokes the paths that have been silent for too long. A bit for each of them is returned.
    pub(crate) fn choke_silent(&mut self, now: Time) -> u8 {
        let least = self.least_silence();
        let mut silent = 0;
        for path in 0..self.states.len() {
            if self.states[path].silent_at(least).is_some_and(|at| at <= now) {
                self.states[path].unheard_since = None;
                self.control.handle_silent(now, id(path));
                self.note_choke(now, path);
                silent |= 1 << path;
            }
        }
        silent
    }

    fn least_silence(&self) -> Span {
        if self.present.is_some() { LEAST_SILENCE_LIVE } else { LEAST_SILENCE }
    }

    /// Begins a drain, if its time has come.
    pub(crate) fn drain(&mut self, now: Time) {
        self.control.handle_drain(now);
    }

    /// The probe of a path that is due, if one is.
    pub(crate) fn poll_probe(&mut self, now: Time) -> Option<usize> {
        let path = (0..self.states.len())
            .find(|path| self.control.is_choked(id(*path)) && self.states[*path].probe_at <= now)?;
        let period = self.probe_period(path);
        let state = &mut self.states[path];
        state.probe_at = now + period;
        state.unheard_since.get_or_insert(now);
        Some(path)
    }

    /// When the next probe or drain is due, or a path has been silent for too long.
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let at = |path: usize| {
            let state = &self.states[path];
            let probe = self.control.is_choked(id(path)).then_some(state.probe_at);
            probe.into_iter().chain(state.silent_at(self.least_silence())).min()
        };
        (0..self.states.len()).filter_map(at).chain(self.control.poll_drain()).min()
    }

    /// The stamp of a probe that leaves now.
    pub(crate) fn stamp(&self, now: Time, path: usize) -> Stamp {
        let srtt = u32::try_from(self.srtt(path).as_micros()).unwrap_or(u32::MAX);
        let path = u8::try_from(path).unwrap_or(u8::MAX);
        Stamp { path, sent: clock(now), srtt, is_paired: false }
    }

    /// The stamp of data that leave now.
    pub(crate) fn data_stamp(&mut self, now: Time, path: usize) -> Stamp {
        let is_paired = core::mem::take(&mut self.states[path].pair.is_second);
        Stamp { is_paired, ..self.stamp(now, path) }
    }

    fn note_choke(&mut self, now: Time, path: usize) {
        if self.control.is_choked(id(path)) && self.states[path].probe_at <= now {
            self.states[path].probe_at = now + self.probe_period(path);
        }
    }

    /// The time from one probe to the next.
    fn probe_period(&self, path: usize) -> Span {
        self.srtt(path).max(Harp::LEAST_PROBE_PERIOD)
    }

    /// Whether at least half of the windows is in flight, give or take a packet: hosts send whole
    /// packets, and only what they were told fits.
    fn is_half_full(&self) -> bool {
        let in_flight: u64 = self.usable().map(|path| self.states[path].in_flight).sum();
        2.0 * count(in_flight) + self.mss >= self.total()
    }
}

/// The clock in stamps: microseconds, wrapping.
#[expect(clippy::cast_possible_truncation, reason = "it wraps")]
pub(crate) fn clock(now: Time) -> u32 {
    (now.as_nanos() / 1_000) as u32
}

fn id(path: usize) -> SubflowId {
    SubflowId(u16::try_from(path).unwrap_or(u16::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "no gateway has 2^53 bytes in flight")]
fn count(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "windows are bounded")]
pub(crate) fn whole(bytes: f64) -> Bytes {
    Bytes(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(50);
    pub(super) const LEN: u64 = 1_000;

    /// Packets leave as the windows and paces of two paths let them, and arrive after a round trip:
    /// when they left, over which path, and whether as the second of a pair; with the paths, at the
    /// end.
    pub(super) fn departures(config: &Config) -> (Paths, Time, Vec<(Time, usize, bool)>) {
        let (mut now, mut left) = (Time::ZERO, Vec::new());
        let mut paths = Paths::new(now, config);
        paths.set_mss(Bytes(LEN));
        for round in 0..40 {
            let mut credits = [None; 2];
            while let Some((path, at)) = paths.choose_paced(now, LEN, 0) {
                now = now.max(at);
                let latest = paths.depart(now, path, LEN);
                let bytes = LEN + credits[path].map_or(0, |credit: Credit| credit.bytes);
                credits[path] = Some(Credit { bytes, latest });
                left.push((now, path, paths.data_stamp(now, path).is_paired));
            }
            now += RTT;
            for path in 0..2 {
                paths.handle_rtt(path, RTT);
                if round == 6 {
                    paths.handle_queue(now, path);
                }
            }
            paths.arrive(now, &credits);
        }
        (paths, now, left)
    }

    #[test]
    fn one_packet_in_sixteen_follows_at_once_and_the_pace_makes_up_for_it() {
        let (.., left) = departures(&Config::modern(2));
        for path in 0..2 {
            let own: Vec<_> = left.iter().filter(|(_, over, _)| *over == path).collect();
            let seconds = own.iter().filter(|(.., is_paired)| *is_paired).count();
            assert!((own.len() / 24..=own.len() / 16).contains(&seconds), "{seconds}: {own:?}");
            let gaps: Vec<_> = own.windows(2).map(|two| two[1].0.since(two[0].0)).collect();
            for at in (1..own.len() - 2).filter(|at| own[*at].2) {
                assert_eq!(gaps[at - 1], Span::ZERO);
                // Two gaps of the pace, unless a round trip is between.
                let usual = gaps[at + 1].min(gaps[at - 2]);
                assert!(gaps[at] >= usual * 2, "{gaps:?}");
            }
        }
        let (.., paced) = departures(&Config { pairs: false, ..Config::modern(2) });
        assert!(paced.len() > 200 && paced.iter().all(|(.., is_paired)| !is_paired));
    }

    /// The other gateway tells no delays: round trips tell whose queue a decrease is for.
    #[test]
    fn a_round_trip_tells_a_foreground_flows_queue() {
        let lost = |queue: u64| {
            let (mut paths, now, _) = departures(&Config::modern(2));
            // ξ is small.
            paths.handle_capacity(0, Rate::mbit(500));
            let before = paths.control.window(id(0));
            let rtt = RTT + Span::from_millis(queue);
            paths.handle_rtt(0, rtt);
            paths.handle_late(now + RTT, 0, 40.0, Some(rtt));
            (before - paths.control.window(id(0))) / before
        };
        let (own, all) = (lost(10), lost(8));
        assert!((own - 0.125).abs() < 1e-9 && all > 0.2, "{own}, {all}");
    }
}
