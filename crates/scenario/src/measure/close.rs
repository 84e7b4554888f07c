//! From counters and sums to measures.

use std::sync::Arc;

use units::{Bytes, Span, Time};

use super::completions::Completions;
use super::counters::{Counter, FlowCounters};
use super::distribution::SpanDistribution;
use super::ideal::Ideal;
use super::shares::Sums;
use super::subjects::{Sheets, Subjects};
use super::{Layout, PacketCounts, WindowRecord, WindowStats, float};
use crate::build::Built;
use crate::file::{FlowSpec, Scenario, SizeClasses, Transport, Window};
use crate::flow_state::requests;
use crate::measures::{Measures, Metric, Scope, SubjectId};

const GOODPUT: Metric = Metric::listed("goodput");
const LOSS: Metric = Metric::listed("loss");
const MARKS: Metric = Metric::listed("marks");
const DELAY: Metric = Metric::listed("delay");
const DELAY_PERCENTILES: [Metric; 3] =
    [Metric::listed("delay_p50"), Metric::listed("delay_p95"), Metric::listed("delay_p99")];
const DELAY_MAX: Metric = Metric::listed("delay_max");
const JITTER: Metric = Metric::listed("jitter");
const GAP: Metric = Metric::listed("gap");
const RETRANSMISSIONS: Metric = Metric::listed("retransmissions");
const TIMEOUTS: Metric = Metric::listed("timeouts");
const BOTTLENECK: Metric = Metric::listed("bottleneck");
const JAIN: Metric = Metric::listed("jain");
const JAIN_SHORT: Metric = Metric::listed("jain_short");
const FLOWS: Metric = Metric::listed("flows");
const BEGUN: Metric = Metric::listed("begun");
const COMPLETED: Metric = Metric::listed("completed");

/// A completed request or write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompletedRequest {
    /// The flow, by its index in the scenario.
    pub flow: u32,
    /// The time of the request or write.
    pub at: Time,
    /// The arrival of the last byte.
    pub done: Time,
    /// The size.
    pub bytes: Bytes,
    /// The time in seconds that it takes alone on the flow's routes; `None` of UDP, and if a link
    /// of these has no rate at first.
    pub ideal: Option<f64>,
}

impl CompletedRequest {
    /// How long it took, in seconds.
    #[must_use]
    pub fn completion(&self) -> f64 {
        (self.done - self.at).as_secs_f64()
    }

    /// Whether it was completed within a window.
    fn is_within(&self, window: &Window) -> bool {
        Time::ZERO + window.from < self.done && self.done <= Time::ZERO + window.to
    }

    /// Its completion time over the ideal one.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        self.ideal.map(|ideal| self.completion() / ideal)
    }
}

/// The packets of a group whose one-way delays in one window are nearly equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayCount {
    /// The window, by its index in the scenario.
    pub window: usize,
    /// The group.
    pub group: Arc<str>,
    /// The largest delay that counts as equal: at most 1/128 above the smallest.
    pub upto: Span,
    /// The number of packets.
    pub packets: u64,
}

/// A typical number of measures of a flow.
const FLOW_MEASURES: usize = 8;
/// The maximum number of measures of a link, both directions together.
const LINK_MEASURES: usize = 24;

/// All that a run comes to.
pub(crate) struct Closed {
    pub(crate) measures: Measures,
    /// Those of single flows that arrive in the course of the run.
    pub(crate) arrivals: Measures,
    pub(crate) requests: Vec<CompletedRequest>,
    pub(crate) delays: Vec<DelayCount>,
}

