//! The gateway as a guest of the endpoint's thread: the TUN device, and the datagrams of sites.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use stripe::{ConnectionKey, Guest, RawArrival, RawDatagram, RawPath};
use units::{SubflowId, Time};

use crate::plane::Plane;
use crate::tun::Tun;

/// Packets that are read of the device before others have their turn, and their octets: what is
/// read is still near the processor when it is sent.
const TURN: usize = 32;
const TURN_OCTETS: usize = 128 << 10;

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
}

impl GatewayGuest {
    pub(crate) fn new(tun: Tun, plane: SharedPlane) -> GatewayGuest {
        GatewayGuest { tun, plane }
    }
}

/// Hands the kernel what is for hosts of this side.
fn write(tun: &mut Tun, plane: &mut Plane) {
    while let Some(packet) = plane.poll_host() {
        tun.send(packet);
    }
}

impl Guest for GatewayGuest {
    fn source(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }

    fn handle_readable(&mut self, now: Time) {
        let mut plane = self.plane.lock();
        let mut octets = 0;
        for _ in 0..TURN {
            match self.tun.receive() {
                Ok((header, packet)) => {
                    octets += packet.len();
                    plane.handle_inside(now, header, packet);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    tracing::debug!(%error, "the device cannot be read");
                    break;
                }
            }
            if octets >= TURN_OCTETS {
                break;
            }
        }
        write(&mut self.tun, &mut plane);
        self.tun.finish();
    }

    fn handle_raw(&mut self, now: Time, arrival: &RawArrival, payload: &[u8]) {
        let mut plane = self.plane.lock();
        plane.handle_raw(now, arrival, payload);
        write(&mut self.tun, &mut plane);
    }

    fn handle_batch(&mut self) {
        self.tun.finish();
    }

    fn handle_paths(&mut self, now: Time, connection: ConnectionKey, paths: &[RawPath]) {
        self.plane.lock().handle_paths(now, connection, paths);
    }

    fn handle_deadline(&mut self, now: Time) {
        let mut plane = self.plane.lock();
        plane.handle_deadline(now);
        write(&mut self.tun, &mut plane);
        self.tun.finish();
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.plane.lock().poll_deadline()
    }

    fn poll_doubt(&mut self) -> Option<(ConnectionKey, SubflowId)> {
        self.plane.lock().poll_doubt()
    }

    fn poll_raw(&mut self, _: Time) -> Option<RawDatagram> {
        self.plane.lock().poll_raw()
    }
}
