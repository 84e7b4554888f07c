//! `far`: the remote side of `cp`. Its messages use standard input and output, the data uses
//! connections of its own.

pub(crate) mod sources;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use events::{Event, Events, Subscription, Summary};
use files::{Error, Overwrite, ReceiveOptions, ServeOptions};
use peer::host::Meetings;
use peer::{DEFAULT_PORT, Fingerprint, Identity, ListenOptions, Token};
use relay::ClientOptions;
use relay::meeting::Invited;
use serde::Serialize;
use stripe::Effort;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::cp::install::own_hash;
use super::cp::messages::{
    Answer, Hello, MAX_REQUEST, Operation, PROTOCOL, Ready, Request, Status, Version,
};
use super::cp::target::Target;
use super::cp::waiting::relays_told;
use super::paths::runtime;
use crate::background::step_back;
use crate::config::Config;
use crate::dirs::Dirs;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::listen::{ListenAddress, socket_addresses};
use crate::threads;
use crate::via::wait;
use sources::Offer;

/// The time until it waits at a relay.
const MEETING_TIME: Duration = Duration::from_secs(20);
/// The time that it has left once a relay has said why not.
const FURTHER_TIME: Duration = Duration::from_secs(3);
/// What is said when nothing is known of why it does not.
const NO_ANSWER: &str = "no answer";

/// Arguments of `far`.
#[derive(Debug, clap::Args)]
pub(crate) struct FarArgs {
    /// Print the BLAKE3 hash of this program, for `cp --install`
    #[arg(long)]
    hash: bool,
}

/// `anabranch far`.
///
/// # Errors
/// [`Failure::Code`]; the other side has been sent the message.
pub(crate) fn run(args: &FarArgs) -> Result<(), Failure> {
    if args.hash {
        let hash = own_hash().map_err(|source| Error::system("read this program", source))?;
        outln!("{hash}");
        return Ok(());
    }
    if io::stdin().is_terminal() {
        let text = "'anabranch cp' starts this command on the other host, over ssh; it has no use \
                    by itself";
        return Err(Error::usage(text).into());
    }
    // The messages begin on a new line, even if a shell's start-up files left one unfinished.
    let _ = writeln!(io::stdout());
    write_message(&Hello { anabranch: env!("CARGO_PKG_VERSION").into(), speaks: PROTOCOL });
    let outcome = runtime().map_err(Failure::from).and_then(|runtime| {
        let outcome = runtime.block_on(serve());
        runtime.shutdown_background();
        outcome
    });
    let Err(failure) = outcome else {
        write_message(&Answer { anabranch: Status::Done });
        return Ok(());
    };
    let code = failure.exit_code();
    write_message(&Answer {
        anabranch: Status::Failed { code, text: failure.message().unwrap_or_default() },
    });
    Err(Failure::Code(code))
}

