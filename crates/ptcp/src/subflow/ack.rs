//! Acknowledgements: delivery, loss detection, and the beginning and end of recovery.

use alloc::vec::Vec;

use policy::cc::{Acked, Congestion, Controller, Lost, Signal};
use recovery::RateReduction;
use units::{Bytes, Span, Time};
use wire::ptcp::{Ack, PacketRange};

use super::timer::TIMEOUT_AFTER;
use super::{BLACK_HOLE, DeclaredLost, Outcome, PacketState, Phase, Record, Subflow};

/// Packets delivered beyond a lost one before reordering is ruled out (RFC 8985, section 6.2).
const THRESHOLD: u64 = 3;
/// Round trips in which a packet declared lost may still count as spurious.
const LATE_ROUND_TRIPS: u64 = 4;

/// The peer acknowledged a packet that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadAck {
    /// The packet number.
    pub(crate) number: u64,
}

/// The result of one acknowledgement.
struct Delivered<B> {
    /// Bytes acknowledged for the first time.
    bytes: u64,
    /// The latest sent of the delivered packets, and its number.
    newest: Option<(u64, Record<B>)>,
    /// Whether `Ack::largest` is newly acknowledged.
    is_sample: bool,
    /// Whether a packet that was declared lost has arrived.
    has_late: bool,
    /// Whether all packets lost in the last congestion event have arrived after all.
    is_undone: bool,
}

impl<B: Copy> Subflow<B> {
    /// An acknowledgement of this path's packets arrived.
    pub(crate) fn handle_ack(
        &mut self,
        now: Time,
        ack: &Ack,
        cc: &mut dyn Controller,
        outcomes: &mut Vec<Outcome<B>>,
    ) -> Result<(), BadAck> {
        if ack.largest >= self.next {
            return Err(BadAck { number: ack.largest });
        }
        let was_in_recovery = matches!(self.phase, Phase::Recovery { .. });
        let was_lost = self.stats.lost;
        let mut delivered = Delivered {
            bytes: 0,
            newest: None,
            is_sample: false,
            has_late: false,
            is_undone: false,
        };
        let latest = PacketRange { back: 0, len: ack.first };
        for &PacketRange { back, len } in core::iter::once(&latest).chain(&*ack.older) {
            if len > 0 {
                let last = ack.largest.saturating_sub(u64::from(back));
                self.mark_delivered(now, last, len, ack.largest, &mut delivered, outcomes)?;
            }
        }
        if delivered.bytes == 0 && !delivered.has_late {
            return Ok(());
        }
        self.heard_at = Some(now - self.waited(ack));
        let rtt = self.sample(now, ack, &delivered);
        self.largest = self.largest.max(Some(ack.largest));
        if core::mem::take(&mut self.expired) >= TIMEOUT_AFTER {
            self.restart(now, cc);
        }
        if delivered.has_late {
            self.rack.handle_spurious();
        }
        if delivered.is_undone {
            self.undo(now, cc);
        }
        if let Phase::Recovery { end, .. } = self.phase
            && ack.largest >= end
        {
            self.phase = Phase::Open;
            // Packets that were sent before this recovery began and are declared lost later belong
            // to it.
            self.forgiven = end;
        }
        self.detect_losses(now, cc, outcomes);
        self.note_marks(now, ack, cc);
        let is_safe = self.stats.lost == was_lost;
        let in_flight = self.in_flight();
        if let Phase::Recovery { reduction: Some(reduction), .. } = &mut self.phase
            && delivered.bytes > 0
        {
            reduction.handle_acked(Bytes(delivered.bytes), in_flight, is_safe);
        }
        self.report_acked(now, &delivered, rtt, ack, was_in_recovery, cc);
        self.trim();
        Ok(())
    }

