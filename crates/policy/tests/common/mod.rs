//! A small model to test controllers: links are a FIFO with a rate, flows always have data to send,
//! paced if the controller sets a rate, and each packet is acknowledged. A loss is detected when
//! the acknowledgement would have arrived; there are no timeouts. The model is simple, so that its
//! results show the controller's behaviour, and deterministic on every machine.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use policy::cc::{Acked, Congestion, Controller, Lost, Sent, Signal, Start, by_name};
use units::{Bytes, Rate, Span, SubflowId, Time};

/// All packets have this size, on the wire and for the controller.
pub const MSS: Bytes = Bytes(1_500);

pub fn secs(secs: u64) -> Span {
    Span::from_secs(secs)
}

/// Mbit/s of each flow since the last measurement began.
pub fn rates(model: &Model) -> Vec<f64> {
    model.flows.iter().map(|flow| model.rate(flow.delivered()) * 12e-3).collect()
}

/// Jain's index of fairness.
pub fn jain(rates: &[f64]) -> f64 {
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    rates.iter().sum::<f64>().powi(2) / rates.len() as f64 / squares
}

/// The packets that a link drops besides those that do not fit the buffer.
#[derive(Clone, Copy, Debug)]
pub enum Drops {
    /// Nothing.
    None,
    /// The first packet, and every n-th after it.
    Every(u64),
    /// Random losses, in packets of a million.
    Random(u64),
    /// A loss rate that rises from 0 at `from` waiting packets to `most` at `to`.
    Red { from: f64, to: f64, most: f64 },
}

/// The packets that a link marks.
#[derive(Clone, Copy, Debug)]
pub enum Marks {
    /// Nothing.
    None,
    /// Those that find more than so many waiting.
    Above(f64),
    /// Every n-th.
    Every(u64),
    /// Random ones, in packets of a million.
    Random(u64),
}

#[derive(Debug)]
pub struct Link {
    pub rate: Rate,
    /// The queue limit in packets.
    pub buffer: f64,
    pub drops: Drops,
    pub marks: Marks,
    free_at: Time,
    arrivals: u64,
    /// Packets dropped since the beginning.
    pub dropped: u64,
    random: u64,
    /// Sum of the queue lengths seen by packets since the last [`Model::measure`], and the number
    /// of packets.
    met: (f64, u64),
}

impl Link {
    pub fn new(rate: Rate, buffer: f64, drops: Drops) -> Link {
        Link {
            rate,
            buffer,
            drops,
            marks: Marks::None,
            free_at: Time::ZERO,
            arrivals: 0,
            dropped: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            met: (0.0, 0),
        }
    }

    /// The mean queue length that packets saw, in packets.
    pub fn mean_queue(&self) -> f64 {
        self.met.0 / self.met.1 as f64
    }

    fn draw(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// When the packet would leave the link, and what happens to it.
    fn enqueue(&mut self, now: Time) -> (Time, Fate) {
        let service = MSS / self.rate;
        let queue = self.free_at.since(now).as_nanos() as f64 / service.as_nanos() as f64;
        self.met = (self.met.0 + queue, self.met.1 + 1);
        self.arrivals += 1;
        let leaves = self.free_at.max(now) + service;
        let is_dropped = queue > self.buffer
            || match self.drops {
                Drops::None => false,
                Drops::Every(n) => self.arrivals % n == 1,
                Drops::Random(share) => self.draw() < share as f64 / 1e6,
                Drops::Red { from, to, most } => {
                    self.draw() < most * ((queue - from) / (to - from)).clamp(0.0, 1.0)
                }
            };
        if is_dropped {
            self.dropped += 1;
            return (leaves, Fate::Dropped);
        }
        self.free_at = leaves;
        let is_marked = match self.marks {
            Marks::None => false,
            Marks::Above(most) => queue > most,
            Marks::Every(n) => self.arrivals.is_multiple_of(n),
            Marks::Random(share) => self.draw() < share as f64 / 1e6,
        };
        (leaves, if is_marked { Fate::Marked } else { Fate::Arrives })
    }
}

/// What happens to a packet on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Arrives,
    Marked,
    Dropped,
}

