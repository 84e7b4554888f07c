//! The checks of the fuzz targets for file transfers. The test `fuzz_seeds` of the crate `net` runs
//! them on all seeds.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::{self, FromStr};

use files::{AskedFor, ServedNames, matches_glob};

use peer::{Fingerprint, PathSpec, Remote, Timetable, Token};
use transfer::journal::{Journal, MAX_HEADER_LEN, RECORD_LEN, Record};
use transfer::{BLOCK, Cv, Extent, ExtentSet, Layout, Packing, Receiver, Tree, Verdict};
use units::{Bytes, Rate, Span};
use wire::manifest::{self, Assembly, Kind, Part};

/// A journal: whatever the disk returns, its records name blocks of the file, are the same read
/// whole or in pieces, and survive a round trip.
pub fn journal(data: &[u8]) {
    let parsed = Journal::parse(data);
    let opened = Journal::open(&data[..data.len().min(MAX_HEADER_LEN)]);
    let (parsed, (header, format, length)) = match (parsed, opened) {
        (Ok(parsed), Ok(opened)) => (parsed, opened),
        (parsed, opened) => {
            assert_eq!(parsed.err(), opened.err());
            return;
        }
    };
    assert_eq!(parsed.header, header);
    let (again, written) = Journal::create(&header);
    assert_eq!(written, data[..length]);
    let mut records = parsed.records;
    let whole: Vec<Record> = records.by_ref().collect();
    assert!(records.used() <= data.len() && (records.used() - length) % RECORD_LEN == 0);
    for record in &whole {
        assert!(record.block < header.size.div_ceil(BLOCK), "{record:?}");
        let bytes = again.record(*record);
        assert!(data[length..].chunks_exact(RECORD_LEN).any(|read| read == bytes), "{record:?}");
    }
    let pieces = data[length..].chunks(3 * RECORD_LEN).flat_map(|piece| format.records(piece));
    assert_eq!(pieces.collect::<Vec<_>>(), whole);
}

/// Quantities as people write them: an error with a message, or a quantity that survives a round
/// trip in its smallest unit.
pub fn quantity(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let smallest = |found: Option<String>| found.unwrap_or_default();
    let rate = |text: &str| read::<Rate>(text).map(|rate| format!("{} bit/s", rate.as_bits()));
    let span = |text: &str| read::<Span>(text).map(|span| format!("{} ns", span.as_nanos()));
    let bytes = |text: &str| read::<Bytes>(text).map(|bytes| format!("{} B", bytes.0));
    for (first, again) in [
        (rate(text), rate(&smallest(rate(text)))),
        (span(text), span(&smallest(span(text)))),
        (bytes(text), bytes(&smallest(bytes(text)))),
    ] {
        assert_eq!(first, again, "{text:?}");
    }
}

/// Paths, times, hosts and keys as people write them: an error with a message, or a value that
/// survives a round trip.
pub fn words(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let _ = read::<PathSpec>(text);
    if let Some(timetable) = read::<Timetable>(text) {
        assert_eq!(
            timetable.to_string().parse::<Timetable>().ok().as_ref(),
            Some(&timetable),
            "{text:?}"
        );
    }
    if let Some(remote) = read::<Remote>(text) {
        assert_eq!(remote.to_string().parse::<Remote>().as_ref(), Ok(&remote), "{text:?}");
    }
    if let Some(fingerprint) = read::<Fingerprint>(text) {
        assert_eq!(
            fingerprint.to_string().parse::<Fingerprint>().ok(),
            Some(fingerprint),
            "{text:?}"
        );
    }
    if let Some(token) = read::<Token>(text) {
        assert_eq!(token.reveal().parse::<Token>().as_ref(), Ok(&token), "{text:?}");
    }
}

/// The parsed value; checks that an error has a message.
fn read<T: FromStr<Err: ToString>>(text: &str) -> Option<T> {
    match text.parse() {
        Ok(found) => Some(found),
        Err(error) => {
            assert!(!error.to_string().is_empty(), "{text:?}");
            None
        }
    }
}

/// A manifest's entries as a tree: an error with a message, or a tree in which every byte of data
/// has one place, in one file.
pub fn tree(data: &[u8]) {
    let (entries, attributes) = assembled(data).into_parts();
    let Ok(tree) = Tree::with_attributes(entries, attributes) else { return };
    assert!(tree.attributes_of().keys().all(|&index| index < tree.entries().len()));
    let Ok(packing) = Packing::new(&tree, |index| index % 3 != 2) else { return };
    let layout = packing.layout();
    let wanted = |index: usize| index % 3 != 2 && tree.file(index).is_some();
    let wanted = (0..tree.entries().len()).filter(|&index| wanted(index));
    let expected: Bytes =
        wanted.filter_map(|index| tree.file(index)).map(|file| Bytes(file.data_len())).sum();
    assert_eq!(layout.total(), expected);
    for object in (0..layout.objects()).take(64) {
        let whole = layout.object_extent(object).expect("an object of the layout");
        assert_eq!(whole.start % BLOCK, 0);
        for block in [whole.start / BLOCK, whole.end().saturating_sub(1) / BLOCK] {
            let Some(extent) = layout.block_extent(block) else { continue };
            let mut at = extent.start;
            for piece in packing.pieces(extent) {
                assert_eq!(piece.extent.start, at, "pieces lie one behind the other");
                let file = tree.file(piece.entry).expect("a file of the tree");
                let most = if file.is_stream() { manifest::MOST_STREAMED } else { file.size };
                assert!(piece.offset + piece.extent.len <= most, "{piece:?}");
                at = piece.extent.end();
            }
            assert_eq!(at, extent.end(), "they are all of the block");
        }
    }
}

