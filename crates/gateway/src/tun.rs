//! The TUN device, with what the kernel offers of offload.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use sys::tun::Tun as Device;

use crate::offload::{DeviceHeader, HEADER, Joiner, ToKernel};

/// The kernel's number of an invalid argument, the same on all machines.
const EINVAL: i32 = 22;
/// Octets of the largest packet, with its header of the device.
const LARGEST: usize = HEADER + (1 << 16);

/// The TUN device. Nothing blocks. It is gone when this is dropped.
pub(crate) struct Tun {
    device: Device,
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
        let (device, has_headers) = match Device::with_offload(name) {
            Err(error) if error.raw_os_error() == Some(EINVAL) => {
                tracing::warn!("the kernel has no offload for TUN devices: packets go one by one");
                (Device::create(name)?, false)
            }
            made => (made?, true),
        };
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
        let length = self.device.receive(&mut self.buffer)?;
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
        let Tun { device, has_headers, joiner, head, .. } = self;
        write_ready(joiner, head, |pieces| match pieces {
            [all] if !*has_headers => device.send(&all[HEADER..]),
            [all] => device.send(all),
            pieces => device.send_pieces(pieces),
        });
    }
}

/// Writes what is ready; if joined segments are refused, they and all to come go one by one.
fn write_ready(
    joiner: &mut Joiner,
    head: &mut Vec<u8>,
    mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<()>,
) {
    while let Some(mut joined) = joiner.pop() {
        match joined.write(head, &mut write) {
            Err(error) if joined.is_several() && error.raw_os_error() == Some(EINVAL) => {
                tracing::warn!(
                    "the kernel does not take segments that are joined: packets for hosts are \
                     written one by one"
                );
                joiner.turn_off();
                for mut one in joined.apart() {
                    note_loss(one.write(head, &mut write));
                }
            }
            written => note_loss(written),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use crate::packet::Headers;
    use crate::packet::tests::{ends, segment};

    /// Segments of a connection of IPv6 that follow each other.
    fn segments(count: u32) -> Vec<Vec<u8>> {
        let (near, far) = ends(true);
        let one = |number| {
            segment(near, far, &[7; 1_000], |header| header.sequence_number = 1_000 * number)
        };
        (0..count).map(one).collect()
    }

    /// The packets that are written, to a kernel that takes joined ones or refuses them.
    fn written(packets: &[Vec<u8>], refuses: bool) -> Vec<Vec<u8>> {
        let (mut joiner, mut head, mut written) = (Joiner::default(), Vec::new(), Vec::new());
        for half in packets.chunks(packets.len() / 2) {
            for packet in half {
                let headers = Headers::parse(packet).expect("it is TCP");
                joiner.push(ToKernel::segment((Frame::of(packet), headers)));
            }
            joiner.finish();
            write_ready(&mut joiner, &mut head, |pieces| {
                if refuses && pieces.len() > 1 {
                    return Err(io::Error::from_raw_os_error(EINVAL));
                }
                let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
                written.push(all[HEADER..].to_vec());
                Ok(())
            });
        }
        written
    }

    #[test]
    fn a_kernel_that_refuses_joined_segments_gets_each_of_them() {
        let packets = segments(8);
        let lengths: Vec<usize> = written(&packets, false).iter().map(Vec::len).collect();
        assert_eq!(lengths, [4_060, 4_060]);
        assert!(written(&packets, true) == packets, "none is lost, and all are as they were");
    }
}
