//! `far`: what `cp` starts on the other host. It talks over standard input and output, and the data
//! comes over connections of its own.

pub(crate) mod messages;
pub(crate) mod sources;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use net::{
    DEFAULT_PORT, Error, Event, Events, Fingerprint, HostOptions, Identity, ReceiveOptions,
    ServeOptions, Summary, Token,
};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use super::cp::arrival::Arrival;
use super::paths::runtime;
use crate::config::Config;
use crate::dirs::Dirs;
use crate::exit::Failure;
use crate::listen::{ListenAddress, socket_addresses};
use messages::{Answer, Asker, Hello, MAX_REQUEST, Ready, Request, SPEAKS, Said, What};
use sources::Offered;

/// `anabranch far`.
///
/// # Errors
/// What failed; the near side was told why.
pub(crate) fn run() -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        let text =
            "this is what 'anabranch cp' starts on the other host, over ssh; it is not for people";
        return Err(Error::Usage(text.into()).into());
    }
    // A line of its own, whatever a shell's start-up files left unfinished.
    let _ = writeln!(io::stdout());
    say(&Hello { anabranch: env!("CARGO_PKG_VERSION").into(), speaks: SPEAKS });
    let runtime = runtime()?;
    let outcome = runtime.block_on(serve());
    runtime.shutdown_background();
    let Err(ended) = outcome else {
        say(&Answer { anabranch: Said::Done });
        return Ok(());
    };
    let code = ended.exit_code();
    say(&Answer { anabranch: Said::Failed { code, text: ended.message().unwrap_or_default() } });
    Err(Failure::Code(code))
}