    /// Marks the packets `last - len + 1` to `last` as delivered.
    #[inline]
    fn mark_delivered(
        &mut self,
        now: Time,
        last: u64,
        len: u16,
        largest: u64,
        delivered: &mut Delivered<B>,
        outcomes: &mut Vec<Outcome<B>>,
    ) -> Result<(), BadAck> {
        let first = (last + 1).saturating_sub(u64::from(len));
        if let Some(&number) = self.skipped.iter().find(|number| (first..=last).contains(*number)) {
            return Err(BadAck { number });
        }
        self.mark_late_delivered(first, last, delivered, outcomes);
        let Some(top) = self.index(last) else { return Ok(()) };
        let first = first.max(self.base);
        let min_rtt = self.path.rtt.min();
        let highest = self.largest.unwrap_or(0);
        let (mut number, mut down_to) = (last, first);
        loop {
            let index = usize::try_from(number - self.base).expect("within the records");
            let record = &mut self.records[index];
            match record.state {
                // The packets down to `bottom` were acknowledged before: skips them.
                PacketState::Delivered { down_to: bottom } => {
                    down_to = down_to.min(bottom.max(self.base));
                    number = bottom.max(first);
                }
                PacketState::Skipped => return Err(BadAck { number }),
                PacketState::NonEliciting => {}
                PacketState::InFlight | PacketState::Lost => {
                    let is_late = record.state == PacketState::Lost;
                    if record.bytes > self.small {
                        (self.large_losses, self.is_size_in_question) = (0, false);
                    }
                    if !is_late {
                        self.in_flight -= u64::from(record.bytes);
                        if number < highest {
                            self.rack.handle_reordering();
                        }
                    }
                    delivered.bytes += if is_late { 0 } else { u64::from(record.bytes) };
                    if !is_late {
                        outcomes.extend(record.binding.map(Outcome::Delivered));
                    }
                    record.state = PacketState::Delivered { down_to: number };
                    self.rack.handle_delivered(now, record.sent_at, number + 1, false, min_rtt);
                    if delivered.newest.is_none_or(|(newest, _)| newest < number) && !is_late {
                        delivered.newest = Some((number, *record));
                        delivered.is_sample |= number == largest;
                    }
                }
            }
            if number <= first {
                break;
            }
            number -= 1;
        }
        self.records[top].state = PacketState::Delivered { down_to };
        Ok(())
    }

    /// Packets that were declared lost have arrived.
    fn mark_late_delivered(
        &mut self,
        first: u64,
        last: u64,
        delivered: &mut Delivered<B>,
        outcomes: &mut Vec<Outcome<B>>,
    ) {
        if self.recently_lost.last_key_value().is_none_or(|(latest, _)| *latest < first) {
            return;
        }
        while let Some((&number, late)) = self.recently_lost.range(first..=last).next() {
            if late.epoch == self.epoch {
                self.missing = self.missing.saturating_sub(1);
                delivered.is_undone = self.missing == 0;
            }
            outcomes.extend(late.binding.map(Outcome::Delivered));
            self.recently_lost.remove(&number);
            self.stats.spurious += 1;
            delivered.has_late = true;
        }
    }

    /// How long the peer delayed an acknowledgement, by its word.
    fn waited(&self, ack: &Ack) -> Span {
        Span::from_micros(u64::from(ack.delay) * Ack::DELAY_UNIT).min(self.max_ack_delay)
    }

    /// The round-trip sample of the packet that caused the acknowledgement.
    fn sample(&mut self, now: Time, ack: &Ack, delivered: &Delivered<B>) -> Option<Span> {
        let (_, record) = delivered.newest.filter(|_| delivered.is_sample)?;
        let raw = now - record.sent_at;
        // The reported delay must not bring a sample below the minimum (RFC 9002, section 5.3).
        let waited = self.waited(ack);
        let rtt = if raw >= self.path.rtt.min() + waited { raw - waited } else { raw };
        // One sample for every other packet (RFC 7323, appendix G).
        let before = self.in_flight + delivered.bytes;
        self.path.rtt.handle_sample(rtt, before.div_ceil(2 * self.mss.0));
        Some(rtt)
    }

    /// A path that delivered nothing for a time was down, not congested: it restarts with the
    /// threshold from before.
    fn restart(&mut self, now: Time, cc: &mut dyn Controller) {
        cc.handle_undo(now, self.id);
        cc.handle_idle_restart(now, self.id);
        self.phase = Phase::Open;
        self.epoch += 1;
        // The probes that were lost meanwhile are no congestion.
        self.forgiven = self.next;
        // They were lost whatever their size: it is in question only if losses go on.
        if !core::mem::replace(&mut self.is_size_in_question, true) {
            self.large_losses = self.large_losses.min(BLACK_HOLE / 2);
        }
    }

    /// The peer is heard over a path that may have been silent only because it led to an address
    /// that the peer has left. What went there counts as lost. Returns whether it was silent.
    pub(crate) fn revive(
        &mut self,
        now: Time,
        cc: &mut dyn Controller,
        outcomes: &mut Vec<Outcome<B>>,
    ) -> bool {
        if !self.is_silent() {
            return false;
        }
        self.lose_all(now, cc, outcomes);
        self.expired = 0;
        self.restart(now, cc);
        self.trim();
        true
    }

    /// Undoes the last cut: all its losses were reordering or delay.
    fn undo(&mut self, now: Time, cc: &mut dyn Controller) {
        self.phase = Phase::Open;
        // A cut is undone once.
        self.epoch += 1;
        cc.handle_undo(now, self.id);
    }

