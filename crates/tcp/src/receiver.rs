//! Reassembly and acknowledging.

use units::{Bytes, Time};
use wire::tcp::{CeCounters, Flags, SackBlock, Segment};

use crate::out_of_order::OutOfOrder;
use crate::{Config, NEVER, accurate_ecn};

/// The receiving half, without the data that arrived [out of order](OutOfOrder), which most packets
/// do not touch. The configuration is that of the connection, passed as an argument.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Receiver {
    /// The next position expected; 0 before the SYN.
    next: u64,
    /// The position up to which the application has read.
    read: u64,
    /// The latest cumulative acknowledgement sent (`Last.ACK.sent`).
    acked: u64,
    /// The end of the window that was advertised last.
    advertised: u64,
    /// When an acknowledgement is due unless a data segment carries it; zero: at once.
    due: Time,
    /// The position of the peer's FIN; the largest number until it is known.
    fin: u64,
    /// The timestamp to echo: that of the earliest segment not yet acknowledged, or of the one that
    /// filled a hole (`TS.Recent` of RFC 7323).
    echo: u32,
    /// Full packets since the last acknowledgement; the second one makes it due.
    unacked: u8,
    /// Whether the application reads data as it arrives.
    is_reading: bool,
    /// A marked packet arrived and the sender has not confirmed it (CWR). With accurate ECN: the
    /// latest packet was marked.
    is_marked: bool,
    /// Whether anything is in [`OutOfOrder`].
    has_out_of_order: bool,
    /// The marked packets that arrived (RFC 9768).
    ce: CeCounters,
}

/// The receiving half's part of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckFields {
    ack: u64,
    flags: Flags,
    window: u32,
    echo: u32,
    /// The number of blocks that [`Receiver::write_blocks`] will write.
    pub(crate) sack_count: u8,
    ce: CeCounters,
}

impl AckFields {
    /// The segment with these fields and the sending half's, without the blocks.
    #[inline]
    pub(crate) fn into_segment(self, seq: u64, len: u16, flags: Flags, timestamp: u32) -> Segment {
        let AckFields { ack, window, echo, sack_count, ce, .. } = self;
        let (flags, sack) = (flags.with(self.flags), [SackBlock::default(); 3]);
        let timestamp_echo = echo;
        let mut segment =
            Segment { seq, ack, window, len, flags, sack_count, sack, timestamp, timestamp_echo };
        segment.set_ce(ce);
        segment
    }
}

impl Receiver {
    pub(crate) fn new() -> Receiver {
        Receiver {
            next: 0,
            read: 0,
            acked: 0,
            advertised: 0,
            due: NEVER,
            fin: u64::MAX,
            echo: 0,
            unacked: 0,
            is_reading: true,
            is_marked: false,
            has_out_of_order: false,
            ce: CeCounters::default(),
        }
    }

    /// The peer's SYN.
    pub(crate) fn handle_syn(&mut self, timestamp: u32) {
        self.next = self.next.max(1);
        self.read = self.read.max(1);
        self.echo = timestamp;
        self.due = Time::ZERO;
    }

    pub(crate) fn handle_segment(
        &mut self,
        now: Time,
        segment: &Segment,
        is_marked: bool,
        out_of_order: &mut OutOfOrder,
        config: &Config,
    ) {
        // RFC 9768, section 3.2.2.5.1: the first of several marked packets is acknowledged at once,
        // and each second one at least.
        let is_urgent = is_marked && !(config.accurate_ecn && self.is_marked);
        if config.accurate_ecn || segment.flags.has(Flags::CWR) {
            self.is_marked = false;
        }
        if is_marked {
            self.is_marked = true;
            self.ce.count(u32::from(segment.len));
        }
        let (from, to) = (segment.seq, segment.seq + segment.span());
        if from == to {
            if from < self.next {
                // A window probe: the answer carries the window (RFC 9293, section 3.10.7.4).
                self.due = Time::ZERO;
            }
            return;
        }
        // RFC 7323, section 4.3, rule 2, even if an acknowledgement is due: an older echo would
        // make a retransmission look spurious.
        if from <= self.acked && segment.timestamp.wrapping_sub(self.echo).cast_signed() >= 0 {
            self.echo = segment.timestamp;
        }
        if to <= self.next {
            // A duplicate: the acknowledgement was lost, or the network duplicated the segment.
            out_of_order.note_duplicate(from, to);
            self.has_out_of_order = true;
            self.due = Time::ZERO;
            return;
        }
        if to > self.read + config.receive_buffer.0 + 1 {
            // Beyond the window (a FIN takes no buffer): the answer carries the window.
            self.due = Time::ZERO;
            return;
        }
        if segment.flags.has(Flags::FIN) {
            self.fin = to - 1;
        }
        if from > self.next {
            out_of_order.insert(from, to);
            self.has_out_of_order = true;
            self.due = Time::ZERO;
            return;
        }
        self.next = to;
        let counts = u64::from(segment.len) >= config.mss.0 || config.accurate_ecn && is_marked;
        self.unacked = self.unacked.saturating_add(u8::from(counts));
        let has_hole = self.has_out_of_order && out_of_order.has_blocks();
        if has_hole {
            self.next = out_of_order.take_in_order(to);
            self.has_out_of_order = !out_of_order.is_empty();
        }
        if self.is_reading {
            self.read = self.next;
        }
        let may_wait = !has_hole && self.unacked < 2 && self.fin == u64::MAX && !is_urgent;
        self.due = match config.delayed_ack {
            Some(delay) if may_wait => self.due.min(now + delay),
            _ => Time::ZERO,
        };
    }

