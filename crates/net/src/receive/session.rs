//! One session at the receiver: the core, the files, and everybody who carries for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use transfer::digest::block_cv;
use transfer::{BLOCK, Cv, Extent, ExtentSet, Layout, Receiver, Verdict};
use units::{Bytes, Span, Time};
use wire::Frame;
use wire::frame::{Data, Range, SessionId, Wishes};

use super::target::{Directory, Target};
use crate::clock::Clock;
use crate::conn::ConnError;
use crate::{Error, Event, Events, Fingerprint};

/// A transfer that is arriving.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) peer: Fingerprint,
    pub(crate) layout: Layout,
    pub(crate) wishes: Wishes,
    pub(crate) clock: Clock,
    /// When it was agreed on.
    pub(crate) began: Time,
    pub(crate) events: Events,
    directory: Arc<Directory>,
    targets: Vec<Target>,
    core: Mutex<Receiver>,
    resumed: Bytes,
    members: Mutex<Members>,
    /// Rings when the session is over, well or badly.
    pub(crate) over: Notify,
    /// Rings when the session was superseded: everybody closes.
    pub(crate) closing: Notify,
}

/// Who carries, and what all of them must still be told.
#[derive(Default)]
struct Members {
    next: u32,
    mailboxes: BTreeMap<u32, Arc<Mailbox>>,
    /// Frames that every path, later ones included, is told.
    announcements: Vec<u8>,
    /// Blocks that were refused and did not come again yet: a sender that lost the path of the refusal must hear it on the next.
    refused: ExtentSet,
    finishing: Finishing,
    sync: Span,
    outcome: Outcome,
    carried: BTreeMap<String, Carried>,
}

/// How far files have come that are whole: they are finished by several threads, and not always in order.
#[derive(Default)]
struct Finishing {
    /// The first file that nobody finishes yet.
    next: usize,
    /// How many have their names.
    named: usize,
}

impl Finishing {
    /// A file has got its name. Returns whether all `of` them have theirs now.
    fn handle_named(&mut self, of: usize) -> bool {
        self.named += 1;
        self.named == of
    }
}

/// How the session stands.
#[derive(Default)]
enum Outcome {
    #[default]
    Running,
    Complete(Time),
    Failed(Option<Error>),
}

/// What one path brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    pub(crate) bytes: Bytes,
    pub(crate) last: Span,
}

/// Frames for one path from elsewhere in the session.
#[derive(Default)]
pub(crate) struct Mailbox {
    frames: Mutex<Vec<u8>>,
    pub(crate) full: Notify,
}

/// Wrong blocks before the transfer is given up: a bad line is caught by TLS, so these are bad memory or a changing source.
const MOST_REFUSALS: u64 = 16;

impl Session {
    /// Opens the files of `layout` in `directory`; `alive` is called while that takes its time.
    #[expect(clippy::too_many_arguments, reason = "the parts of a session, each of its own type")]
    pub(crate) fn open(
        id: SessionId,
        peer: Fingerprint,
        layout: Layout,
        wishes: Wishes,
        directory: Arc<Directory>,
        clock: Clock,
        events: Events,
        alive: &mut dyn FnMut(),
    ) -> Result<Session, Error> {
        let mut targets = Vec::with_capacity(layout.files().len());
        let mut have = ExtentSet::new();
        let mut hashes = Vec::new();
        for (index, file) in layout.files().iter().enumerate() {
            let (target, held) = directory.target(file, peer, id, wishes.restart, alive)?;
            let first = layout.file_extent(index).expect("a file of the layout").start / BLOCK;
            for (block, cv) in held {
                have.insert(layout.block_extent(first + block).expect("the journal's blocks lie in the file"));
                hashes.push((first + block, cv));
            }
            targets.push(target);
        }
        let resumed = have.total();
        let mut core = Receiver::new(&layout, &have);
        for (block, cv) in hashes {
            core.handle_journalled(block, cv).expect("only whole blocks were named");
        }
        Ok(Session {
            id,
            peer,
            layout,
            wishes,
            clock,
            began: clock.now(),
            events,
            directory,
            targets,
            core: Mutex::new(core),
            resumed,
            members: Mutex::default(),
            over: Notify::new(),
            closing: Notify::new(),
        })
    }

