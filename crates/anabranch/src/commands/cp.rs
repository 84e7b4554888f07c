//! `cp`: copies files to or from another host, with scp's syntax. The remote side is started over
//! ssh, which carries keys and names; the data goes over every path.

pub(crate) mod install;
pub(crate) mod messages;
mod operand;
mod pull;
mod reach;
mod saying;
mod ssh;
pub(crate) mod target;
pub(crate) mod waiting;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use events::{Events, Summary};
use files::{Error, SendOptions};
use peer::{Credential, DEFAULT_PORT, Remote, Token};
use tokio::time::timeout;

use super::send::{PreparedSend, SendFlags};
use crate::complete;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::name;
use crate::sanitize::{clean, without_error_numbers};
use crate::transfer;
use crate::via::{ViaSpec, relays_of_guest};
use messages::{Operation, PROTOCOL, Ready, Request, Version, WaitAt};
use operand::Operands;
use ssh::{NoHello, RemoteEnd, RemoteSide, Ssh};
use waiting::relays_of_far_side;

/// The time that the second side of a transfer has to end after the first.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The exit code if no connection to the data port opens.
const NO_PATH: u8 = 5;

/// Arguments of `cp`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = format!(
        "{program} cp [OPTIONS] SOURCE… [USER@]HOST:[TARGET]\n       {program} cp [OPTIONS] \
         [USER@]HOST:SOURCE… TARGET",
        program = name::of_program()
    ),
    after_long_help = examples::help("cp")
)]
pub(crate) struct CpArgs {
    /// The sources, and last the target; paths on the other host are written [USER@]HOST:PATH
    ///
    /// PATH is relative to the home folder on the other host, and may be empty. A target that is an
    /// existing folder receives the sources; one that does not exist is the new name of the only
    /// source. FOLDER/ with a slash at its end stands for the contents of the folder. A local name
    /// with a colon is written ./a:b; an IPv6 address needs brackets.
    #[arg(required = true, value_name = "SOURCE TARGET", add = complete::operands())]
    operands: Vec<OsString>,
    #[command(flatten)]
    ssh: ssh::SshArgs,
    /// The only port for the data on the other host [default: 7707, or a free one if that is in
    /// use]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    far_port: Option<u16>,
    /// The address for the data, if it differs from that for ssh; the port, if it is mapped to
    /// another one outside
    #[arg(long, value_name = "HOST[:PORT]")]
    data_to: Option<Remote>,
    /// Meet the other host at this relay, where it waits for the copy: for hosts that only ssh
    /// reaches, through a jump host for example; may be repeated
    #[arg(
        long,
        value_name = "HOST[:PORT][,FINGERPRINT][,token-file=FILE]",
        conflicts_with_all = ["data_to", "relays", "relays_file", "relays_only"],
        add = complete::receivers()
    )]
    via: Vec<ViaSpec>,
    /// If the other host lacks anabranch, or has an incompatible version, copy this program to
    /// ~/.local/bin there first
    #[arg(long, conflicts_with = "remote_program", help_heading = "ssh")]
    install: bool,
    #[command(flatten)]
    flags: SendFlags,
    /// Accepted as in scp; folders are always copied with their contents
    #[arg(short = 'r')]
    recursive: bool,
    /// Accepted as in scp; modes and times are always kept
    #[arg(short = 'p')]
    preserve: bool,
}

impl CpArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.flags.is_json()
    }
}

