//! The most that a path of [`CoupledBbr`](super::CoupledBbr) has in flight beside flows of others.
//!
//! A loss may be the line's own, or a sign that others want their share of a queue. While a path
//! cruises, it sends no more than it measured and drains what its last probe left. A queue that
//! stands nevertheless is not its own: no round trip of a whole round comes near the shortest one.
//! Losses count from then on, and the window of CUBIC is the ceiling, with the path's share of the
//! connection's rate, so that all paths together take no more than one flow. Where cruising finds
//! no queue, losses are the line's, and there is no ceiling: rounds in which no packet met a queue
//! tell how many the line loses by itself.

use units::{Bytes, Span, Time};

use super::delays::Delays;
use super::window::Rounds;
use super::{Acked, Congestion, Cubic, SinglePath, Start};

/// A queue stands if the least round trip of a round exceeds the shortest one by more than one part
/// of these, and by more than this.
const PARTS: u64 = 16;
const LEAST_QUEUE: Span = Span::from_millis(1);
/// The others have left after so many rounds in succession without a queue.
const CLEAR_ROUNDS: u32 = 32;
/// The line's own losses are counted over so many rounds.
const ROUNDS: f64 = 64.0;
/// The least share of a path, so that it can return.
const LEAST_SHARE: f64 = 0.1;

/// The ceiling of one path.
#[derive(Clone, Debug, Default)]
pub(super) struct Ceiling {
    rounds: Rounds,
    /// The least round trips of rounds.
    base: Delays,
    /// The least and the largest one of the present round.
    range: Option<(Span, Span)>,
    /// The bytes delivered and lost when it began.
    since: (u64, u64),
    /// The bytes lost and all bytes of rounds of cruising in which no packet met a queue, the
    /// latest of them.
    own: (f64, f64),
    /// Whether the present round has been something else than cruising.
    is_disturbed: bool,
    /// Whether a queue stood when the path cruised last.
    stands: bool,
    /// Rounds of cruising without a queue since.
    clear: u32,
    /// There is none while nobody else shows.
    cubic: Option<Cubic>,
}

/// What a ceiling needs to know of its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct CeilingView {
    /// Whether it sends no more than it measured, after its last probe has drained.
    pub(super) is_cruising: bool,
    /// Whether a queue of others stands by what those at the same bottleneck saw.
    pub(super) others_stand: bool,
    /// Its share of the connection's rate.
    pub(super) share: f64,
    /// What it may have in flight without a ceiling.
    pub(super) window: Bytes,
    /// The bytes delivered and lost so far.
    pub(super) counts: (u64, u64),
}

impl Ceiling {
    /// Whether a queue of others stood when the path cruised last.
    pub(super) fn stands(&self) -> bool {
        self.stands
    }

    /// An acknowledgement came on a path as `view` describes it.
    pub(super) fn handle_acked(&mut self, now: Time, acked: &Acked, view: &CeilingView) {
        self.is_disturbed |= !view.is_cruising;
        if let Some(rtt) = acked.rtt {
            let (least, most) = self.range.unwrap_or((rtt, rtt));
            self.range = Some((least.min(rtt), most.max(rtt)));
        }
        if self.rounds.is_over(acked.round, 1) {
            self.judge(now, view);
        }
        if let Some(cubic) = &mut self.cubic {
            cubic.set_share(view.share.clamp(LEAST_SHARE, 1.0));
            let is_high = cubic.allowance().window >= view.window;
            let is_app_limited = acked.is_app_limited || is_high;
            cubic.handle_acked(now, &Acked { is_app_limited, ..*acked });
        }
    }

    /// A round is over.
    fn judge(&mut self, now: Time, view: &CeilingView) {
        let is_disturbed = core::mem::take(&mut self.is_disturbed);
        let before = core::mem::replace(&mut self.since, view.counts);
        let Some((least, most)) = self.range.take() else { return };
        self.base.handle_sample(now, least);
        let Some(base) = self.base.base().filter(|_| !is_disturbed) else { return };
        let empty = base + (base / PARTS).max(LEAST_QUEUE);
        self.stands = least > empty;
        self.clear = if self.stands { 0 } else { self.clear.saturating_add(1) };
        if self.clear >= CLEAR_ROUNDS && !view.others_stand {
            self.cubic = None;
        }
        if most <= empty {
            let delivered = Bytes(view.counts.0.saturating_sub(before.0)).as_f64();
            let lost = Bytes(view.counts.1.saturating_sub(before.1)).as_f64();
            let kept = 1.0 - 1.0 / ROUNDS;
            self.own = (self.own.0 * kept + lost, self.own.1 * kept + delivered + lost);
        }
    }

    /// The share of the packets that the line loses by itself: none while a queue of others stands,
    /// which may be what loses them.
    pub(super) fn own_loss(&self) -> f64 {
        let (lost, all) = self.own;
        if self.stands || all <= 0.0 { 0.0 } else { lost / all }
    }

