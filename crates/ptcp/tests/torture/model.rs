//! The reference model of one direction of a stream: simple and obviously correct.

/// One direction of a stream.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) written: u64,
    pub(crate) is_finished: bool,
    pub(crate) is_reset: bool,
    /// Whether each byte has arrived.
    arrived: Vec<bool>,
    complete: u64,
}

impl Model {
    /// A packet with this piece arrived and was accepted.
    pub(crate) fn arrive(&mut self, offset: u64, len: u16) {
        let (from, to) = (index(offset), index(offset) + usize::from(len));
        assert!(to as u64 <= self.written, "bytes arrived that were never written");
        if self.arrived.len() < to {
            self.arrived.resize(to, false);
        }
        self.arrived[from..to].fill(true);
        while self.arrived.get(index(self.complete)) == Some(&true) {
            self.complete += 1;
        }
    }

    /// Checks the number of bytes that the connection reports as readable in order.
    pub(crate) fn check(&self, received: u64) {
        if !self.is_reset {
            assert!(
                received <= self.complete,
                "{received} bytes can be read, {} arrived without a gap",
                self.complete
            );
        }
    }

    pub(crate) fn complete(&self) -> u64 {
        self.complete
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_reset || self.complete == self.written
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("small")
}
