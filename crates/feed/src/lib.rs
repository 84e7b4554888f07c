//! Feeds: streams of records from many sources to a collector, which has each record once and in
//! order, whatever dies between.
//!
//! A source numbers the records of each stream, keeps them until the collector says that they are
//! on its disk, and goes on where the collector's disk ends when either side was started anew.
//!
//! | subject | module |
//! |---|---|
//! | records in a stream of octets | `framing` |
//! | the side that has records: what it reads; what waits | `source`; `source/stream.rs`, `source/input.rs`, `source/tail.rs`; `source/channel.rs`, `source/backlog.rs`, `source/spool.rs` |
//! | records that programs hand over | `source/listen.rs` |
//! | a connection that carries records; which path sends next | `source/way.rs`; `source/ways.rs` |
//! | a striped connection; paths over TCP, relays too | `source/striped.rs`; `source/paths.rs` |
//! | rates and choice of paths | `source/control.rs`; `source/driven.rs` |
//! | the collector: what arrives, for the rates of sources | `reports` |
//! | the collector: the service, a connection; a stream, and what has arrived of it | `collect`, `collect/connection.rs`; `store`, `store/stream.rs`, `store/arrived.rs` |
//! | where records go: files, and what makes them last; somebody else, and positions | `store/output.rs`; `store/files.rs`, `store/names.rs`, `store/committer.rs`; `store/deliveries.rs`, `store/position.rs` |
//! | folders that one process has | `lock` |
//! | who may feed; places of streams; the memory of what waits | `rights`; `streams`; `room` |
//! | bounds | `bounds` |

#![allow(
    clippy::missing_panics_doc,
    reason = "every panic is a broken invariant, stated at the place that relies on it"
)]

pub mod bounds;
mod collect;
mod error;
pub mod framing;
mod lock;
mod reports;
mod rights;
mod room;
mod source;
mod sources;
mod store;
mod streams;

pub use collect::{CollectOptions, CollectService};
pub use error::FeedError;
pub use overlay::{Choice, Reselect};
pub use rights::may_feed;
pub use source::{
    ControlOptions, FeedOptions, Input, LEAST_SPOOL, Listen, Live, Sent, SpoolOptions, WhenFull,
    register_source, run_over_paths, run_striped,
};
pub use sources::{SourceStatus, SourcesStatus, object, sources};
pub use store::{Delivery, NotTaken, Sink, Store, StreamStatus, Taking, status};
pub use wire::feed::{Form, SourceState, StreamId, is_feed_name};
