//! The files to be sent: read by blocks, checked for changes. A [stream](super::stream) takes the
//! place of the files.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::fstat;
use tokio::sync::watch;
use transfer::digest::{Merge, block_cv};
use transfer::{BLOCK, Cv, Extent, ExtentSet, Object, Packing, Piece, Tree};

use wire::manifest::{Entry, Kind};

use super::budget::MemoryBudget;
use super::changes::{FileChanges, Tolerance};
use super::root::{NamedPaths, SourceRoot};
use super::stamp::Stamp;
use super::stream::Stream;
use super::walk::{Found, Origin, walk};
use crate::beneath::{Inode, ctime_of};
use crate::compress::{Compression, Compressor};
use crate::left_out::LeftOuts;
use crate::protocol::file_at;
use crate::{Error, Selection};

/// All files to be sent.
pub(crate) struct Source {
    named: NamedPaths,
    tree: Tree,
    origins: Vec<Option<Origin>>,
    /// The one entry, if it is a stream.
    stream: Option<Arc<Stream>>,
    /// Open large files, the latest last.
    open: Mutex<VecDeque<(usize, Arc<File>)>>,
    /// The paths at the receiver of the folders that are named.
    folders: Vec<Vec<u8>>,
    left_out: LeftOuts,
}

/// The part of a source that a session sends.
pub(crate) struct Supply {
    source: Arc<Source>,
    packing: Packing,
    /// Hashes of read blocks, to be merged into the hash of their object.
    merges: Mutex<BTreeMap<usize, Merge>>,
    /// Hashes of files in packs that were read.
    hashes: Mutex<BTreeMap<usize, blake3::Hash>>,
    /// The last position that was read.
    last_position: AtomicU64,
    /// The positions that the receiver takes so far.
    granted: watch::Sender<u64>,
    tolerance: Tolerance,
    changes: FileChanges,
    /// What an earlier attempt sent.
    had: ExtentSet,
    compression: Compression,
}

/// How a file that was read compares with the one that the walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Same,
    /// It is longer.
    Grown,
}

/// The identity of a file's contents: its inode, and the attributes that change with the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    inode: Inode,
    stamp: Stamp,
    /// Time of the last change of the inode.
    changed: i64,
}

/// The last block that was read; later extents often lie in it.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// The positions of the bytes in the layout.
    extent: Option<Extent>,
}

/// The most large files of a source that are kept open: a few paths read one after the other.
const MOST_OPEN: usize = 8;

impl Source {
    /// Finds the files under `paths`, as far as `budget` allows for the list. Also returns notices
    /// about staging folders. Unless `with_holes`, holes are sent as data. The one path arrives as
    /// `rename`, if that is given.
    pub(crate) fn open(
        root: SourceRoot,
        paths: &[PathBuf],
        selection: &Selection,
        with_holes: bool,
        rename: Option<&OsStr>,
        budget: MemoryBudget<'_>,
    ) -> Result<(Source, Vec<String>), Error> {
        let Found { named, mut entries, attributes, origins, folders, left_out, notices } =
            walk(root, paths, selection, rename, budget)?;
        if !with_holes {
            for entry in &mut entries {
                if let Kind::File(file) = &mut entry.kind {
                    file.data = None;
                }
            }
        }
        let tree = Tree::with_attributes(entries, attributes).map_err(|error| {
            Error::usage(format!("these sources cannot be sent together: {error}"))
        })?;
        let (stream, open) = (None, Mutex::default());
        Ok((Source { named, tree, origins, stream, open, folders, left_out }, notices))
    }

    /// A stream, which arrives as `entry` says.
    pub(crate) fn stream(entry: Entry, stream: Stream) -> Result<Source, Error> {
        let tree = Tree::new(vec![entry]).map_err(|error| Error::usage(error.to_string()))?;
        let stream = Some(Arc::new(stream));
        let named = NamedPaths::new(SourceRoot::Anywhere);
        Ok(Source {
            named,
            tree,
            origins: vec![None],
            stream,
            open: Mutex::default(),
            folders: Vec::new(),
            left_out: LeftOuts::default(),
        })
    }

