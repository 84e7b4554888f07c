//! The settings of a source.

use core::num::NonZeroU32;

use units::{Bytes, Rate, Span};

use crate::choice::{Choice, Reselect};
use crate::controller::{Config, Detect};
use crate::start::Initial;

/// What a source has to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// Data at this rate, at any time: the paper's sources.
    Fixed(Rate),
    /// What [`Source::handle_produced`](super::Source::handle_produced) tells. The control works
    /// for `margin` times the highest rate of production in the last [`SourceConfig::memory`], plus
    /// a rate that clears the backlog in `clearance`: control ends an increment below the demand
    /// that it is given, and a source without the margin would fall behind for ever.
    Produced {
        /// The rate of production, until something is known of it.
        first: Rate,
        /// The factor, above 1.
        margin: f64,
        /// The time in which a backlog is to be cleared.
        clearance: Span,
        /// The most that is added for it, as a share of the production.
        clearing: f64,
        /// A satisfied source has no larger backlog than its production in this time, or one that
        /// shrinks.
        bound: Span,
    },
}

/// The settings of a source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceConfig {
    /// What it has to send.
    pub demand: Demand,
    /// The number of paths, k.
    pub paths: usize,
    /// The rate control.
    pub control: Config,
    /// The rates that each draw begins with.
    pub initial: Initial,
    /// The choice among the candidates.
    pub choice: Choice,
    /// The paths that are drawn anew while the source is not satisfied; `None` keeps the first ones
    /// for ever.
    pub reselect: Option<Reselect>,
    /// After so many draws in a row of which none satisfies the source, the best of them is taken
    /// back for as many judgements, and twice as many each time. `None` draws on, as the paper's
    /// search does.
    pub take_back: Option<NonZeroU32>,
    /// The shortest control interval.
    pub interval: Span,
    /// The least number of round trips of the longest path in a control interval. Where relays
    /// have more to carry than they can, their queues are part of each round trip.
    pub round_trips: u64,
    /// The number of intervals of the start of a draw. The rates received in the last of them are
    /// the first that control sets.
    pub start: u32,
    /// The number of intervals of a draw, after which the source is satisfied or draws anew.
    pub judged: u64,
    /// The number of last intervals of them that count.
    pub counted: u64,
    /// Whether a source that was satisfied with its draw is judged once more before it draws anew:
    /// others that draw push it aside for a while.
    pub grace: bool,
    /// A source is satisfied if no more than this share of what it was offered is missing.
    pub tolerance: f64,
    /// Payload of a packet.
    pub packet: Bytes,
    /// The number of packets that an interval may lack without a failure: they straddle its ends.
    pub slack: u64,
    /// The time at the path's rate that an interval may lack without a failure, if that is more:
    /// kernels send many packets at once.
    pub slack_time: Span,
    /// A path that delivers nothing for this number of intervals, though it should, is replaced.
    pub patience: u64,
    /// The age at which estimates are forgotten: capacities, failures, rates of production.
    pub memory: Span,
    /// The time without a report after which the source says so.
    pub silence: Span,
}

impl SourceConfig {
    /// A live source that produces about this rate: two paths, AIAD with ε 0.01 and δ 0.01 from
    /// max-min rates, intervals of four round trips and at least 200 ms, of which 60 are a draw and
    /// the last 30 count, within 3 %.
    ///
    /// With a δ of 0.03, as in the paper's simulations, a twentieth of the sources stays a percent
    /// below its demand.
    #[must_use]
    pub fn live(first: Rate) -> SourceConfig {
        let control = Config { detect: Detect::Throughput(0.01), ..Config::aiad(0.01) };
        SourceConfig {
            demand: Demand::Produced {
                first,
                margin: 1.03,
                clearance: Span::from_secs(30),
                clearing: 0.05,
                bound: Span::from_secs(5),
            },
            paths: 2,
            control,
            initial: Initial::MaxMin,
            choice: Choice::Uniform,
            reselect: Some(Reselect::Paths),
            take_back: NonZeroU32::new(8),
            interval: Span::from_millis(200),
            round_trips: 4,
            start: 2,
            judged: 60,
            counted: 30,
            grace: true,
            tolerance: 0.03,
            packet: Bytes(1_448),
            slack: 1,
            slack_time: Span::from_millis(1),
            patience: 20,
            memory: Span::from_secs(300),
            silence: Span::from_secs(10),
        }
    }

    /// A source of the paper: this demand at any time, over all of its candidates, without
    /// reselection; control and initial rates are the caller's, an interval as well.
    #[must_use]
    pub fn fixed(demand: Rate, paths: usize, control: Config, interval: Span) -> SourceConfig {
        SourceConfig {
            demand: Demand::Fixed(demand),
            paths,
            control,
            reselect: None,
            take_back: None,
            interval,
            round_trips: 0,
            slack: 0,
            slack_time: Span::ZERO,
            ..SourceConfig::live(demand)
        }
    }
}