    /// Sets whether the application reads data as it arrives. If it begins to, a window update may
    /// be due.
    pub(crate) fn set_reading(&mut self, is_reading: bool, config: &Config) {
        self.is_reading = is_reading;
        if is_reading {
            self.read_to(self.next, config);
        }
    }

    /// Payload that arrived in order and has not been read.
    #[inline]
    pub(crate) fn readable(&self) -> Bytes {
        Bytes(self.next.min(self.fin).saturating_sub(self.read))
    }

    /// The application reads up to `bytes` of it.
    pub(crate) fn read(&mut self, bytes: Bytes, config: &Config) {
        let to = self.read + bytes.min(self.readable()).0;
        // The FIN is read with the last byte.
        self.read_to(if self.fin == to { self.next } else { to }, config);
    }

    /// The application has read up to `to`; a window update is due if the new room is worth a
    /// packet.
    fn read_to(&mut self, to: u64, config: &Config) {
        if self.read >= to {
            return;
        }
        self.read = to;
        // Silly window avoidance (RFC 1122, section 4.2.3.3): the window has grown by two packets
        // or half the buffer.
        let (mss, buffer) = (config.mss.0, config.receive_buffer.0);
        if self.read + buffer >= self.advertised + (2 * mss).min(buffer / 2) {
            self.due = Time::ZERO;
        }
    }

    /// When an acknowledgement is due; a past time means at once.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        self.due
    }

    /// Whether an acknowledgement is due at `now`.
    #[inline]
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.due <= now
    }

    /// The acknowledgement fields of a segment that leaves now; no acknowledgement is due
    /// afterwards.
    #[inline]
    pub(crate) fn acknowledge(
        &mut self,
        now: Time,
        out_of_order: &OutOfOrder,
        config: &Config,
    ) -> AckFields {
        let marks = if config.accurate_ecn {
            accurate_ecn::flags_of(self.ce.packets)
        } else if self.is_marked {
            Flags::ECE
        } else {
            Flags::default()
        };
        let mut end = self.read + config.receive_buffer.0;
        self.due = NEVER;
        if !config.receive_windows.is_empty() {
            end = self.offer(now, end, config);
        }
        let has_blocks = self.has_out_of_order && config.detection.is_selective();
        let sack_count = if has_blocks { out_of_order.reported() } else { 0 };
        self.advertised = end;
        self.acked = self.next;
        self.unacked = 0;
        AckFields {
            ack: self.next,
            flags: Flags::ACK.with(marks),
            window: u32::try_from(end.saturating_sub(self.next)).unwrap_or(u32::MAX),
            echo: self.echo,
            sack_count,
            ce: self.ce,
        }
    }

    /// The end of the window that the application lets be offered, `most` at most and never before
    /// what was offered. An update is due when the application allows more.
    #[cold]
    fn offer(&mut self, now: Time, most: u64, config: &Config) -> u64 {
        let (window, larger) = config.receive_window(now);
        if self.fin == u64::MAX {
            self.due = larger.unwrap_or(NEVER);
        }
        window.map_or(most, |window| most.min(self.next + window.0)).max(self.advertised)
    }

    /// Writes the selective acknowledgement blocks into the segment in its final place. A copy
    /// right after these small writes would stall on them (failed store forwarding).
    #[inline(never)]
    pub(crate) fn write_blocks(&mut self, out_of_order: &mut OutOfOrder, sack: &mut [SackBlock]) {
        let mut slots = sack.iter_mut();
        out_of_order.take_reported(slots.len(), |from, to| {
            // Blocks lie within a window of the acknowledgement, and windows are below 2^31.
            let offset = from.cast_signed() - self.next.cast_signed();
            if let Some(slot) = slots.next() {
                *slot = SackBlock {
                    from: i32::try_from(offset).unwrap_or(i32::MIN),
                    len: u32::try_from(to - from).unwrap_or(u32::MAX),
                };
            }
        });
        self.has_out_of_order = out_of_order.has_blocks();
    }

    /// Writes the window into a segment without an acknowledgement.
    pub(crate) fn write_window(&mut self, now: Time, segment: &mut Segment, config: &Config) {
        let window = match config.receive_window(now).0 {
            None => config.receive_buffer,
            Some(window) => {
                let window = window.min(config.receive_buffer);
                self.advertised = window.0;
                window
            }
        };
        segment.window = u32::try_from(window.0).unwrap_or(u32::MAX);
    }

    /// The packets that arrived marked, modulo 2^32.
    pub(crate) fn marked(&self) -> u32 {
        self.ce.packets
    }

    /// Payload that the application has read.
    #[inline]
    pub(crate) fn received(&self) -> Bytes {
        Bytes(self.read.min(self.fin).saturating_sub(1))
    }

    /// Payload that has arrived, in order or not, each byte once.
    pub(crate) fn arrived(&self, out_of_order: &OutOfOrder) -> Bytes {
        let in_order = self.next.min(self.fin).saturating_sub(1);
        // The FIN is the last byte of the last block, if it is in one.
        let (beyond, end) = out_of_order.extent();
        Bytes(in_order + beyond - u64::from(end > self.fin))
    }

    /// The next position expected.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether the peer's FIN and all before it has been read.
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.read > self.fin
    }
}
