//! What stands between a socket and a relay, by RFC 4787: a core.
//!
//! It asks the relay's port, which answers from there and from another one: what filters and lets
//! in only the port that was asked holds the second answer up. Then it asks the other port: what
//! translates and has another port for each destination shows there under another address.

use std::net::SocketAddr;

use peer::tags::TagKey;
use units::{Span, Time};
use wire::bind::{BIND, BIND_TAG, BindDatagram, BindKind, COOKIE};

/// The wait before a question is repeated; it doubles.
const FIRST_WAIT: Span = Span::from_millis(200);
/// Questions to one port that get no answer.
const IN_VAIN: u32 = 5;
/// Questions after which what did not come from the other port does not get through.
const TIMES: u32 = 3;

/// The number of a route in questions to the relay's port, and so in the answers from both.
const TO_PORT: u8 = 0;
/// That in questions to the other port.
const TO_OTHER: u8 = 1;

/// The port that a translator has outside for one local port (RFC 4787, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// The address is not translated.
    None,
    /// It is the same for all ports of a host, and, where several relays were asked, for all hosts.
    Same,
    /// Each destination sees another one: the translator is *symmetric*.
    Different,
    /// There was no answer from another port or another relay.
    Unknown,
}

/// What is let in (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtering {
    /// All ports of a host to which something was sent.
    Hosts,
    /// Only those to which something was sent.
    Ports,
    /// The relay has no other port.
    Unknown,
}

/// What stands between a local address and a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translator {
    /// The address outside.
    pub outside: SocketAddr,
    /// What becomes of ports.
    pub mapping: Mapping,
    /// What is let in.
    pub filtering: Filtering,
}

/// The questions from one socket to one relay.
#[derive(Debug)]
pub struct TranslatorTest {
    id: u64,
    tags: TagKey,
    /// The relay's port.
    relay: SocketAddr,
    /// The cookie that the socket has there; and at the other port.
    cookies: [[u8; COOKIE]; 2],
    /// What the relay said at its port; and at the other one.
    told: [Option<SeenFrom>; 2],
    /// Whether the other port was heard before it was asked.
    is_heard: bool,
    /// Whether only the relay's port is asked.
    is_short: bool,
    step: TestStep,
    next_at: Time,
    asked: u32,
}

#[derive(Clone, Copy, Debug)]
struct SeenFrom {
    /// `None` with IPv6.
    seen: Option<SocketAddr>,
    other: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestStep {
    /// The relay's port is asked, until the other one is heard too.
    Port,
    /// The other port is asked.
    Other,
    Over,
}

impl TranslatorTest {
    /// Questions under an association with that number and secret.
    #[must_use]
    pub fn begin(now: Time, (id, secret): (u64, &[u8]), relay: SocketAddr) -> TranslatorTest {
        TranslatorTest {
            id,
            tags: TagKey::new(secret),
            relay,
            cookies: [[0; COOKIE]; 2],
            told: [None; 2],
            is_heard: false,
            is_short: false,
            step: TestStep::Port,
            next_at: now,
            asked: 0,
        }
    }

    /// The same, until the relay has said which address it sees.
    #[must_use]
    pub fn begin_short(now: Time, grant: (u64, &[u8]), relay: SocketAddr) -> TranslatorTest {
        TranslatorTest { is_short: true, ..TranslatorTest::begin(now, grant, relay) }
    }

    /// A datagram has arrived.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        let Ok(answer) = BindDatagram::parse(datagram) else { return };
        let is_own = answer.association == self.id && self.tags.has_tagged(&answer);
        // It may be from the other port before that is known.
        if !is_own || from.ip() != self.relay.ip() {
            return;
        }
        let is_other = from.port() != self.relay.port();
        match answer.kind {
            BindKind::Challenge => {
                let cookie = &mut self.cookies[usize::from(is_other)];
                if *cookie != answer.cookie && is_other == (self.step == TestStep::Other) {
                    *cookie = answer.cookie;
                    self.next_at = now;
                }
            }
            // Once the other port was asked itself, nothing holds this up.
            BindKind::Told if is_other && answer.route == TO_PORT => {
                self.is_heard |= self.step == TestStep::Port;
            }
            BindKind::Told if is_other == (answer.route == TO_OTHER) => {
                let (seen, other) = (answer.seen_at(), answer.other_port());
                self.told[usize::from(is_other)] = Some(SeenFrom { seen, other });
            }
            _ => return,
        }
        self.advance(now, false);
    }

