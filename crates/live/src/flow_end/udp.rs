//! UDP at a constant rate.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sys::clock::Clock;

use super::clock::{sleep_precisely, sleep_until};
use super::{Tally, Task};
use crate::describe::{FlowEnd, PathEnd};

/// The headers of a datagram: IPv4 and UDP.
const HEADERS: u16 = 28;

fn path(end: &FlowEnd) -> io::Result<PathEnd> {
    end.paths.first().copied().ok_or_else(|| io::Error::other("a UDP flow has a path"))
}

/// The sender of a flow: a datagram whenever one is due, several at once only where it came late.
pub(super) fn sender(
    end: &FlowEnd,
    packet: u16,
    rate: u64,
    size: Option<u64>,
    tally: &Arc<Tally>,
) -> io::Result<Vec<Task>> {
    let path = path(end)?;
    let socket = UdpSocket::bind((path.local, 0))?;
    socket.connect(SocketAddr::from((path.remote, end.port)))?;
    let (start, stop, tally) = (end.start, end.stop.unwrap_or(u64::MAX), Arc::clone(tally));
    let task = move |clock: Clock| {
        sleep_precisely();
        let payload = vec![0; usize::from(packet.saturating_sub(HEADERS))];
        let bits = u128::from(packet) * 8 * 1_000_000_000;
        for number in 0u64.. {
            if size.is_some_and(|size| number * u64::from(packet) >= size) {
                break;
            }
            let due = u64::try_from(u128::from(number) * bits / u128::from(rate.max(1)));
            let due = start.saturating_add(due.unwrap_or(u64::MAX));
            if due >= stop {
                break;
            }
            sleep_until(clock, due);
            if socket.send(&payload).is_err() {
                tally.retransmitted.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    Ok(vec![Box::new(task)])
}

/// The receiver of a flow.
pub(super) fn receiver(
    end: &FlowEnd,
    size: Option<u64>,
    tally: &Arc<Tally>,
) -> io::Result<Vec<Task>> {
    let socket = UdpSocket::bind((path(end)?.local, end.port))?;
    let tally = Arc::clone(tally);
    let task = move |clock: Clock| {
        let mut buffer = [0; 2_048];
        loop {
            let payload = socket.recv(&mut buffer)?;
            tally.receive(0, payload as u64 + u64::from(HEADERS), size, clock);
        }
    };
    Ok(vec![Box::new(task)])
}
