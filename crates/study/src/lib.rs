//! Reproductions of papers and theories: expected and measured values of each figure, with
//! verdicts.
//!
//! A [`Study`] is a paper or a theory with its [`Figure`]s. A figure is a function from its files
//! under `papers/`, which are built in, and a [`Context`] to an [`Outcome`]: pictures, a
//! [`Verdict`](report::verdict::Verdict), notes and all data. [`STUDIES`] lists all studies; a new
//! paper is a module with a `STUDY` and a line in that list.
//!
//! ```
//! let figure = study::find("theory")?.figure("reno-loss")?;
//! assert_eq!(figure.files[0].name, "reno-loss.toml");
//! let error = study::find("theorie").unwrap_err().to_string();
//! assert!(error.contains("did you mean 'theory'?"), "{error}");
//! # Ok::<(), study::Unknown>(())
//! ```

mod cache;
mod error;
mod feed_trial;
mod figure;
pub mod fluid;
mod folder;
mod gateway_trial;
pub mod harp;
mod judgement;
pub mod mpfast;
mod outcome;
mod overview;
mod parallel;
pub mod ptcp;
mod registry;
pub mod sar;
mod sizes;
mod sweep;
mod testbed;
pub mod theory;
pub mod wang2007;

pub use cache::RunCache;
pub use error::{StudyError, Unknown};
pub use feed_trial::{
    FeedAction, FeedMeasured, FeedSample, FeedScript, FeedTrial, Happening, STEP, SourceSample,
};
pub use figure::{Context, Estimator, Figure, File, Lab, RealRuns, Study};
pub use folder::Folder;
pub use gateway_trial::{ExitWaits, FlowMeasured, GatewayMeasured, GatewayTrial, QueueMeasured};
pub use judgement::{FigureVerdict, JudgedFigure, Judgement, key};
pub use outcome::{Data, Outcome, Picture};
pub use overview::Overview;
pub use parallel::Progress;
pub use registry::{STUDIES, find};
pub use sweep::{MeasureKey, SweepResults};
pub use testbed::{Carrier, Estimate, Experiment, Measured, Sizes, Testbed, Trial};
