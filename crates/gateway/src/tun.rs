//! The TUN device, with what the kernel offers of offload.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use tun_rs::{DeviceBuilder, SyncDevice};

use crate::offload::{DeviceHeader, HEADER, Joined, Joiner, ToKernel};

/// The kernel's number of an invalid argument, the same on all machines.
const EINVAL: i32 = 22;
/// Octets of the largest packet, with its header of the device.
const LARGEST: usize = HEADER + (1 << 16);

/// The TUN device. Nothing blocks. It is gone when this is dropped.
pub(crate) struct Tun {
    device: SyncDevice,
    /// Whether packets have headers of the device before them.
    has_headers: bool,
    /// What is to be written.
    joiner: Joiner,
    /// Space for a packet that is read, and for headers that are written.
    buffer: Vec<u8>,
    head: Vec<u8>,
}

impl Tun {
    /// Makes a device called `name` in the namespace of the calling thread, with offload if the
    /// kernel has it.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_ADMIN` in the namespace, `ResourceBusy` if another
    /// program has the device.
    pub(crate) fn create(name: &str) -> io::Result<Tun> {
        let make = |offload: bool| {
            let builder = DeviceBuilder::new().name(name);
            builder.with(|options| _ = options.offload(offload)).build_sync()
        };
        let (device, has_headers) = match make(true) {
            Err(error) if error.raw_os_error() == Some(EINVAL) => {
                tracing::warn!("the kernel has no offload for TUN devices: packets go one by one");
                (make(false)?, false)
            }
            made => (made?, true),
        };
        device.set_nonblocking(true)?;
        let mut joiner = Joiner::default();
        if !has_headers {
            joiner.turn_off();
        }
        Ok(Tun { device, has_headers, joiner, buffer: vec![0; LARGEST], head: Vec::new() })
    }

    /// Takes the next packet that the kernel has sent out through the device, of one segment or
    /// several.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub(crate) fn receive(&mut self) -> io::Result<(DeviceHeader, &[u8])> {
        let length = self.device.recv(&mut self.buffer)?;
        let read = &self.buffer[..length];
        if self.has_headers {
            DeviceHeader::parse(read).ok_or_else(|| io::ErrorKind::InvalidData.into())
        } else {
            Ok((DeviceHeader::PLAIN, read))
        }
    }

    /// Hands the kernel a packet, as if it had come in through the device: at once, or with those
    /// that follow it, at [`Tun::finish`] at the latest.
    pub(crate) fn send(&mut self, packet: ToKernel) {
        self.joiner.push(packet);
        self.write();
    }

    /// Nothing follows for now.
    pub(crate) fn finish(&mut self) {
        self.joiner.finish();
        self.write();
    }

    /// Writes what is ready.
    fn write(&mut self) {
        while let Some(mut joined) = self.joiner.pop() {
            match self.write_one(&mut joined) {
                Ok(()) => {}
                Err(error) if joined.is_several() && error.raw_os_error() == Some(EINVAL) => {
                    tracing::warn!(
                        "the kernel does not take segments that are joined: packets for hosts are \
                         written one by one"
                    );
                    self.joiner.turn_off();
                    for mut one in joined.apart() {
                        note_loss(self.write_one(&mut one));
                    }
                }
                lost => note_loss(lost),
            }
        }
    }

    fn write_one(&mut self, joined: &mut Joined) -> io::Result<()> {
        let Tun { device, has_headers, head, .. } = self;
        let written = joined.write(head, |pieces| match pieces {
            [all] if !*has_headers => device.send(&all[HEADER..]),
            [all] => device.send(all),
            pieces => device.send_vectored(pieces),
        });
        written.map(drop)
    }
}

/// A device that is down, or full: the packet is lost, as on any line.
fn note_loss(written: io::Result<()>) {
    if let Err(error) = written {
        tracing::debug!(%error, "a packet for a host is lost");
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
