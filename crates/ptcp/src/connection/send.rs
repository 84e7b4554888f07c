//! What goes out: acknowledgements, probes, and data, which is bound to a packet only as that
//! leaves (the paper's `send`).

use policy::sched::packet::{Backlog, PathView};
use units::{Bytes, Span, Time};
use wire::ptcp::{Body, Packet, Reply, StreamData};

use super::bounds::MAX_COPIES;
use super::{Connection, Event, State, Transmit};
use crate::path::{Binding, Control, Life, Path};
use crate::receipts::stamp_of;
use crate::stream::send::Piece;
use crate::subflow::Subflow;

/// Packets of another path that are looked at for one that is worth repeating.
const LOOK: usize = 64;
/// How often a path over which no acknowledgements come is asked for one.
const DEAF: Span = Span::from_secs(1);
/// How much slower a path has to be before what it holds up is repeated and its window cut.
const SLOWER: u64 = 4;

/// What waits in the streams.
struct Waiting {
    /// Whether anything is to be sent, or under way.
    is_busy: bool,
    /// The stream that the next packet is for: what was sent before goes first, then new data of
    /// streams in turns.
    next: Option<u32>,
    backlog: Backlog,
}

impl Connection {
    /// The next packet to send. Call it until there is none, after everything else.
    #[inline]
    pub fn poll_send(&mut self, now: Time) -> Option<Transmit> {
        match self.state {
            State::Closed => return None,
            State::Closing { .. } => return self.poll_close(now),
            State::Opening | State::Open => {}
        }
        if let Some(transmit) = self.poll_ack(now) {
            return Some(transmit);
        }
        if self.has_chores {
            if let Some(transmit) = self.poll_chore(now) {
                return Some(transmit);
            }
            // What found no room waits for it.
            self.has_chores = !self.controls.is_empty() || !self.datagrams.is_empty();
        }
        if self.state == State::Open { self.poll_data(now) } else { None }
    }

    fn poll_close(&mut self, now: Time) -> Option<Transmit> {
        let State::Closing { code, is_told: false } = self.state else {
            self.state = State::Closed;
            return None;
        };
        self.state = State::Closing { code, is_told: true };
        let id = self.paths.iter().find(|path| path.subflow().is_some())?.id;
        self.emit(now, id, Body::Close { code })
    }

