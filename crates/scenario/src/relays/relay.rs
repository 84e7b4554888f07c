//! A relay: what comes over a path's first hop goes out over its second.

use netsim::Out;
use units::{Bytes, Time};

use super::deadlines::Deadlines;
use super::hop::Hop;
use super::packet::OverlayPacket;

/// A relay. It reads from a path's first hop only while less than so much waits to be sent over the
/// second: the first hop's window closes, and the source sends no faster than the second hop does.
#[derive(Clone, Debug)]
pub struct Relay {
    /// The paths' numbers, ascending.
    numbers: Vec<u32>,
    paths: Vec<RelayPath>,
    /// No more is read where so much is unsent.
    ahead: Bytes,
    /// Twice the path for the first hop, and one more for the second.
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
    /// A relay of paths with these ends of their first and second hops, by ascending numbers.
    pub(super) fn new(paths: Vec<(u32, Hop, Hop)>, ahead: Bytes) -> Relay {
        let deadlines = Deadlines::new(2 * paths.len());
        let numbers = paths.iter().map(|(number, ..)| *number).collect();
        let path = |(_, near, far)| RelayPath { near, far, has_opened: false, most: Bytes::ZERO };
        Relay { numbers, paths: paths.into_iter().map(path).collect(), ahead, deadlines }
    }

    /// The numbers of its paths, ascending; what else is told of paths is in their order.
    #[must_use]
    pub fn paths(&self) -> &[u32] {
        &self.numbers
    }

    /// Payload of each path that was read from the first hop.
    pub fn received(&self) -> impl Iterator<Item = Bytes> {
        self.paths.iter().map(|path| path.near.received())
    }

    /// The most that ever waited of each path for being sent over the second hop.
    pub fn most(&self) -> impl Iterator<Item = Bytes> {
        self.paths.iter().map(|path| path.most)
    }

    /// What happened on each path's second hop.
    pub fn stats(&self) -> impl Iterator<Item = tcp::Stats> {
        self.paths.iter().map(|path| path.far.stats())
    }

    /// A segment came, over the second hop of a path or the first.
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
    /// Moves on what can move.
    #[inline]
    fn settle(&mut self, now: Time, ahead: Bytes, out: &mut Out<OverlayPacket>) {
        if !self.has_opened && self.near.is_open() {
            self.has_opened = true;
            self.far.open(now);
        }
        self.pass(now, out);
        if self.far.unsent() < ahead {
            // Reads all that waited, which may be too much again.
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
