//! The striped connection (pTCP) as a state machine: one connection over several paths of any kind,
//! with the aggregate of their bandwidths.
//!
//! After Hsieh and Sivakumar, "pTCP: An End-to-End Transport Layer Protocol for Striped
//! Connections". A [`Connection`] is the paper's striped connection manager (SM). Each path has a
//! subflow, the paper's virtual TCP (TCP-v), with congestion window, loss recovery and round-trip
//! times over packet numbers, independent of the data. A connection has no clock, no socket and no
//! payload bytes: packets are [`wire::ptcp::Packet`]s, streams are byte counts, and the driver
//! keeps the bytes.
//!
//! | the paper | here |
//! |---|---|
//! | `open`, `close` | [`Connection::open_path`], [`Connection::retire_path`], [`Connection::close`] |
//! | `established`, `closed` | [`Event::PathOpened`], [`Event::PathRetired`] |
//! | `receive` | [`Connection::handle_packet`] |
//! | `send`, with a binding or FREEZE as the answer | [`Connection::poll_send`]: a packet, or none |
//! | `resume` | [`Connection::poll_send`] after [`Connection::write`] or a window update |
//! | `shrunk` | `Outcome::Shrunk` and `Outcome::Lost` of a subflow |
//! | delayed binding | `connection/striping.rs`: data is chosen as its packet leaves |
//! | re-striping | [`Restripe`]; `stream/send.rs` keeps the unbound ranges |
//! | redundant striping | the probe of a silent path is a copy: `connection/send.rs` |
//!
//! ```
//! use policy::cc::by_name;
//! use policy::sched::packet;
//! use ptcp::{Config, Connection, Event};
//! use rand_core::SeedableRng;
//! use rand_xoshiro::Xoshiro256PlusPlus;
//! use units::{Bytes, Span, Time};
//!
//! let parts = |seed| {
//!     let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(seed));
//!     let scheduler = packet::by_name("lowest-rtt").unwrap();
//!     (Config::default(), by_name("balia").unwrap(), scheduler, tokens)
//! };
//! let (config, controller, scheduler, tokens) = parts(1);
//! let mut near = Connection::client(config, controller, scheduler, tokens);
//! let (config, controller, scheduler, tokens) = parts(2);
//! let mut far = Connection::server(config, controller, scheduler, tokens);
//! let mut now = Time::ZERO;
//! near.open_path(now);
//! near.open_path(now);
//! let stream = near.open_stream();
//! near.write(stream, Bytes(100_000));
//! while far.received(stream) < Bytes(100_000) {
//!     // Packets take a millisecond here.
//!     let there: Vec<_> = core::iter::from_fn(|| near.poll_send(now)).collect();
//!     let back: Vec<_> = core::iter::from_fn(|| far.poll_send(now)).collect();
//!     now = now + Span::from_millis(1);
//!     for transmit in there {
//!         far.handle_packet(now, transmit.path, &transmit.packet, false).unwrap();
//!     }
//!     for transmit in back {
//!         near.handle_packet(now, transmit.path, &transmit.packet, false).unwrap();
//!     }
//!     for end in [&mut near, &mut far] {
//!         if end.poll_deadline().is_some_and(|at| at <= now) {
//!             end.handle_deadline(now);
//!         }
//!     }
//! }
//! assert_eq!(near.poll_event(), Some(Event::Opened));
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod ack_tracker;
mod config;
mod connection;
mod path;
mod ranges;
mod repeated;
mod stream;
mod subflow;
mod tokens;

pub use config::{Config, Restripe, SlowStreams};
pub use connection::{
    Arrived, Connection, DatagramError, Event, LostPacket, PathMetrics, PeerError, TimeoutError,
    Transmit,
};
pub use path::{Class, PathBytes};
pub use subflow::Stats;
pub use tokens::Tokens;