    /// An acknowledgement that is due: over the path that the sender named, or over all.
    #[inline]
    fn poll_ack(&mut self, now: Time) -> Option<Transmit> {
        while let Some(index) = self.paths.iter().position(|path| path.receipts.due(now).is_some())
        {
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
        let reply = path.receipts.due(now)?;
        let mut ack = path.receipts.ack(now, id)?;
        ack.stream = path.receipts.stream();
        path.receipts.settle();
        ack.delivered =
            self.receiving.get(&ack.stream).map_or(0, crate::stream::recv::RecvStream::next);
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
        if self.path(over).is_some_and(|path| self.is_tired(path)) {
            return None;
        }
        match reply {
            Reply::Path(_) => self.emit(now, over, body),
            Reply::All => {
                for other in 0..self.paths.len() {
                    let other = &self.paths[other];
                    if other.id != id && other.subflow().is_some() && self.copies.len() < MAX_COPIES
                    {
                        self.copies.push((other.id, ack));
                    }
                }
                self.has_chores = true;
                self.emit(now, id, body)
            }
        }
    }

    /// Everything but data and acknowledgements.
    fn poll_chore(&mut self, now: Time) -> Option<Transmit> {
        while let Some((id, ack)) = self.copies.pop() {
            if let Some(transmit) = self.emit(now, id, Body::Ack(ack)) {
                return Some(transmit);
            }
        }
        if let Some(transmit) = self.poll_opening(now) {
            return Some(transmit);
        }
        if self.state != State::Open {
            return None;
        }
        if let Some(index) =
            self.paths.iter().position(|path| path.probes > 0 && path.subflow().is_some())
        {
            self.paths[index].probes -= 1;
            return Some(self.probe(now, index));
        }
        self.poll_control(now).or_else(|| self.poll_datagram(now))
    }

    /// A packet over a silent path, whatever its window says: a copy of what is wanted most (the
    /// paper's redundant striping).
    fn probe(&mut self, now: Time, index: usize) -> Transmit {
        let room = Packet::room_for_data(self.paths[index].datagram.min(self.config.datagram)).0;
        let waiting = self.sending.iter_mut().find(|(_, sending)| sending.has_unbound());
        if let Some((stream, sending)) = waiting
            && let Some((piece, _)) = sending.take(room, 0, true)
        {
            let stream = *stream;
            return self.transmit_piece(now, index, stream, piece, Reply::All);
        }
        let oldest = match &mut self.paths[index].life {
            Life::Open(subflow) => {
                subflow.bound().find_map(|(_, binding, is_unbound)| match binding {
                    Binding::Data { stream, offset, len, is_last } if u64::from(len) <= room => {
                        *is_unbound = true;
                        Some((stream, Piece { offset, len, is_last }))
                    }
                    _ => None,
                })
            }
            Life::Opening(_) => None,
        };
        match oldest {
            Some((stream, piece)) => self.transmit_piece(now, index, stream, piece, Reply::All),
            None => self.transmit(now, index, Body::Ping { padding: 0, reply: Reply::All }, None),
        }
    }

    /// What has to arrive goes over the fastest path that has room.
    fn poll_control(&mut self, now: Time) -> Option<Transmit> {
        if self.controls.is_empty() {
            return None;
        }
        let index = self.best_with_room(now, |_| true)?;
        while let Some(control) = self.controls.pop_front() {
            let body = match control {
                Control::StreamWindow { stream } => {
                    let Some(receiving) = self.receiving.get(&stream) else { continue };
                    Body::StreamWindow { stream, limit: receiving.told() }
                }
                Control::Need => Body::Need { buffer: self.asked_buffer() },
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

    /// Data, over the path that the scheduler picks among those with room.
    #[inline]
    fn poll_data(&mut self, now: Time) -> Option<Transmit> {
        self.wake = None;
        let credit = self.flow.credit();
        let waiting = self.waiting(credit);
        if !waiting.is_busy {
            // As at the end that only receives.
            return None;
        }
        let has_room = self.look(now);
        if has_room
            && self.scheduler.is_redundant()
            && let Some(transmit) = self.poll_copy(now)
        {
            return Some(transmit);
        }
        let Some(stream) = waiting.next else {
            return self.poll_idle(now, has_room, credit);
        };
        if !has_room {
            self.note_wake(now);
            return None;
        }
        let Some(picked) = self.scheduler.pick(now, &self.views, &waiting.backlog) else {
            self.note_wake(now);
            return None;
        };
        let id = self.views[picked].id;
        let index = self
            .paths
            .iter()
            .position(|path| path.subflow().is_some_and(|subflow| subflow.id() == id))?;
        let room = Packet::room_for_data(self.paths[index].datagram).0;
        let sending = self.sending.get_mut(&stream).expect("it was found there");
        let (piece, new) = sending.take(room, credit, false)?;
        self.flow.handle_sent(new);
        self.turn = stream;
        if self.scheduler.is_redundant() {
            self.note_copied(index, stream, piece);
        }
        let reply = self.reply(now, index);
        Some(self.transmit_piece(now, index, stream, piece, reply))
    }

    /// Where each path carries everything: what others have sent of a stream and a path with room
    /// has not, before anything new.
    fn poll_copy(&mut self, now: Time) -> Option<Transmit> {
        let Connection { paths, sending, views, .. } = self;
        let mut best: Option<(Span, usize, u32, Piece)> = None;
        for view in views.iter().filter(|view| view.has_room) {
            let is_it = |path: &Path| path.subflow().is_some_and(|subflow| subflow.id() == view.id);
            let Some(index) = paths.iter().position(is_it) else { continue };
            let path = &mut paths[index];
            path.copied.retain(|stream, _| sending.contains_key(stream));
            let room = Packet::room_for_data(path.datagram).0;
            let owed = sending.iter_mut().find_map(|(stream, sending)| {
                let from = path.copied.get(stream).copied().unwrap_or(0);
                Some((*stream, sending.copy(from, room)?))
            });
            if let Some((stream, piece)) = owed
                && best.is_none_or(|(fastest, ..)| view.smoothed_rtt < fastest)
            {
                best = Some((view.smoothed_rtt, index, stream, piece));
            }
        }
        let (_, index, stream, piece) = best?;
        self.note_copied(index, stream, piece);
        let reply = self.reply(now, index);
        Some(self.transmit_piece(now, index, stream, piece, reply))
    }

    fn note_copied(&mut self, index: usize, stream: u32, piece: Piece) {
        let end = self.paths[index].copied.entry(stream).or_default();
        *end = (*end).max(piece.offset + u64::from(piece.len));
    }

    /// Looks at all paths for the scheduler. Returns whether one has room.
    #[inline]
    fn look(&mut self, now: Time) -> bool {
        let Connection { paths, views, controller, .. } = self;
        views.clear();
        let mut has_room = false;
        let is_alone = !paths.iter().any(super::Path::is_live);
        for path in paths.iter_mut() {
            let allows = path.allows(1_500);
            let Life::Open(subflow) = &mut path.life else { continue };
            // A silent path carries probes only, unless there is no other.
            if subflow.is_silent() && !is_alone {
                continue;
            }
            let allowance = controller.allowance(subflow.id());
            let is_in_slow_start = subflow.is_in_slow_start(&allowance, controller.as_ref());
            let room = allows && subflow.has_room(now, &allowance, is_in_slow_start);
            has_room |= room;
            views.push(PathView {
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

    /// Looks at all streams, once for each packet.
    #[inline]
    fn waiting(&self, credit: u64) -> Waiting {
        let mut waiting = Waiting {
            is_busy: false,
            next: None,
            backlog: Backlog { credit: Bytes(credit), ..Backlog::default() },
        };
        let (mut again, mut behind, mut first) = (None, None, None);
        for (&id, sending) in &self.sending {
            waiting.is_busy |= sending.is_busy();
            waiting.backlog.unsent += Bytes(sending.unsent());
            waiting.backlog.outstanding += Bytes(sending.next() - sending.delivered());
            if sending.has_unbound() {
                again.get_or_insert(id);
            }
            if sending.is_ready(credit) {
                first.get_or_insert(id);
                if id > self.turn {
                    behind.get_or_insert(id);
                }
            }
        }
        waiting.next = again.or(behind).or(first);
        waiting
    }

    /// Something is to be sent and paths are paced: when the first of them lets a packet out.
    fn note_wake(&mut self, now: Time) {
        let held = self.paths.iter().filter_map(|path| path.subflow()?.held_until());
        // Those that were not looked at say how it was before.
        self.wake = held.filter(|at| *at > now).min();
    }

    /// There is nothing new to send. Paths with room repeat what slower ones still owe.
    fn poll_idle(&mut self, now: Time, has_room: bool, credit: u64) -> Option<Transmit> {
        let is_blocked = self.sending.values().any(|sending| sending.is_blocked(credit));
        let in_flight: Bytes =
            self.paths.iter().filter_map(|path| Some(path.subflow()?.in_flight())).sum();
        if is_blocked && in_flight == Bytes::ZERO && self.persist.is_none() {
            // Nothing is under way that would bring news of the window.
            let wait =
                self.paths.iter().filter_map(|path| Some(path.subflow()?.timeout())).max()?;
            self.persist = Some(now + wait);
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
                let has_room = |view: &PathView| {
                    view.has_room && Some(view.id) == path.subflow().map(Subflow::id)
                };
                if self.views.iter().any(has_room)
                    && let Some((stream, piece)) = self.owed_by_others(now, index, is_refused)
                {
                    let reply = self.reply(now, index);
                    return Some(self.transmit_piece(now, index, stream, piece, reply));
                }
            }
        }
        // Neither windows that the application leaves unused nor those that the peer's buffer does
        // may grow.
        for view in self.views.iter().filter(|view| view.has_room) {
            let mut open = self.paths.iter_mut().filter_map(super::Path::subflow_mut);
            if let Some(subflow) = open.find(|subflow| subflow.id() == view.id) {
                subflow.note_idle();
            }
        }
        None
    }

    /// What another path has sent and this one could deliver sooner (opportunistic retransmission,
    /// Raiciu et al. 2012). If flow control waits for it and the peer has no larger buffer, the
    /// path that holds it up is slowed down, where it is very slow.
    fn owed_by_others(
        &mut self,
        now: Time,
        index: usize,
        is_refused: bool,
    ) -> Option<(u32, Piece)> {
        let Connection { paths, sending, controller, .. } = self;
        let own = paths[index].subflow()?.round_trip();
        let room = Packet::room_for_data(paths[index].datagram).0;
        let mut best: Option<(usize, u64, u32, Piece)> = None;
        for (other, path) in paths.iter_mut().enumerate().filter(|(other, _)| *other != index) {
            let Life::Open(subflow) = &mut path.life else { continue };
            // The average is late where a queue grows.
            let theirs = subflow.round_trip().max(subflow.rtt().latest());
            // To wait for longer than a repetition takes gains nothing.
            let slack = (subflow.rtt().variation() + subflow.rtt().variation()).min(own);
            for (sent_at, binding, _) in subflow.bound().take(LOOK) {
                let Binding::Data { stream, offset, len, is_last } = binding else { continue };
                let piece = Piece { offset, len, is_last };
                let is_owed =
                    sending.get(&stream).is_some_and(|sending| !sending.has_arrived(piece));
                // When its acknowledgement would come, here and there; one that is overdue may
                // never come.
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
        let Life::Open(subflow) = &mut paths[other].life else { return None };
        let theirs = subflow.round_trip();
        for (_, binding, is_unbound) in subflow.bound() {
            // Several may begin there: the rest of a piece of which part arrived is one of its own.
            if binding == owed {
                *is_unbound = true;
                break;
            }
        }
        if is_refused && theirs.as_nanos() > SLOWER * own.as_nanos() {
            subflow.penalise(now, controller.as_mut());
        }
        Some((stream, piece))
    }

    /// A packet with a piece of a stream leaves.
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

    /// A packet that wants an acknowledgement leaves.
    #[inline]
    fn transmit(
        &mut self,
        now: Time,
        index: usize,
        body: Body,
        binding: Option<Binding>,
    ) -> Transmit {
        let Connection { paths, controller, skip_in, tokens, .. } = self;
        let path = &mut paths[index];
        let mut packet = Packet { number: 0, body };
        let bytes = packet.datagram_len();
        path.handle_sent(bytes);
        let Life::Open(subflow) = &mut path.life else {
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

    /// The fastest path with room among those that will do.
    fn best_with_room(&mut self, now: Time, will_do: impl Fn(&Path) -> bool) -> Option<usize> {
        if !self.look(now) {
            self.note_wake(now);
            return None;
        }
        let place = |view: &PathView| {
            let is_it = |path: &Path| {
                path.subflow().is_some_and(|subflow| subflow.id() == view.id) && will_do(path)
            };
            Some((view.smoothed_rtt, self.paths.iter().position(is_it)?))
        };
        let with_room = self.views.iter().filter(|view| view.has_room).filter_map(place);
        // The first of equals.
        with_room.min_by_key(|(rtt, _)| *rtt).map(|(_, index)| index)
    }

    /// Where the acknowledgement of a packet over this path is to go: over the fastest path on
    /// which they come.
    #[inline]
    fn reply(&mut self, now: Time, index: usize) -> Reply {
        let path = &mut self.paths[index];
        if path.is_deaf && path.deaf_until <= now {
            // Perhaps they come over it again: the answer is heard, over this path or another.
            path.deaf_until = now + DEAF;
            return Reply::All;
        }
        let named = self.reply_path().unwrap_or(self.paths[index].id);
        self.named = Some(named);
        Reply::Path(named)
    }

    /// See [`Connection::reply`]; `None` if no path is known to work.
    #[inline]
    pub(super) fn reply_path(&self) -> Option<u16> {
        let live = self.paths.iter().filter(|path| path.is_live() && !path.is_deaf);
        live.min_by_key(|path| path.subflow().map(Subflow::shortest_round_trip)).map(|path| path.id)
    }
}

fn half(span: Span) -> Span {
    Span::from_nanos(span.as_nanos() / 2)
}