    /// The stream, if it is one.
    pub(crate) fn as_stream(&self) -> Option<&Arc<Stream>> {
        self.stream.as_ref()
    }

    /// The tree of the files.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The paths at the receiver of the folders that are named.
    pub(crate) fn folders(&self) -> &[Vec<u8>] {
        &self.folders
    }

    /// The entries that could not be read.
    pub(crate) fn left_out(&self) -> &LeftOuts {
        &self.left_out
    }

    /// Fills `buffer` from `offset` of a file. A small file is opened for it, a large one is kept
    /// open.
    ///
    /// # Errors
    /// [`Error::SourceChanged`] if it is another file, or a changed one that did not only grow.
    fn fill(
        &self,
        entry: usize,
        offset: u64,
        buffer: &mut [u8],
        is_large: bool,
    ) -> Result<Look, Error> {
        if let Some(contents) = &self.origin(entry).contents {
            let start = usize::try_from(offset).expect("contents are in memory");
            buffer.copy_from_slice(&contents[start..start + buffer.len()]);
            return Ok(Look::Same);
        }
        let file =
            if is_large { self.open_cached(entry)? } else { Arc::new(self.open_file(entry)?) };
        let place = &self.origin(entry).place;
        match file.read_exact_at(buffer, offset) {
            Ok(()) => self.look(entry, &file),
            // The file was longer during the walk.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.named.changed(place))
            }
            Err(source) => Err(Error::Source { path: self.named.shown(place), source }),
        }
    }

    fn open_cached(&self, entry: usize) -> Result<Arc<File>, Error> {
        let mut open = self.open.lock().expect("no panic while held");
        if let Some((_, file)) = open.iter().find(|(index, _)| *index == entry) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.open_file(entry)?);
        if open.len() == MOST_OPEN {
            open.pop_front();
        }
        open.push_back((entry, Arc::clone(&file)));
        Ok(file)
    }

    fn open_file(&self, entry: usize) -> Result<File, Error> {
        let Origin { place, inode, .. } = self.origin(entry);
        self.named.open_file(place, *inode)
    }

    /// Compares an open file with the one that the walk found.
    fn look(&self, entry: usize, file: &File) -> Result<Look, Error> {
        let Origin { place, stamp, .. } = self.origin(entry);
        let stat = fstat(file).map_err(|errno| self.named.failed(place, errno))?;
        match Stamp::of(&stat) {
            now if now == *stamp => Ok(Look::Same),
            now if now.size > stamp.size => Ok(Look::Grown),
            _ => Err(self.named.changed(place)),
        }
    }

    fn check_unchanged(&self, entry: usize, file: &File) -> Result<(), Error> {
        match self.look(entry, file)? {
            Look::Same => Ok(()),
            Look::Grown => Err(self.changed(entry)),
        }
    }

    /// The error for a file that changed.
    fn changed(&self, entry: usize) -> Error {
        self.named.changed(&self.origin(entry).place)
    }

    /// The path of a file, for messages.
    pub(crate) fn shown(&self, entry: usize) -> PathBuf {
        self.named.shown(&self.origin(entry).place)
    }

    /// The identity of a file that has not changed since the walk.
    pub(crate) fn file_id(&self, entry: usize) -> Result<FileId, Error> {
        let file = self.open_file(entry)?;
        self.check_unchanged(entry, &file)?;
        let Origin { place, inode, .. } = self.origin(entry);
        let stat = fstat(&file).map_err(|errno| self.named.failed(place, errno))?;
        Ok(FileId { inode: *inode, stamp: Stamp::of(&stat), changed: ctime_of(&stat) })
    }

    fn origin(&self, entry: usize) -> &Origin {
        self.origins[entry].as_ref().expect("only files are read")
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            stream.abandon();
        }
    }
}

