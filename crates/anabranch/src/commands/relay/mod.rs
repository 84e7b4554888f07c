//! `relay`: carries connections of hosts that are allowed to use this one as a relay.

mod status;

use std::convert::Infallible;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;

use ::relay::{RelayOptions, RelayRights, RelayService};
use clap::Subcommand;
use events::{Event, Events};
use files::Error;
use peer::host::{Carriers, Host, Services};
use peer::{AuthorizedPeers, ListenOptions, Timetable, descriptors};
use reach::Reach;

use super::tunnel::stopped;
use crate::config::Config;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::listen::{ListenFlags, TokenFlags};
use crate::metrics::{self, MetricsAddress, MetricsServer};
use crate::peers::Authorized;
use crate::signals::{Signals, TERMINATE};
use crate::status::StatusServer;
use crate::transfer;
use crate::watch::{DisplayArgs, PeerCommand};

/// Arguments of `relay`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("relay"), args_conflicts_with_subcommands = true)]
pub(crate) struct RelayArgs {
    #[command(subcommand)]
    action: Option<RelayAction>,
    /// The configuration, with a table [relay] [default: anabranch/config.toml in the user's
    /// configuration folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    listen: ListenFlags,
    #[command(flatten)]
    token: TokenFlags,
    /// Where connections of the token's holder may go: HOST:PORTS with a name, *.DOMAIN, an
    /// address, a network or *; may be repeated [default: *:7707-7716]
    #[arg(long, value_name = "HOST:PORTS")]
    permit: Vec<Reach>,
    /// The maximum rate of all that is relayed, in both directions together: a rate, or a
    /// timetable; hosts have equal shares of it
    ///
    /// A timetable is a list of [DAY-]HH:MM,RATE in local time; each entry holds until the next
    /// one, and off is no limit. For example: --max-rate '08:00,10mbit 18:00,off'
    #[arg(long, value_name = "RATE|TIMETABLE")]
    max_rate: Option<Timetable>,
    /// Let no host wait here, and nobody in that comes for one with its token or its code
    #[arg(long)]
    no_guests: bool,
    /// Serve metrics for Prometheus by HTTP at this port of loopback, or at this address: whoever
    /// reaches it reads them
    #[arg(long, value_name = "[ADDR:]PORT")]
    metrics: Option<MetricsAddress>,
    #[command(flatten)]
    display: DisplayArgs,
}

/// What to do with a relay that runs.
#[derive(Debug, Subcommand)]
enum RelayAction {
    /// Show what a relay that this user runs does for each host
    Status(status::StatusArgs),
}

impl RelayArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.display.is_json()
    }
}

/// `anabranch relay`.
///
/// # Errors
/// Errors of reading the lists and of listening; that nobody may use the relay.
pub(crate) fn run(args: RelayArgs) -> Result<(), Failure> {
    let dirs = Dirs::from_env();
    if let Some(RelayAction::Status(args)) = args.action {
        return status::show(&args, &dirs).map_err(Failure::from);
    }
    let config = Config::load(args.config.as_deref(), &dirs)?.relay;
    let authorized = Authorized::load(&dirs)?;
    check(args.token.is_given(), !args.permit.is_empty(), &authorized)?;
    let (identity, token) = args.token.make(HostKey::load(&dirs)?)?;
    let place = (&config.listen[..], config.port);
    let options = ListenOptions {
        authorized: authorized.peers.clone(),
        ..args.listen.options(place, (identity, token.clone()))
    };
    let of_token = match args.permit.into_iter().reduce(Reach::and) {
        Some(reach) => RelayRights { reach, ..RelayRights::default() },
        None => RelayRights::of_token(),
    };
    let takes_guests = !args.no_guests && !config.no_guests;
    let bounds = Bounds { of_token, max_rate: args.max_rate.or(config.max_rate), takes_guests };
    let metrics = args.metrics.or(config.metrics);
    let watcher = args.display.watcher(token, Some(PEER_COMMAND));
    let serving = |events| serve(options, (bounds, metrics), authorized, events);
    transfer::serve(watcher, serving)
}

