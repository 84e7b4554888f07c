//! The journal beside a partial file: its verified blocks.
//!
//! ```text
//! header   "ANABJRNL"  u16 version  u16 name length  u32 block size  u64 file size  i64 mtime (ns)
//!          [32] fingerprint of the sender's key  [16] session id  name  [8] check
//! record   u64 block (counted from the file's start)  [32] chaining value  [8] check
//! ```
//!
//! Numbers are little-endian. A check is the first 8 bytes of BLAKE3: of the header before it, or
//! of the header's check followed by the record, so that a record of another journal fails it.
//! Records are only appended, each at a multiple of the record length behind the header. A power
//! loss may keep any of the records that were not synced, and a bad disk may change any record. A
//! record that fails its check is skipped, and its block is transferred again. Bytes behind the
//! last good record are ignored.

use alloc::vec::Vec;

use wire::manifest::MAX_PATH;

use crate::Cv;
use crate::layout::BLOCK;

const MAGIC: &[u8; 8] = b"ANABJRNL";
const VERSION: u16 = 1;
const FIXED: usize = 80;
const CHECK: usize = 8;

/// Length of an encoded record, in bytes.
pub const RECORD_LEN: usize = 48;

/// The longest encoded header, in bytes.
pub const MAX_HEADER_LEN: usize = FIXED + MAX_PATH + CHECK;

/// The file and the transfer that a journal belongs to. A resumed transfer may use the journal only
/// if all fields but the session agree; the session tells whether the same session continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The file's data, in bytes.
    pub size: u64,
    /// The source's time of last modification, nanoseconds since 1970.
    pub mtime_nanos: i64,
    /// Name of the file in the transfer, at most [`MAX_PATH`] bytes.
    pub name: Vec<u8>,
    /// Fingerprint of the sender's key.
    pub sender: [u8; 32],
    /// The session that began the file.
    pub session: [u8; 16],
}

/// A verified block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The block's index, counted from the file's start.
    pub block: u64,
    /// Its chaining value.
    pub cv: Cv,
}

/// Why a journal cannot be used. The partial file then starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// It ends before its header does.
    #[error("the journal ends within its header")]
    Short,
    /// It does not begin with the magic bytes.
    #[error("not a journal")]
    Magic,
    /// A version that this code cannot read.
    #[error("the journal has version {0}, not {VERSION}")]
    Version(u16),
    /// Blocks of another size.
    #[error("the journal has blocks of {0} bytes, not {BLOCK}")]
    BlockSize(u32),
    /// A file name longer than [`MAX_PATH`].
    #[error("the journal's file name has {0} bytes")]
    Name(u16),
    /// The header fails its check.
    #[error("the journal's header is corrupt")]
    Corrupt,
}

/// A check value: the first bytes of a BLAKE3 hash.
type Check = [u8; CHECK];

/// Encodes journals, and reads them.
#[derive(Clone, Debug)]
pub struct Journal {
    check: Check,
    blocks: u64,
}

