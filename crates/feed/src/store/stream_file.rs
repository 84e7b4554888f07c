//! The files of one stream.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use jiff::Timestamp;
use peer::places::WorkPlace;
use serde_json::json;
use tokio::sync::Notify;
use units::Bytes;
use wire::feed::{FEED_WINDOW, Form, Offer, Records, StreamId};

use crate::bounds::{EARLY_PLACE, FILES_EACH};
use crate::framing::{Splitter, push_framed};

/// How far a stream is safe: the number of the next record, or why nothing more can be kept.
pub(crate) type Kept = Result<u64, String>;

/// A stream that is open.
pub(crate) struct StreamFile {
    folder: PathBuf,
    offer: Offer,
    most: Bytes,
    arrived: Mutex<Arrived>,
    disk: Mutex<Disk>,
    kept: Mutex<Kept>,
    /// Connections that tell how far it is.
    listeners: Mutex<Vec<Weak<Notify>>>,
}

/// What has arrived, and waits to be written.
struct Arrived {
    /// The number of the next record.
    next: u64,
    /// The first record of `octets`.
    first: u64,
    octets: Vec<u8>,
    early: Early,
}

/// Records that came before those that are next: another connection carries them. By the number of
/// the first one, as they came.
#[derive(Default)]
struct Early {
    records: BTreeMap<u64, Vec<u8>>,
    octets: usize,
    /// A place for each [`EARLY_PLACE`] of `octets`, begun ones included.
    places: Vec<WorkPlace>,
}

/// Why records were not taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddError {
    /// The source did something wrong.
    Wrong(String),
    /// There is no room for what comes before its turn.
    NoRoom,
}

/// What is written.
struct Disk {
    /// The first record of the file.
    first: u64,
    /// `None`, before the first record.
    file: Option<File>,
    /// The length that is safe, and the one that is written.
    safe: u64,
    written: u64,
    /// The number of the record behind what is written.
    next: u64,
}

/// The name of the folder's list of files.
const INDEX: &str = "index";

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// The permissions of files: records may be anybody's secrets.
const MODE: u32 = 0o640;

/// What the names of a stream's files begin with.
pub(super) fn prefix(stream: StreamId) -> String {
    let hex =
        |octet: &u8| [octet >> 4, octet & 15].map(|digit| char::from(DIGITS[usize::from(digit)]));
    stream.0.iter().flat_map(hex).collect()
}

fn file_name(stream: StreamId, first: u64, form: Form) -> String {
    format!("{}-{first:020}.{}", prefix(stream), extension(form))
}

fn extension(form: Form) -> &'static str {
    match form {
        Form::Lines => "log",
        Form::Nul => "nul",
        Form::Counted => "counted",
    }
}

/// The last file of a stream, as its folder has it.
struct Last {
    path: PathBuf,
    first: u64,
    form: Form,
}

impl StreamFile {
    /// Finds the files of a stream, and cuts off what is no whole record.
    pub(super) fn open(folder: &Path, offer: &Offer, most: Bytes) -> io::Result<StreamFile> {
        let (last, count) = find(folder, offer.stream)?;
        let is_other = last.as_ref().is_some_and(|last| last.form != offer.form);
        if is_other {
            let text = "the stream had records of another form before";
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        if count >= FILES_EACH {
            let text = format!("the feed has {FILES_EACH} files, as many as it may");
            return Err(io::Error::new(ErrorKind::QuotaExceeded, text));
        }
        let disk = if let Some(last) = last {
            Disk::of(&last)?
        } else {
            // Its files were taken away: what the list says was there, at least.
            let next = indexed(folder, offer.stream)?;
            Disk { first: next, file: None, safe: 0, written: 0, next }
        };
        let next = disk.next;
        Ok(StreamFile {
            folder: folder.to_path_buf(),
            offer: offer.clone(),
            most,
            arrived: Mutex::new(Arrived {
                next,
                first: next,
                octets: Vec::new(),
                early: Early::default(),
            }),
            disk: Mutex::new(disk),
            kept: Mutex::new(Ok(next)),
            listeners: Mutex::default(),
        })
    }

    /// How far it is safe.
    pub(crate) fn kept(&self) -> Kept {
        self.safe().clone()
    }

    /// How records are told apart.
    pub(crate) fn form(&self) -> Form {
        self.offer.form
    }

    /// The first record of the file that is written to, if there is one, and the length of it that
    /// is on the disk.
    pub(crate) fn safe_part(&self) -> (Option<u64>, u64) {
        let disk = self.disk();
        (disk.file.as_ref().map(|_| disk.first), disk.safe)
    }

    /// Whether nothing more can be kept.
    pub(super) fn has_failed(&self) -> bool {
        self.kept().is_err()
    }

    /// Has `listener` ring when the stream is further than before, or can keep nothing more.
    pub(crate) fn listen(&self, listener: &Arc<Notify>) {
        let mut listeners = self.listeners.lock().expect("no panic while held");
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(listener));
    }