impl Supply {
    /// The files of `source` that are in `packing`.
    pub(crate) fn new(source: Arc<Source>, packing: Packing) -> Supply {
        Supply {
            source,
            packing,
            merges: Mutex::default(),
            hashes: Mutex::default(),
            last_position: AtomicU64::new(u64::MAX),
            granted: watch::Sender::new(u64::MAX),
            tolerance: Tolerance::None,
            changes: FileChanges::default(),
            had: ExtentSet::new(),
            compression: Compression::Off,
        }
    }

    /// Goes on if files change, as far as `tolerance` says. `had` are the positions that an earlier
    /// attempt sent, as far as this side knows of them.
    pub(crate) fn tolerating(self, tolerance: Tolerance, had: ExtentSet) -> Supply {
        Supply { tolerance, had, ..self }
    }

    /// What is read is compressed on its way.
    pub(crate) fn compressing(self, compression: Compression) -> Supply {
        Supply { compression, ..self }
    }

    /// A compressor for one connection.
    pub(crate) fn compressor(&self) -> Compressor {
        Compressor::new(self.compression)
    }

    /// The changes of files that were seen.
    pub(crate) fn changes(&self) -> &FileChanges {
        &self.changes
    }

    /// All files, also those that are not sent.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The layout of the files that are sent.
    pub(crate) fn packing(&self) -> &Packing {
        &self.packing
    }

    /// The name of the file that was read last.
    pub(crate) fn current(&self) -> Option<String> {
        let position = self.last_position.load(Ordering::Relaxed);
        file_at(self.source.tree(), &self.packing, position)
    }

    /// Takes the positions that the receiver takes so far; without this, it takes all.
    pub(crate) fn grant(&self, positions: u64) {
        self.granted.send_if_modified(|granted| {
            let is_news = *granted == u64::MAX || positions > *granted;
            if is_news {
                *granted = positions;
            }
            is_news
        });
    }

    /// The positions that the receiver takes so far, with news of each change.
    pub(crate) fn granted(&self) -> watch::Receiver<u64> {
        self.granted.subscribe()
    }

    /// Reads `extent`, which lies within one block, into `buffer`. Returns its range in the buffer
    /// and, if the extent starts a block, that block's chaining value.
    ///
    /// # Errors
    /// [`Error::Source`] if reading fails, [`Error::SourceChanged`] if a file has changed.
    pub(crate) fn read(
        &self,
        extent: Extent,
        buffer: &mut Buffer,
    ) -> Result<(std::ops::Range<usize>, Option<Cv>), Error> {
        if let Some(stream) = &self.source.stream {
            return Self::read_stream(stream, extent, buffer);
        }
        self.last_position.store(extent.start, Ordering::Relaxed);
        let layout = self.packing.layout();
        let block = layout
            .block_extent(extent.start / BLOCK)
            .expect("the core sends extents of its layout");
        let object = layout.locate(block.start).expect("a block lies in an object").object;
        if extent.start == block.start {
            self.fill(block, buffer)?;
            let cv = self.note(object, block, &buffer.bytes);
            self.judge(object)?;
            // What stands in the place of a file that is left out is no block of it.
            return Ok((0..length(extent.len), (!self.is_void(object)).then_some(cv)));
        }
        // The rest of a block mostly follows its first extent on the same path.
        if buffer.extent.is_none_or(|has| has.intersection(extent) != extent) {
            self.fill(extent, buffer)?;
            self.judge(object)?;
        }
        let start = length(extent.start - buffer.extent.expect("it was filled").start);
        Ok((start..start + length(extent.len), None))
    }

    /// As [`Supply::read`], from a stream.
    fn read_stream(
        stream: &Stream,
        extent: Extent,
        buffer: &mut Buffer,
    ) -> Result<(std::ops::Range<usize>, Option<Cv>), Error> {
        let index = extent.start / BLOCK;
        let block = stream.block(index)?;
        let start = length(extent.start - index * BLOCK);
        buffer.extent = None;
        buffer.bytes.clear();
        buffer.bytes.extend_from_slice(&block[start..start + length(extent.len)]);
        let cv = (start == 0).then(|| stream.hash(index, &block));
        Ok((0..length(extent.len), cv))
    }

