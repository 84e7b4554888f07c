//! MPFAST on one path: start, steps, losses and drains of its window.
//!
//! Times are in seconds, windows and backlogs in packets, rates in packets a second.

use units::{Bytes, Rate, Span, Time};

use super::super::drain_times;
use super::super::fast_path::{Average, Increment, Step, target};
use super::super::window::{Rounds, Window, seconds, whole};
use super::super::{Acked, Allowance, Congestion, Lost, MAX_WINDOW, Signal, Start};
use super::MpfastOptions;
use super::drain::{Base, Drain};
use super::loss::PathLosses;
use super::rival::{self, Rival};

/// The least window, packets.
const FLOOR: f64 = 2.0;
/// The least `α_r`, packets, so that an idle path can return.
const LEAST_BACKLOG: f64 = 1.0;
/// The start ends with this share of `α_r` in the queue.
const START_ENDS: f64 = 0.5;
/// With less than this share of `α_r` in the queue, now and on average, the path has none.
const NO_QUEUE: f64 = 0.25;
/// Steps double there up to this share of the window.
const LARGEST_STEP: f64 = 0.5;
/// The weight of a step's rate in θ; the paper's is ⅛.
const RATE_WEIGHT: f64 = 0.25;
/// The pacing rate in slow start, over the window a round trip. Later it is the window and what the
/// path may keep in the queue, so that a window that fills again does not fill a short buffer.
const START_PACING: f64 = 2.0;
/// A burst is what leaves in this time, two packets at least and so many bytes at most.
const BURST: Span = Span::from_millis(1);
const LARGEST_BURST: Bytes = Bytes(64 * 1024);
/// Senders round windows down to whole packets, half a packet in the mean: with an `α_r` of a few
/// packets that is much of it.
const ROUNDING: f64 = 0.5;
/// The latest round-trip times, of which the smallest shows the queue without bursts.
const LATEST: usize = 4;

/// One path.
#[derive(Clone, Debug)]
pub(super) struct MpfastPath {
    options: MpfastOptions,
    window: Window,
    base: Base,
    average: Average,
    increment: Increment,
    rounds: Rounds,
    /// Of the present round trip.
    round: Round,
    /// Of the last complete one.
    last: Round,
    /// The latest round-trip times, in a ring.
    latest: [f64; LATEST],
    at: usize,
    /// Steps in succession that met no queue.
    free_steps: u32,
    /// The moving average of the rate, for θ.
    rate: Option<f64>,
    fastest: Rate,
    /// `α_r` as far as losses allow it, packets.
    backlog: f64,
    losses: PathLosses,
    /// What losses had shown before the last.
    before: Option<PathLosses>,
    /// The last cut: another one soon after it, with many losses, halves the window.
    cut_at: Option<Time>,
    drain: Option<Drain>,
    rival: Rival,
    /// Packets sent before this saw a drain: their round-trip times are no averages.
    blind_until: Time,
}

/// What a round trip has shown so far.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// The largest round-trip time.
    rtt: f64,
    /// The highest delivery rate, if any is known.
    delivery_rate: Option<f64>,
}

impl MpfastPath {
    pub(super) fn new(now: Time, start: &Start, options: MpfastOptions) -> MpfastPath {
        MpfastPath {
            options,
            window: Window::new(start, FLOOR),
            base: Base::new(start.rtt.and_then(seconds)),
            average: Average::default(),
            increment: Increment::default(),
            rounds: Rounds::default(),
            round: Round::default(),
            last: Round::default(),
            latest: [f64::INFINITY; LATEST],
            at: 0,
            free_steps: 0,
            rate: None,
            fastest: Rate::ZERO,
            backlog: 1.0,
            losses: PathLosses::default(),
            before: None,
            cut_at: None,
            drain: None,
            rival: Rival::default(),
            blind_until: now,
        }
    }

    /// The rate that counts in θ; `None` before the first complete round trip.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// The highest rate of a round trip.
    pub(super) fn fastest(&self) -> Rate {
        self.fastest
    }

