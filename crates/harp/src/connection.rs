//! A connection between hosts on both sides: what each gateway knows of both directions, and when
//! it forgets it.

use units::{Span, Time};
use wire::tcp::{Flags, Meta};

use crate::entry::Sending;
use crate::exit::Receiving;
use crate::pieces::PieceCount;
use crate::{Carried, Config, Scale};

/// A connection without segments for this long is forgotten.
const IDLE: Span = Span::from_secs(300);
/// A connection of which one host has ended is forgotten after this.
const HALF_ENDED: Span = Span::from_secs(60);
/// A connection of which one host has said nothing yet is forgotten after this.
const HALF_OPEN: Span = Span::from_secs(30);
/// A connection that ended is forgotten after this: late segments.
const LINGER: Span = Span::from_secs(10);

/// Both directions of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Halves<T> {
    pub(crate) sending: Sending<T>,
    pub(crate) receiving: Receiving<T>,
    /// The shifts of both hosts' windows, the host's on this side first.
    pub(crate) scales: [Scale; 2],
    /// The hosts of which a segment was seen.
    pub(crate) heard: [bool; 2],
    /// The hosts that have sent a FIN; both is the end.
    pub(crate) ended: [bool; 2],
    pub(crate) seen_at: Time,
}

impl<T: Carried> Halves<T> {
    pub(crate) fn new(now: Time, config: &Config, all: PieceCount) -> Halves<T> {
        Halves {
            sending: Sending::new(all),
            receiving: Receiving::new(config.reorder, config.paths),
            scales: [Scale::Unseen; 2],
            heard: [false; 2],
            ended: [false; 2],
            seen_at: now,
        }
    }

    /// The shift of the windows of the host on the other side; `None` if it is unknown. Scaling is
    /// on only if both SYNs had the option (RFC 7323, section 2.2).
    pub(crate) fn far_scale(&self) -> Option<u8> {
        match self.scales {
            [Scale::Unseen, _] | [_, Scale::Unseen] => None,
            [Scale::Shift(_), Scale::Shift(far)] => Some(far.min(14)),
            _ => Some(0),
        }
    }

    pub(crate) fn note(&mut self, now: Time, side: usize, meta: &Meta) {
        self.seen_at = now;
        self.heard[side] = true;
        if meta.flags.has(Flags::SYN) {
            self.scales[side] = meta.scale.map_or(Scale::Absent, Scale::Shift);
            self.ended[side] = false;
        }
        if meta.flags.has(Flags::FIN) {
            self.ended[side] = true;
        }
        if meta.flags.has(Flags::RST) {
            self.ended = [true; 2];
        }
    }

    /// When a segment was seen last, or one that had been held left.
    pub(crate) fn acted_at(&self) -> Time {
        self.seen_at.max(self.sending.left_at())
    }

    pub(crate) fn expires(&self) -> Time {
        self.seen_at
            + match self.ended {
                [true, true] => LINGER,
                [false, false] if self.heard != [true; 2] => HALF_OPEN,
                [false, false] => IDLE,
                _ => HALF_ENDED,
            }
    }
}
