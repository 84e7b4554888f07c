//! What is measured in a run.

use std::sync::Arc;

use link::Prepared;
use units::{Rate, Span, Time};

use crate::build::Built;
use crate::file::{FlowSpec, Scenario, Transport, Window};
use crate::host::{Agent, Request};
use crate::run::{received, receiver, sender, sender_counts, sender_state};

/// A measured value. A large scenario has tens of thousands: names are shared, or numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// The flow, a subflow of one by its number from 0 on (`name/0`), the group of flows, or the direction of a link; empty for `all`.
    pub of: Arc<str>,
    /// The window of time.
    pub window: Arc<str>,
    /// How much.
    pub value: f64,
    /// Which of [`SCOPES`].
    scope: u8,
    /// Which of [`MEASURES`].
    kind: u8,
}

/// Of what kind a thing is that is measured.
const SCOPES: [&str; 5] = ["flow", "group", "link", "all", "subflow"];

impl Measure {
    /// A measure by its names; `None` if there is no such scope, or none of that name.
    pub(crate) fn new(scope: &str, of: Arc<str>, window: Arc<str>, name: &str, value: f64) -> Option<Measure> {
        let scope = u8::try_from(SCOPES.iter().position(|known| *known == scope)?).ok()?;
        let kind = u8::try_from(MEASURES.iter().position(|known| known.0 == name)?).ok()?;
        Some(Measure { of, window, value, scope, kind })
    }

    /// Of what kind the thing is: `flow`, `subflow`, `group`, `link` or `all`.
    #[must_use]
    pub fn scope(&self) -> &'static str {
        SCOPES[usize::from(self.scope)]
    }

    /// What was measured: one of the names of [`MEASURES`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        MEASURES[usize::from(self.kind)].0
    }

    /// Its unit.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        MEASURES[usize::from(self.kind)].1
    }
}

/// Every measure there is: name, unit, meaning.
pub const MEASURES: &[(&str, &str, &str)] = &[
    (
        "goodput",
        "Mbit/s",
        "payload that arrived in order at the receiving application; for UDP, packets with their headers",
    ),
    ("window", "packets", "the sender's window, of all subflows together, its mean over time"),
    ("rtt", "ms", "the smoothed round-trip time, the largest of the subflows, its mean over time"),
    ("delay", "ms", "of UDP: the mean one-way delay since the start"),
    ("retransmissions", "packets", "sent again, of all subflows together"),
    ("timeouts", "", "how often the retransmission timer ran out"),
    ("requests", "", "files, writes or pages that arrived completely"),
    ("completion", "s", "from asking or writing to the last byte's arrival, its mean"),
    ("completion_p95", "s", "the same, the 95th percentile"),
    (
        "bottleneck",
        "",
        "of a striped connection's subflow, at the window's end: the number, from 1 on, of the first subflow that shares its bottleneck; 0 if none is known",
    ),
    ("jain", "", "Jain's index of the goodputs: 1 is equal, 1/n is one alone"),
    ("throughput", "Mbit/s", "packets that left the link, with their headers"),
    ("utilisation", "", "the throughput over the link's first rate"),
    ("queue", "packets", "what waits, the packet on the wire not counted, its mean over time"),
    ("drops", "packets", "dropped by a full queue or by the queue's management"),
    ("marks", "packets", "marked instead of dropped (ECN)"),
    ("losses", "packets", "lost at random, in blackouts, or for their size"),
];

/// What is noted while a run goes on.
pub(crate) struct Books {
    windows: Vec<Book>,
    /// Payload of a packet, for each flow.
    packets: Vec<f64>,
}

/// One window.
struct Book {
    window: Window,
    /// How often it was looked at since its begin.
    looks: f64,
    flows: Vec<FlowBook>,
    links: Vec<LinkBook>,
    /// Sums over the looks of each flow's window and round-trip time. Apart from the counters, which are read twice only.
    sums: Vec<(f64, f64)>,
    /// The same of what waits in each link's direction.
    queues: Vec<f64>,
}

/// A flow in one window: counters less what they were at its begin.
#[derive(Clone, Default)]
struct FlowBook {
    received: Counter,
    retransmitted: Counter,
    timeouts: Counter,
    /// At the end, for each subflow of a striped connection: the number of its bottleneck.
    bottlenecks: Vec<u16>,
}

/// A link's direction in one window.
#[derive(Clone, Default)]
struct LinkBook {
    delivered: Counter,
    drops: Counter,
    marks: Counter,
    losses: Counter,
}

/// A counter at the begin of a window and at its end.
#[derive(Clone, Copy, Default)]
struct Counter {
    begin: u64,
    end: u64,
}

impl Counter {
    fn note(&mut self, value: u64, is_first: bool) {
        if is_first {
            self.begin = value;
        }
        self.end = value;
    }

    fn gained(self) -> f64 {
        float(self.end - self.begin)
    }
}

