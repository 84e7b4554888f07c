//! Records that wait on this host's disk until the collector has them.
//!
//! A spool is kept as a collector keeps a stream: files that are named after their first record, of
//! which the last one says how far the stream is. Only what is synced here is sent: a record whose
//! number another one had before a power failure would be taken for that one.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::{Duration, SystemTime};

use events::Events;
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use units::Bytes;
use wire::feed::{Form, Offer, Records, StreamId, push_record};

use super::piece::{CHUNK, Piece};
use super::totals::Dropped;
use crate::FeedError;
use crate::bounds::{BATCH, FILE, WAITING};
use crate::framing::{FramingError, Splitter};
use crate::lock::lock_folder;
use crate::store::{AddError, KeptStream, Store, parse_name};

/// Where records wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolOptions {
    /// The folder, which is made if there is none.
    pub folder: PathBuf,
    /// The most octets of all its files.
    pub size: Bytes,
    /// How long a record waits at most.
    pub age: Option<Duration>,
    /// What is done with further records when it is full.
    pub when_full: WhenFull,
}

/// What is done with further records when a spool is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The program that writes them waits.
    #[default]
    Block,
    /// The oldest ones are dropped, and counted.
    DropOldest,
    /// The feed ends with an error.
    Fail,
}

/// The least octets of a spool: below, its files would be of a few records.
pub const LEAST_SPOOL: Bytes = Bytes::mib(1);
/// A spool has about so many files.
const FILES: u64 = 8;
/// The time between looks whether a full spool has room.
const LOOK: Duration = Duration::from_millis(50);
/// The time between looks at the age of files.
const AGE_LOOK: Duration = Duration::from_secs(1);
/// The folder in the spool's own, as a collector has one for each host.
const HOST: &str = "spool";

/// A spool that is open.
pub(super) struct Spool {
    options: SpoolOptions,
    folder: PathBuf,
    store: Store,
    stream: Arc<KeptStream>,
    id: StreamId,
    events: Events,
    dropped: Dropped,
    /// Records before this one are at the collector.
    kept: AtomicU64,
    /// The first record of the file that is being handed over; `None` before the first. Held while
    /// a file is chosen or dropped: one that is chosen is handed over to its end.
    reading: Mutex<Option<u64>>,
    /// The octets of that file that were handed over.
    offset: AtomicU64,
    /// Whether all was read from the input, and is in the spool.
    is_over: AtomicBool,
    /// Why no more can be spooled.
    failed: Mutex<Option<String>>,
    /// Rings when something was written.
    written: Arc<Notify>,
    /// Held as long as the spool is in use.
    _lock: File,
}

/// A file of a spool.
struct SpoolFile {
    first: u64,
    path: PathBuf,
    size: u64,
    changed: SystemTime,
}

