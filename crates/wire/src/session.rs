//! What every session has, whatever its service: how a connection begins and ends. Version 8.
//!
//! A connection begins with a [`Hello`], which names the service that it is for and carries that
//! service's own request. It is answered by [`Welcome`] at once, or by [`SessionFrame::Abort`]. A
//! connection that belongs to an open session begins with [`SessionFrame::Join`] instead. After its
//! `Hello` a connection may wait, with a [`SessionFrame::Ping`] now and then; it leaves the wait
//! with a `Join`, or by opening the session that its `Welcome` names. The frames that open the
//! session need not wait for the `Welcome`.
//!
//! The kinds of [`SessionFrame::Hello`], [`SessionFrame::Welcome`] and [`SessionFrame::Abort`], and
//! the place of the version, never change, so that hosts of different versions understand each
//! other's refusals.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::closing::{CloseCode, Closing};
use crate::effort::Effort;
use crate::frame::{Emit, FrameKind, RawFrame, WireError};
pub use crate::limits::{MAX_ADDRESSES, MAX_REQUEST, MAX_SERVICE, MAX_TEXT};
use crate::reader::Reader;

/// The protocol version that this code speaks.
pub const VERSION: u16 = 8;
/// The protocol's name in ALPN (RFC 7301).
pub const PROTOCOL: &[u8] = b"anabranch/1";
/// The name of the same protocol whose ends take [`SessionFrame::Effort`], and paths in the
/// background among [`Standings`](crate::asked::Standings): earlier ones of this version end a
/// connection over either, and do not know the name. Both ends know what was agreed on before the
/// first frame.
pub const WITH_EFFORTS: &[u8] = b"anabranch/1+efforts";
/// The service of every host that answers [probes](SessionFrame::Probe): to whoever may use another
/// one.
pub const PROBE: &str = "probe";

/// A session's name, drawn by the host that is dialed.
pub type SessionId = [u8; 16];
/// The name of one run of a dialing program, drawn by it: a later session of the same run takes the
/// place of an earlier one.
pub type RunId = [u8; 16];

/// The first frame of a connection that does not join a session at once.
///
/// | octets | field |
/// |---|---|
/// | 2 | version |
/// | 16 | run |
/// | 1, 16 | 1 and the token's secret, or 0 |
/// | 1, … | length and name of the service |
/// | … | the service's own request |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`VERSION`]. Of another version nothing else is known.
    pub version: u16,
    /// The run of the program that dials.
    pub run: RunId,
    /// The token's secret, if there is one.
    pub secret: Option<[u8; 16]>,
    /// The service that the connection is for: lower-case letters, at most [`MAX_SERVICE`].
    pub service: String,
    /// What is asked of it, in its own format: at most [`MAX_REQUEST`] octets.
    pub request: Vec<u8>,
}

impl Hello {
    /// The greeting of a program that speaks this version, without a request.
    #[must_use]
    pub fn new(service: &str, secret: Option<[u8; 16]>, run: RunId) -> Hello {
        Hello { version: VERSION, run, secret, service: service.into(), request: Vec::new() }
    }

    /// The same with a request.
    #[must_use]
    pub fn asking(self, request: Vec<u8>) -> Hello {
        Hello { request, ..self }
    }
}

/// The answer to [`Hello`], sent as soon as its peer is authorized. In an open session it may come
/// again, without a session's name: the addresses of the host have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// [`VERSION`].
    pub version: u16,
    /// The name of the session that the connection opens, if it opens one, for the other paths to
    /// join.
    pub session: SessionId,
    /// Addresses of this host, most useful first.
    pub addresses: Vec<SocketAddr>,
}

/// The reason for an abort; it decides the other side's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortCode {
    /// Not authenticated or not allowed.
    Refused,
    /// The target exists.
    Exists,
    /// The disk is too small.
    NoSpace,
    /// The disk failed.
    Disk,
    /// Hashes do not match, or the source changed.
    Integrity,
    /// The peer broke the protocol.
    Protocol,
    /// A person or a signal stopped it; the data received is kept.
    Stopped,
    /// The session named in a Join is unknown here.
    NoSession,
    /// The requested path does not exist or is not readable.
    Source,
    /// A file changed while it was being sent; the text is its path.
    Changed,
    /// The session named in a Join has as many connections as it may; it goes on without this one.
    Crowded,
    /// Other transfers take up what this host has for them; a later attempt may get in.
    Busy,
    /// The host has no service of the name; the text says what it does.
    NoService,
}

