//! The operands of `cp`, with scp's grammar: `file`, `host:path`, `user@host:path`,
//! `[2001:db8::1]:path`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use files::Error;

/// One argument of `cp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// A path on this host.
    Local(PathBuf),
    /// A path on another host.
    Remote(RemotePath),
}

/// A path on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemotePath {
    /// The destination for ssh: `host` or `user@host`, an address without brackets.
    pub(super) destination: String,
    /// The path as given, relative to the remote home; empty for the home itself.
    pub(super) path: OsString,
}

/// The operands of a copy in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operands {
    /// From here to another host.
    Push { sources: Vec<PathBuf>, to: RemotePath },
    /// From another host to here.
    Pull { from: String, sources: Vec<OsString>, to: PathBuf },
}

impl Operand {
    /// Reads one argument. It is remote if it has a colon before its first slash, with something
    /// before the colon.
    ///
    /// # Errors
    /// [`Error::usage`] if the part before the colon cannot be a host.
    pub(super) fn parse(text: &OsStr) -> Result<Operand, Error> {
        let bytes = text.as_bytes();
        let Some(colon) = colon(bytes) else { return Ok(Operand::Local(text.into())) };
        let (before, path) = (&bytes[..colon], &bytes[colon + 1..]);
        let bad = |why: &str| Error::usage(format!("{}: {why}", text.display()));
        if path.starts_with(b"//") && before == b"scp" {
            return Err(bad(
                "URLs are not supported; write [USER@]HOST:PATH, with -P PORT before it",
            ));
        }
        let destination =
            std::str::from_utf8(before).map_err(|_| bad("the name of the host is not UTF-8"))?;
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
                "the part before the colon is no host; write ./a:b for a local name with a colon",
            ));
        }
        let destination = user.map_or_else(|| host.to_string(), |user| format!("{user}@{host}"));
        Ok(Operand::Remote(RemotePath { destination, path: OsString::from_vec(path.to_vec()) }))
    }
}

/// The position of the colon after the host, found as scp finds it.
fn colon(bytes: &[u8]) -> Option<usize> {
    let mut bracket = bytes.first() == Some(&b'[');
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            // A name that begins with a colon is local.
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

/// Parses the arguments; the last one is the target. If --files-from lists the sources (`listed`),
/// the target alone is enough.
///
/// # Errors
/// [`Error::usage`] with the correct form.
pub(super) fn operands(arguments: &[OsString], listed: bool) -> Result<Operands, Error> {
    let usage = |text: &str| Err(Error::usage(text));
    let mut parsed =
        arguments.iter().map(|text| Operand::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let Some(target) = parsed.pop().filter(|_| listed || !parsed.is_empty()) else {
        return usage(
            "cp needs a source and a target: cp FILE… HOST:FOLDER, or cp HOST:FILE… FOLDER",
        );
    };
    let mut local = Vec::new();
    let mut remote: Vec<RemotePath> = Vec::new();
    for operand in parsed {
        match operand {
            Operand::Local(path) => local.push(path),
            Operand::Remote(source) => remote.push(source),
        }
    }
    match target {
        Operand::Remote(to) if remote.is_empty() => Ok(Operands::Push { sources: local, to }),
        Operand::Remote(_) => usage(
            "source and target are both on other hosts: run the command on one of them, for \
             example with ssh HOST anabranch cp … (ssh -A forwards your keys)",
        ),
        Operand::Local(to) if local.is_empty() && !remote.is_empty() => {
            let from = remote[0].destination.clone();
            if remote.iter().any(|source| source.destination != from) {
                return usage("the sources are on several hosts: run one command for each host");
            }
            Ok(Operands::Pull {
                from,
                sources: remote.into_iter().map(|source| source.path).collect(),
                to,
            })
        }
        Operand::Local(_) if remote.is_empty() => usage(
            "source and target are both on this host: write one as [USER@]HOST:PATH, or use cp(1)",
        ),
        Operand::Local(_) => usage(
            "some sources are on this host and some on another: run one command for each host",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(destination: &str, path: &str) -> Operand {
        Operand::Remote(RemotePath { destination: destination.into(), path: path.into() })
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
            Operand::Remote(RemotePath { destination: "h".into(), path })
        );
    }

    #[test]
    fn everything_else_is_local() {
        for text in
            ["file", "./a:b", "a/b:c", "/x:y", ":x", "[a", "2001", "[2001:db8::1]", "a@[b:c"]
        {
            assert_eq!(parse(text), Operand::Local(text.into()), "{text}");
        }
    }

    #[test]
    fn impossible_hosts_are_refused() {
        for text in
            ["-oProxyCommand=x:y", "me@-x:y", "@host:x", "a b:c", "me@:x", "scp://host/x", "[]:x"]
        {
            let error = Operand::parse(OsStr::new(text)).expect_err(text);
            assert!(matches!(error, Error::Peer(peer::Error::Usage(_))), "{text}");
        }
    }

    #[test]
    fn sources_and_targets() {
        let ask = |arguments: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            operands(&arguments, false)
        };
        let Ok(Operands::Push { sources, to }) = ask(&["a", "b", "h:c"]) else { panic!("a push") };
        assert_eq!((sources.len(), to.destination.as_str()), (2, "h"));
        let Ok(Operands::Pull { from, sources, to }) = ask(&["h:a", "h:b", "c"]) else {
            panic!("a pull")
        };
        assert_eq!((from.as_str(), sources.len(), to), ("h", 2, PathBuf::from("c")));
        for (arguments, said) in [
            (&["a"][..], "a source and a target"),
            (&["a", "b"], "both on this host"),
            (&["h:a", "h:b"], "both on other hosts"),
            (&["a", "h:b", "c"], "some sources"),
            (&["g:a", "h:b", "c"], "several hosts"),
        ] {
            let error = ask(arguments).unwrap_err().to_string();
            assert!(error.contains(said), "{arguments:?}: {error}");
        }
        assert!(matches!(operands(&["h:".into()], true), Ok(Operands::Push { .. })));
        assert!(operands(&["x".into()], true).is_err());
    }
}
