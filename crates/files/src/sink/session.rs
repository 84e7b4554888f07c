//! A session of the sink: the core, the files, and the paths that carry for it.

mod changed;
mod data;
mod mailbox;
mod members;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use transfer::{BLOCK, Extent, ExtentSet, Layout, Object, Packing, Receiver, Tree};
use units::{Bytes, Time};
use wire::files::FileFrame;
use wire::files::{Archived, Range, Wishes};
use wire::session::SessionId;

pub(crate) use changed::Missing;
pub(crate) use mailbox::Mailbox;
use mailbox::refusal;
pub(crate) use members::PathShare;
use members::{Members, Outcome};
use writes::Writes;

use super::delivery::Delivery;
use super::directory::Directory;
use super::large::{Part, part_names};
use super::mirror::{Mirror, NOTHING_DELETED};
use super::settle::{AtEnd, Completed, PendingSync, Target};
use super::staging::{Staging, name_prefix};
use super::survey::{Changes, Survey};
use crate::attributes;
use crate::blocking::Wanted;
use crate::protocol::{file_at, want_frames};
use crate::{Error, Output};
use events::{Event, Events};
use net::Clock;
use peer::Fingerprint;
use peer::limit::Limit;

/// A transfer into a directory.
pub(crate) struct SinkSession {
    pub(crate) id: SessionId,
    /// Its number among the transfers of this host; 0 if this host dials.
    pub(crate) transfer: u32,
    pub(crate) peer: Fingerprint,
    pub(crate) clock: Clock,
    /// The time of the agreement.
    pub(crate) began: Time,
    pub(crate) events: Events,
    /// Limits the rate of received data.
    pub(crate) limit: Option<Arc<Limit>>,
    /// Writes the one file to an output, instead of keeping it.
    delivery: Option<Arc<Delivery>>,
    target: Target,
    /// The wanted entries, as sent to the source.
    want: Vec<Range>,
    /// What remains to be done once all files have their names.
    at_end: AtEnd,
    /// What the transfer does to the folder.
    changes: Changes,
    /// Large files with data, by object.
    parts: Mutex<BTreeMap<usize, Arc<Part>>>,
    core: Mutex<Receiver>,
    resumed: Bytes,
    /// The positions that an earlier attempt left.
    journaled: ExtentSet,
    /// Whether another session follows for files that change: a small one that grew comes whole
    /// then.
    pub(crate) is_followed: bool,
    /// Number of files that are complete.
    files_done: AtomicUsize,
    /// The last position that data came for.
    last_position: AtomicU64,
    members: Mutex<Members>,
    /// Complete files that wait for their names.
    unnamed: Mutex<Vec<Completed>>,
    /// Held while files get their names.
    pending_sync: Mutex<PendingSync>,
    pub(crate) writes: Writes,
    /// Bytes verified since the last sync began.
    unsynced: AtomicU64,
    /// The last time that something arrived on a path, in nanoseconds of `clock`.
    heard: AtomicU64,
    /// Rings when the session ends, a path leaves, or a sync is due.
    pub(crate) changed: Notify,
    /// Rings when another session replaces this one: all paths close.
    pub(crate) closing: Notify,
}

/// Bytes that make a sync due. A power loss costs no more than these and the bytes that arrive
/// during a sync.
const MOST_UNSYNCED: u64 = 8 << 20;
/// Refusals before the transfer fails. TLS catches line errors, so a wrong block means bad memory
/// or a changing source.
const MOST_REFUSALS: u64 = 16;

