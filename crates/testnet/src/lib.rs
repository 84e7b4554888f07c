//! A network in virtual time for the tests of protocols that are state machines: two ends or more,
//! links between them, and operations as data.
//!
//! A test wraps its state machine in an [`Endpoint`], connects several of them by [`Link`]s in a
//! [`Network`], and runs it until a condition holds. What happens on the way is a list of [`Op`]s,
//! each at its time: actions of the ends, links that fail and recover, single packets that overtake
//! others. A [`Fate`] can be chosen for each packet as it is sent. Equal seeds give equal runs.
//!
//! Each direction of a link is a [`link::Link`]; operations and fates come on top of it.
//!
//! ```
//! use testnet::{Arrival, Direction, Endpoint, Link, Network, Op, Transmit};
//! use units::{Bytes, Span, Time};
//!
//! /// Sends a number until it is acknowledged; the other end counts what arrives.
//! #[derive(Default)]
//! struct Repeater {
//!     to_send: Option<u32>,
//!     resend_at: Option<Time>,
//!     to_acknowledge: Option<u32>,
//!     received: u32,
//! }
//!
//! #[derive(Clone, Copy)]
//! enum Packet {
//!     Number(u32),
//!     Acknowledgement(u32),
//! }
//!
//! /// What a test asks of a repeater.
//! enum Action {
//!     Send { number: u32 },
//! }
//!
//! impl Endpoint for Repeater {
//!     type Packet = Packet;
//!     type Action = Action;
//!
//!     fn act(&mut self, now: Time, Action::Send { number }: Action) {
//!         self.to_send = Some(number);
//!         self.resend_at = Some(now);
//!     }
//!
//!     fn handle_packet(&mut self, _now: Time, arrival: Arrival<Packet>) {
//!         match arrival.packet {
//!             Packet::Number(number) => {
//!                 self.received += 1;
//!                 self.to_acknowledge = Some(number);
//!             }
//!             Packet::Acknowledgement(number) if self.to_send == Some(number) => {
//!                 (self.to_send, self.resend_at) = (None, None);
//!             }
//!             Packet::Acknowledgement(_) => {}
//!         }
//!     }
//!
//!     fn poll_transmit(&mut self, now: Time) -> Option<Transmit<Packet>> {
//!         let packet = if let Some(number) = self.to_acknowledge.take() {
//!             Packet::Acknowledgement(number)
//!         } else {
//!             let number = self.to_send.filter(|_| self.resend_at.is_some_and(|at| at <= now))?;
//!             self.resend_at = Some(now + Span::from_millis(50));
//!             Packet::Number(number)
//!         };
//!         Some(Transmit { link: 0, bytes: Bytes(40), packet })
//!     }
//!
//!     fn poll_deadline(&self) -> Option<Time> {
//!         self.resend_at
//!     }
//!
//!     fn handle_deadline(&mut self, _now: Time) {}
//! }
//!
//! let link = Link::new(Span::from_millis(10));
//! let mut network = Network::new([Repeater::default(), Repeater::default()], [link], 1);
//! let direction = Direction::Forward;
//! network.apply(Op::Cut { link: 0, direction });
//! network.apply(Op::Act { end: 0, action: Action::Send { number: 7 } });
//! network.schedule(Time::ZERO + Span::from_millis(70), Op::Restore { link: 0, direction });
//! let limit = Time::ZERO + Span::from_secs(1);
//! assert!(network.run_until(limit, |network| network.ends[0].to_send.is_none()));
//! // The first two were lost at 10 and 60 ms; the third left at 100 ms and took a round trip.
//! assert_eq!(network.now(), Time::ZERO + Span::from_millis(120));
//! assert_eq!(network.ends[1].received, 1);
//! ```

mod dice;
mod links;
mod network;
mod op;

pub use dice::Dice;
pub use links::{Direction, Link};
pub use network::{Fate, Network, Sent};
pub use op::Op;

use units::{Bytes, Time};

/// A state machine at one end of the links.
///
/// The network calls it in the same order at every moment: packets that arrive, the deadline if it
/// is due, and [`Endpoint::poll_transmit`] until there is nothing left to send.
pub trait Endpoint {
    /// What the ends send each other.
    type Packet: Clone;
    /// What a test can ask of an end by [`Op::Act`]; `()` if nothing.
    type Action;

    /// Carries out an action.
    fn act(&mut self, now: Time, action: Self::Action);

    /// Takes in a packet.
    fn handle_packet(&mut self, now: Time, arrival: Arrival<Self::Packet>);

    /// The next packet to send at this moment.
    fn poll_transmit(&mut self, now: Time) -> Option<Transmit<Self::Packet>>;

    /// When [`Endpoint::handle_deadline`] is due.
    fn poll_deadline(&self) -> Option<Time>;

    /// The deadline has come.
    fn handle_deadline(&mut self, now: Time);
}

/// A packet that an end wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<P> {
    /// The link, by its index in the network; one of its ends is the sender.
    pub link: usize,
    /// The size on the wire.
    pub bytes: Bytes,
    /// The packet.
    pub packet: P,
}

/// A packet that arrives at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// The link that it came by.
    pub link: usize,
    /// The packet.
    pub packet: P,
    /// Whether it was marked as having experienced congestion.
    pub is_marked: bool,
    /// Whether it was damaged. `packet` is as it was sent; the end decides what damage means.
    pub is_corrupt: bool,
}
