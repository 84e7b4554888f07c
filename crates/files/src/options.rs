//! Options of a transfer.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use peer::host::Meetings;
use peer::{Credential, DialOptions, Identity, ListenOptions, Remote};
use units::Span;
use wire::files::Wishes;

use crate::{Compression, ServedNames, Stop};

/// Selects the files to be sent, what of them is kept, and the test for unchanged files.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Patterns as in `.gitignore`. If there are any, only files that match one, or lie in a folder
    /// that matches one, are sent.
    pub include: Vec<String>,
    /// Patterns as in `.gitignore`. Files and folders that match one are not sent, nor anything in
    /// such a folder.
    pub exclude: Vec<String>,
    /// Names below the one source, or below the current folder; nothing else is sent. Folders in
    /// the list are sent without their contents.
    pub files_from: Option<Vec<PathBuf>>,
    /// Compares files by the hash of their contents, instead of size and modification time.
    pub checksum: bool,
    /// Ends the transfer at the first entry that cannot be read, instead of leaving it out.
    pub strict: bool,
    /// Keeps owners and groups, as numbers, all bits of modes, access lists, capabilities, and the
    /// extended attributes of users.
    pub archive: bool,
}

/// Options of the dialing side, for either direction of the data.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct TransferOptions {
    /// Identity, paths and rate.
    pub dial: DialOptions,
    /// What carries the data.
    pub carrier: CarrierChoice,
    /// How many of all paths carry data at a time, chosen by what they carry; `None`: all.
    pub use_paths: Option<usize>,
    /// What is compressed on its way.
    pub compression: Compression,
    /// Block scheduler by name (`policy::sched::by_name`).
    pub scheduler: String,
    /// The sink reads every file back from the disk before the file gets its name, and the source
    /// hashes all data that an earlier attempt sent.
    pub verify: bool,
    /// Discards the data of an earlier attempt.
    pub restart: bool,
    /// Replace targets that exist.
    pub overwrite: bool,
    /// Leaves targets that exist as they are.
    pub keep_existing: bool,
    /// Replaces targets that are older than the source, and leaves others as they are.
    pub update: bool,
    /// Deletes, in the folders that are named, what the source does not have.
    pub delete: bool,
    /// With `delete`: any number of files, instead of at most half of them or a hundred.
    pub force_delete: bool,
    /// Agrees on the transfer but transfers no data.
    pub dry_run: bool,
    /// Ends the transfer early.
    pub stop: Stop,
}

/// What carries the data of a transfer.
#[derive(Clone, Debug)]
pub enum CarrierChoice {
    /// TCP, a connection or several over each path.
    Tcp,
    /// A striped connection over UDP, over all paths together.
    Udp(stripe::Options),
    /// Both are open, and the better one carries the data.
    Auto(stripe::Options),
}

impl TransferOptions {
    /// The defaults of the command line, for the holder of this key.
    #[must_use]
    pub fn new(identity: Identity) -> TransferOptions {
        TransferOptions {
            dial: DialOptions::new(identity),
            carrier: CarrierChoice::Tcp,
            use_paths: None,
            compression: Compression::default(),
            scheduler: "self-adaptive".into(),
            verify: false,
            restart: false,
            overwrite: false,
            keep_existing: false,
            update: false,
            delete: false,
            force_delete: false,
            dry_run: false,
            stop: Stop::default(),
        }
    }

    /// The options of a second session, for files that changed during the first: what the target
    /// has by now is not discarded, and another version of it stays unless it may be replaced.
    pub(crate) fn once_more(&mut self) {
        self.restart = false;
        self.keep_existing |= !self.overwrite && !self.update;
    }

    /// The options that the sink needs to know, for what is selected.
    pub(crate) fn wishes(&self, selection: &Selection) -> Wishes {
        Wishes {
            archive: selection.archive,
            restart: self.restart,
            overwrite: self.overwrite,
            verify: self.verify,
            dry_run: self.dry_run,
            keep_existing: self.keep_existing,
            update: self.update,
            delete: self.delete,
            force_delete: self.force_delete,
        }
    }
}

/// An output that takes a file in order: standard output, for example.
#[derive(Clone)]
pub struct Output(Arc<OpenOutput>);

struct OpenOutput {
    writer: Mutex<Box<dyn Write + Send>>,
    is_begun: AtomicBool,
}

impl Output {
    /// Writes to `writer`, which may block.
    pub fn new(writer: impl Write + Send + 'static) -> Output {
        let writer: Box<dyn Write + Send> = Box::new(writer);
        Output(Arc::new(OpenOutput {
            writer: Mutex::new(writer),
            is_begun: AtomicBool::new(false),
        }))
    }

