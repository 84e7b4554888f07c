//! A stream to be sent: standard input or a pipe. It is read once, in order, by a thread of its
//! own, and each block is kept in memory until the receiver has it.
//!
//! While [`MOST_UNACKED`] wait for the receiver, nothing is read, and the program that writes the
//! stream waits. Blocks that the receiver has acknowledged are kept a little longer, because a
//! refusal may still follow. With a [spool](super::spool), all blocks are on the disk, and nothing
//! has to wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rustix::fs::{FileType, fstat};
use tokio::sync::watch;
use transfer::digest::{Merge, block_cv};
use transfer::{BLOCK, Cv, Extent};
use wire::files::Grown;

use super::spool::StreamSpool;
use crate::{Error, StreamInput};

/// The most that is kept for a receiver that has not acknowledged it: 240 MiB.
const MOST_UNACKED: usize = 960;
/// Acknowledged blocks that are kept for a refusal: 16 MiB.
const MOST_ACKED: usize = 64;

/// The bytes of a block.
const AT_ONCE: usize = 256 * 1024;

/// A stream, and what of it is in memory.
pub(crate) struct Stream {
    input: StreamInput,
    /// Has the blocks instead of the memory.
    spool: Option<StreamSpool>,
    kept: Mutex<Kept>,
    /// Rings when a block was acknowledged, or the stream is of no more use.
    room: Condvar,
    has_begun: AtomicBool,
    known: watch::Sender<Grown>,
    /// Why reading failed; taken by the session that reports it.
    failure: Mutex<Option<Error>>,
    merge: Mutex<Merge>,
}

#[derive(Default)]
struct Kept {
    /// The blocks in memory, by index.
    blocks: BTreeMap<u64, Arc<Vec<u8>>>,
    /// Those of them that the receiver has, the first acknowledged first.
    acked: VecDeque<u64>,
    has: BTreeSet<u64>,
    /// Nobody sends the stream any more.
    is_unwanted: bool,
}

impl Stream {
    /// A stream that is to be read, into a spool if there is one.
    pub(crate) fn new(input: StreamInput, spool: Option<StreamSpool>) -> Stream {
        Stream {
            input,
            spool,
            kept: Mutex::default(),
            room: Condvar::new(),
            has_begun: AtomicBool::new(false),
            known: watch::Sender::new(Grown { size: 0, is_end: false }),
            failure: Mutex::default(),
            merge: Mutex::new(Merge::stream()),
        }
    }

    /// A stream of `size` bytes that a spool has completely.
    pub(crate) fn spooled(spool: StreamSpool, size: u64) -> Stream {
        let stream = Stream::new(StreamInput::Spool, Some(spool));
        stream.has_begun.store(true, Ordering::Relaxed);
        stream.merge.lock().expect("no panic while held").end(size);
        stream.known.send_replace(Grown { size, is_end: true });
        stream
    }

    /// The spool, if there is one.
    pub(crate) fn spool(&self) -> Option<&StreamSpool> {
        self.spool.as_ref()
    }

