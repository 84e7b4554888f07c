//! Congestion controllers: how much each subflow of a connection may have in flight, and how fast
//! it sends.
//!
//! One [`Controller`] owns **all subflows of a connection**, so that a coupled algorithm sees all
//! of them; [`Uncoupled`] makes one from an algorithm for a single path ([`SinglePath`]). The
//! sender reports events to the controller and asks for each subflow's [`Allowance`] before it
//! sends. The controller knows no sequence numbers, no scoreboard and no timer but its own.
//!
//! The *sender* detects losses, enters and leaves recovery, does proportional rate reduction, ends
//! slow start by delay (`HyStart++`) and samples rates; the *controller* decides windows and
//! pacing.
//!
//! Windows are kept as real numbers of bytes; [`Allowance::window`] is that number rounded down,
//! which admits the same packets. A sender may send while `in flight + MSS <= max(window, MSS)`.
//! Windows stay between a floor (one MSS; two for [`Vegas`], [`Fast`], [`Ledbat`] and
//! [`LedbatPlusPlus`]; a 16th for [`Harp`], a 48th for [`Nice`]) and [`MAX_WINDOW`] for any
//! sequence of events.
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
//! | `dctcp` | [`Uncoupled`]`<`[`Dctcp`]`>` | RFC 8257 |
//! | `prague` | [`Uncoupled`]`<`[`Prague`]`>` | draft-briscoe-iccrg-prague-congestion-control; Linux |
//! | `ledbat` | [`Uncoupled`]`<`[`Ledbat`]`>` | RFC 6817 |
//! | `ledbat++` | [`Uncoupled`]`<`[`LedbatPlusPlus`]`>` | draft-irtf-iccrg-ledbat-plus-plus |
//! | `lp` | [`Uncoupled`]`<`[`Lp`]`>` | TCP-LP: Kuzmanovic and Knightly 2003; Linux |
//! | `nice` | [`Uncoupled`]`<`[`Nice`]`>` | TCP Nice: Venkataramani, Kokku and Dahlin 2002 |
//! | `lia` | [`Coupled`]`<`[`Lia`]`>` | RFC 6356 |
//! | `olia` | [`Coupled`]`<`[`Olia`]`>` | draft-khalili-mptcp-congestion-control; Linux |
//! | `balia` | [`Coupled`]`<`[`Balia`]`>` | draft-walid-mptcp-congestion-control; Linux |
//! | `wvegas` | [`Wvegas`] | Cao, Xu and Fu 2012; Linux |
//! | `coupled-bbr` | [`CoupledBbr`] | derived here from BBR version 3 |
//! | `coupled-cubic` | [`CoupledCubic`] | derived here from RFC 9438 |
//! | `harp` | [`Harp`] | Kokku, Bohra, Ganguly and Venkataramani, and what this one adds |
//! | `mpfast` | [`Mpfast`] | Ha et al., and what this implementation adds |

mod balia;
mod bbr;
mod ceiling;
mod clocks;
mod coupled;
mod coupled_bbr;
mod coupled_cubic;
mod cubic;
mod dctcp;
mod delays;
mod divided;
mod drain_times;
mod fast;
mod fast_path;
mod forward_delay;
mod harp;
mod ledbat;
mod ledbat_plus_plus;
mod lia;
mod lp;
mod mpfast;
mod names;
mod nice;
mod olia;
mod prague;
mod reno;
mod site;
mod uncoupled;
mod vegas;
mod waimd;
mod window;
mod windowed;
mod wvegas;

use alloc::boxed::Box;
use core::fmt;

use units::{Bytes, Rate, Span, SubflowId, Time};

pub use balia::Balia;
pub use bbr::Bbr;
pub use clocks::{ClockWatch, DelayRange};
pub use coupled::{Coupled, Coupling, PathState};
pub use coupled_bbr::CoupledBbr;
pub use coupled_cubic::CoupledCubic;
pub use cubic::{Cubic, CubicOptions};
pub use dctcp::Dctcp;
pub use divided::Divided;
pub use fast::{Fast, FastOptions};
pub use harp::{
    Delivered, Harp, HarpCoupling, HarpOptions, HarpStanding, Lateness, LatenessOptions, PathFalls,
    SuspendedPath,
};
pub use ledbat::{Ledbat, LedbatOptions};
pub use ledbat_plus_plus::{LedbatPlusPlus, LedbatPlusPlusOptions};
pub use lia::Lia;
pub use lp::{Lp, LpOptions};
pub use mpfast::{Alpha, Mpfast, MpfastOptions};
pub use names::{KIND, NAMES, by_name};
pub use nice::{Nice, NiceOptions};
pub use olia::Olia;
pub use prague::{Prague, PragueOptions};
pub use reno::Reno;
pub use site::{Place, Site};
pub use uncoupled::{SinglePath, Uncoupled};
pub use vegas::{Vegas, VegasOptions};
pub use waimd::Waimd;
pub use wvegas::Wvegas;

