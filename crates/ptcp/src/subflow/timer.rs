//! Timers: reordering, probes (RFC 9002, section 6.2), and the detection of silent paths.

use alloc::vec::Vec;

use policy::cc::Controller;
use units::{Bytes, Span, Time};

use super::{Outcome, PacketState, Phase, Record, Subflow};

/// The probe timeout of a path whose round-trip time is not known.
pub(crate) const FIRST: Span = Span::from_millis(500);
/// The longest interval between probes of a silent path, so that it is in use again soon after its
/// return.
const MAX_PROBE: Span = Span::from_millis(250);

/// Probe timeouts in a row after which all packets in flight are declared lost.
pub(super) const TIMEOUT_AFTER: u32 = 2;

/// The result of an expired timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Loss detection ran.
    Losses,
    /// An acknowledgement is overdue for the `count`th time in a row: send a probe.
    Probe {
        /// From one on.
        count: u32,
    },
}

impl<B: Copy> Subflow<B> {
    /// The time after the last packet at which an acknowledgement is overdue.
    pub(crate) fn timeout(&self) -> Span {
        let Some(smoothed) = self.path.rtt.smoothed() else { return FIRST };
        let margin =
            Span::from_nanos(4 * self.path.rtt.variation().as_nanos()).max(Span::from_millis(1));
        smoothed + margin + self.max_ack_delay
    }

    fn probe_at(&self) -> Option<Time> {
        let last = self.last_eliciting_at.filter(|_| self.in_flight > 0)?;
        let wait = self.timeout();
        let wait = match self.expired {
            0 => return Some(self.awaited_since(last) + wait),
            // The second expiry is a timeout of the window: no sooner than the least timeout.
            1 => (wait + wait).max(self.min_timeout),
            count => Span::from_nanos(wait.as_nanos() << count.min(10)).min(MAX_PROBE.max(wait)),
        };
        Some(last + wait)
    }

    /// The time from which the first probe timeout counts. RFC 9002 counts from the last packet, of
    /// which this is at most the time; a paced sender whose window is not full would then go on for
    /// a round trip before it notices. So it counts from the last acknowledgement, or from the
    /// oldest packet that it might have named.
    fn awaited_since(&self, last: Time) -> Time {
        let from = usize::try_from(self.scan - self.base).unwrap_or(usize::MAX);
        let mut later = self.records.iter().skip(from);
        let oldest = later.find(|record| record.state == PacketState::InFlight);
        let oldest = oldest.map_or(last, |record| record.sent_at);
        self.heard_at.map_or(oldest, |heard| heard.max(oldest)).min(last)
    }

    /// When to call [`Subflow::handle_deadline`].
    #[inline]
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let never = Time::from_nanos(u64::MAX);
        let at = self.probe_at().unwrap_or(never).min(self.rack_due.unwrap_or(never));
        (at < never).then_some(at)
    }

    /// When pacing allows the next packet, by the last [`Subflow::has_room`].
    #[inline]
    pub(crate) fn held_until(&self) -> Option<Time> {
        let at = self.path.held_until();
        (at < Time::from_nanos(u64::MAX)).then_some(at)
    }

    /// The connection wakes, for what pacing has held until `since` or later.
    pub(crate) fn handle_wake(&mut self, now: Time, since: Time) {
        self.path.handle_wake(now, since);
    }

    /// Handles an expired timer.
    pub(crate) fn handle_deadline(
        &mut self,
        now: Time,
        cc: &mut dyn Controller,
        outcomes: &mut Vec<Outcome<B>>,
    ) -> Option<Expiry> {
        if self.rack_due.is_some_and(|at| at <= now) {
            self.detect_losses(now, cc, outcomes);
            self.trim();
            return Some(Expiry::Losses);
        }
        self.probe_at().filter(|at| *at <= now)?;
        self.expired += 1;
        self.stats.probes += 1;
        let small = self.small;
        let is_large =
            |record: &Record<B>| record.state == PacketState::InFlight && record.bytes > small;
        self.large_losses += u32::from(self.records.iter().any(is_large));
        // The next timeout counts from here, even if no probe can be sent.
        self.last_eliciting_at = Some(now);
        if self.expired == TIMEOUT_AFTER {
            self.time_out(now, cc, outcomes);
        }
        Some(Expiry::Probe { count: self.expired })
    }

    /// Two probe timeouts in a row: the window falls to its minimum, and all data goes elsewhere.
    fn time_out(&mut self, now: Time, cc: &mut dyn Controller, outcomes: &mut Vec<Outcome<B>>) {
        self.stats.timeouts += 1;
        let before = self.in_flight;
        self.lose_all(now, cc, outcomes);
        self.begin_epoch();
        self.phase = Phase::Recovery { end: self.next, reduction: None };
        cc.handle_timeout(now, self.id, Bytes(before));
        self.trim();
    }

    /// Declares all packets in flight lost.
    pub(super) fn lose_all(
        &mut self,
        now: Time,
        cc: &mut dyn Controller,
        outcomes: &mut Vec<Outcome<B>>,
    ) {
        let mut number = self.scan;
        while let Some(index) = self.index(number) {
            if self.records[index].state == PacketState::InFlight {
                self.mark_lost(now, number, cc, outcomes);
            }
            number += 1;
        }
        self.scan = number;
        self.rack_due = None;
    }
}