/// Computes all measures. The simulation is dropped first, so that a large one and its measures are
/// not in memory together.
pub(super) fn close(
    stats: &WindowStats,
    scenario: &Scenario,
    built: Built,
    counts: &PacketCounts,
) -> Closed {
    let requests = requests_of_all(scenario, &built);
    drop(built);
    let arriving = scenario.flows.iter().filter(|flow| flow.is_arrival()).count();
    let [lasting, arriving] =
        [scenario.flows.len() - arriving, arriving].map(|flows| flows * FLOW_MEASURES);
    let with_links = lasting + scenario.links.len() * LINK_MEASURES;
    let mut sheets = Sheets {
        measures: Measures::with_capacity(stats.windows.len() * with_links),
        arrivals: Measures::with_capacity(stats.windows.len() * arriving),
    };
    let subjects = Subjects::note(scenario, &stats.layout, &mut sheets);
    let capacities = capacities(scenario);
    let mut delays = Vec::new();
    for (number, (book, capacities)) in stats.windows.iter().zip(capacities).enumerate() {
        let closing = Closing {
            number,
            book,
            scenario,
            layout: &stats.layout,
            subjects: &subjects,
            starts: stats.shares.starts(),
            requests: &requests,
            counts,
        };
        closing.close(&capacities, &mut sheets, &mut delays);
    }
    let Sheets { measures, arrivals } = sheets;
    Closed { measures, arrivals, requests, delays }
}

/// The completed requests of all flows, flow by flow.
fn requests_of_all(scenario: &Scenario, built: &Built) -> Vec<CompletedRequest> {
    let mut all = Vec::new();
    for (flow, (ends, spec)) in (0..).zip(built.flows.iter().zip(&scenario.flows)) {
        let requests = requests(built, ends);
        if requests.is_empty() {
            continue;
        }
        let ideal = Ideal::new(built, flow as usize, spec);
        all.extend(requests.iter().map(|request| CompletedRequest {
            flow,
            at: request.at,
            done: request.done,
            bytes: request.bytes,
            ideal: ideal.as_ref().map(|ideal| ideal.time(request)),
        }));
    }
    all
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

/// One window, with all that its measures are computed from.
struct Closing<'a> {
    number: usize,
    book: &'a WindowRecord,
    scenario: &'a Scenario,
    layout: &'a Layout,
    subjects: &'a Subjects,
    /// By flow.
    starts: &'a [Time],
    requests: &'a [CompletedRequest],
    counts: &'a PacketCounts,
}

/// Sums of a group, or of all flows.
#[derive(Default)]
struct GroupSums {
    goodput: f64,
    shares: Sums,
    sent: f64,
    lost: f64,
    /// The longest of a flow.
    gap: Option<Span>,
    completions: Completions,
    /// By class of size.
    classes: Vec<Completions>,
    /// The requests that were completed in the whole run.
    requests: usize,
    arrivals: ArrivalSums,
    delays: Option<SpanDistribution>,
}

/// The flows that arrive in the course of the run.
#[derive(Clone, Copy, Default)]
struct ArrivalSums {
    flows: u64,
    /// Those that began in the window.
    begun: u64,
    /// Those of the begun that were complete at its end.
    completed: u64,
}

impl ArrivalSums {
    /// Adds a flow; `requests` are those that were completed in the run.
    fn add(
        &mut self,
        window: &Window,
        flow: &FlowSpec,
        start: Time,
        requests: &[CompletedRequest],
    ) {
        let (from, to) = (Time::ZERO + window.from, Time::ZERO + window.to);
        self.flows += 1;
        if from < start && start <= to {
            self.begun += 1;
            let has_all = flow.requests().is_some_and(|count| requests.len() as u64 >= count);
            let is_done = requests.last().is_some_and(|last| last.done <= to);
            self.completed += u64::from(has_all && is_done);
        }
    }

    fn close(self, mut put: impl FnMut(Metric, f64)) {
        if self.flows > 0 {
            put(FLOWS, float(self.flows));
            put(BEGUN, float(self.begun));
            put(COMPLETED, float(self.completed));
        }
    }
}

impl GroupSums {
    fn add(&mut self, goodput: f64, book: &FlowCounters, delays: Option<&SpanDistribution>) {
        self.goodput += goodput;
        if book.lives {
            self.shares.add(goodput);
        }
        self.sent += book.sent.gained();
        self.lost += book.lost.gained();
        self.gap = self.gap.max(book.gap);
        if let Some(delays) = delays {
            self.delays.get_or_insert_default().merge(delays);
        }
    }

