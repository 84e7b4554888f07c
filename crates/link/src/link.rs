//! One direction of a link.

use alloc::boxed::Box;

use units::{Bytes, Rate, Seed, Span, Time};

use crate::amend::Amendment;
use crate::aqm::{Aqm, BucketState, PieState, RedState, Verdict};
use crate::area::{QueueArea, QueueLevels};
use crate::counters::{Counters, Tally};
use crate::impairments::{Fate, Impairments};
use crate::ledger::{Dropped, Ledger};
use crate::offer::{Delivery, Offer, Outcome, Waiting};
use crate::profile::Profile;
use crate::shared_profile::SharedProfile;
use crate::varying::Varying;

/// One direction of a link that carries packets of type `P`.
///
/// Time must not run backwards between calls. The link needs no call when a packet leaves the
/// queue: it catches up, with exact times, at the next call.
///
/// A simulation with thousands of links may carry out [plain](SharedProfile::is_plain) profiles in
/// less memory.
#[derive(Clone, Debug)]
pub struct Link<P> {
    transmitter: Varying<P>,
    /// `None` if every packet reaches the queue. Boxed, as it is large.
    ingress: Option<Box<Ingress>>,
    ledger: Ledger<P>,
    shared: SharedProfile,
    seed: Seed,
}

/// The stage before the queue: random impairments, and a manager that judges arrivals.
#[derive(Clone, Debug)]
struct Ingress {
    impairments: Impairments,
    manager: Option<ArrivalManager>,
}

/// The state of a queue's management that acts when a packet arrives.
#[derive(Clone, Debug)]
enum ArrivalManager {
    Red(RedState),
    Pie(PieState),
    /// Before the queue.
    Policer(BucketState),
    /// Behind it: packets that are too large for this bucket never leave.
    Shaper(BucketState),
}

impl Ingress {
    /// `None` if the profile has neither.
    fn new(profile: &Profile, seed: Seed) -> Option<Ingress> {
        let impairments = Impairments::new(profile, seed);
        let seed = seed.stream("aqm");
        let manager = match profile.aqm {
            Aqm::Red(red) => Some(ArrivalManager::Red(RedState::new(red, profile.rate.base, seed))),
            Aqm::Pie(pie) => Some(ArrivalManager::Pie(PieState::new(pie, seed))),
            Aqm::Policer(bucket) => Some(ArrivalManager::Policer(BucketState::new(bucket))),
            Aqm::Shaper(bucket) => Some(ArrivalManager::Shaper(BucketState::new(bucket))),
            Aqm::DropTail | Aqm::CoDel(_) | Aqm::FqCoDel(_) | Aqm::Step(_) | Aqm::DualPi2(_) => {
                None
            }
        };
        (impairments.is_random() || manager.is_some()).then_some(Ingress { impairments, manager })
    }
}

impl<P> Link<P> {
    /// A link whose schedule starts at [`Time::ZERO`]. Random draws come from `seed`.
    #[must_use]
    pub fn new(profile: impl Into<SharedProfile>, seed: Seed) -> Link<P> {
        let mut link = Link::unstarted(profile, seed);
        link.start(Time::ZERO);
        link
    }

    /// A link whose schedule starts with [`Link::start`]; until then it keeps its first rate and
    /// has no blackouts.
    #[must_use]
    pub fn unstarted(profile: impl Into<SharedProfile>, seed: Seed) -> Link<P> {
        let shared = profile.into();
        let profile = shared.profile();
        Link {
            transmitter: Varying::new(profile, seed),
            ingress: Ingress::new(profile, seed).map(Box::new),
            ledger: Ledger::default(),
            shared,
            seed,
        }
    }

    /// Starts the schedule at `now`. A packet on the wire keeps its departure.
    pub fn start(&mut self, now: Time) {
        self.transmitter.start(now, self.shared.profile(), &mut self.ledger);
    }

