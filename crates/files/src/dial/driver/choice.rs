//! The choice between TCP and a striped UDP connection (`--carrier auto`): both are open, one
//! carries the data, and the other is tried now and then.
//!
//! A trial takes some seconds, so that short transfers have none. The other carrier is kept if it
//! is faster by more than what rates vary by. Where TCP has a queue on all lines, nothing carries
//! more, and nothing is tried. What is in flight on the carrier that pauses arrives there: nothing
//! is sent twice. The other one begins when it has: into the queue of the first, it would lose
//! packets at once, and take the line for narrower than it is.

use units::{Bytes, Rate, Span, Time};

/// A carrier of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Kernel TCP over each path.
    Tcp,
    /// One striped connection over all paths.
    Udp,
}

/// What one carrier has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Whether a path of it is open.
    pub(super) is_open: bool,
    /// Bytes that the sink acknowledged on it.
    pub(super) acked: Bytes,
    /// Bytes that were sent on it, and not acknowledged.
    pub(super) in_flight: Bytes,
    /// Whether a path of it has no queue, so that something else might carry more over it. Known of
    /// TCP.
    pub(super) has_room: bool,
}

/// A change of the carrier in use, for people.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    pub(super) text: String,
}

/// The time that a carrier has to reach its rate.
const SETTLE: Span = Span::from_millis(1_200);
/// The time over which its rate is measured.
const MEASURE: Span = Span::from_millis(1_500);
/// The other carrier has to be this much faster, in percent.
const MARGIN: u64 = 5;
/// A carrier that pauses has this long for what it has in flight.
const MOST_HELD: Span = Span::from_millis(500);
/// A trial has to be worth its time: so many trials must fit the rest of the transfer.
const WORTH: u64 = 10;
/// The first pause between trials; doubled by each that changes nothing.
const PAUSE: Span = Span::from_secs(60);
/// A carrier whose rate falls to this much of what it was, in percent, is doubted earlier.
const FALLEN: u64 = 60;
/// The least pause between trials.
const LEAST_PAUSE: Span = Span::from_secs(10);

/// Chooses the carrier.
#[derive(Debug)]
pub(super) struct Choice {
    in_use: Kind,
    /// What was acknowledged, at times of the last seconds; oldest first.
    seen: Vec<(Time, [Bytes; 2])>,
    /// When the carrier in use got the data.
    since: Option<Time>,
    /// When it got the data, for as long as neither is to send: what the other one has in flight is
    /// waited for.
    held: Option<Time>,
    /// The rate of the other one before a trial.
    trial: Option<Rate>,
    /// The rate of the carrier in use at the last decision.
    settled: Option<Rate>,
    next_trial: Option<Time>,
    last_trial: Time,
    /// When all lines had a queue, as of the last look at which they had.
    full_at: Option<Time>,
    pause: Span,
    /// Whether the other carrier is never tried.
    is_fixed: bool,
}

impl Choice {
    pub(super) fn new() -> Choice {
        Choice {
            in_use: Kind::Tcp,
            seen: Vec::new(),
            since: None,
            held: None,
            trial: None,
            settled: None,
            next_trial: None,
            last_trial: Time::ZERO,
            full_at: None,
            pause: PAUSE,
            is_fixed: false,
        }
    }

    /// The transfer is in the background: UDP carries the data while a path of it is open, and TCP
    /// at other times.
    pub(super) fn step_back(&mut self) {
        (self.in_use, self.is_fixed, self.held) = (Kind::Udp, true, None);
    }

    /// UDP begins, over which there are direct ways through translators.
    pub(super) fn of_meeting() -> Choice {
        Choice { in_use: Kind::Udp, ..Choice::new() }
    }

    /// The carrier that carries the data.
    pub(super) fn in_use(&self) -> Kind {
        self.in_use
    }

    /// Whether nothing is to be sent: the carrier in use waits for what the other one has sent.
    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Looks at both carriers, some ten times a second; `rest` is what is still to be moved.
    pub(super) fn update(
        &mut self,
        now: Time,
        tcp: Standing,
        udp: Standing,
        rest: Bytes,
    ) -> Option<Decision> {
        if self.is_fixed {
            return None;
        }
        self.seen.push((now, [tcp.acked, udp.acked]));
        let oldest = now.since(Time::ZERO).min(SETTLE + MEASURE + MEASURE);
        self.seen.retain(|(at, _)| now.since(*at) <= oldest);
        let (own, other) = match self.in_use {
            Kind::Tcp => (tcp, udp),
            Kind::Udp => (udp, tcp),
        };
        if !own.is_open {
            // The other one carries the data meanwhile, as a backup does.
            (self.since, self.held, self.trial) = (None, None, None);
            return None;
        }
        if let Some(begin) = self.held {
            if other.in_flight > Bytes::ZERO && now.since(begin) < MOST_HELD {
                return None;
            }
            self.held = None;
        }
        let since = *self.since.get_or_insert(now);
        if now.since(since) < SETTLE + MEASURE {
            return None;
        }
        let rate = self.rate(now);
        if let Some(before) = self.trial.take() {
            return Some(self.judge(now, before, rate));
        }
        if self.in_use == Kind::Tcp && !own.has_room {
            self.full_at = Some(now);
        }
        let is_full = self.full_at.is_some_and(|at| now.since(at) < MEASURE);
        if !other.is_open || is_full || !self.is_due(now, rate) {
            return None;
        }
        let worth = (rate * (SETTLE + MEASURE)).0.saturating_mul(WORTH);
        if rest.0 < worth {
            return None;
        }
        (self.trial, self.last_trial) = (Some(rate), now);
        self.turn(now);
        None
    }

