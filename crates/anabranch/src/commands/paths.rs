//! `paths`: the usable local paths, and why the other devices have none.

use std::io;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use diagnose::PathProbe;
use files::Error;
use net::interfaces::{
    Discovery, LocalPath, Reason, Unusable, connect_time, discover, discover_remote,
};
use peer::dial::{Terms, no_such_path, resolve};
use peer::{Credential, DialOptions, PathClass, PathSpec, RelaySpec, Remote};
use report::{Align, Table};
use units::Span;

use super::credentials::known_credential;
use crate::complete;
use crate::dirs::Dirs;
use crate::examples;
use crate::host_key::HostKey;
use crate::relays::{RelayFlags, client, relays};
use crate::sanitize::{clean, without_error_numbers};
use crate::threads;
use crate::token::TokenSource;
use crate::translators::{self, Fronts};

/// Addresses that only a default route leads to: they are reserved for documentation (RFC 5737, RFC
/// 3849).
const DEFAULT_ROUTE_TARGETS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
/// The time that a probe waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Connections for each path, of which the fastest counts: the first one may include address
/// resolution (ARP, neighbour discovery).
const PROBES: usize = 3;

/// Arguments of `paths`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("paths"))]
pub(crate) struct PathsArgs {
    /// Show the paths to this host: each pair of an interface and an address of the host, and its
    /// connect time or the reason why it is no path; with its token, or if its key is known, also
    /// the rate of each path (two seconds of data for each)
    #[arg(value_name = "HOST[:PORT]", add = complete::receivers())]
    host: Option<Remote>,
    /// The same as HOST
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "host", hide = true)]
    probe: Option<Remote>,
    /// A path to probe: interface or local address; may be repeated [default: every usable one]
    #[arg(long = "path", value_name = "IF[,to=ADDR]", add = complete::interfaces())]
    paths: Vec<PathSpec>,
    #[command(flatten)]
    relays: RelayFlags,
    #[command(flatten)]
    token: TokenSource,
}

/// `anabranch paths`.
///
/// # Errors
/// [`Error::System`] if netlink fails or the host name cannot be resolved; [`Error::NoPath`] if
/// there is no path to the host, or no relay answers.
pub(crate) fn run(args: &PathsArgs) -> Result<(), Error> {
    match args.host.as_ref().or(args.probe.as_ref()) {
        None if !args.paths.is_empty() => {
            let text = "--path is for the paths to a host: name the HOST as well";
            return Err(Error::usage(text));
        }
        None if args.relays.is_given() => show_translators(&args.relays)?,
        None => {
            let found = DEFAULT_ROUTE_TARGETS.iter().map(|target| discover(*target));
            show(&found.collect::<Result<Vec<_>, _>>().map_err(peer::Error::from)?);
        }
        Some(remote) => {
            let dirs = Dirs::from_env();
            match known_credential(&args.token, remote, &dirs)? {
                Some(credential) => measure(args, remote, credential, &dirs)?,
                None if args.relays.is_given() => {
                    return Err(Error::usage(format!(
                        "--relay: the paths over a relay are measured, with the host's token or \
                         key; give --token-file, or 'anabranch keys trust receiver {} \
                         FINGERPRINT'",
                        remote.name()
                    )));
                }
                None => probe(remote, &args.paths)?,
            }
        }
    }
    Ok(())
}

/// Prints what translates and filters in front of this host, as relays see it.
fn show_translators(flags: &RelayFlags) -> Result<(), Error> {
    let dirs = Dirs::from_env();
    let specs = flags.or_config(&[])?;
    let identity = HostKey::load(&dirs)?.or_temporary_with_notice()?;
    let clients = specs.iter().map(|spec| client(spec, &identity, &dirs));
    let clients = clients.collect::<Result<Vec<_>, Error>>()?;
    let names = specs.iter().map(|spec| spec.dial.to_string()).collect::<Vec<_>>().join(", ");
    let Fronts { fronts, unreached } = runtime()?.block_on(translators::find(clients))?;
    let columns =
        ["interface", "address", "outside", "translator", "direct ways with hosts behind"];
    let mut table = Table::new(columns.map(|title| (title, Align::Left)));
    let mut is_known = false;
    for front in &fronts {
        is_known |= front.found.is_ok();
        let found = match &front.found {
            Ok(found) => {
                [found.outside.to_string(), found.kind().into(), found.direct_ways().into()]
            }
            Err(why) => ["-".into(), format!("not known: {}", clean(why)), "-".into()],
        };
        let own = [front.interface.clone(), front.local.to_string()];
        table.row(own.into_iter().chain(found));
    }
    if !fronts.is_empty() {
        out!("{table}");
    }
    for (relay, why) in unreached {
        outln!("{relay}: {}", clean(&why));
    }
    for front in &fronts {
        if let Some(remedy) = front.remedy() {
            outln!("{}: for direct ways with all, {remedy}", front.interface);
        }
    }
    if is_known {
        return Ok(());
    }
    Err(peer::Error::NoPath { to: names, why: "no relay answered".into() }.into())
}

