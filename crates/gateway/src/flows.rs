//! The TCP connections of one site: their numbers, and what their SYNs said.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::hmac;
use harp::{Flow, Scale};
use units::{Bytes, Rate, Span, Time};
use wire::gateway::SALT;
use wire::tcp::{Flags, Meta};

/// The connections that are remembered of a site; others take the route without gateways.
pub(crate) const MOST_FLOWS: usize = 16_384;
/// A connection without segments for this long is forgotten: the kernel knows what its SYNs said.
const IDLE: Span = Span::from_secs(300);
/// A connection that was reset, or of which both hosts have ended, is forgotten after this.
const LINGER: Span = Span::from_secs(10);
/// The time between two searches for connections to forget.
const SWEEP: Span = Span::from_secs(1);

/// The ends of a connection: the host on this side, and the one at the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowEnds {
    pub(crate) near: SocketAddr,
    pub(crate) far: SocketAddr,
}

/// What is known of a connection.
#[derive(Clone, Debug)]
pub(crate) struct FlowState {
    /// What the SYNs said: that of the host on this side first.
    pub(crate) scales: [Scale; 2],
    /// Octets of packets from this side, and from the site.
    pub(crate) octets: [u64; 2],
    /// Its number over the present connection of the gateways; `None`: another flow has it.
    number: Option<Flow>,
    /// When it was seen first.
    pub(crate) began: Time,
    recent: Recent,
    seen_at: Time,
    /// The hosts that have ended.
    ended: [bool; 2],
    /// Whether the kernel was asked for what its SYNs said.
    pub(crate) was_asked: bool,
}

/// All connections with a site.
#[derive(Debug)]
pub(crate) struct Flows {
    states: HashMap<FlowEnds, FlowState>,
    numbers: HashMap<Flow, FlowEnds>,
    /// By it both gateways number connections alike, and nobody else can tell which collide.
    key: hmac::Key,
    swept_at: Time,
}

impl Flows {
    pub(crate) fn new() -> Flows {
        Flows {
            states: HashMap::new(),
            numbers: HashMap::new(),
            key: key(&[0; SALT], &[0; SALT]),
            swept_at: Time::ZERO,
        }
    }

    /// The gateways have connected anew: connections get other numbers. The salt of the side that
    /// dialed comes first.
    pub(crate) fn renumber(&mut self, dialing: &[u8; SALT], listening: &[u8; SALT]) {
        self.key = key(dialing, listening);
        self.numbers.clear();
        let Flows { states, numbers, key, .. } = self;
        for (ends, state) in states {
            state.number = claim(numbers, key, *ends);
        }
    }

    /// Notes a segment of a connection, from this side (0) or the site (1), which may be its first.
    /// `None`: there is no room, or another flow has its number.
    pub(crate) fn note(
        &mut self,
        now: Time,
        ends: FlowEnds,
        side: usize,
        meta: &Meta,
        octets: usize,
    ) -> Option<(Flow, &mut FlowState)> {
        if !self.states.contains_key(&ends) {
            if self.states.len() >= MOST_FLOWS {
                self.sweep(now);
            }
            if self.states.len() >= MOST_FLOWS {
                return None;
            }
            let number = claim(&mut self.numbers, &self.key, ends);
            let state = FlowState {
                scales: [Scale::Unseen; 2],
                octets: [0; 2],
                number,
                began: now,
                recent: Recent::default(),
                seen_at: now,
                ended: [false; 2],
                was_asked: false,
            };
            self.states.insert(ends, state);
        }
        let state = self.states.get_mut(&ends)?;
        state.seen_at = now;
        state.octets[side] += octets as u64;
        state.recent.note(now, side, octets as u64);
        if meta.flags.has(Flags::SYN) {
            if !meta.flags.has(Flags::ACK) {
                state.scales = [Scale::Unseen; 2];
            }
            state.scales[side] = meta.scale.map_or(Scale::Absent, Scale::Shift);
            state.ended = [false; 2];
        }
        if meta.flags.has(Flags::FIN) {
            state.ended[side] = true;
        }
        if meta.flags.has(Flags::RST) {
            state.ended = [true; 2];
        }
        Some((state.number?, state))
    }