    /// Changes the link from `now` on: packets inside stay, and the one on the wire goes on at the
    /// new rate.
    ///
    /// # Panics
    /// Before the schedule has started.
    pub fn amend(&mut self, now: Time, amendment: Amendment) {
        self.advance(now);
        let at = self.transmitter.elapsed(now).expect("the schedule has started");
        let profile = self.shared.profile().amended(at, amendment);
        if matches!(amendment, Amendment::Loss(_)) {
            match &mut self.ingress {
                Some(ingress) => ingress.impairments.amend(&profile, self.seed),
                None => self.ingress = Ingress::new(&profile, self.seed).map(Box::new),
            }
        }
        self.transmitter.amend(now, &profile);
        self.shared = profile.into();
    }

    /// The profile.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.shared.profile()
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.ledger.counters
    }

    /// The backlog at `now`, the packet on the wire included.
    pub fn queue(&mut self, now: Time) -> Tally {
        self.advance(now);
        self.waiting()
    }

    /// The backlog from the start to `now` over time, the packet on the wire not counted. On links
    /// with delivery opportunities, all packets wait until they leave.
    pub fn queue_area(&mut self, now: Time) -> QueueArea {
        self.advance(now);
        self.transmitter.queue_area(now)
    }

    /// How long the backlog had each length, from the start to `now`, counted as by
    /// [`Link::queue_area`].
    pub fn queue_levels(&mut self, now: Time) -> &QueueLevels {
        self.queue_area(now);
        self.transmitter.queue_levels()
    }

    /// From now on, [`Link::poll_dropped`] has the packets that are dropped after they were queued.
    /// The caller has to take them out.
    pub fn keep_dropped(&mut self) {
        self.ledger.keep_dropped();
    }

    /// The next packet that the link dropped although [`Link::offer`] queued it, or that it dropped
    /// as a duplicate. Without [`Link::keep_dropped`] there is none.
    pub fn poll_dropped(&mut self) -> Option<Dropped<P>> {
        self.ledger.poll_dropped()
    }

    /// Packets inside as of the last call: the backlog and the packets that are propagating.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.transmitter.held()
    }

    /// Whether the queue has room for a packet of this size at `now`.
    pub fn has_room(&mut self, now: Time, bytes: Bytes) -> bool {
        self.advance(now);
        self.fits(bytes)
    }

    /// The rate at `now`, zero in a blackout. `now` must not be before the last call.
    #[must_use]
    pub fn rate(&self, now: Time) -> Rate {
        self.transmitter.rate(now, self.shared.profile())
    }

    /// The next time at which [`Link::poll_deliver`] may have a packet. It is never too late; it
    /// can be too early because of a blackout or reordering.
    #[must_use]
    #[inline]
    pub fn poll_deadline(&self) -> Option<Time> {
        self.transmitter.poll_deadline(self.shared.profile())
    }

    /// RED's average length of the queue, in packets, as of the last arrival; `None` on links
    /// without RED.
    #[must_use]
    pub fn average_queue(&self) -> Option<f64> {
        match self.ingress.as_ref()?.manager.as_ref()? {
            ArrivalManager::Red(red) => Some(red.average()),
            ArrivalManager::Pie(_) | ArrivalManager::Policer(_) | ArrivalManager::Shaper(_) => None,
        }
    }

    /// The probability with which PIE drops, as of the last update; `None` on links without PIE.
    #[must_use]
    pub fn drop_probability(&self) -> Option<f64> {
        match self.ingress.as_ref()?.manager.as_ref()? {
            ArrivalManager::Pie(pie) => Some(pie.probability()),
            ArrivalManager::Red(_) | ArrivalManager::Policer(_) | ArrivalManager::Shaper(_) => None,
        }
    }

    /// The departure of the packet on the wire; `None` if there is none, or the rate stays zero.
    /// With delivery opportunities it is the next of these, which may carry only a part of a
    /// packet.
    #[must_use]
    pub fn next_departure(&self) -> Option<Time> {
        self.transmitter.next_departure()
    }

    /// The next packet that has arrived at the far end by `now`, in order of arrival.
    pub fn poll_deliver(&mut self, now: Time) -> Option<Delivery<P>> {
        self.advance(now);
        let delivery = self.transmitter.poll_deliver(now)?;
        self.ledger.counters.delivered += Tally::one(delivery.bytes);
        Some(delivery)
    }

    fn admit(&mut self, now: Time, waiting: Waiting<P>) -> Outcome {
        if !self.fits(waiting.bytes) {
            return self.overflow(now, waiting);
        }
        self.transmitter.push(now, waiting, &mut self.ledger);
        self.ledger.counters.max_queue = self.ledger.counters.max_queue.max(self.waiting().bytes);
        Outcome::Queued
    }

    /// The decision of RED, PIE or a token bucket about a packet: [`Outcome::Queued`] if it is
    /// marked, `None` if it passes unchanged or there is none of them.
    fn judge(&mut self, now: Time, waiting: &Waiting<P>) -> Option<Outcome> {
        self.ingress.as_ref()?.manager.as_ref()?;
        let Tally { packets: length, bytes } = self.waiting();
        let has_room = self.fits(waiting.bytes);
        let free = self.transmitter.free();
        let by_tokens = |passes| if passes { Verdict::Take } else { Verdict::Drop };
        let verdict = match self.ingress.as_mut()?.manager.as_mut()? {
            ArrivalManager::Red(red) => {
                let idle = (length == 0).then(|| now.since(free));
                let verdict =
                    red.handle_arrival(length.saturating_sub(1), idle, waiting.is_ecn_capable);
                if !has_room {
                    red.handle_overflow();
                }
                verdict
            }
            ArrivalManager::Pie(pie) => pie.handle_arrival(bytes, waiting.is_ecn_capable),
            ArrivalManager::Policer(bucket) => by_tokens(bucket.conforms(now, waiting.bytes)),
            ArrivalManager::Shaper(bucket) => by_tokens(bucket.fits(waiting.bytes)),
        };
        if !has_room {
            self.ledger.counters.dropped_queue += 1;
            return Some(Outcome::DroppedQueue);
        }
        match verdict {
            Verdict::Take => None,
            Verdict::Mark => {
                self.ledger.counters.marked += 1;
                Some(Outcome::Queued)
            }
            Verdict::Drop => {
                self.ledger.counters.dropped_aqm += 1;
                Some(Outcome::DroppedAqm)
            }
        }
    }

    /// Handles a packet for which there is no room.
    #[cold]
    fn overflow(&mut self, now: Time, waiting: Waiting<P>) -> Outcome {
        if self.transmitter.makes_room() {
            return self.transmitter.push_and_shed(
                now,
                waiting,
                self.shared.profile().queue,
                &mut self.ledger,
            );
        }
        self.ledger.counters.dropped_queue += 1;
        Outcome::DroppedQueue
    }

    fn fits(&self, bytes: Bytes) -> bool {
        self.shared.room().has(self.waiting(), bytes)
    }

    fn waiting(&self) -> Tally {
        self.transmitter.waiting()
    }

    /// Processes the departures up to `now`, and what PIE does on its own meanwhile.
    #[inline]
    fn advance(&mut self, now: Time) {
        if self.ingress.is_some() {
            self.update_pie(now);
        }
        self.transmitter.advance(now, self.shared.profile(), &mut self.ledger);
    }

    /// The updates of PIE's probability up to `now`, each with what waits at its time.
    fn update_pie(&mut self, now: Time) {
        let due = |link: &Link<P>| match link.ingress.as_ref()?.manager.as_ref()? {
            ArrivalManager::Pie(pie) => Some(pie.due).filter(|due| *due <= now),
            ArrivalManager::Red(_) | ArrivalManager::Policer(_) | ArrivalManager::Shaper(_) => None,
        };
        while let Some(at) = due(self) {
            self.transmitter.advance(at, self.shared.profile(), &mut self.ledger);
            let (waiting, rate) = (self.waiting(), self.rate(at));
            if let Some(ArrivalManager::Pie(pie)) =
                self.ingress.as_mut().and_then(|ingress| ingress.manager.as_mut())
            {
                pie.update(now, waiting, rate);
            }
        }
    }

    fn is_black(&self, now: Time) -> bool {
        self.transmitter.is_black(now, self.shared.profile())
    }
}

