//! The files behind the positions of a layout: large files on their own, small ones together.

use alloc::vec::Vec;
use core::ops::Range;

use units::Bytes;

use crate::layout::BLOCK;
use crate::{Extent, Layout, LayoutError, Tree};

/// A part of a file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The file's index in the tree.
    pub entry: usize,
    /// Its offset in the file, in bytes.
    pub offset: u64,
    /// Its positions in the layout.
    pub extent: Extent,
}

/// The contents of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object<'a> {
    /// The data of one file, of more than one block.
    Large(usize),
    /// The data of small files, at most a block in all: verified together, complete or absent
    /// together.
    Pack(&'a [usize]),
}

/// The layout of the wanted files of a tree. Both sides compute the same one from the same tree and
/// the same wanted files.
///
/// A file with more than [`BLOCK`] bytes of data becomes an object of its own, its data extents one
/// behind the other. Smaller files are packed into objects of at most a block, in the tree's order,
/// so that a small file needs no block and no message of its own. A file without data is in no
/// object.
#[derive(Clone, Debug)]
pub struct Packing {
    layout: Layout,
    pieces: Vec<Piece>,
    /// The files of all objects, one object behind the other.
    files: Vec<usize>,
    /// For each object, its range in `files`.
    objects: Vec<Range<usize>>,
    large: Vec<bool>,
    /// The objects that are one large file; their files are in the same order.
    of_large: Vec<usize>,
}

impl Packing {
    /// Packs the files of a tree for whose indices `wanted` returns true.
    ///
    /// # Errors
    /// If there are too many of them.
    pub fn new(tree: &Tree, wanted: impl Fn(usize) -> bool) -> Result<Packing, LayoutError> {
        let (mut files, mut objects, mut large, mut sizes) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        // The pack that is being filled.
        let mut pack: Option<usize> = None;
        for (index, file) in tree.files().filter(|(index, _)| wanted(*index)) {
            let size = file.data_len();
            if size == 0 {
                continue;
            }
            match pack {
                Some(open) if size <= BLOCK && sizes[open] + Bytes(size) <= Bytes(BLOCK) => {
                    sizes[open] += Bytes(size);
                }
                _ => {
                    if size <= BLOCK {
                        pack = Some(sizes.len());
                    }
                    sizes.push(Bytes(size));
                    objects.push(Vec::new());
                    large.push(size > BLOCK);
                }
            }
            let object =
                if size <= BLOCK { pack.expect("a pack is open") } else { objects.len() - 1 };
            objects[object].push(index);
        }
        let layout = Layout::new(sizes)?;
        let mut pieces = Vec::new();
        let mut ranges = Vec::with_capacity(objects.len());
        for (object, members) in objects.into_iter().enumerate() {
            let mut at = layout.object_extent(object).expect("an object of the layout").start;
            ranges.push(files.len()..files.len() + members.len());
            for &entry in &members {
                for (offset, len) in tree.file(entry).expect("a file of the tree").extents() {
                    pieces.push(Piece { entry, offset, extent: Extent::new(at, len) });
                    at += len;
                }
            }
            files.extend(members);
        }
        let of_large = (0..large.len()).filter(|&object| large[object]).collect();
        Ok(Packing { layout, pieces, files, objects: ranges, large, of_large })
    }

    /// Where the objects lie. The object of a stream has the room that a stream may take; the
    /// cores of the transfer begin with [`Layout::stream`].
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The contents of an object.
    #[must_use]
    pub fn object(&self, object: usize) -> Option<Object<'_>> {
        let files = &self.files[self.objects.get(object)?.clone()];
        Some(if self.large[object] { Object::Large(files[0]) } else { Object::Pack(files) })
    }

    /// The object that is the large file of this index.
    #[must_use]
    pub fn object_of_large(&self, entry: usize) -> Option<usize> {
        let file = |object: &usize| self.files[self.objects[*object].start];
        let at = self.of_large.binary_search_by_key(&entry, file).ok()?;
        Some(self.of_large[at])
    }

    /// The file whose bytes are exactly this object's, if there is one: the object's hash is then
    /// the file's hash.
    #[must_use]
    pub fn whole_file(&self, tree: &Tree, object: usize) -> Option<usize> {
        let [file] = self.files[self.objects.get(object)?.clone()] else { return None };
        let size = self.layout.object_extent(object)?.len;
        let file_size = tree.file(file)?.size;
        (file_size == size || tree.is_stream()).then_some(file)
    }

    /// The pieces of files that lie in an extent, cut to it, in order.
    pub fn pieces(&self, extent: Extent) -> impl Iterator<Item = Piece> + '_ {
        let first = self.pieces.partition_point(|piece| piece.extent.end() <= extent.start);
        self.pieces[first..].iter().take_while(move |piece| piece.extent.start < extent.end()).map(
            move |piece| {
                let cut = piece.extent.intersection(extent);
                Piece {
                    offset: piece.offset + (cut.start - piece.extent.start),
                    extent: cut,
                    ..*piece
                }
            },
        )
    }
}
