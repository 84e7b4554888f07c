//! A relay and the policy of the paths over it: `r1.example.org,backup,max=20mbit`.
//!
//! It may be reached through others: `r2.example.org,through=r1.example.org`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use units::Rate;

use super::path::positive;
use super::{Cap, PathClass, SpecError, parts};
use crate::Remote;

/// A relay that the caller names:
/// `HOST[:PORT][,through=HOST[:PORT]]…[,primary|overflow|backup][,max=RATE][,cap=SIZE/month]
/// [,token-file=FILE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelaySpec {
    /// Its address.
    pub dial: Remote,
    /// The relays through which it is reached, from this host on.
    pub through: Vec<Remote>,
    /// The priority of the paths over it; `None`: that of each interface.
    pub class: Option<PathClass>,
    /// Upper bound of the rate of all paths over it together.
    pub max: Option<Rate>,
    /// Upper bound of the bytes of all paths over it in a month, over all transfers.
    pub cap: Option<Cap>,
    /// The file with a token for it; `None`: its key is known.
    pub token_file: Option<PathBuf>,
}

/// The most relays in a row.
const MOST_HOPS: usize = 4;

const EXAMPLE: &str = "r1.example.org or 192.0.2.7:7707,backup,max=20mbit";

impl FromStr for RelaySpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<RelaySpec, SpecError> {
        let wrong = |offset, why| SpecError::new(text, offset, why, EXAMPLE);
        let mut all = parts(text, |c| c == ',');
        let (offset, dial) = all.next().expect("a text has a first part");
        let dial = dial.parse::<Remote>().map_err(|why| wrong(offset, why))?;
        let (through, class, max, cap, token_file) = (Vec::new(), None, None, None, None);
        let mut spec = RelaySpec { dial, through, class, max, cap, token_file };
        for (offset, part) in all {
            let twice = || Err(wrong(offset, format!("'{part}' is said twice")));
            match part.split_once('=').map(|(key, value)| (key.trim_end(), value.trim_start())) {
                Some(("through", other)) => {
                    let other = other.parse::<Remote>().map_err(|why| wrong(offset, why))?;
                    if other == spec.dial || spec.through.contains(&other) {
                        return twice();
                    }
                    if spec.through.len() + 2 > MOST_HOPS {
                        let why = format!("{MOST_HOPS} relays in a row are the most");
                        return Err(wrong(offset, why));
                    }
                    spec.through.push(other);
                }
                Some(("max", _)) if spec.max.is_some() => return twice(),
                Some(("max", rate)) => {
                    spec.max = Some(positive(rate).map_err(|why| wrong(offset, why))?);
                }
                Some(("cap", _)) if spec.cap.is_some() => return twice(),
                Some(("cap", cap)) => {
                    spec.cap = Some(cap.parse().map_err(|why| wrong(offset, why))?);
                }
                Some(("token-file", _)) if spec.token_file.is_some() => return twice(),
                Some(("token-file", file)) if !file.is_empty() => {
                    spec.token_file = Some(file.into());
                }
                None if PathClass::by_name(part).is_some() => {
                    if spec.class.is_some() {
                        return twice();
                    }
                    spec.class = PathClass::by_name(part);
                }
                _ => {
                    let known = "primary, overflow, backup, through=HOST, max=RATE, \
                                 cap=SIZE/month or token-file=FILE";
                    return Err(wrong(offset, format!("'{part}' is not {known}")));
                }
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for RelaySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dial)?;
        for other in &self.through {
            write!(f, ",through={other}")?;
        }
        if let Some(class) = self.class {
            write!(f, ",{}", class.name())?;
        }
        if let Some(max) = self.max {
            write!(f, ",max={} bit/s", max.as_bits())?;
        }
        if let Some(cap) = self.cap {
            write!(f, ",cap={} B/month", cap.bytes.0)?;
        }
        let file = self.token_file.as_ref();
        file.map_or(Ok(()), |file| write!(f, ",token-file={}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    #[test]
    fn a_relay_has_an_address_and_options_in_any_order() {
        let spec: RelaySpec = "r1.example.org".parse().unwrap();
        assert_eq!((spec.dial.port, spec.class, spec.max), (7707, None, None));
        for text in [
            "[2001:db8::1]:7, backup ,max=20mbit,cap=1GB/month,token-file=t",
            "r3,through=r1:8,max=20mbit, through = r2,cap=1GB/month,backup",
            "2001:db8::1,cap=1 GB/month,max=20 \
                Mbit/s,backup",
        ] {
            let spec: RelaySpec = text.parse().unwrap();
            assert_eq!(spec.class, Some(PathClass::Backup), "{text}");
            assert_eq!(spec.max, Some(Rate::mbit(20)), "{text}");
            assert_eq!(spec.cap, Some(Cap { bytes: Bytes(1_000_000_000) }), "{text}");
            assert_eq!(spec.to_string().parse(), Ok(spec), "{text}");
        }
    }

    #[test]
    fn mistakes_are_located() {
        for (text, at) in [
            ("", 1),
            ("r1,bakcup", 4),
            ("r1,backup,primary", 11),
            ("r1,through=", 4),
            ("r1,through=r1", 4),
            ("r1,through=r2,through=r2", 15),
            ("r5,through=r1,through=r2,through=r3,through=r4", 37),
            ("r1,max=0", 4),
            ("r1,max=1mbit,max=2mbit", 14),
            ("r1,token-file=", 4),
            ("r1,cap=1GB", 4),
            ("r1,cap=1GB/month,cap=1GB/month", 18),
        ] {
            let error = text.parse::<RelaySpec>().unwrap_err();
            assert_eq!(error.at, at, "{text}: {error}");
        }
    }
}
