//! `serve`: serves a folder to authorised hosts.

use std::path::PathBuf;
use std::sync::Arc;

use events::Events;
use files::{Error, ServeOptions};
use peer::host::Meetings;
use peer::{DEFAULT_PORT, ListenOptions, Token};

use crate::background::{BackgroundArgs, step_back};
use crate::complete;
use crate::config::Config;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::listen::{ListenAddress, socket_addresses};
use crate::peers::Authorized;
use crate::qlog::QlogArgs;
use crate::token::write_secret;
use crate::transfer;
use crate::via::{self, ViaSpec, invited_by, relays_to_wait_at};
use crate::watch;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("serve"))]
pub(crate) struct ServeArgs {
    /// The folder to serve; nothing outside it can be read
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// An address to listen on; may be repeated [default: every address]
    #[arg(long, value_name = "ADDR[:PORT]")]
    listen: Vec<ListenAddress>,
    /// The port; 0 takes a free one [default: 7707]
    #[arg(long)]
    port: Option<u16>,
    /// Exit after the first completed transfer
    #[arg(long)]
    once: bool,
    /// A relay at which to wait too, for hosts in other networks; may be repeated
    #[arg(
        long,
        value_name = "HOST[:PORT][,FINGERPRINT][,token-file=FILE]",
        add = complete::receivers()
    )]
    via: Vec<ViaSpec>,
    /// Print a token that lets one more host get everything in DIR
    #[arg(long)]
    token: bool,
    /// Print a token as --token does, and write it to FILE, readable by the owner only
    #[arg(long, value_name = "FILE")]
    token_out: Option<PathBuf>,
    #[command(flatten)]
    background: BackgroundArgs,
    /// Defaults from FILE [default: anabranch/config.toml in the user's configuration folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    qlog: QlogArgs,
    #[command(flatten)]
    watch: watch::WatchArgs,
}

impl ServeArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.watch.is_json()
    }
}

/// `anabranch serve`.
///
/// # Errors
/// Errors of reading the lists and of listening.
pub(crate) fn run(args: ServeArgs) -> Result<(), Failure> {
    let dirs = Dirs::from_env();
    let config = Config::load(args.config.as_deref(), &dirs)?;
    let authorized = Authorized::load(&dirs)?;
    let wants_token = args.token || args.token_out.is_some();
    if !wants_token && !authorized.peers.any(peer::Peer::may_get) {
        let text = "no host may get files from here: 'anabranch keys trust sender FINGERPRINT NAME \
                    --may get' allows the host with that key ('anabranch keys' prints it there); \
                    or use --token";
        return Err(Error::usage(text).into());
    }
    let key = HostKey::load(&dirs)?;
    let identity = if wants_token { key.or_temporary_with_notice() } else { key.lasting() }?;
    let token = wants_token.then(|| Token::generate(&identity)).transpose()?;
    let relays = relays_to_wait_at(&args.via, &identity, &dirs)?;
    if let (Some(path), Some(token)) = (&args.token_out, &token) {
        write_secret(path, &token.reveal())?;
    }
    let port = args.port.unwrap_or(DEFAULT_PORT);
    let effort = args.background.effort()?.unwrap_or(config.serve.background);
    step_back(effort);
    let options = ServeOptions {
        directory: args.directory,
        listen: ListenOptions {
            addresses: socket_addresses(&args.listen, port),
            port,
            token: token.clone(),
            authorized: authorized.peers.clone(),
            qlog: args.qlog.open(None)?,
            effort,
            ..ListenOptions::new(identity)
        },
        once: args.once,
        meetings: None,
    };
    let met_by = token.clone();
    let watcher = args.watch.serving(config.progress, token);
    let listening = |events: Events| async move {
        let meeting = via::wait(relays, invited_by(met_by.as_ref()), &events)?;
        let meetings = meeting.clone().map(|meeting| meeting as Arc<dyn Meetings>);
        let options = ServeOptions { meetings, ..options };
        let served = authorized.follow(events.clone(), files::serve(options, events)).await;
        // It waits until then.
        drop(meeting);
        served
    };
    transfer::run(watcher, listening).map(drop).map_err(Failure::of_server)
}
