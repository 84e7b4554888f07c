//! What sources may take of a collector, and what waits at a source.

use std::time::Duration;

use units::Bytes;

/// Streams at a time of one key.
pub const STREAMS_EACH: usize = 64;
/// Streams at a time of all keys, where the limit of descriptors leaves room for as many: each has
/// a file open.
pub const STREAMS_IN_ALL: usize = 2_048;
/// Octets of a stream that wait for the collector's disk, at most: with a disk that syncs in 20 ms
/// it is 50 MB/s.
pub const WAITING: Bytes = Bytes::mib(1);
/// Of these, what each stream has room for in any case: a frame of a source, unless one long record
/// is in it. It is 128 MiB of all streams.
pub const OWN: Bytes = BATCH;
/// The memory of all hosts for what waits beyond that, and for frames that have come in part. A
/// host has at most as much as is left then.
pub const WAITING_IN_ALL: Bytes = Bytes::mib(32);
/// The memory of all hosts for records that came before their turn, over another path, until they
/// are written, shared likewise: one alone has the half. A stream has at most
/// [`wire::feed::FEED_WINDOW`] of them.
pub const EARLY_IN_ALL: Bytes = Bytes::mib(96);
/// What a frame that came before its turn counts beside its octets.
pub const EARLY_FRAME: usize = 128;
/// Octets that are read of a connection at a time.
pub const READ: usize = 64 << 10;
/// A source is not read while this much waits for it to read.
pub const MOST_BACKLOG: usize = 32 << 10;
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
