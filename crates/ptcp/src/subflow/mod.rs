//! One path's congestion control and loss recovery over packet numbers: the paper's TCP-v. It is
//! independent of the data: the content of a packet is a *binding* of type `B`, which it returns
//! with the packet's outcome.

mod ack;
mod timer;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use policy::cc::{Allowance, Choke, Controller, Sent, Start};
use recovery::{
    HyStart, OwnPacing, Pace, PathControl, Rack, RateReduction, RoundTrip, SendLimit, SendPhase,
    SendSnapshot,
};
use units::{Bytes, Span, SubflowId, Time};
use wire::ptcp::Marks;

pub(crate) use timer::{Expiry, FIRST as FIRST_TIMEOUT};

use crate::Config;

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome<B> {
    /// The packet was acknowledged.
    Delivered(B),
    /// The packet was declared lost.
    Lost(B),
    /// The packet fell outside the window when that shrank, and may still arrive. The paper's
    /// `shrunk`.
    Shrunk(B),
}

/// Loss events in a row without a large packet delivered that indicate a black hole for large
/// packets.
const BLACK_HOLE: u32 = 4;
/// The assumed size of the smallest packets in flight.
const LEAST_PACKET: u64 = 64;
/// Skipped numbers remembered below the records. A peer that acknowledges numbers one after the
/// other reaches a skipped one when the records before it are gone.
const SKIPPED: usize = 8;

/// Counters over the life of a subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Ack-eliciting packets sent.
    pub sent: u64,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets declared lost that arrived after all.
    pub spurious: u64,
    /// Fast recoveries.
    pub recoveries: u64,
    /// Expiries of the probe timer.
    pub probes: u64,
    /// Timeouts, each of which reduced the window to its minimum.
    pub timeouts: u64,
    /// Packets that arrived marked (ECN), by the peer's count.
    pub marks: u64,
    /// Their sizes as UDP payloads.
    pub marked_bytes: Bytes,
}

