//! Socket options that no library wraps: the kernel's view of a TCP connection, and its unsent
//! bytes.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The fields of `TCP_INFO` (tcp(7)) that Anabranch uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Lowest round-trip time seen.
    pub min_rtt: Duration,
    /// Segments sent and neither acknowledged nor counted as lost.
    pub unacked: u32,
    /// Retransmission timeouts in a row without progress.
    pub timeouts: u32,
    /// Segments sent again since the beginning.
    pub retransmits: u64,
    /// Data segments sent since the beginning.
    pub data_segments_out: u64,
    /// Payload bytes that the peer's kernel acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes sent, those sent again included; zero before Linux 4.19.
    pub bytes_sent: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Segments sent since the beginning, with payload or without.
    pub segments_out: u64,
    /// Segments received.
    pub segments_in: u64,
    /// Payload bytes handed to the network and not yet sent.
    pub unsent: u64,
    /// Time that the connection had data to send.
    pub busy: Duration,
    /// Of that, time that it waited for the peer's receive window.
    pub held_by_receiver: Duration,
    /// Of that, time that the send buffer was too small.
    pub held_by_send_buffer: Duration,
    /// The most recent delivery rate in bytes a second; zero if there is none.
    pub delivery_rate: u64,
    /// Whether the rate was held down by a lack of data to send.
    pub app_limited: bool,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow start threshold in segments; `None` while slow start has no bound.
    pub slow_start_threshold: Option<u32>,
    /// Segments that the peer's kernel received twice (RFC 2883); zero before Linux 4.19.
    pub duplicates: u32,
    /// Largest segment to be sent, in bytes.
    pub mss: u32,
}

/// Reads `TCP_INFO`.
///
/// # Errors
/// The error of getsockopt: the socket is no TCP socket.
pub fn tcp_info(socket: &impl AsFd) -> io::Result<TcpInfo> {
    let mut raw = MaybeUninit::<RawTcpInfo>::zeroed();
    #[expect(clippy::cast_possible_truncation, reason = "a few hundred bytes")]
    let mut length = size_of::<RawTcpInfo>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `raw`, which is that large; every bit
    // pattern, zeroes that an older kernel leaves included, is a valid RawTcpInfo.
    let raw = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        let result = libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            raw.as_mut_ptr().cast(),
            &raw mut length,
        );
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        raw.assume_init()
    };
    Ok(TcpInfo {
        rtt: Duration::from_micros(raw.rtt.into()),
        min_rtt: Duration::from_micros(if raw.min_rtt == u32::MAX {
            0
        } else {
            raw.min_rtt.into()
        }),
        unacked: raw.unacked,
        timeouts: raw.retransmits.into(),
        retransmits: raw.total_retrans.into(),
        data_segments_out: raw.data_segs_out.into(),
        bytes_acked: raw.bytes_acked,
        bytes_sent: raw.bytes_sent,
        bytes_received: raw.bytes_received,
        segments_out: raw.segs_out.into(),
        segments_in: raw.segs_in.into(),
        unsent: raw.notsent_bytes.into(),
        busy: Duration::from_micros(raw.busy_time),
        held_by_receiver: Duration::from_micros(raw.rwnd_limited),
        held_by_send_buffer: Duration::from_micros(raw.sndbuf_limited),
        delivery_rate: raw.delivery_rate,
        // The first bit-field after the window scales.
        app_limited: raw.delivery_rate_app_limited & 1 != 0,
        cwnd: raw.snd_cwnd,
        slow_start_threshold: (raw.snd_ssthresh < NO_THRESHOLD).then_some(raw.snd_ssthresh),
        duplicates: raw.dsack_dups,
        mss: raw.snd_mss,
    })
}