/// A line to the near side. If that is gone, its end of standard input is too, which is noticed
/// there.
fn say(message: &impl Serialize) {
    let line = serde_json::to_string(message).expect("texts and numbers have a JSON form");
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

async fn serve() -> Result<(), Failure> {
    let (request, gone) = near();
    let Ok(line) = request.await else { return Err(nobody()) };
    let request = understand(&line)?;
    // A shell's start-up files may have gone elsewhere.
    if let Some(home) = home() {
        let _ = env::set_current_dir(home);
    }
    let dirs = Dirs::from_env();
    let copying = async {
        match &request.what {
            What::Put { target, one } => {
                let arrival = Arrival::find(&expanded(target)?, one.as_deref(), &dirs)?;
                receive(&Listener::new(&request, &dirs)?, &arrival).await
            }
            What::Get { sources } => {
                serve_what(&Listener::new(&request, &dirs)?, sources::offer(sources)?).await
            }
        }
    };
    tokio::select! {
        done = copying => done,
        _ = gone => Err(nobody()),
    }
}

fn nobody() -> Failure {
    Error::Stopped { reason: "its end of the ssh connection is gone".into() }.into()
}

/// Listens to standard input in a thread: the request's line, and the end of all.
fn near() -> (oneshot::Receiver<Vec<u8>>, oneshot::Receiver<()>) {
    let (request, line) = oneshot::channel();
    let (end, gone) = oneshot::channel();
    std::thread::spawn(move || {
        let _end: oneshot::Sender<()> = end;
        let mut stdin = io::stdin().lock();
        let mut line = Vec::new();
        let read = stdin.by_ref().take(MAX_REQUEST as u64).read_until(b'\n', &mut line);
        if read.is_ok() && line.last() == Some(&b'\n') {
            let _ = request.send(line);
            let _ = io::copy(&mut stdin, &mut io::sink());
        }
    });
    (line, gone)
}

/// Reads a request: the version first, since the rest may be of another shape in another one.
fn understand(line: &[u8]) -> Result<Request, Failure> {
    let bad = |error: serde_json::Error| {
        Error::Protocol(format!("the request cannot be understood: {error}"))
    };
    let asker: Asker = serde_json::from_slice(line).map_err(bad)?;
    if asker.speaks != SPEAKS {
        let text = format!(
            "anabranch {} here speaks version {SPEAKS}, anabranch {} version {} on the side that \
             asks; install the same version on both",
            env!("CARGO_PKG_VERSION"),
            asker.anabranch,
            asker.speaks
        );
        return Err(Error::Protocol(text).into());
    }
    Ok(serde_json::from_slice(line).map_err(bad)?)
}

/// `~` and what is below it, as a shell has it, since the shell on the other side leaves it in
/// `host:~/file`.
fn expanded(path: &OsStr) -> Result<PathBuf, Error> {
    let Some(rest) = path.as_bytes().strip_prefix(b"~") else { return Ok(path.into()) };
    let below = OsStr::from_bytes(rest.strip_prefix(b"/").unwrap_or(rest));
    match home() {
        Some(home) if rest.is_empty() || rest.starts_with(b"/") => Ok(home.join(below)),
        _ => Err(Error::Usage(format!(
            "{}: of names with ~ only ~/… is understood; write the whole path, or ./~… for a file \
             of that name",
            Path::new(path).display()
        ))),
    }
}

fn home() -> Option<PathBuf> {
    env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// This host's key, by which a copy that goes on is known for the same sender's. Where it cannot be
/// kept, as in a home that is read-only, a key for this copy alone.
pub(crate) fn identity(dirs: &Dirs) -> Result<Identity, Error> {
    Identity::load_or_generate(&dirs.key()).or_else(|_| Identity::generate())
}

/// Where to listen, and whom to let in.
struct Listener {
    /// The port that is wished for; without a wish, any will do.
    wish: Option<u16>,
    listen: Vec<ListenAddress>,
    identity: Identity,
    token: Token,
    holder: Fingerprint,
}

impl Listener {
    fn new(request: &Request, dirs: &Dirs) -> Result<Listener, Error> {
        let config = Config::load(None, dirs)?;
        let identity = identity(dirs)?;
        let token = Token::generate(&identity)?;
        let holder = request.key.parse().map_err(Error::Protocol)?;
        Ok(Listener {
            wish: request.port.or(config.receive.port),
            listen: config.receive.listen,
            identity,
            token,
            holder,
        })
    }

    /// Listens at this port, for the one that asked and nobody else.
    fn host(&self, port: u16) -> HostOptions {
        let (token, holder) = (Some(self.token.clone()), Some(self.holder));
        let listen = socket_addresses(&self.listen, port);
        HostOptions { listen, port, token, holder, ..HostOptions::new(self.identity.clone()) }
    }

    /// Opens at the port that is wished for, or else at the usual one, or, if somebody else has
    /// that, at any.
    async fn open<F>(&self, at: impl Fn(HostOptions) -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let at = |port| at(self.host(port));
        match at(self.wish.unwrap_or(DEFAULT_PORT)).await {
            Err(Error::System { source, .. })
                if self.wish.is_none() && source.kind() == io::ErrorKind::AddrInUse =>
            {
                at(0).await
            }
            result => result,
        }
    }

    fn ready(&self, addresses: Vec<SocketAddr>, rename: Option<OsString>, names: Vec<OsString>) {
        let ready =
            Ready { token: self.token.reveal(), addresses, reached: reached(), rename, names };
        say(&Answer { anabranch: Said::Ready(ready) });
    }
}

/// Receives from the one that asked and nobody else.
async fn receive(listener: &Listener, arrival: &Arrival) -> Result<(), Failure> {
    let received = listener.open(|host| {
        let options = ReceiveOptions {
            directory: arrival.directory.clone(),
            host,
            keep: false,
            overwrite: false,
        };
        hearing(
            |events| net::receive(options, events),
            |event| match event {
                Event::Listening { addresses } => {
                    listener.ready(addresses, arrival.rename.clone(), Vec::new());
                }
                // Not with a dry run.
                Event::Started { .. } => arrival.begin(),
                _ => {}
            },
        )
    });
    received.await?;
    arrival.complete();
    Ok(())
}

/// Serves the one that asked and nobody else.
async fn serve_what(listener: &Listener, offered: Offered) -> Result<(), Failure> {
    let served = listener.open(|host| {
        let options = ServeOptions { directory: offered.root.clone(), host, once: true };
        hearing(
            |events| net::serve(options, events),
            |event| {
                if let Event::Listening { addresses } = event {
                    listener.ready(addresses, offered.called.clone(), offered.names.clone());
                }
            },
        )
    });
    Ok(served.await?)
}

/// Runs one side of a transfer, and hears what it tells.
async fn hearing<F>(
    side: impl FnOnce(Events) -> F,
    mut heard: impl FnMut(Event),
) -> Result<(), Error>
where
    F: Future<Output = Result<Summary, Error>>,
{
    let (events, mut told) = mpsc::unbounded_channel();
    let side = side(events);
    tokio::pin!(side);
    loop {
        tokio::select! {
            result = &mut side => return result.map(drop),
            Some(event) = told.recv() => heard(event),
        }
    }
}

/// Our address at which the ssh connection arrived, as sshd tells it.
fn reached() -> Option<IpAddr> {
    let connection = env::var("SSH_CONNECTION").ok()?;
    connection.split(' ').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_named_whatever_else_it_says() {
        let error = understand(br#"{"anabranch":"9.1.0","speaks":9,"wish":[]}"#)
            .unwrap_err()
            .message()
            .unwrap();
        assert!(
            error.contains("anabranch 9.1.0 version 9")
                && error.contains(env!("CARGO_PKG_VERSION")),
            "{error}"
        );
        assert!(understand(b"{}").is_err());
        assert!(understand(br#"{"anabranch":"0.1.0","speaks":1}"#).is_err());
    }

    #[test]
    fn a_key_that_cannot_be_kept_is_for_one_copy() {
        let dirs = Dirs::below("/dev/null".as_ref());
        let keys = [identity(&dirs).unwrap(), identity(&dirs).unwrap()];
        assert_ne!(keys[0].fingerprint(), keys[1].fingerprint());
    }

    #[test]
    fn a_request_survives_its_line() {
        let target = std::os::unix::ffi::OsStringExt::from_vec(b"\xff\n\"x\"".to_vec());
        let asker = Asker { anabranch: "0.1.0".into(), speaks: SPEAKS };
        let what = What::Put { target, one: Some("a b".into()) };
        let request = Request { asker, key: "k".into(), port: Some(1), what };
        let line = serde_json::to_vec(&request).unwrap();
        assert!(!line.contains(&b'\n'));
        assert_eq!(format!("{:?}", understand(&line).unwrap()), format!("{request:?}"));
    }
}
