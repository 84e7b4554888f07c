//! The general transmitter: changing rates, blackouts, reordering, and queues that decide on
//! packets as they leave.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use units::{Bytes, Rate, Seed, Span, Time};

use crate::aqm::{Aqm, BucketState, Queue};
use crate::area::{AreaClock, QueueArea, QueueLevels};
use crate::counters::Tally;
use crate::jitter::JitterState;
use crate::ledger::Ledger;
use crate::limit::Limit;
use crate::offer::{Delivery, Outcome, Waiting};
use crate::opportunities::Opportunities;
use crate::profile::Profile;
use crate::rate::RateCursor;
use crate::wire::WORK_PER_BYTE;

/// The packets of a link; the departure of a packet is computed when it is first in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Varying<P> {
    rates: RateCursor,
    /// Packets that wait for the wire.
    queue: Queue<P>,
    /// The packet on the wire. `None` only if the queue is empty, or with delivery opportunities.
    serving: Option<Waiting<P>>,
    /// The begin of its transmission; of a shaper, it may wait for its tokens until then. Not kept
    /// with delivery opportunities.
    began: Time,
    /// The departure of `serving`; `None` if the rate stays zero, or there is no packet. With
    /// delivery opportunities: the next one, if there is a backlog.
    departure: Option<Time>,
    /// The departure of the last packet.
    free: Time,
    /// The work of `serving` from `began` on, in units of [`WORK_PER_BYTE`].
    needed: u64,
    /// Unused capacity of the last nanosecond of the packet before, in units of [`WORK_PER_BYTE`].
    credit: u64,
    opportunities: Option<OpportunityCursor>,
    /// The tokens of a shaper. Not used with delivery opportunities.
    shaper: Option<Box<BucketState>>,
    jitter: Option<JitterState>,
    /// The arrival of the last packet, where the delay changes: none comes before it.
    last_arrival: Time,
    /// Packets that are propagating, in order of arrival.
    flying: VecDeque<Delivery<P>>,
    /// Packets that are held back, by arrival and admission.
    late: BTreeMap<(Time, u64), Delivery<P>>,
    admitted: u64,
    area: AreaClock,
}

/// The state of a link with delivery opportunities.
#[derive(Clone, Debug)]
struct OpportunityCursor {
    trace: Arc<Opportunities>,
    /// Time zero of the trace.
    epoch: Time,
    /// The number of the opportunity at [`Varying::departure`].
    next: u64,
    /// Unsent bytes of the packet on the wire.
    unsent: u64,
}

impl OpportunityCursor {
    /// Advances to the first opportunity after `now`.
    fn seek(&mut self, now: Time) -> Time {
        self.next = self.trace.after(now.since(self.epoch));
        self.at()
    }

    fn at(&self) -> Time {
        self.epoch + self.trace.moment(self.next).0
    }
}

impl<P> Varying<P> {
    pub(crate) fn new(profile: &Profile, seed: Seed) -> Varying<P> {
        let cursor = |trace: &Arc<Opportunities>| OpportunityCursor {
            trace: trace.clone(),
            epoch: Time::ZERO,
            next: 0,
            unsent: 0,
        };
        Varying {
            rates: profile.rate.cursor(),
            queue: Queue::new(profile.aqm, seed.stream("aqm")),
            serving: None,
            began: Time::ZERO,
            departure: None,
            free: Time::ZERO,
            needed: 0,
            credit: 0,
            opportunities: profile.rate.opportunities.as_ref().map(cursor),
            shaper: match profile.aqm {
                Aqm::Shaper(bucket) => Some(Box::new(BucketState::new(bucket))),
                _ => None,
            },
            jitter: profile.jitter.map(|jitter| JitterState::new(jitter, seed.stream("jitter"))),
            last_arrival: Time::ZERO,
            flying: VecDeque::new(),
            late: BTreeMap::new(),
            admitted: 0,
            area: AreaClock::default(),
        }
    }

    pub(crate) fn start(&mut self, now: Time, profile: &Profile, ledger: &mut Ledger<P>) {
        self.advance(now, profile, ledger);
        self.rates.start(now);
        if let Some(opportunities) = &mut self.opportunities {
            opportunities.epoch = now;
            let next = opportunities.seek(now);
            self.departure = self.departure.map(|_| next);
        } else if self.departure.is_none() && self.serving.is_some() {
            self.transmit(now);
        }
    }

    /// Follows another profile from `now` on, which is the same as the one before up to then. The
    /// caller has called [`Varying::advance`] for `now`.
    pub(crate) fn amend(&mut self, now: Time, profile: &Profile) {
        let mut rates = profile.rate.cursor();
        if let Some(epoch) = self.rates.epoch() {
            rates.start(epoch);
        }
        self.rates = rates;
        // The first delay of a list orders arrivals from then on: those before it count too.
        let flying = self.flying.back().map_or(now, |delivery| delivery.at);
        self.last_arrival = self.last_arrival.max(flying);
        if self.serving.is_some() && self.opportunities.is_none() {
            self.transmit_from(self.began, self.needed);
        }
    }

