//! Congestion controllers: how much each subflow of a connection may have in flight, and how fast
//! it is sent.
//!
//! One [`Controller`] owns **all subflows of a connection**, so that a coupled algorithm sees the
//! siblings; [`Uncoupled`] lifts an algorithm for one path ([`SinglePath`]) to that. The sender
//! tells the controller what happened and asks for each subflow's [`Allowance`] before it sends.
//! The controller knows no sequence numbers, no scoreboard and no timer but its own.
//!
//! Who decides what: the *sender* finds losses, enters and leaves recovery, does proportional rate
//! reduction, ends slow start by delay (`HyStart++`) and samples rates; the *controller* decides
//! windows and pacing.
//!
//! Windows are kept as real numbers of bytes; [`Allowance::window`] is that number rounded down,
//! which admits the same packets. A sender may send while `in flight + MSS <= max(window, MSS)`.
//! Whatever a controller is told, its windows stay between its floor (one MSS; two for [`Vegas`]
//! and [`Fast`]) and [`MAX_WINDOW`].
//!
//! [`by_name`] makes the controllers of [`NAMES`]:
//!
//! | name | type | source |
//! |---|---|---|
//! | `cubic` | [`Uncoupled`]`<`[`Cubic`]`>` | RFC 9438 |
//! | `reno` | [`Uncoupled`]`<`[`Reno`]`>` | RFC 5681 |
//! | `vegas` | [`Uncoupled`]`<`[`Vegas`]`>` | Brakmo and Peterson 1995; ns-2 and Linux |
//! | `fast` | [`Uncoupled`]`<`[`Fast`]`>` | Wei, Jin, Low and Hegde 2006; the ns-2 module |
//! | `bbr` | [`Uncoupled`]`<`[`Bbr`]`>` | BBR version 3, draft-ietf-ccwg-bbr-06 |
//! | `waimd` | [`Uncoupled`]`<`[`Waimd`]`>` | `MulTCP`: Crowcroft and Oechslin 1998 |
//! | `lia` | [`Coupled`]`<`[`Lia`]`>` | RFC 6356 |
//! | `olia` | [`Coupled`]`<`[`Olia`]`>` | draft-khalili-mptcp-congestion-control; Linux |
//! | `balia` | [`Coupled`]`<`[`Balia`]`>` | draft-walid-mptcp-congestion-control; Linux |

mod balia;
mod bbr;
mod coupled;
mod cubic;
mod fast;
mod lia;
mod names;
mod olia;
mod reno;
mod uncoupled;
mod vegas;
mod waimd;
mod window;

use alloc::boxed::Box;
use core::fmt;

use units::{Bytes, Rate, Span, SubflowId, Time};

pub use balia::Balia;
pub use bbr::Bbr;
pub use coupled::{Coupled, Coupling, PathState};
pub use cubic::{Cubic, CubicOptions};
pub use fast::{Fast, FastOptions};
pub use lia::Lia;
pub use names::{KnownController, NAMES, Parameter, UnknownController, by_name};
pub use olia::Olia;
pub use reno::Reno;
pub use uncoupled::{SinglePath, Uncoupled};
pub use vegas::{Vegas, VegasOptions};
pub use waimd::Waimd;

/// No window grows beyond this: 1 TiB, at 100 ms of round trip 88 Tbit/s.
pub const MAX_WINDOW: Bytes = Bytes(1 << 40);

/// A subflow that joins the connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// Payload of one full packet.
    pub mss: Bytes,
    /// The window to begin with, in bytes.
    pub initial_window: Bytes,
    /// The round trip of the handshake, if it is known: of packets that have nearly no payload.
    pub rtt: Option<Span>,
}

/// A packet left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Payload bytes.
    pub bytes: Bytes,
    /// Payload bytes in flight, this packet included.
    pub in_flight: Bytes,
    /// Whether it is sent again.
    pub is_retransmission: bool,
}

/// An acknowledgement came that says of some bytes for the first time that they arrived
/// (cumulatively or selectively).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acked {
    /// How many bytes.
    pub bytes: Bytes,
    /// Payload bytes in flight, the acknowledged ones no longer counted.
    pub in_flight: Bytes,
    /// When the latest sent of the acknowledged packets was sent.
    pub sent_at: Time,
    /// The window when that packet was sent.
    pub window_at_sending: Bytes,
    /// Its round-trip time; `None` if it was sent more than once and cannot be told apart.
    pub rtt: Option<Span>,
    /// The smoothed round-trip time (RFC 6298), this sample included.
    pub smoothed_rtt: Span,
    /// The smallest round-trip time of the subflow so far.
    pub min_rtt: Span,
    /// The one-way delay, by two clocks that need not agree: only differences mean something.
    pub one_way_delay: Option<Span>,
    /// The rate at which data was delivered over the packet's round trip
    /// (draft-cheng-iccrg-delivery-rate-estimation).
    pub delivery_rate: Option<Rate>,
    /// Round trips completed: it counts up when a packet is acknowledged that was sent after the
    /// last one began.
    pub round: u64,
    /// How many bytes of these had a CE mark.
    pub ce_bytes: Bytes,
    /// Whether the application, not the window, limited what was in flight when the packet was
    /// sent.
    pub is_app_limited: bool,
    /// Whether the sender is in fast recovery: windows do not grow then, unless a controller wants
    /// it.
    pub in_recovery: bool,
    /// Slow start grows by `bytes / slow_start_divisor`: 1, or more in the conservative slow start
    /// of RFC 9406.
    pub slow_start_divisor: u32,
}