impl Books {
    pub(crate) fn new(scenario: &Scenario, built: &Built) -> Books {
        let book = |window: &Window| Book {
            window: window.clone(),
            looks: 0.0,
            flows: vec![FlowBook::default(); built.flows.len()],
            links: vec![LinkBook::default(); built.links.len() * 2],
            sums: vec![(0.0, 0.0); built.flows.len()],
            queues: vec![0.0; built.links.len() * 2],
        };
        Books {
            windows: scenario.windows.iter().map(book).collect(),
            packets: scenario.flows.iter().map(packet_size).collect(),
        }
    }

    /// Notes how things stand at `at`, among others the begin and the end of each window: what windows begin and end with, and what
    /// their means are made of.
    pub(crate) fn look(&mut self, built: &mut Built, at: Span) {
        let is_open = |book: &Book| book.window.from <= at && at <= book.window.to;
        let Some(first) = self.windows.iter().position(is_open) else { return };
        self.windows[first].count(built, at);
        // To look at a queue lets packets leave, and may count drops.
        self.sum(built, at);
        for book in self.windows[first + 1..].iter_mut().filter(|book| is_open(book)) {
            book.count(built, at);
        }
    }

    /// Adds to the sums of all windows that began before.
    fn sum(&mut self, built: &mut Built, at: Span) {
        let is_summed = |book: &&mut Book| book.window.from < at && at <= book.window.to;
        let mut books: Vec<&mut Book> = self.windows.iter_mut().filter(is_summed).collect();
        for book in &mut books {
            book.looks += 1.0;
        }
        for (index, (ends, packet)) in built.flows.iter().zip(&self.packets).enumerate() {
            if let Some(state) = sender_state(built, ends) {
                let window = state.window.as_f64() / packet;
                let rtt = state.rtt.map_or(0.0, Span::as_secs_f64);
                for book in &mut books {
                    book.sums[index].0 += window;
                    book.sums[index].1 += rtt;
                }
            }
        }
        for (index, id) in built.links.iter().flat_map(|(up, down)| [*up, *down]).enumerate() {
            let queue = float(built.sim.queue(id).packets.saturating_sub(1));
            for book in &mut books {
                book.queues[index] += queue;
            }
        }
    }

    /// All measures. The simulation ends here, lest a large one and its measures take memory at the same time.
    pub(crate) fn close(self, scenario: &Scenario, built: Built) -> Vec<Measure> {
        let heard: Vec<Heard> = built.flows.iter().map(|ends| Heard::by(receiver(&built, ends))).collect();
        drop(built);
        let each = scenario.flows.len() * FLOW_MEASURES + scenario.links.len() * LINK_MEASURES;
        let mut measures = Vec::with_capacity(self.windows.len() * each);
        for book in self.windows {
            book.close(scenario, &heard, &mut measures);
        }
        measures
    }
}

/// About how many measures a flow has.
const FLOW_MEASURES: usize = 6;
/// How many measures a link has at most, in both directions together.
const LINK_MEASURES: usize = 12;

/// What only a flow's receiver knows.
enum Heard {
    /// Of TCP: what arrived completely.
    Requests(Vec<Request>),
    /// Of UDP: the mean delay, if anything came.
    Delay(Option<Span>),
}

impl Heard {
    fn by(receiver: &Agent) -> Heard {
        match receiver {
            Agent::Tcp(connection) => Heard::Requests(connection.feed().requests().to_vec()),
            Agent::Ptcp(striped) => Heard::Requests(striped.feed().requests().to_vec()),
            Agent::Sockets(_) => Heard::Requests(Vec::new()),
            Agent::UdpSink(sink) => Heard::Delay(sink.mean_delay()),
            Agent::UdpSource(_) => Heard::Delay(None),
        }
    }
}

impl Book {
    /// Reads the counters, if `at` is the window's begin or end.
    fn count(&mut self, built: &Built, at: Span) {
        let is_begin = at == self.window.from;
        if !is_begin && at != self.window.to {
            return;
        }
        for (book, ends) in self.flows.iter_mut().zip(&built.flows) {
            book.received.note(received(built, ends).0, is_begin);
            if let Some(counts) = sender_counts(built, ends) {
                book.retransmitted.note(counts.retransmitted, is_begin);
                book.timeouts.note(counts.timeouts, is_begin);
            }
            if let (false, Agent::Ptcp(striped)) = (is_begin, sender(built, ends)) {
                book.bottlenecks = striped.bottlenecks().collect();
            }
        }
        let ids = built.links.iter().flat_map(|(up, down)| [*up, *down]);
        for (book, id) in self.links.iter_mut().zip(ids) {
            let counters = built.sim.counters(id);
            book.delivered.note(counters.delivered.bytes.0, is_begin);
            let drops = counters.dropped_queue + counters.dropped_aqm;
            book.drops.note(drops, is_begin);
            book.marks.note(counters.marked, is_begin);
            book.losses.note(counters.dropped() - drops, is_begin);
        }
    }

