//! `gateway`: carries background TCP connections of hosts to other sites.

mod doctor;
mod status;

use std::convert::Infallible;
use std::future::pending;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::gateway::{GatewayConfig, GatewayOptions, GatewayService, Rules, stripe_options};
use clap::Subcommand;
use events::{Event, Events};
use files::Error;
use peer::ListenOptions;
use peer::host::{Carriers, Host, Services};
use peer::private::open_input;
use tokio::signal::unix::{SignalKind, signal};

use super::tunnel::stopped;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::listen::{ListenAddress, ListenFlags};
use crate::metrics::{self, MetricsAddress, MetricsServer};
use crate::peers::Authorized;
use crate::relays::relays;
use crate::signals::Signals;
use crate::status::StatusServer;
use crate::transfer;
use crate::watch::DisplayArgs;

/// Arguments of `gateway`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("gateway"), args_conflicts_with_subcommands = true)]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    action: Option<GatewayAction>,
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    listen: ListenFlags,
    /// Install the rules first, in place of earlier ones, as `rules --install` does
    #[arg(long)]
    install_rules: bool,
    /// Serve metrics for Prometheus by HTTP at this port of loopback, or at this address: whoever
    /// reaches it reads them
    #[arg(long, value_name = "[ADDR:]PORT")]
    metrics: Option<MetricsAddress>,
    #[command(flatten)]
    display: DisplayArgs,
}

/// The file of a gateway.
#[derive(Debug, clap::Args)]
struct ConfigFile {
    /// The networks, the other sites and what is background [default: anabranch/gateway.toml in the
    /// user's configuration folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What to do besides being a gateway.
#[derive(Debug, Subcommand)]
enum GatewayAction {
    /// Print the rules of nftables and of routing as a shell script, install them, or remove them
    Rules(RulesArgs),
    /// Look at what the system does to a gateway's packets: rules, routes, NAT, firewalls, settings
    Doctor(GatewayDoctorArgs),
    /// Show what a gateway that this user runs does for each site
    Status(status::GatewayStatusArgs),
}

#[derive(Debug, clap::Args)]
struct RulesArgs {
    #[command(flatten)]
    file: ConfigFile,
    /// Install the rules, in place of earlier ones
    #[arg(long, conflicts_with = "remove")]
    install: bool,
    /// Remove the rules
    #[arg(long)]
    remove: bool,
}

#[derive(Debug, clap::Args)]
struct GatewayDoctorArgs {
    #[command(flatten)]
    file: ConfigFile,
    /// Write JSON to standard output, an object on each line, one for each finding
    #[arg(long)]
    json: bool,
}

/// The longest file that is read, in bytes.
const MOST_TEXT: u64 = 1 << 20;

impl ConfigFile {
    fn path(&self, dirs: &Dirs) -> PathBuf {
        self.config.clone().unwrap_or_else(|| dirs.gateway_config())
    }

    fn read(&self, dirs: &Dirs) -> Result<GatewayConfig, Error> {
        read(&self.path(dirs))
    }
}

fn read(path: &Path) -> Result<GatewayConfig, Error> {
    let mut text = String::new();
    let read = open_input(path).and_then(|file| file.take(MOST_TEXT).read_to_string(&mut text));
    read.map_err(|error| Error::usage(format!("read {}: {error}", path.display())))?;
    text.parse().map_err(|why: String| {
        let sign = if why.starts_with("line ") { ',' } else { ':' };
        Error::usage(format!("{}{sign} {}", path.display(), why.trim()))
    })
}

impl GatewayArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.display.is_json()
    }
}

/// `anabranch gateway`.
///
/// # Errors
/// Mistakes of the file, and errors of listening and of making the device.
pub(crate) fn run(args: GatewayArgs) -> Result<(), Failure> {
    let dirs = Dirs::from_env();
    match args.action {
        Some(GatewayAction::Status(args)) => {
            return status::show(&args, &dirs).map_err(Failure::from);
        }
        Some(GatewayAction::Doctor(args)) => {
            return doctor::show(&args.file.read(&dirs)?, args.json);
        }
        Some(GatewayAction::Rules(args)) => return rules(&args, &dirs).map_err(Failure::from),
        None => {}
    }
    let path = args.file.path(&dirs);
    let config = args.file.read(&dirs)?;
    let authorized = Authorized::load(&dirs)?;
    let identity = HostKey::load(&dirs)?.lasting()?;
    let place = |&address: &IpAddr| ListenAddress { address, port: None };
    let listen: Vec<ListenAddress> = config.listen.iter().map(place).collect();
    let options = ListenOptions {
        authorized: authorized.peers.clone(),
        ..args.listen.options((&listen, config.port), (identity, None))
    };
    let metrics = config.metrics.as_deref().map(str::parse::<MetricsAddress>).transpose();
    let metrics = metrics.map_err(|why| {
        Failure::from(Error::usage(format!("{}: metrics: {why}", path.display())))
    })?;
    let metrics = args.metrics.or(metrics);
    if args.install_rules {
        install(&config)?;
    }
    let file = ServedFile { path, has_rules: args.install_rules };
    let serving = |events| serve((config, file), options, metrics, authorized, events);
    transfer::serve(args.display.watcher(None, None), serving)
}

