//! The measures of a run, collected over windows of time.

use std::sync::Arc;

use link::SharedProfile;
use units::{Rate, Span, Time};

use crate::build::Built;
use crate::file::{FlowSpec, Scenario, Window};
use crate::flow_state::{packet_size, received, receiver, sender, sender_counts, sender_state};
use crate::host::{Agent, Request};
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
const BOTTLENECK: Metric = Metric::listed("bottleneck");
const JAIN: Metric = Metric::listed("jain");
const THROUGHPUT: Metric = Metric::listed("throughput");
const UTILISATION: Metric = Metric::listed("utilisation");
const QUEUE: Metric = Metric::listed("queue");
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
    /// The number of samples since its begin.
    samples: f64,
    flows: Vec<FlowCounters>,
    links: Vec<LinkCounters>,
    /// Sums over the samples of each flow's congestion window, in packets, and RTT, in seconds.
    /// They are not in `flows`, which is read only at the begin and the end.
    sums: Vec<(f64, f64)>,
    /// Sums over the samples of the backlog of each link direction, in packets.
    queues: Vec<f64>,
}

/// The counters of a flow in one window.
#[derive(Clone, Default)]
struct FlowCounters {
    received: Counter,
    retransmitted: Counter,
    timeouts: Counter,
    /// The number of the bottleneck of each subflow of a striped connection, at the end.
    bottlenecks: Vec<u16>,
}

/// The counters of a link direction in one window.
#[derive(Clone, Default)]
struct LinkCounters {
    delivered: Counter,
    drops: Counter,
    marks: Counter,
    losses: Counter,
}

/// The values of a counter at the begin and the end of a window.
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

impl WindowStats {
    pub(crate) fn new(scenario: &Scenario, built: &Built) -> WindowStats {
        let book = |window: &Window| WindowRecord {
            window: window.clone(),
            samples: 0.0,
            flows: vec![FlowCounters::default(); built.flows.len()],
            links: vec![LinkCounters::default(); built.links.len() * 2],
            sums: vec![(0.0, 0.0); built.flows.len()],
            queues: vec![0.0; built.links.len() * 2],
        };
        WindowStats {
            windows: scenario.windows.iter().map(book).collect(),
            packets: scenario.flows.iter().map(packet_size).collect(),
        }
    }

    /// Takes a sample at `at`: adds to the sums of open windows, and reads the counters of windows
    /// that begin or end. It must be called at the begin and the end of each window.
    pub(crate) fn sample(&mut self, built: &mut Built, at: Span) {
        let is_open = |book: &WindowRecord| book.window.from <= at && at <= book.window.to;
        let Some(first) = self.windows.iter().position(is_open) else { return };
        self.windows[first].count(built, at);
        // After the counters: reading a queue lets packets leave, and may count drops.
        self.sum(built, at);
        for book in self.windows[first + 1..].iter_mut().filter(|book| is_open(book)) {
            book.count(built, at);
        }
    }