/// Prints the paths to a host that runs a receiver, with measured rates.
fn measure(
    args: &PathsArgs,
    remote: &Remote,
    credential: Credential,
    dirs: &Dirs,
) -> Result<(), Error> {
    let relays = args.relays.or_config(&[])?;
    let mut terms = probing(remote, credential, &args.paths, &relays, dirs)?;
    terms.options.has_direct = args.relays.has_direct();
    let probes = runtime()?.block_on(async { diagnose::probe(&terms.over_relays()?).await })?;
    let mut table = Table::new([
        ("path", Align::Left),
        ("from", Align::Left),
        ("to", Align::Left),
        ("round trip", Align::Right),
        ("carries", Align::Right),
        ("sent again", Align::Right),
    ]);
    for probe in &probes {
        let from = probe.local.map_or_else(String::new, |local| local.ip().to_string());
        let found = match &probe.carries {
            Ok(carries) => [
                format!("{:.1} ms", carries.rtt.as_secs_f64() * 1e3),
                carries.rate.to_string(),
                format!("{:.2} %", carries.loss * 100.0),
            ],
            Err(why) => {
                ["-".into(), format!("nothing: {}", without_error_numbers(&clean(why))), "-".into()]
            }
        };
        let to = probe.remote.map_or_else(String::new, |remote| remote.to_string());
        table.row([probe.name.clone(), from, to].into_iter().chain(found));
    }
    out!("{table}");
    print_further(&probes);
    if probes.iter().any(|probe| probe.carries.is_ok()) {
        return Ok(());
    }
    let why = "no path carries data; is a receiver running there, and its port open?";
    Err(peer::Error::NoPath { to: remote.to_string(), why: why.into() }.into())
}

/// Prints the addresses that paths try when the first one does not answer.
fn print_further(probes: &[PathProbe]) {
    let columns = ["path", "from", "to", "known from"].map(|title| (title, Align::Left));
    let mut table = Table::new(columns);
    let mut is_empty = true;
    for probe in probes {
        let others = probe.candidates.iter().filter(|pair| Some(pair.remote) != probe.remote);
        for pair in others {
            is_empty = false;
            let source = if pair.named { "its name" } else { "its announcement" };
            let (from, to) = (pair.local.to_string(), pair.remote.to_string());
            table.row([probe.name.clone(), from, to, source.to_string()]);
        }
    }
    if !is_empty {
        out!("\nFurther addresses, tried in this order if those above do not answer:\n{table}");
    }
}

/// Terms of a session without files.
///
/// # Errors
/// [`Error::System`] if this host's key can't be read or generated; those of [`relays`].
pub(super) fn probing(
    remote: &Remote,
    credential: Credential,
    paths: &[PathSpec],
    over: &[RelaySpec],
    dirs: &Dirs,
) -> Result<Terms, Error> {
    let identity = HostKey::load(dirs)?.beside(iter::once(&credential))?;
    let options = DialOptions {
        paths: paths.to_vec(),
        relays: relays(over, &identity, dirs)?,
        usage: Some(dirs.usage()),
        patience: Span::ZERO,
        ..DialOptions::new(identity)
    };
    Ok(Terms::new(vec![(remote.clone(), credential)], options)?)
}

/// The runtime for sockets.
///
/// # Errors
/// [`Error::System`] if no thread can be started.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    threads::runtime().map_err(|source| Error::system("start the runtime", source))
}

/// Prints the paths with a default route, of both address families.
fn show(found: &[Discovery]) {
    let columns = ["interface", "address", "use", "link speed"].map(|title| (title, Align::Left));
    let mut table = Table::new(columns);
    for path in found.iter().flat_map(|discovery| &discovery.usable) {
        table.row(cells(path));
    }
    if found.iter().all(|discovery| discovery.usable.is_empty()) {
        outln!(
            "No interface has a default route; 'anabranch paths HOST' shows the paths to a host on \
             a local network."
        );
    } else {
        out!("{table}");
    }
    print_unusable(found);
}

