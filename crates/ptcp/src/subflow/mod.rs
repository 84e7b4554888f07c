//! One path's congestion control and loss recovery over packet numbers: the paper's TCP-v. It knows
//! no data: what a packet carries is a *binding* of type `B` that it keeps, and hands back with
//! what became of the packet.

mod ack;
mod timer;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use policy::cc::{Allowance, Choke, Controller, Sent, Start};
use recovery::{DeliveryRate, HyStart, Pacer, Rack, RateReduction, RoundTrip, SendSnapshot};
use units::{Bytes, Rate, Span, SubflowId, Time};

pub(crate) use timer::Expiry;

use crate::Config;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome<B> {
    /// The peer has it.
    Delivered(B),
    /// It is taken for lost.
    Lost(B),
    /// It fell outside the window when that shrank; it may still arrive. The paper's `shrunk`.
    Shrunk(B),
}

/// Losses in a row after which large packets seem to be lost for their size.
const BLACK_HOLE: u32 = 4;
/// Hardly any packet that is in flight is smaller.
const LEAST_PACKET: u64 = 64;
/// So many skipped numbers are remembered below those that are in flight: for a peer that
/// acknowledges one packet after the other and gets to the skipped one when everything before it is
/// settled.
const SKIPPED: usize = 8;

/// Counts over the life of a subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets sent that want an acknowledgement.
    pub sent: u64,
    /// Packets taken for lost.
    pub lost: u64,
    /// Of these, how many arrived after all.
    pub spurious: u64,
    /// Times that fast recovery began.
    pub recoveries: u64,
    /// Times that the probe timer ran out.
    pub probes: u64,
    /// Times that the window fell to its least.
    pub timeouts: u64,
    /// Congestion marks of the network.
    pub marks: u64,
}

