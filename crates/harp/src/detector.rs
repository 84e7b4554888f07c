//! Delays of the paths, as the gateway sees them where packets leave, and what it reports of them.

use alloc::vec::Vec;

use policy::cc::{ClockWatch, Lateness, LatenessOptions};
use recovery::OneWayDelay;
use units::{Rate, Span, Time};
use wire::harp::{MOST_ENTRIES, PathReport, Report, Stamp};

use crate::Config;
use crate::pairs::Pairs;
use crate::paths::clock;

/// The parts of a packet's weight in a report.
const PARTS: f64 = 16.0;

/// The delays of all paths: of a connection, or of a site.
#[derive(Clone, Debug)]
pub(crate) struct Detector {
    paths: Vec<PathDelays>,
    options: LatenessOptions,
    mark: f64,
    corrects_clocks: bool,
    /// A bit for each path whose probe was in time.
    open: u8,
    /// A bit for each path with a packet that came through a queue.
    queued: u8,
    /// The path that a report begins with: all have their turn.
    turn: usize,
}

#[derive(Clone, Debug)]
struct PathDelays {
    delay: OneWayDelay,
    lateness: Lateness,
    clocks: ClockWatch,
    /// The weight of late packets that was not reported.
    weight: f64,
    /// The latest stamp, and when it came; `None` once it was echoed.
    latest: Option<(u32, Time)>,
    /// The delay of the latest packet with payload.
    delayed: Option<Span>,
    pairs: Pairs,
}

/// The queue that packets of a path come through: the time by which they are later than the
/// fastest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathQueue {
    /// That of the latest packet.
    pub latest: Span,
    /// The longest one that is remembered.
    pub longest: Span,
}

impl Detector {
    pub(crate) fn new(config: &Config) -> Detector {
        let options = config.controller.lateness;
        Detector {
            paths: (0..config.paths).map(|_| PathDelays::new(options)).collect(),
            options,
            mark: config.controller.mark,
            corrects_clocks: config.corrects_clocks,
            open: 0,
            queued: 0,
            turn: 0,
        }
    }

    /// A path with this number is another one from now on: its delays are not those of the one
    /// before.
    pub(crate) fn renew(&mut self, number: usize) {
        if let Some(path) = self.paths.get_mut(number) {
            *path = PathDelays::new(self.options);
        }
    }

    /// A packet with so many octets of payload has arrived. Whether it was late.
    pub(crate) fn handle_data(
        &mut self,
        now: Time,
        stamp: &Stamp,
        len: u16,
        is_marked: bool,
    ) -> bool {
        let mark = if is_marked { self.mark } else { 0.0 };
        let Some(path) = self.paths.get_mut(usize::from(stamp.path)) else { return false };
        let delay = path.handle_stamp(now, stamp, self.corrects_clocks);
        let waited = path.lateness.least().map_or(Span::ZERO, |least| delay - least);
        path.pairs.handle_packet(now, stamp, len, waited);
        // The second of a pair waits for the first one, which says nothing about the path.
        let late = if stamp.is_paired { 0.0 } else { path.lateness.handle_delay(now, delay) };
        let weight = late + mark;
        path.weight += weight;
        if stamp.is_paired {
            return weight > 0.0;
        }
        path.delayed = Some(delay);
        if path.lateness.shows_queue(delay) {
            self.queued |= 1 << (stamp.path & 7);
        }
        path.latest = Some((stamp.sent, now));
        weight > 0.0
    }

