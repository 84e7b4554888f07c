//! `tunnel`: proxies and forwarded ports, whose connections the other host dials.

use std::io::Read;
use std::iter;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use events::Events;
use files::Error;
use peer::dial::Terms;
use peer::private::{Guard, check_private, open_input};
use peer::striped::total_rate;
use peer::{DialOptions, PathSpec, Remote, Timetable};
use stripe::{CONTROLLER, SCHEDULER};
use tunnel::bounds::stripe_options;
use tunnel::intercept::{Destination, Rules};
use tunnel::{Forward, Login, NearOptions, Place};
use zeroize::Zeroizing;

use super::{bounded, failure, stopped};
use crate::commands::send::credential;
use crate::complete;
use crate::config::{Config, weight};
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::qlog::QlogArgs;
use crate::routes::check_interfaces;
use crate::schedulers::{controller, packet_scheduler, striped};
use crate::signals::Signals;
use crate::token::TokenSource;
use crate::transfer;
use crate::watch::DisplayArgs;

/// Arguments of `tunnel`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("tunnel"))]
pub(crate) struct TunnelArgs {
    /// The host that dials, as printed by 'anabranch serve-tunnel'
    #[arg(
        value_name = "HOST[:PORT]",
        add = complete::receivers(),
        required_unless_present_all = ["transparent", "transparent_rules"]
    )]
    to: Option<Remote>,
    /// A SOCKS5 proxy at this port of loopback, another address, or a Unix socket; may be repeated
    #[arg(long, value_name = "[ADDR:]PORT|PATH")]
    socks: Vec<Place>,
    /// An HTTP proxy (CONNECT) at this port of loopback, another address, or a Unix socket; may be
    /// repeated
    #[arg(long, value_name = "[ADDR:]PORT|PATH")]
    http: Vec<Place>,
    /// Forward a port here to a target that the other host dials; may be repeated
    #[arg(short = 'L', long = "local", value_name = "[ADDR:]PORT:HOST:HOSTPORT")]
    local: Vec<Forward>,
    /// Forward a port of the other host to a target that this host dials; may be repeated
    #[arg(short = 'R', long = "remote", value_name = "[ADDR:]PORT:HOST:HOSTPORT")]
    remote: Vec<Forward>,
    /// Take connections that the kernel redirects here (TPROXY); needs root
    #[arg(long, value_name = "[ADDR:]PORT")]
    transparent: Option<Place>,
    /// Print rules of nftables that redirect the connections of --for, as a shell script, and end;
    /// or install them, and remove them at the end
    #[arg(long, value_name = "print|install", requires = "transparent", value_enum)]
    transparent_rules: Option<RulesChoice>,
    /// Destinations to redirect: a network or an address, with ports or without; may be repeated
    #[arg(long = "for", value_name = "NETWORK[:PORTS]", requires = "transparent_rules")]
    destinations: Vec<Destination>,
    /// The clients of proxies have to show the user and the password that FILE has, as
    /// USER:PASSWORD
    #[arg(long, value_name = "FILE")]
    proxy_login: Option<PathBuf>,
    /// A path to use: interface or local address; may be repeated [default: every interface with a
    /// route, metered ones as backups]
    #[arg(
        long = "path",
        value_name = "IF[,primary|overflow|backup][,max=RATE][,to=ADDR]",
        add = complete::interfaces()
    )]
    paths: Vec<PathSpec>,
    /// An interface to leave out, whoever names it as a path; may be repeated
    #[arg(long = "no-path", value_name = "IF", add = complete::interfaces())]
    no_paths: Vec<String>,
    /// The maximum rate of what is sent from here, over all paths together: a rate, or a timetable
    /// as for 'send'
    #[arg(long, value_name = "RATE|TIMETABLE")]
    max_rate: Option<Timetable>,
    /// Defaults from FILE [default: anabranch/config.toml in the user's configuration folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    token: TokenSource,
    /// The congestion controller of what is sent from here, with parameters in brackets;
    /// 'anabranch simulate --list' names all [default: coupled-bbr]
    #[arg(long, value_name = "NAME", value_parser = controller, help_heading = "Over UDP")]
    controller: Option<String>,
    /// The choice of a path for each packet [default: lowest-rtt]
    #[arg(long, value_name = "NAME", value_parser = packet_scheduler, help_heading = "Over UDP")]
    packet_scheduler: Option<String>,
    /// So many subflows over each path: with a controller such as reno or cubic it takes the shares
    /// of so many flows, 1 to 64 [default: 1]
    #[arg(long, value_name = "N", value_parser = weight(), help_heading = "Over UDP")]
    weight: Option<u16>,
    #[command(flatten)]
    qlog: QlogArgs,
    #[command(flatten)]
    display: DisplayArgs,
}

/// What to do with rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RulesChoice {
    /// Print them as a shell script
    Print,
    /// Install them, and remove them at the end
    Install,
}

impl TunnelArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.display.is_json()
    }
}

