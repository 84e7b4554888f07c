//! The end of a transfer: paths that have nothing to send carry copies of what others may deliver
//! late.

use units::{PathId, Time};

use super::Sender;
use super::path::Path;
use super::types::{PathState, SenderEvent};
use crate::layout::{BLOCK, GRAIN};
use crate::{Extent, ExtentSet};

/// A copy must arrive earlier than the original by this fraction of what the original would still
/// take ...
const MARGIN: f64 = 0.1;
/// ... and by this many seconds.
const LEAST_MARGIN: f64 = 0.01;

impl Sender {
    /// The copy this path should send, if any: of what would arrive last of all that is in flight
    /// elsewhere.
    pub(super) fn next_copy(&mut self, now: Time, id: PathId, most: u64) -> Option<Extent> {
        if !self.config.duplicate {
            return None;
        }
        let path = self.paths.get(&id).filter(|path| path.is_usable())?;
        // One that has proven nothing may only rescue what hangs: otherwise nobody might ever send
        // it.
        let known = path.is_active() && path.rate(now) > 0.0;
        let (expected, extent, holder) = self
            .paths
            .values()
            .filter(|holder| holder.id != id && !holder.owned.is_empty())
            .filter(|holder| known || holder.state == PathState::Stalled)
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
            .filter_map(|other| {
                let offset = other.in_flight.offset_of(extent.start)? + extent.len;
                Some(other.arrival(now, offset.saturating_sub(other.delivered)))
            })
            .fold(f64::INFINITY, f64::min)
    }
}

/// The last bytes, up to `most` and within one block, that `holder` answers for and `path` does not
/// carry.
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
