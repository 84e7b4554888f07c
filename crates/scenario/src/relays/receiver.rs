//! The receiver of all sources: it counts the payload of each path and reports it to the sources.

use netsim::{Out, Route};
use overlay::Peak;
use units::{Bytes, Rate, Span, Time};

use super::hop::Hop;
use super::packet::{Numbering, OverlayPacket};
use crate::deadlines::Deadlines;

/// The receiver. At the end of each control interval of a source it sends a report for each path,
/// with the payload received.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// In the order of their numbers.
    paths: Vec<ReceiverPath>,
    /// The last hops of all paths, ascending, and the index of the path.
    hops: Vec<(u32, usize)>,
    connections: Numbering,
    numbers: Numbering,
    reports: Vec<Reports>,
    /// The deadlines of paths, then those of reports.
    deadlines: Deadlines,
    /// What relays were seen to carry, if sources are told.
    peaks: Option<Vec<Peak>>,
}

/// What the receiver knows of one place of a path.
#[derive(Clone, Debug)]
pub(super) struct ReceiverPath {
    pub(super) hop: Hop,
    /// The last relay; `None` for a direct path.
    pub(super) relay: Option<usize>,
    /// Whether it is reported although no packet has come.
    pub(super) is_open: bool,
}

/// The reports to one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports {
    /// The time of the next one.
    pub(super) at: Time,
    pub(super) route: Route,
    /// The source's first path, and the number of them.
    pub(super) first: usize,
    pub(super) count: usize,
    /// The number of the next one, counted from 1.
    pub(super) interval: u64,
    /// The time between two.
    pub(super) period: Span,
}

impl Receiver {
    /// A receiver of these paths, by number.
    pub(super) fn new(
        paths: Vec<ReceiverPath>,
        reports: Vec<Reports>,
        [connections, numbers]: [Numbering; 2],
        peaks: Option<Vec<Peak>>,
    ) -> Receiver {
        let mut deadlines = Deadlines::new(paths.len() + reports.len());
        for (index, report) in reports.iter().enumerate() {
            deadlines.set(paths.len() + index, Some(report.at));
        }
        let mut hops: Vec<(u32, usize)> =
            paths.iter().map(|path| path.hop.connection()).zip(0..).collect();
        hops.sort_unstable();
        Receiver { paths, hops, connections, numbers, reports, deadlines, peaks }
    }

    /// Payload received over each path since it was last opened.
    pub fn received(&self) -> impl Iterator<Item = Bytes> {
        self.paths.iter().map(|path| path.hop.received())
    }

    #[inline]
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        packet: &OverlayPacket,
        out: &mut Out<OverlayPacket>,
    ) {
        let OverlayPacket::Tcp { connection, segment, .. } = packet else {
            unreachable!("reports go to sources")
        };
        let (hop, opened) = self.connections.split(*connection);
        let at = self.hops.binary_search_by_key(&hop, |(hop, _)| *hop);
        let index = self.hops[at.expect("routes lead to the receiver of their paths")].1;
        let path = &mut self.paths[index];
        let (_, current) = self.connections.split(path.hop.connection());
        if opened < current {
            return;
        }
        if opened > current {
            path.hop.renew(*connection);
        }
        path.is_open = true;
        let before = path.hop.received();
        path.hop.handle_segment(now, segment);
        path.hop.send(now, out);
        self.deadlines.set(index, path.hop.poll_deadline());
        if let (Some(peaks), Some(relay)) = (&mut self.peaks, path.relay) {
            peaks[relay].handle_received(now, path.hop.received() - before);
        }
    }

    pub(super) fn handle_deadline(&mut self, now: Time, out: &mut Out<OverlayPacket>) {
        let mut part = 0;
        while let Some(due) = self.deadlines.next_due(part, now) {
            part = due + 1;
            let Some(path) = self.paths.get_mut(due) else { break };
            path.hop.handle_deadline(now);
            path.hop.send(now, out);
            self.deadlines.set(due, path.hop.poll_deadline());
        }
        for source in 0..self.reports.len() {
            if self.reports[source].at <= now {
                self.report(now, source, out);
            }
        }
    }

    fn report(&mut self, now: Time, source: usize, out: &mut Out<OverlayPacket>) {
        let Reports { route, first, count, interval, .. } = self.reports[source];
        let is_told = |path: &ReceiverPath| path.is_open || self.peaks.is_some();
        let told = first..first + count;
        let of = self.paths[told.clone()].iter().filter(|path| is_told(path)).count();
        for index in told {
            let path = &self.paths[index];
            if !is_told(path) {
                continue;
            }
            let (_, opened) = self.connections.split(path.hop.connection());
            let capacity = match (&self.peaks, path.relay) {
                (Some(peaks), Some(relay)) => peaks[relay].highest(now),
                _ => Rate::ZERO,
            };
            out.send(
                route,
                OverlayPacket::Report {
                    path: self.numbers.join(u32::try_from(index).expect("few paths"), opened),
                    interval,
                    received: path.hop.received(),
                    of: u16::try_from(of).expect("a source has few candidates"),
                    capacity,
                },
            );
        }
        let report = &mut self.reports[source];
        report.at += report.period;
        report.interval += 1;
        self.deadlines.set(self.paths.len() + source, Some(report.at));
    }

    #[inline]
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.deadlines.next()
    }
}
