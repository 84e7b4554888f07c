//! Reassembly and acknowledging.

use alloc::vec::Vec;

use units::{Bytes, Span, Time};
use wire::tcp::{Flags, SackBlock, Segment};

use crate::Config;

/// The receiving half.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    mss: u64,
    buffer: u64,
    delay: Option<Span>,
    is_selective: bool,
    /// The next position expected; 0 before the SYN.
    next: u64,
    /// How far the application has read.
    read: u64,
    /// Whether the application reads as data comes.
    is_reading: bool,
    /// The position of the peer's FIN.
    fin: Option<u64>,
    /// What arrived beyond `next`, apart from each other, the latest first.
    blocks: Vec<(u64, u64)>,
    /// What arrived a second time with the latest segment (RFC 2883).
    duplicate: Option<(u64, u64)>,
    ack: Ack,
    /// Full packets since the last acknowledgement.
    unacked: u32,
    /// To be echoed: the timestamp of the earliest segment not yet acknowledged, or of the one that filled a hole (`TS.Recent` of RFC 7323).
    echo: u32,
    /// What the latest acknowledgement said (`Last.ACK.sent`).
    acked: u64,
    /// A marked packet came, and the sender has not said that it knows.
    is_marked: bool,
    /// The window's end that the sender was told last.
    told: u64,
}

/// Whether an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ack {
    None,
    /// Unless something else carries it, at this time.
    At(Time),
    Now,
}

/// The receiving half's part of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    ack: u64,
    flags: Flags,
    window: u32,
    echo: u32,
    /// How many blocks [`Receiver::write_blocks`] will write.
    pub(crate) sack_count: u8,
}

impl Answer {
    /// The segment that says this, its blocks apart, and what the sending half says.
    #[inline]
    pub(crate) fn with(self, seq: u64, len: u16, flags: Flags, timestamp: u32) -> Segment {
        let Answer { ack, window, echo, sack_count, .. } = self;
        let (flags, sack) = (flags.with(self.flags), [SackBlock::default(); 3]);
        Segment { seq, ack, window, len, flags, sack_count, sack, timestamp, timestamp_echo: echo }
    }
}

impl Receiver {
    pub(crate) fn new(config: &Config) -> Receiver {
        Receiver {
            mss: config.mss.0,
            buffer: config.receive_buffer.0,
            delay: config.delayed_ack,
            is_selective: config.detection.is_selective(),
            next: 0,
            read: 0,
            is_reading: true,
            fin: None,
            blocks: Vec::new(),
            duplicate: None,
            ack: Ack::None,
            unacked: 0,
            echo: 0,
            acked: 0,
            is_marked: false,
            told: 0,
        }
    }

    /// The peer's SYN.
    pub(crate) fn handle_syn(&mut self, timestamp: u32) {
        self.next = self.next.max(1);
        self.read = self.read.max(1);
        self.echo = timestamp;
        self.ack = Ack::Now;
    }

    pub(crate) fn handle_segment(&mut self, now: Time, segment: &Segment, is_marked: bool) {
        if segment.flags.has(Flags::CWR) {
            self.is_marked = false;
        }
        self.is_marked |= is_marked;
        let (from, to) = (segment.seq, segment.seq + segment.span());
        if from == to {
            if from < self.next {
                // A probe: the answer says where the window ends (RFC 9293, section 3.10.7.4).
                self.ack = Ack::Now;
            }
            return;
        }
        // RFC 7323, section 4.3, rule 2. Even if an acknowledgement is due: an older echo would say that a retransmission was for nothing.
        if from <= self.acked && segment.timestamp.wrapping_sub(self.echo).cast_signed() >= 0 {
            self.echo = segment.timestamp;
        }
        if to <= self.next {
            // Nothing new: the acknowledgement was lost, or it came twice.
            self.duplicate = Some((from, to));
            self.ack = Ack::Now;
            return;
        }
        if to > self.read + self.buffer + 1 {
            // Beyond the window (a FIN takes no buffer): the answer says where it ends.
            self.ack = Ack::Now;
            return;
        }
        if segment.flags.has(Flags::FIN) {
            self.fin = Some(to - 1);
        }
        if from > self.next {
            self.hold(from, to);
            self.ack = Ack::Now;
            return;
        }
        self.next = to;
        self.unacked += u32::from(u64::from(segment.len) >= self.mss);
        let has_hole = !self.blocks.is_empty();
        if has_hole {
            self.join();
        }
        if self.is_reading {
            self.read = self.next;
        }
        self.ack = match self.delay {
            Some(delay) if !has_hole && self.unacked < 2 && self.fin.is_none() && !is_marked => match self.ack {
                Ack::None => Ack::At(now + delay),
                due => due,
            },
            _ => Ack::Now,
        };
    }

