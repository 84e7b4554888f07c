//! The measures of a run, collected over windows of time.

use std::sync::Arc;

use units::{Span, Time};

use crate::build::Built;
use hashbrown::HashSet;

use crate::file::{FlowSpec, Scenario, Transport, Window};
use crate::flow_state::{
    SenderState, datagrams, living_state, packet_size, received, requests as completed, sender,
    sender_counts,
};
use crate::host::{Agent, AgentState, Request};
use crate::measures::{Measures, Metric, Scope, SubjectId};

const GOODPUT: Metric = Metric::listed("goodput");
const WINDOW: Metric = Metric::listed("window");
const RTT: Metric = Metric::listed("rtt");
const DELAY: Metric = Metric::listed("delay");
const RETRANSMISSIONS: Metric = Metric::listed("retransmissions");
const TIMEOUTS: Metric = Metric::listed("timeouts");
const REQUESTS: Metric = Metric::listed("requests");
const COMPLETION: Metric = Metric::listed("completion");
const COMPLETION_P95: Metric = Metric::listed("completion_p95");
const FLOWS: Metric = Metric::listed("flows");
const BEGUN: Metric = Metric::listed("begun");
const COMPLETED: Metric = Metric::listed("completed");
const BOTTLENECK: Metric = Metric::listed("bottleneck");
const JAIN: Metric = Metric::listed("jain");
const THROUGHPUT: Metric = Metric::listed("throughput");
const UTILISATION: Metric = Metric::listed("utilisation");
const QUEUE: Metric = Metric::listed("queue");
const QUEUE_BYTES: Metric = Metric::listed("queue_bytes");
const QUEUE_TIME: Metric = Metric::listed("queue_time");
const DROPS: Metric = Metric::listed("drops");
const MARKS: Metric = Metric::listed("marks");
const LOSSES: Metric = Metric::listed("losses");

/// The counters and sums of all windows.
pub(crate) struct WindowStats {
    windows: Vec<WindowRecord>,
    /// The payload of a full packet in bytes, by flow.
    packets: Vec<f64>,
}

/// The counters and sums of one window.
struct WindowRecord {
    window: Window,
    flows: Vec<FlowCounters>,
    /// By direction of a link.
    links: Vec<LinkCounters>,
    /// By flow. They are not in `flows`, which is read only at the begin and the end.
    states: Vec<StateSums>,
    has_sample: bool,
}

/// The counters of a flow in one window.
#[derive(Clone, Default)]
struct FlowCounters {
    received: Counter,
    retransmitted: Counter,
    timeouts: Counter,
    /// Of UDP: datagrams, and the sum of their delays in nanoseconds.
    datagrams: Counter,
    delay: Counter,
    /// The number of the bottleneck of each subflow of a striped connection, at the end.
    bottlenecks: Vec<u16>,
}

/// Sums over the samples of a sender in one window, while its flow lives.
#[derive(Clone, Copy, Default)]
struct StateSums {
    samples: f64,
    /// Of the congestion windows, in packets.
    window: f64,
    /// The samples with an RTT.
    timed: f64,
    /// Of the RTTs, in seconds.
    rtt: f64,
}

/// The counters of a link direction in one window.
#[derive(Clone, Default)]
struct LinkCounters {
    delivered: Counter,
    drops: Counter,
    marks: Counter,
    losses: Counter,
    /// Of the queue: packets that left it, and what waited, times nanoseconds.
    left: Counter,
    waited_packets: Counter<u128>,
    waited_bytes: Counter<u128>,
}

/// The values of a counter at the begin and the end of a window.
#[derive(Clone, Copy, Default)]
struct Counter<N = u64> {
    begin: N,
    end: N,
}

impl<N: Copy> Counter<N> {
    fn note(&mut self, value: N, is_first: bool) {
        if is_first {
            self.begin = value;
        }
        self.end = value;
    }
}

impl Counter {
    fn gained(self) -> f64 {
        float(self.end - self.begin)
    }
}

impl Counter<u128> {
    #[expect(clippy::cast_precision_loss, reason = "53 of its bits are enough for a mean")]
    fn gained(self) -> f64 {
        (self.end - self.begin) as f64
    }
}

impl WindowStats {
    pub(crate) fn new(scenario: &Scenario, built: &Built) -> WindowStats {
        let book = |window: &Window| WindowRecord {
            window: window.clone(),
            flows: vec![FlowCounters::default(); built.flows.len()],
            links: vec![LinkCounters::default(); built.links.len() * 2],
            states: vec![StateSums::default(); built.flows.len()],
            has_sample: false,
        };
        WindowStats {
            windows: scenario.windows.iter().map(book).collect(),
            packets: scenario.flows.iter().map(packet_size).collect(),
        }
    }

