//! The applications at the ends of connections: what they write, and when requests are complete.

use std::collections::VecDeque;
use std::sync::Arc;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Rate, Seed, Span, Time};

use crate::distribution::Distribution;
use crate::file::{Lines, Requests, Workload};

/// The time between two writes of a stream.
const TICK: Span = Span::from_millis(10);

/// A completed request or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The time of the request or write.
    pub at: Time,
    /// The arrival of the last byte.
    pub done: Time,
    /// The size.
    pub bytes: Bytes,
    /// The size of the message that asked for it, of a page the least of those; zero of a write.
    pub asked: Bytes,
}

/// The application at one end of a flow. Larger variants are boxed: each packet reads the
/// discriminant, and few need more.
#[derive(Clone, Debug)]
pub enum Application {
    /// Writes without end.
    Bulk,
    /// Writes a number of bytes.
    File {
        /// The bytes that are left.
        left: Bytes,
    },
    /// Writes at a rate.
    Stream(Box<Stream>),
    /// Writes at given times.
    Trace(Box<Trace>),
    /// Answers requests. Both ends draw the sizes from the same random stream.
    Server(Box<Server>),
    /// Sends requests, with think times between.
    Client(Box<Client>),
    /// Reads everything.
    Reader,
    /// Reads, and records when each write has arrived.
    Sink(Box<Sink>),
}

/// An application that writes at a constant rate.
#[derive(Clone, Debug)]
pub struct Stream {
    rate: Rate,
    /// The next write.
    next: Time,
    /// The first write.
    since: Time,
    /// Bytes written so far.
    written: Bytes,
}

/// An application that writes at given times.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The writes that are left, in order.
    left: VecDeque<(Time, Bytes)>,
}

/// A server that answers requests.
#[derive(Clone, Debug)]
pub struct Server {
    exchange: Exchange,
    /// The request that is next to arrive completely: its end in the stream, and the size of its
    /// answer.
    next: (Bytes, Bytes),
}

/// The requests of a connection and their answers. Both ends draw the same.
#[derive(Clone, Debug)]
struct Exchange {
    spec: Arc<Requests>,
    /// Draw the sizes of answers, and of requests.
    sizes: Xoshiro256PlusPlus,
    requests: Xoshiro256PlusPlus,
}

impl Exchange {
    fn new(spec: &Arc<Requests>, seed: Seed) -> Exchange {
        let stream = |name| Xoshiro256PlusPlus::seed_from_u64(seed.stream(name).0);
        Exchange { spec: Arc::clone(spec), sizes: stream("size"), requests: stream("request") }
    }

    /// The sizes of the next request and of its answer.
    fn draw(&mut self) -> (Bytes, Bytes) {
        let request = self.spec.request.draw_bytes(&mut self.requests);
        (request, self.spec.size.draw_bytes(&mut self.sizes))
    }

    /// The sums of the sizes of the next requests and of their answers, all for one page, and the
    /// least size of these requests.
    fn draw_page(&mut self) -> (Bytes, Bytes, Bytes) {
        let objects = if self.spec.lines == Lines::One { self.spec.objects } else { 1 };
        (0..objects)
            .map(|_| self.draw())
            .fold((Bytes::ZERO, Bytes::ZERO, Bytes(u64::MAX)), |sums, sizes| {
                (sums.0 + sizes.0, sums.1 + sizes.1, sums.2.min(sizes.0))
            })
    }
}

/// An application that waits for the writes of the other end.
#[derive(Clone, Debug)]
pub struct Sink {
    /// The incomplete writes in order: time, size, and end in the stream.
    expected: VecDeque<(Time, Bytes, Bytes)>,
    /// When the last of the completed ones was complete.
    since: Time,
    /// The completed ones.
    done: Vec<Request>,
}

/// A client that sends requests.
#[derive(Clone, Debug)]
pub struct Client {
    exchange: Exchange,
    /// Draws the think times.
    thoughts: Xoshiro256PlusPlus,
    /// The time of the next request; `None` while one is pending, and after the last.
    next: Option<Time>,
    /// The pending request.
    pending: Option<Pending>,
    /// The sum of all requested sizes.
    asked: Bytes,
    /// The number of requests that may still be sent; `None` for no end.
    left: Option<u64>,
    /// Whether requests come one by one from [`Client::ask`], and not after think times.
    is_asked: bool,
    /// The completed ones.
    done: Vec<Request>,
}

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Pending {
    at: Time,
    /// Its size; of a page, the least size of its requests.
    asked: Bytes,
    /// The size of the answer, and its end in the stream.
    answer: Bytes,
    end: Bytes,
}

impl Client {
    /// Sends a request at `now`; none may be pending.
    pub(crate) fn ask(&mut self, now: Time) {
        self.next = Some(now);
    }

