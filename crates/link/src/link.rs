//! The link itself.

use alloc::collections::{BTreeMap, VecDeque};

use units::{Bytes, Rate, Seed, Span, Time};

use crate::impair::Dice;
use crate::profile::{Limit, Profile};
use crate::rate::RateCursor;

/// One direction of a link that carries packets of type `P`.
///
/// Time must not run backwards from call to call. Nothing has to happen at the moment when a packet leaves the queue: the
/// link catches up, with exact times, whenever it is called.
#[derive(Clone, Debug)]
pub struct Link<P> {
    profile: Profile,
    rates: RateCursor,
    dice: Dice,
    /// Packets whose last bit did not go out yet; the first is on the wire.
    waiting: VecDeque<Waiting<P>>,
    queued: Bytes,
    /// When the first of `waiting` leaves; `None` if the rate stays zero, or if there is none.
    departure: Option<Time>,
    /// Bit-nanoseconds that the wire had left over when the last packet left within a nanosecond.
    credit: u64,
    /// Packets on the way, in order of arrival.
    flying: VecDeque<Delivery<P>>,
    /// Packets held back, by arrival and admission.
    late: BTreeMap<(Time, u64), Delivery<P>>,
    admitted: u64,
    counters: Counters,
}

/// What became of a packet that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It waits, or is on the wire.
    Queued,
    /// The queue is full.
    DroppedQueue,
    /// Random loss.
    DroppedLoss,
    /// The link is dark.
    DroppedBlackout,
    /// It is larger than the MTU.
    DroppedMtu,
}

/// A packet at the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// When it is due there.
    pub at: Time,
    /// Its size.
    pub bytes: Bytes,
    /// Whether the link damaged it; the caller flips the bits.
    pub is_corrupted: bool,
    /// The packet.
    pub packet: P,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub packets: u64,
    /// How large together.
    pub bytes: Bytes,
}

/// What happened so far. Copies made by duplication are offered too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// All that came to the link.
    pub offered: Tally,
    /// All that was taken out at the far end.
    pub delivered: Tally,
    /// Dropped by a full queue.
    pub dropped_queue: u64,
    /// Dropped at random.
    pub dropped_loss: u64,
    /// Dropped in a blackout, on arrival or when leaving the queue.
    pub dropped_blackout: u64,
    /// Dropped for their size.
    pub dropped_mtu: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// The most that ever waited, the packet on the wire included.
    pub max_queue: Bytes,
}

impl Counters {
    /// Packets dropped for any reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped_queue + self.dropped_loss + self.dropped_blackout + self.dropped_mtu
    }
}

#[derive(Clone, Debug)]
struct Waiting<P> {
    bytes: Bytes,
    is_corrupted: bool,
    extra_delay: Span,
    packet: P,
}

/// Bits × ns/s of one byte: at a rate of r bit/s, a nanosecond does r of these.
const WORK_PER_BYTE: u64 = 8_000_000_000;

impl<P> Link<P> {
    /// A link whose schedule starts at [`Time::ZERO`]. Random draws come from `seed`.
    #[must_use]
    pub fn new(profile: Profile, seed: Seed) -> Link<P> {
        let mut link = Link::unstarted(profile, seed);
        link.start(Time::ZERO);
        link
    }

    /// A link that keeps its first rate, and has no blackouts, until [`Link::start`].
    #[must_use]
    pub fn unstarted(profile: Profile, seed: Seed) -> Link<P> {
        Link {
            rates: profile.rate.cursor(),
            dice: Dice::new(&profile, seed),
            profile,
            waiting: VecDeque::new(),
            queued: Bytes::ZERO,
            departure: None,
            credit: 0,
            flying: VecDeque::new(),
            late: BTreeMap::new(),
            admitted: 0,
            counters: Counters::default(),
        }
    }

    /// The schedule's time zero is `now`. A packet on the wire leaves as it would have.
    pub fn start(&mut self, now: Time) {
        self.advance(now);
        self.rates.start(now);
        if self.departure.is_none() && !self.waiting.is_empty() {
            self.begin_service(now);
        }
    }

    /// What the link is like.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What waits at `now`, the packet on the wire included.
    pub fn queue(&mut self, now: Time) -> Tally {
        self.advance(now);
        Tally { packets: self.waiting.len() as u64, bytes: self.queued }
    }

    /// Whether a packet of this size would find room at `now`.
    pub fn has_room(&mut self, now: Time, bytes: Bytes) -> bool {
        self.advance(now);
        self.fits(bytes)
    }

    /// The rate at `now`, zero in a blackout. It may look at most as far back as the last call.
    #[must_use]
    pub fn rate(&self, now: Time) -> Rate {
        if self.is_black(now) {
            return Rate::ZERO;
        }
        let mut rates = self.profile.rate.cursor();
        if let Some(epoch) = self.rates.epoch() {
            rates.start(epoch);
        }
        rates.seek(now);
        rates.rate()
    }

