//! A packet-level network simulator in virtual time, generic over the packet and over the host.
//!
//! A [`Topology`] has hosts, routers and links; [`Topology::build`] makes a [`Sim`] of it, with a
//! state machine that implements [`Host`] for each host; [`Sim::run_until`] drives them. There is
//! no global state, so any number of simulations can run side by side.
//!
//! ```
//! use link::Profile;
//! use netsim::{Host, Out, Packet, Route, Site, Topology};
//! use units::{Bytes, Rate, Seed, Span, Time};
//!
//! #[derive(Clone, Copy)]
//! struct Ping;
//! impl Packet for Ping {
//!     fn size(&self) -> Bytes {
//!         Bytes(1_500)
//!     }
//!     fn digest(&self) -> u64 {
//!         0
//!     }
//! }
//!
//! /// Sends one packet at time zero if it has a route, and records the arrival of one.
//! struct Node {
//!     route: Option<Route>,
//!     heard: Option<Time>,
//! }
//! impl Host<Ping> for Node {
//!     fn handle_packet(&mut self, now: Time, _: Ping, _: &mut Out<Ping>) {
//!         self.heard = Some(now);
//!     }
//!     fn poll_deadline(&self) -> Option<Time> {
//!         self.route.map(|_| Time::ZERO)
//!     }
//!     fn handle_deadline(&mut self, _: Time, out: &mut Out<Ping>) {
//!         out.send(self.route.take().expect("it asked for the deadline"), Ping);
//!     }
//! }
//!
//! let mut net = Topology::new();
//! let (near, far) = (net.add_host("near")?, net.add_host("far")?);
//! net.duplex("wifi", "near", "far", &Profile::new(Rate::mbit(12), Span::from_millis(10)))?;
//! let route = net.route("near", "far")?;
//! let make = |site: Site<'_>| Node { route: (site.id == near).then_some(route), heard: None };
//! let mut sim = net.build(Seed(1), make)?;
//! sim.run_until(Time::ZERO + Span::from_secs(1));
//! // 1 ms on the wire, 10 ms of propagation.
//! assert_eq!(sim.host(far).heard, Some(Time::ZERO + Span::from_millis(11)));
//! # Ok::<(), netsim::TopologyError>(())
//! ```
//!
//! # Order
//!
//! Events are ordered by time; simultaneous events by admission to the agenda (the event queue).
//! The event of a link is admitted when its packet becomes the first of the link; that of a host
//! when its deadline is set, or moves to an earlier time. The same seed gives the same
//! [`Sim::digest`] on every machine, with and without a trace.
//!
//! # Randomness
//!
//! Each component has a random stream of its own, seeded from the seed of the run and its name:
//! `link/NAME` for a link, `host/NAME` for a host, `jitter/NAME` for the jitter of a host. Adding a
//! component does not change the draws of others.
//!
//! # Speed
//!
//! A hop is one event. Only the first packet of each link is on the agenda. Packets are not moved:
//! they stay in a pool, at most a cache line each, and links, a cache line each too, are lists
//! through it. A host has one entry on the agenda, which is not touched when its deadline moves to
//! a later time.

mod agenda;
mod digest;
mod heap;
mod host;
mod ids;
mod jitter;
mod net;
mod plain;
mod pool;
mod routes;
mod sim;
mod topology;
mod trace;

pub use digest::Digest;
pub use host::{Host, Out, Packet};
pub use ids::{HostId, LinkId};
pub use net::Totals;
pub use routes::Route;
pub use sim::Sim;
pub use topology::{Site, Topology, TopologyError};
pub use trace::{Event, Loss, LossPlace, NoTrace, Trace};
