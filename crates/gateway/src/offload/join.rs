//! Segments of a connection that follow each other, joined to one packet for the kernel, which
//! divides it again where it has to.
//!
//! Segments are joined only if what the kernel makes of the packet is these segments again, octet
//! by octet: they differ in nothing but what [`super::Segments`] writes, and their checksums are
//! right. One that is not stays as it is, for its host to drop.

use std::collections::VecDeque;
use std::io::IoSlice;

use wire::tcp::Flags;

use super::split::{low16, replace_word, word16, word32};
use super::sum::Sum;
use super::{DeviceHeader, NEEDS_CHECKSUM, TCP_CHECKSUM, TCP_OVER_IPV4, TCP_OVER_IPV6, ToKernel};
use crate::frame::Frame;
use crate::packet::Headers;

/// Connections whose segments wait for each other at a time. Of one more, the oldest leave.
const MOST_RUNS: usize = 64;
/// Octets of the largest packet of IP.
const LARGEST: usize = 65_535;
/// PSH.
const PSH: u8 = 0x08;

/// Joins what is for the kernel.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    runs: Vec<Joined>,
    ready: VecDeque<Joined>,
    /// Whether nothing is joined.
    is_off: bool,
}

/// Segments that follow each other, one or more; or a packet that goes back with its header.
#[derive(Debug)]
pub(crate) struct Joined {
    frames: Vec<Frame>,
    /// The header of the device that is to stand before the packet if it is one.
    header: DeviceHeader,
    /// Where the header of TCP is in each, and where payloads begin.
    tcp: usize,
    end: usize,
    /// The payload of each but the last, and of all.
    segment: usize,
    payload: usize,
    /// Whether nothing can follow.
    is_closed: bool,
    /// Whether the checksums of the first one are known to be right.
    is_checked: bool,
}

impl Joiner {
    /// Joins nothing from now on: the kernel takes no such packets.
    pub(crate) fn turn_off(&mut self) {
        self.is_off = true;
    }

    /// A packet for the kernel.
    pub(crate) fn push(&mut self, packet: ToKernel) {
        let ToKernel { header, frame, headers } = packet;
        let Some(headers) = headers.filter(|_| !self.is_off) else {
            // Of which connection it is is not known: it keeps its place behind all others.
            self.finish();
            self.ready.push_back(Joined::one(header, frame));
            return;
        };
        let ends = headers.tcp() - address_octets(&headers)..headers.tcp() + 4;
        let is_same = |run: &Joined| {
            run.tcp == headers.tcp() && run.frames[0][ends.clone()] == frame[ends.clone()]
        };
        if let Some(at) = self.runs.iter().position(is_same) {
            if self.runs[at].takes(&frame, &headers) {
                self.runs[at].append(frame, &headers);
                if self.runs[at].is_closed {
                    let run = self.runs.remove(at);
                    self.ready.push_back(run);
                }
                return;
            }
            let run = self.runs.remove(at);
            self.ready.push_back(run);
        }
        let run = Joined::begin(frame, &headers);
        if run.is_closed {
            self.ready.push_back(run);
            return;
        }
        if self.runs.len() == MOST_RUNS {
            let oldest = self.runs.remove(0);
            self.ready.push_back(oldest);
        }
        self.runs.push(run);
    }

    /// Nothing follows for now: all that waits for more is ready.
    pub(crate) fn finish(&mut self) {
        self.ready.extend(self.runs.drain(..));
    }

    /// What is ready next.
    pub(crate) fn pop(&mut self) -> Option<Joined> {
        self.ready.pop_front()
    }
}

/// The octets of both addresses.
fn address_octets(headers: &Headers) -> usize {
    if headers.is_ipv4() { 8 } else { 32 }
}

impl Joined {
    /// A packet by itself.
    fn one(header: DeviceHeader, frame: Frame) -> Joined {
        let (tcp, end, segment, payload) = (0, 0, 0, 0);
        let frames = vec![frame];
        Joined { frames, header, tcp, end, segment, payload, is_closed: true, is_checked: false }
    }

    /// A segment that others may follow.
    fn begin(frame: Frame, headers: &Headers) -> Joined {
        let (tcp, end) = (headers.tcp(), headers.end());
        let payload = frame.len() - end;
        // What else has flags is rare, or has no payload.
        let is_usual = frame[tcp + 13] & !(PSH | Flags::FIN.0 | Flags::ECE.0) == Flags::ACK.0;
        let is_closed = !is_usual || payload == 0 || is_end(frame[tcp + 13]);
        let header = DeviceHeader::PLAIN;
        let frames = vec![frame];
        Joined { frames, header, tcp, end, segment: payload, payload, is_closed, is_checked: false }
    }