/// Congestion control and loss recovery of one path.
#[derive(Clone, Debug)]
pub(crate) struct Subflow<B> {
    id: SubflowId,
    /// The size of a full packet for the controller.
    mss: Bytes,
    /// Packets up to this size say nothing of whether larger ones pass.
    small: u32,
    /// Loss events and probe timeouts of larger packets since one was delivered.
    large_losses: u32,
    /// Whether the path was silent and is back, and no larger packet was delivered since.
    is_size_in_question: bool,
    max_ack_delay: Span,
    min_timeout: Span,
    is_pacing: bool,
    moves_window: bool,
    /// Sent packets by number, from `base` on. All below are acknowledged, lost or not
    /// ack-eliciting.
    records: VecDeque<Record<B>>,
    base: u64,
    next: u64,
    /// The latest skipped numbers below `base`.
    skipped: VecDeque<u64>,
    /// No packet below this number is in flight.
    scan: u64,
    /// No packet below this number is bound.
    bound_from: u64,
    /// Packets declared lost recently, which may still arrive.
    recently_lost: BTreeMap<u64, DeclaredLost<B>>,
    in_flight: u64,
    largest: Option<u64>,
    path: PathControl,
    rack: Rack,
    /// When the next packet is declared lost unless it is acknowledged before.
    rack_due: Option<Time>,
    phase: Phase,
    /// The number of congestion events, so that an undo concerns the right one.
    epoch: u32,
    /// Losses of packets below this number do not count as congestion.
    forgiven: u64,
    /// Packets lost in this epoch that have not arrived after all.
    missing: u32,
    /// Expiries of the probe timer since the last acknowledgement.
    expired: u32,
    last_eliciting_at: Option<Time>,
    /// When the last acknowledgement would have arrived if the peer had not delayed it.
    heard_at: Option<Time>,
    /// The peer's counters of marks.
    marks: Marks,
    /// The marks that the controller was not told.
    ce_untold: (u64, u64),
    stats: Stats,
    /// Numbers and sizes of packets declared lost, if they are to be told.
    untold_losses: Option<VecDeque<(u64, Bytes)>>,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Record<B> {
    sent_at: Time,
    binding: Option<B>,
    /// Whether its data was unbound: it is sent again elsewhere, so its loss is not reported.
    is_unbound: bool,
    state: PacketState,
    is_app_limited: bool,
    bytes: u32,
    window: u64,
    in_flight: u64,
    snapshot: SendSnapshot,
}

impl<B> Record<B> {
    /// Whether its loss would be reported.
    fn is_bound(&self) -> bool {
        self.state == PacketState::InFlight && !self.is_unbound && self.binding.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketState {
    InFlight,
    /// Acknowledged, as are all packets down to this number.
    Delivered {
        down_to: u64,
    },
    Lost,
    /// Not ack-eliciting.
    NonEliciting,
    /// Never sent: an acknowledgement of it is a violation (RFC 9000, section 21.4).
    Skipped,
}

/// A packet that was declared lost.
#[derive(Clone, Copy, Debug)]
struct DeclaredLost<B> {
    binding: Option<B>,
    sent_at: Time,
    epoch: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Open,
    /// Fast recovery, until a packet with the number `end` or a higher one is acknowledged.
    Recovery {
        end: u64,
        reduction: Option<RateReduction>,
    },
}

impl<B: Copy> Subflow<B> {
    /// A path opens, with the round-trip time `rtt` if known; `first` is the number of its next
    /// packet.
    pub(crate) fn new(
        config: &Config,
        id: SubflowId,
        now: Time,
        first: u64,
        rtt: Option<Span>,
        cc: &mut dyn Controller,
    ) -> Self {
        let mss = config.max_datagram;
        let initial_window = Bytes(mss.0 * u64::from(config.initial_window));
        cc.handle_add(now, id, &Start { mss, initial_window, rtt });
        let hystart = config.hystart.then(HyStart::new);
        let mut path = PathControl::new(now, Span::ZERO, hystart);
        if let Some(rtt) = rtt {
            path.rtt.handle_sample(rtt, 1);
        }
        Subflow {
            id,
            mss,
            small: small(config.fallback(config.datagram).unwrap_or(config.datagram)),
            large_losses: 0,
            is_size_in_question: false,
            max_ack_delay: config.max_ack_delay,
            min_timeout: config.min_timeout,
            is_pacing: config.pacing,
            moves_window: config.restripe == crate::Restripe::Window,
            records: VecDeque::new(),
            bound_from: first,
            base: first,
            next: first,
            scan: first,
            skipped: VecDeque::new(),
            recently_lost: BTreeMap::new(),
            in_flight: 0,
            largest: None,
            path,
            rack: Rack::default(),
            rack_due: None,
            phase: Phase::Open,
            epoch: 0,
            forgiven: 0,
            missing: 0,
            expired: 0,
            last_eliciting_at: None,
            heard_at: None,
            marks: Marks::default(),
            ce_untold: (0, 0),
            stats: Stats::default(),
            untold_losses: config.tells_losses.then(VecDeque::new),
        }
    }

    /// What it would join a controller with now.
    pub(crate) fn start(&self, config: &Config) -> Start {
        let initial_window = Bytes(self.mss.0 * u64::from(config.initial_window));
        Start { mss: self.mss, initial_window, rtt: self.path.rtt.smoothed() }
    }

    pub(crate) fn id(&self) -> SubflowId {
        self.id
    }

    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    pub(crate) fn mss(&self) -> Bytes {
        self.mss
    }

    pub(crate) fn in_flight(&self) -> Bytes {
        Bytes(self.in_flight)
    }

    pub(crate) fn rtt(&self) -> &RoundTrip {
        &self.path.rtt
    }

    /// The smoothed round-trip time; before the first sample a long one, so that such a path is not
    /// preferred.
    pub(crate) fn round_trip(&self) -> Span {
        self.path.rtt.smoothed().unwrap_or(timer::FIRST)
    }

    /// The smallest round-trip time; before the first sample a long one.
    pub(crate) fn shortest_round_trip(&self) -> Span {
        if self.path.rtt.smoothed().is_some() { self.path.rtt.min() } else { timer::FIRST }
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Number and size of the next packet declared lost, with [`Config::tells_losses`].
    pub(crate) fn poll_lost(&mut self) -> Option<(u64, Bytes)> {
        self.untold_losses.as_mut()?.pop_front()
    }

    /// Whether any packet was acknowledged.
    pub(crate) fn has_delivered(&self) -> bool {
        self.largest.is_some()
    }

    /// Whether large packets seem to be lost for their size (RFC 8899, section 4.3). Resets the
    /// detection.
    #[inline]
    pub(crate) fn poll_black_hole(&mut self) -> bool {
        let is_black = self.large_losses >= BLACK_HOLE;
        if is_black {
            self.large_losses = 0;
        }
        is_black
    }

    /// Packets up to this size say nothing of whether larger ones pass.
    pub(crate) fn set_small(&mut self, bytes: Bytes) {
        self.small = small(bytes);
    }

    /// Whether acknowledgements are overdue: the probe timer expired.
    pub(crate) fn is_silent(&self) -> bool {
        self.expired > 0
    }

    /// How often the probe timer has expired in a row.
    pub(crate) fn expired(&self) -> u32 {
        self.expired
    }

    /// Whether window, recovery budget and pacing allow a full packet.
    #[inline]
    pub(crate) fn has_room(
        &mut self,
        now: Time,
        allowance: &Allowance,
        is_slow_start: bool,
    ) -> bool {
        self.path.release();
        if let Choke::Choked { probe_at } = allowance.state
            && self.path.is_choked(now, probe_at, Bytes(self.in_flight))
        {
            return false;
        }
        if !self.has_window(allowance) {
            return false;
        }
        let pace = self.pace(allowance);
        self.path.is_paced(now, &pace, || is_slow_start)
    }

    /// Whether the window or the budget of recovery has room for a full packet.
    #[inline]
    fn has_window(&self, allowance: &Allowance) -> bool {
        match &self.phase {
            Phase::Recovery { reduction: Some(reduction), .. } => reduction.allows(self.mss),
            _ => Bytes(self.in_flight) + self.mss <= allowance.window.max(self.mss),
        }
    }

    /// How its window develops. After a timeout it is in slow start: packets are not sent again by
    /// the path.
    pub(crate) fn phase(&self, allowance: &Allowance, cc: &dyn Controller) -> SendPhase {
        match &self.phase {
            Phase::Recovery { .. } => SendPhase::Recovery,
            Phase::Open if self.is_in_slow_start(allowance, cc) => SendPhase::SlowStart,
            Phase::Open => SendPhase::Avoidance,
        }
    }

    /// What of the path itself keeps a packet back, by the last [`Subflow::has_room`].
    pub(crate) fn limit(&self, now: Time, allowance: &Allowance) -> Option<SendLimit> {
        if allowance.state != Choke::Open || !self.has_window(allowance) {
            Some(SendLimit::Window)
        } else {
            self.path.is_held(now).then_some(SendLimit::Pacing)
        }
    }

    /// What limits the pace: the controller's rate, or that of the window.
    #[inline]
    fn pace(&self, allowance: &Allowance) -> Pace {
        Pace {
            packet: self.mss,
            window: allowance.window,
            given: allowance.pacing.map(|rate| (rate, allowance.burst)),
            own: if self.is_pacing { OwnPacing::BurstOfRate } else { OwnPacing::Off },
        }
    }

    pub(crate) fn is_in_slow_start(&self, allowance: &Allowance, cc: &dyn Controller) -> bool {
        cc.threshold(self.id).is_none_or(|threshold| allowance.window < threshold)
    }

    /// The window had room and there was nothing to send: the following samples are
    /// application-limited.
    pub(crate) fn note_idle(&mut self) {
        self.path.rate.note_idle(Bytes(self.in_flight));
    }

    /// Skips a packet number, to detect a peer that acknowledges packets it did not receive.
    pub(crate) fn skip_number(&mut self, now: Time) {
        self.push(now, PacketState::Skipped, None, 0, Bytes::ZERO);
    }

    /// A packet leaves that is not ack-eliciting. Returns its number.
    #[inline]
    pub(crate) fn handle_sent_non_eliciting(&mut self, now: Time) -> u64 {
        if self.records.is_empty() {
            // No earlier packet has a record, so it needs none.
            self.base += 1;
            self.next += 1;
            self.scan = self.next;
            return self.next - 1;
        }
        self.push(now, PacketState::NonEliciting, None, 0, Bytes::ZERO)
    }

    /// Whether there are more records than `packets` plus those that may be in flight.
    #[inline]
    pub(crate) fn remembers_more_than(&self, packets: usize) -> bool {
        self.records.len() > packets
            && (self.records.len() - packets) as u64 > self.in_flight / LEAST_PACKET
    }

    /// An ack-eliciting packet of `bytes` leaves. Returns its number.
    #[inline]
    pub(crate) fn handle_sent(
        &mut self,
        now: Time,
        bytes: Bytes,
        binding: Option<B>,
        cc: &mut dyn Controller,
    ) -> u64 {
        if self.in_flight == 0 {
            if let Some(last) = self.last_eliciting_at
                && now - last > self.timeout()
                && self.expired == 0
            {
                cc.handle_idle_restart(now, self.id);
            }
            self.path.rate.restart(now);
        }
        let allowance = cc.allowance(self.id);
        let size = u32::try_from(bytes.0).expect("a packet");
        self.in_flight += bytes.0;
        let number = self.push(now, PacketState::InFlight, binding, size, allowance.window);
        if let Phase::Recovery { reduction: Some(reduction), .. } = &mut self.phase {
            reduction.handle_sent(bytes);
        }
        let pace = self.pace(&allowance);
        self.path.handle_sent(now, bytes, &pace);
        self.stats.sent += 1;
        self.last_eliciting_at = Some(now);
        cc.handle_sent(
            now,
            self.id,
            &Sent { bytes, in_flight: Bytes(self.in_flight), is_retransmission: false },
        );
        number
    }

    #[inline]
    fn push(
        &mut self,
        now: Time,
        state: PacketState,
        binding: Option<B>,
        bytes: u32,
        window: Bytes,
    ) -> u64 {
        self.records.push_back(Record {
            sent_at: now,
            binding,
            is_unbound: false,
            state,
            is_app_limited: self.path.rate.is_app_limited(),
            bytes,
            window: window.0,
            in_flight: self.in_flight,
            snapshot: self.path.rate.snapshot(),
        });
        self.next += 1;
        self.next - 1
    }

    #[inline]
    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.base)?)
            .ok()
            .filter(|index| *index < self.records.len())
    }

