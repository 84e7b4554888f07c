//! The configuration of an endpoint.

use alloc::vec::Vec;

use units::{Bytes, Span, Time};

/// The method of loss detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// Three duplicate acknowledgements; recovery ends with the next cumulative advance (RFC 5681).
    Reno,
    /// As Reno, and a partial acknowledgement in recovery is another loss (RFC 6582).
    NewReno,
    /// Selective acknowledgements: a packet is lost with three delivered beyond it (RFC 6675).
    Sack,
    /// Selective acknowledgements and times: RACK with tail loss probes (RFC 8985).
    Rack,
}

impl Detection {
    /// Whether selective acknowledgements are used.
    #[must_use]
    pub fn is_selective(self) -> bool {
        matches!(self, Detection::Sack | Detection::Rack)
    }
}

/// The configuration of an endpoint. Options are not negotiated, so both ends must agree.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Config {
    /// Payload of a full packet.
    pub mss: Bytes,
    /// Headers of every packet.
    pub headers: Bytes,
    /// The initial congestion window.
    pub initial_window: Bytes,
    /// The initial slow start threshold; `None`: slow start without bound.
    pub initial_threshold: Option<Bytes>,
    /// The least retransmission timeout.
    pub min_rto: Span,
    /// The receive buffer.
    pub receive_buffer: Bytes,
    /// The largest windows that the receiving application lets be offered, each from a time on, in
    /// the order of time; before the first, `receive_buffer` alone counts. Data that the sender has
    /// been offered room for is still taken.
    pub receive_windows: Vec<(Time, Bytes)>,
    /// The longest wait of an acknowledgement for a second packet; `None`: each packet is
    /// acknowledged at once.
    pub delayed_ack: Option<Span>,
    /// The method of loss detection.
    pub detection: Detection,
    /// Whether packets are ECN-capable (RFC 3168).
    pub ecn: bool,
    /// Whether the receiver counts marks for the sender (accurate ECN, RFC 9768), in place of an
    /// echo of them (RFC 3168).
    pub accurate_ecn: bool,
    /// Whether ECN-capable packets say that their congestion control is scalable: ECT(1) (RFC
    /// 9331).
    pub is_scalable: bool,
    /// Whether the sender paces packets over the round trip if the controller sets no rate.
    pub pacing: bool,
    /// Whether slow start may end by delay (`HyStart++`, RFC 9406).
    pub hystart: bool,
    /// Whether recovery uses proportional rate reduction (RFC 9937), if the controller wants it.
    pub rate_reduction: bool,
    /// Whether segments carry timestamps (RFC 7323). Without them a retransmitted packet gives no
    /// round-trip sample, and spurious reductions are not undone.
    pub timestamps: bool,
}

/// The behaviour of current systems: an initial window of ten packets (RFC 6928), RACK-TLP,
/// proportional rate reduction, acknowledgements delayed by 40 ms.
impl Default for Config {
    fn default() -> Config {
        Config {
            mss: Bytes(1_448),
            headers: Bytes(52),
            initial_window: Bytes(14_480),
            initial_threshold: None,
            min_rto: Span::from_millis(200),
            receive_buffer: Bytes::mib(64),
            receive_windows: Vec::new(),
            delayed_ack: Some(Span::from_millis(40)),
            detection: Detection::Rack,
            ecn: false,
            accurate_ecn: false,
            is_scalable: false,
            pacing: false,
            hystart: false,
            rate_reduction: true,
            timestamps: true,
        }
    }
}

impl Config {
    /// The largest window at `now`, and the time of the next larger one; `None` where there is
    /// none.
    pub(crate) fn receive_window(&self, now: Time) -> (Option<Bytes>, Option<Time>) {
        let (past, later) = self
            .receive_windows
            .split_at(self.receive_windows.partition_point(|(at, _)| *at <= now));
        let Some((_, window)) = past.last() else { return (None, None) };
        let next = later.iter().find(|(_, larger)| larger > window);
        (Some(*window), next.map(|(at, _)| *at))
    }
}
