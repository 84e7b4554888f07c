//! How a command and the hosts that it dials know each other.

use files::{Error, StreamInput};
use peer::{Credential, Remote, Token};

use crate::dirs::Dirs;
use crate::peers::{List, key_of};
use crate::token::TokenSource;

/// The given token, or else the receiver's known key, or else a token from the prompt. What
/// standard input yields is no token if it is the stream.
///
/// # Errors
/// Errors of reading either.
pub(super) fn credential(
    source: &TokenSource,
    to: &Remote,
    dirs: &Dirs,
    stream: Option<&StreamInput>,
) -> Result<Credential, Error> {
    check_stdin(source, stream)?;
    match known_credential(source, to, dirs)? {
        Some(credential) => Ok(credential),
        None => asked(stream).map(Credential::Token),
    }
}

/// The given token, or else one from the prompt.
///
/// # Errors
/// As [`credential`].
pub(super) fn token_of(source: &TokenSource, stream: Option<&StreamInput>) -> Result<Token, Error> {
    check_stdin(source, stream)?;
    match source.given()? {
        Some(token) => Ok(token),
        None => asked(stream),
    }
}

/// Checks that what standard input yields is not both a stream and a token.
fn check_stdin(source: &TokenSource, stream: Option<&StreamInput>) -> Result<(), Error> {
    if stream == Some(&StreamInput::Stdin) && source.is_stdin() {
        return Err(Error::usage("standard input is the stream: --token-stdin cannot read it"));
    }
    Ok(())
}

/// A token from the prompt.
fn asked(stream: Option<&StreamInput>) -> Result<Token, Error> {
    match stream {
        Some(StreamInput::Stdin) => TokenSource::ask_terminal(),
        _ => TokenSource::ask(),
    }
}

/// The given token, or else the receiver's known key.
///
/// # Errors
/// Errors of reading either.
pub(super) fn known_credential(
    source: &TokenSource,
    to: &Remote,
    dirs: &Dirs,
) -> Result<Option<Credential>, Error> {
    if let Some(token) = source.given()? {
        return Ok(Some(Credential::Token(token)));
    }
    let known = key_of(&List::Receivers.load(dirs)?, to);
    Ok(known.map(Credential::Pinned))
}

/// The credential of each of several hosts. The given tokens are for the hosts without a known key,
/// in order; for a single host, a token takes precedence over its key.
///
/// # Errors
/// Errors of reading either, a host without one, and tokens without a host.
pub(super) fn of_each(
    remotes: Vec<Remote>,
    source: &TokenSource,
    dirs: &Dirs,
) -> Result<Vec<(Remote, Credential)>, Error> {
    let known = List::Receivers.load(dirs)?;
    let mut tokens = source.all_given()?.into_iter();
    let alone = remotes.len() == 1;
    let mut each = Vec::new();
    for remote in remotes {
        let pinned = key_of(&known, &remote);
        let credential = match (
            pinned,
            if alone || pinned.is_none() { tokens.next() } else { None },
        ) {
            (_, Some(token)) => Credential::Token(token),
            (Some(fingerprint), None) => Credential::Pinned(fingerprint),
            (None, None) if alone => Credential::Token(TokenSource::ask()?),
            (None, None) => {
                let text = format!(
                    "the key of {remote} is unknown, and it has no token: 'anabranch keys trust \
                     receiver {remote} FINGERPRINT' adds a key; tokens are read one on each line"
                );
                return Err(Error::usage(text));
            }
        };
        each.push((remote, credential));
    }
    if tokens.next().is_some() {
        return Err(Error::usage("there are more tokens than hosts that need one"));
    }
    Ok(each)
}
