//! The sending side: the assignment of bytes to paths, and the order of sending.
//!
//! A missing byte is in exactly one place: the *pool* (not assigned), a path's *task* (assigned,
//! not sent), or a path's *owned* set (sent, not acknowledged). A [`BlockScheduler`] sets the sizes
//! of the tasks. If it lets unsent data change its path, the sender adds to the paper's algorithm:
//!
//! - a path whose task is empty steals from the one that would finish last ([`tasks`]);
//! - a path gets no bytes that it would deliver after the common finish ([`finish`]);
//! - a path with nothing to send copies extents that others would deliver late ([`endgame`]);
//! - a stalled path loses its task, and others copy its data in flight ([`stall`]);
//! - a path that shares the bottleneck of a faster one goes on standby ([`bottleneck`]).

mod answers;
mod bottleneck;
mod endgame;
mod extent_queue;
mod finish;
mod meter;
mod path;
mod stall;
mod tasks;
mod types;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use policy::sched::BlockScheduler;
use units::{Bytes, PathId, Rate, Span, Time};

use crate::layout::{BLOCK, GRAIN};
use crate::{Extent, ExtentSet, Layout, PeerError};
use bottleneck::{Detector, Order};
use meter::as_rate;
use path::Path;
pub use types::{
    Class, PathReport, PathState, PathTraits, Reason, Sample, SenderConfig, SenderEvent, Totals,
    Transmit,
};

/// The largest extent for a path in [`PathState::Proving`], so that its first acknowledgement comes
/// soon.
const PROVING_EXTENT: u64 = 16 * 1024;
/// The interval after which a path asks again if only time can change the answer.
const LOOK_AGAIN: Span = Span::from_millis(10);

/// The sending side of a transfer.
#[derive(Debug)]
pub struct Sender {
    layout: Layout,
    config: SenderConfig,
    scheduler: Box<dyn BlockScheduler + Send>,
    /// Acknowledged positions, those of earlier sessions included.
    acked: ExtentSet,
    /// Positions sent at least once in this session.
    sent: ExtentSet,
    pool: ExtentSet,
    paths: BTreeMap<PathId, Path>,
    /// Rates of earlier connections by group, in bytes per second.
    learnt_rates: BTreeMap<u32, f64>,
    total: Bytes,
    duplicates: u64,
    adjustments: u64,
    detector: Detector,
    events: VecDeque<SenderEvent>,
    wakes: VecDeque<PathId>,
    complete: bool,
}

impl Sender {
    /// A sender of all positions of `layout` except `have`, those that the receiver has verified.
    /// Parts of blocks in `have` are sent again, since the receiver does not keep them either.
    #[must_use]
    pub fn new(
        layout: &Layout,
        have: &ExtentSet,
        scheduler: Box<dyn BlockScheduler + Send>,
        config: SenderConfig,
    ) -> Sender {
        let acked = layout.whole_blocks(have);
        let mut pool = layout.all();
        for extent in acked.iter() {
            pool.remove(extent);
        }
        let total = pool.total();
        let mut sender = Sender {
            layout: layout.clone(),
            config,
            scheduler,
            acked,
            sent: ExtentSet::new(),
            pool,
            paths: BTreeMap::new(),
            learnt_rates: BTreeMap::new(),
            total,
            duplicates: 0,
            adjustments: 0,
            detector: Detector::default(),
            events: VecDeque::new(),
            wakes: VecDeque::new(),
            complete: false,
        };
        sender.check_complete();
        sender
    }

    /// The stream has grown to `size` bytes, or has ended with them.
    ///
    /// # Errors
    /// If it is no stream, or the size contradicts what is known.
    pub fn handle_grown(&mut self, now: Time, size: u64, is_end: bool) -> Result<(), PeerError> {
        let known = self.layout.total();
        self.layout.grow(size, is_end)?;
        let fresh = Extent::between(known.0, self.layout.total().0);
        self.pool.insert(fresh);
        self.total += Bytes(fresh.len);
        if self.check_complete() {
            return Ok(());
        }
        self.adjust(now);
        self.update_classes(now);
        self.wake_all();
        Ok(())
    }