impl<P: Clone> Link<P> {
    /// Offers a packet of `bytes` at `now` that is not ECN-capable and belongs to flow 0.
    #[inline]
    pub fn enqueue(&mut self, now: Time, bytes: Bytes, packet: P) -> Outcome {
        let offer = Offer { bytes, is_ecn_capable: false, is_scalable: false, flow: 0 };
        self.offer(now, offer, packet)
    }

    /// Offers a packet at `now`.
    pub fn offer(&mut self, now: Time, offer: Offer, packet: P) -> Outcome {
        let Offer { bytes, is_ecn_capable, is_scalable, flow } = offer;
        self.advance(now);
        self.ledger.counters.offered += Tally::one(bytes);
        if self.is_black(now) {
            self.ledger.counters.dropped_blackout += 1;
            return Outcome::DroppedBlackout;
        }
        if self.shared.room().size(bytes).is_none() {
            self.ledger.counters.dropped_mtu += 1;
            return Outcome::DroppedMtu;
        }
        if self.ingress.is_some() {
            return self.offer_at_ingress(now, offer, packet);
        }
        self.admit(
            now,
            Waiting { is_ecn_capable, is_scalable, flow, ..Waiting::new(now, bytes, packet) },
        )
    }

    /// Offers a packet to a link with random impairments, RED, PIE or a token bucket.
    fn offer_at_ingress(&mut self, now: Time, offer: Offer, packet: P) -> Outcome {
        let Offer { bytes, is_ecn_capable, is_scalable, flow } = offer;
        let elapsed = self.transmitter.elapsed(now);
        let fate = self
            .ingress
            .as_mut()
            .map_or_else(Fate::default, |ingress| ingress.impairments.draw(elapsed));
        if fate.lost {
            self.ledger.counters.dropped_loss += 1;
            return Outcome::DroppedLoss;
        }
        let extra_delay = match self.shared.profile().reorder {
            Some(reorder) if fate.held_back => {
                self.ledger.counters.reordered += 1;
                reorder.delay
            }
            _ => Span::ZERO,
        };
        self.ledger.counters.corrupted += u64::from(fate.corrupted);
        let copy = fate.duplicated.then(|| packet.clone());
        let plain =
            Waiting { is_ecn_capable, is_scalable, flow, ..Waiting::new(now, bytes, packet) };
        let outcome =
            self.admit_judged(now, Waiting { is_corrupted: fate.corrupted, extra_delay, ..plain });
        if let Some(packet) = copy {
            self.ledger.counters.duplicated += 1;
            self.ledger.counters.offered += Tally::one(bytes);
            let copied = self.ledger.keeps_dropped().then(|| packet.clone());
            let fate = self.admit_judged(
                now,
                Waiting { is_ecn_capable, is_scalable, flow, ..Waiting::new(now, bytes, packet) },
            );
            if let Some(copied) = copied.filter(|_| fate != Outcome::Queued) {
                self.ledger.note_dropped(now, copied);
            }
        }
        outcome
    }

    /// Admits a packet unless RED, PIE or a token bucket drops it.
    fn admit_judged(&mut self, now: Time, mut waiting: Waiting<P>) -> Outcome {
        match self.judge(now, &waiting) {
            None => {}
            Some(Outcome::Queued) => waiting.is_marked = true,
            Some(dropped) => return dropped,
        }
        self.admit(now, waiting)
    }
}
