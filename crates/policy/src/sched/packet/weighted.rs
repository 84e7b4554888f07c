//! The weighted scheduler: turns in proportion to weights.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use units::{SubflowId, Time};

use super::{Backlog, PacketScheduler, SubflowView};

/// The resolution of the virtual clocks.
const SCALE: u128 = 1 << 20;

/// Weighted round robin in bytes by start-time fair queueing: each packet advances its path's
/// virtual clock by its size over the path's weight, and the path with room and the earliest clock
/// goes next.
///
/// It never waits, so weights decide only among paths with room. A path that had none does not
/// catch up afterwards: its clock is set to that of the others.
#[derive(Clone, Debug, Default)]
pub struct Weighted {
    weights: Vec<u32>,
    clock: u128,
    paths: BTreeMap<SubflowId, u128>,
}

impl Weighted {
    /// A scheduler with the weights of the subflows 0, 1, 2 …; further subflows have weight 1. A
    /// weight of 0 counts as 1.
    #[must_use]
    pub fn new(weights: Vec<u32>) -> Weighted {
        Weighted { weights, clock: 0, paths: BTreeMap::new() }
    }

    fn weight(&self, id: SubflowId) -> u32 {
        let at = usize::from(id.0);
        self.weights.get(at).copied().unwrap_or(1).max(1)
    }

    /// The virtual time of the path's turn.
    fn turn(&self, path: &SubflowView) -> u128 {
        self.paths.get(&path.id).copied().unwrap_or_default().max(self.clock)
    }
}

impl PacketScheduler for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }

    fn pick(&mut self, _now: Time, paths: &[SubflowView], _backlog: &Backlog) -> Option<usize> {
        let with_room = paths.iter().enumerate().filter(|(_, path)| path.has_room);
        let (at, turn) =
            with_room.map(|(at, path)| (at, self.turn(path))).min_by_key(|(_, turn)| *turn)?;
        let path = &paths[at];
        let cost = u128::from(path.mss.0.max(1)) * SCALE / u128::from(self.weight(path.id));
        self.clock = turn;
        self.paths.insert(path.id, turn.saturating_add(cost));
        Some(at)
    }

    fn boxed_clone(&self) -> Box<dyn PacketScheduler> {
        Box::new(self.clone())
    }
}
