//! HTTP proxies: the method CONNECT (RFC 9110, 9.3.6) with a basic login (RFC 7617).

use data_encoding::BASE64;
use wire::tunnel::{Answer, Code, Target};
use zeroize::Zeroizing;

use super::socks::named;
use super::{Login, Proxy, Step};
use crate::bounds::MOST_PREAMBLE;

/// The most fields of a request.
const MOST_FIELDS: usize = 64;

/// The proxy's side of `CONNECT`.
#[derive(Clone, Debug)]
pub struct Http {
    login: Option<Login>,
}

impl Http {
    /// Without a login everybody may connect.
    #[must_use]
    pub fn new(login: Option<Login>) -> Http {
        Http { login }
    }

    fn is_welcome(&self, request: &httparse::Request<'_, '_>) -> bool {
        let Some(login) = &self.login else { return true };
        let is_login =
            |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case("proxy-authorization");
        let shown = request.headers.iter().find(is_login).and_then(|field| {
            let (scheme, value) = field.value.split_at_checked("Basic ".len())?;
            let is_basic = scheme.eq_ignore_ascii_case(b"Basic ");
            is_basic.then(|| BASE64.decode(value.trim_ascii()).ok()).flatten().map(Zeroizing::new)
        });
        shown.is_some_and(|shown| {
            let at = shown.iter().position(|octet| *octet == b':');
            at.is_some_and(|at| login.is(&shown[..at], &shown[at + 1..]))
        })
    }
}

impl Proxy for Http {
    fn handle(&mut self, input: &[u8]) -> (usize, Step) {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let refused = |status, more| (input.len(), Step::Refuse(response(status, more, "")));
        let length = match request.parse(input) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if input.len() < MOST_PREAMBLE => return (0, Step::More),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return refused("431 Request Header Fields Too Large", "");
            }
            Err(_) => return refused("400 Bad Request", ""),
        };
        if !self.is_welcome(&request) {
            let scheme = "Proxy-Authenticate: Basic realm=\"tunnel\"\r\n";
            return refused("407 Proxy Authentication Required", scheme);
        }
        // Methods have case (RFC 9110, 9.1), and there are clients that do not know.
        if !request.method.is_some_and(|method| method.eq_ignore_ascii_case("CONNECT")) {
            let answer = response(
                "405 Method Not Allowed",
                "Allow: CONNECT\r\n",
                "this proxy makes tunnels (CONNECT), and fetches no pages itself",
            );
            return (input.len(), Step::Refuse(answer));
        }
        match request.path.and_then(target) {
            Some(target) => (length, Step::Connect(target)),
            None => refused("400 Bad Request", ""),
        }
    }

    fn answer(&self, answer: &Answer) -> Vec<u8> {
        let status = match answer.code {
            Code::Done => return b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
            Code::Forbidden => "403 Forbidden",
            Code::Unresolved | Code::Unreachable | Code::Refused => "502 Bad Gateway",
            Code::TimedOut => "504 Gateway Timeout",
            Code::Busy | Code::Failed => "503 Service Unavailable",
        };
        response(status, "", &answer.text)
    }
}

/// The target of CONNECT: a host and a port (RFC 9112, 3.2.3).
fn target(authority: &str) -> Option<Target> {
    let (host, port) = authority.rsplit_once(':')?;
    let is_number = !port.is_empty() && port.bytes().all(|octet| octet.is_ascii_digit());
    let port = is_number.then(|| port.parse().ok()).flatten()?;
    let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(bare) => named(bare).filter(|_| bare.contains(':')),
        None => named(host).filter(|_| !host.contains(':')),
    };
    Some(Target { host: host?, port })
}

/// A response with a text. What the far side says is no header.
fn response(status: &str, fields: &str, text: &str) -> Vec<u8> {
    let text = if text.is_empty() { String::new() } else { format!("{text}\n") };
    format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
    .into_bytes()
}
