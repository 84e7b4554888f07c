//! The paths of a source, as each sees the others: which one sends next.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use peer::PathClass;

use super::backlog::WayId;

/// How a path stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) class: PathClass,
    /// To the collector and back, with what waits in between.
    pub(super) rtt: Duration,
    /// Whether it takes records now.
    pub(super) has_room: bool,
    /// Whether the collector answers over it.
    pub(super) is_alive: bool,
}

/// All paths that are open.
#[derive(Default)]
pub(super) struct Ways {
    last: AtomicU32,
    standing: Mutex<BTreeMap<WayId, Standing>>,
}

impl Ways {
    /// The number of a further connection.
    pub(super) fn next_id(&self) -> WayId {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of connections until now.
    pub(super) fn begun(&self) -> u32 {
        self.last.load(Ordering::Relaxed)
    }

    /// Notes how a path stands. Whether others may have to send in its place, or one fewer does.
    pub(super) fn set(&self, way: WayId, standing: Standing) -> bool {
        let before = self.standing().insert(way, standing);
        before.is_some_and(|before| {
            (before.has_room && !standing.has_room) || (before.is_alive && !standing.is_alive)
        })
    }

    pub(super) fn remove(&self, way: WayId) {
        self.standing().remove(&way);
    }

    /// The number of paths over which the collector answers.
    pub(super) fn alive(&self) -> usize {
        self.standing().values().filter(|standing| standing.is_alive).count()
    }

    /// The longest round trip of those over which the collector answers.
    pub(super) fn slowest(&self) -> Duration {
        let standing = self.standing();
        let alive = standing.values().filter(|standing| standing.is_alive);
        alive.map(|standing| standing.rtt).max().unwrap_or_default()
    }

    /// Whether a path that stands so is to send what is next: no path of a better class, or of the
    /// same with a lower round trip, has room. A backup is to send only if no other path is alive.
    pub(super) fn is_first(&self, way: WayId, standing: Standing) -> bool {
        let rank = |class: PathClass| match class {
            PathClass::Primary => 0,
            // It takes what the others do not.
            PathClass::Overflow | PathClass::Background => 1,
            PathClass::Backup => 2,
        };
        let own = (rank(standing.class), standing.rtt, way);
        !self.standing().iter().any(|(&other, of_other)| {
            let is_better = (rank(of_other.class), of_other.rtt, other) < own;
            let stands_back = standing.class == PathClass::Backup && rank(of_other.class) < own.0;
            other != way && is_better && (of_other.has_room || stands_back && of_other.is_alive)
        })
    }

    fn standing(&self) -> MutexGuard<'_, BTreeMap<WayId, Standing>> {
        self.standing.lock().expect("no panic while held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(class: PathClass, millis: u64, has_room: bool) -> Standing {
        Standing { class, rtt: Duration::from_millis(millis), has_room, is_alive: true }
    }

    #[test]
    fn the_path_with_the_lowest_round_trip_and_room_is_first() {
        let ways = Ways::default();
        let (fast, slow) = (of(PathClass::Primary, 20, true), of(PathClass::Primary, 300, true));
        assert!(!ways.set(1, slow) && !ways.set(2, fast));
        assert!(!ways.is_first(1, slow) && ways.is_first(2, fast));
        let full = of(PathClass::Primary, 20, false);
        assert!(ways.set(2, full), "others are to look");
        assert!(ways.is_first(1, slow));
        ways.remove(2);
        assert!(ways.is_first(1, slow) && ways.alive() == 1);
    }

    #[test]
    fn overflow_takes_what_primaries_have_no_room_for_and_backups_wait_for_their_death() {
        let ways = Ways::default();
        let full = of(PathClass::Primary, 300, false);
        let (overflow, backup) =
            (of(PathClass::Overflow, 20, true), of(PathClass::Backup, 10, true));
        ways.set(1, full);
        assert!(ways.is_first(2, overflow));
        assert!(!ways.is_first(3, backup));
        ways.set(1, of(PathClass::Primary, 300, true));
        assert!(!ways.is_first(2, overflow));
        assert!(ways.set(1, Standing { is_alive: false, ..full }));
        assert!(ways.is_first(3, backup));
    }
}