    /// Detects losses by time (RACK, RFC 8985). Packet numbers are in the order of sending, so the
    /// first packet that is not lost ends the search.
    pub(super) fn detect_losses(
        &mut self,
        now: Time,
        cc: &mut dyn Controller,
        outcomes: &mut Vec<Outcome<B>>,
    ) {
        self.rack_due = None;
        let before = self.in_flight;
        let Some(largest) = self.largest else { return };
        let is_urgent =
            matches!(self.phase, Phase::Recovery { .. }) || largest >= self.scan + THRESHOLD;
        let smoothed = self.path.rtt.smoothed().unwrap_or_default();
        let window = self.rack.window(self.path.rtt.min(), smoothed, is_urgent);
        let (mut last_lost, mut is_large) = (None, false);
        while let Some(index) = self.index(self.scan) {
            let record = self.records[index];
            if record.state == PacketState::InFlight {
                match self.rack.lost_at(record.sent_at, self.scan + 1, window) {
                    Some(at) if at <= now => {
                        self.mark_lost(now, self.scan, cc, outcomes);
                        last_lost = Some(self.scan);
                        is_large |= record.bytes > self.small;
                    }
                    Some(at) => {
                        self.rack_due = Some(at);
                        break;
                    }
                    None => break,
                }
            }
            self.scan += 1;
        }
        let Some(last_lost) = last_lost else { return };
        let is_new = match self.phase {
            Phase::Open => last_lost >= self.forgiven,
            Phase::Recovery { end, .. } => last_lost >= end,
        };
        if is_new {
            self.large_losses += u32::from(is_large);
            self.enter_recovery(now, before, cc, outcomes);
        }
    }

    /// Declares a packet lost.
    pub(super) fn mark_lost(
        &mut self,
        now: Time,
        number: u64,
        cc: &mut dyn Controller,
        outcomes: &mut Vec<Outcome<B>>,
    ) {
        let index = self.index(number).expect("it is in flight");
        let record = &mut self.records[index];
        record.state = PacketState::Lost;
        self.in_flight -= u64::from(record.bytes);
        if !record.is_unbound {
            outcomes.extend(record.binding.map(Outcome::Lost));
        }
        let (sent_at, binding) = (record.sent_at, record.binding);
        let bytes = Bytes(u64::from(record.bytes));
        let lost = Lost { bytes, in_flight_at_sending: Some(Bytes(record.in_flight)), sent_at };
        self.stats.lost += 1;
        if let Some(untold) = &mut self.untold_losses {
            untold.push_back((number, bytes));
        }
        cc.handle_lost(now, self.id, &lost);
        let patience = Span::from_nanos(
            LATE_ROUND_TRIPS * self.path.rtt.smoothed().unwrap_or_default().as_nanos(),
        );
        while let Some((&oldest, late)) = self.recently_lost.first_key_value()
            && now - late.sent_at > patience
        {
            self.recently_lost.remove(&oldest);
        }
        // A loss that begins a congestion event belongs to the next epoch.
        let is_next = match self.phase {
            Phase::Open => number >= self.forgiven,
            Phase::Recovery { end, .. } => number >= end,
        };
        let epoch = if is_next { self.epoch + 1 } else { self.epoch };
        if !is_next {
            self.missing += 1;
        }
        self.recently_lost.insert(number, DeclaredLost { binding, sent_at, epoch });
    }

    /// Begins recovery and reports congestion. `before` is the number of bytes in flight before the
    /// loss.
    fn enter_recovery(
        &mut self,
        now: Time,
        before: u64,
        cc: &mut dyn Controller,
        outcomes: &mut Vec<Outcome<B>>,
    ) {
        self.stats.recoveries += 1;
        self.begin_epoch();
        cc.handle_congestion(
            now,
            self.id,
            &Congestion { signal: Signal::Loss, in_flight: Bytes(before) },
        );
        let target = cc.allowance(self.id).window;
        let reduction =
            cc.wants_rate_reduction().then(|| RateReduction::new(Bytes(before), target, self.mss));
        self.phase = Phase::Recovery { end: self.next, reduction };
        if self.moves_window {
            self.shrink(target.0, outcomes);
        }
    }

    /// A new congestion event; its losses already carry the new epoch.
    pub(super) fn begin_epoch(&mut self) {
        self.epoch += 1;
        let epoch = self.epoch;
        self.missing =
            u32::try_from(self.recently_lost.values().filter(|late| late.epoch == epoch).count())
                .unwrap_or(u32::MAX);
    }

