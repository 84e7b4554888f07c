//! Live sources: they produce data, choose among all relays, and reselect while relays fail and
//! change, sources come and leave, and reports are lost or late.

use overlay::SourceConfig;
use units::{Bytes, Rate, Span};

use super::line;

/// A network of live sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Feeds {
    /// The sources.
    pub sources: Vec<Feed>,
    /// The relays.
    pub relays: Vec<FeedRelay>,
    /// The candidates of each source, as the relays from the source on: mostly one, or two. The
    /// direct path of a [`Feed`] comes after them.
    pub candidates: Vec<Vec<usize>>,
    /// Whether the receiver tells the capacities that it has seen in the last five minutes.
    /// Otherwise sources know those of the beginning.
    pub learn: bool,
    /// The share of lost packets of reports. A report has a packet for each candidate in use.
    pub lost: f64,
    /// The longest time by which packets of reports are late.
    pub late: Span,
    /// The RTT from a source over a relay to the receiver, without queues.
    pub rtt: Span,
    /// Payload of a full packet.
    pub packet: Bytes,
    /// Receive buffers in packets: the bound of the data in flight on a hop.
    pub window: u64,
    /// The queue of the link of a relay, in packets.
    pub queue: u64,
    /// Nothing more is written to a hop with this much unsent, in packets.
    pub ahead: u64,
    /// The length of a run.
    pub duration: Span,
}

/// A live source.
#[derive(Clone, Debug, PartialEq)]
pub struct Feed {
    /// The configuration of its core. `interval` is that of its reports.
    pub core: SourceConfig,
    /// What it produces, from times after its arrival on, in order of time.
    pub production: Vec<(Span, Rate)>,
    /// When it comes.
    pub arrives: Span,
    /// When it leaves; `None` if it stays.
    pub leaves: Option<Span>,
    /// The capacity of its direct path to the receiver, if it has one.
    pub direct: Option<Rate>,
}

/// A relay.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedRelay {
    /// What it can deliver, in payload, at the beginning.
    pub capacity: Rate,
    /// Later capacities, in order of time. At zero it is dead: nothing comes through, and nobody is
    /// told.
    pub changes: Vec<(Span, Rate)>,
}

impl Feeds {
    /// Sources that each produce one of `rates` from the beginning on, over relays of these
    /// capacities: packets of 1448 B, round trips of 20 ms, and the configuration of
    /// [`SourceConfig::live`].
    #[must_use]
    pub fn new(rates: &[Rate], capacities: &[Rate], duration: Span) -> Feeds {
        let relay = |&capacity: &Rate| FeedRelay { capacity, changes: Vec::new() };
        Feeds {
            sources: rates.iter().map(|&rate| Feed::new(rate)).collect(),
            relays: capacities.iter().map(relay).collect(),
            candidates: (0..capacities.len()).map(|relay| vec![relay]).collect(),
            learn: false,
            lost: 0.0,
            late: Span::ZERO,
            rtt: Span::from_millis(20),
            packet: Bytes(1_448),
            window: 20,
            queue: 50,
            ahead: 2,
            duration,
        }
    }

    /// The rate of a link that carries this rate of payload.
    pub(super) fn wire(&self, payload: Rate) -> Rate {
        line::wire(self.packet, payload)
    }
}

impl Feed {
    /// A source that produces this rate from the beginning on.
    #[must_use]
    pub fn new(rate: Rate) -> Feed {
        Feed {
            core: SourceConfig::live(rate),
            production: vec![(Span::ZERO, rate)],
            arrives: Span::ZERO,
            leaves: None,
            direct: None,
        }
    }
}