    /// Tells those who listen.
    fn tell(&self) {
        let listeners = self.listeners.lock().expect("no panic while held");
        listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.notify_one());
    }

    /// The number of the next record that a source is to send: all earlier ones are safe. A source
    /// that has no records before `first`, or whose other collector has those before `elsewhere`,
    /// goes on there; the second number is that of records that nobody has.
    pub(crate) fn begin(&self, first: u64, elsewhere: u64) -> (u64, u64) {
        let mut arrived = self.arrived();
        let lost = first.saturating_sub(arrived.next.max(elsewhere));
        let to = first.max(elsewhere);
        if to > arrived.next {
            let mut disk = self.disk();
            // Where another connection's records are being written still, the next attempt does it.
            if disk.next == arrived.next {
                match disk.skip_to(to) {
                    Ok(()) => {
                        (arrived.next, arrived.first) = (to, to);
                        *self.safe() = Ok(to);
                    }
                    Err(error) => self.fail(&mut disk, &error),
                }
            }
        }
        // What has arrived may not be on the disk when this process is killed.
        let safe = self.kept().unwrap_or(arrived.next);
        (safe, lost)
    }

    /// Takes records in that follow each other. What has arrived before is left out; what comes
    /// before its turn waits, for which `take` gives places. Returns the octets that wait to be
    /// written.
    ///
    /// # Errors
    /// [`AddError`]; what came in its turn is taken in.
    pub(crate) fn add(
        &self,
        records: &Records<'_>,
        take: impl Fn() -> Option<WorkPlace>,
    ) -> Result<usize, AddError> {
        let mut arrived = self.arrived();
        let before = arrived.next;
        if records.first > arrived.next {
            if !records.iter().all(|record| self.offer.form.has(record)) {
                return Err(AddError::Wrong("a record is not of the stream's form".into()));
            }
            arrived.early.insert(records, take)?;
        } else {
            arrived.append(records, self.offer.form)?;
            arrived.take_early(self.offer.form)?;
        }
        if arrived.next > before {
            self.tell();
        }
        Ok(arrived.octets.len())
    }

    /// The number of the next record: all earlier ones have arrived.
    pub(crate) fn next(&self) -> u64 {
        self.arrived().next
    }

    /// The octets that wait to be written.
    pub(crate) fn waiting(&self) -> usize {
        self.arrived().octets.len()
    }

    /// Writes what has arrived.
    pub(super) fn write(&self) {
        let (first, next, octets) = {
            let mut arrived = self.arrived();
            let octets = std::mem::take(&mut arrived.octets);
            let (first, next) = (arrived.first, arrived.next);
            arrived.first = next;
            (first, next, octets)
        };
        if octets.is_empty() || self.has_failed() {
            return;
        }
        let mut disk = self.disk();
        let written = self.write_to(&mut disk, first, &octets);
        match written {
            Ok(()) => disk.next = next,
            Err(error) => self.fail(&mut disk, &error),
        }
    }

    fn write_to(&self, disk: &mut Disk, first: u64, octets: &[u8]) -> io::Result<()> {
        if disk.wants_another(octets.len(), self.most)? {
            disk.sync()?;
            let name = file_name(self.offer.stream, first, self.offer.form);
            self.note(&name, first)?;
            let path = self.folder.join(name);
            let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
            File::open(&self.folder)?.sync_all()?;
            (disk.file, disk.safe, disk.written) = (Some(file), 0, 0);
            disk.first = first;
        }
        let file = disk.file.as_mut().expect("it was opened");
        file.write_all(octets)?;
        disk.written += octets.len() as u64;
        Ok(())
    }

    /// Writes a line about a file to the folder's list, and syncs it.
    fn note(&self, name: &str, first: u64) -> io::Result<()> {
        let line = json!({
            "file": name,
            "first": first,
            "at": Timestamp::now().to_string(),
            "from": self.offer.label,
        });
        let index = self.folder.join(INDEX);
        let mut index = OpenOptions::new().append(true).create(true).mode(MODE).open(index)?;
        index.write_all(format!("{line}\n").as_bytes())?;
        index.sync_data()
    }

    /// Syncs what was written, and tells.
    pub(super) fn sync(&self) {
        if self.has_failed() {
            return;
        }
        let mut disk = self.disk();
        match disk.sync() {
            Ok(()) => {
                *self.safe() = Ok(disk.next);
                self.tell();
            }
            Err(error) => self.fail(&mut disk, &error),
        }
    }

    /// Nothing more is kept until the stream is opened anew: what may not be on the disk is cut
    /// off.
    fn fail(&self, disk: &mut Disk, error: &io::Error) {
        if let Some(file) = &disk.file {
            // Otherwise it is cut off when it is opened.
            let _ = file.set_len(disk.safe).and_then(|()| file.sync_all());
        }
        *self.safe() = Err(error.to_string());
        self.tell();
    }

    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().expect("no panic while held")
    }

    fn safe(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no panic while held")
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("no panic while held")
    }
}

