//! Which path a packet takes, and when it may leave.

use units::{Span, Time};

use super::{Paths, count, id};

impl Paths {
    /// The path with the least in flight for its window (section III-B of the paper); of equal ones
    /// the one with the shortest round trip. Not one of `avoid`, a bit for each, if there are
    /// others.
    pub(crate) fn choose(&self, avoid: u8) -> usize {
        let is_avoided = |path: usize| avoid & (1 << path) != 0;
        self.usable()
            .min_by(|a, b| {
                let by_time = self.srtt(*a).cmp(&self.srtt(*b));
                let by_load = self.load(*a).total_cmp(&self.load(*b));
                is_avoided(*a).cmp(&is_avoided(*b)).then(by_load).then(by_time)
            })
            .unwrap_or(0)
    }

    /// The part of its window that a path has in flight.
    fn load(&self, path: usize) -> f64 {
        let window = self.control.window(id(path));
        if window > 0.0 { count(self.states[path].in_flight) / window } else { f64::INFINITY }
    }

    /// As [`Paths::choose`], of the paths over which a packet may leave first, and when it may;
    /// `None` if something must arrive before.
    pub(crate) fn choose_paced(&self, now: Time, bytes: u64, avoid: u8) -> Option<(usize, Time)> {
        let at = |path: usize| Some((path, self.may_leave(now, path, bytes)?));
        let pair = (0..self.states.len()).find(|path| self.states[*path].completes_pair(now));
        if let Some(path) = pair
            && avoid & (1 << path) == 0
            && self.may_leave(now, path, bytes).is_some_and(|at| at <= now)
        {
            return Some((path, now));
        }
        let best = self.choose(avoid);
        let is_avoided = |path: usize| avoid & (1 << path) != 0;
        let others =
            self.usable().filter(|path| *path != best && is_avoided(*path) == is_avoided(best));
        core::iter::once(best).chain(others).filter_map(at).min_by_key(|(_, at)| *at)
    }

    /// The path whose pace lets a packet leave first, whatever its window, and when it may; of
    /// equal ones that with the least load. One of `avoid`, a bit for each, counts as a round trip
    /// later.
    pub(crate) fn choose_urgent(&self, now: Time, avoid: u8) -> (usize, Time) {
        let at = |path: usize| self.states[path].pace.ready_at(now, self.burst);
        let counted = |path: usize| {
            let is_avoided = avoid & (1 << path) != 0;
            at(path) + if is_avoided { self.srtt(path) } else { Span::ZERO }
        };
        let path = self
            .usable()
            .min_by(|a, b| {
                let by_load = || self.load(*a).total_cmp(&self.load(*b));
                counted(*a).cmp(&counted(*b)).then_with(by_load)
            })
            .unwrap_or(0);
        (path, at(path))
    }

    /// When a packet may leave over a path without exceeding its window: by the pace, or `None` if
    /// something must arrive first. A window below one packet is a pace too.
    fn may_leave(&self, now: Time, path: usize, bytes: u64) -> Option<Time> {
        let (state, window) = (&self.states[path], self.control.window(id(path)));
        if count(state.in_flight + bytes) <= window {
            return Some(state.pace.ready_at(now, self.burst));
        }
        if state.in_flight > 0 || window <= 0.0 {
            return None;
        }
        let wait = self.srtt(path).as_secs_f64() * count(bytes) / window;
        state.sent_at.map_or(Some(now), |at| Some((at + Span::from_secs_f64(wait)).max(now)))
    }
}

#[cfg(test)]
mod tests {
    use units::TokenBucket;

    use super::super::tests::{LEN, departures};
    use super::*;
    use crate::Config;

    /// What a host sends again waits for its pace alone. Over a path with a small window, and
    /// packet after packet, that was longer than the host's timer.
    #[test]
    fn what_is_sent_again_takes_the_path_that_it_may_leave_over_first() {
        let (mut paths, now, _) = departures(&Config { pairs: false, ..Config::modern(2) });
        let late = |paths: &mut Paths, path: usize, millis: u64| {
            paths.states[path].pace = TokenBucket::owing_until(now + Span::from_millis(millis));
        };
        late(&mut paths, 0, 10);
        late(&mut paths, 1, 10);
        assert_eq!(paths.choose_urgent(now, 0b01), (1, now + Span::from_millis(10)));
        assert_eq!(paths.choose_urgent(now, 0b10), (0, now + Span::from_millis(10)));
        assert_eq!(paths.choose_urgent(now, 0b11).1, now + Span::from_millis(10));
        // Up to a round trip later it is not the path that lost it.
        late(&mut paths, 1, 59);
        assert_eq!(paths.choose_urgent(now, 0b01), (1, now + Span::from_millis(59)));
        late(&mut paths, 1, 61);
        assert_eq!(paths.choose_urgent(now, 0b01), (0, now + Span::from_millis(10)));
        assert_eq!(paths.choose_urgent(now, 0), (0, now + Span::from_millis(10)));
        // Of equal ones that with the least in flight for its window, whatever that is.
        late(&mut paths, 1, 10);
        for least in [0, 1] {
            let state = |paths: &mut Paths, path: usize, bytes: u64| {
                paths.states[path].in_flight = bytes;
            };
            state(&mut paths, least, 10 * LEN);
            state(&mut paths, 1 - least, 20_000 * LEN);
            assert_eq!(paths.choose_urgent(now, 0).0, least);
        }
        // However full the one is that is free first.
        late(&mut paths, 1, 11);
        assert_eq!(paths.choose_urgent(now, 0).0, 0);
    }
}
