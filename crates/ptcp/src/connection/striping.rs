//! Which data goes over which path: the scheduler, and the copies of a redundant one.

use alloc::boxed::Box;
use alloc::vec::Vec;

use policy::sched::packet::{Backlog, PacketScheduler, SubflowView};
use units::{Bytes, Span, SubflowId, Time};
use wire::ptcp::{Body, Packet, Reply, StreamData};

use super::repeating::Occasion;
use super::{Connection, Transmit};
use crate::ack_tracker::stamp_of;
use crate::path::{Binding, Path};
use crate::stream::send::{Piece, SendStream};
use crate::subflow::Subflow;

/// The interval of tries whether a path without acknowledgements carries them again.
const ACK_PATH_RETRY: Span = Span::from_secs(1);

/// The scheduler, and what it looks at.
#[derive(Clone, Debug)]
pub(super) struct Striping {
    scheduler: Box<dyn PacketScheduler>,
    /// The paths as of the last look.
    views: Vec<SubflowView>,
    /// The stream that sent new data last.
    last_stream: u32,
    /// The path named last for acknowledgements.
    last_ack_path: Option<SubflowId>,
    /// When pacing allows data on some path.
    pacing_at: Option<Time>,
    /// When to ask for the window while nothing is in flight.
    window_probe_at: Option<Time>,
    /// The caller wants no data sent before.
    held_until: Time,
    /// When to look, beside new data, for what a reader waits for.
    look_at: Time,
}

impl Striping {
    pub(super) fn new(scheduler: Box<dyn PacketScheduler>) -> Striping {
        Striping {
            scheduler,
            views: Vec::new(),
            last_stream: 0,
            last_ack_path: None,
            pacing_at: None,
            window_probe_at: None,
            held_until: Time::ZERO,
            look_at: Time::ZERO,
        }
    }

    /// The path named last for acknowledgements.
    pub(super) fn last_ack_path(&self) -> Option<SubflowId> {
        self.last_ack_path
    }

    /// Whether to look, beside new data, for what a reader waits for.
    #[inline]
    fn is_look_due(&self, now: Time) -> bool {
        self.look_at <= now
    }

    /// Sets when to look for that again.
    pub(super) fn set_look(&mut self, at: Time) {
        self.look_at = at;
    }

    /// The paths as of the last look.
    pub(super) fn views(&self) -> &[SubflowView] {
        &self.views
    }

    /// Holds all data back.
    pub(super) fn hold(&mut self, until: Time) {
        self.held_until = until;
    }

    /// When a packet may be sent that could not before, or the window is to be asked for.
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.pacing_at.into_iter().chain(self.window_probe_at).min()
    }

    /// Whether it is time to ask for the window.
    pub(super) fn handle_deadline(&mut self, now: Time) -> bool {
        self.window_probe_at.take_if(|at| *at <= now).is_some()
    }

    /// For what time pacing has the connection wake now.
    pub(super) fn woken_for(&self, now: Time) -> Option<Time> {
        self.pacing_at.filter(|at| *at <= now)
    }

    /// Before a round of sending: pacing is set again by what it holds back.
    #[inline]
    pub(super) fn begin_round(&mut self) {
        self.pacing_at = None;
    }

    /// Nothing is sent any more.
    pub(super) fn clear(&mut self) {
        (self.pacing_at, self.window_probe_at) = (None, None);
        self.views = Vec::new();
    }
}

impl Connection {
    /// Data, over the path that the scheduler picks.
    #[inline]
    pub(super) fn poll_data(&mut self, now: Time) -> Option<Transmit> {
        let credit = self.flow.credit();
        if !self.streams.sending().is_busy() {
            // The usual case of an end that only receives.
            return None;
        }
        let has_room = self.update_views(now);
        if has_room
            && self.striping.scheduler.is_redundant()
            && let Some(transmit) = self.poll_copy(now)
        {
            return Some(transmit);
        }
        if has_room
            && !self.striping.scheduler.is_redundant()
            && self.striping.is_look_due(now)
            && let Some(transmit) = self.poll_late(now)
        {
            return Some(transmit);
        }
        let Some(stream) = self.streams.sending().next(credit, self.striping.last_stream) else {
            return self.poll_idle(now, has_room);
        };
        if !has_room {
            self.set_pacing_deadline(now);
            return None;
        }
        let backlog = Backlog {
            unsent: Bytes(self.streams.sending().unsent()),
            outstanding: Bytes(self.streams.sending().outstanding()),
            credit: Bytes(credit),
        };
        let Striping { scheduler, views, .. } = &mut self.striping;
        let Some(picked) = scheduler.pick(now, views, &backlog) else {
            self.set_pacing_deadline(now);
            return None;
        };
        let index = self.paths.position(views[picked].id)?;
        let room = Packet::room_for_data(self.paths[index].datagram).0;
        let (piece, new) =
            self.streams.update_sending(stream, |sending| sending.take(room, credit, false))??;
        self.flow.handle_sent(new);
        self.striping.last_stream = stream;
        if self.striping.scheduler.is_redundant() {
            self.note_copied(index, stream, piece);
        }
        let reply = self.reply(now, index);
        Some(self.transmit_piece(now, index, stream, piece, reply))
    }

