//! What peers and strangers may take of a relay.

use std::time::Duration;

use units::{Bytes, Rate, Span};

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

/// Places at which one key waits: an invitation and a code for each command that waits.
pub const REGISTRATIONS_EACH: usize = 32;
/// Those of all keys.
pub const REGISTRATIONS_IN_ALL: usize = 4_096;
/// Control connections of the guests of one key.
pub const GUESTS_EACH: usize = 16;
/// Those of all guests.
pub const GUESTS_IN_ALL: usize = 128;
/// Paths of the guests of one key.
pub const GUEST_PATHS_EACH: usize = 256;
/// Those of all guests.
pub const GUEST_PATHS_IN_ALL: usize = 2_048;
/// The time that a path of a guest lasts; its hosts open another one.
pub const GUEST_TIME: Duration = Duration::from_secs(24 * 3_600);
/// What is said where nobody waits, and nobody comes as a guest.
pub(crate) const NO_GUESTS: &str = "nobody may wait at this relay, or come as a guest";
/// What the guests of one key move within [`GUEST_TIME`], both directions together.
pub const GUEST_BYTES: Bytes = Bytes(1_000_000_000_000);
/// The rate of a key while it has guests, if it has no lower one.
pub const GUEST_RATE: Rate = Rate::mbit(1_000);
/// The time of a guest with a nameplate: enough for one exchange.
pub const NAMEPLATE_TIME: Duration = Duration::from_secs(30);
/// Attempts at nameplates in a minute, of one address or network of IPv6 (/64).
pub const KNOCKS_EACH: usize = 3;
/// Those of all strangers.
pub const KNOCKS_IN_ALL: usize = 30;
/// The time that a host that waits has to come when it is called.
pub const MEET_PATIENCE: Duration = Duration::from_secs(5);