    /// Adds the requests that a flow has completed in the run, by class.
    fn add_classes(
        &mut self,
        classes: &SizeClasses,
        requests: &[CompletedRequest],
        window: &Window,
    ) {
        self.requests += requests.len();
        self.classes.resize_with(classes.names().len(), Completions::default);
        for request in requests.iter().filter(|request| request.is_within(window)) {
            if let Some(class) = classes.of(request.bytes) {
                self.classes[class].add(request.completion(), request.slowdown());
            }
        }
    }

    /// The classes, of flows that have completed a request in the run: each has a row then.
    fn take_classes(&mut self) -> Vec<Completions> {
        let classes = std::mem::take(&mut self.classes);
        if self.requests > 0 { classes } else { Vec::new() }
    }

    fn close(self, jain_short: Option<f64>, mut put: impl FnMut(Metric, f64)) {
        put(GOODPUT, self.goodput);
        if let Some(jain) = self.shares.jain() {
            put(JAIN, jain);
        }
        if let Some(jain) = jain_short {
            put(JAIN_SHORT, jain);
        }
        loss(self.sent, self.lost, &mut put);
        if let Some(delays) = &self.delays {
            put_delays(delays, &mut put);
        }
        put_gap(self.gap, &mut put);
        self.completions.close(&mut put);
        self.arrivals.close(put);
    }
}

/// The fraction of what was sent that was lost.
fn loss(sent: f64, lost: f64, mut put: impl FnMut(Metric, f64)) {
    if sent > 0.0 {
        put(LOSS, lost / sent);
    }
}

fn put_delays(delays: &SpanDistribution, mut put: impl FnMut(Metric, f64)) {
    if let Some(summary) = delays.summary([50, 95, 99]) {
        put(DELAY, summary.mean);
        for (metric, value) in DELAY_PERCENTILES.into_iter().zip(summary.percentiles) {
            put(metric, value);
        }
        put(DELAY_MAX, summary.max);
    }
}

fn put_gap(gap: Option<Span>, mut put: impl FnMut(Metric, f64)) {
    if let Some(gap) = gap {
        put(GAP, gap.as_secs_f64() * 1e3);
    }
}