    /// All connections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&FlowEnds, &FlowState)> {
        self.states.iter()
    }

    /// Forgets connections that are over.
    fn sweep(&mut self, now: Time) {
        if now < self.swept_at + SWEEP {
            return;
        }
        self.swept_at = now;
        let Flows { states, numbers, .. } = self;
        states.retain(|ends, state| {
            let stays = !state.is_over(now) && now < state.seen_at + IDLE;
            if !stays
                && let Some(number) = state.number
                && numbers.get(&number) == Some(ends)
            {
                numbers.remove(&number);
            }
            stays
        });
    }
}

/// Octets from this side and from the site in a second of the clock, and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    second: u64,
    octets: [u64; 2],
    before: [u64; 2],
}

impl Recent {
    fn turn(&mut self, now: Time) {
        let second = (now - Time::ZERO).as_millis() / 1_000;
        if second == self.second {
            return;
        }
        self.before = if second == self.second + 1 { self.octets } else { [0; 2] };
        (self.second, self.octets) = (second, [0; 2]);
    }

    fn note(&mut self, now: Time, side: usize, octets: u64) {
        self.turn(now);
        self.octets[side] += octets;
    }
}

impl FlowState {
    /// Whether it was reset, or both hosts have ended, some time ago.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.ended == [true; 2] && now >= self.seen_at + LINGER
    }

    /// The rates of packets from this side, and from the site, in the last whole second.
    pub(crate) fn rates(&self, now: Time) -> [Rate; 2] {
        let mut recent = self.recent;
        recent.turn(now);
        recent.before.map(|octets| Bytes(octets) / Span::from_secs(1))
    }

    /// Its number over the present connection of the gateways.
    pub(crate) fn number(&self) -> Option<Flow> {
        self.number
    }
}

/// Takes the number of a connection, unless another one has it.
fn claim(numbers: &mut HashMap<Flow, FlowEnds>, key: &hmac::Key, ends: FlowEnds) -> Option<Flow> {
    let number = number(key, ends);
    (*numbers.entry(number).or_insert(ends) == ends).then_some(number)
}

fn key(dialing: &[u8; SALT], listening: &[u8; SALT]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &[&dialing[..], listening].concat())
}