    /// Reads the counters of windows that begin or end at `at`, and adds a sample to open windows
    /// if it `is_tick`. It must be called at the begin and the end of each window.
    pub(crate) fn note(&mut self, built: &mut Built, at: Span, is_tick: bool) {
        for book in &mut self.windows {
            book.count(built, at);
        }
        let is_sampled = |book: &&mut WindowRecord| {
            let is_last_chance = !book.has_sample && at == book.window.to;
            book.window.from < at && at <= book.window.to && (is_tick || is_last_chance)
        };
        let mut books: Vec<&mut WindowRecord> =
            self.windows.iter_mut().filter(is_sampled).collect();
        if books.is_empty() {
            return;
        }
        for book in &mut books {
            book.has_sample = true;
        }
        for (index, (ends, packet)) in built.flows.iter().zip(&self.packets).enumerate() {
            if let Some(state) = living_state(built, ends) {
                for book in &mut books {
                    book.states[index].add(&state, *packet);
                }
            }
        }
    }

    /// Computes all measures. The simulation is dropped first, so that a large one and its measures
    /// are not in memory together.
    pub(crate) fn close(self, scenario: &Scenario, built: Built) -> Measures {
        let heard: Vec<ReceiverStats> = scenario
            .flows
            .iter()
            .zip(&built.flows)
            .map(|(flow, ends)| ReceiverStats {
                start: ends.start,
                is_udp: matches!(*flow.transport, Transport::Udp(_)),
                requests: completed(&built, ends).into(),
            })
            .collect();
        drop(built);
        let each = scenario.flows.len() * FLOW_MEASURES + scenario.links.len() * LINK_MEASURES;
        let mut measures = Measures::with_capacity(self.windows.len() * each);
        let subjects = Subjects::note(scenario, &self.windows, &mut measures);
        let capacities = capacities(scenario);
        for (book, capacities) in self.windows.iter().zip(capacities) {
            book.close(scenario, &subjects, &heard, &capacities, &mut measures);
        }
        measures
    }
}

/// The bits that each direction of each link could deliver in each window.
fn capacities(scenario: &Scenario) -> Vec<Vec<f64>> {
    let mut edges: Vec<Span> =
        scenario.windows.iter().flat_map(|window| [window.from, window.to]).collect();
    edges.sort_unstable();
    edges.dedup();
    let place = |at: Span| edges.partition_point(|edge| *edge < at);
    let mut capacities = vec![Vec::new(); scenario.windows.len()];
    for profile in scenario.links.iter().flat_map(|link| [&link.up, &link.down]) {
        let profile = profile.profile();
        // What arrives by the end of a window was sent one delay earlier.
        let sent: Vec<Span> = edges.iter().map(|edge| profile.sent_by(*edge)).collect();
        let until = profile.capacity(&sent);
        for (window, capacities) in scenario.windows.iter().zip(&mut capacities) {
            let counter =
                Counter { begin: until[place(window.from)], end: until[place(window.to)] };
            capacities.push(counter.gained() / 1e9);
        }
    }
    capacities
}

impl StateSums {
    fn add(&mut self, state: &SenderState, packet: f64) {
        self.samples += 1.0;
        self.window += state.window.as_f64() / packet;
        if let Some(rtt) = state.rtt {
            self.timed += 1.0;
            self.rtt += rtt.as_secs_f64();
        }
    }
}

/// The numbers of the names of everything that is measured.
struct Subjects<'a> {
    flows: Vec<FlowSubjects>,
    groups: Vec<(&'a Arc<str>, SubjectId)>,
    all: SubjectId,
    /// By link: up and down.
    links: Vec<[SubjectId; 2]>,
}

/// A flow, and its subflows if a window has measures of them.
struct FlowSubjects {
    flow: SubjectId,
    subflows: Vec<SubjectId>,
}

