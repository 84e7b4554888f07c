//! `cp`: files to another host, or from there, as scp has it. The far side is started over ssh,
//! which carries keys and names; the data goes over every path.

pub(crate) mod arrival;
mod operand;
mod pull;
mod reach;
mod ssh;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use net::{Credential, DEFAULT_PORT, Error, Events, Remote, SendOptions, Summary, Token};
use tokio::time::timeout;

use super::far;
use super::far::messages::{Asker, Ready, Request, SPEAKS, What};
use super::send::{Flags, Sending};
use crate::dirs::Dirs;
use crate::exit::Failure;
use crate::sanitize::{clean, plainly};
use crate::transfer;
use operand::Direction;
use ssh::{End, Link, Ssh};

/// How long the other end of the transfer may take to end as well.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The exit code where no connection to the data port opens.
const NO_PATH: u8 = 5;

/// Arguments of `cp`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "anabranch cp [OPTIONS] SOURCE… [USER@]HOST:[TARGET]\n       anabranch cp \
                      [OPTIONS] [USER@]HOST:SOURCE… TARGET"
)]
pub(crate) struct CpArgs {
    /// What to copy, and last, where to; what is on the other host is written [USER@]HOST:PATH
    ///
    /// PATH is relative to the home on the other host, and may be left out. A folder that is there
    /// takes what comes; what is not there is the new name of the one thing that comes. Of FOLDER/
    /// with a slash at its end, what is in it is copied. A local name with a colon is written
    /// ./a:b; an IPv6 address stands in brackets.
    #[arg(required = true, value_name = "SOURCE TARGET")]
    operands: Vec<OsString>,
    #[command(flatten)]
    ssh: ssh::SshArgs,
    /// The port for the data on the other host, and no other [default: 7707, or a free one if that
    /// is taken]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    far_port: Option<u16>,
    /// Where the data goes, if the other host has another address for it, or another port outside
    /// than inside
    #[arg(long, value_name = "HOST[:PORT]")]
    data_to: Option<Remote>,
    #[command(flatten)]
    flags: Flags,
    /// Folders are always copied with what is in them; accepted because scp has it
    #[arg(short = 'r')]
    recursive: bool,
    /// Modes and times are always kept; accepted because scp has it
    #[arg(short = 'p')]
    preserve: bool,
}

/// `anabranch cp`.
///
/// # Errors
/// Those of ssh, of the far side and of the transfer.
pub(crate) fn run(args: CpArgs) -> Result<(), Failure> {
    let listed = args.flags.are_listed();
    let (destination, sources, way) = match operand::direction(&args.operands, listed)? {
        Direction::Push { sources, to } => {
            let one = match &sources[..] {
                [source] if !listed => Some(source.file_name().unwrap_or_default().to_os_string()),
                _ => None,
            };
            (to.destination, sources, Way::Push { target: to.path, one })
        }
        Direction::Pull { from, sources, to } => (from, Vec::new(), Way::Pull { sources, to }),
    };
    let mut sending = args.flags.prepare(sources)?;
    let watcher = sending.watcher();
    let ssh = args.ssh.to(destination)?;
    let copy = Copy { sending, ssh, way, far_port: args.far_port, data_to: args.data_to };
    transfer::run(watcher, |events| copy.run(events)).map(drop)
}

/// A copy to another host or from there.
struct Copy {
    sending: Sending,
    ssh: Ssh,
    way: Way,
    far_port: Option<u16>,
    data_to: Option<Remote>,
}

/// In which direction.
enum Way {
    Push { target: OsString, one: Option<OsString> },
    Pull { sources: Vec<OsString>, to: PathBuf },
}