#[derive(Debug)]
pub struct Subflow {
    id: SubflowId,
    link: usize,
    propagation: Span,
    pub in_flight: Bytes,
    sent: u64,
    /// Packets that arrived since the last [`Model::measure`].
    pub delivered: u64,
    smoothed_rtt: Option<Span>,
    min_rtt: Span,
    round: u64,
    round_end: u64,
    /// Losses of packets sent before this belong to the last congestion event.
    cut_at: Option<Time>,
    /// Marks of packets sent before this, likewise.
    marked_at: Option<Time>,
    /// The window in whole packets at the end of each round trip.
    pub curve: Vec<u64>,
    /// Bytes delivered since the beginning, when the last of them arrived, and when it was sent.
    total: u64,
    delivered_at: Time,
    first_sent_at: Time,
    /// When pacing allows the next packet, and whether an event is queued for it.
    ready_at: Time,
    is_waiting: bool,
    /// The pacing rate at the end of each round trip.
    pub pacing: Vec<Rate>,
}

/// The per-packet state of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stamp {
    sent_at: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
}

#[derive(Debug)]
pub struct Flow {
    pub controller: Box<dyn Controller>,
    pub subflows: Vec<Subflow>,
    /// For when a [`Event::Deadline`] is queued.
    deadline: Option<Time>,
}

impl Flow {
    pub fn delivered(&self) -> u64 {
        self.subflows.iter().map(|subflow| subflow.delivered).sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start {
        flow: usize,
        packets: u64,
    },
    Answer {
        flow: usize,
        subflow: usize,
        packet: u64,
        stamp: Stamp,
        window: Bytes,
        in_flight: Bytes,
        fate: Fate,
    },
    Ready {
        flow: usize,
        subflow: usize,
    },
    /// The controller's own timer, which may have been set anew since.
    Deadline {
        flow: usize,
    },
}

/// What one-way delays are measured by: the far side's clock beside the near one's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    /// How far it is ahead at first.
    pub ahead: Span,
    /// How much faster it runs, in parts of a million.
    pub drift: i64,
    /// Of so many packets one carries no time; 0: each carries it.
    pub without: u64,
}

impl Clocks {
    /// What is measured of a packet that takes `delay`.
    fn one_way(self, now: Time, packet: u64, delay: Span) -> Option<Span> {
        if self.without > 0 && packet.is_multiple_of(self.without) {
            return None;
        }
        let drift = now.as_nanos().cast_signed() / 1_000_000 * self.drift;
        let nanos = (self.ahead + delay).as_nanos().cast_signed() + drift;
        Some(Span::from_nanos(nanos.cast_unsigned()))
    }
}

#[derive(Debug, Default)]
pub struct Model {
    pub clocks: Clocks,
    pub links: Vec<Link>,
    pub flows: Vec<Flow>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    admitted: u64,
    measured_from: Time,
    now: Time,
}

impl Model {
    pub fn link(&mut self, link: Link) -> usize {
        self.links.push(link);
        self.links.len() - 1
    }

    /// A flow under the named controller with a subflow on each of `paths`: a link and the
    /// propagation delay there and back.
    pub fn flow(&mut self, controller: &str, paths: &[(usize, Span)], start: Span) -> usize {
        self.flow_from(10, controller, paths, start)
    }

    /// The same with an initial window of `packets`.
    pub fn flow_from(
        &mut self,
        packets: u64,
        controller: &str,
        paths: &[(usize, Span)],
        start: Span,
    ) -> usize {
        let controller = by_name(controller).unwrap_or_else(|error| panic!("{error}"));
        self.flow_of(packets, controller, paths, start)
    }

    /// As [`Model::flow_from`], of a controller that may have no name.
    pub fn flow_of(
        &mut self,
        packets: u64,
        controller: Box<dyn Controller>,
        paths: &[(usize, Span)],
        start: Span,
    ) -> usize {
        let subflows = paths.iter().zip(0..).map(|(&(link, propagation), id)| Subflow {
            id: SubflowId(id),
            link,
            propagation,
            in_flight: Bytes::ZERO,
            sent: 0,
            delivered: 0,
            smoothed_rtt: None,
            min_rtt: Span::from_nanos(u64::MAX),
            round: 0,
            round_end: 0,
            cut_at: None,
            marked_at: None,
            curve: Vec::new(),
            total: 0,
            delivered_at: Time::ZERO,
            first_sent_at: Time::ZERO,
            ready_at: Time::ZERO,
            is_waiting: false,
            pacing: Vec::new(),
        });
        self.flows.push(Flow { controller, subflows: subflows.collect(), deadline: None });
        let flow = self.flows.len() - 1;
        self.admit(Time::ZERO + start, Event::Start { flow, packets });
        flow
    }

