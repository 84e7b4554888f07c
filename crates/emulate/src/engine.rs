//! All links of a network together, as a state machine: packets in, packets out, no devices and no
//! clock.

use std::collections::VecDeque;

use link::config::{Carry, Network, Unreachable};
use link::{Counters, Link, Offer, Tally};
use units::{Bytes, Time};

use crate::driver::{Forward, Transmit};
use crate::nat::Nat;
use crate::packet::{self, View};
use crate::router;

/// One end of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) link: usize,
    pub(crate) side: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Near,
    Far,
}

impl Port {
    /// The port's index: near and far of the first link, then of the second, and so on.
    pub(crate) fn index(self) -> usize {
        2 * self.link + usize::from(self.side == Side::Far)
    }

    pub(crate) fn from_index(index: usize) -> Port {
        Port { link: index / 2, side: if index.is_multiple_of(2) { Side::Near } else { Side::Far } }
    }

    pub(crate) fn opposite(self) -> Port {
        let side = if self.side == Side::Near { Side::Far } else { Side::Near };
        Port { side, ..self }
    }
}

/// The network. Its schedule starts with the first packet that an application caused: a SYN, or TCP
/// or UDP payload. Until then, links have their first rate and no blackouts.
#[derive(Debug)]
pub(crate) struct Engine {
    /// By index of the port where packets come in.
    pipes: Vec<Pipe>,
    nats: Vec<Option<Nat>>,
    answers: VecDeque<Transmit>,
    started: Option<Time>,
}

/// One direction of one link.
#[derive(Debug)]
struct Pipe {
    link: Link<Carried>,
    /// The pipe whose `link` the packets go through.
    through: usize,
    carry: Carry,
    unreachable: Option<Unreachable>,
    has_nat: bool,
    tally: PipeTally,
}

#[derive(Clone, Debug)]
struct Carried {
    /// The pipe that it came in by.
    pipe: usize,
    has_payload: bool,
    data: Box<[u8]>,
}

/// Counters of one direction beside the link's own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PipeTally {
    /// Of this direction alone, even if it shares another one's link.
    pub(crate) delivered: Tally,
    pub(crate) dropped_carry: u64,
    pub(crate) dropped_nat: u64,
    pub(crate) dropped_unreachable: u64,
    /// When the first packet with payload came in.
    pub(crate) first_payload: Option<Time>,
    /// When the last packet with payload was due at the other end.
    pub(crate) last_payload: Option<Time>,
}

impl Engine {
    pub(crate) fn new(network: &Network) -> Engine {
        let mut pipes = Vec::new();
        for (index, link) in network.links.iter().enumerate() {
            for (side, direction, name) in [(0, &link.up, "up"), (1, &link.down, "down")] {
                pipes.push(Pipe {
                    link: Link::unstarted(direction.profile.clone(), network.stream(link, name)),
                    through: 2 * link.shares.unwrap_or(index) + side,
                    carry: direction.carry,
                    unreachable: link.unreachable,
                    has_nat: link.nat_idle.is_some(),
                    tally: PipeTally::default(),
                });
            }
        }
        let nats = network.links.iter().map(|link| link.nat_idle.map(Nat::new)).collect();
        Engine { pipes, nats, answers: VecDeque::new(), started: None }
    }

    /// When the schedule started.
    pub(crate) fn started(&self) -> Option<Time> {
        self.started
    }

    /// The counters of the link behind a port: for all packets that came in there or at a port that
    /// shares it.
    pub(crate) fn counters(&self, port: Port) -> &Counters {
        self.pipes[port.index()].link.counters()
    }

    pub(crate) fn tally(&self, port: Port) -> &PipeTally {
        &self.pipes[port.index()].tally
    }

    fn start(&mut self, now: Time) {
        self.started = Some(now);
        for pipe in &mut self.pipes {
            pipe.link.start(now);
        }
    }
}

