//! What an application at one end of a TCP connection writes, and what it waits for.

use std::collections::VecDeque;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Rate, Seed, Span, Time};

use crate::draw::{exponential, pareto};
use crate::file::{Web, Workload};

/// The size of a request for a page.
const REQUEST: Bytes = Bytes(300);
/// How often a stream writes.
const TICK: Span = Span::from_millis(10);

/// Something that was asked for or written, and when all of it had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it was asked for, or written.
    pub at: Time,
    /// When its last byte arrived.
    pub done: Time,
    /// How large it was.
    pub bytes: Bytes,
}

/// An application at one end. What is more than a word is boxed: each packet asks which it is, and
/// few need to know more.
#[derive(Clone, Debug)]
pub enum Feed {
    /// Writes without end.
    Bulk,
    /// Writes so much.
    File {
        /// What is left.
        left: Bytes,
    },
    /// Writes at a rate.
    Stream(Box<Stream>),
    /// Writes at given times.
    Trace(Box<Trace>),
    /// Answers requests; the sizes are drawn from the same stream as at the other end.
    Server(Box<Server>),
    /// Asks, waits, thinks.
    Client(Box<Client>),
    /// Reads what the other end writes, whatever it is.
    Reader,
    /// Waits for what the other end writes.
    Sink(Box<Sink>),
}

/// Who writes at a rate.
#[derive(Clone, Debug)]
pub struct Stream {
    rate: Rate,
    /// When it writes next.
    next: Time,
    /// Since when.
    since: Time,
    /// How much it has written.
    written: Bytes,
}

/// Who writes at given times, beginning at the front.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What is left.
    left: VecDeque<(Time, Bytes)>,
}

/// Who answers requests.
#[derive(Clone, Debug)]
pub struct Server {
    /// How pages are.
    web: Web,
    /// The sizes.
    sizes: Xoshiro256PlusPlus,
    /// Requests answered.
    answered: u64,
}

/// Who waits: for what was written when, how large, and where in the stream it ends.
#[derive(Clone, Debug)]
pub struct Sink {
    /// What is still to come, in order.
    expected: VecDeque<(Time, Bytes, Bytes)>,
    /// What arrived.
    done: Vec<Request>,
}

/// Somebody who reads pages.
#[derive(Clone, Debug)]
pub struct Client {
    /// How pages are.
    web: Web,
    /// The sizes that the server will draw too.
    sizes: Xoshiro256PlusPlus,
    /// The times to think.
    thoughts: Xoshiro256PlusPlus,
    /// When the next request goes out; `None` while one is under way.
    next: Option<Time>,
    /// What was asked for: when, how large, and where in the stream it ends.
    pending: Option<(Time, Bytes, Bytes)>,
    /// How much has been asked for in all.
    asked: Bytes,
    /// What arrived.
    done: Vec<Request>,
}

impl Feed {
    /// The sender's or the receiver's application for a source that begins at `start`; `seed` is
    /// the flow's.
    #[must_use]
    pub fn new(source: &Workload, start: Time, seed: Seed, is_sender: bool) -> Feed {
        let sink = |expected| Feed::Sink(Box::new(Sink { expected, done: Vec::new() }));
        match (source, is_sender) {
            (Workload::Bulk, true) => Feed::Bulk,
            (Workload::Bulk | Workload::Stream(_), false) => Feed::Reader,
            (Workload::File(bytes), true) => Feed::File { left: *bytes },
            (Workload::File(bytes), false) => sink([(start, *bytes, *bytes)].into()),
            (Workload::Stream(rate), true) => {
                let stream =
                    Stream { rate: *rate, next: start, since: start, written: Bytes::ZERO };
                Feed::Stream(Box::new(stream))
            }
            (Workload::Trace(writes), true) => {
                let left = writes.iter().map(|(at, bytes)| (start + *at, *bytes)).collect();
                Feed::Trace(Box::new(Trace { left }))
            }
            (Workload::Trace(writes), false) => {
                let mut end = Bytes::ZERO;
                let expected = writes.iter().map(|(at, bytes)| {
                    end += *bytes;
                    (start + *at, *bytes, end)
                });
                sink(expected.collect())
            }
            (Workload::Web(web), _) => {
                let seed = seed.stream("source");
                // Both know the sizes: the one asks for what the other answers.
                let sizes = Xoshiro256PlusPlus::seed_from_u64(seed.stream("size").0);
                if is_sender {
                    return Feed::Server(Box::new(Server { web: *web, sizes, answered: 0 }));
                }
                Feed::Client(Box::new(Client {
                    web: *web,
                    sizes,
                    thoughts: Xoshiro256PlusPlus::seed_from_u64(seed.stream("think").0),
                    next: Some(start),
                    pending: None,
                    asked: Bytes::ZERO,
                    done: Vec::new(),
                }))
            }
        }
    }

