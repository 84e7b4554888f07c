//! The one list of codes with which a side ends something: a striped connection, a stream of it, a
//! tunnel, a session. Messages to people are made from it, and the table of `docs/wire.md` is.
//!
//! Codes below 0x300 are those of striped connections and of their streams, in four octets. Those
//! from 0x300 on are of sessions: an abort frame carries the lowest octet, and a text beside it.

/// Why a side ends something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "each row of the list has a name and a sentence")]
pub enum CloseCode {
    Done = 0,
    Acknowledged = 0x101,
    Delivered = 0x102,
    Window = 0x103,
    StreamEnd = 0x104,
    StreamNumber = 0x105,
    PathNumber = 0x106,
    PacketNumber = 0x107,
    Idle = 0x110,
    Crowded = 0x111,
    Protection = 0x112,
    Narrow = 0x113,
    Unwelcome = 0x120,
    Changed = 0x204,
    Replaced = 0x205,
    Protocol = 0x206,
    Stopped = 0x207,
    Reset = 0x208,
    Refused = 0x300,
    Exists = 0x301,
    NoSpace = 0x302,
    Disk = 0x303,
    Integrity = 0x304,
    BrokeProtocol = 0x305,
    WasStopped = 0x306,
    NoSession = 0x307,
    Source = 0x308,
    SourceChanged = 0x309,
    CrowdedSession = 0x30a,
    Busy = 0x30b,
    NoService = 0x30c,
}

/// A row of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The code.
    pub code: CloseCode,
    /// Its name, for logs and the table.
    pub name: &'static str,
    /// What it says, as a clause behind a colon.
    pub sentence: &'static str,
}

const fn row(code: CloseCode, name: &'static str, sentence: &'static str) -> Closing {
    Closing { code, name, sentence }
}

/// All of them, in the order of their codes.
pub const LIST: [Closing; 31] = [
    row(CloseCode::Done, "done", "it is done"),
    row(
        CloseCode::Acknowledged,
        "acknowledged",
        "this side acknowledged a packet that was never sent",
    ),
    row(CloseCode::Delivered, "delivered", "this side acknowledged data that was never sent"),
    row(CloseCode::Window, "window", "this side sent more than flow control allows"),
    row(CloseCode::StreamEnd, "stream-end", "this side changed the end of a stream"),
    row(CloseCode::StreamNumber, "stream-number", "this side opened a stream that it may not"),
    row(CloseCode::PathNumber, "path-number", "this side opened a path that it may not"),
    row(CloseCode::PacketNumber, "packet-number", "this side used too large a packet number"),
    row(CloseCode::Idle, "idle", "it has heard nothing of this side for too long"),
    row(
        CloseCode::Crowded,
        "crowded",
        "it has as many connections as it takes: a later attempt may get in",
    ),
    row(CloseCode::Protection, "protection", "this side broke the rules of packet protection"),
    row(CloseCode::Narrow, "narrow", "the line of the last path carries no 1,200 octets"),
    row(CloseCode::Unwelcome, "unwelcome", "it has not let this side in, or does so no longer"),
    row(
        CloseCode::Changed,
        "changed",
        "the rights of this host have changed there: it is let in again if it has any",
    ),
    row(CloseCode::Replaced, "replaced", "this host has opened further connections to it"),
    row(CloseCode::Protocol, "protocol", "this side broke the protocol"),
    row(CloseCode::Stopped, "stopped", "it was stopped"),
    row(CloseCode::Reset, "reset", "the connection that the stream carried was reset"),
    row(CloseCode::Refused, "refused", "refused"),
    row(CloseCode::Exists, "exists", "the target exists"),
    row(CloseCode::NoSpace, "no-space", "no space"),
    row(CloseCode::Disk, "disk", "disk error"),
    row(CloseCode::Integrity, "integrity", "integrity"),
    row(CloseCode::BrokeProtocol, "broke-protocol", "protocol"),
    row(CloseCode::WasStopped, "was-stopped", "stopped"),
    row(CloseCode::NoSession, "no-session", "unknown session"),
    row(CloseCode::Source, "source", "not readable"),
    row(CloseCode::SourceChanged, "source-changed", "the source changed"),
    row(CloseCode::CrowdedSession, "crowded-session", "too many connections"),
    row(CloseCode::Busy, "busy", "busy"),
    row(CloseCode::NoService, "no-service", "no such service"),
];

impl Closing {
    /// The row of a code.
    ///
    /// # Panics
    /// Never: all are listed.
    #[must_use]
    pub fn of(code: CloseCode) -> &'static Closing {
        LIST.iter().find(|row| row.code == code).expect("all are listed")
    }

    /// The row of a number, if it is one of these codes.
    #[must_use]
    pub fn of_number(code: u32) -> Option<&'static Closing> {
        LIST.iter().find(|row| row.code.number() == code)
    }
}

impl CloseCode {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

impl core::fmt::Display for Closing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.sentence)
    }
}
