//! Changes of a link while it carries packets.

use alloc::vec::Vec;

use units::{Rate, Span};

use crate::dated::Dated;
use crate::loss::Loss;
use crate::profile::{Blackout, Profile};
use crate::rate::Change;

/// A change of a link from some moment on. Of the value that it changes, it replaces all that a
/// schedule or a trace says of later moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amendment {
    /// Another rate. At zero, packets wait. Delivery opportunities stay as they are.
    Rate(Rate),
    /// Another propagation delay. Packets that are propagating keep theirs, and none arrives before
    /// the one that was sent before it, unless jitter reorders.
    Delay(Span),
    /// Another model of loss, which begins anew.
    Loss(Loss),
    /// All packets that arrive, or leave the queue, are dropped.
    Down,
    /// Packets pass again. No blackout of the schedule comes any more.
    Up,
}

impl Profile {
    /// The same profile up to `at` after the schedule's start, and `amendment` from then on.
    #[must_use]
    pub fn amended(&self, at: Span, amendment: Amendment) -> Profile {
        let mut profile = self.clone();
        match amendment {
            Amendment::Rate(rate) => {
                profile.rate.changes.retain(|change| change.at < at);
                profile.rate.changes.push(Change { at, rate });
            }
            Amendment::Delay(value) => replace(&mut profile.delays, Dated { at, value }),
            Amendment::Loss(value) => replace(&mut profile.losses, Dated { at, value }),
            Amendment::Down => {
                if !profile.is_black(at) {
                    profile.blackouts.push(Blackout { from: at, to: None, every: None });
                }
            }
            Amendment::Up => profile.blackouts.clear(),
        }
        profile
    }
}

fn replace<T>(list: &mut Vec<Dated<T>>, dated: Dated<T>) {
    list.retain(|one| one.at < dated.at);
    list.push(dated);
}

#[cfg(test)]
mod tests {
    use units::{Bytes, Seed, Time};

    use super::*;
    use crate::Link;

    fn ms(n: u64) -> Span {
        Span::from_millis(n)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + ms(millis)
    }

    /// 1500 bytes take 1 ms, and 10 ms to propagate.
    fn link() -> Link<u32> {
        Link::new(Profile::new(Rate::mbit(12), ms(10)), Seed(1))
    }

    fn arrivals(link: &mut Link<u32>) -> Vec<(u32, u64)> {
        core::iter::from_fn(|| link.poll_deliver(at(100_000)))
            .map(|delivery| (delivery.packet, (delivery.at - Time::ZERO).as_micros()))
            .collect()
    }

    #[test]
    fn a_packet_on_the_wire_goes_on_at_the_new_rate() {
        let mut link = link();
        link.enqueue(at(0), Bytes(1_500), 1);
        link.enqueue(at(0), Bytes(1_500), 2);
        // Half of the first packet is sent; the other half takes five times as long.
        link.amend(Time::ZERO + Span::from_micros(500), Amendment::Rate(Rate::kbit(2_400)));
        assert_eq!(arrivals(&mut link), [(1, 13_000), (2, 18_000)]);
    }

    #[test]
    fn at_no_rate_packets_wait_and_go_on_where_they_were() {
        let mut link = link();
        link.enqueue(at(0), Bytes(1_500), 1);
        link.amend(Time::ZERO + Span::from_micros(250), Amendment::Rate(Rate::ZERO));
        assert_eq!(link.poll_deadline(), None);
        link.amend(at(50), Amendment::Rate(Rate::mbit(12)));
        assert_eq!(arrivals(&mut link), [(1, 60_750)]);
    }

    #[test]
    fn a_shorter_delay_keeps_the_order() {
        let mut link = link();
        link.enqueue(at(0), Bytes(1_500), 1);
        // It is propagating already and arrives at 11 ms.
        link.amend(at(2), Amendment::Delay(ms(1)));
        link.enqueue(at(2), Bytes(1_500), 2);
        assert_eq!(arrivals(&mut link), [(1, 11_000), (2, 11_000)]);
        link.amend(at(100_000), Amendment::Delay(ms(30)));
        link.enqueue(at(100_000), Bytes(1_500), 3);
        let arrived = link.poll_deliver(at(100_031)).expect("1 ms and 30 ms");
        assert_eq!(arrived.at, at(100_031));
    }

    #[test]
    fn down_drops_and_up_carries() {
        let mut link = link();
        link.amend(at(1), Amendment::Down);
        link.enqueue(at(2), Bytes(1_500), 1);
        link.amend(at(3), Amendment::Down);
        link.amend(at(4), Amendment::Up);
        link.enqueue(at(5), Bytes(1_500), 2);
        assert_eq!(arrivals(&mut link), [(2, 16_000)]);
        assert_eq!(link.counters().dropped_blackout, 1);
    }

    #[test]
    fn losses_come_and_go() {
        let mut link = link();
        link.amend(at(1), Amendment::Loss(Loss::of(1.0)));
        link.enqueue(at(1), Bytes(1_500), 1);
        link.enqueue(at(2), Bytes(1_500), 2);
        link.amend(at(3), Amendment::Loss(Loss::None));
        link.enqueue(at(3), Bytes(1_500), 3);
        assert_eq!(arrivals(&mut link), [(3, 14_000)]);
        assert_eq!(link.counters().dropped_loss, 2);
    }

    #[test]
    fn what_a_schedule_said_of_later_does_not_come() {
        let profile = Profile::new(Rate::mbit(12), ms(10))
            .amended(ms(5), Amendment::Rate(Rate::mbit(6)))
            .amended(ms(9), Amendment::Rate(Rate::mbit(3)))
            .amended(ms(7), Amendment::Rate(Rate::mbit(1)));
        let changes: Vec<u64> =
            profile.rate.changes.iter().map(|change| change.at.as_millis()).collect();
        assert_eq!(changes, [5, 7]);
    }
}