/// The largest window: 1 TiB, which is 88 Tbit/s at a round-trip time of 100 ms.
pub const MAX_WINDOW: Bytes = Bytes(1 << 40);

/// A subflow that joins the connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// Payload of one full packet.
    pub mss: Bytes,
    /// The initial window, in bytes.
    pub initial_window: Bytes,
    /// The round-trip time of the handshake, if it is known: of packets with nearly no payload.
    pub rtt: Option<Span>,
}

/// A packet left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Payload bytes.
    pub bytes: Bytes,
    /// Payload bytes in flight, this packet included.
    pub in_flight: Bytes,
    /// Whether it was sent before.
    pub is_retransmission: bool,
}

/// An acknowledgement that delivers new bytes, cumulatively or selectively.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acked {
    /// Payload bytes acknowledged for the first time.
    pub bytes: Bytes,
    /// Payload bytes in flight, without the acknowledged ones.
    pub in_flight: Bytes,
    /// When the latest sent of the acknowledged packets was sent.
    pub sent_at: Time,
    /// The window when that packet was sent; `None` if the sender does not keep it, because the
    /// controller does not [want](Controller::wants_snapshots) it.
    pub window_at_sending: Option<Bytes>,
    /// Its round-trip time; `None` if it was sent more than once and the transmission is not known.
    pub rtt: Option<Span>,
    /// The smoothed round-trip time (RFC 6298), this sample included.
    pub smoothed_rtt: Span,
    /// The smallest round-trip time of the subflow so far.
    pub min_rtt: Span,
    /// The one-way delay of the data, from an arbitrary origin: only differences of two such
    /// delays mean anything. `None` if the transport has none: the packet carried no time. TCP
    /// takes it from the timestamps (RFC 7323), so that it includes the time for which the
    /// acknowledgement was delayed.
    pub one_way_delay: Option<Span>,
    /// The one-way delay of the acknowledgement, likewise.
    pub ack_delay: Option<Span>,
    /// The rate at which data was delivered over the packet's round trip
    /// (draft-cheng-iccrg-delivery-rate-estimation).
    pub delivery_rate: Option<Rate>,
    /// Round trips completed. The count goes up when a packet is acknowledged that was sent after
    /// the last round began.
    pub round: u64,
    /// Packets that arrived with a CE mark, as the receiver counts them (RFC 9768), since the last
    /// of these reports.
    pub ce_packets: u64,
    /// The bytes of these packets, counted as [`Acked::bytes`]. Some may be acknowledged earlier or
    /// later, and a packet that arrives twice may count twice.
    pub ce_bytes: Bytes,
    /// Whether the application, not the window, limited what was in flight when the packet was
    /// sent.
    pub is_app_limited: bool,
    /// Whether the sender is in fast recovery; most controllers do not grow the window then.
    pub in_recovery: bool,
    /// Slow start grows by `bytes / slow_start_divisor`: 1, or more in the conservative slow start
    /// of RFC 9406.
    pub slow_start_divisor: u32,
}

/// A packet counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its payload.
    pub bytes: Bytes,
    /// Payload bytes in flight when it was sent, its own included; `None` as
    /// [`Acked::window_at_sending`].
    pub in_flight_at_sending: Option<Bytes>,
    /// When it was sent.
    pub sent_at: Time,
}

/// The sign of congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A packet was lost.
    Loss,
    /// A packet was marked (ECN).
    Mark,
}

/// A congestion event, at most one a window of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// Its sign.
    pub signal: Signal,
    /// Payload bytes in flight at that moment, the lost ones included (the `FlightSize` of RFC
    /// 5681).
    pub in_flight: Bytes,
}

/// Whether a subflow may send at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choke {
    /// It may send within window and pacing.
    Open,
    /// It may not send, except for one packet at `probe_at` (Harp's choke).
    Choked {
        /// When to probe.
        probe_at: Time,
    },
}

/// The permission of a subflow to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Payload bytes that may be in flight; the sender treats less than one MSS as one MSS, and
    /// paces.
    pub window: Bytes,
    /// The pacing rate, in payload without headers as [`Acked::delivery_rate`]. `None`: as
    /// acknowledgements arrive, or by the sender's own rule.
    pub pacing: Option<Rate>,
    /// Bytes that may be sent at once when paced.
    pub burst: Bytes,
    /// Whether it may send at all.
    pub state: Choke,
}

