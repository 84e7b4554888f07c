//! The relays of a transfer or a measurement: `--relay` and `[send] relays`.

use std::sync::Arc;

use files::Error;
use peer::caps::Allowance;
use peer::limit::Limit;
use peer::{Credential, Identity, RelayOptions, RelaySpec};
use relay::{ClientOptions, RelayDialing};

use crate::complete;
use crate::dirs::Dirs;
use crate::peers::{List, key_of};
use crate::token::TokenSource;

/// The relays that a command names.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct RelayFlags {
    /// A relay to use: over each, every interface that reaches it is one more path, for TCP alone;
    /// may be repeated
    ///
    /// It is a host that runs 'anabranch relay' and lets this one use it. Its key is known, or
    /// `token-file=FILE` has a token for it. `max=RATE` limits the rate of all paths over it
    /// together, `cap=SIZE/month` their volume in a calendar month over all transfers. For
    /// example: --relay r1.example.org --relay 192.0.2.7:7707,backup,max=20mbit,cap=10GB/month
    #[arg(
        long = "relay",
        value_name = "HOST[:PORT][,primary|overflow|backup][,max=RATE][,cap=SIZE/month]\
                      [,token-file=FILE]",
        add = complete::receivers()
    )]
    relays: Vec<RelaySpec>,
}

impl RelayFlags {
    /// Whether any is named.
    pub(crate) fn is_given(&self) -> bool {
        !self.relays.is_empty()
    }

    /// Those that are named, or else those of the configuration.
    pub(crate) fn or_config(&self, config: &[RelaySpec]) -> Vec<RelaySpec> {
        if self.is_given() { self.relays.clone() } else { config.to_vec() }
    }
}

/// The relays that `specs` name, for the holder of `identity`.
///
/// # Errors
/// [`Error::usage`] for a relay whose key is not known, or that is named twice; errors of reading
/// a token, the list of known hosts, or the count of a cap.
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
            allowance: Allowance::of_relay(&dirs.usage(), &spec.dial, spec.cap)?,
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