/// Prints each pair of an interface and an address of the host, with its connect time or the reason
/// why it is no path.
fn probe(remote: &Remote, named: &[PathSpec]) -> Result<(), Error> {
    let runtime = runtime()?;
    let pairs = runtime.block_on(pairs(remote, named))?;
    let usable = pairs.iter().flat_map(|(to, all)| all.usable.iter().map(move |path| (path, *to)));
    let times = runtime.block_on(connect_times(usable.map(|(path, to)| (path.clone(), to))));
    let mut times = times.into_iter();
    let columns = ["interface", "address", "use", "link speed", "to", "result"];
    let mut table = Table::new(columns.map(|title| (title, Align::Left)));
    let mut reached = false;
    for (to, discovery) in &pairs {
        for (path, time) in discovery.usable.iter().zip(&mut times) {
            reached |= time.is_ok();
            let result = time.map_or_else(
                |error| error_cell(&error),
                |time| format!("connects in {:.1} ms", time.as_secs_f64() * 1e3),
            );
            table.row(cells(path).into_iter().chain([to.to_string(), result]));
        }
        for device in &discovery.unusable {
            let none = ["-", "-", "-"].map(String::from);
            let pair = [to.to_string(), device.why.to_string()];
            table.row([device.interface.clone()].into_iter().chain(none).chain(pair));
        }
    }
    out!("{table}");
    if reached {
        outln!(
            "\nA host tells its further addresses to hosts that it knows: with the receiver's \
             token (--token-file, --token-stdin) these are tried too, and rates are measured."
        );
        return Ok(());
    }
    let why = "no connection opened; is a receiver running there, and its port open?";
    Err(peer::Error::NoPath { to: remote.to_string(), why: why.into() }.into())
}

/// The addresses of the host, each with the interfaces that reach it; of these, those that are
/// `named`, if any are.
///
/// # Errors
/// Those of [`resolve`]; [`Error::usage`] if this host has no interface of a name.
async fn pairs(
    remote: &Remote,
    named: &[PathSpec],
) -> Result<Vec<(SocketAddr, Discovery)>, peer::Error> {
    let mut pairs = Vec::new();
    if named.is_empty() {
        for to in resolve(remote).await? {
            pairs.push((to, discover_remote(to)?));
        }
    }
    for spec in named {
        let mut exists = false;
        for to in resolve(spec.to.as_ref().unwrap_or(remote)).await? {
            let mut found = discover_remote(to)?;
            found.usable.retain(|local| spec.is_over(local));
            found.unusable.retain(|device| device.interface == spec.interface);
            exists |= found.interfaces().next().is_some();
            pairs.push((to, found));
        }
        if !exists && !spec.may_be_absent {
            return Err(no_such_path(spec));
        }
    }
    Ok(pairs)
}

/// The fastest connect time of each pair, in their order; all are measured at once.
async fn connect_times(
    pairs: impl Iterator<Item = (LocalPath, SocketAddr)>,
) -> Vec<io::Result<Span>> {
    let measuring: Vec<_> = pairs
        .map(|(path, to)| tokio::spawn(async move { fastest_connect(&path, to).await }))
        .collect();
    let mut times = Vec::new();
    for measured in measuring {
        times.push(measured.await.expect("measuring does not panic"));
    }
    times
}

async fn fastest_connect(path: &LocalPath, to: SocketAddr) -> io::Result<Span> {
    let mut fastest = connect_time(path, to, PATIENCE).await?;
    for _ in 1..PROBES {
        fastest = fastest.min(connect_time(path, to, PATIENCE).await?);
    }
    Ok(fastest)
}

/// An error as a table's cell.
fn error_cell(error: &io::Error) -> String {
    without_error_numbers(&error.to_string()).to_lowercase()
}

fn cells(path: &LocalPath) -> Vec<String> {
    let class = match (PathClass::of(path), path.metered) {
        (PathClass::Primary, _) => "primary",
        (PathClass::Overflow, _) => "overflow",
        (PathClass::Backup, true) => "backup (metered)",
        (PathClass::Backup, false) => "backup",
        (PathClass::Background, _) => "background",
    };
    let speed = path.speed.map_or_else(|| "unknown".to_string(), |speed| speed.to_string());
    vec![path.interface.clone(), path.address.to_string(), class.to_string(), speed]
}

/// Prints the interfaces without a default route, with the reasons that matter.
fn print_unusable(found: &[Discovery]) {
    let used = |name: &str| {
        found.iter().flat_map(|discovery| &discovery.usable).any(|path| path.interface == name)
    };
    let mut devices: Vec<(&str, Vec<&Reason>)> = Vec::new();
    for Unusable { interface, why } in found.iter().flat_map(|discovery| &discovery.unusable) {
        match devices.iter_mut().find(|(name, _)| name == interface) {
            Some((_, reasons)) => reasons.push(why),
            None if used(interface) => {}
            None => devices.push((interface, vec![why])),
        }
    }
    if !devices.is_empty() {
        outln!("\nNo path:");
    }
    for (name, reasons) in devices {
        let mut reasons: Vec<String> =
            Reason::that_matter(reasons).iter().map(by_default_route).collect();
        reasons.dedup();
        outln!("  {name} {}", reasons.join(", "));
    }
}

/// A reason against one of [`DEFAULT_ROUTE_TARGETS`], which stand for any other host.
fn by_default_route(reason: &Reason) -> String {
    match reason {
        Reason::NoRoute(_) => "has no default route, and reaches its own network only".into(),
        Reason::Forbidden(_) => "has a default route that forbids it".into(),
        Reason::Elsewhere(_, name) => {
            format!("has no default route of its own: its packets leave by way of {name}")
        }
        reason => reason.to_string(),
    }
}