    /// A path opened. Ids are never reused; an id that is in use is ignored.
    pub fn handle_path_open(&mut self, now: Time, path: PathId, traits: PathTraits) {
        if self.paths.contains_key(&path) {
            return;
        }
        let rate = self.learnt_rates.get(&traits.group).copied().unwrap_or(0.0);
        self.paths.insert(path, Path::new(now, path, traits, rate));
        self.events.push_back(SenderEvent::PathState {
            path,
            state: PathState::Proving,
            why: Reason::Opened,
        });
        self.update_classes(now);
        self.wake_all();
    }

    /// A path's connection is gone. Its bytes go to the other paths at once.
    pub fn handle_path_lost(&mut self, now: Time, path: PathId) {
        let Some(mut lost) = self.paths.remove(&path) else { return };
        if lost.proven && lost.rate(now) > 0.0 {
            self.learnt_rates.insert(lost.traits.group, lost.meter.settled());
        }
        self.detector.handle_gone(path);
        self.requeue_lost(now, lost.task.take_all(), lost.owned.iter().collect());
        self.update_classes(now);
        self.adjust(now);
        self.apply_order(now);
    }

    /// One of several connections of a path is gone and others carry on: `extents` are what was in
    /// flight on it. The parts that are not acknowledged are sent again, by any path. Extents that
    /// the path does not have in flight change nothing, nor does an unknown path.
    pub fn handle_connection_lost(
        &mut self,
        now: Time,
        path: PathId,
        extents: impl IntoIterator<Item = Extent>,
    ) {
        let Some(lossy) = self.paths.get_mut(&path) else { return };
        let owned = extents.into_iter().flat_map(|extent| lossy.forget(extent)).collect();
        self.requeue_lost(now, Vec::new(), owned);
        self.adjust(now);
    }

    /// An acknowledgement arrived by this path. It may cover several extents, repeat itself, name
    /// what another path sent, or come by a path that was reported lost. Returns the number of
    /// newly acknowledged bytes.
    ///
    /// # Errors
    /// If the extent does not lie within one object, or part of it was never sent; nothing changes
    /// then.
    pub fn handle_acked(
        &mut self,
        now: Time,
        path: PathId,
        extent: Extent,
    ) -> Result<Bytes, PeerError> {
        self.layout.check(extent)?;
        if self.acked.gaps(extent).any(|piece| !self.sent.contains(piece)) {
            return Err(PeerError::NeverSent(extent));
        }
        let mut fresh = Bytes::ZERO;
        for piece in self.acked.insert(extent) {
            fresh += Bytes(piece.len);
            self.credit(path, piece);
        }
        let patience = self.paths.get(&path).map(|path| self.ack_patience(now, path));
        if let Some((delivering, patience)) = self.paths.get_mut(&path).zip(patience)
            && delivering.handle_delivered(now, extent)
        {
            delivering.answers.handle_acked(now, patience);
            self.handle_progress(now, path, true);
            self.wake(path);
        }
        if self.check_complete() {
            return Ok(fresh);
        }
        self.adjust(now);
        self.update_classes(now);
        Ok(fresh)
    }

    /// Takes the carrier's view of a path, best every 20 to 100 ms. Ignored for an unknown path.
    pub fn handle_sample(&mut self, now: Time, path: PathId, sample: Sample) {
        self.note_sample(now, path, sample);
        if let Some(path) = self.paths.get(&path).filter(|path| path.is_active())
            && self.config.bottlenecks
            && self.is_recallable()
            && sample.silence.is_none()
        {
            let delay = (sample.rtt - sample.min_rtt).as_secs_f64();
            self.detector.handle_delay(now, path.id, delay, path.delivered);
        }
        self.apply_order(now);
    }

