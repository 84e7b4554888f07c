//! A path over which data go out and acknowledgements come in.

use std::sync::Arc;

use net::counters::TcpInfo;
use peer::dial::PlanKind;
use peer::{Conn, ConnError};
use transfer::{BLOCK, Extent};
use units::{Bytes, Rate, Span, Time};
use wire::files::FileFrame;
use wire::files::{Grown, Range};
use wire::session::{AbortCode, SessionFrame, Welcome};

use super::{Direction, HeldTime, Moved, PathIo, acknowledge, beyond_pings, refuse};
use crate::Error;
use crate::blocking::run_in_place;
use crate::compress::{Carried, Compressor, frame};
use crate::dial::session::{Report, Session};
use crate::protocol::error_of;
use crate::source::{Buffer, Supply};

/// Unsent data in a socket, as time at the path's rate: enough to cover wake-ups and no more,
/// because data in the kernel cannot move to another path.
const UNSENT: Span = Span::from_millis(30);
/// Bounds of that amount.
const UNSENT_LEAST: Bytes = Bytes::kib(8);
const UNSENT_MOST: Bytes = Bytes::mib(1);

/// The same in a stream of a carrier with several routes, which moves what is unsent to any of
/// them: slow start must not wait for the next look at its rate.
const UNSENT_OF_ROUTES: Bytes = Bytes::kib(256);

/// The flow of data away from this host.
pub(in crate::dial) struct Outgoing {
    supply: Arc<Supply>,
    buffer: Buffer,
    header: Vec<u8>,
    compressor: Compressor,
    carried: Carried,
    /// The size of the stream as it was told on this connection.
    told: Option<Grown>,
    /// The number of changed files that were told of on this connection.
    told_changes: usize,
}

impl Outgoing {
    pub(in crate::dial) fn new(supply: Arc<Supply>) -> Outgoing {
        let (buffer, header, compressor) = (Buffer::default(), Vec::new(), supply.compressor());
        let carried = Carried::default();
        Outgoing { supply, buffer, header, compressor, carried, told: None, told_changes: 0 }
    }

    /// Tells the receiver how far the stream has grown, if `extent` lies beyond what it knows, or
    /// the stream has ended.
    fn tell_growth(&mut self, io: &mut PathIo<'_>, extent: Extent) {
        let Some(stream) = self.supply.source().as_stream() else { return };
        let size = stream.size();
        let room = self.told.map_or(0, |told| told.size);
        if self.told != Some(size) && (extent.end() > room || size.is_end) {
            io.conn.push(&FileFrame::Grown(size));
            self.told = Some(size);
        }
    }

    /// Handles acknowledgements: what the receiver has of a stream need not be kept.
    fn acknowledge(&self, io: &mut PathIo<'_>, ranges: &[Range]) -> Result<(), ConnError> {
        acknowledge(io.session, io.facts, io.in_flight, ranges)?;
        let Some(stream) = self.supply.source().as_stream() else { return Ok(()) };
        let core = io.session.core();
        for range in ranges {
            for block in blocks(*range) {
                if core.layout().block_extent(block).is_some_and(|extent| core.is_acked(extent)) {
                    stream.release(block);
                }
            }
        }
        Ok(())
    }

    /// Handles a refusal.
    fn refuse(&self, io: &mut PathIo<'_>, range: Range) -> Result<(), ConnError> {
        refuse(io.session, range)?;
        let Some(stream) = self.supply.source().as_stream() else { return Ok(()) };
        for block in blocks(range) {
            if let Err(error) = stream.reclaim(block) {
                io.session.report(Report::Fatal(error));
                return Err(ConnError::Over);
            }
        }
        Ok(())
    }
}

impl Direction for Outgoing {
    const SENDS: bool = true;

    fn take_in(&mut self, io: &mut PathIo<'_>) -> Result<bool, ConnError> {
        self.tell_growth(io, Extent::new(0, 0));
        tell_changes(&self.supply, &mut self.told_changes, io);
        let heard = io.conn.try_fill(wire::frame::MAX_BODY)? > 0;
        let mut pong = None;
        while let Some(frame) = io.conn.next_frame()? {
            let session = io.session;
            match FileFrame::try_from(frame)? {
                FileFrame::Ack(ranges) => self.acknowledge(io, &ranges)?,
                FileFrame::Refused(range) => self.refuse(io, range)?,
                FileFrame::Grant(positions) => self.supply.grant(positions),
                FileFrame::Session(SessionFrame::Ping(number)) => pong = Some(number),
                FileFrame::Session(SessionFrame::Pong(number)) => {
                    let (now, path) = (session.clock.now(), io.facts.path.id);
                    if number == 0 {
                        // It answers no ping: a disk holds the receiver up.
                        session.core().handle_alive(now, path);
                        session.signs.note_moved(now);
                    } else {
                        session.core().handle_answer(now, path);
                    }
                }
                FileFrame::Session(SessionFrame::Joined) => {}
                FileFrame::Session(SessionFrame::Welcome(Welcome { addresses, .. })) => {
                    session.report(Report::Announced(io.facts.path.plan.host, addresses));
                }
                FileFrame::ObjectDone(object, root) => {
                    session.report(Report::ObjectDone(object, root));
                }
                FileFrame::Archived(archived) => session.report(Report::Archived(archived)),
                FileFrame::Done(micros) => session.report(Report::Done(micros)),
                FileFrame::Session(SessionFrame::Abort(AbortCode::Crowded, text)) => {
                    return Err(ConnError::Refused(text));
                }
                FileFrame::Session(SessionFrame::Abort(code, text)) => {
                    session.report(refusal(code, text));
                    return Err(ConnError::Closed);
                }
                other => return Err(ConnError::unexpected(&other)),
            }
        }
        if let Some(number) = pong {
            io.conn.push(&SessionFrame::Pong(number));
        }
        Ok(heard)
    }

