//! `send`: files and folders to a receiver, over every path.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use net::{Credential, Error, Identity, Remote, Selection, SendOptions};

use crate::config::Config;
use crate::dirs::Dirs;
use crate::peers::List;
use crate::routes::RouteArgs;
use crate::token::TokenSource;
use crate::transfer::{self, Ended};
use crate::watch;

/// Arguments of `send`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("files_from", |files_from| files_from.conflicts_with("token_stdin")))]
pub(crate) struct Args {
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
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Flags {
    #[command(flatten)]
    routes: RouteArgs,
    /// Only files that match GLOB, written as in .gitignore, or are in a folder that does; may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Selection")]
    include: Vec<String>,
    /// No files that match GLOB, written as in .gitignore, and nothing in a folder that does; may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Selection")]
    exclude: Vec<String>,
    /// Only what FILE names, one a line, below PATH or the current folder; '-' reads standard input
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    files_from: Option<PathBuf>,
    /// The names in --files-from end with a NUL instead of a newline
    #[arg(short = '0', long = "null", help_heading = "Selection", requires = "files_from")]
    null: bool,
    /// What has not changed is told by contents, not by size and time
    #[arg(long, help_heading = "Selection")]
    checksum: bool,
    /// Read each file back from the receiver's disk before it gets its name
    #[arg(long)]
    verify: bool,
    /// Forget what an earlier attempt brought over
    #[arg(long)]
    restart: bool,
    /// Replace files that exist at the receiver
    #[arg(long)]
    overwrite: bool,
    /// Agree on everything, send nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Defaults from FILE [default: anabranch/config.toml in the user's configuration folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    watch: watch::Args,
}

/// `anabranch send`.
///
/// # Errors
/// Those of the transfer.
pub(crate) fn run(args: Args) -> Result<(), Ended> {
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
        let files_from = self.files_from.as_deref().map(|file| listed(file, self.null)).transpose()?;
        let dirs = Dirs::from_env();
        let config = Config::load(self.config.as_deref(), &dirs)?;
        Ok(Sending { dirs, config, flags: self, sources, files_from })
    }
}

impl Sending {
    /// What watches the transfer.
    pub(super) fn watcher(&mut self) -> Box<dyn watch::Watcher> {
        std::mem::take(&mut self.flags.watch).watcher(self.config.progress)
    }

    /// The transfer to `to`.
    pub(super) fn to(self, to: Remote, credential: Credential, identity: Identity) -> SendOptions {
        let Sending { dirs, config, flags, sources, files_from } = self;
        let Flags { routes, include, exclude, checksum, .. } = flags;
        let routes = routes.or(&config);
        SendOptions {
            sources,
            rename: None,
            selection: Selection { include, exclude, files_from, checksum },
            to,
            credential,
            identity,
            paths: routes.paths,
            no_paths: routes.no_paths,
            scheduler: routes.scheduler,
            congestion_control: routes.congestion_control,
            max_rate: routes.max_rate,
            usage: Some(dirs.usage()),
            verify: flags.verify || config.send.verify,
            restart: flags.restart,
            overwrite: flags.overwrite,
            dry_run: flags.dry_run,
            patience: routes.patience,
        }
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

/// The token that is given, or the receiver's key if it is known, or else a token that is asked for.
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
pub(super) fn known_credential(source: &TokenSource, to: &Remote, dirs: &Dirs) -> Result<Option<Credential>, Error> {
    if let Some(token) = source.given()? {
        return Ok(Some(Credential::Token(token)));
    }
    let known = List::Receivers.load(dirs)?.into_iter().find(|peer| peer.name == to.host);
    Ok(known.map(|peer| Credential::Pinned(peer.fingerprint)))
}
