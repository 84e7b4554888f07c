//! The coupled dual queue with PI2 (RFC 9332, appendix A).
//!
//! Packets of scalable congestion controls (ECT(1) or CE, RFC 9331) have a queue of their own, with
//! marks by a ramp of a millisecond. A proportional integral controller holds the delay of the
//! other, classic one. Its square is the probability of classic drops or marks, and `k` times it
//! the least probability of marks in the first queue, so that flows in either have about the same
//! rate.
//!
//! Drops and marks come at even distances, as by `recur` of the appendix, and nothing is random.
//! The queues are served by weight (section 4.2.2): the classic one has a sixteenth while both
//! have packets.

use units::{Bytes, Span, Time};

use super::Verdict;
use crate::aqm::Fifo;
use crate::counters::Tally;
use crate::ledger::Ledger;
use crate::offer::Waiting;

/// Parameters of the dual queue, with those of RFC 9332, appendix A.1, as defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DualPi2 {
    /// The delay of the classic queue to be kept: `target`.
    pub target: Span,
    /// The longest usual round-trip time, from which the weights of the controller follow:
    /// `RTT_max`.
    pub longest_rtt: Span,
    /// How many times the base probability is that of marks in the other queue: `k`.
    pub coupling: f64,
    /// Packets of the other queue that waited for longer are marked with a probability that reaches
    /// 1 at [`DualPi2::ramp_to`]: `minTh`.
    pub ramp_from: Span,
    /// The end of the ramp: `maxTh`.
    pub ramp_to: Span,
}

impl Default for DualPi2 {
    /// 15 ms, 100 ms, 2, and a ramp from 0.8 to 1.2 ms.
    fn default() -> DualPi2 {
        DualPi2 {
            target: Span::from_millis(15),
            longest_rtt: Span::from_millis(100),
            coupling: 2.0,
            ramp_from: Span::from_micros(800),
            ramp_to: Span::from_micros(1_200),
        }
    }
}

impl DualPi2 {
    /// The time from one update to the next: `Tupdate`.
    fn interval(&self) -> Span {
        self.target.min(Span::from_nanos(self.longest_rtt.as_nanos() / 3)).max(Span::from_nanos(1))
    }

    /// The weights of the deviation from the target and of its growth, in hertz.
    fn weights(&self) -> (f64, f64) {
        let longest = self.longest_rtt.as_secs_f64();
        (0.1 * self.interval().as_secs_f64() / (longest * longest), 0.3 / longest)
    }
}

/// The classic queue has one part in so many of the bytes, while both have packets.
const SHARES: i64 = 16;

/// The two queues.
#[derive(Clone, Debug)]
pub(crate) struct DualQueue<P> {
    config: DualPi2,
    low: Fifo<P>,
    classic: Fifo<P>,
    /// The base probability: `p'`.
    base: f64,
    /// The delay at the last update, in seconds: `prevq`.
    delay: f64,
    /// The next update.
    due: Time,
    /// What has come together of probabilities since the last mark or drop in each queue.
    low_count: f64,
    classic_count: f64,
    /// What the classic queue lacks of its share, in bytes over [`SHARES`].
    credit: i64,
}

/// Adds a probability; whether a mark or a drop is due.
fn recur(count: &mut f64, probability: f64) -> bool {
    *count += probability;
    let is_due = *count > 1.0;
    if is_due {
        *count -= 1.0;
    }
    is_due
}

impl<P> DualQueue<P> {
    pub(crate) fn new(config: DualPi2) -> DualQueue<P> {
        DualQueue {
            due: Time::ZERO + config.interval(),
            config,
            low: Fifo::new(),
            classic: Fifo::new(),
            base: 0.0,
            delay: 0.0,
            low_count: 0.0,
            classic_count: 0.0,
            credit: 0,
        }
    }

    pub(super) fn push(&mut self, waiting: Waiting<P>) {
        self.update(waiting.since);
        let fifo = if waiting.is_scalable { &mut self.low } else { &mut self.classic };
        fifo.push(waiting);
    }

    /// The next packet that is not dropped.
    pub(super) fn pop(&mut self, now: Time, ledger: &mut Ledger<P>) -> Option<Waiting<P>> {
        self.update(now);
        loop {
            let is_low = self.is_low_next()?;
            let fifo = if is_low { &mut self.low } else { &mut self.classic };
            let mut waiting = fifo.pop()?;
            self.charge(is_low, waiting.bytes);
            match self.judge(now, is_low, &waiting) {
                Verdict::Take => return Some(waiting),
                Verdict::Mark => {
                    waiting.is_marked = true;
                    ledger.counters.marked += 1;
                    return Some(waiting);
                }
                Verdict::Drop => {
                    ledger.counters.dropped_aqm += 1;
                    ledger.note_dropped(now, waiting.packet);
                }
            }
        }
    }

