//! The sending half.

mod ack;
mod queue;
mod scoreboard;
mod timer;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use policy::cc::{Allowance, Choke, Controller, Sent, Start};
use recovery::{
    HyStart, OwnPacing, Pace, PathControl, Rack, RateReduction, RoundTrip, SendLimit, SendPhase,
    Sending,
};
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::{CeCounters, Flags};

use crate::{Config, Detection, NEVER};
use scoreboard::{Record, Scoreboard, SendContext};
use timer::TimerKind;

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets with payload or a FIN, retransmissions included.
    pub sent: u64,
    /// Retransmissions.
    pub retransmitted: u64,
    /// Packets declared lost.
    pub lost: u64,
    /// Fast recoveries.
    pub recoveries: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes (RFC 8985, section 7).
    pub probes: u64,
    /// Recoveries and timeouts that were undone because nothing had been lost.
    pub undone: u64,
    /// Reductions because of a mark (ECN).
    pub marks: u64,
    /// Packets of ours that arrived with a mark, by the receiver's count (RFC 9768).
    pub ce_packets: u64,
    /// Their payload.
    pub ce_bytes: Bytes,
}

/// The sending half's part of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataFields {
    pub(crate) seq: u64,
    pub(crate) len: u16,
    pub(crate) flags: Flags,
}

/// The sending half. Positions begin at 1, behind the SYN.
///
/// The order of the fields is fixed, so that thousands of senders in turn touch few cache lines:
/// first the fields that an endpoint without data to send needs too, then those of each packet and
/// each acknowledgement, then the rest.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Sender {
    config: Arc<Config>,
    /// The first position not acknowledged (`SND.UNA`).
    una: u64,
    /// The next position to be sent for the first time (`SND.NXT`).
    next: u64,
    /// The position behind the last byte that the application wrote.
    written: u64,
    /// The end of the receiver's window.
    window_end: u64,
    /// When the timer expires.
    timer: Time,
    /// When RACK declares the next packet lost.
    rack_due: Time,
    id: SubflowId,
    /// The purpose of the timer.
    timer_kind: TimerKind,
    is_closing: bool,
    has_sent_fin: bool,
    owes_cwr: bool,
    /// Whether a tail loss probe is unanswered.
    has_tail_probe: bool,
    /// Whether the configuration's initial threshold was applied, if there is one.
    has_threshold: bool,
    /// Whether the controller needs the state at each packet's sending.
    keeps_contexts: bool,
    /// Whether anything is in `record_ends`.
    has_records: bool,
    /// Duplicate acknowledgements (without SACK): packets that have left the network.
    duplicates: u32,
    path: PathControl<Box<HyStart>>,
    last_sent_at: Time,
    /// [`Stats::sent`].
    sent: u64,
    phase: Phase,
    spurious_check: SpuriousCheck,
    board: Scoreboard,
    /// Marks before the acknowledgement of this position cause no further reduction.
    marked_until: u64,
    /// Duplicate acknowledgements up to this position may be caused by needless retransmissions
    /// (`recover` of RFC 6582, section 3.2, step 2).
    recover: u64,
    /// The counters without [`Stats::sent`], which is kept in `sent`.
    stats: Stats,
    rack: Rack,
    /// Every transmission in order, for RACK: time and position.
    log: VecDeque<(Time, u64)>,
    /// The receiver's counters of marks, as last seen, and when the controller was last told.
    ce: CeCounters,
    ce_told: CeCounters,
    /// The positions behind records that were not sent to their end, in order.
    record_ends: VecDeque<u64>,
    /// The position and the acknowledgement in the segment that told `window_end` (`SND.WL1`,
    /// `SND.WL2`).
    window_told: (u64, u64),
}

/// The test by timestamps whether the last reduction was spurious (Eifel, RFC 3522).
#[derive(Clone, Copy, Debug)]
enum SpuriousCheck {
    /// A reduction happened; nothing has been retransmitted yet.
    Armed,
    /// The first retransmission carried the timestamp `at`; `last` is the highest position
    /// retransmitted so far.
    Sent { at: u32, last: u64 },
    /// The test is decided: a retransmission was acknowledged, or all originals were.
    Decided,
}

