//! `host`: the services that the configuration names, at one port.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::relay::ClientOptions;
use ::relay::bounds::DRAIN;
use diagnose::measure::Measuring;
use events::{Event, Events, Summary};
use files::{Error, ReceiveOptions, Receiving, ServeOptions, Serving, TransferNumbers};
use peer::ListenOptions;
use peer::host::{Carriers, Host, Meetings, Services};
use tunnel::bounds::stripe_options;
use tunnel::{TunnelRights, TunnelService};

use crate::background::step_back;
use crate::commands::collect::collect_service;
use crate::commands::relay::{attend, relay_service};
use crate::config::Config;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::hooks::HookArgs;
use crate::host_key::HostKey;
use crate::listen::ListenFlags;
use crate::metrics::{self, MetricsAddress, MetricsServer};
use crate::peers::Authorized;
use crate::qlog::QlogArgs;
use crate::transfer::{self, Drain};
use crate::via::{self, invited_by, relays_to_wait_at};
use crate::watch;

/// Arguments of `host`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("host"))]
pub(crate) struct HostArgs {
    /// The configuration, whose tables [receive], [serve], [tunnel], [collect], [relay] and
    /// [measure] name the services [default: anabranch/config.toml in the user's configuration
    /// folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    listen: ListenFlags,
    /// Serve metrics for Prometheus by HTTP at this port of loopback, or at this address: whoever
    /// reaches it reads them
    #[arg(long, value_name = "[ADDR:]PORT")]
    metrics: Option<MetricsAddress>,
    #[command(flatten)]
    hooks: HookArgs,
    #[command(flatten)]
    qlog: QlogArgs,
    #[command(flatten)]
    watch: watch::WatchArgs,
}

impl HostArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.watch.is_json()
    }
}

/// The tables of services.
const SERVICES: [&str; 6] = ["receive", "serve", "tunnel", "collect", "relay", "measure"];
/// The time to end in: a relay's for its paths, and a moment to tell of the end.
const DRAINED: Duration = DRAIN.saturating_add(Duration::from_secs(1));
/// The transfers at a time, if the configuration does not say.
const PARALLEL: usize = 4;

/// `anabranch host`.
///
/// # Errors
/// Errors of reading the configuration and the lists, and of listening.
pub(crate) fn run(args: HostArgs) -> Result<(), Failure> {
    let dirs = Dirs::from_env();
    let config = Config::load(args.config.as_deref(), &dirs)?;
    if !SERVICES.iter().any(|service| config.tables.contains(*service)) {
        let file = args.config.unwrap_or_else(|| dirs.config_file());
        return Err(Error::usage(format!(
            "{} names no service: it has none of the tables [receive], [serve], [tunnel], \
             [collect], [relay] and [measure]",
            file.display()
        ))
        .into());
    }
    let authorized = Authorized::load(&dirs)?;
    if authorized.peers.all().is_empty() {
        let text = "no host is trusted, and this one has no token: 'anabranch keys trust sender \
                    FINGERPRINT NAME' lets one in ('anabranch keys' prints its key there)";
        return Err(Error::usage(text).into());
    }
    step_back(config.host.background);
    let place = (&config.host.listen[..], config.host.port);
    let identity = HostKey::load(&dirs)?.lasting()?;
    let relays = relays_to_wait_at(&config.host.via, &identity, &dirs)?;
    let options = ListenOptions {
        authorized: authorized.peers.clone(),
        qlog: args.qlog.open(config.host.qlog.as_deref())?,
        effort: config.host.background,
        ..args.listen.options(place, (identity, None))
    };
    let metrics = args.metrics.or(config.host.metrics);
    let hooks = args.hooks.or_config(&config.host.hooks);
    let folder = config.receive.directory.as_deref();
    let watcher = hooks.for_each(folder, args.watch.hosting(config.progress));
    let drain = Drain::default();
    let hosting = |events: Events| {
        let serving = serve(config, (options, relays), metrics, (events.clone(), &drain));
        authorized.follow(events, serving)
    };
    match transfer::run_drained(watcher, (&drain, DRAINED), hosting) {
        Ok(Summary { .. }) => Ok(()),
        Err(failure) => Err(failure.of_server()),
    }
}

