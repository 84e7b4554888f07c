//! Harp's controller: a window for each path, multiplicative increase and decrease, out of the way
//! of everybody else (Kokku et al., "A multipath background network architecture", section III-A).
//!
//! A window grows by α of what is acknowledged. Enough late packets take β of it, weighted with the
//! windows of all paths: `w ← w − β (ξ w + (1 − ξ) W)`. With ξ = 1 each path is for itself, with
//! ξ = 0 the connection moves to its best paths (Kelly and Voice), and `ξ = w / M` does the first
//! where the connection is alone and the second where it is not. In the paper's profile a loss
//! takes half of W, which chokes one of two equal paths; in the modern one it takes half of
//! `ξ w + (1 − ξ) W`. A window that falls to its floor is choked: only probes go over that path
//! until one is in time.
//!
//! The paper prints `w + α` for each acknowledgement, with windows in bytes; its text says
//! multiplicative and its analysis uses growth by 1 + α in a round trip, which is done here.
//!
//! Two senders use it: the gateway, whose other end judges delays ([`Harp::handle_late`]), and a
//! striped connection, as a [`Controller`](super::Controller).

mod drain;
mod extent;
mod lateness;
mod options;
mod quiet;
mod standing;
mod striped;

use alloc::vec::Vec;

use units::{Bytes, Rate, Span, SubflowId, Time};

use super::forward_delay::ForwardDelay;
use super::{MAX_WINDOW, drain_times};
use drain::HarpDrain;
use extent::Extent;
pub use lateness::{Lateness, LatenessOptions};
pub use options::{HarpCoupling, HarpOptions};
use quiet::Quiet;
use standing::BackOff;
pub use standing::HarpStanding;

/// A decrease follows another one at once within so many round trips.
const FOLLOWS: u64 = 3;
/// The first decrease takes at least this part of β.
const LEAST_FIRST: f64 = 4.0;
/// The packets of a queue that a background transfer may have made itself.
const OWN_PACKETS: f64 = 4.0;
/// A drain that could not begin for so long is left out: the others' are over.
const LATEST_DRAIN: Span = Span::from_millis(50);

/// Bytes of a path arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// How many.
    pub bytes: Bytes,
    /// The smoothed round-trip time of the path, and the smallest.
    pub smoothed_rtt: Span,
    /// The smallest round-trip time of the path.
    pub min_rtt: Span,
    /// The rate at which the path delivers, if it is known and the application did not bound it.
    pub rate: Option<Rate>,
    /// Whether windows may grow: at least half of them is in flight. Otherwise a host that sends
    /// less than it may would let them run away.
    pub may_grow: bool,
}

/// The windows of all paths of a connection, or of a site.
#[derive(Clone, Debug)]
pub struct Harp {
    options: HarpOptions,
    paths: Vec<HarpPath>,
    /// The next drain; `None` until something was delivered.
    drain_at: Option<Time>,
    /// Paths whose window a call changed, for the sender.
    changed: Vec<SubflowId>,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
struct HarpPath {
    id: SubflowId,
    mss: f64,
    window: f64,
    extent: Extent,
    /// Of late packets since the last decrease.
    late: LatePackets,
    decreased: Option<Time>,
    /// The queue that the latest packet came through, for a sender that sees it.
    queue: Option<Span>,
    /// From its begin until the window is whole again.
    drain: Option<HarpDrain>,
    smoothed_rtt: Span,
    in_slow_start: bool,
    quiet: Quiet,
    is_choked: bool,
    /// Whether the sender leaves it out: it carries nothing, and its window is no part of W.
    is_left_out: bool,
    /// The delays, for a sender that sees them itself.
    lateness: Lateness,
    /// The clock of its delays, where the sender sees them itself.
    delay: ForwardDelay,
    /// When to probe, for a sender that asks; valid while choked. It stays until the probe leaves.
    probe_at: Time,
    /// Whether the sender was told that the probe may leave.
    is_probe_due: bool,
    /// How often its window fell, and how often it was choked.
    falls: PathFalls,
    back_off: BackOff,
}

/// The late packets since the last decrease.
#[derive(Clone, Copy, Debug, Default)]
struct LatePackets {
    weight: f64,
    /// The sum of the queues that are known, and how many are.
    queues: Span,
    count: u32,
}

impl LatePackets {
    fn note(&mut self, weight: f64, queue: Option<Span>) {
        self.weight += weight;
        if let Some(queue) = queue {
            self.queues += queue;
            self.count = self.count.saturating_add(1);
        }
    }

