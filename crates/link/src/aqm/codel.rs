//! Controlled delay (RFC 8289).

use units::{Bytes, Span, Time};

use crate::aqm::Fifo;
use crate::ledger::Ledger;
use crate::offer::Waiting;

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoDel {
    /// The target sojourn time (RFC 8289, section 4.3). At low rates it should be at least the wire
    /// time of a packet.
    pub target: Span,
    /// The time for which the sojourn time may exceed the target before packets are dropped: about
    /// the longest usual RTT (section 4.3).
    pub interval: Span,
    /// Whether ECN-capable packets are marked instead of dropped (section 3.1, last paragraph).
    pub ecn: bool,
    /// A packet with no more than this many bytes behind it is not dropped: the size of the largest
    /// packet.
    pub mtu: Bytes,
}

impl Default for CoDel {
    /// As RFC 8289, section 4.4, recommends: 5 ms and 100 ms; without ECN, for packets of 1500
    /// bytes.
    fn default() -> CoDel {
        CoDel {
            target: Span::from_millis(5),
            interval: Span::from_millis(100),
            ecn: false,
            mtu: Bytes(1_500),
        }
    }
}

/// The drop rate of the last dropping state is resumed within this number of intervals (RFC 8289,
/// section 5.5).
const MEMORY: u64 = 16;

/// The state of CoDel on one queue, with the names of RFC 8289, section 5.3.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoDelState {
    /// The time at which the sojourn time will have been above the target for an interval; `None`
    /// if it is not above.
    first_above: Option<Time>,
    /// The time of the next drop in the dropping state; after that state, the time at which it
    /// would have been.
    drop_next: Time,
    /// Packets dropped, or marked, in this dropping state.
    count: u64,
    /// `count` as it was when this dropping state began.
    last_count: u64,
    is_dropping: bool,
}

/// The time of the next drop (RFC 8289, section 3.3: the interval over the square root of the
/// count).
pub(super) fn control_law(from: Time, interval: Span, count: u64) -> Time {
    #[expect(clippy::cast_precision_loss, reason = "a root; counts are small")]
    let gap = interval.as_secs_f64() / libm::sqrt(count.max(1) as f64);
    from + Span::from_secs_f64(gap)
}

impl CoDelState {
    /// Dequeues the next packet that is not dropped (section 5.5).
    pub(super) fn pop<P>(
        &mut self,
        now: Time,
        config: &CoDel,
        fifo: &mut Fifo<P>,
        ledger: &mut Ledger<P>,
    ) -> Option<Waiting<P>> {
        let (mut first, mut is_late) = self.take(now, config, fifo);
        if self.is_dropping {
            self.is_dropping = is_late;
            while self.is_dropping && now >= self.drop_next {
                self.count += 1;
                let is_spared = spare(first.as_mut(), config, ledger);
                if !is_spared {
                    first.take().into_iter().for_each(|one| ledger.note_dropped(now, one.packet));
                    (first, is_late) = self.take(now, config, fifo);
                    self.is_dropping = is_late;
                }
                if self.is_dropping {
                    self.drop_next = control_law(self.drop_next, config.interval, self.count);
                }
                if is_spared {
                    break;
                }
            }
        } else if is_late {
            if !spare(first.as_mut(), config, ledger) {
                first.take().into_iter().for_each(|one| ledger.note_dropped(now, one.packet));
                first = self.take(now, config, fifo).0;
            }
            self.begin(now, config.interval);
        }
        first
    }

    /// Enters the dropping state. Soon after the last one, it resumes the drop rate reached there
    /// (section 5.5).
    fn begin(&mut self, now: Time, interval: Span) {
        self.is_dropping = true;
        let reached = self.count.saturating_sub(self.last_count);
        let is_soon = now.since(self.drop_next) < interval * MEMORY;
        self.count = if reached > 1 && is_soon { reached } else { 1 };
        self.last_count = self.count;
        self.drop_next = control_law(now, interval, self.count);
    }

    /// Dequeues the first packet, and returns whether the sojourn time has been above the target
    /// for an interval (section 5.6).
    fn take<P>(
        &mut self,
        now: Time,
        config: &CoDel,
        fifo: &mut Fifo<P>,
    ) -> (Option<Waiting<P>>, bool) {
        let first = fifo.pop();
        let is_above = first.as_ref().is_some_and(|first| now.since(first.since) >= config.target)
            && fifo.tally().bytes > config.mtu;
        if !is_above {
            self.first_above = None;
            return (first, false);
        }
        let is_late = match self.first_above {
            None => {
                self.first_above = Some(now + config.interval);
                false
            }
            Some(first_above) => now >= first_above,
        };
        (first, is_late)
    }
}