impl Spool {
    /// Opens the spool of a feed.
    ///
    /// # Errors
    /// [`FeedError::Usage`], if another process has it, or it has records of another form;
    /// [`FeedError::Source`] with the system's.
    pub(super) fn open(
        options: SpoolOptions,
        (feed, form): (&str, Form),
        events: Events,
        dropped: Dropped,
    ) -> Result<Arc<Spool>, FeedError> {
        let path = options.folder.clone();
        let failed = |source| FeedError::Source { path: path.clone(), source };
        let lock = lock_folder(&options.folder).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => FeedError::Usage(format!(
                "--spool {}: another feed uses it; each needs a folder of its own",
                path.display()
            )),
            _ => failed(error),
        })?;
        let file = file_size(options.size);
        let store = Store::open(&options.folder, file).map_err(failed)?;
        let folder = options.folder.join(HOST).join(feed);
        let (id, known) = match found(&folder).map_err(failed)? {
            Some((id, form)) => (id, form),
            None => (StreamId(peer::random()?), form),
        };
        if known != form {
            let text = "its records are told apart in another way: --records has to be the same";
            return Err(FeedError::Usage(format!("--spool {}: {text}", path.display())));
        }
        let (feed, label) = (feed.to_string(), "standard input".to_string());
        let offer = Offer { stream: id, first: 0, elsewhere: 0, form, feed, label };
        let stream = store.stream(HOST, &offer).map_err(failed)?;
        let written = Arc::new(Notify::new());
        stream.listen(&written);
        Ok(Arc::new(Spool {
            options,
            folder,
            store,
            stream,
            id,
            events,
            dropped,
            kept: AtomicU64::new(0),
            reading: Mutex::default(),
            offset: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            failed: Mutex::default(),
            written,
            _lock: lock,
        }))
    }

    /// The name of its stream, which stays the same as long as the folder does.
    pub(super) fn id(&self) -> StreamId {
        self.id
    }

    /// The number of the first record that is here, or of the one that will be.
    pub(super) fn first(&self) -> u64 {
        // Before the files: where there is none, nothing was written until then.
        let safe = self.stream.kept().unwrap_or_else(|_| self.stream.next());
        let files = self.files().unwrap_or_default();
        files.first().map_or(safe, |file| file.first)
    }

    /// The number behind the last record that was ever here.
    pub(super) fn total(&self) -> u64 {
        self.stream.next()
    }

    /// The octets that are in its files and were not handed over yet.
    pub(super) fn unread(&self) -> u64 {
        // While no other file is chosen.
        let reading = self.reading.lock().expect("no panic while held");
        let files = self.files().unwrap_or_default();
        let behind = files.iter().filter(|file| reading.is_none_or(|first| file.first >= first));
        let size: u64 = behind.map(|file| file.size).sum();
        size.saturating_sub(self.offset.load(Ordering::Relaxed))
    }

    /// Records before this one are at the collector: files of them alone are removed.
    pub(super) fn handle_kept(&self, kept: u64) {
        if self.kept.fetch_max(kept, Ordering::Relaxed) >= kept {
            return;
        }
        let files = self.files().unwrap_or_default();
        for pair in files.windows(2) {
            if pair[1].first <= kept {
                // One that stays is read and left out once more.
                let _ = fs::remove_file(&pair[0].path);
            }
        }
    }

    /// Takes what is read in, in a thread, to its end.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(super) fn fill(
        self: &Arc<Self>,
        pieces: mpsc::Receiver<io::Result<Piece>>,
    ) -> io::Result<()> {
        let spool = Arc::clone(self);
        thread::Builder::new().name("spool".into()).spawn(move || {
            if let Err(why) = spool.take_all(pieces) {
                *spool.failed.lock().expect("no panic while held") = Some(why);
            }
            spool.is_over.store(true, Ordering::Release);
            spool.written.notify_one();
        })?;
        Ok(())
    }

    fn take_all(&self, mut pieces: mpsc::Receiver<io::Result<Piece>>) -> Result<(), String> {
        let mut splitter = Splitter::new(self.form());
        let text = |error: FramingError| error.to_string();
        while let Some(piece) = pieces.blocking_recv() {
            let octets = match piece.map_err(|error| format!("standard input: {error}"))? {
                Piece::Octets(octets) => octets,
                Piece::Records(body) => {
                    self.add(&body)?;
                    continue;
                }
                Piece::At(_) => unreachable!("what comes once has no gaps"),
            };
            splitter.push(&octets);
            let mut body = Vec::new();
            while let Some(record) = splitter.next_record().map_err(text)? {
                push_record(&mut body, record);
                if body.len() as u64 >= BATCH.0 {
                    self.add(&body)?;
                    body.clear();
                }
            }
            self.add(&body)?;
        }
        let mut body = Vec::new();
        if let Some(last) = splitter.last_record().map_err(text)? {
            push_record(&mut body, last);
        }
        self.add(&body)
    }

    /// Writes records, when there is room for them.
    fn add(&self, body: &[u8]) -> Result<(), String> {
        if body.is_empty() {
            return Ok(());
        }
        self.make_room(body.len() as u64)?;
        let records = Records::of(self.stream.next(), body).expect("they were encoded here");
        match self.stream.add(&records, false) {
            Ok(_) => self.store.commit(&self.stream),
            Err(AddError::Wrong(why)) => return Err(why),
            Err(AddError::NoRoom) => unreachable!("they are the next ones"),
            Err(AddError::Full) => unreachable!("the spool's memory is this stream's alone"),
        }
        // What is written at once is in one file.
        let most = WAITING.min(file_size(self.options.size)).0;
        while self.stream.waiting() as u64 >= most {
            sleep(Duration::from_millis(1));
            self.stream.kept().map_err(|why| self.at(&why))?;
        }
        self.stream.kept().map(drop).map_err(|why| self.at(&why))
    }

    fn at(&self, why: &str) -> String {
        format!("--spool {}: {why}", self.options.folder.display())
    }

    /// Waits for room, or makes some.
    fn make_room(&self, more: u64) -> Result<(), String> {
        let mut is_told = false;
        loop {
            // Before the files: what is written meanwhile counts twice, and not never.
            let waiting = self.stream.waiting() as u64;
            let files = self.files().map_err(|error| self.at(&error.to_string()))?;
            let used: u64 = files.iter().map(|file| file.size).sum();
            if used + waiting + more <= self.options.size.0 {
                return Ok(());
            }
            match self.options.when_full {
                WhenFull::Fail => return Err(self.at(&format!("it is full, with {}", Bytes(used)))),
                // The last file is the position of the stream, and stays.
                WhenFull::DropOldest if files.len() > 1 => {
                    self.drop_oldest(&files, "it is full");
                }
                WhenFull::DropOldest | WhenFull::Block => {
                    if !is_told {
                        is_told = true;
                        let text = format!("it is full, with {}; what feeds it waits", Bytes(used));
                        self.events.notice(self.at(&text));
                    }
                    sleep(LOOK);
                }
            }
        }
    }

    fn drop_oldest(&self, files: &[SpoolFile], why: &str) {
        let [oldest, next, ..] = files else { return };
        let reading = self.reading.lock().expect("no panic while held");
        if fs::remove_file(&oldest.path).is_err() {
            return;
        }
        let is_handed_over = reading.is_some_and(|reading| reading >= oldest.first);
        drop(reading);
        let lost = next.first.saturating_sub(oldest.first.max(self.kept.load(Ordering::Relaxed)));
        if lost > 0 && !is_handed_over {
            let text = format!("{why}: {lost} records from {} on are dropped", oldest.first);
            self.events.notice(self.at(&text));
            self.dropped.add(lost);
        }
    }

    /// Drops what is too old.
    fn drop_old(&self) {
        let Some(age) = self.options.age else { return };
        let files = self.files().unwrap_or_default();
        if let [oldest, _, ..] = &files[..]
            && oldest.changed.elapsed().is_ok_and(|passed| passed > age)
        {
            self.drop_oldest(&files, "they are too old");
        }
    }

    /// Its files, the oldest first.
    fn files(&self) -> io::Result<Vec<SpoolFile>> {
        let mut files = Vec::new();
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(files),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some((id, first, _)) = name.to_str().and_then(parse_name) else { continue };
            // One may be removed meanwhile.
            let Ok(metadata) = entry.metadata() else { continue };
            if id == self.id {
                let (path, size) = (entry.path(), metadata.len());
                let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                files.push(SpoolFile { first, path, size, changed });
            }
        }
        files.sort_by_key(|file| file.first);
        Ok(files)
    }

    fn form(&self) -> Form {
        self.stream.form()
    }

    /// Hands over what is safe here, from the first record on, until all is handed over.
    pub(super) async fn read(self: Arc<Self>, pieces: mpsc::Sender<io::Result<Piece>>) {
        let mut at = None;
        loop {
            // Before the look: what comes in between rings.
            let is_over = self.is_over.load(Ordering::Acquire);
            let spool = Arc::clone(&self);
            let step = spawn_blocking(move || {
                spool.drop_old();
                let step = spool.step(&mut at);
                (step, at)
            });
            let (step, next) = step.await.expect("reading does not panic");
            at = next;
            let failed = self.failed.lock().expect("no panic while held").clone();
            let piece = match (step, failed) {
                (Ok(Some(piece)), _) => Ok(piece),
                (Err(error), _) => Err(error),
                // What was spooled before is sent.
                (Ok(None), Some(why)) => Err(io::Error::other(why)),
                (Ok(None), None) if is_over && self.is_all_safe() => return,
                (Ok(None), None) => {
                    let _ = timeout(AGE_LOOK, self.written.notified()).await;
                    continue;
                }
            };
            let is_last = piece.is_err();
            if pieces.send(piece).await.is_err() || is_last {
                return;
            }
        }
    }

    fn is_all_safe(&self) -> bool {
        self.stream.kept().is_ok_and(|kept| kept == self.stream.next())
    }

    /// The next piece, if any is safe.
    fn step(&self, at: &mut Option<Reading>) -> io::Result<Option<Piece>> {
        let (last, safe) = self.stream.safe_part();
        let Some(reading) = at else {
            return self.go_on(at, None);
        };
        let is_last = last == Some(reading.first);
        let end = if is_last { safe } else { reading.file.metadata()?.len() };
        if reading.offset < end {
            let most = usize::try_from(end - reading.offset).unwrap_or(CHUNK).min(CHUNK);
            let mut piece = vec![0; most];
            let length = reading.file.read_at(&mut piece, reading.offset)?;
            piece.truncate(length);
            reading.offset += length as u64;
            self.offset.store(reading.offset, Ordering::Relaxed);
            return Ok((length > 0).then_some(Piece::Octets(piece)));
        }
        let behind = reading.first;
        if is_last { Ok(None) } else { self.go_on(at, Some(behind)) }
    }

    /// Goes to the file behind that one, or to the first one.
    fn go_on(&self, at: &mut Option<Reading>, behind: Option<u64>) -> io::Result<Option<Piece>> {
        let mut reading = self.reading.lock().expect("no panic while held");
        let files = self.files()?;
        let next = files.into_iter().find(|file| behind.is_none_or(|behind| file.first > behind));
        let Some(SpoolFile { first, path, .. }) = next else { return Ok(None) };
        let file = match File::open(path) {
            Ok(file) => file,
            // It was dropped meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        *reading = Some(first);
        self.offset.store(0, Ordering::Relaxed);
        *at = Some(Reading { first, file, offset: 0 });
        Ok(Some(Piece::At(first)))
    }
}

