//! What peers and strangers may take of a relay.

use std::time::Duration;

use units::{Bytes, Span};

/// The time for a data connection's destination to say its first octet.
pub const HALF_OPEN_PATIENCE: Duration = Duration::from_secs(10);
/// Data connections of one key whose destination has said nothing yet. Destinations have 64 places
/// for those that come through one relay.
pub const HALF_OPEN_EACH: usize = 16;
/// Those of all keys.
pub const HALF_OPEN_IN_ALL: usize = 512;
/// Paths of one key.
pub const PATHS_EACH: usize = 1_024;
/// Paths of all keys.
pub const PATHS_IN_ALL: usize = 8_192;
/// The control connections of one key; a further one takes the place of the oldest.
pub const CONTROLS_EACH: usize = 8;
/// Wishes of a control connection that are answered in a second, in the long run.
pub const WISHES_A_SECOND: u32 = 100;

/// The time that the addresses of an association's destination may take to be found: the control
/// connection waits for them.
pub const LOOKUP_PATIENCE: Duration = Duration::from_secs(4);

/// Threads that move bytes: as many as there are processors, and no more than this.
pub const MOVERS: usize = 16;

/// The least that a path may hold in each direction.
pub const LEAST_HELD: Bytes = Bytes::kib(64);
/// The most that a path may hold in each direction.
pub const MOST_HELD: Bytes = Bytes::mib(8);
/// A hop's round trip counts as this at least: the relay needs its time to wake up, too.
pub const LEAST_ROUND_TRIP: Span = Span::from_millis(2);

/// The time that paths have after a relay was told to stop.
pub const DRAIN: Duration = Duration::from_secs(30);