impl SinkSession {
    /// Compares `tree` with `directory`, as long as the session is `wanted`, and opens the data of
    /// an earlier attempt.
    #[expect(clippy::too_many_arguments, reason = "whose tree, where to, and how it is reported")]
    pub(crate) fn open(
        id: SessionId,
        peer: Fingerprint,
        tree: Tree,
        wishes: Wishes,
        mirror: Option<&Mirror>,
        directory: Arc<Directory>,
        clock: Clock,
        events: Events,
        wanted: &Wanted,
    ) -> Result<SinkSession, Error> {
        let staging = Arc::new(Staging::open(&directory)?);
        let survey = Survey::new(&directory, Some(&staging), &tree, wishes, mirror, wanted)?;
        let changes = survey.changes(&tree);
        tracing::info!(?changes, "compared with the folder");
        let packing = Packing::new(&tree, |index| survey.wanted.contains(&index));
        let packing = Arc::new(packing.map_err(|error| Error::protocol(error.to_string()))?);
        let layout = packing.layout();
        let mut have = ExtentSet::new();
        let (mut hashes, mut parts) = (Vec::new(), BTreeMap::new());
        for object in 0..layout.objects() {
            let Some(Object::Large(index)) = packing.object(object) else { continue };
            let path = &tree.entries()[index].path;
            let journal = part_names(path).1;
            // Without a journal there is nothing to resume: the part is opened when data arrive.
            if survey.listing.get(&name_prefix(path)).is_some_and(|left| left.contains(&journal)) {
                let file = tree.file(index).expect("a file of the tree");
                let (part, held) =
                    Part::open(&staging, &packing, object, path, file, peer, id, wishes.restart)?;
                let first =
                    layout.object_extent(object).expect("an object of the layout").start / BLOCK;
                for (block, cv) in held {
                    have.insert(
                        layout
                            .block_extent(first + block)
                            .expect("the journal's blocks lie in the object"),
                    );
                    hashes.push((first + block, cv));
                }
                parts.insert(object, Arc::new(part));
            }
        }
        // The blocks of an earlier session exist, whatever its stream will grow to.
        let known = || Layout::stream(have.iter().last().map_or(0, |last| last.end()));
        let mut core =
            Receiver::new(&if tree.is_stream() { known() } else { layout.clone() }, &have);
        let mut unnamed = Vec::new();
        for (block, cv) in hashes {
            // The only block of a stream so far does not count.
            if core.layout().block_extent(block).is_none() {
                continue;
            }
            if let Some((object, root)) =
                core.handle_journalled(block, cv).expect("only whole blocks were named")
            {
                unnamed.push(Completed::Large(object, root, Arc::clone(&parts[&object])));
            }
        }
        let mut small = survey.staged.clone();
        for &index in &survey.empty {
            let file = tree.file(index).expect("a file of the tree");
            small.push(staging.put(index, &tree.entries()[index].path, file, &[])?);
        }
        let to_stage = small.len();
        if !small.is_empty() {
            unnamed.push(Completed::Small(None, small));
        }
        let resumed = tree.data() - layout.total() + core.verified().total();
        let to_come = survey.wanted.len() + to_stage;
        let (want, files) = (survey.ranges(&tree), tree.file_count());
        let target = Target::new(directory, Arc::clone(&staging), tree, packing, wishes);
        target.nameless().clone_from(&survey.at_end.nameless);
        Ok(SinkSession {
            id,
            transfer: 0,
            peer,
            clock,
            began: clock.now(),
            events,
            limit: None,
            delivery: None,
            want,
            at_end: survey.at_end,
            changes,
            parts: Mutex::new(parts),
            resumed,
            journaled: core.verified().clone(),
            is_followed: false,
            core: Mutex::new(core),
            files_done: AtomicUsize::new(files - to_come),
            last_position: AtomicU64::new(u64::MAX),
            members: Mutex::default(),
            unnamed: Mutex::new(unnamed),
            pending_sync: Mutex::new(PendingSync::new(staging.existed())),
            writes: Writes::default(),
            unsynced: AtomicU64::new(0),
            heard: AtomicU64::new(clock.now().as_nanos()),
            changed: Notify::new(),
            closing: Notify::new(),
            target,
        })
    }

    /// Leaves the disk to others from now on, or does not.
    pub(crate) fn in_background(mut self, is_background: bool) -> SinkSession {
        self.writes = Writes::of(is_background);
        self
    }

