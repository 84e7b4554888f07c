//! What sources may take of a collector, and what waits at a source.

use std::time::Duration;

use units::Bytes;

/// Streams at a time of one key.
pub const STREAMS_EACH: usize = 64;
/// Streams at a time of all keys.
pub const STREAMS_IN_ALL: usize = 512;
/// Octets of a stream that wait for the collector's disk: with a disk that syncs in 20 ms it is
/// 50 MB/s. What all streams hold is at most 512 MiB.
pub const WAITING: Bytes = Bytes::mib(1);
/// Octets of records that came before their turn, over another path, by which their room is
/// counted. A stream has at most [`wire::feed::FEED_WINDOW`] of them.
pub const EARLY_PLACE: usize = 1 << 20;
/// The places for them of one key, and of all keys: 64 MiB and 256 MiB.
pub const EARLY_EACH: usize = 64;
/// See [`EARLY_EACH`].
pub const EARLY_IN_ALL: usize = 256;
/// Feeds of one key: each is a folder.
pub const FEEDS_EACH: usize = 256;
/// Files of a feed: a further stream, or a further part of one, is refused.
pub const FILES_EACH: usize = 10_000;
/// Octets of a stream's file, behind which the next one begins, if nothing is said.
pub const FILE: Bytes = Bytes::mib(64);
/// Batches that are handed over at a time, where somebody else keeps the records.
pub const DELIVERIES: usize = 8;
/// Those of one host: commands that hang on what it sends leave room for others.
pub const DELIVERIES_EACH: usize = 4;
/// The pause before a batch that was not taken is handed over again; it doubles.
pub const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The time that deliveries have to end when the collector does.
pub const GRACE: Duration = Duration::from_secs(3);
/// How long a source may say nothing that is complete: signs of life are among it.
pub const SILENCE: Duration = Duration::from_secs(60);

/// Connections at a time to a socket that takes records of other programs. Each holds a record that
/// is not whole yet: 80 MiB in all.
pub const LOCAL_CONNECTIONS: usize = 256;

/// Octets of a stream that wait at a source until they are on the collector's disk.
pub const BACKLOG: Bytes = Bytes::mib(16);
/// Octets of records in a frame, unless one alone has more.
pub const BATCH: Bytes = Bytes::kib(64);
/// Files that a source follows at a time.
pub const FOLLOWED: usize = STREAMS_EACH;