/// The phase of loss recovery.
#[derive(Clone, Debug)]
enum Phase {
    /// No losses are being repaired.
    Open,
    /// Fast recovery, until `end` is acknowledged. `has_partial`: a part of it has been.
    Recovery {
        end: u64,
        reduction: Option<Box<RateReduction>>,
        is_first_sent: bool,
        has_partial: bool,
    },
    /// After a timeout, until `end` is acknowledged: slow start with retransmissions.
    Timeout { end: u64 },
}

impl Sender {
    pub(crate) fn new(config: Arc<Config>, id: SubflowId) -> Sender {
        let hystart = config.hystart.then(|| Box::new(HyStart::new()));
        Sender {
            id,
            path: PathControl::new(Time::ZERO, config.min_rto, hystart),
            board: Scoreboard::default(),
            una: 1,
            next: 1,
            written: 1,
            is_closing: false,
            has_sent_fin: false,
            window_end: 1,
            window_told: (0, 0),
            rack: Rack::default(),
            log: VecDeque::new(),
            phase: Phase::Open,
            duplicates: 0,
            marked_until: 0,
            owes_cwr: false,
            timer: NEVER,
            timer_kind: TimerKind::Retransmission,
            rack_due: NEVER,
            has_tail_probe: false,
            ce: CeCounters::default(),
            ce_told: CeCounters::default(),
            has_threshold: config.initial_threshold.is_none(),
            keeps_contexts: false,
            has_records: false,
            record_ends: VecDeque::new(),
            last_sent_at: Time::ZERO,
            spurious_check: SpuriousCheck::Decided,
            recover: 0,
            sent: 0,
            stats: Stats::default(),
            config,
        }
    }

