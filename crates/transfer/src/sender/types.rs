//! The inputs and outputs of a sender.

use core::fmt;

use units::{Bytes, PathId, Rate, Span, Time};

use crate::Extent;

/// The role of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Used whenever it is alive.
    #[default]
    Primary,
    /// Used while the primaries alone would need longer than [`SenderConfig::overflow_after`], or
    /// none is alive.
    Overflow,
    /// Used only while no other path is alive.
    Backup,
    /// Gets nothing, until it has another role. What it has in flight arrives.
    Held,
}

/// The properties of a path known when it opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathTraits {
    /// Its role.
    pub class: Class,
    /// Identifies the pair of interface and address that it runs over. A new connection of a group
    /// starts with the rate of the previous one.
    pub group: u32,
    /// The round-trip time of the handshake, if it was measured.
    pub rtt: Option<Span>,
    /// The rate that the caller states for it, if any; for the block scheduler.
    pub known: Option<Rate>,
}

/// The carrier's view of a path's connections. That of a kernel (`TCP_INFO`) is a hint: behind a
/// relay it describes the first leg only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The smoothed round-trip time.
    pub rtt: Span,
    /// The least round-trip time seen.
    pub min_rtt: Span,
    /// The kernel's delivery rate, if known. Not used for decisions, which rely on the receiver's
    /// acknowledgements.
    pub delivery_rate: Option<Rate>,
    /// Bytes the other kernel has acknowledged since the connection opened, overhead included.
    pub kernel_acked: Bytes,
    /// Consecutive retransmission timeouts.
    pub timeouts: u32,
    /// Bytes in the socket buffer that were never sent. Not used for decisions, since the driver
    /// bounds them.
    pub unsent: Bytes,
    /// Of a carrier that repeats by itself what one of its routes loses: for how long nothing has
    /// got through over any of them, zero while something does. The path then stalls by this
    /// alone. `None`: missing progress and timeouts tell of a stall.
    pub silence: Option<Span>,
}

/// The next step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Send these bytes. They lie within one block.
    Data(Extent),
    /// Send nothing. Ask again at `until`, and whenever
    /// [`Sender::poll_wake`](super::Sender::poll_wake) names the path.
    Wait {
        /// When the answer may change without an event.
        until: Option<Time>,
    },
    /// Everything is acknowledged. A refusal can still undo that: continue to poll
    /// [`Sender::poll_wake`](super::Sender::poll_wake) until the receiver declares the end.
    Complete,
}

/// The state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathState {
    /// Open, nothing acknowledged yet: gets little data.
    Proving,
    /// Carries data.
    Active,
    /// Makes no progress: gets no data, and other paths may send copies of its data.
    Stalled,
    /// Open, but not used at present.
    Standby,
}

/// The reason for a path's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has just opened.
    Opened,
    /// The receiver acknowledged its first bytes.
    Proven,
    /// It makes progress again after a stall.
    Recovered,
    /// It made no progress for this long although it had data outstanding.
    NoProgress(Span),
    /// Its carrier, which repeats what it loses, got nothing through for this long.
    Silent(Span),
    /// Its kernel had this many retransmission timeouts in a row.
    Timeouts(u32),
    /// Its delays correlate with another path's: it pauses, to test whether both share a
    /// bottleneck.
    TestingBottleneck(PathId),
    /// The other path gained this rate while it paused: one flow is enough for their bottleneck.
    SharedBottleneck(PathId, Rate),
    /// The pause showed that it has a bottleneck of its own.
    OwnBottleneck(PathId),
    /// It was on standby for long, and is tried again.
    Retest,
    /// The path with which it shared a bottleneck is gone.
    PeerGone(PathId),
    /// Other paths are enough for the rest.
    NotNeeded(Class),
    /// The other paths are gone, or are too slow.
    Needed(Class),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Opened => write!(f, "just opened"),
            Reason::Proven => write!(f, "the receiver has data from it"),
            Reason::Recovered => write!(f, "it makes progress again"),
            Reason::NoProgress(span) => write!(f, "no progress for {}", span.brief()),
            Reason::Silent(span) => write!(f, "nothing got through for {}", span.brief()),
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
            Reason::NotNeeded(Class::Held) => write!(f, "until what others have sent has arrived"),
            Reason::NotNeeded(class) => write!(f, "{class:?} path, not needed"),
            Reason::Needed(class) => write!(f, "{class:?} path, needed"),
        }
    }
}

