//! TCP connections of unmodified programs as streams of a striped connection.
//!
//! The [near] side listens for programs: proxies (SOCKS5, HTTP `CONNECT`), forwarded ports, and
//! connections that the kernel intercepts. Each becomes a stream to the [far] side, which looks up
//! names, checks what the peer may reach, and dials. The other way round, the far side listens for
//! the near one. Both need a striped connection that `peer` has authenticated; how it is opened is
//! the caller's. What a peer may reach, names and connections to targets are those of `reach`.
//!
//! | subject | module |
//! |---|---|
//! | what people write: places, forwards | `place` |
//! | doors of the near side; its connection; ports at the far side | `near/serve.rs`; `near/link.rs`; `near/reverse.rs` |
//! | connections of one address among all | `near/crowds.rs` |
//! | what clients of proxies say; their places meanwhile | `preamble`; `greetings` |
//! | the service of the far side; streams of a peer; ports on its behalf | `far`; `far/session.rs`; `far/listen.rs` |
//! | what peers may do: words of the list of authorized peers | `rights` |
//! | copying both directions, ends and resets | `relay` |
//! | requests and answers on streams (format: `wire::tunnel`) | `message` |
//! | rules of nftables for interception | `intercept` |
//! | bounds | `bounds` |

#![allow(
    clippy::missing_panics_doc,
    reason = "every panic is a broken invariant, stated at the place that relies on it"
)]

pub mod bounds;
mod error;
pub mod far;
mod greetings;
pub mod intercept;
mod local;
mod message;
pub mod near;
mod place;
pub mod preamble;
mod relay;
pub mod rights;

pub use error::TunnelError;
pub use far::TunnelService;
pub use near::NearOptions;
pub use peer::striped::{Dialed, Upkeep};
pub use place::{Forward, Place};
pub use preamble::Login;
pub use reach::parse_target;
pub use rights::TunnelRights;
