//! Trees: which entries can exist together, and the packing of their files.
#![allow(missing_docs)]

use proptest::prelude::*;
use transfer::{BLOCK, Extent, Object, Packing, Piece, Tree, TreeError};
use units::Bytes;
use wire::manifest::{Entry, File, Kind};

fn entry(path: &[u8], kind: Kind) -> Entry {
    Entry { path: path.to_vec(), kind }
}

fn file(path: &[u8], size: u64) -> Entry {
    entry(path, Kind::File(File { size, mtime: 0, mode: 0o644, hash: None, data: None }))
}

fn directory(path: &[u8]) -> Entry {
    entry(path, Kind::Directory { mtime: 0, mode: 0o755 })
}

fn symlink(path: &[u8]) -> Entry {
    entry(path, Kind::Symlink { mtime: 0, target: b"/etc".to_vec() })
}

fn link(path: &[u8], to: u32) -> Entry {
    entry(path, Kind::HardLink { to })
}

#[test]
fn names_that_could_leave_the_folder_or_collide() {
    let make = |entries: Vec<Entry>| Tree::new(entries).err();
    for bad in [&b""[..], b"/etc/passwd", b"a//b", b"a/", b"..", b"a/../../b", b"./a", b"a\0b"] {
        let error = make(vec![file(b"ok", 1), file(bad, 1)]);
        assert!(
            matches!(error, Some(TreeError::Entry { field: "path", .. })),
            "{}",
            String::from_utf8_lossy(bad)
        );
    }
    let taken = |path: &str| Some(TreeError::Taken(path.into()));
    assert_eq!(make(vec![file(b"a", 1), file(b"b", 1), file(b"a", 1)]), taken("a"));
    assert_eq!(make(vec![directory(b"a"), directory(b"a")]), taken("a"));
    // A link in place of a folder would redirect the entries below it.
    for way in [file(b"a", 1), symlink(b"a")] {
        assert_eq!(make(vec![file(b"a/b/c", 1), file(b"a!", 1), way.clone()]), taken("a"));
        assert_eq!(make(vec![way, directory(b"a/b")]), taken("a"));
    }
    assert_eq!(make(vec![file(b"f", 1), link(b"a", 0), file(b"a/b", 1)]), taken("a"));
    let good = vec![
        directory(b"a"),
        file(b"a/b", 1),
        file(b"a/c", 1),
        file(b"a!", 1),
        symlink(b"ab"),
        file(b"x/y", 1),
    ];
    assert_eq!(make(good), None);
}

#[test]
fn hard_links_are_names_of_files_before_them() {
    let make = |entries: Vec<Entry>| Tree::new(entries).err();
    assert_eq!(make(vec![file(b"a", 1), link(b"b", 0), link(b"c", 0)]), None);
    let bad = |path: &str| Some(TreeError::Link(path.into()));
    assert_eq!(make(vec![link(b"b", 0)]), bad("b"), "itself");
    assert_eq!(make(vec![link(b"b", 1), file(b"a", 1)]), bad("b"), "a later one");
    assert_eq!(make(vec![symlink(b"a"), link(b"b", 0)]), bad("b"), "a symbolic link");
    assert_eq!(make(vec![directory(b"a"), link(b"b", 0)]), bad("b"), "a folder");
    assert_eq!(make(vec![file(b"a", 1), link(b"b", 0), link(b"c", 1)]), bad("c"), "another link");
    assert_eq!(make(vec![file(b"a", 1), link(b"b", u32::MAX)]), bad("b"), "nothing");
}

#[test]
fn more_data_than_positions_is_no_tree() {
    assert_eq!(Tree::new(vec![file(b"a", u64::MAX - 1)]), Err(TreeError::TooLarge));
    assert_eq!(Tree::new(vec![file(b"a", u64::MAX - 1), file(b"b", 2)]), Err(TreeError::TooLarge));
}

#[test]
fn a_stream_is_a_tree_of_its_own() {
    let stream = || file(b"db.sql", wire::manifest::UNKNOWN_SIZE);
    let tree = Tree::new(vec![stream()]).expect("a stream");
    assert!(tree.is_stream() && tree.data() == Bytes::ZERO);
    let packing = Packing::new(&tree, |_| true).expect("it has room");
    assert_eq!(packing.object(0), Some(Object::Large(0)));
    assert_eq!(packing.layout().total(), Bytes(wire::manifest::MOST_STREAMED));
    assert_eq!(packing.whole_file(&tree, 0), Some(0));
    let others = Tree::new(vec![file(b"a", 1), stream()]);
    assert_eq!(others, Err(TreeError::Stream("db.sql".into())));
}

