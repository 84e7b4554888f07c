//! A profile with the values that each packet needs, computed once.

use alloc::sync::Arc;

use units::{Bytes, Rate, Seed, Span};

use crate::aqm::Aqm;
use crate::counters::Tally;
use crate::impairments::Impairments;
use crate::limit::Limit;
use crate::profile::Profile;
use crate::wire::WORK_PER_BYTE;

/// A [`Profile`] and the values derived from it that each packet needs. Links that are alike share
/// one, so that a simulation with thousands of them has it in the processor's cache.
#[derive(Clone, Debug)]
pub struct SharedProfile(Arc<Derived>);

/// `repr(C)` keeps the order of the fields: the ones that each packet needs come first.
#[derive(Debug)]
#[repr(C)]
struct Derived {
    delay: Span,
    /// The wire time of a byte, if the link is plain and that time is whole nanoseconds; otherwise
    /// zero.
    nanos_per_byte: u64,
    room: Room,
    is_plain: bool,
    profile: Profile,
}

impl From<Profile> for SharedProfile {
    fn from(profile: Profile) -> SharedProfile {
        let rate = profile.rate.base.as_bits();
        let is_plain = is_plain(&profile);
        SharedProfile(Arc::new(Derived {
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

/// Whether nothing changes, is drawn, or is decided on as packets leave.
fn is_plain(profile: &Profile) -> bool {
    profile.rate.is_constant()
        && profile.rate.base > Rate::ZERO
        && profile.delays.is_empty()
        && profile.losses.is_empty()
        && profile.blackouts.is_empty()
        && profile.reorder.is_none()
        && profile.jitter.is_none()
        && matches!(profile.aqm, Aqm::DropTail)
        // The seed does not matter: only whether anything is drawn.
        && !Impairments::new(profile, Seed(0)).is_random()
}

impl SharedProfile {
    /// The profile.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// Whether the link is a constant rate, a drop-tail queue and a fixed delay, without random
    /// impairments: the fate and the arrival of a packet are known as it is offered.
    #[must_use]
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.0.is_plain
    }

    /// The room of the queue.
    #[must_use]
    #[inline]
    pub fn room(&self) -> Room {
        self.0.room
    }

    /// The propagation delay, until it changes. That of a [plain](SharedProfile::is_plain) link
    /// does not.
    #[must_use]
    #[inline]
    pub fn delay(&self) -> Span {
        self.0.delay
    }

    /// Whether the link is plain and wire times are whole nanoseconds for every size.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.0.nanos_per_byte > 0
    }

    /// The wire time of a packet of a [valid size](Room::size); `None` unless wire times are
    /// [whole](SharedProfile::is_whole).
    #[must_use]
    #[inline]
    pub fn whole_wire_time(&self, size: u32) -> Option<Span> {
        let nanos_per_byte = self.0.nanos_per_byte;
        (nanos_per_byte > 0).then(|| Span::from_nanos(u64::from(size) * nanos_per_byte))
    }
}

/// The largest packet, in bytes: packets are below 2 GiB.
const LARGEST: u32 = (1 << 31) - 1;

/// The profile's [`Limit`] and MTU, in 16 bytes and without a branch on the kind of limit.
#[derive(Clone, Copy, Debug)]
pub struct Room {
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

    /// Whether one more packet of `bytes` fits beside the backlog.
    #[must_use]
    #[inline]
    pub fn has(self, waiting: Tally, bytes: Bytes) -> bool {
        let fits = waiting.packets < u64::from(self.packets) && waiting.bytes + bytes <= self.bytes;
        fits || waiting.packets == 0
    }

    /// The size of a packet; `None` if it is above the MTU.
    #[must_use]
    #[inline]
    pub fn size(self, bytes: Bytes) -> Option<u32> {
        u32::try_from(bytes.0).ok().filter(|size| *size <= self.mtu)
    }
}
