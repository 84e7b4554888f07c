//! The messages that begin the streams of a tunnel: what is asked, and the answer. Behind them come
//! the bytes of a TCP connection. The first stream of the striped connection has a
//! [hello](crate::session::Hello) in place of a request, which names the service [`SERVICE`], and
//! stays open.
//!
//! A message is its version (1 octet), its kind or code (1), the length of its body (2), and its
//! body. Whoever opens a stream sends a [`Request`], and whoever accepts it an [`Answer`].
//!
//! | kind | request | body |
//! |---|---|---|
//! | 1 | [`Request::Connect`] | a target |
//! | 2 | [`Request::Listen`] | a target |
//! | 3 | [`Request::Arrived`] | the number of the stream that asked to listen (4), an address |
//!
//! A target is a form (1 octet): 4 or 6 and an address of that family (4 or 16), or 0, the length
//! of a name (1) and the name; then a port (2). The body of an answer is a port (2) and a text.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::WireError;
use crate::reader::Reader;

/// The name of the service; it has no request.
pub const SERVICE: &str = "tunnel";

/// The version of these messages.
pub const VERSION: u8 = 1;
/// Octets before the body of a message.
pub const HEADER: usize = 4;
/// The most octets of a body.
pub const MOST_BODY: usize = 512;
/// The longest name of a host (RFC 1035, 2.3.4).
pub const MOST_NAME: usize = 253;
/// The most octets of an answer's text.
pub const MOST_TEXT: usize = 256;

const REQUEST: &str = "tunnel request";
const ANSWER: &str = "tunnel answer";

/// What the side that opens a stream asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// To connect to a target. The stream then carries the bytes of the connection.
    Connect(Target),
    /// To listen at an address of the peer, as long as the stream is open. The name `localhost` is
    /// its loopback, of both families; the unspecified address is all of its addresses.
    Listen(Target),
    /// A connection was accepted on behalf of a [`Request::Listen`].
    Arrived {
        /// The number of its stream.
        listener: u32,
        /// Where the connection comes from.
        from: SocketAddr,
    },
}

/// A place in a network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

/// A host as it was named.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name that [`is_name`]; the far side resolves it.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The outcome.
    pub code: Code,
    /// The port at which the peer listens; 0 in other answers.
    pub port: u16,
    /// The reason, for a person: at most [`MOST_TEXT`] octets.
    pub text: String,
}

/// The outcome of a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It is done.
    Done,
    /// The peer may not.
    Forbidden,
    /// No host has the name.
    Unresolved,
    /// There is no way to the network or the host.
    Unreachable,
    /// The target refuses the connection.
    Refused,
    /// The target did not answer in time.
    TimedOut,
    /// There is no room now.
    Busy,
    /// It failed in another way.
    Failed,
}

const CODES: [Code; 8] = [
    Code::Done,
    Code::Forbidden,
    Code::Unresolved,
    Code::Unreachable,
    Code::Refused,
    Code::TimedOut,
    Code::Busy,
    Code::Failed,
];

/// The length of the body behind a message's header.
///
/// # Errors
/// If the version is another one, or the body is too long.
pub fn body_length(header: [u8; HEADER]) -> Result<usize, WireError> {
    let [version, _, high, low] = header;
    if version != VERSION {
        return Err(WireError::Field { frame: "tunnel message", field: "version" });
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MOST_BODY {
        return Err(WireError::Field { frame: "tunnel message", field: "length" });
    }
    Ok(length)
}

/// Whether a text can be the name of a host: 1 to [`MOST_NAME`] letters, digits, hyphens,
/// underscores and dots, no dot in front of another one, and none at the beginning.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
    (1..=MOST_NAME).contains(&text.len())
        && text.bytes().all(is_plain)
        && !text.starts_with('.')
        && !text.contains("..")
}

impl Request {
    /// Reads a whole message.
    ///
    /// # Errors
    /// If it is truncated, has an invalid field, or octets behind its end.
    pub fn parse(message: &[u8]) -> Result<Request, WireError> {
        let (kind, mut reader) = open(REQUEST, message)?;
        let request = match kind {
            1 => Request::Connect(Target::read(&mut reader)?),
            2 => Request::Listen(Target::read(&mut reader)?),
            3 => {
                let listener = reader.u32()?;
                let from = Target::read(&mut reader)?;
                let Host::Address(address) = from.host else {
                    return Err(WireError::Field { frame: REQUEST, field: "address" });
                };
                Request::Arrived { listener, from: SocketAddr::new(address, from.port) }
            }
            _ => return Err(WireError::Field { frame: REQUEST, field: "kind" }),
        };
        reader.finish(request)
    }