impl Copy {
    async fn run(self, events: Events) -> Result<Summary, Failure> {
        let identity = far::identity(&Dirs::from_env())?;
        let mut link = self.ssh.start()?;
        let request = Request {
            asker: Asker { anabranch: env!("CARGO_PKG_VERSION").into(), speaks: SPEAKS },
            key: identity.fingerprint().to_string(),
            port: self.far_port,
            what: match &self.way {
                Way::Push { target, one } => What::Put { target: target.clone(), one: one.clone() },
                Way::Pull { sources, .. } => What::Get { sources: sources.clone() },
            },
        };
        let (ready, name) = tokio::join!(link.ask(&request), self.ssh.real_name());
        let ready = ready?;
        let token: Token = ready.token.parse().map_err(Error::Protocol)?;
        let port = ready.addresses.first().map_or(DEFAULT_PORT, SocketAddr::port);
        let mut options = self.sending.to(
            Remote { host: String::new(), port },
            Credential::Token(token),
            identity,
        );
        options.to = match self.data_to {
            Some(remote) => remote,
            None => {
                data_address(
                    name.as_deref(),
                    &ready,
                    self.ssh.host(),
                    !options.transfer.paths.is_empty(),
                )
                .await?
            }
        };
        // Where an address is named and no port, the port is the far side's.
        let named = options
            .transfer
            .paths
            .iter_mut()
            .filter_map(|path| path.to.as_mut())
            .chain([&mut options.to]);
        for to in named.filter(|to| to.port == DEFAULT_PORT) {
            to.port = port;
        }
        let rehearses = options.transfer.dry_run;
        let result = match self.way {
            Way::Push { .. } => {
                let options = SendOptions { rename: ready.rename, ..options };
                attend(net::send(options, events), link, rehearses).await
            }
            Way::Pull { sources, to } => {
                let (arrival, options) = pull::fetching(options, ready, &sources, &to)?;
                if !rehearses {
                    arrival.begin();
                }
                let result = attend(net::fetch(options, events), link, rehearses).await;
                if result.is_ok() {
                    arrival.complete();
                }
                result
            }
        };
        result.map_err(|ended| match ended {
            Failure::Error(Error::NoPath { to, why }) => {
                closed(self.ssh.host(), port, &format!("{to}: {why}"))
            }
            ended => ended,
        })
    }
}

/// Where the data port of the other host is reached. With `chosen` paths that may be over them
/// alone.
async fn data_address(
    name: Option<&str>,
    ready: &Ready,
    host: &str,
    chosen: bool,
) -> Result<Remote, Failure> {
    let candidates = reach::candidates(name, ready).await;
    let address = match (reach::first(&candidates).await, candidates.first()) {
        (Ok(address), _) => address,
        (Err(_), Some(first)) if chosen => *first,
        (Err(why), _) => {
            let port = candidates.first().map_or(DEFAULT_PORT, SocketAddr::port);
            return Err(closed(
                host,
                port,
                if why.is_empty() { "no address of it is known" } else { &why },
            ));
        }
    };
    Ok(Remote { host: address.ip().to_string(), port: address.port() })
}

/// No connection to the data port opens: what to do.
fn closed(host: &str, port: u16, why: &str) -> Failure {
    let (host, why) = (clean(host), plainly(why));
    let text = format!(
        "ssh reaches {host}, but the data's port there, {port} of TCP, cannot be reached ({why}). \
         Let it through the firewall, or choose one that is let through with --far-port PORT (for \
         good: port in [receive] of anabranch's configuration there); --data-to names another \
         address",
        why = clean(&why)
    );
    Failure::Message { code: NO_PATH, text }
}

/// Runs our side of a transfer, and knows how the far side fares: what that says of its own failure
/// is worth more than our seeing connections die. Of a copy that only `rehearses` the far side
/// hears no end.
async fn attend(
    ours: impl Future<Output = Result<Summary, Error>>,
    mut link: Link,
    rehearses: bool,
) -> Result<Summary, Failure> {
    tokio::pin!(ours);
    let end = tokio::select! {
        result = &mut ours => {
            let said = match &result {
                Ok(_) if !rehearses => timeout(LAST_WORDS, link.end()).await.ok(),
                Err(error) if is_symptom(error) => timeout(LAST_WORDS, link.end()).await.ok(),
                _ => None,
            };
            link.close().await;
            return match (result, said) {
                (Err(_), Some(End::Failed(ended))) => Err(ended),
                (result, _) => Ok(result?),
            };
        }
        end = link.end() => end,
    };
    let result = match end {
        End::Done => ours.await.map_err(Failure::from),
        End::Failed(ended) | End::Gone(ended) => match timeout(LAST_WORDS, ours).await {
            Ok(Ok(summary)) => Ok(summary),
            Ok(Err(error)) if !is_symptom(&error) => Err(error.into()),
            _ => Err(ended),
        },
    };
    link.close().await;
    result
}

/// Whether an error of ours says only that the other side is gone.
fn is_symptom(error: &Error) -> bool {
    matches!(
        error,
        Error::NoPath { .. }
            | Error::Interrupted { .. }
            | Error::Stopped { .. }
            | Error::Refused { .. }
    )
}