impl Journal {
    /// The journal for a file, and its encoded header.
    ///
    /// # Panics
    /// If the name is longer than [`MAX_PATH`]; a [`Tree`](crate::Tree) has no such name.
    #[must_use]
    pub fn create(header: &Header) -> (Journal, Vec<u8>) {
        assert!(header.name.len() <= MAX_PATH, "names are no longer than a tree's");
        let name_len = u16::try_from(header.name.len()).expect("MAX_PATH fits");
        let block = u32::try_from(BLOCK).expect("256 KiB fits");
        let mut bytes = Vec::with_capacity(FIXED + header.name.len() + CHECK);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&name_len.to_le_bytes());
        bytes.extend_from_slice(&block.to_le_bytes());
        bytes.extend_from_slice(&header.size.to_le_bytes());
        bytes.extend_from_slice(&header.mtime_nanos.to_le_bytes());
        bytes.extend_from_slice(&header.sender);
        bytes.extend_from_slice(&header.session);
        bytes.extend_from_slice(&header.name);
        let check = check_of(&[&bytes]);
        bytes.extend_from_slice(&check);
        (Journal { check, blocks: header.size.div_ceil(BLOCK) }, bytes)
    }

    /// Encodes a record.
    #[must_use]
    pub fn record(&self, record: Record) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..8].copy_from_slice(&record.block.to_le_bytes());
        bytes[8..40].copy_from_slice(&record.cv.0);
        let check = check_of(&[&self.check, &bytes[..40]]);
        bytes[40..].copy_from_slice(&check);
        bytes
    }

    /// Reads a whole journal.
    ///
    /// # Errors
    /// If its header cannot be used. Unusable records are skipped, not errors.
    pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, JournalError> {
        let (header, journal, len) = parse_header(bytes)?;
        Ok(Parsed {
            header,
            records: Records { journal, bytes: &bytes[len..], read: len, used: len },
        })
    }

    /// Reads a journal's header from its first bytes: at least [`MAX_HEADER_LEN`] of them, or the
    /// whole journal. Returns the header's length too; the records behind it can be read piece by
    /// piece with [`Journal::records`].
    ///
    /// # Errors
    /// If the header cannot be used.
    pub fn open(bytes: &[u8]) -> Result<(Header, Journal, usize), JournalError> {
        parse_header(bytes)
    }

    /// The records in a piece of the journal. The piece must begin at a record.
    #[must_use]
    pub fn records<'a>(&self, bytes: &'a [u8]) -> Records<'a> {
        Records { journal: self.clone(), bytes, read: 0, used: 0 }
    }
}

/// A journal that was read.
#[derive(Clone, Debug)]
pub struct Parsed<'a> {
    /// The file that it belongs to.
    pub header: Header,
    /// Its usable records.
    pub records: Records<'a>,
}

/// The usable records of a journal, in the order of writing; corrupt ones are skipped.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    journal: Journal,
    bytes: &'a [u8],
    /// Bytes read so far, and bytes up to the end of the last good record.
    read: usize,
    used: usize,
}

impl Records<'_> {
    /// The end of the last good record, in bytes, once the iterator is exhausted. Truncate the
    /// journal to this length before appending to it.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// The encoder for further records of this journal.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            let (bytes, rest) = self.bytes.split_first_chunk::<RECORD_LEN>()?;
            self.bytes = rest;
            self.read += RECORD_LEN;
            let record =
                Record { block: u64::from_le_bytes(array(bytes, 0)), cv: Cv(array(bytes, 8)) };
            if record.block < self.journal.blocks && self.journal.record(record) == *bytes {
                self.used = self.read;
                return Some(record);
            }
        }
    }
}

fn parse_header(bytes: &[u8]) -> Result<(Header, Journal, usize), JournalError> {
    let fixed: &[u8; FIXED] = bytes.first_chunk().ok_or(JournalError::Short)?;
    if !fixed.starts_with(MAGIC) {
        return Err(JournalError::Magic);
    }
    let version = u16::from_le_bytes(array(fixed, 8));
    if version != VERSION {
        return Err(JournalError::Version(version));
    }
    let name_len = u16::from_le_bytes(array(fixed, 10));
    if usize::from(name_len) > MAX_PATH {
        return Err(JournalError::Name(name_len));
    }
    let block = u32::from_le_bytes(array(fixed, 12));
    if u64::from(block) != BLOCK {
        return Err(JournalError::BlockSize(block));
    }
    let end = FIXED + usize::from(name_len);
    let check = bytes.get(end..end + CHECK).ok_or(JournalError::Short)?;
    let expected = check_of(&[&bytes[..end]]);
    if check != expected {
        return Err(JournalError::Corrupt);
    }
    let header = Header {
        size: u64::from_le_bytes(array(fixed, 16)),
        mtime_nanos: i64::from_le_bytes(array(fixed, 24)),
        sender: array(fixed, 32),
        session: array(fixed, 64),
        name: bytes[FIXED..end].to_vec(),
    };
    let journal = Journal { check: expected, blocks: header.size.div_ceil(BLOCK) };
    Ok((header, journal, end + CHECK))
}

fn check_of(parts: &[&[u8]]) -> Check {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    array(hasher.finalize().as_bytes(), 0)
}