impl<'a> Subjects<'a> {
    fn note(
        scenario: &'a Scenario,
        windows: &[WindowRecord],
        measures: &mut Measures,
    ) -> Subjects<'a> {
        let subflows = |index: usize| {
            windows.iter().map(|book| book.flows[index].bottlenecks.len()).max().unwrap_or(0)
        };
        let flows = scenario.flows.iter().enumerate().map(|(index, FlowSpec { name, .. })| {
            let flow = measures.subject(Arc::clone(name));
            let subflows = (0..subflows(index))
                .map(|number| measures.subject(format!("{name}/{number}").into()));
            FlowSubjects { flow, subflows: subflows.collect() }
        });
        let flows = flows.collect();
        let mut groups: Vec<&Arc<str>> = scenario.flows.iter().map(|flow| &flow.group).collect();
        let mut known = HashSet::new();
        groups.retain(|group| known.insert(Arc::clone(group)));
        Subjects {
            flows,
            groups: groups
                .into_iter()
                .map(|group| (group, measures.subject(Arc::clone(group))))
                .collect(),
            all: measures.subject("".into()),
            links: scenario
                .links
                .iter()
                .map(|link| link.directions.clone().map(|of| measures.subject(of)))
                .collect(),
        }
    }
}

/// A typical number of measures of a flow.
const FLOW_MEASURES: usize = 6;
/// The maximum number of measures of a link, both directions together.
const LINK_MEASURES: usize = 16;

/// What a flow's receiver knows at the end.
struct ReceiverStats {
    /// The start of the flow.
    start: Time,
    is_udp: bool,
    /// The completed requests.
    requests: Box<[Request]>,
}

impl ReceiverStats {
    /// When the last of its requests was complete, if the flow has that many.
    fn completion(&self, flow: &FlowSpec) -> Option<Time> {
        let last = self.requests.last()?;
        let is_complete = flow.requests().is_some_and(|count| self.requests.len() as u64 >= count);
        is_complete.then_some(last.done)
    }
}

impl WindowRecord {
    /// Reads the counters if `at` is the begin or the end of the window.
    fn count(&mut self, built: &mut Built, at: Span) {
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
            if let Some((count, delay)) = datagrams(built, ends) {
                book.datagrams.note(count, is_begin);
                book.delay.note(delay.as_nanos(), is_begin);
            }
            if let (false, AgentState::Live(Agent::Ptcp(striped))) = (is_begin, sender(built, ends))
            {
                book.bottlenecks = striped.bottlenecks().collect();
            }
        }
        let ids = built.links.iter().flat_map(|(up, down)| [*up, *down]);
        for (book, id) in self.links.iter_mut().zip(ids) {
            // First, since it lets packets leave: the counters are complete then.
            let area = built.sim.queue_area(id);
            book.left.note(area.left, is_begin);
            book.waited_packets.note(area.packets, is_begin);
            book.waited_bytes.note(area.bytes, is_begin);
            let counters = built.sim.counters(id);
            book.delivered.note(counters.delivered.bytes.0, is_begin);
            let drops = counters.dropped_queue + counters.dropped_aqm;
            book.drops.note(drops, is_begin);
            book.marks.note(counters.marked, is_begin);
            book.losses.note(counters.dropped() - drops, is_begin);
        }
    }

    /// How many of the flows that arrive in the course of the run began in the window, and how many
    /// of these were complete at its end.
    fn arrivals<'a>(
        &self,
        flows: impl Iterator<Item = (&'a FlowSpec, &'a ReceiverStats)>,
        mut put: impl FnMut(Metric, f64),
    ) {
        let (from, to) = (Time::ZERO + self.window.from, Time::ZERO + self.window.to);
        let (mut all, mut begun, mut complete) = (0, 0, 0);
        for (flow, heard) in flows.filter(|(flow, _)| flow.is_arrival()) {
            all += 1;
            if from < heard.start && heard.start <= to {
                begun += 1;
                complete += u64::from(heard.completion(flow).is_some_and(|done| done <= to));
            }
        }
        if all > 0 {
            put(FLOWS, float(all));
            put(BEGUN, float(begun));
            put(COMPLETED, float(complete));
        }
    }

    fn close(
        &self,
        scenario: &Scenario,
        subjects: &Subjects<'_>,
        heard: &[ReceiverStats],
        capacities: &[f64],
        measures: &mut Measures,
    ) {
        let seconds = (self.window.to - self.window.from).as_secs_f64();
        let window = measures.window(self.window.name.as_str().into());
        let mut put = |scope, of: SubjectId, metric, value: f64| {
            measures.put(scope, of, window, metric, value);
        };
        let goodput = |book: &FlowCounters| book.received.gained() * 8.0 / 1e6 / seconds;
        for (((flow, book), state), heard) in
            subjects.flows.iter().zip(&self.flows).zip(&self.states).zip(heard)
        {
            let mut put = |metric, value| put(Scope::Flow, flow.flow, metric, value);
            put(GOODPUT, goodput(book));
            if heard.is_udp {
                let datagrams = book.datagrams.gained();
                if datagrams > 0.0 {
                    put(DELAY, book.delay.gained() / 1e6 / datagrams);
                }
            } else {
                state.close(&mut put);
                put(RETRANSMISSIONS, book.retransmitted.gained());
                put(TIMEOUTS, book.timeouts.gained());
            }
            requests(&self.window, &heard.requests, put);
        }
        for (flow, book) in subjects.flows.iter().zip(&self.flows) {
            for (of, bottleneck) in flow.subflows.iter().zip(&book.bottlenecks) {
                put(Scope::Subflow, *of, BOTTLENECK, f64::from(*bottleneck));
            }
        }
        let mut put_shares = |scope, of, goodputs: &[f64]| {
            put(scope, of, GOODPUT, goodputs.iter().sum());
            if let Some(jain) = jain(goodputs) {
                put(scope, of, JAIN, jain);
            }
        };
        let named = || scenario.flows.iter().zip(&self.flows);
        for (group, of) in &subjects.groups {
            let goodputs: Vec<f64> = named()
                .filter(|(flow, _)| flow.group == **group)
                .map(|(_, book)| goodput(book))
                .collect();
            put_shares(Scope::Group, *of, &goodputs);
        }
        let goodputs: Vec<f64> = self.flows.iter().map(goodput).collect();
        put_shares(Scope::All, subjects.all, &goodputs);
        for (group, of) in &subjects.groups {
            let flows = scenario.flows.iter().zip(heard).filter(|(flow, _)| flow.group == **group);
            self.arrivals(flows, |metric, value| put(Scope::Group, *of, metric, value));
        }
        let flows = scenario.flows.iter().zip(heard);
        self.arrivals(flows, |metric, value| put(Scope::All, subjects.all, metric, value));
        let directions = subjects.links.iter().flatten();
        for ((of, book), capacity) in directions.zip(&self.links).zip(capacities) {
            book.close(seconds, *capacity, |metric, value| put(Scope::Link, *of, metric, value));
        }
    }
}

