//! The tickets that a host has, by destination: a core.

use std::collections::{HashMap, VecDeque};

use units::{Span, Time};
use wire::relay::{Issued, MOST_TICKETS, Reason, Ticket, Wish};
use wire::tunnel::Target;

/// More are wished for once there are no more than so many.
const FEW: usize = MOST_TICKETS / 2;
/// A ticket that lapses within this time is not used: it has a way to go.
const SPARE: Span = Span::from_secs(10);
/// A destination that nobody has asked for in this time gets no further tickets.
const IN_USE: Span = Span::from_secs(120);
/// Destinations that are remembered.
const MOST_TARGETS: usize = 64;

/// The tickets of all destinations.
#[derive(Debug, Default)]
pub(crate) struct Shelves {
    of: HashMap<Target, Shelf>,
    /// The number of the last wish.
    wishes: u32,
}

/// Those of one.
#[derive(Debug, Default)]
struct Shelf {
    /// Each with the time until which it is used.
    tickets: VecDeque<(Ticket, Time)>,
    /// When somebody last asked for one.
    used: Time,
    /// The number of the wish that is not answered yet.
    wished: Option<u32>,
    /// Tickets that were taken a short while ago: one may turn out to have opened nothing.
    taken: VecDeque<Ticket>,
    /// When there was last no ticket, or no connection, and why.
    failed: Option<(Time, Reason)>,
}

impl Shelves {
    /// Somebody asks for a ticket to a destination.
    pub(crate) fn take(&mut self, now: Time, target: &Target) -> Option<Ticket> {
        if !self.of.contains_key(target) && self.of.len() >= MOST_TARGETS {
            let oldest = self.of.iter().min_by_key(|(_, own)| own.used);
            if let Some(oldest) = oldest.map(|(target, _)| target.clone()) {
                self.of.remove(&oldest);
            }
        }
        let own = self.of.entry(target.clone()).or_default();
        own.used = now;
        own.drop_old(now);
        let (ticket, _) = own.tickets.pop_front()?;
        own.taken.push_back(ticket);
        if own.taken.len() > 4 * MOST_TICKETS {
            own.taken.pop_front();
        }
        Some(ticket)
    }

    /// The next wish, if one is due.
    pub(crate) fn poll_wish(&mut self, now: Time) -> Option<Wish> {
        let is_due = |own: &mut Shelf| {
            own.drop_old(now);
            own.wished.is_none() && own.used + IN_USE > now && own.tickets.len() <= FEW
        };
        let (target, own) = self.of.iter_mut().find_map(|(target, own)| {
            // What was just denied is denied again, until somebody asks for it anew.
            let is_denied = own.failed.as_ref().is_some_and(|(at, _)| *at > own.used);
            (!is_denied && is_due(own)).then_some((target, own))
        })?;
        self.wishes = self.wishes.wrapping_add(1);
        own.wished = Some(self.wishes);
        let count = u8::try_from(MOST_TICKETS - own.tickets.len()).expect("a few");
        Some(Wish { number: self.wishes, count, target: target.clone() })
    }

    /// Tickets have come.
    pub(crate) fn handle_tickets(&mut self, now: Time, issued: Issued) {
        let Some(own) = self.wished(issued.number) else { return };
        let end = now + Span::from_secs(issued.seconds.into()) - SPARE;
        own.tickets.extend(issued.tickets.into_iter().map(|ticket| (ticket, end)));
    }

    /// There are no tickets for a wish.
    pub(crate) fn handle_denied(&mut self, now: Time, number: u32, reason: Reason) {
        if let Some(own) = self.wished(number) {
            own.failed = Some((now, reason));
        }
    }

    /// A ticket opened no connection.
    pub(crate) fn handle_failed(&mut self, now: Time, ticket: Ticket, reason: Reason) {
        let of_ticket = self.of.values_mut().find(|own| own.taken.contains(&ticket));
        if let Some(own) = of_ticket {
            own.taken.retain(|taken| *taken != ticket);
            own.failed = Some((now, reason));
        }
    }

    /// There is another control connection, and perhaps another relay: older tickets may be of no
    /// use there, and wishes were lost.
    pub(crate) fn handle_connected(&mut self) {
        for own in self.of.values_mut() {
            own.tickets.clear();
            own.wished = None;
        }
    }

    /// Why there was last no ticket, or no connection, since a time.
    pub(crate) fn failure(&self, target: &Target, since: Time) -> Option<&Reason> {
        let (at, reason) = self.of.get(target)?.failed.as_ref()?;
        (*at >= since).then_some(reason)
    }