impl Forward for Engine {
    fn handle_packet(&mut self, now: Time, device: usize, data: &[u8]) {
        let port = Port::from_index(device);
        let view = View::of(data);
        if self.started.is_none() && view.as_ref().is_some_and(View::is_traffic) {
            self.start(now);
        }
        let has_payload = view.as_ref().is_some_and(View::has_payload);
        let pipe = &mut self.pipes[port.index()];
        if has_payload {
            pipe.tally.first_payload.get_or_insert(now);
        }
        if let Some(unreachable) = pipe.unreachable {
            pipe.tally.dropped_unreachable += 1;
            if unreachable == Unreachable::Icmp
                && port.side == Side::Near
                && let Some(answer) = router::host_unreachable(data)
            {
                self.answers.push_back(Transmit { device, at: now, data: answer.into() });
            }
            return;
        }
        let is_carried = match pipe.carry {
            Carry::All => true,
            Carry::NoPayload => !has_payload,
            Carry::Nothing => false,
        };
        if !is_carried {
            pipe.tally.dropped_carry += 1;
            return;
        }
        if pipe.has_nat
            && let (Some(nat), Some(view)) = (&mut self.nats[port.link], &view)
            && !nat.passes(now, view, port.side == Side::Near)
        {
            pipe.tally.dropped_nat += 1;
            return;
        }
        let through = pipe.through;
        let carried = Carried { pipe: port.index(), has_payload, data: data.into() };
        let offer = Offer {
            bytes: Bytes(data.len() as u64),
            is_ecn_capable: wire::ip::is_ecn_capable(data),
            is_scalable: wire::ip::is_scalable(data),
            flow: view.as_ref().map_or(0, View::flow),
        };
        self.pipes[through].link.offer(now, offer, carried);
    }

    fn poll_deadline(&self) -> Option<Time> {
        let answer = self.answers.front().map(|answer| answer.at);
        self.pipes.iter().filter_map(|pipe| pipe.link.poll_deadline()).chain(answer).min()
    }