    /// Runs until `until`; measurements begin at `from`.
    pub fn measure(&mut self, from: Span, until: Span) {
        self.run(from);
        for link in &mut self.links {
            link.met = (0.0, 0);
        }
        for flow in &mut self.flows {
            flow.subflows.iter_mut().for_each(|subflow| subflow.delivered = 0);
        }
        self.measured_from = self.now;
        self.run(until);
    }

    pub fn run(&mut self, until: Span) {
        let until = Time::ZERO + until;
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= until) {
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            self.now = at;
            self.handle(event);
        }
        self.now = until;
    }

    /// Packets a second since the last measurement began.
    pub fn rate(&self, packets: u64) -> f64 {
        packets as f64 / self.now.since(self.measured_from).as_secs_f64()
    }

    fn admit(&mut self, at: Time, event: Event) {
        self.admitted += 1;
        self.events.push(Reverse((at, self.admitted, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Start { flow, packets } => {
                for at in 0..self.flows[flow].subflows.len() {
                    let Flow { controller, subflows, .. } = &mut self.flows[flow];
                    let start =
                        Start { mss: MSS, initial_window: Bytes(packets * MSS.0), rtt: None };
                    controller.handle_add(self.now, subflows[at].id, &start);
                    self.send(flow, at);
                }
            }
            Event::Answer { flow, subflow, fate: Fate::Dropped, stamp, in_flight, .. } => {
                self.handle_loss(flow, subflow, stamp.sent_at, in_flight);
                self.send(flow, subflow);
            }
            Event::Answer { flow, subflow, packet, stamp, window, fate, .. } => {
                if fate == Fate::Marked {
                    self.handle_mark(flow, subflow, stamp.sent_at);
                }
                let is_marked = fate == Fate::Marked;
                self.handle_arrival(flow, subflow, (packet, is_marked), stamp, window);
                self.send(flow, subflow);
            }
            Event::Ready { flow, subflow } => {
                self.flows[flow].subflows[subflow].is_waiting = false;
                self.send(flow, subflow);
            }
            Event::Deadline { flow } => self.handle_deadline(flow),
        }
    }

    fn handle_deadline(&mut self, flow: usize) {
        let Flow { controller, subflows, deadline } = &mut self.flows[flow];
        *deadline = None;
        let ids = subflows.len();
        if controller.poll_deadline().is_some_and(|at| at <= self.now) {
            controller.handle_deadline(self.now);
            while controller.poll_changed().is_some() {}
        }
        (0..ids).for_each(|at| self.send(flow, at));
    }

    fn handle_loss(&mut self, flow: usize, at: usize, sent_at: Time, in_flight_at_sending: Bytes) {
        let Flow { controller, subflows, .. } = &mut self.flows[flow];
        let subflow = &mut subflows[at];
        controller.handle_lost(
            self.now,
            subflow.id,
            &Lost { bytes: MSS, in_flight_at_sending: Some(in_flight_at_sending), sent_at },
        );
        if subflow.cut_at.is_none_or(|cut_at| sent_at >= cut_at) {
            subflow.cut_at = Some(self.now);
            subflow.marked_at = Some(self.now);
            let congestion = Congestion { signal: Signal::Loss, in_flight: subflow.in_flight };
            controller.handle_congestion(self.now, subflow.id, &congestion);
        }
        subflow.in_flight -= MSS;
    }

    /// A marked packet is congestion once a round trip, and no recovery.
    fn handle_mark(&mut self, flow: usize, at: usize, sent_at: Time) {
        let Flow { controller, subflows, .. } = &mut self.flows[flow];
        let subflow = &mut subflows[at];
        if subflow.marked_at.is_none_or(|marked_at| sent_at >= marked_at) {
            subflow.marked_at = Some(self.now);
            let congestion = Congestion { signal: Signal::Mark, in_flight: subflow.in_flight };
            controller.handle_congestion(self.now, subflow.id, &congestion);
        }
    }

    fn handle_arrival(
        &mut self,
        flow: usize,
        at: usize,
        (packet, is_marked): (u64, bool),
        stamp: Stamp,
        window: Bytes,
    ) {
        let clocks = self.clocks;
        let Flow { controller, subflows, .. } = &mut self.flows[flow];
        let subflow = &mut subflows[at];
        let sent_at = stamp.sent_at;
        let rtt = self.now.since(sent_at);
        let old = subflow.smoothed_rtt.unwrap_or(rtt);
        let smoothed_rtt = Span::from_nanos((7 * old.as_nanos() + rtt.as_nanos()) / 8);
        subflow.smoothed_rtt = Some(smoothed_rtt);
        subflow.min_rtt = subflow.min_rtt.min(rtt);
        subflow.in_flight -= MSS;
        subflow.delivered += 1;
        subflow.total += MSS.0;
        subflow.delivered_at = self.now;
        subflow.first_sent_at = sent_at;
        let interval = self.now.since(stamp.delivered_at).max(sent_at.since(stamp.first_sent_at));
        if packet >= subflow.round_end {
            subflow.round += 1;
            subflow.round_end = subflow.sent;
            let allowance = controller.allowance(subflow.id);
            subflow.curve.push(allowance.window.0 / MSS.0);
            subflow.pacing.extend(allowance.pacing);
        }
        let acked = Acked {
            bytes: MSS,
            in_flight: subflow.in_flight,
            sent_at,
            window_at_sending: Some(window),
            rtt: Some(rtt),
            smoothed_rtt,
            min_rtt: subflow.min_rtt,
            one_way_delay: clocks.one_way(self.now, packet, rtt - subflow.propagation / 2),
            ack_delay: None,
            delivery_rate: (interval >= subflow.min_rtt)
                .then(|| Bytes(subflow.total - stamp.delivered) / interval),
            round: subflow.round,
            ce_packets: u64::from(is_marked),
            ce_bytes: if is_marked { MSS } else { Bytes::ZERO },
            is_app_limited: false,
            in_recovery: subflow.cut_at.is_some_and(|cut_at| sent_at < cut_at),
            slow_start_divisor: 1,
        };
        controller.handle_acked(self.now, subflow.id, &acked);
    }

    fn send(&mut self, flow: usize, at: usize) {
        let Flow { controller, deadline, .. } = &mut self.flows[flow];
        if let Some(due) = controller.poll_deadline()
            && deadline.is_none_or(|at| due < at)
        {
            *deadline = Some(due);
            self.admit(due, Event::Deadline { flow });
        }
        loop {
            let Flow { controller, subflows, .. } = &mut self.flows[flow];
            let subflow = &mut subflows[at];
            let allowance = controller.allowance(subflow.id);
            let window = allowance.window;
            if subflow.in_flight + MSS > window.max(MSS) {
                return;
            }
            if let Some(rate) = allowance.pacing {
                if subflow.ready_at > self.now {
                    if !subflow.is_waiting {
                        subflow.is_waiting = true;
                        let ready_at = subflow.ready_at;
                        self.admit(ready_at, Event::Ready { flow, subflow: at });
                    }
                    return;
                }
                subflow.ready_at = self.now + MSS / rate;
            }
            if subflow.in_flight == Bytes::ZERO {
                subflow.first_sent_at = self.now;
                subflow.delivered_at = self.now;
            }
            let stamp = Stamp {
                sent_at: self.now,
                delivered: subflow.total,
                delivered_at: subflow.delivered_at,
                first_sent_at: subflow.first_sent_at,
            };
            subflow.in_flight += MSS;
            let in_flight = subflow.in_flight;
            controller.handle_sent(
                self.now,
                subflow.id,
                &Sent { bytes: MSS, in_flight, is_retransmission: false },
            );
            let packet = subflow.sent;
            subflow.sent += 1;
            let (leaves, fate) = self.links[subflow.link].enqueue(self.now);
            let answer_at = leaves + subflow.propagation;
            self.admit(
                answer_at,
                Event::Answer { flow, subflow: at, packet, stamp, window, in_flight, fate },
            );
        }
    }
}