    fn wished(&mut self, number: u32) -> Option<&mut Shelf> {
        let own = self.of.values_mut().find(|own| own.wished == Some(number))?;
        own.wished = None;
        Some(own)
    }
}

impl Shelf {
    fn drop_old(&mut self, now: Time) {
        self.tickets.retain(|(_, end)| *end > now);
    }
}

#[cfg(test)]
mod tests {
    use reach::parse_target;
    use wire::tunnel::Code;

    use super::*;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    fn target(number: u16) -> Target {
        parse_target(&format!("nas.example:{number}")).unwrap()
    }

    fn issued(wish: &Wish, first: u8) -> Issued {
        let tickets = (0..wish.count).map(|i| Ticket::of_random([first + i; 16])).collect();
        Issued { number: wish.number, seconds: 60, tickets }
    }

    #[test]
    fn eight_are_there_and_four_are_few() {
        let mut shelves = Shelves::default();
        assert_eq!(shelves.take(at(1), &target(1)), None);
        let wish = shelves.poll_wish(at(1)).unwrap();
        assert_eq!((wish.count, shelves.poll_wish(at(1))), (8, None), "one wish at a time");
        shelves.handle_tickets(at(1), issued(&wish, 0));
        let taken: Vec<Ticket> = (0..3).map(|_| shelves.take(at(2), &target(1)).unwrap()).collect();
        assert!(taken[0] != taken[1] && taken[1] != taken[2] && taken[0] != taken[2]);
        assert_eq!(shelves.poll_wish(at(2)), None, "five are left");
        shelves.take(at(2), &target(1)).unwrap();
        let wish = shelves.poll_wish(at(2)).unwrap();
        assert_eq!((wish.count, &wish.target), (4, &target(1)));
        assert_eq!(shelves.take(at(2), &target(2)), None, "they are another destination's");
    }

    #[test]
    fn tickets_are_renewed_in_time_while_they_are_in_use() {
        let mut shelves = Shelves::default();
        shelves.take(at(0), &target(1));
        let wish = shelves.poll_wish(at(0)).unwrap();
        shelves.handle_tickets(at(0), issued(&wish, 0));
        assert_eq!(shelves.poll_wish(at(49)), None);
        let wish = shelves.poll_wish(at(50)).unwrap();
        assert_eq!(wish.count, 8, "those that lapse soon do not count");
        shelves.handle_tickets(at(50), issued(&wish, 100));
        assert_eq!(shelves.poll_wish(at(121)), None, "nobody has asked for two minutes");
        assert_eq!(shelves.take(at(121), &target(1)), None);
        assert!(shelves.poll_wish(at(121)).is_some());
    }

    #[test]
    fn a_failure_is_told_to_who_asked_before() {
        let mut shelves = Shelves::default();
        let reason = |text| Reason::new(Code::Forbidden, text);
        shelves.take(at(1), &target(1));
        let wish = shelves.poll_wish(at(1)).unwrap();
        shelves.handle_denied(at(2), wish.number, reason("no"));
        assert_eq!(shelves.failure(&target(1), at(1)), Some(&reason("no")));
        assert_eq!(shelves.failure(&target(1), at(3)), None, "that was before");
        assert_eq!(shelves.poll_wish(at(3)), None, "the answer would be the same");
        shelves.take(at(4), &target(1));
        let wish = shelves.poll_wish(at(4)).unwrap();
        shelves.handle_tickets(at(4), issued(&wish, 0));
        let ticket = shelves.take(at(5), &target(1)).unwrap();
        shelves.handle_failed(at(6), ticket, reason("refused"));
        shelves.handle_failed(at(7), Ticket::of_random([99; 16]), reason("another's"));
        assert_eq!(shelves.failure(&target(1), at(5)), Some(&reason("refused")));
    }

    #[test]
    fn another_connection_brings_other_tickets() {
        let mut shelves = Shelves::default();
        shelves.take(at(1), &target(1));
        let wish = shelves.poll_wish(at(1)).unwrap();
        shelves.handle_tickets(at(1), issued(&wish, 0));
        shelves.take(at(1), &target(2));
        let lost = shelves.poll_wish(at(1)).unwrap();
        shelves.handle_connected();
        assert_eq!(shelves.take(at(2), &target(1)), None);
        assert!(shelves.poll_wish(at(2)).is_some() && shelves.poll_wish(at(2)).is_some());
        shelves.handle_tickets(at(2), issued(&lost, 0));
        assert_eq!(shelves.take(at(2), &target(2)), None, "that wish was of another connection");
        for number in 1..1_000 {
            shelves.take(at(3), &target(number));
        }
        assert!(shelves.of.len() <= MOST_TARGETS);
    }
}
