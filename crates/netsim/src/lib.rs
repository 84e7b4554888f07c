//! A packet-level network simulator in virtual time, generic over the packet and over the host.
//!
//! It knows no protocol. A [`Topology`] names hosts, routers and links; [`Topology::build`] makes a
//! [`Sim`] of it, with one state machine that implements [`Host`] for each host; [`Sim::run_until`]
//! drives them. There is no global state: as many simulations as one likes run side by side.
//!
//! ```
//! use link::Profile;
//! use netsim::{Host, Out, Packet, Route, Topology};
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
//! /// Sends one packet at once, if it has a route, and remembers when one came.
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
//! let mut sim = net.build(Seed(1), |site| Node { route: (site.id == near).then_some(route), heard: None })?;
//! sim.run_until(Time::ZERO + Span::from_secs(1));
//! // 1 ms on the wire, 10 ms on the way.
//! assert_eq!(sim.host(far).heard, Some(Time::ZERO + Span::from_millis(11)));
//! # Ok::<(), netsim::TopologyError>(())
//! ```
//!
//! # Order
//!
//! Events are ordered by time, simultaneous ones by admission: the order in which they were put on
//! the agenda. A link's event is put there when its packet becomes the first of the link, a host's
//! when its deadline is set, or moves to an earlier time. The same seed gives the same
//! [`Sim::digest`], on every machine, traced or not.
//!
//! # Randomness
//!
//! Each component has a stream of its own, seeded from the run's seed and its name: `link/NAME` for
//! a link, `host/NAME` for a host, `jitter/NAME` for the jitter of a host's sending. Adding a
//! component leaves the draws of the others alone.
//!
//! # Speed
//!
//! A hop is one event. Only the first packet of each link is on the agenda; packets stay where they
//! are in a pool, at most a cache line each, and links are lists through it, a cache line each too;
//! a host has one entry on the agenda, which stays where it is when its deadline moves to a later
//! time.

mod agenda;
mod digest;
mod heap;
mod host;
mod ids;
mod jitter;
mod net;
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
pub use trace::{Event, NoTrace, Trace};
