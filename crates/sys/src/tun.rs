//! TUN devices: whole IP packets in and out.

use std::ffi::c_char;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// A TUN device. Each read is one IP packet as it would be on the wire, each write too; with
/// offload there are headers before them, and packets of several segments. Reads and writes do not
/// block. The device is gone when this is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Makes a device called `name` in the namespace of the calling thread (see
    /// [`crate::netns::NetNs::run`]).
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_ADMIN` in the namespace, `InvalidInput` for a name that
    /// no device can have.
    pub fn create(name: &str) -> io::Result<Tun> {
        Tun::with_flags(name, libc::IFF_TUN | libc::IFF_NO_PI)
    }

    /// The same with offload: each packet stands behind the ten octets of `virtio_net_hdr`, may
    /// lack the checksum of TCP or UDP, and have several segments of TCP.
    ///
    /// # Errors
    /// Those of [`Tun::create`]; `InvalidInput` too if the kernel has no such thing.
    pub fn with_offload(name: &str) -> io::Result<Tun> {
        let tun = Tun::with_flags(name, libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR)?;
        let offload = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        // SAFETY: TUNSETOFFLOAD takes its argument as a number.
        let result = unsafe {
            libc::ioctl(tun.file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offload))
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(tun)
    }

    fn with_flags(name: &str, flags: libc::c_int) -> io::Result<Tun> {
        let path = "/dev/net/tun";
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file =
            file.map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        let mut request = request(name)?;
        request.ifr_ifru.ifru_flags =
            libc::c_short::try_from(flags).expect("the flags of a device are 15 bits");
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives through the call.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Tun { file, name: name.to_owned() })
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the next packet that the kernel sent out through the device.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Hands the kernel a packet, as if it had come in through the device.
    ///
    /// # Errors
    /// If the device is down, or the packet no IP.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }

    /// The same of a packet in pieces.
    ///
    /// # Errors
    /// As [`Tun::send`].
    pub fn send_pieces(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        (&self.file).write_vectored(pieces).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an ifreq is plain integers and arrays of them; all zero is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("no device can be called '{name}'"),
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    Ok(request)
}
