//! A path and its policy: `usb0,backup,max=5mbit,cap=10GB/month`.

use std::fmt;
use std::str::FromStr;

use net::interfaces::LocalPath;
use units::{Bytes, Rate};
use wire::effort::Effort;

use super::{SpecError, parts};
use crate::Remote;

/// The priority of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathClass {
    /// Always used.
    #[default]
    Primary,
    /// Used when the primaries are full.
    Overflow,
    /// Used when no primary is alive.
    Backup,
    /// Always used, in the background: for what nobody else on its line asks for.
    Background,
}

impl PathClass {
    const ALL: [PathClass; 4] =
        [PathClass::Primary, PathClass::Overflow, PathClass::Backup, PathClass::Background];

    pub(super) fn by_name(name: &str) -> Option<PathClass> {
        PathClass::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The class of a path whose caller names none: a metered path is a backup.
    #[must_use]
    pub fn of(local: &LocalPath) -> PathClass {
        if local.metered { PathClass::Backup } else { PathClass::Primary }
    }

    /// The effort of what goes over such a path, in a transfer with this one.
    #[must_use]
    pub fn effort(self, of_all: Effort) -> Effort {
        match self {
            PathClass::Primary | PathClass::Overflow | PathClass::Backup => of_all,
            PathClass::Background => of_all.with(Effort::Lower),
        }
    }

    /// Its written form: `primary`, `overflow`, `backup` or `background`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PathClass::Primary => "primary",
            PathClass::Overflow => "overflow",
            PathClass::Backup => "backup",
            PathClass::Background => "background",
        }
    }
}

/// The bytes that an interface may carry in a calendar month, in both directions, headers and
/// retransmissions included: `10GB/month`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Bytes of IP packets.
    pub bytes: Bytes,
}

impl FromStr for Cap {
    type Err = String;

    /// `10GB/month`.
    fn from_str(text: &str) -> Result<Cap, String> {
        parse_cap(text)
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} a month", self.bytes)
    }
}

/// A path that the caller names:
/// `IF[,primary|overflow|backup][,max=RATE][,rate=RATE][,cap=SIZE/month][,to=ADDR[:PORT]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSpec {
    /// Interface name, or a local address.
    pub interface: String,
    /// Whether it is a name, even if it looks like an address.
    pub by_name: bool,
    /// Its priority.
    pub class: PathClass,
    /// Upper bound of its rate.
    pub max: Option<Rate>,
    /// Its rate. If the rates of all paths are known, nothing is measured at the start.
    pub rate: Option<Rate>,
    /// Upper bound of its bytes in a month, over all transfers.
    pub cap: Option<Cap>,
    /// Another remote address for this path than the session's.
    pub to: Option<Remote>,
    /// Whether its interface may be missing, as a modem that is not plugged in: the path is used
    /// once it is there.
    pub may_be_absent: bool,
}

impl PathSpec {
    /// A primary path over an interface without a bound or a cap.
    #[must_use]
    pub fn over(interface: &str) -> PathSpec {
        PathSpec {
            interface: interface.to_string(),
            by_name: false,
            class: PathClass::Primary,
            max: None,
            rate: None,
            cap: None,
            to: None,
            may_be_absent: false,
        }
    }

    /// The same path, whose interface may be missing.
    #[must_use]
    pub fn if_there(self) -> PathSpec {
        PathSpec { may_be_absent: true, ..self }
    }

    /// Whether it names the interface or the address of `local`.
    #[must_use]
    pub fn is_over(&self, local: &LocalPath) -> bool {
        local.interface == self.interface
            || (!self.by_name && self.interface.parse() == Ok(local.address))
    }
}

/// What stands before a name that is one whatever is in it. No interface has a colon in its name.
const NAMED: &str = "dev:";

/// The name behind [`NAMED`], in which a backslash takes the meaning of the next character, and
/// where the options behind it begin, if there are any.
fn named(text: &str) -> Option<(String, Option<usize>)> {
    let start = text.len() - text.trim_start().len() + NAMED.len();
    let quoted = text.trim_start().strip_prefix(NAMED)?;
    let mut name = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            ',' => return Some((name, Some(start + at + 1))),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => name.push(character),
        }
    }
    Some((name, None))
}

const EXAMPLE: &str = "wlan0,backup or usb0,max=5mbit,cap=10GB/month";