    /// Drops the records at the front that are not in flight.
    fn trim(&mut self) {
        while let Some(record) = self.records.front()
            && record.state != PacketState::InFlight
        {
            if record.state == PacketState::Skipped {
                self.skipped.truncate(SKIPPED - 1);
                self.skipped.push_front(self.base);
            }
            self.records.pop_front();
            self.base += 1;
        }
        self.scan = self.scan.max(self.base);
        if self.records.is_empty() {
            // Frees the memory of a burst.
            self.records.shrink_to(256);
        }
    }

    /// The index of the oldest packet that is bound, if any is.
    fn first_bound(&mut self) -> usize {
        // None becomes bound again, so that each is passed once.
        self.bound_from = self.bound_from.max(self.base);
        while let Some(index) = self.index(self.bound_from)
            && !self.records[index].is_bound()
        {
            self.bound_from += 1;
        }
        self.index(self.bound_from).unwrap_or(self.records.len())
    }

    /// The packets in flight that are still bound, oldest first: time of sending, binding, and the
    /// flag that unbinds them.
    pub(crate) fn bound_packets(&mut self) -> impl Iterator<Item = (Time, B, &mut bool)> {
        self.oldest_bound(usize::MAX, |_| true)
    }

    /// The same among the `most` oldest packets from the first that is bound, up to the first one
    /// whose time of sending is not wanted.
    pub(crate) fn oldest_bound(
        &mut self,
        most: usize,
        mut is_wanted: impl FnMut(Time) -> bool,
    ) -> impl Iterator<Item = (Time, B, &mut bool)> {
        let from = self.first_bound();
        let sent = self.records.range_mut(from..).take(most);
        let sent = sent.take_while(move |record| is_wanted(record.sent_at));
        let bound = sent.filter(|record| record.is_bound());
        bound.filter_map(|record| Some((record.sent_at, record.binding?, &mut record.is_unbound)))
    }

    /// Unbinds all packets in flight, so that their data can go elsewhere. The packets stay in
    /// flight and may still arrive.
    pub(crate) fn unbind_all(&mut self, outcomes: &mut Vec<Outcome<B>>) {
        for (_, binding, is_unbound) in self.bound_packets() {
            *is_unbound = true;
            outcomes.push(Outcome::Shrunk(binding));
        }
    }
}

fn small(bytes: Bytes) -> u32 {
    u32::try_from(bytes.0).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
