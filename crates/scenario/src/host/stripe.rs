//! An application that stripes one stream over several sockets, and one that reads it in order. The
//! stream is cut into records that carry their number in the stream.

use std::collections::{BTreeMap, VecDeque};

use units::Bytes;

use crate::packet::Piece;

/// The writer. It fills the send buffer of one socket until it would block, then the next one's,
/// and waits when all would block.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The size of a send buffer; acknowledged records leave it.
    buffer: Bytes,
    /// The size of a record; the last one of a write can be smaller.
    record: Bytes,
    sockets: Vec<Outgoing>,
    /// The socket to fill next.
    at: usize,
    next: u32,
}

/// The send buffer of a socket.
#[derive(Clone, Debug, Default)]
struct Outgoing {
    is_open: bool,
    /// The end of the records that were acknowledged, as an offset in the socket's stream.
    acked: u64,
    /// The end of what was written.
    written: u64,
    /// The ends and the numbers of the records in the buffer.
    kept: VecDeque<(u64, u32)>,
}

impl Outgoing {
    /// The bytes that it takes before it would block: whole records.
    fn room(&self, buffer: Bytes, record: Bytes) -> Bytes {
        if !self.is_open {
            return Bytes::ZERO;
        }
        let free = buffer - Bytes(self.written - self.acked);
        Bytes(free.0 / record.0 * record.0)
    }
}

impl Writer {
    /// A writer with `sockets` closed sockets whose send buffers hold `buffer` bytes each; `record`
    /// is the size of a record.
    #[must_use]
    pub fn new(sockets: usize, buffer: Bytes, record: Bytes) -> Writer {
        Writer { buffer, record, sockets: vec![Outgoing::default(); sockets], at: 0, next: 0 }
    }

    /// The socket is open.
    pub fn handle_open(&mut self, socket: usize) {
        self.sockets[socket].is_open = true;
    }

    /// The other end has acknowledged `bytes` of the socket in all.
    pub fn handle_acked(&mut self, socket: usize, bytes: Bytes) {
        let outgoing = &mut self.sockets[socket];
        while let Some((end, _)) = outgoing.kept.front().filter(|(end, _)| *end <= bytes.0) {
            outgoing.acked = *end;
            outgoing.kept.pop_front();
        }
    }

    /// The bytes that all sockets take before they would block.
    #[must_use]
    pub fn room(&self) -> Bytes {
        self.sockets.iter().map(|socket| socket.room(self.buffer, self.record)).sum()
    }

    /// Writes up to `bytes`, until all sockets would block; `write` is called with a socket and the
    /// size of each record. Returns how much it wrote.
    pub fn fill(&mut self, bytes: Bytes, mut write: impl FnMut(usize, Bytes)) -> Bytes {
        let mut left = bytes;
        let first = self.at;
        for socket in (first..self.sockets.len()).chain(0..first) {
            let outgoing = &mut self.sockets[socket];
            let room = outgoing.room(self.buffer, self.record);
            let mut taken = room.min(left);
            left -= taken;
            if taken < room {
                // It goes on here.
                self.at = socket;
            }
            while taken > Bytes::ZERO {
                let size = taken.min(self.record);
                taken -= size;
                outgoing.written += size.0;
                outgoing.kept.push_back((outgoing.written, self.next));
                self.next = self.next.wrapping_add(1);
                write(socket, size);
            }
            if left == Bytes::ZERO {
                break;
            }
        }
        bytes - left
    }

    /// The piece of a record that a packet carries, by its offset in the stream of its socket and
    /// its length; `None` unless the record is in the send buffer.
    #[must_use]
    pub fn piece(&self, socket: usize, offset: u64, len: u16) -> Option<Piece> {
        let Outgoing { acked, kept, .. } = &self.sockets[socket];
        let index = kept.partition_point(|(end, _)| *end <= offset);
        let (end, number) = *kept.get(index)?;
        let begin = if index == 0 { *acked } else { kept[index - 1].0 };
        let from = u16::try_from(offset.checked_sub(begin)?).ok()?;
        Some(Piece { number, from, is_last: offset + u64::from(len) == end })
    }
}

/// The reader. Data ahead of the order of the stream stays in the receive buffer of its socket.
#[derive(Clone, Debug)]
pub struct Reader {
    sockets: Vec<Incoming>,
    /// The record that is being read, and the offset in it.
    next: (u32, u16),
}

/// The receive buffer of a socket.
#[derive(Clone, Debug, Default)]
struct Incoming {
    /// The offset in the socket's stream up to which it was read.
    read: u64,
    /// The offset up to which all has arrived.
    arrived: u64,
    /// The pieces that were not read, by offset: length and place in the stream.
    pieces: BTreeMap<u64, (u16, Piece)>,
}

impl Reader {
    /// A reader of `sockets` sockets.
    #[must_use]
    pub fn new(sockets: usize) -> Reader {
        Reader { sockets: vec![Incoming::default(); sockets], next: (0, 0) }
    }

    /// A piece of a record has arrived, in order or not: its offset in the stream of its socket,
    /// and its length.
    pub fn handle_piece(&mut self, socket: usize, offset: u64, len: u16, piece: Piece) {
        let incoming = &mut self.sockets[socket];
        if offset >= incoming.read {
            incoming.pieces.insert(offset, (len, piece));
        }
    }

    /// All before this offset of the socket's stream has arrived.
    pub fn handle_arrived(&mut self, socket: usize, offset: u64) {
        self.sockets[socket].arrived = offset;
    }