    /// An acknowledgement; θ is this path's share of the connection's rate, and of α.
    pub(super) fn handle_acked(&mut self, now: Time, acked: &Acked, alpha: f64, theta: f64) {
        self.window.handle_progress();
        self.rival.handle_acked(now, acked, theta);
        let packets = acked.bytes.as_f64() / self.window.mss();
        self.losses.handle_delivered(packets);
        let rtt = acked.rtt.and_then(seconds);
        if let Some(rtt) = rtt {
            self.base.handle_rtt(rtt);
        }
        if self.drain.is_some() || acked.sent_at < self.blind_until {
            return;
        }
        if let Some(rtt) = rtt {
            self.handle_rtt(rtt);
        }
        if let Some(rate) = acked.delivery_rate {
            let rate = rate.as_f64() / 8.0 / self.window.mss();
            let round = &mut self.round;
            round.delivery_rate = Some(round.delivery_rate.map_or(rate, |most| most.max(rate)));
        }
        let Some(average) = self.average.get() else { return };
        if acked.is_app_limited {
            // A window that is not full shows no backlog, and no rate.
            self.forget_round();
            return;
        }
        let backlog = (theta * alpha).max(LEAST_BACKLOG).min(self.losses.cap());
        self.backlog = backlog;
        let old = acked.window_at_sending.map_or(self.window.size(), Bytes::as_f64);
        let old = old / self.window.mss();
        let is_round_over = self.rounds.is_over(acked.round, self.options.every);
        if self.window.is_in_slow_start() {
            self.window.slow_start(acked);
            if self.is_filled(old, backlog) {
                self.end_start();
            }
        } else if is_round_over {
            self.step(old, average, backlog);
        } else if self.free_steps > 0 && self.is_filled(old, backlog) {
            self.forget_increment();
        } else {
            self.increment.pace(&mut self.window, packets);
        }
        if is_round_over {
            self.end_round(now, average);
        }
    }

    fn handle_rtt(&mut self, rtt: f64) {
        self.average.handle_rtt(rtt, self.window.packets());
        self.latest[self.at] = rtt;
        self.at = (self.at + 1) % LATEST;
        self.round.rtt = self.round.rtt.max(rtt);
    }