#[test]
fn small_files_share_a_block() {
    let entries: Vec<Entry> =
        (0..200).map(|i| file(format!("f{i:03}").as_bytes(), 4_096)).collect();
    let tree = Tree::new(entries).expect("good");
    let packing = Packing::new(&tree, |_| true).expect("small");
    assert_eq!(packing.layout().objects(), 4);
    assert_eq!(packing.layout().blocks(), 4);
    let Some(Object::Pack(files)) = packing.object(1) else { panic!("it is a pack") };
    assert_eq!(files, (64..128).collect::<Vec<_>>());
    assert_eq!(packing.object(4), None);
}

#[test]
fn a_large_file_is_an_object_and_interrupts_no_pack() {
    let tree =
        Tree::new(vec![file(b"a", 10), file(b"b", BLOCK + 1), file(b"c", 0), file(b"d", 20)])
            .expect("good");
    let packing = Packing::new(&tree, |_| true).expect("small");
    assert_eq!(packing.object(0), Some(Object::Pack(&[0, 3])));
    assert_eq!(packing.object(1), Some(Object::Large(1)));
    assert_eq!((packing.whole_file(&tree, 0), packing.whole_file(&tree, 1)), (None, Some(1)));
    // Wanted alone, a small file is its object.
    let packing = Packing::new(&tree, |index| index == 3).expect("small");
    assert_eq!((packing.layout().objects(), packing.whole_file(&tree, 0)), (1, Some(3)));
}

fn sparse() -> impl Strategy<Value = File> {
    (proptest::collection::vec((1u64..300_000, 1u64..200_000), 0..4), 0u64..3).prop_map(
        |(steps, tail)| {
            let mut at = 0;
            let data: Vec<(u64, u64)> = steps
                .into_iter()
                .map(|(hole, len)| {
                    let offset = at + hole;
                    at = offset + len;
                    (offset, len)
                })
                .collect();
            File { size: at + tail, mtime: 0, mode: 0, hash: None, data: Some(data) }
        },
    )
}

fn dense(size: u64) -> File {
    File { size, mtime: 0, mode: 0, hash: None, data: None }
}

proptest! {
    /// Every byte of data of every wanted file is in the layout once, in order, and nothing else
    /// is.
    #[test]
    fn a_packing_is_its_files(
        files in proptest::collection::vec((prop_oneof![
            4 => (0u64..30_000).prop_map(dense),
            1 => (0u64..3 * BLOCK).prop_map(dense),
            2 => sparse(),
        ], any::<bool>()), 0..40),
        cut in (0u64..BLOCK, 1u64..BLOCK),
    ) {
        let entries = files.iter().enumerate();
        let entries = entries
            .map(|(i, (file, _))| entry(format!("{i}").as_bytes(), Kind::File(file.clone())));
        let tree = Tree::new(entries.collect()).expect("good");
        let packing = Packing::new(&tree, |index| files[index].1).expect("small");
        let layout = packing.layout();
        let wanted = files.iter().filter(|(_, wanted)| *wanted);
        let total: u64 = wanted.map(|(file, _)| file.data_len()).sum();
        prop_assert_eq!(layout.total(), Bytes(total));
        let mut found: Vec<Vec<(u64, u64)>> = vec![Vec::new(); files.len()];
        for object in 0..layout.objects() {
            let extent = layout.object_extent(object).expect("an object");
            let members = match packing.object(object).expect("an object") {
                Object::Large(file) => {
                    prop_assert!(extent.len > BLOCK);
                    vec![file]
                }
                Object::Pack(files) => {
                    prop_assert!(extent.len <= BLOCK);
                    files.to_vec()
                }
            };
            let mut at = extent.start;
            for piece in packing.pieces(extent) {
                prop_assert_eq!(piece.extent.start, at);
                at = piece.extent.end();
                prop_assert!(members.contains(&piece.entry));
                found[piece.entry].push((piece.offset, piece.extent.len));
            }
            prop_assert_eq!(at, extent.end());
            // A part of the extent yields the parts of its pieces.
            let part = Extent::new(extent.start + cut.0, cut.1).intersection(extent);
            let bytes: u64 = packing.pieces(part).map(|piece| piece.extent.len).sum();
            prop_assert_eq!(bytes, part.len);
            for piece in packing.pieces(part) {
                let overlaps = |whole: &Piece| {
                    !whole.extent.intersection(piece.extent).is_empty()
                };
                let whole = packing.pieces(extent).find(overlaps).expect("a piece around it");
                let skipped = piece.extent.start - whole.extent.start;
                prop_assert_eq!(piece.offset - whole.offset, skipped);
            }
        }
        for (index, (file, wanted)) in files.iter().enumerate() {
            let expected: Vec<_> = if *wanted { file.extents().collect() } else { Vec::new() };
            prop_assert_eq!(&found[index], &expected);
        }
    }
}
