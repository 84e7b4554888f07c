//! A profile with what follows from it.

use alloc::sync::Arc;

use units::{Bytes, Seed, Span};

use crate::aqm::Aqm;
use crate::counters::Tally;
use crate::fixed::is_fixed;
use crate::impair::Dice;
use crate::profile::{Limit, Profile};
use crate::wire::WORK_PER_BYTE;

/// A [`Profile`] with what every packet asks of it, worked out. Links that are alike can share one,
/// so that a simulation with thousands of them has it in the processor's cache.
#[derive(Clone, Debug)]
pub struct Prepared(Arc<Facts>);

/// The order of the fields is kept: what each packet needs is in front.
#[derive(Debug)]
#[repr(C)]
struct Facts {
    delay: Span,
    /// The wire time of a byte where the link is plain and that is whole nanoseconds; zero where
    /// not.
    nanos_per_byte: u64,
    room: Room,
    is_plain: bool,
    profile: Profile,
}

impl From<Profile> for Prepared {
    fn from(profile: Profile) -> Prepared {
        let rate = profile.rate.base.as_bits();
        // Only whether there is anything to draw is asked.
        let is_random = Dice::new(&profile, Seed(0)).is_random();
        let is_plain = is_fixed(&profile) && !is_random && matches!(profile.aqm, Aqm::DropTail);
        Prepared(Arc::new(Facts {
            delay: profile.delay,
            nanos_per_byte: if is_plain && WORK_PER_BYTE.is_multiple_of(rate) {
                WORK_PER_BYTE / rate
            } else {
                0
            },
            room: Room::new(&profile),
            is_plain,
            profile,
        }))
    }
}

impl Prepared {
    /// What the link is like.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// Whether nothing but a packet's size decides whether it is taken, and when it arrives is
    /// known as it comes: the rate never changes, and the queue is drop-tail.
    #[must_use]
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.0.is_plain
    }

    #[inline]
    pub(crate) fn room(&self) -> Room {
        self.0.room
    }

    #[inline]
    pub(crate) fn delay(&self) -> Span {
        self.0.delay
    }

    /// Whether wire times are whole nanoseconds, whatever the size.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.nanos_per_byte > 0
    }

    /// How long a packet of this size, for which there is [room](Room::size), takes on the wire, if
    /// wire times are whole nanoseconds.
    #[inline]
    pub(crate) fn whole_wire_time(&self, size: u32) -> Option<Span> {
        let nanos_per_byte = self.0.nanos_per_byte;
        (nanos_per_byte > 0).then(|| Span::from_nanos(u64::from(size) * nanos_per_byte))
    }
}

/// Packets are below 2 GiB.
const LARGEST: u32 = (1 << 31) - 1;

/// Which packets the queue takes: the profile's [`Limit`] and MTU, in little memory and without a
/// choice between kinds of limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    bytes: Bytes,
    packets: u32,
    mtu: u32,
}

impl Room {
    fn new(profile: &Profile) -> Room {
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let mtu = profile.mtu.map_or(LARGEST, |mtu| small(mtu.0).min(LARGEST));
        match profile.queue {
            Limit::Bytes(bytes) => Room { bytes, packets: u32::MAX, mtu },
            Limit::Packets(packets) => {
                Room { bytes: Bytes(u64::MAX), packets: small(packets), mtu }
            }
        }
    }

    /// Whether one more packet may wait beside those that do.
    #[inline]
    pub(crate) fn has(self, waiting: Tally, bytes: Bytes) -> bool {
        let fits = waiting.packets < u64::from(self.packets) && waiting.bytes + bytes <= self.bytes;
        fits || waiting.packets == 0
    }

    /// The size of a packet that is not too large.
    #[inline]
    pub(crate) fn size(self, bytes: Bytes) -> Option<u32> {
        u32::try_from(bytes.0).ok().filter(|size| *size <= self.mtu)
    }
}
