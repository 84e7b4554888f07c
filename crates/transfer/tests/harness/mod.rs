//! A transfer in virtual time: a sender and a receiver, driven as the real driver does, over
//! modelled connections.

pub mod tcp;

use std::collections::{BinaryHeap, VecDeque};

use policy::sched::{Options, by_name};
use transfer::{
    Block, Cv, Extent, ExtentSet, Layout, PathState, PathTraits, Receiver, Sample, Sender,
    SenderConfig, SenderEvent, Transmit, Verdict,
};
use units::{Bytes, PathId, Span, Time};

use tcp::{Connection, Link, LinkSpec, Packet};

/// The driver writes chunks of this size while the unsent bytes in the socket stay within `SOCKET`.
const CHUNK: u64 = 64 * 1024;
const SOCKET: u64 = 128 * 1024;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The packet at the head of a link's queue has left it.
    Served(usize),
    Arrived(Packet),
    Acknowledged(Packet),
    AppAck(usize, Extent),
    Pump(usize),
    Timer(usize),
    Sample(usize),
    Deadline,
    /// The stream has this size; the last one is its end.
    Grown {
        size: u64,
        is_end: bool,
    },
    /// The receiver learns of the stream's end without data.
    Ended(u64),
    Connect {
        link: usize,
        replaces: usize,
    },
    Connected {
        link: usize,
        replaces: usize,
    },
}

