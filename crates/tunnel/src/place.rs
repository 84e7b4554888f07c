//! Where a tunnel listens, and what it forwards, as people write it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use reach::target::{host, parts, port};
use wire::tunnel::{Host, Target};

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a port of loopback, of both families.
    Loopback(u16),
    /// At a port of all addresses.
    Everywhere(u16),
    /// At one address.
    At(SocketAddr),
    /// At a Unix socket that only its owner may connect to.
    Unix(PathBuf),
}

/// A port that is forwarded to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where it is.
    pub place: Place,
    /// Where its connections go.
    pub target: Target,
}

impl Place {
    /// The addresses to bind to, the first of which must succeed; none for a Unix socket.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let both = |port, v4: Ipv4Addr, v6: Ipv6Addr| {
            vec![SocketAddr::from((v4, port)), SocketAddr::from((v6, port))]
        };
        match self {
            Place::Loopback(port) => both(*port, Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
            Place::Everywhere(port) => both(*port, Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED),
            Place::At(address) => vec![*address],
            Place::Unix(_) => Vec::new(),
        }
    }

    /// As it is asked for at the far side; `None` for a Unix socket.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        let (host, port) = match self {
            Place::Loopback(port) => (Host::Name("localhost".into()), *port),
            Place::Everywhere(port) => (Host::Address(Ipv4Addr::UNSPECIFIED.into()), *port),
            Place::At(address) => (Host::Address(address.ip()), address.port()),
            Place::Unix(_) => return None,
        };
        Some(Target { host, port })
    }

    /// The place that a peer asks for.
    #[must_use]
    pub fn of_target(target: &Target) -> Option<Place> {
        match &target.host {
            Host::Name(name) if name == "localhost" => Some(Place::Loopback(target.port)),
            Host::Name(_) => None,
            Host::Address(address) if address.is_unspecified() => {
                Some(Place::Everywhere(target.port))
            }
            Host::Address(address) => Some(Place::At(SocketAddr::new(*address, target.port))),
        }
    }

    /// Parses `[ADDRESS:]PORT` from an address and a port.
    fn of_parts(address: Option<&str>, port: u16) -> Option<Place> {
        Some(match address {
            None | Some("localhost") => Place::Loopback(port),
            Some("*" | "") => Place::Everywhere(port),
            Some(address) => match host(address)? {
                Host::Address(address) if address.is_unspecified() && address.is_ipv4() => {
                    Place::Everywhere(port)
                }
                Host::Address(address) => Place::At(SocketAddr::new(address, port)),
                Host::Name(_) => return None,
            },
        })
    }
}

impl FromStr for Place {
    type Err = String;

    /// `1080`, `127.0.0.1:1080`, `[::1]:1080`, `*:1080`, `localhost:1080`, or a path with a slash.
    fn from_str(text: &str) -> Result<Place, String> {
        if text.contains('/') {
            return Ok(Place::Unix(PathBuf::from(text)));
        }
        let place = match parts(text)[..] {
            [number] => port(number).and_then(|port| Place::of_parts(None, port)),
            [address, number] => port(number).and_then(|port| Place::of_parts(Some(address), port)),
            _ => None,
        };
        place.ok_or_else(|| format!("'{text}' is not PORT, ADDRESS:PORT or a path with a slash"))
    }
}

impl FromStr for Forward {
    type Err = String;

    /// `[ADDRESS:]PORT:HOST:PORT`, as ssh has it.
    fn from_str(text: &str) -> Result<Forward, String> {
        let forward = match parts(text)[..] {
            [own, name, number] => (None, own, name, number),
            [address, own, name, number] => (Some(address), own, name, number),
            _ => return Err(no_forward(text)),
        };
        let (address, own, name, number) = forward;
        let place = port(own).and_then(|port| Place::of_parts(address, port));
        let target = host(name).zip(port(number).filter(|port| *port != 0));
        let (place, (host, port)) = place.zip(target).ok_or_else(|| no_forward(text))?;
        Ok(Forward { place, target: Target { host, port } })
    }
}

fn no_forward(text: &str) -> String {
    format!("'{text}' is not [ADDRESS:]PORT:HOST:PORT, as in 8000:db.internal:5432")
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Loopback(port) => write!(f, "localhost:{port}"),
            Place::Everywhere(port) => write!(f, "*:{port}"),
            Place::At(address) => address.fmt(f),
            Place::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(name: &str, port: u16) -> Target {
        Target { host: Host::Name(name.into()), port }
    }

    #[test]
    fn places_are_on_loopback_unless_more_is_said() {
        for (text, place) in [
            ("1080", Place::Loopback(1_080)),
            ("localhost:1080", Place::Loopback(1_080)),
            ("0", Place::Loopback(0)),
            ("*:1080", Place::Everywhere(1_080)),
            (":1080", Place::Everywhere(1_080)),
            ("0.0.0.0:1080", Place::Everywhere(1_080)),
            ("192.0.2.7:1080", Place::At("192.0.2.7:1080".parse().unwrap())),
            ("[2001:db8::7]:1080", Place::At("[2001:db8::7]:1080".parse().unwrap())),
            ("./proxy", Place::Unix("./proxy".into())),
        ] {
            assert_eq!(text.parse(), Ok(place), "{text}");
        }
        for text in ["", "x", "70000", "+80", "proxy", "a:b", "name:80", "::1:80", "1:2:3"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[test]
    fn forwards_are_those_of_ssh() {
        let forward = |place, target| Ok(Forward { place, target });
        let v6 = Target { host: Host::Address("2001:db8::7".parse().unwrap()), port: 22 };
        for (text, expected) in [
            ("8000:db.internal:5432", forward(Place::Loopback(8_000), named("db.internal", 5_432))),
            ("*:8000:a:1", forward(Place::Everywhere(8_000), named("a", 1))),
            ("8000:[2001:db8::7]:22", forward(Place::Loopback(8_000), v6)),
            ("[::1]:8000:a:1", forward(Place::At("[::1]:8000".parse().unwrap()), named("a", 1))),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
        for text in ["8000", "8000:a", "8000:a:0", "x:a:1", "8000:a b:1", "1:2:3:4:5", "8000::1"] {
            let why = text.parse::<Forward>().unwrap_err();
            assert!(why.contains(text), "{why}");
        }
    }

    #[test]
    fn a_peer_is_asked_for_a_place_as_it_was_written() {
        for text in ["1080", "*:1080", "192.0.2.7:80", "[2001:db8::7]:80"] {
            let place: Place = text.parse().unwrap();
            assert_eq!(Place::of_target(&place.target().unwrap()), Some(place), "{text}");
        }
        assert_eq!(Place::of_target(&named("db.internal", 80)), None);
    }

    proptest! {
        #[test]
        fn any_text_gives_a_place_or_a_message(
            text in "\\PC{0,30}", other in "[0-9a-z:.*\\[\\]]{0,20}",
        ) {
            for text in [text, other] {
                let _ = text.parse::<Place>();
                let _ = reach::parse_target(&text);
                if let Ok(Forward { place, target }) = text.parse() {
                    let again = format!("{place}:{target}");
                    prop_assert_eq!(again.parse(), Ok(Forward { place, target }));
                }
            }
        }
    }
}
