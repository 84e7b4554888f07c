//! `send`: sends files and folders to a receiver, over every path.

mod changes;
mod to_each;
mod watching;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use files::{Error, SendOptions, Stop, StreamInput, TransferOptions};
use peer::private::{open_input, open_regular};
use peer::{Credential, Identity, Remote};

use crate::commands::credentials::{credential, of_each, token_of};
use crate::complete;
use crate::config::Config;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::flags::TransferFlags;
use crate::host_key::HostKey;
use crate::token::TokenSource;
use crate::transfer;
use crate::via::{MeetFlags, MetHost};
use crate::watch::{self, Names};
use watching::Watched;

/// Arguments of `send`.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("files_from", |files_from| files_from.conflicts_with("token_stdin")),
    after_long_help = examples::help("send")
)]
pub(crate) struct SendArgs {
    /// Files and folders to send; FOLDER/ with a slash at its end stands for its contents, and '-'
    /// or a named pipe for the file that it yields
    #[arg(required_unless_present_any = ["files_from", "spool"], value_name = "PATH")]
    sources: Vec<PathBuf>,
    /// The name at the receiver of the only file, folder or stream
    #[arg(long, value_name = "NAME")]
    name: Option<OsString>,
    /// Keep a stream in DIR while it is sent; without PATH, send the stream NAME that an
    /// interrupted attempt left there
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
    /// The receiver, as printed by 'anabranch receive'; repeat it for more receivers of the same
    /// files, which get them at the same time, each as fast as it can
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        required_unless_present = "via",
        add = complete::receivers()
    )]
    to: Vec<Remote>,
    #[command(flatten)]
    meet: MeetFlags,
    /// Send PATH, which is a folder, and then what changes in it, until it is stopped; files that
    /// are there are replaced
    #[arg(long, conflicts_with_all = ["files_from", "dry_run", "spool", "name"])]
    watch: bool,
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

impl SendArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.flags.is_json()
    }
}

/// `anabranch send`.
///
/// # Errors
/// Errors of the transfer.
pub(crate) fn run(args: SendArgs) -> Result<(), Failure> {
    // Mistakes are reported before the prompt for a token.
    let (stream, rename) = (stream(&args)?, stream_name(&args)?);
    check_receivers(&args, stream.as_ref())?;
    let folder = args.watch.then(|| watched_folder(&args)).transpose()?;
    let spool = args.spool;
    let sources = if stream.is_some() { Vec::new() } else { args.sources };
    if stream.is_some() {
        args.flags.check_stream()?;
    }
    let mut prepared = args.flags.prepare(sources)?;
    prepared.check_sending()?;
    // Before anything is sent: what changes meanwhile is noted.
    let noted = folder.map(|folder| Watched::new(&folder)).transpose()?;
    let key = HostKey::load(&prepared.dirs)?;
    let (mut each, identity, relays) = if args.meet.is_given() {
        prepared.flags.transfer.meet();
        let token = || token_of(&args.token, stream.as_ref());
        let met = args.meet.meet(args.to.first(), key, token, &prepared.dirs)?;
        let MetHost { to, credential, identity, relays } = met;
        (vec![(to, credential)], identity, Some(relays))
    } else {
        let each = match &args.to[..] {
            [one] => {
                vec![(one.clone(), credential(&args.token, one, &prepared.dirs, stream.as_ref())?)]
            }
            _ => of_each(args.to, &args.token, &prepared.dirs)?,
        };
        let identity = key.beside(each.iter().map(|(_, credential)| credential))?;
        (each, identity, None)
    };
    let others = each.split_off(1);
    let watcher = if noted.is_some() {
        prepared.watcher_of_runs()
    } else if others.is_empty() {
        prepared.watcher(None)
    } else {
        let all = each.iter().chain(&others);
        prepared.watcher_of_each(Names::new(all.map(|(remote, _)| remote.to_string())))
    };
    let (to, credential) = each.remove(0);
    let options = prepared.to(to, credential, identity)?;
    let mut options = SendOptions { stream, spool, rename, ..options };
    if let Some(relays) = relays {
        options.transfer.dial.meet_at(relays);
    }
    let stop = options.transfer.stop.clone();
    let judge = Failure::judge(options.transfer.dry_run);
    if let Some(noted) = noted {
        let TransferOptions { overwrite, keep_existing, update, .. } = &mut options.transfer;
        *overwrite |= !*keep_existing && !*update;
        let send = |events| watching::send(noted, options, events);
        let ended = transfer::run_until(watcher, &stop, send);
        return ended.map(drop).map_err(|failure| with_its_receiver(failure, &stop));
    }
    if !others.is_empty() {
        let start = |events| to_each::send(options, others, events);
        let sent = transfer::run_until(watcher, &stop, start);
        return sent.map(drop).map_err(|failure| with_its_receiver(failure, &stop));
    }
    let sent = transfer::run_until(watcher, &stop, |events| files::send(options, events));
    let sent = sent.map_err(|failure| with_its_receiver(failure, &stop))?;
    judge(&sent)
}

