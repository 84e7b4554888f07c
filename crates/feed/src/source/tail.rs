//! Files that are followed: those that match a pattern, and those that come later.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use peer::private::open_regular;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};
use wire::feed::{Form, StreamId};

use super::SourceShared;
use super::input::{FollowedFile, Reader, stream_of};
use super::stream::Stream;
use crate::FeedError;
use crate::bounds::FOLLOWED;

/// The time between looks for files.
const LOOK: Duration = Duration::from_millis(500);

/// The files of a pattern.
pub(super) struct Files {
    folder: PathBuf,
    matcher: GlobMatcher,
}

/// A file, by its device and its number there.
type Inode = (u64, u64);
/// A file that was followed, its size at the end, and how its stream ended.
type Ended = (Inode, u64, Result<(), FeedError>);

/// A file that is, or was, followed.
struct Known {
    id: StreamId,
    /// The size at its end; `None`, while it is followed.
    over_at: Option<u64>,
}

/// A file that was found, which nobody follows.
struct Found {
    path: PathBuf,
    place: Inode,
    stream: StreamId,
    file: fs::File,
}

impl Files {
    /// Those of a folder whose name matches the last part of `pattern`.
    ///
    /// # Errors
    /// [`FeedError::Usage`], if it is no pattern, or has wildcards in its folder.
    pub(super) fn new(pattern: &Path) -> Result<Files, FeedError> {
        let usage =
            |text: String| FeedError::Usage(format!("--tail {}: {text}", pattern.display()));
        let name = pattern.file_name().ok_or_else(|| usage("it names no file".into()))?;
        let folder = match pattern.parent() {
            Some(parent) if parent != Path::new("") => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let has_wildcards = |text: &str| text.contains(['*', '?', '[', '{']);
        if has_wildcards(&folder.to_string_lossy()) && !folder.is_dir() {
            return Err(usage("wildcards are for the name of a file, not for its folder".into()));
        }
        let glob = GlobBuilder::new(&name.to_string_lossy()).literal_separator(true).build();
        let matcher = glob.map_err(|error| usage(error.to_string()))?.compile_matcher();
        Ok(Files { folder, matcher })
    }

    /// Sends what is written to the files, for ever.
    pub(super) async fn follow(self, shared: Arc<SourceShared>) -> Result<(), FeedError> {
        let files = Arc::new(self);
        let mut known: BTreeMap<Inode, Known> = BTreeMap::new();
        let mut streams: JoinSet<Ended> = JoinSet::new();
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_missing = false;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(ended) = streams.join_next() => {
                    let (place, size, ended) = ended.expect("a stream does not panic");
                    ended?;
                    if let Some(known) = known.get_mut(&place) {
                        known.over_at = Some(size);
                    }
                    continue;
                }
            }
            let room = FOLLOWED.saturating_sub(streams.len());
            let all: BTreeMap<_, _> =
                known.iter().map(|(place, known)| (*place, (known.id, known.over_at))).collect();
            let (own, form) = (Arc::clone(&files), shared.form);
            let found = spawn_blocking(move || own.look(form, &all)).await;
            let found = match found.expect("looking for files does not panic") {
                Ok(found) => {
                    was_missing = false;
                    found
                }
                Err(error) => {
                    if !std::mem::replace(&mut was_missing, true) {
                        shared.events.notice(format!("{}: {error}", files.folder.display()));
                    }
                    continue;
                }
            };
            for Found { path, place, stream: id, file } in found.into_iter().take(room) {
                let label = path.display().to_string();
                shared.events.detail(format!("{label}: it is followed"));
                known.insert(place, Known { id, over_at: None });
                let file = Arc::new(file);
                let followed = FollowedFile { file: Arc::clone(&file), path, follows: true };
                let stream = Stream { id, label, reader: Reader::of(followed) };
                let running = stream.run(Arc::clone(&shared));
                streams.spawn(async move {
                    let ended = running.await;
                    (place, file.metadata().map_or(0, |metadata| metadata.len()), ended)
                });
            }
        }
    }

    /// The files that nobody follows and that have something new, the oldest first.
    fn look(
        &self,
        form: Form,
        known: &BTreeMap<Inode, (StreamId, Option<u64>)>,
    ) -> std::io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name: OsString = entry.file_name();
            if !self.matcher.is_match(Path::new(&name)) {
                continue;
            }
            let path = self.folder.join(&name);
            // One that is gone, or may not be read, may be there at the next look.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let place = (metadata.dev(), metadata.ino());
            let before = known.get(&place);
            let is_old = |(_, over_at): &(StreamId, Option<u64>)| {
                over_at.is_none_or(|size| metadata.len() == size)
            };
            if !metadata.is_file() || before.is_some_and(is_old) {
                continue;
            }
            let Ok(file) = open_regular(&path) else { continue };
            let Ok(Some(stream)) = stream_of(&file, form, true) else { continue };
            found.push((metadata.mtime(), Found { path, place, stream, file }));
        }
        found.sort_by_key(|(changed, _)| *changed);
        Ok(found.into_iter().map(|(_, found)| found).collect())
    }
}
