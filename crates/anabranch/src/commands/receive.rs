//! `receive`: waits for a transfer and writes its files.

use std::path::PathBuf;
use std::sync::Arc;

use events::Events;
use files::{Error, Overwrite, ReceiveOptions};
use peer::host::Meetings;
use peer::{DEFAULT_PORT, ListenOptions, Token};
use units::Span;

use crate::complete;
use crate::config::{Config, PARALLEL};
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::hooks::HookArgs;
use crate::host_key::HostKey;
use crate::listen::{ListenAddress, further_ports, socket_addresses};
use crate::output::ToStdout;
use crate::peers::Authorized;
use crate::qlog::QlogArgs;
use crate::token::write_secret;
use crate::transfer;
use crate::via::{self, ViaSpec, invited_by, relays_to_wait_at};
use crate::watch;

/// Arguments of `receive`.
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("receive"))]
pub(crate) struct ReceiveArgs {
    /// The target folder, or '-' to write the only file of one transfer to standard output
    /// [default: the current folder]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// An address to listen on; may be repeated [default: every address]
    #[arg(long, value_name = "ADDR[:PORT]")]
    listen: Vec<ListenAddress>,
    /// The port; 0 takes a free one [default: 7707; without --keep the next free one up to 7716]
    #[arg(long)]
    port: Option<u16>,
    /// Accept further transfers after the first instead of exiting
    #[arg(long)]
    keep: bool,
    /// The most transfers at a time, with --keep; further senders wait for their turn [default: 4]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(
        i64::from(*PARALLEL.start())..=i64::from(*PARALLEL.end())))]
    parallel: Option<u16>,
    /// The time after which a transfer is given up whose sender has left; without --keep, also the
    /// time until the first sender comes [default: no limit]
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// Replace files that exist, even if the sender does not request it
    #[arg(long, conflicts_with = "no_overwrite")]
    overwrite: bool,
    /// Replace no file, even if the sender requests it
    #[arg(long)]
    no_overwrite: bool,
    /// Let a sender that asks for it delete files that its source does not have
    #[arg(long)]
    allow_delete: bool,
    /// Let a sender that asks for it choose owners, set-user-id bits and attributes: if this
    /// command runs as root, the sender can then become root here
    #[arg(long)]
    archive: bool,
    /// A relay at which to wait too, for senders in other networks; may be repeated
    ///
    /// It is a host that runs 'anabranch relay' and lets this one use it. Its key is known or
    /// named, or `token-file=FILE` has a token for it. The printed command, with the token, and the
    /// printed code reach this host from wherever the relay is reached, whatever address
    /// translators are between.
    #[arg(
        long,
        value_name = "HOST[:PORT][,FINGERPRINT][,token-file=FILE]",
        add = complete::receivers()
    )]
    via: Vec<ViaSpec>,
    /// Print no token: accept only senders added with 'anabranch keys trust sender'
    #[arg(long, conflicts_with = "token_out")]
    no_token: bool,
    /// Write the token to FILE as well, readable by the owner only
    #[arg(long, value_name = "FILE")]
    token_out: Option<PathBuf>,
    /// Defaults from FILE [default: anabranch/config.toml in the user's configuration folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    hooks: HookArgs,
    #[command(flatten)]
    qlog: QlogArgs,
    #[command(flatten)]
    watch: watch::WatchArgs,
}

/// The default of `--parallel`.
const DEFAULT_PARALLEL: u16 = 4;

impl ReceiveArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.watch.is_json()
    }
}

/// `anabranch receive`.
///
/// # Errors
/// Errors of the transfer.
pub(crate) fn run(mut args: ReceiveArgs) -> Result<(), Failure> {
    let stdout = ToStdout::find(args.directory.as_deref())?;
    if stdout.is_some() {
        if args.keep {
            return Err(Error::usage("--keep: standard output takes one transfer").into());
        }
        if args.archive {
            let text = "--archive: standard output keeps neither owners nor attributes";
            return Err(Error::usage(text).into());
        }
        args.watch.leave_stdout()?;
    }
    let dirs = Dirs::from_env();
    let config = Config::load(args.config.as_deref(), &dirs)?;
    let key = HostKey::load(&dirs)?;
    let authorized = Authorized::load(&dirs)?;
    if args.no_token && !authorized.peers.any(peer::Peer::may_send) {
        let text = "--no-token, but no sender is trusted: add one with 'anabranch keys trust \
                    sender FINGERPRINT'";
        return Err(Error::usage(text).into());
    }
    let identity = if args.no_token { key.lasting() } else { key.or_temporary_with_notice() }?;
    let via = if args.via.is_empty() { &config.receive.via } else { &args.via };
    let relays = relays_to_wait_at(via, &identity, &dirs)?;
    let token = if args.no_token { None } else { Some(Token::generate(&identity)?) };
    if let (Some(path), Some(token)) = (&args.token_out, &token) {
        write_secret(path, &token.reveal())?;
    }
    let keep = args.keep || config.receive.keep && stdout.is_none();
    if args.parallel.is_some() && !keep {
        let text = "--parallel is for --keep: without it, there is one transfer";
        return Err(Error::usage(text).into());
    }
    let named = args.port.or(config.receive.port);
    let port = named.unwrap_or(DEFAULT_PORT);
    let listen = if args.listen.is_empty() { &config.receive.listen } else { &args.listen };
    // Senders of one that goes on know its port.
    let further_ports = if keep { 0 } else { further_ports(named, listen) };
    let options = ReceiveOptions {
        output: stdout.as_ref().map(ToStdout::output),
        directory: stdout
            .as_ref()
            .map(|stdout| stdout.folder().to_path_buf())
            .or(args.directory)
            .or(config.receive.directory)
            .unwrap_or_else(|| PathBuf::from(".")),
        listen: ListenOptions {
            addresses: socket_addresses(listen, port),
            port,
            further_ports,
            token: token.clone(),
            authorized: authorized.peers.clone(),
            effort: config.receive.background,
            qlog: args.qlog.open(config.receive.qlog.as_deref())?,
            ..ListenOptions::new(identity)
        },
        keep,
        parallel: args.parallel.or(config.receive.parallel).unwrap_or(DEFAULT_PARALLEL).into(),
        timeout: args.timeout.or(config.receive.timeout),
        overwrite: match (args.overwrite, args.no_overwrite) {
            (true, _) => Overwrite::Always,
            (_, true) => Overwrite::Never,
            _ => config.receive.overwrite,
        },
        allow_delete: args.allow_delete || config.receive.allow_delete,
        archive: args.archive || config.receive.archive,
        meetings: None,
    };
    let met_by = token.clone();
    let watcher = args.watch.receiving(config.progress, token, options.keep);
    let hooks = args.hooks.or_config(&config.receive.hooks);
    let folder = stdout.is_none().then_some(options.directory.as_path());
    let watcher =
        if keep { hooks.for_each(folder, watcher) } else { hooks.at_end(folder, watcher) };
    let listening = |events: Events| async move {
        let meeting = via::wait(relays, invited_by(met_by.as_ref()), &events)?;
        let meetings = meeting.clone().map(|meeting| meeting as Arc<dyn Meetings>);
        let options = ReceiveOptions { meetings, ..options };
        let received = authorized.follow(events.clone(), files::receive(options, events)).await;
        // It waits until then.
        drop(meeting);
        received
    };
    Failure::unless_whole(&transfer::run(watcher, listening)?)
}
