//! The relays of a transfer: `--relay` and `[send] relays`.

use std::sync::Arc;

use files::Error;
use peer::limit::Limit;
use peer::{Credential, Identity, RelayOptions, RelaySpec};
use relay::{ClientOptions, RelayDialing};

use crate::dirs::Dirs;
use crate::peers::{List, key_of};
use crate::token::TokenSource;

/// The relays that `specs` name, for the holder of `identity`.
///
/// # Errors
/// [`Error::usage`] for a relay whose key is not known, or that is named twice; errors of reading
/// a token or the list of known hosts.
pub(crate) fn relays(
    specs: &[RelaySpec],
    identity: &Identity,
    dirs: &Dirs,
) -> Result<Vec<RelayOptions>, Error> {
    let mut relays: Vec<RelayOptions> = Vec::new();
    for spec in specs {
        if relays.iter().any(|known| known.dial == spec.dial) {
            return Err(Error::usage(format!("--relay {}: it is named twice", spec.dial)));
        }
        let credential = credential(spec, dirs)?;
        let dialing = ClientOptions::new(spec.dial.clone(), credential, identity.clone());
        let same_host = specs.iter().filter(|other| other.dial.name() == spec.dial.name());
        let name = match same_host.count() {
            1 => spec.dial.name().into_owned(),
            _ => spec.dial.to_string(),
        };
        relays.push(RelayOptions {
            name,
            dial: spec.dial.clone(),
            class: spec.class,
            max: spec.max.map(|rate| Arc::new(Limit::new(Some(rate)))),
            relaying: Arc::new(RelayDialing::new(dialing)),
        });
    }
    Ok(relays)
}

fn credential(spec: &RelaySpec, dirs: &Dirs) -> Result<Credential, Error> {
    if let Some(file) = &spec.token_file {
        return TokenSource::in_file(file).map(Credential::Token);
    }
    let known = key_of(&List::Receivers.load(dirs)?, &spec.dial);
    known.map(Credential::Pinned).ok_or_else(|| {
        Error::usage(format!(
            "--relay {relay}: its key is not known; 'anabranch keys trust receiver FINGERPRINT \
             {name}' makes it known, and token-file=FILE behind the relay shows a token instead",
            relay = spec.dial,
            name = spec.dial.name(),
        ))
    })
}