    /// The next moment when [`Link::poll_deliver`] may have something. It is never too late; it can be too early, when a blackout
    /// or a hold-back comes between.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        let leaving = self.departure.map(|at| at + self.profile.delay);
        let flying = self.flying.front().map(|delivery| delivery.at);
        let late = self.late.first_key_value().map(|((at, _), _)| *at);
        [leaving, flying, late].into_iter().flatten().min()
    }

    /// When the packet on the wire leaves, and the queue gets shorter; `None` if it is empty, or the rate zero for ever.
    #[must_use]
    pub fn next_departure(&self) -> Option<Time> {
        self.departure
    }

    /// The next packet that has arrived at the far end by `now`, in order of arrival.
    pub fn poll_deliver(&mut self, now: Time) -> Option<Delivery<P>> {
        self.advance(now);
        let flying = self.flying.front().map(|delivery| delivery.at);
        let late = self.late.first_key_value().map(|((at, _), _)| *at);
        let delivery = match (flying, late) {
            (Some(first), Some(held)) if held < first && held <= now => self.late.pop_first()?.1,
            (None, Some(held)) if held <= now => self.late.pop_first()?.1,
            (Some(first), _) if first <= now => self.flying.pop_front()?,
            _ => return None,
        };
        self.counters.delivered.packets += 1;
        self.counters.delivered.bytes += delivery.bytes;
        Some(delivery)
    }

    fn admit(&mut self, now: Time, waiting: Waiting<P>) -> Outcome {
        if !self.fits(waiting.bytes) {
            self.counters.dropped_queue += 1;
            return Outcome::DroppedQueue;
        }
        self.queued += waiting.bytes;
        self.counters.max_queue = self.counters.max_queue.max(self.queued);
        self.waiting.push_back(waiting);
        if self.waiting.len() == 1 {
            self.credit = 0;
            self.begin_service(now);
        }
        Outcome::Queued
    }

    fn fits(&self, bytes: Bytes) -> bool {
        if self.waiting.is_empty() {
            return true;
        }
        match self.profile.queue {
            Limit::Bytes(limit) => self.queued + bytes <= limit,
            Limit::Packets(limit) => (self.waiting.len() as u64) < limit,
        }
    }

    fn is_black(&self, at: Time) -> bool {
        !self.profile.blackouts.is_empty() && self.rates.epoch().is_some_and(|epoch| self.profile.is_black(at - epoch))
    }

    /// Moves packets that left by `now` from the queue to the way.
    fn advance(&mut self, now: Time) {
        while let Some(at) = self.departure.filter(|at| *at <= now) {
            let waiting = self.waiting.pop_front().expect("a departure is of the first packet");
            self.queued -= waiting.bytes;
            if self.waiting.is_empty() {
                self.departure = None;
            } else {
                self.begin_service(at);
            }
            self.depart(at, waiting);
        }
    }

    fn depart(&mut self, at: Time, waiting: Waiting<P>) {
        if self.is_black(at) {
            self.counters.dropped_blackout += 1;
            return;
        }
        let Waiting { bytes, is_corrupted, extra_delay, packet } = waiting;
        let arrival = at + self.profile.delay + extra_delay;
        let delivery = Delivery { at: arrival, bytes, is_corrupted, packet };
        if extra_delay == Span::ZERO {
            self.flying.push_back(delivery);
        } else {
            self.admitted += 1;
            self.late.insert((arrival, self.admitted), delivery);
        }
    }

    /// Puts the first waiting packet on the wire at `now` and computes when its last bit goes out, exactly, through all rates
    /// between: the wire does `rate` bit-nanoseconds a nanosecond, and what it does beyond the packet's end within the last
    /// nanosecond is the next packet's.
    fn begin_service(&mut self, now: Time) {
        let bytes = self.waiting.front().map_or(Bytes::ZERO, |first| first.bytes);
        let work = bytes.0.checked_mul(WORK_PER_BYTE).expect("a packet is below 2 GiB");
        let Some(mut needed) = work.checked_sub(self.credit) else {
            // A tiny packet that fits whole into the rest of the nanosecond.
            self.credit -= work;
            self.departure = Some(now);
            return;
        };
        let mut from = now;
        self.rates.seek(now);
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

impl<P: Clone> Link<P> {
    /// Offers a packet of `bytes` at `now`.
    pub fn enqueue(&mut self, now: Time, bytes: Bytes, packet: P) -> Outcome {
        self.advance(now);
        self.counters.offered.packets += 1;
        self.counters.offered.bytes += bytes;
        if self.is_black(now) {
            self.counters.dropped_blackout += 1;
            return Outcome::DroppedBlackout;
        }
        if self.profile.mtu.is_some_and(|mtu| bytes > mtu) {
            self.counters.dropped_mtu += 1;
            return Outcome::DroppedMtu;
        }
        let fate = self.dice.roll();
        if fate.lost {
            self.counters.dropped_loss += 1;
            return Outcome::DroppedLoss;
        }
        let extra_delay = match self.profile.reorder {
            Some(reorder) if fate.held_back => {
                self.counters.reordered += 1;
                reorder.delay
            }
            _ => Span::ZERO,
        };
        self.counters.corrupted += u64::from(fate.corrupted);
        let copy = fate.duplicated.then(|| packet.clone());
        let outcome = self.admit(now, Waiting { bytes, is_corrupted: fate.corrupted, extra_delay, packet });
        if let Some(packet) = copy {
            self.counters.duplicated += 1;
            self.counters.offered.packets += 1;
            self.counters.offered.bytes += bytes;
            self.admit(now, Waiting { bytes, is_corrupted: false, extra_delay: Span::ZERO, packet });
        }
        outcome
    }
}
