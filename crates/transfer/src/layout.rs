//! The files of a transfer, one behind the other.

use alloc::vec::Vec;

use units::Bytes;

use crate::{Extent, ExtentSet, PeerError};

/// The unit of verification, and the alignment of files in a layout: 256 KiB, 256 chunks of BLAKE3.
pub const BLOCK: u64 = 256 * 1024;
/// Extents are cut at multiples of this only, or at a file's end: 4 KiB.
pub const GRAIN: u64 = 4 * 1024;
/// The most files a layout may have.
pub const MAX_FILES: usize = 1 << 22;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 4_096;
/// The largest position a layout may reach: 64 PiB.
pub const MAX_POSITION: u64 = 1 << 56;

/// One file of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// A relative path with `/` between its components; any bytes but NUL.
    pub name: Vec<u8>,
    /// Its size.
    pub size: Bytes,
    /// Time of last modification, nanoseconds since 1970.
    pub mtime_nanos: i64,
    /// Permission bits.
    pub mode: u32,
}

/// A position as the file system sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the file in the layout.
    pub file: usize,
    /// Offset in that file, in bytes.
    pub offset: u64,
}

/// Why a list of files makes no layout. All of these are the peer's fault when the list came from a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// More than [`MAX_FILES`].
    #[error("{0} files are more than {MAX_FILES}")]
    TooManyFiles(usize),
    /// The positions would go beyond [`MAX_POSITION`].
    #[error("file {0} lies beyond the largest position")]
    TooLarge(usize),
    /// A name that is empty, too long, absolute, or has a component that is empty, `.` or `..`, or a NUL.
    #[error("the name of file {0} is not a plain relative path")]
    Name(usize),
    /// Two files of one name, or one file where another needs a directory.
    #[error("the name of file {0} is taken")]
    Taken(usize),
}

/// Where each file lies. Every file starts at a multiple of [`BLOCK`]; what is left of a file's last block stays empty.
/// An empty file takes no positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    files: Vec<FileEntry>,
    starts: Vec<u64>,
    /// The files that have bytes, so that a search never lands on an empty one.
    solid: Vec<usize>,
    total: Bytes,
    end: u64,
}

impl Layout {
    /// Lays out the files in the order given.
    ///
    /// # Errors
    /// If there are too many of them, they are too large, or a name could reach outside the target folder.
    pub fn new(files: Vec<FileEntry>) -> Result<Layout, LayoutError> {
        if files.len() > MAX_FILES {
            return Err(LayoutError::TooManyFiles(files.len()));
        }
        check_names(&files)?;
        let mut starts = Vec::with_capacity(files.len());
        let (mut end, mut total, mut solid) = (0u64, Bytes::ZERO, Vec::new());
        for (index, file) in files.iter().enumerate() {
            starts.push(end);
            if file.size.0 > MAX_POSITION || end + file.size.0 > MAX_POSITION {
                return Err(LayoutError::TooLarge(index));
            }
            if file.size.0 > 0 {
                solid.push(index);
            }
            end += file.size.0.next_multiple_of(BLOCK);
            total += file.size;
        }
        Ok(Layout { files, starts, solid, total, end })
    }

    /// The files, in layout order.
    #[must_use]
    pub fn files(&self) -> &[FileEntry] {
        &self.files
    }

    /// All bytes of all files.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.total
    }

    /// How many blocks the layout spans; blocks have the indices below.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.end / BLOCK
    }

    /// The positions of a file, or `None` if there is no such file. Empty for an empty file.
    #[must_use]
    pub fn file_extent(&self, file: usize) -> Option<Extent> {
        Some(Extent::new(*self.starts.get(file)?, self.files.get(file)?.size.0))
    }

    /// The file and offset of a position, or `None` if it belongs to no file.
    #[must_use]
    pub fn locate(&self, position: u64) -> Option<Place> {
        let after = self.solid.partition_point(|&file| self.starts[file] <= position);
        let file = self.solid[after.checked_sub(1)?];
        let offset = position - self.starts[file];
        (offset < self.files[file].size.0).then_some(Place { file, offset })
    }

    /// The positions of a block, shorter than [`BLOCK`] at a file's end; `None` if no file has it.
    #[must_use]
    pub fn block_extent(&self, block: u64) -> Option<Extent> {
        let start = block.checked_mul(BLOCK)?;
        let place = self.locate(start)?;
        Some(Extent::new(start, BLOCK.min(self.files[place.file].size.0 - place.offset)))
    }

    /// Every position of every file.
    #[must_use]
    pub fn all(&self) -> ExtentSet {
        self.solid.iter().map(|&file| Extent::new(self.starts[file], self.files[file].size.0)).collect()
    }

    /// The part of a set that consists of whole blocks.
    #[must_use]
    pub fn whole_blocks(&self, set: &ExtentSet) -> ExtentSet {
        let mut whole = ExtentSet::new();
        for part in
            self.solid.iter().flat_map(|&file| set.within(Extent::new(self.starts[file], self.files[file].size.0)))
        {
            let place = self.locate(part.start).expect("the part lies in a file");
            let file_end = part.start - place.offset + self.files[place.file].size.0;
            let end = if part.end() == file_end { file_end } else { part.end() / BLOCK * BLOCK };
            let aligned = Extent::between(part.start.next_multiple_of(BLOCK), end);
            if !aligned.is_empty() {
                whole.insert(aligned);
            }
        }
        whole
    }

    /// The file an extent lies in.
    ///
    /// # Errors
    /// If it is empty, outside every file, or crosses a file's end.
    pub fn check(&self, extent: Extent) -> Result<Place, PeerError> {
        if extent.is_empty() {
            return Err(PeerError::Empty(extent.start));
        }
        let place = self.locate(extent.start).ok_or(PeerError::OutsideFile(extent))?;
        if extent.len > self.files[place.file].size.0 - place.offset {
            return Err(PeerError::OutsideFile(extent));
        }
        Ok(place)
    }

    /// The file a data extent lies in: as [`Layout::check`], and it must lie within one block and be cut at multiples
    /// of [`GRAIN`] or the file's end.
    ///
    /// # Errors
    /// If it is none of that.
    pub fn check_data(&self, extent: Extent) -> Result<Place, PeerError> {
        let place = self.check(extent)?;
        if (extent.end() - 1) / BLOCK != extent.start / BLOCK {
            return Err(PeerError::CrossesBlock(extent));
        }
        let at_file_end = place.offset + extent.len == self.files[place.file].size.0;
        if !extent.start.is_multiple_of(GRAIN) || !(at_file_end || extent.end().is_multiple_of(GRAIN)) {
            return Err(PeerError::Misaligned(extent));
        }
        Ok(place)
    }
}

/// Rejects names that could reach outside the target folder or collide there.
fn check_names(files: &[FileEntry]) -> Result<(), LayoutError> {
    for (index, file) in files.iter().enumerate() {
        let plain = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
        let ok = file.name.len() <= MAX_NAME && !file.name.contains(&0) && file.name.split(|&b| b == b'/').all(plain);
        if !ok {
            return Err(LayoutError::Name(index));
        }
    }
    // Compared component by component, a directory's entries follow it directly: only neighbours can collide.
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by(|&a, &b| files[a].name.split(|&b| b == b'/').cmp(files[b].name.split(|&b| b == b'/')));
    for pair in order.windows(2) {
        let (first, second) = (&files[pair[0]].name, &files[pair[1]].name);
        if second.starts_with(first) && second.get(first.len()).is_none_or(|&b| b == b'/') {
            return Err(LayoutError::Taken(pair[1]));
        }
    }
    Ok(())
}