    /// Whether the other carrier is to be tried.
    fn is_due(&mut self, now: Time, rate: Rate) -> bool {
        let Some(settled) = self.settled else { return true };
        let has_fallen = rate.as_bits() < settled.as_bits() / 100 * FALLEN
            && now.since(self.last_trial) >= LEAST_PAUSE;
        has_fallen || self.next_trial.is_some_and(|at| at <= now)
    }

    /// Ends a trial: the faster carrier stays.
    fn judge(&mut self, now: Time, before: Rate, rate: Rate) -> Decision {
        let (tried, other) = match self.in_use {
            Kind::Udp => ("UDP", "TCP"),
            Kind::Tcp => ("TCP", "UDP"),
        };
        let is_faster = rate.as_bits() > before.as_bits() / 100 * (100 + MARGIN);
        let text = if is_faster {
            self.pause = PAUSE;
            self.settled = Some(rate);
            format!("{tried} carries {rate}, {other} carried {before}: {tried} goes on")
        } else {
            self.pause = self.pause + self.pause;
            self.settled = Some(before);
            self.turn(now);
            format!("{tried} carried {rate}, {other} {before}: {other} goes on")
        };
        self.next_trial = Some(now + self.pause);
        Decision { text }
    }

    fn turn(&mut self, now: Time) {
        self.in_use = match self.in_use {
            Kind::Tcp => Kind::Udp,
            Kind::Udp => Kind::Tcp,
        };
        (self.since, self.held) = (None, Some(now));
    }

