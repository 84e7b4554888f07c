//! `relay status`: what a relay does for each host, asked over a Unix socket of its user.

use std::convert::Infallible;
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::relay::{KeyFigures, RelayService};
use files::Error;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};
use units::Bytes;

use crate::dirs::Dirs;
use crate::sanitize::{clean, clean_json};

/// Arguments of `relay status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Write JSON to standard output, an object on each line, one for each host
    #[arg(long)]
    json: bool,
}

/// The time that somebody who asks has to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause when no connection can be accepted, for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest answer that is read, in bytes: a thousand hosts and more.
const MOST_TEXT: u64 = 4 << 20;

/// The socket of a relay.
pub(super) struct StatusServer {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusServer {
    /// Listens in the folder of this user's state, which nobody else may enter.
    pub(super) fn bind(dirs: &Dirs) -> io::Result<StatusServer> {
        let path = dirs.relay_status();
        let folder = path.parent().expect("it lies in the folder of the state");
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        if is_answered(&path) {
            return Err(io::Error::other("another relay of this user answers"));
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(StatusServer { listener, path })
    }

    /// Answers whoever connects, for ever.
    pub(super) async fn serve(self, service: &Arc<RelayService>) -> Infallible {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let _ = timeout(PATIENCE, answer(stream, &service.figures())).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "nobody can be told the status");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a relay listens there.
fn is_answered(path: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(path).is_ok()
}

async fn answer(mut stream: UnixStream, figures: &[KeyFigures]) -> io::Result<()> {
    let lines = figures.iter().map(|own| {
        let value = json!({
            "key": own.fingerprint.to_string(),
            "name": own.label,
            "paths": own.paths,
            "opened": own.opened,
            "refused": own.refused,
            "up": own.up,
            "down": own.down,
        });
        format!("{value}\n")
    });
    stream.write_all(lines.collect::<String>().as_bytes()).await
}

/// `anabranch relay status`.
///
/// # Errors
/// [`Error::System`] if no relay of this user runs.
pub(super) fn show(args: &StatusArgs, dirs: &Dirs) -> Result<(), Error> {
    let path = dirs.relay_status();
    let read = || {
        let mut stream = std::os::unix::net::UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut text = String::new();
        Read::take(&mut stream, MOST_TEXT).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|source: io::Error| {
        Error::system(format!("ask a relay of this user at {}", path.display()), source)
    })?;
    if args.json {
        text.lines().for_each(|line| outln!("{}", clean_json(line)));
        return Ok(());
    }
    outln!(
        "{:20} {:>6} {:>9} {:>9} {:>12} {:>12}",
        "host",
        "paths",
        "opened",
        "refused",
        "up",
        "down"
    );
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).map_err(|error| {
            Error::system("read the answer of the relay", io::Error::other(error))
        })?;
        let number = |key: &str| row[key].as_u64().unwrap_or_default();
        let name = clean(row["name"].as_str().unwrap_or_default()).into_owned();
        let name: String = name.chars().take(20).collect();
        let [up, down] = ["up", "down"].map(|key| Bytes(number(key)).to_string());
        outln!(
            "{name:20} {:>6} {:>9} {:>9} {up:>12} {down:>12}",
            number("paths"),
            number("opened"),
            number("refused"),
        );
    }
    Ok(())
}