/// Serves until it is asked to end, and its relay has no paths.
async fn serve(
    config: Config,
    (options, relays): (ListenOptions, Vec<ClientOptions>),
    metrics: Option<MetricsAddress>,
    (events, drain): (Events, &Drain),
) -> Result<Summary, Error> {
    let has = |table: &str| config.tables.contains(table);
    let stripe = if has("tunnel") { stripe_options() } else { stripe::Options::default() };
    let numbers = TransferNumbers::default();
    let relay = has("relay").then(|| {
        let bounds = (config.relay.max_rate.clone(), !config.relay.no_guests);
        relay_service(options.authorized.clone(), bounds, events.clone())
    });
    // What is missing is said before anything listens.
    let receiving = has("receive")
        .then(|| Receiving::of(receive_options(&config, &options)?, events.clone(), &numbers))
        .transpose()?;
    let serving = has("serve")
        .then(|| Serving::of(serve_options(&config, &options)?, events.clone(), &numbers))
        .transpose()?;
    let collect =
        has("collect").then(|| collect_service(&config.collect, events.clone())).transpose()?;
    let metrics = metrics.map(MetricsServer::bind).transpose()?;
    let host = Host::bind(options, Carriers::Both, &stripe, events.clone())?;
    if has("tunnel") && !host.has_udp() {
        let action = "serve [tunnel], which needs UDP at the host's port".to_string();
        return Err(Error::system(action, std::io::ErrorKind::AddrInUse.into()));
    }
    if let (Some(relay), Some(endpoint)) = (&relay, host.endpoint()) {
        relay.open_udp_at(&endpoint).await?;
    }
    let meeting = via::wait(relays, invited_by(None), &events)?;
    let host = host.meeting(meeting.clone().map(|meeting| meeting as Arc<dyn Meetings>));
    let addresses = host.addresses();
    let mut services = with_efforts(&config);
    if let Some(receiving) = &receiving {
        services = receiving.joins(services);
    }
    if let Some(serving) = &serving {
        services = serving.joins(services);
    }
    if has("tunnel") {
        let service = TunnelService::new(TunnelRights::default(), events.clone());
        services = services.with(&service);
    }
    if let Some(collect) = &collect {
        services = services.with(collect);
    }
    if let Some(relay) = &relay {
        services = services.with(relay);
    }
    if has("measure") {
        services = services.with(&Measuring::new(events.clone()));
    }
    let hosting = host.serve(services)?;
    let watched = metrics::serve(metrics, hosting.metrics(), &events);
    events.send(Event::Listening { addresses });
    let receiving = async {
        match &receiving {
            Some(receiving) => receiving.attend().await.map(drop),
            None => std::future::pending().await,
        }
    };
    let receiving = async {
        receiving.await?;
        std::future::pending::<Result<Infallible, Error>>().await
    };
    let relaying = async {
        match &relay {
            Some(relay) => attend(relay, &events).await,
            None => std::future::pending().await,
        }
    };
    let collecting = async {
        match &collect {
            Some(collect) => collect.watch().await,
            None => std::future::pending().await,
        }
    };
    let drained = async {
        drain.asked().await;
        let relay = async {
            if let Some(relay) = &relay {
                relay.drain().await;
            }
        };
        let collect = async {
            if let Some(collect) = &collect {
                collect.close().await;
            }
        };
        tokio::join!(relay, collect);
    };
    let never = tokio::select! {
        ended = receiving => ended?,
        never = relaying => never,
        never = watched => never,
        never = collecting => never,
        () = drained => {
            hosting.close().await;
            return Ok(Summary::default());
        }
    };
    match never {}
}

/// No service yet, and the effort of each: by the names of hellos, of which that of `[collect]` is
/// another than its table's.
fn with_efforts(config: &Config) -> Services {
    Services::new()
        .with_effort("receive", config.receive.background)
        .with_effort("serve", config.serve.background)
        .with_effort("tunnel", config.tunnel.background)
        .with_effort("feed", config.collect.background)
}

/// The folder of a service.
fn directory(of: Option<&PathBuf>, service: &str) -> Result<PathBuf, Error> {
    of.cloned().ok_or_else(|| {
        Error::usage(format!("[{service}] names no folder: add directory = \"/srv/…\" there"))
    })
}

fn receive_options(config: &Config, listen: &ListenOptions) -> Result<ReceiveOptions, Error> {
    let receive = &config.receive;
    Ok(ReceiveOptions {
        directory: directory(receive.directory.as_ref(), "receive")?,
        output: None,
        listen: listen.clone(),
        keep: true,
        parallel: receive.parallel.map_or(PARALLEL, usize::from),
        timeout: receive.timeout,
        overwrite: receive.overwrite,
        allow_delete: receive.allow_delete,
        archive: receive.archive,
        meetings: None,
    })
}

fn serve_options(config: &Config, listen: &ListenOptions) -> Result<ServeOptions, Error> {
    let directory = directory(config.serve.directory.as_ref(), "serve")?;
    let effort = listen.effort.with(config.serve.background);
    let listen = ListenOptions { effort, ..listen.clone() };
    Ok(ServeOptions { directory, listen, once: false, meetings: None })
}
