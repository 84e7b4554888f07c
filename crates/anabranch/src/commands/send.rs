//! `send`: sends files and folders to a receiver, over every path.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use files::{Error, SendOptions};
use peer::{Credential, Identity, Remote};

use crate::complete;
use crate::config::Config;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::flags::TransferFlags;
use crate::host_key::HostKey;
use crate::peers::List;
use crate::token::TokenSource;
use crate::transfer;
use crate::watch;

/// Arguments of `send`.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("files_from", |files_from| files_from.conflicts_with("token_stdin")),
    after_long_help = examples::help("send")
)]
pub(crate) struct SendArgs {
    /// Files and folders to send; FOLDER/ with a slash at its end stands for its contents
    #[arg(required_unless_present = "files_from", value_name = "PATH")]
    sources: Vec<PathBuf>,
    /// The receiver, as printed by 'anabranch receive'
    #[arg(long, value_name = "HOST[:PORT]", add = complete::receivers())]
    to: Remote,
    #[command(flatten)]
    flags: SendFlags,
    #[command(flatten)]
    token: TokenSource,
}

/// The flags of every command that sends: those of a transfer, and lists of files.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct SendFlags {
    #[command(flatten)]
    transfer: TransferFlags,
    /// Only the files listed in FILE, one on each line, relative to PATH or the current folder; '-'
    /// reads standard input
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    files_from: Option<PathBuf>,
    /// The names in --files-from end with a NUL instead of a newline
    #[arg(short = '0', long = "null", help_heading = "Selection", requires = "files_from")]
    null: bool,
}

/// `anabranch send`.
///
/// # Errors
/// Errors of the transfer.
pub(crate) fn run(args: SendArgs) -> Result<(), Failure> {
    // Mistakes are reported before the prompt for a token.
    let mut prepared = args.flags.prepare(args.sources)?;
    let key = HostKey::load(&prepared.dirs)?;
    let credential = credential(&args.token, &args.to, &prepared.dirs)?;
    let identity = key.beside(iter::once(&credential))?;
    let watcher = prepared.watcher();
    let options = prepared.to(args.to, credential, identity);
    transfer::run(watcher, |events| files::send(options, events)).map(drop)
}

/// The local part of a transfer, prepared before the receiver is known.
pub(super) struct PreparedSend {
    dirs: Dirs,
    config: Config,
    flags: SendFlags,
    sources: Vec<PathBuf>,
    files_from: Option<Vec<PathBuf>>,
}

impl SendFlags {
    /// Whether --files-from lists the files.
    pub(super) fn has_list(&self) -> bool {
        self.files_from.is_some()
    }

    /// Checks that the sources are readable, and reads the configuration and the list of names.
    ///
    /// # Errors
    /// [`Error::Source`], and errors of the configuration.
    pub(super) fn prepare(self, sources: Vec<PathBuf>) -> Result<PreparedSend, Error> {
        for path in &sources {
            readable(path)?;
        }
        let files_from =
            self.files_from.as_deref().map(|file| listed(file, self.null)).transpose()?;
        let dirs = Dirs::from_env();
        let config = self.transfer.config(&dirs)?;
        Ok(PreparedSend { dirs, config, flags: self, sources, files_from })
    }
}

impl PreparedSend {
    /// The display of the transfer.
    pub(super) fn watcher(&mut self) -> Box<dyn watch::Watcher> {
        self.flags.transfer.watcher(&self.config)
    }

    /// The options of a transfer to `to`.
    pub(super) fn to(self, to: Remote, credential: Credential, identity: Identity) -> SendOptions {
        let PreparedSend { dirs, config, flags, sources, files_from } = self;
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
    Err(Error::usage(format!("{} is neither a file nor a folder", path.display())))
}

/// The names in the file `--files-from`, which may be any bytes; `-` is standard input.
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

/// The given token, or else the receiver's known key, or else a token from the prompt.
fn credential(source: &TokenSource, to: &Remote, dirs: &Dirs) -> Result<Credential, Error> {
    match known_credential(source, to, dirs)? {
        Some(credential) => Ok(credential),
        None => TokenSource::ask().map(Credential::Token),
    }
}

/// The given token, or else the receiver's known key.
///
/// # Errors
/// Errors of reading either.
pub(super) fn known_credential(
    source: &TokenSource,
    to: &Remote,
    dirs: &Dirs,
) -> Result<Option<Credential>, Error> {
    if let Some(token) = source.given()? {
        return Ok(Some(Credential::Token(token)));
    }
    let known = List::Receivers.load(dirs)?.into_iter().find(|peer| peer.name == to.name());
    Ok(known.map(|peer| Credential::Pinned(peer.fingerprint)))
}
