//! `collect`: keeps the records of sources, each once and in order.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::feed::{CollectOptions, CollectService, Store, bounds, may_feed};
use events::{Event, Events};
use files::Error;
use peer::host::{Carriers, Host, Services};
use peer::{ListenOptions, Peer};
use units::Bytes;

use super::tunnel::stopped;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::listen::{ListenFlags, TokenFlags};
use crate::metrics::{self, MetricsAddress, MetricsServer};
use crate::peers::Authorized;
use crate::signals::Signals;
use crate::transfer;
use crate::watch::{DisplayArgs, PeerCommand};

/// Arguments of `collect`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("collect"))]
pub(crate) struct CollectArgs {
    /// The folder that gets a folder for each host, and there one for each feed
    directory: PathBuf,
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
    let CollectArgs { directory, listen, token: of_token, rotate, metrics, display } = args;
    let dirs = Dirs::from_env();
    let authorized = Authorized::load(&dirs)?;
    check(of_token.is_given(), &authorized)?;
    let store = store(&directory, rotate)?;
    let (identity, token) = of_token.make(HostKey::load(&dirs)?)?;
    let options = ListenOptions {
        authorized: authorized.peers.clone(),
        ..listen.options((&[], None), (identity, token.clone()))
    };
    let watcher = display.watcher(token, Some(PEER_COMMAND));
    transfer::serve(watcher, |events| serve(options, (store, metrics), authorized, events))
}

/// What the other machine runs.
const PEER_COMMAND: PeerCommand =
    PeerCommand { before: "COMMAND | anabranch feed - --to", after: "" };

async fn serve(
    options: ListenOptions,
    (store, metrics): (Store, Option<MetricsAddress>),
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
    let signal = tokio::select! {
        signal = signals.next() => signal,
        never = watched => match never {},
        never = following => match never {},
    };
    hosting.close().await;
    // What has arrived is written before the end.
    drop(service);
    Err(stopped(signal))
}

/// The service of a collector without a token of its own.
pub(super) fn collect_service(
    directory: &Path,
    rotate: Option<Bytes>,
    events: Events,
) -> Result<Arc<CollectService>, Error> {
    let store = store(directory, rotate)?;
    Ok(CollectService::new(CollectOptions { store, events }))
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
