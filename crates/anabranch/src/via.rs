//! Meeting at relays: `--via`, `[receive] via` and `--code`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use events::Events;
use files::Error;
use peer::{Credential, Fingerprint, Identity, PathClass, RelayOptions, Remote, Token};
use relay::meeting::{Claimed, Code, Invited, Meeting, claim};
use relay::{ClientOptions, RelayDialing};

use crate::complete;
use crate::dirs::Dirs;
use crate::host_key::HostKey;
use crate::peers::{List, key_of};
use crate::threads;
use crate::token::TokenSource;

/// A relay at which hosts meet: `HOST[:PORT][,FINGERPRINT][,token-file=FILE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ViaSpec {
    /// Its address.
    dial: Remote,
    /// Its key, where it is named.
    key: Option<Fingerprint>,
    /// The file with a token for it, with which a host may wait there.
    token_file: Option<PathBuf>,
}

impl FromStr for ViaSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<ViaSpec, String> {
        let mut parts = text.split(',').map(str::trim);
        let dial = parts.next().expect("a text has a first part").parse()?;
        let mut spec = ViaSpec { dial, key: None, token_file: None };
        for part in parts {
            match part.split_once('=') {
                Some(("token-file", file)) if !file.is_empty() && spec.token_file.is_none() => {
                    spec.token_file = Some(file.into());
                }
                None if spec.key.is_none() => spec.key = Some(part.parse()?),
                _ => return Err(format!("'{part}' is not FINGERPRINT or token-file=FILE")),
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for ViaSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dial.fmt(f)
    }
}

impl ViaSpec {
    /// The key of the relay: the one that is named, or that its token names, or else known.
    fn known_key(&self, dirs: &Dirs) -> Result<Option<Fingerprint>, Error> {
        match (self.key, &self.token_file) {
            (Some(key), _) => Ok(Some(key)),
            (None, Some(file)) => Ok(Some(Credential::Token(TokenSource::in_file(file)?).pin())),
            (None, None) => Ok(key_of(&List::Receivers.load(dirs)?, &self.dial)),
        }
    }

    /// The relay's address.
    pub(crate) fn dial(&self) -> &Remote {
        &self.dial
    }

    /// The relay for paths to a host that waits there.
    fn relay(&self, options: ClientOptions) -> RelayOptions {
        RelayOptions {
            name: self.dial.name().into_owned(),
            dial: self.dial.clone(),
            key: options.credential.pin(),
            // Direct paths come first, once there are any.
            class: Some(PathClass::Overflow),
            max: None,
            allowance: None,
            relaying: Arc::new(RelayDialing::new(options)),
        }
    }

    /// How a host that may use the relay and the relay know each other.
    pub(crate) fn credential(&self, dirs: &Dirs) -> Result<Credential, Error> {
        if let Some(file) = &self.token_file {
            return TokenSource::in_file(file).map(Credential::Token);
        }
        self.known_key(dirs)?.map(Credential::Pinned).ok_or_else(|| {
            let name = self.dial.name();
            Error::usage(format!(
                "--via {self}: its key is not known; 'anabranch keys trust receiver {name} \
                 FINGERPRINT' makes it known, and token-file=FILE behind the relay shows a token \
                 instead"
            ))
        })
    }
}

/// The relays at which a host may wait, connected to as its key.
///
/// # Errors
/// [`Error::usage`] for a relay whose key is not known, or that is named twice; errors of reading a
/// token or the list of known hosts.
pub(crate) fn relays_to_wait_at(
    specs: &[ViaSpec],
    identity: &Identity,
    dirs: &Dirs,
) -> Result<Vec<ClientOptions>, Error> {
    refuse_twice(specs)?;
    let options = |spec: &ViaSpec| {
        let credential = spec.credential(dirs)?;
        Ok(ClientOptions::new(spec.dial.clone(), credential, identity.clone()))
    };
    specs.iter().map(options).collect()
}

/// Waits at relays for known hosts, and for those who are invited; `None` without relays. Needs a
/// Tokio runtime.
///
/// # Errors
/// [`Error::System`] if the library refuses a key.
pub(crate) fn wait(
    relays: Vec<ClientOptions>,
    invited: Invited<'_>,
    events: &Events,
) -> Result<Option<Arc<Meeting>>, Error> {
    if relays.is_empty() {
        return Ok(None);
    }
    Ok(Some(Meeting::start(relays, invited, events)?))
}

/// Those who come with a token, if there is one, or with a code.
pub(crate) fn invited_by(token: Option<&Token>) -> Invited<'_> {
    token.map_or(Invited::Nobody, Invited::HolderOrCode)
}

/// The host that is met, in place of one that is dialed.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct MeetFlags {
    /// A relay at which the host waits, as printed there, in place of its name, or beside the name
    /// of one whose key is known; may be repeated
    #[arg(
        long,
        value_name = "HOST[:PORT][,FINGERPRINT][,token-file=FILE]",
        conflicts_with_all = ["relays", "relays_file", "relays_only"],
        add = complete::receivers()
    )]
    via: Vec<ViaSpec>,
    /// The code that the host shows, in place of its token: a number and three words, of which four
    /// letters each suffice
    #[arg(
        long,
        value_name = "CODE",
        requires = "via",
        conflicts_with_all = ["token_file", "token_stdin"],
        add = complete::codes()
    )]
    code: Option<Code>,
}

/// A host that is met.
pub(crate) struct MetHost {
    /// Its name, or what stands for it: the first relay.
    pub(crate) to: Remote,
    pub(crate) credential: Credential,
    /// The key that this host shows.
    pub(crate) identity: Identity,
    /// The relays at which it waits.
    pub(crate) relays: Vec<RelayOptions>,
}