/// Writes a message to the other side. If that is gone, standard input is closed too, which ends
/// the command.
fn write_message(message: &impl Serialize) {
    let line = serde_json::to_string(message).expect("texts and numbers have a JSON form");
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

async fn serve() -> Result<(), Failure> {
    let (request, gone) =
        read_stdin().map_err(|source| Error::system("read standard input", source))?;
    let Ok(line) = request.await else { return Err(connection_lost()) };
    let request = parse_request(&line)?;
    if request.background {
        step_back(Effort::Lower);
    }
    // A shell's start-up files may have changed the folder.
    if let Some(home) = home() {
        let _ = env::set_current_dir(home);
    }
    let dirs = Dirs::from_env();
    let copying = async {
        match &request.what {
            Operation::Put { target, one } => {
                let target = Target::find(&expanded(target)?, one.as_deref(), &dirs)?;
                receive(&Listener::new(&request, &dirs)?, &target).await
            }
            Operation::Get { sources } => {
                serve_offer(&Listener::new(&request, &dirs)?, sources::find_all(sources)?).await
            }
        }
    };
    tokio::select! {
        done = copying => done,
        _ = gone => Err(connection_lost()),
    }
}

fn connection_lost() -> Failure {
    Error::Stopped { reason: "its end of the ssh connection is gone".into() }.into()
}

/// Reads standard input in a thread: gives the request's line, and the end of the input.
fn read_stdin() -> io::Result<(oneshot::Receiver<Vec<u8>>, oneshot::Receiver<()>)> {
    let (request, line) = oneshot::channel();
    let (end, gone) = oneshot::channel();
    threads::spawn(move || {
        let _end: oneshot::Sender<()> = end;
        let mut stdin = io::stdin().lock();
        let mut line = Vec::new();
        let read = stdin.by_ref().take(MAX_REQUEST as u64).read_until(b'\n', &mut line);
        if read.is_ok() && line.last() == Some(&b'\n') {
            let _ = request.send(line);
            let _ = io::copy(&mut stdin, &mut io::sink());
        }
    })?;
    Ok((line, gone))
}

/// Parses a request; the version first, since other versions may have other fields.
fn parse_request(line: &[u8]) -> Result<Request, Failure> {
    let bad =
        |error: serde_json::Error| Error::protocol(format!("the request is malformed: {error}"));
    let version: Version = serde_json::from_slice(line).map_err(bad)?;
    if version.speaks != PROTOCOL {
        let text = format!(
            "anabranch {} here uses version {PROTOCOL} of the cp protocol, and anabranch {} on the \
             other host version {}; install the same version on both",
            env!("CARGO_PKG_VERSION"),
            version.anabranch,
            version.speaks
        );
        return Err(Error::protocol(text).into());
    }
    Ok(serde_json::from_slice(line).map_err(bad)?)
}

/// Expands `~` and `~/…` as a shell does; in `host:~/file` the local shell does not.
fn expanded(path: &OsStr) -> Result<PathBuf, Error> {
    let Some(rest) = path.as_bytes().strip_prefix(b"~") else { return Ok(path.into()) };
    let below = OsStr::from_bytes(rest.strip_prefix(b"/").unwrap_or(rest));
    match home() {
        Some(home) if rest.is_empty() || rest.starts_with(b"/") => Ok(home.join(below)),
        _ => Err(Error::usage(format!(
            "{}: of names with ~ only ~/… is supported; write the absolute path, or ./~… for a \
             file of that name",
            Path::new(path).display()
        ))),
    }
}

fn home() -> Option<PathBuf> {
    env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// The ports to listen on, and the peer to accept.
struct Listener {
    /// The only port to use; `None` allows any.
    port: Option<u16>,
    listen: Vec<ListenAddress>,
    identity: Identity,
    token: Token,
    holder: Fingerprint,
    /// The relays at which it waits.
    relays: Vec<ClientOptions>,
}

impl Listener {
    fn new(request: &Request, dirs: &Dirs) -> Result<Listener, Error> {
        let config = Config::load(None, dirs)?;
        let identity = HostKey::load(dirs)?.or_temporary()?;
        let token = Token::generate(&identity)?;
        let holder = request.key.parse().map_err(Error::protocol)?;
        let relays = relays_told(&request.via, &identity)?;
        Ok(Listener {
            port: request.port.or(config.receive.port),
            listen: config.receive.listen,
            identity,
            token,
            holder,
            relays,
        })
    }

    /// Options to listen on `port` and accept the requesting peer only.
    fn host(&self, port: u16) -> ListenOptions {
        let (token, holder) = (Some(self.token.clone()), Some(self.holder));
        let addresses = socket_addresses(&self.listen, port);
        ListenOptions {
            addresses,
            port,
            token,
            holder,
            ..ListenOptions::new(self.identity.clone())
        }
    }

    /// Runs `transfer` on the configured port, or else on the default one, or, if that is in use,
    /// on any.
    async fn run<F>(&self, transfer: impl Fn(ListenOptions) -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let at = |port| transfer(self.host(port));
        match at(self.port.unwrap_or(DEFAULT_PORT)).await {
            Err(Error::Peer(peer::Error::System { source, .. }))
                if self.port.is_none() && source.kind() == io::ErrorKind::AddrInUse =>
            {
                at(0).await
            }
            result => result,
        }
    }

    fn ready(&self, addresses: Vec<SocketAddr>, rename: Option<OsString>, names: Vec<OsString>) {
        let ready = Ready {
            token: self.token.reveal(),
            addresses,
            reached: ssh_local_address(),
            rename,
            names,
            waits: !self.relays.is_empty(),
        };
        write_message(&Answer { anabranch: Status::Ready(ready) });
    }

    /// Runs a side of a transfer, with what it meets the other one at, and passes its events to
    /// `handle`; the other side is told once it can come.
    async fn run_one<F>(
        &self,
        named: (Option<OsString>, Vec<OsString>),
        side: impl FnOnce(Option<Arc<dyn Meetings>>, Events) -> F,
        handle: impl FnMut(&Event),
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<Summary, Error>>,
    {
        let (events, received) = Events::observed();
        let meeting = wait(self.relays.clone(), Invited::Holder(&self.token), &events)?;
        let meetings = meeting.clone().map(|meeting| meeting as Arc<dyn Meetings>);
        let side = side(meetings, events);
        let is_met = self.relays.is_empty();
        let (named, addresses, why) = (Some(named), None, None);
        let readiness = Readiness { listener: self, named, addresses, is_met, why };
        let ended = readiness.follow(side, received, handle).await;
        // It waits until then.
        drop(meeting);
        ended
    }
}

/// What the other side is told once it can come.
struct Readiness<'a> {
    listener: &'a Listener,
    /// The new name of the one source, and the names under which files are served, until they were
    /// told.
    named: Option<(Option<OsString>, Vec<OsString>)>,
    addresses: Option<Vec<SocketAddr>>,
    /// Whether it waits at a relay, if it is to.
    is_met: bool,
    /// Why it does not yet.
    why: Option<String>,
}

impl Readiness<'_> {
    async fn follow(
        mut self,
        side: impl Future<Output = Result<Summary, Error>>,
        mut received: Subscription,
        mut handle: impl FnMut(&Event),
    ) -> Result<(), Error> {
        tokio::pin!(side);
        let mut latest = Instant::now() + MEETING_TIME;
        loop {
            tokio::select! {
                result = &mut side => return result.map(drop),
                Some(event) = received.recv() => {
                    self.handle(&event);
                    handle(&event);
                    if self.why.is_some() {
                        latest = latest.min(Instant::now() + FURTHER_TIME);
                    }
                }
                () = sleep_until(latest), if !self.is_met => return Err(self.failure()),
            }
        }
    }

    fn handle(&mut self, event: &Event) {
        match event {
            Event::Listening { addresses } => self.addresses = Some(addresses.clone()),
            // The first relay is enough.
            Event::Meeting { .. } => self.is_met = true,
            Event::Notice { text } => self.why = Some(text.clone()),
            _ => return,
        }
        if self.is_met
            && let Some(addresses) = &self.addresses
            && let Some((rename, names)) = self.named.take()
        {
            self.listener.ready(addresses.clone(), rename, names);
        }
    }

    /// The failure if the other side cannot come.
    fn failure(&mut self) -> Error {
        let relays = self.listener.relays.iter().map(|relay| relay.dial.to_string());
        let to = relays.collect::<Vec<_>>().join(", ");
        let why = self.why.take().unwrap_or_else(|| NO_ANSWER.into());
        let key = self.listener.identity.fingerprint();
        let why = format!(
            "{why}; this host has the key {key}, which may use a relay where 'anabranch keys trust \
             sender {key} --may relay' was said"
        );
        peer::Error::NoPath { to, why }.into()
    }
}

/// Receives from the requesting peer.
async fn receive(listener: &Listener, target: &Target) -> Result<(), Failure> {
    let received = listener.run(|listen| {
        let options = ReceiveOptions {
            directory: target.directory.clone(),
            output: None,
            listen,
            keep: false,
            parallel: 1,
            timeout: None,
            overwrite: Overwrite::OnRequest,
            // Whoever logs in with ssh may do this here anyway.
            allow_delete: true,
            archive: true,
            meetings: None,
        };
        listener.run_one(
            (target.rename.clone(), Vec::new()),
            move |meetings, events| files::receive(ReceiveOptions { meetings, ..options }, events),
            |event| {
                // A dry run has no such event.
                if let Event::Started { .. } = event {
                    target.begin();
                }
            },
        )
    });
    received.await?;
    target.complete();
    Ok(())
}

/// Serves the requesting peer.
async fn serve_offer(listener: &Listener, offer: Offer) -> Result<(), Failure> {
    let served = listener.run(|listen| {
        let directory = offer.root.clone();
        listener.run_one(
            (offer.requested_as.clone(), offer.names.clone()),
            move |meetings, events| {
                let options = ServeOptions { directory, listen, once: true, meetings };
                files::serve(options, events)
            },
            |_| {},
        )
    });
    Ok(served.await?)
}

/// The local address of the ssh connection, from sshd's environment.
fn ssh_local_address() -> Option<IpAddr> {
    let connection = env::var("SSH_CONNECTION").ok()?;
    connection.split(' ').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_reported_whatever_its_fields() {
        let error = parse_request(br#"{"anabranch":"9.1.0","speaks":9,"wish":[]}"#)
            .unwrap_err()
            .message()
            .unwrap();
        assert!(
            error.contains("anabranch 9.1.0 on the other host version 9")
                && error.contains(env!("CARGO_PKG_VERSION")),
            "{error}"
        );
        assert!(parse_request(b"{}").is_err());
        assert!(parse_request(br#"{"anabranch":"0.1.0","speaks":1}"#).is_err());
    }

    #[test]
    fn a_request_survives_serialisation() {
        let target = std::os::unix::ffi::OsStringExt::from_vec(b"\xff\n\"x\"".to_vec());
        let version = Version { anabranch: "0.1.0".into(), speaks: PROTOCOL };
        let what = Operation::Put { target, one: Some("a b".into()) };
        let via = serde_json::from_str(r#"[{"relay":"r:7707","key":"k","token":"t"}]"#).unwrap();
        let (key, port) = ("k".into(), Some(1));
        let request = Request { version, key, port, background: true, via, what };
        let line = serde_json::to_vec(&request).unwrap();
        assert!(!line.contains(&b'\n'));
        assert_eq!(format!("{:?}", parse_request(&line).unwrap()), format!("{request:?}"));
    }
}
