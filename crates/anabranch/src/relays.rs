//! The relays of a transfer or a measurement: `--relay` and `[send] relays`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::Error;
use peer::caps::Allowance;
use peer::limit::Limit;
use peer::{Credential, Identity, RelayOptions, RelaySpec, Remote};
use relay::{ClientOptions, RelayDialing};

use crate::complete;
use crate::dirs::Dirs;
use crate::peers::{List, key_of};
use crate::token::TokenSource;

/// The most paths among which a command chooses some.
pub(crate) const MOST_CANDIDATES: usize = 256;

/// The relays that a command names.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct RelayFlags {
    /// A relay to use: over each, every interface that reaches it is one more path; may be
    /// repeated
    ///
    /// It is a host that runs 'anabranch relay' and lets this one use it. Its key is known, or
    /// `token-file=FILE` has a token for it. `max=RATE` limits the rate of all paths over it
    /// together, `cap=SIZE/month` their volume in a calendar month over all transfers. One that
    /// only another relay reaches is named with `through=` that one. For example: --relay
    /// r1.example.org --relay 192.0.2.7:7707,backup,max=20mbit,cap=10GB/month
    #[arg(
        long = "relay",
        value_name = "HOST[:PORT][,through=HOST]…[,primary|overflow|backup|background]\
                      [,max=RATE][,cap=SIZE/month][,token-file=FILE]",
        add = complete::receivers()
    )]
    relays: Vec<RelaySpec>,
    /// Further relays: a line of FILE for each, as a value of --relay; '#' begins a comment
    #[arg(long, value_name = "FILE")]
    relays_file: Option<PathBuf>,
    /// Use relays alone, no direct path
    #[arg(long)]
    relays_only: bool,
}

impl RelayFlags {
    /// Whether any is named.
    pub(crate) fn is_given(&self) -> bool {
        !self.relays.is_empty() || self.relays_file.is_some()
    }

    /// The file that names relays, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.relays_file.as_deref()
    }

    /// Whether direct paths are used too.
    pub(crate) fn has_direct(&self) -> bool {
        !self.relays_only
    }

    /// Those that are named, or else those of the configuration.
    ///
    /// # Errors
    /// [`Error::usage`] for a file that cannot be read or has a line that is no relay, and if there
    /// is no relay where direct paths are not to be used.
    pub(crate) fn or_config(&self, config: &[RelaySpec]) -> Result<Vec<RelaySpec>, Error> {
        let mut relays = if self.is_given() { self.relays.clone() } else { config.to_vec() };
        if let Some(file) = &self.relays_file {
            relays.extend(read(file)?);
        }
        if self.relays_only && relays.is_empty() {
            return Err(Error::usage("--relays-only: no relay is named"));
        }
        Ok(relays)
    }
}

/// The relays that a file names, a line each.
///
/// # Errors
/// [`Error::usage`] with the file, and the line that is wrong.
fn read(file: &Path) -> Result<Vec<RelaySpec>, Error> {
    let wrong = |what: String| Error::usage(format!("--relays-file {}: {what}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let mut relays = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let relay = line.parse::<RelaySpec>();
            relays.push(relay.map_err(|error| wrong(format!("line {number}: {error}")))?);
        }
    }
    Ok(relays)
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
    for (number, spec) in specs.iter().enumerate() {
        let is_same = |known: &&RelaySpec| known.dial == spec.dial && known.through == spec.through;
        if specs[..number].iter().any(|known| is_same(&known)) {
            return Err(Error::usage(format!("--relay {}: it is named twice", spec.dial)));
        }
        let (first, further) = hops(spec, identity, dirs)?;
        let same_host = specs.iter().filter(|other| other.dial.name() == spec.dial.name());
        let name = match same_host.count() {
            1 => spec.dial.name().into_owned(),
            _ => spec.dial.to_string(),
        };
        let through = spec.through.iter().map(|other| other.name().into_owned());
        let name = through.chain([name]).collect::<Vec<_>>().join(", ");
        relays.push(RelayOptions {
            name,
            dial: first.dial.clone(),
            key: further.last().map_or(&first.credential, |(_, credential)| credential).pin(),
            class: spec.class,
            max: spec.max.map(|rate| Arc::new(Limit::new(Some(rate)))),
            allowance: Allowance::of_relay(&dirs.usage(), &spec.dial, spec.cap)?,
            relaying: Arc::new(RelayDialing::through(first, further)),
        });
    }
    Ok(relays)
}

/// How the first relay on the way to one is reached, and those behind it.
///
/// # Errors
/// Those of [`client`].
fn hops(
    spec: &RelaySpec,
    identity: &Identity,
    dirs: &Dirs,
) -> Result<(ClientOptions, Vec<(Remote, Credential)>), Error> {
    let mut all = Vec::new();
    for other in &spec.through {
        all.push((other.clone(), known(other, dirs)?));
    }
    all.push((spec.dial.clone(), credential(spec, dirs)?));
    let (dial, credential) = all.remove(0);
    Ok((ClientOptions::new(dial, credential, identity.clone()), all))
}

/// How a relay is reached, by the holder of `identity`.
///
/// # Errors
/// [`Error::usage`] for a relay whose key is not known; errors of reading a token or the list of
/// known hosts.
pub(crate) fn client(
    spec: &RelaySpec,
    identity: &Identity,
    dirs: &Dirs,
) -> Result<ClientOptions, Error> {
    if !spec.through.is_empty() {
        let text = format!("--relay {spec}: through= is for the paths to a host");
        return Err(Error::usage(text));
    }
    Ok(ClientOptions::new(spec.dial.clone(), credential(spec, dirs)?, identity.clone()))
}

fn credential(spec: &RelaySpec, dirs: &Dirs) -> Result<Credential, Error> {
    if let Some(file) = &spec.token_file {
        return TokenSource::in_file(file).map(Credential::Token);
    }
    known(&spec.dial, dirs)
}

/// A relay whose key is known.
fn known(dial: &Remote, dirs: &Dirs) -> Result<Credential, Error> {
    let known = key_of(&List::Receivers.load(dirs)?, dial);
    known.map(Credential::Pinned).ok_or_else(|| {
        Error::usage(format!(
            "--relay {dial}: its key is not known; 'anabranch keys trust receiver {name} \
             FINGERPRINT' makes it known, and token-file=FILE behind the relay shows a token \
             instead",
            name = dial.name(),
        ))
    })
}
