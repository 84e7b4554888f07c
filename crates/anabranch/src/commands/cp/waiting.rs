//! The relays at which the far side of a copy waits: what it is told of them, and what it makes of
//! that.

use files::Error;
use peer::{Credential, Identity};
use relay::ClientOptions;

use super::messages::WaitAt;
use crate::dirs::Dirs;
use crate::via::{ViaSpec, refuse_twice};

/// What the far side of a copy is told so that it waits at these relays.
///
/// # Errors
/// [`Error::usage`] for a relay whose key is not known, or that is named twice; errors of reading a
/// token or the list of known hosts.
pub(crate) fn relays_of_far_side(specs: &[ViaSpec], dirs: &Dirs) -> Result<Vec<WaitAt>, Error> {
    refuse_twice(specs)?;
    let place = |spec: &ViaSpec| {
        let credential = spec.credential(dirs)?;
        let key = credential.pin().to_string();
        let token = match &credential {
            Credential::Token(token) => Some(token.reveal()),
            Credential::Pinned(_) => None,
        };
        Ok(WaitAt { relay: spec.dial().to_string(), key, token })
    };
    specs.iter().map(place).collect()
}

/// The relays at which the far side of a copy is to wait, connected to as its key.
///
/// # Errors
/// [`Error::protocol`] for what is no relay.
pub(crate) fn relays_told(
    told: &[WaitAt],
    identity: &Identity,
) -> Result<Vec<ClientOptions>, Error> {
    let options = |told: &WaitAt| {
        let dial = told.relay.parse().map_err(Error::protocol)?;
        let credential = match &told.token {
            Some(token) => Credential::Token(token.parse().map_err(Error::protocol)?),
            None => Credential::Pinned(told.key.parse().map_err(Error::protocol)?),
        };
        Ok(ClientOptions::new(dial, credential, identity.clone()))
    };
    told.iter().map(options).collect()
}
