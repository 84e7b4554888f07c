//! The paths of a connection, with the controller of all their windows.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use policy::bottleneck::{Bottlenecks, Summary};
use policy::cc::{Allowance, Controller};
use policy::sched::packet::SubflowView;
use recovery::SendPhase;
use units::{Bytes, Span, SubflowId, Time};
use wire::ptcp::{Ack, Body, Packet};

use super::bounds::{MAX_PATHS, RetiredPaths};
use super::{PeerError, Transmit};
use crate::path::{Binding, Class, Opening, Path, PathPhase};
use crate::subflow::{Expiry, FIRST_TIMEOUT, Outcome, Subflow};
use crate::{Config, Tokens};

/// The least distance of two skipped packet numbers; a random number below it is added.
const SKIP_EVERY: u32 = 512;
const FIRST_SKIP: u32 = 64;
/// The longest probe timeout on which the end of a connection waits: three of them in all.
const BELIEVED_TIMEOUT: Span = Span::from_secs(20);
/// What usual paths send in this time, at most so much, is not left to overflow paths.
const SOON: Span = Span::from_millis(20);
const MOST_SOON: u64 = 128 << 10;

/// No path has this number: a packet with it names none.
const END: u16 = u16::MAX;

/// The paths in use, by index in the order of their beginning.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    list: Vec<Path>,
    retired: RetiredPaths,
    /// The number of the next path that this end opens.
    next: u16,
    controller: Box<dyn Controller>,
    bottlenecks: Bottlenecks,
    tokens: Box<dyn Tokens>,
    /// Ack-eliciting packets until the next skipped number.
    skip_in: u32,
    /// What became of packets and was not taken yet.
    outcomes: Vec<Outcome<Binding>>,
}

/// What an acknowledgement says of its path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckedPath {
    /// Whether the path is open: the peer has completed the handshake.
    pub(super) is_open: bool,
    /// Whether it was silent until now.
    pub(super) is_back: bool,
    /// Whether it loses full packets even of the least size, and small ones not.
    pub(super) is_narrow: bool,
}

impl Paths {
    pub(super) fn new(
        config: &Config,
        controller: Box<dyn Controller>,
        tokens: Box<dyn Tokens>,
    ) -> Paths {
        let bottlenecks = if config.test_bottlenecks {
            Bottlenecks::with_tests()
        } else {
            Bottlenecks::default()
        };
        Paths {
            list: Vec::new(),
            retired: RetiredPaths::default(),
            next: 0,
            controller,
            bottlenecks,
            tokens,
            skip_in: FIRST_SKIP,
            outcomes: Vec::new(),
        }
    }

    /// The number of a new path of this end, without the path.
    ///
    /// # Panics
    /// After 65,534 paths.
    pub(super) fn take_number(&mut self) -> SubflowId {
        let id = self.next;
        self.next = id.checked_add(1).filter(|next| *next < END).expect("fewer paths than numbers");
        SubflowId(id)
    }

    /// Begins a path of this end. With `challenge` it is opened by one at that time, without by the
    /// handshake.
    pub(super) fn open(&mut self, id: SubflowId, config: &Config, challenge: Option<Time>) {
        let token = challenge.map(|_| self.tokens.next());
        self.list.push(Path::new(id, config, Opening::new(token, challenge), true));
    }

    /// The index of a path.
    #[inline]
    pub(super) fn index_of(&self, id: SubflowId) -> Option<usize> {
        self.list.iter().position(|path| path.id == id)
    }

    /// Whether the path's number is used up.
    pub(super) fn is_retired(&self, id: SubflowId) -> bool {
        self.retired.contains(id)
    }

