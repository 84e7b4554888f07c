//! A NAT that expires flows: packets of a flow that was idle for too long are dropped.

use std::collections::HashMap;
use std::net::SocketAddr;

use units::{Span, Time};

use crate::packet::{Transport, View};

/// The flow table of a NAT whose inside is the near side. It expires flows and translates no
/// addresses.
///
/// A TCP flow begins with a SYN from inside, a UDP flow with any datagram from inside. Every packet
/// that passes keeps its flow alive. Other packets are dropped without an answer.
#[derive(Clone, Debug)]
pub(crate) struct Nat {
    idle: Span,
    last_seen: HashMap<FlowKey, Time>,
}

/// The protocol and the addresses of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FlowKey {
    is_tcp: bool,
    inside: SocketAddr,
    outside: SocketAddr,
}

impl Nat {
    pub(crate) fn new(idle: Span) -> Nat {
        Nat { idle, last_seen: HashMap::new() }
    }

    /// Whether the packet passes at `now`. If it does, its flow stays alive.
    pub(crate) fn passes(&mut self, now: Time, view: &View, is_outbound: bool) -> bool {
        let (inside, outside) = if is_outbound {
            (view.source, view.destination)
        } else {
            (view.destination, view.source)
        };
        let flow = FlowKey { is_tcp: view.transport != Transport::Udp, inside, outside };
        let is_alive = self.last_seen.get(&flow).is_some_and(|last| now - *last <= self.idle);
        let opens =
            is_outbound && matches!(view.transport, Transport::Udp | Transport::Tcp { syn: true });
        if is_alive || opens {
            self.last_seen.insert(flow, now);
        }
        is_alive || opens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::{FAR, NEAR, tcp, udp};

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn view(packet: &[u8]) -> View {
        View::of(packet).expect("TCP or UDP")
    }

    #[test]
    fn a_flow_lives_while_it_speaks() {
        let mut nat = Nat::new(Span::from_secs(2));
        let out = view(&tcp((NEAR, 5), (FAR, 80), false, b"x"));
        let back = view(&tcp((FAR, 80), (NEAR, 5), false, b"x"));
        assert!(!nat.passes(at(0), &out, true), "no SYN yet");
        assert!(!nat.passes(at(0), &back, false));
        assert!(nat.passes(at(10), &view(&tcp((NEAR, 5), (FAR, 80), true, b"")), true));
        assert!(nat.passes(at(1_900), &back, false));
        assert!(nat.passes(at(3_900), &out, true), "2 s of silence are allowed");
        assert!(!nat.passes(at(5_901), &out, true), "more are not");
        assert!(!nat.passes(at(5_902), &back, false));
        assert!(
            nat.passes(at(6_000), &view(&tcp((NEAR, 5), (FAR, 80), true, b"")), true),
            "a new SYN opens it again"
        );
    }

    #[test]
    fn flows_are_apart() {
        let mut nat = Nat::new(Span::from_secs(2));
        assert!(nat.passes(at(0), &view(&tcp((NEAR, 5), (FAR, 80), true, b"")), true));
        assert!(!nat.passes(at(1), &view(&tcp((NEAR, 6), (FAR, 80), false, b"x")), true));
        assert!(!nat.passes(at(1), &view(&udp((FAR, 80), (NEAR, 5), b"x")), false));
    }

    #[test]
    fn udp_opens_from_inside_only() {
        let mut nat = Nat::new(Span::from_secs(2));
        assert!(!nat.passes(at(0), &view(&udp((FAR, 53), (NEAR, 5), b"x")), false));
        assert!(nat.passes(at(0), &view(&udp((NEAR, 5), (FAR, 53), b"x")), true));
        assert!(nat.passes(at(1), &view(&udp((FAR, 53), (NEAR, 5), b"x")), false));
    }
}
