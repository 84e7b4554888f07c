//! Shared bottlenecks, from synthetic delays: two paths with a packet every few milliseconds, and
//! queues that rise and fall.

use policy::bottleneck::Bottlenecks;
use units::{Span, SubflowId, Time};

const ONE: SubflowId = SubflowId(1);
const TWO: SubflowId = SubflowId(2);

/// A linear congruential generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A queue that fills for `period` and then falls to one half, in microseconds.
#[derive(Clone, Copy)]
struct Queue {
    period: u64,
    phase: u64,
}

impl Queue {
    fn delay(self, micros: u64) -> u64 {
        let most = 20_000;
        most / 2 + (micros + self.phase) % self.period * (most / 2) / self.period
    }
}

struct World {
    found: Bottlenecks,
    dice: Dice,
    micros: u64,
}

impl World {
    fn new(seed: u64) -> World {
        World { found: Bottlenecks::default(), dice: Dice(seed), micros: 0 }
    }

    /// Passes `seconds` with these queues, a random `noise` of each path, and a `lag` of the second
    /// path.
    fn pass(&mut self, seconds: u64, queues: [Queue; 2], noise: u64, lag: u64) {
        let end = self.micros + seconds * 1_000_000;
        while self.micros < end {
            for (id, queue, lag) in [(ONE, queues[0], 0), (TWO, queues[1], lag)] {
                let delay =
                    queue.delay(self.micros - lag.min(self.micros)) + self.dice.below(noise + 1);
                // The receiver's clock has an offset and will wrap.
                let stamp = u32::try_from(delay).expect("short").wrapping_sub(12_000);
                let now = Time::ZERO + Span::from_micros(self.micros);
                self.found.handle_delay(
                    now,
                    id,
                    stamp,
                    self.micros / 1_000,
                    self.micros / 1_000_000,
                );
            }
            self.micros += 3_000 + self.dice.below(2_000);
        }
    }

    fn are_together(&self) -> bool {
        let (one, two) = (self.found.bottleneck(ONE), self.found.bottleneck(TWO));
        assert!(one.is_some() && two.is_some(), "both are limited");
        one == two
    }
}

const SAW: Queue = Queue { period: 1_700_000, phase: 0 };
const OTHER: Queue = Queue { period: 1_300_000, phase: 400_000 };

#[test]
fn one_queue_for_both() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        world.pass(15, [SAW, SAW], 500, 0);
        assert!(world.are_together(), "seed {seed}");
        assert_eq!(world.found.bottleneck(TWO), Some(ONE), "the lowest number is the group's");
    }
}

#[test]
fn a_queue_for_each() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        world.pass(15, [SAW, OTHER], 500, 0);
        assert!(!world.are_together(), "seed {seed}");
        // Equal in all statistics of RFC 8382, but not the same queue.
        let mut world = World::new(seed);
        world.pass(15, [SAW, Queue { phase: 600_000, ..SAW }], 500, 0);
        let (one, two) = (world.found.summary(ONE).unwrap(), world.found.summary(TWO).unwrap());
        assert!(
            (one.skew - two.skew).abs() < 0.15
                && (one.variation - two.variation).abs() < 0.1 * one.variation
        );
        assert!((one.frequency - two.frequency).abs() < 0.1, "{one:?} {two:?}");
        assert!(!world.are_together(), "seed {seed}");
    }
}

#[test]
fn paths_may_differ_between_queue_and_receiver() {
    let mut world = World::new(1);
    world.pass(15, [SAW, SAW], 500, 90_000);
    assert!(world.are_together());
}

#[test]
fn a_change_is_followed() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        world.pass(15, [SAW, OTHER], 500, 0);
        assert!(!world.are_together());
        world.pass(10, [SAW, SAW], 500, 0);
        assert!(world.are_together(), "seed {seed}");
        world.pass(10, [SAW, OTHER], 500, 0);
        assert!(!world.are_together(), "seed {seed}");
    }
}

#[test]
fn no_queue_is_no_bottleneck() {
    let mut world = World::new(1);
    let empty = Queue { period: 1 << 60, phase: 0 };
    world.pass(15, [empty, empty], 50, 0);
    assert_eq!((world.found.bottleneck(ONE), world.found.bottleneck(TWO)), (None, None));
    // A queue that is nearly always empty is no bottleneck either: most delays lie below their
    // mean.
    let mut world = World::new(1);
    for round in 0..200 {
        let is_burst = round % 10 == 0;
        for n in 0..100_u64 {
            let delay = if is_burst { 8_000 } else { 100 };
            let now = Time::ZERO + Span::from_millis(round * 100 + n);
            world.found.handle_delay(now, ONE, delay, round * 100 + n, 0);
        }
    }
    assert_eq!(world.found.bottleneck(ONE), None);
    assert!(world.found.summary(ONE).unwrap().skew > 0.3);
}

#[test]
fn a_test_separates_two_queues_in_step() {
    let together = |is_shared: bool| {
        let mut world = World { found: Bottlenecks::with_tests(), ..World::new(3) };
        world.pass(5, [SAW, SAW], 500, 0);
        let mut queues = [SAW, SAW];
        let mut tests = Vec::new();
        for _ in 0..120 {
            world.pass(1, queues, 500, 0);
            if let Some(id) = world.found.poll_test() {
                tests.push(id);
                // The path's window is cut, which shifts the phase of its queue; a shared queue
                // shifts for both paths.
                for (number, queue) in queues.iter_mut().enumerate() {
                    if is_shared || number == usize::from(id == TWO) {
                        queue.phase += 700_000;
                    }
                }
            }
        }
        (world.are_together(), tests)
    };
    assert_eq!(together(true), (true, vec![TWO, ONE]));
    assert_eq!(together(false), (false, vec![TWO]));
}

#[test]
fn three_of_which_two_share() {
    let mut found = Bottlenecks::default();
    let mut dice = Dice(5);
    for n in 0..5_000_u64 {
        let now = Time::ZERO + Span::from_millis(3 * n);
        for (id, queue) in [(7, OTHER), (3, SAW), (9, OTHER)] {
            let delay = queue.delay(3_000 * n) + dice.below(300);
            found.handle_delay(now, SubflowId(id), u32::try_from(delay).unwrap(), n, 0);
        }
    }
    let groups = [3, 7, 9].map(|id| found.bottleneck(SubflowId(id)).map(|group| group.0));
    assert_eq!(groups, [Some(3), Some(7), Some(7)]);
    found.handle_remove(SubflowId(7));
    assert_eq!(found.bottleneck(SubflowId(9)), Some(SubflowId(9)));
    assert_eq!(found.bottleneck(SubflowId(7)), None);
}

#[test]
fn silence_and_many_paths() {
    let mut found = Bottlenecks::default();
    for second in 0..20 {
        for id in 0..100 {
            found.handle_delay(Time::ZERO + Span::from_secs(second), SubflowId(id), 5, 1, 0);
        }
    }
    assert!(
        found.summary(SubflowId(31)).is_some() && found.summary(SubflowId(32)).is_none(),
        "the number of paths is bounded"
    );
    // Measurements of a day ago are discarded.
    found.handle_delay(Time::ZERO + Span::from_secs(86_400), SubflowId(50), 5, 1, 0);
    assert!(found.summary(SubflowId(31)).is_none());
}