    /// Unbinds the packets outside a window of `window` bytes, counted from the oldest packet in
    /// flight: the paper's re-striping.
    pub(super) fn shrink(&mut self, window: u64, outcomes: &mut Vec<Outcome<B>>) {
        let mut inside = 0;
        for record in self.records.iter_mut().filter(|record| record.state == PacketState::InFlight)
        {
            inside += u64::from(record.bytes);
            if inside > window && !record.is_unbound {
                record.is_unbound = true;
                outcomes.extend(record.binding.map(Outcome::Shrunk));
            }
        }
    }

    /// The connection waits for data in flight on this path: its window is cut, at most once a
    /// window.
    pub(crate) fn penalise(&mut self, now: Time, cc: &mut dyn Controller) {
        if matches!(self.phase, Phase::Open) {
            self.begin_epoch();
            cc.handle_congestion(
                now,
                self.id,
                &Congestion { signal: Signal::Loss, in_flight: self.in_flight() },
            );
            self.phase = Phase::Recovery { end: self.next, reduction: None };
        }
    }

    /// ECN marks count as congestion, once a window.
    fn note_marks(&mut self, now: Time, ack: &Ack, cc: &mut dyn Controller) {
        let (marks, before) = (ack.marks.unwrap_or_default(), self.marks);
        let packets = marks.packets.wrapping_sub(before.packets);
        // Acknowledgements may be reordered.
        if packets == 0 || packets > u16::MAX / 2 {
            return;
        }
        let bytes = marks.bytes.wrapping_sub(before.bytes);
        self.marks = marks;
        self.ce_untold.0 += u64::from(packets);
        self.ce_untold.1 += u64::from(bytes);
        self.stats.marks += u64::from(packets);
        self.stats.marked_bytes += Bytes(u64::from(bytes));
        if matches!(self.phase, Phase::Open) {
            self.begin_epoch();
            cc.handle_congestion(
                now,
                self.id,
                &Congestion { signal: Signal::Mark, in_flight: self.in_flight() },
            );
            self.phase = Phase::Recovery { end: self.next, reduction: None };
        }
    }

    /// Reports the delivered bytes to the controller.
    fn report_acked(
        &mut self,
        now: Time,
        delivered: &Delivered<B>,
        rtt: Option<Span>,
        ack: &Ack,
        in_recovery: bool,
        cc: &mut dyn Controller,
    ) {
        let Some((_, newest)) = delivered.newest else { return };
        self.path.rate.handle_delivered(now, Bytes(delivered.bytes), newest.sent_at);
        self.watch_slow_start(now, rtt, cc);
        let delivery_rate =
            self.path.rate.sample(now, newest.sent_at, &newest.snapshot, self.path.rtt.min());
        // Of an older packet, the delay was reported with its own acknowledgement.
        let one_way = ack.one_way.filter(|_| delivered.is_sample);
        let delays = one_way.map(|data| {
            let waited = u64::from(ack.delay) * Ack::DELAY_UNIT;
            let back = (now - newest.sent_at).as_micros().saturating_sub(waited);
            #[expect(clippy::cast_possible_truncation, reason = "differences of clocks wrap")]
            let back = (back as u32).wrapping_sub(data.get());
            self.path.handle_delays(data.get(), back)
        });
        let (ce_packets, ce_bytes) = core::mem::take(&mut self.ce_untold);
        let acked = Acked {
            bytes: Bytes(delivered.bytes),
            in_flight: self.in_flight(),
            sent_at: newest.sent_at,
            window_at_sending: Some(Bytes(newest.window)),
            rtt,
            smoothed_rtt: self.path.rtt.smoothed().unwrap_or_default(),
            min_rtt: self.path.rtt.min(),
            one_way_delay: delays.map(|(data, _)| data),
            ack_delay: delays.map(|(_, ack)| ack),
            delivery_rate,
            round: self.path.rate.round(),
            ce_packets,
            ce_bytes: Bytes(ce_bytes),
            is_app_limited: newest.is_app_limited,
            in_recovery,
            slow_start_divisor: self.path.slow_start_divisor(),
        };
        cc.handle_acked(now, self.id, &acked);
    }

    /// Ends slow start by delay (`HyStart++`).
    fn watch_slow_start(&mut self, now: Time, rtt: Option<Span>, cc: &mut dyn Controller) {
        let is_over = || {
            let window = cc.allowance(self.id).window;
            cc.threshold(self.id).is_some_and(|threshold| window >= threshold)
        };
        if self.path.ends_slow_start(rtt, is_over) {
            cc.handle_slow_start_end(now, self.id);
        }
    }
}
