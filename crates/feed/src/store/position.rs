//! How far a stream was handed over, where somebody else keeps its records.
//!
//! The file `STREAM.position` has the number of the next record and the form. Before records are
//! handed over they are in `STREAM-….batch`, whole: whoever reads them finds no half of a record,
//! whatever dies meanwhile. The next position is beside the old one by then, so that a disk without
//! room is known before; once the records are taken it only has to be renamed.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use peer::private::{create_fresh, open_regular};
use wire::feed::{Form, Offer};

use super::names::{extension, prefix};
use super::output::{Output, Records};
use crate::bounds::FILES_EACH;
use crate::lock::lock_file;

/// The position of a stream.
pub(super) struct Position {
    folder: PathBuf,
    /// What the names of its files begin with.
    name: String,
    form: Form,
    /// The number of the record behind what was handed over.
    next: u64,
    /// What is being handed over.
    pending: Option<Pending>,
}

/// Records that are being handed over, and the position behind them.
struct Pending {
    numbers: Range<u64>,
    batch: PathBuf,
    coming: PathBuf,
}

const POSITION: &str = "position";
/// The position behind what is being handed over.
const COMING: &str = "coming";
const BATCH: &str = "batch";
/// The most octets of a position: a number and the name of a form.
const MOST: u64 = 64;

impl Position {
    /// Finds the position of a stream: its first record, if it has none.
    ///
    /// # Errors
    /// As [`super::Store::stream`]; [`ErrorKind::InvalidData`], if the file is no position;
    /// [`ErrorKind::WouldBlock`], if a command of an earlier run of the collector still has
    /// records.
    pub(super) fn open(folder: &Path, offer: &Offer) -> io::Result<Position> {
        let name = prefix(offer.stream);
        let path = folder.join(format!("{name}.{POSITION}"));
        let (mut count, mut is_known) = (0, false);
        for entry in fs::read_dir(folder)? {
            let found = entry?.path();
            count += 1;
            is_known |= found == path;
            let is_left = found.extension().is_some_and(|kind| kind == BATCH || kind == COMING);
            let stem = found.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if is_left && stem.starts_with(&name) {
                clear(&found)?;
            }
        }
        if !is_known && count >= FILES_EACH {
            let text = format!("the feed has {FILES_EACH} positions, as many as it may");
            return Err(io::Error::new(ErrorKind::QuotaExceeded, text));
        }
        let next = if is_known { read(&path, offer.form)? } else { 0 };
        let (folder, form) = (folder.to_path_buf(), offer.form);
        Ok(Position { folder, name, form, next, pending: None })
    }

    /// A file that no other stream has, nor this one if it was open before: each removes its own.
    fn fresh(&self, kind: &str) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!("{}-{number}.{kind}", self.name))
    }

    /// Writes the position that is to come, and syncs it.
    fn prepare(&self, coming: &Path, next: u64) -> io::Result<()> {
        let mut file = create_fresh(coming)?;
        file.write_all(format!("{next} {}\n", extension(self.form)).as_bytes())?;
        file.sync_all()
    }

    /// Makes it the position.
    fn advance(&self, coming: &Path) -> io::Result<()> {
        fs::rename(coming, self.folder.join(format!("{}.{POSITION}", self.name)))?;
        File::open(&self.folder)?.sync_all()
    }
}

/// Removes what an earlier run left, unless somebody reads it still.
fn clear(batch: &Path) -> io::Result<()> {
    match open_regular(batch).and_then(|file| lock_file(&file)) {
        Ok(()) => {}
        // Its stream was closed just now.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let text = "a command of an earlier run of the collector has its last records still, \
                        and is waited for";
            return Err(io::Error::new(ErrorKind::WouldBlock, text));
        }
        Err(error) => return Err(error),
    }
    match fs::remove_file(batch) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The number of the next record.
fn read(path: &Path, form: Form) -> io::Result<u64> {
    let mut text = Vec::new();
    open_regular(path)?.take(MOST).read_to_end(&mut text)?;
    let Some((next, found)) = str::from_utf8(&text).ok().and_then(parse) else {
        let text = format!(
            "{} is no position: without it the stream is handed over from its first record on",
            path.display()
        );
        return Err(io::Error::new(ErrorKind::InvalidData, text));
    };
    if found != extension(form) {
        let text = "the stream had records of another form before";
        return Err(io::Error::new(ErrorKind::InvalidData, text));
    }
    Ok(next)
}

/// The number and the form in the text of a position.
fn parse(text: &str) -> Option<(u64, &str)> {
    let (number, form) = text.strip_suffix('\n')?.split_once(' ')?;
    let is_number = number.bytes().all(|octet| octet.is_ascii_digit());
    let forms = [Form::Lines, Form::Nul, Form::Counted];
    let is_form = forms.into_iter().any(|known| extension(known) == form);
    Some((number.parse().ok()?, form)).filter(|_| is_number && is_form)
}

impl Output for Position {
    fn next(&self) -> u64 {
        self.next
    }

    fn skip_to(&mut self, next: u64) -> io::Result<()> {
        let coming = self.fresh(COMING);
        self.prepare(&coming, next)?;
        self.advance(&coming)?;
        self.next = next;
        Ok(())
    }

    fn write(&mut self, numbers: Range<u64>, octets: &[u8]) -> io::Result<()> {
        let (batch, coming) = (self.fresh(BATCH), self.fresh(COMING));
        let pending = Pending { numbers: numbers.clone(), batch, coming };
        let Pending { batch, coming, .. } = self.pending.insert(pending);
        create_fresh(batch)?.write_all(octets)?;
        let coming = coming.clone();
        self.prepare(&coming, numbers.end)?;
        self.next = numbers.end;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if let Some(Pending { coming, .. }) = &self.pending {
            self.advance(coming)?;
            self.undo();
        }
        Ok(())
    }

    fn undo(&mut self) {
        if let Some(Pending { batch, coming, .. }) = self.pending.take() {
            // What stays is removed when the stream is opened.
            for file in [batch, coming] {
                let _ = fs::remove_file(file);
            }
        }
    }

    fn batch(&self) -> io::Result<Option<Records>> {
        let Some(Pending { numbers, batch, .. }) = &self.pending else { return Ok(None) };
        // Each attempt reads from the begin, and alone.
        let file = open_regular(batch)?;
        lock_file(&file)?;
        Ok(Some((numbers.clone(), file)))
    }
}

impl Drop for Position {
    /// A source that is gone has what nobody took.
    fn drop(&mut self) {
        self.undo();
    }
}
