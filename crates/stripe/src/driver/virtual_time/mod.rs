//! Endpoints in virtual time. A test does the turns of their threads, over real sockets of
//! loopback, and time goes on when there is nothing left to do: what a busy machine does late
//! happens here when it is due.

mod doubts;
mod line;
mod tests;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use secure::testing::{Key, client, server};
use units::{Bytes, Rate, Span, Time};

use self::line::VirtualLine;
use super::Driver;
use super::turns::Buffers;
use crate::clock::StampedClock;
use crate::{Connection, Endpoint, Listening, Options, Route};

/// What a turn of all ends takes: what leaves in one arrives in the next.
const TURN: Span = Span::from_micros(100);
/// Turns without work after which time goes on to what is due next: programs may have answers.
const QUIET: u32 = 3;

/// Endpoints with one clock.
#[derive(Default)]
struct World {
    now: Arc<AtomicU64>,
    drivers: Vec<(Driver, Buffers)>,
    lines: Vec<VirtualLine>,
    /// Turns without work, at present.
    quiet: u32,
}

/// Two ends of a connection, and the endpoints that have them.
struct Pair {
    near: Connection,
    far: Connection,
    /// The one that dials, and the one that listens.
    endpoints: [Endpoint; 2],
}

/// Runs a test.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(test);
}

impl World {
    fn now(&self) -> Time {
        Time::from_nanos(self.now.load(Ordering::Relaxed))
    }

    fn clock(&self) -> StampedClock {
        StampedClock::set_by(Arc::clone(&self.now))
    }

    fn take_in(&mut self, (endpoint, driver): (Endpoint, Driver)) -> Endpoint {
        self.drivers.push((driver, Buffers::default()));
        endpoint
    }

    /// Two connected ends over so many routes, to an address of loopback each.
    async fn pair(&mut self, count: u8, options: Options) -> Pair {
        let direct = |_: &mut World, port| {
            (1..=count).map(|host| Route::to(([127, 0, 0, host], port).into())).collect()
        };
        self.pair_over(direct, options).await
    }

    /// Two connected ends over routes to a port of loopback.
    async fn pair_over(
        &mut self,
        routes: impl FnOnce(&mut World, u16) -> Vec<Route>,
        options: Options,
    ) -> Pair {
        let (near_key, far_key) = (Key::generate(), Key::generate());
        let anywhere = Listening::at(([0, 0, 0, 0], 0).into());
        let tls = Arc::new(server(&far_key));
        let listening = Endpoint::listening(&anywhere, &tls, options.clone(), self.clock());
        let listening = self.take_in(listening.expect("a port is free"));
        let dialing = Endpoint::dialing(self.clock()).expect("there are descriptors");
        let dialing = self.take_in(dialing);
        let port = listening.local_addresses()[0].port();
        let routes = routes(self, port);
        let tls = Arc::new(client(&near_key, &far_key));
        let connecting =
            async { tokio::join!(dialing.connect(routes, &tls, options), listening.accept()) };
        let (near, far) = self.until(connecting).await;
        let (near, far) = (near.expect("it answers"), far.expect("it listens"));
        far.admit(Bytes::mib(64));
        Pair { near, far, endpoints: [dialing, listening] }
    }

    /// Where a line begins that leads to a port of loopback, of this rate, and this delay in each
    /// direction.
    fn line(&mut self, port: u16, rate: Rate, delay: Span) -> SocketAddr {
        let line = VirtualLine::to(([127, 0, 0, 1], port).into(), rate, delay);
        let begin = line.begin();
        self.lines.push(line);
        begin
    }

    /// The program with the endpoint of this number, as they were taken in, is killed.
    fn kill(&mut self, place: usize) {
        self.drivers.remove(place);
    }

    /// Goes on until something is done.
    async fn until<T>(&mut self, what: impl Future<Output = T>) -> T {
        let mut what = pin!(what);
        loop {
            tokio::select! {
                biased;
                done = &mut what => return done,
                () = self.turn(None) => {}
            }
        }
    }

    /// Goes on for so long.
    async fn go_on(&mut self, span: Span) {
        let end = self.now() + span;
        while self.now() < end {
            self.turn(Some(end)).await;
        }
    }

    /// Programs and drivers do what they can at present, and time goes on, at most to `end`.
    async fn turn(&mut self, end: Option<Time>) {
        tokio::task::yield_now().await;
        let mut is_busy = false;
        for (driver, buffers) in &mut self.drivers {
            is_busy |= driver.work(buffers);
            is_busy |= driver.listen(Some(Duration::ZERO), buffers).expect("sockets can be polled");
        }
        let now = self.now();
        for line in &mut self.lines {
            is_busy |= line.carry(now);
        }
        self.quiet = if is_busy { 0 } else { self.quiet + 1 };
        let mut next = self.now() + TURN;
        if self.quiet > QUIET {
            let of_drivers = self.drivers.iter().filter_map(|(driver, _)| driver.next());
            let due = of_drivers.chain(self.lines.iter().filter_map(VirtualLine::next)).min();
            next = next.max(due.or(end).expect("something is due"));
        }
        let next = end.map_or(next, |end| next.min(end));
        self.now.store(next.as_nanos(), Ordering::Relaxed);
    }
}