    /// The connection is open. `rtt` is the round-trip time of the handshake, if known; the peer's
    /// window ends at `window_end`.
    pub(crate) fn handle_open<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        rtt: Option<Span>,
        window_end: u64,
        cc: &mut C,
    ) {
        if let Some(rtt) = rtt {
            self.path.rtt.handle_sample(rtt, 1);
        }
        self.window_end = window_end;
        self.path.rate.restart(now);
        self.last_sent_at = now;
        self.keeps_contexts = cc.wants_snapshots();
        cc.handle_add(
            now,
            self.id,
            &Start { mss: self.config.mss, initial_window: self.config.initial_window, rtt },
        );
    }

    pub(crate) fn write(&mut self, bytes: Bytes) {
        self.written = self.written.saturating_add(bytes.0);
    }

    pub(crate) fn write_record(&mut self, bytes: Bytes) {
        if bytes == Bytes::ZERO {
            return;
        }
        self.write(bytes);
        self.record_ends.push_back(self.written);
        self.has_records = true;
    }

    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }

    /// Whether the peer has acknowledged our FIN.
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.has_sent_fin && self.una == self.next
    }

    pub(crate) fn acked(&self) -> Bytes {
        Bytes(self.una.min(self.written) - 1)
    }

    /// The next position to be sent for the first time.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    #[inline]
    pub(crate) fn in_flight(&self) -> Bytes {
        Bytes(self.board.in_flight.saturating_sub(u64::from(self.duplicates) * self.config.mss.0))
    }

    pub(crate) fn rtt(&self) -> &RoundTrip {
        &self.path.rtt
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats { sent: self.sent, ..self.stats }
    }

    #[inline]
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn id(&self) -> SubflowId {
        self.id
    }

    /// The next data segment, without the receiving half's fields.
    #[inline]
    pub(crate) fn poll_send<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        cc: &mut C,
    ) -> Option<DataFields> {
        self.path.release();
        if self.una == self.next
            && self.is_idle()
            && self.path.rate.is_idle_noted(self.board_in_flight())
        {
            // The usual case of an endpoint that only receives: the controller need not be asked.
            return None;
        }
        let allowance = cc.allowance(self.id);
        if !self.may_send(now, &allowance, cc) {
            return None;
        }
        let (seq, span, is_fin) = if let Some(lost) = self.board.first_lost() {
            (lost.seq, lost.span, lost.is_fin)
        } else if let Some((span, is_fin)) = self.next_new() {
            (self.next, span, is_fin)
        } else if let Some(record) = self.presumed_lost() {
            (record.seq, record.span, record.is_fin)
        } else {
            if self.board.is_empty() {
                // If the window is closed, a window probe will be due.
                self.arm(now, false);
            }
            return None;
        };
        Some(self.transmit(now, seq, span, is_fin, &allowance, cc))
    }

    /// Whether window, recovery budget and pacing allow a packet.
    #[inline]
    fn may_send<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        allowance: &Allowance,
        cc: &C,
    ) -> bool {
        let mss = self.config.mss;
        if self.is_idle() {
            if self.in_flight() + mss <= allowance.window {
                self.path.rate.note_idle(self.board_in_flight());
            }
            return false;
        }
        if let Choke::Choked { probe_at } = allowance.state
            && self.path.is_choked(now, probe_at, Bytes(self.board.in_flight))
        {
            return false;
        }
        let in_flight = self.in_flight();
        match self.phase {
            // The first retransmission ignores the window.
            Phase::Recovery { is_first_sent: false, .. } if self.board.lost > 0 => return true,
            Phase::Recovery { reduction: Some(ref reduction), .. } => {
                if !reduction.allows(mss) {
                    return false;
                }
            }
            _ => {
                if in_flight + mss > allowance.window.max(mss) {
                    return false;
                }
            }
        }
        let pace = self.pace(allowance);
        let is_slow_start =
            || cc.threshold(self.id).is_none_or(|threshold| allowance.window < threshold);
        self.path.is_paced(now, &pace, is_slow_start)
    }

    /// What it does, and what it waits for, by the last [`Sender::poll_send`].
    pub(crate) fn sending<C: Controller + ?Sized>(&self, now: Time, cc: &C) -> Sending {
        let allowance = cc.allowance(self.id);
        let phase = match self.phase {
            Phase::Recovery { .. } => SendPhase::Recovery,
            Phase::Timeout { .. } => SendPhase::Timeout,
            Phase::Open => match cc.threshold(self.id) {
                Some(threshold) if allowance.window >= threshold => SendPhase::Avoidance,
                _ => SendPhase::SlowStart,
            },
        };
        let has_old = self.lost() > 0 || self.presumed_lost().is_some();
        let limit = if self.is_idle() {
            SendLimit::Application
        } else if !has_old && self.next_new().is_none() {
            SendLimit::Receiver
        } else if allowance.state == Choke::Open && self.path.is_held(now) {
            SendLimit::Pacing
        } else {
            SendLimit::Window
        };
        Sending { phase, limit }
    }

    /// What limits the pace: the controller's rate, or ten packets at once.
    #[inline]
    fn pace(&self, allowance: &Allowance) -> Pace {
        let packet = self.config.mss;
        let own = if self.config.pacing {
            OwnPacing::Burst(Bytes(10 * packet.0))
        } else {
            OwnPacing::Off
        };
        let given = allowance.pacing.map(|rate| (rate, allowance.burst));
        Pace { packet, window: allowance.window, given, own }
    }

    /// Whether there is nothing to send.
    #[inline]
    fn is_idle(&self) -> bool {
        self.unsent() == 0
            && (self.has_sent_fin || !self.is_closing)
            && self.lost() == 0
            && self.presumed_lost().is_none()
    }

    /// The packet that is retransmitted if there is nothing else to send. RACK has tail loss probes
    /// instead.
    #[inline]
    fn presumed_lost(&self) -> Option<&Record> {
        let is_recovering = matches!(self.phase, Phase::Recovery { .. });
        if is_recovering && self.config.detection == Detection::Sack {
            self.board.presumed_lost()
        } else {
            None
        }
    }

    /// Payload in flight by the scoreboard, which is not read if everything is acknowledged.
    #[inline]
    fn board_in_flight(&self) -> Bytes {
        Bytes(if self.una == self.next { 0 } else { self.board.in_flight })
    }

    /// Payload lost and not retransmitted.
    #[inline]
    fn lost(&self) -> u64 {
        if self.una == self.next { 0 } else { self.board.lost }
    }

    /// Bytes written and never sent. The FIN has a position of its own behind the last byte.
    #[inline]
    pub(crate) fn unsent(&self) -> u64 {
        self.written.saturating_sub(self.next)
    }

    /// The size of the next packet of new data, and whether it is the FIN.
    #[inline]
    fn next_new(&self) -> Option<(u32, bool)> {
        let room = self.window_end.saturating_sub(self.next);
        let mut waiting = self.unsent();
        let full = self.config.mss.0;
        if waiting == 0 {
            return (self.is_closing && !self.has_sent_fin).then_some((1, true));
        }
        if self.has_records
            && let Some(end) = self.record_ends.front()
        {
            waiting = waiting.min(end - self.next);
        }
        let len = waiting.min(room).min(full);
        // Small packets only at the end of the data or of a record, or into a small window (RFC
        // 1122, section 4.2.3.4).
        let is_whole = len == full || len == waiting || (len > 0 && self.board.is_empty());
        (len > 0 && is_whole).then(|| (u32::try_from(len).expect("at most an MSS"), false))
    }

    /// Records a transmission and returns its segment.
    fn transmit<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        seq: u64,
        span: u32,
        is_fin: bool,
        allowance: &Allowance,
        cc: &mut C,
    ) -> DataFields {
        let is_retransmission = seq < self.next;
        if self.board.in_flight == 0 {
            if !is_retransmission
                && self.board.is_empty()
                && now - self.last_sent_at > self.path.rtt.timeout()
            {
                cc.handle_idle_restart(now, self.id);
            }
            // A new flight begins.
            self.path.rate.restart(now);
        }
        let payload = u64::from(span) - u64::from(is_fin);
        let record = Record {
            seq,
            span,
            is_fin,
            tag: self.board.flight(),
            is_retransmitted: is_retransmission,
            is_app_limited: self.path.rate.is_app_limited(),
            sent_at: now,
        };
        let context = self.keeps_contexts.then(|| SendContext {
            window: allowance.window,
            in_flight: self.in_flight() + Bytes(payload),
            rates: self.path.rate.snapshot(),
        });
        if is_retransmission {
            self.stats.retransmitted += 1;
            match &mut self.spurious_check {
                SpuriousCheck::Armed => {
                    self.spurious_check = SpuriousCheck::Sent { at: stamp_of(now), last: seq }
                }
                SpuriousCheck::Sent { last, .. } => *last = (*last).max(seq),
                SpuriousCheck::Decided => {}
            }
            self.board.retransmit(record, context);
        } else {
            self.board.push(record, context);
            self.next = seq + u64::from(span);
            self.has_sent_fin |= is_fin;
            if self.has_records {
                if self.record_ends.front().is_some_and(|end| *end <= self.next) {
                    self.record_ends.pop_front();
                }
                self.has_records = !self.record_ends.is_empty();
            }
        }
        if self.config.detection == Detection::Rack {
            self.log.push_back((now, seq));
        }
        if let Phase::Recovery { reduction, is_first_sent, .. } = &mut self.phase {
            *is_first_sent = true;
            if let Some(reduction) = reduction {
                reduction.handle_sent(Bytes(payload.max(1)));
            }
        }
        self.sent += 1;
        self.last_sent_at = now;
        // Pacing rates are of payload.
        let pace = self.pace(allowance);
        self.path.handle_sent(now, Bytes(payload), &pace);
        let in_flight = self.in_flight();
        cc.handle_sent(now, self.id, &Sent { bytes: Bytes(payload), in_flight, is_retransmission });
        // A retransmission of the first missing packet restarts the timer: the duplicates before it
        // may have taken most of a round trip.
        self.arm(now, is_retransmission && seq == self.una && !self.is_impatient());
        let mut flags = Flags::default();
        if is_fin {
            flags = flags.with(Flags::FIN);
        }
        if self.owes_cwr && !is_retransmission {
            self.owes_cwr = false;
            flags = flags.with(Flags::CWR);
        }
        let len = u16::try_from(payload).expect("an MSS fits");
        DataFields { seq, len, flags }
    }
}

/// The timestamp clock: microseconds, wrapping after 71 minutes.
pub(crate) fn stamp_of(now: Time) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "it wraps by design")]
    let stamp = (now.as_nanos() / 1_000) as u32;
    stamp
}