impl FromStr for PathSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<PathSpec, SpecError> {
        let wrong = |offset, why| SpecError::new(text, offset, why, EXAMPLE);
        let (interface, by_name, rest) = match named(text) {
            Some((name, rest)) => (name, true, rest),
            None => match text.split_once(',') {
                Some((name, _)) => (name.trim().to_string(), false, Some(name.len() + 1)),
                None => (text.trim().to_string(), false, None),
            },
        };
        let is_option = interface.contains('=') || PathClass::by_name(&interface).is_some();
        if interface.is_empty() || (is_option && !by_name) {
            return Err(wrong(0, "it begins with the interface or local address".into()));
        }
        let mut spec = PathSpec { by_name, ..PathSpec::over(&interface) };
        let mut class = None;
        let rest = rest.map(|at| parts(&text[at..], |c| c == ',').map(move |(o, p)| (at + o, p)));
        for (offset, part) in rest.into_iter().flatten() {
            let (key, value) = part
                .split_once('=')
                .map_or((part, None), |(key, value)| (key.trim_end(), Some(value)));
            let at_value =
                value.map_or(offset, |value| offset + part.len() - value.trim_start().len());
            let once = |free: bool| {
                if free { Ok(()) } else { Err(wrong(offset, format!("{key} is there twice"))) }
            };
            let said = |why: String| wrong(at_value, why);
            match (key, value.map(str::trim)) {
                ("class", Some(name)) => {
                    once(class.is_none())?;
                    let found = PathClass::by_name(name);
                    class = Some(found.ok_or_else(|| {
                        said(format!("'{name}' is not primary, overflow, backup or background"))
                    })?);
                }
                ("max", Some(rate)) => {
                    once(spec.max.is_none())?;
                    spec.max = Some(positive(rate).map_err(said)?);
                }
                ("rate", Some(rate)) => {
                    once(spec.rate.is_none())?;
                    spec.rate = Some(positive(rate).map_err(said)?);
                }
                ("cap", Some(cap)) => {
                    once(spec.cap.is_none())?;
                    spec.cap = Some(parse_cap(cap).map_err(said)?);
                }
                ("to", Some(remote)) => {
                    once(spec.to.is_none())?;
                    spec.to = Some(remote.parse().map_err(said)?);
                }
                (word, None) if PathClass::by_name(word).is_some() => {
                    let free = class.is_none();
                    class = PathClass::by_name(word);
                    if !free {
                        return Err(wrong(offset, format!("'{word}' is a second class")));
                    }
                }
                _ => {
                    let classes = PathClass::ALL.map(PathClass::name).join(", ");
                    let rest = "max=RATE, rate=RATE, cap=SIZE/month or to=ADDRESS";
                    return Err(wrong(offset, format!("'{part}' is not {classes}, {rest}")));
                }
            }
        }
        spec.class = class.unwrap_or_default();
        Ok(spec)
    }
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.by_name {
            let escaped = self.interface.replace('\\', r"\\").replace(',', r"\,");
            write!(f, "{NAMED}{escaped},{}", self.class.name())?;
        } else {
            write!(f, "{},{}", self.interface, self.class.name())?;
        }
        if let Some(max) = self.max {
            write!(f, ",max={} bit/s", max.as_bits())?;
        }
        if let Some(rate) = self.rate {
            write!(f, ",rate={} bit/s", rate.as_bits())?;
        }
        if let Some(cap) = self.cap {
            write!(f, ",cap={} B/month", cap.bytes.0)?;
        }
        self.to.as_ref().map_or(Ok(()), |to| write!(f, ",to={to}"))
    }
}

