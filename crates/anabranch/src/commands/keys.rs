//! `keys`: this host's key, and the keys that it trusts.

use std::path::PathBuf;

use clap::Subcommand;
use files::Error;
use gateway::GatewayRights;
use peer::rights::RelayAddresses;
use peer::{Cap, Fingerprint, May, Rights};
use reach::{ListenRights, Reach};
use units::Rate;

use crate::complete;
use crate::dirs::Dirs;
use crate::examples;
use crate::host_key::HostKey;
use crate::peers::{List, Peer, ReceiverName, set_right, words};

/// Arguments of `keys`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("keys"))]
pub(crate) struct KeysArgs {
    /// The action [default: show]
    #[command(subcommand)]
    action: Option<Action>,
}

/// The actions of `keys`.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one in a run")]
enum Action {
    /// Show this host's fingerprint; generate a key if there is none
    Show,
    /// List the trusted hosts
    List,
    /// Trust a host's key
    #[command(subcommand)]
    Trust(Trust),
    /// Remove a host's key from the trusted ones
    #[command(subcommand)]
    Remove(Remove),
}

/// A key to trust.
#[derive(Debug, Subcommand)]
enum Trust {
    /// Allow sending to HOST, and getting from it, without a token
    Receiver {
        /// The host as in 'send --to' or 'get --from'; with a port, the key counts at that port
        /// alone
        #[arg(value_name = "HOST[:PORT]", add = complete::receivers())]
        host: ReceiverName,
        /// The output of 'anabranch keys' on that host
        fingerprint: Fingerprint,
    },
    /// Allow the host with this key to send here, to get from here, or to reach other hosts from
    /// here, without a token
    Sender {
        /// The output of 'anabranch keys' on that host
        fingerprint: Fingerprint,
        /// A name for the host
        name: Option<String>,
        /// Permission: to get files from 'serve', to send files to 'receive', both, none, or to use
        /// 'relay' alone, or to feed 'collect' alone
        #[arg(
            long,
            value_name = "get|send|both|none|relay|feed",
            default_value_t,
            hide_default_value = true
        )]
        may: May,
        /// The host's folder instead of that of 'serve' or 'receive'; a relative one is below that
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// The maximum rate
        #[arg(long, value_name = "RATE")]
        max: Option<Rate>,
        /// What the host may reach through 'serve-tunnel', with commas: *:443,db.internal:5432
        #[arg(long, value_name = "HOST:PORTS")]
        tunnel: Option<Reach>,
        /// The ports of this host at which it may have 'serve-tunnel' listen, with commas
        #[arg(long, value_name = "[ADDR:]PORTS")]
        tunnel_listen: Option<ListenRights>,
        /// Where the host's connections may go through 'relay', with commas [default with --may
        /// relay: *:7707-7716]
        #[arg(long, value_name = "HOST:PORTS")]
        relay: Option<Reach>,
        /// How much 'relay' may move for the host in a month
        #[arg(long, value_name = "SIZE/month")]
        relay_cap: Option<Cap>,
        /// The host is the 'gateway' of a site: the networks that it may announce, with commas
        #[arg(long, value_name = "NETWORKS")]
        gateway: Option<GatewayRights>,
        /// The host is a relay: the addresses from which connections of others come through it
        #[arg(long, value_name = "ADDRESSES")]
        relay_at: Option<RelayAddresses>,
    },
}

/// A key to remove.
#[derive(Debug, Subcommand)]
enum Remove {
    /// Remove a receiver's key
    Receiver {
        /// The host, with its port if the key counts at that port alone, or the fingerprint
        #[arg(value_name = "HOST[:PORT]|FINGERPRINT", add = complete::receivers())]
        which: String,
    },
    /// Remove a sender's key
    Sender {
        /// The name or the fingerprint
        #[arg(add = complete::senders())]
        which: String,
    },
}

/// `anabranch keys`.
///
/// # Errors
/// Errors of reading and writing the key and the lists; [`Error::usage`] if the key to remove is
/// not listed.
pub(crate) fn run(args: KeysArgs) -> Result<(), Error> {
    let dirs = Dirs::from_env();
    match args.action.unwrap_or(Action::Show) {
        Action::Show => outln!("{}", HostKey::load(&dirs)?.lasting()?.fingerprint()),
        Action::List => {
            for (list, kind) in [(List::Receivers, "receiver"), (List::Senders, "sender")] {
                for Peer { name, fingerprint, rights } in list.load(&dirs)? {
                    let line = format!("{kind:8}  {fingerprint}  {name}{}", words(&rights));
                    outln!("{}", line.trim_end());
                }
            }
        }
        Action::Trust(Trust::Receiver { host, fingerprint }) => {
            List::Receivers.add(
                &dirs,
                Peer { name: one_word(&host.to_string())?, fingerprint, rights: Rights::default() },
            )?;
        }
        Action::Trust(Trust::Sender {
            fingerprint,
            name,
            may,
            dir,
            max,
            tunnel,
            tunnel_listen,
            relay,
            relay_cap,
            gateway,
            relay_at,
        }) => {
            let name = name.as_deref().map(one_word).transpose()?.unwrap_or_default();
            if let Some(dir) = &dir {
                let text = dir.to_str().unwrap_or_default();
                if text.is_empty()
                    || text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#')
                {
                    return Err(Error::usage("--dir must be one word of UTF-8 without '#'"));
                }
            }
            let mut rights = Rights::default();
            let given = [
                Some(format!("may={may}")),
                dir.map(|dir| format!("dir={}", dir.display())),
                max.map(|max| format!("max={}bit/s", max.as_bits())),
                tunnel.map(|reach| format!("tunnel={reach}")),
                tunnel_listen.map(|ports| format!("listen={ports}")),
                relay.map(|reach| format!("relay={reach}")),
                relay_cap.map(|cap| format!("relay-cap={}B/month", cap.bytes.0)),
                gateway.map(|networks| format!("gateway={networks}")),
                relay_at.map(|addresses| format!("relay-at={addresses}")),
            ];
            for word in given.into_iter().flatten() {
                let set = set_right(&mut rights, &word).expect("these are words of rights");
                set.map_err(|why| Error::usage(format!("--{why}")))?;
            }
            List::Senders.add(&dirs, Peer { name, fingerprint, rights })?;
        }
        Action::Remove(Remove::Receiver { which }) => {
            // As the list has it; a fingerprint is no host with a port either.
            let name = which.parse::<ReceiverName>().map(|name| name.to_string());
            removed(List::Receivers.remove(&dirs, name.as_ref().unwrap_or(&which))?, &which)?;
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
        return Err(Error::usage("a peer's name must be one word without '#' and '='"));
    }
    Ok(name.to_string())
}

fn removed(count: usize, which: &str) -> Result<(), Error> {
    if count == 0 {
        return Err(Error::usage(format!(
            "the list has no host with the name or fingerprint '{which}'"
        )));
    }
    Ok(())
}