    /// Adds a sample to all windows that began before `at`.
    fn sum(&mut self, built: &mut Built, at: Span) {
        let is_summed = |book: &&mut WindowRecord| book.window.from < at && at <= book.window.to;
        let mut books: Vec<&mut WindowRecord> = self.windows.iter_mut().filter(is_summed).collect();
        for book in &mut books {
            book.samples += 1.0;
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

    /// Computes all measures. The simulation is dropped first, so that a large one and its measures
    /// are not in memory together.
    pub(crate) fn close(self, scenario: &Scenario, built: Built) -> Measures {
        let heard: Vec<ReceiverStats> =
            built.flows.iter().map(|ends| ReceiverStats::by(receiver(&built, ends))).collect();
        drop(built);
        let each = scenario.flows.len() * FLOW_MEASURES + scenario.links.len() * LINK_MEASURES;
        let mut measures = Measures::with_capacity(self.windows.len() * each);
        let subjects = Subjects::note(scenario, &self.windows, &mut measures);
        for book in self.windows {
            book.close(scenario, &subjects, &heard, &mut measures);
        }
        measures
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
        groups.dedup();
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
const LINK_MEASURES: usize = 12;

/// The measures that a flow's receiver keeps.
enum ReceiverStats {
    /// Completed requests, of transports with streams.
    Requests(Vec<Request>),
    /// The mean delay of UDP; `None` without datagrams.
    Delay(Option<Span>),
}

impl ReceiverStats {
    fn by(receiver: &Agent) -> ReceiverStats {
        match receiver {
            Agent::Tcp(connection) => {
                ReceiverStats::Requests(connection.application().requests().to_vec())
            }
            Agent::Ptcp(striped) => {
                ReceiverStats::Requests(striped.application().requests().to_vec())
            }
            Agent::Sockets(sockets) => {
                ReceiverStats::Requests(sockets.application().requests().to_vec())
            }
            Agent::UdpSink(sink) => ReceiverStats::Delay(sink.mean_delay()),
            Agent::UdpSource(_) => ReceiverStats::Delay(None),
        }
    }
}

impl WindowRecord {
    /// Reads the counters if `at` is the begin or the end of the window.
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

    fn close(
        &self,
        scenario: &Scenario,
        subjects: &Subjects<'_>,
        heard: &[ReceiverStats],
        measures: &mut Measures,
    ) {
        let seconds = (self.window.to - self.window.from).as_secs_f64();
        let window = measures.window(self.window.name.as_str().into());
        let mut put = |scope, of: SubjectId, metric, value: f64| {
            measures.put(scope, of, window, metric, value);
        };
        let goodput = |book: &FlowCounters| book.received.gained() * 8.0 / 1e6 / seconds;
        for (((flow, book), sums), heard) in
            subjects.flows.iter().zip(&self.flows).zip(&self.sums).zip(heard)
        {
            let of = flow.flow;
            put(Scope::Flow, of, GOODPUT, goodput(book));
            match heard {
                ReceiverStats::Requests(done) => {
                    put(Scope::Flow, of, WINDOW, sums.0 / self.samples);
                    put(Scope::Flow, of, RTT, sums.1 / self.samples * 1e3);
                    put(Scope::Flow, of, RETRANSMISSIONS, book.retransmitted.gained());
                    put(Scope::Flow, of, TIMEOUTS, book.timeouts.gained());
                    requests(&self.window, done, |metric, value| {
                        put(Scope::Flow, of, metric, value);
                    });
                }
                ReceiverStats::Delay(Some(delay)) => {
                    put(Scope::Flow, of, DELAY, delay.as_secs_f64() * 1e3);
                }
                ReceiverStats::Delay(None) => {}
            }
        }
        for (flow, book) in subjects.flows.iter().zip(&self.flows) {
            for (of, bottleneck) in flow.subflows.iter().zip(&book.bottlenecks) {
                put(Scope::Subflow, *of, BOTTLENECK, f64::from(*bottleneck));
            }
        }
        let named = || scenario.flows.iter().zip(&self.flows);
        for (group, of) in &subjects.groups {
            let goodputs: Vec<f64> = named()
                .filter(|(flow, _)| flow.group == **group)
                .map(|(_, book)| goodput(book))
                .collect();
            put(Scope::Group, *of, GOODPUT, goodputs.iter().sum());
            put(Scope::Group, *of, JAIN, jain(&goodputs));
        }
        let goodputs: Vec<f64> = self.flows.iter().map(goodput).collect();
        put(Scope::All, subjects.all, GOODPUT, goodputs.iter().sum());
        put(Scope::All, subjects.all, JAIN, jain(&goodputs));
        let pairs = self.links.chunks_exact(2).zip(self.queues.chunks_exact(2));
        for ((link, of), (books, queues)) in scenario.links.iter().zip(&subjects.links).zip(pairs) {
            let directions = of.iter().zip([&link.up, &link.down].map(SharedProfile::profile));
            for (((of, profile), book), queue) in directions.zip(books).zip(queues) {
                let throughput = book.delivered.gained() * 8.0 / 1e6 / seconds;
                put(Scope::Link, *of, THROUGHPUT, throughput);
                if profile.rate.base > Rate::ZERO {
                    put(
                        Scope::Link,
                        *of,
                        UTILISATION,
                        throughput * 1e6 / profile.rate.base.as_f64(),
                    );
                }
                put(Scope::Link, *of, QUEUE, queue / self.samples);
                put(Scope::Link, *of, DROPS, book.drops.gained());
                put(Scope::Link, *of, MARKS, book.marks.gained());
                put(Scope::Link, *of, LOSSES, book.losses.gained());
            }
        }
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

/// Jain's fairness index: (Σx)² / (n Σx²); 1 if all values are zero.
fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (float(values.len() as u64) * squares) }
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