/// What the other machine runs.
const PEER_COMMAND: PeerCommand =
    PeerCommand { before: "anabranch send PATH… --to HOST --relay", after: "" };

/// What is carried, and for whom.
struct Bounds {
    of_token: RelayRights,
    max_rate: Option<Timetable>,
    takes_guests: bool,
}

async fn serve(
    options: ListenOptions,
    (bounds, metrics): (Bounds, Option<MetricsAddress>),
    authorized: Authorized,
    events: Events,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let Bounds { of_token, max_rate, takes_guests } = bounds;
    let service = RelayService::new(RelayOptions {
        authorized: options.authorized.clone(),
        of_token,
        max_rate,
        usage: Some(Dirs::from_env().usage()),
        takes_guests,
        events: events.clone(),
    });
    let metrics = metrics.map(MetricsServer::bind).transpose()?;
    // The UDP socket of the port is the relay's own.
    let host = Host::bind(options, Carriers::Tcp, &stripe::Options::default(), events.clone())?;
    let (addresses, port) = host.place();
    if let Err(error) = service.open_udp(&addresses, port) {
        events.notice(format!("{error}; TCP alone is relayed until then"));
    }
    descriptors::raise_limit();
    events.send(Event::Listening { addresses: host.addresses() });
    let hosting = host.serve(Services::new().with(&service))?;
    let watched = metrics::serve(metrics, hosting.metrics(), &events);
    let following = authorized.follow(events.clone(), pending::<Infallible>());
    let serving = async {
        let never: Infallible = tokio::select! {
            never = attend(&service, &events) => never,
            never = watched => never,
            never = following => never,
        };
        match never {}
    };
    let ending = async {
        let signal = signals.next().await;
        // A second one ends it at once.
        if signal == TERMINATE {
            tokio::select! {
                () = service.drain() => {}
                _ = signals.next() => {}
            }
        }
        signal
    };
    let signal = tokio::select! {
        signal = ending => signal,
        () = serving => unreachable!("it serves until it is dropped"),
    };
    hosting.close().await;
    Err(stopped(signal))
}

/// The service of a relay without a token of its own.
pub(super) fn relay_service(
    authorized: AuthorizedPeers,
    (max_rate, takes_guests): (Option<Timetable>, bool),
    events: Events,
) -> Arc<RelayService> {
    descriptors::raise_limit();
    let of_token = RelayRights::default();
    let usage = Some(Dirs::from_env().usage());
    RelayService::new(RelayOptions { authorized, of_token, max_rate, usage, takes_guests, events })
}

/// Divides the rate, and answers `relay status`, for ever.
pub(super) async fn attend(service: &Arc<RelayService>, events: &Events) -> Infallible {
    let status = StatusServer::bind(Dirs::from_env().relay_status(), "relay");
    let answering = async {
        match status {
            Ok(server) => server.serve(|| status::lines(&service.figures())).await,
            Err(error) => {
                events.notice(format!("'anabranch relay status' has no answer: {error}"));
                pending().await
            }
        }
    };
    tokio::select! {
        () = service.attend() => unreachable!("it never ends"),
        never = answering => never,
    }
}

/// Checks that somebody may use the relay.
fn check(wants_token: bool, permits: bool, authorized: &Authorized) -> Result<(), Error> {
    let has_rights = |peer: &peer::Peer| !RelayRights::of(peer).is_empty();
    match (wants_token, permits) {
        (false, true) => Err(Error::usage(
            "--permit is for the holder of a token: add --token, or use 'anabranch keys trust \
             sender' with --relay",
        )),
        (false, false) if !authorized.peers.any(has_rights) => Err(Error::usage(
            "no host may use this relay: 'anabranch keys trust sender FINGERPRINT NAME --may \
             relay' allows the host with that key ('anabranch keys' prints it there); or use \
             --token",
        )),
        _ => Ok(()),
    }
}
