//! scp's grammar: `file`, `host:path`, `user@host:path`, `[2001:db8::1]:path`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use files::Error;

/// One argument of `cp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// Something here.
    Local(PathBuf),
    /// Something on another host.
    Far(Far),
}

/// Something on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Far {
    /// What ssh is told to connect to: `host` or `user@host`, an address without brackets.
    pub(super) destination: String,
    /// As the command line has it, relative to the remote home; empty for the home itself.
    pub(super) path: OsString,
}

/// What is copied where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From here to another host.
    Push { sources: Vec<PathBuf>, to: Far },
    /// From another host to here.
    Pull { from: String, sources: Vec<OsString>, to: PathBuf },
}

impl Operand {
    /// Reads one argument. It is remote if it has a colon before its first slash, with something
    /// before the colon.
    ///
    /// # Errors
    /// [`Error::usage`] if what is before the colon cannot be a host.
    pub(super) fn parse(text: &OsStr) -> Result<Operand, Error> {
        let bytes = text.as_bytes();
        let Some(colon) = colon(bytes) else { return Ok(Operand::Local(text.into())) };
        let (before, path) = (&bytes[..colon], &bytes[colon + 1..]);
        let bad = |why: &str| Error::usage(format!("{}: {why}", text.display()));
        if path.starts_with(b"//") && before == b"scp" {
            return Err(bad(
                "URLs are not understood; write [USER@]HOST:PATH, with -P PORT before it",
            ));
        }
        let destination =
            std::str::from_utf8(before).map_err(|_| bad("the host's name is no text"))?;
        let (user, host) = match destination.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, destination),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let plain = |name: &str| {
            !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        if !plain(host)
            || user.is_some_and(|user| !plain(user))
            || destination.starts_with('-')
            || host.starts_with('-')
        {
            return Err(bad(
                "what is before the colon is no host; a local name with a colon is written ./a:b",
            ));
        }
        let destination = user.map_or_else(|| host.to_string(), |user| format!("{user}@{host}"));
        Ok(Operand::Far(Far { destination, path: OsString::from_vec(path.to_vec()) }))
    }
}

/// Where the host ends; as scp looks for it.
fn colon(bytes: &[u8]) -> Option<usize> {
    let mut bracket = bytes.first() == Some(&b'[');
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            // A name that begins with a colon is a file's.
            b':' if at == 0 => return None,
            b'@' if bytes.get(at + 1) == Some(&b'[') => bracket = true,
            b']' if bracket && bytes.get(at + 1) == Some(&b':') => return Some(at + 1),
            b':' if !bracket => return Some(at),
            b'/' => return None,
            _ => {}
        }
    }
    None
}

/// What the arguments ask for: the last one is where the others go. `listed` if --files-from says
/// what is copied, so that one argument is enough.
///
/// # Errors
/// [`Error::usage`] with what to write instead.
pub(super) fn direction(arguments: &[OsString], listed: bool) -> Result<Direction, Error> {
    let usage = |text: &str| Err(Error::usage(text));
    let mut operands =
        arguments.iter().map(|text| Operand::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let Some(target) = operands.pop().filter(|_| listed || !operands.is_empty()) else {
        return usage(
            "cp needs what to copy and where to: cp FILE… HOST:FOLDER, or cp HOST:FILE… FOLDER",
        );
    };
    let mut local = Vec::new();
    let mut far: Vec<Far> = Vec::new();
    for operand in operands {
        match operand {
            Operand::Local(path) => local.push(path),
            Operand::Far(source) => far.push(source),
        }
    }
    match target {
        Operand::Far(to) if far.is_empty() => Ok(Direction::Push { sources: local, to }),
        Operand::Far(_) => usage(
            "both ends are on other hosts: run this command on one of them, for example with ssh \
             HOST anabranch cp … (ssh -A lends it your keys)",
        ),
        Operand::Local(to) if local.is_empty() && !far.is_empty() => {
            let from = far[0].destination.clone();
            if far.iter().any(|source| source.destination != from) {
                return usage("the sources are on several hosts: run one command for each");
            }
            Ok(Direction::Pull {
                from,
                sources: far.into_iter().map(|source| source.path).collect(),
                to,
            })
        }
        Operand::Local(_) if far.is_empty() => usage(
            "nothing of this is on another host: write one end as [USER@]HOST:PATH, or use cp(1)",
        ),
        Operand::Local(_) => {
            usage("some sources are here and some on another host: run one command for each")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(destination: &str, path: &str) -> Operand {
        Operand::Far(Far { destination: destination.into(), path: path.into() })
    }

    fn parse(text: &str) -> Operand {
        Operand::parse(OsStr::new(text)).unwrap()
    }

    #[test]
    fn a_colon_before_a_slash_makes_a_host() {
        for (text, destination, path) in [
            ("host:path", "host", "path"),
            ("host:", "host", ""),
            ("me@host:a b", "me@host", "a b"),
            ("host:/abs/p:q", "host", "/abs/p:q"),
            ("host:-rf", "host", "-rf"),
            ("host::", "host", ":"),
            ("[2001:db8::1]:x", "2001:db8::1", "x"),
            ("me@[fe80::1%eth0]:x/y", "me@fe80::1%eth0", "x/y"),
            ("me@example.org@host:x", "me@example.org@host", "x"),
            ("[host]:x", "host", "x"),
        ] {
            assert_eq!(parse(text), far(destination, path), "{text}");
        }
        let bytes = OsStr::from_bytes(b"h:\xff\xfe");
        let path = OsString::from_vec(vec![0xff, 0xfe]);
        assert_eq!(
            Operand::parse(bytes).unwrap(),
            Operand::Far(Far { destination: "h".into(), path })
        );
    }

    #[test]
    fn everything_else_is_here() {
        for text in
            ["file", "./a:b", "a/b:c", "/x:y", ":x", "[a", "2001", "[2001:db8::1]", "a@[b:c"]
        {
            assert_eq!(parse(text), Operand::Local(text.into()), "{text}");
        }
    }

    #[test]
    fn what_no_host_can_be_is_refused() {
        for text in
            ["-oProxyCommand=x:y", "me@-x:y", "@host:x", "a b:c", "me@:x", "scp://host/x", "[]:x"]
        {
            let error = Operand::parse(OsStr::new(text)).expect_err(text);
            assert!(matches!(error, Error::Peer(peer::Error::Usage(_))), "{text}");
        }
    }

    #[test]
    fn directions() {
        let ask = |arguments: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            direction(&arguments, false)
        };
        let Ok(Direction::Push { sources, to }) = ask(&["a", "b", "h:c"]) else { panic!("a push") };
        assert_eq!((sources.len(), to.destination.as_str()), (2, "h"));
        let Ok(Direction::Pull { from, sources, to }) = ask(&["h:a", "h:b", "c"]) else {
            panic!("a pull")
        };
        assert_eq!((from.as_str(), sources.len(), to), ("h", 2, PathBuf::from("c")));
        for (arguments, said) in [
            (&["a"][..], "what to copy"),
            (&["a", "b"], "nothing of this"),
            (&["h:a", "h:b"], "both ends"),
            (&["a", "h:b", "c"], "some sources"),
            (&["g:a", "h:b", "c"], "several hosts"),
        ] {
            let error = ask(arguments).unwrap_err().to_string();
            assert!(error.contains(said), "{arguments:?}: {error}");
        }
        assert!(matches!(direction(&["h:".into()], true), Ok(Direction::Push { .. })));
        assert!(direction(&["x".into()], true).is_err());
    }
}
