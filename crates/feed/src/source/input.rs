//! What a stream is read from.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use events::Events;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;
use wire::feed::{Form, MAX_RECORD, StreamId};

use super::listen::Listener;
use super::piece::{CHUNK, Piece};
use super::spool::Spool;
use super::totals::Dropped;
use crate::framing::Splitter;

/// Pieces that wait to be looked at.
const PIECES: usize = 4;
/// The time between looks at a file that is followed.
const LOOK: Duration = Duration::from_millis(200);
/// A file that has left its path is over once nothing has come to it for so long.
const LAST_LOOKS: Duration = Duration::from_secs(5);

/// Something that is read piece by piece.
pub(super) struct Reader {
    pieces: mpsc::Receiver<io::Result<Piece>>,
    /// What is read from its begin again.
    again: Again,
    /// The task that reads a file.
    reading: Option<JoinHandle<()>>,
    /// Octets that were read.
    taken: u64,
}

/// What can be read from its begin again.
enum Again {
    Nothing,
    File(FollowedFile),
    Spool(Arc<Spool>),
}

/// A file that is read to its end, or followed.
#[derive(Clone)]
pub(super) struct FollowedFile {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    pub(super) follows: bool,
}

/// What is read as it comes, and only once.
pub(super) enum OpenLive {
    Stdin,
    Listener(Listener),
}

/// The pieces of what is read as it comes: those of several together are in the order in which they
/// came.
///
/// # Errors
/// If there is no thread for standard input.
pub(super) fn read_live(
    live: Vec<OpenLive>,
    form: Form,
    (events, dropped): (&Events, &Dropped),
) -> io::Result<mpsc::Receiver<io::Result<Piece>>> {
    let (sender, pieces) = mpsc::channel(PIECES);
    for one in live {
        let sender = sender.clone();
        match one {
            // It blocks.
            OpenLive::Stdin => {
                thread::Builder::new().name("stdin".into()).spawn(move || read_stdin(&sender))?;
            }
            OpenLive::Listener(listener) => {
                tokio::spawn(listener.run(form, sender, (events.clone(), dropped.clone())));
            }
        }
    }
    Ok(pieces)
}