    /// Reads a block and hashes it.
    ///
    /// # Errors
    /// As [`Supply::read`].
    pub(crate) fn block_hash(&self, block: u64, buffer: &mut Buffer) -> Result<Cv, Error> {
        let layout = self.packing.layout();
        let extent = layout.block_extent(block).expect("a block of the layout");
        let place = layout.locate(extent.start).expect("a block lies in an object");
        self.fill(extent, buffer)?;
        let whole = layout.object_extent(place.object).expect("an object of the layout");
        Ok(block_cv(whole.len, place.offset, &buffer.bytes))
    }

    fn has_holes(&self, entry: usize) -> bool {
        self.source.tree.file(entry).is_some_and(|file| file.data.is_some())
    }

    /// Whether an object is one large file, which is left out.
    fn is_void(&self, object: usize) -> bool {
        let object = self.packing.object(object);
        matches!(object, Some(Object::Large(entry)) if self.changes.is_left_out(entry))
    }

    /// Compares a large file that grew with what was sent of it, once all of that was read: if its
    /// beginning is another one, it is left out.
    fn judge(&self, object: usize) -> Result<(), Error> {
        let Some(Object::Large(entry)) = self.packing.object(object) else { return Ok(()) };
        if !self.changes.has_grown(entry) || self.changes.is_left_out(entry) {
            return Ok(());
        }
        let whole = self.packing.layout().object_extent(object).expect("an object of the layout");
        let sent = self.root(object);
        let is_known = !self.had.intersects(whole);
        if is_known && sent.is_none() {
            return Ok(());
        }
        let mut judged = Ok(());
        self.changes.judge_once(entry, || {
            // Of what an earlier attempt sent, no hash is known.
            let is_same = is_known && self.hash(object).is_ok_and(|found| Some(found) == sent);
            if !is_same {
                judged = self.leave_out(entry, self.source.changed(entry));
            }
        });
        judged
    }

    /// Leaves a file out because of `error`, if that is tolerated.
    ///
    /// # Errors
    /// The error, if it is not.
    fn leave_out(&self, entry: usize, error: Error) -> Result<(), Error> {
        let is_of_file = matches!(error, Error::Source { .. } | Error::SourceChanged { .. });
        if !matches!(self.tolerance, Tolerance::All | Tolerance::Follow) || !is_of_file {
            return Err(error);
        }
        self.changes.leave_out(entry, &error);
        Ok(())
    }

    /// Hashes a block that was read, and merges the hash into its object's.
    fn note(&self, object: usize, block: Extent, bytes: &[u8]) -> Cv {
        let whole = self.packing.layout().object_extent(object).expect("an object of the layout");
        let offset = block.start - whole.start;
        let cv = block_cv(whole.len, offset, bytes);
        let mut merges = self.merges.lock().expect("no panic while held");
        // A block that is read again was merged the first time.
        let _ = merges
            .entry(object)
            .or_insert_with(|| Merge::new(whole.len))
            .insert(offset / BLOCK, cv);
        drop(merges);
        if let Some(Object::Pack(files)) = self.packing.object(object) {
            let mut rest = bytes;
            let mut hashes = self.hashes.lock().expect("no panic while held");
            for &index in files {
                let file = self.source.tree.file(index).expect("a file of the tree");
                let (data, after) = rest.split_at(length(file.data_len()));
                if file.data.is_none() {
                    hashes.insert(index, blake3::hash(data));
                }
                rest = after;
            }
        }
        cv
    }

    /// The BLAKE3 hash of an object, if all of it was read.
    pub(crate) fn root(&self, object: usize) -> Option<Cv> {
        if let Some(stream) = &self.source.stream {
            return stream.root();
        }
        self.merges.lock().expect("no panic while held").get(&object)?.root()
    }

