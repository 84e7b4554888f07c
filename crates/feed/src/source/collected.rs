//! What each of several collectors has of a source's streams: a collector gets what no other one
//! has, also from a source that was started anew.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use peer::Fingerprint;
use peer::private::{create_fresh, open_regular};
use wire::feed::StreamId;

use crate::store::prefix;

/// Files that have not changed for so long are of streams that are over.
const OLD: Duration = Duration::from_secs(30 * 86_400);
/// The most octets of a file: a line for each collector.
const MOST: u64 = 64 << 10;

/// What the collectors have, as they said. A file for each stream has it too; it may be a second
/// old after a kill, and then a collector gets some records that another one has as well.
#[derive(Debug)]
pub(super) struct Collected {
    folder: PathBuf,
    streams: Mutex<HashMap<StreamId, KeptBy>>,
}

#[derive(Debug, Default)]
struct KeptBy {
    /// The record behind those that are on the disk of each.
    kept: BTreeMap<Fingerprint, u64>,
    is_changed: bool,
}

impl Collected {
    /// That of a feed, in a folder of its own, which is made if there is none.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(folder: &Path) -> io::Result<Collected> {
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let changed = entry.metadata().and_then(|metadata| metadata.modified());
            let is_old = |at: std::time::SystemTime| at.elapsed().is_ok_and(|passed| passed > OLD);
            if changed.is_ok_and(is_old) {
                // One that stays is tried again the next time.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(Collected { folder: folder.to_path_buf(), streams: Mutex::default() })
    }

    /// How much of a stream a collector had when it was heard of last, and how much others have.
    pub(super) fn of(&self, stream: StreamId, collector: Fingerprint) -> (u64, u64) {
        let mut streams = self.streams();
        let known = &self.known(&mut streams, stream).kept;
        let others = known.iter().filter(|(key, _)| **key != collector).map(|(_, kept)| *kept);
        (known.get(&collector).copied().unwrap_or(0), others.max().unwrap_or(0))
    }

    /// A collector has so much of a stream, which may be less than before.
    pub(super) fn set(&self, stream: StreamId, collector: Fingerprint, kept: u64) {
        let mut streams = self.streams();
        let known = self.known(&mut streams, stream);
        known.is_changed |= known.kept.insert(collector, kept) != Some(kept);
    }

    /// Writes what has changed. What cannot be written is tried again.
    pub(super) fn write(&self) {
        let mut changed = Vec::new();
        for (stream, known) in &mut *self.streams() {
            if std::mem::take(&mut known.is_changed) {
                changed.push((*stream, text(known)));
            }
        }
        for (stream, text) in changed {
            if let Err(error) = self.write_one(stream, &text) {
                tracing::debug!(%error, "what collectors have is not written");
                if let Some(known) = self.streams().get_mut(&stream) {
                    known.is_changed = true;
                }
            }
        }
    }

    fn write_one(&self, stream: StreamId, text: &str) -> io::Result<()> {
        let path = self.path(stream);
        let next = path.with_extension("next");
        create_fresh(&next)?.write_all(text.as_bytes())?;
        fs::rename(next, path)
    }

    fn known<'a>(
        &self,
        streams: &'a mut HashMap<StreamId, KeptBy>,
        stream: StreamId,
    ) -> &'a mut KeptBy {
        streams.entry(stream).or_insert_with(|| {
            // One that is damaged says nothing: records come once more.
            let kept = read(&self.path(stream)).unwrap_or_default();
            KeptBy { kept, is_changed: false }
        })
    }

    fn path(&self, stream: StreamId) -> PathBuf {
        self.folder.join(format!("{}.collected", prefix(stream)))
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<StreamId, KeptBy>> {
        self.streams.lock().expect("no panic while held")
    }
}

fn text(known: &KeptBy) -> String {
    let lines: Vec<String> =
        known.kept.iter().map(|(key, kept)| format!("{key} {kept}\n")).collect();
    lines.concat()
}

fn read(path: &Path) -> Option<BTreeMap<Fingerprint, u64>> {
    let mut text = String::new();
    open_regular(path).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    let line = |line: &str| {
        let (key, kept) = line.split_once(' ')?;
        Some((key.parse().ok()?, kept.parse().ok()?))
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn what_collectors_have_survives_the_source() {
        let folder = TempDir::new().unwrap();
        let key = || peer::Identity::generate().unwrap().fingerprint();
        let (one, two, stream) = (key(), key(), StreamId([7; 16]));
        let collected = Collected::open(folder.path()).unwrap();
        assert_eq!(collected.of(stream, one), (0, 0));
        collected.set(stream, one, 1_000);
        collected.set(stream, two, 900);
        assert_eq!(collected.of(stream, one), (1_000, 900));
        assert_eq!(collected.of(StreamId([8; 16]), one), (0, 0));
        collected.write();
        drop(collected);
        let collected = Collected::open(folder.path()).unwrap();
        assert_eq!(collected.of(stream, two), (900, 1_000));
        // A collector whose folder is an older copy has less.
        collected.set(stream, two, 10);
        assert_eq!(collected.of(stream, one), (1_000, 10));
        fs::write(collected.path(stream), "nonsense").unwrap();
        let damaged = Collected::open(folder.path()).unwrap();
        assert_eq!(damaged.of(stream, one), (0, 0));
    }
}