    fn close(&self, scenario: &Scenario, heard: &[Heard], measures: &mut Vec<Measure>) {
        let seconds = (self.window.to - self.window.from).as_secs_f64();
        let window: Arc<str> = self.window.name.as_str().into();
        let mut put = |scope, of: &Arc<str>, name: &'static str, value: f64| {
            let measure = Measure::new(scope, Arc::clone(of), Arc::clone(&window), name, value);
            measures.push(measure.expect("every measure is listed"));
        };
        let goodput = |book: &FlowBook| book.received.gained() * 8.0 / 1e6 / seconds;
        for (((flow, book), sums), heard) in scenario.flows.iter().zip(&self.flows).zip(&self.sums).zip(heard) {
            let of = &flow.name;
            put("flow", of, "goodput", goodput(book));
            match heard {
                Heard::Requests(done) => {
                    put("flow", of, "window", sums.0 / self.looks);
                    put("flow", of, "rtt", sums.1 / self.looks * 1e3);
                    put("flow", of, "retransmissions", book.retransmitted.gained());
                    put("flow", of, "timeouts", book.timeouts.gained());
                    requests(&self.window, done, |name, value| {
                        put("flow", of, name, value);
                    });
                }
                Heard::Delay(Some(delay)) => put("flow", of, "delay", delay.as_secs_f64() * 1e3),
                Heard::Delay(None) => {}
            }
        }
        for (flow, book) in scenario.flows.iter().zip(&self.flows) {
            for (number, bottleneck) in book.bottlenecks.iter().enumerate() {
                let of: Arc<str> = format!("{}/{number}", flow.name).into();
                put("subflow", &of, "bottleneck", f64::from(*bottleneck));
            }
        }
        let mut groups: Vec<&Arc<str>> = scenario.flows.iter().map(|flow| &flow.group).collect();
        groups.dedup();
        let named = || scenario.flows.iter().zip(&self.flows);
        for group in groups {
            let goodputs: Vec<f64> =
                named().filter(|(flow, _)| flow.group == *group).map(|(_, book)| goodput(book)).collect();
            put("group", group, "goodput", goodputs.iter().sum());
            put("group", group, "jain", jain(&goodputs));
        }
        let goodputs: Vec<f64> = self.flows.iter().map(goodput).collect();
        let of: Arc<str> = "".into();
        put("all", &of, "goodput", goodputs.iter().sum());
        put("all", &of, "jain", jain(&goodputs));
        let pairs = self.links.chunks_exact(2).zip(self.queues.chunks_exact(2));
        for (link, (books, queues)) in scenario.links.iter().zip(pairs) {
            let directions = link.directions.iter().zip([&link.up, &link.down].map(Prepared::profile));
            for (((of, profile), book), queue) in directions.zip(books).zip(queues) {
                let throughput = book.delivered.gained() * 8.0 / 1e6 / seconds;
                put("link", of, "throughput", throughput);
                if profile.rate.base > Rate::ZERO {
                    put("link", of, "utilisation", throughput * 1e6 / profile.rate.base.as_f64());
                }
                put("link", of, "queue", queue / self.looks);
                put("link", of, "drops", book.drops.gained());
                put("link", of, "marks", book.marks.gained());
                put("link", of, "losses", book.losses.gained());
            }
        }
    }
}

/// What arrived completely within the window.
fn requests(window: &Window, requests: &[Request], mut put: impl FnMut(&'static str, f64)) {
    let (from, to) = (Time::ZERO + window.from, Time::ZERO + window.to);
    let done = requests.iter().filter(|request| request.done > from && request.done <= to);
    let mut times: Vec<f64> = done.map(|request| (request.done - request.at).as_secs_f64()).collect();
    if times.is_empty() {
        return;
    }
    times.sort_by(f64::total_cmp);
    put("requests", float(times.len() as u64));
    put("completion", times.iter().sum::<f64>() / float(times.len() as u64));
    put("completion_p95", times[(times.len() * 95).div_ceil(100) - 1]);
}

/// Jain's index: the square of the sum over n times the sum of squares; 1 if nothing was carried.
fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (float(values.len() as u64) * squares) }
}

/// Payload of a full packet.
pub(crate) fn packet_size(flow: &FlowSpec) -> f64 {
    match &*flow.transport {
        Transport::Tcp(spec) => spec.config.mss.as_f64(),
        Transport::Ptcp(spec) => spec.config.max_datagram.as_f64(),
        Transport::Sockets(spec) => spec.config.mss.as_f64(),
        Transport::Udp(spec) => spec.packet.as_f64(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index() {
        assert!((jain(&[1.0, 1.0, 1.0, 1.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[5.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        // Chiu and Jain's own example of shares 1, 3, 5.
        assert!((jain(&[1.0, 3.0, 5.0]) - 81.0 / 105.0).abs() < 1e-12);
    }
}
