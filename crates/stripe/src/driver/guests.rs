//! The guest of the endpoint, and the raw datagrams between it and the connections.

use std::io;

use units::{Bytes, SubflowId, Time};
use wire::ptcp::Packet;

use super::Driver;
use super::entrusted::WaitingRaw;
use super::link::Link;
use crate::Class;
use crate::connection::inbox::Key;
use crate::guest::{Guest, RawDatagram, RawPath};

/// Raw datagrams after which connections send what they have: a connection takes a few hundred.
const BATCH: usize = 128;

impl Driver {
    /// Takes a guest in, in place of another one.
    pub(super) fn attach(&mut self, guest: Box<dyn Guest>) -> io::Result<()> {
        self.sockets.wait_for_guest(guest.source())?;
        self.guest = Some(guest);
        Ok(())
    }

    /// Calls the guest if its deadline has come.
    pub(super) fn fire_guest(&mut self, now: Time) {
        if let Some(guest) = &mut self.guest
            && guest.poll_deadline().is_some_and(|at| at <= now)
        {
            guest.handle_deadline(now);
        }
    }

    /// Sends what the guest has to send.
    pub(super) fn serve_guest(&mut self) {
        loop {
            let now = self.clock.now();
            let mut count = 0;
            while count < BATCH
                && let Some(raw) = self.guest.as_mut().and_then(|guest| guest.poll_raw(now))
            {
                count += 1;
                let key = raw.connection;
                if let Some(link) = self.links.get_mut(&key) {
                    link.send_raw(raw);
                    if self.touched.last() != Some(&key) {
                        self.touched.push(key);
                    }
                }
            }
            if count < BATCH {
                break;
            }
            self.serve_touched();
        }
        self.ask_doubted();
    }

    /// Asks the peer over the paths that the guest doubts: raw datagrams are not acknowledged, so
    /// that nothing else tells that a path carries in one direction alone. Without a path in
    /// reserve it would change nothing.
    fn ask_doubted(&mut self) {
        while let Some((key, path)) = self.guest.as_mut().and_then(|guest| guest.poll_doubt()) {
            if let Some(link) = self.links.get_mut(&key).filter(|link| link.has_reserve())
                && link.entrusted.is_guests
                && link.core.ping_path(path)
            {
                self.touched.push(key);
            }
        }
    }

    /// Tells the guest of the paths of a connection that have changed.
    pub(super) fn tell_guest(&mut self, key: Key) {
        let Some(guest) = &mut self.guest else { return };
        let Some(link) = self.links.get_mut(&key).filter(|link| link.entrusted.is_guests) else {
            return;
        };
        let paths = link.raw_paths();
        if paths != link.entrusted.told {
            guest.handle_paths(self.clock.now(), key, &paths);
            link.entrusted.told = paths;
        }
    }

    /// Tells the guest that a connection has ended.
    pub(super) fn tell_guest_of_end(&mut self, link: &Link) {
        if let Some(guest) = &mut self.guest
            && link.entrusted.is_guests
        {
            guest.handle_paths(self.clock.now(), link.key, &[]);
        }
    }
}

impl Link {
    /// The guest hands over a raw datagram. One that no path carries is lost.
    fn send_raw(&mut self, raw: RawDatagram) {
        let RawDatagram { path, is_ecn_capable, payload, .. } = raw;
        if !self.entrusted.is_guests {
            return;
        }
        match self.core.send_raw(path, Bytes(payload.len() as u64)) {
            Ok(()) => {
                self.entrusted.waiting.push_back(WaitingRaw { path, is_ecn_capable, payload });
            }
            Err(error) => tracing::debug!(?error, "a raw datagram is lost"),
        }
    }

    /// Whether a path is for when there is no other.
    pub(super) fn is_in_reserve(&self, path: SubflowId) -> bool {
        self.standings.of(path).is_some_and(|standing| standing.class == Class::Reserve)
    }

    /// Whether a path is in reserve that could carry.
    fn has_reserve(&self) -> bool {
        let open = self.routes.values().filter(|route| route.is_open());
        open.flat_map(|route| &route.paths).any(|path| self.is_in_reserve(*path))
    }

    /// The paths of open routes, those in reserve only while there is no other; none once the
    /// connection has ended for the program.
    fn raw_paths(&self) -> Vec<RawPath> {
        if self.is_abandoned() {
            return Vec::new();
        }
        let open = self.routes.values().filter(|route| route.is_open());
        let paths = open.flat_map(|route| route.paths.iter().copied());
        let (reserve, usual): (Vec<_>, Vec<_>) = paths.partition(|path| self.is_in_reserve(*path));
        let paths = if usual.is_empty() { reserve } else { usual };
        let with_room = |path| {
            let room = Packet::room_for_raw(self.core.path_size(path)?).0;
            Some(RawPath { path, room: usize::try_from(room).unwrap_or(0) })
        };
        paths.into_iter().filter_map(with_room).collect()
    }
}
