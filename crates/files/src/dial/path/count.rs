//! The number of connections of a path, from the kernel's counters.
//!
//! The kernel counts the time for which a connection had data to send and congestion control would
//! have let it, but the send buffer or the peer's receive window was full. A path whose connections
//! spend most of their time so, at a steady rate, carries as much as its buffers hold in a round
//! trip, and gets further connections. They stay if the path then carries more: a receiver that
//! reads slowly fills its window too, and no connection helps against that. Where next to nothing
//! fits the round trip, the window is probably that of a proxy on the path: further connections
//! must help much, because they fill its buffers too, with data that no other path can deliver
//! then.

use std::collections::VecDeque;

use peer::dial::MOST_CONNECTIONS;
use units::{Bytes, Rate, Span, Time};

use super::HeldTime;

/// The counters of all connections of a path that may send, summed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// Bytes that arrived at the receiving side, or at a proxy that ends connections.
    pub(super) moved: Bytes,
    /// Bytes that the receiver acknowledged on this path, over whichever connection.
    pub(super) acked: Bytes,
    /// Time for which buffers held the connections back.
    pub(super) held: HeldTime,
    /// The least smoothed round-trip time.
    pub(super) rtt: Span,
    /// The least round-trip time of all.
    pub(super) least_rtt: Span,
    /// The number of connections.
    pub(super) connections: usize,
}

/// A change of the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Open this many more.
    Open(usize),
    /// The further ones help: the path keeps them. Whether the receiving host's buffers held it
    /// back for longer than the sending host's.
    Keep {
        /// See above.
        by_receiver: bool,
    },
    /// The further ones do not help: close all but this many.
    Close(usize),
}

/// Chooses the number of connections of a path.
#[derive(Debug)]
pub(super) struct ConnectionCount {
    /// The latest readings, over [`JUDGED`] windows.
    readings: VecDeque<(Time, Reading)>,
    trial: Option<Trial>,
    /// No trial begins before ...
    not_before: Time,
    /// ... nor before this where the window is probably a proxy's.
    settled: Time,
    failures: u32,
}

/// Further connections that have yet to show their use.
#[derive(Clone, Copy, Debug)]
struct Trial {
    began: Time,
    /// The number of connections before, and the rates that they had: moved, and acknowledged.
    connections: usize,
    rates: [Rate; 2],
    by_receiver: bool,
    /// Whether the window is probably a proxy's.
    is_proxied: bool,
}

/// The share of the time for which the buffers hold a path back, in percent.
const HELD: u64 = 50;
/// The least that a connection moves in a round trip if a buffer holds it back: half of the window
/// of a host without window scaling.
const LEAST_WINDOW: Bytes = Bytes::kib(32);
/// The rates of two windows in a row are steady if they differ by less, in percent of the earlier:
/// a connection in slow start waits for buffers that grow with it.
const STEADY: u64 = 15;
/// Further connections stay if the rate grows by this, in percent, ...
const GROWTH: u64 = 5;
/// ... measured over so many windows: the rate of one round trip alone varies by more.
const JUDGED: u64 = 3;
/// The same where less than [`LEAST_WINDOW`] fits the round trip: the rate behind a proxy varies.
const PROXY_GROWTH: u64 = 50;
/// The least length of a window, which is otherwise a round trip.
const WINDOW_LEAST: Span = Span::from_millis(250);
/// The time for further connections to open and to leave slow start, in round trips, and its least
/// length.
const TRIAL_TRIPS: u64 = 20;
const TRIAL_LEAST: Span = Span::from_secs(2);
/// The wait after the first trial that failed; doubles with each further one.
const RETRY: Span = Span::from_secs(30);
/// The time for the rate behind a proxy to settle: its own connection may be in slow start.
const PROXY_SETTLES: Span = Span::from_secs(4);
/// The wait after the first trial behind a proxy that failed: each one fills the proxy's buffers.
const PROXY_RETRY: Span = Span::from_secs(300);

