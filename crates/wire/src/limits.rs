//! The bounds of frames.

use crate::manifest::MAX_PATH;

/// The most data that one frame carries: one block.
pub const MAX_PAYLOAD: usize = 256 * 1024;
/// The longest text in an abort, in bytes; a longer one loses its middle.
pub const MAX_TEXT: usize = 1024;
/// The most ranges in one frame with ranges.
pub const MAX_RANGES: usize = 4096;
/// The most addresses to which a host is asked to open ways.
pub const MOST_PUNCHED: usize = 32;
/// Octets of the secret of the tags of the datagrams that do.
pub const PUNCH_SECRET: usize = 32;
/// The most paths of a connection of which it is said what they are for.
pub const MOST_STANDINGS: usize = 256;
/// The most addresses in a welcome.
pub const MAX_ADDRESSES: usize = 64;
/// The longest wanted path: a path, and a slash at its end.
pub const MAX_NAME: usize = MAX_PATH + 1;
/// The longest reason why an entry was left out.
pub const MAX_REASON: usize = 256;
/// The longest pattern.
pub const MAX_FILTER: usize = 1024;
/// The most hashes in one frame.
pub const MAX_HASHES: usize = 4096;
/// The longest name of a feed.
pub const MAX_FEED: usize = 64;
/// The longest label of a stream of a feed.
pub const MAX_LABEL: usize = 120;
/// Paths of a source in a report of its collector.
pub const MOST_FEED_PATHS: usize = 256;
/// Relays in a report of a collector.
pub const MOST_FEED_RELAYS: usize = 256;
/// The longest record of a feed.
pub const MAX_RECORD: usize = MAX_PAYLOAD;
/// The most octets of records in one frame, the length before each included.
pub const MAX_RECORDS_BODY: usize = MAX_RECORD + 4;
/// Octets of a stream of a feed that are sent before the collector has said that what was sent
/// before them has arrived, where several connections carry it.
pub const FEED_WINDOW: usize = 8 << 20;
/// Octets of a relay's ticket.
pub const TICKET: usize = 16;
/// The most tickets of one wish.
pub const MOST_TICKETS: usize = 8;
/// The most pairs of labels in one frame.
pub const MOST_LABELS: usize = 64;
/// Octets of the secret of an association.
pub const SECRET: usize = 32;
/// The longest target of a wish for tickets: its form, the length and the name, and the port.
pub(crate) const MAX_WISH_TARGET: usize = 1 + 1 + 253 + 2;
/// The longest reason of a relay.
pub(crate) const MAX_RELAY_REASON: usize = 256;
/// Octets of an invitation to a host that waits at a relay, and of what is registered of it.
pub const INVITATION: usize = 32;
/// The longest form of a place at a relay.
pub(crate) const MAX_PLACE: usize = 1 + INVITATION;
/// Octets of a message of the exchange with a code.
pub const PAKE: usize = 33;
/// Octets of the proof that a side of that exchange has its key.
pub const PROOF: usize = 32;
/// The most networks that a gateway announces.
pub const MAX_NETWORKS: usize = 256;
/// The longest name of a service.
pub const MAX_SERVICE: usize = 32;
/// The longest request of a service in a hello.
pub const MAX_REQUEST: usize = 256;
