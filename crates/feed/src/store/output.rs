//! Where the records of one stream go.

use std::io;
use std::ops::Range;

/// Where the records of one stream go: files, or a command with a position.
///
/// What is written is not safe before it is synced.
pub(super) trait Output: Send {
    /// The number of the record behind what is written.
    fn next(&self) -> u64;

    /// Records before this one are nobody's: what follows begins with it.
    ///
    /// # Errors
    /// The system's.
    fn skip_to(&mut self, next: u64) -> io::Result<()>;

    /// Writes whole records, framed, which follow those that are written.
    ///
    /// # Errors
    /// The system's.
    fn write(&mut self, numbers: Range<u64>, octets: &[u8]) -> io::Result<()>;

    /// Makes what was written last.
    ///
    /// # Errors
    /// The system's.
    fn sync(&mut self) -> io::Result<()>;

    /// Takes back what was written and is not safe, because nothing more will be.
    fn undo(&mut self);

    /// The first record of the file that is written to, if there is one, and the length of it that
    /// is safe.
    fn safe_part(&self) -> (Option<u64>, u64) {
        (None, 0)
    }

    /// The records that are written and not synced, if somebody else is to take them in between.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::WouldBlock`], if somebody has them still.
    fn batch(&self) -> io::Result<Option<Records>> {
        Ok(None)
    }
}

/// Records that somebody else is to take: their numbers, and a file that begins with them.
pub(super) type Records = (Range<u64>, std::fs::File);
