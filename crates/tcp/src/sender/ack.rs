//! Acknowledgements: delivery, loss detection, and the beginning and end of recovery.

use alloc::boxed::Box;

use policy::cc::{Acked, Congestion, Controller, Lost, Signal};
use recovery::RateReduction;
use units::{Bytes, Span, Time};
use wire::tcp::{CeCounters, Flags, SackBlock, Segment};

use super::scoreboard::{Record, SendContext};
use super::{Phase, Sender, SpuriousCheck, stamp_of};
use crate::{Detection, NEVER, accurate_ecn};

/// Duplicate acknowledgements that indicate a loss.
const DUPLICATES: u32 = 3;

/// The result of one acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
struct Delivered {
    /// Payload bytes delivered.
    bytes: u64,
    /// The packets with these.
    packets: u32,
    /// The latest sent of the delivered packets.
    newest: Option<Newest>,
    /// The round-trip time of the latest sent packet that was not retransmitted.
    rtt: Option<Span>,
}

/// The needed fields of a delivered packet's record.
#[derive(Clone, Copy, Debug)]
struct Newest {
    seq: u64,
    sent_at: Time,
    is_app_limited: bool,
    context: Option<SendContext>,
}

impl Sender {
    /// An acknowledgement arrived.
    pub(crate) fn handle_ack<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        segment: &Segment,
        cc: &mut C,
    ) {
        if segment.ack > self.next {
            // Acknowledges data that was never sent (RFC 9293, section 3.10.7.4).
            return;
        }
        let window_end = segment.ack + u64::from(segment.window);
        let has_moved_window = window_end != self.window_end;
        if !has_moved_window
            && segment.ack == self.una
            && segment.sack_count == 0
            && self.una == self.next
            && !self.has_news_of_marks(segment)
        {
            // The usual case of an endpoint that only receives: the acknowledgement has no news.
            debug_assert!(
                self.board.is_empty() && matches!(self.phase, Phase::Open),
                "what ends a phase was acknowledged"
            );
            return;
        }
        // The newest segment tells the window, a smaller one too (RFC 9293, section 3.10.7.4).
        if (segment.seq, segment.ack) >= self.window_told {
            self.window_told = (segment.seq, segment.ack);
            self.window_end = window_end;
        }
        let highest = self.board.highest();
        let old_una = self.una;
        let has_advanced = segment.ack > self.una;
        let was_in_recovery = matches!(self.phase, Phase::Recovery { .. });
        let was_impatient = self.is_impatient();
        let in_flight = self.next - self.una;
        let delivered = self.take_delivered(now, segment, highest);
        let is_marked = self.has_news_of_marks(segment) && self.take_marks(segment, &delivered);
        let is_duplicate = !has_advanced
            && segment.ack == old_una
            && segment.span() == 0
            && !self.board.is_empty()
            && (!has_moved_window || segment.sack_count > 0);
        if let Some(rtt) = delivered.rtt.or_else(|| self.timestamp_rtt(now, segment, has_advanced))
        {
            // One sample for every other packet (RFC 7323, appendix G).
            let expected = in_flight.div_ceil(2 * self.config.mss.0);
            self.path.rtt.handle_sample(rtt, expected);
        }
        if has_advanced || delivered.bytes > 0 {
            self.has_tail_probe = false;
        }
        if has_advanced {
            self.undo_if_spurious(now, segment, cc);
        }
        let new_losses = if self.config.detection.is_selective() {
            self.detect_losses(now, cc)
        } else {
            self.count_duplicates(now, is_duplicate, has_advanced, old_una, cc)
        };
        if is_marked && self.una > self.marked_until && matches!(self.phase, Phase::Open) {
            self.stats.marks += 1;
            self.marked_until = self.next;
            self.owes_cwr = !self.config.accurate_ecn;
            let in_flight = self.flight_size(cc);
            cc.handle_congestion(now, self.id, &Congestion { signal: Signal::Mark, in_flight });
        }
        self.update_recovery(has_advanced, delivered.bytes, !new_losses);
        if delivered.bytes > 0 {
            let delays = self.timestamp_delays(now, segment, has_advanced);
            self.report_acked(now, &delivered, was_in_recovery, delays, cc);
        }
        let restarts = has_advanced
            || delivered.newest.is_some_and(|newest| self.was_sent_before_first(newest.sent_at));
        if restarts && !(was_impatient && self.is_impatient()) {
            self.arm(now, true);
        } else if has_moved_window {
            self.arm(now, false);
        }
    }

    /// Removes the acknowledged packets from the scoreboard.
    #[inline]
    fn take_delivered(&mut self, now: Time, segment: &Segment, highest: u64) -> Delivered {
        let mut delivered = Delivered::default();
        let is_rack = self.config.detection == Detection::Rack;
        let Sender { board, rack, path, .. } = self;
        let min_rtt = path.rtt.min();
        let mut each = |record: &Record, context: Option<&SendContext>| {
            delivered.bytes += record.payload();
            delivered.packets += 1;
            if delivered
                .newest
                .is_none_or(|newest| (newest.sent_at, newest.seq) <= (record.sent_at, record.seq))
            {
                delivered.newest = Some(Newest {
                    seq: record.seq,
                    sent_at: record.sent_at,
                    is_app_limited: record.is_app_limited,
                    context: context.copied(),
                });
                if !record.is_retransmitted {
                    delivered.rtt = Some(now - record.sent_at);
                }
            }
            if is_rack {
                rack.handle_delivered(
                    now,
                    record.sent_at,
                    record.end(),
                    record.is_retransmitted,
                    min_rtt,
                );
                if !record.is_retransmitted && record.end() < highest {
                    rack.handle_reordering();
                }
            }
        };
        if segment.ack > self.una {
            board.advance(segment.ack, &mut each);
        }
        let una = self.una.max(segment.ack);
        let mut is_spurious = false;
        for (index, block) in segment.sacked().iter().enumerate() {
            let from = segment.ack.saturating_add_signed(i64::from(block.from));
            let to = from + u64::from(block.len);
            if index == 0
                && (block.from < 0
                    || segment.sacked().get(1).is_some_and(|next| covers(*next, *block)))
            {
                // A duplicate (RFC 2883): a retransmission was spurious.
                is_spurious = true;
            } else if from >= segment.ack && to <= self.next {
                board.sack(from.max(una), to, &mut each);
            }
        }
        if is_spurious {
            self.rack.handle_spurious();
        }
        self.una = una;
        delivered
    }

    /// Whether a segment says anything of marks beyond what is known. Without marks and without
    /// accurate ECN it has none of these flags, and the configuration is not looked at.
    #[inline]
    fn has_news_of_marks(&self, segment: &Segment) -> bool {
        let flags = Flags::AE.with(Flags::ECE).with(Flags::COUNTERS);
        segment.flags.0 & flags.0 != 0
            && !(self.config.accurate_ecn && accurate_ecn::is_known(self.ce, segment))
    }

    /// What an acknowledgement says of marks; whether it is a sign of congestion.
    #[cold]
    fn take_marks(&mut self, segment: &Segment, delivered: &Delivered) -> bool {
        let new = if !self.config.accurate_ecn {
            segment.ce().since(self.ce)
        } else if delivered.packets > 0 {
            let Delivered { packets, bytes, .. } = *delivered;
            Some(accurate_ecn::news(self.ce, segment, packets, bytes))
        } else {
            // It may be older than the last one, and its three bits would go up by nearly a turn.
            None
        };
        let CeCounters { packets, bytes } = new.unwrap_or_default();
        self.ce.packets = self.ce.packets.wrapping_add(packets);
        self.ce.bytes = self.ce.bytes.wrapping_add(bytes);
        self.stats.ce_packets += u64::from(packets);
        self.stats.ce_bytes += Bytes(u64::from(bytes));
        if self.config.accurate_ecn { packets > 0 } else { segment.flags.has(Flags::ECE) }
    }

    /// The one-way delays of the data and of its acknowledgement by the timestamps, as LEDBAT over
    /// TCP takes them. Only the acknowledgement of data in order echoes the time of that data.
    fn timestamp_delays(
        &mut self,
        now: Time,
        segment: &Segment,
        has_advanced: bool,
    ) -> Option<(Span, Span)> {
        let is_usable = self.config.timestamps && has_advanced && segment.timestamp_echo != 0;
        is_usable.then(|| {
            let data = segment.timestamp.wrapping_sub(segment.timestamp_echo);
            let ack = stamp_of(now).wrapping_sub(segment.timestamp);
            self.path.handle_delays(data, ack)
        })
    }

    /// A round-trip sample from the timestamps, for acknowledgements of retransmitted packets only.
    fn timestamp_rtt(&self, now: Time, segment: &Segment, has_advanced: bool) -> Option<Span> {
        let is_usable = self.config.timestamps && has_advanced && segment.timestamp_echo != 0;
        is_usable.then(|| {
            Span::from_micros(u64::from(stamp_of(now).wrapping_sub(segment.timestamp_echo)))
        })
    }

    /// The Eifel algorithm (RFC 3522): undoes the reduction if the acknowledgements echo the
    /// originals, not the retransmissions. All retransmitted packets must pass the test: a single
    /// real loss justifies the reduction.
    fn undo_if_spurious<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        segment: &Segment,
        cc: &mut C,
    ) {
        let SpuriousCheck::Sent { at, last } = self.spurious_check else { return };
        let is_older = segment.timestamp_echo.wrapping_sub(at).cast_signed() < 0;
        if is_older && self.una <= last {
            return;
        }
        self.spurious_check = SpuriousCheck::Decided;
        if !self.config.timestamps || segment.timestamp_echo == 0 {
            return;
        }
        match self.phase {
            Phase::Recovery { .. } | Phase::Timeout { .. } if is_older => {
                if matches!(self.phase, Phase::Recovery { .. }) {
                    // The original arrived after later packets. Without this, RACK would declare
                    // the packets behind it lost again at once.
                    self.rack.handle_reordering();
                }
                self.phase = Phase::Open;
                let is_rack = self.config.detection == Detection::Rack;
                let Sender { board, log, .. } = self;
                board.restore_lost(|record| {
                    if is_rack {
                        log.push_back((record.sent_at, record.seq));
                    }
                });
                // The restored packets were sent before those in the log.
                log.make_contiguous().sort_unstable();
                // Further duplicate acknowledgements do not come from retransmissions: there was
                // only one.
                self.recover = 0;
                self.path.rtt.handle_undo();
                self.stats.undone += 1;
                cc.handle_undo(now, self.id);
            }
            _ => {}
        }
    }

    /// Detects losses by selective acknowledgements, with RFC 6675 or RACK. Returns whether it
    /// found any.
    pub(super) fn detect_losses<C: Controller + ?Sized>(&mut self, now: Time, cc: &mut C) -> bool {
        let before = self.in_flight();
        let mut has_lost = false;
        let Sender { board, stats, id, .. } = self;
        let mut lose = |record: &Record, context: Option<&SendContext>| {
            has_lost = true;
            stats.lost += 1;
            cc.handle_lost(now, *id, &lost(record, context));
        };
        if self.config.detection == Detection::Sack {
            if board.sacked > 0 {
                let end = board.lost_below(self.config.mss.0);
                board.mark_lost_below(end, &mut lose);
            }
        } else {
            let is_urgent = !matches!(self.phase, Phase::Open)
                || board.sacked >= u64::from(DUPLICATES) * self.config.mss.0;
            let smoothed = self.path.rtt.smoothed().unwrap_or_default();
            let window = self.rack.window(self.path.rtt.min(), smoothed, is_urgent);
            self.rack_due = NEVER;
            while let Some((sent_at, seq)) = self.log.front().copied() {
                let flight = board.flight();
                let Some(record) = board.find(seq).filter(|record| {
                    record.seq == seq && record.sent_at == sent_at && record.tag == flight
                }) else {
                    self.log.pop_front();
                    continue;
                };
                match self.rack.lost_at(sent_at, record.end(), window) {
                    Some(at) if at <= now => {
                        if let Some((record, context)) = board.mark_lost(seq) {
                            lose(&record, context.as_ref());
                        }
                        self.log.pop_front();
                    }
                    Some(at) => {
                        self.rack_due = at;
                        break;
                    }
                    None => break,
                }
            }
        }
        if has_lost {
            self.enter_recovery(now, before, cc);
        }
        has_lost
    }

    /// Detects losses by duplicate acknowledgements. In recovery, a partial acknowledgement is a
    /// further loss for `NewReno`. Returns whether it found any.
    fn count_duplicates<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        is_duplicate: bool,
        has_advanced: bool,
        old_una: u64,
        cc: &mut C,
    ) -> bool {
        let in_flight = self.in_flight();
        let mut has_lost = false;
        if has_advanced {
            // The packets that the duplicates stood for are now acknowledged cumulatively, except
            // the one that filled the gap.
            let packets = (self.una - old_una).div_ceil(self.config.mss.0);
            let uncovered = u32::try_from(packets.saturating_sub(1)).unwrap_or(u32::MAX);
            self.duplicates = self.duplicates.saturating_sub(uncovered);
            if self.board.is_empty() {
                self.duplicates = 0;
            }
            let is_partial = matches!(self.phase, Phase::Recovery { end, .. } if self.una < end);
            if is_partial && self.config.detection == Detection::NewReno {
                if let Phase::Recovery { has_partial, .. } = &mut self.phase {
                    *has_partial = true;
                }
                has_lost = self.mark_first_lost(now, cc);
            } else if is_partial {
                // Reno leaves recovery with any advance.
                self.phase = Phase::Open;
            }
            if matches!(self.phase, Phase::Open) {
                self.duplicates = 0;
            }
        } else if is_duplicate {
            let is_ambiguous = matches!(self.phase, Phase::Open) && self.una <= self.recover;
            let most = if is_ambiguous { DUPLICATES - 1 } else { u32::MAX };
            let in_flight_now = self.board.in_flight / self.config.mss.0.max(1);
            let most = most.min(u32::try_from(in_flight_now).unwrap_or(u32::MAX));
            self.duplicates = (self.duplicates + 1).min(most);
            if self.duplicates == DUPLICATES && matches!(self.phase, Phase::Open) {
                has_lost = self.mark_first_lost(now, cc);
                self.enter_recovery(now, in_flight, cc);
            }
        }
        has_lost
    }

    /// Whether acknowledgements no longer restart the timer: `NewReno` repairs one loss a round
    /// trip, and with many of them a timeout is sooner done. Only the first partial acknowledgement
    /// restarts it (RFC 6582, section 3.2, step 3, the *impatient* variant of section 4).
    pub(super) fn is_impatient(&self) -> bool {
        matches!(self.phase, Phase::Recovery { has_partial: true, .. })
    }

    fn mark_first_lost<C: Controller + ?Sized>(&mut self, now: Time, cc: &mut C) -> bool {
        let Some((record, context)) = self.board.mark_lost(self.una) else { return false };
        self.stats.lost += 1;
        cc.handle_lost(now, self.id, &lost(&record, context.as_ref()));
        true
    }

    /// A loss was found: begins recovery and reports congestion, once a window. `in_flight` is from
    /// before the loss.
    fn enter_recovery<C: Controller + ?Sized>(&mut self, now: Time, in_flight: Bytes, cc: &mut C) {
        if !matches!(self.phase, Phase::Open) {
            return;
        }
        self.stats.recoveries += 1;
        self.spurious_check = SpuriousCheck::Armed;
        self.recover = self.next;
        let flight = self.flight_size(cc);
        cc.handle_congestion(now, self.id, &Congestion { signal: Signal::Loss, in_flight: flight });
        let target = cc.allowance(self.id).window;
        let wants = self.config.rate_reduction
            && self.config.detection.is_selective()
            && cc.wants_rate_reduction();
        let reduction =
            wants.then(|| Box::new(RateReduction::new(in_flight, target, self.config.mss)));
        self.phase =
            Phase::Recovery { end: self.next, reduction, is_first_sent: false, has_partial: false };
        self.marked_until = self.next;
    }

    /// Whether a packet sent at `sent_at` left before the latest transmission of the first missing
    /// packet. Deliveries of later packets do not restart the timer: selective acknowledgements
    /// continue as long as there is data to send, even if the retransmission was lost.
    fn was_sent_before_first(&self, sent_at: Time) -> bool {
        self.board.front().is_none_or(|first| sent_at < first.sent_at)
    }

    /// Payload sent and not acknowledged cumulatively (`FlightSize`), at most the window. Data sent
    /// behind a gap as selective acknowledgements came can be many windows and does not measure
    /// what the path holds (RFC 5681, section 3.2).
    pub(super) fn flight_size<C: Controller + ?Sized>(&self, cc: &C) -> Bytes {
        Bytes(self.next - self.una).min(cc.allowance(self.id).window)
    }

    /// Ends recovery, or updates the budget of rate reduction.
    fn update_recovery(&mut self, has_advanced: bool, delivered: u64, is_safe: bool) {
        let in_flight = self.in_flight();
        match &mut self.phase {
            Phase::Recovery { end, .. } | Phase::Timeout { end } if self.una >= *end => {
                self.phase = Phase::Open;
                self.duplicates = 0;
            }
            Phase::Recovery { reduction: Some(reduction), .. } => {
                reduction.handle_acked(Bytes(delivered), in_flight, has_advanced && is_safe);
            }
            _ => {}
        }
    }

    /// Reports the delivered bytes to the controller.
    fn report_acked<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        delivered: &Delivered,
        in_recovery: bool,
        delays: Option<(Span, Span)>,
        cc: &mut C,
    ) {
        let Some(newest) = delivered.newest else { return };
        let new_marks = self.ce.since(self.ce_told).unwrap_or_default();
        self.ce_told = self.ce;
        self.path.rate.handle_delivered(now, Bytes(delivered.bytes), newest.sent_at);
        let smoothed_rtt = self.path.rtt.smoothed().unwrap_or_default();
        self.watch_slow_start(now, delivered.rtt, cc);
        let acked = Acked {
            bytes: Bytes(delivered.bytes),
            in_flight: self.in_flight(),
            sent_at: newest.sent_at,
            window_at_sending: newest.context.map(|context| context.window),
            rtt: delivered.rtt,
            smoothed_rtt,
            min_rtt: self.path.rtt.min(),
            one_way_delay: delays.map(|(data, _)| data),
            ack_delay: delays.map(|(_, ack)| ack),
            delivery_rate: newest.context.and_then(|context| {
                self.path.rate.sample(now, newest.sent_at, &context.rates, self.path.rtt.min())
            }),
            round: self.path.rate.round(),
            ce_packets: u64::from(new_marks.packets),
            ce_bytes: Bytes(u64::from(new_marks.bytes)),
            is_app_limited: newest.is_app_limited,
            in_recovery,
            slow_start_divisor: self.slow_start_divisor(),
        };
        cc.handle_acked(now, self.id, &acked);
    }

    /// Ends slow start by delay (`HyStart++`), or at the configured threshold.
    fn watch_slow_start<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        rtt: Option<Span>,
        cc: &mut C,
    ) {
        if !self.has_threshold
            && self
                .config
                .initial_threshold
                .is_some_and(|least| cc.allowance(self.id).window >= least)
        {
            self.has_threshold = true;
            cc.handle_slow_start_end(now, self.id);
        }
        if !self.config.hystart {
            return;
        }
        let is_over = || {
            let window = cc.allowance(self.id).window;
            cc.threshold(self.id).is_some_and(|threshold| window >= threshold)
        };
        if self.path.ends_slow_start(rtt, is_over) {
            cc.handle_slow_start_end(now, self.id);
        }
    }

    /// The divisor of the window's growth in conservative slow start.
    #[inline]
    fn slow_start_divisor(&self) -> u32 {
        if !self.config.hystart {
            return 1;
        }
        self.path.slow_start_divisor()
    }
}

fn lost(record: &Record, context: Option<&SendContext>) -> Lost {
    Lost {
        bytes: Bytes(record.payload()),
        in_flight_at_sending: context.map(|context| context.in_flight),
        sent_at: record.sent_at,
    }
}

fn covers(outer: SackBlock, inner: SackBlock) -> bool {
    let end = |block: SackBlock| i64::from(block.from) + i64::from(block.len);
    outer.from <= inner.from && end(inner) <= end(outer)
}