    /// The queue of each path.
    pub(crate) fn queues(&self) -> impl Iterator<Item = PathQueue> + '_ {
        self.paths.iter().map(|path| {
            let least = path.lateness.least().unwrap_or(Span::ZERO);
            let beyond = |delay: Option<Span>| delay.unwrap_or(least) - least;
            PathQueue { latest: beyond(path.delayed), longest: beyond(path.lateness.most()) }
        })
    }

    /// A probe has arrived. One in time opens its path.
    pub(crate) fn handle_probe(&mut self, now: Time, stamp: &Stamp) {
        let Some(path) = self.paths.get_mut(usize::from(stamp.path)) else { return };
        let delay = path.handle_stamp(now, stamp, self.corrects_clocks);
        path.latest = Some((stamp.sent, now));
        if path.lateness.is_in_time(delay) {
            self.open |= 1 << (stamp.path & 7);
        }
    }

    /// What is to be reported, at most [`MOST_ENTRIES`] paths of it.
    pub(crate) fn report(&mut self, now: Time) -> Report {
        let (open, queued) = (core::mem::take(&mut self.open), core::mem::take(&mut self.queued));
        let mut report = Report { open, queued, ..Report::default() };
        let count = self.paths.len();
        for step in 0..count {
            let number = (self.turn + step) % count;
            let path = &mut self.paths[number];
            if usize::from(report.count) == MOST_ENTRIES {
                self.turn = number;
                break;
            }
            let Some((sent, at)) = path.latest.take() else { continue };
            let held = u32::try_from(now.since(at).as_micros()).unwrap_or(u32::MAX);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is positive and bounded"
            )]
            let weight = (path.weight * PARTS).min(f64::from(u16::MAX)) as u16;
            path.weight = 0.0;
            report.entries[usize::from(report.count)] = PathReport {
                path: u8::try_from(number).unwrap_or(u8::MAX),
                weight,
                echo: sent.wrapping_add(held),
                capacity: path.pairs.capacity().map_or(0, magnitude),
            };
            report.count += 1;
        }
        report
    }
}

impl PathDelays {
    fn new(options: LatenessOptions) -> PathDelays {
        PathDelays {
            delay: OneWayDelay::default(),
            lateness: Lateness::new(options),
            clocks: ClockWatch::default(),
            weight: 0.0,
            latest: None,
            delayed: None,
            pairs: Pairs::default(),
        }
    }

    /// The delay of a packet with this stamp.
    fn handle_stamp(&mut self, now: Time, stamp: &Stamp, corrects_clocks: bool) -> Span {
        let delay = self.delay.handle_reading(clock(now).wrapping_sub(stamp.sent));
        if corrects_clocks {
            let srtt = Span::from_micros(u64::from(stamp.srtt));
            self.clocks.handle_delay(now, delay, srtt, &mut self.lateness);
        }
        delay
    }
}

/// Powers of two with exponents of so many eighths, times 1,024.
const EIGHTHS: [u64; 8] = [1_024, 1_117, 1_218, 1_328, 1_448, 1_579, 1_722, 1_878];

/// The rate of a capacity in a report.
fn rate(magnitude: u8) -> Rate {
    let eighth = EIGHTHS[usize::from(magnitude % 8)];
    Rate::from_bits((eighth << (magnitude / 8)) * 1_000 / 1_024)
}

/// A capacity in a report: the largest one that this rate has.
fn magnitude(capacity: Rate) -> u8 {
    (1..=u8::MAX).rev().find(|magnitude| rate(*magnitude) <= capacity).unwrap_or(1)
}

/// The capacity in a report, if it is known.
pub(crate) fn capacity(entry: PathReport) -> Option<Rate> {
    (entry.capacity > 0).then(|| rate(entry.capacity))
}

/// The weight in a report.
pub(crate) fn weight(entry: PathReport) -> f64 {
    f64::from(entry.weight) / PARTS
}

/// The round-trip time of an echo that arrives now; `None` if it is of no packet.
pub(crate) fn round_trip(now: Time, entry: PathReport) -> Option<Span> {
    let micros = clock(now).wrapping_sub(entry.echo);
    (micros < u32::MAX / 2).then(|| Span::from_micros(u64::from(micros)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports have rates to an eighth of a power of two, none above what was measured.
    #[test]
    fn the_capacity_in_a_report_is_the_measured_one() {
        for bits in [1_200_000, 9_400_000, 94_000_000, 990_000_000, 400_000_000_000] {
            let told = rate(magnitude(Rate::from_bits(bits))).as_f64();
            assert!((0.915..=1.0).contains(&(told / Rate::from_bits(bits).as_f64())), "{bits}");
        }
        assert_eq!(rate(8), Rate::kbit(2));
        let entry = |capacity| PathReport { capacity, ..PathReport::default() };
        assert_eq!(capacity(entry(0)), None, "it is not known");
        assert_eq!(capacity(entry(80)), Some(Rate::kbit(1_024)));
        assert!(capacity(entry(u8::MAX)).is_some_and(|rate| rate > Rate::mbit(3_000_000)));
    }
}