    /// The mean of the queues that are known; zero if none is.
    fn queue(&self) -> Span {
        self.queues / u64::from(self.count.max(1))
    }
}

/// How often a path stepped back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFalls {
    /// Decreases of its window.
    pub decreases: u64,
    /// Times that it was choked.
    pub chokes: u64,
}

/// A path that nothing is sent over at present, with what is known of it.
#[derive(Clone, Debug)]
pub struct SuspendedPath(HarpPath);

impl Harp {
    /// The least time between two probes of a choked path.
    pub const LEAST_PROBE_PERIOD: Span = Span::from_millis(100);

    /// A controller without paths. Parameters outside their ranges are clamped.
    #[must_use]
    pub fn new(options: HarpOptions) -> Harp {
        let share = |value: f64, usual: f64| {
            if value.is_finite() { value.clamp(0.0, 1.0) } else { usual }
        };
        let options = HarpOptions {
            alpha: share(options.alpha, 0.03),
            beta: share(options.beta, 0.125),
            needed: options.needed.max(0.0),
            floor: if options.floor.is_finite() { options.floor.clamp(0.01, 1.0) } else { 1.0 },
            ..options
        };
        Harp { options, paths: Vec::new(), drain_at: None, changed: Vec::new() }
    }

    /// Its parameters.
    #[must_use]
    pub fn options(&self) -> &HarpOptions {
        &self.options
    }

    /// A path joins, with a window of one packet.
    pub fn add(&mut self, id: SubflowId, mss: Bytes) {
        let mss = mss.as_f64().clamp(1.0, MAX_WINDOW.as_f64());
        self.paths.push(HarpPath {
            id,
            mss,
            window: mss,
            extent: Extent::new(self.options.memory, mss),
            late: LatePackets::default(),
            decreased: None,
            queue: None,
            drain: None,
            smoothed_rtt: Span::ZERO,
            in_slow_start: self.options.slow_start,
            quiet: Quiet::default(),
            is_choked: false,
            is_left_out: false,
            lateness: Lateness::new(self.options.lateness),
            delay: ForwardDelay::default(),
            probe_at: Time::ZERO,
            is_probe_due: false,
            falls: PathFalls::default(),
            back_off: BackOff::default(),
        });
    }

    /// A path begins anew, with a window of one packet, as if it had just joined; what it can carry
    /// is remembered.
    pub fn begin_anew(&mut self, id: SubflowId) {
        let HarpOptions { slow_start, floor, .. } = self.options;
        if let Some(path) = self.path_mut(id) {
            path.in_slow_start = slow_start;
            path.late = LatePackets::default();
            path.set(path.mss, floor);
        }
    }

    /// Whether the sender leaves a path out, whose window stays what it was meanwhile.
    pub fn set_left_out(&mut self, id: SubflowId, is_left_out: bool) {
        if let Some(path) = self.path_mut(id) {
            path.is_left_out = is_left_out;
        }
    }

    /// A path leaves.
    pub fn remove(&mut self, id: SubflowId) {
        self.paths.retain(|path| path.id != id);
    }

    /// A path leaves that may come back; `None` for one that is unknown.
    pub fn suspend(&mut self, id: SubflowId) -> Option<SuspendedPath> {
        let at = self.paths.iter().position(|path| path.id == id)?;
        Some(SuspendedPath(self.paths.remove(at)))
    }