/// Marks the packet if it is ECN-capable, otherwise counts it as dropped. Returns whether it was
/// marked.
fn spare<P>(packet: Option<&mut Waiting<P>>, config: &CoDel, ledger: &mut Ledger<P>) -> bool {
    match packet {
        Some(packet) if config.ecn && packet.is_ecn_capable => {
            packet.is_marked = true;
            ledger.counters.marked += 1;
            true
        }
        _ => {
            ledger.counters.dropped_aqm += 1;
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use alloc::vec::Vec;

    fn waiting(since: Time, is_ecn_capable: bool) -> Waiting<()> {
        Waiting { is_ecn_capable, ..Waiting::new(since, Bytes(1_000), ()) }
    }

    /// The times of drops or marks if one packet arrives and one leaves each millisecond, always
    /// after waiting for 50 ms.
    fn events(config: &CoDel, is_ecn_capable: bool, millis: u64) -> (Vec<u64>, Counters) {
        let (mut fifo, mut state, mut ledger) =
            (Fifo::new(), CoDelState::default(), Ledger::default());
        let mut at = Vec::new();
        for n in 0..50 + millis {
            let now = Time::ZERO + Span::from_millis(n);
            fifo.push(waiting(now, is_ecn_capable));
            if n >= 50 {
                let events =
                    |ledger: &Ledger<()>| ledger.counters.dropped_aqm + ledger.counters.marked;
                let before = events(&ledger);
                state.pop(now, config, &mut fifo, &mut ledger);
                let events = events(&ledger) - before;
                at.extend((0..events).map(|_| n - 50));
                // A replacement for each dropped packet, so that sojourn times stay constant.
                for _ in 0..events {
                    fifo.push(waiting(now, is_ecn_capable));
                }
            }
        }
        (at, ledger.counters)
    }

    #[test]
    fn drops_follow_the_interval_over_the_root() {
        let (drops, _) = events(&CoDel::default(), false, 430);
        // 100 ms after the first late packet, then after 100, 100/sqrt 2, 100/sqrt 3 …, each on the
        // next whole millisecond.
        let mut next = 100.0;
        for (n, drop) in (1u32..).zip(&drops) {
            assert!(
                (f64::from(u32::try_from(*drop).expect("soon")) - next).abs() <= 1.0,
                "{n}: {drop}, not {next}"
            );
            next += 100.0 / f64::from(n).sqrt();
        }
        assert_eq!(drops.len(), 6, "{drops:?}");
    }

    #[test]
    fn marks_come_when_drops_would() {
        let config = CoDel { ecn: true, ..CoDel::default() };
        let (drops, _) = events(&CoDel::default(), false, 1_000);
        let (marks, counters) = events(&config, true, 1_000);
        assert_eq!((drops, 0), (marks, counters.dropped_aqm));
        assert_eq!(events(&config, false, 1_000).1.marked, 0);
    }

    #[test]
    fn nothing_is_dropped_within_the_target_or_an_interval() {
        let (drops, _) =
            events(&CoDel { target: Span::from_millis(51), ..CoDel::default() }, false, 1_000);
        assert!(drops.is_empty());
        let (drops, _) = events(&CoDel::default(), false, 100);
        assert!(drops.is_empty());
    }

    #[test]
    fn the_last_packets_are_never_dropped() {
        let (mut fifo, mut state, mut ledger) =
            (Fifo::new(), CoDelState::default(), Ledger::default());
        for n in 0..100u64 {
            fifo.push(waiting(Time::ZERO, false));
            let now = Time::ZERO + Span::from_secs(n);
            assert!(state.pop(now, &CoDel::default(), &mut fifo, &mut ledger).is_some());
        }
        assert_eq!(ledger.counters.dropped_aqm, 0);
    }

    #[test]
    fn an_early_return_resumes_the_drop_rate() {
        let interval = Span::from_millis(100);
        let mut state = CoDelState {
            count: 9,
            last_count: 1,
            drop_next: Time::from_nanos(0),
            ..CoDelState::default()
        };
        let mut later = state.clone();
        state.begin(Time::ZERO + Span::from_millis(1_599), interval);
        assert_eq!((state.count, state.last_count), (8, 8));
        later.begin(Time::ZERO + Span::from_millis(1_600), interval);
        assert_eq!((later.count, later.last_count), (1, 1));
    }
}
