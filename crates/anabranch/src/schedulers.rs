//! Schedulers and congestion controls by name, for the command line and the configuration file.

use clap::ValueEnum;
use net::CongestionControl;

/// The block schedulers, by the names that `policy` knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheduler {
    /// Tasks follow the measured rates all through the transfer
    #[default]
    SelfAdaptive,
    /// Equal blocks, one after the other, to whichever path is free
    AdjustableBlock,
    /// One share a path, fixed at the start
    Static,
}

impl Scheduler {
    /// As `policy::sched::by_name` has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scheduler::SelfAdaptive => "self-adaptive",
            Scheduler::AdjustableBlock => "adjustable-block",
            Scheduler::Static => "static",
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the shape that parsers have")]
pub(crate) fn congestion_control(text: &str) -> Result<CongestionControl, String> {
    Ok(match text {
        "auto" => CongestionControl::Auto,
        name => CongestionControl::Named(name.to_string()),
    })
}