    /// The next question, and where it goes.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(SocketAddr, [u8; BIND])> {
        if self.step == TestStep::Over || self.next_at > now {
            return None;
        }
        self.advance(now, true);
        let is_other = match self.step {
            TestStep::Over => return None,
            TestStep::Port => false,
            TestStep::Other => true,
        };
        self.next_at = now + FIRST_WAIT * (1 << self.asked.min(8));
        self.asked += 1;
        let to = if is_other { self.other()? } else { self.relay };
        let (kind, cookie) = (BindKind::Ask, self.cookies[usize::from(is_other)]);
        let route = if is_other { TO_OTHER } else { TO_PORT };
        let (association, tag) = (self.id, [0; BIND_TAG]);
        let asks = BindDatagram { kind, association, route, cookie, tag };
        Some((to, self.tags.tagged(asks).octets()))
    }

    /// When there is something to do; `None`: it is over.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        (self.step != TestStep::Over).then_some(self.next_at)
    }

    /// Goes on once there is nothing more to wait for; what is due `is_late`.
    fn advance(&mut self, now: Time, is_late: bool) {
        let in_vain = is_late && self.asked >= IN_VAIN;
        let next = match (self.step, self.told) {
            (TestStep::Port, [None, _]) | (TestStep::Other, [_, None]) if in_vain => TestStep::Over,
            (TestStep::Port, [Some(_), _]) if self.is_short || self.other().is_none() => {
                TestStep::Over
            }
            (TestStep::Port, [Some(_), _]) if self.is_heard || is_late && self.asked >= TIMES => {
                // The cookie is good for the address, whichever port it is sent to.
                self.cookies[1] = self.cookies[0];
                TestStep::Other
            }
            (TestStep::Other, [_, Some(_)]) => TestStep::Over,
            (same, _) => same,
        };
        if next != self.step {
            (self.step, self.asked, self.next_at) = (next, 0, now);
        }
    }

    fn other(&self) -> Option<SocketAddr> {
        let (mut other, port) = (self.relay, self.told[0]?.other?);
        other.set_port(port);
        Some(other)
    }

    /// What was found for a socket with this local address; `None` if the relay did not answer, as
    /// one of an earlier version does not.
    #[must_use]
    pub fn found(&self, local: SocketAddr) -> Option<Translator> {
        let at_port = self.told[0]?;
        let outside = at_port.seen.unwrap_or(local);
        let mapping = match self.told[1] {
            _ if outside == local => Mapping::None,
            Some(at_other) if at_other.seen == at_port.seen => Mapping::Same,
            Some(_) => Mapping::Different,
            None => Mapping::Unknown,
        };
        let filtering = match self.other() {
            None => Filtering::Unknown,
            Some(_) if self.is_heard => Filtering::Hosts,
            Some(_) => Filtering::Ports,
        };
        Some(Translator { outside, mapping, filtering })
    }
}