    /// In order of time within each direction of a link.
    fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        for index in 0..self.pipes.len() {
            let link = &mut self.pipes[index].link;
            if link.poll_deadline().is_none_or(|deadline| deadline > now) {
                continue;
            }
            if let Some(delivery) = link.poll_deliver(now) {
                let Carried { pipe, has_payload, mut data } = delivery.packet;
                if delivery.is_corrupted {
                    packet::corrupt(&mut data);
                }
                if delivery.is_marked {
                    wire::ip::mark(&mut data);
                }
                let tally = &mut self.pipes[pipe].tally;
                tally.delivered.packets += 1;
                tally.delivered.bytes += delivery.bytes;
                if has_payload {
                    tally.last_payload = Some(delivery.at);
                }
                return Some(Transmit {
                    device: Port::from_index(pipe).opposite().index(),
                    at: delivery.at,
                    data,
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::{FAR, NEAR, tcp, udp};
    use units::Span;

    const UP: Port = Port { link: 0, side: Side::Near };
    const DOWN: Port = Port { link: 0, side: Side::Far };

    fn engine(keys: &str) -> Engine {
        let link = |name: &str, keys: &str| {
            format!(
                "[[link]]\nname = '{name}'\nrate = '12 Mbit/s'\ndelay = '10 ms'\nqueue = '64 \
                 KiB'\n{keys}\n"
            )
        };
        let text =
            format!("name = 'test'\n{}{}", link("first", keys), link("second", "shares = 'first'"));
        Engine::new(&Network::parse(&text, "test", None).expect("a network"))
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn drain(engine: &mut Engine) -> Vec<(u64, Port)> {
        std::iter::from_fn(|| engine.poll_transmit(at(1_000_000)))
            .map(|transmit| {
                let port = Port::from_index(transmit.device);
                (transmit.at.since(Time::ZERO).as_millis(), port)
            })
            .collect()
    }

    #[test]
    fn a_packet_crosses() {
        let mut engine = engine("");
        engine.handle_packet(at(5), UP.index(), &udp((NEAR, 1), (FAR, 2), &[0; 1_472]));
        assert_eq!(engine.poll_deadline(), Some(at(16)));
        assert_eq!(drain(&mut engine), [(16, DOWN)]);
        assert_eq!(engine.tally(UP).delivered, Tally { packets: 1, bytes: Bytes(1_500) });
    }

    #[test]
    fn the_schedule_starts_with_traffic() {
        let mut engine = engine("blackout = [{ from = '1 s', to = '2 s' }]");
        engine.handle_packet(at(5_000), UP.index(), &tcp((NEAR, 1), (FAR, 2), false, b""));
        assert_eq!((engine.started(), drain(&mut engine).len()), (None, 1), "a bare ACK is none");
        engine.handle_packet(at(1_000_000), UP.index(), &tcp((NEAR, 1), (FAR, 2), true, b""));
        assert_eq!(engine.started(), Some(at(1_000_000)));
        engine.handle_packet(at(1_001_500), UP.index(), &udp((NEAR, 1), (FAR, 2), b"x"));
        assert_eq!(engine.counters(UP).dropped_blackout, 1);
    }

    #[test]
    fn a_shared_bottleneck_is_one() {
        let mut engine = engine("");
        let packet = udp((NEAR, 1), (FAR, 2), &[0; 1_472]);
        engine.handle_packet(at(0), UP.index(), &packet);
        engine.handle_packet(at(0), Port { link: 1, side: Side::Near }.index(), &packet);
        assert_eq!(drain(&mut engine), [(11, DOWN), (12, Port { link: 1, side: Side::Far })]);
    }

    #[test]
    fn no_payload_lets_handshakes_pass() {
        let mut engine = engine("up = { carry = 'no-payload' }");
        engine.handle_packet(at(0), UP.index(), &tcp((NEAR, 1), (FAR, 2), true, b""));
        engine.handle_packet(at(0), UP.index(), &tcp((NEAR, 1), (FAR, 2), false, b"data"));
        engine.handle_packet(at(0), DOWN.index(), &tcp((FAR, 2), (NEAR, 1), false, b"data"));
        assert_eq!(drain(&mut engine).len(), 2);
        assert_eq!(engine.tally(UP).dropped_carry, 1);
    }

    #[test]
    fn an_unreachable_address_answers_or_not() {
        let packet = tcp((NEAR, 1), (FAR, 2), true, b"");
        for (keys, answers) in [("unreachable = 'icmp'", 1), ("unreachable = 'silent'", 0)] {
            let mut engine = engine(keys);
            engine.handle_packet(at(3), UP.index(), &packet);
            assert_eq!(drain(&mut engine), vec![(3, UP); answers]);
            assert_eq!(engine.tally(UP).dropped_unreachable, 1);
        }
    }

    #[test]
    fn a_full_queue_marks() {
        let mut engine = engine(
            "aqm = { kind = 'red', min = 1, max = 100, weight = 1, probability = 1, ecn = true }",
        );
        let mut capable = udp((NEAR, 1), (FAR, 2), &[0; 1_000]);
        capable[1] = 0b10;
        for _ in 0..30 {
            engine.handle_packet(at(0), UP.index(), &capable);
        }
        let sent: Vec<Transmit> =
            std::iter::from_fn(|| engine.poll_transmit(at(1_000_000))).collect();
        assert_eq!(sent.len(), 30);
        let marked = sent.iter().filter(|transmit| transmit.data[1] == 0b11).count();
        assert!(marked > 0);
        assert_eq!(engine.counters(UP).marked, marked as u64);
    }

    #[test]
    fn a_step_marks_what_waited_longer() {
        let mut engine = engine("aqm = { kind = 'step', threshold = '3 ms' }");
        let mut capable = udp((NEAR, 1), (FAR, 2), &[0; 1_472]);
        capable[1] = 0b10;
        for _ in 0..8 {
            engine.handle_packet(at(0), UP.index(), &capable);
        }
        let marked: Vec<bool> = std::iter::from_fn(|| engine.poll_transmit(at(1_000_000)))
            .map(|transmit| transmit.data[1] == 0b11)
            .collect();
        // A packet takes 1 ms.
        assert_eq!(marked, [false, false, false, false, true, true, true, true]);
    }

    #[test]
    fn a_schedule_changes_delay_and_loss_and_keeps_the_order() {
        let mut engine = engine(
            "schedule = [{ at = '1 s', delay = '2 ms' }, \
             { at = '2 s', loss = 1, delay = '30 ms' }]",
        );
        let packet = udp((NEAR, 1), (FAR, 2), &[0; 1_472]);
        for millis in [0, 995, 1_000, 1_100, 2_000] {
            engine.handle_packet(at(millis), UP.index(), &packet);
        }
        let arrivals: Vec<u64> = drain(&mut engine).into_iter().map(|(at, _)| at).collect();
        assert_eq!(arrivals, [11, 1_006, 1_006, 1_103]);
        assert_eq!(engine.counters(UP).dropped_loss, 1);
    }

    #[test]
    fn a_nat_forgets() {
        let mut engine = engine("nat_idle = '2 s'");
        engine.handle_packet(at(0), UP.index(), &tcp((NEAR, 1), (FAR, 2), true, b""));
        engine.handle_packet(at(1_000), UP.index(), &tcp((NEAR, 1), (FAR, 2), false, b"x"));
        engine.handle_packet(at(4_000), UP.index(), &tcp((NEAR, 1), (FAR, 2), false, b"x"));
        assert_eq!(engine.tally(UP).dropped_nat, 1);
    }
}
