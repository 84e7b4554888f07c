//! The end of a transfer: paths that have nothing to send carry copies of extents that others may
//! deliver late.

use units::{Bytes, PathId, Span, Time};

use super::Sender;
use super::path::Path;
use super::types::{PathState, SenderEvent};
use crate::layout::{BLOCK, GRAIN};
use crate::{Extent, ExtentSet};

/// A copy must arrive earlier than the original by this fraction of the original's remaining time
/// ...
const MARGIN: f64 = 0.1;
/// ... and by this many seconds.
const LEAST_MARGIN: f64 = 0.01;
/// A path has no more copies outstanding than it delivers in two round trips and this time.
const COVER: Span = Span::from_millis(50);

impl Sender {
    /// The copy that this path should send, if any: of the extent in flight elsewhere that would
    /// arrive last.
    pub(super) fn next_copy(&mut self, now: Time, id: PathId, most: u64) -> Option<Extent> {
        if !self.config.duplicate {
            return None;
        }
        let path = self.paths.get(&id).filter(|path| path.is_usable())?;
        if path.answers.is_held() {
            return None;
        }
        // Copies follow the receiver's answers: it may be the receiver that is late.
        let covered = path.rate(now) * (path.rtt() * 2 + COVER).as_secs_f64();
        if path.outstanding() > 0 && Bytes(path.outstanding() + most).as_f64() > covered {
            return None;
        }
        // A path without a known rate may copy extents of stalled paths only; it may be the only
        // path left for them.
        // It is not the end while a stream grows: then, too, only stalled paths need help.
        let known = path.is_active() && path.rate(now) > 0.0 && !self.layout.is_growing();
        let (expected, extent, holder) = self
            .paths
            .values()
            .filter(|holder| holder.id != id && !holder.owned.is_empty())
            .filter(|holder| {
                holder.state == PathState::Stalled || known && !holder.answers.is_held()
            })
            .filter_map(|holder| {
                let extent = last_uncopied(holder, path, most)?;
                Some((self.expected(now, id, extent), extent, holder.id))
            })
            .max_by(|a, b| a.0.total_cmp(&b.0))?;
        let here = path.arrival(now, path.outstanding() + extent.len);
        if expected.is_finite() && here + (expected * MARGIN).max(LEAST_MARGIN) >= expected {
            return None;
        }
        self.events.push_back(SenderEvent::Duplicated { extent, holder, by: id });
        self.duplicates += extent.len;
        let path = self.paths.get_mut(&id)?;
        path.copies += extent.len;
        path.handle_sent(now, extent);
        Some(extent)
    }

    /// Seconds until an extent arrives by the fastest of the other paths that carry it.
    fn expected(&self, now: Time, id: PathId, extent: Extent) -> f64 {
        self.paths
            .values()
            .filter(|other| other.id != id && other.state != PathState::Stalled && other.proven)
            .filter_map(|other| Some(other.arrival(now, other.ahead(extent)?)))
            .fold(f64::INFINITY, f64::min)
    }
}

/// The last bytes, up to `most` and within one block, that `holder` owns and `path` does not carry.
fn last_uncopied(holder: &Path, path: &Path, most: u64) -> Option<Extent> {
    holder.in_flight.iter_back().find_map(|(_, sent)| {
        let carried: ExtentSet = path.in_flight.within(sent);
        let gap =
            holder.owned.within(sent).filter_map(|owned| carried.gaps(owned).last()).last()?;
        let block = (gap.end() - 1) / BLOCK * BLOCK;
        let start = gap.end().saturating_sub(most).next_multiple_of(GRAIN);
        Some(Extent::between(start.max(block).max(gap.start), gap.end()))
    })
}