struct Entry(Time, u64, Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

#[derive(Debug)]
pub struct Outcome {
    /// The hash of the only object.
    pub root: Option<Cv>,
    /// Seconds until the last byte had arrived.
    pub seconds: f64,
    pub duplicates: Bytes,
    pub adjustments: Vec<Vec<Bytes>>,
    pub events: Vec<(Time, SenderEvent)>,
    /// For each link, when the last byte arrived that no other link had brought before, in seconds.
    pub last_first: Vec<f64>,
    /// Bytes that each link delivered first.
    pub brought: Vec<u64>,
}

pub struct World {
    now: Time,
    heap: BinaryHeap<Entry>,
    admitted: u64,
    links: Vec<Link>,
    connections: Vec<Connection>,
    sender: Sender,
    receiver: Receiver,
    deadline: Option<Time>,
    outcome: Outcome,
    reconnect: bool,
    /// The stream's size and whether it has ended.
    grown: (u64, bool),
    /// For each connection, what was told of the stream's size with each extent on its way.
    told: Vec<VecDeque<(u64, bool)>>,
}

pub fn layout(bytes: u64) -> Layout {
    Layout::new([Bytes(bytes)]).expect("one good object")
}

/// Sends this many bytes over one connection a link.
pub fn run(bytes: u64, links: &[LinkSpec]) -> Outcome {
    let one_each: Vec<usize> = (0..links.len()).collect();
    World::new("self-adaptive", Options::default(), bytes, links, &one_each).run()
}

impl World {
    pub fn new(
        scheduler: &str,
        options: Options,
        bytes: u64,
        links: &[LinkSpec],
        paths: &[usize],
    ) -> World {
        let layout = layout(bytes);
        let scheduler = by_name(scheduler, options).expect("a known name");
        let mut world = World {
            now: Time::ZERO,
            heap: BinaryHeap::new(),
            admitted: 0,
            links: links
                .iter()
                .enumerate()
                .map(|(i, spec)| Link::new(spec.clone(), 77 + i as u64))
                .collect(),
            connections: Vec::new(),
            sender: Sender::new(&layout, &ExtentSet::new(), scheduler, SenderConfig::default()),
            receiver: Receiver::new(&layout, &ExtentSet::new()),
            deadline: None,
            outcome: Outcome {
                root: None,
                seconds: 0.0,
                duplicates: Bytes::ZERO,
                adjustments: Vec::new(),
                events: Vec::new(),
                last_first: vec![0.0; links.len()],
                brought: vec![0; links.len()],
            },
            reconnect: true,
            grown: (0, false),
            told: Vec::new(),
        };
        for &link in paths {
            world.open(link);
        }
        world
    }

    /// A transfer of a stream that has these sizes at these times; the last size is its end.
    pub fn streaming(sizes: &[(Time, u64)], links: &[LinkSpec]) -> World {
        let one_each: Vec<usize> = (0..links.len()).collect();
        let mut world = World::new("self-adaptive", Options::default(), 0, links, &[]);
        let (layout, scheduler) = (Layout::stream(0), by_name("self-adaptive", Options::default()));
        let (nothing, scheduler) = (ExtentSet::new(), scheduler.expect("a known name"));
        world.sender = Sender::new(&layout, &nothing, scheduler, SenderConfig::default());
        world.receiver = Receiver::new(&layout, &nothing);
        for link in one_each {
            world.open(link);
        }
        for (index, &(at, size)) in sizes.iter().enumerate() {
            world.admit(at, Event::Grown { size, is_end: index + 1 == sizes.len() });
        }
        world
    }

    fn admit(&mut self, at: Time, event: Event) {
        self.admitted += 1;
        self.heap.push(Entry(at, self.admitted, event));
    }

    fn open(&mut self, link: usize) -> usize {
        let id = self.connections.len();
        self.connections.push(Connection::new(link));
        self.told.push(VecDeque::new());
        let LinkSpec { delay, class, known, .. } = self.links[link].spec;
        self.sender.handle_path_open(
            self.now,
            PathId(id as u32),
            PathTraits { group: link as u32, rtt: Some(delay * 2), class, known },
        );
        self.admit(self.now, Event::Pump(id));
        self.admit(self.now + Span::from_millis(50), Event::Sample(id));
        id
    }

    /// Runs until the receiver has everything.
    pub fn run(mut self) -> Outcome {
        while !self.receiver.is_complete() {
            let Entry(at, _, event) =
                self.heap.pop().expect("the transfer hangs: nothing will ever happen again");
            assert!(
                at < Time::ZERO + Span::from_secs(400),
                "the transfer hangs: {:?}",
                self.sender.totals(self.now)
            );
            self.now = at;
            self.handle(event);
            self.serve_sender();
        }
        self.outcome.seconds = self.now.as_secs_f64();
        self.outcome.root = self.receiver.root(0);
        self.outcome.duplicates = self.sender.totals(self.now).duplicates;
        self.outcome
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Served(link) => {
                let (packet, next) = self.links[link].serve(self.now);
                if let Some(at) = next {
                    self.admit(at, Event::Served(link));
                }
                if let Some(packet) = packet {
                    self.admit(self.now + self.links[link].spec.delay, Event::Arrived(packet));
                }
            }
            Event::Arrived(packet) => self.arrive(packet),
            Event::Acknowledged(packet) => {
                if self.connections[packet.connection].open {
                    self.connections[packet.connection].acknowledge(self.now, packet);
                    self.transmit(packet.connection);
                    self.pump(packet.connection);
                }
            }
            Event::AppAck(id, extent) => {
                if self.connections[id].open {
                    self.sender
                        .handle_acked(self.now, PathId(id as u32), extent)
                        .expect("a good acknowledgement");
                }
            }
            Event::Pump(id) => self.pump(id),
            Event::Timer(id) => {
                let connection = &mut self.connections[id];
                if connection.open && self.now >= connection.timer {
                    connection.expire(self.now);
                    self.transmit(id);
                }
            }
            Event::Sample(id) => self.sample(id),
            Event::Deadline => {
                if self.deadline.is_some_and(|deadline| self.now >= deadline) {
                    self.deadline = None;
                    self.sender.handle_deadline(self.now);
                }
            }
            Event::Grown { size, is_end } => {
                self.grown = (size, is_end);
                self.sender.handle_grown(self.now, size, is_end).expect("it grows");
                if is_end {
                    self.admit(self.now + Span::from_millis(500), Event::Ended(size));
                }
            }
            Event::Ended(size) => {
                self.receiver.handle_grown(size, true).expect("the right end");
            }
            Event::Connect { link, replaces } => {
                let spec = &self.links[link].spec;
                if self.connections[replaces].open
                    && spec.returns
                    && spec.rate(self.now).as_bits() > 0
                {
                    let handshakes = spec.delay * 4;
                    self.admit(self.now + handshakes, Event::Connected { link, replaces });
                } else if self.connections[replaces].open {
                    self.admit(
                        self.now + Span::from_millis(500),
                        Event::Connect { link, replaces },
                    );
                }
            }
            Event::Connected { link, replaces } => {
                let old = PathId(replaces as u32);
                let hangs = |s: &Sender, now| {
                    s.paths(now).iter().any(|p| p.id == old && p.state == PathState::Stalled)
                };
                if hangs(&self.sender, self.now) {
                    self.open(link);
                    self.connections[replaces].open = false;
                    self.sender.handle_path_lost(self.now, old);
                }
            }
        }
    }

    /// A packet reached the other side.
    fn arrive(&mut self, packet: Packet) {
        if !self.connections[packet.connection].open {
            return;
        }
        let link = self.connections[packet.connection].link;
        let (delay, returns) = (self.links[link].spec.delay, self.links[link].spec.returns);
        let up = returns && self.links[link].spec.rate(self.now).as_bits() > 0;
        if up {
            self.admit(self.now + delay, Event::Acknowledged(packet));
        }
        for extent in self.connections[packet.connection].arrive(packet) {
            if let Some((size, is_end)) = self.told[packet.connection].pop_front()
                && size > 0
            {
                self.receiver.handle_grown(size, is_end).expect("a good size");
            }
            let fresh = self.receiver.handle_data(extent).expect("a good extent");
            for piece in fresh.pieces {
                self.outcome.last_first[link] = self.now.as_secs_f64();
                self.outcome.brought[link] += piece.len;
                self.receiver.handle_written(piece).expect("a good piece");
            }
            self.receiver
                .handle_hash(extent.start / transfer::BLOCK, cv_of(extent.start / transfer::BLOCK))
                .expect("a good hash");
            while let Some(Block { index, .. }) = self.receiver.poll_verify() {
                assert!(matches!(
                    self.receiver.handle_verified(index, true),
                    Verdict::Verified { .. }
                ));
            }
            if up {
                self.admit(self.now + delay, Event::AppAck(packet.connection, extent));
            }
        }
    }

    /// Writes the sender's extents to a socket.
    fn pump(&mut self, id: usize) {
        while self.connections[id].open && self.connections[id].unsent() + CHUNK <= SOCKET {
            match self.sender.poll_transmit(self.now, PathId(id as u32), Bytes(CHUNK)) {
                Transmit::Data(extent) => {
                    assert!(extent.len <= CHUNK && extent.len > 0);
                    self.connections[id].write(extent);
                    self.told[id].push_back(self.grown);
                    self.transmit(id);
                }
                Transmit::Wait { until } => {
                    if let Some(until) = until {
                        self.admit(until, Event::Pump(id));
                    }
                    return;
                }
                Transmit::Complete => return,
            }
        }
    }

    /// Sends the packets that the window allows.
    fn transmit(&mut self, id: usize) {
        let link = self.connections[id].link;
        for (seq, len) in self.connections[id].departures(self.now) {
            let packet = Packet { connection: id, seq, len, sent: self.now };
            if let Some(at) = self.links[link].enqueue(self.now, packet) {
                self.admit(at, Event::Served(link));
            }
        }
        let timer = self.connections[id].timer;
        if timer.as_nanos() != u64::MAX {
            self.admit(timer, Event::Timer(id));
        }
    }

    fn sample(&mut self, id: usize) {
        let connection = &self.connections[id];
        if !connection.open {
            return;
        }
        let sample = Sample {
            rtt: connection.srtt,
            min_rtt: connection.min_rtt,
            delivery_rate: None,
            kernel_acked: Bytes(connection.acked()),
            timeouts: connection.timeouts,
            unsent: Bytes(connection.unsent()),
            silence: None,
        };
        self.sender.handle_sample(self.now, PathId(id as u32), sample);
        self.admit(self.now + Span::from_millis(50), Event::Sample(id));
    }

    /// Drains the sender's wake-ups and events.
    fn serve_sender(&mut self) {
        while let Some(path) = self.sender.poll_wake() {
            self.admit(self.now, Event::Pump(path.0 as usize));
        }
        while let Some(event) = self.sender.poll_event() {
            if let SenderEvent::PathState { path, state: PathState::Stalled, .. } = event
                && self.reconnect
            {
                let link = self.connections[path.0 as usize].link;
                self.admit(self.now, Event::Connect { link, replaces: path.0 as usize });
            }
            if let SenderEvent::Adjusted { .. } = event {
                let tasks = self.sender.paths(self.now).iter().map(|path| path.task).collect();
                self.outcome.adjustments.push(tasks);
            }
            self.outcome.events.push((self.now, event));
        }
        let deadline = self.sender.poll_deadline(self.now);
        if let Some(at) = deadline
            && self.deadline.is_none_or(|set| at < set)
        {
            self.deadline = Some(at);
            self.admit(at, Event::Deadline);
        }
    }
}

/// The chaining value of a block in these transfers, which have no data.
pub fn cv_of(block: u64) -> Cv {
    let mut cv = [7; 32];
    cv[..8].copy_from_slice(&block.to_le_bytes());
    Cv(cv)
}

/// Seconds in which a fluid would carry this many bytes at the payload rate of all links.
pub fn ideal(bytes: u64, links: &[LinkSpec]) -> f64 {
    let (mut low, mut high) = (0.0, 10_000.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        let carried: f64 = links.iter().map(|link| link.capacity(middle)).sum();
        if carried < bytes as f64 { low = middle } else { high = middle }
    }
    high
}
