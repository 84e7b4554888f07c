//! UDP: a source without congestion control, and a sink that counts.

use std::sync::Arc;

use netsim::{Out, Route};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Seed, Span, Time};

use crate::draw::exponential;
use crate::file::{Pace, UdpSpec};
use crate::host::{Ended, NEVER, Request};
use crate::packet::Packet;

/// The least packet: the headers.
const LEAST: Bytes = Bytes(28);
/// The largest packet.
const LARGEST: Bytes = Bytes(65_535);

/// Sends packets at a rate, at intervals or at given times, always or in bursts of random length.
#[derive(Clone, Debug)]
pub struct UdpSource {
    spec: Arc<UdpSpec>,
    route: Route,
    connection: u32,
    start: Time,
    stop: Option<Time>,
    next: Time,
    /// The end of the current on time; `None` if always on. Off times hold the distance to the
    /// next datagram: one that began with a datagram would have half of one too many.
    on_until: Option<Time>,
    /// Draws the on and off times.
    rng: Xoshiro256PlusPlus,
    /// Draws the sizes and the intervals.
    sizes: Xoshiro256PlusPlus,
    intervals: Xoshiro256PlusPlus,
    /// Bytes to be sent; `None` for no end.
    left: Option<Bytes>,
    sent: u64,
}

impl UdpSource {
    /// A source that begins at `start` and ends after `size` bytes, with datagrams of this
    /// connection: of no bytes, after one datagram without payload.
    #[must_use]
    pub fn new(
        spec: Arc<UdpSpec>,
        route: Route,
        connection: u32,
        start: Time,
        stop: Option<Time>,
        size: Option<Bytes>,
        seed: Seed,
    ) -> UdpSource {
        let stream = |seed: Seed| Xoshiro256PlusPlus::seed_from_u64(seed.0);
        let mut rng = stream(seed);
        let on_until = spec.on_off.map(|(on, _)| start + exponential(&mut rng, on));
        let first = match &spec.pace {
            Pace::Trace(packets) => packets.first().map_or(NEVER, |(at, _)| start + *at),
            Pace::Rate(_) | Pace::Interval(_) => start,
        };
        UdpSource {
            route,
            connection,
            start,
            stop,
            next: first,
            on_until,
            rng,
            sizes: stream(seed.stream("packet")),
            intervals: stream(seed.stream("interval")),
            left: size,
            sent: 0,
            spec,
        }
    }

    /// The number of datagrams sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The time of the next datagram.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        let is_on = self.next < NEVER && self.stop.is_none_or(|stop| self.next < stop);
        is_on.then_some(self.next)
    }

    /// Sends a datagram.
    ///
    /// # Panics
    /// Never: packets have at most 65535 bytes.
    pub fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        let bytes = self.packet();
        out.send(
            self.route,
            Packet::Udp {
                connection: self.connection,
                bytes: u16::try_from(bytes.0).expect("it is clamped"),
                sent_at: now,
                number: self.sent,
            },
        );
        self.sent += 1;
        if let Some(left) = &mut self.left {
            *left -= bytes;
            if *left == Bytes::ZERO {
                self.next = NEVER;
                return;
            }
        }
        // At least a nanosecond, so that time advances.
        self.next = match &self.spec.pace {
            Pace::Rate(rate) => now + (bytes / *rate).max(Span::from_nanos(1)),
            Pace::Interval(interval) => now + interval.draw_span(&mut self.intervals),
            Pace::Trace(packets) => {
                let place = usize::try_from(self.sent).expect("a trace is in memory");
                packets.get(place).map_or(NEVER, |(at, _)| self.start + *at)
            }
        };
        self.skip_off_times();
    }

    /// The size of the next packet.
    fn packet(&mut self) -> Bytes {
        let bytes = match &self.spec.pace {
            Pace::Trace(packets) => {
                packets[usize::try_from(self.sent).expect("a trace is in memory")].1
            }
            _ => self.spec.packet.draw_bytes(&mut self.sizes),
        };
        self.left.map_or(bytes, |left| bytes.min(left)).clamp(LEAST, LARGEST)
    }

    /// What is kept of it once it has sent everything.
    pub(crate) fn ended(&self) -> Option<Ended> {
        let is_over = self.poll_deadline().is_none();
        is_over.then(|| Ended { sent: self.sent, ..Ended::default() })
    }

    /// Moves the next datagram on by the off times before it.
    fn skip_off_times(&mut self) {
        let Some((on, off)) = self.spec.on_off else { return };
        while self.next < NEVER
            && let Some(until) = self.on_until.filter(|until| *until <= self.next)
        {
            let pause = exponential(&mut self.rng, off);
            self.next += pause;
            self.on_until = Some(until + pause + exponential(&mut self.rng, on));
        }
    }
}

/// Counts received datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct UdpSink {
    received: Bytes,
    datagrams: u64,
    delay: Span,
    /// The start and the size of a flow that has an end.
    expected: Option<(Time, Bytes)>,
    done: Option<Request>,
}

impl UdpSink {
    /// The sink of a flow that begins at `start` and has `size` bytes, if it has an end.
    #[must_use]
    pub fn new(start: Time, size: Option<Bytes>) -> UdpSink {
        UdpSink { expected: size.map(|size| (start, size)), ..UdpSink::default() }
    }

    /// A datagram has arrived.
    pub fn handle_datagram(&mut self, now: Time, bytes: u16, sent_at: Time) {
        self.received += Bytes(u64::from(bytes));
        self.datagrams += 1;
        self.delay += now - sent_at;
        if let Some((at, bytes)) = self.expected.take_if(|(_, size)| *size <= self.received) {
            self.done = Some(Request { at, done: now, bytes, asked: Bytes::ZERO });
        }
    }

    /// Bytes received, headers included.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.received
    }

    /// Datagrams received.
    #[must_use]
    pub fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// The sum of their one-way delays.
    #[must_use]
    pub fn delay(&self) -> Span {
        self.delay
    }

    /// The arrival of the whole flow, if it has an end and nothing was lost.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        self.done.as_slice()
    }

    /// What is kept of it once everything has arrived.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.done.map(|done| Ended {
            arrived: self.received,
            datagrams: (self.datagrams, self.delay),
            requests: [done].into(),
            ..Ended::default()
        })
    }
}