/// An event, for the progress display and for the driver's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// A path changed its state. On [`PathState::Stalled`] the driver should open a new connection
    /// of the same group.
    PathState {
        /// The path.
        path: PathId,
        /// Its new state.
        state: PathState,
        /// The reason.
        why: Reason,
    },
    /// The block scheduler resized the tasks.
    Adjusted {
        /// The number of adjustments, this one included.
        count: u64,
        /// Bytes moved from path to path.
        moved: Bytes,
    },
    /// A path took unsent bytes from another one that would have finished later.
    Stolen {
        /// The path that had them.
        from: PathId,
        /// The path that has them from here on.
        to: PathId,
        /// The bytes moved.
        bytes: Bytes,
    },
    /// A path sends a copy of an extent that another one has in flight.
    Duplicated {
        /// The extent.
        extent: Extent,
        /// The path that sent it first.
        holder: PathId,
        /// The path that sends the copy.
        by: PathId,
    },
    /// Everything is acknowledged.
    Complete,
}

/// The externally visible state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// The path.
    pub id: PathId,
    /// Its state.
    pub state: PathState,
    /// The reason for its state.
    pub why: Reason,
    /// The properties known when it opened.
    pub traits: PathTraits,
    /// Its smoothed delivery rate; zero while nothing was acknowledged.
    pub rate: Rate,
    /// The smoothed round-trip time, zero if unknown.
    pub rtt: Span,
    /// Bytes that the receiver acknowledged on this path first.
    pub acked: Bytes,
    /// Bytes assigned to it and not sent.
    pub task: Bytes,
    /// Bytes sent and not acknowledged on this path, copies included.
    pub in_flight: Bytes,
    /// Bytes sent as copies of another path's data.
    pub copies: Bytes,
}

/// The state of the transfer as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Bytes that were missing when the transfer began.
    pub total: Bytes,
    /// Bytes of `total` that are acknowledged.
    pub acked: Bytes,
    /// Bytes assigned to no path.
    pub pool: Bytes,
    /// Bytes assigned to paths and not sent.
    pub tasks: Bytes,
    /// Bytes sent and not acknowledged, each counted once however many paths carry it.
    pub in_flight: Bytes,
    /// Bytes sent again: as copies, after a path died, or after a refusal.
    pub duplicates: Bytes,
    /// The sum of the paths' rates.
    pub rate: Rate,
    /// The expected time to the end, if the rate is not zero.
    pub eta: Option<Span>,
}

impl Totals {
    /// Bytes that are not acknowledged yet. What an earlier run has moved is no part of them.
    #[must_use]
    pub fn rest(&self) -> Bytes {
        self.total - self.acked
    }
}

/// The parameters of a sender, without those of the block scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderConfig {
    /// The most that a path in [`PathState::Proving`] may have outstanding.
    pub proving: Bytes,
    /// A path is stalled once it made no progress for this long, or for four round-trip times if
    /// that is longer; one whose carrier repeats what it loses, once that got nothing through for
    /// as long.
    pub stall_after: Span,
    /// ... or once its kernel had this many timeouts in a row.
    pub stall_timeouts: u32,
    /// Whether idle paths send copies of other paths' data in flight.
    pub duplicate: bool,
    /// Whether to look for shared bottlenecks.
    pub bottlenecks: bool,
    /// Overflow paths are used while the primaries would need longer than this.
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
            overflow_after: policy::overflow::AFTER,
        }
    }
}
