//! `collect`: keeps the records of sources, each once and in order, or hands them to a command or
//! to standard output.

mod status;
mod to_command;
mod to_stdout;

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::feed::{CollectOptions, CollectService, Sink, Store, bounds, may_feed};
use events::{Event, Events};
use files::Error;
use peer::host::{Carriers, Host, Services};
use peer::{ListenOptions, Peer};
use units::{Bytes, Span};

use super::tunnel::stopped;
use crate::config::Collect;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::hooks::HookCommand;
use crate::host_key::HostKey;
use crate::listen::{ListenFlags, TokenFlags};
use crate::metrics::{self, MetricsAddress, MetricsServer};
use crate::peers::Authorized;
use crate::signals::Signals;
use crate::transfer;
use crate::watch::{DisplayArgs, PeerCommand};
use to_command::CommandSink;
use to_stdout::{StdoutFailed, StdoutSink};

/// Arguments of `collect`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("collect"))]
pub(crate) struct CollectArgs {
    /// The folder that gets a folder for each host, and there one for each feed; '-' writes the
    /// records to standard output, in the form that they have
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Run COMMAND for each batch of records of one stream, which is its standard input: exit code
    /// 0 acknowledges them, otherwise they come again; no shell reads it (docs/feed.md)
    #[arg(long, value_name = "COMMAND")]
    exec: Option<HookCommand>,
    /// The time after which a command is killed, and has failed [default: 5 min]
    #[arg(long, value_name = "TIME", requires = "exec")]
    exec_timeout: Option<Span>,
    /// The folder that says how far each stream was handed over, with '-' and --exec [default:
    /// anabranch/collected in the user's data folder]
    #[arg(long, value_name = "FOLDER")]
    positions: Option<PathBuf>,
    /// Print what DIR has of each stream, and end; with --json as one object
    #[arg(long, conflicts_with_all = ["exec", "positions", "rotate", "metrics"])]
    status: bool,
    #[command(flatten)]
    listen: ListenFlags,
    #[command(flatten)]
    token: TokenFlags,
    /// The size behind which a stream goes on in another file [default: 64 MiB]
    #[arg(long, value_name = "SIZE")]
    rotate: Option<Bytes>,
    /// Serve metrics for Prometheus by HTTP at this port of loopback, or at this address: whoever
    /// reaches it reads them
    #[arg(long, value_name = "[ADDR:]PORT")]
    metrics: Option<MetricsAddress>,
    #[command(flatten)]
    display: DisplayArgs,
}

impl CollectArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.display.is_json()
    }
}

/// `anabranch collect`.
///
/// # Errors
/// Errors of the folder, of reading the lists and of listening; that nobody may feed.
pub(crate) fn run(args: CollectArgs) -> Result<(), Failure> {
    let CollectArgs { directory, exec, exec_timeout, positions, listen, token: of_token, .. } =
        args;
    let (rotate, metrics, mut display) = (args.rotate, args.metrics, args.display);
    if args.status {
        return match directory.filter(|directory| directory != Path::new("-")) {
            Some(directory) => status::print(&directory, display.is_json()),
            None => Err(Error::usage("--status is of a folder: name that of the records").into()),
        };
    }
    let dirs = Dirs::from_env();
    let target = CollectTarget::of(directory, exec, exec_timeout)?;
    target.check(rotate, positions.as_deref())?;
    if matches!(target, CollectTarget::Stdout) {
        display.leave_stdout()?;
    }
    let authorized = Authorized::load(&dirs)?;
    check(of_token.is_given(), &authorized)?;
    let positions = positions.unwrap_or_else(|| dirs.collected());
    let (identity, token) = of_token.make(HostKey::load(&dirs)?)?;
    let options = ListenOptions {
        authorized: authorized.peers.clone(),
        ..listen.options((&[], None), (identity, token.clone()))
    };
    let watcher = display.watcher(token, Some(PEER_COMMAND));
    transfer::serve(watcher, |events| async move {
        let (store, failed) = target.open(rotate, &positions, &events)?;
        serve(options, (store, failed, metrics), authorized, events).await
    })
}

/// Where records go.
enum CollectTarget {
    Folder(PathBuf),
    Stdout,
    Command(CommandSink),
}

impl CollectTarget {
    /// The only one that is named.
    fn of(
        directory: Option<PathBuf>,
        exec: Option<HookCommand>,
        longest: Option<Span>,
    ) -> Result<CollectTarget, Error> {
        match (directory, exec) {
            (Some(directory), None) if directory == Path::new("-") => Ok(CollectTarget::Stdout),
            (Some(directory), None) => Ok(CollectTarget::Folder(directory)),
            (None, Some(command)) => Ok(CollectTarget::Command(CommandSink::new(command, longest))),
            (Some(directory), Some(_)) => Err(Error::usage(format!(
                "'{}' and --exec: records go to one of them; leave the other one out",
                directory.display()
            ))),
            (None, None) => Err(Error::usage(
                "say where records go: a folder, '-' for standard output, or --exec COMMAND",
            )),
        }
    }

