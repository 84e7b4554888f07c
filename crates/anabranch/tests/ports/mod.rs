//! Ports that a test names before somebody listens there. Tests include this file by its path.

use std::net::{Ipv6Addr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel gives to connections and to those who ask for any port. One of
/// those, found and let go, is given to another test before the one that found it listens.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A port at which nobody listens, on any address, over TCP and UDP. No other call in this process
/// gives it; another process begins elsewhere.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = u16::try_from(u64::from(process::id()) * 97 % u64::from(COUNT)).unwrap();
    for _ in 0..COUNT {
        let port = FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        let any = (Ipv6Addr::UNSPECIFIED, port);
        if TcpListener::bind(any).is_ok() && UdpSocket::bind(any).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST} on is free");
}
