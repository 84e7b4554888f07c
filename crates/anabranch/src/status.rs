//! What a service that runs says of itself, asked over a Unix socket of its user.

use std::convert::Infallible;
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream as Asking;
use std::path::{Path, PathBuf};
use std::time::Duration;

use files::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

/// The time that somebody who asks has to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause when no connection can be accepted, for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest answer that is read, in bytes: a thousand hosts and more.
const MOST_TEXT: u64 = 4 << 20;

/// The socket of a service.
pub(crate) struct StatusServer {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusServer {
    /// Listens in the folder of this user's state, which nobody else may enter. `what` is the
    /// service, with an article.
    pub(crate) fn bind(path: PathBuf, what: &str) -> io::Result<StatusServer> {
        let folder = path.parent().expect("it lies in the folder of the state");
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        if Asking::connect(&path).is_ok() {
            return Err(io::Error::other(format!("another {what} of this user answers")));
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        Ok(StatusServer { listener, path })
    }

    /// Answers whoever connects, for ever.
    pub(crate) async fn serve(self, answer: impl Fn() -> String) -> Infallible {
        let tell =
            async |mut stream: UnixStream, text: String| stream.write_all(text.as_bytes()).await;
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let _ = timeout(PATIENCE, tell(stream, answer())).await;
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

/// The home of the units of the Debian package.
const OF_UNITS: &str = "/var/lib/anabranch";

/// The answer of the service whose socket this is: of a relay, or a gateway.
///
/// # Errors
/// [`Error::System`] if no such service of this user runs.
pub(crate) fn ask(path: &Path, what: &str) -> Result<String, Error> {
    answer(path).map_err(|source| {
        let units = Path::new(OF_UNITS);
        let hint = if units.is_dir() && !path.starts_with(units) {
            format!(
                " (the unit of the Debian package answers its own user: sudo -u anabranch \
                 ANABRANCH_HOME={OF_UNITS} anabranch {what} status)"
            )
        } else {
            String::new()
        };
        Error::system(format!("ask a {what} of this user at {}{hint}", path.display()), source)
    })
}

fn answer(path: &Path) -> io::Result<String> {
    let mut stream = Asking::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    Read::take(&mut stream, MOST_TEXT).read_to_string(&mut text)?;
    Ok(text)
}