impl Reading {
    /// Adds the counters of one connection.
    pub(super) fn add(&mut self, moved: Bytes, held: HeldTime, [rtt, least]: [Span; 2]) {
        self.moved += moved;
        self.held.by_send_buffer += held.by_send_buffer;
        self.held.by_receiver += held.by_receiver;
        let is_first = self.connections == 0;
        self.rtt = if is_first { rtt } else { self.rtt.min(rtt) };
        self.least_rtt = if is_first { least } else { self.least_rtt.min(least) };
        self.connections += 1;
    }
}

impl ConnectionCount {
    pub(super) fn new(now: Time) -> ConnectionCount {
        let settled = now + PROXY_SETTLES;
        let readings = VecDeque::new();
        ConnectionCount { readings, trial: None, not_before: now, settled, failures: 0 }
    }

    /// Takes the counters, best every 25 ms; `opening` connections have been asked for and are not
    /// among them yet.
    pub(super) fn update(&mut self, now: Time, reading: Reading, opening: usize) -> Option<Change> {
        // Sums over different connections do not compare.
        if self.readings.back().is_some_and(|(_, last)| last.connections != reading.connections) {
            self.readings.clear();
        }
        self.readings.push_back((now, reading));
        let window = reading.rtt.max(WINDOW_LEAST);
        while self.readings.get(1).is_some_and(|(time, _)| *time <= now - window * JUDGED) {
            self.readings.pop_front();
        }
        let middle = self.latest_before(now - window)?;
        let [rate, _] = rates(&middle, &(now, reading));
        if let Some(trial) = self.trial {
            let since = self.latest_before(now - window * JUDGED);
            let rates = since.map_or([Rate::ZERO; 2], |since| rates(&since, &(now, reading)));
            return self.judge(now, &reading, rates, trial, opening);
        }
        let first = self.latest_before(middle.0 - window)?;
        let by_send_buffer = reading.held.by_send_buffer - middle.1.held.by_send_buffer;
        let by_receiver = reading.held.by_receiver - middle.1.held.by_receiver;
        let all = (now - middle.0) * reading.connections as u64;
        let is_held = (by_send_buffer + by_receiver) * 100 > all * HELD;
        let [before, _] = rates(&first, &middle);
        let is_steady = grown(before, 100 + STEADY) > rate && grown(rate, 100 + STEADY) > before;
        let more = MOST_CONNECTIONS.saturating_sub(reading.connections).min(reading.connections);
        let least = LEAST_WINDOW.0 * reading.connections as u64;
        let is_proxied = (rate * reading.least_rtt).0 < least;
        let not_before =
            if is_proxied { self.not_before.max(self.settled) } else { self.not_before };
        if !is_held || !is_steady || more == 0 || now < not_before {
            return None;
        }
        let by_receiver = by_receiver > by_send_buffer;
        let rates = rates(&first, &(now, reading));
        let connections = reading.connections;
        self.trial = Some(Trial { began: now, connections, rates, by_receiver, is_proxied });
        Some(Change::Open(more))
    }

    /// Ends a trial that has succeeded or failed.
    fn judge(
        &mut self,
        now: Time,
        reading: &Reading,
        rates: [Rate; 2],
        trial: Trial,
        opening: usize,
    ) -> Option<Change> {
        let Trial { began, connections, by_receiver, .. } = trial;
        let (growth, retry) =
            if trial.is_proxied { (PROXY_GROWTH, PROXY_RETRY) } else { (GROWTH, RETRY) };
        // A proxy's buffers take what comes; only what the receiver acknowledges counts.
        let have_grown = rates
            .iter()
            .zip(trial.rates)
            .all(|(rate, before)| *rate >= grown(before, 100 + growth));
        if reading.connections > connections && have_grown {
            self.trial = None;
            self.failures = 0;
            return Some(Change::Keep { by_receiver });
        }
        let patience = (reading.rtt * TRIAL_TRIPS).max(TRIAL_LEAST);
        if opening > 0 || now - began < patience {
            return None;
        }
        self.trial = None;
        self.not_before = now + retry * (1 << self.failures.min(6));
        self.failures += 1;
        (reading.connections > connections).then_some(Change::Close(connections))
    }

