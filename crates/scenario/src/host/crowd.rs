//! The agents of a host with several.

use std::sync::Arc;

use netsim::Out;
use units::Time;

use crate::Packet;
use crate::deadlines::Deadlines;
use crate::host::{Agent, Ended, FlowPlan, Seat};

/// The agents of a host with several, and their deadlines.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    deadlines: Deadlines,
    slots: Box<[Slot]>,
}

/// One end of a flow, before, while and after it lives.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    /// It has not begun.
    Planned(Arc<FlowPlan>, bool),
    /// It lives, or is of a flow that is there from the begin to the end of the run.
    Live {
        agent: Box<Agent>,
        /// Whether it may become [`Slot::Ended`].
        may_end: bool,
    },
    /// It is over.
    Ended(Box<Ended>),
}

impl Crowd {
    pub(super) fn new<'a>(agents: impl ExactSizeIterator<Item = Seat<'a>>) -> Crowd {
        let mut deadlines = Deadlines::new(agents.len());
        let slot = |(number, seat): (usize, Seat<'_>)| {
            if let Seat::Flow(plan, is_sender) = seat
                && plan.is_arrival
            {
                deadlines.set(number, plan.opens(is_sender));
                return Slot::Planned(Arc::clone(plan), is_sender);
            }
            let agent = Box::new(seat.agent());
            deadlines.set(number, agent.poll_deadline());
            Slot::Live { agent, may_end: false }
        };
        let slots = agents.enumerate().map(slot).collect();
        Crowd { deadlines, slots }
    }

    /// One of them, if there is such a number.
    pub(super) fn slot(&self, number: usize) -> Option<&Slot> {
        self.slots.get(number)
    }

    /// The earliest deadline.
    #[inline]
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.deadlines.next()
    }

    #[inline]
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        number: usize,
        subflow: u32,
        packet: &Packet,
        out: &mut Out<Packet>,
    ) {
        if let Slot::Ended(ended) = &mut self.slots[number] {
            if let Packet::Tcp { segment, ecn, .. } = packet {
                ended.handle_segment(now, segment, *ecn, out);
            }
            return;
        }
        self.act(number, |agent| agent.handle_packet(now, subflow, packet, out));
    }

    pub(super) fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        let mut from = 0;
        while let Some(number) = self.deadlines.next_due(from, now) {
            self.act(number, |agent| agent.handle_deadline(now, out));
            from = number + 1;
        }
    }

    /// Calls `act` on an agent, which is made if it was only planned, and put away if it has ended.
    #[inline]
    fn act(&mut self, number: usize, act: impl FnOnce(&mut Agent)) {
        let slot = &mut self.slots[number];
        if let Slot::Planned(plan, is_sender) = slot {
            *slot = Slot::Live { agent: Box::new(plan.agent(*is_sender)), may_end: true };
        }
        let Slot::Live { agent, may_end } = slot else {
            unreachable!("an end that is over has no deadline and is not called")
        };
        act(agent);
        let ended = if *may_end { agent.ended() } else { None };
        self.deadlines.set(number, if ended.is_some() { None } else { agent.poll_deadline() });
        if let Some(ended) = ended {
            *slot = Slot::Ended(Box::new(ended));
        }
    }
}