    /// A path comes back with the window and the delays that it had.
    pub fn resume(&mut self, suspended: SuspendedPath) {
        let SuspendedPath(mut path) = suspended;
        path.drain = None;
        path.back_off.handle_pause();
        self.paths.push(path);
    }

    /// The window of a path in bytes, or what a drain leaves of it; zero of one that is choked or
    /// unknown.
    #[must_use]
    pub fn window(&self, id: SubflowId) -> f64 {
        self.path(id).map_or(0.0, HarpPath::allowed)
    }

    /// W: the sum of the windows of the paths that are neither choked nor left out, in bytes.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.paths.iter().filter(|path| !path.is_left_out).map(HarpPath::open_window).sum()
    }

    /// Whether nothing but probes may go over a path.
    #[must_use]
    pub fn is_choked(&self, id: SubflowId) -> bool {
        self.path(id).is_some_and(|path| path.is_choked)
    }

    /// Bytes of a path arrived: its window grows, unless it was decreased in the last round trip.
    pub fn handle_delivered(&mut self, now: Time, id: SubflowId, delivered: &Delivered) {
        let options = self.options;
        if let Some(interval) = options.drain {
            self.drain_at = self.drain_at.or_else(|| drain_times::next(now, interval));
        }
        let Some(path) = self.path_mut(id) else { return };
        path.smoothed_rtt = delivered.smoothed_rtt;
        path.note_back_off(now);
        if options.extent_by_rate
            && let Some(rate) = delivered.rate
        {
            let bytes = rate.as_f64() / 8.0 * delivered.min_rtt.as_secs_f64();
            path.extent.handle_sample(now, bytes);
        }
        if let Some(drain) = &mut path.drain {
            if drain.handle_delivered(now, delivered.bytes, path.window) {
                path.drain = None;
            }
            return;
        }
        if !delivered.may_grow || path.is_choked || path.is_within_round_trip(now) {
            return;
        }
        if options.slow_start && !path.in_slow_start {
            let extent = path.extent.largest(now) / path.mss;
            let packets = path.window / path.mss;
            path.in_slow_start = path.quiet.admits(now, path.smoothed_rtt, packets, extent);
        }
        let share = if path.in_slow_start { 1.0 } else { options.growth(path.window / path.mss) };
        path.set(path.window + share * delivered.bytes.as_f64(), options.floor);
        if !options.extent_by_rate {
            path.extent.handle_sample(now, path.window);
        }
    }

    /// A packet of a path came through a queue: slow start is over.
    pub fn handle_queue(&mut self, now: Time, id: SubflowId) {
        if let Some(path) = self.path_mut(id) {
            path.end_slow_start(now);
        }
    }

    /// A packet of a path came through a queue of this length.
    pub fn note_queue(&mut self, id: SubflowId, length: Span) {
        if let Some(path) = self.path_mut(id) {
            path.queue = Some(length);
        }
    }

    /// ξ of a path: its window as a part of the largest one that it had, 0 to 1. The smaller it is,
    /// the more of a decrease is taken from all windows together. Zero for a path that is not
    /// there.
    #[must_use]
    pub fn xi(&self, id: SubflowId) -> f64 {
        self.path(id).map_or(0.0, |path| (self.window(id) / path.extent.known()).min(1.0))
    }

    /// Whether the window of a path doubles in a round trip: no packet has come through a queue.
    #[must_use]
    pub fn is_in_slow_start(&self, id: SubflowId) -> bool {
        self.path(id).is_some_and(|path| path.in_slow_start)
    }

    /// How often a path stepped back.
    #[must_use]
    pub fn falls(&self, id: SubflowId) -> PathFalls {
        self.path(id).map_or_else(PathFalls::default, |path| path.falls)
    }

    /// A path that nobody else uses carries so much in a round trip without a queue, as packets
    /// that follow each other closely tell. M is at least this.
    pub fn handle_capacity(&mut self, id: SubflowId, bytes: Bytes) {
        if let Some(path) = self.path_mut(id) {
            path.extent.set_capacity(bytes.as_f64());
        }
    }

    /// Packets of a path were late, with this weight in all, and the queue of the latest of them as
    /// far as the sender knows it. Once enough were, and a round trip after the last decrease, the
    /// window falls.
    pub fn handle_late(&mut self, now: Time, id: SubflowId, weight: f64, queue: Option<Span>) {
        let (options, total) = (self.options, self.total());
        let Some(path) = self.path_mut(id) else { return };
        if weight > 0.0 {
            path.end_slow_start(now);
            if options.drain.is_none() || !path.is_within_round_trip(now) {
                path.late.note(weight, queue);
            }
        }
        if path.late.weight < options.needed || path.is_choked || path.is_within_round_trip(now) {
            return;
        }
        let bytes = path.share_of_decrease(now, &options) * path.coupled(now, &options, total);
        self.decrease(now, id, bytes);
    }

    /// Packets of a path were lost: its window falls by half of W, or by half of `ξ w + (1 − ξ) W`
    /// ([`HarpOptions::couples_losses`]); at most once in a round trip.
    pub fn handle_missing(&mut self, now: Time, id: SubflowId) {
        let (options, total) = (self.options, self.total());
        let Some(path) = self.path_mut(id) else { return };
        path.end_slow_start(now);
        if !path.is_choked && !path.is_within_round_trip(now) {
            let of =
                if options.couples_losses { path.coupled(now, &options, total) } else { total };
            self.decrease(now, id, of / 2.0);
        }
    }

    /// A path delivers nothing any more: it is choked, unless it is the last one that is not. If it
    /// comes back it is as a new one.
    pub fn handle_silent(&mut self, now: Time, id: SubflowId) {
        let HarpOptions { floor, slow_start, .. } = self.options;
        let has_other = self.paths.iter().any(|path| path.id != id && !path.is_choked);
        let Some(path) = self.path_mut(id) else { return };
        if !has_other {
            return;
        }
        path.in_slow_start = slow_start;
        if !path.is_choked {
            path.set(0.0, floor);
            path.late = LatePackets::default();
            path.decreased = Some(now);
            path.choke(now);
            self.changed.push(id);
        }
    }

    /// A probe of a choked path was in time.
    pub fn handle_open(&mut self, now: Time, id: SubflowId) {
        let floor = self.options.floor;
        let Some(path) = self.path_mut(id) else { return };
        if path.is_choked {
            path.is_choked = false;
            path.late = LatePackets::default();
            path.decreased = Some(now);
            // A packet, if the path begins anew.
            let packets = if path.in_slow_start { 1.0 } else { floor };
            path.set(packets * path.mss, floor);
            self.changed.push(id);
        }
    }

    /// When to call [`Harp::handle_drain`].
    #[must_use]
    pub fn poll_drain(&self) -> Option<Time> {
        self.drain_at
    }

    /// A drain begins, if its time has come. If it is over, as after a pause, the next one comes.
    pub fn handle_drain(&mut self, now: Time) {
        let (Some(interval), Some(at)) = (self.options.drain, self.drain_at) else { return };
        if now < at {
            return;
        }
        self.drain_at = drain_times::next(now, interval);
        if now > at + LATEST_DRAIN {
            return;
        }
        let number = drain_times::number(now, interval);
        for path in self.paths.iter_mut().filter(|path| !path.is_choked) {
            let fewer = drain_times::fewer(interval, path.smoothed_rtt.as_secs_f64());
            if number.is_multiple_of(fewer) {
                path.drain = Some(HarpDrain::new(now, path.window, path.mss, path.smoothed_rtt));
                self.changed.push(path.id);
            }
        }
    }

    fn decrease(&mut self, now: Time, id: SubflowId, bytes: f64) {
        let HarpOptions { floor, chokes, .. } = self.options;
        let is_other = |path: &HarpPath| path.id != id && !path.is_choked && !path.is_left_out;
        let has_other = self.paths.iter().any(is_other);
        let Some(path) = self.path_mut(id) else { return };
        path.set(path.window - bytes, floor);
        path.late = LatePackets::default();
        path.decreased = Some(now);
        path.falls.decreases += 1;
        if chokes && has_other && path.window <= floor * path.mss {
            path.choke(now);
        }
        self.changed.push(id);
    }

    fn path(&self, id: SubflowId) -> Option<&HarpPath> {
        self.paths.iter().find(|path| path.id == id)
    }

    fn path_mut(&mut self, id: SubflowId) -> Option<&mut HarpPath> {
        self.paths.iter_mut().find(|path| path.id == id)
    }
}

