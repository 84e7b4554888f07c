//! Timers: retransmission, tail loss probe, reordering, window probe.

use policy::cc::Controller;
use units::{Span, Time};
use wire::tcp::Flags;

use super::scoreboard::PacketState;
use super::{DataFields, Phase, Sender, SpuriousCheck};
use crate::{Detection, NEVER};

/// The purpose of the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerKind {
    /// Retransmission timeout (RFC 6298).
    Retransmission,
    /// Tail loss probe (RFC 8985, section 7).
    Tail,
    /// Window probe while the window is closed (RFC 9293, section 3.8.6.1).
    Window,
}

impl Sender {
    /// Sets the timer after a transmission, or restarts it with `is_restart` after an
    /// acknowledgement.
    #[inline]
    pub(super) fn arm(&mut self, now: Time, is_restart: bool) {
        if self.board.is_empty() {
            let is_closed = self.next < self.written && self.window_end <= self.next;
            if !is_closed {
                self.timer = NEVER;
            } else if is_restart || self.timer == NEVER {
                self.set_timer(now + self.path.rtt.timeout(), TimerKind::Window);
            }
            return;
        }
        if !is_restart && self.timer < NEVER && self.timer_kind == TimerKind::Retransmission {
            return;
        }
        let timeout = self.path.rtt.timeout();
        self.set_timer(now + timeout, TimerKind::Retransmission);
        if self.config.detection == Detection::Rack
            && matches!(self.phase, Phase::Open)
            && let Some(smoothed) = self.path.rtt.smoothed()
        {
            // The acknowledgement of a single packet may be delayed.
            let is_alone = self.board.front().map(|record| record.seq)
                == self.board.back().map(|record| record.seq);
            let extra =
                if is_alone { self.config.delayed_ack.unwrap_or_default() } else { Span::ZERO };
            let probe = smoothed + smoothed + extra;
            if probe < timeout && !self.has_tail_probe {
                self.set_timer(now + probe, TimerKind::Tail);
            }
        }
    }

    #[inline]
    fn set_timer(&mut self, at: Time, kind: TimerKind) {
        self.timer = at;
        self.timer_kind = kind;
    }

    /// When the sender is due: the earliest of its timers.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        self.timer.min(self.rack_due).min(self.path.held_until())
    }

    /// Handles expired timers. Returns the segment of a probe, if one is due.
    pub(crate) fn handle_deadline<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        cc: &mut C,
    ) -> Option<DataFields> {
        if self.rack_due <= now {
            self.rack_due = NEVER;
            self.detect_losses(now, cc);
        }
        if self.timer > now {
            return None;
        }
        self.timer = NEVER;
        match self.timer_kind {
            TimerKind::Retransmission => {
                self.time_out(now, cc);
                None
            }
            TimerKind::Tail => self.probe_tail(now, cc),
            TimerKind::Window => {
                // An old position without data: the answer carries the present window.
                self.path.rtt.handle_timeout();
                self.set_timer(now + self.path.rtt.timeout(), TimerKind::Window);
                Some(DataFields { seq: self.una - 1, len: 0, flags: Flags::default() })
            }
        }
    }

    fn time_out<C: Controller + ?Sized>(&mut self, now: Time, cc: &mut C) {
        self.path.rtt.handle_timeout();
        self.stats.timeouts += 1;
        let flight = self.flight_size(cc);
        self.stats.lost += self.board.mark_all_lost();
        if self.config.detection == Detection::Rack {
            self.log.clear();
        }
        self.rack_due = NEVER;
        self.duplicates = 0;
        // If the timer expires again for the same packet, the first retransmission still counts.
        if !matches!(
            (&self.phase, self.spurious_check),
            (Phase::Timeout { .. }, SpuriousCheck::Sent { .. })
        ) {
            self.spurious_check = SpuriousCheck::Armed;
        }
        self.recover = self.next;
        self.phase = Phase::Timeout { end: self.next };
        self.marked_until = self.next;
        cc.handle_timeout(now, self.id, flight);
        self.set_timer(now + self.path.rtt.timeout(), TimerKind::Retransmission);
    }

    /// Retransmits the last packet, so that its acknowledgement reveals what is missing.
    fn probe_tail<C: Controller + ?Sized>(&mut self, now: Time, cc: &mut C) -> Option<DataFields> {
        self.has_tail_probe = true;
        self.stats.probes += 1;
        let last = *self.board.back()?;
        self.set_timer(now + self.path.rtt.timeout(), TimerKind::Retransmission);
        (self.board.state(&last) == PacketState::InFlight).then(|| {
            let allowance = cc.allowance(self.id);
            self.transmit(now, last.seq, last.span, last.is_fin, &allowance, cc)
        })
    }
}