/// Checks that what is sent can go to all receivers.
fn check_receivers(args: &SendArgs, stream: Option<&StreamInput>) -> Result<(), Error> {
    if args.to.len() <= 1 {
        return Ok(());
    }
    if args.meet.is_given() {
        return Err(Error::usage("--via is for one receiver: give each a command of its own"));
    }
    if stream.is_some() {
        let text = "a stream ('-' or a named pipe) can be read once, and goes to one receiver; \
                    'tee' makes it a file";
        return Err(Error::usage(text));
    }
    if args.watch {
        let text = "--watch is for one receiver: keep each up to date by a command of its own";
        return Err(Error::usage(text));
    }
    let twice = |(place, remote): (usize, &Remote)| args.to[..place].contains(remote);
    match args.to.iter().enumerate().find(|one| twice(*one)) {
        Some((_, remote)) => Err(Error::usage(format!("--to {remote} is there twice"))),
        None => Ok(()),
    }
}

/// The folder that is watched.
fn watched_folder(args: &SendArgs) -> Result<PathBuf, Error> {
    match &args.sources[..] {
        [folder] if folder.is_dir() => Ok(folder.clone()),
        [path] if path.exists() => {
            let text = format!("--watch is for a folder, and {} is none", path.display());
            Err(Error::usage(text))
        }
        [path] => {
            readable(path)?;
            Ok(path.clone())
        }
        _ => Err(Error::usage("--watch is for one folder: watch each by a command of its own")),
    }
}

