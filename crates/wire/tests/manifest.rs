//! Every manifest survives the wire; nothing that arrives can make the reader panic or believe what
//! is not plain.

use proptest::prelude::*;
use wire::WireError;
use wire::manifest::{
    Assembly, Attributes, AttributesOf, Entry, Extended, File, Kind, MAX_ATTRIBUTE_VALUE,
    MAX_ATTRIBUTES, MAX_CHUNK, MAX_DEPTH, MAX_EXTENTS, MAX_PATH, MOST_STREAMED, Part, UNKNOWN_SIZE,
    chunks, chunks_with, entries, is_kept, is_plain,
};

fn file(path: &[u8], size: u64) -> Entry {
    Entry {
        path: path.to_vec(),
        kind: Kind::File(File { size, mtime: -1, mode: 0o644, hash: None, data: None }),
    }
}

fn sparse(size: u64, data: &[(u64, u64)]) -> Entry {
    let data = Some(data.to_vec());
    Entry {
        path: b"s".to_vec(),
        kind: Kind::File(File { size, mtime: 0, mode: 0, hash: None, data }),
    }
}

fn read(chunks: &[Vec<u8>]) -> Result<Vec<Entry>, WireError> {
    let mut all = Assembly::default();
    chunks.iter().flat_map(|chunk| entries(chunk)).try_for_each(|part| all.add(part?))?;
    Ok(all.into_parts().0)
}

fn component() -> impl Strategy<Value = Vec<u8>> {
    let any = proptest::collection::vec(prop_oneof![Just(b'.'), Just(b'a'), 1u8..=255], 1..8);
    any.prop_filter("a component", |part| is_plain(part) && !part.contains(&b'/'))
}

fn extents() -> impl Strategy<Value = (u64, Vec<(u64, u64)>)> {
    (proptest::collection::vec((1u64..1_000, 1u64..1_000), 0..5), 0u64..100).prop_map(
        |(steps, tail)| {
            let mut at = 0;
            let data = steps
                .iter()
                .map(|(hole, len)| {
                    let offset = at + hole;
                    at = offset + len;
                    (offset, *len)
                })
                .collect();
            (at + tail, data)
        },
    )
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (0..UNKNOWN_SIZE, any::<i64>(), 0u16..=0o7777, any::<Option<[u8; 32]>>()).prop_map(
            |(size, mtime, mode, hash)| Kind::File(File { size, mtime, mode, hash, data: None })
        ),
        (any::<i64>(), 0u16..=0o7777).prop_map(|(mtime, mode)| {
            Kind::File(File { size: UNKNOWN_SIZE, mtime, mode, hash: None, data: None })
        }),
        (extents(), any::<i64>(), 0u16..=0o7777).prop_map(
            |((size, data), mtime, mode)| Kind::File(File {
                size,
                mtime,
                mode,
                hash: None,
                data: Some(data)
            })
        ),
        (any::<i64>(), 0u16..=0o7777).prop_map(|(mtime, mode)| Kind::Directory { mtime, mode }),
        (any::<i64>(), proptest::collection::vec(1u8..=255, 1..50))
            .prop_map(|(mtime, target)| Kind::Symlink { mtime, target }),
        any::<u32>().prop_map(|to| Kind::HardLink { to }),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (proptest::collection::vec(component(), 1..4), kind())
        .prop_map(|(parts, kind)| Entry { path: parts.join(&b'/'), kind })
}

#[test]
fn paths_lead_nowhere_but_down() {
    let deepest = [b"d/".repeat(MAX_DEPTH - 1), b"d".to_vec()].concat();
    let longest = [[b'd'; 254].as_slice(); 17].join(&b'/')[..MAX_PATH].to_vec();
    for good in
        [&b"a"[..], b"a/b", b"...", b".hidden", b"\xff\xfe/\n", &[b'n'; 255], &deepest, &longest]
    {
        assert!(is_plain(good), "{good:?}");
    }
    let (deeper, longer) = ([b"d/", &deepest[..]].concat(), [&longest[..], b"d"].concat());
    let bad = [
        &b""[..],
        b".",
        b"..",
        b"/a",
        b"a/",
        b"a//b",
        b"a/./b",
        b"a/../../b",
        b"a\0b",
        &[b'n'; 256],
        &deeper,
        &longer,
        b".anabranch-partial/x",
        b"a/.anabranch-partial",
        b"a/.anabranch-partial/x",
        b"a/.Anabranch-Partial/x",
    ];
    for bad in bad {
        assert!(!is_plain(bad), "{bad:?}");
        assert!(file(bad, 1).check().is_err(), "{bad:?}");
    }
}