    /// Reads the next piece of the stream. Returns its socket and its size, or `None` if it has not
    /// arrived.
    pub fn read(&mut self) -> Option<(usize, Bytes)> {
        let next = self.next;
        let is_next = |incoming: &Incoming| {
            incoming.pieces.first_key_value().is_some_and(|(offset, (len, piece))| {
                offset + u64::from(*len) <= incoming.arrived && (piece.number, piece.from) == next
            })
        };
        let socket = self.sockets.iter().position(is_next)?;
        let incoming = &mut self.sockets[socket];
        let (offset, (len, piece)) = incoming.pieces.pop_first()?;
        incoming.read = offset + u64::from(len);
        self.next = if piece.is_last {
            (piece.number.wrapping_add(1), 0)
        } else {
            (piece.number, piece.from + len)
        };
        Some((socket, Bytes(u64::from(len))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goodput of an application over links of these rates without delay, in the same unit.
    fn goodput(rates: &[f64]) -> f64 {
        /// In records of one byte each.
        const BUFFER: u16 = 200;
        const STEPS: u32 = 400_000;
        let mut writer = Writer::new(rates.len(), Bytes(BUFFER.into()), Bytes(1));
        let mut reader = Reader::new(rates.len());
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        let mut credit = vec![0.0; rates.len()];
        let mut sent = vec![0; rates.len()];
        let mut read = vec![0; rates.len()];
        let mut counted = 0_u32;
        (0..rates.len()).for_each(|socket| writer.handle_open(socket));
        for step in 0..STEPS {
            writer.fill(writer.room(), |_, _| {});
            for socket in 0..rates.len() {
                credit[socket] += rates[socket] / fastest;
                let is_full = sent[socket] - read[socket] >= u64::from(BUFFER);
                if credit[socket] < 1.0 || is_full {
                    // An idle link accumulates no credit.
                    credit[socket] = credit[socket].min(1.0);
                    continue;
                }
                credit[socket] -= 1.0;
                let piece = writer.piece(socket, sent[socket], 1).expect("a buffer was filled");
                reader.handle_piece(socket, sent[socket], 1, piece);
                sent[socket] += 1;
                writer.handle_acked(socket, Bytes(sent[socket]));
                reader.handle_arrived(socket, sent[socket]);
            }
            while let Some((socket, _)) = reader.read() {
                read[socket] += 1;
                counted += u32::from(step >= STEPS / 4);
            }
        }
        f64::from(counted) / f64::from(STEPS - STEPS / 4) * fastest
    }

    #[test]
    fn a_fast_socket_gets_twice_the_rate_of_the_slowest() {
        // The least rate, and at most twice that of each other socket: while the slowest drains a
        // buffer, a fast one delivers one buffer, and another that was waiting is read.
        let cases: [(&[f64], f64); 6] = [
            (&[0.5, 1.0], 1.5),
            (&[0.5, 5.0], 1.5),
            (&[2.0, 5.0], 6.0),
            (&[2.0, 5.0, 0.5], 2.5),
            (&[2.0, 5.0, 0.5, 1.0], 3.5),
            (&[2.0, 5.0, 0.5, 1.0, 10.0], 4.5),
        ];
        for (rates, wanted) in cases {
            let found = goodput(rates);
            assert!((found / wanted - 1.0).abs() < 0.02, "{rates:?}: {found} instead of {wanted}");
        }
    }

    #[test]
    fn equal_sockets_get_the_whole_capacity() {
        let found = goodput(&[3.0, 3.0, 3.0]);
        assert!((found / 9.0 - 1.0).abs() < 0.001, "{found}");
    }

    #[test]
    fn data_ahead_of_the_order_waits() {
        // Buffers of two records of ten bytes; the writes are of 38 bytes in all.
        let mut writer = Writer::new(2, Bytes(20), Bytes(10));
        let mut written = Vec::new();
        writer.handle_open(1);
        assert_eq!(
            writer.fill(Bytes(38), |socket, bytes| written.push((socket, bytes))),
            Bytes(20)
        );
        let ten = Bytes(10);
        assert_eq!(written, [(1, ten), (1, ten)], "a socket that is not open takes nothing");
        writer.handle_open(0);
        assert_eq!(
            writer.fill(Bytes(18), |socket, bytes| written.push((socket, bytes))),
            Bytes(18)
        );
        assert_eq!(written[2..], [(0, ten), (0, Bytes(8))]);
        let whole = |number| Some(Piece { number, from: 0, is_last: true });
        assert_eq!(
            [writer.piece(0, 0, 10), writer.piece(0, 10, 8), writer.piece(0, 18, 1)],
            [whole(2), whole(3), None]
        );
        let mut reader = Reader::new(2);
        reader.handle_piece(0, 0, 10, whole(2).unwrap());
        reader.handle_arrived(0, 10);
        assert_eq!(reader.read(), None);
        // Behind a gap in its socket, a record cannot be read even if it is the next of the stream.
        reader.handle_piece(1, 10, 10, whole(1).unwrap());
        assert_eq!(reader.read(), None);
        // A record in two pieces.
        let pieces = [writer.piece(1, 0, 4).unwrap(), writer.piece(1, 4, 6).unwrap()];
        assert_eq!(pieces[1], Piece { number: 0, from: 4, is_last: true });
        reader.handle_piece(1, 0, 4, pieces[0]);
        reader.handle_arrived(1, 4);
        assert_eq!([reader.read(), reader.read()], [Some((1, Bytes(4))), None]);
        reader.handle_piece(1, 4, 6, pieces[1]);
        reader.handle_arrived(1, 20);
        let rest = [(1, Bytes(6)), (1, ten), (0, ten)].map(Some);
        assert_eq!([reader.read(), reader.read(), reader.read()], rest);
        assert_eq!(reader.read(), None);
    }
}