    /// Whether it has no request to send and none pending.
    pub(crate) fn is_free(&self) -> bool {
        self.next.is_none() && self.pending.is_none() && self.left != Some(0)
    }

    /// A request whose answer is complete, once.
    pub(crate) fn take_answer(&mut self) -> Option<Request> {
        self.done.pop()
    }
}

impl Sink {
    /// Completes the writes that have arrived. One of nothing is complete with its predecessor, but
    /// not before its time; the last one, when the stream ends.
    fn handle_received(&mut self, now: Time, received: Bytes) {
        while let Some((at, bytes, end)) = self.expected.front().copied()
            && end <= received
        {
            let is_empty = bytes == Bytes::ZERO;
            let is_last = self.expected.len() == 1;
            if is_empty && (is_last || end == received && at > now) {
                return;
            }
            self.complete(at, bytes, if is_empty { at.max(self.since) } else { now });
        }
    }

    fn handle_end(&mut self, now: Time, received: Bytes) {
        self.handle_received(now, received);
        while let Some((at, bytes, end)) = self.expected.front().copied()
            && end <= received
            && at <= now
        {
            let is_last = self.expected.len() == 1;
            self.complete(at, bytes, if is_last { now } else { at.max(self.since) });
        }
    }

    /// The first of the incomplete writes is complete.
    fn complete(&mut self, at: Time, bytes: Bytes, done: Time) {
        self.expected.pop_front();
        self.since = done;
        self.done.push(Request { at, done, bytes, asked: Bytes::ZERO });
    }
}

/// The size of a flow's file; `seed` is the flow's. Both ends draw the same one.
pub(crate) fn file_size(size: &Distribution, seed: Seed) -> Bytes {
    let seed = seed.stream("source").stream("file");
    size.draw_bytes(&mut Xoshiro256PlusPlus::seed_from_u64(seed.0))
}

impl Application {
    /// The application of the sender or the receiver of a workload that begins at `start`; `seed`
    /// is the flow's.
    #[must_use]
    pub fn new(workload: &Workload, start: Time, seed: Seed, is_sender: bool) -> Application {
        let sink = |expected| {
            Application::Sink(Box::new(Sink { expected, since: start, done: Vec::new() }))
        };
        match (workload, is_sender) {
            (Workload::Bulk, true) => Application::Bulk,
            (Workload::Bulk | Workload::Stream(_), false) => Application::Reader,
            (Workload::File(size), _) => {
                let bytes = file_size(size, seed);
                if is_sender {
                    return Application::File { left: bytes };
                }
                sink([(start, bytes, bytes)].into())
            }
            (Workload::Stream(rate), true) => {
                let stream =
                    Stream { rate: *rate, next: start, since: start, written: Bytes::ZERO };
                Application::Stream(Box::new(stream))
            }
            (Workload::Trace(writes), true) => {
                let left = writes.iter().map(|(at, bytes)| (start + *at, *bytes)).collect();
                Application::Trace(Box::new(Trace { left }))
            }
            (Workload::Trace(writes), false) => {
                let mut end = Bytes::ZERO;
                let expected = writes.iter().map(|(at, bytes)| {
                    end += *bytes;
                    (start + *at, *bytes, end)
                });
                sink(expected.collect())
            }
            (Workload::Requests(spec), _) => {
                let seed = seed.stream("source");
                let mut exchange = Exchange::new(spec, seed);
                if is_sender {
                    let next = exchange.draw();
                    return Application::Server(Box::new(Server { exchange, next }));
                }
                Application::Client(Box::new(Client {
                    thoughts: Xoshiro256PlusPlus::seed_from_u64(seed.stream("think").0),
                    next: Some(start),
                    pending: None,
                    asked: Bytes::ZERO,
                    left: spec.count,
                    is_asked: false,
                    done: Vec::new(),
                    exchange,
                }))
            }
        }
    }

    /// The application at one end of one of several connections of a flow; `seed` is the
    /// connection's. The client's first request is at `first`; a server has none.
    pub(crate) fn line(spec: &Arc<Requests>, first: Option<Time>, seed: Seed) -> Application {
        let mut exchange = Exchange::new(spec, seed);
        if first.is_none() {
            let next = exchange.draw();
            return Application::Server(Box::new(Server { exchange, next }));
        }
        Application::Client(Box::new(Client {
            thoughts: Xoshiro256PlusPlus::seed_from_u64(seed.0),
            next: first,
            pending: None,
            asked: Bytes::ZERO,
            left: (spec.lines == Lines::Each).then_some(1),
            is_asked: true,
            done: Vec::new(),
            exchange,
        }))
    }

    /// The next write that does not depend on received data.
    #[must_use]
    #[inline]
    pub fn poll_deadline(&self) -> Option<Time> {
        match self {
            Application::Bulk
            | Application::File { .. }
            | Application::Server(_)
            | Application::Reader
            | Application::Sink(_) => None,
            Application::Stream(stream) => Some(stream.next),
            Application::Trace(trace) => trace.left.front().map(|(at, _)| *at),
            Application::Client(client) => client.next,
        }
    }