#[test]
fn what_would_leave_its_folder_is_not_read() {
    let good: Vec<u8> = chunks(&[file(b"a/bc", 1)]).next().expect("a chunk");
    let at = good.windows(4).position(|part| part == b"a/bc").expect("its path");
    let mut bad = good.clone();
    bad[at..at + 4].copy_from_slice(b"../c");
    assert_eq!(read(&[bad]), Err(WireError::Field { frame: "Entries", field: "path" }));
    // A prefix that the entry before does not have.
    let mut bad = good;
    bad[2] = 1;
    assert_eq!(read(&[bad]), Err(WireError::Field { frame: "Entries", field: "shared path" }));
}

#[test]
fn data_extents_ascend_and_lie_within_the_file() {
    assert_eq!(sparse(100, &[]).check(), Ok(()));
    assert_eq!(sparse(100, &[(0, 10), (20, 80)]).check(), Ok(()));
    let bad: [&[(u64, u64)]; 7] = [
        &[(0, 0)],
        &[(0, 101)],
        &[(100, 1)],
        &[(10, 10), (15, 10)],
        &[(10, 10), (20, 1)],
        &[(10, 1), (5, 1)],
        &[(u64::MAX, 2)],
    ];
    for data in bad {
        assert_eq!(sparse(100, data).check(), Err("list of data extents"), "{data:?}");
    }
    let many: Vec<(u64, u64)> = (0..=MAX_EXTENTS as u64).map(|i| (i * 2, 1)).collect();
    assert_eq!(sparse(1 << 30, &many).check(), Err("list of data extents"));
    assert_eq!(sparse(1 << 30, &many[1..]).check(), Ok(()));
}

#[test]
fn extents_that_fill_many_chunks_come_back_as_they_went() {
    let many = |number: u64| (0..number).map(|i| (i * 3, 2)).collect::<Vec<_>>();
    let mut all = Vec::new();
    for (index, number) in [0, 1, 2_047, 2_048, 2_049, 100_000, 4_096].into_iter().enumerate() {
        let mut entry = sparse(1 << 30, &many(number));
        entry.path = format!("folder/{index}").into_bytes();
        all.extend([entry, file(format!("folder/{index}a").as_bytes(), 1)]);
    }
    let parts: Vec<Vec<u8>> = chunks(&all).collect();
    assert!(parts.len() > 20 && parts.iter().all(|part| part.len() <= MAX_CHUNK));
    assert_eq!(read(&parts), Ok(all));
}

#[test]
fn extents_continue_those_of_the_file_before_or_are_refused() {
    let good = sparse(100, &[(0, 10), (20, 10)]);
    let mut hole = good.clone();
    hole.kind = match hole.kind {
        Kind::File(file) => Kind::File(File { data: Some(Vec::new()), ..file }),
        kind => kind,
    };
    for (before, more, is_right) in [
        (Some(&good), &[(31, 1)][..], true),
        (Some(&good), &[(31, 1), (40, 60)], true),
        (Some(&good), &[(30, 1)], false),
        (Some(&good), &[(0, 1)], false),
        (Some(&good), &[(31, 70)], false),
        (Some(&good), &[(31, 0)], false),
        (Some(&good), &[(31, 1), (32, 1)], false),
        (Some(&good), &[(u64::MAX, 2)], false),
        (Some(&hole), &[(31, 1)], false),
        (Some(&file(b"a", 100)), &[(31, 1)], false),
        (None, &[(31, 1)], false),
    ] {
        let mut all = Assembly::default();
        if let Some(entry) = before {
            all.add(Part::Entry(entry.clone())).unwrap();
        }
        assert_eq!(all.add(Part::Extents(more.to_vec())).is_ok(), is_right, "{before:?} {more:?}");
        assert!(all.entries().iter().all(|entry| entry.check().is_ok()));
    }
    let mut all = Assembly::default();
    let most: Vec<(u64, u64)> = (0..MAX_EXTENTS as u64).map(|i| (i * 2, 1)).collect();
    all.add(Part::Entry(sparse(1 << 30, &most))).unwrap();
    assert!(all.add(Part::Extents(vec![(1 << 29, 1)])).is_err());
}

