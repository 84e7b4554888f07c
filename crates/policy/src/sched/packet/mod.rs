//! Packet schedulers: which subflow of a connection takes the next packet.
//!
//! | name | rule | source |
//! |---|---|---|
//! | [`lowest-rtt`](lowest_rtt::LowestRtt) | the fastest path that has room | Linux's default |
//! | [`blest`](blest::Blest) | as that, but a slow path only if its packet will not hold up the window | Ferlin et al. 2016 |
//! | [`ecf`](ecf::Ecf) | as that, but waits for the fast path where that ends sooner | Lim et al. 2017 |
//! | [`weighted`](weighted::Weighted) | in turns, in proportion to weights | start-time fair queueing, Goyal et al. 1996 |
//! | [`redundant`](redundant::Redundant) | everything over every path | Linux's `redundant` |
//!
//! [`by_name`] makes them. A scheduler chooses among paths with room only. BLEST and ECF may also
//! wait for a faster path without room, if it has packets in flight: their acknowledgements will
//! make room on it.

pub mod blest;
pub mod ecf;
pub mod lowest_rtt;
mod names;
pub mod redundant;
pub mod weighted;

use alloc::boxed::Box;
use core::fmt;

use units::{Bytes, Span, SubflowId, Time};

pub use names::{KIND, NAMES, by_name};

/// A packet scheduler's view of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubflowView {
    /// The subflow.
    pub id: SubflowId,
    /// The smoothed round-trip time (RFC 6298); zero before there is a sample, so that a new path
    /// counts as fast and is tried.
    pub smoothed_rtt: Span,
    /// The variation of the round-trip time (RFC 6298).
    pub rtt_variation: Span,
    /// Payload of one full packet.
    pub mss: Bytes,
    /// The congestion window.
    pub window: Bytes,
    /// Payload bytes in flight.
    pub in_flight: Bytes,
    /// Whether window, pacing and state let a packet leave now.
    pub has_room: bool,
    /// Whether the window is below the slow start threshold.
    pub is_in_slow_start: bool,
}

impl SubflowView {
    /// Bytes sent in a round trip: the window, at least one packet.
    fn round(&self) -> u128 {
        u128::from(self.window.max(self.mss).max(Bytes(1)).0)
    }
}

/// The data that waits for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes written and never sent.
    pub unsent: Bytes,
    /// New bytes that flow control still allows.
    pub credit: Bytes,
    /// Bytes sent and not yet acknowledged in order.
    pub outstanding: Bytes,
}

/// A rule that chooses the path of each packet.
pub trait PacketScheduler: fmt::Debug + Send {
    /// The name in [`NAMES`].
    fn name(&self) -> &'static str;

    /// The index in `paths` of the path for the next packet; `None` to wait. Only paths with
    /// [`SubflowView::has_room`] are chosen.
    fn pick(&mut self, now: Time, paths: &[SubflowView], backlog: &Backlog) -> Option<usize>;

    /// Flow control held back new data although a path had room.
    fn handle_blocked(&mut self, _now: Time) {}

    /// Whether each path carries all data.
    fn is_redundant(&self) -> bool {
        false
    }

    /// A copy, with its state.
    fn boxed_clone(&self) -> Box<dyn PacketScheduler>;
}

impl Clone for Box<dyn PacketScheduler> {
    fn clone(&self) -> Box<dyn PacketScheduler> {
        self.boxed_clone()
    }
}

/// The path with the smallest smoothed round-trip time among those that `is_eligible`, the first of
/// equals.
fn fastest(paths: &[SubflowView], is_eligible: impl Fn(&SubflowView) -> bool) -> Option<usize> {
    let eligible = paths.iter().enumerate().filter(|(_, path)| is_eligible(path));
    eligible.min_by_key(|(_, path)| path.smoothed_rtt).map(|(at, _)| at)
}

/// The fastest path with room, and a faster one that will have room after an acknowledgement.
struct Choice<'a> {
    at: usize,
    slow: &'a SubflowView,
    /// `None` if no path is worth waiting for.
    fast: Option<&'a SubflowView>,
}

/// `None` if no path has room.
fn choose(paths: &[SubflowView]) -> Option<Choice<'_>> {
    let at = fastest(paths, |path| path.has_room)?;
    let slow = &paths[at];
    let is_worth_waiting = |path: &SubflowView| {
        !path.has_room
            && path.in_flight > Bytes::ZERO
            && path.smoothed_rtt > Span::ZERO
            && path.smoothed_rtt < slow.smoothed_rtt
    };
    Some(Choice { at, slow, fast: fastest(paths, is_worth_waiting).map(|at| &paths[at]) })
}
