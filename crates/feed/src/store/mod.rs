//! What a collector keeps: a folder for each host, in it one for each feed, and there the files of
//! its streams.
//!
//! A file is named `STREAM-FIRST.log` after the number of its first record, so that a file alone
//! says how far its stream goes: there is no second place that could say another thing. What was
//! being written when the machine stopped is cut off when the stream goes on. The file `index` has
//! a line for each file, for people and for streams whose files were taken away.
//!
//! Or somebody else keeps the records: then the folders have the position of each stream.

mod arrived;
mod committer;
mod deliveries;
#[cfg(test)]
mod delivery_tests;
mod files;
mod names;
mod output;
mod position;
mod status;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use events::Events;
use peer::metrics::Registry;
use units::Bytes;
use wire::feed::{Offer, is_feed_name};
use wire::session::RunId;

use crate::bounds::FEEDS_EACH;
use crate::lock::lock_folder;
use crate::room::Room;
pub(crate) use arrived::AddError;
use committer::Committer;
use deliveries::Deliveries;
pub use deliveries::{Delivery, NotTaken, Sink, Taking};
use files::StreamFiles;
pub(crate) use names::{parse_name, prefix};
use output::Output;
use position::Position;
pub use status::{StreamStatus, status};
pub(crate) use stream::KeptStream;

/// A stream that is open, if anybody has it. Whoever opens it holds this, and keeps nobody else up:
/// its last file is read.
type Opened = Mutex<Weak<KeptStream>>;

/// What a collector keeps, or hands over.
pub struct Store {
    folder: PathBuf,
    target: Target,
    open: Mutex<BTreeMap<PathBuf, Arc<Opened>>>,
    room: Room,
    run: RunId,
}

/// Where records go.
enum Target {
    /// To files, of so many octets.
    Files(Bytes, Committer),
    /// To somebody else. The folder has positions, and the file is its lock.
    Sink(Deliveries, #[expect(dead_code, reason = "held as long as the folder is in use")] File),
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
        Store::of(folder, Target::Files(file, committer))
    }

    /// Hands records to `sink`, and keeps positions in a folder, which is made if there is none.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::WouldBlock`], if another collector has the folder.
    pub fn hand_over(positions: &Path, sink: impl Sink, events: Events) -> io::Result<Store> {
        let lock = lock_folder(positions)?;
        Store::of(positions, Target::Sink(Deliveries::new(sink, events), lock))
    }

    fn of(folder: &Path, target: Target) -> io::Result<Store> {
        let run = peer::random().map_err(io::Error::other)?;
        let (folder, open, room) = (folder.to_path_buf(), Mutex::default(), Room::default());
        Ok(Store { folder, target, open, room, run })
    }

    /// Whether streams stand still apart from each other, as where somebody takes the records of
    /// one and not those of another.
    pub(crate) fn has_sink(&self) -> bool {
        matches!(self.target, Target::Sink(..))
    }

    /// The folder of records; `None`, where somebody else keeps them.
    pub(crate) fn folder(&self) -> Option<&Path> {
        (!self.has_sink()).then_some(self.folder.as_path())
    }

    /// The memory for what waits.
    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    /// Adds the figures of what waits, and of what is handed over, where somebody else keeps the
    /// records.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.room.register(registry);
        if let Target::Sink(deliveries, _) = &self.target {
            deliveries.register(registry);
        }
    }

    /// Hands nothing more over, and waits a moment for what is under way.
    pub(crate) async fn close(&self) {
        if let Target::Sink(deliveries, _) = &self.target {
            deliveries.close().await;
        }
    }

    /// The name of this run: as long as it is the same one, nothing is lost that was called safe.
    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    /// A stream of the feed of a host: opened if nobody else has it open. Blocks for the disk.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::QuotaExceeded`], if the host has as many feeds or files as it
    /// may; [`ErrorKind::InvalidData`], if the stream had another form before, or its position is
    /// none; [`ErrorKind::WouldBlock`], if an earlier run's command has records of it.
    pub(crate) fn stream(&self, host: &str, offer: &Offer) -> io::Result<Arc<KeptStream>> {
        debug_assert!(is_feed_name(host) && is_feed_name(&offer.feed));
        let of_host = self.folder.join(host);
        let folder = of_host.join(&offer.feed);
        let name = folder.join(names::prefix(offer.stream));
        let opened = {
            let mut open = self.opened();
            open.retain(|_, opened| {
                let is_open = |stream: &Weak<KeptStream>| stream.strong_count() > 0;
                Arc::strong_count(opened) > 1 || opened.lock().is_ok_and(|stream| is_open(&stream))
            });
            self.make(&of_host, &folder)?;
            Arc::clone(open.entry(name).or_default())
        };
        // Whoever opens the same stream waits: it has one writer.
        let mut opened = opened.lock().expect("no panic while held");
        if let Some(known) = opened.upgrade().filter(|stream| !stream.has_failed()) {
            return Ok(known);
        }
        let output: Box<dyn Output> = match &self.target {
            Target::Files(most, _) => Box::new(StreamFiles::open(&folder, offer, *most)?),
            Target::Sink(..) => Box::new(Position::open(&folder, offer)?),
        };
        let stream = Arc::new(KeptStream::new((host, &self.room), offer, output));
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

    /// Hands records that were added to a stream to the disk, or to whoever keeps them.
    pub(crate) fn commit(&self, stream: &Arc<KeptStream>) {
        match &self.target {
            Target::Files(_, committer) => committer.commit(stream),
            Target::Sink(deliveries, _) => deliveries.commit(stream),
        }
    }

    fn opened(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Opened>>> {
        self.open.lock().expect("no panic while held")
    }
}