/// A rate above zero.
pub(super) fn positive(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>() {
        Ok(Rate::ZERO) => Err(format!("at '{text}' nothing would ever move")),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_cap(text: &str) -> Result<Cap, String> {
    let Some((size, period)) = text.split_once('/') else {
        return Err(format!("'{text}' does not say in which time: SIZE/month"));
    };
    if !period.trim().eq_ignore_ascii_case("month") {
        return Err(format!("'{}' is no time for a cap; there is month", period.trim()));
    }
    let bytes = size.trim().parse::<Bytes>().map_err(|error| error.to_string())?;
    if bytes == Bytes::ZERO {
        return Err(
            "a cap of nothing leaves nothing to carry; --no-path leaves an interface out".into()
        );
    }
    Ok(Cap { bytes })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> PathSpec {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Linux takes all of these as names.
    #[test]
    fn a_name_may_look_like_anything() {
        let named = |name: &str| PathSpec { by_name: true, ..PathSpec::over(name) };
        for (text, name) in [
            (r"dev:a\,b", "a,b"),
            ("dev:a=b", "a=b"),
            ("dev:backup", "backup"),
            ("dev:10.0.0.9", "10.0.0.9"),
            (r"dev:a\\b", r"a\b"),
            (r"dev:trailing\,", "trailing,"),
        ] {
            assert_eq!(read(text), named(name), "{text}");
            let with = read(&format!("{text},backup,max=5mbit"));
            assert_eq!((with.interface.as_str(), with.class), (name, PathClass::Backup), "{text}");
            assert_eq!(with.max, Some(Rate::mbit(5)), "{text}");
            assert_eq!(read(&with.to_string()), with, "{text}");
        }
        let error = r"dev:a\,b,bakup".parse::<PathSpec>().unwrap_err().to_string();
        assert!(error.contains("character 10"), "{error}");
        assert!("dev:".parse::<PathSpec>().is_err());
    }

    #[test]
    fn what_people_write() {
        assert_eq!(read("wlan0"), PathSpec::over("wlan0"));
        assert_eq!(
            read("wlan0,backup"),
            PathSpec { class: PathClass::Backup, ..PathSpec::over("wlan0") }
        );
        assert_eq!(read("wlan0, class = overflow").class, PathClass::Overflow);
        for text in ["wlan0,class=background", "wlan0,background"] {
            assert_eq!(read(text).class, PathClass::Background, "{text}");
        }
        assert_eq!(read("eth0,max=20mbit").max, Some(Rate::mbit(20)));
        assert_eq!(read("eth0,rate=8 Mbit/s").rate, Some(Rate::mbit(8)));
        assert_eq!(read("usb0,cap=10GB/month").cap, Some(Cap { bytes: Bytes(10_000_000_000) }));
        assert_eq!(read("usb0,cap=1 GiB / Month").cap, Some(Cap { bytes: Bytes::mib(1_024) }));
        let to = read("eth0,backup,max=5 Mbit/s,to=[2001:db8::1]:9000").to;
        assert_eq!(to, Some(Remote { host: "2001:db8::1".into(), zone: None, port: 9_000 }));
    }

    #[test]
    fn mistakes_are_where_they_are() {
        for (text, at, why) in [
            ("", 1, "begins with the interface"),
            ("backup", 1, "begins with the interface"),
            ("max=5mbit,eth0", 1, "begins with the interface"),
            ("wlan0,bakup", 7, "'bakup' is not primary, overflow, backup, background, max=RATE"),
            ("wlan0,class=spare", 13, "'spare' is not primary, overflow, backup or background"),
            ("wlan0,backup,class=primary", 14, "class is there twice"),
            ("wlan0,backup,overflow", 14, "'overflow' is a second class"),
            ("wlan0,max=fast", 11, "'fast' is not a rate"),
            ("wlan0, max= 0 bit/s", 13, "nothing would ever move"),
            ("wlan0,max=1mbit,max=2mbit", 17, "max is there twice"),
            ("wlan0,rate=1mbit,rate=1mbit", 18, "rate is there twice"),
            ("usb0,cap=10GB", 10, "does not say in which time"),
            ("usb0,cap=10GB/week", 10, "'week' is no time for a cap; there is month"),
            ("usb0,cap=0 B/month", 10, "a cap of nothing"),
            ("usb0,cap=ten/month", 10, "'ten' is not"),
            ("ü0,to=a b", 7, "'a b' is not HOST"),
        ] {
            let error = text.parse::<PathSpec>().expect_err(text);
            assert_eq!(error.at, at, "{error}");
            let said = error.to_string();
            assert!(said.contains(why) && said.ends_with(EXAMPLE), "{said}");
        }
        for example in EXAMPLE.split(" or ") {
            read(example);
        }
    }

    #[test]
    fn a_metered_interface_is_a_backup() {
        let over = |metered| LocalPath {
            interface: "usb0".into(),
            index: 3,
            address: [192, 0, 2, 1].into(),
            prefix: 24,
            metered,
            speed: None,
        };
        assert_eq!(PathClass::of(&over(true)), PathClass::Backup);
        assert_eq!(PathClass::of(&over(false)), PathClass::Primary);
    }

    fn spec() -> impl Strategy<Value = PathSpec> {
        let class = prop_oneof![
            Just(PathClass::Primary),
            Just(PathClass::Overflow),
            Just(PathClass::Backup),
            Just(PathClass::Background)
        ];
        let to =
            prop_oneof![Just("192.0.2.1:80"), Just("[2001:db8::1]:7707"), Just("host.example:1")];
        let rate = || prop::option::of(1u64..);
        let (max, cap) = ((rate(), rate()), prop::option::of(1u64..));
        let plain = "[a-z][a-z0-9.]{0,14}".prop_map(|name| (name, false));
        let odd = r"[a-c,=\\ .0-9]{1,15}".prop_map(|name| (name, true));
        let name = prop_oneof![plain, odd];
        (name, class, max, cap, prop::option::of(to)).prop_filter_map(
            "an interface that is called like a class",
            |((interface, by_name), class, (max, rate), cap, to)| {
                (by_name || PathClass::by_name(&interface).is_none()).then(|| PathSpec {
                    interface,
                    by_name,
                    class,
                    max: max.map(Rate::from_bits),
                    rate: rate.map(Rate::from_bits),
                    cap: cap.map(|bytes| Cap { bytes: Bytes(bytes) }),
                    to: to.map(|to| to.parse().expect("an address")),
                    may_be_absent: false,
                })
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(spec in spec()) {
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
        }

        #[test]
        fn no_text_does_harm(text in "[a-z0-9,=/: ü.]{0,40}") {
            match text.parse::<PathSpec>() {
                Ok(spec) => prop_assert_eq!(spec.to_string().parse(), Ok(spec)),
                Err(error) => prop_assert!(error.at <= text.chars().count() + 1, "{}", error),
            }
        }
    }
}