impl Translator {
    /// The same after another relay has seen the socket at this address.
    #[must_use]
    pub fn seen_elsewhere(self, outside: SocketAddr) -> Translator {
        let mapping = match self.mapping {
            Mapping::Same | Mapping::Unknown if outside == self.outside => Mapping::Same,
            Mapping::Same | Mapping::Unknown => Mapping::Different,
            known => known,
        };
        Translator { mapping, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::{DatagramPlace, DatagramsTo, Labels, Step};

    const SECRET: [u8; 32] = [9; 32];
    const RELAY: &str = "192.0.2.1:7707";
    const OTHER: u16 = 40_000;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// What stands in between.
    #[derive(Clone, Copy)]
    struct Nat {
        /// Another port outside for each destination.
        is_symmetric: bool,
        /// Only ports that were asked are let in.
        is_by_port: bool,
        /// The relay's other port gets nothing.
        is_shut: bool,
        /// Each that many datagrams is lost; 0: none.
        loses: usize,
    }

    const OPEN: Nat = Nat { is_symmetric: false, is_by_port: false, is_shut: false, loses: 0 };

    /// Runs a test to its end, in virtual time; what was found, and how long it took.
    fn run(nat: Nat, others: Vec<u16>, is_short: bool) -> (Option<Translator>, Span, usize) {
        let has_other = !others.is_empty();
        let mut relay = Labels::new(&[1; 32]).beside(others);
        relay.associate(('a', 'a'), (7, &SECRET), DatagramsTo::Nowhere).unwrap();
        let grant = (7, &SECRET[..]);
        let begin = if is_short { TranslatorTest::begin_short } else { TranslatorTest::begin };
        let mut test = begin(Time::ZERO, grant, address(RELAY));
        let (mut now, mut count, mut asked) = (Time::ZERO, 0, Vec::new());
        let is_lost = |count: &mut usize| {
            *count += 1;
            nat.loses > 0 && count.is_multiple_of(nat.loses)
        };
        while let Some(at) = test.poll_deadline() {
            now = now.max(at);
            let Some((to, datagram)) = test.poll_transmit(now) else { continue };
            asked.push(to.port());
            let is_other = to.port() != address(RELAY).port();
            if is_lost(&mut count) || nat.is_shut && is_other {
                continue;
            }
            let outside = if nat.is_symmetric && is_other { 2 } else { 1 };
            let from = SocketAddr::new(address("198.51.100.1:0").ip(), outside);
            let from = DatagramPlace { address: from, local: None, socket: 0 };
            let step = if is_other {
                relay.handle_other(now, from, &datagram)
            } else {
                relay.handle_datagram(now, from, &datagram)
            };
            let answers = match step {
                Step::Tell(answer) if !is_other && has_other => {
                    vec![(to, answer), (SocketAddr::new(to.ip(), OTHER), answer)]
                }
                Step::Answer(answer) | Step::Tell(answer) => vec![(to, answer)],
                _ => vec![],
            };
            for (from, answer) in answers {
                let passes = !nat.is_by_port || asked.contains(&from.port());
                if passes && !is_lost(&mut count) {
                    test.handle_datagram(now + Span::from_millis(20), from, &answer);
                }
            }
        }
        (test.found(address("10.0.0.2:1")), now - Time::ZERO, asked.len())
    }

    #[test]
    fn each_kind_is_found_also_where_some_datagrams_are_lost() {
        for loses in [0, 7, 5] {
            for is_symmetric in [false, true] {
                for is_by_port in [false, true] {
                    let nat = Nat { is_symmetric, is_by_port, loses, ..OPEN };
                    let (found, took, _) = run(nat, vec![OTHER], false);
                    let found = found.unwrap();
                    let mapping = if is_symmetric { Mapping::Different } else { Mapping::Same };
                    let filtering = if is_by_port { Filtering::Ports } else { Filtering::Hosts };
                    assert_eq!((found.mapping, found.filtering), (mapping, filtering), "{loses}");
                    assert_eq!(found.outside, address("198.51.100.1:1"));
                    assert!(took < Span::from_secs(5), "{took:?}");
                }
            }
        }
    }

    #[test]
    fn a_relay_that_says_less_is_believed_less() {
        let (found, took, asked) = run(Nat { is_shut: true, ..OPEN }, vec![OTHER], false);
        let found = found.unwrap();
        assert_eq!((found.mapping, found.filtering), (Mapping::Unknown, Filtering::Hosts));
        assert!(took < Span::from_secs(10) && asked < 10, "{took:?}, {asked}");
        for (outside, mapping) in
            [("198.51.100.1:1", Mapping::Same), ("198.51.100.1:9", Mapping::Different)]
        {
            assert_eq!(found.seen_elsewhere(address(outside)).mapping, mapping);
        }
        let (found, ..) = run(OPEN, Vec::new(), false);
        let found = found.unwrap();
        assert_eq!((found.mapping, found.filtering), (Mapping::Unknown, Filtering::Unknown));
        // A relay that is silent, and one of an earlier version.
        let mut test = TranslatorTest::begin(Time::ZERO, (7, &SECRET), address(RELAY));
        let mut sent = 0;
        while let Some(at) = test.poll_deadline() {
            sent += usize::from(test.poll_transmit(at).is_some());
        }
        assert_eq!((sent, test.found(address("10.0.0.2:1"))), (5, None));
    }

    #[test]
    fn a_short_test_asks_for_the_address_alone() {
        let (found, took, asked) = run(OPEN, vec![OTHER], true);
        assert_eq!(found.unwrap().outside, address("198.51.100.1:1"));
        assert!(took < Span::from_millis(100) && asked == 2, "{took:?}, {asked}");
    }

    #[test]
    fn what_others_say_is_not_believed() {
        let mut test = TranslatorTest::begin(Time::ZERO, (7, &SECRET), address(RELAY));
        test.poll_transmit(Time::ZERO).unwrap();
        let cookie = BindDatagram::told_cookie(address("203.0.113.9:5"), OTHER);
        let (kind, tag) = (BindKind::Told, [0; BIND_TAG]);
        let forged = BindDatagram { kind, association: 7, route: 0, cookie, tag };
        let of_another = TagKey::new(&[8; 32]).tagged(forged);
        let own = TagKey::new(&SECRET).tagged(forged);
        test.handle_datagram(Time::ZERO, address(RELAY), &forged.octets());
        test.handle_datagram(Time::ZERO, address(RELAY), &of_another.octets());
        test.handle_datagram(Time::ZERO, address("203.0.113.9:7707"), &own.octets());
        assert_eq!(test.found(address("10.0.0.2:1")), None);
        test.handle_datagram(Time::ZERO, address(RELAY), &own.octets());
        assert!(test.found(address("10.0.0.2:1")).is_some());
    }
}
