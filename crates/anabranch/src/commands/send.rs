//! `send`: files and folders to a receiver, over every path.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use net::{Credential, Error, Identity, Remote, SendOptions};

use crate::config::Config;
use crate::dirs::Dirs;
use crate::exit::Failure;
use crate::flags::TransferFlags;
use crate::peers::List;
use crate::token::TokenSource;
use crate::transfer;
use crate::watch;

/// Arguments of `send`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("files_from", |files_from| files_from.conflicts_with("token_stdin")))]
pub(crate) struct SendArgs {
    /// Files and folders to send; of FOLDER/ with a slash at its end, what is in it
    #[arg(required_unless_present = "files_from", value_name = "PATH")]
    sources: Vec<PathBuf>,
    /// The receiver, as 'anabranch receive' prints it
    #[arg(long, value_name = "HOST[:PORT]")]
    to: Remote,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    token: TokenSource,
}

/// What is sent of the sources, how, and over what: the flags of every command that sends.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Flags {
    #[command(flatten)]
    transfer: TransferFlags,
    /// Only what FILE names, one a line, below PATH or the current folder; '-' reads standard input
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    files_from: Option<PathBuf>,
    /// The names in --files-from end with a NUL instead of a newline
    #[arg(short = '0', long = "null", help_heading = "Selection", requires = "files_from")]
    null: bool,
}

/// `anabranch send`.
///
/// # Errors
/// Those of the transfer.
pub(crate) fn run(args: SendArgs) -> Result<(), Failure> {
    // Before anybody is asked for a token.
    let mut sending = args.flags.prepare(args.sources)?;
    let identity = Identity::load_or_generate(&sending.dirs.key())?;
    let credential = credential(&args.token, &args.to, &sending.dirs)?;
    let watcher = sending.watcher();
    let options = sending.to(args.to, credential, identity);
    transfer::run(watcher, |events| net::send(options, events)).map(drop)
}

/// All that can be known before the receiver is.
pub(super) struct Sending {
    dirs: Dirs,
    config: Config,
    flags: Flags,
    sources: Vec<PathBuf>,
    files_from: Option<Vec<PathBuf>>,
}

impl Flags {
    /// Whether --files-from says what is sent.
    pub(super) fn are_listed(&self) -> bool {
        self.files_from.is_some()
    }

    /// Looks whether the sources can be read, and reads the configuration and the list of names.
    ///
    /// # Errors
    /// Those of reading them.
    pub(super) fn prepare(self, sources: Vec<PathBuf>) -> Result<Sending, Error> {
        for path in &sources {
            readable(path)?;
        }
        let files_from =
            self.files_from.as_deref().map(|file| listed(file, self.null)).transpose()?;
        let dirs = Dirs::from_env();
        let config = self.transfer.config(&dirs)?;
        Ok(Sending { dirs, config, flags: self, sources, files_from })
    }
}

impl Sending {
    /// What watches the transfer.
    pub(super) fn watcher(&mut self) -> Box<dyn watch::Watcher> {
        self.flags.transfer.watcher(&self.config)
    }

    /// The transfer to `to`.
    pub(super) fn to(self, to: Remote, credential: Credential, identity: Identity) -> SendOptions {
        let Sending { dirs, config, flags, sources, files_from } = self;
        let (selection, transfer) = flags.transfer.options(files_from, identity, &config, &dirs);
        SendOptions { sources, rename: None, selection, to, credential, transfer }
    }
}

fn readable(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Source { path: path.to_path_buf(), source };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return fs::read_dir(path).map(drop).map_err(failed);
    }
    if metadata.is_file() {
        return File::open(path).map(drop).map_err(failed);
    }
    Err(Error::Usage(format!("{} is no file and no folder", path.display())))
}

/// The names that a file lists, in whatever bytes; `-` is standard input.
fn listed(file: &Path, null: bool) -> Result<Vec<PathBuf>, Error> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|source| Error::Source { path: file.to_path_buf(), source })?;
    let end = if null { 0 } else { b'\n' };
    let names = bytes.split(|&byte| byte == end).filter(|name| !name.is_empty());
    Ok(names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
}

/// The token that is given, or the receiver's key if it is known, or else a token that is asked
/// for.
fn credential(source: &TokenSource, to: &Remote, dirs: &Dirs) -> Result<Credential, Error> {
    match known_credential(source, to, dirs)? {
        Some(credential) => Ok(credential),
        None => TokenSource::ask().map(Credential::Token),
    }
}

/// The token that is given, or the receiver's key if it is known.
///
/// # Errors
/// Those of reading either.
pub(super) fn known_credential(
    source: &TokenSource,
    to: &Remote,
    dirs: &Dirs,
) -> Result<Option<Credential>, Error> {
    if let Some(token) = source.given()? {
        return Ok(Some(Credential::Token(token)));
    }
    let known = List::Receivers.load(dirs)?.into_iter().find(|peer| peer.name == to.host);
    Ok(known.map(|peer| Credential::Pinned(peer.fingerprint)))
}
