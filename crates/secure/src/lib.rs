//! Handshake, packet protection and demultiplexing of the striped connection's UDP paths.
//!
//! A [`Dialer`] and a [`Listener`] run a TLS 1.3 handshake over datagrams and yield a [`Session`]
//! on each side, which seals and opens the packets of all paths. The format is on the page
//! `docs/wire.md`. TLS, key schedule and ciphers are those of `rustls::quic`; this crate has no
//! cryptography of its own.
//!
//! All types are state machines: datagrams, times and randomness are handed in, datagrams, events
//! and deadlines are polled. Addresses are only compared. Keys and whom to trust are the caller's,
//! in finished configurations of rustls; both sides have to show a key, and there is no early data.
//!
//! | subject | module |
//! |---|---|
//! | flights as bytes with offsets, lost and reordered pieces | `handshake`, `assembly` |
//! | retry, version negotiation; stateless resets, on the side that dials | `dialer`, `reset` |
//! | the same, the three-times limit, labels, on the side that listens | `listener` |
//! | tokens | `secret` |
//! | proofs of raw public keys | `raw_keys` |
//! | numbers, labels and replays of each path | `path`, `labels`, `window` |
//! | keys, their updates and limits | `session`, `sealer`, `opener` |

mod assembly;
mod dialer;
mod error;
mod handshake;
mod labels;
mod listener;
mod opener;
mod path;
mod protect;
mod raw_keys;
mod reset;
mod sealer;
mod secret;
mod session;
mod settings;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod window;

pub use dialer::{DialEvent, Dialer};
pub use error::{HandshakeError, OpenError, PathError, SealError, SettingsError};
pub use handshake::Established;
pub use listener::{ConnectionId, ListenEvent, Listener, Route, Transmit, address_block};
pub use raw_keys::RawKeys;
pub use reset::ResetTokens;
pub use secret::Secret;
pub use session::{Opened, PacketNumber, Session};
pub use settings::{Limits, Settings};
