//! `tunnel`: proxies and forwarded ports, whose connections the other host dials.

use std::io::Read;
use std::iter;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use events::Events;
use files::Error;
use peer::Remote;
use peer::private::{Guard, check_private, open_input};
use tunnel::bounds::stripe_options;
use tunnel::intercept::{Destination, Rules};
use tunnel::{Forward, Login, NearOptions, Place};
use zeroize::Zeroizing;

use super::{bounded, failure, stopped};
use crate::commands::credentials::credential;
use crate::complete;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::relays::{RelayFlags, relays};
use crate::signals::Signals;
use crate::striped::{StripedFlags, StripedTerms};
use crate::token::TokenSource;
use crate::transfer;
use crate::via::{MeetFlags, MetHost};
use crate::watch::DisplayArgs;

/// Arguments of `tunnel`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("tunnel"))]
pub(crate) struct TunnelArgs {
    /// The host that dials, as printed by 'anabranch serve-tunnel'
    #[arg(value_name = "HOST[:PORT]", add = complete::receivers())]
    to: Option<Remote>,
    #[command(flatten)]
    meet: MeetFlags,
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
    #[command(flatten)]
    striped: StripedFlags,
    #[command(flatten)]
    relays: RelayFlags,
    /// Of all paths use so many at a time, those that carry most: each is tried for a second or
    /// two while something moves, and the others are in reserve
    #[arg(
        long = "use",
        value_name = "PATHS",
        value_parser = clap::value_parser!(u16).range(1..=16)
    )]
    use_paths: Option<u16>,
    #[command(flatten)]
    token: TokenSource,
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
    if args.to.is_none() && !args.meet.is_given() {
        let text = "name the HOST that runs 'anabranch serve-tunnel', or --via and the relay at \
                    which it waits";
        return Err(Error::usage(text).into());
    }
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
    let dirs = Dirs::from_env();
    let config = args.striped.config(&dirs)?;
    let key = HostKey::load(&dirs)?;
    let (to, credential, identity, met) = if args.meet.is_given() {
        let token = || args.token.given()?.map_or_else(TokenSource::ask, Ok);
        let met = args.meet.meet(args.to.as_ref(), key, token, &dirs)?;
        let MetHost { to, credential, identity, relays } = met;
        (to, credential, identity, Some(relays))
    } else {
        let to = args.to.expect("there is one or the other");
        let credential = credential(&args.token, &to, &dirs, None)?;
        let identity = key.beside(iter::once(&credential))?;
        (to, credential, identity, None)
    };
    options.secret = credential.secret();
    let over = args.relays.or_config(&config.send.relays)?;
    let over = relays(&over, &identity, &dirs)?;
    let mut dialing = args.striped.dialing(
        vec![(to, credential)],
        identity,
        (config, &dirs),
        stripe_options(),
    )?;
    let dial = &mut dialing.terms.options;
    dial.use_paths = args.use_paths.map(usize::from);
    if let Some(relays) = met {
        dial.meet_at(relays);
    } else {
        (dial.relays, dial.has_direct) = (over, args.relays.has_direct());
    }
    let installed = rules.map(|(_, rules)| rules.install()).transpose().map_err(failure)?;
    let carrying = |events| async move { carry(&dialing, options, events).await };
    let ended = transfer::serve(args.display.watcher(None, None), carrying);
    drop(installed);
    ended
}

async fn carry(
    dialing: &StripedTerms,
    options: NearOptions,
    events: Events,
) -> Result<(), Failure> {
    let StripedTerms { terms, options: stripe, table } = dialing;
    let terms = terms.clone().over_relays()?;
    let mut signal = None;
    let mut signals = Signals::new()?;
    let stop = async { signal = Some(signals.next().await) };
    let dial = async || {
        let striped = peer::striped::connect(&terms, stripe.clone(), events.clone());
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
