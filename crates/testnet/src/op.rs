//! Operations on a network, as data.

use units::{Rate, Span};

use crate::Direction;

/// Something that happens to the network or to one of its ends. Operations can be generated,
/// printed and replayed.
///
/// `index` counts the packets in flight in one direction of a link, in order of sending, and wraps
/// around: index 0 is the oldest one. Copies that the link makes count as one packet with it. Where
/// nothing is in flight the operation does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<A> {
    /// An end carries out an action.
    Act {
        /// The end's index.
        end: usize,
        /// The action.
        action: A,
    },
    /// Packets that arrive by this direction from here on are lost.
    Cut {
        /// The link's index.
        link: usize,
        /// One direction of it.
        direction: Direction,
    },
    /// Packets arrive again.
    Restore {
        /// The link's index.
        link: usize,
        /// One direction of it.
        direction: Direction,
    },
    /// The link has another rate, in both directions; at zero, packets wait. For a link that has a
    /// rate.
    Rate {
        /// The link's index.
        link: usize,
        /// In place of the former one.
        rate: Rate,
    },
    /// Packets sent from here on take longer by `extra`, in both directions.
    Delay {
        /// The link's index.
        link: usize,
        /// Beyond [`Link::delay`](crate::Link::delay); replaces the former extra delay.
        extra: Span,
    },
    /// A packet in flight arrives now, undamaged.
    Deliver {
        /// The link's index.
        link: usize,
        /// One direction of it.
        direction: Direction,
        /// The packet's index.
        index: usize,
    },
    /// A packet in flight is lost.
    Drop {
        /// The link's index.
        link: usize,
        /// One direction of it.
        direction: Direction,
        /// The packet's index.
        index: usize,
    },
    /// A copy of a packet in flight arrives now, undamaged; the packet itself arrives later.
    Duplicate {
        /// The link's index.
        link: usize,
        /// One direction of it.
        direction: Direction,
        /// The packet's index.
        index: usize,
    },
}