/// `anabranch tunnel`.
///
/// # Errors
/// Errors of the arguments, of listening, and of the first connection to the other host; that the
/// other host refuses this one.
pub(crate) fn run(args: TunnelArgs) -> Result<(), Failure> {
    let rules = match (args.transparent_rules, &args.transparent) {
        (Some(choice), Some(place)) => {
            let rules = Rules::new(place, args.destinations).map_err(Error::usage)?;
            Some((choice, rules))
        }
        _ => None,
    };
    if let Some((RulesChoice::Print, rules)) = &rules {
        out!("{}", rules.script());
        return Ok(());
    }
    let Some(to) = args.to else {
        return Err(Error::usage("name the HOST that runs 'anabranch serve-tunnel'").into());
    };
    let mut options = NearOptions {
        socks: args.socks,
        http: args.http,
        forwards: args.local,
        reverse: args.remote,
        transparent: args.transparent.into_iter().collect(),
        login: None,
        secret: None,
    };
    check(&options, args.proxy_login.is_some())?;
    options.login = args.proxy_login.as_deref().map(login).transpose()?;
    check_interfaces(&args.no_paths)?;
    let dirs = Dirs::from_env();
    let config = Config::load(args.config.as_deref(), &dirs)?;
    let key = HostKey::load(&dirs)?;
    let credential = credential(&args.token, &to, &dirs, None)?;
    let identity = key.beside(iter::once(&credential))?;
    options.secret = credential.secret();
    let dial = DialOptions {
        paths: if args.paths.is_empty() { config.send.paths } else { args.paths },
        no_paths: [config.send.no_paths, args.no_paths].concat(),
        usage: Some(dirs.usage()),
        weight: args.weight.or(config.send.weight).unwrap_or(1),
        ..DialOptions::new(identity)
    };
    let terms = Terms::new(vec![(to, credential)], dial)?;
    let controller = args.controller.or(config.send.controller);
    let scheduler = args.packet_scheduler.or(config.send.packet_scheduler);
    let stripe::Options { controller, scheduler, .. } = striped(
        controller.as_deref().unwrap_or(CONTROLLER),
        scheduler.as_deref().unwrap_or(SCHEDULER),
    );
    let table = args.max_rate.or(config.send.max_rate);
    let stripe = stripe::Options {
        controller,
        scheduler,
        max_rate: table.as_ref().map(total_rate),
        qlog: args.qlog.open(config.send.qlog.as_deref())?,
        ..stripe_options()
    };
    let installed = rules.map(|(_, rules)| rules.install()).transpose().map_err(failure)?;
    let carrying = |events| async move { carry(&terms, (stripe, table), options, events).await };
    let ended = transfer::serve(args.display.watcher(None, None), carrying);
    drop(installed);
    ended
}

async fn carry(
    terms: &Terms,
    (stripe, table): (stripe::Options, Option<Timetable>),
    options: NearOptions,
    events: Events,
) -> Result<(), Failure> {
    let mut signal = None;
    let mut signals = Signals::new()?;
    let stop = async { signal = Some(signals.next().await) };
    let dial = async || {
        let striped = peer::striped::connect(terms, stripe.clone(), events.clone());
        striped.await.map(Into::into)
    };
    let carried = tunnel::near::run(dial, options, events.clone(), stop);
    let ended = bounded(table.as_ref(), stripe.max_rate.as_ref(), &events, carried).await;
    match signal {
        Some(number) => Err(stopped(number)),
        None => ended.map_err(failure),
    }
}

/// Checks that there is something to do, and that proxies can ask for a login.
fn check(options: &NearOptions, has_login: bool) -> Result<(), Error> {
    let NearOptions { socks, http, forwards, reverse, transparent, .. } = options;
    let has_proxy = !socks.is_empty() || !http.is_empty();
    if !has_proxy && forwards.is_empty() && reverse.is_empty() && transparent.is_empty() {
        let text = "nothing to carry: add --socks 1080, --http 8080, -L, -R or --transparent";
        return Err(Error::usage(text));
    }
    if has_login && !has_proxy {
        return Err(Error::usage("--proxy-login is for --socks and --http"));
    }
    if transparent.iter().any(|place| matches!(place, Place::Unix(_))) {
        return Err(Error::usage("--transparent needs a port: the kernel redirects to no path"));
    }
    Ok(())
}

/// The longest file with a login, in bytes.
const MOST_LOGIN: u64 = 64 << 10;

/// Reads a login that nobody else may read.
fn login(path: &Path) -> Result<Login, Error> {
    let mut text = Zeroizing::new(String::new());
    let read = open_input(path).and_then(|file| {
        check_private(&file, path, Guard::Secret)?;
        file.take(MOST_LOGIN).read_to_string(&mut text)
    });
    read.map_err(|source| Error::system(format!("use the login {}", path.display()), source))?;
    text.parse().map_err(|why| Error::usage(format!("--proxy-login {}: {why}", path.display())))
}