    /// Begins a path of the peer's, and returns its index. With `challenge` its address is
    /// validated by one at that time, without by the handshake.
    pub(super) fn accept(
        &mut self,
        over: SubflowId,
        config: &Config,
        challenge: Option<Time>,
    ) -> Result<usize, PeerError> {
        if over.0 == END || self.list.len() >= MAX_PATHS {
            return Err(PeerError::Path { path: over });
        }
        let token = challenge.map(|_| self.tokens.next());
        self.list.push(Path::new(over, config, Opening::new(token, challenge), false));
        Ok(self.list.len() - 1)
    }

    /// Something new of the handshake arrived.
    pub(super) fn handle_progress(&mut self, now: Time) {
        for path in &mut self.list {
            if let PathPhase::Opening(opening @ Opening { token: None, .. }) = &mut path.phase {
                opening.handle_progress(now);
            }
        }
    }

    /// The handshake is complete, and its flights are not repeated any more.
    pub(super) fn stop_flights(&mut self) {
        for path in &mut self.list {
            if let PathPhase::Opening(opening @ Opening { token: None, .. }) = &mut path.phase {
                opening.at = None;
            }
        }
    }

    /// After the handshake: the other paths of this end are opened by challenges.
    pub(super) fn challenge_all(&mut self, now: Time) {
        let Paths { list, tokens, .. } = self;
        for path in list {
            if let PathPhase::Opening(opening @ Opening { token: None, .. }) = &mut path.phase {
                opening.challenge(now, tokens.next());
            }
        }
    }

    /// Opens a path for data. Returns whether it was opening.
    pub(super) fn begin(&mut self, now: Time, id: SubflowId, config: &Config) -> bool {
        let Some(path) = self.list.iter_mut().find(|path| path.id == id) else { return false };
        let PathPhase::Opening(opening) = path.phase else { return false };
        let rtt = opening.sample(now);
        path.phase = PathPhase::Open(Subflow::new(
            config,
            id,
            now,
            opening.next,
            rtt,
            self.controller.as_mut(),
        ));
        path.allowed = None;
        true
    }

    /// A path is from now on in the background, or no longer.
    pub(super) fn set_background(
        &mut self,
        now: Time,
        id: SubflowId,
        is_background: bool,
        config: &Config,
    ) {
        let subflow = self.get(id).and_then(Path::subflow);
        let start = subflow.map(|subflow| subflow.start(config));
        self.controller.handle_background(now, id, is_background, start.as_ref());
        // The background has a controller of its own, which is none of low latency.
        if let Some(path) = self.get_mut(id) {
            path.is_scalable = config.is_scalable && !is_background;
        }
    }

    /// Removes a path; what was in flight on it becomes an outcome. Returns whether it was in use.
    pub(super) fn remove(&mut self, now: Time, id: SubflowId) -> bool {
        let Some(index) = self.index_of(id) else { return false };
        self.retired.insert(id);
        if let PathPhase::Open(mut subflow) = self.list.remove(index).phase {
            subflow.unbind_all(&mut self.outcomes);
            self.controller.handle_remove(now, subflow.id());
            self.bottlenecks.handle_remove(subflow.id());
        }
        true
    }

    /// Packets that are still in flight on a path must not open it.
    pub(super) fn forbid(&mut self, id: SubflowId) {
        self.retired.insert(id);
    }

    /// Removes all paths. Numbers are not used again.
    pub(super) fn clear(&mut self, now: Time) {
        for path in core::mem::take(&mut self.list) {
            if let Some(subflow) = path.subflow() {
                self.controller.handle_remove(now, subflow.id());
                self.bottlenecks.handle_remove(subflow.id());
            }
        }
        self.retired = RetiredPaths::default();
        self.outcomes = Vec::new();
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(super) fn iter(&self) -> core::slice::Iter<'_, Path> {
        self.list.iter()
    }

