//! Packet-level simulation of the overlay: sources under [`overlay::Controller`] send over TCP
//! through relays.
//!
//! "Application-layer multipath data transfer via TCP: Schemes and performance tradeoffs" (2007),
//! section 5.1, "Simulation results". The rate control is that of the fluid study; the
//! received rates come from TCP.
//!
//! ```
//! use scenario::relays::{Demands, OverlaySetting, control};
//! use overlay::{Instance, Selection};
//! use units::{Rate, Seed};
//!
//! // Two sources on two relays; the second can use only the second relay.
//! let demand = Rate::kbit(1_200);
//! let instance = Instance { demands: vec![demand; 2], capacities: vec![demand; 2] };
//! let selection = Selection::new(2, vec![0, 1, 1, 0]);
//! let mut setting = OverlaySetting::new(Demands::Equal(demand));
//! (setting.study.intervals, setting.study.settled) = (60, 30);
//! let outcome = control(&setting, &instance, &selection, Seed(1))?;
//! assert!(outcome.value > 0.9 * outcome.optimum);
//! # Ok::<(), netsim::TopologyError>(())
//! ```
//!
//! # The model
//!
//! A path is a TCP connection from its source to its relay and one from there to the receiver (Reno
//! with RACK-TLP). Paths that share a relay share its link to the receiver, which is drop-tail and
//! the only bottleneck. The RTT over both hops without queues is [`OverlaySetting::rtt`], half of
//! it on each hop.
//!
//! * **Rates** are payload. A relay of capacity a has a link of a · (packet + headers) / packet
//!   bits a second, so that a is what TCP could deliver at best, and the optimum is that of the
//!   fluid study for the same sources, relays and paths.
//! * A **source** writes a packet to a path when the path's token bucket has one and less than
//!   [`OverlaySetting::ahead`] is unsent there. When a new rate is set, unused tokens expire, but
//!   for the part of a packet that rounding left.
//! * A **relay** reads from the first hop while less than [`OverlaySetting::ahead`] is unsent on
//!   the second. Otherwise the first hop's receive buffer of [`OverlaySetting::window`] fills, its
//!   window closes, and the source's bucket overflows: back-pressure. When it reads on, it reads
//!   all that waited, so that no more than both together is ever unsent, and no more than another
//!   window unread.
//! * The **receiver** counts each path's payload and, once an interval, sends each source a packet
//!   a path, 44 B, with the count. They take a way of their own, with half the round-trip time. A
//!   source's interval is the time between such reports: what is counted in one was sent up to a
//!   round trip earlier, a tenth of an interval, at the rates before.
//! * Sources begin at random within an interval, and their intervals stay apart so. Until the
//!   second report, which tells of the first interval without opening connections, a source with
//!   [`overlay::Initial::MaxMin`] hands out packets in turns to whichever of its paths accepts one.
//! * What a relay sends is held back by a random time of up to a packet's on its link, against
//!   phase effects.

mod build;
mod build_feeds;
mod cases;
mod course;
mod feeds;
mod file;
mod hop;
mod line;
mod packet;
mod producer;
mod rate_study;
mod receiver;
mod relay;
mod run;
mod source;

use overlay::{Config, Detect};
use tcp::Config as Tcp;
use units::{Bytes, Rate, Span, Time};

pub use build::{Network, OverlayNode};
pub use cases::{Case, cases};
pub use course::{Course, FeedOutcome, draws, follow};
pub use feeds::{Feed, FeedRelay, Feeds};
pub use file::FeedsFile;
pub use packet::OverlayPacket;
pub use rate_study::{Demands, RateStudy, Sharing, convergence};
pub use receiver::Receiver;
pub use relay::Relay;
pub use run::{Outcome, control, run};
pub use source::Source;

/// A setting of the study.
#[derive(Clone, Debug, PartialEq)]
pub struct OverlaySetting {
    /// Sources, relays, rate control, and how long; only `sharing` has no meaning here.
    pub study: RateStudy,
    /// The RTT from a source over a relay to the receiver, without queues.
    pub rtt: Span,
    /// A control interval, in RTTs.
    pub interval: u64,
    /// Payload of a full packet.
    pub packet: Bytes,
    /// Receive buffers in packets: the bound of the data in flight on a hop.
    pub window: u64,
    /// The queue of the link of a relay, in packets.
    pub queue: u64,
    /// Nothing more is written to a hop with this much unsent, in packets.
    pub ahead: u64,
}

impl OverlaySetting {
    /// The paper's: packets of 500 B, control intervals of 10 round trips of 40 ms if no demand
    /// is above 1.2 Mbit/s and of 20 ms otherwise, AIAD from max-min rates with ε 0.01 and δ
    /// 0.03 with the allowance of a packet, 1,000 intervals of which the last 500 count, within 5
    /// %. The rest is as in [`RateStudy`]; windows and queues are the defaults of ns-2.
    ///
    /// # Panics
    ///
    /// If `demands` is an empty choice.
    #[must_use]
    pub fn new(demands: Demands) -> OverlaySetting {
        let most = match &demands {
            Demands::Equal(rate) => *rate,
            Demands::OneOf(rates) => *rates.iter().max().expect("a demand to choose"),
        };
        let rtt = Span::from_millis(if most <= Rate::kbit(1_200) { 40 } else { 20 });
        let (interval, packet) = (10, Bytes(500));
        let detect = Detect::Packets { delta: 0.03, allowance: packet / (rtt * interval) };
        let control = Config { detect, ..Config::aiad(0.01) };
        let study = RateStudy {
            demands,
            control,
            intervals: 1_000,
            settled: 500,
            band: 0.05,
            ..RateStudy::default()
        };
        OverlaySetting { study, rtt, interval, packet, window: 20, queue: 50, ahead: 2 }
    }

    /// A control interval.
    #[must_use]
    pub fn period(&self) -> Span {
        self.rtt * self.interval
    }

    /// The bound of the payload of a path that a relay has read and not sent.
    #[must_use]
    pub fn bound(&self) -> Bytes {
        Bytes(self.packet.0 * (self.ahead + self.window))
    }

    /// The rate of a link that carries this rate of payload: packets have headers.
    #[must_use]
    pub fn wire(&self, payload: Rate) -> Rate {
        line::wire(self.packet, payload)
    }

    /// The configuration of the endpoints.
    #[must_use]
    pub fn tcp(&self) -> Tcp {
        line::tcp(self.packet, self.window)
    }

    /// The end of an interval, counted from 1.
    fn end(&self, interval: u64) -> Time {
        Time::ZERO + self.period() * interval
    }
}
