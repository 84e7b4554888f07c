//! What an endpoint can do.

use units::{Bytes, Span};

/// How losses are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// Three duplicate acknowledgements; recovery ends with the next new one (RFC 5681).
    Reno,
    /// The same, and a partial acknowledgement in recovery is another loss (RFC 6582).
    NewReno,
    /// Selective acknowledgements, three packets delivered beyond a lost one (RFC 6675).
    Sack,
    /// Selective acknowledgements and times: RACK, and a probe of the tail (RFC 8985).
    Rack,
}

impl Detection {
    /// Whether selective acknowledgements are used.
    #[must_use]
    pub fn is_selective(self) -> bool {
        matches!(self, Detection::Sack | Detection::Rack)
    }
}

/// What an endpoint can do. Both ends are supposed to agree; options are not negotiated.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Config {
    /// Payload of a full packet.
    pub mss: Bytes,
    /// Headers of every packet.
    pub headers: Bytes,
    /// The congestion window to begin with.
    pub initial_window: Bytes,
    /// The slow start threshold to begin with; `None`: there is none.
    pub initial_threshold: Option<Bytes>,
    /// No retransmission timeout is shorter.
    pub min_rto: Span,
    /// How much the receiver holds for its application.
    pub receive_buffer: Bytes,
    /// How long an acknowledgement may wait for a second packet; `None`: each packet is
    /// acknowledged at once.
    pub delayed_ack: Option<Span>,
    /// How losses are found.
    pub detection: Detection,
    /// Whether packets may be marked instead of dropped (RFC 3168).
    pub ecn: bool,
    /// Whether packets are spread over the round trip where the controller does not ask for it
    /// anyway.
    pub pacing: bool,
    /// Whether slow start may end by delay (RFC 9406).
    pub hystart: bool,
    /// Whether what is in flight is reduced step by step in recovery (RFC 9937), if the controller
    /// wants it.
    pub rate_reduction: bool,
    /// Whether segments carry times (RFC 7323): without, a packet that was sent again gives no
    /// sample, and nothing is ever undone.
    pub timestamps: bool,
}

/// What current systems do: ten packets (RFC 6928), RACK-TLP, proportional rate reduction,
/// acknowledgements delayed by 40 ms.
impl Default for Config {
    fn default() -> Config {
        Config {
            mss: Bytes(1_448),
            headers: Bytes(52),
            initial_window: Bytes(14_480),
            initial_threshold: None,
            min_rto: Span::from_millis(200),
            receive_buffer: Bytes::mib(64),
            delayed_ack: Some(Span::from_millis(40)),
            detection: Detection::Rack,
            ecn: false,
            pacing: false,
            hystart: false,
            rate_reduction: true,
            timestamps: true,
        }
    }
}
