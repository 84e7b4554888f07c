//! A packet over each path in turn, whatever their round-trip times.

use anabranch::policy::sched::packet::{Backlog, PacketScheduler, SubflowView};
use anabranch::units::Time;

#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// The path after the last one.
    next: usize,
}

impl PacketScheduler for Turns {
    fn name(&self) -> &'static str {
        "turns"
    }

    fn pick(&mut self, _: Time, paths: &[SubflowView], _: &Backlog) -> Option<usize> {
        let turns = (self.next..self.next + paths.len()).map(|turn| turn % paths.len());
        let path = turns.into_iter().find(|path| paths[*path].has_room)?;
        self.next = path + 1;
        Some(path)
    }

    fn boxed_clone(&self) -> Box<dyn PacketScheduler> {
        Box::new(self.clone())
    }
}
