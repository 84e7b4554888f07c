//! Turns in proportion to weights.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use units::{SubflowId, Time};

use super::{Backlog, PacketScheduler, SubflowView};

/// How finely a turn is divided among weights.
const SCALE: u128 = 1 << 20;

/// Weighted round robin in bytes, as start-time fair queueing does it: each path has a virtual
/// clock that a packet advances by its size over the path's weight, and the path with room whose
/// clock is behind goes next.
///
/// It never waits, hence weights decide only among paths that have room. A path that had none does
/// not catch up afterwards: its clock is set to the others'.
#[derive(Clone, Debug, Default)]
pub struct Weighted {
    weights: Vec<u32>,
    clock: u128,
    paths: BTreeMap<SubflowId, u128>,
}

impl Weighted {
    /// The weights of the subflows 0, 1, 2 …; those beyond have weight 1, and so has one with
    /// weight 0.
    #[must_use]
    pub fn new(weights: Vec<u32>) -> Weighted {
        Weighted { weights, clock: 0, paths: BTreeMap::new() }
    }

    fn weight(&self, id: SubflowId) -> u32 {
        let at = usize::try_from(id.0).unwrap_or(usize::MAX);
        self.weights.get(at).copied().unwrap_or(1).max(1)
    }

    /// When the path's turn is, by its virtual clock.
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