    /// Checks the flags that are for some targets alone.
    fn check(&self, rotate: Option<Bytes>, positions: Option<&Path>) -> Result<(), Error> {
        let is_folder = matches!(self, CollectTarget::Folder(_));
        if !is_folder && rotate.is_some() {
            let text = "--rotate is for the files of a folder: leave it out, or name a folder";
            return Err(Error::usage(text));
        }
        if is_folder && positions.is_some() {
            let text = "--positions is for '-' and --exec: files of a folder are positions \
                        themselves; leave it out";
            return Err(Error::usage(text));
        }
        Ok(())
    }

    /// Opens it, in a runtime.
    fn open(
        self,
        rotate: Option<Bytes>,
        positions: &Path,
        events: &Events,
    ) -> Result<(Store, Option<StdoutFailed>), Error> {
        match self {
            CollectTarget::Folder(directory) => Ok((store(&directory, rotate)?, None)),
            CollectTarget::Stdout => {
                let (stdout, failed) = StdoutSink::new()?;
                Ok((hand_over(stdout, positions, events)?, Some(failed)))
            }
            CollectTarget::Command(command) => Ok((hand_over(command, positions, events)?, None)),
        }
    }
}

/// What the other machine runs.
const PEER_COMMAND: PeerCommand =
    PeerCommand { before: "COMMAND | anabranch feed - --to", after: "" };

async fn serve(
    options: ListenOptions,
    (store, failed, metrics): (Store, Option<StdoutFailed>, Option<MetricsAddress>),
    authorized: Authorized,
    events: Events,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let service = CollectService::new(CollectOptions { store, events: events.clone() });
    let metrics = metrics.map(MetricsServer::bind).transpose()?;
    let host = Host::bind(options, Carriers::Both, &stripe::Options::default(), events.clone())?;
    events.send(Event::Listening { addresses: host.addresses() });
    let hosting = host.serve(Services::new().with(&service))?;
    let watched = metrics::serve(metrics, hosting.metrics(), &events);
    let following = authorized.follow(events.clone(), pending::<Infallible>());
    let failed = async {
        match failed {
            Some(failed) => failed.wait().await,
            None => pending().await,
        }
    };
    let ended = tokio::select! {
        signal = signals.next() => stopped(signal),
        failure = failed => failure,
        never = watched => match never {},
        never = service.watch() => match never {},
        never = following => match never {},
    };
    // What is taken now is acknowledged.
    service.close().await;
    hosting.close().await;
    // What has arrived is written before the end.
    drop(service);
    Err(ended)
}

/// The service of a collector without a token of its own, as the configuration has it.
pub(super) fn collect_service(
    config: &Collect,
    events: Events,
) -> Result<Arc<CollectService>, Error> {
    let Collect { directory, rotate, exec, background: _ } = config.clone();
    if directory.is_none() && exec.is_none() {
        let text = "[collect] names no target: add directory = \"/srv/…\" or exec = \"…\" there";
        return Err(Error::usage(text));
    }
    if directory.as_deref() == Some(Path::new("-")) {
        let text = "[collect] directory: standard output is no target here; a folder of that name \
                    is './-'";
        return Err(Error::usage(text));
    }
    let of_table = |error: Error| Error::usage(format!("[collect]: {error}"));
    let target = CollectTarget::of(directory, exec, None).map_err(of_table)?;
    target.check(rotate, None).map_err(of_table)?;
    let (store, _) = target.open(rotate, &Dirs::from_env().collected(), &events)?;
    Ok(CollectService::new(CollectOptions { store, events }))
}

/// A store that hands over.
fn hand_over(sink: impl Sink, positions: &Path, events: &Events) -> Result<Store, Error> {
    let store = Store::hand_over(positions, sink, events.clone()).map_err(|source| {
        let folder = positions.display();
        match source.kind() {
            io::ErrorKind::WouldBlock => Error::usage(format!(
                "{folder}: another collector uses these positions; --positions FOLDER gives each \
                 its own"
            )),
            _ => Error::system(format!("write to {folder}"), source),
        }
    })?;
    events.notice(
        "records are handed over at least once: after a kill of the collector the last batch of a \
         stream may come again",
    );
    Ok(store)
}

fn store(directory: &Path, rotate: Option<Bytes>) -> Result<Store, Error> {
    let file = rotate.unwrap_or(bounds::FILE);
    if file < bounds::BATCH {
        return Err(Error::usage(format!("--rotate wants {} at least", bounds::BATCH)));
    }
    Store::open(directory, file).map_err(|source: io::Error| {
        Error::system(format!("write to {}", directory.display()), source)
    })
}

/// Checks that somebody may feed.
fn check(wants_token: bool, authorized: &Authorized) -> Result<(), Error> {
    if wants_token || authorized.peers.any(|peer: &Peer| may_feed(peer)) {
        return Ok(());
    }
    Err(Error::usage(
        "no host may feed this collector: 'anabranch keys trust sender FINGERPRINT NAME --may \
         feed' allows the host with that key ('anabranch keys' prints it there); or use --token",
    ))
}