/// One packet is taken for lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its payload.
    pub bytes: Bytes,
    /// What was in flight when it was sent, itself included.
    pub in_flight_at_sending: Bytes,
    /// When it was sent.
    pub sent_at: Time,
}

/// Why the window should shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A packet was lost.
    Loss,
    /// A packet was marked (ECN).
    Mark,
}

/// Once a window of data: the path is congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// By what it was noticed.
    pub signal: Signal,
    /// Payload bytes in flight at that moment, the lost ones included (the `FlightSize` of RFC
    /// 5681).
    pub in_flight: Bytes,
}

/// Whether a subflow may send at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choke {
    /// It may, within window and pacing.
    Open,
    /// It may not, but for one packet at `probe_at` (Harp's choke).
    Choked {
        /// When to probe.
        probe_at: Time,
    },
}

/// What a subflow may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Payload bytes in flight; the sender treats less than one MSS as one MSS, and paces.
    pub window: Bytes,
    /// The rate of sending, counted as [`Acked::delivery_rate`] is: in payload, without headers.
    /// `None`: as acknowledgements come, or by a rule of the sender's own.
    pub pacing: Option<Rate>,
    /// How much may be sent at once when paced.
    pub burst: Bytes,
    /// Whether it may send.
    pub state: Choke,
}

impl Allowance {
    /// A window and nothing else.
    #[must_use]
    pub fn window(window: Bytes) -> Allowance {
        Allowance { window, pacing: None, burst: Bytes::ZERO, state: Choke::Open }
    }
}

/// Congestion control of all subflows of one connection.
///
/// The sender calls the `handle_*` methods as things happen, then asks for the [`Allowance`] of the
/// subflow concerned, and of every one that [`Controller::poll_changed`] names.
pub trait Controller: fmt::Debug + Send {
    /// The name by which it is chosen.
    fn name(&self) -> &'static str;

    /// A subflow joins. Ids are never used again.
    fn handle_add(&mut self, now: Time, id: SubflowId, start: &Start);

    /// A subflow has gone.
    fn handle_remove(&mut self, now: Time, id: SubflowId);

    /// A packet left.
    fn handle_sent(&mut self, _now: Time, _id: SubflowId, _sent: &Sent) {}

    /// Bytes arrived.
    fn handle_acked(&mut self, now: Time, id: SubflowId, acked: &Acked);

    /// A packet is taken for lost; [`Controller::handle_congestion`] follows once a window.
    fn handle_lost(&mut self, _now: Time, _id: SubflowId, _lost: &Lost) {}

    /// Congestion, at most once a window of data.
    fn handle_congestion(&mut self, now: Time, id: SubflowId, congestion: &Congestion);

    /// The retransmission timer ran out. `in_flight` as in [`Congestion`].
    fn handle_timeout(&mut self, now: Time, id: SubflowId, in_flight: Bytes);

    /// The last congestion event or timeout was none: nothing had been lost.
    fn handle_undo(&mut self, _now: Time, _id: SubflowId) {}

    /// The subflow sends again after an idle time of at least one retransmission timeout (RFC 5681,
    /// section 4.1).
    fn handle_idle_restart(&mut self, _now: Time, _id: SubflowId) {}

    /// The sender found slow start to be over by delay (RFC 9406).
    fn handle_slow_start_end(&mut self, _now: Time, _id: SubflowId) {}

    /// When [`Controller::handle_deadline`] wants to be called. As all that is asked, it changes by
    /// calls of `handle_*` only: who has told the controller nothing need not ask again.
    fn poll_deadline(&self) -> Option<Time> {
        None
    }

    /// The deadline has come; it must move on.
    fn handle_deadline(&mut self, _now: Time) {}

    /// What the subflow may do now. Zero for one that is not there.
    fn allowance(&self, id: SubflowId) -> Allowance;

    /// Subflows other than the one of the last call whose allowance changed by it; each once.
    fn poll_changed(&mut self) -> Option<SubflowId> {
        None
    }

    /// The slow start threshold in bytes, if it has one: `None` before the first congestion. For
    /// traces and for proportional rate reduction.
    fn threshold(&self, _id: SubflowId) -> Option<Bytes> {
        None
    }

    /// Whether the sender should reduce what is in flight step by step in recovery (RFC 9937).
    fn wants_rate_reduction(&self) -> bool {
        true
    }

    /// Whether it looks at what was known as a packet left: [`Acked::window_at_sending`],
    /// [`Acked::delivery_rate`] and [`Lost::in_flight_at_sending`]. If not, a sender need not keep
    /// that of each packet, and may say zero, or `None`. It is asked as the subflow joins.
    fn wants_snapshots(&self) -> bool {
        true
    }

    /// A copy, with its state.
    fn boxed_clone(&self) -> Box<dyn Controller>;
}

impl Clone for Box<dyn Controller> {
    fn clone(&self) -> Box<dyn Controller> {
        self.boxed_clone()
    }
}