    /// The receiver says on this path that it lives and has not written yet what it received: its
    /// silence is not the path's. Ignored for an unknown path.
    pub fn handle_alive(&mut self, now: Time, path: PathId) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.answers.handle_alive();
        }
        self.handle_progress(now, path, false);
    }

    /// The receiver answered on this path, without a word on what it received: the path lives.
    /// Ignored for an unknown path.
    pub fn handle_answer(&mut self, now: Time, path: PathId) {
        self.handle_progress(now, path, false);
    }

    /// The receiver refused a block for its hash. Acknowledged positions of it are sent again.
    /// Repeating a refusal is harmless.
    ///
    /// # Errors
    /// If the extent does not lie within one object.
    pub fn handle_refused(&mut self, now: Time, extent: Extent) -> Result<(), PeerError> {
        self.layout.check(extent)?;
        for piece in self.acked.remove(extent) {
            // Positions verified in an earlier session are not in this session's total until they
            // are refused.
            self.total += Bytes(self.sent.gaps(piece).map(|unsent| unsent.len).sum());
            self.pool.insert(piece);
        }
        self.paths.values_mut().for_each(Path::prune);
        if !self.pool.is_empty() {
            self.complete = false;
            self.adjust(now);
            self.wake_all();
        }
        Ok(())
    }

    /// An object is left out: nothing of it is sent any more. What is in flight of it may still be
    /// acknowledged. Repeating it is harmless.
    pub fn handle_left_out(&mut self, now: Time, object: usize) {
        let Some(whole) = self.layout.object_extent(object) else { return };
        self.sent.insert(whole);
        for piece in self.acked.insert(whole) {
            self.withdraw(piece, 0);
        }
        if !self.check_complete() {
            self.adjust(now);
            self.wake_all();
        }
    }

    /// The next bytes for a path to send: at most `max`, rounded down to a multiple of 4 KiB, and
    /// at least 4 KiB. An unknown path waits forever.
    pub fn poll_transmit(&mut self, now: Time, path: PathId, max: Bytes) -> Transmit {
        let most = (max.0 / GRAIN * GRAIN).clamp(GRAIN, BLOCK);
        if self.complete {
            self.set_waiting(path);
            return Transmit::Complete;
        }
        match self.next_extent(now, path, most) {
            Ok(extent) => Transmit::Data(extent),
            Err(until) => {
                self.set_waiting(path);
                Transmit::Wait { until }
            }
        }
    }

    /// A waiting path that should call [`Sender::poll_transmit`] again; each is named once.
    pub fn poll_wake(&mut self) -> Option<PathId> {
        self.wakes.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    /// When [`Sender::handle_deadline`] is due. Any call can change it.
    #[must_use]
    pub fn poll_deadline(&self, now: Time) -> Option<Time> {
        if self.complete {
            return None;
        }
        let stalls = self.paths.values().filter_map(|path| self.stall_time(now, path));
        stalls.chain(self.detector.deadline()).min()
    }

    /// The deadline has come: detects stalled paths and ends tests.
    pub fn handle_deadline(&mut self, now: Time) {
        let ids: Vec<PathId> = self.paths.keys().copied().collect();
        for id in ids {
            self.check_stall(now, id);
        }
        self.apply_order(now);
    }

    /// Bytes that the receiver acknowledged on a path first; zero for an unknown one.
    #[must_use]
    pub fn acked_on(&self, path: PathId) -> Bytes {
        self.paths.get(&path).map_or(Bytes::ZERO, |path| Bytes(path.acked))
    }

    /// Reports of all paths, by id.
    #[must_use]
    pub fn paths(&self, now: Time) -> Vec<PathReport> {
        self.paths.values().map(|path| path.report(now)).collect()
    }

    /// The totals of the transfer.
    #[must_use]
    pub fn totals(&self, now: Time) -> Totals {
        let rate: Rate = self
            .paths
            .values()
            .filter(|path| path.is_active())
            .map(|path| as_rate(path.rate(now)))
            .sum();
        let remaining = self.remaining();
        Totals {
            total: self.total,
            acked: self.total - remaining,
            pool: self.pool.total(),
            tasks: self.paths.values().map(|path| path.task.bytes()).sum(),
            in_flight: self.paths.values().map(|path| path.owned.total()).sum(),
            duplicates: Bytes(self.duplicates),
            rate,
            eta: (rate > Rate::ZERO).then(|| remaining / rate),
        }
    }

    /// Where the objects lie, as far as is known.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The acknowledged part of an extent.
    #[must_use]
    pub fn is_acked(&self, extent: Extent) -> bool {
        self.acked.contains(extent)
    }

    /// Whether everything is acknowledged.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Bytes that are not acknowledged.
    fn remaining(&self) -> Bytes {
        self.layout.total() - self.acked.total()
    }

    /// The next extent for a path, or when to ask again.
    fn next_extent(&mut self, now: Time, id: PathId, most: u64) -> Result<Extent, Option<Time>> {
        let recallable = self.is_recallable();
        let path = self.paths.get_mut(&id).filter(|path| path.is_usable()).ok_or(None)?;
        path.last_polled = now;
        let mut most = most;
        if !path.proven {
            most = most.min(PROVING_EXTENT);
            if path.outstanding() + most > self.config.proving.0 && recallable {
                return Err(None);
            }
        }
        if path.task.is_empty() {
            self.refill(now, id);
        }
        let look_again = Some(now + LOOK_AGAIN);
        let path = self.paths.get(&id).ok_or(None)?;
        let Some((_, first)) = path.task.front() else {
            if !recallable {
                return Err(None);
            }
            // Growth wakes all paths; until then nothing can change if nothing is in flight.
            let is_idle = self.layout.is_growing() && self.remaining() == Bytes::ZERO;
            return self.next_copy(now, id, most).ok_or(look_again.filter(|_| !is_idle));
        };
        // Nobody knows when a stream ends: each path goes on at its own pace.
        if recallable && !self.layout.is_growing() {
            most = self.worthwhile(now, id, most);
            if most == 0 {
                return Err(look_again);
            }
        }
        let path = self.paths.get_mut(&id).ok_or(None)?;
        // Cut on the grain of positions, and never across a block.
        let block_end = (first.start / BLOCK + 1) * BLOCK;
        let end = (first.start + most) / GRAIN * GRAIN;
        let extent = path
            .task
            .pop_front(end.min(block_end).max(first.start + 1) - first.start)
            .ok_or(None)?;
        path.handle_sent(now, extent);
        path.owned.insert(extent);
        let again: u64 =
            extent.len - self.sent.insert(extent).iter().map(|piece| piece.len).sum::<u64>();
        self.duplicates += again;
        Ok(extent)
    }

    /// Removes a newly acknowledged piece from the pool, the tasks and the owned sets, and credits
    /// it to the path `by`.
    fn credit(&mut self, by: PathId, piece: Extent) {
        let mut found = 0;
        if let Some(path) = self.paths.get_mut(&by) {
            path.acked += piece.len;
            found += path.owned.remove(piece).iter().map(|part| part.len).sum::<u64>();
        }
        self.withdraw(piece, found);
    }

    /// Removes a piece, of which `found` bytes are removed already, from wherever it is.
    fn withdraw(&mut self, piece: Extent, mut found: u64) {
        for path in self.paths.values_mut() {
            if found == piece.len {
                return;
            }
            found += path.owned.remove(piece).iter().map(|part| part.len).sum::<u64>();
            found += path.task.remove(piece).map_or(0, |removed| removed.bytes);
        }
        if found < piece.len {
            self.pool.remove(piece);
        }
    }

    fn check_complete(&mut self) -> bool {
        if !self.complete && !self.layout.is_growing() && self.remaining() == Bytes::ZERO {
            self.complete = true;
            self.events.push_back(SenderEvent::Complete);
            self.wake_all();
        }
        self.complete
    }

    /// Carries out the next order of the detector of shared bottlenecks.
    fn apply_order(&mut self, now: Time) {
        if !self.config.bottlenecks || !self.is_recallable() || self.complete {
            return;
        }
        let active: Vec<(PathId, u64, Span)> = self
            .paths
            .values()
            .filter(|path| path.is_active())
            .map(|path| (path.id, path.delivered, path.rtt()))
            .collect();
        let remaining = self.totals(now).eta.unwrap_or(Span::ZERO);
        let Some(order) = self.detector.poll(now, &active, remaining) else { return };
        match order {
            Order::Pause { slower, faster } => {
                self.set_state(slower, PathState::Standby, Reason::TestingBottleneck(faster));
                self.release_task(slower);
            }
            Order::Hold { slower, faster, gain } => {
                self.set_state(slower, PathState::Standby, Reason::SharedBottleneck(faster, gain));
            }
            Order::Resume { slower, faster } => self.restore(slower, Reason::OwnBottleneck(faster)),
            Order::Retry { slower } => self.restore(slower, Reason::Retest),
            Order::Release { slower, faster } => self.restore(slower, Reason::PeerGone(faster)),
        }
    }

    fn set_waiting(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(&id) {
            path.waiting = true;
        }
    }

    fn wake(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(&id).filter(|path| path.waiting) {
            path.waiting = false;
            self.wakes.push_back(id);
        }
    }

    fn wake_all(&mut self) {
        for path in self.paths.values_mut().filter(|path| path.waiting) {
            path.waiting = false;
            self.wakes.push_back(path.id);
        }
    }
}