/// The `N` bytes at `at`; callers pass fields of fixed layouts.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("a field of a fixed layout")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            size: 10 * BLOCK + 1,
            mtime_nanos: -5,
            name: b"folder/file".to_vec(),
            sender: [7; 32],
            session: [9; 16],
        }
    }

    fn written(blocks: &[u64]) -> Vec<u8> {
        let (journal, mut bytes) = Journal::create(&header());
        for &block in blocks {
            bytes.extend_from_slice(&journal.record(Record { block, cv: Cv([3; 32]) }));
        }
        bytes
    }

    fn blocks(bytes: &[u8]) -> Vec<u64> {
        Journal::parse(bytes).expect("a good header").records.map(|record| record.block).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = written(&[3, 0, 10]);
        let parsed = Journal::parse(&bytes).expect("a journal");
        assert_eq!(parsed.header, header());
        let mut records = parsed.records;
        assert_eq!(records.by_ref().map(|record| record.block).collect::<Vec<_>>(), [3, 0, 10]);
        assert_eq!(records.used(), bytes.len());
    }

    #[test]
    fn a_journal_can_be_read_in_pieces() {
        let bytes = written(&[1, 2, 3, 4]);
        let (_, journal, at) = Journal::open(&bytes[..120]).expect("the header is there");
        let (first, second) = bytes[at..].split_at(2 * RECORD_LEN);
        let read: Vec<u64> =
            journal.records(first).chain(journal.records(second)).map(|r| r.block).collect();
        assert_eq!(read, [1, 2, 3, 4]);
    }

    #[test]
    fn torn_anywhere_it_yields_the_whole_records() {
        let bytes = written(&[3, 0, 10]);
        let start = bytes.len() - 3 * RECORD_LEN;
        for cut in 0..bytes.len() {
            match Journal::parse(&bytes[..cut]) {
                Ok(parsed) => assert_eq!(parsed.records.count(), (cut - start) / RECORD_LEN),
                Err(error) => {
                    assert!(cut < start && error == JournalError::Short, "{error} at {cut}");
                }
            }
        }
    }

    #[test]
    fn a_corrupt_record_costs_its_block_only() {
        for bit in 0..RECORD_LEN * 8 {
            let mut bytes = written(&[3, 0, 10]);
            let at = bytes.len() - 2 * RECORD_LEN + bit / 8;
            bytes[at] ^= 1 << (bit % 8);
            assert_eq!(blocks(&bytes), [3, 10], "bit {bit}");
            let mut records = Journal::parse(&bytes).expect("a good header").records;
            assert_eq!(records.by_ref().count(), 2);
            assert_eq!(records.used(), bytes.len());
            // Nothing good follows a corrupt last one: the next takes its place.
            let mut records =
                Journal::parse(&bytes[..bytes.len() - RECORD_LEN]).expect("a good header").records;
            assert_eq!(records.by_ref().count(), 1);
            assert_eq!(records.used(), bytes.len() - 2 * RECORD_LEN);
        }
    }

    #[test]
    fn records_of_another_journal_do_not_pass() {
        let (other, _) = Journal::create(&Header { session: [1; 16], ..header() });
        let mut bytes = written(&[1]);
        bytes.extend_from_slice(&other.record(Record { block: 2, cv: Cv([3; 32]) }));
        assert_eq!(blocks(&bytes), [1]);
    }

    #[test]
    fn blocks_beyond_the_file_do_not_pass() {
        assert_eq!(blocks(&written(&[10, 11, 1])), [10, 1]);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            good in any::<bool>(),
        ) {
            let mut all = if good { written(&[5]) } else { Vec::new() };
            all.extend_from_slice(&bytes);
            if let Ok(parsed) = Journal::parse(&all) {
                prop_assert!(parsed.records.count() <= all.len() / RECORD_LEN);
            }
        }

        #[test]
        fn a_flipped_header_never_passes(bit in 0usize..(80 + 11 + 8) * 8) {
            let mut bytes = written(&[5]);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Journal::parse(&bytes).is_err());
        }
    }
}