    /// The present round-trip time without bursts.
    fn now_rtt(&self) -> f64 {
        self.latest.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// How many of a window of `packets` wait, at this round-trip time; 0 if that is not known.
    fn queued(&self, packets: f64, rtt: f64) -> f64 {
        if rtt.is_finite() && rtt > 0.0 { packets * (1.0 - self.base.get() / rtt) } else { 0.0 }
    }

    /// Whether a window that grows fast has filled the path. Then it returns to what it was a round
    /// trip ago, and `α_r`.
    fn is_filled(&mut self, old: f64, backlog: f64) -> bool {
        let is_filled = self.queued(old, self.now_rtt()) >= START_ENDS * backlog;
        if is_filled {
            self.window.set((old + backlog).min(self.window.packets()) * self.window.mss());
        }
        is_filled
    }

    /// A step of FAST. In a path without any queue steps double.
    fn step(&mut self, old: f64, average: f64, backlog: f64) {
        let window = self.window.packets();
        let gamma = self.options.gamma;
        let rtts = [self.base.get(), average];
        let mut aim = target(&self.window, old, rtts, Step { backlog, gamma });
        if self.queued(old, self.now_rtt().max(average)) < NO_QUEUE * backlog {
            let step = gamma * backlog * f64::from(1_u32 << self.free_steps.min(30));
            aim = aim.max(window + step.min(LARGEST_STEP * window));
            self.free_steps = self.free_steps.saturating_add(1);
        } else {
            self.free_steps = 0;
        }
        self.increment.aim(&mut self.window, aim, self.base.get());
        self.window.lower_threshold(self.window.size());
    }

    fn end_round(&mut self, now: Time, average: f64) {
        let round = core::mem::take(&mut self.round);
        self.last = round;
        let by_window = self.packets() / average;
        let rate = round.delivery_rate.map_or(by_window, |rate| rate.min(by_window));
        self.rate = Some(self.rate.map_or(rate, |old| old + RATE_WEIGHT * (rate - old)));
        self.fastest = self.fastest.max(Rate::from_bits_f64(rate * self.window.mss() * 8.0));
        self.losses.end_round(now, rate);
    }

    pub(super) fn handle_lost(&mut self, lost: &Lost) {
        self.losses.handle_lost(lost.bytes.as_f64() / self.window.mss());
    }

    pub(super) fn handle_congestion(&mut self, now: Time, congestion: &Congestion) {
        self.rival.handle_congestion(now, congestion);
        let before = self.losses;
        let window = self.packets();
        let queued = self.queued(window, self.round.rtt.max(self.last.rtt));
        let rate = self.delivery_rate();
        let tolerance = match congestion.signal {
            Signal::Loss => self.options.tolerance,
            Signal::Mark => 0.0,
        };
        if !self.losses.is_congestion(now, queued, rate.unwrap_or(0.0), tolerance) {
            return;
        }
        self.before = Some(before);
        let base = self.base.get();
        let soon = Span::from_secs_f64(2.0 * self.average.get().unwrap_or(0.0));
        let is_again = self.cut_at.is_some_and(|at| now.since(at) <= soon)
            && !self.losses.are_tolerable(tolerance);
        let to = match rate {
            Some(rate) if !is_again && base.is_finite() => {
                rate * base + self.backlog.min(self.losses.cap())
            }
            _ => window / 2.0,
        };
        self.cut_at = Some(now);
        self.window.cut(to.min(window) * self.window.mss());
        self.forget_increment();
    }

    /// The highest delivery rate of the present and the last round trip.
    fn delivery_rate(&self) -> Option<f64> {
        match (self.round.delivery_rate, self.last.delivery_rate) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time, in_flight: Bytes) {
        self.rival.handle_timeout(now, in_flight);
        self.before = Some(self.losses);
        self.window.time_out(self.window.size() / 2.0);
        // A path that stands still leaves its share of α to the others.
        let average = self.average.get();
        self.rate = average.map(|average| self.window.packets() / average).or(self.rate);
        self.forget_increment();
        self.drain = None;
    }

    pub(super) fn handle_undo(&mut self, now: Time) {
        self.rival.handle_undo(now);
        self.window.undo();
        if let Some(before) = self.before.take() {
            self.losses = before;
        }
        self.cut_at = None;
    }

    pub(super) fn handle_idle_restart(&mut self, _now: Time) {
        self.window.restart();
        self.forget_increment();
        self.forget_round();
    }

    pub(super) fn end_start(&mut self) {
        self.window.end_slow_start();
        self.forget_increment();
    }

    fn forget_increment(&mut self) {
        self.increment = Increment::default();
        self.free_steps = 0;
        self.rounds.restart();
    }

    fn forget_round(&mut self) {
        self.round = Round::default();
        self.rounds.restart();
        self.free_steps = 0;
    }

    /// The base expires, and the queue is drained. Returns whether the allowance changes.
    pub(super) fn begin_drain(&mut self, now: Time) -> bool {
        let Some(average) = self.average.get() else { return false };
        let mut fewer = drain_times::fewer(self.options.expiry, average);
        if self.rival.is_there() {
            fewer *= rival::FEWER;
        }
        let number = drain_times::number(now, self.options.expiry);
        if self.window.is_in_slow_start() || !number.is_multiple_of(fewer) {
            return false;
        }
        self.drain = Some(Drain::new(now, self.packets(), [self.base.get(), average]));
        self.base.expire();
        true
    }

    /// Ends a drain that is over. Returns whether the allowance changes.
    pub(super) fn end_drain(&mut self, now: Time) -> bool {
        let Some(drain) = self.drain.filter(|drain| now >= drain.until) else { return false };
        self.drain = None;
        let average = self.average.get().unwrap_or(drain.base);
        if self.options.coexist {
            self.rival.handle_drain(now, &self.window, [drain.base, average, self.base.latest()]);
        }
        // The packets of the drain, and those that refill the queue.
        self.blind_until = now + Span::from_secs_f64(average);
        self.forget_round();
        true
    }

    pub(super) fn drain_ends(&self) -> Option<Time> {
        self.drain.map(|drain| drain.until)
    }

    /// The window in packets, CUBIC's beside rivals.
    fn packets(&self) -> f64 {
        self.window.packets().max(self.rival.packets(self.window.mss()))
    }

    pub(super) fn allowance(&self) -> Allowance {
        let mss = self.window.mss();
        let Some(average) = self.average.get() else { return self.window.allowance() };
        let packets = self.packets();
        let (packets, rate) = match self.drain {
            Some(drain) => {
                let packets = drain.packets.min(packets);
                (packets, packets / drain.base)
            }
            None if self.window.is_in_slow_start() => (packets, START_PACING * packets / average),
            None => (packets, (packets + self.backlog) / average),
        };
        let pacing = Rate::from_bits_f64((rate * mss * 8.0).max(8.0));
        let burst = (pacing * BURST).max(whole(2.0 * mss)).min(LARGEST_BURST);
        let window = whole((packets + ROUNDING).max(1.0) * mss).min(MAX_WINDOW);
        Allowance { pacing: Some(pacing), burst, ..Allowance::window(window) }
    }

    pub(super) fn threshold(&self) -> Option<Bytes> {
        self.window.threshold()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(100);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn packets(packets: u64) -> Bytes {
        Bytes(1_000 * packets)
    }

    fn acked(rtt: Span) -> Acked {
        Acked {
            bytes: packets(1),
            in_flight: packets(100),
            sent_at: Time::ZERO,
            window_at_sending: Some(packets(500)),
            rtt: Some(rtt),
            smoothed_rtt: rtt,
            min_rtt: RTT,
            one_way_delay: None,
            ack_delay: None,
            delivery_rate: Some(Rate::mbit(8)),
            round: 1,
            ce_packets: 0,
            ce_bytes: Bytes::ZERO,
            is_app_limited: false,
            in_recovery: false,
            slow_start_divisor: 1,
        }
    }

    /// 8 Mbit/s and 100 ms: 100 packets are on their way, and an acknowledgement has come.
    fn path() -> MpfastPath {
        let start = Start { mss: packets(1), initial_window: packets(10), rtt: Some(RTT) };
        let mut path = MpfastPath::new(Time::ZERO, &start, MpfastOptions::default());
        path.end_start();
        path.handle_acked(at(100), &acked(RTT), 100.0, 1.0);
        path
    }

    #[test]
    fn a_second_cut_halves_if_it_comes_soon_and_with_many_losses() {
        let mut path = path();
        let mut cut = |millis, losses| {
            path.window.set(packets(1_000).as_f64());
            let bytes = packets(losses);
            path.handle_lost(&Lost { bytes, in_flight_at_sending: None, sent_at: at(0) });
            let congestion = Congestion { signal: Signal::Loss, in_flight: packets(1_000) };
            path.handle_congestion(at(millis), &congestion);
            path.packets()
        };
        // What was delivered in a round trip, and the packet that the path may keep in the queue.
        let filled = cut(100, 200);
        assert!((100.0..=102.0).contains(&filled), "{filled}");
        let soon = cut(300, 0);
        assert!((soon - 500.0).abs() < 0.001, "{soon}: within two round trips");
        let later = cut(501, 0);
        assert!((later - filled).abs() < 0.001, "{later}");
    }

    #[test]
    fn doubling_steps_end_as_soon_as_there_is_a_queue() {
        let mut path = path();
        path.window.set(packets(1_000).as_f64());
        path.free_steps = 3;
        for _ in 0..LATEST {
            assert_eq!(path.free_steps, 3, "one late packet is no queue");
            path.handle_acked(at(200), &acked(RTT * 2), 100.0, 1.0);
        }
        assert_eq!(path.free_steps, 0);
        // The window of a round trip ago, and alpha.
        assert!((path.packets() - 600.0).abs() < 0.001, "{}", path.packets());
    }
}