    /// Whether it depends on received data.
    #[must_use]
    #[inline]
    pub fn minds_received(&self) -> bool {
        matches!(self, Application::Server(_) | Application::Client(_) | Application::Sink(_))
    }

    /// Whether it writes as much as the connection has room for.
    #[must_use]
    pub fn fills_room(&self) -> bool {
        matches!(self, Application::Bulk | Application::File { .. })
    }

    /// It writes no more, and reads what still comes.
    pub fn stop(&mut self) {
        *self = Application::Reader;
    }

    /// The bytes that it writes at `now`, when it has received `received` bytes in all and the
    /// connection has room for `room` more.
    #[inline]
    pub fn write(&mut self, now: Time, received: Bytes, room: Bytes) -> Bytes {
        match self {
            Application::Bulk => room,
            Application::Reader => Bytes::ZERO,
            _ => self.write_more(now, received, room),
        }
    }

    /// [`Application::write`] of the boxed variants.
    fn write_more(&mut self, now: Time, received: Bytes, room: Bytes) -> Bytes {
        match self {
            Application::File { left } => {
                let bytes = room.min(*left);
                *left -= bytes;
                bytes
            }
            Application::Stream(stream) => {
                let Stream { rate, next, since, written } = &mut **stream;
                if now < *next {
                    return Bytes::ZERO;
                }
                *next = now + TICK;
                // Computed from the first write on, so that no remainder is lost.
                let bytes = *rate * (now + TICK - *since) - *written;
                *written += bytes;
                bytes
            }
            Application::Trace(trace) => {
                let left = &mut trace.left;
                let mut bytes = Bytes::ZERO;
                while let Some((_, more)) = left.front().copied().filter(|(at, _)| *at <= now) {
                    left.pop_front();
                    bytes += more;
                }
                bytes
            }
            Application::Server(server) => {
                let Server { exchange, next } = &mut **server;
                let mut bytes = Bytes::ZERO;
                while next.0 <= received {
                    bytes += next.1;
                    let (request, answer) = exchange.draw();
                    *next = (next.0 + request, answer);
                }
                bytes
            }
            Application::Client(client) => {
                let Client { exchange, next, pending, asked, left, .. } = &mut **client;
                if next.is_none_or(|next| next > now) {
                    return Bytes::ZERO;
                }
                *next = None;
                let (request, answer, least) = exchange.draw_page();
                *asked += answer;
                *pending = Some(Pending { at: now, asked: least, answer, end: *asked });
                if let Some(left) = left {
                    *left -= 1;
                }
                request
            }
            Application::Bulk => room,
            Application::Reader | Application::Sink(_) => Bytes::ZERO,
        }
    }

    /// `received` bytes have arrived in all.
    pub fn handle_received(&mut self, now: Time, received: Bytes) {
        match self {
            Application::Client(client) => {
                let Client { exchange, thoughts, next, pending, left, is_asked, done, .. } =
                    &mut **client;
                if let Some(Pending { at, asked, answer, .. }) =
                    pending.take_if(|pending| pending.end <= received)
                {
                    done.push(Request { at, done: now, bytes: answer, asked });
                    if *left != Some(0) && !*is_asked {
                        *next = Some(now + exchange.spec.think.draw_span(thoughts));
                    }
                }
            }
            Application::Sink(sink) => {
                sink.handle_received(now, received);
            }
            Application::Bulk
            | Application::File { .. }
            | Application::Stream(_)
            | Application::Trace(_)
            | Application::Server(_)
            | Application::Reader => {}
        }
    }

    /// The other end stops at `stop`: later writes do not come.
    pub(crate) fn expect_until(&mut self, stop: Time) {
        if let Application::Sink(sink) = self {
            sink.expected.retain(|(at, ..)| *at < stop);
        }
    }

    /// The other end writes no more: all `received` bytes have arrived. What it wrote last may have
    /// been nothing.
    pub fn handle_end(&mut self, now: Time, received: Bytes) {
        if let Application::Sink(sink) = self {
            sink.handle_end(now, received);
        }
    }

    /// Whether it has written everything.
    #[must_use]
    #[inline]
    pub fn is_finished(&self) -> bool {
        match self {
            Application::File { left } => *left == Bytes::ZERO,
            Application::Trace(trace) => trace.left.is_empty(),
            Application::Client(client) => client.left == Some(0) && client.pending.is_none(),
            _ => false,
        }
    }

    /// The completed requests, at the receiving end.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        match self {
            Application::Client(client) => &client.done,
            Application::Sink(sink) => &sink.done,
            _ => &[],
        }
    }
}
