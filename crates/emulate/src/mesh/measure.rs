//! What the links of a mesh did in each window of time: the measures that the simulator has of
//! them, from the same counters.

use link::{Counters, Link, QueueArea};
use serde::Serialize;
use units::{Span, Time};

use super::Plan;

/// A window of time, from the start on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSpan {
    /// Its begin.
    pub from: Span,
    /// Its end.
    pub to: Span,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkMeasures {
    /// Its name.
    pub name: String,
    /// Each window, in the order of the plan; one that had not ended with the run has nothing.
    pub windows: Vec<LinkWindow>,
}

/// One direction of a link in one window. Delays are the time that packets wait, the time on the
/// wire not counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkWindow {
    /// Packets that arrived at the other end.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Their rate.
    pub mbit_s: f64,
    /// The rate over what the link could carry; none if that is nothing.
    pub utilisation: Option<f64>,
    /// Packets dropped by a full queue or by its management.
    pub drops: u64,
    /// Packets lost at random, in blackouts, or for their size.
    pub losses: u64,
    /// Packets marked.
    pub marks: u64,
    /// The mean number of packets that wait.
    pub queue_packets: f64,
    /// The mean delay of packets that left the queue, from the integral of its length, as the
    /// simulator's `queue_time`; none if none left.
    pub queue_ms: Option<f64>,
    /// The median of the delays of packets that arrived.
    pub queue_p50_ms: Option<f64>,
    /// Their 95th percentile.
    pub queue_p95_ms: Option<f64>,
    /// The largest of them.
    pub queue_max_ms: Option<f64>,
}

/// Reads the links' counters at the edges of windows.
#[derive(Debug)]
pub(super) struct Measurer {
    windows: Vec<WindowSpan>,
    /// The edges of all windows, in order.
    edges: Vec<Span>,
    /// The number of edges that have passed.
    passed: usize,
    /// By window, then by link.
    records: Vec<Vec<Record>>,
}

/// A link in a window.
#[derive(Clone, Debug, Default)]
struct Record {
    begin: Reading,
    end: Reading,
    /// The time that each packet waited, in microseconds.
    waits: Vec<u32>,
}

/// The counters of a link at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    counters: Counters,
    area: QueueArea,
}

impl Measurer {
    pub(super) fn new(windows: Vec<WindowSpan>, links: usize) -> Measurer {
        let mut edges: Vec<Span> =
            windows.iter().flat_map(|window| [window.from, window.to]).collect();
        edges.sort_unstable();
        edges.dedup();
        let records = windows.iter().map(|_| vec![Record::default(); links]).collect();
        Measurer { windows, edges, passed: 0, records }
    }

    /// The next edge of a window.
    pub(super) fn next_edge(&self, start: Time) -> Option<Time> {
        self.edges.get(self.passed).map(|edge| start + *edge)
    }

    /// Reads the counters at the edge that is at `now`.
    pub(super) fn pass_edge<'a, P: 'a>(
        &mut self,
        start: Time,
        now: Time,
        links: impl Iterator<Item = &'a mut Link<P>>,
    ) {
        self.passed += 1;
        let at = now - start;
        for (index, link) in links.enumerate() {
            // First, since it lets packets leave: the counters are complete then.
            let area = link.queue_area(now);
            let reading = Reading { counters: *link.counters(), area };
            for (window, records) in self.windows.iter().zip(&mut self.records) {
                if window.from == at {
                    records[index].begin = reading;
                }
                if window.to == at {
                    records[index].end = reading;
                }
            }
        }
    }

    /// A packet arrives at the end of a link after it has waited.
    pub(super) fn note_wait(&mut self, link: usize, start: Time, at: Time, waited: Span) {
        let at = at.since(start);
        let micros = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
        for (window, records) in self.windows.iter().zip(&mut self.records) {
            if window.from < at && at <= window.to {
                records[link].waits.push(micros);
            }
        }
    }

    /// Whether all windows have ended.
    pub(super) fn is_complete(&self) -> bool {
        self.passed == self.edges.len()
    }

    /// The measures of each link of the plan that this was made for.
    pub(super) fn reports(&self, plan: &Plan) -> Vec<LinkMeasures> {
        let capacities = plan.links.iter().map(|link| {
            let profile = link.profile.profile();
            // What arrives by the end of a window was sent one delay earlier.
            let sent: Vec<Span> = self.edges.iter().map(|edge| profile.sent_by(*edge)).collect();
            profile.capacity(&sent)
        });
        let place = |at: Span| self.edges.partition_point(|edge| *edge < at);
        let links = plan.links.iter().zip(capacities).enumerate();
        links
            .map(|(index, (link, capacity))| LinkMeasures {
                name: link.name.clone(),
                windows: (self.windows.iter().zip(&self.records))
                    .map(|(window, records)| {
                        if place(window.to) >= self.passed {
                            return LinkWindow::default();
                        }
                        let bits = capacity[place(window.to)] - capacity[place(window.from)];
                        records[index].window(window.to - window.from, float(bits) / 1e9)
                    })
                    .collect(),
            })
            .collect()
    }
}

impl Record {
    /// The measures over a window of `span` in which the link could carry `capacity` bits.
    fn window(&self, span: Span, capacity: f64) -> LinkWindow {
        let (begin, end) = (&self.begin, &self.end);
        let delivered = |one: &Reading| one.counters.delivered;
        let packets = delivered(end).packets - delivered(begin).packets;
        let bytes = delivered(end).bytes.0 - delivered(begin).bytes.0;
        let dropped = |one: &Reading| one.counters.dropped_queue + one.counters.dropped_aqm;
        let drops = dropped(end) - dropped(begin);
        let all = end.counters.dropped() - begin.counters.dropped();
        let seconds = span.as_secs_f64();
        let bits = float(u128::from(bytes)) * 8.0;
        let waited = float(end.area.packets - begin.area.packets);
        let left = end.area.left - begin.area.left;
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let rank = |percent: usize| {
            let rank = (waits.len() * percent).div_ceil(100);
            waits.get(rank.checked_sub(1)?).map(|micros| f64::from(*micros) / 1e3)
        };
        LinkWindow {
            packets,
            bytes,
            mbit_s: bits / 1e6 / seconds,
            utilisation: (capacity > 0.0).then(|| bits / capacity),
            drops,
            losses: all - drops,
            marks: end.counters.marked - begin.counters.marked,
            queue_packets: waited / 1e9 / seconds,
            queue_ms: (left > 0).then(|| waited / 1e6 / float(u128::from(left))),
            queue_p50_ms: rank(50),
            queue_p95_ms: rank(95),
            queue_max_ms: rank(100),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "53 bits are enough for a mean")]
fn float(n: u128) -> f64 {
    n as f64
}
