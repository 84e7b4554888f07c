//! The striped connection (pTCP): one connection over paths of any character that delivers the sum
//! of what they offer, as a state machine.
//!
//! After Hsieh and Sivakumar, "pTCP: An End-to-End Transport Layer Protocol for Striped
//! Connections". A [`Connection`] is the paper's striped connection manager (SM); each path has a
//! subflow of its own, the paper's virtual TCP (TCP-v), which runs windows, loss recovery and
//! round-trip times over packet numbers and knows no data. It has no clock, no socket and no
//! payload bytes: packets are [`wire::ptcp::Packet`]s, and streams are counted; whoever drives it
//! keeps the bytes.
//!
//! | the paper | here |
//! |---|---|
//! | `open`, `close` | [`Connection::open_path`], [`Connection::retire_path`], [`Connection::close`] |
//! | `established`, `closed` | [`Event::PathOpened`], [`Event::PathRetired`] |
//! | `receive` | [`Connection::handle_packet`] |
//! | `send`, answered by a binding or by FREEZE | [`Connection::poll_send`]: a packet, or none |
//! | `resume` | [`Connection::poll_send`] again, after [`Connection::write`] or when the window opened |
//! | `shrunk` | `Outcome::Shrunk` and `Outcome::Lost` of a subflow |
//! | delayed binding | `connection/send.rs`: data is chosen as its packet leaves |
//! | re-striping | [`Restripe`]; `stream/send.rs` keeps what is unbound |
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
//!     (Config::default(), by_name("balia").unwrap(), packet::by_name("lowest-rtt").unwrap(), tokens)
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
//!     // Packets take a millisecond here; a simulation lets links carry them, a driver sockets.
//!     let there: Vec<_> = core::iter::from_fn(|| near.poll_send(now)).collect();
//!     let back: Vec<_> = core::iter::from_fn(|| far.poll_send(now)).collect();
//!     now = now + Span::from_millis(1);
//!     there.iter().for_each(|transmit| drop(far.handle_packet(now, transmit.path, &transmit.packet, false)));
//!     back.iter().for_each(|transmit| drop(near.handle_packet(now, transmit.path, &transmit.packet, false)));
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
mod stream;
mod subflow;
mod tokens;

pub use config::{Config, Restripe};
pub use connection::{Arrived, Connection, DatagramError, Event, PeerError, Transmit};
pub use subflow::Stats;
pub use tokens::Tokens;