    pub(crate) fn waiting(&self) -> Tally {
        let Tally { packets, bytes } = self.queue.tally();
        let Tally { packets: more, bytes: others } = self.on_wire();
        Tally { packets: packets + more, bytes: bytes + others }
    }

    /// The backlog over time. The caller has called [`Varying::advance`] for `now`.
    pub(crate) fn queue_area(&mut self, now: Time) -> QueueArea {
        self.note_area(now)
    }

    /// How long the backlog had each length. The caller has called [`Varying::queue_area`] for now.
    pub(crate) fn queue_levels(&self) -> &QueueLevels {
        self.area.levels()
    }

    /// Adds the time since the queue changed to its area. With delivery opportunities no packet is
    /// on a wire: all wait until they leave.
    fn note_area(&mut self, now: Time) -> QueueArea {
        let waits = if self.opportunities.is_some() { self.waiting() } else { self.queue.tally() };
        if self.shaper.is_some() && self.serving.is_some() {
            // Until its tokens are there, the first packet waits too.
            let all = self.waiting();
            if now < self.began {
                return self.area.advance(now, all);
            }
            self.area.advance(self.began, all);
        }
        self.area.advance(now, waits)
    }

    fn on_wire(&self) -> Tally {
        self.serving
            .as_ref()
            .map_or(Tally::default(), |serving| Tally { packets: 1, bytes: serving.bytes })
    }

    pub(crate) fn held(&self) -> u64 {
        self.waiting().packets + (self.flying.len() + self.late.len()) as u64
    }

    /// The departure of the last packet; valid while there is no backlog.
    pub(crate) fn free(&self) -> Time {
        self.free
    }

    pub(crate) fn rate(&self, now: Time, profile: &Profile) -> Rate {
        if self.is_black(now, profile) {
            return Rate::ZERO;
        }
        let mut rates = profile.rate.cursor();
        if let Some(epoch) = self.rates.epoch() {
            rates.start(epoch);
        }
        rates.seek(now);
        rates.rate()
    }

    /// The time since the schedule's start; `None` before it.
    pub(crate) fn elapsed(&self, now: Time) -> Option<Span> {
        self.rates.epoch().map(|epoch| now - epoch)
    }

    /// The propagation delay of a packet that leaves at `at`.
    fn delay(&self, at: Time, profile: &Profile) -> Span {
        if profile.delays.is_empty() {
            return profile.delay;
        }
        self.elapsed(at).map_or(profile.delay, |at| profile.delay_at(at))
    }

    #[inline(never)]
    pub(crate) fn poll_deadline(&self, profile: &Profile) -> Option<Time> {
        let leaving = self.departure.map(|at| at + self.delay(at, profile));
        let flying = self.flying.front().map(|delivery| delivery.at);
        let late = self.late.first_key_value().map(|((at, _), _)| *at);
        [leaving, flying, late].into_iter().flatten().min()
    }

    pub(crate) fn next_departure(&self) -> Option<Time> {
        self.departure
    }

    pub(crate) fn poll_deliver(&mut self, now: Time) -> Option<Delivery<P>> {
        let flying = self.flying.front().map(|delivery| delivery.at);
        let late = self.late.first_key_value().map(|((at, _), _)| *at);
        match (flying, late) {
            (Some(first), Some(held)) if held < first && held <= now => {
                Some(self.late.pop_first()?.1)
            }
            (None, Some(held)) if held <= now => Some(self.late.pop_first()?.1),
            (Some(first), _) if first <= now => self.flying.pop_front(),
            _ => None,
        }
    }

    #[inline(never)]
    pub(crate) fn push(&mut self, now: Time, waiting: Waiting<P>, ledger: &mut Ledger<P>) {
        let is_idle = self.waiting().packets == 0;
        self.note_area(now);
        self.area.enter();
        self.queue.push(waiting, &mut ledger.counters);
        if is_idle {
            self.credit = 0;
            match &mut self.opportunities {
                Some(opportunities) => self.departure = Some(opportunities.seek(now)),
                None => self.serve(now, ledger),
            }
        }
    }

    /// Whether the queue accepts a packet above the limit and drops others instead.
    pub(crate) fn makes_room(&self) -> bool {
        self.queue.makes_room()
    }

    /// Adds a packet, and drops packets until `limit` holds. The link is not idle.
    pub(crate) fn push_and_shed(
        &mut self,
        now: Time,
        waiting: Waiting<P>,
        limit: Limit,
        ledger: &mut Ledger<P>,
    ) -> Outcome {
        let flow = waiting.flow;
        self.push(now, waiting, ledger);
        let is_dropped = self.queue.shed(now, limit, self.on_wire(), flow, ledger);
        if is_dropped { Outcome::DroppedQueue } else { Outcome::Queued }
    }

    pub(crate) fn is_black(&self, at: Time, profile: &Profile) -> bool {
        !profile.blackouts.is_empty() && self.elapsed(at).is_some_and(|at| profile.is_black(at))
    }