    /// Begins to read, unless that was done before. The thread ends with the stream, or once the
    /// stream is dropped and the read in progress returns.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<(), Error> {
        if self.has_begun.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let stream = Arc::clone(self);
        let reading = std::thread::Builder::new().name("stream".into()).spawn(move || {
            if let Err(source) = stream.read_all() {
                let path = stream.shown();
                *stream.failure() = Some(Error::Source { path, source });
                stream.known.send_modify(|_| {});
            }
        });
        reading.map(drop).map_err(|source| Error::system("start to read the stream", source))
    }

    /// What is known of the size, with news of each change; a failure to read is a change, too.
    pub(crate) fn known(&self) -> watch::Receiver<Grown> {
        self.known.subscribe()
    }

    /// The size as far as it is known.
    pub(crate) fn size(&self) -> Grown {
        *self.known.borrow()
    }

    /// Takes the error that ended the reading.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.failure().take()
    }

    /// Whether every block of `extent` can still be read.
    pub(crate) fn has(&self, extent: Extent) -> bool {
        if self.spool.is_some() {
            return extent.end() <= self.size().size;
        }
        let kept = self.kept();
        (extent.start / BLOCK..extent.end().div_ceil(BLOCK))
            .all(|block| kept.blocks.contains_key(&block))
    }

    /// The bytes of a block.
    ///
    /// # Errors
    /// If it is not in memory any more, or the spool cannot be read.
    pub(super) fn block(&self, block: u64) -> Result<Arc<Vec<u8>>, Error> {
        let Some(spool) = &self.spool else {
            return self
                .kept()
                .blocks
                .get(&block)
                .map(Arc::clone)
                .ok_or_else(|| self.is_gone(block));
        };
        let length = BLOCK.min(self.size().size - block * BLOCK);
        let mut bytes = vec![0; usize::try_from(length).expect("within a block")];
        spool.read(&mut bytes, block * BLOCK)?;
        Ok(Arc::new(bytes))
    }

    /// Reads all of a stream that has ended, and hashes it.
    ///
    /// # Errors
    /// As [`Stream::block`].
    pub(super) fn hash_all(&self) -> Result<Cv, Error> {
        let size = self.size().size;
        let mut merge = Merge::new(size);
        for block in 0..size.div_ceil(BLOCK) {
            let cv = block_cv(size, block * BLOCK, &self.block(block)?);
            merge.insert(block, cv).expect("each block once");
        }
        Ok(merge.root().expect("every block was merged"))
    }

    /// Hashes a block that is about to be sent, and merges the hash into the stream's.
    pub(super) fn hash(&self, block: u64, bytes: &[u8]) -> Cv {
        // A stream that has not ended has more than one block.
        let cv = block_cv(self.size().size, block * BLOCK, bytes);
        // A block that is sent again was merged the first time.
        let _ = self.merge.lock().expect("no panic while held").insert(block, cv);
        cv
    }

    /// The BLAKE3 hash of the stream, if it has ended and all of it was sent.
    pub(super) fn root(&self) -> Option<Cv> {
        self.merge.lock().expect("no panic while held").root()
    }

    /// The receiver has acknowledged a whole block.
    pub(crate) fn release(&self, block: u64) {
        let mut kept = self.kept();
        if kept.blocks.contains_key(&block) && kept.has.insert(block) {
            kept.acked.push_back(block);
            while kept.acked.len() > MOST_ACKED {
                let oldest = kept.acked.pop_front().expect("there are many");
                kept.has.remove(&oldest);
                kept.blocks.remove(&oldest);
            }
            self.room.notify_one();
        }
    }

    /// The receiver has refused a block: it must have it again.
    ///
    /// # Errors
    /// [`Error::Integrity`] if the block is not in memory any more.
    pub(crate) fn reclaim(&self, block: u64) -> Result<(), Error> {
        if self.spool.is_some() {
            return Ok(());
        }
        let mut kept = self.kept();
        if kept.has.remove(&block) {
            kept.acked.retain(|acked| *acked != block);
        }
        if kept.blocks.contains_key(&block) {
            return Ok(());
        }
        Err(self.is_gone(block))
    }

    /// The error for a block that is wanted and not in memory any more.
    fn is_gone(&self, block: u64) -> Error {
        let detail = format!(
            "the receiver wants block {block} again, which it had acknowledged, and a stream \
             cannot be read twice"
        );
        Error::Integrity { what: self.shown().display().to_string(), detail }
    }

    /// Waits until the stream has ended in its spool, although nobody sends it any more. Returns
    /// whether it has.
    pub(crate) async fn keep_rest(self: &Arc<Self>) -> bool {
        if self.begin().is_err() {
            return false;
        }
        let mut known = self.known();
        loop {
            if known.borrow_and_update().is_end {
                return true;
            }
            if self.failure().is_some() || known.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Nobody sends the stream any more: the thread that reads it ends.
    pub(crate) fn abandon(&self) {
        let mut kept = self.kept();
        kept.is_unwanted = true;
        kept.blocks.clear();
        self.room.notify_one();
    }

    /// The name of the stream, for messages.
    fn shown(&self) -> PathBuf {
        match &self.input {
            StreamInput::Stdin => "standard input".into(),
            StreamInput::Pipe(path) => path.clone(),
            StreamInput::Spool => {
                self.spool.as_ref().map_or_else(PathBuf::new, |spool| spool.path().to_path_buf())
            }
        }
    }

    /// Reads the stream to its end, block by block.
    fn read_all(&self) -> io::Result<()> {
        let mut input = self.open()?;
        let mut size = 0;
        while self.has_room() {
            let mut block = Vec::with_capacity(AT_ONCE);
            (&mut input).take(BLOCK).read_to_end(&mut block)?;
            let (length, index) = (block.len() as u64, size / BLOCK);
            let is_end = length < BLOCK;
            if let Some(spool) = &self.spool {
                spool.append(&block, size)?;
            }
            size += length;
            if size > wire::manifest::MOST_STREAMED {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a stream ends at 64 PiB"));
            }
            if length > 0 && self.spool.is_none() {
                self.kept().blocks.insert(index, Arc::new(block));
            }
            if is_end {
                if let Some(spool) = &self.spool {
                    spool.finish(size)?;
                }
                self.merge.lock().expect("no panic while held").end(size);
            }
            // The hash of a first block depends on whether there is a second.
            if is_end || size >= 2 * BLOCK {
                self.known.send_replace(Grown { size, is_end });
            }
            if is_end {
                break;
            }
        }
        Ok(())
    }

    fn open(&self) -> io::Result<File> {
        match &self.input {
            StreamInput::Stdin => Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?)),
            StreamInput::Pipe(path) => {
                // Waits for the program that writes.
                let file = OpenOptions::new().read(true).open(path)?;
                if FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::Fifo {
                    return Ok(file);
                }
                Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no pipe any more"))
            }
            StreamInput::Spool => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Waits for room for a block. Returns whether the stream is still wanted.
    fn has_room(&self) -> bool {
        let is_full = |kept: &mut Kept| {
            !kept.is_unwanted && kept.blocks.len() - kept.acked.len() >= MOST_UNACKED
        };
        let kept = self.room.wait_while(self.kept(), is_full);
        !kept.expect("no panic while held").is_unwanted
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no panic while held")
    }

    fn failure(&self) -> MutexGuard<'_, Option<Error>> {
        self.failure.lock().expect("no panic while held")
    }
}