impl HarpPath {
    fn open_window(&self) -> f64 {
        if self.is_choked { 0.0 } else { self.window }
    }

    /// What may be in flight.
    fn allowed(&self) -> f64 {
        self.drain.map_or(self.open_window(), |drain| drain.bound(self.open_window()))
    }

    fn set(&mut self, window: f64, floor: f64) {
        self.window = window.clamp(floor * self.mss, MAX_WINDOW.as_f64());
    }

    /// There is a queue, or something was lost.
    fn end_slow_start(&mut self, now: Time) {
        self.in_slow_start = false;
        self.quiet.note_queue(now);
    }

    fn choke(&mut self, now: Time) {
        self.is_choked = true;
        self.falls.chokes += 1;
        self.await_probe(now);
    }

    /// The next probe is a period away.
    fn await_probe(&mut self, now: Time) {
        self.probe_at = now + self.probe_period();
        self.is_probe_due = false;
    }

    /// `ξ w + (1 − ξ) W`, of which a decrease takes a part.
    fn coupled(&mut self, now: Time, options: &HarpOptions, total: f64) -> f64 {
        let own = match options.coupling {
            HarpCoupling::Independent => 1.0,
            HarpCoupling::Joint => 0.0,
            HarpCoupling::Adaptive if self.is_beside_foreground(options) => 1.0,
            HarpCoupling::Adaptive => (self.window / self.extent.largest(now)).min(1.0),
        };
        own * self.window + (1.0 - own) * total
    }

