//! A path over which data go out and acknowledgements come in.

use std::sync::Arc;

use net::counters::TcpInfo;
use peer::ConnError;
use transfer::Extent;
use units::{Bytes, Rate, Span, Time};
use wire::Frame;
use wire::frame::{AbortCode, DataHeader};

use super::{Direction, HeldTime, Moved, PathIo, acknowledge, refuse};
use crate::Error;
use crate::dial::session::{Report, Session};
use crate::protocol::error_of;
use crate::source::{Buffer, Supply};

/// Unsent data in a socket, as time at the path's rate: enough to cover wake-ups and no more,
/// because data in the kernel cannot move to another path.
const UNSENT: Span = Span::from_millis(30);
/// Bounds of that amount.
const UNSENT_LEAST: Bytes = Bytes::kib(8);
const UNSENT_MOST: Bytes = Bytes::mib(1);

/// The flow of data away from this host.
pub(in crate::dial) struct Outgoing {
    supply: Arc<Supply>,
    buffer: Buffer,
    header: Vec<u8>,
}

impl Outgoing {
    pub(in crate::dial) fn new(supply: Arc<Supply>) -> Outgoing {
        Outgoing { supply, buffer: Buffer::default(), header: Vec::new() }
    }
}

impl Direction for Outgoing {
    const SENDS: bool = true;

    fn take_in(&mut self, io: &mut PathIo<'_>) -> Result<bool, ConnError> {
        let PathIo { session, facts, conn, in_flight, .. } = io;
        let heard = conn.try_fill(wire::frame::MAX_BODY)? > 0;
        let mut pong = None;
        while let Some(frame) = conn.next_frame()? {
            match frame {
                Frame::Ack(ranges) => acknowledge(session, facts, in_flight, &ranges)?,
                Frame::Refused(range) => refuse(session, range)?,
                Frame::Ping(number) => pong = Some(number),
                Frame::Joined | Frame::Pong(_) => {}
                Frame::ObjectDone(object, root) => session.report(Report::ObjectDone(object, root)),
                Frame::Done(micros) => session.report(Report::Done(micros)),
                Frame::Abort(AbortCode::Crowded, text) => return Err(ConnError::Refused(text)),
                Frame::Abort(code, text) => {
                    session.report(refusal(code, text));
                    return Err(ConnError::Closed);
                }
                other => return Err(ConnError::Unexpected(String::from(&other))),
            }
        }
        if let Some(number) = pong {
            conn.push(&Frame::Pong(number));
        }
        Ok(heard)
    }

    fn room(&self, io: &PathIo<'_>, now: Time) -> Result<Result<Bytes, Option<Time>>, ConnError> {
        let room = (io.rate * UNSENT).clamp(UNSENT_LEAST, UNSENT_MOST);
        let unsent = Bytes(io.conn.unsent()?);
        if unsent >= room {
            let drain = (unsent - Bytes(room.0 / 2)) / io.rate;
            return Ok(Err(Some(now + drain.clamp(Span::from_millis(1), Span::from_millis(40)))));
        }
        Ok(Ok(Bytes(room.0 / 2)))
    }

    fn transmit(&mut self, io: &mut PathIo<'_>, extent: Extent) -> Result<Bytes, ConnError> {
        let (range, cv) = match self.supply.read(extent, &mut self.buffer) {
            Ok(read) => read,
            Err(error) => {
                let code = match error {
                    Error::SourceChanged { .. } => AbortCode::Integrity,
                    _ => AbortCode::Stopped,
                };
                io.conn
                    .push(&Frame::Abort(code, "the sender cannot read its file any more".into()));
                io.conn.try_flush()?;
                io.session.report(Report::Fatal(error));
                return Err(ConnError::Closed);
            }
        };
        self.header.clear();
        let hash = cv.as_ref().map(|cv| &cv.0);
        DataHeader::emit(extent.start, hash, range.len(), &mut self.header);
        io.conn.push_parts(&self.header, &self.buffer.bytes()[range]);
        Ok(Bytes(extent.len))
    }

    fn sample(&mut self, _session: &Session, _now: Time, info: &TcpInfo) -> Moved {
        let rate = (info.delivery_rate > 0).then(|| Rate::from_bytes(info.delivery_rate));
        Moved { bytes: Bytes(info.bytes_acked), unsent: Bytes(info.unsent), rate }
    }

    fn held(&self, info: &TcpInfo) -> HeldTime {
        HeldTime {
            by_send_buffer: info.held_by_send_buffer.into(),
            by_receiver: info.held_by_receiver.into(),
        }
    }

    fn notified(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// The report to the driver for a receiver's [`Frame::Abort`].
pub(in crate::dial) fn refusal(code: AbortCode, text: String) -> Report {
    match code {
        AbortCode::NoSession => Report::SessionGone,
        code => Report::Fatal(error_of(code, text)),
    }
}