    /// Moves packets that left by `now` from the queue to the propagating packets.
    pub(crate) fn advance(&mut self, now: Time, profile: &Profile, ledger: &mut Ledger<P>) {
        while let Some(at) = self.departure.filter(|at| *at <= now) {
            if self.opportunities.is_some() {
                self.use_opportunity(at, profile, ledger);
            } else {
                if self.shaper.is_some() {
                    // While it is known that this packet has waited for its tokens.
                    self.note_area(at);
                }
                self.leave(at, profile, ledger);
                self.serve(at, ledger);
            }
        }
    }

    /// The last bit of the packet on the wire is sent.
    fn leave(&mut self, at: Time, profile: &Profile, ledger: &mut Ledger<P>) {
        let waiting = self.serving.take().expect("a departure is of a packet on the wire");
        self.free = at;
        if self.is_black(at, profile) {
            ledger.counters.dropped_blackout += 1;
            ledger.note_dropped(at, waiting.packet);
        } else {
            self.depart(at, profile, waiting);
        }
    }

    /// Uses the opportunity at `at`, also for parts of packets, and advances to the next.
    fn use_opportunity(&mut self, at: Time, profile: &Profile, ledger: &mut Ledger<P>) {
        self.note_area(at);
        let Some(opportunities) = &mut self.opportunities else { return };
        let mut left = opportunities.trace.moment(opportunities.next).1;
        opportunities.next += 1;
        let (next, mut unsent) = (opportunities.at(), opportunities.unsent);
        loop {
            if self.serving.is_none() {
                self.serving = self.queue.pop(at, ledger);
                unsent = self.serving.as_ref().map_or(0, |serving| serving.bytes.0);
            }
            if self.serving.is_none() || unsent > left {
                break;
            }
            left -= unsent;
            self.leave(at, profile, ledger);
        }
        if let Some(opportunities) = &mut self.opportunities {
            opportunities.unsent = unsent.saturating_sub(left);
        }
        self.departure = (self.waiting().packets > 0).then_some(next);
    }

    fn depart(&mut self, at: Time, profile: &Profile, waiting: Waiting<P>) {
        let Waiting { bytes, is_corrupted, is_marked, extra_delay, packet, since, .. } = waiting;
        let waited = if self.opportunities.is_some() { at } else { self.began }.since(since);
        let mut usual = at + self.delay(at, profile);
        let reorders = self.jitter.as_ref().is_some_and(JitterState::reorders);
        if !profile.delays.is_empty() && !reorders {
            // One wire keeps the order when its delay falls.
            usual = usual.max(self.last_arrival);
            self.last_arrival = usual;
        }
        let arrival =
            self.jitter.as_mut().map_or(usual, |jitter| jitter.arrival(usual)) + extra_delay;
        let delivery = Delivery { at: arrival, bytes, waited, is_corrupted, is_marked, packet };
        if extra_delay == Span::ZERO && !reorders {
            self.flying.push_back(delivery);
        } else {
            self.admitted += 1;
            self.late.insert((arrival, self.admitted), delivery);
        }
    }

    /// Puts the next packet on the wire at `now`.
    fn serve(&mut self, now: Time, ledger: &mut Ledger<P>) {
        self.note_area(now);
        self.serving = self.queue.pop(now, ledger);
        let Some(serving) = &self.serving else {
            self.departure = None;
            return;
        };
        self.began = match &mut self.shaper {
            Some(shaper) => shaper.admit(now, serving.bytes),
            None => now,
        };
        if self.began > now {
            // The wire was idle meanwhile.
            self.credit = 0;
        }
        self.transmit(self.began);
    }

    /// Computes the exact departure of the packet that is on the wire from `now` on, through all
    /// changes of rate. The wire does `rate` units of work per nanosecond (see [`WORK_PER_BYTE`]);
    /// unused capacity of the last nanosecond is left to the next packet.
    fn transmit(&mut self, now: Time) {
        let bytes = self.serving.as_ref().map_or(Bytes::ZERO, |serving| serving.bytes);
        let work = bytes.0.checked_mul(WORK_PER_BYTE).expect("a packet is below 2 GiB");
        let Some(needed) = work.checked_sub(self.credit) else {
            // A tiny packet that fits into the rest of the nanosecond.
            self.credit -= work;
            self.departure = Some(now);
            return;
        };
        self.needed = needed;
        self.transmit_from(now, needed);
    }

    /// The same for a packet that still needs this much work at `from`.
    fn transmit_from(&mut self, mut from: Time, mut needed: u64) {
        self.rates.seek(from);
        loop {
            let rate = self.rates.rate().as_bits();
            let nanos = if rate == 0 { u64::MAX } else { needed.div_ceil(rate) };
            match self.rates.until() {
                Some(until) if nanos > (until - from).as_nanos() => {
                    needed -= (until - from).as_nanos() * rate;
                    from = until;
                    self.rates.advance();
                }
                _ if rate == 0 => {
                    self.departure = None;
                    return;
                }
                _ => {
                    self.credit = nanos * rate - needed;
                    self.departure = Some(from + Span::from_nanos(nanos));
                    return;
                }
            }
        }
    }
}