    #[inline]
    pub(super) fn iter_mut(&mut self) -> core::slice::IterMut<'_, Path> {
        self.list.iter_mut()
    }

    #[inline]
    pub(super) fn get(&self, id: SubflowId) -> Option<&Path> {
        self.list.iter().find(|path| path.id == id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: SubflowId) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.id == id)
    }

    /// The index of the path with this subflow.
    #[inline]
    pub(super) fn position(&self, id: SubflowId) -> Option<usize> {
        self.list.iter().position(|path| path.subflow().is_some_and(|subflow| subflow.id() == id))
    }

    /// The subflows of all open paths.
    #[inline]
    pub(super) fn subflows(&self) -> impl Iterator<Item = &Subflow<Binding>> {
        self.list.iter().filter_map(Path::subflow)
    }

    /// The next token.
    pub(super) fn token(&mut self) -> u64 {
        self.tokens.next()
    }

    /// The congestion window of a path; zero unless it is open.
    pub(super) fn window(&self, id: SubflowId) -> Bytes {
        self.allowance(id).window
    }

    /// What the controller allows a path.
    pub(super) fn allowance(&self, id: SubflowId) -> Allowance {
        self.controller.allowance(id)
    }

    /// How the window of a path with this allowance develops.
    pub(super) fn phase(&self, subflow: &Subflow<Binding>, allowance: &Allowance) -> SendPhase {
        subflow.phase(allowance, self.controller.as_ref())
    }

    /// The bottleneck of a path, named by its lowest subflow.
    pub(super) fn bottleneck(&self, path: SubflowId) -> Option<SubflowId> {
        self.bottlenecks.bottleneck(path)
    }

    pub(super) fn delays(&self, path: SubflowId) -> Option<Summary> {
        self.bottlenecks.summary(path)
    }

    /// The longest probe timeout of all open paths, for the end of the connection. A peer that
    /// acknowledges late can make a path's timeout long, and would keep an ended connection.
    pub(super) fn longest_timeout(&self) -> Span {
        let longest = self.subflows().map(Subflow::timeout).max();
        longest.unwrap_or(FIRST_TIMEOUT).min(BELIEVED_TIMEOUT)
    }

    /// The fastest live path that carries acknowledgements, if any.
    #[inline]
    pub(super) fn reply_path(&self) -> Option<SubflowId> {
        let live = self.list.iter().filter(|path| path.is_live() && !path.ack_path_down);
        let round_trip = |path: &Path| path.subflow().map(Subflow::shortest_round_trip);
        live.min_by_key(|path| (path.class, round_trip(path))).map(|path| path.id)
    }

    /// Writes the scheduler's views of all paths, of which one is to send `unsent` bytes. Returns
    /// whether one has room.
    #[inline]
    pub(super) fn write_views(
        &mut self,
        now: Time,
        unsent: u64,
        is_redundant: bool,
        views: &mut Vec<SubflowView>,
    ) -> bool {
        let Paths { list, controller, .. } = self;
        views.clear();
        let mut has_room = false;
        let is_alone = !list.iter().any(Path::is_live);
        let has_others = list.iter().any(|path| path.class != Class::Reserve && path.is_live());
        let (mut usual_has_room, mut has_overflow, mut soon) = (false, false, 0);
        for path in list.iter_mut() {
            let is_free = path.limit.is_none_or(|limit| limit.allows_at() <= now);
            let is_resting = path.class == Class::Reserve && has_others;
            let allows = path.allows(1_500) && is_free && !is_resting;
            let PathPhase::Open(subflow) = &mut path.phase else { continue };
            // A silent path carries only probes, unless all are silent. It may yet be the one that
            // delivers, so that it gets its copies.
            if subflow.is_silent() && !is_alone && !is_redundant {
                continue;
            }
            let allowance = controller.allowance(subflow.id());
            let is_in_slow_start = subflow.is_in_slow_start(&allowance, controller.as_ref());
            let room = allows && subflow.has_room(now, &allowance, is_in_slow_start);
            has_room |= room;
            match path.class {
                Class::Usual => {
                    usual_has_room |= room;
                    let sent = allowance.window.0.saturating_mul(SOON.as_nanos())
                        / subflow.round_trip().as_nanos().max(1);
                    let limit = path.limit.map_or(u64::MAX, |limit| (limit.rate() * SOON).0);
                    soon += sent.min(limit).min(MOST_SOON);
                }
                Class::Overflow => has_overflow = true,
                Class::Reserve => {}
            }
            views.push(SubflowView {
                id: subflow.id(),
                smoothed_rtt: subflow.round_trip(),
                rtt_variation: subflow.rtt().variation(),
                mss: subflow.mss(),
                window: allowance.window,
                in_flight: subflow.in_flight(),
                has_room: room,
                is_in_slow_start,
            });
        }
        // What the usual paths send soon is theirs, or they would run dry between two writes of an
        // application that is slower than all paths together.
        if has_overflow && (usual_has_room || unsent < soon.min(MOST_SOON)) {
            has_room = usual_has_room;
            for view in views.iter_mut() {
                let is_overflow =
                    |path: &&Path| path.id == view.id && path.class == Class::Overflow;
                view.has_room &= !list.iter().any(|path| is_overflow(&path));
            }
        }
        has_room
    }

    /// An acknowledgement of a path's packets arrived. It may have outcomes.
    pub(super) fn handle_ack(
        &mut self,
        now: Time,
        ack: &Ack,
        config: &Config,
    ) -> Result<AckedPath, PeerError> {
        let Paths { list, controller, outcomes, bottlenecks, .. } = self;
        let has_several = list.len() > 1;
        let mut acked = AckedPath::default();
        if let Some(path) = list.iter_mut().find(|path| path.id == ack.path)
            && let PathPhase::Open(subflow) = &mut path.phase
        {
            let was_silent = subflow.is_silent();
            subflow
                .handle_ack(now, ack, controller.as_mut(), outcomes)
                .map_err(|bad| PeerError::Acknowledged { path: ack.path, number: bad.number })?;
            if let Some(delay) = ack.one_way.filter(|_| has_several) {
                let stats = subflow.stats();
                bottlenecks.handle_delay(now, subflow.id(), delay.get(), stats.sent, stats.lost);
            }
            let is_back = was_silent && !subflow.is_silent();
            let is_narrow = subflow.poll_black_hole() && path.handle_black_hole(now, config);
            if is_back {
                path.probes = 0;
            }
            acked = AckedPath { is_open: true, is_back, is_narrow };
        }
        if let Some(id) = bottlenecks.poll_test() {
            let mut open = list.iter_mut().filter_map(Path::subflow_mut);
            if let Some(subflow) = open.find(|subflow| subflow.id() == id) {
                subflow.penalise(now, controller.as_mut());
            }
        }
        if bottlenecks.poll_regrouped() {
            for subflow in list.iter_mut().filter_map(Path::subflow_mut) {
                let id = subflow.id();
                controller.handle_bottleneck(now, id, bottlenecks.bottleneck(id));
            }
        }
        Ok(acked)
    }

    /// Cuts the window of an open path.
    pub(super) fn penalise(&mut self, now: Time, index: usize) {
        if let PathPhase::Open(subflow) = &mut self.list[index].phase {
            subflow.penalise(now, self.controller.as_mut());
        }
    }

    /// The peer is heard at a new address of an open path. Returns whether the path was silent. It
    /// may have outcomes.
    pub(super) fn revive(&mut self, now: Time, id: SubflowId) -> bool {
        let Paths { list, controller, outcomes, .. } = self;
        let Some(path) = list.iter_mut().find(|path| path.id == id) else { return false };
        let PathPhase::Open(subflow) = &mut path.phase else { return false };
        let is_back = subflow.revive(now, controller.as_mut(), outcomes);
        if is_back {
            path.probes = 0;
        }
        is_back
    }

    /// The data in flight on a path goes elsewhere.
    pub(super) fn unbind_all(&mut self, index: usize) {
        if let PathPhase::Open(subflow) = &mut self.list[index].phase {
            subflow.unbind_all(&mut self.outcomes);
        }
    }

    /// The outcomes so far. [`Paths::give_back`] returns the memory.
    pub(super) fn take_outcomes(&mut self) -> Vec<Outcome<Binding>> {
        core::mem::take(&mut self.outcomes)
    }

    pub(super) fn give_back(&mut self, mut outcomes: Vec<Outcome<Binding>>) {
        outcomes.clear();
        self.outcomes = outcomes;
    }

    /// When the controller is due.
    pub(super) fn controller_at(&self) -> Option<Time> {
        self.controller.poll_deadline()
    }

    pub(super) fn handle_controller_deadline(&mut self, now: Time) {
        if self.controller.poll_deadline().is_some_and(|at| at <= now) {
            self.controller.handle_deadline(now);
        }
    }

    /// The connection wakes, for what pacing has held until `since` or later.
    pub(super) fn handle_wake(&mut self, now: Time, since: Time) {
        for path in &mut self.list {
            if let PathPhase::Open(subflow) = &mut path.phase {
                subflow.handle_wake(now, since);
            }
        }
    }

    /// The deadline of an open path may have come. `None`: it has not, or has no consequence for
    /// others. It may have outcomes.
    pub(super) fn handle_deadline(&mut self, now: Time, index: usize) -> Option<Expiry> {
        let Paths { list, controller, outcomes, .. } = self;
        let PathPhase::Open(subflow) = &mut list[index].phase else { return None };
        subflow.poll_deadline().filter(|at| *at <= now)?;
        subflow.handle_deadline(now, controller.as_mut(), outcomes)
    }

    /// Sends an ack-eliciting packet over an open path.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        now: Time,
        index: usize,
        body: Body,
        binding: Option<Binding>,
    ) -> Transmit {
        let Paths { list, controller, skip_in, tokens, .. } = self;
        let path = &mut list[index];
        let mut packet = Packet { number: 0, body };
        let bytes = packet.datagram_len();
        path.handle_sent(now, bytes, &packet.body);
        let PathPhase::Open(subflow) = &mut path.phase else {
            unreachable!("only open paths are chosen")
        };
        *skip_in -= 1;
        if *skip_in == 0 {
            subflow.skip_number(now);
            #[expect(clippy::cast_possible_truncation, reason = "a random number")]
            let more = tokens.next() as u32 % SKIP_EVERY;
            *skip_in = SKIP_EVERY + more;
        }
        packet.number = subflow.handle_sent(now, Bytes(bytes as u64), binding, controller.as_mut());
        let is_ecn_capable = path.is_ecn_capable;
        let is_scalable = is_ecn_capable && path.is_scalable;
        Transmit { path: path.id, packet, is_ecn_capable, is_scalable }
    }

    /// Sends a packet that is not ack-eliciting, unless its path is gone or its address may not
    /// receive as much before validation.
    pub(super) fn emit(&mut self, now: Time, id: SubflowId, body: Body) -> Option<Transmit> {
        let path = self.get_mut(id)?;
        let mut packet = Packet { number: 0, body };
        let bytes = packet.datagram_len();
        if !path.allows(bytes) {
            return None;
        }
        packet.number = path.non_eliciting_number(now);
        path.handle_sent(now, bytes, &packet.body);
        Some(Transmit { path: id, packet, is_ecn_capable: false, is_scalable: false })
    }

    /// The size probe of an open path that is due: token and size.
    pub(super) fn poll_size(&mut self, now: Time, index: usize) -> Option<(u64, u64)> {
        let Paths { list, tokens, .. } = self;
        list[index].poll_size(now, || tokens.next())
    }
}

impl Index<usize> for Paths {
    type Output = Path;

    #[inline]
    fn index(&self, index: usize) -> &Path {
        &self.list[index]
    }
}

impl IndexMut<usize> for Paths {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut Path {
        &mut self.list[index]
    }
}