    /// Lets the one file go to `output`, if there is one, in order.
    ///
    /// # Errors
    /// If the tree is not one file, or the output has been written to before.
    pub(crate) fn deliver_to(mut self, output: Option<Output>) -> Result<SinkSession, Error> {
        let Some(output) = output else { return Ok(self) };
        if self.tree().entries().len() != 1 || self.tree().file_count() != 1 {
            let text = "standard output takes one file, and this is not one file";
            return Err(Error::refused(text));
        }
        // What is written is not on the disk any more.
        self.target.wishes.verify = false;
        let delivery = Delivery::begin(output, &self.target.directory)?;
        self.members().granted = Some(delivery.granted_now());
        self.delivery = Some(delivery);
        Ok(self)
    }

    /// Tells the sender, on every path, how far the output has come.
    pub(crate) fn tell_granted(&self) {
        let Some(delivery) = &self.delivery else { return };
        let granted = delivery.granted_now();
        if self.members().granted.replace(granted) != Some(granted) {
            self.broadcast(&FileFrame::Grant(granted), false);
        }
    }

    /// The delivery to an output, if there is one.
    pub(crate) fn delivery(&self) -> Option<&Arc<Delivery>> {
        self.delivery.as_ref()
    }

    /// The tree that is received.
    pub(crate) fn tree(&self) -> &Tree {
        &self.target.tree
    }

    /// Bytes of all files: of a stream, as far as they are known.
    pub(crate) fn total(&self) -> Bytes {
        if self.tree().is_stream() { self.core().layout().total() } else { self.tree().data() }
    }

    /// Whether it is a stream whose end is not known yet.
    pub(crate) fn is_growing(&self) -> bool {
        self.core().layout().is_growing()
    }

    /// The wanted entries.
    pub(crate) fn want(&self) -> &[Range] {
        &self.want
    }

    /// The layout of the wanted files.
    pub(crate) fn layout(&self) -> &Layout {
        self.target.packing.layout()
    }

    /// The verified extents.
    pub(crate) fn verified_extents(&self) -> ExtentSet {
        self.core().verified().clone()
    }

    /// Whether all of `extent` is verified.
    pub(crate) fn has_verified(&self, extent: Extent) -> bool {
        self.core().verified().contains(extent)
    }

    /// Allows this many more refusals before the transfer fails.
    pub(crate) fn allow_refusals(&self, refusals: u64) {
        self.members().extra_refusals += refusals;
    }