/// `anabranch cp`.
///
/// # Errors
/// Errors of ssh, of the remote side and of the transfer.
pub(crate) fn run(args: CpArgs) -> Result<(), Failure> {
    let listed = args.flags.has_list();
    let (destination, sources, direction) = match operand::operands(&args.operands, listed)? {
        Operands::Push { sources, to } => {
            let one = match &sources[..] {
                [source] if !listed => Some(source.file_name().unwrap_or_default().to_os_string()),
                _ => None,
            };
            (to.destination, sources, Direction::Push { target: to.path, one })
        }
        Operands::Pull { from, sources, to } => (from, Vec::new(), Direction::Pull { sources, to }),
    };
    let mut prepared = args.flags.prepare(sources)?;
    // Before ssh asks for a password.
    let waiting = relays_of_far_side(&args.via, &Dirs::from_env())?;
    if !args.via.is_empty() {
        prepared.meet();
    }
    if matches!(direction, Direction::Push { .. }) {
        prepared.check_sending()?;
    }
    let folder = match &direction {
        Direction::Push { .. } => None,
        Direction::Pull { to, .. } => Some(to.as_path()),
    };
    let watcher = prepared.watcher(folder);
    let judge = Failure::judge(prepared.is_dry_run());
    let ssh = args.ssh.to(destination)?;
    let (install, far_port, data_to) = (args.install, args.far_port, args.data_to);
    let via = (args.via, waiting);
    let copy = Copy { prepared, ssh, install, direction, far_port, data_to, via };
    let copied = transfer::run(watcher, |events| copy.run(events))?;
    judge(&copied)
}

/// A copy to or from another host.
struct Copy {
    prepared: PreparedSend,
    ssh: Ssh,
    install: bool,
    direction: Direction,
    far_port: Option<u16>,
    data_to: Option<Remote>,
    /// The relays at which the other host is met, and what it is told of them.
    via: (Vec<ViaSpec>, Vec<WaitAt>),
}

/// The direction of a copy.
enum Direction {
    /// To the other host; `one` is the name of a single source.
    Push { target: OsString, one: Option<OsString> },
    /// From the other host.
    Pull { sources: Vec<OsString>, to: PathBuf },
}

impl Copy {
    /// Starts the remote side; installs it if it is lacking and the user said so.
    async fn start(&mut self, events: &Events) -> Result<RemoteSide, Failure> {
        let mut remote = self.ssh.start()?;
        let Err(NoHello { failure, lacks_program }) = remote.greet().await else {
            return Ok(remote);
        };
        if !(self.install && lacks_program) {
            return Err(failure);
        }
        remote.close().await;
        install::install(&self.ssh, events).await?;
        let text = format!("anabranch was copied to {}:.local/bin/anabranch", self.ssh.host());
        events.notice(text);
        self.ssh.use_installed();
        let mut remote = self.ssh.start()?;
        remote.greet().await.map_err(|none| none.failure)?;
        Ok(remote)
    }

    async fn run(mut self, events: Events) -> Result<Summary, Failure> {
        let identity = HostKey::load(&Dirs::from_env())?.or_temporary_with_notice()?;
        let mut remote = self.start(&events).await?;
        let request = Request {
            version: Version { anabranch: env!("CARGO_PKG_VERSION").into(), speaks: PROTOCOL },
            key: identity.fingerprint().to_string(),
            port: self.far_port,
            background: self.prepared.is_background()?,
            via: std::mem::take(&mut self.via.1),
            what: match &self.direction {
                Direction::Push { target, one } => {
                    Operation::Put { target: target.clone(), one: one.clone() }
                }
                Direction::Pull { sources, .. } => Operation::Get { sources: sources.clone() },
            },
        };
        let (ready, name) = tokio::join!(remote.ask(&request), self.ssh.real_name());
        let ready = ready?;
        let token: Token = ready.token.parse().map_err(Error::protocol)?;
        let via = &self.via.0;
        let relays = relays_of_guest(via, &token, &identity, &Dirs::from_env())?;
        if !relays.is_empty() && !ready.waits {
            let text = format!(
                "anabranch on {} cannot wait at a relay: install this version there (--install)",
                self.ssh.host()
            );
            return Err(Error::protocol(text).into());
        }
        let port = ready.addresses.first().map_or(DEFAULT_PORT, SocketAddr::port);
        let mut options = self.prepared.to(
            Remote { host: String::new(), zone: None, port },
            Credential::Token(token),
            identity,
        )?;
        options.to = match (self.data_to, via.first()) {
            (Some(remote), _) => remote,
            (None, Some(first)) => first.dial().clone(),
            (None, None) => {
                data_address(
                    name.as_deref(),
                    &ready,
                    self.ssh.host(),
                    !options.transfer.dial.paths.is_empty(),
                )
                .await?
            }
        };
        // An address without a port gets the port that the remote side listens on.
        let own = via.is_empty().then_some(&mut options.to);
        let remotes =
            options.transfer.dial.paths.iter_mut().filter_map(|path| path.to.as_mut()).chain(own);
        for to in remotes.filter(|to| to.port == DEFAULT_PORT) {
            to.port = port;
        }
        let is_met = !relays.is_empty();
        if is_met {
            options.transfer.dial.meet_at(relays);
        }
        let is_dry_run = options.transfer.dry_run;
        let result = match self.direction {
            Direction::Push { .. } => {
                let options = SendOptions { rename: ready.rename, ..options };
                supervise(files::send(options, events), remote, is_dry_run).await
            }
            Direction::Pull { sources, to } => {
                let (target, options) = pull::fetching(options, ready, &sources, &to)?;
                if !is_dry_run {
                    target.begin();
                }
                let result = supervise(files::fetch(options, events), remote, is_dry_run).await;
                if result.is_ok() {
                    target.complete();
                }
                result
            }
        };
        result.map_err(|failure| match failure {
            Failure::Error(Error::Peer(peer::Error::NoPath { to, why })) if !is_met => {
                port_closed(self.ssh.host(), port, &format!("{to}: {why}"))
            }
            failure => failure,
        })
    }
}

