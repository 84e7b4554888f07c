//! What a collector has of a source.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use study::StudyError;
use units::Bytes;

use super::super::file_error;
use super::source::{LENGTH, RECORD};

/// What the collector has of a feed, whose folder this is, with the length of each record. Files
/// behind which there is another one are removed.
///
/// # Errors
/// If the folder cannot be read.
pub(super) fn received(feed: &Path) -> Result<Bytes, StudyError> {
    let entries = match fs::read_dir(feed) {
        Ok(entries) => entries,
        // Nothing has come yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Bytes::ZERO),
        Err(error) => return Err(file_error("read", feed)(error)),
    };
    // The last file of each stream.
    let mut last: BTreeMap<String, (u64, PathBuf)> = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(file_error("read", feed))?;
        let name = entry.file_name();
        let Some((stream, first)) = name.to_str().and_then(part) else { continue };
        let older = match last.get(stream) {
            Some((number, _)) if *number > first => Some(entry.path()),
            _ => last.insert(stream.to_owned(), (first, entry.path())).map(|(_, path)| path),
        };
        if let Some(older) = older {
            fs::remove_file(&older).map_err(file_error("remove", &older))?;
        }
    }
    let mut octets = 0;
    for (first, path) in last.values() {
        let length = fs::metadata(path).map_err(file_error("look at", path))?.len();
        octets += first * RECORD + length;
    }
    Ok(Bytes(octets + octets / RECORD * LENGTH))
}

/// The stream of a file, and the number of its first record, by its name.
fn part(name: &str) -> Option<(&str, u64)> {
    let (stream, number) = name.strip_suffix(".log")?.split_once('-')?;
    Some((stream, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_stream_and_the_first_record() {
        assert_eq!(part("5b0c-00000000000001048576.log"), Some(("5b0c", 1_048_576)));
        for other in ["index", "5b0c-0.counted", "5b0c-x.log", "5b0c.log"] {
            assert_eq!(part(other), None, "{other}");
        }
    }

    #[test]
    fn the_records_of_all_streams_count_and_complete_files_are_removed() {
        let folder = tempfile::TempDir::new().unwrap();
        assert_eq!(received(&folder.path().join("none")).unwrap(), Bytes::ZERO);
        let write = |name: &str, length: usize| {
            fs::write(folder.path().join(name), vec![b'x'; length]).unwrap();
        };
        write("index", 17);
        write("aa-00000000000000000000.log", 4_000);
        assert_eq!(received(folder.path()).unwrap(), Bytes(4_016));
        write("aa-00000000000000000004.log", 2_000);
        write("bb-00000000000000000000.log", 1_500);
        // Half a record has no length yet.
        assert_eq!(received(folder.path()).unwrap(), Bytes(7_500 + 7 * 4));
        assert_eq!(received(folder.path()).unwrap(), Bytes(7_500 + 7 * 4));
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["aa-00000000000000000004.log", "bb-00000000000000000000.log", "index"]);
    }
}
