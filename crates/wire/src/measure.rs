//! The frames of a measurement. Behind its hello the side that dials sends a [`Measure`]; both
//! sides may then send [`Probe`](crate::session::SessionFrame::Probe), and at the end of the time
//! the other side answers [`Measured`]. No session opens.

use alloc::vec::Vec;

use crate::frame::{Emit, FrameKind, RawFrame, WireError};
use crate::reader::Reader;
use crate::session::SessionFrame;

/// The name of the service.
pub const SERVICE: &str = "measure";

/// A measurement of a connection, asked for by the side that dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Its length in microseconds.
    pub micros: u64,
    /// Whether the other side sends probes for so long.
    pub sends: bool,
}

/// What the other side counted during a [`Measure`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Bytes of probes that arrived.
    pub received: u64,
    /// Packets of probes that it sent again, on this connection or the one that carries it.
    pub sent_again: u64,
    /// The time that its program had a processor, in microseconds.
    pub cpu_micros: u64,
}

/// A frame of a connection that measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeasureFrame<'a> {
    /// One that every session has.
    Session(SessionFrame<'a>),
    /// The first frame behind the hello: both sides may send probes.
    Measure(Measure),
    /// The answer at the end of the time.
    Measured(Measured),
}

impl Emit for MeasureFrame<'_> {
    fn kind(&self) -> FrameKind {
        match self {
            MeasureFrame::Session(frame) => frame.kind(),
            MeasureFrame::Measure(_) => FrameKind::Measure,
            MeasureFrame::Measured(_) => FrameKind::Measured,
        }
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        match self {
            MeasureFrame::Session(frame) => frame.emit_body(out),
            MeasureFrame::Measure(Measure { micros, sends }) => {
                out.push(u8::from(*sends));
                out.extend_from_slice(&micros.to_be_bytes());
            }
            MeasureFrame::Measured(Measured { received, sent_again, cpu_micros }) => {
                for number in [received, sent_again, cpu_micros] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
            }
        }
    }
}

impl<'a> TryFrom<RawFrame<'a>> for MeasureFrame<'a> {
    type Error = WireError;

    fn try_from(raw: RawFrame<'a>) -> Result<MeasureFrame<'a>, WireError> {
        let mut reader = Reader::new(raw.kind.name(), raw.body);
        let parsed = match raw.kind {
            FrameKind::Measure => {
                let sends = reader.flag()?;
                MeasureFrame::Measure(Measure { micros: reader.u64()?, sends })
            }
            FrameKind::Measured => {
                let (received, sent_again) = (reader.u64()?, reader.u64()?);
                MeasureFrame::Measured(Measured { received, sent_again, cpu_micros: reader.u64()? })
            }
            _ => return SessionFrame::try_from(raw).map(MeasureFrame::Session),
        };
        reader.finish(parsed)
    }
}
