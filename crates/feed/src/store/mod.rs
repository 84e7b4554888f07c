//! What a collector keeps: a folder for each host, in it one for each feed, and there the files of
//! its streams.
//!
//! A file is named `STREAM-FIRST.log` after the number of its first record, so that a file alone
//! says how far its stream goes: there is no second place that could say another thing. What was
//! being written when the machine stopped is cut off when the stream goes on. The file `index` has
//! a line for each file, for people and for streams whose files were taken away.

mod committer;
mod stream_file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use units::Bytes;
use wire::feed::{Offer, is_feed_name};
use wire::session::RunId;

use crate::bounds::FEEDS_EACH;
use committer::Committer;
pub(crate) use stream_file::{AddError, StreamFile, parse_name};

/// A stream that is open, if anybody has it. Whoever opens it holds this, and keeps nobody else up:
/// its last file is read.
type Opened = Mutex<Weak<StreamFile>>;

/// The folder of a collector.
pub struct Store {
    folder: PathBuf,
    /// The octets behind which a stream gets its next file.
    file: Bytes,
    committer: Committer,
    open: Mutex<BTreeMap<PathBuf, Arc<Opened>>>,
    run: RunId,
}

impl Store {
    /// Opens a folder, which is made if there is none. Streams get a new file behind so many
    /// octets.
    ///
    /// # Errors
    /// The system's, if it is no folder that can be written; the thread that writes cannot begin.
    pub fn open(folder: &Path, file: Bytes) -> io::Result<Store> {
        fs::create_dir_all(folder)?;
        // What is not to be written is known now, and not when the first record is here.
        let probe = folder.join(".anabranch-probe");
        File::create(&probe)?;
        fs::remove_file(&probe)?;
        let committer = Committer::start()?;
        let run = peer::random().map_err(io::Error::other)?;
        let (folder, open) = (folder.to_path_buf(), Mutex::default());
        Ok(Store { folder, file, committer, open, run })
    }

    /// The name of this run: as long as it is the same one, nothing is lost that was called safe.
    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    /// The files of a stream, of the feed of a host: opened if nobody else has them open. Blocks
    /// for the disk.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::QuotaExceeded`], if the host has as many feeds or files as it
    /// may; [`ErrorKind::InvalidData`], if the stream had another form before.
    pub(crate) fn stream(&self, host: &str, offer: &Offer) -> io::Result<Arc<StreamFile>> {
        debug_assert!(is_feed_name(host) && is_feed_name(&offer.feed));
        let host = self.folder.join(host);
        let folder = host.join(&offer.feed);
        let name = folder.join(stream_file::prefix(offer.stream));
        let opened = {
            let mut open = self.opened();
            open.retain(|_, opened| {
                let is_open = |stream: &Weak<StreamFile>| stream.strong_count() > 0;
                Arc::strong_count(opened) > 1 || opened.lock().is_ok_and(|stream| is_open(&stream))
            });
            self.make(&host, &folder)?;
            Arc::clone(open.entry(name).or_default())
        };
        // Whoever opens the same stream waits: it has one writer.
        let mut opened = opened.lock().expect("no panic while held");
        if let Some(known) = opened.upgrade().filter(|stream| !stream.has_failed()) {
            return Ok(known);
        }
        let stream = Arc::new(StreamFile::open(&folder, offer, self.file)?);
        *opened = Arc::downgrade(&stream);
        Ok(stream)
    }

    /// Makes the folder of a feed, if there is none and its host may have another one.
    fn make(&self, host: &Path, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        let count = match fs::read_dir(host) {
            Ok(entries) => entries.count(),
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        if count >= FEEDS_EACH {
            let text = format!("this host has {FEEDS_EACH} feeds, as many as it may");
            return Err(io::Error::new(ErrorKind::QuotaExceeded, text));
        }
        fs::create_dir_all(folder)?;
        for changed in [host, &self.folder] {
            File::open(changed)?.sync_all()?;
        }
        Ok(())
    }

    /// Hands records that were added to a stream to the disk.
    pub(crate) fn commit(&self, stream: &Arc<StreamFile>) {
        self.committer.commit(stream);
    }

    fn opened(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Opened>>> {
        self.open.lock().expect("no panic while held")
    }
}