    /// The rate of both carriers together over the last [`MEASURE`].
    fn rate(&self, now: Time) -> Rate {
        let first = self.seen.iter().find(|(at, _)| now.since(*at) <= MEASURE);
        let (Some((from, before)), Some((_, last))) = (first, self.seen.last()) else {
            return Rate::ZERO;
        };
        let moved = (last[0] + last[1]) - (before[0] + before[1]);
        let span = now.since(*from);
        if span == Span::ZERO { Rate::ZERO } else { moved / span }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Span = Span::from_millis(100);
    const WITH_ROOM: Standing =
        Standing { is_open: true, acked: Bytes::ZERO, in_flight: Bytes::ZERO, has_room: true };

    /// What both carriers carry at that time, in Mbit/s.
    type Line = fn(Span) -> (u64, u64);

    /// Runs a transfer; returns the texts with their times in tenths of a second, and the part of
    /// what the better carrier alone would have moved.
    fn run(seconds: u64, size: Bytes, open: [bool; 2], line: Line) -> (Vec<(u64, String)>, f64) {
        let mut choice = Choice::new();
        let mut acked = [Bytes::ZERO; 2];
        let mut best = [Bytes::ZERO; 2];
        let mut told = Vec::new();
        for step in 0..seconds * 10 {
            let since = STEP * step;
            let (tcp, udp) = line(since);
            let rates = [Rate::mbit(tcp), Rate::mbit(udp)];
            let used = usize::from(choice.in_use() == Kind::Udp);
            // What is in flight arrives while it is waited for, within a step.
            let used = if open[used] && !choice.is_holding() { used } else { 1 - used };
            acked[used] += rates[used] * STEP;
            (0..2).for_each(|at| best[at] += rates[at] * STEP);
            let standing =
                |at: usize| Standing { is_open: open[at], acked: acked[at], ..WITH_ROOM };
            let now = Time::ZERO + since;
            let rest = size - (acked[0] + acked[1]).min(size);
            if let Some(change) = choice.update(now, standing(0), standing(1), rest) {
                told.push((step, change.text));
            }
        }
        let all = (acked[0] + acked[1]).as_f64();
        (told, all / best[0].max(best[1]).as_f64())
    }

    #[test]
    fn the_faster_one_is_kept() {
        let (told, part) = run(60, Bytes(1 << 40), [true, true], |_| (50, 80));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].1.contains("UDP goes on"), "{told:?}");
        assert!(part > 0.98, "{part}");
        let (told, part) = run(60, Bytes(1 << 40), [true, true], |_| (80, 50));
        assert!(told.len() == 1 && told[0].1.contains("TCP goes on"), "{told:?}");
        assert!(part > 0.98, "{part}");
    }

    #[test]
    fn what_tcp_fills_has_no_trial() {
        let mut choice = Choice::new();
        let mut tried = None;
        for step in 0..300_u64 {
            // A sender that has backed off leaves the line without a queue for a second.
            let has_room = step > 200 || step % 40 < 10;
            let tcp = Standing { acked: Rate::mbit(50) * (STEP * step), has_room, ..WITH_ROOM };
            choice.update(Time::ZERO + STEP * step, tcp, WITH_ROOM, Bytes(1 << 40));
            if choice.in_use() == Kind::Udp {
                tried = tried.or(Some(step));
            }
        }
        assert_eq!(tried, Some(214));
    }

    #[test]
    fn equals_change_nothing() {
        let (told, _) = run(30, Bytes(1 << 40), [true, true], |_| (80, 82));
        assert!(told.len() == 1 && told[0].1.contains("TCP goes on"), "{told:?}");
    }

    #[test]
    fn short_transfers_have_no_trial() {
        let (told, _) = run(10, Bytes(20_000_000), [true, true], |_| (50, 500));
        assert!(told.is_empty(), "{told:?}");
        // The trial would take a tenth of it.
        let (told, _) = run(25, Rate::mbit(50) * Span::from_secs(25), [true, true], |_| (50, 500));
        assert!(told.is_empty(), "{told:?}");
    }

    #[test]
    fn the_other_one_begins_when_what_is_in_flight_has_arrived() {
        for (arrives, held) in [(0, 1), (3, 3), (100, 5)] {
            let mut choice = Choice::new();
            let mut turned = None;
            let mut waited = 0;
            for step in 0..100 {
                let is_tried = choice.in_use() == Kind::Udp;
                if is_tried && turned.is_none() {
                    turned = Some(step);
                }
                let left = turned.map_or(1, |at: u64| (at + arrives).saturating_sub(step + 1));
                let tcp = Standing {
                    is_open: true,
                    acked: Rate::mbit(50) * (STEP * step),
                    in_flight: Bytes(left),
                    ..WITH_ROOM
                };
                let udp = WITH_ROOM;
                waited += u64::from(is_tried && choice.is_holding());
                choice.update(Time::ZERO + STEP * step, tcp, udp, Bytes(1 << 40));
                if choice.in_use() == Kind::Tcp && turned.is_some() {
                    break;
                }
            }
            assert_eq!((turned.is_some(), waited), (true, held), "{arrives}");
        }
    }

    #[test]
    fn one_that_is_closed_is_not_tried() {
        for open in [[true, false], [false, true]] {
            let (told, part) = run(30, Bytes(1 << 40), open, |_| (50, 50));
            assert!(told.is_empty() && part > 0.99, "{open:?} {told:?} {part}");
        }
    }

    #[test]
    fn in_the_background_the_faster_one_is_not_looked_for() {
        // It may become known at the beginning, during a trial, or later.
        for known in [0, 30, 100] {
            let mut choice = Choice::new();
            for step in 0..1_000_u64 {
                let standing = |rate| Standing {
                    is_open: true,
                    acked: Rate::mbit(rate) * (STEP * step),
                    ..WITH_ROOM
                };
                let now = Time::ZERO + STEP * step;
                if step == known {
                    choice.step_back();
                }
                let told = choice.update(now, standing(90), standing(1), Bytes(1 << 40));
                if step >= known {
                    assert_eq!((told, choice.in_use()), (None, Kind::Udp), "{known} {step}");
                }
            }
        }
    }

    /// Where hosts were met, TCP counts as open once it has a direct path.
    #[test]
    fn of_hosts_that_met_udp_begins_and_tcp_is_compared_where_it_is_direct() {
        for is_direct in [false, true] {
            let mut choice = Choice::of_meeting();
            let mut told = Vec::new();
            for step in 0..200_u64 {
                let standing = |rate, is_open| Standing {
                    is_open,
                    acked: Rate::mbit(rate) * (STEP * step),
                    ..WITH_ROOM
                };
                let now = Time::ZERO + STEP * step;
                let (tcp, udp) = match choice.in_use() {
                    Kind::Tcp => (standing(90, is_direct), standing(0, true)),
                    Kind::Udp => (standing(0, is_direct), standing(40, true)),
                };
                assert!(step > 20 || choice.in_use() == Kind::Udp);
                told.extend(choice.update(now, tcp, udp, Bytes(1 << 40)));
            }
            assert_eq!(choice.in_use() == Kind::Tcp, is_direct, "{told:?}");
            assert_eq!(told.is_empty(), !is_direct, "{told:?}");
        }
    }

    #[test]
    fn a_line_that_begins_to_lose_is_looked_at_again() {
        let line: Line = |since| if since < Span::from_secs(20) { (90, 80) } else { (20, 80) };
        let (told, part) = run(60, Bytes(1 << 40), [true, true], line);
        assert!(told.last().is_some_and(|(_, text)| text.contains("UDP goes on")), "{told:?}");
        assert!(part > 0.9, "{part} {told:?}");
    }
}