/// About so large is a file of a spool of that size.
fn file_size(spool: Bytes) -> Bytes {
    Bytes(spool.0 / FILES).min(FILE)
}

/// The file that is being read.
struct Reading {
    first: u64,
    file: File,
    offset: u64,
}

/// The stream that is in a folder, by its last file.
fn found(folder: &Path) -> io::Result<Option<(StreamId, Form)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut last: Option<(u64, StreamId, Form)> = None;
    for entry in entries {
        if let Some((id, first, form)) = entry?.file_name().to_str().and_then(parse_name)
            && last.is_none_or(|(known, ..)| known <= first)
        {
            last = Some((first, id, form));
        }
    }
    Ok(last.map(|(_, id, form)| (id, form)))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn add(spool: &Spool, records: u64) {
        let mut body = Vec::new();
        (0..records).for_each(|_| push_record(&mut body, b"x"));
        let records = Records::of(spool.stream.next(), &body).unwrap();
        spool.stream.add(&records, false).unwrap();
    }

    /// Found on several file systems: a stream began with the number of records that were not
    /// written yet, and what followed had wrong numbers.
    #[test]
    fn what_is_not_written_yet_does_not_count() {
        let folder = TempDir::new().unwrap();
        let options = SpoolOptions {
            folder: folder.path().join("spool"),
            size: LEAST_SPOOL,
            age: None,
            when_full: WhenFull::default(),
        };
        let open = || {
            let of = ("feed", Form::Lines);
            Spool::open(options.clone(), of, Events::new(), Dropped::default()).unwrap()
        };
        let spool = open();
        add(&spool, 3);
        assert_eq!((spool.first(), spool.total()), (0, 3));
        spool.store.commit(&spool.stream);
        while spool.stream.kept() != Ok(3) {
            sleep(Duration::from_millis(1));
        }
        assert_eq!((spool.first(), spool.total()), (0, 3));
        drop(spool);
        let spool = open();
        add(&spool, 2);
        assert_eq!((spool.first(), spool.total()), (0, 5));
    }
}