    pub(super) fn tally(&self) -> Tally {
        let mut all = self.low.tally();
        all += self.classic.tally();
        all
    }

    /// Which queue is next; `None` if both are empty.
    fn is_low_next(&self) -> Option<bool> {
        match (self.low.tally().packets, self.classic.tally().packets) {
            (0, 0) => None,
            (0, _) => Some(false),
            (_, 0) => Some(true),
            _ => Some(self.credit <= 0),
        }
    }

    /// Counts a packet that leaves against the shares.
    fn charge(&mut self, is_low: bool, bytes: Bytes) {
        let other = if is_low { &self.classic } else { &self.low };
        if other.tally().packets == 0 {
            self.credit = 0;
            return;
        }
        let bytes = i64::try_from(bytes.0).unwrap_or(i64::MAX / SHARES);
        self.credit += if is_low { bytes } else { -bytes * (SHARES - 1) };
    }

    /// The updates up to `now`: nothing has changed in the queues since the last call.
    fn update(&mut self, now: Time) {
        let (alpha, beta) = self.config.weights();
        while self.due <= now {
            let at = self.due;
            let waited = |fifo: &Fifo<P>| fifo.since().map_or(Span::ZERO, |since| at.since(since));
            let delay = waited(&self.low).max(waited(&self.classic)).as_secs_f64();
            let target = self.config.target.as_secs_f64();
            self.base += alpha * (delay - target) + beta * (delay - self.delay);
            self.base = self.base.clamp(0.0, 1.0);
            self.delay = delay;
            self.due += self.config.interval();
            if self.base == 0.0 && self.tally().packets == 0 {
                // Nothing more changes while nothing waits.
                let interval = self.config.interval().as_nanos();
                let missed = now.since(self.due).as_nanos() / interval;
                self.due += Span::from_nanos(missed * interval);
            }
        }
    }

    fn judge(&mut self, now: Time, is_low: bool, waiting: &Waiting<P>) -> Verdict {
        let coupling = self.config.coupling;
        let (coupled, squared) = (coupling * self.base, self.base * self.base);
        if !is_low {
            if !recur(&mut self.classic_count, squared) {
                return Verdict::Take;
            }
            // An overload disables ECN.
            let is_marked = waiting.is_ecn_capable && squared < 1.0 / (coupling * coupling);
            return if is_marked { Verdict::Mark } else { Verdict::Drop };
        }
        if coupled >= 1.0 && recur(&mut self.low_count, squared) {
            return Verdict::Drop;
        }
        let native = self.native(now.since(waiting.since));
        if recur(&mut self.low_count, native.max(coupled).min(1.0)) {
            Verdict::Mark
        } else {
            Verdict::Take
        }
    }

    /// The probability of the ramp for a packet that has waited for so long. The last packet is not
    /// marked by it.
    fn native(&self, waited: Span) -> f64 {
        let DualPi2 { ramp_from, ramp_to, .. } = self.config;
        if self.low.tally().packets == 0 || waited <= ramp_from {
            0.0
        } else if waited >= ramp_to {
            1.0
        } else {
            (waited - ramp_from).as_secs_f64() / (ramp_to - ramp_from).as_secs_f64()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    fn packet(since: Time, is_scalable: bool, is_ecn_capable: bool) -> Waiting<()> {
        Waiting { is_ecn_capable, is_scalable, ..Waiting::new(since, Bytes(1_000), ()) }
    }

    /// A queue whose base probability stays.
    fn held(base: f64) -> DualQueue<()> {
        let due = Time::from_nanos(u64::MAX);
        DualQueue { base, due, ..DualQueue::new(DualPi2::default()) }
    }

    /// The parts of packets that are marked and dropped, one after the other.
    fn parts(base: f64, is_scalable: bool, is_ecn_capable: bool) -> (f64, f64) {
        let (mut queue, mut ledger, mut marked) = (held(base), Ledger::default(), 0_u32);
        for _ in 0..100_000 {
            queue.push(packet(at(0), is_scalable, is_ecn_capable));
            marked += queue.pop(at(0), &mut ledger).map_or(0, |one| u32::from(one.is_marked));
        }
        assert_eq!(ledger.counters.marked, u64::from(marked));
        let dropped = u32::try_from(ledger.counters.dropped_aqm).expect("few");
        (f64::from(marked) / 1e5, f64::from(dropped) / 1e5)
    }

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 2e-5, "{found}, not {wanted}");
    }

