//! A connection in the manner of TCP over one link with a drop-tail queue, packet by packet, in
//! virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use transfer::{Class, Extent, ExtentSet};
use units::{Bytes, Rate, Span, Time};

/// Payload of a packet, and its size on the link.
pub const PAYLOAD: u64 = 1_448;
pub const WIRE: u64 = 1_500;

/// A direction of a path: its rate over time, its delay, its queue.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Rate from each moment on, the first one at zero; rate zero loses everything.
    pub rates: Vec<(Time, Rate)>,
    pub delay: Span,
    pub queue: Bytes,
    pub loss: f64,
    /// Whether acknowledgements come back.
    pub returns: bool,
    /// The class of its paths.
    pub class: Class,
    /// The rate that the sender is told; the scheduler then begins from it.
    pub known: Option<Rate>,
}

impl LinkSpec {
    pub fn new(mbit: f64, delay_ms: u64, queue_kib: u64) -> LinkSpec {
        LinkSpec {
            rates: vec![(Time::ZERO, Rate::from_bits_f64(mbit * 1e6))],
            delay: Span::from_millis(delay_ms),
            queue: Bytes::kib(queue_kib),
            loss: 0.0,
            returns: true,
            class: Class::Primary,
            known: None,
        }
    }

    pub fn then(mut self, at: f64, mbit: f64) -> LinkSpec {
        self.rates.push((Time::ZERO + Span::from_secs_f64(at), Rate::from_bits_f64(mbit * 1e6)));
        self
    }

    pub fn of_class(self, class: Class) -> LinkSpec {
        LinkSpec { class, ..self }
    }

    /// Tells the sender the rate of the beginning.
    pub fn told(self) -> LinkSpec {
        LinkSpec { known: Some(self.rates[0].1), ..self }
    }

    pub fn rate(&self, now: Time) -> Rate {
        self.rates[self.rates.partition_point(|(at, _)| *at <= now) - 1].1
    }

    /// Payload bytes it can carry until then.
    pub fn capacity(&self, until: f64) -> f64 {
        let ends = self.rates.iter().skip(1).map(|(at, _)| at.as_secs_f64()).chain([f64::INFINITY]);
        let pieces = self.rates.iter().zip(ends).map(|((from, rate), to)| {
            let span = (to.min(until) - from.as_secs_f64()).max(0.0);
            span * rate.as_f64() / 8.0
        });
        pieces.sum::<f64>() * 1_448.0 / 1_500.0
    }
}

/// A link shared by any number of connections.
#[derive(Debug)]
pub struct Link {
    pub spec: LinkSpec,
    queue: VecDeque<Packet>,
    queued: u64,
    random: u64,
}

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub connection: usize,
    pub seq: u64,
    pub len: u64,
    pub sent: Time,
}

impl Link {
    pub fn new(spec: LinkSpec, seed: u64) -> Link {
        Link { spec, queue: VecDeque::new(), queued: 0, random: seed | 1 }
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 11) as f64 / (1u64 << 53) as f64) < probability
    }

    /// Takes a packet. If the link was idle, returns when the packet will have left it.
    pub fn enqueue(&mut self, now: Time, packet: Packet) -> Option<Time> {
        let wire = packet.len + WIRE - PAYLOAD;
        if self.spec.rate(now) == Rate::ZERO
            || self.queued + wire > self.spec.queue.0 + WIRE
            || (self.spec.loss > 0.0 && self.chance(self.spec.loss))
        {
            return None;
        }
        self.queue.push_back(packet);
        self.queued += wire;
        (self.queue.len() == 1).then(|| now + self.service(now))
    }

    fn service(&self, now: Time) -> Span {
        let rate = self.spec.rate(now);
        let wire = self.queue[0].len + WIRE - PAYLOAD;
        if rate == Rate::ZERO { Span::from_millis(1) } else { Bytes(wire) / rate }
    }

    /// The head of the queue leaves. Returns it, unless the link is down, and when the next packet
    /// leaves.
    pub fn serve(&mut self, now: Time) -> (Option<Packet>, Option<Time>) {
        let packet = self.queue.pop_front().expect("something was in service");
        self.queued -= packet.len + WIRE - PAYLOAD;
        let next = (!self.queue.is_empty()).then(|| now + self.service(now));
        ((self.spec.rate(now) > Rate::ZERO).then_some(packet), next)
    }
}

/// Both ends of a connection.
#[derive(Debug)]
pub struct Connection {
    pub link: usize,
    pub open: bool,
    /// Frames handed to the socket: stream offset of their end, extent.
    frames: VecDeque<(u64, Extent)>,
    written: u64,
    next: u64,
    /// Unacknowledged packets by sequence number; retransmitted ones again.
    flight: BTreeMap<u64, Flying>,
    /// The packets of `flight` in the order they left, and those given up; both may hold packets
    /// that were acknowledged since.
    order: VecDeque<(Time, u64)>,
    lost: BTreeSet<u64>,
    flying: u64,
    una: u64,
    window: f64,
    threshold: f64,
    recover: u64,
    pub srtt: Span,
    pub min_rtt: Span,
    pub timeouts: u32,
    pub timer: Time,
    arrived: ExtentSet,
}

