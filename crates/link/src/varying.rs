//! A line in general: rates that change, blackouts, packets held back.

use alloc::collections::{BTreeMap, VecDeque};

use units::{Bytes, Rate, Span, Time};

use crate::link::{Counters, Delivery, Tally, WORK_PER_BYTE, Waiting};
use crate::profile::Profile;
use crate::rate::RateCursor;

/// The packets of a link, each with what becomes of it once it is first.
#[derive(Clone, Debug)]
pub(crate) struct Varying<P> {
    rates: RateCursor,
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
}

impl<P> Varying<P> {
    pub(crate) fn new(profile: &Profile) -> Varying<P> {
        Varying {
            rates: profile.rate.cursor(),
            waiting: VecDeque::new(),
            queued: Bytes::ZERO,
            departure: None,
            credit: 0,
            flying: VecDeque::new(),
            late: BTreeMap::new(),
            admitted: 0,
        }
    }

    pub(crate) fn start(&mut self, now: Time, profile: &Profile, counters: &mut Counters) {
        self.advance(now, profile, counters);
        self.rates.start(now);
        if self.departure.is_none() && !self.waiting.is_empty() {
            self.begin_service(now);
        }
    }

    pub(crate) fn waiting(&self) -> Tally {
        Tally { packets: self.waiting.len() as u64, bytes: self.queued }
    }

    pub(crate) fn held(&self) -> u64 {
        (self.waiting.len() + self.flying.len() + self.late.len()) as u64
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

    pub(crate) fn poll_deadline(&self, delay: Span) -> Option<Time> {
        let leaving = self.departure.map(|at| at + delay);
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
            (Some(first), Some(held)) if held < first && held <= now => Some(self.late.pop_first()?.1),
            (None, Some(held)) if held <= now => Some(self.late.pop_first()?.1),
            (Some(first), _) if first <= now => self.flying.pop_front(),
            _ => None,
        }
    }

    pub(crate) fn push(&mut self, now: Time, waiting: Waiting<P>) {
        self.queued += waiting.bytes;
        self.waiting.push_back(waiting);
        if self.waiting.len() == 1 {
            self.credit = 0;
            self.begin_service(now);
        }
    }

    pub(crate) fn is_black(&self, at: Time, profile: &Profile) -> bool {
        !profile.blackouts.is_empty() && self.rates.epoch().is_some_and(|epoch| profile.is_black(at - epoch))
    }

    /// Moves packets that left by `now` from the queue to the way.
    pub(crate) fn advance(&mut self, now: Time, profile: &Profile, counters: &mut Counters) {
        while let Some(at) = self.departure.filter(|at| *at <= now) {
            let waiting = self.waiting.pop_front().expect("a departure is of the first packet");
            self.queued -= waiting.bytes;
            if self.waiting.is_empty() {
                self.departure = None;
            } else {
                self.begin_service(at);
            }
            if self.is_black(at, profile) {
                counters.dropped_blackout += 1;
            } else {
                self.depart(at, profile.delay, waiting);
            }
        }
    }

    fn depart(&mut self, at: Time, delay: Span, waiting: Waiting<P>) {
        let Waiting { bytes, is_corrupted, extra_delay, packet } = waiting;
        let arrival = at + delay + extra_delay;
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