    /// Appendix A.1: alpha is 0.15 Hz and beta 3 Hz with an update each 15 ms.
    #[test]
    fn the_base_probability_follows_the_delay() {
        let config = DualPi2::default();
        assert_eq!(config.interval(), Span::from_millis(15));
        let (alpha, beta) = config.weights();
        assert!((alpha - 0.15).abs() < 1e-12 && (beta - 3.0).abs() < 1e-12);
        for is_scalable in [false, true] {
            let mut queue = DualQueue::new(config);
            queue.push(packet(at(0), is_scalable, true));
            let mut wanted = 0.0;
            for update in 1..=4_u32 {
                queue.update(at(u64::from(update) * 15_000));
                // It waits for 15 ms more each time, and at first for 15.
                wanted += 0.15 * 0.015 * f64::from(update - 1) + 3.0 * 0.015;
                assert!((queue.base - wanted).abs() < 1e-12, "{}, not {wanted}", queue.base);
            }
            // Updates that are late are the same.
            let mut late = DualQueue::new(config);
            late.push(packet(at(0), is_scalable, true));
            late.update(at(60_000));
            assert!((late.base - wanted).abs() < 1e-12);
        }
    }

    #[test]
    fn it_forgets_while_nothing_waits() {
        let mut queue: DualQueue<()> = DualQueue::new(DualPi2::default());
        queue.base = 0.01;
        queue.update(at(15_000));
        assert!((queue.base - (0.01 - 0.15 * 0.015)).abs() < 1e-12);
        queue.update(at(3_600_000_000));
        assert!(queue.base.abs() < 1e-12 && queue.due > at(3_600_000_000));
        assert!(queue.due <= at(3_600_015_000), "the updates keep their times");
    }

    /// Equation 1: the classic probability is the square of the other over `k`.
    #[test]
    fn probabilities_are_coupled() {
        for base in [0.01, 0.1, 0.3, 0.45] {
            let (marked, dropped) = parts(base, true, true);
            near(marked, 2.0 * base);
            near(dropped, 0.0);
            let (marked, dropped) = parts(base, false, false);
            near(dropped, base * base);
            near(marked, 0.0);
            let (marked, dropped) = parts(base, false, true);
            near(marked, base * base);
            near(dropped, 0.0);
        }
    }

    /// From a classic probability of 1/k² on, ECN is no excuse, and the other queue drops too.
    #[test]
    fn an_overload_drops() {
        let (marked, dropped) = parts(0.6, false, true);
        near(marked, 0.0);
        near(dropped, 0.36);
        let (marked, dropped) = parts(0.6, true, true);
        near(dropped, 0.36);
        near(marked, 0.64);
    }

    #[test]
    fn a_ramp_marks_what_waited() {
        let mark = |waited: u64, packets: usize| {
            let (mut queue, mut ledger) = (held(0.0), Ledger::default());
            let mut marked = 0;
            for _ in 0..1_000 {
                for _ in 0..packets {
                    queue.push(packet(at(0), true, true));
                }
                while let Some(one) = queue.pop(at(waited), &mut ledger) {
                    marked += u32::from(one.is_marked);
                }
            }
            marked
        };
        assert_eq!([800, 900, 1_000, 1_100].map(|waited| mark(waited, 2)), [0, 249, 499, 749]);
        assert_eq!(mark(1_200, 2), 999, "each but the last one of the queue");
        assert_eq!(mark(5_000, 1), 0, "one packet is no queue");
    }

    /// Of fifteen and one packets each is served, and alone each has all.
    #[test]
    fn the_classic_queue_has_a_sixteenth() {
        let (mut queue, mut ledger) = (held(0.0), Ledger::default());
        for number in 0..3_200 {
            queue.push(packet(at(0), number % 2 == 0, true));
        }
        let served: Vec<bool> = (0..1_600)
            .filter_map(|_| queue.pop(at(0), &mut ledger))
            .map(|one| one.is_scalable)
            .collect();
        assert_eq!(served.iter().filter(|is_low| !**is_low).count(), 100);
        assert!(served[0], "the other queue is first");
        let rest = core::iter::from_fn(|| queue.pop(at(0), &mut ledger)).count();
        assert_eq!(rest, 1_600);
        queue.push(packet(at(0), false, true));
        assert!(queue.pop(at(0), &mut ledger).is_some(), "alone it waits for nobody");
    }
}