impl Allowance {
    /// An allowance of a window only, without pacing.
    #[must_use]
    pub fn window(window: Bytes) -> Allowance {
        Allowance { window, pacing: None, burst: Bytes::ZERO, state: Choke::Open }
    }
}

/// Congestion control of all subflows of one connection.
///
/// The sender calls the `handle_*` methods with events, then asks for the [`Allowance`] of the
/// subflow concerned, and of each that [`Controller::poll_changed`] names.
pub trait Controller: fmt::Debug + Send {
    /// The name in [`NAMES`].
    fn name(&self) -> &'static str;

    /// A subflow joins. Ids are not reused.
    fn handle_add(&mut self, now: Time, id: SubflowId, start: &Start);

    /// A subflow leaves.
    fn handle_remove(&mut self, now: Time, id: SubflowId);

    /// A packet left.
    fn handle_sent(&mut self, _now: Time, _id: SubflowId, _sent: &Sent) {}

    /// An acknowledgement delivered bytes.
    fn handle_acked(&mut self, now: Time, id: SubflowId, acked: &Acked);

    /// A packet counts as lost; [`Controller::handle_congestion`] follows once a window.
    fn handle_lost(&mut self, _now: Time, _id: SubflowId, _lost: &Lost) {}

    /// Congestion, at most once a window of data.
    fn handle_congestion(&mut self, now: Time, id: SubflowId, congestion: &Congestion);

    /// The retransmission timer ran out. `in_flight` as in [`Congestion`].
    fn handle_timeout(&mut self, now: Time, id: SubflowId, in_flight: Bytes);

    /// The last congestion event or timeout was spurious: nothing had been lost.
    fn handle_undo(&mut self, _now: Time, _id: SubflowId) {}

    /// The subflow sends again after it was idle for at least one retransmission timeout (RFC 5681,
    /// section 4.1).
    fn handle_idle_restart(&mut self, _now: Time, _id: SubflowId) {}

    /// The sender ends slow start by delay (RFC 9406).
    fn handle_slow_start_end(&mut self, _now: Time, _id: SubflowId) {}

    /// The subflow is found to share a bottleneck with those of the same `bottleneck`, named by one
    /// of their ids; or with none, as at first. Called when that changes.
    fn handle_bottleneck(&mut self, _now: Time, _id: SubflowId, _bottleneck: Option<SubflowId>) {}

    /// The subflow is from now on in the background, or no longer. `start` is what it would join
    /// with now; `None`: it has yet to join. A controller that has but one rule ignores it, unlike
    /// [`Divided`].
    fn handle_background(
        &mut self,
        _now: Time,
        _id: SubflowId,
        _is_background: bool,
        _start: Option<&Start>,
    ) {
    }

    /// When to call [`Controller::handle_deadline`]. This and all other answers change with calls
    /// of `handle_*` only, so a sender need not ask again without one.
    fn poll_deadline(&self) -> Option<Time> {
        None
    }

    /// The deadline has come; the next one must be later.
    fn handle_deadline(&mut self, _now: Time) {}

    /// The present allowance of a subflow; zero for an unknown one.
    fn allowance(&self, id: SubflowId) -> Allowance;

    /// A further subflow whose allowance the last `handle_*` call changed; each is returned once.
    fn poll_changed(&mut self) -> Option<SubflowId> {
        None
    }

    /// The slow start threshold in bytes; `None` while slow start has no bound, as before the first
    /// congestion event. Senders take a window below it, or `None`, for slow start (pacing and
    /// `HyStart++` depend on that); traces record it. [`Bbr`] gives the bandwidth-delay product at
    /// which Startup ended, [`Fast`], which has no slow start, the window of the last cut.
    fn threshold(&self, _id: SubflowId) -> Option<Bytes> {
        None
    }

    /// Whether the sender does proportional rate reduction in recovery (RFC 9937).
    fn wants_rate_reduction(&self) -> bool {
        true
    }

    /// Whether it uses the state at the time a packet was sent: [`Acked::window_at_sending`],
    /// [`Acked::delivery_rate`] and [`Lost::in_flight_at_sending`]. If not, the sender need not
    /// keep a snapshot of each packet, and may report `None`. Senders ask when the subflow joins.
    fn wants_snapshots(&self) -> bool {
        true
    }

    /// Whether its rate falls with the part of marks itself and not with its root, as queues of L4S
    /// want it (RFC 9331, section 4.3). Its packets may say so: ECT(1).
    fn is_scalable(&self) -> bool {
        false
    }

    /// A copy, with its state.
    fn boxed_clone(&self) -> Box<dyn Controller>;
}

impl Clone for Box<dyn Controller> {
    fn clone(&self) -> Box<dyn Controller> {
        self.boxed_clone()
    }
}
