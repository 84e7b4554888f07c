//! The receiver of all sources: it counts the payload of each path and reports it to the sources.

use netsim::{Out, Route};
use units::{Bytes, Span, Time};

use super::hop::Hop;
use super::packet::OverlayPacket;
use crate::deadlines::Deadlines;

/// The receiver. At the end of each control interval of a source it sends a report for each path,
/// with the payload received.
#[derive(Clone, Debug)]
pub struct Receiver {
    paths: Vec<Hop>,
    reports: Vec<Report>,
    /// The deadlines of paths, then those of reports.
    deadlines: Deadlines,
    period: Span,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    at: Time,
    interval: u64,
    route: Route,
}

impl Receiver {
    /// A receiver of these paths, the same number for each source. `sources` has the start of each
    /// source and the route to it.
    pub(super) fn new(paths: Vec<Hop>, sources: &[(Time, Route)], period: Span) -> Receiver {
        let mut deadlines = Deadlines::new(paths.len() + sources.len());
        let report =
            |&(opens, route): &(Time, Route)| Report { at: opens + period, interval: 1, route };
        let reports: Vec<Report> = sources.iter().map(report).collect();
        for (index, report) in reports.iter().enumerate() {
            deadlines.set(paths.len() + index, Some(report.at));
        }
        Receiver { paths, reports, deadlines, period }
    }

    /// Payload received over each path.
    pub fn received(&self) -> impl Iterator<Item = Bytes> {
        self.paths.iter().map(Hop::received)
    }

    #[inline]
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        number: u32,
        packet: &OverlayPacket,
        out: &mut Out<OverlayPacket>,
    ) {
        let OverlayPacket::Tcp { segment, .. } = packet else {
            unreachable!("reports go to sources")
        };
        let path = number as usize;
        let hop = &mut self.paths[path];
        hop.handle_segment(now, segment);
        hop.send(now, out);
        self.deadlines.set(path, hop.poll_deadline());
    }

    pub(super) fn handle_deadline(&mut self, now: Time, out: &mut Out<OverlayPacket>) {
        for path in 0..self.paths.len() {
            if self.deadlines.is_due(path, now) {
                let hop = &mut self.paths[path];
                hop.handle_deadline(now);
                hop.send(now, out);
                self.deadlines.set(path, hop.poll_deadline());
            }
        }
        let k = self.paths.len() / self.reports.len();
        for (source, report) in self.reports.iter_mut().enumerate() {
            if report.at > now {
                continue;
            }
            for (path, hop) in (0..).zip(&self.paths).skip(source * k).take(k) {
                let packet = OverlayPacket::Report {
                    path,
                    interval: report.interval,
                    received: hop.received(),
                };
                out.send(report.route, packet);
            }
            report.at += self.period;
            report.interval += 1;
            self.deadlines.set(self.paths.len() + source, Some(report.at));
        }
    }

    #[inline]
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.deadlines.next()
    }
}
