//! Sent packets: acknowledgements, probes, and data, which is bound to a packet at the time of
//! sending (the paper's `send`).

use policy::sched::packet::{Backlog, SubflowView};
use units::{Bytes, Span, Time};
use wire::ptcp::{Body, Packet, Reply, StreamData};

use super::bounds::MAX_COPIES;
use super::{Connection, ConnectionState, Event, Transmit};
use crate::ack_tracker::stamp_of;
use crate::path::{Binding, Control, Path, PathPhase};
use crate::stream::send::{Piece, SendStream};
use crate::subflow::Subflow;

/// Packets of another path that are examined for reinjection.
const REINJECT_SCAN: usize = 64;
/// The interval of tries whether a path without acknowledgements carries them again.
const ACK_PATH_RETRY: Span = Span::from_secs(1);
/// The ratio of round-trip times above which the window of a path that blocks flow control is cut.
const PENALTY_RTT_RATIO: u64 = 4;

impl Connection {
    /// The next packet to send. Call it until it returns `None`, after each other call.
    #[inline]
    pub fn poll_send(&mut self, now: Time) -> Option<Transmit> {
        if !self.is_alive() {
            return self.poll_close();
        }
        if let Some(transmit) = self.poll_ack(now) {
            return Some(transmit);
        }
        // Set again by what pacing holds back.
        self.pacing_at = None;
        if self.has_pending {
            if let Some(transmit) = self.poll_pending(now) {
                return Some(transmit);
            }
            // Control messages and datagrams without room wait.
            self.has_pending =
                !self.controls.is_empty() || !self.datagrams.is_empty() || self.is_ping_due;
        }
        if self.state == ConnectionState::Open { self.poll_data(now) } else { None }
    }

