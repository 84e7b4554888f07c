//! A relay: forwards the data of the first hop of each path over its second hop.

use netsim::Out;
use units::{Bytes, Time};

use super::hop::Hop;
use super::packet::OverlayPacket;
use crate::deadlines::Deadlines;

/// A relay. It reads from the first hop of a path only while little is unsent on the second. When
/// more is unsent, the receive window of the first hop closes, and the source sends no faster than
/// the second hop.
#[derive(Clone, Debug)]
pub struct Relay {
    /// The paths' numbers, ascending.
    numbers: Vec<u32>,
    paths: Vec<RelayPath>,
    /// Reading stops while this many bytes are unsent.
    ahead: Bytes,
    /// The index is twice that of the path, plus one for the second hop.
    deadlines: Deadlines,
}

#[derive(Clone, Debug)]
struct RelayPath {
    near: Hop,
    far: Hop,
    has_opened: bool,
    most: Bytes,
}

impl Relay {
    /// A relay of paths: number (ascending), end of the first hop, end of the second.
    pub(super) fn new(paths: Vec<(u32, Hop, Hop)>, ahead: Bytes) -> Relay {
        let deadlines = Deadlines::new(2 * paths.len());
        let numbers = paths.iter().map(|(number, ..)| *number).collect();
        let path = |(_, near, far)| RelayPath { near, far, has_opened: false, most: Bytes::ZERO };
        Relay { numbers, paths: paths.into_iter().map(path).collect(), ahead, deadlines }
    }

    /// The numbers of its paths, ascending. Other methods return values in the same order.
    #[must_use]
    pub fn paths(&self) -> &[u32] {
        &self.numbers
    }

    /// Payload read from the first hop of each path.
    pub fn received(&self) -> impl Iterator<Item = Bytes> {
        self.paths.iter().map(|path| path.near.received())
    }

    /// The largest amount that was ever unsent on the second hop of each path.
    pub fn most(&self) -> impl Iterator<Item = Bytes> {
        self.paths.iter().map(|path| path.most)
    }

    /// The statistics of the second hop of each path.
    pub fn stats(&self) -> impl Iterator<Item = tcp::Stats> {
        self.paths.iter().map(|path| path.far.stats())
    }

    /// A segment has arrived over the first or the second hop of a path.
    #[inline]
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        number: u32,
        is_far: bool,
        packet: &OverlayPacket,
        out: &mut Out<OverlayPacket>,
    ) {
        let OverlayPacket::Tcp { segment, .. } = packet else {
            unreachable!("reports go to sources")
        };
        let path =
            self.numbers.binary_search(&number).expect("routes lead to the relays of their paths");
        let ends = &mut self.paths[path];
        if is_far { &mut ends.far } else { &mut ends.near }.handle_segment(now, segment);
        self.settle(now, path, out);
    }

    pub(super) fn handle_deadline(&mut self, now: Time, out: &mut Out<OverlayPacket>) {
        for path in 0..self.paths.len() {
            if self.deadlines.is_due(2 * path, now) || self.deadlines.is_due(2 * path + 1, now) {
                self.paths[path].near.handle_deadline(now);
                self.paths[path].far.handle_deadline(now);
                self.settle(now, path, out);
            }
        }
    }

    #[inline]
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.deadlines.next()
    }

    #[inline]
    fn settle(&mut self, now: Time, path: usize, out: &mut Out<OverlayPacket>) {
        let ends = &mut self.paths[path];
        ends.settle(now, self.ahead, out);
        self.deadlines.set(2 * path, ends.near.poll_deadline());
        self.deadlines.set(2 * path + 1, ends.far.poll_deadline());
    }
}

impl RelayPath {
    /// Forwards and sends as much as possible.
    #[inline]
    fn settle(&mut self, now: Time, ahead: Bytes, out: &mut Out<OverlayPacket>) {
        if !self.has_opened && self.near.is_open() {
            self.has_opened = true;
            self.far.open(now);
        }
        self.pass(now, out);
        if self.far.unsent() < ahead {
            // Reads everything that was buffered, which may exceed the limit again.
            self.near.set_reading(true);
            self.pass(now, out);
        }
        self.near.set_reading(self.far.unsent() < ahead);
        self.near.send(now, out);
    }

    fn pass(&mut self, now: Time, out: &mut Out<OverlayPacket>) {
        let more = self.near.received() - self.far.written();
        if more > Bytes::ZERO {
            self.far.write(more);
            self.most = self.most.max(self.far.unsent());
        }
        self.far.send(now, out);
    }
}