fn read_stdin(sender: &mpsc::Sender<io::Result<Piece>>) {
    let mut input = io::stdin().lock();
    loop {
        let mut piece = vec![0; CHUNK];
        let read = match input.read(&mut piece) {
            Ok(0) => return,
            Ok(length) => {
                piece.truncate(length);
                Ok(Piece::Octets(piece))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_over = read.is_err();
        if sender.blocking_send(read).is_err() || is_over {
            return;
        }
    }
}

impl Reader {
    /// What comes once, as [`read_live`] yields it.
    pub(super) fn of_live(pieces: mpsc::Receiver<io::Result<Piece>>) -> Reader {
        Reader { pieces, again: Again::Nothing, reading: None, taken: 0 }
    }

    /// A file, from its begin.
    pub(super) fn of(file: FollowedFile) -> Reader {
        let (sender, pieces) = mpsc::channel(PIECES);
        let reading = tokio::spawn(file.clone().run(sender));
        Reader { pieces, again: Again::File(file), reading: Some(reading), taken: 0 }
    }

    /// A spool, from its first record.
    pub(super) fn of_spool(spool: Arc<Spool>) -> Reader {
        let (sender, pieces) = mpsc::channel(PIECES);
        let reading = tokio::spawn(Arc::clone(&spool).read(sender));
        Reader { pieces, again: Again::Spool(spool), reading: Some(reading), taken: 0 }
    }

    /// The next piece; `None` at the end. It can be dropped and asked again.
    pub(super) async fn read(&mut self) -> Option<io::Result<Piece>> {
        let read = self.pieces.recv().await;
        if let Some(Ok(Piece::Octets(octets) | Piece::Records(octets))) = &read {
            self.taken += octets.len() as u64;
        }
        read
    }

    /// Octets that were read, from the begin on.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Octets that were not: those that nobody has to wait for.
    pub(super) fn unread(&self) -> u64 {
        match &self.again {
            Again::Nothing => 0,
            Again::File(followed) => {
                followed.file.metadata().map_or(0, |own| own.len().saturating_sub(self.taken))
            }
            Again::Spool(spool) => spool.unread(),
        }
    }

    /// Begins anew, if that is possible, with the record of this number.
    pub(super) fn rewind(&mut self) -> Option<u64> {
        *self = match &self.again {
            Again::Nothing => return None,
            Again::File(file) => Reader::of(file.clone()),
            Again::Spool(spool) => Reader::of_spool(Arc::clone(spool)),
        };
        self.first()
    }

    /// The number of its first record, if it can be read again from there.
    pub(super) fn first(&self) -> Option<u64> {
        match &self.again {
            Again::Nothing => None,
            Again::File(_) => Some(0),
            Again::Spool(spool) => Some(spool.first()),
        }
    }

    /// The number of records that there ever were, if that is known.
    pub(super) fn total(&self) -> Option<u64> {
        match &self.again {
            Again::Nothing | Again::File(_) => None,
            Again::Spool(spool) => Some(spool.total()),
        }
    }

    /// Records before this one are at the collector.
    pub(super) fn handle_kept(&self, kept: u64) {
        if let Again::Spool(spool) = &self.again {
            spool.handle_kept(kept);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

impl FollowedFile {
    async fn run(self, pieces: mpsc::Sender<io::Result<Piece>>) {
        let mut offset = 0;
        // Since when the file has not been at its path, and nothing has come to it.
        let mut gone: Option<Instant> = None;
        loop {
            let file = Arc::clone(&self.file);
            let read = spawn_blocking(move || {
                let mut piece = vec![0; CHUNK];
                let length = file.read_at(&mut piece, offset)?;
                piece.truncate(length);
                Ok::<_, io::Error>(piece)
            });
            let piece = read.await.expect("reading does not panic");
            let is_more = piece.as_ref().is_ok_and(|piece| !piece.is_empty());
            if is_more || piece.is_err() {
                offset += piece.as_ref().map_or(0, |piece| piece.len() as u64);
                gone = None;
                if pieces.send(piece.map(Piece::Octets)).await.is_err() || !is_more {
                    return;
                }
                continue;
            }
            let is_over = |gone: &Instant| gone.elapsed() > LAST_LOOKS;
            if !self.follows || self.was_emptied(offset) || gone.as_ref().is_some_and(is_over) {
                return;
            }
            gone = if self.is_at_its_path() { None } else { gone.or_else(|| Some(Instant::now())) };
            sleep(LOOK).await;
        }
    }

    /// Whether somebody has begun it anew: what it has then is another stream.
    fn was_emptied(&self, offset: u64) -> bool {
        self.file.metadata().is_ok_and(|own| own.len() < offset)
    }

    fn is_at_its_path(&self) -> bool {
        match (std::fs::metadata(&self.path), self.file.metadata()) {
            (Ok(there), Ok(own)) => is_same(&there, &own),
            _ => false,
        }
    }
}

fn is_same(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The name of a file's stream: by the file and its first record, so that it stays the same when
/// the file is renamed, and is another one when the file is emptied and written anew. `None`, if
/// there is no record yet; a file that is not followed ends with its last one.
///
/// # Errors
/// The system's.
pub(super) fn stream_of(file: &File, form: Form, follows: bool) -> io::Result<Option<StreamId>> {
    let mut begin = vec![0; MAX_RECORD + 16];
    let mut length = 0;
    let mut splitter = Splitter::new(form);
    while length < begin.len() {
        match file.read_at(&mut begin[length..], length as u64) {
            Ok(0) => break,
            Ok(more) => {
                splitter.push(&begin[length..length + more]);
                length += more;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let first = match splitter.next_record() {
        Ok(Some(record)) => record.to_vec(),
        Ok(None) if follows => return Ok(None),
        Ok(None) if length == 0 => return Ok(None),
        // Whoever reads it finds what is wrong with it.
        Ok(None) | Err(_) => begin[..length].to_vec(),
    };
    let metadata = file.metadata()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&metadata.dev().to_be_bytes()).update(&metadata.ino().to_be_bytes());
    hasher.update(&first);
    let hash = *hasher.finalize().as_bytes();
    Ok(Some(StreamId(*hash.first_chunk().expect("it has 32 octets"))))
}