impl Closing<'_> {
    fn close(&self, capacities: &[f64], sheets: &mut Sheets, delays: &mut Vec<DelayCount>) {
        let span = self.book.window.to - self.book.window.from;
        let name: Arc<str> = self.book.window.name.as_str().into();
        let Sheets { measures, arrivals } = sheets;
        // Both have all windows, in the same order.
        let window = measures.window(Arc::clone(&name));
        arrivals.window(name);
        let mut put_flow = |scope, flow: usize, of: SubjectId, metric, value: f64| {
            let is_arrival = self.scenario.flows[flow].is_arrival();
            let sheet = if is_arrival { &mut *arrivals } else { &mut *measures };
            sheet.put(scope, of, window, metric, value);
        };
        let mut groups: Vec<GroupSums> = Vec::new();
        groups.resize_with(self.subjects.groups.len() + 1, GroupSums::default);
        let all = groups.len() - 1;
        let mut requests = self.requests;
        for (index, flow) in self.subjects.flows.iter().enumerate() {
            let mut put = |metric, value| put_flow(Scope::Flow, index, *flow, metric, value);
            let book = &self.book.flows[index];
            let goodput = rate(book.arrived, span);
            let delays = self.counts.delays(self.number, index);
            put(GOODPUT, goodput);
            self.close_flow(index, &mut put);
            let own = requests.partition_point(|request| request.flow as usize <= index);
            let (own, others) = requests.split_at(own);
            requests = others;
            let completions = self.completions(own);
            let spec = &self.scenario.flows[index];
            for group in [self.layout.groups.of[index] as usize, all] {
                if spec.is_arrival() {
                    let arrivals = &mut groups[group].arrivals;
                    arrivals.add(&self.book.window, spec, self.starts[index], own);
                }
                groups[group].add(goodput, book, delays.map(|delays| &delays.times));
                groups[group].completions.extend(&completions);
                groups[group].add_classes(&self.scenario.size_classes, own, &self.book.window);
            }
            completions.close(put);
        }
        self.close_subflows(span, |flow, of, metric, value| {
            put_flow(Scope::Subflow, flow, of, metric, value);
        });
        let mut put = |scope, of: SubjectId, metric, value: f64| {
            measures.put(scope, of, window, metric, value);
        };
        let ids = self.subjects.groups.iter().map(|of| (Scope::Group, *of));
        let ids = ids.chain([(Scope::All, self.subjects.all)]);
        for (name, sums) in self.layout.groups.names.iter().zip(&groups) {
            let Some(times) = &sums.delays else { continue };
            delays.extend(times.buckets().into_iter().map(|(upto, packets)| DelayCount {
                window: self.number,
                group: Arc::clone(name),
                upto: Span::from_nanos(upto),
                packets,
            }));
        }
        let each = ids.zip(groups).zip(self.book.shares.means()).zip(&self.subjects.classes);
        for ((((scope, of), mut sums), short), classes) in each {
            for (of, completions) in classes.iter().zip(sums.take_classes()) {
                completions.close_class(|metric, value| put(Scope::Class, *of, metric, value));
            }
            sums.close(short, |metric, value| put(scope, of, metric, value));
        }
        let directions = self.subjects.links.iter().flatten();
        for ((of, book), capacity) in directions.zip(&self.book.links).zip(capacities) {
            let mut put = |metric, value| put(Scope::Link, *of, metric, value);
            book.close(span, *capacity, &mut put);
            if self.scenario.measures_queues {
                book.close_queue(span, put);
            }
        }
    }

    /// The measures of a flow, except its goodput and its requests.
    fn close_flow(&self, index: usize, mut put: impl FnMut(Metric, f64)) {
        let book = &self.book.flows[index];
        let is_udp = matches!(*self.scenario.flows[index].transport, Transport::Udp(_));
        if !is_udp {
            self.book.states[index].close(&mut put);
            put(RETRANSMISSIONS, book.retransmitted.gained());
            put(TIMEOUTS, book.timeouts.gained());
        }
        loss(book.sent.gained(), book.lost.gained(), &mut put);
        if let Some(marked) = book.marked {
            put(MARKS, marked.gained());
        }
        put_gap(book.gap, &mut put);
        if let Some(delays) = self.counts.delays(self.number, index) {
            put_delays(&delays.times, &mut put);
            if let Some(jitter) = delays.jitter() {
                put(JITTER, jitter);
            }
        } else if book.datagrams.gained() > 0.0 {
            put(DELAY, book.delay.gained() / 1e6 / book.datagrams.gained());
        }
    }

    /// The measures of the subflows, each with the index of its flow.
    fn close_subflows(&self, span: Span, mut put: impl FnMut(usize, SubjectId, Metric, f64)) {
        for (index, (flow, number)) in self.layout.subflows.iter().enumerate() {
            let of = self.subjects.subflows[index];
            let book = &self.book.subflows[index];
            let mut put = |metric, value| put(*flow, of, metric, value);
            put(GOODPUT, rate(book.arrived, span));
            self.book.substates[index].close(&mut put);
            put(RETRANSMISSIONS, book.retransmitted.gained());
            loss(book.sent.gained(), book.lost.gained(), &mut put);
            if let Some(bottleneck) = self.book.flows[*flow].bottlenecks.get(*number) {
                put(BOTTLENECK, f64::from(*bottleneck));
            }
        }
    }

    /// Those of the requests that were completed within the window.
    fn completions(&self, requests: &[CompletedRequest]) -> Completions {
        let mut completions = Completions::default();
        for request in requests.iter().filter(|one| one.is_within(&self.book.window)) {
            completions.add(request.completion(), request.slowdown());
        }
        completions
    }
}

/// The rate of a counter of bytes in Mbit/s.
fn rate(counter: Counter, span: Span) -> f64 {
    counter.gained() * 8.0 / 1e6 / span.as_secs_f64()
}
