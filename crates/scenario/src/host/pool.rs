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
use crate::host::{Connection, FlowPlan, Gaps, Request, Subflow, connection};
use crate::packet::{Ecn, Packet};

/// One end of all connections over which the requests of a flow go. Connections are made when they
/// are needed.
#[derive(Clone, Debug)]
pub struct Pool {
    plan: Box<FlowPlan>,
    /// The connections that live, by their number in the flow.
    live: BTreeMap<u32, Connection>,
    /// What answers for those that are over.
    over: HashMap<u32, (Route, u32, TimeWait)>,
    /// The counters of those.
    past: PoolCounts,
    /// The reader; `None` at the server.
    reader: Option<Box<PageReader>>,
    /// The times in which no bytes arrived in order on any connection, where they are measured.
    gaps: Option<Box<Gaps>>,
}

/// The counters of all connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolCounts {
    /// Payload that has arrived, each byte once.
    pub(crate) arrived: Bytes,
    /// Packets with data sent, those sent again included.
    pub(crate) sent: u64,
    pub(crate) retransmitted: u64,
    pub(crate) timeouts: u64,
    /// Packets received with a mark (ECN).
    pub(crate) marked: u64,
}

impl PoolCounts {
    /// Adds those of a connection.
    fn add(&mut self, connection: &Connection) {
        self.arrived += connection.arrived();
        for Subflow { endpoint, .. } in connection.subflows() {
            let stats = endpoint.stats();
            self.sent += stats.sent;
            self.retransmitted += stats.retransmitted;
            self.timeouts += stats.timeouts;
            self.marked += u64::from(endpoint.marked());
        }
    }
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
    /// The least size of the requests for it.
    asked: Bytes,
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
            asked: Bytes(u64::MAX),
            waiting: 0,
            pending: 0,
            made: 0,
            done: Vec::new(),
        };
        Pool {
            plan: Box::new(plan.clone()),
            live: BTreeMap::new(),
            over: HashMap::new(),
            past: PoolCounts::default(),
            reader: (!is_server).then(|| Box::new(reader())),
            gaps: None,
        }
    }

    /// The same end, with a record of the times without bytes in order.
    #[must_use]
    pub(crate) fn with_gaps(self, gaps: Option<Box<Gaps>>) -> Pool {
        Pool { gaps, ..self }
    }

    pub(crate) fn gaps(&self) -> Option<&Gaps> {
        self.gaps.as_deref()
    }

    /// The connections that live.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.live.values()
    }

    /// The route of the packets that it sends.
    pub(crate) fn route(&self) -> Route {
        let (there, back) = self.plan.routes[0];
        if self.reader.is_none() { there } else { back }
    }

    /// The counters of all connections.
    pub(crate) fn counts(&self) -> PoolCounts {
        let mut counts = self.past;
        self.connections().for_each(|connection| counts.add(connection));
        counts
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
            self.past.marked += u64::from(ecn == Ecn::Marked);
            if let Some(transmit) = rest.answer(now, segment) {
                out.send(*route, connection::packet(*connection, &transmit));
            }
            return;
        }
        let plan = &self.plan;
        let line = self.live.entry(number).or_insert_with(|| plan.line(number, None));
        let before = line.received();
        line.handle_segment(now, 0, segment, ecn, out);
        if let Some(gaps) = &mut self.gaps
            && line.received() > before
        {
            gaps.handle_received(now);
        }
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
            reader.handle_answer(now, &answer);
        }
        if let Some(ended) = line.ended() {
            self.past.add(line);
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
        self.asked = Bytes(u64::MAX);
        self.waiting = self.spec.objects;
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
    }

    /// An object of the page has arrived.
    fn handle_answer(&mut self, now: Time, answer: &Request) {
        self.arrived += answer.bytes;
        self.asked = self.asked.min(answer.asked);
        self.pending -= 1;
        if self.pending > 0 || self.waiting > 0 {
            return;
        }
        let Self { at, arrived, asked, .. } = *self;
        self.done.push(Request { at, done: now, bytes: arrived, asked });
        if self.left != Some(0) {
            self.next = Some(now + self.think());
        }
    }

    fn think(&mut self) -> Span {
        self.spec.think.draw_span(&mut self.thoughts)
    }
}
