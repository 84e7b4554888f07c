//! The network: ends, links, packets in flight, and time.

use std::collections::BTreeMap;
use std::fmt;

use units::{Bytes, Span, Time};

use crate::link::DirectionState;
use crate::{Arrival, Dice, Direction, Endpoint, Link, Op};

/// More packets than this at one moment, or steps within a millisecond, are an endless loop.
const MAX_AT_ONCE: u32 = 100_000;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives as the link has it.
    Arrives,
    /// It arrives that much later.
    Late(Span),
    /// It arrives, marked as having experienced congestion.
    Marked,
    /// It is lost behind the queue.
    Lost,
}

/// A packet as it is sent, before the link's impairments.
#[derive(Clone, Debug)]
pub struct Sent<P> {
    /// When it is sent.
    pub at: Time,
    /// When it arrives if nothing happens to it; `None` if the queue is full, which drops it.
    pub due: Option<Time>,
    /// The link's index.
    pub link: usize,
    /// The direction of the link.
    pub direction: Direction,
    /// How many packets were sent before it in this direction.
    pub number: u64,
    /// The size on the wire.
    pub bytes: Bytes,
    /// The packet.
    pub packet: P,
}

/// A packet between two ends.
struct Flight<P> {
    link: usize,
    direction: Direction,
    packet: P,
    is_marked: bool,
    is_corrupt: bool,
}

struct LinkState {
    link: Link,
    /// Forward and backward.
    directions: [DirectionState; 2],
    extra_delay: Span,
}

type Decide<P> = Box<dyn FnMut(&Sent<P>) -> Fate>;

/// Ends, links between them, and virtual time.
pub struct Network<E: Endpoint> {
    /// The ends, by index.
    pub ends: Vec<E>,
    now: Time,
    links: Vec<LinkState>,
    /// By time of arrival, then in the order of sending.
    flights: BTreeMap<(Time, u64), Flight<E::Packet>>,
    plan: BTreeMap<(Time, u64), Op<E::Action>>,
    dice: Dice,
    decide: Decide<E::Packet>,
    /// Numbers flights and operations, which keeps those of one moment in order.
    count: u64,
    /// Steps since `steps_since`.
    steps: u32,
    steps_since: Time,
}

impl<E: Endpoint> fmt::Debug for Network<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("now", &self.now)
            .field("in_flight", &self.flights.len())
            .field("planned", &self.plan.len())
            .finish_non_exhaustive()
    }
}

