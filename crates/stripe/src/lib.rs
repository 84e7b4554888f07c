//! The striped connection over UDP sockets: ordered streams and datagrams between two hosts, over
//! several routes as one connection.
//!
//! An [`Endpoint`] is a thread that drives connections: it has their sockets and timers, and the
//! state machines of `ptcp` and `secure`. A [`Connection`] opens and accepts [`Stream`]s, which are
//! [`AsyncRead`](tokio::io::AsyncRead) and [`AsyncWrite`](tokio::io::AsyncWrite) for any runtime.
//! Keys and trust are the caller's, in finished configurations of rustls: both sides show a raw
//! public key (RFC 7250). What is on the wire is described in `docs/wire.md`.
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::sync::Arc;
//!
//! use secure::testing::{Key, client, server};
//! use stripe::{Endpoint, Listening, Options, Route};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! // `peer` makes such configurations from a host's identity.
//! let (near, far) = (Key::generate(), Key::generate());
//! let listening = Listening::at((Ipv4Addr::LOCALHOST, 0).into());
//! let listener = Endpoint::listen(&listening, &Arc::new(server(&far)), Options::default())?;
//! let remote = listener.local_addresses()[0];
//! tokio::spawn(async move {
//!     while let Some(connection) = listener.accept().await {
//!         // Whether the key `connection.peer_key()` is welcome is the program's decision.
//!         let mut stream = connection.accept_stream().await.unwrap();
//!         let mut text = String::new();
//!         stream.read_to_string(&mut text).await.unwrap();
//!         stream.write_all(text.to_uppercase().as_bytes()).await.unwrap();
//!         stream.shutdown().await.unwrap();
//!         connection.ended().await;
//!     }
//! });
//!
//! let endpoint = Endpoint::new()?;
//! // Two routes: over two interfaces, for example, by `Route::over`.
//! let routes = vec![Route::to(remote), Route::to(remote)];
//! let tls = Arc::new(client(&near, &far));
//! let connection = endpoint.connect(routes, &tls, Options::default()).await?;
//! let mut stream = connection.open_stream().await?;
//! stream.write_all(b"over all routes").await?;
//! stream.shutdown().await?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer).await?;
//! assert_eq!(answer, "OVER ALL ROUTES");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! | subject | module |
//! |---|---|
//! | the endpoint, its thread's beginning and end | `endpoint` |
//! | what a program calls | `connection`, `connection/stream.rs` |
//! | policies, limits, routes; a rate of several connections | `options`; `total_rate` |
//! | connections that a host keeps, of whom; their memory | `rations`, `driver/places.rs`; `memory`, `driver/holdings.rs` |
//! | counters and events of routes | `stats` |
//! | what program and driver share: commands; the bytes of a stream | `connection/inbox.rs`; `connection/cell.rs`, `store` |
//! | the thread: waiting, timers, which connection a datagram belongs to | `driver` |
//! | a handshake over the first route that answers | `driver/dialing.rs` |
//! | the side that listens | `driver/listening.rs` |
//! | one open connection; what it sends; its streams; its routes | `driver/link.rs`; `driver/sending.rs`, `driver/streams.rs`, `driver/routes.rs` |
//! | what paths are for, at both sides | `driver/classes.rs`, `driver/standings.rs` |
//! | what a route says to a relay on its way | `preamble`, `driver/preambles.rs`, `driver/leading.rs` |
//! | what the listening sockets say: to relays over which peers come, and to open ways | `driver/reached.rs` |
//! | what passes on datagrams of others at the listening sockets | `passing` |
//! | logs: what the driver notes; its text; the thread that writes it | `qlog/log.rs`; `qlog/text.rs`; `qlog/writer.rs` |
//! | what another protocol on the same thread is; its datagrams | `guest`; `driver/guests.rs` |
//! | sockets; what arrives at them; the clock, and arrival times on it | `socket`; `arrivals`; `clock` |

mod arrivals;
mod background;
mod clock;
mod connection;
mod driver;
mod endpoint;
mod error;
mod guest;
mod memory;
mod options;
mod passing;
mod preamble;
mod qlog;
mod rations;
mod socket;
mod stats;
mod store;
mod tokens;
mod total_rate;

pub use arrivals::{Arrivals, Arrived};
pub use background::{BackgroundStats, Sites};
pub use connection::inbox::Key as ConnectionKey;
pub use connection::{Connection, DROPPED, ReceiveHalf, SendHalf, Stream};
pub use endpoint::{Endpoint, Listening};
pub use error::{ConnectError, ConnectionError, DatagramError, EndpointError, StreamError};
pub use guest::{Guest, RawArrival, RawDatagram, RawPath};
pub use memory::{Memory, Share};
pub use options::{CONTROLLER, Options, PathStanding, Prototype, Route, RouteId, SCHEDULER};
pub use passing::Passing;
pub use preamble::{Lead, ListeningLead, Preamble};
pub use ptcp::{Class, SlowStreams};
pub use qlog::{Qlog, Sink};
pub use rations::Rations;
pub use secure::{HandshakeError, address_block};
pub use socket::{EcnCodepoint, MOST_OFFLOADED, Outgoing, UdpSocket, plain_socket};
pub use stats::{Carried, RouteChange, RouteEvent, RouteState, RouteStats, Stats};
pub use total_rate::TotalRate;
pub use wire::effort::Effort;