    /// Keeps what arrived early.
    fn hold(&mut self, from: u64, to: u64) {
        let (mut from, mut to) = (from, to);
        if self.blocks.iter().any(|block| block.0 <= from && to <= block.1) {
            self.duplicate = Some((from, to));
        }
        self.blocks.retain(|block| {
            let touches = block.0 <= to && from <= block.1;
            if touches {
                from = from.min(block.0);
                to = to.max(block.1);
            }
            !touches
        });
        self.blocks.insert(0, (from, to));
    }

    /// Takes what is no longer early.
    fn join(&mut self) {
        while let Some(index) = self.blocks.iter().position(|block| block.0 <= self.next) {
            let (_, to) = self.blocks.remove(index);
            self.next = self.next.max(to);
        }
    }

    /// Whether the application reads as data comes; if it begins to, the sender is told of the room.
    pub(crate) fn set_reading(&mut self, is_reading: bool) {
        self.is_reading = is_reading;
        if is_reading {
            self.read_to(self.next);
        }
    }

    /// Payload that arrived in order and was not read.
    #[inline]
    pub(crate) fn readable(&self) -> Bytes {
        let end = self.fin.map_or(self.next, |fin| self.next.min(fin));
        Bytes(end.saturating_sub(self.read))
    }

    /// The application reads so much of it.
    pub(crate) fn read(&mut self, bytes: Bytes) {
        let to = self.read + bytes.min(self.readable()).0;
        // The FIN is read with the last byte.
        self.read_to(if self.fin == Some(to) { self.next } else { to });
    }

    /// The application has read up to there; the sender is told of the room if that is worth a packet.
    fn read_to(&mut self, to: u64) {
        if self.read >= to {
            return;
        }
        self.read = to;
        // Silly windows are avoided (RFC 1122, section 4.2.3.3): there is room for two packets more than was said, or half the buffer.
        if self.read + self.buffer >= self.told + (2 * self.mss).min(self.buffer / 2) {
            self.ack = Ack::Now;
        }
    }

    /// When an acknowledgement has to go out; `now` or earlier if at once.
    #[inline]
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        match self.ack {
            Ack::None => None,
            Ack::At(at) => Some(at),
            Ack::Now => Some(Time::ZERO),
        }
    }

    /// Whether an acknowledgement is due at `now`.
    #[inline]
    pub(crate) fn is_due(&self, now: Time) -> bool {
        match self.ack {
            Ack::None => false,
            Ack::At(at) => at <= now,
            Ack::Now => true,
        }
    }

    /// What a segment that goes out says of what has arrived, which settles the acknowledgement.
    #[inline]
    pub(crate) fn acknowledge(&mut self) -> Answer {
        let marks = if self.is_marked { Flags::ECE } else { Flags::default() };
        let end = self.read + self.buffer;
        let blocks = if self.is_selective { self.blocks.len() + usize::from(self.duplicate.is_some()) } else { 0 };
        self.told = end;
        self.acked = self.next;
        self.ack = Ack::None;
        self.unacked = 0;
        #[expect(clippy::cast_possible_truncation, reason = "at most three")]
        Answer {
            ack: self.next,
            flags: Flags::ACK.with(marks),
            window: u32::try_from(end.saturating_sub(self.next)).unwrap_or(u32::MAX),
            echo: self.echo,
            sack_count: blocks.min(3) as u8,
        }
    }

    /// Writes what arrived beyond the acknowledgement into the segment that was just made of it, where that stays: what is written in small
    /// parts and copied in large ones right away waits for the writing.
    #[inline(never)]
    pub(crate) fn write_blocks(&mut self, sack: &mut [SackBlock; 3]) {
        let blocks = self.duplicate.take().into_iter().chain(self.blocks.iter().copied());
        for (slot, (from, to)) in sack.iter_mut().zip(blocks) {
            // Blocks lie within a window of the acknowledgement, and windows are below 2^31.
            let offset = from.cast_signed() - self.next.cast_signed();
            *slot = SackBlock {
                from: i32::try_from(offset).unwrap_or(i32::MIN),
                len: u32::try_from(to - from).unwrap_or(u32::MAX),
            };
        }
    }

    /// Writes the window into a segment that acknowledges nothing.
    pub(crate) fn offer(&self, segment: &mut Segment) {
        segment.window = u32::try_from(self.buffer).unwrap_or(u32::MAX);
    }

    /// Payload that the application has read.
    #[inline]
    pub(crate) fn received(&self) -> Bytes {
        let end = self.fin.map_or(self.read, |fin| self.read.min(fin));
        Bytes(end.saturating_sub(1))
    }

    /// Whether the peer's FIN and all before it has been read.
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.read > fin)
    }
}