impl<E: Endpoint> Network<E> {
    /// Ends and links, at time zero. The links' impairments follow from `seed`.
    ///
    /// # Panics
    /// If a link has an end that is not there.
    #[must_use]
    pub fn new(
        ends: impl IntoIterator<Item = E>,
        links: impl IntoIterator<Item = Link>,
        seed: u64,
    ) -> Network<E> {
        let ends: Vec<E> = ends.into_iter().collect();
        let state =
            |link| LinkState { link, directions: Default::default(), extra_delay: Span::ZERO };
        let links: Vec<LinkState> = links.into_iter().map(state).collect();
        for LinkState { link, .. } in &links {
            assert!(link.ends.iter().all(|end| *end < ends.len()), "{link:?} has no such end");
        }
        Network {
            ends,
            now: Time::ZERO,
            links,
            flights: BTreeMap::new(),
            plan: BTreeMap::new(),
            dice: Dice::new(seed),
            decide: Box::new(|_| Fate::Arrives),
            count: 0,
            steps: 0,
            steps_since: Time::ZERO,
        }
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// From here on, `decide` chooses the fate of each packet.
    pub fn set_fates(&mut self, decide: impl FnMut(&Sent<E::Packet>) -> Fate + 'static) {
        self.decide = Box::new(decide);
    }

    /// Plans an operation. Those of one moment happen in the order of planning, before packets
    /// arrive.
    pub fn schedule(&mut self, at: Time, op: Op<E::Action>) {
        self.plan.insert((at, self.count), op);
        self.count += 1;
    }

    /// Whether operations are planned.
    #[must_use]
    pub fn has_plan(&self) -> bool {
        !self.plan.is_empty()
    }

    /// Carries out an operation now.
    pub fn apply(&mut self, op: Op<E::Action>) {
        match op {
            Op::Act { end, action } => self.ends[end].act(self.now, action),
            Op::Cut { link, direction } => self.direction(link, direction).is_cut = true,
            Op::Restore { link, direction } => self.direction(link, direction).is_cut = false,
            Op::Delay { link, extra } => self.links[link].extra_delay = extra,
            Op::Deliver { link, direction, index } => {
                let key = self.find(link, direction, index);
                if let Some(flight) = key.and_then(|key| self.flights.remove(&key)) {
                    self.deliver(flight);
                }
            }
            Op::Drop { link, direction, index } => {
                if let Some(key) = self.find(link, direction, index) {
                    self.flights.remove(&key);
                }
            }
            Op::Duplicate { link, direction, index } => {
                if let Some(key) = self.find(link, direction, index) {
                    let Flight { packet, is_marked, is_corrupt, .. } = &self.flights[&key];
                    let (packet, is_marked, is_corrupt) = (packet.clone(), *is_marked, *is_corrupt);
                    self.deliver(Flight { link, direction, packet, is_marked, is_corrupt });
                }
            }
        }
    }

    /// Runs for this long.
    pub fn run_for(&mut self, span: Span) {
        let end = self.now + span;
        self.run_until(end, |_| false);
    }

    /// Runs until `is_enough`, which is asked whenever the ends have sent all they want to, or
    /// until `end`. Returns whether it was enough.
    ///
    /// # Panics
    /// If an end sends without end, or wakes up again and again and does nothing.
    pub fn run_until(&mut self, end: Time, mut is_enough: impl FnMut(&Network<E>) -> bool) -> bool {
        loop {
            self.carry_out_due();
            self.transmit_all();
            if is_enough(self) {
                return true;
            }
            match self.next_event() {
                Some(next) if next <= end => self.now = next,
                _ => {
                    self.now = self.now.max(end);
                    return false;
                }
            }
            self.count_step();
            self.carry_out_due();
            while let Some(flight) = self.flights.first_entry()
                && flight.key().0 <= self.now
            {
                let flight = flight.remove();
                self.deliver(flight);
            }
            for end in &mut self.ends {
                if end.poll_deadline().is_some_and(|at| at <= self.now) {
                    end.handle_deadline(self.now);
                }
            }
        }
    }

    /// When something happens next. A deadline that has passed counts as a nanosecond away: its end
    /// has been called at this moment, and is to be called again.
    fn next_event(&self) -> Option<Time> {
        let soon = self.now + Span::from_nanos(1);
        let deadlines = self.ends.iter().filter_map(Endpoint::poll_deadline).map(|at| at.max(soon));
        let arrival = self.flights.first_key_value().map(|((at, _), _)| *at);
        let planned = self.plan.first_key_value().map(|((at, _), _)| *at);
        deadlines.chain(arrival).chain(planned).min().map(|at| at.max(self.now))
    }

    fn carry_out_due(&mut self) {
        while let Some(planned) = self.plan.first_entry()
            && planned.key().0 <= self.now
        {
            let op = planned.remove();
            self.apply(op);
        }
    }

    fn count_step(&mut self) {
        self.steps += 1;
        if self.now.since(self.steps_since) > Span::from_millis(1) {
            (self.steps, self.steps_since) = (0, self.now);
        }
        assert!(self.steps < MAX_AT_ONCE, "an end wakes up for nothing at {}", self.now);
    }

    fn transmit_all(&mut self) {
        for from in 0..self.ends.len() {
            let mut sent = 0;
            while let Some(transmit) = self.ends[from].poll_transmit(self.now) {
                self.send(from, transmit.link, transmit.bytes, transmit.packet);
                sent += 1;
                assert!(sent < MAX_AT_ONCE, "end {from} sends without end at {}", self.now);
            }
        }
    }

    fn send(&mut self, from: usize, index: usize, bytes: Bytes, packet: E::Packet) {
        let now = self.now;
        let LinkState { link, directions, extra_delay } = &mut self.links[index];
        assert!(link.ends.contains(&from), "end {from} is not on link {index}");
        let direction = if link.ends[0] == from { Direction::Forward } else { Direction::Backward };
        let state = &mut directions[direction as usize];
        let number = state.sent;
        state.sent += 1;
        let departure = state.enqueue(now, link, bytes);
        let due = departure.map(|at| at + link.delay + *extra_delay);
        let sent = Sent { at: now, due, link: index, direction, number, bytes, packet };
        let fate = (self.decide)(&sent);
        let Some(due) = due else { return };
        let dice = &mut self.dice;
        if dice.hits(link.loss) || fate == Fate::Lost {
            return;
        }
        let is_corrupt = dice.hits(link.corruption);
        let is_late = dice.hits(link.reordering);
        let copy_is_late = dice.hits(link.duplication).then(|| dice.hits(500));
        let lateness = link.lateness.as_nanos().max(1);
        for is_late in [Some(is_late), copy_is_late].into_iter().flatten() {
            let mut at = due;
            if let Fate::Late(span) = fate {
                at += span;
            }
            if is_late {
                at += Span::from_nanos(dice.below(lateness));
            }
            let flight = Flight {
                link: index,
                direction,
                packet: sent.packet.clone(),
                is_marked: fate == Fate::Marked,
                is_corrupt,
            };
            self.flights.insert((at, self.count), flight);
            self.count += 1;
        }
    }

    fn deliver(&mut self, flight: Flight<E::Packet>) {
        let Flight { link, direction, packet, is_marked, is_corrupt } = flight;
        let LinkState { link: Link { ends, .. }, directions, .. } = &self.links[link];
        let to = match direction {
            Direction::Forward => ends[1],
            Direction::Backward => ends[0],
        };
        if !directions[direction as usize].is_cut {
            self.ends[to].handle_packet(self.now, Arrival { link, packet, is_marked, is_corrupt });
        }
    }

    fn direction(&mut self, link: usize, direction: Direction) -> &mut DirectionState {
        &mut self.links[link].directions[direction as usize]
    }

    /// The key of a packet in flight in one direction of a link.
    fn find(&self, link: usize, direction: Direction, index: usize) -> Option<(Time, u64)> {
        let flights = || {
            self.flights
                .iter()
                .filter(|(_, flight)| (flight.link, flight.direction) == (link, direction))
        };
        let index = index.checked_rem(flights().count())?;
        flights().nth(index).map(|(key, _)| *key)
    }
}
