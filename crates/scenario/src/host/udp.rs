//! UDP: a source without congestion control, and a sink that counts.

use netsim::{Out, Route};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Seed, Span, Time};

use crate::draw::exponential;
use crate::file::UdpSpec;
use crate::host::NEVER;
use crate::packet::Packet;

/// Sends packets of one size at a constant rate, always or in bursts of random length.
#[derive(Clone, Debug)]
pub struct UdpSource {
    spec: UdpSpec,
    route: Route,
    connection: u32,
    stop: Option<Time>,
    next: Time,
    /// The end of the current on time; `None` if always on. Off times hold the distance to the
    /// next datagram: one that began with a datagram would have half of one too many.
    on_until: Option<Time>,
    rng: Xoshiro256PlusPlus,
    sent: u64,
}

impl UdpSource {
    /// A source that begins at `start`, with datagrams of this connection.
    #[must_use]
    pub fn new(
        spec: UdpSpec,
        route: Route,
        connection: u32,
        start: Time,
        stop: Option<Time>,
        seed: Seed,
    ) -> UdpSource {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed.0);
        let on_until = spec.on_off.map(|(on, _)| start + exponential(&mut rng, on));
        UdpSource { spec, route, connection, stop, next: start, on_until, rng, sent: 0 }
    }

    /// The number of datagrams sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The time of the next datagram.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        self.stop.is_none_or(|stop| self.next < stop).then_some(self.next)
    }

    /// Sends a datagram.
    ///
    /// # Panics
    /// If packets are larger than 65535 bytes, which the file's reader refuses.
    pub fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        let bytes = u16::try_from(self.spec.packet.0).expect("the file's reader checked");
        out.send(
            self.route,
            Packet::Udp { connection: self.connection, bytes, sent_at: now, number: self.sent },
        );
        self.sent += 1;
        // At least a nanosecond, so that time advances.
        self.next = now + (self.spec.packet / self.spec.rate).max(Span::from_nanos(1));
        self.skip_off_times();
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
}

impl UdpSink {
    /// A datagram has arrived.
    pub fn handle_datagram(&mut self, now: Time, bytes: u16, sent_at: Time) {
        self.received += Bytes(u64::from(bytes));
        self.datagrams += 1;
        self.delay += now - sent_at;
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
}
