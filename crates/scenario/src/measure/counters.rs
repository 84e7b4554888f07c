//! The counters of one window, at its begin and its end.

use units::{Bytes, Span, Time};

use super::distribution::rank_of_time;
use super::{Layout, PacketCounts, WindowRecord, float};
use crate::build::Built;
use crate::file::Scenario;
use crate::flow_state::{
    arrived, bottlenecks, datagrams, has_ended, longest_gap, marked, sender_counts, sent,
    subflow_arrived, subflow_state,
};
use crate::measures::Metric;

const WINDOW: Metric = Metric::listed("window");
const RTT: Metric = Metric::listed("rtt");
const THROUGHPUT: Metric = Metric::listed("throughput");
const UTILISATION: Metric = Metric::listed("utilisation");
const QUEUE: Metric = Metric::listed("queue");
const QUEUE_P50: Metric = Metric::listed("queue_p50");
const QUEUE_P95: Metric = Metric::listed("queue_p95");
const QUEUE_P99: Metric = Metric::listed("queue_p99");
const QUEUE_MAX: Metric = Metric::listed("queue_max");
const QUEUE_BYTES: Metric = Metric::listed("queue_bytes");
const QUEUE_TIME: Metric = Metric::listed("queue_time");
const DROPS: Metric = Metric::listed("drops");
const MARKS: Metric = Metric::listed("marks");
const LOSSES: Metric = Metric::listed("losses");

/// The counters of a flow in one window.
#[derive(Clone, Default)]
pub(super) struct FlowCounters {
    pub(super) arrived: Counter,
    pub(super) sent: Counter,
    pub(super) lost: Counter,
    /// Of flows that are ECN-capable.
    pub(super) marked: Option<Counter>,
    pub(super) retransmitted: Counter,
    pub(super) timeouts: Counter,
    /// Of UDP: datagrams, and the sum of their delays in nanoseconds.
    pub(super) datagrams: Counter,
    pub(super) delay: Counter,
    /// Whether the flow began before the end of the window, and had not ended before its begin.
    pub(super) lives: bool,
    /// The longest time without bytes in order, where it is measured.
    pub(super) gap: Option<Span>,
    /// The number of the bottleneck of each subflow of a striped connection, at the end.
    pub(super) bottlenecks: Vec<u16>,
}

/// The counters of a subflow in one window.
#[derive(Clone, Copy, Default)]
pub(super) struct SubflowCounters {
    pub(super) arrived: Counter,
    pub(super) sent: Counter,
    pub(super) lost: Counter,
    pub(super) retransmitted: Counter,
}

