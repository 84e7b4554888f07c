//! A path by which data go out and acknowledgements come in.

use transfer::Extent;
use units::{Bytes, Span, Time};
use wire::Frame;
use wire::frame::{AbortCode, DataHeader};

use super::{Carrier, Way, acknowledge, refuse, report};
use crate::Error;
use crate::conn::ConnError;
use crate::send::session::{Report, refusal};
use crate::send::source::{Buffer, Supply};

/// How much unsent data a socket may hold, as time at the path's rate: it covers our wake-ups, and
/// no more, since what the kernel holds can't be given to another path.
const UNSENT: Span = Span::from_millis(30);
/// Bounds of that amount.
const UNSENT_LEAST: Bytes = Bytes::kib(8);
const UNSENT_MOST: Bytes = Bytes::mib(1);

/// What it takes to send.
pub(super) struct Outward<'a> {
    supply: &'a Supply,
    buffer: Buffer,
    header: Vec<u8>,
}

impl<'a> Outward<'a> {
    pub(super) fn new(supply: &'a Supply) -> Outward<'a> {
        Outward { supply, buffer: Buffer::default(), header: Vec::new() }
    }
}

impl Carrier<'_> {
    /// Takes in what the receiver says. Returns whether it said anything.
    pub(super) fn take_acknowledgements(&mut self) -> Result<bool, ConnError> {
        let heard = self.conn.try_fill(wire::frame::MAX_BODY)? > 0;
        let session = self.session;
        let mut pong = None;
        while let Some(frame) = self.conn.next_frame()? {
            match frame {
                Frame::Ack(ranges) => acknowledge(session, self.id, self.facts, &ranges)?,
                Frame::Refused(range) => refuse(session, range)?,
                Frame::Ping(number) => pong = Some(number),
                Frame::Joined | Frame::Pong(_) => {}
                Frame::ObjectDone(object, root) => {
                    report(session, Report::ObjectDone(object, root))
                }
                Frame::Done(micros) => report(session, Report::Done(micros)),
                Frame::Abort(code, text) => {
                    report(session, refusal(code, text));
                    return Err(ConnError::Closed);
                }
                other => return Err(ConnError::Unexpected(String::from(&other))),
            }
        }
        if let Some(number) = pong {
            self.conn.push(&Frame::Pong(number));
        }
        Ok(heard)
    }

    /// How much to send at once, as long as the kernel does not hold too much.
    pub(super) fn room_to_send(&self, now: Time) -> Result<Result<Bytes, Option<Time>>, ConnError> {
        let room = (self.rate * UNSENT).clamp(UNSENT_LEAST, UNSENT_MOST);
        let unsent = Bytes(sys::sockopt::unsent(self.conn.stream())?);
        if unsent >= room {
            let drain = (unsent - Bytes(room.0 / 2)) / self.rate;
            return Ok(Err(Some(now + drain.clamp(Span::from_millis(1), Span::from_millis(40)))));
        }
        Ok(Ok(Bytes(room.0 / 2)))
    }

    pub(super) fn send_extent(&mut self, extent: Extent) -> Result<(), ConnError> {
        let Way::Out(Outward { supply, buffer, header }) = &mut self.way else {
            unreachable!("it sends")
        };
        let (range, cv) = match supply.read(extent, buffer) {
            Ok(read) => read,
            Err(error) => {
                let code = match error {
                    Error::SourceChanged { .. } => AbortCode::Integrity,
                    _ => AbortCode::Stopped,
                };
                self.conn
                    .push(&Frame::Abort(code, "the sender cannot read its file any more".into()));
                self.conn.try_flush()?;
                report(self.session, Report::Fatal(error));
                return Err(ConnError::Closed);
            }
        };
        header.clear();
        DataHeader::emit(extent.start, cv.as_ref().map(|cv| &cv.0), range.len(), header);
        self.conn.push_parts(header, &buffer.bytes()[range]);
        Ok(())
    }
}
