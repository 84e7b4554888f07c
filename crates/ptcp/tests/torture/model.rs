//! What one direction of a stream has to look like: dull, and obviously right.

/// One direction of a stream.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) written: u64,
    pub(crate) is_finished: bool,
    pub(crate) is_reset: bool,
    /// Which bytes have come, one by one.
    arrived: Vec<bool>,
    complete: u64,
}

impl Model {
    /// A packet with this piece came, and was accepted.
    pub(crate) fn arrive(&mut self, offset: u64, len: u16) {
        let (from, to) = (index(offset), index(offset) + usize::from(len));
        assert!(to as u64 <= self.written, "bytes came that were never written");
        if self.arrived.len() < to {
            self.arrived.resize(to, false);
        }
        self.arrived[from..to].fill(true);
        while self.arrived.get(index(self.complete)) == Some(&true) {
            self.complete += 1;
        }
    }

    /// The connection says how much can be read in order.
    pub(crate) fn check(&self, received: u64) {
        if !self.is_reset {
            assert!(
                received <= self.complete,
                "{received} bytes can be read, {} came without a gap",
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
