//! What a peer may do on a host: words `key=value`, each of which one service reads.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use units::Rate;

/// The words of a peer's rights, by their key. A key that has its default value is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights(BTreeMap<&'static str, String>);

/// A word of rights: whose meaning a service knows, and how a mistake in it is found.
pub struct RightsKey {
    /// The word before the equals sign.
    pub key: &'static str,
    /// The form of the value, for people.
    pub form: &'static str,
    /// The value in its usual spelling; `None` for the default, which need not be written.
    ///
    /// # Errors
    /// What is wrong with it.
    pub spell: fn(&str) -> Result<Option<String>, String>,
}

/// The rights that are of no service: in which direction bulk data may flow, how fast, and whether
/// connections of other hosts come through this one.
pub static RIGHTS: [RightsKey; 3] = [
    RightsKey {
        key: MAY,
        form: "get|send|both|none|relay|feed",
        spell: |text| spell_but_default(text, &May::default()),
    },
    RightsKey {
        key: MAX,
        form: "RATE",
        spell: |text| {
            let rate: Rate = text.parse().map_err(|error: units::ParseError| error.to_string())?;
            Ok(Some(match rate.as_bits() {
                bits if bits.is_multiple_of(1_000_000) => format!("{}mbit", bits / 1_000_000),
                bits => format!("{bits}bit/s"),
            }))
        },
    },
    RightsKey {
        key: RELAY_AT,
        form: "ADDRESSES",
        spell: |text| text.parse::<RelayAddresses>().map(|read| Some(read.to_string())),
    },
];

/// The key of [`May`].
pub const MAY: &str = "may";
/// The key of the upper bound of a peer's total rate, in each direction.
pub const MAX: &str = "max";

/// The key of [`RelayAddresses`].
pub const RELAY_AT: &str = "relay-at";

/// The addresses from which the connections come that a relay carries: a list with commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayAddresses(Vec<IpAddr>);

impl RelayAddresses {
    /// Whether this is one of them; an address of IPv4 in any of its forms.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for RelayAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<RelayAddresses, String> {
        let read = |part: &str| match part.parse::<IpAddr>() {
            Ok(address) => Ok(address.to_canonical()),
            Err(_) => Err(format!("'{part}' is not an address")),
        };
        text.split(',').map(read).collect::<Result<_, _>>().map(RelayAddresses)
    }
}

impl fmt::Display for RelayAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(IpAddr::to_string).collect();
        f.write_str(&all.join(","))
    }
}

/// The usual spelling of a value that is not the default.
///
/// # Errors
/// What is wrong with it.
pub fn spell_but_default<T>(text: &str, default: &T) -> Result<Option<String>, String>
where
    T: FromStr<Err = String> + fmt::Display + PartialEq,
{
    let value: T = text.parse()?;
    Ok((value != *default).then(|| value.to_string()))
}

impl Rights {
    /// Whether nothing is said: the defaults hold.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key, if it is not the default.
    #[must_use]
    pub fn word(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The value of a key as its service reads it. A value that it does not read counts as none.
    #[must_use]
    pub fn value<T: FromStr>(&self, key: &str) -> Option<T> {
        self.word(key)?.parse().ok()
    }

    /// Sets a word.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn set(&mut self, key: &RightsKey, value: &str) -> Result<(), String> {
        match (key.spell)(value)? {
            Some(word) => self.0.insert(key.key, word),
            None => self.0.remove(key.key),
        };
        Ok(())
    }

    /// The same with a word.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn with(mut self, key: &RightsKey, value: &str) -> Result<Rights, String> {
        self.set(key, value)?;
        Ok(self)
    }
}

impl From<May> for Rights {
    /// Nothing is said but this.
    fn from(may: May) -> Rights {
        let [key, ..] = &RIGHTS;
        Rights::default().with(key, &may.to_string()).expect("it is spelt as it is read")
    }
}

/// In which directions bulk data of a peer may flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum May {
    /// From here.
    Get,
    /// To here.
    #[default]
    Send,
    /// From here and to here.
    Both,
    /// Neither.
    None,
    /// Neither, and through here if this host is a relay: to the ports of hosts that listen.
    Relay,
    /// Neither, and records to here if this host is a collector.
    Feed,
}

impl FromStr for May {
    type Err = String;

    /// `get`, `send`, `both`, `none`, `relay` or `feed`.
    fn from_str(text: &str) -> Result<May, String> {
        match text {
            "get" => Ok(May::Get),
            "send" => Ok(May::Send),
            "both" => Ok(May::Both),
            "none" => Ok(May::None),
            "relay" => Ok(May::Relay),
            "feed" => Ok(May::Feed),
            _ => Err(format!("'{text}' is not get, send, both, none, relay or feed")),
        }
    }
}

impl std::fmt::Display for May {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            May::Get => "get",
            May::Send => "send",
            May::Both => "both",
            May::None => "none",
            May::Relay => "relay",
            May::Feed => "feed",
        })
    }
}
