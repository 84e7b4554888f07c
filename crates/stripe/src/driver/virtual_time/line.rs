//! A line with a rate and a delay, in virtual time.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};

use units::{Bytes, Rate, Span, Time};

/// How long a datagram may wait for those before it, else it is lost.
const LONGEST: Span = Span::from_millis(100);

/// Carries datagrams between whoever sends to its begin and an address, and back.
pub(super) struct VirtualLine {
    /// Here the near side sends to, and from there to the address.
    sockets: [UdpSocket; 2],
    /// Whom each of them sends to.
    ends: [Option<SocketAddr>; 2],
    rate: Rate,
    delay: Span,
    /// When each direction has sent what waits.
    free_at: [Time; 2],
    /// What is on its way, by when it arrives, and from which socket it leaves then.
    carried: VecDeque<(Time, usize, Vec<u8>)>,
}

impl VirtualLine {
    pub(super) fn to(address: SocketAddr, rate: Rate, delay: Span) -> VirtualLine {
        let sockets = [0, 1].map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
            socket.set_nonblocking(true).expect("sockets can be so");
            socket
        });
        let (ends, free_at) = ([None, Some(address)], [Time::ZERO; 2]);
        VirtualLine { sockets, ends, rate, delay, free_at, carried: VecDeque::new() }
    }

    pub(super) fn begin(&self) -> SocketAddr {
        self.sockets[0].local_addr().expect("it is bound")
    }

    /// Takes in what has come, and delivers what is due; whether there was anything.
    pub(super) fn carry(&mut self, now: Time) -> bool {
        let mut is_busy = false;
        let mut datagram = [0; 2_048];
        for from in [0, 1] {
            while let Ok((length, sender)) = self.sockets[from].recv_from(&mut datagram) {
                self.ends[from] = Some(sender);
                is_busy = true;
                let free_at = &mut self.free_at[from];
                if *free_at > now + LONGEST {
                    continue;
                }
                *free_at = now.max(*free_at) + Bytes(length as u64) / self.rate;
                let arrival = (*free_at + self.delay, 1 - from, datagram[..length].to_vec());
                let later = self.carried.partition_point(|(at, ..)| *at <= arrival.0);
                self.carried.insert(later, arrival);
            }
        }
        while self.next().is_some_and(|at| at <= now) {
            let Some((_, out, datagram)) = self.carried.pop_front() else { break };
            if let Some(to) = self.ends[out] {
                // Nobody may be there.
                let _ = self.sockets[out].send_to(&datagram, to);
            }
            is_busy = true;
        }
        is_busy
    }

    /// When the next datagram arrives.
    pub(super) fn next(&self) -> Option<Time> {
        self.carried.front().map(|(at, ..)| *at)
    }
}
