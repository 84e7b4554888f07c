//! How an application stripes one stream over several sockets, and how another reads it in its
//! order again: in records, each of which says its number in the stream.

use std::collections::VecDeque;

/// The end that writes. It fills the send buffer of one socket until that would block, then the
/// next one's, and waits once all would.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Records that a send buffer holds until they are acknowledged.
    buffer: usize,
    sockets: Vec<Outgoing>,
    /// The socket where it goes on.
    at: usize,
    next: u32,
}

/// What a socket was given to send.
#[derive(Clone, Debug, Default)]
struct Outgoing {
    is_open: bool,
    /// Records that are acknowledged.
    acked: u64,
    /// The numbers of those that are not.
    kept: VecDeque<u32>,
}

impl Writer {
    /// An end with so many sockets, none of them open yet, whose send buffers hold `buffer` records
    /// each.
    #[must_use]
    pub fn new(sockets: usize, buffer: usize) -> Writer {
        Writer { buffer, sockets: vec![Outgoing::default(); sockets], at: 0, next: 0 }
    }

    /// From now on the socket takes data.
    pub fn handle_open(&mut self, socket: usize) {
        self.sockets[socket].is_open = true;
    }

    /// The other end has acknowledged so many of the socket's records in all.
    pub fn handle_acked(&mut self, socket: usize, records: u64) {
        let outgoing = &mut self.sockets[socket];
        while outgoing.acked < records && outgoing.kept.pop_front().is_some() {
            outgoing.acked += 1;
        }
    }

    /// Writes until all sockets would block; `write` hears which one takes how many records.
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

    /// The number of a record by its place among those of its socket; `None` unless it is under
    /// way.
    #[must_use]
    pub fn number(&self, socket: usize, place: u64) -> Option<u32> {
        let outgoing = &self.sockets[socket];
        outgoing.kept.get(usize::try_from(place.checked_sub(outgoing.acked)?).ok()?).copied()
    }
}

/// The end that reads. What is ahead of the stream stays in the receive buffer of its socket.
#[derive(Clone, Debug)]
pub struct Reader {
    sockets: Vec<Incoming>,
    next: u32,
}

/// What came over a socket.
#[derive(Clone, Debug, Default)]
struct Incoming {
    /// Records that were read.
    read: u64,
    /// Records that arrived in order, those that were read included.
    arrived: u64,
    /// The numbers of those that were not read, as far as they are known.
    numbers: VecDeque<Option<u32>>,
}

impl Reader {
    /// An end with so many sockets.
    #[must_use]
    pub fn new(sockets: usize) -> Reader {
        Reader { sockets: vec![Incoming::default(); sockets], next: 0 }
    }

    /// A record came, in order or not: its place among those of its socket, and its number in the
    /// stream.
    pub fn handle_record(&mut self, socket: usize, place: u64, number: u32) {
        let incoming = &mut self.sockets[socket];
        let index = place.checked_sub(incoming.read).and_then(|index| usize::try_from(index).ok());
        let Some(index) = index else { return };
        if incoming.numbers.len() <= index {
            incoming.numbers.resize(index + 1, None);
        }
        incoming.numbers[index] = Some(number);
    }

    /// So many of the socket's records have arrived in order, in all.
    pub fn handle_arrived(&mut self, socket: usize, records: u64) {
        self.sockets[socket].arrived = records;
    }

    /// Reads the stream's next record; gives the socket that had it, or `None` if it is not there
    /// yet.
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

    /// Sockets over links of these rates, which carry a record at a time, without delay: what an
    /// application reads, in the rates' unit.
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
                    // An idle link saves nothing up.
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
    fn a_fast_socket_gets_twice_what_the_slowest_does() {
        // The least rate, and of each other one at most twice that: while the slowest drains a
        // buffer, a fast one delivers a buffer, and has another read that was parked.
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
    fn equal_sockets_get_all() {
        let found = goodput(&[3.0, 3.0, 3.0]);
        assert!((found / 9.0 - 1.0).abs() < 0.001, "{found}");
    }

    #[test]
    fn what_is_ahead_waits() {
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
        // Behind a hole of its own socket, a record can be the next one and still not be read.
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
