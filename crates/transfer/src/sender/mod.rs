//! The sending side: which bytes go by which path, and when.

mod types;

use alloc::boxed::Box;
use alloc::vec::Vec;

use policy::sched::BlockScheduler;
use units::{PathId, Time};

use crate::{Extent, ExtentSet, Layout, PeerError};
pub use types::{Class, PathReport, PathState, PathTraits, Sample, SenderConfig, SenderEvent, Totals, Transmit, Why};

/// The sending side of a transfer.
#[derive(Debug)]
pub struct Sender {
    layout: Layout,
    acked: ExtentSet,
    scheduler: Box<dyn BlockScheduler + Send>,
    config: SenderConfig,
}

impl Sender {
    /// A sender of everything in `layout` but what the receiver has.
    #[must_use]
    pub fn new(
        layout: &Layout,
        have: ExtentSet,
        scheduler: Box<dyn BlockScheduler + Send>,
        config: SenderConfig,
    ) -> Sender {
        Sender { layout: layout.clone(), acked: have, scheduler, config }
    }
    /// A path opened.
    pub fn handle_path_open(&mut self, now: Time, path: PathId, traits: PathTraits) {
        let _ = (now, path, traits);
    }
    /// A path's connection is gone.
    pub fn handle_path_lost(&mut self, now: Time, path: PathId) {
        let _ = (now, path);
    }
    /// An acknowledgement arrived by this path.
    ///
    /// # Errors
    /// If the extent is not in a file or was never sent.
    pub fn handle_acked(&mut self, now: Time, path: PathId, extent: Extent) -> Result<(), PeerError> {
        let _ = (now, path, extent);
        Ok(())
    }
    /// The kernel's view of a path, every 20 to 100 ms.
    pub fn handle_sample(&mut self, now: Time, path: PathId, sample: Sample) {
        let _ = (now, path, sample);
    }
    /// The receiver found a block's hash wrong.
    ///
    /// # Errors
    /// If the extent is not in a file or was never sent.
    pub fn handle_refused(&mut self, now: Time, extent: Extent) -> Result<(), PeerError> {
        let _ = (now, extent);
        Ok(())
    }
    /// What shall this path do? At most `max` bytes.
    pub fn poll_transmit(&mut self, now: Time, path: PathId, max: units::Bytes) -> Transmit {
        let _ = (now, path, max);
        Transmit::Wait { until: None }
    }
    /// A path that waits and should ask again.
    pub fn poll_wake(&mut self) -> Option<PathId> {
        None
    }
    /// The next event.
    pub fn poll_event(&mut self) -> Option<SenderEvent> {
        None
    }
    /// When [`Sender::handle_deadline`] is due.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        None
    }
    /// Time has come.
    pub fn handle_deadline(&mut self, now: Time) {
        let _ = now;
    }
    /// The paths as they stand.
    #[must_use]
    pub fn paths(&self, now: Time) -> Vec<PathReport> {
        let _ = now;
        Vec::new()
    }
    /// The transfer as it stands.
    #[must_use]
    pub fn totals(&self, now: Time) -> Totals {
        let _ = now;
        unreachable!()
    }
    /// Whether everything is acknowledged.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.acked.total() >= self.layout.total() && self.config.duplicate && self.scheduler.name().is_empty()
    }
}