    /// Takes the files of an object with hash `root`, each with its own hash where it is known.
    pub(crate) fn take_files(&self, object: usize, root: Cv) -> Vec<(usize, Option<String>)> {
        let whole = self.packing.whole_file(&self.source.tree, object);
        let mut hashes = self.hashes.lock().expect("no panic while held");
        let mut hash = |index: usize| {
            let own = hashes.remove(&index).map(|hash| hash.to_hex().to_string());
            if whole == Some(index) { Some(root.to_string()) } else { own }
        };
        match self.packing.object(object) {
            Some(Object::Large(file)) => vec![(file, hash(file))],
            Some(Object::Pack(files)) => files.iter().map(|&file| (file, hash(file))).collect(),
            None => Vec::new(),
        }
    }

    /// Reads a whole object and hashes it.
    ///
    /// # Errors
    /// As [`Supply::read`].
    pub(crate) fn hash(&self, object: usize) -> Result<Cv, Error> {
        if let Some(stream) = &self.source.stream {
            return stream.hash_all();
        }
        let whole = self.packing.layout().object_extent(object).expect("an object of the layout");
        let mut merge = Merge::new(whole.len);
        let mut buffer = Buffer::default();
        for index in 0..whole.len.div_ceil(BLOCK) {
            let block = Extent::new(whole.start + index * BLOCK, BLOCK).intersection(whole);
            self.fill(block, &mut buffer)?;
            let cv = block_cv(whole.len, index * BLOCK, &buffer.bytes);
            merge.insert(index, cv).expect("each block once");
        }
        Ok(merge.root().expect("every block was merged"))
    }

    /// Checks that no large file changed since the walk, unless changes are tolerated: each block
    /// was then read before the file changed. A small file needs no check: it is read in one go.
    pub(crate) fn check_unchanged(&self) -> Result<(), Error> {
        if self.source.stream.is_some() || self.tolerance != Tolerance::None {
            return Ok(());
        }
        let objects =
            (0..self.packing.layout().objects()).filter_map(|object| self.packing.object(object));
        for object in objects {
            if let Object::Large(entry) = object {
                self.source.check_unchanged(entry, &*self.source.open_cached(entry)?)?;
            }
        }
        Ok(())
    }

    /// Reads an extent completely, or leaves the buffer without a valid extent.
    fn fill(&self, extent: Extent, buffer: &mut Buffer) -> Result<(), Error> {
        buffer.extent = None;
        buffer.bytes.resize(length(extent.len), 0);
        let object = self.packing.layout().locate(extent.start).map(|place| place.object);
        let object = object.and_then(|object| self.packing.object(object));
        let is_large = matches!(object, Some(Object::Large(_)));
        for piece in self.packing.pieces(extent) {
            let start = length(piece.extent.start - extent.start);
            let into = &mut buffer.bytes[start..start + length(piece.extent.len)];
            if self.changes.is_left_out(piece.entry) {
                into.fill(0);
                continue;
            }
            if let Err(error) = self.fill_piece(piece, into, is_large) {
                self.leave_out(piece.entry, error)?;
                into.fill(0);
            }
        }
        buffer.extent = Some(extent);
        Ok(())
    }

    /// Reads a piece of a file.
    ///
    /// # Errors
    /// If the file changed otherwise than by growth, grew where that is not tolerated, or cannot be
    /// read.
    fn fill_piece(&self, piece: Piece, into: &mut [u8], is_large: bool) -> Result<(), Error> {
        let Piece { entry, offset, .. } = piece;
        match self.source.fill(entry, offset, into, is_large)? {
            Look::Same => return Ok(()),
            // Nothing compares its holes.
            Look::Grown if self.tolerance == Tolerance::None || self.has_holes(entry) => {
                return Err(self.source.changed(entry));
            }
            Look::Grown if self.tolerance == Tolerance::Follow && !is_large => {
                return Err(self.source.changed(entry));
            }
            Look::Grown => self.changes.note_grown(entry),
        }
        if !is_large {
            // Read twice alike, it was not written to meanwhile, but at its end.
            let mut again = vec![0; into.len()];
            self.source.fill(entry, offset, &mut again, is_large)?;
            if again != into {
                return Err(self.source.changed(entry));
            }
        }
        Ok(())
    }
}

impl Buffer {
    /// The bytes that were read.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A length within a block as an index.
fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("within a block")
}