    /// Whether the last decrease is less than a round trip ago.
    fn is_within_round_trip(&self, now: Time) -> bool {
        self.decreased.is_some_and(|at| now < at + self.smoothed_rtt)
    }

    /// The share that a decrease takes: β, or less if it is the first one after an increase and the
    /// queue is a small part of the round trip. If that queue was the path's own, it is gone.
    fn share_of_decrease(&self, now: Time, options: &HarpOptions) -> f64 {
        let (Some(times), Some(queue)) = (options.first_decrease, self.queue) else {
            return options.beta;
        };
        let trip = self.smoothed_rtt.as_secs_f64();
        let follows = self.decreased.is_some_and(|at| now < at + self.smoothed_rtt * FOLLOWS);
        if follows || trip <= 0.0 {
            return options.beta;
        }
        let share = times * queue.as_secs_f64() / trip;
        share.clamp(options.beta / LEAST_FIRST, options.beta)
    }

    /// Whether the late packets came through a queue that transfers in the background do not make:
    /// on a slow line, where their own is some packets, it takes more.
    fn is_beside_foreground(&self, options: &HarpOptions) -> bool {
        let packet = self.mss / self.extent.known() * self.smoothed_rtt.as_secs_f64();
        let own = Span::from_secs_f64(OWN_PACKETS * packet);
        options.foreground.is_some_and(|most| self.late.queue() > most.max(own))
    }

    /// The time from one probe to the next.
    fn probe_period(&self) -> Span {
        self.smoothed_rtt.max(Harp::LEAST_PROBE_PERIOD)
    }
}
