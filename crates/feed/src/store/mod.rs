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

use crate::bounds::FEEDS_EACH;
use committer::Committer;
pub(crate) use stream_file::{Kept, StreamFile};

/// The folder of a collector.
pub struct Store {
    folder: PathBuf,
    /// The octets behind which a stream gets its next file.
    file: Bytes,
    committer: Committer,
    open: Mutex<BTreeMap<PathBuf, Weak<StreamFile>>>,
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
        Ok(Store { folder: folder.to_path_buf(), file, committer, open: Mutex::default() })
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
        // Whoever opens the same stream waits: it has one writer.
        let mut open = self.opened();
        open.retain(|_, stream| stream.strong_count() > 0);
        let known = open.get(&name).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|stream| !stream.has_failed()) {
            return Ok(known);
        }
        self.make(&host, &folder)?;
        let stream = StreamFile::open(&folder, offer, self.file)?;
        let stream = Arc::new(stream);
        open.insert(name, Arc::downgrade(&stream));
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

    fn opened(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Weak<StreamFile>>> {
        self.open.lock().expect("no panic while held")
    }
}