    /// Appends the message.
    ///
    /// # Panics
    /// If a name is longer than [`MOST_NAME`].
    pub fn emit(&self, into: &mut Vec<u8>) {
        let mut body = Vec::new();
        let kind = match self {
            Request::Connect(target) => {
                target.write(&mut body);
                1
            }
            Request::Listen(target) => {
                target.write(&mut body);
                2
            }
            Request::Arrived { listener, from } => {
                body.extend(listener.to_be_bytes());
                Target::from(*from).write(&mut body);
                3
            }
        };
        close(kind, &body, into);
    }
}

impl Answer {
    /// It is not done; a text that is too long is cut.
    #[must_use]
    pub fn failed(code: Code, text: &str) -> Answer {
        let mut end = text.len().min(MOST_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Answer { code, port: 0, text: text[..end].into() }
    }

    /// It is done.
    #[must_use]
    pub fn done(port: u16) -> Answer {
        Answer { code: Code::Done, port, text: String::new() }
    }

    /// Reads a whole message.
    ///
    /// # Errors
    /// If it is truncated, has an invalid field, or octets behind its end.
    pub fn parse(message: &[u8]) -> Result<Answer, WireError> {
        let (code, mut reader) = open(ANSWER, message)?;
        let code = Code::of_octet(code);
        let code = code.ok_or(WireError::Field { frame: ANSWER, field: "code" })?;
        let port = reader.u16()?;
        let text = core::str::from_utf8(reader.rest()).ok().filter(|text| text.len() <= MOST_TEXT);
        let text = text.ok_or(WireError::Field { frame: ANSWER, field: "text" })?;
        Ok(Answer { code, port, text: text.into() })
    }

    /// Appends the message.
    ///
    /// # Panics
    /// If the text is longer than [`MOST_TEXT`].
    pub fn emit(&self, into: &mut Vec<u8>) {
        assert!(self.text.len() <= MOST_TEXT, "a text of {} octets", self.text.len());
        let mut body = Vec::from(self.port.to_be_bytes());
        body.extend(self.text.bytes());
        close(self.code.octet(), &body, into);
    }
}

impl Code {
    /// The code of an octet.
    pub(crate) fn of_octet(octet: u8) -> Option<Code> {
        CODES.get(usize::from(octet)).copied()
    }

    /// Its octet.
    pub(crate) fn octet(self) -> u8 {
        let place = CODES.iter().position(|code| *code == self).expect("all are listed");
        u8::try_from(place).expect("there are few")
    }
}

impl Target {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Target, WireError> {
        let host = match reader.u8()? {
            4 => Host::Address(reader.array::<4>()?.into()),
            6 => Host::Address(reader.array::<16>()?.into()),
            0 => {
                let length = reader.u8()?.into();
                let name = core::str::from_utf8(reader.bytes(length)?).ok();
                let name = name.filter(|name| is_name(name));
                Host::Name(name.ok_or(WireError::Field { frame: REQUEST, field: "name" })?.into())
            }
            _ => return Err(WireError::Field { frame: REQUEST, field: "form of a host" }),
        };
        Ok(Target { host, port: reader.u16()? })
    }

    pub(crate) fn write(&self, body: &mut Vec<u8>) {
        match &self.host {
            Host::Address(IpAddr::V4(address)) => {
                body.push(4);
                body.extend(address.octets());
            }
            Host::Address(IpAddr::V6(address)) => {
                body.push(6);
                body.extend(address.octets());
            }
            Host::Name(name) => {
                assert!(is_name(name), "{name} is no name");
                body.push(0);
                body.push(u8::try_from(name.len()).expect("names are shorter"));
                body.extend(name.bytes());
            }
        }
        body.extend(self.port.to_be_bytes());
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Target {
        Target { host: Host::Address(address.ip()), port: address.port() }
    }
}

impl core::fmt::Display for Target {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
        }
    }
}

/// The kind of a message, and its body.
fn open<'a>(name: &'static str, message: &'a [u8]) -> Result<(u8, Reader<'a>), WireError> {
    let mut reader = Reader::new(name, message);
    let header: [u8; HEADER] = reader.array()?;
    let length = body_length(header)?;
    let body = reader.bytes(length)?;
    reader.finish((header[1], Reader::new(name, body)))
}

fn close(kind: u8, body: &[u8], into: &mut Vec<u8>) {
    let length = u16::try_from(body.len()).expect("bodies are short");
    into.extend([VERSION, kind]);
    into.extend(length.to_be_bytes());
    into.extend(body);
}

#[cfg(test)]
mod tests;