    /// Packets were lost or marked where a queue of others stands. `mss` is a packet's payload.
    pub(super) fn handle_congestion(&mut self, now: Time, mss: Bytes, congestion: &Congestion) {
        let cubic = self.cubic.get_or_insert_with(|| {
            let mut cubic = Cubic::default();
            let start = Start { mss, initial_window: congestion.in_flight, rtt: None };
            cubic.handle_start(now, &start);
            cubic.handle_slow_start_end(now);
            cubic
        });
        cubic.handle_congestion(now, congestion);
    }

    /// The retransmission timer ran out where a queue of others stands.
    pub(super) fn handle_timeout(&mut self, now: Time, in_flight: Bytes) {
        if let Some(cubic) = &mut self.cubic {
            cubic.handle_timeout(now, in_flight);
        }
    }

    /// Nothing had been lost.
    pub(super) fn handle_undo(&mut self, now: Time) {
        if let Some(cubic) = &mut self.cubic {
            cubic.handle_undo(now);
        }
    }

    /// The lesser of this window and the ceiling.
    pub(super) fn bound(&self, window: Bytes) -> Bytes {
        self.cubic.as_ref().map_or(window, |cubic| window.min(cubic.allowance().window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::Signal;

    const MSS: Bytes = Bytes(1_000);
    const WINDOW: Bytes = Bytes(100_000);

    /// A path that is cruising.
    #[derive(Default)]
    struct Path {
        ceiling: Ceiling,
        round: u64,
        counts: (u64, u64),
    }

    impl Path {
        /// Rounds with these round trips, from the least to the largest, and a hundred packets each
        /// of which so many are lost.
        fn cruise(&mut self, rounds: u64, millis: [u64; 2], lost: u64) {
            for _ in 0..rounds {
                self.round += 1;
                self.counts.0 += (100 - lost) * MSS.0;
                self.counts.1 += lost * MSS.0;
                for millis in millis {
                    self.ack(Span::from_millis(millis));
                }
            }
        }

        fn ack(&mut self, rtt: Span) {
            let now = Time::ZERO + Span::from_millis(100) * self.round;
            let acked = Acked {
                bytes: MSS,
                in_flight: Bytes(50_000),
                sent_at: now - rtt,
                window_at_sending: None,
                rtt: Some(rtt),
                smoothed_rtt: rtt,
                min_rtt: Span::from_millis(40),
                one_way_delay: None,
                ack_delay: None,
                delivery_rate: None,
                round: self.round,
                ce_packets: 0,
                ce_bytes: Bytes::ZERO,
                is_app_limited: false,
                in_recovery: false,
                slow_start_divisor: 1,
            };
            let view = CeilingView {
                is_cruising: true,
                others_stand: false,
                share: 1.0,
                window: WINDOW,
                counts: self.counts,
            };
            self.ceiling.handle_acked(now, &acked, &view);
        }
    }

    #[test]
    fn a_queue_that_stands_while_cruising_is_of_others() {
        let mut path = Path::default();
        path.cruise(10, [40, 40], 0);
        assert!(!path.ceiling.stands());
        path.cruise(10, [42, 60], 0);
        assert!(!path.ceiling.stands(), "the least exceeds the shortest by less than a sixteenth");
        path.cruise(3, [60, 60], 0);
        assert!(path.ceiling.stands());
        assert_eq!(path.ceiling.bound(WINDOW), WINDOW, "nothing was lost yet");
        let congestion = Congestion { signal: Signal::Loss, in_flight: Bytes(50_000) };
        path.ceiling.handle_congestion(Time::ZERO, MSS, &congestion);
        assert_eq!(path.ceiling.bound(WINDOW), Bytes(35_000));
        // They leave, and the ceiling with them.
        path.cruise(u64::from(CLEAR_ROUNDS) / 2, [40, 40], 0);
        assert!(path.ceiling.bound(WINDOW) < WINDOW);
        path.cruise(u64::from(CLEAR_ROUNDS), [40, 40], 0);
        assert_eq!(path.ceiling.bound(WINDOW), WINDOW);
    }

    #[test]
    fn losses_beside_a_queue_are_not_the_lines() {
        let own = |path: &Path| (1_000.0 * path.ceiling.own_loss()).round();
        let mut path = Path::default();
        path.cruise(100, [40, 42], 3);
        assert!((29.0..=30.0).contains(&own(&path)), "{}", own(&path));
        // A packet met a queue, and was perhaps lost in it.
        let before = own(&path);
        path.cruise(100, [40, 50], 20);
        assert!((own(&path) - before).abs() < 4.0, "{before} {}", own(&path));
        path.cruise(3, [60, 60], 20);
        assert!(own(&path) < 1e-9, "a queue of others stands");
    }
}