/// Windows, losses and times of one path.
#[derive(Clone, Debug)]
pub(crate) struct Subflow<B> {
    id: SubflowId,
    /// What controllers count as one packet.
    mss: Bytes,
    /// Packets up to this size pass everywhere.
    least: u32,
    /// Times that something was lost, or overdue, since a larger packet arrived.
    large_losses: u32,
    max_ack_delay: Span,
    min_timeout: Span,
    is_pacing: bool,
    moves_window: bool,
    /// What has been sent, by packet number from `base` on; everything below is settled.
    records: VecDeque<Record<B>>,
    base: u64,
    next: u64,
    /// The latest skipped numbers among what is settled.
    skipped: VecDeque<u64>,
    /// Below it, nothing is in flight.
    scan: u64,
    /// Numbers taken for lost a short while ago, should they arrive after all.
    recently_lost: BTreeMap<u64, LostPacket<B>>,
    in_flight: u64,
    largest: Option<u64>,
    rtt: RoundTrip,
    rack: Rack,
    /// When the next packet is lost, unless it is acknowledged before.
    rack_due: Option<Time>,
    phase: Phase,
    /// Counts the congestion events, so that an undo concerns the right one.
    epoch: u32,
    /// Losses below are no congestion.
    forgiven: u64,
    /// Packets lost in this epoch that have not turned up.
    missing: u32,
    hystart: Option<HyStart>,
    pacer: Pacer,
    /// When pacing lets the next packet out.
    held_until: Option<Time>,
    rate: DeliveryRate,
    /// Probe timers that ran out since the last acknowledgement.
    expired: u32,
    last_eliciting_at: Option<Time>,
    marks: u8,
    stats: Stats,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Record<B> {
    sent_at: Time,
    binding: Option<B>,
    /// What it carries is on its way elsewhere too, or waits to be: nobody need be told of its
    /// loss.
    is_unbound: bool,
    state: PacketState,
    is_app_limited: bool,
    bytes: u32,
    window: u64,
    in_flight: u64,
    snapshot: SendSnapshot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketState {
    InFlight,
    /// Acknowledged, as all packets down to this number.
    Delivered {
        down_to: u64,
    },
    Lost,
    /// It wants no acknowledgement.
    NonEliciting,
    /// It was never sent: whoever acknowledges it lies.
    Skipped,
}

/// A packet that was taken for lost.
#[derive(Clone, Copy, Debug)]
struct LostPacket<B> {
    binding: Option<B>,
    sent_at: Time,
    epoch: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Open,
    /// Until a packet is acknowledged that was sent after this began.
    Recovery {
        end: u64,
        reduction: Option<RateReduction>,
    },
}

impl<B: Copy> Subflow<B> {
    /// A path opens, with this round-trip time if it is known; `first` is the number of its next
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
        let mut round_trip = RoundTrip::new(Span::ZERO);
        if let Some(rtt) = rtt {
            round_trip.handle_sample(rtt, 1);
        }
        Subflow {
            id,
            mss,
            least: u32::try_from(config.datagram.0).unwrap_or(u32::MAX),
            large_losses: 0,
            max_ack_delay: config.max_ack_delay,
            min_timeout: config.min_timeout,
            is_pacing: config.pacing,
            moves_window: config.restripe == crate::Restripe::Window,
            records: VecDeque::new(),
            base: first,
            next: first,
            scan: first,
            skipped: VecDeque::new(),
            recently_lost: BTreeMap::new(),
            in_flight: 0,
            largest: None,
            rtt: round_trip,
            rack: Rack::default(),
            rack_due: None,
            phase: Phase::Open,
            epoch: 0,
            forgiven: 0,
            missing: 0,
            hystart: config.hystart.then(HyStart::new),
            pacer: Pacer::new(),
            held_until: None,
            rate: DeliveryRate::new(now),
            expired: 0,
            last_eliciting_at: None,
            marks: 0,
            stats: Stats::default(),
        }
    }

    pub(crate) fn id(&self) -> SubflowId {
        self.id
    }

    pub(crate) fn mss(&self) -> Bytes {
        self.mss
    }

    pub(crate) fn in_flight(&self) -> Bytes {
        Bytes(self.in_flight)
    }

    pub(crate) fn rtt(&self) -> &RoundTrip {
        &self.rtt
    }

    /// The smoothed round-trip time; a long one as long as none is known, so that nothing hurries
    /// over such a path.
    pub(crate) fn round_trip(&self) -> Span {
        self.rtt.smoothed().unwrap_or(timer::FIRST)
    }

    /// The shortest round-trip time, likewise.
    pub(crate) fn shortest_round_trip(&self) -> Span {
        if self.rtt.smoothed().is_some() { self.rtt.min() } else { timer::FIRST }
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether anything was ever acknowledged.
    pub(crate) fn has_delivered(&self) -> bool {
        self.largest.is_some()
    }

    /// Whether it seems that small packets arrive and large ones do not (RFC 8899, section 4.3);
    /// says so once.
    #[inline]
    pub(crate) fn poll_black_hole(&mut self) -> bool {
        let is_black = self.large_losses >= BLACK_HOLE;
        if is_black {
            self.large_losses = 0;
        }
        is_black
    }

    /// Whether acknowledgements have stopped coming: a probe timer ran out.
    pub(crate) fn is_silent(&self) -> bool {
        self.expired > 0
    }

    /// Whether window, budget and pacing let a full packet out.
    #[inline]
    pub(crate) fn has_room(
        &mut self,
        now: Time,
        allowance: &Allowance,
        is_slow_start: bool,
    ) -> bool {
        self.held_until = None;
        if let Choke::Choked { probe_at } = allowance.state
            && (probe_at > now || self.in_flight > 0)
        {
            self.held_until = Some(probe_at).filter(|at| *at > now);
            return false;
        }
        match &self.phase {
            Phase::Recovery { reduction: Some(reduction), .. } => {
                if !reduction.allows(self.mss) {
                    return false;
                }
            }
            _ => {
                if Bytes(self.in_flight) + self.mss > allowance.window.max(self.mss) {
                    return false;
                }
            }
        }
        let Some((rate, burst)) = self.pacing(allowance, is_slow_start) else { return true };
        self.pacer.set(rate, burst);
        let at = self.pacer.ready_at(now);
        self.held_until = Some(at).filter(|at| *at > now);
        self.held_until.is_none()
    }

    /// The rate at which to send, and in what bursts; `None`: as acknowledgements come.
    #[inline]
    fn pacing(&self, allowance: &Allowance, is_slow_start: bool) -> Option<(Rate, Bytes)> {
        if let Some(rate) = allowance.pacing {
            return Some((rate, allowance.burst.max(self.mss)));
        }
        let is_below_one = allowance.window < self.mss;
        if !self.is_pacing && !is_below_one {
            return None;
        }
        let smoothed = self.rtt.smoothed()?;
        if is_below_one {
            return Some((
                allowance.window.max(Bytes(1)) / smoothed.max(Span::from_micros(1)),
                Bytes(1),
            ));
        }
        Some((
            Pacer::rate_of_window(allowance.window, smoothed, is_slow_start),
            Bytes(10 * self.mss.0),
        ))
    }

    pub(crate) fn is_in_slow_start(&self, allowance: &Allowance, cc: &dyn Controller) -> bool {
        cc.threshold(self.id).is_none_or(|threshold| allowance.window < threshold)
    }

    /// There was room, and nothing to send: what follows is limited by the application.
    pub(crate) fn note_idle(&mut self) {
        self.rate.note_idle(Bytes(self.in_flight));
    }

    /// A number that is not used, so that acknowledging it gives a liar away.
    pub(crate) fn skip_number(&mut self, now: Time) {
        self.push(now, PacketState::Skipped, None, 0, Bytes::ZERO);
    }

    /// A packet leaves that nobody acknowledges. Returns its number.
    #[inline]
    pub(crate) fn handle_sent_non_eliciting(&mut self, now: Time) -> u64 {
        if self.records.is_empty() {
            // Nothing before it is open: it needs no record.
            self.base += 1;
            self.next += 1;
            self.scan = self.next;
            return self.next - 1;
        }
        self.push(now, PacketState::NonEliciting, None, 0, Bytes::ZERO)
    }

    /// Whether more packets are remembered than these and what may be in flight.
    #[inline]
    pub(crate) fn remembers_more_than(&self, packets: usize) -> bool {
        self.records.len() > packets
            && (self.records.len() - packets) as u64 > self.in_flight / LEAST_PACKET
    }

    /// A packet of `bytes` leaves that wants an acknowledgement. Returns its number.
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
            self.rate.restart(now);
        }
        let allowance = cc.allowance(self.id);
        let size = u32::try_from(bytes.0).expect("a packet");
        self.in_flight += bytes.0;
        let number = self.push(now, PacketState::InFlight, binding, size, allowance.window);
        if let Phase::Recovery { reduction: Some(reduction), .. } = &mut self.phase {
            reduction.handle_sent(bytes);
        }
        if self.is_pacing || allowance.pacing.is_some() || allowance.window < self.mss {
            self.pacer.handle_sent(now, bytes);
        }
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
            is_app_limited: self.rate.is_app_limited(),
            bytes,
            window: window.0,
            in_flight: self.in_flight,
            snapshot: self.rate.snapshot(),
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

    /// Forgets what is settled at the front.
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
            // What a burst needed is not kept for good.
            self.records.shrink_to(256);
        }
    }

    /// What is in flight and not on its way elsewhere too, oldest first: when it was sent, what it
    /// carries, and whether it is elsewhere from now on.
    pub(crate) fn bound(&mut self) -> impl Iterator<Item = (Time, B, &mut bool)> {
        let is_bound =
            |record: &&mut Record<B>| record.state == PacketState::InFlight && !record.is_unbound;
        let records = self.records.iter_mut().filter(is_bound);
        records.filter_map(|record| Some((record.sent_at, record.binding?, &mut record.is_unbound)))
    }

    /// Hands back what everything in flight carries, so that it can go elsewhere. It may still
    /// arrive, and is still in flight.
    pub(crate) fn unbind_all(&mut self, outcomes: &mut Vec<Outcome<B>>) {
        for (_, binding, is_unbound) in self.bound() {
            *is_unbound = true;
            outcomes.push(Outcome::Shrunk(binding));
        }
    }
}