impl Arrived {
    /// Adds those of these records that did not arrive before.
    fn append(&mut self, records: &Records<'_>, form: Form) -> Result<(), AddError> {
        let known = usize::try_from(self.next - records.first).unwrap_or(usize::MAX);
        for record in records.iter().skip(known) {
            push_framed(&mut self.octets, form, record)
                .map_err(|error| AddError::Wrong(error.to_string()))?;
            self.next += 1;
        }
        Ok(())
    }

    /// Adds what has waited for its turn, as far as it is here.
    fn take_early(&mut self, form: Form) -> Result<(), AddError> {
        while let Some((first, body)) = self.early.pop(self.next) {
            let records = Records::of(first, &body).expect("they came as records");
            self.append(&records, form)?;
        }
        Ok(())
    }
}

impl Early {
    fn insert(
        &mut self,
        records: &Records<'_>,
        take: impl Fn() -> Option<WorkPlace>,
    ) -> Result<(), AddError> {
        let (first, more) = (records.first, records.body().len());
        let known = self.records.get(&first).map_or(0, Vec::len);
        if known >= more {
            return Ok(());
        }
        let octets = self.octets - known + more;
        if octets > FEED_WINDOW {
            let text = format!("it sends more than {FEED_WINDOW} octets before their turn");
            return Err(AddError::Wrong(text));
        }
        while self.places.len() < octets.div_ceil(EARLY_PLACE) {
            self.places.push(take().ok_or(AddError::NoRoom)?);
        }
        self.records.insert(first, records.body().to_vec());
        self.octets = octets;
        Ok(())
    }

    /// The next records, if their turn has come.
    fn pop(&mut self, next: u64) -> Option<(u64, Vec<u8>)> {
        let entry = self.records.first_entry().filter(|entry| *entry.key() <= next)?;
        let (first, body) = entry.remove_entry();
        self.octets -= body.len();
        self.places.truncate(self.octets.div_ceil(EARLY_PLACE));
        Some((first, body))
    }
}