/// Sums over the samples of a sender in one window, while its flow lives.
#[derive(Clone, Copy, Default)]
pub(super) struct StateSums {
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
pub(super) struct LinkCounters {
    delivered: Counter,
    drops: Counter,
    marks: Counter,
    losses: Counter,
    /// Of the queue: packets that left it, and what waited, times nanoseconds.
    left: Counter,
    waited_packets: Counter<u128>,
    waited_bytes: Counter<u128>,
    /// The nanoseconds with one packet in the queue, with two, and so on.
    levels: Vec<Counter>,
}

/// The values of a counter at the begin and the end of a window.
#[derive(Clone, Copy, Default)]
pub(super) struct Counter<N = u64> {
    pub(super) begin: N,
    pub(super) end: N,
}

impl<N: Copy> Counter<N> {
    pub(super) fn note(&mut self, value: N, is_first: bool) {
        if is_first {
            self.begin = value;
        }
        self.end = value;
    }
}

impl Counter {
    pub(super) fn gained(self) -> f64 {
        float(self.end - self.begin)
    }
}

impl Counter<u128> {
    #[expect(clippy::cast_precision_loss, reason = "53 of its bits are enough for a mean")]
    pub(super) fn gained(self) -> f64 {
        (self.end - self.begin) as f64
    }
}

impl WindowRecord {
    /// Reads the counters if `at` is the begin or the end of the window.
    pub(super) fn count(
        &mut self,
        scenario: &Scenario,
        layout: &Layout,
        built: &mut Built,
        counts: &PacketCounts,
        at: Span,
    ) {
        let is_begin = at == self.window.from;
        if !is_begin && at != self.window.to {
            return;
        }
        for (index, (book, ends)) in self.flows.iter_mut().zip(&built.flows).enumerate() {
            let flow = &scenario.flows[index];
            book.arrived.note(arrived(built, ends).0, is_begin);
            book.sent.note(sent(built, ends), is_begin);
            let connections = layout.first[index]..layout.first[index + 1];
            book.lost.note(connections.map(|number| counts.lost(number)).sum(), is_begin);
            if let Some(marked) = marked(built, ends, flow) {
                book.marked.get_or_insert_default().note(marked, is_begin);
            }
            if is_begin {
                book.lives = !has_ended(built, ends);
            } else {
                book.lives &= ends.start < Time::ZERO + at;
            }
            if let Some(counts) = sender_counts(built, ends) {
                book.retransmitted.note(counts.retransmitted, is_begin);
                book.timeouts.note(counts.timeouts, is_begin);
            }
            if let Some((count, delay)) = datagrams(built, ends) {
                book.datagrams.note(count, is_begin);
                book.delay.note(delay.as_nanos(), is_begin);
            }
            if !is_begin {
                book.bottlenecks = bottlenecks(built, ends);
            }
            if !is_begin && book.lives && scenario.measures_gaps {
                book.gap = longest_gap(built, ends, Time::ZERO + self.window.from);
            }
        }
        for (book, (flow, subflow)) in self.subflows.iter_mut().zip(&layout.subflows) {
            let ends = &built.flows[*flow];
            let state = subflow_state(built, ends, *subflow);
            book.arrived.note(subflow_arrived(built, ends, *subflow).0, is_begin);
            book.sent.note(state.sent, is_begin);
            book.lost.note(counts.lost(layout.first[*flow] + subflow), is_begin);
            book.retransmitted.note(state.retransmitted, is_begin);
        }
        let ids = built.links.iter().flat_map(|(up, down)| [*up, *down]);
        for (book, id) in self.links.iter_mut().zip(ids) {
            // First, since it lets packets leave: the counters are complete then.
            let area = built.sim.queue_area(id);
            book.left.note(area.left, is_begin);
            book.waited_packets.note(area.packets, is_begin);
            book.waited_bytes.note(area.bytes, is_begin);
            if let Some(levels) = built.sim.queue_levels(id) {
                let levels = levels.nanos();
                book.levels.resize(levels.len(), Counter::default());
                for (level, nanos) in book.levels.iter_mut().zip(levels) {
                    level.note(*nanos, is_begin);
                }
            }
            let counters = built.sim.counters(id);
            book.delivered.note(counters.delivered.bytes.0, is_begin);
            let drops = counters.dropped_queue + counters.dropped_aqm;
            book.drops.note(drops, is_begin);
            book.marks.note(counters.marked, is_begin);
            book.losses.note(counters.dropped() - drops, is_begin);
        }
    }
}

impl StateSums {
    /// Adds a sample; `packet` is the payload of a full packet in bytes.
    pub(super) fn add(&mut self, window: Bytes, rtt: Option<Span>, packet: f64) {
        self.samples += 1.0;
        self.window += window.as_f64() / packet;
        if let Some(rtt) = rtt {
            self.timed += 1.0;
            self.rtt += rtt.as_secs_f64();
        }
    }

    pub(super) fn close(&self, mut put: impl FnMut(Metric, f64)) {
        if self.samples > 0.0 {
            put(WINDOW, self.window / self.samples);
        }
        if self.timed > 0.0 {
            put(RTT, self.rtt / self.timed * 1e3);
        }
    }
}

impl LinkCounters {
    /// The measures over a window of `span` in which the link could deliver `capacity` bits.
    pub(super) fn close(&self, span: Span, capacity: f64, mut put: impl FnMut(Metric, f64)) {
        let seconds = span.as_secs_f64();
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

    /// The percentiles of the queue's length over a window of `span`.
    pub(super) fn close_queue(&self, span: Span, mut put: impl FnMut(Metric, f64)) {
        let levels: Vec<u64> = self.levels.iter().map(|level| level.end - level.begin).collect();
        let percentiles = [(QUEUE_P50, 50), (QUEUE_P95, 95), (QUEUE_P99, 99), (QUEUE_MAX, 100)];
        for (metric, percent) in percentiles {
            put(metric, float(rank_of_time(&levels, span.as_nanos(), percent)));
        }
    }
}
