//! The network: ends, links, packets in flight, and time.

use std::collections::BTreeMap;
use std::fmt;

use link::Amendment;
use units::{Bytes, Seed, Span, Time};

use crate::links::DirectionState;
use crate::{Arrival, Direction, Endpoint, Link, Op};

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
#[derive(Clone)]
struct Flight<P> {
    link: usize,
    direction: Direction,
    packet: P,
    is_marked: bool,
    /// Behind the link.
    extra_delay: Span,
    /// Copies to arrive: two if the link has duplicated the packet.
    copies: u64,
}

/// A copy of a packet that has left its link.
struct Arriving {
    /// The packet's number.
    number: u64,
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
    /// By number, and so in the order of sending.
    flights: BTreeMap<u64, Flight<E::Packet>>,
    /// Packets that have left their links, by time of arrival.
    arriving: BTreeMap<(Time, u64), Arriving>,
    plan: BTreeMap<(Time, u64), Op<E::Action>>,
    decide: Decide<E::Packet>,
    tick: Span,
    /// Numbers packets, arrivals and operations, which keeps those of one moment in order.
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
        let state = |(index, link): (usize, Link)| {
            let seed = |direction| Seed(seed).stream(&format!("link/{index}/{direction:?}"));
            let directions =
                Direction::BOTH.map(|direction| DirectionState::new(&link, seed(direction)));
            LinkState { link, directions, extra_delay: Span::ZERO }
        };
        let links: Vec<LinkState> = links.into_iter().enumerate().map(state).collect();
        for LinkState { link, .. } in &links {
            assert!(link.ends.iter().all(|end| *end < ends.len()), "{link:?} has no such end");
        }
        Network {
            ends,
            now: Time::ZERO,
            links,
            flights: BTreeMap::new(),
            arriving: BTreeMap::new(),
            plan: BTreeMap::new(),
            decide: Box::new(|_| Fate::Arrives),
            tick: Span::from_nanos(1),
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

    /// The ends process arrivals only at multiples of `tick`, one nanosecond unless set.
    pub fn set_tick(&mut self, tick: Span) {
        self.tick = tick;
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
            Op::Rate { link, rate } => {
                for direction in &mut self.links[link].directions {
                    direction.line.amend(self.now, Amendment::Rate(rate));
                }
            }
            Op::Delay { link, extra } => self.links[link].extra_delay = extra,
            Op::Deliver { link, direction, index } => {
                if let Some(flight) = self.take(link, direction, index) {
                    self.deliver(flight, false);
                }
            }
            Op::Drop { link, direction, index } => {
                self.take(link, direction, index);
            }
            Op::Duplicate { link, direction, index } => {
                if let Some(number) = self.find(link, direction, index) {
                    let flight = self.flights[&number].clone();
                    self.deliver(flight, false);
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
            self.drain_links();
            while let Some(arriving) = self.arriving.first_entry()
                && arriving.key().0 <= self.now
            {
                let arriving = arriving.remove();
                self.arrive(&arriving);
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
        let directions = self.links.iter().flat_map(|state| &state.directions);
        let deliveries = directions.filter_map(|direction| direction.line.poll_deadline());
        let arrival = self.arriving.first_key_value().map(|((at, _), _)| *at);
        let planned = self.plan.first_key_value().map(|((at, _), _)| *at);
        let events = deadlines.chain(deliveries).chain(arrival).chain(planned);
        events.min().map(|at| at.max(self.now))
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
        let sent = Sent { at: now, link: index, direction, number: state.sent, bytes, packet };
        state.sent += 1;
        let fate = (self.decide)(&sent);
        let number = self.count;
        self.count += 1;
        let held = state.line.held();
        state.line.enqueue(now, link.size(bytes), number);
        let copies = state.line.held() - held;
        // A packet that is lost behind the queue stays in the link, where it takes its time.
        if copies == 0 || fate == Fate::Lost {
            return;
        }
        let late = if let Fate::Late(span) = fate { span } else { Span::ZERO };
        let flight = Flight {
            link: index,
            direction,
            packet: sent.packet,
            is_marked: fate == Fate::Marked,
            extra_delay: *extra_delay + late,
            copies,
        };
        self.flights.insert(number, flight);
    }

    /// Removes the packets from the links that have arrived by now, and notes when they reach the
    /// ends. Operations may have removed some from the flights.
    fn drain_links(&mut self) {
        for direction in self.links.iter_mut().flat_map(|state| &mut state.directions) {
            while let Some(delivery) = direction.line.poll_deliver(self.now) {
                let (number, is_corrupt) = (delivery.packet, delivery.is_corrupted);
                let Some(flight) = self.flights.get(&number) else { continue };
                let at = (delivery.at + flight.extra_delay).as_nanos();
                let at = Time::from_nanos(at.next_multiple_of(self.tick.as_nanos()));
                self.arriving.insert((at, self.count), Arriving { number, is_corrupt });
                self.count += 1;
            }
        }
    }

    /// A copy of a packet reaches its end, unless an operation has removed the packet.
    fn arrive(&mut self, arriving: &Arriving) {
        let Some(mut flight) = self.flights.remove(&arriving.number) else { return };
        flight.copies -= 1;
        if flight.copies > 0 {
            self.flights.insert(arriving.number, flight.clone());
        }
        self.deliver(flight, arriving.is_corrupt);
    }

    fn deliver(&mut self, flight: Flight<E::Packet>, is_corrupt: bool) {
        let Flight { link, direction, packet, is_marked, .. } = flight;
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

    /// The number of a packet in flight in one direction of a link.
    fn find(&self, link: usize, direction: Direction, index: usize) -> Option<u64> {
        let flights = || {
            self.flights
                .iter()
                .filter(|(_, flight)| (flight.link, flight.direction) == (link, direction))
        };
        let index = index.checked_rem(flights().count())?;
        flights().nth(index).map(|(number, _)| *number)
    }

    /// Removes a packet in flight.
    fn take(
        &mut self,
        link: usize,
        direction: Direction,
        index: usize,
    ) -> Option<Flight<E::Packet>> {
        let number = self.find(link, direction, index)?;
        self.flights.remove(&number)
    }
}
