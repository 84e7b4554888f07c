//! The settings of a gateway.

use policy::cc::HarpOptions;
use units::Span;

/// Which connections share a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// None: each connection has its own, as in the paper.
    #[default]
    Connection,
    /// All between the two gateways have one for each path, and equal shares of what it allows.
    Site,
}

/// The settings of a [`Gateway`](crate::Gateway). Both ends have the same.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct Config {
    /// The number of paths, 1 to [`wire::harp::MOST_PATHS`]; the first is the direct one.
    pub paths: u8,
    /// The congestion controller, and its profile.
    pub controller: HarpOptions,
    /// Which connections share a controller.
    pub sharing: Sharing,
    /// ρ: how long a packet waits for those before it, in delays of the slowest path.
    pub reorder: f64,
    /// A path whose round-trip time is more than this many times the direct one's carries nothing;
    /// `None` admits every path. The paper has 1.5.
    pub admission: Option<f64>,
    /// Whether packets beyond the windows are held back, and paths are paced; the paper's gateway
    /// does neither. Windows below one packet need it.
    pub holds: bool,
    /// Whether one packet in sixteen leaves right behind the one before, so that the other gateway
    /// measures what the path carries whoever else uses it. Only where packets are held.
    pub pairs: bool,
    /// How far packets that follow each other may be ahead of the pace of their path: so much
    /// leaves at once. Zero paces each packet.
    pub burst: Span,
    /// Whether steps and drifts of the gateways' clocks are told from queues by the round-trip
    /// times.
    pub corrects_clocks: bool,
    /// The connections that a gateway knows at most; others take the route without gateways.
    pub most_connections: usize,
    /// Silence after which the other gateway counts as dead.
    pub dead_after: Span,
    /// Where round trips are short it is dead sooner: after this and four of them. Where they are
    /// long it has two of them and 100 ms at least. `None`: neither.
    pub dead_on_short: Option<Span>,
    /// Whether a probe of the other gateway counts as an answer. It comes unasked: over a line that
    /// carries one way alone a gateway hears probes for ever, and nothing of it arrives.
    pub probes_answer: bool,
    /// Silence after which the other gateway is asked, and the time from one question to the next.
    pub asks_after: Span,
}

impl Config {
    /// The paper's gateway, with this number of paths.
    #[must_use]
    pub fn paper(paths: u8) -> Config {
        Config {
            paths,
            controller: HarpOptions::paper(),
            sharing: Sharing::Connection,
            reorder: 1.5,
            admission: None,
            holds: false,
            pairs: false,
            burst: Span::ZERO,
            corrects_clocks: false,
            most_connections: 16_384,
            dead_after: Span::from_secs(3),
            dead_on_short: None,
            asks_after: Span::from_secs(1),
            probes_answer: true,
        }
    }

    /// The gateway that ships, with this number of paths.
    #[must_use]
    pub fn modern(paths: u8) -> Config {
        let mut controller = HarpOptions::modern();
        // A little longer than a striped connection's: with 25 ms a line that somebody else needs
        // was left to them less (decision 102).
        controller.lateness.filter = Some(Span::from_millis(30));
        Config {
            controller,
            admission: Some(1.5),
            holds: true,
            pairs: true,
            corrects_clocks: true,
            ..Config::paper(paths)
        }
    }
}