/// The address of the other host's data port. If the user chose the paths (`chosen`), the port may
/// be reachable over these only, and an address that cannot be reached otherwise is accepted.
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
            return Err(port_closed(
                host,
                port,
                if why.is_empty() { "no address is known" } else { &why },
            ));
        }
    };
    Ok(address.into())
}

/// The failure if no connection to the data port opens, with the remedies.
fn port_closed(host: &str, port: u16, why: &str) -> Failure {
    let (host, why) = (clean(host), without_error_numbers(why));
    let text = format!(
        "ssh reaches {host}, but its data port, TCP {port}, is unreachable ({why}). Open it in the \
         firewall, or choose an open one with --far-port PORT (permanently: port in [receive] of \
         anabranch's configuration there); --data-to names another address, and --via a relay at \
         which both hosts meet",
        why = clean(&why)
    );
    Failure::Message { code: NO_PATH, text }
}

/// Runs the local side of a transfer, and watches the remote side: its report of a failure explains
/// more than the connections lost here. After a dry run the remote side reports no end.
async fn supervise(
    transfer: impl Future<Output = Result<Summary, Error>>,
    mut remote: RemoteSide,
    is_dry_run: bool,
) -> Result<Summary, Failure> {
    tokio::pin!(transfer);
    let end = tokio::select! {
        result = &mut transfer => {
            let end = match &result {
                Ok(_) if !is_dry_run => timeout(CLOSE_TIMEOUT, remote.end()).await.ok(),
                Err(error) if is_symptom(error) => timeout(CLOSE_TIMEOUT, remote.end()).await.ok(),
                _ => None,
            };
            remote.close().await;
            return match (result, end) {
                (Err(_), Some(RemoteEnd::Failed(failure))) => Err(failure),
                (result, _) => Ok(result?),
            };
        }
        end = remote.end() => end,
    };
    let result = match end {
        RemoteEnd::Done => transfer.await.map_err(Failure::from),
        RemoteEnd::Failed(failure) | RemoteEnd::Gone(failure) => {
            match timeout(CLOSE_TIMEOUT, transfer).await {
                Ok(Ok(summary)) => Ok(summary),
                Ok(Err(error)) if !is_symptom(&error) => Err(error.into()),
                _ => Err(failure),
            }
        }
    };
    remote.close().await;
    result
}

/// Whether an error here only shows that the remote side is gone.
fn is_symptom(error: &Error) -> bool {
    matches!(
        error,
        Error::Peer(peer::Error::NoPath { .. } | peer::Error::Refused { .. })
            | Error::Interrupted { .. }
            | Error::Stopped { .. }
            | Error::Stalled { .. }
    )
}
