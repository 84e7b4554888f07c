//! A relay: forwards the data of the first hop of each path over its second hop.

use netsim::Out;
use units::{Bytes, Time};

use super::hop::Hop;
use super::packet::{Numbers, OverlayPacket};
use crate::deadlines::Deadlines;

/// A relay. It reads from the first hop of a path only while little is unsent on the second. When
/// more is unsent, the receive window of the first hop closes, and the source sends no faster than
/// the second hop.
#[derive(Clone, Debug)]
pub struct Relay {
    /// The paths' numbers, in the order of `paths`.
    numbers: Vec<u32>,
    /// The hops of all paths, ascending, and their index in `deadlines`.
    hops: Vec<(u32, usize)>,
    connections: Numbers,
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
    /// A relay of paths: number, end of the hop towards the source, end of that towards the
    /// receiver.
    pub(super) fn new(paths: Vec<(u32, Hop, Hop)>, connections: Numbers, ahead: Bytes) -> Relay {
        let deadlines = Deadlines::new(2 * paths.len());
        let numbers = paths.iter().map(|(number, ..)| *number).collect();
        let ends = paths.iter().flat_map(|(_, near, far)| [near.connection(), far.connection()]);
        let mut hops: Vec<(u32, usize)> = ends.zip(0..).collect();
        hops.sort_unstable();
        let path = |(_, near, far)| RelayPath { near, far, has_opened: false, most: Bytes::ZERO };
        let paths = paths.into_iter().map(path).collect();
        Relay { numbers, hops, connections, paths, ahead, deadlines }
    }

    /// The numbers of its paths. Other methods return values in the same order.
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

    /// A segment of a connection has arrived.
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
        let part = self.hops[at.expect("routes lead to the relays of their paths")].1;
        let (path, is_far) = (part / 2, part % 2 == 1);
        let ends = &mut self.paths[path];
        let (_, current) = self.connections.split(ends.near.connection());
        if opened != current {
            // Only the source opens a path anew; all else is of a connection that is no more.
            if is_far || opened < current {
                return;
            }
            ends.renew(self.connections, opened);
        }
        if is_far { &mut ends.far } else { &mut ends.near }.handle_segment(now, segment);
        self.settle(now, path, out);
    }

    pub(super) fn handle_deadline(&mut self, now: Time, out: &mut Out<OverlayPacket>) {
        let mut part = 0;
        while let Some(due) = self.deadlines.next_due(part, now) {
            let path = due / 2;
            part = 2 * (path + 1);
            self.paths[path].near.handle_deadline(now);
            self.paths[path].far.handle_deadline(now);
            self.settle(now, path, out);
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
    /// The path is opened anew.
    fn renew(&mut self, connections: Numbers, opened: u32) {
        for hop in [&mut self.near, &mut self.far] {
            let (place, _) = connections.split(hop.connection());
            hop.renew(connections.join(place, opened));
        }
        self.has_opened = false;
    }

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