    /// When it writes next by itself.
    #[must_use]
    #[inline]
    pub fn poll_deadline(&self) -> Option<Time> {
        match self {
            Feed::Bulk | Feed::File { .. } | Feed::Server(_) | Feed::Reader | Feed::Sink(_) => None,
            Feed::Stream(stream) => Some(stream.next),
            Feed::Trace(trace) => trace.left.front().map(|(at, _)| *at),
            Feed::Client(client) => client.next,
        }
    }

    /// Whether it minds how much has come from the other end.
    #[must_use]
    #[inline]
    pub fn minds_received(&self) -> bool {
        matches!(self, Feed::Server(_) | Feed::Client(_) | Feed::Sink(_))
    }

    /// Whether what it writes depends on the connection's room.
    #[must_use]
    pub fn fills_room(&self) -> bool {
        matches!(self, Feed::Bulk | Feed::File { .. })
    }

    /// How much it writes at `now` beyond what it wrote before, when `received` bytes have come
    /// from the other end, and the connection could do with `room` more.
    #[inline]
    pub fn write(&mut self, now: Time, received: Bytes, room: Bytes) -> Bytes {
        match self {
            Feed::Bulk => room,
            Feed::Reader => Bytes::ZERO,
            _ => self.write_more(now, received, room),
        }
    }

    /// As [`Feed::write`], of an application about which there is more to say.
    fn write_more(&mut self, now: Time, received: Bytes, room: Bytes) -> Bytes {
        match self {
            Feed::File { left } => {
                let bytes = room.min(*left);
                *left -= bytes;
                bytes
            }
            Feed::Stream(stream) => {
                let Stream { rate, next, since, written } = &mut **stream;
                if now < *next {
                    return Bytes::ZERO;
                }
                *next = now + TICK;
                // From the beginning, so that no remainder is lost.
                let bytes = *rate * (now + TICK - *since) - *written;
                *written += bytes;
                bytes
            }
            Feed::Trace(trace) => {
                let left = &mut trace.left;
                let mut bytes = Bytes::ZERO;
                while let Some((_, more)) = left.front().copied().filter(|(at, _)| *at <= now) {
                    left.pop_front();
                    bytes += more;
                }
                bytes
            }
            Feed::Server(server) => {
                let Server { web, sizes, answered } = &mut **server;
                let mut bytes = Bytes::ZERO;
                while received.0 / REQUEST.0 > *answered {
                    *answered += 1;
                    bytes += pareto(sizes, web.mean, web.shape);
                }
                bytes
            }
            Feed::Client(client) => {
                let Client { web, sizes, next, pending, asked, .. } = &mut **client;
                if next.is_none_or(|next| next > now) {
                    return Bytes::ZERO;
                }
                *next = None;
                let size = pareto(sizes, web.mean, web.shape);
                *asked += size;
                *pending = Some((now, size, *asked));
                REQUEST
            }
            Feed::Bulk => room,
            Feed::Reader | Feed::Sink(_) => Bytes::ZERO,
        }
    }

    /// So much has arrived from the other end.
    pub fn handle_received(&mut self, now: Time, received: Bytes) {
        match self {
            Feed::Client(client) => {
                let Client { web, thoughts, next, pending, done, .. } = &mut **client;
                if let Some((at, bytes, end)) = *pending
                    && received >= end
                {
                    *pending = None;
                    done.push(Request { at, done: now, bytes });
                    *next = Some(now + exponential(thoughts, web.think));
                }
            }
            Feed::Sink(sink) => {
                let Sink { expected, done } = &mut **sink;
                while let Some((at, bytes, _)) =
                    expected.front().copied().filter(|(_, _, end)| *end <= received)
                {
                    expected.pop_front();
                    done.push(Request { at, done: now, bytes });
                }
            }
            Feed::Bulk
            | Feed::File { .. }
            | Feed::Stream(_)
            | Feed::Trace(_)
            | Feed::Server(_)
            | Feed::Reader => {}
        }
    }

    /// Whether it has written all that it ever will.
    #[must_use]
    #[inline]
    pub fn is_finished(&self) -> bool {
        match self {
            Feed::File { left } => *left == Bytes::ZERO,
            Feed::Trace(trace) => trace.left.is_empty(),
            _ => false,
        }
    }

    /// What arrived completely, at the receiving end.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        match self {
            Feed::Client(client) => &client.done,
            Feed::Sink(sink) => &sink.done,
            _ => &[],
        }
    }
}
