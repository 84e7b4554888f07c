//! The measures of a run, collected over windows of time.

mod close;
mod completions;
mod counters;
mod distribution;
mod ideal;
mod meter;
mod shares;
mod subjects;

use std::sync::Arc;

use units::Span;

use crate::build::Built;
use crate::file::{Scenario, Window};
use crate::flow_state::{living_state, packet_size, subflow_state};
pub(crate) use close::Closed;
pub use close::{CompletedRequest, DelayCount};
use counters::{FlowCounters, LinkCounters, StateSums, SubflowCounters};
pub(crate) use meter::{Meter, PacketCounts};
use shares::ShareMeans;
pub(crate) use shares::{Groups, Shares};

/// The counters and sums of all windows.
pub(crate) struct WindowStats {
    windows: Vec<WindowRecord>,
    layout: Layout,
    shares: Shares,
}

/// What a scenario's numbers stand for.
struct Layout {
    /// The payload of a full packet in bytes, by flow.
    packets: Vec<f64>,
    /// The first connection of each flow, and their number at the end.
    first: Vec<usize>,
    /// The flow and the number of each subflow, of flows with several.
    subflows: Vec<(usize, usize)>,
    groups: Groups,
}

/// The counters and sums of one window.
struct WindowRecord {
    window: Window,
    flows: Vec<FlowCounters>,
    /// By subflow, of flows with several.
    subflows: Vec<SubflowCounters>,
    /// By direction of a link.
    links: Vec<LinkCounters>,
    /// By flow. They are not in `flows`, which is read only at the begin and the end.
    states: Vec<StateSums>,
    /// By subflow, of flows with several.
    substates: Vec<StateSums>,
    shares: ShareMeans,
    has_sample: bool,
}

impl Layout {
    fn new(scenario: &Scenario, built: &Built) -> Layout {
        let mut first = Vec::with_capacity(scenario.flows.len() + 1);
        for (number, (_, subflow)) in built.connections.iter().enumerate() {
            if *subflow == 0 {
                first.push(number);
            }
        }
        first.push(built.connections.len());
        Layout {
            packets: scenario.flows.iter().map(packet_size).collect(),
            subflows: several_subflows(scenario).collect(),
            groups: Groups::new(&scenario.flows),
            first,
        }
    }
}

impl WindowStats {
    pub(crate) fn new(scenario: &Scenario, built: &Built) -> WindowStats {
        let layout = Layout::new(scenario, built);
        let book = |window: &Window| WindowRecord {
            window: window.clone(),
            flows: vec![FlowCounters::default(); built.flows.len()],
            subflows: vec![SubflowCounters::default(); layout.subflows.len()],
            links: vec![LinkCounters::default(); built.links.len() * 2],
            states: vec![StateSums::default(); built.flows.len()],
            substates: vec![StateSums::default(); layout.subflows.len()],
            shares: ShareMeans::new(&layout.groups),
            has_sample: false,
        };
        WindowStats {
            windows: scenario.windows.iter().map(book).collect(),
            shares: Shares::new(built, &layout.groups),
            layout,
        }
    }

    /// Whether a window begins or ends at `at`.
    pub(crate) fn has_edge(&self, at: Span) -> bool {
        self.windows.iter().any(|book| book.window.from == at || book.window.to == at)
    }

    /// Reads the counters of windows that begin or end at `at`. It must be called at the begin and
    /// the end of each window.
    pub(crate) fn count(
        &mut self,
        scenario: &Scenario,
        built: &mut Built,
        counts: &mut PacketCounts,
        at: Span,
    ) {
        for book in &mut self.windows {
            book.count(scenario, &self.layout, built, counts, at);
        }
        let is_open = |book: &WindowRecord| book.window.from <= at && at < book.window.to;
        let windows = self.windows.iter().enumerate();
        counts.open(windows.filter(|(_, book)| is_open(book)).map(|(number, _)| number));
    }

    /// Adds a sample to open windows if it `is_tick`, or if a window ends without one.
    pub(crate) fn sample(&mut self, built: &Built, at: Span, is_tick: bool) {
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
        let packets = &self.layout.packets;
        for (index, (ends, packet)) in built.flows.iter().zip(packets).enumerate() {
            if let Some(state) = living_state(built, ends) {
                for book in &mut books {
                    book.states[index].add(state.window, state.rtt, *packet);
                }
            }
        }
        for (index, (flow, subflow)) in self.layout.subflows.iter().enumerate() {
            let ends = &built.flows[*flow];
            if living_state(built, ends).is_some() {
                let state = subflow_state(built, ends, *subflow);
                for book in &mut books {
                    book.substates[index].add(state.window, state.rtt, packets[*flow]);
                }
            }
        }
    }

    /// Ends an interval over which shares are compared.
    pub(crate) fn share(&mut self, built: &Built, at: Span) {
        let from = self.shares.take(built, &self.layout.groups, at);
        for book in &mut self.windows {
            if book.window.from <= from && at <= book.window.to {
                book.shares.add(&self.shares.sums);
            }
        }
    }

    /// Computes all measures, and lists the completed requests and the delays.
    pub(crate) fn close(self, scenario: &Scenario, built: Built, counts: &PacketCounts) -> Closed {
        close::close(&self, scenario, built, counts)
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn float(n: u64) -> f64 {
    n as f64
}

/// The flow and the number of each subflow, of flows with several.
pub(crate) fn several_subflows(scenario: &Scenario) -> impl Iterator<Item = (usize, usize)> {
    let flows = scenario.flows.iter().enumerate();
    flows.flat_map(|(flow, spec)| (0..spec.several_subflows()).map(move |number| (flow, number)))
}

/// The name of a subflow.
pub(crate) fn subflow_name(flow: &str, number: usize) -> Arc<str> {
    format!("{flow}/{number}").into()
}