/// The entries of a chunk, up to the first that is none.
fn assembled(data: &[u8]) -> Assembly {
    let mut entries = Assembly::new(true);
    let mut bytes = 0;
    for part in manifest::entries(data) {
        let Ok(part) = part else { break };
        if let Part::Entry(entry) = &part {
            bytes += entry.path.len();
        }
        if bytes > 1 << 18 || entries.add(part).is_err() {
            break;
        }
    }
    entries
}

/// What somebody asks for, what the far side of a copy calls it, and the entries of its offer: a
/// message, or a tree in which every path follows from what was asked for, and no link stands in
/// its place.
///
/// Four lines of names that are separated by spaces: what is asked for, its name here, the far
/// side's names, its new name; then a chunk of a manifest. Returns whether there is a tree.
pub fn offer(data: &[u8]) -> bool {
    let mut parts = data.splitn(5, |&byte| byte == b'\n');
    let mut names = || {
        let line = parts.next().unwrap_or_default();
        let names = line.split(|&byte| byte == b' ').filter(|name| !name.is_empty());
        names.map(|name| OsString::from_vec(name.to_vec())).collect::<Vec<_>>()
    };
    let (names, rename, served, renamed) = (names(), names().pop(), names(), names().pop());
    let chunk = parts.next().unwrap_or_default();
    // A person renames to a plain name: the program checks that first.
    if rename.as_ref().is_some_and(|name| name.as_bytes().contains(&b'/')) {
        return false;
    }
    let asked: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    let mut asked = AskedFor::new(asked, rename.clone());
    if !served.is_empty() {
        match asked.answered(ServedNames { names: served, rename: renamed }) {
            Ok(answered) => asked = answered,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return false;
            }
        }
    }
    let (entries, attributes) = assembled(chunk).into_parts();
    let Ok(tree) = asked.tree(entries, attributes) else { return false };
    let lasts = || names.iter().filter_map(|name| name.as_bytes().rsplit(|&b| b == b'/').next());
    let asks_for_contents = lasts().any(|last| matches!(last, b"" | b"." | b".."));
    for entry in tree.entries() {
        let top = entry.path.split(|&byte| byte == b'/').next().expect("there is one");
        assert!(!matches!(top, b"" | b"." | b".."), "{entry:?}");
        let is_asked = match &rename {
            Some(rename) => top == rename.as_bytes(),
            None => asks_for_contents || lasts().any(|last| last == top || matches_glob(last, top)),
        };
        assert!(is_asked, "{entry:?}");
        let is_link = matches!(entry.kind, Kind::Symlink { .. }) && top == entry.path;
        assert!(!is_link || asks_for_contents && rename.is_none(), "{entry:?}");
    }
    !tree.entries().is_empty()
}

/// A receiver with a sender that sends anything: no byte is written twice unless it was refused,
/// and only blocks with the right hash count.
pub fn receiver(data: &[u8]) {
    let sizes = [300_000, 0, 5_000, BLOCK, 3 * BLOCK + 1].map(Bytes);
    exercise(&Layout::new(sizes).expect("a small layout"), data);
    exercise(&Layout::stream(0), data);
}

/// Feeds a receiver of this layout.
fn exercise(layout: &Layout, data: &[u8]) {
    let mut receiver = Receiver::new(layout, &ExtentSet::new());
    let (mut claimed, mut good) = (ExtentSet::new(), ExtentSet::new());
    for said in data.chunks_exact(6) {
        let number = |at: usize| u64::from(u16::from_be_bytes([said[at], said[at + 1]]));
        let scale = [1, 4_096, BLOCK, u64::MAX >> 17][usize::from(said[0] & 3)];
        let extent = Extent::new(
            number(1).saturating_mul(scale.min(4_096)),
            number(3).saturating_mul(scale),
        );
        if said[0] & 8 != 0 {
            let before = receiver.layout().clone();
            let is_end = said[5] & 4 != 0;
            let size = number(3).saturating_mul(if is_end { scale } else { BLOCK });
            let grown = receiver.handle_grown(size, is_end);
            let is_bad = grown.is_err();
            assert!(!is_bad || *receiver.layout() == before, "a refused size changes nothing");
            assert!(receiver.layout().total() >= before.total());
        }
        match receiver.handle_data(extent) {
            Ok(fresh) => {
                for piece in &fresh.pieces {
                    assert_eq!(claimed.insert(*piece), [*piece], "claimed twice");
                    if said[0] & 4 == 0 {
                        receiver.handle_written(*piece).expect("it was claimed");
                    } else {
                        receiver.handle_abandoned(*piece);
                        claimed.remove(*piece);
                    }
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        let _ = receiver.handle_hash(number(1) >> (said[0] & 7), Cv([said[5] & 1; 32]));
        while let Some(block) = receiver.poll_verify() {
            let is_good = said[5] & 2 != 0;
            match receiver.handle_verified(block.index, is_good) {
                Verdict::Verified { .. } => {
                    assert_eq!(good.insert(block.extent), [block.extent], "verified twice");
                }
                Verdict::Refuse(extent) => {
                    assert!(!is_good && extent == block.extent);
                    claimed.remove(extent);
                }
            }
        }
        assert_eq!(receiver.verified().total(), good.total());
        assert!(receiver.received() <= receiver.layout().total());
    }
    let layout = receiver.layout();
    let is_complete = good.total() == layout.total() && !layout.is_growing();
    assert_eq!(receiver.is_complete(), is_complete);
}