/// Payload bytes in the socket's send buffer that were never sent (`SIOCOUTQNSD`).
///
/// # Errors
/// The error of ioctl.
pub fn unsent(socket: &impl AsFd) -> io::Result<u64> {
    const SIOCOUTQNSD: libc::Ioctl = 0x894b;
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQNSD writes one int, to a place that holds one.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) };
    if result == 0 {
        Ok(u64::try_from(bytes).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The largest packet of the network layer that the kernel believes to pass to the peer of a
/// connected socket, by the device's MTU and by what ICMP said since (`IP_MTU`, `IPV6_MTU`).
///
/// # Errors
/// The error of getsockopt.
pub fn path_mtu(socket: &impl AsFd, is_ipv6: bool) -> io::Result<u32> {
    let (level, name) = if is_ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU)
    };
    number_option(socket, level, name)
}

/// Datagrams that the kernel dropped because the socket's buffer was full (`SO_MEMINFO`).
///
/// # Errors
/// The error of getsockopt: before Linux 4.12 there is no such option.
pub fn dropped(socket: &impl AsFd) -> io::Result<u32> {
    // The numbers of sk_meminfo in <linux/sock_diag.h>; the last one is that of drops.
    let mut numbers = [0u32; 9];
    #[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
    let mut length = std::mem::size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `numbers`, which is that large.
    let result = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        let to = numbers.as_mut_ptr().cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, to, &raw mut length)
    };
    if result == 0 { Ok(numbers[8]) } else { Err(io::Error::last_os_error()) }
}

/// Bounds the bytes that the socket has for its reader to about `bytes` (`SO_RCVBUF`). Where the
/// system allows no bound as large as that (`net.core.rmem_max`), the kernel sets it, as it does
/// for other sockets (`net.ipv4.tcp_rmem`).
///
/// # Errors
/// The error of setsockopt.
pub fn set_receive_bound(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
    // Before Linux 6.9 the window stays within the buffer that was there first.
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes)?;
    // The kernel doubles what it takes, for its own overhead.
    let taken = number_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF)? / 2;
    if taken < bytes {
        // Before Linux 5.14 the largest allowed bound stays.
        let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK, 0);
    }
    Ok(())
}

/// A socket option that is a number; zero if it is negative.
fn number_option(socket: &impl AsFd, level: libc::c_int, name: libc::c_int) -> io::Result<u32> {
    let mut value: libc::c_int = 0;
    #[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `value`, which is that large.
    let result = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut length)
    };
    if result == 0 {
        Ok(u32::try_from(value).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets the socket count as writable only while less than `bytes` are not yet sent
/// (`TCP_NOTSENT_LOWAT`).
///
/// # Errors
/// The error of setsockopt.
pub fn set_unsent_low_water(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// Paces the socket to `bytes` a second (`SO_MAX_PACING_RATE`); TCP paces itself, no queueing
/// discipline is needed.
///
/// # Errors
/// The error of setsockopt.
pub fn set_max_pacing_rate(socket: &impl AsFd, bytes: u64) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes)
}

fn set_option<T: Copy>(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    #[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `value`, which is an integer of that size.
    let result = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `TCP_INFINITE_SSTHRESH` of the kernel.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// `struct tcp_info` of linux/tcp.h up to the fields used; libc's own ends before them.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawTcpInfo {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    window_scales: u8,
    delivery_rate_app_limited: u8,
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernels_view_of_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[0; 10_000]).unwrap();
        server.read_exact(&mut [0; 10_000]).unwrap();
        server.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        let info = tcp_info(&client).unwrap();
        assert_eq!(info.bytes_acked, 10_001, "the SYN counts as one");
        assert_eq!((info.unsent, info.retransmits, info.timeouts), (0, 0, 0));
        assert_eq!((info.bytes_sent, info.bytes_received), (10_000, 1));
        assert!(info.segments_out > info.data_segments_out && info.segments_in >= 3, "{info:?}");
        assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(1), "{info:?}");
        assert!((500..=65_535).contains(&info.mss), "{info:?}");
        assert_eq!((info.slow_start_threshold, info.duplicates), (None, 0), "{info:?}");
        assert_eq!(unsent(&client).unwrap(), 0);
        set_unsent_low_water(&client, 16_384).unwrap();
        set_max_pacing_rate(&client, 1_000_000).unwrap();
    }
}