#[derive(Clone, Copy, Debug)]
struct Flying {
    len: u64,
    sent: Time,
}

impl Connection {
    pub fn new(link: usize) -> Connection {
        Connection {
            link,
            open: true,
            frames: VecDeque::new(),
            written: 0,
            next: 0,
            flight: BTreeMap::new(),
            order: VecDeque::new(),
            lost: BTreeSet::new(),
            flying: 0,
            una: 0,
            window: 10.0 * PAYLOAD as f64,
            threshold: f64::INFINITY,
            recover: 0,
            srtt: Span::ZERO,
            min_rtt: Span::ZERO,
            timeouts: 0,
            timer: Time::from_nanos(u64::MAX),
            arrived: ExtentSet::new(),
        }
    }

    /// Bytes in the socket buffer that were never sent.
    pub fn unsent(&self) -> u64 {
        self.written - self.next
    }

    pub fn acked(&self) -> u64 {
        self.una
    }

    pub fn write(&mut self, extent: Extent) {
        self.written += extent.len;
        self.frames.push_back((self.written, extent));
    }

    fn timeout(&self) -> Span {
        let base = if self.srtt == Span::ZERO {
            Span::from_secs(1)
        } else {
            self.srtt + Span::from_millis(200)
        };
        base * (1 << self.timeouts.min(6))
    }

    /// Packets that may leave: retransmissions first.
    pub fn departures(&mut self, now: Time) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        while let Some(&seq) = self.lost.first() {
            let flight = self.flight.get_mut(&seq).expect("lost packets are in flight");
            if (self.flying + flight.len) as f64 > self.window.max(PAYLOAD as f64) {
                break;
            }
            self.lost.remove(&seq);
            flight.sent = now;
            out.push((seq, flight.len));
            self.flying += flight.len;
            self.order.push_back((now, seq));
        }
        while self.next < self.written
            && (self.flying + PAYLOAD) as f64 <= self.window.max(PAYLOAD as f64)
        {
            let len = PAYLOAD.min(self.written - self.next);
            self.flight.insert(self.next, Flying { len, sent: now });
            self.order.push_back((now, self.next));
            out.push((self.next, len));
            self.next += len;
            self.flying += len;
        }
        if !out.is_empty() && self.timer.as_nanos() == u64::MAX {
            self.timer = now + self.timeout();
        }
        out
    }

    /// The packet reached the other side. Returns the frames that it completes.
    pub fn arrive(&mut self, packet: Packet) -> Vec<Extent> {
        self.arrived.insert(Extent::new(packet.seq, packet.len));
        let upto = self
            .arrived
            .iter()
            .next()
            .filter(|first| first.start == 0)
            .map_or(0, |first| first.end());
        let mut complete = Vec::new();
        while self.frames.front().is_some_and(|(end, _)| *end <= upto) {
            complete.extend(self.frames.pop_front().map(|(_, extent)| extent));
        }
        complete
    }

    /// A selective acknowledgement of one packet.
    pub fn acknowledge(&mut self, now: Time, packet: Packet) {
        let Some(flying) = self.flight.remove(&packet.seq) else { return };
        if !self.lost.remove(&packet.seq) {
            self.flying -= flying.len;
        }
        let rtt = now - packet.sent;
        self.srtt = if self.srtt == Span::ZERO { rtt } else { (self.srtt * 7 + rtt) / 8 };
        self.min_rtt = if self.min_rtt == Span::ZERO { rtt } else { self.min_rtt.min(rtt) };
        self.timeouts = 0;
        self.una = self.flight.keys().next().copied().unwrap_or(self.next);
        // Sent well before a packet that has arrived: lost.
        let mut loss = false;
        while let Some(&(sent, seq)) = self.order.front()
            && sent + self.srtt / 8 < packet.sent
        {
            self.order.pop_front();
            loss |= self.give_up(sent, seq);
        }
        if loss && packet.seq >= self.recover {
            self.recover = self.next;
            self.window = (self.window * 0.7).max(2.0 * PAYLOAD as f64);
            self.threshold = self.window;
        } else if self.window < self.threshold {
            self.window += flying.len as f64;
        } else {
            self.window += 3.0 * PAYLOAD as f64 * flying.len as f64 / self.window;
        }
        self.timer =
            if self.flight.is_empty() { Time::from_nanos(u64::MAX) } else { now + self.timeout() };
    }

    /// The retransmission timer ran out.
    pub fn expire(&mut self, now: Time) {
        self.timeouts += 1;
        self.threshold = (self.window / 2.0).max(2.0 * PAYLOAD as f64);
        self.window = PAYLOAD as f64;
        self.recover = self.next;
        while let Some((sent, seq)) = self.order.pop_front() {
            self.give_up(sent, seq);
        }
        self.timer = now + self.timeout();
    }

    /// Counts a packet as lost if it has not arrived since it left then.
    fn give_up(&mut self, sent: Time, seq: u64) -> bool {
        let Some(flying) = self.flight.get(&seq).filter(|flying| flying.sent == sent) else {
            return false;
        };
        if self.lost.insert(seq) {
            self.flying -= flying.len;
            return true;
        }
        false
    }
}