#[test]
fn a_stream_has_neither_hash_nor_holes() {
    let stream = file(b"db.sql", UNKNOWN_SIZE);
    assert_eq!(stream.check(), Ok(()));
    let Kind::File(stream) = stream.kind else { unreachable!("it is a file") };
    assert!(stream.is_stream() && stream.data_len() == MOST_STREAMED);
    assert_eq!(sparse(UNKNOWN_SIZE, &[(0, 10)]).check(), Err("size"));
    let hashed = File { hash: Some([0; 32]), ..stream };
    let hashed = Entry { path: b"db.sql".to_vec(), kind: Kind::File(hashed) };
    assert_eq!(hashed.check(), Err("size"));
}

fn extended(name: &str, value: &[u8]) -> Extended {
    Extended { name: name.as_bytes().to_vec(), value: value.to_vec() }
}

fn owner(uid: u32, gid: u32) -> Attributes {
    Attributes { mode: 0o4755, uid, gid, extended: Vec::new() }
}

/// What a receiver that agreed to attributes makes of the parts.
fn assembled(parts: impl IntoIterator<Item = Part>) -> Result<Assembly, WireError> {
    let mut all = Assembly::new(true);
    parts.into_iter().try_for_each(|part| all.add(part)).map(|()| all)
}

#[test]
fn attributes_of_any_length_come_back_as_they_went() {
    let link = Kind::Symlink { mtime: 1, target: b"x".to_vec() };
    let all = vec![
        Entry { path: b"d".to_vec(), kind: Kind::Directory { mtime: 0, mode: 0o700 } },
        file(b"d/a", 1),
        Entry { path: b"d/b".to_vec(), kind: link },
        sparse(100_000, &(0..5_000).map(|i| (i * 3 + 1, 1)).collect::<Vec<_>>()),
        file(b"z", 0),
    ];
    let large = vec![7; MAX_ATTRIBUTE_VALUE];
    let many = (0..MAX_ATTRIBUTES).map(|i| extended(&format!("user.{i:03}"), b""));
    let mut attributes = AttributesOf::new();
    attributes.insert(0, Attributes { extended: many.collect(), ..owner(0, u32::MAX - 1) });
    let longest = format!("user.{}", "n".repeat(250));
    let two = [extended("user.a", &large), extended(&longest, &large)];
    attributes.insert(1, Attributes { extended: two.to_vec(), ..owner(1_000, 1_000) });
    attributes.insert(2, owner(3, 4));
    let few = [extended("security.capability", b"c"), extended("system.posix_acl_access", b"a")];
    attributes.insert(3, Attributes { extended: few.to_vec(), ..owner(5, 6) });
    assert!(attributes.values().all(|one| one.check() == Ok(())));
    let parts: Vec<Vec<u8>> = chunks_with(&all, &attributes).collect();
    assert!(parts.len() > 3 && parts.iter().all(|part| part.len() <= MAX_CHUNK));
    let told = parts.iter().flat_map(|chunk| entries(chunk)).map(|part| part.expect("a part"));
    let back = assembled(told).expect("it was told in order");
    assert_eq!(back.into_parts(), (all, attributes));
}

#[test]
fn attributes_that_peers_should_not_set_are_refused() {
    for good in ["user.x", "security.capability", "system.posix_acl_default"] {
        assert!(is_kept(good.as_bytes()), "{good}");
    }
    assert!(!is_kept(format!("user.{}", "n".repeat(251)).as_bytes()));
    for bad in [
        "",
        "user.",
        "user",
        "x",
        "trusted.overlay.redirect",
        "security.selinux",
        "security.ima",
        "security.evm",
        "security.SMACK64",
        "system.nfs4_acl",
        "system.posix_acl_access.x",
        "user.a\0b",
    ] {
        let mut told = vec![6, u8::try_from(bad.len()).expect("short")];
        told.extend_from_slice(bad.as_bytes());
        told.extend_from_slice(&[0; 4]);
        let read: Result<Vec<Part>, WireError> = entries(&told).collect();
        let field = "name of an attribute";
        assert_eq!(read, Err(WireError::Field { frame: "Entries", field }), "{bad}");
    }
}

#[test]
fn an_owner_that_is_no_number_of_a_user_is_refused() {
    // To the kernel -1 means that the owner stays: the far side would keep this process's.
    for (mode, uid, gid, field) in [
        (0o755u16, u32::MAX, 0u32, "owner"),
        (0o755, 0, u32::MAX, "owner"),
        (0o10_000, 0, 0, "mode"),
    ] {
        let told = [&[5][..], &mode.to_be_bytes(), &uid.to_be_bytes(), &gid.to_be_bytes()].concat();
        let read: Result<Vec<Part>, WireError> = entries(&told).collect();
        assert_eq!(read, Err(WireError::Field { frame: "Entries", field }));
    }
    let told = [&[5, 0o17, 0o355][..], &[0; 4], &(u32::MAX - 1).to_be_bytes()].concat();
    assert!(entries(&told).all(|part| part.is_ok()));
}