    /// Whether a segment of the same connection can follow.
    fn takes(&mut self, next: &[u8], headers: &Headers) -> bool {
        let Joined { tcp, end, segment, payload, .. } = *self;
        let first = &self.frames[0][..];
        let length = next.len() - headers.end();
        let have_same = |octets: std::ops::Range<usize>| first[octets.clone()] == next[octets];
        let before = low16(self.frames.len());
        let is_same_ip = if headers.is_ipv4() {
            // All but the length, the identification and the checksum.
            have_same(0..2)
                && have_same(6..10)
                && word16(next, 4) == word16(first, 4).wrapping_add(before)
        } else {
            have_same(0..4) && have_same(6..8)
        };
        let flags = (first[tcp + 13] ^ next[tcp + 13]) & !(PSH | Flags::FIN.0);
        let fits = headers.end() == end
            && (1..=segment).contains(&length)
            && end + payload + length <= LARGEST
            && is_same_ip
            && word32(next, tcp + 4) == word32(first, tcp + 4).wrapping_add(self.payload_before())
            // The acknowledgement, and the length of the header.
            && have_same(tcp + 8..tcp + 13)
            && flags == 0
            // The window; the urgent pointer, and options.
            && have_same(tcp + 14..tcp + 16)
            && have_same(tcp + 18..end);
        if !fits || !(self.is_checked || is_right(first, tcp)) || !is_right(next, tcp) {
            return false;
        }
        self.is_checked = true;
        true
    }

    fn payload_before(&self) -> u32 {
        u32::try_from(self.payload).unwrap_or(u32::MAX)
    }

    fn append(&mut self, frame: Frame, headers: &Headers) {
        let length = frame.len() - headers.end();
        self.payload += length;
        self.is_closed = length < self.segment
            || is_end(frame[self.tcp + 13])
            || self.end + self.payload + self.segment > LARGEST;
        self.frames.push(frame);
    }

    /// Writes it as one packet, in pieces. `head` is space for the headers.
    pub(crate) fn write<T>(
        &mut self,
        head: &mut Vec<u8>,
        write: impl FnOnce(&[IoSlice<'_>]) -> T,
    ) -> T {
        if let [frame] = &mut self.frames[..] {
            return write(&[IoSlice::new(frame.behind(self.header.octets()))]);
        }
        head.clear();
        self.write_headers(head);
        let payloads = self.frames.iter().map(|frame| IoSlice::new(&frame[self.end..]));
        let pieces: Vec<IoSlice<'_>> =
            std::iter::once(IoSlice::new(head)).chain(payloads).collect();
        write(&pieces)
    }

    /// Whether it is several segments.
    pub(crate) fn is_several(&self) -> bool {
        self.frames.len() > 1
    }

    /// Its segments, each by itself.
    pub(crate) fn apart(self) -> impl Iterator<Item = Joined> {
        let header = self.header;
        self.frames.into_iter().map(move |frame| Joined::one(header, frame))
    }

    /// The segments.
    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The header of the device and those of the packet that is all segments.
    fn write_headers(&self, head: &mut Vec<u8>) {
        let Joined { tcp, end, segment, payload, .. } = *self;
        let (Some(first), Some(last)) = (self.frames.first(), self.frames.last()) else { return };
        let is_ipv4 = first[0] >> 4 == 4;
        let header = DeviceHeader {
            flags: NEEDS_CHECKSUM,
            kind: if is_ipv4 { TCP_OVER_IPV4 } else { TCP_OVER_IPV6 },
            headers: low16(end),
            segment: low16(segment),
            sum_from: low16(tcp),
            sum_at: TCP_CHECKSUM,
        };
        head.extend(header.octets());
        let begin = head.len();
        head.extend(&first[..end]);
        let packet = &mut head[begin..];
        if is_ipv4 {
            replace_word(packet, 2, low16(end + payload));
        } else {
            packet[4..6].copy_from_slice(&low16(end + payload - 40).to_be_bytes());
        }
        packet[tcp + 13] |= last[tcp + 13] & (PSH | Flags::FIN.0);
        let sum = Sum::of_pseudo_header(packet, end + payload - tcp).folded();
        let at = tcp + usize::from(TCP_CHECKSUM);
        packet[at..at + 2].copy_from_slice(&sum);
    }
}

/// Whether a segment with these flags is the last one of what the host has sent at once.
fn is_end(flags: u8) -> bool {
    flags & (PSH | Flags::FIN.0) != 0
}

/// Whether the checksums of a segment are right.
fn is_right(packet: &[u8], tcp: usize) -> bool {
    let of_ip = packet[0] >> 4 != 4 || Sum::default().with(&packet[..tcp]).is_right();
    of_ip && Sum::of_pseudo_header(packet, packet.len() - tcp).with(&packet[tcp..]).is_right()
}

#[cfg(test)]
mod tests;
