//! Requests and answers over several TCP connections, one end of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use netsim::{Out, Route};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use tcp::TimeWait;
use units::{Bytes, Span, Time};
use wire::tcp::Segment;

use crate::file::{Lines, Requests};
use crate::host::{Connection, Request, connection};
use crate::packet::{Ecn, Packet};
use crate::plan::FlowPlan;

/// One end of all connections over which the requests of a flow go. Connections are made when they
/// are needed.
#[derive(Clone, Debug)]
pub struct Pool {
    plan: Box<FlowPlan>,
    /// The connections that live, by their number in the flow.
    live: BTreeMap<u32, Connection>,
    /// What answers for those that are over.
    over: HashMap<u32, (Route, u32, TimeWait)>,
    /// What those had received, retransmitted, and how many timeouts they had.
    past: (Bytes, u64, u64),
    /// The reader; `None` at the server.
    reader: Option<Box<PageReader>>,
}

/// What asks for pages.
#[derive(Clone, Debug)]
struct PageReader {
    spec: Arc<Requests>,
    thoughts: Xoshiro256PlusPlus,
    /// The time of the next page; `None` while one is being fetched, and after the last.
    next: Option<Time>,
    /// Pages that may still be asked for; `None` for no end.
    left: Option<u64>,
    /// The page that is being fetched: its time, and what has arrived of it.
    at: Time,
    arrived: Bytes,
    /// Its objects that wait for a connection, and those that are asked for and not here.
    waiting: u32,
    pending: u32,
    /// The connections made so far.
    made: u32,
    done: Vec<Request>,
}

impl Pool {
    /// One end of the flow's connections.
    #[must_use]
    pub(crate) fn new(plan: &FlowPlan, spec: &Arc<Requests>, is_server: bool) -> Pool {
        let reader = || PageReader {
            spec: Arc::clone(spec),
            thoughts: Xoshiro256PlusPlus::seed_from_u64(
                plan.seed.stream("source").stream("think").0,
            ),
            next: Some(plan.start),
            left: spec.count,
            at: plan.start,
            arrived: Bytes::ZERO,
            waiting: 0,
            pending: 0,
            made: 0,
            done: Vec::new(),
        };
        Pool {
            plan: Box::new(plan.clone()),
            live: BTreeMap::new(),
            over: HashMap::new(),
            past: (Bytes::ZERO, 0, 0),
            reader: (!is_server).then(|| Box::new(reader())),
        }
    }

    /// The connections that live.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.live.values()
    }

    /// Payload received in order on all connections.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.past.0 + self.live.values().map(Connection::received).sum()
    }

    /// The packets that were retransmitted, and the timeouts, of all connections.
    #[must_use]
    pub fn repeats(&self) -> (u64, u64) {
        let stats = self.live.values().flat_map(Connection::subflows);
        stats.map(|subflow| subflow.endpoint.stats()).fold(
            (self.past.1, self.past.2),
            |(retransmitted, timeouts), stats| {
                (retransmitted + stats.retransmitted, timeouts + stats.timeouts)
            },
        )
    }

    /// The complete pages, at the reader.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        self.reader.as_ref().map_or(&[], |reader| &reader.done)
    }

    /// A segment has arrived over one of the connections.
    pub(crate) fn handle_segment(
        &mut self,
        now: Time,
        number: u32,
        segment: &Segment,
        ecn: Ecn,
        out: &mut Out<Packet>,
    ) {
        if let Some((route, connection, rest)) = self.over.get(&number) {
            if let Some(transmit) = rest.answer(now, segment) {
                out.send(*route, connection::packet(*connection, &transmit));
            }
            return;
        }
        let plan = &self.plan;
        let line = self.live.entry(number).or_insert_with(|| plan.line(number, None));
        line.handle_segment(now, 0, segment, ecn, out);
        self.settle(now, number, out);
    }

    /// Its deadline has come.
    pub(crate) fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        let due = |line: &Connection| line.poll_deadline().is_some_and(|at| at <= now);
        let numbers: Vec<u32> =
            self.live.iter().filter(|(_, line)| due(line)).map(|(number, _)| *number).collect();
        for number in numbers {
            self.live.get_mut(&number).expect("it lives").handle_deadline(now, out);
            self.settle(now, number, out);
        }
        if let Some(reader) = &mut self.reader
            && reader.next.is_some_and(|at| at <= now)
        {
            reader.begin(now);
            self.ask(now, out);
        }
    }

    /// The next deadline.
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let own = self.reader.as_ref().and_then(|reader| reader.next);
        self.live.values().filter_map(Connection::poll_deadline).chain(own).min()
    }

    /// Sees whether an answer has arrived on a connection, and whether the connection is over.
    fn settle(&mut self, now: Time, number: u32, out: &mut Out<Packet>) {
        let Some(line) = self.live.get_mut(&number) else { return };
        if let (Some(reader), Some(answer)) = (&mut self.reader, line.take_answer()) {
            reader.handle_answer(now, answer);
        }
        if let Some(ended) = line.ended() {
            let sender = ended.sender.expect("it is of TCP");
            self.past.0 += ended.received;
            self.past.1 += sender.retransmitted;
            self.past.2 += sender.timeouts;
            self.over.insert(number, ended.rest.expect("it is of TCP"));
            self.live.remove(&number);
        }
        self.ask(now, out);
    }

    /// Asks for objects over all connections that are free or may be made.
    fn ask(&mut self, now: Time, out: &mut Out<Packet>) {
        let Some(reader) = &mut self.reader else { return };
        while reader.waiting > 0 {
            let free = self.live.iter().find(|(_, line)| line.is_free()).map(|(number, _)| *number);
            let number = match (reader.spec.lines, free) {
                (Lines::UpTo(_), Some(number)) => {
                    self.live.get_mut(&number).expect("it lives").ask(now);
                    number
                }
                (Lines::UpTo(most), None) if reader.made >= most => return,
                _ => {
                    let number = reader.made;
                    reader.made += 1;
                    self.live.insert(number, self.plan.line(number, Some(now)));
                    number
                }
            };
            reader.waiting -= 1;
            reader.pending += 1;
            self.live.get_mut(&number).expect("it lives").handle_deadline(now, out);
        }
    }
}

impl PageReader {
    /// A page begins.
    fn begin(&mut self, now: Time) {
        self.next = None;
        self.at = now;
        self.arrived = Bytes::ZERO;
        self.waiting = self.spec.objects;
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
    }

    /// An object of the page has arrived.
    fn handle_answer(&mut self, now: Time, answer: Bytes) {
        self.arrived += answer;
        self.pending -= 1;
        if self.pending > 0 || self.waiting > 0 {
            return;
        }
        self.done.push(Request { at: self.at, done: now, bytes: self.arrived });
        if self.left != Some(0) {
            self.next = Some(now + self.think());
        }
    }

    fn think(&mut self) -> Span {
        self.spec.think.draw_span(&mut self.thoughts)
    }
}
