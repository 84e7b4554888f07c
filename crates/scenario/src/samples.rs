//! Samples of senders, beside the events of a run.

use netsim::Trace;
use units::{Bytes, Span, Time};

use crate::packet::Packet;

/// A [`Trace`] that also receives the samples from which windows and RTTs are measured, and the
/// senders' counters at the begin and the end of each window of time.
pub trait Watch: Trace<Packet> {
    /// Whether [`Watch::sample`] is called at all.
    const WANTS_SAMPLES: bool = true;

    /// The state of the sender of a flow, by its index in the scenario.
    fn sample(&mut self, at: Time, flow: usize, sample: &SenderSample);
}

/// The state of the sender of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderSample {
    /// The sum of the congestion windows of all subflows; `None` unless the flow lives.
    pub window: Option<Bytes>,
    /// The largest smoothed RTT of the subflows; `None` before the first, or unless the flow lives.
    pub rtt: Option<Span>,
    /// Packets sent again so far.
    pub retransmitted: u64,
    /// Retransmission timeouts so far.
    pub timeouts: u64,
}
