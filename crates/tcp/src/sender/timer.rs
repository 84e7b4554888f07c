//! Timers: retransmission, the probe of the tail, reordering, the closed window.

use policy::cc::Controller;
use units::{Span, Time};
use wire::tcp::Flags;

use super::scoreboard::State;
use super::{Data, Eifel, Phase, Sender};
use crate::{Detection, NEVER};

/// What the timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Retransmission timeout (RFC 6298).
    Retransmission,
    /// A probe of the tail (RFC 8985, section 7).
    Tail,
    /// The window is closed: a probe asks whether it still is (RFC 9293, section 3.8.6.1).
    Window,
}

impl Sender {
    /// Sets the timer after something was sent, or, with `is_restart`, acknowledged.
    #[inline]
    pub(super) fn arm(&mut self, now: Time, is_restart: bool) {
        if self.board.is_empty() {
            let is_closed = self.next < self.written && self.window_end <= self.next;
            if !is_closed {
                self.timer = NEVER;
            } else if is_restart || self.timer == NEVER {
                self.set_timer(now + self.rtt.timeout(), Kind::Window);
            }
            return;
        }
        if !is_restart && self.timer < NEVER && self.kind == Kind::Retransmission {
            return;
        }
        let timeout = self.rtt.timeout();
        self.set_timer(now + timeout, Kind::Retransmission);
        if self.config.detection == Detection::Rack
            && matches!(self.phase, Phase::Open)
            && let Some(smoothed) = self.rtt.smoothed()
        {
            // One packet alone may wait for a delayed acknowledgement.
            let is_alone = self.board.front().map(|record| record.seq)
                == self.board.back().map(|record| record.seq);
            let extra =
                if is_alone { self.config.delayed_ack.unwrap_or_default() } else { Span::ZERO };
            let probe = smoothed + smoothed + extra;
            if probe < timeout && !self.has_probed {
                self.set_timer(now + probe, Kind::Tail);
            }
        }
    }

    #[inline]
    fn set_timer(&mut self, at: Time, kind: Kind) {
        self.timer = at;
        self.kind = kind;
    }

    /// When the sender has to be looked at.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        self.timer.min(self.rack_due).min(self.held_until)
    }

    /// Does what is due. Gives the segment of a probe.
    pub(crate) fn handle_deadline<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        cc: &mut C,
    ) -> Option<Data> {
        if self.rack_due <= now {
            self.rack_due = NEVER;
            self.detect(now, cc);
        }
        if self.timer > now {
            return None;
        }
        self.timer = NEVER;
        match self.kind {
            Kind::Retransmission => {
                self.time_out(now, cc);
                None
            }
            Kind::Tail => self.probe_tail(now, cc),
            Kind::Window => {
                // Nothing, of long ago: the answer says where the window ends by now.
                self.rtt.handle_timeout();
                self.set_timer(now + self.rtt.timeout(), Kind::Window);
                Some(Data { seq: self.una - 1, len: 0, flags: Flags::default() })
            }
        }
    }

    fn time_out<C: Controller + ?Sized>(&mut self, now: Time, cc: &mut C) {
        self.rtt.handle_timeout();
        self.stats.timeouts += 1;
        let flight = self.flight_size(cc);
        self.stats.lost += self.board.lose_all();
        if self.config.detection == Detection::Rack {
            self.log.clear();
        }
        self.rack_due = NEVER;
        self.duplicates = 0;
        // When the timer runs out again for the same packet, the first retransmission counts.
        if !matches!((&self.phase, self.eifel), (Phase::Timeout { .. }, Eifel::Sent { .. })) {
            self.eifel = Eifel::Armed;
        }
        self.recover = self.next;
        self.phase = Phase::Timeout { end: self.next };
        self.marked_until = self.next;
        cc.handle_timeout(now, self.id, flight);
        self.set_timer(now + self.rtt.timeout(), Kind::Retransmission);
    }

    /// Sends the last packet again, so that an acknowledgement comes that says what is missing.
    fn probe_tail<C: Controller + ?Sized>(&mut self, now: Time, cc: &mut C) -> Option<Data> {
        self.has_probed = true;
        self.stats.probes += 1;
        let last = *self.board.back()?;
        self.set_timer(now + self.rtt.timeout(), Kind::Retransmission);
        (self.board.state(&last) == State::InFlight).then(|| {
            let allowance = cc.allowance(self.id);
            self.transmit(now, last.seq, last.span, last.is_fin, &allowance, cc)
        })
    }
}