impl AbortCode {
    /// Its row in the list of codes.
    fn closing(self) -> CloseCode {
        match self {
            AbortCode::Refused => CloseCode::Refused,
            AbortCode::Exists => CloseCode::Exists,
            AbortCode::NoSpace => CloseCode::NoSpace,
            AbortCode::Disk => CloseCode::Disk,
            AbortCode::Integrity => CloseCode::Integrity,
            AbortCode::Protocol => CloseCode::BrokeProtocol,
            AbortCode::Stopped => CloseCode::WasStopped,
            AbortCode::NoSession => CloseCode::NoSession,
            AbortCode::Source => CloseCode::Source,
            AbortCode::Changed => CloseCode::SourceChanged,
            AbortCode::Crowded => CloseCode::CrowdedSession,
            AbortCode::Busy => CloseCode::Busy,
            AbortCode::NoService => CloseCode::NoService,
        }
    }
}

const ABORT_CODES: [AbortCode; 13] = [
    AbortCode::Refused,
    AbortCode::Exists,
    AbortCode::NoSpace,
    AbortCode::Disk,
    AbortCode::Integrity,
    AbortCode::Protocol,
    AbortCode::Stopped,
    AbortCode::NoSession,
    AbortCode::Source,
    AbortCode::Changed,
    AbortCode::Crowded,
    AbortCode::Busy,
    AbortCode::NoService,
];

impl core::fmt::Display for AbortCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(Closing::of(self.closing()).sentence)
    }
}

/// A frame of any session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionFrame<'a> {
    /// First on a connection that does not join a session at once.
    Hello(Hello),
    /// The session that the connection joins: the first frame, or the first after [`Welcome`].
    Join(SessionId),
    /// The answer to [`Hello`]; or other addresses of the host.
    Welcome(Welcome),
    /// The answer to `Join`.
    Joined,
    /// A request for a [`SessionFrame::Pong`] with the same number.
    Ping(u64),
    /// The answer to [`SessionFrame::Ping`].
    /// Unasked, with the number 0: the sender of the frame lives, and its disk holds it up.
    Pong(u64),
    /// The sending side gives up: the reason, and a text.
    Abort(AbortCode, String),
    /// Bytes that measure a path, where a service allows it; answered by [`SessionFrame::Pong`]
    /// with the bytes received so far.
    Probe(&'a [u8]),
    /// At any place behind the first frame, from either side: what is sent over the connection is
    /// to have this effort, in both directions. Only to a side that speaks [`WITH_EFFORTS`].
    Effort(Effort),
}

impl Emit for SessionFrame<'_> {
    fn kind(&self) -> FrameKind {
        match self {
            SessionFrame::Hello(_) => FrameKind::Hello,
            SessionFrame::Join(_) => FrameKind::Join,
            SessionFrame::Welcome(_) => FrameKind::Welcome,
            SessionFrame::Joined => FrameKind::Joined,
            SessionFrame::Ping(_) => FrameKind::Ping,
            SessionFrame::Pong(_) => FrameKind::Pong,
            SessionFrame::Abort(..) => FrameKind::Abort,
            SessionFrame::Probe(_) => FrameKind::Probe,
            SessionFrame::Effort(_) => FrameKind::Effort,
        }
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        match self {
            SessionFrame::Hello(hello) => emit_hello(hello, out),
            SessionFrame::Join(session) => out.extend_from_slice(session),
            SessionFrame::Welcome(welcome) => {
                out.extend_from_slice(&welcome.version.to_be_bytes());
                out.extend_from_slice(&welcome.session);
                for address in &welcome.addresses {
                    crate::address::write(address, out);
                }
            }
            SessionFrame::Joined => {}
            SessionFrame::Ping(number) | SessionFrame::Pong(number) => {
                out.extend_from_slice(&number.to_be_bytes());
            }
            SessionFrame::Abort(code, text) => {
                let code =
                    ABORT_CODES.iter().position(|c| c == code).expect("every code is listed");
                out.push(u8::try_from(code).expect("few codes"));
                emit_text(text, out);
            }
            SessionFrame::Probe(bytes) => out.extend_from_slice(bytes),
            SessionFrame::Effort(effort) => out.push(effort.number().unwrap_or(0)),
        }
    }
}