impl MeetFlags {
    /// Whether a host is to be met.
    pub(crate) fn is_given(&self) -> bool {
        !self.via.is_empty()
    }

    /// The host that is met: by its name if it has one and its key is known, by its code, or by the
    /// `token` that is asked for.
    ///
    /// # Errors
    /// [`Error::usage`] for a relay whose key is not known, or that is named twice; those of
    /// [`claim`], and of reading the token and the list of known hosts.
    pub(crate) fn meet(
        &self,
        named: Option<&Remote>,
        key: HostKey,
        token: impl FnOnce() -> Result<Token, Error>,
        dirs: &Dirs,
    ) -> Result<MetHost, Error> {
        let first = self.via.first().ok_or_else(|| Error::usage("no host is named"))?;
        refuse_twice(&self.via)?;
        if let Some(to) = named {
            return self.meet_known(to, key, dirs);
        }
        let identity = key.or_temporary_with_notice()?;
        let (via, token) = match &self.code {
            Some(code) => claim_token(&self.via, code, &identity, dirs)?,
            None => (self.via.clone(), token()?),
        };
        let relays = relays_of_guest(&via, &token, &identity, dirs)?;
        let credential = Credential::Token(token);
        Ok(MetHost { to: first.dial.clone(), credential, identity, relays })
    }

    /// The host of that name, whose key is known, at relays that this host may use.
    fn meet_known(&self, to: &Remote, key: HostKey, dirs: &Dirs) -> Result<MetHost, Error> {
        if self.code.is_some() {
            let text = format!("--code is for a host without a name: leave {to} out");
            return Err(Error::usage(text));
        }
        let host = key_of(&List::Receivers.load(dirs)?, to).ok_or_else(|| {
            Error::usage(format!(
                "{to} beside --via has to be a host with a known key: 'anabranch keys trust \
                 receiver {} FINGERPRINT' makes it known; without the name, its token or its code \
                 is enough",
                to.name()
            ))
        })?;
        let identity = key.lasting()?;
        let relay = |spec: &ViaSpec| {
            let (dial, credential) = (spec.dial.clone(), spec.credential(dirs)?);
            let options = ClientOptions::meeting(dial, credential, identity.clone(), host);
            Ok(spec.relay(options))
        };
        let relays = self.via.iter().map(relay).collect::<Result<_, Error>>()?;
        Ok(MetHost { to: to.clone(), credential: Credential::Pinned(host), identity, relays })
    }
}

/// Gets the token of the host that waits at one of these relays under a code.
///
/// # Errors
/// Those of [`claim`], of the last relay that was asked; errors of reading the list of known hosts.
fn claim_token(
    specs: &[ViaSpec],
    code: &Code,
    identity: &Identity,
    dirs: &Dirs,
) -> Result<(Vec<ViaSpec>, Token), Error> {
    let [spec] = specs else {
        return Err(Error::usage("--code is for one relay: name the one of the printed command"));
    };
    let known = spec.known_key(dirs)?;
    let runtime =
        threads::runtime().map_err(|source| Error::system("start the runtime", source))?;
    let Claimed { token, relay } =
        runtime.block_on(claim(&spec.dial, known, identity, code)).map_err(Error::from)?;
    Ok((vec![ViaSpec { key: Some(relay), ..spec.clone() }], token))
}

/// The relays over which the host with this token is reached: as its guest.
///
/// # Errors
/// [`Error::usage`] for a relay whose key is not known; errors of reading the list of known hosts.
pub(crate) fn relays_of_guest(
    specs: &[ViaSpec],
    token: &Token,
    identity: &Identity,
    dirs: &Dirs,
) -> Result<Vec<RelayOptions>, Error> {
    let options = |spec: &ViaSpec| {
        let key = spec.known_key(dirs)?.ok_or_else(|| {
            Error::usage(format!(
                "--via {spec}: its key is not known; copy all of the receiver's command, \
                 --via HOST:PORT,FINGERPRINT, or use --code"
            ))
        })?;
        Ok(spec.relay(ClientOptions::guest(spec.dial.clone(), key, identity.clone(), token)))
    };
    specs.iter().map(options).collect()
}

/// Refuses relays that are named twice.
///
/// # Errors
/// [`Error::usage`] with the relay.
pub(crate) fn refuse_twice(specs: &[ViaSpec]) -> Result<(), Error> {
    let is_again =
        |(at, spec): &(usize, &ViaSpec)| specs[..*at].iter().any(|other| other.dial == spec.dial);
    match specs.iter().enumerate().find(is_again) {
        Some((_, spec)) => Err(Error::usage(format!("--via {spec}: it is named twice"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_has_a_key_or_a_token() {
        let key = Identity::generate().unwrap().fingerprint();
        let spec: ViaSpec = "r1.example.org".parse().unwrap();
        assert_eq!((spec.dial.port, spec.key, spec.token_file), (7707, None, None));
        let spec: ViaSpec = format!("[2001:db8::1]:7, {key},token-file=t").parse().unwrap();
        assert_eq!((spec.dial.port, spec.key), (7, Some(key)));
        assert_eq!(spec.token_file, Some("t".into()));
        for (text, why) in [
            ("", "is not HOST"),
            ("r1,backup", "is not a key's fingerprint"),
            ("r1,token-file=", "token-file=FILE"),
            ("r1,max=1mbit", "'max=1mbit' is not FINGERPRINT"),
        ] {
            let error = text.parse::<ViaSpec>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let specs = ["r1", "r1:7707"].map(|text| text.parse().unwrap());
        assert!(refuse_twice(&specs).is_err() && refuse_twice(&specs[..1]).is_ok());
    }
}
