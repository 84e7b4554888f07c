//! An application that stripes one stream over several sockets, and one that reads it in order. The
//! stream is cut into records that carry their number in the stream.

use std::collections::VecDeque;

/// The writer. It fills the send buffer of one socket until it would block, then the next one's,
/// and waits when all would block.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The size of a send buffer in records; acknowledged records leave it.
    buffer: usize,
    sockets: Vec<Outgoing>,
    /// The socket to fill next.
    at: usize,
    next: u32,
}

/// The send buffer of a socket.
#[derive(Clone, Debug, Default)]
struct Outgoing {
    is_open: bool,
    /// The number of acknowledged records.
    acked: u64,
    /// The numbers of the records in the buffer.
    kept: VecDeque<u32>,
}

impl Writer {
    /// A writer with `sockets` closed sockets whose send buffers hold `buffer` records each.
    #[must_use]
    pub fn new(sockets: usize, buffer: usize) -> Writer {
        Writer { buffer, sockets: vec![Outgoing::default(); sockets], at: 0, next: 0 }
    }

    /// The socket is open.
    pub fn handle_open(&mut self, socket: usize) {
        self.sockets[socket].is_open = true;
    }

    /// The other end has acknowledged `records` of the socket in all.
    pub fn handle_acked(&mut self, socket: usize, records: u64) {
        let outgoing = &mut self.sockets[socket];
        while outgoing.acked < records && outgoing.kept.pop_front().is_some() {
            outgoing.acked += 1;
        }
    }

    /// Writes until all sockets would block; `write` is called with a socket and a number of
    /// records.
    pub fn fill(&mut self, mut write: impl FnMut(usize, u64)) {
        for _ in 0..self.sockets.len() {
            let outgoing = &mut self.sockets[self.at];
            let room =
                if outgoing.is_open { self.buffer.saturating_sub(outgoing.kept.len()) } else { 0 };
            for _ in 0..room {
                outgoing.kept.push_back(self.next);
                self.next = self.next.wrapping_add(1);
            }
            if room > 0 {
                write(self.at, room as u64);
            }
            self.at = (self.at + 1) % self.sockets.len();
        }
    }

    /// The number in the stream of the record with this index in its socket; `None` unless it is in
    /// the send buffer.
    #[must_use]
    pub fn number(&self, socket: usize, index: u64) -> Option<u32> {
        let outgoing = &self.sockets[socket];
        outgoing.kept.get(usize::try_from(index.checked_sub(outgoing.acked)?).ok()?).copied()
    }
}

/// The reader. Data ahead of the order of the stream stays in the receive buffer of its socket.
#[derive(Clone, Debug)]
pub struct Reader {
    sockets: Vec<Incoming>,
    next: u32,
}

/// The receive buffer of a socket.
#[derive(Clone, Debug, Default)]
struct Incoming {
    /// The number of records that were read.
    read: u64,
    /// The number of records that arrived in order, those that were read included.
    arrived: u64,
    /// The numbers of the records that were not read; `None` for gaps.
    numbers: VecDeque<Option<u32>>,
}

impl Reader {
    /// A reader of `sockets` sockets.
    #[must_use]
    pub fn new(sockets: usize) -> Reader {
        Reader { sockets: vec![Incoming::default(); sockets], next: 0 }
    }

    /// A record has arrived, in order or not: its index in its socket, and its number in the
    /// stream.
    pub fn handle_record(&mut self, socket: usize, index: u64, number: u32) {
        let incoming = &mut self.sockets[socket];
        let index = index.checked_sub(incoming.read).and_then(|index| usize::try_from(index).ok());
        let Some(index) = index else { return };
        if incoming.numbers.len() <= index {
            incoming.numbers.resize(index + 1, None);
        }
        incoming.numbers[index] = Some(number);
    }

    /// `records` of the socket have arrived in order, in all.
    pub fn handle_arrived(&mut self, socket: usize, records: u64) {
        self.sockets[socket].arrived = records;
    }

    /// Reads the next record of the stream. Returns its socket, or `None` if it has not arrived.
    pub fn read(&mut self) -> Option<usize> {
        let has_it = |incoming: &Incoming| {
            incoming.read < incoming.arrived && incoming.numbers.front() == Some(&Some(self.next))
        };
        let socket = self.sockets.iter().position(has_it)?;
        let incoming = &mut self.sockets[socket];
        incoming.numbers.pop_front();
        incoming.read += 1;
        self.next = self.next.wrapping_add(1);
        Some(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goodput of an application over links of these rates without delay, in the same unit.
    fn goodput(rates: &[f64]) -> f64 {
        const BUFFER: u16 = 200;
        const STEPS: u32 = 400_000;
        let mut writer = Writer::new(rates.len(), BUFFER.into());
        let mut reader = Reader::new(rates.len());
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        let mut credit = vec![0.0; rates.len()];
        let mut sent = vec![0; rates.len()];
        let mut read = vec![0; rates.len()];
        let mut counted = 0_u32;
        (0..rates.len()).for_each(|socket| writer.handle_open(socket));
        for step in 0..STEPS {
            writer.fill(|_, _| {});
            for socket in 0..rates.len() {
                credit[socket] += rates[socket] / fastest;
                let is_full = sent[socket] - read[socket] >= u64::from(BUFFER);
                if credit[socket] < 1.0 || is_full {
                    // An idle link accumulates no credit.
                    credit[socket] = credit[socket].min(1.0);
                    continue;
                }
                credit[socket] -= 1.0;
                let number = writer.number(socket, sent[socket]).expect("a buffer was filled");
                reader.handle_record(socket, sent[socket], number);
                sent[socket] += 1;
                writer.handle_acked(socket, sent[socket]);
                reader.handle_arrived(socket, sent[socket]);
            }
            while let Some(socket) = reader.read() {
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
        let mut writer = Writer::new(2, 2);
        let mut written = Vec::new();
        writer.handle_open(1);
        writer.fill(|socket, records| written.push((socket, records)));
        assert_eq!(written, [(1, 2)], "a socket that is not open takes nothing");
        writer.handle_open(0);
        writer.fill(|socket, records| written.push((socket, records)));
        assert_eq!(written[1..], [(0, 2)]);
        assert_eq!(
            [writer.number(0, 0), writer.number(0, 1), writer.number(0, 2)],
            [Some(2), Some(3), None]
        );
        let mut reader = Reader::new(2);
        reader.handle_record(0, 0, 2);
        reader.handle_arrived(0, 1);
        assert_eq!(reader.read(), None);
        // Behind a gap in its socket, a record cannot be read even if it is the next of the stream.
        reader.handle_record(1, 1, 1);
        assert_eq!(reader.read(), None);
        reader.handle_record(1, 0, 0);
        reader.handle_arrived(1, 2);
        assert_eq!(
            [reader.read(), reader.read(), reader.read(), reader.read()],
            [Some(1), Some(1), Some(0), None]
        );
    }
}