    /// The writer; taking it counts as writing.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Box<dyn Write + Send>> {
        self.0.is_begun.store(true, Ordering::Relaxed);
        self.0.writer.lock().expect("no panic while held")
    }

    /// Whether anything was written.
    pub(crate) fn is_begun(&self) -> bool {
        self.0.is_begun.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Output")
    }
}

/// Where a stream comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamInput {
    /// Standard input.
    Stdin,
    /// A named pipe; it is opened once the receiver waits for data.
    Pipe(PathBuf),
    /// The complete stream of that name in [`SendOptions::spool`], of an earlier attempt.
    Spool,
}

/// Options of [`send`](crate::send).
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Files and folders. `folder` arrives as a folder of that name; of `folder/` and `.` only the
    /// contents arrive.
    pub sources: Vec<PathBuf>,
    /// A stream, in place of `sources`: it is read once, while it is sent, and arrives as the file
    /// `rename`.
    pub stream: Option<StreamInput>,
    /// The folder that keeps the stream, so that it can be sent again after an interruption.
    pub spool: Option<PathBuf>,
    /// The name at the receiver of the one source, instead of its own; a folder is then sent as a
    /// folder, with or without a slash at its end.
    pub rename: Option<OsString>,
    /// The files to be sent.
    pub selection: Selection,
    /// The receiver.
    pub to: Remote,
    /// The credential that authenticates it.
    pub credential: Credential,
    /// Identity, paths and behaviour.
    pub transfer: TransferOptions,
}

/// Options of [`receive`](crate::receive).
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// The directory that receives the files.
    pub directory: PathBuf,
    /// Takes the one file of the one transfer, in order. `directory` is then a folder of its own,
    /// in which data wait for their turn, and in which the file is left as a hole.
    pub output: Option<Output>,
    /// The addresses to listen on, and the authorized senders.
    pub listen: ListenOptions,
    /// Receives one transfer after another instead of ending after the first.
    pub keep: bool,
    /// The most transfers at a time, with `keep`; without, there is one.
    pub parallel: usize,
    /// The time without a sender after which a transfer is given up; without `keep`, also the time
    /// until the first sender comes. `None` waits for ever.
    pub timeout: Option<Span>,
    /// Whether existing targets are replaced.
    pub overwrite: Overwrite,
    /// Whether a sender may have files deleted that its source does not have.
    pub allow_delete: bool,
    /// Whether a sender may choose owners, set-user-id bits and extended attributes. As root it can
    /// then do anything here.
    pub archive: bool,
    /// Where else it can be met; `None`: nowhere.
    pub meetings: Option<Arc<dyn Meetings>>,
}

/// Whether a receiver replaces existing targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// If the sender requests it.
    #[default]
    OnRequest,
    /// Even if the sender does not request it.
    Always,
    /// Never; a sender that requests it is refused.
    Never,
}

/// Options of [`serve`](crate::serve).
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The directory on offer; a client sees it as the root and nothing outside it.
    pub directory: PathBuf,
    /// The addresses to listen on, and the authorized clients: of the peers that need no token,
    /// those with [`Peer::may_get`](peer::Peer::may_get).
    pub listen: ListenOptions,
    /// Ends after the first complete fetch, instead of serving until the future is dropped.
    pub once: bool,
    /// Where else it can be met; `None`: nowhere.
    pub meetings: Option<Arc<dyn Meetings>>,
}

/// A host that serves files.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its address.
    pub remote: Remote,
    /// The credential that authenticates it.
    pub credential: Credential,
}

/// Options of [`fetch`](crate::fetch).
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// The servers. Several servers are replicas: each must have the same file.
    pub from: Vec<Server>,
    /// Files and folders, relative to the server's root. `folder` arrives as a folder of that name;
    /// of `folder/`, and of an empty name, only the contents arrive.
    pub names: Vec<PathBuf>,
    /// The other host's own names for them, if it has said so before; they are checked.
    pub served: Option<ServedNames>,
    /// The wanted files. `files_from` is for senders only.
    pub selection: Selection,
    /// The directory that receives the files; created if it does not exist.
    pub into: PathBuf,
    /// The local name of the one file or folder, instead of its own.
    pub rename: Option<OsString>,
    /// Takes the one file, in order. `into` is then a folder of its own, in which data wait for
    /// their turn, and in which the file is left as a hole.
    pub output: Option<Output>,
    /// The expected BLAKE3 hash of the one file.
    pub blake3: Option<[u8; 32]>,
    /// Reports what is offered ([`Event::Listing`](events::Event::Listing)), and fetches nothing.
    pub list: bool,
    /// Identity, paths and behaviour.
    pub transfer: TransferOptions,
}
