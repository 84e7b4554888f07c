//! How long a path has shown no queue: whether slow start may begin again.

use units::{Span, Time};

/// The round trips without a queue, or a loss, after which a small window doubles again.
const ROUND_TRIPS: u64 = 48;
/// The least time.
const LEAST: Span = Span::from_secs(1);
/// A window is small if it is less than one in so many parts of what the path can carry,
const PART: f64 = 4.0;
/// or has fewer packets.
const PACKETS: f64 = 4.0;

/// Since when no packet of a path has come through a queue, or was lost.
///
/// Growth by α takes 140 round trips from the least window to four packets, and each round trip
/// lasts as long as a host delays an acknowledgement for one packet. A path whose rate had fallen
/// for a reason that is gone, such as another one's queue or a pause of a gateway, would stay
/// unused for a minute.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quiet {
    since: Option<Time>,
}

impl Quiet {
    /// A packet came through a queue, or was lost.
    pub(super) fn note_queue(&mut self, now: Time) {
        self.since = Some(now);
    }

    /// Whether a window of so many packets, of those that the path can carry, may double again.
    pub(super) fn admits(&mut self, now: Time, rtt: Span, packets: f64, extent: f64) -> bool {
        let since = *self.since.get_or_insert(now);
        (packets < PACKETS || packets * PART < extent)
            && now >= since + LEAST.max(rtt * ROUND_TRIPS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_window_doubles_after_a_time_without_a_queue() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let admits = |quiet: &mut Quiet, millis, packets| {
            quiet.admits(at(millis), Span::from_millis(50), packets, 100.0)
        };
        let mut quiet = Quiet::default();
        assert!(!admits(&mut quiet, 1_000, 1.0), "the first packet tells nothing");
        assert!(!admits(&mut quiet, 3_399, 1.0));
        assert!(admits(&mut quiet, 3_400, 1.0));
        assert!(admits(&mut quiet, 3_400, 24.9) && !admits(&mut quiet, 3_400, 25.0));
        quiet.note_queue(at(4_000));
        assert!(!admits(&mut quiet, 6_399, 1.0) && admits(&mut quiet, 6_400, 1.0));
        let near =
            |quiet: &mut Quiet, millis| quiet.admits(at(millis), Span::from_millis(5), 3.9, 4.0);
        assert!(!near(&mut quiet, 4_999) && near(&mut quiet, 5_000), "a second at least");
        assert!(!quiet.admits(at(9_000), Span::ZERO, 4.0, 4.0), "it has what there is");
    }
}
