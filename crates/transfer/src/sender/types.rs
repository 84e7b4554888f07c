//! What goes into a sender and comes out of it.

use core::fmt;

use units::{Bytes, PathId, Rate, Span, Time};

use crate::Extent;

/// What a path is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Used whenever it is there.
    #[default]
    Primary,
    /// Used while the primaries alone would need longer than [`SenderConfig::overflow_after`], or
    /// none is alive.
    Overflow,
    /// Used only while no other path is alive.
    Backup,
}

/// What is known of a path when it opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathTraits {
    /// What it is for.
    pub class: Class,
    /// Which pair of interface and address it runs over: a fresh connection of the same group
    /// starts with what was learnt from the former one.
    pub group: u32,
    /// The time the handshake took to go there and back, if it was measured.
    pub rtt: Option<Span>,
    /// What the caller says that it carries, if it does; for the block scheduler.
    pub known: Option<Rate>,
}

/// What the kernel says of a connection (`TCP_INFO`). All of it is a hint: behind a relay it tells
/// of the first leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The smoothed round-trip time.
    pub rtt: Span,
    /// The least round-trip time seen.
    pub min_rtt: Span,
    /// The kernel's delivery rate, if it has one. Not used for decisions: those go by what the
    /// receiver acknowledged.
    pub delivery_rate: Option<Rate>,
    /// Bytes the other kernel has acknowledged since the connection opened, overhead included.
    pub kernel_acked: Bytes,
    /// Consecutive retransmission timeouts.
    pub timeouts: u32,
    /// Bytes in the socket buffer that were never sent. Not used for decisions: the driver bounds
    /// them.
    pub unsent: Bytes,
}

/// What a path shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Send these bytes. They lie within one block.
    Data(Extent),
    /// Nothing at this moment. Ask again at `until`, and whenever
    /// [`Sender::poll_wake`](super::Sender::poll_wake) names the path.
    Wait {
        /// When something may have changed by itself.
        until: Option<Time>,
    },
    /// Everything is acknowledged. A refusal can still undo that: go on listening for
    /// [`Sender::poll_wake`](super::Sender::poll_wake) until the receiver says that it is done.
    Complete,
}

/// How a path stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathState {
    /// Open, has not had anything acknowledged: gets little.
    Proving,
    /// Carries data.
    Active,
    /// Makes no progress: gets nothing, and what it has may be sent by others.
    Stalled,
    /// Held back.
    Standby,
}

/// Why a path came to stand as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has just opened.
    Opened,
    /// The receiver acknowledged its first bytes.
    Proven,
    /// It makes progress after a stall.
    Recovered,
    /// It made no progress for this long although it had data outstanding.
    NoProgress(Span),
    /// Its kernel had this many retransmission timeouts in a row.
    Timeouts(u32),
    /// Its delays move with another path's: it pauses to see whether both share a bottleneck.
    TestingBottleneck(PathId),
    /// The other path became this much faster while it paused: one flow is enough on their
    /// bottleneck.
    SharedBottleneck(PathId, Rate),
    /// The pause showed that it has a bottleneck of its own.
    OwnBottleneck(PathId),
    /// It was held back for long: it is tried again.
    Retest,
    /// The path it was held back for is gone.
    PeerGone(PathId),
    /// Other paths are enough for what is left.
    NotNeeded(Class),
    /// The others are gone, or need help.
    Needed(Class),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Opened => write!(f, "just opened"),
            Reason::Proven => write!(f, "the receiver has data from it"),
            Reason::Recovered => write!(f, "it makes progress again"),
            Reason::NoProgress(span) => write!(f, "no progress for {span}"),
            Reason::Timeouts(n) => write!(f, "{n} retransmission timeouts in a row"),
            Reason::TestingBottleneck(other) => {
                write!(f, "testing whether it shares a bottleneck with {other}")
            }
            Reason::SharedBottleneck(other, gain) => {
                write!(f, "shares a bottleneck with {other}, which gained {gain} while it paused")
            }
            Reason::OwnBottleneck(other) => write!(f, "does not share a bottleneck with {other}"),
            Reason::Retest => write!(f, "tried again after a long pause"),
            Reason::PeerGone(other) => {
                write!(f, "{other}, with which it shared a bottleneck, is gone")
            }
            Reason::NotNeeded(Class::Backup) => write!(f, "a backup, and another path is alive"),
            Reason::NotNeeded(class) => write!(f, "{class:?} path, not needed"),
            Reason::Needed(class) => write!(f, "{class:?} path, needed"),
        }
    }
}