impl Disk {
    /// A file that is there: what is behind its last whole record is cut off.
    fn of(last: &Last) -> io::Result<Disk> {
        let mut file = OpenOptions::new().read(true).write(true).open(&last.path)?;
        let mut splitter = Splitter::new(last.form);
        let (mut records, mut buffer) = (0, vec![0; 256 << 10]);
        let invalid = |error| {
            io::Error::new(ErrorKind::InvalidData, format!("{}: {error}", last.path.display()))
        };
        let mut is_torn = false;
        while !is_torn {
            let length = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            splitter.push(&buffer[..length]);
            loop {
                match splitter.next_record() {
                    Ok(Some(_)) => records += 1,
                    Ok(None) => break,
                    // A hole, as a file system may leave where it stopped.
                    Err(_) if last.form == Form::Counted => {
                        is_torn = true;
                        break;
                    }
                    Err(error) => return Err(invalid(error)),
                }
            }
        }
        let whole = splitter.consumed();
        file.set_len(whole)?;
        file.sync_all()?;
        file.seek(SeekFrom::Start(whole))?;
        let next = last.first + records;
        Ok(Disk { first: last.first, file: Some(file), safe: whole, written: whole, next })
    }

    /// Records before this one are nobody's: the name of the next file says so.
    fn skip_to(&mut self, next: u64) -> io::Result<()> {
        self.sync()?;
        (self.file, self.next) = (None, next);
        Ok(())
    }

    /// Whether what comes goes to a file of its own: there is none, it is full, or somebody has
    /// removed it.
    fn wants_another(&self, more: usize, most: Bytes) -> io::Result<bool> {
        let Some(file) = &self.file else { return Ok(true) };
        if self.written > 0 && self.written + more as u64 > most.0 {
            return Ok(true);
        }
        Ok(file.metadata()?.nlink() == 0)
    }

    fn sync(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.as_ref().filter(|_| self.written > self.safe) {
            file.sync_data()?;
            self.safe = self.written;
        }
        Ok(())
    }
}

/// The last file of a stream, and the number of files in the folder.
fn find(folder: &Path, stream: StreamId) -> io::Result<(Option<Last>, usize)> {
    let (mut last, mut count): (Option<Last>, usize) = (None, 0);
    for entry in fs::read_dir(folder)? {
        let (path, name) = {
            let entry = entry?;
            (entry.path(), entry.file_name())
        };
        count += 1;
        let Some((first, form)) = name.to_str().and_then(|name| numbered(name, stream)) else {
            continue;
        };
        if last.as_ref().is_none_or(|last| last.first < first) {
            last = Some(Last { path, first, form });
        }
    }
    Ok((last, count))
}

/// The stream, the number of the first record, and the form, in the name of a file.
pub(crate) fn parse_name(name: &str) -> Option<(StreamId, u64, Form)> {
    let (stream, rest) = name.split_once('-')?;
    let digits = stream.as_bytes().chunks_exact(2).map(|pair| {
        let digit = |octet: u8| DIGITS.iter().position(|digit| *digit == octet);
        u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()
    });
    let octets: Vec<u8> = digits.collect::<Option<_>>()?;
    let stream_id = StreamId(octets.try_into().ok().filter(|_| stream.len() == 32)?);
    let (first, extension_of) = rest.split_once('.')?;
    let forms = [Form::Lines, Form::Nul, Form::Counted];
    let form = forms.into_iter().find(|form| extension(*form) == extension_of)?;
    Some((stream_id, first.parse().ok()?, form))
}

/// The number of the first record, and the form, in the name of a file of that stream.
fn numbered(name: &str, stream: StreamId) -> Option<(u64, Form)> {
    parse_name(name).filter(|(of, ..)| *of == stream).map(|(_, first, form)| (first, form))
}

/// The first record of the last file of a stream, as the folder's list has it; 0 if it has none.
fn indexed(folder: &Path, stream: StreamId) -> io::Result<u64> {
    let text = match fs::read_to_string(folder.join(INDEX)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let of_line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        numbered(line["file"].as_str()?, stream).map(|(first, _)| first)
    };
    // The last line may be cut short.
    Ok(text.lines().filter_map(of_line).max().unwrap_or(0))
}