/// The number of a connection: the same at both gateways, whichever side is near.
fn number(key: &hmac::Key, FlowEnds { near, far }: FlowEnds) -> Flow {
    let mut octets = Vec::with_capacity(36);
    for end in [near.min(far), near.max(far)] {
        match end.ip() {
            IpAddr::V4(address) => octets.extend(address.octets()),
            IpAddr::V6(address) => octets.extend(address.octets()),
        }
        octets.extend(end.port().to_be_bytes());
    }
    let tag = hmac::sign(key, &octets);
    let first = tag.as_ref().first_chunk().expect("it has 32 octets");
    Flow::from_be_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> FlowEnds {
        FlowEnds {
            near: SocketAddr::new([10, 1, 0, 2].into(), port),
            far: SocketAddr::new([10, 2, 0, 2].into(), 873),
        }
    }

    fn turned(FlowEnds { near, far }: FlowEnds) -> FlowEnds {
        FlowEnds { near: far, far: near }
    }

    const DATA: Meta =
        Meta { seq: 1, ack: 1, window: 500, len: 100, flags: Flags::ACK, scale: None, mss: None };

    #[test]
    fn both_gateways_number_alike_and_anew_with_each_connection() {
        let (mut near, mut far) = (Flows::new(), Flows::new());
        let mut numbers = Vec::new();
        for salt in [1, 2] {
            near.renumber(&[salt; SALT], &[9; SALT]);
            far.renumber(&[salt; SALT], &[9; SALT]);
            let (own, _) = near.note(Time::ZERO, ends(1), 0, &DATA, 140).expect("there is room");
            let (other, _) =
                far.note(Time::ZERO, turned(ends(1)), 1, &DATA, 140).expect("there is room");
            assert_eq!(own, other);
            numbers.push(own);
        }
        assert_ne!(numbers[0], numbers[1]);
    }

    #[test]
    fn rates_are_those_of_the_last_whole_second() {
        let mut flows = Flows::new();
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        for (millis, side) in [(100, 0), (900, 0), (1_200, 1)] {
            flows.note(at(millis), ends(1), side, &DATA, 500).expect("there is room");
        }
        let (_, state) = flows.iter().next().expect("it is known");
        let none = Rate::ZERO;
        assert_eq!(state.rates(at(1_300)), [Rate::kbit(8), none]);
        assert_eq!(state.rates(at(2_000)), [none, Rate::kbit(4)]);
        assert_eq!(state.rates(at(3_000)), [none, none]);
        assert_eq!(state.began, at(100));
    }

    #[test]
    fn a_flow_is_over_a_while_after_both_have_ended() {
        let mut flows = Flows::new();
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        let end = Meta { flags: Flags::FIN.with(Flags::ACK), len: 0, ..DATA };
        let is_over = |flows: &Flows, secs| flows.iter().all(|(_, state)| state.is_over(at(secs)));
        flows.note(at(0), ends(1), 0, &end, 40).expect("there is room");
        assert!(!is_over(&flows, 100), "one host may go on");
        flows.note(at(100), ends(1), 1, &end, 40).expect("there is room");
        assert!(!is_over(&flows, 109) && is_over(&flows, 110));
    }

    #[test]
    fn a_flow_whose_number_is_taken_has_none() {
        let mut flows = Flows::new();
        let number = number(&flows.key, ends(1));
        flows.numbers.insert(number, ends(2));
        assert!(flows.note(Time::ZERO, ends(1), 0, &DATA, 140).is_none());
        assert!(flows.note(Time::ZERO, ends(3), 0, &DATA, 140).is_some());
    }

    #[test]
    fn what_syns_said_is_remembered_until_the_next_ones() {
        let mut flows = Flows::new();
        let syn = Meta { flags: Flags::SYN, scale: Some(7), len: 0, ..DATA };
        let answer = Meta { flags: Flags::SYN.with(Flags::ACK), scale: None, ..syn };
        let (now, at) = (Time::ZERO, ends(1));
        let scales = |flows: &mut Flows, side, meta: &Meta| {
            flows.note(now, at, side, meta, 40).expect("there is room").1.scales
        };
        assert_eq!(scales(&mut flows, 0, &syn), [Scale::Shift(7), Scale::Unseen]);
        let both = [Scale::Shift(7), Scale::Absent];
        assert_eq!(scales(&mut flows, 1, &answer), both);
        flows.renumber(&[3; SALT], &[4; SALT]);
        assert_eq!(scales(&mut flows, 0, &DATA), both);
        // Another connection between the same ends.
        assert_eq!(scales(&mut flows, 1, &syn), [Scale::Unseen, Scale::Shift(7)]);
    }

    #[test]
    fn connections_beyond_the_bound_have_no_place_until_others_are_over() {
        let mut flows = Flows::new();
        let mut now = Time::ZERO + SWEEP;
        let at = |number: usize| {
            let [.., high, low] = number.to_be_bytes();
            FlowEnds { near: SocketAddr::new([10, 1, high, low].into(), 7), ..ends(1) }
        };
        for number in 0..MOST_FLOWS {
            let _ = flows.note(now, at(number), 0, &DATA, 140);
        }
        assert_eq!(flows.states.len(), MOST_FLOWS);
        assert!(flows.note(now, ends(9), 0, &DATA, 140).is_none());
        assert!(flows.note(now, at(5), 0, &DATA, 140).is_some(), "known ones stay");
        let reset = Meta { flags: Flags::RST, len: 0, ..DATA };
        flows.note(now, at(7), 0, &reset, 40);
        now += LINGER;
        assert!(flows.note(now, ends(9), 0, &DATA, 140).is_some());
        assert_eq!(flows.states.len(), MOST_FLOWS);
    }
}