fn emit_hello(hello: &Hello, out: &mut Vec<u8>) {
    out.extend_from_slice(&hello.version.to_be_bytes());
    out.extend_from_slice(&hello.run);
    out.push(u8::from(hello.secret.is_some()));
    out.extend_from_slice(hello.secret.as_ref().map_or(&[], |secret| secret.as_slice()));
    let length = Some(hello.service.len()).filter(|length| *length <= MAX_SERVICE);
    out.push(
        length.and_then(|length| u8::try_from(length).ok()).expect("services have short names"),
    );
    out.extend_from_slice(hello.service.as_bytes());
    out.extend_from_slice(&hello.request);
}

/// Appends a text; of a long one without the middle: the advice stands at the end, after a path of
/// any length.
pub(crate) fn emit_text(text: &str, out: &mut Vec<u8>) {
    const LEFT_OUT: &str = "…";
    const KEPT: usize = (MAX_TEXT - LEFT_OUT.len()) / 2;
    let text_bytes = text.as_bytes();
    if text.len() <= MAX_TEXT {
        return out.extend_from_slice(text_bytes);
    }
    let is_boundary = |index: &usize| text.is_char_boundary(*index);
    let head = (0..=KEPT).rev().find(is_boundary).expect("a text begins with a boundary");
    let tail =
        (text.len() - KEPT..=text.len()).find(is_boundary).expect("a text ends with a boundary");
    out.extend_from_slice(&text_bytes[..head]);
    out.extend_from_slice(LEFT_OUT.as_bytes());
    out.extend_from_slice(&text_bytes[tail..]);
}

/// Reads a text to the end of the frame. A peer's text reaches a terminal: control characters
/// become spaces.
pub(crate) fn read_text(reader: &mut Reader<'_>) -> String {
    let text = String::from_utf8_lossy(reader.rest());
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The effort of a frame that is [`SessionFrame::Effort`].
///
/// # Errors
/// If it is a broken one.
pub fn effort_of(raw: RawFrame<'_>) -> Result<Option<Effort>, WireError> {
    if raw.kind != FrameKind::Effort {
        return Ok(None);
    }
    match SessionFrame::try_from(raw)? {
        SessionFrame::Effort(effort) => Ok(Some(effort)),
        _ => Err(raw.foreign()),
    }
}

impl<'a> TryFrom<RawFrame<'a>> for SessionFrame<'a> {
    type Error = WireError;

    fn try_from(raw: RawFrame<'a>) -> Result<SessionFrame<'a>, WireError> {
        let frame = raw.kind.name();
        let mut reader = Reader::new(frame, raw.body);
        let parsed = match raw.kind {
            FrameKind::Hello => SessionFrame::Hello(hello(&mut reader)?),
            FrameKind::Join => SessionFrame::Join(reader.array()?),
            FrameKind::Welcome => {
                let (version, session) = (reader.u16()?, reader.array()?);
                let mut addresses = Vec::new();
                while !reader.is_empty() {
                    addresses.push(crate::address::read(&mut reader)?);
                }
                SessionFrame::Welcome(Welcome { version, session, addresses })
            }
            FrameKind::Joined => SessionFrame::Joined,
            FrameKind::Ping => SessionFrame::Ping(reader.u64()?),
            FrameKind::Pong => SessionFrame::Pong(reader.u64()?),
            FrameKind::Abort => {
                let code = usize::from(reader.u8()?);
                let code =
                    *ABORT_CODES.get(code).ok_or(WireError::Field { frame, field: "code" })?;
                SessionFrame::Abort(code, read_text(&mut reader))
            }
            FrameKind::Probe => SessionFrame::Probe(reader.rest()),
            FrameKind::Effort => SessionFrame::Effort(Effort::of_number(reader.u8()?.into())),
            _ => return Err(raw.foreign()),
        };
        reader.finish(parsed)
    }
}

fn hello(reader: &mut Reader<'_>) -> Result<Hello, WireError> {
    let version = reader.u16()?;
    if version != VERSION {
        // The other fields are that version's.
        reader.rest();
        return Ok(Hello { version, ..Hello::new("", None, RunId::default()) });
    }
    let run = reader.array()?;
    let secret = if reader.flag()? { Some(reader.array()?) } else { None };
    let length = usize::from(reader.u8()?);
    let service = reader.bytes(length)?;
    let is_name = (1..=MAX_SERVICE).contains(&length) && service.iter().all(u8::is_ascii_lowercase);
    if !is_name {
        return Err(WireError::Field { frame: "Hello", field: "service" });
    }
    let service = service.iter().copied().map(char::from).collect();
    let request = reader.rest();
    if request.len() > MAX_REQUEST {
        return Err(WireError::Field { frame: "Hello", field: "request" });
    }
    Ok(Hello { version, run, secret, service, request: request.to_vec() })
}