/// The failure of a sender that stopped its receiver too: both commands must be given again.
fn with_its_receiver(failure: Failure, stop: &Stop) -> Failure {
    match failure {
        Failure::Signal(_) if stop.was_told() => Failure::Message {
            code: failure.exit_code(),
            text: "stopped, and the receiver too unless it has --keep; what arrived is kept, and \
                   the same commands go on from there"
                .into(),
        },
        failure => failure,
    }
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
    /// Whether events are written as JSON.
    pub(super) fn is_json(&self) -> bool {
        self.transfer.is_json()
    }

    /// Whether --files-from lists the files.
    pub(super) fn has_list(&self) -> bool {
        self.files_from.is_some()
    }

    /// Checks that no flag selects files: a stream is one, and has no owner.
    fn check_stream(&self) -> Result<(), Error> {
        if self.transfer.is_archive() {
            let text = "--archive: a stream has neither an owner nor attributes";
            return Err(Error::usage(text));
        }
        if self.has_list() || self.transfer.selects() {
            let text = "a stream is one file: --include, --exclude, --checksum and --files-from \
                        select among several";
            return Err(Error::usage(text));
        }
        Ok(())
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
    /// Checks what this host needs to send.
    ///
    /// # Errors
    /// Those of [`TransferFlags::check_sending`].
    pub(super) fn check_sending(&self) -> Result<(), Error> {
        self.flags.transfer.check_sending(&self.config)
    }

    /// The other host is met at a relay.
    pub(super) fn meet(&mut self) {
        self.flags.transfer.meet();
    }

    /// Whether nothing is transferred.
    pub(super) fn is_dry_run(&self) -> bool {
        self.flags.transfer.is_dry_run()
    }

    /// Whether the transfer is in the background.
    ///
    /// # Errors
    /// Those of [`TransferFlags::effort`].
    pub(super) fn is_background(&self) -> Result<bool, Error> {
        Ok(self.flags.transfer.effort(&self.config)?.is_background())
    }

    /// The display of the transfer, and the commands at its end; `folder` is where files arrive
    /// here.
    pub(super) fn watcher(&mut self, folder: Option<&Path>) -> Box<dyn watch::Watcher> {
        self.flags.transfer.watcher(&self.config, folder)
    }

    /// The display of a transfer to each of several receivers, and the commands at the end of each.
    pub(super) fn watcher_of_each(&mut self, to: Names) -> Box<dyn watch::Watcher> {
        self.flags.transfer.watcher_of_each(&self.config, to)
    }

    /// The display of one transfer after another, and the commands at the end of each.
    pub(super) fn watcher_of_runs(&mut self) -> Box<dyn watch::Watcher> {
        self.flags.transfer.watcher_of_runs(&self.config)
    }

    /// The options of a transfer to `to`.
    ///
    /// # Errors
    /// If logs cannot be written.
    pub(super) fn to(
        self,
        to: Remote,
        credential: Credential,
        identity: Identity,
    ) -> Result<SendOptions, Error> {
        let PreparedSend { dirs, config, flags, sources, files_from } = self;
        let (selection, transfer) = flags.transfer.options(files_from, identity, &config, &dirs)?;
        Ok(SendOptions {
            sources,
            stream: None,
            spool: None,
            rename: None,
            selection,
            to,
            credential,
            transfer,
        })
    }
}

/// The stream among the sources, which is then the only one, or in the spool.
fn stream(args: &SendArgs) -> Result<Option<StreamInput>, Error> {
    let is_pipe =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
    let input = |path: &PathBuf| match path.as_os_str().as_bytes() {
        b"-" => Some(StreamInput::Stdin),
        _ => is_pipe(path).then(|| StreamInput::Pipe(path.clone())),
    };
    let found = match &args.sources[..] {
        [] if args.spool.is_some() && !args.flags.has_list() => Some(StreamInput::Spool),
        [path] => input(path),
        sources if sources.iter().any(|path| input(path).is_some()) => {
            let text = "a stream ('-' or a named pipe) is sent alone: send the other files with \
                        another command";
            return Err(Error::usage(text));
        }
        _ => None,
    };
    if args.spool.is_some() && found.is_none() {
        let text = "--spool is for streams ('-' or a named pipe): files can be sent again anyway";
        return Err(Error::usage(text));
    }
    Ok(found)
}

/// The name under which the only source arrives, if it is not its own.
fn stream_name(args: &SendArgs) -> Result<Option<OsString>, Error> {
    match (&args.name, &args.sources[..]) {
        (Some(name), _) => Ok(Some(name.clone())),
        (None, []) if args.spool.is_some() => {
            Err(Error::usage("--spool without a stream needs its name: add --name NAME"))
        }
        (None, [path]) if stream(args)?.is_some() => {
            // The names of descriptors mean nothing.
            let is_descriptor = path.starts_with("/dev") || path.starts_with("/proc");
            let own = path.file_name().filter(|name| *name != "-" && !is_descriptor);
            let own = own.ok_or_else(|| {
                Error::usage("the stream needs a name at the receiver: add --name NAME")
            })?;
            Ok(Some(own.to_owned()))
        }
        (None, _) => Ok(None),
    }
}

fn readable(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Source { path: path.to_path_buf(), source };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return fs::read_dir(path).map(drop).map_err(failed);
    }
    if metadata.is_file() {
        return open_regular(path).map(drop).map_err(failed);
    }
    Err(Error::usage(format!("{} is neither a file nor a folder", path.display())))
}

/// The names in the file `--files-from`, which may be any bytes; `-` is standard input.
fn listed(file: &Path, null: bool) -> Result<Vec<PathBuf>, Error> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().read_to_end(&mut bytes)
    } else {
        open_input(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|source| Error::Source { path: file.to_path_buf(), source })?;
    let end = if null { 0 } else { b'\n' };
    let names = bytes.split(|&byte| byte == end).filter(|name| !name.is_empty());
    Ok(names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
}
