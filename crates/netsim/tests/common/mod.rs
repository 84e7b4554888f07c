//! A packet and a host for tests: the host sends the packets of a list at given times, and records
//! received packets.
#![allow(dead_code, reason = "each test file uses some of it")]

use netsim::{Host, HostId, Out, Packet, Route, Sim, Topology};
use units::{Bytes, Seed, Time};

/// A packet with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) size: u64,
    /// The receiver sends it back along this route.
    pub(crate) answer: Option<Route>,
}

impl Packet for Numbered {
    fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    fn digest(&self) -> u64 {
        self.number
    }
}

/// Sends the packets of its plan in order of time, and logs received packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) sent: usize,
    pub(crate) heard: Vec<(u64, u64)>,
}

impl Host<Numbered> for Planned {
    fn handle_packet(&mut self, now: Time, packet: Numbered, out: &mut Out<Numbered>) {
        self.heard.push((now.as_nanos(), packet.number));
        if let Some(route) = packet.answer {
            out.send(route, Numbered { answer: None, ..packet });
        }
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.plan.get(self.sent).map(|(at, _, _)| *at)
    }

    fn handle_deadline(&mut self, now: Time, out: &mut Out<Numbered>) {
        while let Some((_, route, packet)) =
            self.plan.get(self.sent).filter(|(at, _, _)| *at <= now)
        {
            out.send(*route, *packet);
            self.sent += 1;
        }
    }
}

pub(crate) fn ns(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

pub(crate) fn packet(number: u64, size: u64) -> Numbered {
    Numbered { number, size, answer: None }
}

/// The packets that a host sends, with their times and routes.
pub(crate) type Plan = Vec<(Time, Route, Numbered)>;

/// A simulation in which the named hosts have these plans.
pub(crate) fn planned(
    net: &Topology,
    seed: Seed,
    mut plans: Vec<(HostId, Plan)>,
) -> Sim<Numbered, Planned> {
    net.build(seed, |site| {
        let found = plans.iter().position(|(id, _)| *id == site.id);
        Planned {
            plan: found.map(|at| plans.swap_remove(at).1).unwrap_or_default(),
            ..Planned::default()
        }
    })
    .expect("it is small")
}
