//! The link itself.

use alloc::boxed::Box;

use units::{Bytes, Rate, Seed, Span, Time};

use crate::aqm::{Aqm, RedState, Verdict};
use crate::counters::{Counters, Tally};
use crate::fixed::{Fixed, is_fixed};
use crate::impairments::{Fate, Impairments};
use crate::offer::{Delivery, Offer, Outcome, Waiting};
use crate::profile::Profile;
use crate::shared_profile::SharedProfile;
use crate::varying::Varying;

/// One direction of a link that carries packets of type `P`.
///
/// Time must not run backwards from call to call. Nothing has to happen at the moment when a packet
/// leaves the queue: the link catches up, with exact times, whenever it is called.
///
/// Where thousands of links are plain, [`PooledLink`](crate::PooledLink) does the same in less
/// memory.
#[derive(Clone, Debug)]
pub struct Link<P> {
    transmitter: Transmitter<P>,
    /// `None` where a packet is always offered to the queue. Boxed: it is large.
    ingress: Option<Box<Ingress>>,
    counters: Counters,
    shared: SharedProfile,
}

/// What a packet has to pass before the queue.
#[derive(Clone, Debug)]
struct Ingress {
    impairments: Impairments,
    red: Option<RedState>,
}

impl Ingress {
    /// `None` if the profile has nothing of it.
    fn new(profile: &Profile, seed: Seed) -> Option<Ingress> {
        let impairments = Impairments::new(profile, seed);
        let red = match profile.aqm {
            Aqm::Red(red) => Some(RedState::new(red, profile.rate.base, seed.stream("aqm"))),
            Aqm::DropTail | Aqm::CoDel(_) | Aqm::FqCoDel(_) => None,
        };
        (impairments.is_random() || red.is_some()).then_some(Ingress { impairments, red })
    }
}

/// What the packets are on: the one that the profile asks for, both with the same results where
/// both can do it.
#[derive(Clone, Debug)]
enum Transmitter<P> {
    /// The rate never changes and packets leave in order: every time is known as a packet comes.
    Fixed(Fixed<P>),
    /// Everything else. Boxed: it is several times as large.
    Varying(Box<Varying<P>>),
}

impl<P> Link<P> {
    /// A link whose schedule starts at [`Time::ZERO`]. Random draws come from `seed`.
    #[must_use]
    pub fn new(profile: impl Into<SharedProfile>, seed: Seed) -> Link<P> {
        let mut link = Link::unstarted(profile, seed);
        link.start(Time::ZERO);
        link
    }

    /// A link that keeps its first rate, and has no blackouts, until [`Link::start`].
    #[must_use]
    pub fn unstarted(profile: impl Into<SharedProfile>, seed: Seed) -> Link<P> {
        let shared = profile.into();
        let profile = shared.profile();
        let transmitter = if is_fixed(profile) {
            Transmitter::Fixed(Fixed::new(profile))
        } else {
            Transmitter::Varying(Box::new(Varying::new(profile, seed)))
        };
        Link {
            transmitter,
            ingress: Ingress::new(profile, seed).map(Box::new),
            counters: Counters::default(),
            shared,
        }
    }

    /// The schedule's time zero is `now`. A packet on the wire leaves as it would have.
    pub fn start(&mut self, now: Time) {
        if let Transmitter::Varying(transmitter) = &mut self.transmitter {
            transmitter.start(now, self.shared.profile(), &mut self.counters);
        }
    }

