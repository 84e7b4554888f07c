//! This host's key, and what to do where none can be kept: in a read-only home, or without one.

use files::Error;
use peer::{Credential, Identity};

use crate::dirs::Dirs;
use crate::sanitize::{clean, without_error_numbers};

/// This host's key, or the reason why it has none.
#[derive(Debug)]
pub(crate) enum HostKey {
    /// The key that other hosts know.
    Kept(Identity),
    /// [`peer::Error::NoKey`].
    Unkept(peer::Error),
}

impl HostKey {
    /// Reads the key, and makes it at first use.
    ///
    /// # Errors
    /// [`Error::System`] if there is a key that must not be used: others may read or change it.
    pub(crate) fn load(dirs: &Dirs) -> Result<HostKey, Error> {
        match Identity::load_or_generate(&dirs.key()) {
            Ok(identity) => Ok(HostKey::Kept(identity)),
            Err(error @ peer::Error::NoKey { .. }) => Ok(HostKey::Unkept(error)),
            Err(error) => Err(error.into()),
        }
    }

    /// The key, for what other hosts must recognise later.
    ///
    /// # Errors
    /// [`peer::Error::NoKey`].
    pub(crate) fn lasting(self) -> Result<Identity, Error> {
        match self {
            HostKey::Kept(identity) => Ok(identity),
            HostKey::Unkept(why) => Err(why.into()),
        }
    }

    /// The key, or else one for this run alone.
    ///
    /// # Errors
    /// [`Error::System`] if the system has no random numbers.
    pub(crate) fn or_temporary(self) -> Result<Identity, Error> {
        match self {
            HostKey::Kept(identity) => Ok(identity),
            HostKey::Unkept(_) => Ok(Identity::generate()?),
        }
    }

    /// As [`HostKey::or_temporary`], and says so on standard error.
    ///
    /// # Errors
    /// As [`HostKey::or_temporary`].
    pub(crate) fn or_temporary_with_notice(self) -> Result<Identity, Error> {
        if let HostKey::Unkept(peer::Error::NoKey { path, source }) = &self {
            let place = path.display().to_string();
            errln!(
                "no key can be kept at {} ({}): this run uses a new one, and to other hosts the \
                 next run is another host",
                clean(&place),
                without_error_numbers(&source.to_string())
            );
        }
        self.or_temporary()
    }

    /// The key to show to hosts with these credentials: a token needs no lasting one, a known key
    /// on the other side implies that ours is known there.
    ///
    /// # Errors
    /// Those of [`HostKey::lasting`] and [`HostKey::or_temporary`].
    pub(crate) fn beside<'a>(
        self,
        mut credentials: impl Iterator<Item = &'a Credential>,
    ) -> Result<Identity, Error> {
        if credentials.all(|credential| matches!(credential, Credential::Token(_))) {
            self.or_temporary_with_notice()
        } else {
            self.lasting()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_be_stored_is_for_one_run() {
        let load = || HostKey::load(&Dirs::below("/dev/null".as_ref())).unwrap();
        let keys = [load().or_temporary().unwrap(), load().or_temporary().unwrap()];
        assert_ne!(keys[0].fingerprint(), keys[1].fingerprint());
        let why = load().lasting().unwrap_err();
        assert!(matches!(why, Error::Peer(peer::Error::NoKey { .. })), "{why}");
    }
}
