//! The sender's state of one path.

use alloc::vec::Vec;

use units::{Bytes, PathId, Span, Time};

use super::answers::Answers;
use super::extent_queue::ExtentQueue;
use super::meter::{Meter, as_rate};
use super::types::{PathReport, PathState, PathTraits, Reason, Sample};
use crate::layout::GRAIN;
use crate::{Extent, ExtentSet};

/// One path: its task, its data in flight, its rate.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) id: PathId,
    pub(super) traits: PathTraits,
    pub(super) state: PathState,
    pub(super) why: Reason,
    pub(super) opened: Time,
    /// Assigned, not sent.
    pub(super) task: ExtentQueue,
    /// Sent on this connection and not acknowledged *on it*, whether still needed or not.
    pub(super) in_flight: ExtentQueue,
    /// The part of `in_flight` that is not acknowledged at all and that this path accounts for. A
    /// byte in flight on several paths is in exactly one path's `owned`.
    pub(super) owned: ExtentSet,
    /// Bytes that arrived on this path, whether they were needed or not.
    pub(super) delivered: u64,
    /// The end of the last part of `in_flight` of which the arrival is known, as an offset. One
    /// connection delivers in order; where the path has several, one of them may be behind.
    passed: u64,
    /// Bytes that reached the receiver by this path first.
    pub(super) acked: u64,
    pub(super) copies: u64,
    pub(super) meter: Meter,
    /// When the first byte was sent.
    pub(super) first_sent: Option<Time>,
    /// When the path last made progress, or began to have something outstanding.
    pub(super) last_progress: Time,
    pub(super) answers: Answers,
    pub(super) proven: bool,
    pub(super) sample: Option<Sample>,
    /// The least time from sending to acknowledgement, and the measurement in progress: the offset
    /// to be acknowledged, and when it was sent.
    least_rtt: Option<Span>,
    rtt_probe: Option<(u64, Time)>,
    /// When the driver last polled it.
    pub(super) last_polled: Time,
    /// The driver was told to wait for a wake-up.
    pub(super) waiting: bool,
}

impl Path {
    pub(super) fn new(now: Time, id: PathId, traits: PathTraits, rate: f64) -> Path {
        Path {
            id,
            traits,
            state: PathState::Proving,
            why: Reason::Opened,
            opened: now,
            task: ExtentQueue::new(),
            in_flight: ExtentQueue::new(),
            owned: ExtentSet::new(),
            delivered: 0,
            passed: 0,
            acked: 0,
            copies: 0,
            meter: Meter::seeded(rate),
            first_sent: None,
            last_progress: now,
            answers: Answers::new(now),
            proven: false,
            sample: None,
            least_rtt: traits.rtt,
            rtt_probe: None,
            last_polled: now,
            waiting: false,
        }
    }