    /// The answer to a manifest: the wanted entries, and the extents of them that an earlier
    /// attempt verified.
    pub(crate) fn answer_frames(&self) -> Vec<FileFrame<'static>> {
        let core = self.core();
        let have: Vec<Range> =
            core.verified().iter().map(|e| Range { start: e.start, len: e.len }).collect();
        let want = want_frames(&self.want);
        let granted = self.members().granted.map(FileFrame::Grant);
        want.chain(granted)
            .chain(
                have.chunks(wire::files::MAX_RANGES).map(|ranges| FileFrame::Have(ranges.to_vec())),
            )
            .collect()
    }

    /// Bytes that were at the sink before the session.
    pub(crate) fn resumed(&self) -> Bytes {
        self.resumed
    }

    /// Bytes received in this session.
    pub(crate) fn received(&self) -> Bytes {
        self.core().received()
    }

    /// Number of files that are complete, including those that were so before the session.
    pub(crate) fn files_done(&self) -> usize {
        self.files_done.load(Ordering::Relaxed)
    }

    /// The name of the file that data came for last.
    pub(crate) fn current(&self) -> Option<String> {
        let position = self.last_position.load(Ordering::Relaxed);
        file_at(self.tree(), &self.target.packing, position)
    }

    /// Whether the caller must finish the transfer: everything is verified, and no other caller
    /// finishes it.
    pub(crate) fn try_begin_finish(&self) -> bool {
        if !self.core().is_complete() {
            return false;
        }
        // The path that verified the last block may not have queued its files yet.
        let mut members = self.members();
        let missing = self.target.packing.layout().objects() - members.named - members.naming;
        let waiting = self.unnamed().iter().filter(|completed| completed.is_object()).count();
        missing == waiting
            && matches!(members.outcome, Outcome::Running)
            && !std::mem::replace(&mut members.finishing, true)
    }

    /// Names all files, makes the other entries of the tree, and announces completion. Blocks for
    /// as long as the disk takes.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let before = self.clock.now();
        if let Some(delivery) = &self.delivery {
            delivery.drain()?;
        }
        self.settle()?;
        let deleted = {
            let mut pending = self.pending_sync.lock().expect("no panic while held");
            self.target.finish(&self.at_end, &mut pending)?
        };
        if let Some(delivery) = &self.delivery {
            let path = &self.tree().entries()[0].path;
            let failed = |source| self.target.directory.failed("read back", path, source);
            let file = self.target.directory.file(path).map_err(failed)?;
            let file = file.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
            delivery.write_rest(&file)?;
        }
        self.report_changes(deleted);
        if !self.missing().is_empty() && !self.at_end.doomed.is_empty() {
            self.events.notice(NOTHING_DELETED);
        }
        let archived = self.archived();
        if archived != Archived::default() {
            self.broadcast(&FileFrame::Archived(archived), true);
        }
        let sync = self.clock.now() - before;
        {
            let mut members = self.members();
            if !matches!(members.outcome, Outcome::Running) {
                return Ok(());
            }
            members.sync = sync;
            members.outcome = Outcome::Complete(before);
        }
        self.broadcast(&FileFrame::Done(sync.as_micros()), true);
        self.changed.notify_one();
        Ok(())
    }

    /// Tells a person what is not as in the source, and what is no longer there.
    fn report_changes(&self, deleted: usize) {
        let tell = |count: usize, one: &str, several: &str| {
            let text = match count {
                0 => return,
                1 => one.to_string(),
                count => format!("{count} {several}"),
            };
            self.events.notice(text);
        };
        tell(
            self.changes.kept.entries,
            "an existing file that differs was left as it is",
            "existing files that differ were left as they are",
        );
        tell(
            deleted,
            "a file or folder that the source does not have was deleted",
            "files and folders that the source does not have were deleted",
        );
        let is_kept_whole = !self.missing().is_empty();
        tell(
            if is_kept_whole { 0 } else { self.changes.deleted.entries - deleted },
            "a file or folder changed meanwhile, and was not deleted",
            "files and folders changed meanwhile, and were not deleted",
        );
        for text in attributes::in_words(self.archived(), "") {
            self.events.notice(text);
        }
    }

    /// Syncs journaled data, and names the complete files. Blocks for as long as the disk takes.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        let mut pending = self.pending_sync.lock().expect("no panic while held");
        self.unsynced.store(0, Ordering::Relaxed);
        let batch = {
            let mut members = self.members();
            let batch = std::mem::take(&mut *self.unnamed());
            members.naming = batch.iter().filter(|completed| completed.is_object()).count();
            batch
        };
        self.target.settle(&batch, &mut pending)?;
        for completed in &batch {
            self.report_named(completed);
        }
        let mut members = self.members();
        members.named += std::mem::take(&mut members.naming);
        drop(members);
        if self.delivery.is_some() {
            // It outlives nothing.
            return Ok(());
        }
        let parts: Vec<Arc<Part>> = self.parts().values().cloned().collect();
        parts.iter().try_for_each(|part| part.sync())?;
        self.target.staging.sync_names()
    }

    /// What became of owners and attributes.
    pub(crate) fn archived(&self) -> Archived {
        if self.delivery.is_some() {
            // What its temporary file lacks is no loss.
            return Archived::default();
        }
        self.target.archived()
    }

    /// Whether the bytes verified since the last [`SinkSession::settle`] began make the next one
    /// due.
    pub(crate) fn sync_is_due(&self) -> bool {
        self.unsynced.load(Ordering::Relaxed) >= MOST_UNSYNCED
    }

    /// Counts verified bytes, and rings once they make a sync due.
    fn note_unsynced(&self, bytes: u64) {
        let before = self.unsynced.fetch_add(bytes, Ordering::Relaxed);
        if before < MOST_UNSYNCED && before + bytes >= MOST_UNSYNCED {
            self.changed.notify_one();
        }
    }

    /// Reports that files have their names.
    fn report_named(&self, completed: &Completed) {
        let tell = |index: usize, blake3: Option<String>| {
            let entry = &self.tree().entries()[index];
            let name = String::from_utf8_lossy(&entry.path).into_owned();
            let file = self.tree().file(index).expect("a file of the tree");
            let size = if file.is_stream() { self.total() } else { Bytes(file.size) };
            self.files_done.fetch_add(1, Ordering::Relaxed);
            let transfer = self.transfer;
            self.events.send(Event::FileDone { transfer, name, size, blake3 });
        };
        match completed {
            Completed::Small(_, files) => {
                for staged in files.iter().filter(|staged| self.target.has_name(staged.entry)) {
                    // The hash of a file with holes covers its data only.
                    let file = self.tree().file(staged.entry).expect("a file of the tree");
                    let is_all = file.data.is_none();
                    tell(staged.entry, is_all.then(|| staged.hash.to_hex().to_string()));
                }
            }
            Completed::Large(object, root, _) => {
                self.parts().remove(object);
                let Some(Object::Large(file)) = self.target.packing.object(*object) else { return };
                if !self.target.has_name(file) {
                    return;
                }
                let is_all = self.target.packing.whole_file(self.tree(), *object).is_some();
                tell(file, is_all.then(|| root.to_string()));
            }
            Completed::LeftOut(object) => drop(self.parts().remove(object)),
        }
        if let Some((object, root)) = completed.object() {
            self.broadcast(
                &FileFrame::ObjectDone(
                    u32::try_from(object).expect("a layout holds fewer"),
                    root.0,
                ),
                true,
            );
        }
    }

    /// The part of the large file that is this object.
    fn part(&self, object: usize) -> Result<Arc<Part>, Error> {
        let mut parts = self.parts();
        if let Some(part) = parts.get(&object) {
            return Ok(Arc::clone(part));
        }
        let Some(Object::Large(index)) = self.target.packing.object(object) else {
            unreachable!("only large files have parts");
        };
        let Target { staging, packing, tree, .. } = &self.target;
        let (path, file) =
            (&tree.entries()[index].path, tree.file(index).expect("a file of the tree"));
        let (part, _) = Part::open(staging, packing, object, path, file, self.peer, self.id, true)?;
        let part = Arc::new(part);
        parts.insert(object, Arc::clone(&part));
        Ok(part)
    }

    fn object(&self, extent: Extent) -> usize {
        self.target.packing.layout().locate(extent.start).expect("an extent of the layout").object
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Part>>> {
        self.parts.lock().expect("no panic while held")
    }

    fn unnamed(&self) -> MutexGuard<'_, Vec<Completed>> {
        self.unnamed.lock().expect("no panic while held")
    }

    fn core(&self) -> MutexGuard<'_, Receiver> {
        self.core.lock().expect("no panic while held")
    }
}

impl Drop for SinkSession {
    fn drop(&mut self) {
        if let Some(delivery) = &self.delivery {
            delivery.close();
        }
    }
}

/// Starts finishing on a thread of its own if everything is verified: a disk may be slow.
pub(crate) fn finish_files(session: &Arc<SinkSession>) {
    if !session.try_begin_finish() {
        return;
    }
    let session = Arc::clone(session);
    tokio::task::spawn_blocking(move || {
        let _idle = session.writes.step_back();
        if let Err(error) = session.finish() {
            let _ = session.fail(error);
        }
    });
}