#[test]
fn attributes_without_end_are_refused() {
    let begun = || vec![Part::Entry(file(b"a", 1)), Part::Owner(owner(0, 0))];
    let with = |more: Vec<Extended>| {
        assembled(begun().into_iter().chain(more.into_iter().map(Part::Attribute))).is_ok()
    };
    let many = |number: usize, bytes: usize| -> Vec<Extended> {
        (0..number).map(|i| extended(&format!("user.{i:05}"), &vec![0; bytes])).collect()
    };
    assert!(with(many(MAX_ATTRIBUTES, 1_000)) && !with(many(MAX_ATTRIBUTES + 1, 0)));
    assert!(with(many(3, MAX_ATTRIBUTE_VALUE)) && !with(many(4, MAX_ATTRIBUTE_VALUE)));
    assert!(!with(many(1, MAX_ATTRIBUTE_VALUE + 1)));
    // The same one twice, or in another order.
    assert!(!with(vec![extended("user.a", b""), extended("user.a", b"")]));
    assert!(!with(vec![extended("user.b", b""), extended("user.a", b"")]));
}

#[test]
fn attributes_belong_to_the_entry_before_or_are_refused() {
    let name = || Entry { path: b"b".to_vec(), kind: Kind::HardLink { to: 0 } };
    let stream = || file(b"s", UNKNOWN_SIZE);
    let link = Kind::Symlink { mtime: 1, target: b"x".to_vec() };
    let link = || Entry { path: b"l".to_vec(), kind: link.clone() };
    let owned = || Part::Owner(owner(1, 1));
    let attribute = || Part::Attribute(extended("user.a", b""));
    for bad in [
        vec![owned()],
        vec![attribute()],
        vec![Part::Entry(file(b"a", 1)), attribute()],
        vec![Part::Entry(file(b"a", 1)), owned(), owned()],
        vec![Part::Entry(file(b"a", 1)), Part::Entry(name()), owned()],
        vec![Part::Entry(stream()), owned()],
        vec![Part::Entry(link()), owned(), attribute()],
    ] {
        assert!(assembled(bad.clone()).is_err(), "{bad:?}");
    }
    // Without an agreement there are none.
    let mut all = Assembly::default();
    all.add(Part::Entry(file(b"a", 1))).expect("an entry");
    assert!(all.add(owned()).is_err());
}

#[test]
fn chunks_are_bounded_and_stand_alone() {
    let all: Vec<Entry> =
        (0..20_000u64).map(|i| file(format!("folder/file{i:05}").as_bytes(), i)).collect();
    let parts: Vec<Vec<u8>> = chunks(&all).collect();
    assert!(
        parts.len() > 5 && parts.iter().all(|part| part.len() <= MAX_CHUNK),
        "{} chunks",
        parts.len()
    );
    let bytes: usize = parts.iter().map(Vec::len).sum();
    assert!(bytes < 20_000 * 30, "shared parts of paths are said once: {bytes} bytes");
    assert_eq!(read(&parts), Ok(all.clone()));
    let last = parts.last().expect("a chunk");
    let tail = read(std::slice::from_ref(last)).expect("read by itself");
    assert_eq!(tail, all[all.len() - tail.len()..]);
}

proptest! {
    #[test]
    fn a_manifest_comes_back_as_it_went(all in proptest::collection::vec(entry(), 0..40)) {
        prop_assert!(all.iter().all(|entry| entry.check().is_ok()));
        let parts: Vec<Vec<u8>> = chunks(&all).collect();
        prop_assert_eq!(read(&parts), Ok(all));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(chunk in proptest::collection::vec(any::<u8>(), 0..300)) {
        let read: Vec<_> = entries(&chunk).collect();
        prop_assert!(read.iter().rev().skip(1).all(Result::is_ok), "an error is the last word");
        for part in read.into_iter().flatten() {
            if let Part::Entry(entry) = part {
                prop_assert_eq!(entry.check(), Ok(()));
            }
        }
    }

    #[test]
    fn a_damaged_manifest_is_read_or_refused(
        all in proptest::collection::vec(entry(), 1..10),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let mut chunk = chunks(&all).next().expect("a chunk");
        let at = at.index(chunk.len());
        chunk[at] = to;
        let mut all = Assembly::new(true);
        let _ = entries(&chunk).flatten().try_for_each(|part| all.add(part));
        for entry in all.entries() {
            prop_assert_eq!(entry.check(), Ok(()));
        }
    }
}
