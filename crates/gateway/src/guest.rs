//! The gateway as a guest of the endpoint's thread: the TUN device, and the datagrams of sites.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use stripe::{ConnectionKey, Guest, RawArrival, RawDatagram, RawPath};
use sys::tun::Tun;
use units::Time;

use crate::plane::Plane;

/// Packets that are read of the device before others have their turn.
const TURN: usize = 32;
/// Octets of the largest packet.
const LARGEST: usize = 1 << 16;

/// What the endpoint's thread and the tasks of sessions share.
#[derive(Clone)]
pub(crate) struct SharedPlane(Arc<Mutex<Plane>>);

impl SharedPlane {
    pub(crate) fn new(plane: Plane) -> SharedPlane {
        SharedPlane(Arc::new(Mutex::new(plane)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Plane> {
        self.0.lock().expect("no panic while held")
    }
}

/// The guest.
pub(crate) struct GatewayGuest {
    tun: Tun,
    plane: SharedPlane,
    buffer: Vec<u8>,
}

impl GatewayGuest {
    pub(crate) fn new(tun: Tun, plane: SharedPlane) -> GatewayGuest {
        GatewayGuest { tun, plane, buffer: vec![0; LARGEST] }
    }

    /// Hands the kernel what is for hosts of this side.
    fn write(&self, plane: &mut Plane) {
        while let Some(octets) = plane.poll_host() {
            // A device that is down, or full: the packet is lost, as on any line.
            if let Err(error) = self.tun.send(&octets) {
                tracing::debug!(%error, "a packet for a host is lost");
            }
        }
    }
}

impl Guest for GatewayGuest {
    fn source(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }

    fn handle_readable(&mut self, now: Time) {
        let plane = self.plane.clone();
        let mut plane = plane.lock();
        for _ in 0..TURN {
            match self.tun.receive(&mut self.buffer) {
                Ok(length) => plane.handle_inside(now, &self.buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    tracing::debug!(%error, "the device cannot be read");
                    break;
                }
            }
        }
        self.write(&mut plane);
    }

    fn handle_raw(&mut self, now: Time, arrival: &RawArrival, payload: &[u8]) {
        let mut plane = self.plane.lock();
        plane.handle_raw(now, arrival, payload);
        self.write(&mut plane);
    }

    fn handle_paths(&mut self, now: Time, connection: ConnectionKey, paths: &[RawPath]) {
        self.plane.lock().handle_paths(now, connection, paths);
    }

    fn handle_deadline(&mut self, now: Time) {
        let mut plane = self.plane.lock();
        plane.handle_deadline(now);
        self.write(&mut plane);
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.plane.lock().poll_deadline()
    }

    fn poll_raw(&mut self, _: Time) -> Option<RawDatagram> {
        self.plane.lock().poll_raw()
    }
}
