//! The name under which a receiver is known: a host, or one of its ports.

use std::net::IpAddr;
use std::str::FromStr;

use peer::Remote;

/// A receiver on the list: at every port of a host, or at one port alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceiverName {
    /// The host, as `--to` has it; its port counts if `at_port_alone`.
    host: Remote,
    at_port_alone: bool,
}

impl ReceiverName {
    /// That of a host at its port alone.
    pub(crate) fn at_port(host: &Remote) -> ReceiverName {
        ReceiverName { host: host.clone(), at_port_alone: true }
    }

    /// That of a host at every port.
    pub(crate) fn of_host(host: &Remote) -> ReceiverName {
        ReceiverName { host: host.clone(), at_port_alone: false }
    }

    /// Whether it is that of one port.
    pub(crate) fn is_at_port_alone(&self) -> bool {
        self.at_port_alone
    }

    /// As on the command line: `nas`, `nas:7707`, `[2001:db8::1]:7707`.
    pub(crate) fn argument(&self) -> String {
        if self.at_port_alone { self.host.to_string() } else { self.host.name().into_owned() }
    }
}

impl FromStr for ReceiverName {
    type Err = String;

    /// As in `--to`, or as ssh has it: `[nas]:7707`.
    fn from_str(text: &str) -> Result<ReceiverName, String> {
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once("]:"));
        let unbracketed = bracketed
            .filter(|(host, _)| !host.contains([':', '%']) && host.parse::<IpAddr>().is_err())
            .map(|(host, port)| format!("{host}:{port}"));
        let host = unbracketed.as_deref().unwrap_or(text).parse()?;
        let at_port_alone = bracketed.is_some() || text.matches(':').count() == 1;
        Ok(ReceiverName { host, at_port_alone })
    }
}

impl std::fmt::Display for ReceiverName {
    /// As in the list: `nas`, or `[nas]:7707`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.host.name();
        if self.at_port_alone {
            write!(f, "[{name}]:{}", self.host.port)
        } else {
            f.write_str(&name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_be_part_of_the_name() {
        for (text, listed, argument) in [
            ("nas", "nas", "nas"),
            ("nas:7707", "[nas]:7707", "nas:7707"),
            ("[nas]:80", "[nas]:80", "nas:80"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:80", "[192.0.2.1]:80", "192.0.2.1:80"),
            ("[192.0.2.1]:80", "[192.0.2.1]:80", "192.0.2.1:80"),
            ("2001:DB8:0::1", "2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1", "2001:db8::1"),
            ("[2001:db8:0::1]:80", "[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("fe80::1%eth0", "fe80::1%eth0", "fe80::1%eth0"),
            ("[fe80::1%eth0]:80", "[fe80::1%eth0]:80", "[fe80::1%eth0]:80"),
        ] {
            let name: ReceiverName = text.parse().expect(text);
            assert_eq!((name.to_string(), name.argument()), (listed.into(), argument.into()));
            assert_eq!(listed.parse(), Ok(name.clone()), "{text}: it is read back");
            assert_eq!(argument.parse(), Ok(name), "{text}: it can be typed");
        }
        for text in ["", "nas:", "[nas]:", "[nas]:x", "[nas]", "[nas:80]:80", "[]:80", "nas:70000"]
        {
            assert!(text.parse::<ReceiverName>().is_err(), "{text}");
        }
    }
}
