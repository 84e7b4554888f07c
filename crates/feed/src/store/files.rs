//! The files of one stream, in the folder of its feed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::json;
use units::Bytes;
use wire::feed::{Form, Offer, StreamId};

use super::names::{file_name, numbered};
use super::output::Output;
use crate::bounds::FILES_EACH;
use crate::framing::Splitter;

/// The files of a stream.
pub(super) struct StreamFiles {
    folder: PathBuf,
    offer: Offer,
    /// The octets of a file, behind which the next one begins.
    most: Bytes,
    disk: Disk,
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
/// The permissions of files: records may be anybody's secrets.
const MODE: u32 = 0o640;

/// The last file of a stream, as its folder has it.
struct Last {
    path: PathBuf,
    first: u64,
    form: Form,
}

impl StreamFiles {
    /// Finds the files of a stream, and cuts off what is no whole record.
    ///
    /// # Errors
    /// As [`super::Store::stream`].
    pub(super) fn open(folder: &Path, offer: &Offer, most: Bytes) -> io::Result<StreamFiles> {
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
        Ok(StreamFiles { folder: folder.to_path_buf(), offer: offer.clone(), most, disk })
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
}

impl Output for StreamFiles {
    fn next(&self) -> u64 {
        self.disk.next
    }

    fn skip_to(&mut self, next: u64) -> io::Result<()> {
        self.disk.skip_to(next)
    }

    fn write(&mut self, numbers: Range<u64>, octets: &[u8]) -> io::Result<()> {
        if self.disk.wants_another(octets.len(), self.most)? {
            self.disk.sync()?;
            let name = file_name(self.offer.stream, numbers.start, self.offer.form);
            self.note(&name, numbers.start)?;
            let path = self.folder.join(name);
            let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
            File::open(&self.folder)?.sync_all()?;
            (self.disk.file, self.disk.safe, self.disk.written) = (Some(file), 0, 0);
            self.disk.first = numbers.start;
        }
        let file = self.disk.file.as_mut().expect("it was opened");
        file.write_all(octets)?;
        self.disk.written += octets.len() as u64;
        self.disk.next = numbers.end;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.sync()
    }

    /// What may not be on the disk is cut off.
    fn undo(&mut self) {
        if let Some(file) = &self.disk.file {
            // Otherwise it is cut off when it is opened.
            let _ = file.set_len(self.disk.safe).and_then(|()| file.sync_all());
        }
    }

    fn safe_part(&self) -> (Option<u64>, u64) {
        (self.disk.file.as_ref().map(|_| self.disk.first), self.disk.safe)
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

/// The first record of the last file of a stream, as the folder's list has it; 0 if it has none.
fn indexed(folder: &Path, stream: StreamId) -> io::Result<u64> {
    Ok(listed(folder, stream)?.map_or(0, |(first, _)| first))
}

/// The first record of the last file of a stream, and where its source reads it, as the folder's
/// list has them.
pub(super) fn listed(folder: &Path, stream: StreamId) -> io::Result<Option<(u64, String)>> {
    let text = match fs::read_to_string(folder.join(INDEX)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let of_line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let (first, _) = numbered(line["file"].as_str()?, stream)?;
        Some((first, line["from"].as_str().unwrap_or_default().to_string()))
    };
    // The last line may be cut short.
    Ok(text.lines().filter_map(of_line).max())
}