    /// An acknowledgement that is due, over the path that the peer named or over all.
    #[inline]
    fn poll_ack(&mut self, now: Time) -> Option<Transmit> {
        while let Some(index) = self.paths.iter().position(|path| path.acks.due(now).is_some()) {
            let transmit = self.acknowledge(now, index);
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    #[inline]
    fn acknowledge(&mut self, now: Time, index: usize) -> Option<Transmit> {
        let path = &mut self.paths[index];
        let id = path.id;
        let reply = path.acks.due(now)?;
        let mut ack = path.acks.ack(now, id)?;
        let stream = path.acks.stream();
        ack.stream = stream;
        path.acks.handle_ack_sent();
        ack.delivered =
            self.receiving.get(&stream).map_or(0, crate::stream::recv::RecvStream::next);
        ack.limit = self.flow.grant_lower();
        let body = Body::Ack(ack);
        let over = match reply {
            Reply::Path(wanted)
                if self.path(wanted).is_some_and(|path| path.subflow().is_some()) =>
            {
                wanted
            }
            Reply::Path(_) | Reply::All => id,
        };
        if self.path(over).is_some_and(|path| self.ack_limited(path)) {
            return None;
        }
        match reply {
            Reply::Path(_) => self.emit(now, over, body),
            Reply::All => {
                for other in 0..self.paths.len() {
                    let other = &self.paths[other];
                    if other.id != id
                        && other.subflow().is_some()
                        && self.ack_copies.len() < MAX_COPIES
                    {
                        self.ack_copies.push((other.id, ack));
                    }
                }
                self.has_pending = true;
                self.emit(now, id, body)
            }
        }
    }

    /// Everything except data and acknowledgements.
    fn poll_pending(&mut self, now: Time) -> Option<Transmit> {
        while let Some((id, ack)) = self.ack_copies.pop() {
            if let Some(transmit) = self.emit(now, id, Body::Ack(ack)) {
                return Some(transmit);
            }
        }
        if let Some(transmit) = self.poll_opening(now) {
            return Some(transmit);
        }
        if self.state != ConnectionState::Open {
            return None;
        }
        if let Some(index) =
            self.paths.iter().position(|path| path.probes > 0 && path.subflow().is_some())
        {
            self.paths[index].probes -= 1;
            return Some(self.probe(now, index));
        }
        let other = self.poll_control(now).or_else(|| self.poll_datagram(now));
        other.or_else(|| self.poll_ping(now))
    }

    /// A probe of a silent path, regardless of its window: a copy of the data that is needed first
    /// (the paper's redundant striping).
    fn probe(&mut self, now: Time, index: usize) -> Transmit {
        let room = Packet::room_for_data(self.paths[index].datagram.min(self.config.datagram)).0;
        if let Some(stream) = self.sending.first_again()
            && let Some(Some((piece, _))) =
                self.sending.update(stream, |sending| sending.take(room, 0, true))
        {
            return self.transmit_piece(now, index, stream, piece, Reply::All);
        }
        let oldest = match &mut self.paths[index].phase {
            PathPhase::Open(subflow) => {
                subflow.bound_packets().find_map(|(_, binding, is_unbound)| match binding {
                    Binding::Data { stream, offset, len, is_last } if u64::from(len) <= room => {
                        *is_unbound = true;
                        Some((stream, Piece { offset, len, is_last }))
                    }
                    _ => None,
                })
            }
            PathPhase::Opening(_) => None,
        };
        match oldest {
            Some((stream, piece)) => self.transmit_piece(now, index, stream, piece, Reply::All),
            None => self.transmit(now, index, Body::Ping { padding: 0, reply: Reply::All }, None),
        }
    }

    /// A control message, over the fastest path with room.
    fn poll_control(&mut self, now: Time) -> Option<Transmit> {
        if self.controls.is_empty() {
            return None;
        }
        let index = self.best_with_room(now, |_| true)?;
        while let Some(control) = self.controls.pop_front() {
            let body = match control {
                Control::StreamWindow { stream } => {
                    let Some(receiving) = self.receiving.get(&stream) else { continue };
                    Body::StreamWindow { stream, limit: receiving.advertised() }
                }
                Control::BufferRequest => Body::Need { buffer: self.requested_buffer() },
                Control::Reset { stream, code, end } => Body::Reset { stream, code, end },
                Control::Stop { stream, code } => Body::Stop { stream, code },
                Control::Retire { path } => Body::Retire { path },
            };
            return Some(self.transmit(now, index, body, Some(Binding::Control(control))));
        }
        None
    }

    fn poll_datagram(&mut self, now: Time) -> Option<Transmit> {
        let carries =
            |path: &Path, len: u16| Packet::room_for_data(path.datagram) >= Bytes(u64::from(len));
        let len = loop {
            let len = self.datagrams.front().copied()?;
            let mut open = self.paths.iter().filter(|path| path.subflow().is_some()).peekable();
            if open.peek().is_none() || open.any(|path| carries(path, len)) {
                break len;
            }
            self.datagrams.pop_front();
            self.events.push_back(Event::DatagramDropped { len });
        };
        let index = self.best_with_room(now, |path| carries(path, len))?;
        self.datagrams.pop_front();
        let reply = self.reply(now, index);
        Some(self.transmit(now, index, Body::Datagram { len, reply }, None))
    }

    /// A ping that the application asked for, over the fastest path with room.
    fn poll_ping(&mut self, now: Time) -> Option<Transmit> {
        if !self.is_ping_due {
            return None;
        }
        let index = self.best_with_room(now, |_| true)?;
        self.is_ping_due = false;
        let reply = self.reply(now, index);
        Some(self.transmit(now, index, Body::Ping { padding: 0, reply }, None))
    }

    /// Data, over the path that the scheduler picks.
    #[inline]
    fn poll_data(&mut self, now: Time) -> Option<Transmit> {
        let credit = self.flow.credit();
        if !self.sending.is_busy() {
            // The usual case of an end that only receives.
            return None;
        }
        let has_room = self.update_views(now);
        if has_room
            && self.scheduler.is_redundant()
            && let Some(transmit) = self.poll_copy(now)
        {
            return Some(transmit);
        }
        let Some(stream) = self.sending.next(credit, self.last_stream) else {
            return self.poll_idle(now, has_room);
        };
        if !has_room {
            self.set_pacing_deadline(now);
            return None;
        }
        let backlog = Backlog {
            unsent: Bytes(self.sending.unsent()),
            outstanding: Bytes(self.sending.outstanding()),
            credit: Bytes(credit),
        };
        let Some(picked) = self.scheduler.pick(now, &self.views, &backlog) else {
            self.set_pacing_deadline(now);
            return None;
        };
        let id = self.views[picked].id;
        let index = self
            .paths
            .iter()
            .position(|path| path.subflow().is_some_and(|subflow| subflow.id() == id))?;
        let room = Packet::room_for_data(self.paths[index].datagram).0;
        let (piece, new) =
            self.sending.update(stream, |sending| sending.take(room, credit, false))??;
        self.flow.handle_sent(new);
        self.last_stream = stream;
        if self.scheduler.is_redundant() {
            self.note_copied(index, stream, piece);
        }
        let reply = self.reply(now, index);
        Some(self.transmit_piece(now, index, stream, piece, reply))
    }

    /// With a redundant scheduler: data that other paths have sent and a path with room has not,
    /// before new data.
    fn poll_copy(&mut self, now: Time) -> Option<Transmit> {
        let Connection { paths, sending, views, .. } = self;
        let mut best: Option<(Span, usize, u32, Piece)> = None;
        for view in views.iter().filter(|view| view.has_room) {
            let is_it = |path: &Path| path.subflow().is_some_and(|subflow| subflow.id() == view.id);
            let Some(index) = paths.iter().position(is_it) else { continue };
            let path = &paths[index];
            let room = Packet::room_for_data(path.datagram).0;
            let owed = sending.find_outstanding(|stream, sending| {
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
        sending.update(stream, |sending| sending.handle_sent(piece));
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
        for path in &mut self.paths {
            path.copied.remove(&stream);
        }
        self.sending.remove(stream)
    }

    /// Updates the scheduler's views of all paths. Returns whether one has room.
    #[inline]
    fn update_views(&mut self, now: Time) -> bool {
        let Connection { paths, views, controller, .. } = self;
        views.clear();
        let mut has_room = false;
        let is_alone = !paths.iter().any(super::Path::is_live);
        for path in paths.iter_mut() {
            let allows = path.allows(1_500);
            let PathPhase::Open(subflow) = &mut path.phase else { continue };
            // A silent path carries only probes, unless all are silent.
            if subflow.is_silent() && !is_alone {
                continue;
            }
            let allowance = controller.allowance(subflow.id());
            let is_in_slow_start = subflow.is_in_slow_start(&allowance, controller.as_ref());
            let room = allows && subflow.has_room(now, &allowance, is_in_slow_start);
            has_room |= room;
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
        has_room
    }

    /// Sets the time at which the first paced path may send.
    fn set_pacing_deadline(&mut self, now: Time) {
        let held = self.paths.iter().filter_map(|path| path.subflow()?.held_until());
        // Paths that were not examined keep their previous time.
        self.pacing_at = held.filter(|at| *at > now).min();
    }

    /// Without new data to send: paths with room repeat data in flight on slower ones.
    fn poll_idle(&mut self, now: Time, has_room: bool) -> Option<Transmit> {
        // Flow control alone holds back what is unsent, since no stream has anything to send.
        let is_blocked = self.sending.unsent() > 0;
        let in_flight: Bytes =
            self.paths.iter().filter_map(|path| Some(path.subflow()?.in_flight())).sum();
        if is_blocked && in_flight == Bytes::ZERO && self.window_probe_at.is_none() {
            // Nothing in flight would bring a window update.
            let wait =
                self.paths.iter().filter_map(|path| Some(path.subflow()?.timeout())).max()?;
            self.window_probe_at = Some(now + wait);
        }
        if !has_room {
            return None;
        }
        let mut is_refused = false;
        if is_blocked {
            self.scheduler.handle_blocked(now);
            is_refused = self.handle_blocked(now);
        }
        if self.config.reinject {
            for index in 0..self.paths.len() {
                let path = &self.paths[index];
                let has_room = |view: &SubflowView| {
                    view.has_room && Some(view.id) == path.subflow().map(Subflow::id)
                };
                if self.views.iter().any(has_room)
                    && let Some((stream, piece)) = self.reinjection(now, index, is_refused)
                {
                    let reply = self.reply(now, index);
                    return Some(self.transmit_piece(now, index, stream, piece, reply));
                }
            }
        }
        // A window that the application or the peer's buffer leaves unused must not grow.
        for view in self.views.iter().filter(|view| view.has_room) {
            let mut open = self.paths.iter_mut().filter_map(super::Path::subflow_mut);
            if let Some(subflow) = open.find(|subflow| subflow.id() == view.id) {
                subflow.note_idle();
            }
        }
        None
    }

    /// A piece in flight on another path that this one could deliver sooner (opportunistic
    /// retransmission, Raiciu et al. 2012). If it blocks flow control and the peer grants no larger
    /// buffer, the window of the other path is cut if that is much slower.
    fn reinjection(&mut self, now: Time, index: usize, is_refused: bool) -> Option<(u32, Piece)> {
        let Connection { paths, sending, controller, .. } = self;
        let own = paths[index].subflow()?.round_trip();
        let room = Packet::room_for_data(paths[index].datagram).0;
        let mut best: Option<(usize, u64, u32, Piece)> = None;
        for (other, path) in paths.iter_mut().enumerate().filter(|(other, _)| *other != index) {
            let PathPhase::Open(subflow) = &mut path.phase else { continue };
            // The average lags behind a growing queue.
            let theirs = subflow.round_trip().max(subflow.rtt().latest());
            // Waiting longer than a repetition takes gains nothing.
            let slack = (subflow.rtt().variation() + subflow.rtt().variation()).min(own);
            for (sent_at, binding, _) in subflow.bound_packets().take(REINJECT_SCAN) {
                let Binding::Data { stream, offset, len, is_last } = binding else { continue };
                let piece = Piece { offset, len, is_last };
                let is_owed =
                    sending.get(stream).is_some_and(|sending| !sending.has_arrived(piece));
                // Compares the arrival of the acknowledgement over this path and over the other; an
                // overdue one may never arrive.
                let is_overdue = now > sent_at + theirs + slack;
                let is_sooner = is_overdue || now + own + half(own) < sent_at + theirs;
                if is_owed && is_sooner && u64::from(len) <= room {
                    if best.is_none_or(|(_, lowest, ..)| offset < lowest) {
                        best = Some((other, offset, stream, piece));
                    }
                    break;
                }
            }
        }
        let (other, _, stream, piece) = best?;
        let Piece { offset, len, is_last } = piece;
        let owed = Binding::Data { stream, offset, len, is_last };
        let PathPhase::Open(subflow) = &mut paths[other].phase else { return None };
        let theirs = subflow.round_trip();
        for (_, binding, is_unbound) in subflow.bound_packets() {
            // Several bindings may begin at this offset: the rest of a partly delivered piece is a
            // binding of its own.
            if binding == owed {
                *is_unbound = true;
                break;
            }
        }
        if is_refused && theirs.as_nanos() > PENALTY_RTT_RATIO * own.as_nanos() {
            subflow.penalise(now, controller.as_mut());
        }
        Some((stream, piece))
    }

    /// Sends a packet with a piece of a stream.
    fn transmit_piece(
        &mut self,
        now: Time,
        index: usize,
        stream: u32,
        piece: Piece,
        reply: Reply,
    ) -> Transmit {
        let Piece { offset, len, is_last } = piece;
        let body =
            Body::Data(StreamData { offset, stream, stamp: stamp_of(now), len, reply, is_last });
        self.transmit(now, index, body, Some(Binding::Data { stream, offset, len, is_last }))
    }

    /// Sends an ack-eliciting packet.
    #[inline]
    fn transmit(
        &mut self,
        now: Time,
        index: usize,
        body: Body,
        binding: Option<Binding>,
    ) -> Transmit {
        self.idle.handle_sent(now);
        let Connection { paths, controller, skip_in, tokens, .. } = self;
        let path = &mut paths[index];
        let mut packet = Packet { number: 0, body };
        let bytes = packet.datagram_len();
        path.handle_sent(bytes);
        let PathPhase::Open(subflow) = &mut path.phase else {
            unreachable!("only open paths are chosen")
        };
        *skip_in -= 1;
        if *skip_in == 0 {
            subflow.skip_number(now);
            #[expect(clippy::cast_possible_truncation, reason = "a random number")]
            let more = tokens.next() as u32 % super::SKIP_EVERY;
            *skip_in = super::SKIP_EVERY + more;
        }
        packet.number = subflow.handle_sent(now, Bytes(bytes as u64), binding, controller.as_mut());
        Transmit { path: path.id, packet, is_ecn_capable: path.is_ecn_capable }
    }

    /// The index of the fastest path with room among those that `will_do`.
    fn best_with_room(&mut self, now: Time, will_do: impl Fn(&Path) -> bool) -> Option<usize> {
        if !self.update_views(now) {
            self.set_pacing_deadline(now);
            return None;
        }
        let place = |view: &SubflowView| {
            let is_it = |path: &Path| {
                path.subflow().is_some_and(|subflow| subflow.id() == view.id) && will_do(path)
            };
            Some((view.smoothed_rtt, self.paths.iter().position(is_it)?))
        };
        let with_room = self.views.iter().filter(|view| view.has_room).filter_map(place);
        // The first of equals.
        with_room.min_by_key(|(rtt, _)| *rtt).map(|(_, index)| index)
    }

    /// The reply path for a packet over this path: the fastest one on which acknowledgements
    /// arrive.
    #[inline]
    fn reply(&mut self, now: Time, index: usize) -> Reply {
        let path = &mut self.paths[index];
        if path.ack_path_down && path.ack_path_retry_at <= now {
            // A try whether this path carries acknowledgements again: the peer replies over all
            // paths.
            path.ack_path_retry_at = now + ACK_PATH_RETRY;
            return Reply::All;
        }
        let named = self.reply_path().unwrap_or(self.paths[index].id);
        self.last_ack_path = Some(named);
        Reply::Path(named)
    }

    /// The fastest live path that carries acknowledgements, if any.
    #[inline]
    pub(super) fn reply_path(&self) -> Option<u16> {
        let live = self.paths.iter().filter(|path| path.is_live() && !path.ack_path_down);
        live.min_by_key(|path| path.subflow().map(Subflow::shortest_round_trip)).map(|path| path.id)
    }
}

fn half(span: Span) -> Span {
    Span::from_nanos(span.as_nanos() / 2)
}