    /// The latest reading that is no younger than `time`.
    fn latest_before(&self, time: Time) -> Option<(Time, Reading)> {
        self.readings.iter().rev().find(|(taken, _)| *taken <= time).copied()
    }
}

/// The rates between two readings of the same connections: moved, and acknowledged.
fn rates(earlier: &(Time, Reading), later: &(Time, Reading)) -> [Rate; 2] {
    let span = later.0 - earlier.0;
    [(later.1.moved - earlier.1.moved) / span, (later.1.acked - earlier.1.acked) / span]
}

/// `percent` of a rate.
fn grown(rate: Rate, percent: u64) -> Rate {
    Rate::from_bits(rate.as_bits() / 100 * percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a path of so many connections does at that time: its rate, and the share of the time
    /// for which buffers hold them back, in percent.
    type Line = fn(Span, usize) -> (Rate, u64);

    /// The changes of a path, with their times in milliseconds and the number of connections then.
    /// Connections open within 600 ms, or never.
    fn changes(seconds: u64, rtt: Span, opens: bool, line: Line) -> Vec<(u64, usize, Change)> {
        changes_before(seconds, rtt, opens, line, Rate::mbit(10_000))
    }

    /// The same where the receiver gets no more than `most`.
    fn changes_before(
        seconds: u64,
        rtt: Span,
        opens: bool,
        line: Line,
        most: Rate,
    ) -> Vec<(u64, usize, Change)> {
        const STEP: Span = Span::from_millis(25);
        let mut count = ConnectionCount::new(Time::ZERO);
        let mut reading = Reading { rtt, least_rtt: rtt, connections: 1, ..Reading::default() };
        let (mut now, mut opening, mut open_at) = (Time::ZERO, 0, Time::ZERO);
        let mut found = Vec::new();
        while now < Time::ZERO + Span::from_secs(seconds) {
            now += STEP;
            if opening > 0 && now >= open_at {
                reading.connections += if opens { opening } else { 0 };
                opening = 0;
            }
            let (rate, held) = line(now - Time::ZERO, reading.connections);
            reading.moved += rate * STEP;
            reading.acked += rate.min(most) * STEP;
            reading.held.by_receiver += STEP * reading.connections as u64 * held / 100;
            let Some(change) = count.update(now, reading, opening) else { continue };
            found.push(((now - Time::ZERO).as_millis(), reading.connections, change));
            match change {
                Change::Open(more) => (opening, open_at) = (more, now + Span::from_millis(600)),
                Change::Keep { .. } => {}
                Change::Close(rest) => reading.connections = rest,
            }
        }
        found
    }

    const LONG: Span = Span::from_millis(200);

    /// 200 Mbit/s, of which each connection's buffers carry 60.
    fn fat(_: Span, connections: usize) -> (Rate, u64) {
        let buffers = 60 * connections as u64;
        (Rate::mbit(buffers.min(200)), if buffers <= 200 { 95 } else { 10 })
    }

    /// A proxy takes into its buffers what comes, and passes on 60 Mbit/s.
    #[test]
    fn what_only_a_proxy_takes_is_no_gain() {
        let found = changes_before(20, LONG, true, fat, Rate::mbit(60));
        let kinds: Vec<Change> = found.iter().map(|(_, _, change)| *change).collect();
        assert_eq!(kinds, [Change::Open(1), Change::Close(1)], "{found:?}");
    }

    #[test]
    fn as_many_as_carry_all_and_no_more() {
        let found = changes(120, LONG, true, fat);
        let of = |n: usize| (found[n].1, found[n].2);
        assert_eq!(of(0), (1, Change::Open(1)));
        assert_eq!(of(1), (2, Change::Keep { by_receiver: true }));
        assert_eq!(of(2), (2, Change::Open(2)));
        assert_eq!(of(3), (4, Change::Keep { by_receiver: true }));
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].0 <= 900, "a second shows it: {found:?}");
        assert!(found[2].0 <= 4_000, "{found:?}");
    }

    #[test]
    fn the_last_tenth_of_a_path_is_worth_a_connection() {
        let found = changes(60, LONG, true, |_, n| match n {
            1 => (Rate::mbit(132), 90),
            _ => (Rate::mbit(143), 30),
        });
        let changes: Vec<Change> = found.iter().map(|(_, _, change)| *change).collect();
        assert_eq!(changes, [Change::Open(1), Change::Keep { by_receiver: true }]);
    }

    #[test]
    fn sixteen_at_most() {
        let found = changes(120, LONG, true, |_, n| (Rate::mbit(10 * n as u64), 95));
        let opened = found.iter().map(|(_, _, change)| match change {
            Change::Open(more) => *more,
            Change::Keep { .. } | Change::Close(_) => 0,
        });
        assert_eq!(opened.sum::<usize>(), 15, "{found:?}");
    }

    #[test]
    fn where_the_congestion_window_is_the_bound_one_is_enough() {
        for rtt in [Span::from_millis(1), LONG] {
            let found = changes(60, rtt, true, |_, n| (Rate::mbit(100 * n as u64), 45));
            assert_eq!(found, []);
        }
    }

    /// The kernel's buffers grow behind a connection in slow start, and hold it back meanwhile.
    #[test]
    fn slow_start_is_not_mistaken_for_a_bound() {
        let found = changes(10, LONG, true, |since, _| {
            let trips = u32::try_from(since.as_millis() / 200).expect("some seconds");
            let rate = Rate::kbit(500 << trips.min(8));
            (rate, if trips < 8 { 90 } else { 5 })
        });
        assert_eq!(found, []);
    }

    #[test]
    fn a_receiver_that_reads_slowly_gets_no_more_for_long() {
        let found = changes(200, Span::from_millis(6), true, |_, _| (Rate::mbit(50), 95));
        let tries: Vec<u64> = found
            .iter()
            .filter(|(_, _, change)| *change == Change::Open(1))
            .map(|(millis, ..)| millis / 1_000)
            .collect();
        let closed = found.iter().filter(|(_, n, change)| (*n, *change) == (2, Change::Close(1)));
        assert_eq!(closed.count(), tries.len(), "{found:?}");
        assert_eq!(found.len(), 2 * tries.len(), "{found:?}");
        assert!(tries.len() <= 3, "{tries:?}");
        assert!(tries[2] - tries[1] > (tries[1] - tries[0]) * 3 / 2, "{tries:?}");
    }

    /// Found on a path of 20 Mbit/s behind a proxy: sixteen connections, because its rate varies,
    /// and 30 MB in its buffers.
    #[test]
    fn a_varying_rate_behind_a_proxy_keeps_no_connections() {
        let found = changes(60, Span::from_micros(50), true, |since, _| {
            let later = if since.as_millis() / 3_000 % 2 == 0 { 18 } else { 21 };
            (Rate::mbit(later), 95)
        });
        let kept = found.iter().filter(|(_, _, change)| matches!(change, Change::Keep { .. }));
        assert_eq!((kept.count(), found.len()), (0, 2), "{found:?}");
        // A proxy that holds each connection back is another matter.
        let found = changes(60, Span::from_micros(50), true, |_, n| {
            (Rate::mbit(10 * n.min(4) as u64), if n <= 4 { 95 } else { 10 })
        });
        let kept = found.iter().filter(|(_, _, change)| matches!(change, Change::Keep { .. }));
        assert_eq!(kept.count(), 2, "{found:?}");
    }

    #[test]
    fn connections_that_do_not_open_are_not_closed() {
        let found = changes(25, LONG, false, fat);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].1, found[0].2), (1, Change::Open(1)));
    }
}
