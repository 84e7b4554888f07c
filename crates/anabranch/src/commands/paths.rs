//! `paths`: which local paths there are, and why a device is none.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use net::interfaces::{Discovery, LocalPath, connect_time, discover};
use net::{Credential, Error, Identity, PathClass, PathSpec, Remote, SendOptions, TransferOptions};
use report::{Align, Table};
use units::Span;

use super::send::known_credential;
use crate::dirs::Dirs;
use crate::sanitize::{clean, plainly};
use crate::token::TokenSource;

/// Addresses that stand for the rest of the world: reserved for documentation (RFC 5737, RFC 3849),
/// so that only a default route leads to them.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
/// How long a probe waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Connections a path; the fastest counts, since the first may have had to find the neighbour's
/// address.
const PROBES: usize = 3;

/// Arguments of `paths`.
#[derive(Debug, clap::Args)]
pub(crate) struct PathsArgs {
    /// Show the paths to this host and how long a connection over each takes to open; with its
    /// token, or if its key is known, also what each carries (two seconds of data a path)
    #[arg(long, value_name = "HOST[:PORT]")]
    probe: Option<Remote>,
    /// A path to probe: interface or local address; may be repeated [default: every one there is]
    #[arg(long = "path", value_name = "IF[,to=ADDR]", requires = "probe")]
    paths: Vec<PathSpec>,
    #[command(flatten)]
    token: TokenSource,
}

/// `anabranch paths`.
///
/// # Errors
/// [`Error::System`] if the kernel can't be asked or the host not be resolved; [`Error::NoPath`] if
/// there is none to the host.
pub(crate) fn run(args: &PathsArgs) -> Result<(), Error> {
    match &args.probe {
        None => {
            show(&ELSEWHERE.iter().map(|target| discover(*target)).collect::<Result<Vec<_>, _>>()?);
        }
        Some(remote) => {
            let dirs = Dirs::from_env();
            match known_credential(&args.token, remote, &dirs)? {
                Some(credential) => measure(args, remote, credential, &dirs)?,
                None => probe(remote)?,
            }
        }
    }
    Ok(())
}

/// Paths to one host that runs a receiver, each with what it carries.
fn measure(
    args: &PathsArgs,
    remote: &Remote,
    credential: Credential,
    dirs: &Dirs,
) -> Result<(), Error> {
    let options = probing(remote, credential, &args.paths, dirs)?;
    let probes = runtime()?.block_on(net::probe(&options))?;
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
            Err(why) => ["-".into(), format!("nothing: {}", plainly(&clean(why))), "-".into()],
        };
        table.row([probe.name.clone(), from, probe.remote.to_string()].into_iter().chain(found));
    }
    print!("{table}");
    if probes.iter().any(|probe| probe.carries.is_ok()) {
        return Ok(());
    }
    let why = "no path carries anything; is a receiver running there, and its port open?";
    Err(Error::NoPath { to: remote.to_string(), why: why.into() })
}

/// Options of a transfer that moves no file.
///
/// # Errors
/// [`Error::System`] if this host's key can't be had.
pub(super) fn probing(
    remote: &Remote,
    credential: Credential,
    paths: &[PathSpec],
    dirs: &Dirs,
) -> Result<SendOptions, Error> {
    Ok(SendOptions {
        sources: Vec::new(),
        rename: None,
        selection: net::Selection::default(),
        to: remote.clone(),
        credential,
        transfer: TransferOptions {
            paths: paths.to_vec(),
            usage: Some(dirs.usage()),
            dry_run: true,
            patience: Span::ZERO,
            ..TransferOptions::new(Identity::load_or_generate(&dirs.key())?)
        },
    })
}

/// What drives sockets.
///
/// # Errors
/// [`Error::System`] if the system has no thread left.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|source| Error::System { action: "start the runtime".into(), source })
}

/// Paths to anywhere, of both families.
fn show(found: &[Discovery]) {
    let columns = ["interface", "address", "use", "link speed"].map(|title| (title, Align::Left));
    let mut table = Table::new(columns);
    for path in found.iter().flat_map(|discovery| &discovery.usable) {
        table.row(cells(path));
    }
    if found.iter().all(|discovery| discovery.usable.is_empty()) {
        println!(
            "No interface has a default route; --probe HOST shows the paths to a host of a network \
             nearby."
        );
    } else {
        print!("{table}");
    }
    no_paths(found);
}

/// Paths to one host, each with its connect time.
fn probe(remote: &Remote) -> Result<(), Error> {
    let action = format!("resolve {}", remote.host);
    let resolved = (remote.host.as_str(), remote.port).to_socket_addrs();
    let addresses: Vec<SocketAddr> =
        resolved.map_err(|source| Error::System { action, source })?.collect();
    let found = addresses.iter().map(|to| discover(to.ip())).collect::<Result<Vec<_>, _>>()?;
    let runtime = runtime()?;
    let mut table = Table::new([
        ("interface", Align::Left),
        ("address", Align::Left),
        ("use", Align::Left),
        ("link speed", Align::Left),
        ("to", Align::Left),
        ("connects in", Align::Right),
    ]);
    let mut reached = false;
    for (to, discovery) in addresses.iter().zip(&found) {
        for path in &discovery.usable {
            let time = runtime.block_on(best(path, *to));
            reached |= time.is_ok();
            let time = time
                .map_or_else(|e| said(&e), |time| format!("{:.1} ms", time.as_secs_f64() * 1e3));
            table.row(cells(path).into_iter().chain([to.to_string(), time]));
        }
    }
    if found.iter().any(|discovery| !discovery.usable.is_empty()) {
        print!("{table}");
    }
    no_paths(&found);
    let why = "no connection opened; is a receiver running there, and its port open?";
    if reached { Ok(()) } else { Err(Error::NoPath { to: remote.to_string(), why: why.into() }) }
}

async fn best(path: &LocalPath, to: SocketAddr) -> io::Result<Span> {
    let mut best = connect_time(path, to, PATIENCE).await?;
    for _ in 1..PROBES {
        best = best.min(connect_time(path, to, PATIENCE).await?);
    }
    Ok(best)
}

/// An error as a table's cell.
fn said(error: &io::Error) -> String {
    plainly(&error.to_string()).to_lowercase()
}

fn cells(path: &LocalPath) -> Vec<String> {
    let class = match (path.class, path.metered) {
        (PathClass::Primary, _) => "primary",
        (PathClass::Overflow, _) => "overflow",
        (PathClass::Backup, true) => "backup (metered)",
        (PathClass::Backup, false) => "backup",
    };
    let speed = path.speed.map_or_else(|| "unknown".to_string(), |speed| speed.to_string());
    vec![path.interface.clone(), path.address.to_string(), class.to_string(), speed]
}

/// The devices without any path, each with its reason; where a device has none of either family,
/// the first reason.
fn no_paths(found: &[Discovery]) {
    let mut said: Vec<&str> = Vec::new();
    let used = |name: &str| {
        found.iter().flat_map(|discovery| &discovery.usable).any(|path| path.interface == name)
    };
    for unusable in found.iter().flat_map(|discovery| &discovery.unusable) {
        if !used(&unusable.interface) && !said.contains(&unusable.interface.as_str()) {
            if said.is_empty() {
                println!("\nNo path:");
            }
            println!("  {} {}", unusable.interface, unusable.why);
            said.push(&unusable.interface);
        }
    }
}