    fn room(&self, io: &PathIo<'_>, now: Time) -> Result<Result<Bytes, Option<Time>>, ConnError> {
        let (room, longest) = if io.facts.path.plan.kind == PlanKind::Striped {
            (UNSENT_OF_ROUTES, Span::from_millis(5))
        } else {
            (
                (self.carried.sent_rate(io.rate) * UNSENT).clamp(UNSENT_LEAST, UNSENT_MOST),
                Span::from_millis(40),
            )
        };
        let unsent = Bytes(io.conn.unsent()?);
        if unsent >= room {
            let drain = (unsent - Bytes(room.0 / 2)) / self.carried.sent_rate(io.rate);
            return Ok(Err(Some(now + drain.clamp(Span::from_millis(1), longest))));
        }
        Ok(Ok(self.carried.data(Bytes(room.0 / 2))))
    }

    fn transmit(&mut self, io: &mut PathIo<'_>, extent: Extent) -> Result<Bytes, ConnError> {
        self.tell_growth(io, extent);
        let rate = self.carried.sent_rate(io.rate);
        let read = run_in_place(|| {
            let (range, cv) = self.supply.read(extent, &mut self.buffer)?;
            let data = &self.buffer.bytes()[range.clone()];
            Ok::<_, Error>((range, cv, self.compressor.compress(data, rate)))
        });
        let (range, cv, compressed) = match read {
            Ok(read) => read,
            Err(error) => {
                let code = match error {
                    Error::SourceChanged { .. } => AbortCode::Integrity,
                    _ => AbortCode::Stopped,
                };
                io.conn.push(&SessionFrame::Abort(
                    code,
                    "the sender cannot read its file any more".into(),
                ));
                io.conn.try_flush()?;
                io.session.report(Report::Fatal(error));
                return Err(ConnError::Over);
            }
        };
        self.header.clear();
        let hash = cv.as_ref().map(|cv| &cv.0);
        let data = &self.buffer.bytes()[range];
        let payload = frame(extent.start, hash, (data, compressed), &mut self.header);
        tell_changes(&self.supply, &mut self.told_changes, io);
        io.conn.push_parts(&self.header, payload);
        self.carried.note(Bytes(extent.len), Bytes(payload.len() as u64));
        Ok(Bytes(payload.len() as u64))
    }

    fn sample(&mut self, _session: &Session, _now: Time, info: &TcpInfo) -> Moved {
        let rate = (info.delivery_rate > 0).then(|| Rate::from_bytes(info.delivery_rate));
        // The scheduler goes by data as they are.
        Moved {
            bytes: self.carried.acked(beyond_pings(info.bytes_acked)),
            unsent: self.carried.data(Bytes(info.unsent)),
            rate: rate.map(|rate| self.carried.data_rate(rate)),
        }
    }

    fn held(&self, info: &TcpInfo) -> HeldTime {
        HeldTime {
            by_send_buffer: info.held_by_send_buffer.into(),
            by_receiver: info.held_by_receiver.into(),
        }
    }

    fn say_goodbye(&self, session: &Session, conn: &mut Conn) {
        if session.is_complete() {
            conn.push(&FileFrame::Done(0));
        }
    }

    fn notified(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Tells the receiver of files that changed, of which so many were told of; nothing more is sent of
/// those that are left out.
fn tell_changes(supply: &Supply, told: &mut usize, io: &mut PathIo<'_>) {
    let changes = supply.changes().since(*told);
    *told += changes.len();
    for change in changes {
        io.conn.push(&change.frame());
        let object = supply.packing().object_of_large(change.entry);
        if let Some(object) = object.filter(|_| change.left_out.is_some()) {
            let mut core = io.session.core();
            core.handle_left_out(io.session.clock.now(), object);
            io.session.wake(&mut core);
        }
    }
}

/// The blocks that a range touches.
fn blocks(range: Range) -> std::ops::Range<u64> {
    range.start / BLOCK..Extent::new(range.start, range.len).end().div_ceil(BLOCK)
}

/// The report to the driver for a receiver's [`SessionFrame::Abort`].
pub(in crate::dial) fn refusal(code: AbortCode, text: String) -> Report {
    match code {
        AbortCode::NoSession => Report::SessionGone,
        code => Report::Fatal(error_of(code, text)),
    }
}