    /// What the link is like.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.shared.profile()
    }

    /// Whether a packet that it takes arrives, once, and as it was but for a mark: what it drops it
    /// drops as the packet is offered, and tells so.
    #[must_use]
    pub fn keeps_what_it_takes(&self) -> bool {
        let is_faithful = |ingress: &Ingress| !ingress.impairments.is_random();
        matches!(self.transmitter, Transmitter::Fixed(_))
            && self.ingress.as_deref().is_none_or(is_faithful)
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What waits at `now`, the packet on the wire included.
    pub fn queue(&mut self, now: Time) -> Tally {
        self.advance(now);
        self.waiting()
    }

    /// Packets inside: those that wait and those on the way, as of the last call.
    #[must_use]
    pub fn held(&self) -> u64 {
        match &self.transmitter {
            Transmitter::Fixed(transmitter) => transmitter.held(),
            Transmitter::Varying(transmitter) => transmitter.held(),
        }
    }

    /// Whether a packet of this size would find room at `now`.
    pub fn has_room(&mut self, now: Time, bytes: Bytes) -> bool {
        self.advance(now);
        self.fits(bytes)
    }

    /// The rate at `now`, zero in a blackout. It may look at most as far back as the last call.
    #[must_use]
    pub fn rate(&self, now: Time) -> Rate {
        match &self.transmitter {
            Transmitter::Fixed(_) => self.shared.profile().rate.base,
            Transmitter::Varying(transmitter) => transmitter.rate(now, self.shared.profile()),
        }
    }

    /// The next moment when [`Link::poll_deliver`] may have something. It is never too late; it can
    /// be too early, when a blackout or a hold-back comes between.
    #[must_use]
    #[inline]
    pub fn poll_deadline(&self) -> Option<Time> {
        match &self.transmitter {
            Transmitter::Fixed(transmitter) => transmitter.poll_deadline(),
            Transmitter::Varying(transmitter) => transmitter.poll_deadline(self.shared.delay()),
        }
    }

    /// RED's average length of the queue, in packets, as of the last arrival; `None` on links
    /// without RED.
    #[must_use]
    pub fn average_queue(&self) -> Option<f64> {
        Some(self.ingress.as_ref()?.red.as_ref()?.average())
    }

    /// When the packet on the wire leaves, and the queue gets shorter; `None` if it is empty, or
    /// the rate zero for ever. With delivery opportunities it is the next of these, which may carry
    /// a part of a packet only.
    #[must_use]
    pub fn next_departure(&self) -> Option<Time> {
        match &self.transmitter {
            Transmitter::Fixed(transmitter) => transmitter.next_departure(),
            Transmitter::Varying(transmitter) => transmitter.next_departure(),
        }
    }

    /// The next packet that has arrived at the far end by `now`, in order of arrival.
    pub fn poll_deliver(&mut self, now: Time) -> Option<Delivery<P>> {
        let delivery = match &mut self.transmitter {
            Transmitter::Fixed(transmitter) => transmitter.poll_deliver(now),
            Transmitter::Varying(transmitter) => {
                transmitter.advance(now, self.shared.profile(), &mut self.counters);
                transmitter.poll_deliver(now)
            }
        }?;
        self.counters.delivered += Tally::one(delivery.bytes);
        Some(delivery)
    }

    fn admit(&mut self, now: Time, waiting: Waiting<P>) -> Outcome {
        if !self.fits(waiting.bytes) {
            return self.overflow(now, waiting);
        }
        match &mut self.transmitter {
            Transmitter::Fixed(transmitter) => transmitter.push(now, waiting),
            Transmitter::Varying(transmitter) => transmitter.push(now, waiting, &mut self.counters),
        }
        self.counters.max_queue = self.counters.max_queue.max(self.waiting().bytes);
        Outcome::Queued
    }

    /// What RED, if there is any, makes of a packet: [`Outcome::Queued`] if it takes and marks it,
    /// `None` if it takes it as it is.
    fn judge(&mut self, now: Time, waiting: &Waiting<P>) -> Option<Outcome> {
        self.ingress.as_ref()?.red.as_ref()?;
        let length = self.waiting().packets;
        let has_room = self.fits(waiting.bytes);
        let free = match &self.transmitter {
            Transmitter::Fixed(transmitter) => transmitter.free(),
            Transmitter::Varying(transmitter) => transmitter.free(),
        };
        let red = self.ingress.as_mut()?.red.as_mut()?;
        let idle = (length == 0).then(|| now.since(free));
        let verdict = red.handle_arrival(length.saturating_sub(1), idle, waiting.is_ecn_capable);
        if !has_room {
            red.handle_overflow();
            self.counters.dropped_queue += 1;
            return Some(Outcome::DroppedQueue);
        }
        match verdict {
            Verdict::Take => None,
            Verdict::Mark => {
                self.counters.marked += 1;
                Some(Outcome::Queued)
            }
            Verdict::Drop => {
                self.counters.dropped_aqm += 1;
                Some(Outcome::DroppedAqm)
            }
        }
    }

    /// There is no room for a packet.
    #[cold]
    fn overflow(&mut self, now: Time, waiting: Waiting<P>) -> Outcome {
        if let Transmitter::Varying(transmitter) = &mut self.transmitter
            && transmitter.makes_room()
        {
            return transmitter.push_and_shed(
                now,
                waiting,
                self.shared.profile().queue,
                &mut self.counters,
            );
        }
        self.counters.dropped_queue += 1;
        Outcome::DroppedQueue
    }

    fn fits(&self, bytes: Bytes) -> bool {
        self.shared.room().has(self.waiting(), bytes)
    }

    fn waiting(&self) -> Tally {
        match &self.transmitter {
            Transmitter::Fixed(transmitter) => transmitter.waiting(),
            Transmitter::Varying(transmitter) => transmitter.waiting(),
        }
    }

    /// Lets packets leave that were through by `now`.
    fn advance(&mut self, now: Time) {
        match &mut self.transmitter {
            Transmitter::Fixed(transmitter) => transmitter.advance(now),
            Transmitter::Varying(transmitter) => {
                transmitter.advance(now, self.shared.profile(), &mut self.counters)
            }
        }
    }

    fn is_black(&self, now: Time) -> bool {
        match &self.transmitter {
            Transmitter::Fixed(_) => false,
            Transmitter::Varying(transmitter) => transmitter.is_black(now, self.shared.profile()),
        }
    }
}

