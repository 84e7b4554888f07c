//! Which of the paths may carry data.

use units::{Span, Time};

use super::{Paths, id};
use crate::admission::{Admitted, Known};

impl Paths {
    /// The paths that may carry data; the first one that there is if none may.
    pub(super) fn usable(&self) -> impl Iterator<Item = usize> + '_ {
        let mask = self.usable_mask();
        (0..self.states.len()).filter(move |path| mask & (1 << path) != 0)
    }

    /// The same, a bit for each. It is asked for several times a packet.
    fn usable_mask(&self) -> u8 {
        let count = self.states.len();
        let present = (0..count)
            .filter(|path| self.is_present(*path))
            .fold(0, |mask: u8, path| mask | 1 << path);
        if present.is_power_of_two() {
            // What is alone carries what there is.
            return present;
        }
        let admitted = self.admitted();
        let may = |path: &usize| {
            present & (1 << path) != 0
                && !self.control.is_choked(id(*path))
                && self.is_admitted_by(*path, admitted)
        };
        match (0..count).filter(may).fold(0, |mask: u8, path| mask | 1 << path) {
            // Without any, the first number.
            0 => 1 << (present.trailing_zeros() % u8::BITS),
            mask => mask,
        }
    }

    /// Whether the round-trip time of a path is one with which it carries data.
    pub(super) fn is_admitted(&self, path: usize) -> bool {
        self.is_admitted_by(path, self.admitted())
    }

    fn is_admitted_by(&self, path: usize, admitted: Option<Admitted>) -> bool {
        let Some(admitted) = admitted else { return true };
        let state = &self.states[path];
        self.is_tried(path) || admitted.has(state.rtt.min(), self.mss, state.capacity)
    }

    /// Whether nobody knows what a path carries.
    fn is_tried(&self, path: usize) -> bool {
        let is_measured = self.states[path].rtt.min() > Span::ZERO;
        !is_measured || self.control.is_in_slow_start(id(path))
    }

    /// The round-trip times that admit a path; `None`: all, because nothing is known or wanted.
    fn admitted(&self) -> Option<Admitted> {
        let factor = self.admission?;
        if !self.control.options().slow_start {
            // Windows that were never full tell nothing: the paper's measure, the direct path.
            let direct = self.states.first()?.rtt.min();
            return (direct > Span::ZERO).then(|| Admitted::by_direct(direct, factor));
        }
        let known = (0..self.states.len()).filter_map(|path| {
            let rtt = self.states[path].rtt.min().as_secs_f64();
            let is_open = self.is_present(path) && !self.control.is_choked(id(path));
            (is_open && rtt > 0.0).then(|| Known { rtt, rate: self.control.window(id(path)) / rtt })
        });
        Admitted::beside(known, factor)
    }

    /// Tells the controller which paths carry nothing, before it decreases anything.
    pub(super) fn tell_left_out(&mut self) {
        if self.admission.is_some() {
            let admitted = self.admitted();
            for path in 0..self.states.len() {
                let is_left_out = !self.is_admitted_by(path, admitted);
                self.control.set_left_out(id(path), is_left_out);
            }
        }
    }

    /// Tries paths that have carried nothing for a while: their lines may be free by now.
    pub(crate) fn try_others(&mut self, now: Time) {
        if !self.control.options().slow_start {
            return;
        }
        let admitted = self.admitted();
        for path in 0..self.states.len() {
            if !self.is_present(path) || self.control.is_choked(id(path)) {
                continue;
            }
            let (is_admitted, is_tried) =
                (self.is_admitted_by(path, admitted), self.is_tried(path));
            let trials = &mut self.states[path].trials;
            if is_tried {
                trials.handle_trial();
            } else if is_admitted {
                trials.handle_admitted();
            } else if trials.poll_trial(now) {
                self.control.begin_anew(id(path));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::super::Credit;
    use super::*;
    use crate::Config;

    const RTT: Span = Span::from_millis(50);
    const LEN: u64 = 1_000;

    /// Two paths after their slow starts: the second one's window is so many packets, and its round
    /// trip is four times the first one's.
    fn short_and_long(packets: u64) -> Paths {
        let now = Time::ZERO;
        let mut paths = Paths::new(now, &Config::modern(2));
        paths.set_mss(Bytes(LEN));
        for (path, rtt, packets) in [(0, RTT, 40), (1, RTT * 4, packets)] {
            paths.handle_rtt(path, rtt);
            let latest = paths.depart(now, path, LEN * packets);
            let mut credits = [None; 2];
            credits[path] = Some(Credit { bytes: LEN * (packets - 1), latest });
            paths.arrive(now + rtt, &credits);
            paths.handle_queue(now + rtt, path);
        }
        paths
    }

    #[test]
    fn a_long_path_is_left_out_if_it_carries_little_and_tried_again() {
        let admitted = |paths: &Paths| [0, 1].map(|path| paths.is_admitted(path));
        // Half of what the first one carries, at four times its round trip.
        assert_eq!(admitted(&short_and_long(80)), [true, true]);
        let mut paths = short_and_long(79);
        assert_eq!(admitted(&paths), [true, false]);
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        for second in 1..=30 {
            paths.try_others(at(second));
            assert_eq!(admitted(&paths), [true, false]);
        }
        paths.try_others(at(31));
        assert_eq!(admitted(&paths), [true, true], "nobody knows what it carries by now");
        paths.handle_queue(at(32), 1);
        assert_eq!(admitted(&paths), [true, false]);
    }

    /// The window of a path that is left out is no part of what a loss halves. With it the first
    /// path, of 40 packets beside 79, would be at its floor, and choked.
    #[test]
    fn a_path_that_is_left_out_takes_nothing_from_the_others() {
        let mut paths = short_and_long(79);
        paths.handle_missing(Time::ZERO + Span::from_secs(10), 0);
        let first = paths.views().next().expect("there is one");
        assert_eq!((first.window, first.is_choked), (Bytes(20 * LEN), false));
        assert!(paths.is_admitted(1), "half of what the first one carries now");
    }

    /// Without slow start, as in the paper: by the direct path, whatever the windows are.
    #[test]
    fn the_paper_measures_by_the_direct_path() {
        let config = Config { admission: Some(1.5), ..Config::paper(3) };
        let mut paths = Paths::new(Time::ZERO, &config);
        paths.set_mss(Bytes(LEN));
        for (path, millis) in [(0, 40), (1, 60), (2, 61)] {
            paths.handle_rtt(path, Span::from_millis(millis));
        }
        paths.try_others(Time::ZERO + Span::from_secs(100));
        assert_eq!([0, 1, 2].map(|path| paths.is_admitted(path)), [true, true, false]);
        let mut paths = Paths::new(Time::ZERO, &config);
        paths.handle_rtt(0, Span::from_millis(400));
        paths.handle_rtt(1, Span::from_millis(1));
        assert!(paths.is_admitted(0) && paths.is_admitted(1));
    }
}
