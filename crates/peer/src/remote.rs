//! A remote host in its written form.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A host that listens: a name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Host name or address literal (without brackets).
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The port used where none is named.
pub const DEFAULT_PORT: u16 = 7707;

impl FromStr for Remote {
    type Err = String;

    /// `host`, `host:port`, `192.0.2.1:7707`, `2001:db8::1`, `[2001:db8::1]:7707`.
    fn from_str(text: &str) -> Result<Remote, String> {
        let bad = || format!("'{text}' is not HOST or HOST:PORT");
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Remote { host: address.ip().to_string(), port: address.port() });
        }
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Remote { host: address.to_string(), port: DEFAULT_PORT });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| bad())?),
            None => (text, DEFAULT_PORT),
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == ':' || c == '/') {
            return Err(bad());
        }
        Ok(Remote { host: host.to_string(), port })
    }
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
