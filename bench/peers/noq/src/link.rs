//! A link that drops nothing: receive buffers bound what waits. noq-proto ends a connection whose
//! stream has many gaps, so that the overshoot of slow start must not lose packets.

use std::collections::VecDeque;

/// Nanoseconds a byte: 1 Gbit/s.
const BYTE: u64 = 8;
const DELAY: u64 = 10_000_000;
/// Of IP and UDP.
const HEADERS: u64 = 28;

pub struct Link {
    free_at: u64,
    on_the_way: VecDeque<(u64, Vec<u8>)>,
}

impl Link {
    pub fn new() -> Link {
        Link { free_at: 0, on_the_way: VecDeque::new() }
    }

    pub fn send(&mut self, now: u64, datagram: Vec<u8>) {
        self.free_at = self.free_at.max(now) + (datagram.len() as u64 + HEADERS) * BYTE;
        self.on_the_way.push_back((self.free_at + DELAY, datagram));
    }

    pub fn next(&self) -> Option<u64> {
        self.on_the_way.front().map(|(at, _)| *at)
    }

    pub fn deliver(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        self.on_the_way.pop_front().map(|(_, datagram)| datagram)
    }
}
