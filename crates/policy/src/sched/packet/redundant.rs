//! The redundant scheduler: all data over every path.

use alloc::boxed::Box;

use units::Time;

use super::{Backlog, PacketScheduler, SubflowView, fastest};

/// Each path carries the whole stream, and the receiver takes each byte from the path that delivers
/// it first. The connection makes the copies if [`PacketScheduler::is_redundant`] is set; this
/// chooses the path of the next packet: the fastest with room.
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
