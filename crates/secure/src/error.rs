//! Errors, by who must act.

use units::SubflowId;
use wire::WireError;

/// The caller's settings are not usable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// Early data can be replayed.
    #[error("the TLS configuration allows early data")]
    EarlyData,
    /// A ticket would let a peer return without showing its key.
    #[error("the TLS configuration sends session tickets")]
    Tickets,
    /// There is no version to speak, or there are too many.
    #[error("{0} versions, of 1 to 16, none of them 0")]
    Versions(usize),
    /// The parameters are too long.
    #[error("{0} octets of parameters, of at most 2,048")]
    Parameters(usize),
    /// TLS refuses the configuration.
    #[error("TLS refuses the configuration: {0}")]
    Tls(rustls::Error),
}

/// A handshake has failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HandshakeError {
    /// TLS refuses what the peer sent; a wrong key of the peer is among the reasons.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
    /// The peer refuses: up to 255 the code is a TLS alert, above that it is one of `docs/wire.md`.
    #[error("the peer refuses the handshake, code {0}")]
    Refused(u16),
    /// The peer has not answered, or not to the end.
    #[error("the peer has not completed the handshake in time")]
    TimedOut,
    /// The peer speaks none of our versions.
    #[error("the peer speaks none of our versions")]
    NoCommonVersion,
    /// Somebody changed the list of versions on its way, or the peer uses two at a time.
    #[error("the versions were changed on the way")]
    VersionChanged,
    /// The peer showed no key.
    #[error("the peer showed no key")]
    NoPeerKey,
    /// A sealed message of the peer is invalid.
    #[error("the peer sent an invalid message: {0}")]
    Message(WireError),
    /// The peer's TLS messages are longer than any that make sense.
    #[error("the peer's handshake is too long")]
    TooLong,
    /// Other handshakes took its place.
    #[error("too many handshakes at a time")]
    Crowded,
}

impl HandshakeError {
    /// What the peer is told; `alert` is TLS's. `None`: nothing.
    pub(crate) fn code(&self, alert: Option<u8>) -> Option<u16> {
        match self {
            HandshakeError::Tls(_) => Some(alert.map_or(80, u16::from)),
            HandshakeError::Message(_)
            | HandshakeError::VersionChanged
            | HandshakeError::TooLong => Some(256),
            HandshakeError::NoPeerKey => Some(257),
            HandshakeError::Refused(_)
            | HandshakeError::TimedOut
            | HandshakeError::NoCommonVersion
            | HandshakeError::Crowded => None,
        }
    }
}

/// A path cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Its number has had a path.
    #[error("{0} has been used before")]
    Used(SubflowId),
    /// There are too many paths.
    #[error("there are {0} paths already")]
    TooMany(usize),
}

/// A packet was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The path is not open.
    #[error("{0} is not open")]
    NoPath(SubflowId),
    /// The number, or a larger one, has been used on this path.
    #[error("packet number {0} has been used")]
    NumberUsed(u64),
    /// The number is too large for any packet.
    #[error("packet number {0} cannot be written")]
    NumberTooFar(u64),
    /// The packet is empty or longer than the cipher can take.
    #[error("a packet of {0} bytes cannot be sealed")]
    Length(usize),
    /// The key has sealed as many packets as it may, and the peer has not followed the last key
    /// update. What the peer sends may resolve this.
    #[error("the key has sealed as many packets as it may")]
    KeyExhausted,
}

/// A packet was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is no data packet of this path.
    #[error("it is no packet of the path")]
    NotOurs,
    /// The path is retired, or it would be one too many.
    #[error("the path is retired")]
    NoPath,
    /// It is forged, damaged, or sealed with keys that are gone.
    #[error("it cannot be authenticated")]
    Forged,
    /// It has been opened before, or is so old that nobody knows.
    #[error("it arrived before, or it is too old")]
    Replayed,
    /// The peer sealed it with old keys after it had used new ones. The connection ends.
    #[error("the peer went back to old keys")]
    OldKeys,
    /// The peer updated its keys before it could know that the last update was followed. The
    /// connection ends.
    #[error("the peer updated its keys too soon")]
    UpdatedTooSoon,
    /// The peer set bits that have to be zero. The connection ends.
    #[error("the peer set reserved bits")]
    Reserved,
    /// So many forged packets have arrived that the cipher is no longer safe. The connection ends.
    #[error("too many forged packets have arrived")]
    TooManyForged,
}

impl OpenError {
    /// Whether the connection has to end. Otherwise the packet is ignored.
    #[must_use]
    pub const fn is_fatal(self) -> bool {
        match self {
            OpenError::NotOurs | OpenError::NoPath | OpenError::Forged | OpenError::Replayed => {
                false
            }
            OpenError::OldKeys
            | OpenError::UpdatedTooSoon
            | OpenError::Reserved
            | OpenError::TooManyForged => true,
        }
    }
}
