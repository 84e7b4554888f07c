//! `send`: files and folders to a receiver, over every path.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use net::{CongestionControl, Credential, Error, Identity, PathSpec, Remote, Selection, SendOptions, Timetable};
use units::Span;

use crate::config::Config;
use crate::dirs::Dirs;
use crate::peers::List;
use crate::token::TokenSource;
use crate::transfer::{self, Ended};
use crate::watch;

/// How long to keep trying when every path is gone, unless told otherwise.
const PATIENCE: Span = Span::from_secs(120);

/// Arguments of `send`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Args {
    /// Files and folders to send; of FOLDER/ with a slash at its end, what is in it
    #[arg(required_unless_present = "files_from", value_name = "PATH")]
    sources: Vec<PathBuf>,
    /// The receiver, as 'anabranch receive' prints it
    #[arg(long, value_name = "HOST[:PORT]")]
    to: Remote,
    /// A path to use: interface or local address; may be repeated [default: every interface with a route, metered ones as backups]
    ///
    /// An overflow path carries data only while the primaries are full, a backup only while they are dead. `max=RATE` bounds its rate,
    /// `cap=SIZE/month` what its interface carries in a calendar month over all transfers, `to=ADDR` names another address of the
    /// receiver. `rate=RATE` says what it carries: if every path has one, the division begins with these instead of measuring them. For example: --path eth0 --path wlan0,overflow --path usb0,backup,max=5mbit,cap=10GB/month
    #[arg(
        long = "path",
        value_name = "IF[,primary|overflow|backup][,max=RATE][,rate=RATE][,cap=SIZE/month][,to=ADDR]"
    )]
    paths: Vec<PathSpec>,
    /// An interface to leave out; may be repeated
    #[arg(long = "no-path", value_name = "IF")]
    no_paths: Vec<String>,
    /// How the bytes are divided among the paths [default: self-adaptive]
    #[arg(long, value_enum)]
    scheduler: Option<Scheduler>,
    /// Only files that match GLOB, written as in .gitignore, or are in a folder that does; may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Selection")]
    include: Vec<String>,
    /// No files that match GLOB, written as in .gitignore, and nothing in a folder that does; may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Selection")]
    exclude: Vec<String>,
    /// Only what FILE names, one a line, below PATH or the current folder; '-' reads standard input
    #[arg(long, value_name = "FILE", help_heading = "Selection", conflicts_with = "token_stdin")]
    files_from: Option<PathBuf>,
    /// The names in --files-from end with a NUL instead of a newline
    #[arg(short = '0', long = "null", help_heading = "Selection", requires = "files_from")]
    null: bool,
    /// What has not changed is told by contents, not by size and time
    #[arg(long, help_heading = "Selection")]
    checksum: bool,
    /// The kernel's congestion control: auto, or a name such as cubic or bbr [default: auto]
    #[arg(long, value_name = "NAME", value_parser = congestion_control)]
    congestion_control: Option<CongestionControl>,
    /// Never faster than this, all paths together: a rate, or a timetable
    ///
    /// A timetable is a list of [DAY-]HH:MM,RATE, in local time, each from then until the next one; off is no limit. For example:
    /// --max-rate 80mbit, --max-rate '08:00,10mbit 18:00,off', --max-rate 'Mon-08:00,10mbit Fri-18:30,off'
    #[arg(long, value_name = "RATE|TIMETABLE")]
    max_rate: Option<Timetable>,
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
    /// How long to keep trying when every path is gone [default: 2 min]
    #[arg(long, value_name = "TIME")]
    patience: Option<Span>,
    /// Defaults from FILE [default: anabranch/config.toml in the user's configuration folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    token: TokenSource,
    #[command(flatten)]
    watch: watch::Args,
}

/// The block schedulers, by the names that `policy` knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheduler {
    /// Tasks follow the measured rates all through the transfer
    #[default]
    SelfAdaptive,
    /// Equal blocks, one after the other, to whichever path is free
    AdjustableBlock,
    /// One share a path, fixed at the start
    Static,
}

impl Scheduler {
    /// As `policy::sched::by_name` has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scheduler::SelfAdaptive => "self-adaptive",
            Scheduler::AdjustableBlock => "adjustable-block",
            Scheduler::Static => "static",
        }
    }
}

/// `anabranch send`.
///
/// # Errors
/// Those of the transfer.
pub(crate) fn run(args: Args) -> Result<(), Ended> {
    // Before anybody is asked for a token.
    for path in &args.sources {
        readable(path)?;
    }
    let files_from = args.files_from.as_deref().map(|file| listed(file, args.null)).transpose()?;
    let dirs = Dirs::from_env();
    let config = Config::load(args.config.as_deref(), &dirs)?;
    let identity = Identity::load_or_generate(&dirs.key())?;
    let credential = credential(&args.token, &args.to, &dirs)?;
    let options = SendOptions {
        sources: args.sources,
        selection: Selection { include: args.include, exclude: args.exclude, files_from, checksum: args.checksum },
        to: args.to,
        credential,
        identity,
        paths: if args.paths.is_empty() { config.send.paths } else { args.paths },
        no_paths: [config.send.no_paths, args.no_paths].concat(),
        scheduler: args.scheduler.or(config.send.scheduler).unwrap_or_default().name().to_string(),
        congestion_control: args.congestion_control.or(config.send.congestion_control).unwrap_or_default(),
        max_rate: args.max_rate.or(config.send.max_rate),
        usage: Some(dirs.usage()),
        verify: args.verify || config.send.verify,
        restart: args.restart,
        overwrite: args.overwrite,
        dry_run: args.dry_run,
        patience: args.patience.or(config.send.patience).unwrap_or(PATIENCE),
    };
    let watcher = args.watch.watcher(config.progress);
    transfer::run(watcher, |events| net::send(options, events)).map(drop)
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

#[expect(clippy::unnecessary_wraps, reason = "the shape that parsers have")]
pub(crate) fn congestion_control(text: &str) -> Result<CongestionControl, String> {
    Ok(match text {
        "auto" => CongestionControl::Auto,
        name => CongestionControl::Named(name.to_string()),
    })
}