    /// With a redundant scheduler: data that other paths have sent and a path with room has not,
    /// before new data.
    fn poll_copy(&mut self, now: Time) -> Option<Transmit> {
        let mut best: Option<(Span, usize, u32, Piece)> = None;
        for view in self.striping.views.iter().filter(|view| view.has_room) {
            let Some(index) = self.paths.position(view.id) else { continue };
            let path = &self.paths[index];
            let room = Packet::room_for_data(path.datagram).0;
            let owed = self.streams.sending().find_outstanding(|stream, sending| {
                let from = path.copied.get(&stream).copied().unwrap_or(0);
                Some((stream, sending.copy(from, room)?))
            });
            if let Some((stream, piece)) = owed
                && best.is_none_or(|(fastest, ..)| view.smoothed_rtt < fastest)
            {
                best = Some((view.smoothed_rtt, index, stream, piece));
            }
        }
        let (_, index, stream, piece) = best?;
        self.streams.update_sending(stream, |sending| sending.handle_sent(piece));
        self.note_copied(index, stream, piece);
        let reply = self.reply(now, index);
        Some(self.transmit_piece(now, index, stream, piece, reply))
    }

    fn note_copied(&mut self, index: usize, stream: u32, piece: Piece) {
        let end = self.paths[index].copied.entry(stream).or_default();
        *end = (*end).max(piece.offset + u64::from(piece.len));
    }

    /// Removes the sending half of a stream.
    pub(super) fn remove_sending(&mut self, stream: u32) -> Option<SendStream> {
        for path in self.paths.iter_mut() {
            path.copied.remove(&stream);
            path.repeated.remove(stream);
        }
        self.streams.remove_sending(stream)
    }

    /// Updates the scheduler's views of all paths. Returns whether one has room.
    #[inline]
    fn update_views(&mut self, now: Time) -> bool {
        let Striping { scheduler, views, held_until, .. } = &mut self.striping;
        if *held_until > now {
            views.clear();
            return false;
        }
        let unsent = self.streams.sending().unsent();
        self.paths.write_views(now, unsent, scheduler.is_redundant(), views)
    }

    /// Sets the time at which the first paced path may send.
    fn set_pacing_deadline(&mut self, now: Time) {
        let limits = self.paths.iter().filter_map(|path| Some(path.limit?.allows_at()));
        let held = self.paths.subflows().filter_map(Subflow::held_until).chain(limits);
        let held = held.chain([self.striping.held_until]);
        // Paths that were not examined keep their previous time.
        self.striping.pacing_at = held.filter(|at| *at > now).min();
    }

    /// Without new data to send: paths with room repeat data in flight on slower ones.
    fn poll_idle(&mut self, now: Time, has_room: bool) -> Option<Transmit> {
        // Flow control alone holds back what is unsent, since no stream has anything to send.
        let is_blocked = self.streams.sending().unsent() > 0;
        let in_flight: Bytes = self.paths.subflows().map(Subflow::in_flight).sum();
        if is_blocked && in_flight == Bytes::ZERO && self.striping.window_probe_at.is_none() {
            // Nothing in flight would bring a window update.
            let wait = self.paths.subflows().map(Subflow::timeout).max()?;
            self.striping.window_probe_at = Some(now + wait);
        }
        if !has_room {
            return None;
        }
        let mut is_refused = false;
        if is_blocked {
            self.striping.scheduler.handle_blocked(now);
            is_refused = self.handle_blocked(now);
        }
        if self.config.reinject
            && let Some(transmit) = self.poll_repetition(now, Occasion::Idle, is_refused)
        {
            return Some(transmit);
        }
        // A window that the application or the peer's buffer leaves unused must not grow.
        for view in self.striping.views.iter().filter(|view| view.has_room) {
            let index = self.paths.position(view.id);
            if let Some(subflow) = index.and_then(|index| self.paths[index].subflow_mut()) {
                subflow.note_idle();
            }
        }
        None
    }

    /// Sends a packet with a piece of a stream.
    pub(super) fn transmit_piece(
        &mut self,
        now: Time,
        index: usize,
        stream: u32,
        piece: Piece,
        reply: Reply,
    ) -> Transmit {
        let Piece { offset, len, is_last } = piece;
        debug_assert!(
            self.streams.sending().get(stream).is_some_and(|it| offset >= it.delivered()),
            "the driver keeps what is not delivered, and no more"
        );
        let body =
            Body::Data(StreamData { offset, stream, stamp: stamp_of(now), len, reply, is_last });
        self.transmit(now, index, body, Some(Binding::Data { stream, offset, len, is_last }))
    }

    /// The index of the fastest path with room among those that `will_do`.
    pub(super) fn best_with_room(
        &mut self,
        now: Time,
        will_do: impl Fn(&Path) -> bool,
    ) -> Option<usize> {
        if !self.update_views(now) {
            self.set_pacing_deadline(now);
            return None;
        }
        // The views of a redundant connection have silent paths too, for copies of data. What is
        // sent once may wait there for ever.
        let is_alone = !self.paths.iter().any(Path::is_live);
        let will_do = |path: &Path| (is_alone || path.is_live()) && will_do(path);
        let place = |view: &SubflowView| {
            let index = self.paths.position(view.id).filter(|index| will_do(&self.paths[*index]));
            Some((view.smoothed_rtt, index?))
        };
        let with_room = self.striping.views.iter().filter(|view| view.has_room).filter_map(place);
        // The first of equals.
        let best = with_room.min_by_key(|(rtt, _)| *rtt).map(|(_, index)| index);
        if best.is_none() {
            self.set_pacing_deadline(now);
        }
        best
    }

    /// The reply path for a packet over this path: the fastest one on which acknowledgements
    /// arrive.
    #[inline]
    pub(super) fn reply(&mut self, now: Time, index: usize) -> Reply {
        let path = &mut self.paths[index];
        if path.ack_path_down && path.ack_path_retry_at <= now {
            // A try whether this path carries acknowledgements again: the peer replies over all
            // paths.
            path.ack_path_retry_at = now + ACK_PATH_RETRY;
            return Reply::All;
        }
        let named = self.paths.reply_path().unwrap_or(self.paths[index].id);
        self.striping.last_ack_path = Some(named);
        Reply::Path(named)
    }
}