impl<P: Clone> Link<P> {
    /// Offers a packet of `bytes` at `now` that is not ECN-capable, and of the same flow as all
    /// others.
    #[inline]
    pub fn enqueue(&mut self, now: Time, bytes: Bytes, packet: P) -> Outcome {
        self.offer(now, Offer { bytes, is_ecn_capable: false, flow: 0 }, packet)
    }

    /// Offers a packet at `now`.
    pub fn offer(&mut self, now: Time, offer: Offer, packet: P) -> Outcome {
        let Offer { bytes, is_ecn_capable, flow } = offer;
        self.advance(now);
        self.counters.offered += Tally::one(bytes);
        if self.is_black(now) {
            self.counters.dropped_blackout += 1;
            return Outcome::DroppedBlackout;
        }
        if self.shared.room().size(bytes).is_none() {
            self.counters.dropped_mtu += 1;
            return Outcome::DroppedMtu;
        }
        if self.ingress.is_some() {
            return self.offer_at_ingress(now, offer, packet);
        }
        self.admit(now, Waiting { is_ecn_capable, flow, ..Waiting::new(now, bytes, packet) })
    }

    /// Offers a packet where loss at random or RED may keep it out of the queue.
    fn offer_at_ingress(&mut self, now: Time, offer: Offer, packet: P) -> Outcome {
        let Offer { bytes, is_ecn_capable, flow } = offer;
        let fate =
            self.ingress.as_mut().map_or_else(Fate::default, |ingress| ingress.impairments.draw());
        if fate.lost {
            self.counters.dropped_loss += 1;
            return Outcome::DroppedLoss;
        }
        let extra_delay = match self.shared.profile().reorder {
            Some(reorder) if fate.held_back => {
                self.counters.reordered += 1;
                reorder.delay
            }
            _ => Span::ZERO,
        };
        self.counters.corrupted += u64::from(fate.corrupted);
        let copy = fate.duplicated.then(|| packet.clone());
        let plain = Waiting { is_ecn_capable, flow, ..Waiting::new(now, bytes, packet) };
        let outcome =
            self.admit_judged(now, Waiting { is_corrupted: fate.corrupted, extra_delay, ..plain });
        if let Some(packet) = copy {
            self.counters.duplicated += 1;
            self.counters.offered += Tally::one(bytes);
            self.admit_judged(
                now,
                Waiting { is_ecn_capable, flow, ..Waiting::new(now, bytes, packet) },
            );
        }
        outcome
    }

    /// Admits a packet if RED does.
    fn admit_judged(&mut self, now: Time, mut waiting: Waiting<P>) -> Outcome {
        match self.judge(now, &waiting) {
            None => {}
            Some(Outcome::Queued) => waiting.is_marked = true,
            Some(dropped) => return dropped,
        }
        self.admit(now, waiting)
    }
}