impl StateSums {
    fn close(&self, mut put: impl FnMut(Metric, f64)) {
        if self.samples > 0.0 {
            put(WINDOW, self.window / self.samples);
        }
        if self.timed > 0.0 {
            put(RTT, self.rtt / self.timed * 1e3);
        }
    }
}

impl LinkCounters {
    /// The measures over a window of `seconds` in which the link could deliver `capacity` bits.
    fn close(&self, seconds: f64, capacity: f64, mut put: impl FnMut(Metric, f64)) {
        let bits = self.delivered.gained() * 8.0;
        put(THROUGHPUT, bits / 1e6 / seconds);
        if capacity > 0.0 {
            put(UTILISATION, bits / capacity);
        }
        put(QUEUE, self.waited_packets.gained() / 1e9 / seconds);
        put(QUEUE_BYTES, self.waited_bytes.gained() / 1e9 / seconds);
        if self.left.gained() > 0.0 {
            put(QUEUE_TIME, self.waited_packets.gained() / 1e6 / self.left.gained());
        }
        put(DROPS, self.drops.gained());
        put(MARKS, self.marks.gained());
        put(LOSSES, self.losses.gained());
    }
}

/// The measures of the requests that were completed within the window.
fn requests(window: &Window, requests: &[Request], mut put: impl FnMut(Metric, f64)) {
    let (from, to) = (Time::ZERO + window.from, Time::ZERO + window.to);
    let done = requests.iter().filter(|request| request.done > from && request.done <= to);
    let mut times: Vec<f64> =
        done.map(|request| (request.done - request.at).as_secs_f64()).collect();
    if times.is_empty() {
        return;
    }
    times.sort_by(f64::total_cmp);
    put(REQUESTS, float(times.len() as u64));
    put(COMPLETION, times.iter().sum::<f64>() / float(times.len() as u64));
    put(COMPLETION_P95, times[(times.len() * 95).div_ceil(100) - 1]);
}

/// Jain's fairness index: (Σx)² / (n Σx²); `None` if all values are zero.
fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (squares > 0.0).then(|| sum * sum / (float(values.len() as u64) * squares))
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
        let is = |values: &[f64], wanted: f64| {
            (jain(values).expect("something flows") - wanted).abs() < 1e-12
        };
        assert!(is(&[1.0, 1.0, 1.0, 1.0], 1.0));
        assert!(is(&[5.0, 0.0, 0.0, 0.0], 0.25));
        // Chiu and Jain's own example of shares 1, 3, 5.
        assert!(is(&[1.0, 3.0, 5.0], 81.0 / 105.0));
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
