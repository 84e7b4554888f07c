//! SOCKS5 (RFC 1928) with its user and password (RFC 1929): the command CONNECT.

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::tunnel::{Answer, Code, Host, Target, is_name};

use super::{Login, Proxy, Step};

const VERSION: u8 = 5;
/// The version of the exchange of RFC 1929.
const LOGIN_VERSION: u8 = 1;
const CONNECT: u8 = 1;
// Methods of authentication (RFC 1928, 3).
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
// Replies (RFC 1928, 6).
const FAILURE: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const NETWORK_UNREACHABLE: u8 = 3;
const HOST_UNREACHABLE: u8 = 4;
const REFUSED: u8 = 5;
const EXPIRED: u8 = 6;
const NO_SUCH_COMMAND: u8 = 7;
const NO_SUCH_ADDRESS: u8 = 8;

/// The proxy's side of SOCKS5.
#[derive(Clone, Debug)]
pub struct Socks {
    login: Option<Login>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client offers methods.
    Methods,
    /// The client shows a user and a password.
    Authentication,
    /// The client names its target.
    Request,
}

/// A message of the client that is not whole yet.
struct Incomplete;

impl Socks {
    /// Without a login everybody may connect.
    #[must_use]
    pub fn new(login: Option<Login>) -> Socks {
        Socks { login, state: State::Methods }
    }

    fn methods(&mut self, input: &[u8]) -> Result<(usize, Step), Incomplete> {
        let (version, count) = (byte(input, 0)?, byte(input, 1)?);
        if version != VERSION {
            // A client of SOCKS4 or HTTP would not understand an answer.
            return Ok((input.len(), Step::Refuse(Vec::new())));
        }
        let offered = part(input, 2, count.into())?;
        let (method, next) = match self.login {
            None => (NO_AUTHENTICATION, State::Request),
            Some(_) => (USER_AND_PASSWORD, State::Authentication),
        };
        let consumed = 2 + offered.len();
        if !offered.contains(&method) {
            return Ok((consumed, Step::Refuse(vec![VERSION, NO_METHOD])));
        }
        self.state = next;
        Ok((consumed, Step::Say(vec![VERSION, method])))
    }

    fn authentication(&mut self, input: &[u8]) -> Result<(usize, Step), Incomplete> {
        if byte(input, 0)? != LOGIN_VERSION {
            return Ok((input.len(), Step::Refuse(vec![LOGIN_VERSION, FAILURE])));
        }
        let user = part(input, 2, byte(input, 1)?.into())?;
        let at = 2 + user.len();
        let password = part(input, at + 1, byte(input, at)?.into())?;
        let consumed = at + 1 + password.len();
        if !self.login.as_ref().is_some_and(|login| login.is(user, password)) {
            return Ok((consumed, Step::Refuse(vec![LOGIN_VERSION, FAILURE])));
        }
        self.state = State::Request;
        Ok((consumed, Step::Say(vec![LOGIN_VERSION, 0])))
    }
}

impl Proxy for Socks {
    fn handle(&mut self, input: &[u8]) -> (usize, Step) {
        let handled = match self.state {
            State::Methods => self.methods(input),
            State::Authentication => self.authentication(input),
            State::Request => request(input),
        };
        handled.unwrap_or((0, Step::More))
    }

    fn answer(&self, answer: &Answer) -> Vec<u8> {
        reply(match answer.code {
            Code::Done => 0,
            Code::Forbidden => NOT_ALLOWED,
            Code::Unresolved => HOST_UNREACHABLE,
            Code::Unreachable => NETWORK_UNREACHABLE,
            Code::Refused => REFUSED,
            Code::TimedOut => EXPIRED,
            Code::Busy | Code::Failed => FAILURE,
        })
    }
}

fn request(input: &[u8]) -> Result<(usize, Step), Incomplete> {
    let refused = |code| Ok((input.len(), Step::Refuse(reply(code))));
    let (version, command) = (byte(input, 0)?, byte(input, 1)?);
    if version != VERSION {
        return refused(FAILURE);
    }
    if command != CONNECT {
        return refused(NO_SUCH_COMMAND);
    }
    let (host, end) = match byte(input, 3)? {
        1 => {
            let octets: [u8; 4] = part(input, 4, 4)?.try_into().expect("four octets");
            (Host::Address(Ipv4Addr::from(octets).into()), 8)
        }
        4 => {
            let octets: [u8; 16] = part(input, 4, 16)?.try_into().expect("sixteen octets");
            (Host::Address(Ipv6Addr::from(octets).into()), 20)
        }
        3 => {
            let name = part(input, 5, byte(input, 4)?.into())?;
            let end = 5 + name.len();
            let Some(host) = std::str::from_utf8(name).ok().and_then(named) else {
                return refused(HOST_UNREACHABLE);
            };
            (host, end)
        }
        _ => return refused(NO_SUCH_ADDRESS),
    };
    let port: [u8; 2] = part(input, end, 2)?.try_into().expect("two octets");
    let target = Target { host, port: u16::from_be_bytes(port) };
    Ok((end + 2, Step::Connect(target)))
}

/// The host in a field for names: some clients write addresses there.
pub(super) fn named(text: &str) -> Option<Host> {
    match text.parse() {
        Ok(address) => Some(Host::Address(address)),
        Err(_) => is_name(text).then(|| Host::Name(text.into())),
    }
}

/// A reply without the address of the socket that was bound, which is the far side's.
fn reply(code: u8) -> Vec<u8> {
    vec![VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

fn byte(input: &[u8], at: usize) -> Result<u8, Incomplete> {
    input.get(at).copied().ok_or(Incomplete)
}

fn part(input: &[u8], at: usize, length: usize) -> Result<&[u8], Incomplete> {
    input.get(at..at + length).ok_or(Incomplete)
}
