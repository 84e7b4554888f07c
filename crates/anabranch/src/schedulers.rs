//! Schedulers and congestion controls by name, for the command line and the configuration file.

use clap::ValueEnum;
use peer::CongestionControl;

/// The block schedulers of `policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheduler {
    /// Tasks follow the measured rates throughout the transfer; idle paths steal data of others and
    /// copy what would arrive late
    #[default]
    SelfAdaptive,
    /// The tasks of self-adaptive alone, as in the SAR-RMTP paper: no stealing, no copies
    Sar,
    /// As sar, until all paths would finish together: tasks stay from then on, as in the paper
    SarLatch,
    /// Equal blocks, each to the next free path
    AdjustableBlock,
    /// One share for each path, fixed at the start
    Static,
}

impl Scheduler {
    /// The name in `policy::sched::by_name`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scheduler::SelfAdaptive => "self-adaptive",
            Scheduler::Sar => "sar",
            Scheduler::SarLatch => "sar-latch",
            Scheduler::AdjustableBlock => "adjustable-block",
            Scheduler::Static => "static",
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of a value parser")]
pub(crate) fn congestion_control(text: &str) -> Result<CongestionControl, String> {
    Ok(match text {
        "auto" => CongestionControl::Auto,
        name => CongestionControl::Named(name.to_string()),
    })
}
