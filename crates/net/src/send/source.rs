//! The files to be sent: opened once, read by blocks, watched for change.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Mutex;

use transfer::digest::{Merge, block_cv};
use transfer::{BLOCK, Cv, Extent, FileEntry, Layout};
use units::Bytes;

use crate::Error;

/// All files of a transfer.
pub(crate) struct Source {
    layout: Layout,
    files: Vec<OpenFile>,
}

struct OpenFile {
    path: PathBuf,
    file: File,
    seen: Stamp,
    /// Hashes of the blocks that were read, on their way to the whole file's.
    merge: Mutex<Merge>,
}

/// What changes when a file changes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    mtime: (i64, i64),
}

impl Source {
    /// Opens the files under `paths`.
    pub(crate) fn open(paths: &[PathBuf]) -> Result<Source, Error> {
        let mut entries = Vec::with_capacity(paths.len());
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let failed = |source| Error::Source { path: path.clone(), source };
            let file = File::open(path).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if metadata.is_dir() {
                return Err(Error::Usage(format!(
                    "{} is a directory; this version sends files: name them one by one, or send a tar of it",
                    path.display()
                )));
            }
            if !metadata.is_file() {
                return Err(Error::Usage(format!("{} is not a regular file", path.display())));
            }
            let name = path.file_name().ok_or_else(|| Error::Usage(format!("{} has no name", path.display())))?;
            entries.push(FileEntry {
                name: name.as_bytes().to_vec(),
                size: Bytes(metadata.len()),
                mtime_nanos: metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec()),
                mode: metadata.mode() & 0o777,
            });
            let merge = Mutex::new(Merge::new(metadata.len()));
            files.push(OpenFile { path: path.clone(), file, seen: Stamp::of(&metadata), merge });
        }
        let layout =
            Layout::new(entries).map_err(|error| Error::Usage(format!("these files cannot go together: {error}")))?;
        Ok(Source { layout, files })
    }

    /// Where everything lies.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Reads `extent`, which lies within one block, into `buffer`; returns where in the buffer it is and, if a block begins
    /// with it, that block's chaining value.
    ///
    /// # Errors
    /// [`Error::Source`] if the disk fails, [`Error::SourceChanged`] if the file is not what it was.
    pub(crate) fn read(
        &self,
        extent: Extent,
        buffer: &mut Vec<u8>,
    ) -> Result<(std::ops::Range<usize>, Option<Cv>), Error> {
        let place = self.layout.locate(extent.start).expect("the core sends extents of its layout");
        let file = &self.files[place.file];
        let size = file.seen.size;
        let length = usize::try_from(extent.len).expect("an extent lies within a block");
        if place.offset.is_multiple_of(BLOCK) {
            let block = usize::try_from(BLOCK.min(size - place.offset)).expect("a block fits in memory");
            file.fill(place.offset, block, buffer)?;
            let cv = block_cv(size, place.offset, &buffer[..block]);
            // A block that is read again was merged before.
            let _ = file.merge.lock().expect("no panic while held").insert(place.offset / BLOCK, cv);
            Ok((0..length, Some(cv)))
        } else {
            file.fill(place.offset, length, buffer)?;
            Ok((0..length, None))
        }
    }

    /// The BLAKE3 hash of a file, if all of it was read.
    pub(crate) fn root(&self, file: usize) -> Option<Cv> {
        self.files.get(file)?.merge.lock().expect("no panic while held").root()
    }

    /// Reads a whole file and hashes it.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub(crate) fn hash(&self, file: usize) -> Result<Cv, Error> {
        let file = &self.files[file];
        let size = file.seen.size;
        let mut merge = Merge::new(size);
        let mut buffer = Vec::new();
        let mut offset = 0;
        while offset < size {
            let block = usize::try_from(BLOCK.min(size - offset)).expect("a block fits in memory");
            file.fill(offset, block, &mut buffer)?;
            merge.insert(offset / BLOCK, block_cv(size, offset, &buffer[..block])).expect("each block once");
            offset += BLOCK;
        }
        Ok(merge.root().expect("every block was merged"))
    }

    /// Checks that no file changed since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), Error> {
        self.files.iter().try_for_each(OpenFile::check_unchanged)
    }
}

impl OpenFile {
    /// Reads exactly `length` bytes at `offset`.
    fn fill(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> Result<(), Error> {
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        match self.file.read_exact_at(&mut buffer[..length], offset) {
            Ok(()) => self.check_unchanged(),
            // It was longer when it was opened.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Error::SourceChanged { path: self.path.clone() })
            }
            Err(source) => Err(Error::Source { path: self.path.clone(), source }),
        }
    }

    fn check_unchanged(&self) -> Result<(), Error> {
        let metadata = self.file.metadata().map_err(|source| Error::Source { path: self.path.clone(), source })?;
        if Stamp::of(&metadata) == self.seen { Ok(()) } else { Err(Error::SourceChanged { path: self.path.clone() }) }
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        // Not the change time: it moves with renames, links and reads of access times too.
        Stamp { size: metadata.len(), mtime: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}