    /// What is verified from an earlier attempt, as frames.
    pub(crate) fn have(&self) -> Vec<Frame<'static>> {
        let core = self.core();
        let ranges: Vec<Range> = core.verified().iter().map(|e| Range { start: e.start, len: e.len }).collect();
        ranges.chunks(wire::frame::MAX_RANGES).map(|ranges| Frame::Have(ranges.to_vec())).collect()
    }

    /// Bytes from earlier attempts.
    pub(crate) fn resumed(&self) -> Bytes {
        self.resumed
    }

    /// Bytes received in this session.
    pub(crate) fn received(&self) -> Bytes {
        self.core().received()
    }

    /// A path joins: its mailbox, with everything already announced in it.
    pub(crate) fn join(&self) -> (u32, Arc<Mailbox>) {
        let mut members = self.members();
        let number = members.next;
        members.next += 1;
        let mailbox = Arc::new(Mailbox::default());
        mailbox.put(&members.announcements);
        for extent in members.refused.iter() {
            mailbox.put_frame(&refusal(extent));
        }
        members.mailboxes.insert(number, Arc::clone(&mailbox));
        (number, mailbox)
    }

    /// A path leaves.
    pub(crate) fn leave(&self, number: u32) {
        self.members().mailboxes.remove(&number);
        self.over.notify_one();
    }

    /// Data arrived on the path called `path`. Writes what is new of it, verifies blocks that became whole.
    pub(crate) fn handle_data(&self, path: &str, data: &Data<'_>) -> Result<Range, ConnError> {
        let extent = Extent::new(data.position, data.payload.len() as u64);
        let fresh = self.core().handle_data(extent).map_err(broken)?;
        let place = self.layout.locate(extent.start).expect("the core checked that it lies in a file");
        let target = &self.targets[place.file];
        for piece in &fresh.pieces {
            let skip = usize::try_from(piece.start - extent.start).expect("within the payload");
            let bytes = &data.payload[skip..skip + usize::try_from(piece.len).expect("within the payload")];
            if let Err(error) = target.write(place.offset + (piece.start - extent.start), bytes) {
                fresh.pieces.iter().for_each(|piece| self.core().handle_abandoned(*piece));
                return Err(self.fail(error));
            }
        }
        let mut ready = Vec::new();
        {
            let mut core = self.core();
            for piece in &fresh.pieces {
                core.handle_written(*piece).map_err(broken)?;
            }
            if let Some(hash) = data.block_hash {
                core.handle_hash(extent.start / BLOCK, Cv(hash)).map_err(broken)?;
            }
            while let Some(block) = core.poll_verify() {
                ready.push(block);
            }
        }
        for block in ready {
            // A block that came in one piece is hashed where it lies, in the cache.
            let in_memory = block.extent == extent && fresh.duplicate == Bytes::ZERO;
            let place = self.layout.locate(block.extent.start).expect("a block lies in a file");
            let target = &self.targets[place.file];
            let found = if in_memory {
                Ok(block_cv(self.layout.files()[place.file].size.0, place.offset, data.payload))
            } else {
                target.hash_block(place.offset)
            };
            let found = found.map_err(|error| self.fail(error))?;
            self.verified(block, found == block.expected, place.offset / BLOCK, target)?;
        }
        if fresh.duplicate.0 < extent.len {
            let elapsed = self.clock.now() - Time::ZERO;
            let mut members = self.members();
            let carried = members.carried.entry(path.to_string()).or_default();
            carried.bytes += Bytes(extent.len) - fresh.duplicate;
            carried.last = elapsed;
        }
        Ok(Range { start: extent.start, len: extent.len })
    }

    fn verified(&self, block: transfer::Block, ok: bool, in_file: u64, target: &Target) -> Result<(), ConnError> {
        if ok {
            // Journaled first: what the core counts as verified must outlive this process.
            target.note(in_file, block.expected).map_err(|error| self.fail(error))?;
        }
        let (verdict, refusals) = {
            let mut core = self.core();
            (core.handle_verified(block.index, ok), core.refused())
        };
        match verdict {
            Verdict::Verified { .. } => {
                if refusals > 0 {
                    self.members().refused.remove(block.extent);
                }
                Ok(())
            }
            Verdict::Refuse(extent) => {
                let path = target.path().display();
                let text = format!("block {in_file} of {path} does not match its hash: asking for it again");
                let _ = self.events.send(Event::Notice { text });
                if refusals > MOST_REFUSALS {
                    let what = path.to_string();
                    let detail = format!("{refusals} blocks came with another content than the sender hashed");
                    return Err(self.fail(Error::Integrity { what, detail }));
                }
                self.members().refused.insert(extent);
                self.tell_all(&refusal(extent), false);
                Ok(())
            }
        }
    }

    /// Files that are whole and not yet finished, each named once; the caller finishes them.
    pub(crate) fn take_finished(&self) -> Vec<(usize, Cv)> {
        let mut members = self.members();
        let core = self.core();
        let mut ready = Vec::new();
        // Files finish nearly in order; what is looked at again and again is the first unfinished one.
        while let Some(root) = core.root(members.finishing.next) {
            ready.push((members.finishing.next, root));
            members.finishing.next += 1;
        }
        ready
    }

    /// Syncs, checks and renames a file. Blocks for as long as the disk takes.
    pub(crate) fn finish(&self, file: usize, root: Cv) -> Result<(), Error> {
        let before = self.clock.now();
        let target = &self.targets[file];
        target.finish(&self.directory, root, self.wishes.verify, self.wishes.overwrite)?;
        let now = self.clock.now();
        let entry = &self.layout.files()[file];
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let _ = self.events.send(Event::FileDone { name, size: entry.size, blake3: root.to_string() });
        self.tell_all(&Frame::FileDone(u32::try_from(file).expect("a layout holds fewer"), root.0), true);
        let done = {
            let mut members = self.members();
            members.sync += now - before;
            let is_last = members.finishing.handle_named(self.layout.files().len());
            // An earlier file may have failed meanwhile.
            (is_last && matches!(members.outcome, Outcome::Running)).then(|| {
                members.outcome = Outcome::Complete(before);
                members.sync
            })
        };
        if let Some(sync) = done {
            self.tell_all(&Frame::Done(sync.as_micros()), true);
            self.over.notify_one();
        }
        Ok(())
    }

    /// Brings everything that is journaled to the disk.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.targets.iter().try_for_each(Target::sync)
    }

    /// Ends the session badly: everybody hears why, and so does whoever waits for its outcome.
    pub(crate) fn fail(&self, error: Error) -> ConnError {
        let text = error.to_string();
        self.tell_all(&Frame::Abort(super::door::code_of(&error), text.clone()), true);
        let mut members = self.members();
        if matches!(members.outcome, Outcome::Running) {
            members.outcome = Outcome::Failed(Some(error));
        }
        drop(members);
        self.over.notify_one();
        ConnError::Io(std::io::Error::other(text))
    }

    /// When the last byte was verified, if all are and every file has its name; with the time that syncing took.
    pub(crate) fn completed(&self) -> Option<(Time, Span)> {
        let members = self.members();
        match members.outcome {
            Outcome::Complete(at) => Some((at, members.sync)),
            Outcome::Running | Outcome::Failed(_) => None,
        }
    }

    /// The error that ended the session, once; the sender is told too.
    pub(crate) fn failure_to_report(&self) -> Option<Error> {
        match &mut self.members().outcome {
            Outcome::Failed(error) => error.take(),
            Outcome::Running | Outcome::Complete(_) => None,
        }
    }

    /// Whether the session ended badly.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.members().outcome, Outcome::Failed(_))
    }

    /// How many paths are open.
    pub(crate) fn open_paths(&self) -> usize {
        self.members().mailboxes.len()
    }

    /// What each path brought.
    pub(crate) fn carried(&self) -> BTreeMap<String, Carried> {
        self.members().carried.clone()
    }

    /// Tells every path; with `keep`, those that join later too.
    pub(crate) fn tell_all(&self, frame: &Frame<'_>, keep: bool) {
        let mut bytes = Vec::new();
        frame.emit(&mut bytes);
        let mut members = self.members();
        members.mailboxes.values().for_each(|mailbox| mailbox.put(&bytes));
        if keep {
            members.announcements.extend_from_slice(&bytes);
        }
    }

    fn core(&self) -> MutexGuard<'_, Receiver> {
        self.core.lock().expect("no panic while held")
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().expect("no panic while held")
    }
}

impl Mailbox {
    fn put(&self, frames: &[u8]) {
        if !frames.is_empty() {
            self.frames.lock().expect("no panic while held").extend_from_slice(frames);
            self.full.notify_one();
        }
    }

    fn put_frame(&self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.emit(&mut bytes);
        self.put(&bytes);
    }

    /// Everything that was put in.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.frames.lock().expect("no panic while held"))
    }
}

fn refusal(extent: Extent) -> Frame<'static> {
    Frame::Refused(Range { start: extent.start, len: extent.len })
}

fn broken(error: transfer::PeerError) -> ConnError {
    ConnError::Unexpected(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::Finishing;

    /// The last file of the list may be small, and named while an earlier one is still being synced: the receiver was done then, and the
    /// earlier ones never got their names.
    #[test]
    fn all_files_have_names_not_only_the_last_of_the_list() {
        let mut finishing = Finishing::default();
        // In whatever order: the third of three first.
        assert!(!finishing.handle_named(3));
        assert!(!finishing.handle_named(3));
        assert!(finishing.handle_named(3));
    }
}
