//! Everything over every path.

use alloc::boxed::Box;

use units::Time;

use super::{Backlog, PacketScheduler, SubflowView, fastest};

/// Each path carries the whole stream, so that the receiver has each byte from the path that was
/// first. The connection sees to it, told by [`PacketScheduler::is_redundant`]; this says which
/// path goes next: the fastest with room.
#[derive(Clone, Copy, Debug, Default)]
pub struct Redundant;

impl PacketScheduler for Redundant {
    fn name(&self) -> &'static str {
        "redundant"
    }

    fn pick(&mut self, _now: Time, paths: &[SubflowView], _backlog: &Backlog) -> Option<usize> {
        fastest(paths, |path| path.has_room)
    }

    fn is_redundant(&self) -> bool {
        true
    }

    fn boxed_clone(&self) -> Box<dyn PacketScheduler> {
        Box::new(*self)
    }
}
