//! What a caller asks of a transfer.

use std::ffi::OsString;
use std::path::PathBuf;

use peer::{Credential, DialOptions, Identity, ListenOptions, Remote};
use wire::frame::Wishes;

/// What of the sources is sent, and how it is told what has not changed.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Patterns as in `.gitignore`; if there are any, only files that match one are sent, or that
    /// are in a folder that does.
    pub include: Vec<String>,
    /// Patterns as in `.gitignore`; what matches one is not sent, and if it is a folder, nothing in
    /// it.
    pub exclude: Vec<String>,
    /// Names below the one source, or below the current folder; nothing else is sent. Folders among
    /// them are sent without what is in them.
    pub files_from: Option<Vec<PathBuf>>,
    /// A file is what it was if its contents hash to the same, instead of if size and time are the
    /// same.
    pub checksum: bool,
}

/// A transfer as the side that dials asks for it, whichever way its data flow.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one a flag of the command line")]
pub struct TransferOptions {
    /// As whom, over which paths, and how fast.
    pub dial: DialOptions,
    /// Block scheduler by name (`policy::sched::by_name`).
    pub scheduler: String,
    /// Read everything back from the disk where it arrives before it gets its name, and hash what
    /// an earlier attempt brought over.
    pub verify: bool,
    /// Forget what an earlier attempt brought over.
    pub restart: bool,
    /// Replace targets that exist.
    pub overwrite: bool,
    /// Agree on everything, transfer nothing.
    pub dry_run: bool,
}

impl TransferOptions {
    /// A transfer by the holder of this key, with the defaults of the command line.
    #[must_use]
    pub fn new(identity: Identity) -> TransferOptions {
        TransferOptions {
            dial: DialOptions::new(identity),
            scheduler: "self-adaptive".into(),
            verify: false,
            restart: false,
            overwrite: false,
            dry_run: false,
        }
    }

    /// The part of the options that the side with the sink needs to know.
    pub(crate) fn wishes(&self) -> Wishes {
        Wishes {
            restart: self.restart,
            overwrite: self.overwrite,
            verify: self.verify,
            dry_run: self.dry_run,
        }
    }
}

/// What `send` is asked to do.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Files and folders. `folder` arrives as a folder of that name; of `folder/` and `.` arrives
    /// what is in it.
    pub sources: Vec<PathBuf>,
    /// The name by which the one source arrives instead of its own; a folder is then sent as a
    /// folder, with a slash at its end or not.
    pub rename: Option<OsString>,
    /// What of them is sent.
    pub selection: Selection,
    /// The receiver.
    pub to: Remote,
    /// How it is known.
    pub credential: Credential,
    /// As whom, over what, and how.
    pub transfer: TransferOptions,
}

/// What `receive` is asked to do.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// Where files go.
    pub directory: PathBuf,
    /// Where it listens, and who may send.
    pub listen: ListenOptions,
    /// Serve one transfer after the other instead of ending after the first.
    pub keep: bool,
    /// Replace targets that exist, whatever the sender asks.
    pub overwrite: bool,
}

/// What `serve` is asked to do.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// What is offered: whoever comes sees it as the root, and nothing outside it.
    pub directory: PathBuf,
    /// Where it listens, and who may get something: of those that need no token, the ones with
    /// [`Peer::may_get`].
    pub listen: ListenOptions,
    /// End after the first fetch that was completed, instead of serving until the future is
    /// dropped.
    pub once: bool,
}

/// A host to get something from.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where it is.
    pub remote: Remote,
    /// How it is known.
    pub credential: Credential,
}

/// What `fetch` is asked to do.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Where from. Several are replicas: each has to have the same.
    pub from: Vec<Server>,
    /// Files and folders, below what the server offers. `folder` arrives as a folder of that name;
    /// of `folder/`, and of an empty name, arrives what is in it.
    pub names: Vec<PathBuf>,
    /// What of them is wanted. `files_from` is for senders only.
    pub selection: Selection,
    /// The folder where it goes; made if it is not there.
    pub into: PathBuf,
    /// The name that the one file or folder gets there in place of its own.
    pub rename: Option<OsString>,
    /// What the one file must hash to.
    pub blake3: Option<[u8; 32]>,
    /// As whom, over what, and how.
    pub transfer: TransferOptions,
}
