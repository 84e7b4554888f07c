//! What an application at one end of a TCP connection writes, and what it waits for.

use std::collections::VecDeque;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Rate, Seed, Span, Time};

use crate::draw::{exponential, pareto};
use crate::file::{Source, Web};

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

/// An application at one end.
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
    Stream {
        /// The rate.
        rate: Rate,
        /// When it writes next.
        next: Time,
        /// Since when.
        since: Time,
        /// How much it has written.
        written: Bytes,
    },
    /// Writes at given times, beginning at the front.
    Trace {
        /// What is left.
        left: VecDeque<(Time, Bytes)>,
    },
    /// Answers requests; the sizes are drawn from the same stream as at the other end.
    Server {
        /// How pages are.
        web: Web,
        /// The sizes.
        sizes: Xoshiro256PlusPlus,
        /// Requests answered.
        answered: u64,
    },
    /// Asks, waits, thinks. Boxed, since it is much larger than the others.
    Client(Box<Client>),
    /// Waits for what the other end writes: when, how large, and where in the stream it ends.
    Sink {
        /// What is still to come, in order.
        expected: VecDeque<(Time, Bytes, Bytes)>,
        /// What arrived.
        done: Vec<Request>,
    },
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
    /// The sender's and the receiver's application for a source that begins at `start`.
    #[must_use]
    pub fn pair(source: &Source, start: Time, seed: Seed) -> (Feed, Feed) {
        let sink = |expected| Feed::Sink { expected, done: Vec::new() };
        match source {
            Source::Bulk => (Feed::Bulk, sink(VecDeque::new())),
            Source::File(bytes) => (Feed::File { left: *bytes }, sink([(start, *bytes, *bytes)].into())),
            Source::Stream(rate) => {
                (Feed::Stream { rate: *rate, next: start, since: start, written: Bytes::ZERO }, sink(VecDeque::new()))
            }
            Source::Trace(writes) => {
                let left: VecDeque<_> = writes.iter().map(|(at, bytes)| (start + *at, *bytes)).collect();
                let mut end = Bytes::ZERO;
                let expected = left.iter().map(|(at, bytes)| {
                    end += *bytes;
                    (*at, *bytes, end)
                });
                (Feed::Trace { left: left.clone() }, sink(expected.collect()))
            }
            Source::Web(web) => {
                let sizes = Xoshiro256PlusPlus::seed_from_u64(seed.stream("size").0);
                let thoughts = Xoshiro256PlusPlus::seed_from_u64(seed.stream("think").0);
                let client = Client {
                    web: *web,
                    sizes: sizes.clone(),
                    thoughts,
                    next: Some(start),
                    pending: None,
                    asked: Bytes::ZERO,
                    done: Vec::new(),
                };
                (Feed::Server { web: *web, sizes, answered: 0 }, Feed::Client(Box::new(client)))
            }
        }
    }

    /// When it writes next by itself.
    #[must_use]
    #[inline]
    pub fn poll_deadline(&self) -> Option<Time> {
        match self {
            Feed::Stream { next, .. } => Some(*next),
            Feed::Trace { left } => left.front().map(|(at, _)| *at),
            Feed::Client(client) => client.next,
            Feed::Bulk | Feed::File { .. } | Feed::Server { .. } | Feed::Sink { .. } => None,
        }
    }

    /// Whether what it writes depends on the connection's room.
    #[must_use]
    pub fn fills_room(&self) -> bool {
        matches!(self, Feed::Bulk | Feed::File { .. })
    }

    /// How much it writes at `now` beyond what it wrote before, when `received` bytes have come from the other end, and the connection
    /// could do with `room` more.
    #[inline]
    pub fn write(&mut self, now: Time, received: Bytes, room: Bytes) -> Bytes {
        match self {
            Feed::Bulk => room,
            Feed::Sink { .. } => Bytes::ZERO,
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
            Feed::Stream { rate, next, since, written } => {
                if now < *next {
                    return Bytes::ZERO;
                }
                *next = now + TICK;
                // From the beginning, so that no remainder is lost.
                let bytes = *rate * (now + TICK - *since) - *written;
                *written += bytes;
                bytes
            }
            Feed::Trace { left } => {
                let mut bytes = Bytes::ZERO;
                while let Some((_, more)) = left.front().copied().filter(|(at, _)| *at <= now) {
                    left.pop_front();
                    bytes += more;
                }
                bytes
            }
            Feed::Server { web, sizes, answered } => {
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
            Feed::Sink { .. } => Bytes::ZERO,
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
            Feed::Sink { expected, done } => {
                while let Some((at, bytes, _)) = expected.front().copied().filter(|(_, _, end)| *end <= received) {
                    expected.pop_front();
                    done.push(Request { at, done: now, bytes });
                }
            }
            Feed::Bulk | Feed::File { .. } | Feed::Stream { .. } | Feed::Trace { .. } | Feed::Server { .. } => {}
        }
    }

    /// Whether it has written all that it ever will.
    #[must_use]
    #[inline]
    pub fn is_finished(&self) -> bool {
        match self {
            Feed::File { left } => *left == Bytes::ZERO,
            Feed::Trace { left } => left.is_empty(),
            _ => false,
        }
    }

    /// What arrived completely, at the receiving end.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        match self {
            Feed::Client(client) => &client.done,
            Feed::Sink { done, .. } => done,
            _ => &[],
        }
    }
}