/// The file of a gateway that runs.
struct ServedFile {
    path: PathBuf,
    /// Whether its rules are installed anew with it.
    has_rules: bool,
}

impl ServedFile {
    /// Reads it again; what is to be said of that. What needs a new start is as it was.
    fn reload(&self, service: &GatewayService, started: &GatewayConfig) -> String {
        let path = self.path.display();
        let config = match read(&self.path) {
            Ok(config) => config,
            Err(error) => return format!("{error}; what was read before still counts"),
        };
        service.reload(&config);
        let GatewayConfig { device, mark, table, .. } = started;
        let config = GatewayConfig { device: device.clone(), mark: *mark, table: *table, ..config };
        match self.has_rules.then(|| Rules::new(&config).renew()) {
            Some(Err(why)) => format!("{path} was read again; the rules are those before: {why}"),
            _ => format!("{path} was read again"),
        }
    }
}

async fn serve(
    (config, file): (GatewayConfig, ServedFile),
    options: ListenOptions,
    metrics: Option<MetricsAddress>,
    authorized: Authorized,
    events: Events,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let mut hangups =
        signal(SignalKind::hangup()).map_err(|source| Error::system("wait for signals", source))?;
    let metrics = metrics.map(MetricsServer::bind).transpose()?;
    let (identity, peers) = (options.identity.clone(), options.authorized.clone());
    let (dialing, started) = (identity.clone(), config.clone());
    let host = Host::bind(options, Carriers::Udp, &stripe_options(), events.clone())?;
    let endpoint = host.endpoint().expect("it listens with UDP");
    let service = GatewayService::start(GatewayOptions {
        config,
        identity,
        authorized: peers,
        endpoint,
        events: events.clone(),
        relays: Box::new(move |specs| {
            let dirs = Dirs::from_env();
            relays(specs, &dialing, &dirs).map_err(|error| peer::Error::Usage(error.to_string()))
        }),
    })
    .await?;
    events.send(Event::Listening { addresses: host.addresses() });
    let hosting = host.serve(Services::new().with(&service))?;
    let watched = metrics::serve(metrics, hosting.metrics(), &events);
    let following = authorized.follow(events.clone(), pending::<Infallible>());
    let reloading = async {
        loop {
            if hangups.recv().await.is_none() {
                pending::<()>().await;
            }
            events.notice(file.reload(&service, &started));
        }
    };
    let never: Infallible = tokio::select! {
        signal = signals.next() => {
            hosting.close().await;
            return Err(stopped(signal));
        }
        never = service.attend() => never,
        never = watched => never,
        never = following => never,
        never = answer(&service, &events) => never,
        never = reloading => never,
    };
    match never {}
}

/// Answers `gateway status`, for ever.
async fn answer(service: &Arc<GatewayService>, events: &Events) -> Infallible {
    match StatusServer::bind(Dirs::from_env().gateway_status(), "gateway") {
        Ok(server) => server.serve(|| status::lines(&service.figures())).await,
        Err(error) => {
            events.notice(format!("'anabranch gateway status' has no answer: {error}"));
            pending().await
        }
    }
}

/// `anabranch gateway rules`.
fn rules(args: &RulesArgs, dirs: &Dirs) -> Result<(), Error> {
    let config = args.file.read(dirs)?;
    let rules = Rules::new(&config);
    if args.install {
        install(&config)?;
        for cgroup in rules.absent() {
            errln!("{cgroup} is not there: a gateway that runs adds its rule when it is");
        }
        return Ok(());
    }
    if args.remove {
        return rules.remove().map_err(|why| not_done("remove", why));
    }
    out!("{}", rules.script());
    Ok(())
}

fn install(config: &GatewayConfig) -> Result<(), Error> {
    Rules::new(config).install().map_err(|why| not_done("install", why))
}

fn not_done(action: &str, why: String) -> Error {
    let action = format!("{action} the rules (it needs root, or CAP_NET_ADMIN)");
    Error::system(action, std::io::Error::other(why))
}
