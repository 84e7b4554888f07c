//! `keys`: this host's key, and whom it trusts.

use std::path::PathBuf;

use clap::Subcommand;
use net::{Error, Fingerprint, Identity, May};
use units::Rate;

use crate::dirs::Dirs;
use crate::peers::{List, Peer, Rights};

/// Arguments of `keys`.
#[derive(Debug, clap::Args)]
pub(crate) struct KeysArgs {
    /// What to do; without it, show this host's fingerprint
    #[command(subcommand)]
    action: Option<Action>,
}

/// What `keys` can do.
#[derive(Debug, Subcommand)]
enum Action {
    /// Show this host's fingerprint, making a key if there is none
    Show,
    /// Show every host that is trusted
    List,
    /// Trust a host's key
    #[command(subcommand)]
    Trust(Trust),
    /// Trust a host's key no longer
    #[command(subcommand)]
    Remove(Remove),
}

/// Whom to trust.
#[derive(Debug, Subcommand)]
enum Trust {
    /// Send to HOST, or get from it, without a token
    Receiver {
        /// As given to 'send --to' or 'get --from', without the port
        host: String,
        /// What 'anabranch keys' shows there
        fingerprint: Fingerprint,
    },
    /// Let the host of this key send here, or get from here, without a token
    Sender {
        /// What 'anabranch keys' shows there
        fingerprint: Fingerprint,
        /// What to call it
        name: Option<String>,
        /// What it may do: get what 'serve' offers, send to 'receive', or both
        #[arg(long, value_name = "get|send|both", default_value_t, hide_default_value = true)]
        may: May,
        /// What it sees in place of the folder of 'serve' or 'receive'; below that, if it is
        /// relative
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Never faster than this
        #[arg(long, value_name = "RATE")]
        max: Option<Rate>,
    },
}

/// Whom to forget.
#[derive(Debug, Subcommand)]
enum Remove {
    /// Forget a receiver's key
    Receiver {
        /// Its host or fingerprint
        which: String,
    },
    /// Take a sender's permission back
    Sender {
        /// Its name or fingerprint
        which: String,
    },
}

/// `anabranch keys`.
///
/// # Errors
/// Those of reading and writing the key and the lists; [`Error::Usage`] if there is nobody to
/// remove.
pub(crate) fn run(args: KeysArgs) -> Result<(), Error> {
    let dirs = Dirs::from_env();
    match args.action.unwrap_or(Action::Show) {
        Action::Show => println!("{}", Identity::load_or_generate(&dirs.key())?.fingerprint()),
        Action::List => {
            for (list, kind) in [(List::Receivers, "receiver"), (List::Senders, "sender")] {
                for Peer { name, fingerprint, rights } in list.load(&dirs)? {
                    println!("{}", format!("{kind:8}  {fingerprint}  {name}{rights}").trim_end());
                }
            }
        }
        Action::Trust(Trust::Receiver { host, fingerprint }) => {
            List::Receivers.add(
                &dirs,
                Peer { name: one_word(&host)?, fingerprint, rights: Rights::default() },
            )?;
        }
        Action::Trust(Trust::Sender { fingerprint, name, may, dir, max }) => {
            let name = name.as_deref().map(one_word).transpose()?.unwrap_or_default();
            if let Some(dir) = &dir {
                let text = dir.to_str().unwrap_or_default();
                if text.is_empty()
                    || text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#')
                {
                    return Err(Error::Usage("--dir is one word of UTF-8 without '#'".into()));
                }
            }
            List::Senders.add(
                &dirs,
                Peer { name, fingerprint, rights: Rights { may, directory: dir, max } },
            )?;
        }
        Action::Remove(Remove::Receiver { which }) => {
            removed(List::Receivers.remove(&dirs, &which)?, &which)?;
        }
        Action::Remove(Remove::Sender { which }) => {
            removed(List::Senders.remove(&dirs, &which)?, &which)?;
        }
    }
    Ok(())
}

fn one_word(name: &str) -> Result<String, Error> {
    if name.is_empty()
        || name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#' || c == '=')
    {
        return Err(Error::Usage("a peer's name is one word without '#' and '='".into()));
    }
    Ok(name.to_string())
}

fn removed(count: usize, which: &str) -> Result<(), Error> {
    if count == 0 {
        return Err(Error::Usage(format!(
            "nobody of the name or fingerprint '{which}' is on the list"
        )));
    }
    Ok(())
}
