//! The lowest-RTT scheduler: the fastest path with room first.

use alloc::boxed::Box;

use units::Time;

use super::{Backlog, PacketScheduler, SubflowView, fastest};

/// Chooses the path with the smallest smoothed round-trip time among those with room; never waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct LowestRtt;

impl PacketScheduler for LowestRtt {
    fn name(&self) -> &'static str {
        "lowest-rtt"
    }

    fn pick(&mut self, _now: Time, paths: &[SubflowView], _backlog: &Backlog) -> Option<usize> {
        fastest(paths, |path| path.has_room)
    }

    fn boxed_clone(&self) -> Box<dyn PacketScheduler> {
        Box::new(*self)
    }
}