/// What happened, for progress display and for the driver's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// A path changed its state. On [`PathState::Stalled`] the driver should open a fresh
    /// connection of the same group.
    PathState {
        /// The path.
        path: PathId,
        /// How it stands from here on.
        state: PathState,
        /// Why.
        why: Reason,
    },
    /// The block scheduler resized the tasks.
    Adjusted {
        /// How often it did, this one included.
        count: u64,
        /// Bytes that changed their path.
        moved: Bytes,
    },
    /// A path took unsent bytes from another one that would have finished later.
    Stolen {
        /// Who had them.
        from: PathId,
        /// Who has them.
        to: PathId,
        /// How many.
        bytes: Bytes,
    },
    /// A path sends a copy of what another one has in flight.
    Duplicated {
        /// What.
        extent: Extent,
        /// Who sent it first.
        holder: PathId,
        /// Who sends the copy.
        by: PathId,
    },
    /// Everything is acknowledged.
    Complete,
}

/// What a path looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// The path.
    pub id: PathId,
    /// How it stands.
    pub state: PathState,
    /// Why it does.
    pub why: Reason,
    /// What was known when it opened.
    pub traits: PathTraits,
    /// Its rate, smoothed; zero while nothing was acknowledged.
    pub rate: Rate,
    /// The smoothed round-trip time, zero if unknown.
    pub rtt: Span,
    /// Bytes that reached the receiver by this path first.
    pub acked: Bytes,
    /// Bytes assigned to it and not sent.
    pub task: Bytes,
    /// Bytes it has sent and not heard of, copies included.
    pub in_flight: Bytes,
    /// Bytes it sent as copies of what another path had sent.
    pub copies: Bytes,
}

/// The transfer as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Bytes that were missing when the transfer began.
    pub total: Bytes,
    /// Bytes of these acknowledged.
    pub acked: Bytes,
    /// Bytes assigned to no path.
    pub pool: Bytes,
    /// Bytes assigned to paths and not sent.
    pub tasks: Bytes,
    /// Bytes sent and not acknowledged, each counted once however many paths carry it.
    pub in_flight: Bytes,
    /// Bytes sent a second time by another path, or again after a path died or a refusal.
    pub duplicates: Bytes,
    /// The paths' rates together.
    pub rate: Rate,
    /// When everything will be there, if anything moves.
    pub eta: Option<Span>,
}

/// The parameters of a sender that are not the block scheduler's.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderConfig {
    /// Largest amount a path that has proven nothing may have outstanding.
    pub proving: Bytes,
    /// A path is stalled once it made no progress for this long, or for four round-trip times if
    /// that is longer.
    pub stall_after: Span,
    /// ... or once its kernel had this many timeouts in a row.
    pub stall_timeouts: u32,
    /// Whether idle paths send copies of what others have in flight.
    pub duplicate: bool,
    /// Whether to look for shared bottlenecks.
    pub bottlenecks: bool,
    /// Overflow paths help while the primaries would need longer than this.
    pub overflow_after: Span,
}

impl Default for SenderConfig {
    fn default() -> SenderConfig {
        SenderConfig {
            proving: Bytes::kib(64),
            stall_after: Span::from_millis(600),
            stall_timeouts: 2,
            duplicate: true,
            bottlenecks: true,
            overflow_after: Span::from_secs(10),
        }
    }
}