    /// Whether it may carry data.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self.state, PathState::Proving | PathState::Active)
    }

    /// Whether it may carry data and its rate is known.
    pub(super) fn is_active(&self) -> bool {
        self.state == PathState::Active
    }

    /// Bytes in flight, whether still needed or not.
    pub(super) fn outstanding(&self) -> u64 {
        self.in_flight.bytes().0
    }

    /// How many of the outstanding bytes arrive before an extent is there, itself included; `None`
    /// if this path does not carry it.
    pub(super) fn ahead(&self, extent: Extent) -> Option<u64> {
        let end = self.in_flight.offset_of(extent.start)? + extent.len;
        // What was overtaken waits on a slower connection of this path: nobody knows how long.
        Some(if end > self.passed { end - self.passed } else { self.outstanding() })
    }

    /// Whether an acknowledgement is still to come.
    pub(super) fn awaits_ack(&self) -> bool {
        self.outstanding() > 0 || !self.owned.is_empty()
    }

    /// For how long the carrier got nothing through, if it repeats what it loses.
    pub(super) fn silence(&self) -> Option<Span> {
        self.sample?.silence
    }

    /// The delivery rate in bytes per second.
    pub(super) fn rate(&self, now: Time) -> f64 {
        self.meter.rate(now)
    }

    /// The smoothed round-trip time, queues included; zero if unknown.
    pub(super) fn rtt(&self) -> Span {
        match self.sample {
            Some(sample) if sample.rtt > Span::ZERO => sample.rtt,
            _ => self.least_rtt.unwrap_or(Span::ZERO),
        }
    }

    /// The least round-trip time, without queues; zero if unknown.
    pub(super) fn base_rtt(&self) -> Span {
        match self.sample {
            Some(sample) if sample.min_rtt > Span::ZERO => sample.min_rtt,
            _ => self.least_rtt.unwrap_or(Span::ZERO),
        }
    }

    /// Seconds until the `ahead`-th outstanding byte arrives; `ahead` may exceed the outstanding
    /// bytes. Half a round trip's worth of them has arrived already: its acknowledgements are on
    /// their way back.
    pub(super) fn arrival(&self, now: Time, ahead: u64) -> f64 {
        let rate = self.rate(now);
        if rate <= 0.0 {
            return f64::INFINITY;
        }
        let one_way = self.base_rtt().as_secs_f64() / 2.0;
        let queue = Bytes(ahead).as_f64() / rate;
        (queue - one_way).max(one_way)
    }

    /// Seconds until `more` bytes behind the outstanding ones arrive, or one grain if that is more.
    pub(super) fn rest_arrival(&self, now: Time, more: u64) -> f64 {
        self.arrival(now, self.outstanding() + more.max(GRAIN))
    }

    /// Whether its driver is active: bytes are in flight, or it polled within `patience`.
    pub(super) fn is_attended(&self, now: Time, patience: Span) -> bool {
        self.outstanding() > 0 || now - self.last_polled <= patience
    }

    /// Records that an extent was sent.
    pub(super) fn handle_sent(&mut self, now: Time, extent: Extent) {
        if !self.awaits_ack() {
            self.last_progress = now;
            self.answers.handle_busy(now);
        }
        self.first_sent.get_or_insert(now);
        self.in_flight.push_back(extent);
        self.rtt_probe.get_or_insert((self.in_flight.next_offset(), now));
    }

    /// The receiver acknowledged an extent on this connection. Returns whether any of it was in
    /// flight.
    pub(super) fn handle_delivered(&mut self, now: Time, extent: Extent) -> bool {
        let before = self.outstanding();
        let Some(removed) = self.in_flight.remove(extent) else { return false };
        self.passed = self.passed.max(removed.upto);
        self.prune();
        let arrived = before - self.outstanding();
        self.delivered += arrived;
        if let Some((offset, sent)) = self.rtt_probe
            && self.passed >= offset
        {
            let taken = now - sent;
            self.least_rtt = Some(self.least_rtt.map_or(taken, |least| least.min(taken)));
            self.rtt_probe = None;
        }
        let first_sent = self.first_sent.unwrap_or(self.opened);
        self.meter.handle_delivered(now, Bytes(arrived).as_f64(), self.rtt(), first_sent);
        if self.outstanding() == 0 {
            self.meter.handle_idle();
        }
        self.last_progress = now;
        true
    }

    /// Removes an extent from the data in flight: the connection that carried it is gone. Returns
    /// the parts that this path accounted for.
    pub(super) fn forget(&mut self, extent: Extent) -> Vec<Extent> {
        self.in_flight.remove(extent);
        // Whether it was measured is not known.
        self.rtt_probe = None;
        if self.outstanding() == 0 {
            self.meter.handle_idle();
        }
        self.owned.remove(extent)
    }

    /// Removes extents that have left the network from `in_flight`. A connection delivers in order:
    /// whatever lies before the last delivery and is not owned has arrived, and was acknowledged on
    /// another path.
    pub(super) fn prune(&mut self) {
        let passed: Vec<Extent> = self
            .in_flight
            .iter()
            .take_while(|(offset, _)| *offset < self.passed)
            .map(|(offset, extent)| Extent::new(extent.start, extent.len.min(self.passed - offset)))
            .collect();
        for extent in passed {
            for gap in self.owned.gaps(extent).collect::<Vec<_>>() {
                self.in_flight.remove(gap);
            }
        }
    }

    /// The path's report.
    pub(super) fn report(&self, now: Time) -> PathReport {
        PathReport {
            id: self.id,
            state: self.state,
            why: self.why,
            traits: self.traits,
            rate: as_rate(self.rate(now)),
            rtt: self.rtt(),
            acked: Bytes(self.acked),
            task: self.task.bytes(),
            in_flight: Bytes(self.outstanding()),
            copies: Bytes(self.copies),
        }
    }
}
