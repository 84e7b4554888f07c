//! The reference model of one direction of a stream: simple and obviously correct.

/// What an end has sent of a stream.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) written: u64,
    pub(crate) is_finished: bool,
    pub(crate) is_reset: bool,
    /// The connection says that all of it has arrived.
    pub(crate) is_delivered: bool,
}

impl Outgoing {
    /// The connection says that all of it has arrived.
    pub(crate) fn deliver(&mut self) {
        assert!(!self.is_delivered, "a stream is delivered once");
        self.is_delivered = true;
    }
}

/// What an end has received of a stream.
#[derive(Default)]
pub(crate) struct Incoming {
    /// Whether each byte has arrived.
    arrived: Vec<bool>,
    complete: u64,
    /// Where it ends, once that was said.
    end: Option<u64>,
}

impl Incoming {
    /// A packet with this piece arrived and was accepted.
    pub(crate) fn arrive(&mut self, offset: u64, len: u16) {
        let (from, to) = (index(offset), index(offset) + usize::from(len));
        if self.arrived.len() < to {
            self.arrived.resize(to, false);
        }
        self.arrived[from..to].fill(true);
        while self.arrived.get(index(self.complete)) == Some(&true) {
            self.complete += 1;
        }
    }

    /// The connection says that all of it has arrived.
    pub(crate) fn end(&mut self, end: u64) {
        assert_eq!(self.end, None, "a stream ends once");
        assert_eq!(self.complete, end, "a stream ends behind its last byte");
        self.end = Some(end);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// How many bytes have come without a gap.
    pub(crate) fn complete(&self) -> u64 {
        self.complete
    }

    /// The stream as its sender has it, and as its receiver has it.
    pub(crate) fn check(&self, outgoing: &Outgoing) {
        assert!(
            self.arrived.len() as u64 <= outgoing.written,
            "bytes arrived that were never written"
        );
        assert!(
            self.end.is_none_or(|end| outgoing.is_finished && end == outgoing.written),
            "a stream ended at {:?} of {}",
            self.end,
            outgoing.written
        );
        assert!(
            !outgoing.is_delivered || outgoing.is_finished && self.has_ended(),
            "a stream was said to have arrived: {} of {} did",
            self.complete,
            outgoing.written
        );
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("small")
}
