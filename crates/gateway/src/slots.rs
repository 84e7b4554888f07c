//! Which path of a connection has which number of the state machine: a core.

use stripe::RawPath;
use units::{Span, SubflowId, Time};
use wire::harp::MOST_PATHS;

/// A further path whose room is smaller than that of the others is used once its room has been the
/// same for so long: the room of a new path grows while sizes are tried, and hosts keep the segment
/// size of their first packets.
const SETTLED: Span = Span::from_secs(1);

/// The paths of a connection in their places.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    used: [Option<RawPath>; MOST_PATHS],
    /// Paths that have no place yet, and since when their room is the same.
    waiting: Vec<(RawPath, Time)>,
}

impl Slots {
    /// These are the paths now. A path keeps its place.
    pub(crate) fn handle_paths(&mut self, now: Time, paths: &[RawPath]) {
        let now_of = |known: &RawPath| paths.iter().find(|path| path.path == known.path).copied();
        for slot in &mut self.used {
            *slot = slot.as_ref().and_then(now_of);
        }
        let before = std::mem::take(&mut self.waiting);
        for path in paths {
            if self.used.iter().flatten().any(|used| used.path == path.path) {
                continue;
            }
            let since = before.iter().find(|(known, _)| known == path).map_or(now, |(_, at)| *at);
            self.waiting.push((*path, since));
        }
        self.settle(now);
    }

    /// Gives places to paths that have waited long enough. Whether there were any.
    pub(crate) fn settle(&mut self, now: Time) -> bool {
        let before = self.mask();
        for (path, since) in std::mem::take(&mut self.waiting) {
            let is_ready = self.room().is_none_or(|room| path.room >= room);
            let free = self.used.iter_mut().find(|slot| slot.is_none());
            match free.filter(|_| is_ready || since + SETTLED <= now) {
                Some(slot) => *slot = Some(path),
                None => self.waiting.push((path, since)),
            }
        }
        self.mask() != before
    }

    /// When to call [`Slots::settle`].
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let has_place = self.used.iter().any(Option::is_none);
        let due = self.waiting.iter().map(|(_, since)| *since + SETTLED).min();
        due.filter(|_| has_place)
    }

    /// A bit for each place that has a path.
    pub(crate) fn mask(&self) -> u8 {
        let used = (0..).zip(&self.used).filter(|(_, path)| path.is_some());
        used.fold(0, |mask, (place, _)| mask | 1 << place)
    }

    /// The room that all of them have; `None` without a path.
    pub(crate) fn room(&self) -> Option<usize> {
        self.used.iter().flatten().map(|path| path.room).min()
    }

    /// The path at a place, or another one if it has none, or carries less than `length` octets at
    /// once: its room was larger when hosts were told how long packets may be.
    pub(crate) fn carrying(&self, place: u8, length: usize) -> Option<RawPath> {
        let own = self.used.get(usize::from(place)).copied().flatten();
        own.into_iter().chain(self.used.iter().flatten().copied()).find(|path| length <= path.room)
    }

    /// The place of a path.
    pub(crate) fn place_of(&self, path: SubflowId) -> Option<u8> {
        let is_it = |(_, used): &(u8, &Option<RawPath>)| used.is_some_and(|used| used.path == path);
        (0..).zip(&self.used).find(is_it).map(|(place, _)| place)
    }

    /// The number of the path at a place.
    pub(crate) fn number(&self, place: usize) -> Option<u16> {
        self.used.get(place).copied().flatten().map(|path| path.path.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: u16, room: usize) -> RawPath {
        RawPath { path: SubflowId(number), room }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn paths_keep_their_places() {
        let mut slots = Slots::default();
        slots.handle_paths(at(0), &[path(0, 1_400), path(3, 1_400)]);
        assert_eq!((slots.mask(), slots.number(1)), (0b11, Some(3)));
        slots.handle_paths(at(1), &[path(3, 1_400)]);
        assert_eq!((slots.mask(), slots.number(1)), (0b10, Some(3)));
        assert_eq!([3, 0].map(|path| slots.place_of(SubflowId(path))), [Some(1), None]);
        let carrying = |length| slots.carrying(0, length);
        assert_eq!(carrying(1_400), Some(path(3, 1_400)), "what has no place takes another");
        assert_eq!(carrying(1_401), None);
        slots.handle_paths(at(2), &[path(4, 1_400), path(3, 1_400)]);
        assert_eq!((slots.number(0), slots.number(1)), (Some(4), Some(3)));
        slots.handle_paths(at(3), &[]);
        assert_eq!((slots.mask(), slots.carrying(0, 1), slots.room()), (0, None, None));
        slots.handle_paths(at(4), &[path(5, 1_300), path(6, 1_400)]);
        assert_eq!(slots.carrying(0, 1_301), Some(path(6, 1_400)), "what has no room, too");
        assert_eq!(slots.carrying(0, 1_300), Some(path(5, 1_300)));
    }

    #[test]
    fn the_room_of_a_new_path_may_grow_first() {
        let mut slots = Slots::default();
        slots.handle_paths(at(0), &[path(0, 1_200)]);
        assert_eq!(slots.room(), Some(1_200), "the first one is used at once");
        slots.handle_paths(at(500), &[path(0, 1_400), path(1, 1_200)]);
        assert_eq!((slots.room(), slots.poll_deadline()), (Some(1_400), Some(at(1_500))));
        // It has grown: that counts anew, until it is as large as the others.
        slots.handle_paths(at(900), &[path(0, 1_400), path(1, 1_300)]);
        assert_eq!(slots.poll_deadline(), Some(at(1_900)));
        assert!(!slots.settle(at(1_500)));
        slots.handle_paths(at(1_600), &[path(0, 1_400), path(1, 1_400)]);
        assert_eq!((slots.mask(), slots.poll_deadline()), (0b11, None));
        // One that stays small is used all the same.
        slots.handle_paths(at(2_000), &[path(0, 1_400), path(1, 1_400), path(2, 1_250)]);
        assert!(slots.settle(at(3_000)) && slots.room() == Some(1_250));
    }

    #[test]
    fn there_are_as_many_places_as_numbers() {
        let mut slots = Slots::default();
        let many: Vec<RawPath> = (0..12).map(|number| path(number, 1_400)).collect();
        slots.handle_paths(at(0), &many);
        assert_eq!((slots.mask(), slots.poll_deadline()), (0xff, None));
        slots.handle_paths(at(1), &many[1..]);
        assert_eq!((slots.mask(), slots.number(0)), (0xff, Some(8)));
    }
}
