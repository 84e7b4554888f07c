//! Opens a session with a receiver.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use net::Clock;
use peer::dial::{self, Gate, Turn};
use peer::{Conn, ConnError};
use tokio::sync::{SetOnce, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};
use transfer::{BLOCK, Cv, Extent, ExtentSet, Layout, Packing, Tree};
use units::{Bytes, Time};
use wire::files::FileFrame;
use wire::files::{Archived, Grown, Range};
use wire::session::{AbortCode, Hello, RunId, SessionFrame, SessionId};

use crate::attributes;
use crate::blocking::run_blocking;
use crate::dial::greeting::{hear_welcome, work_during};
use crate::dial::opener::{Member, SessionOpener, once_more};
use crate::dial::path::{Outgoing, refusal};
use crate::dial::session::{Agreement, Report, Session, new_core};
use crate::dry_run::Verdict;
use crate::protocol::Want;
use crate::source::{Source, Stream, Supply, Tolerance};
use crate::{Error, SendOptions};
use events::{Event, Events};

/// The time that the driver has to end a transfer that was refused.
const TIME_TO_END: Duration = Duration::from_secs(3);

/// Opens a session with a receiver.
pub(super) struct SendOpener {
    options: Arc<SendOptions>,
    /// The files, once they are known.
    source: Arc<SetOnce<Arc<Source>>>,
    /// The run of this program.
    run: RunId,
    /// Whether files that change are sent once more, in another session.
    is_first: bool,
    clock: Clock,
    reports: mpsc::UnboundedSender<Report>,
    events: Events,
    gate: Gate<OpenSession>,
    /// The files of the open session.
    supply: Mutex<Option<Arc<Supply>>>,
    /// Objects that the receiver has completed.
    done: Mutex<BTreeSet<usize>>,
    /// Wanted files without data, which no object completes.
    empty: Mutex<Vec<usize>>,
    /// Files that the receiver had, or has completed.
    files_done: AtomicUsize,
    /// The transfer cannot go on, as the driver knows.
    is_over: AtomicBool,
    /// Tells the core of a stream's growth; ends with the opener.
    following: Mutex<JoinSet<()>>,
}

/// An open session with the receiver.
#[derive(Clone)]
struct OpenSession {
    session: Arc<Session>,
    load: Arc<Supply>,
}

impl SessionOpener for SendOpener {
    type Load = Supply;
    type Direction = Outgoing;

    async fn enter(&self, conn: &mut Conn, _host: usize) -> Result<Member<Supply>, ConnError> {
        let OpenSession { session, load } = match self.gate.joined() {
            Some(joined) => {
                conn.push(&SessionFrame::Join(joined.session.id));
                joined
            }
            None => match self.open_or_wait(conn).await {
                // That the path ends is no news: the driver has the reason, and ends them all,
                // unless another connection got in.
                Err(error) if self.is_over.load(Ordering::Relaxed) => {
                    sleep(TIME_TO_END).await;
                    return Err(error);
                }
                opened => opened?,
            },
        };
        Ok(Member { joined: session.id, session, load })
    }

    fn direction(
        load: &Arc<Supply>,
        _joined: SessionId,
        _path: &dial::Path,
        _now: Time,
    ) -> Outgoing {
        Outgoing::new(Arc::clone(load))
    }

    fn is_working(&self) -> bool {
        self.gate.is_working()
    }

    fn offered(&self) -> Bytes {
        self.source.get().map_or(Bytes::ZERO, |source| source.tree().data())
    }

    fn files_done(&self) -> (usize, Option<String>) {
        let current = self.supply().and_then(|supply| supply.current());
        (self.files_done.load(Ordering::Relaxed), current)
    }

    async fn object_done(&self, index: u32, root: [u8; 32]) -> Result<(), Error> {
        let (index, root) = (usize::try_from(index).expect("32 bits fit"), Cv(root));
        let Some(supply) = self.supply() else { return Ok(()) };
        if index >= supply.packing().layout().objects() {
            return Err(Error::protocol(format!(
                "object {index} is done, but there are not that many"
            )));
        }
        if !self.done.lock().expect("no panic while held").insert(index) {
            return Ok(());
        }
        let tree = supply.source().tree();
        let name = |file: usize| name_of(tree, file);
        let files = supply.take_files(index, root);
        let mut ours = supply.root(index);
        if ours.is_none() && self.options.transfer.verify {
            // An earlier attempt sent a part of the file; only its hash shows whether that part is
            // still the same.
            let text = format!(
                "hashing all of {}, because a part of it was sent by an earlier attempt",
                name(files[0].0)
            );
            self.events.notice(text);
            let hashing = Arc::clone(&supply);
            ours = Some(run_blocking(move || hashing.hash(index)).await?);
        }
        if let Some(ours) = ours
            && ours != root
        {
            let detail = format!(
                "the receiver has BLAKE3 {root}, the source {ours}; the source changed between two \
                 attempts: send it again with --restart --overwrite"
            );
            return Err(Error::Integrity { what: name(files[0].0), detail });
        }
        for (file, blake3) in files {
            if !supply.changes().is_left_out(file) {
                self.report_done(tree, file, blake3);
            }
        }
        Ok(())
    }

    fn note_archived(&self, archived: Archived) {
        for text in attributes::in_words(archived, " at the receiver") {
            self.events.notice(text);
        }
    }

    fn note_complete(&self) {
        let Some(supply) = self.supply() else { return };
        for change in supply.changes().since(0) {
            let path = supply.source().shown(change.entry);
            let event = match change.left_out {
                Some(_) if self.is_first => once_more(&path),
                Some(reason) => Event::LeftOut { path, reason },
                None if supply.changes().is_left_out(change.entry) => continue,
                None => Event::Notice { text: grown(&path, supply.source().tree(), change.entry) },
            };
            self.events.send(event);
        }
        let tree = supply.source().tree();
        for index in std::mem::take(&mut *self.empty.lock().expect("no panic while held")) {
            // A file that is one hole has another hash.
            let is_empty = tree.file(index).is_some_and(|file| file.size == 0);
            self.report_done(tree, index, is_empty.then(|| blake3::hash(b"").to_string()));
        }
    }

    fn goes_on(&self) -> bool {
        self.is_first && self.left_out() > 0
    }

    fn left_out(&self) -> usize {
        self.supply().map_or(0, |supply| supply.changes().left_out())
    }

    fn check_unchanged(&self) -> Result<(), Error> {
        self.supply().map_or(Ok(()), |supply| supply.check_unchanged())
    }
}

impl SendOpener {
    pub(super) fn new(
        options: Arc<SendOptions>,
        source: Arc<SetOnce<Arc<Source>>>,
        run: RunId,
        is_first: bool,
        clock: Clock,
        reports: mpsc::UnboundedSender<Report>,
        events: Events,
    ) -> SendOpener {
        SendOpener {
            options,
            source,
            run,
            is_first,
            clock,
            reports,
            events,
            gate: Gate::new(),
            supply: Mutex::default(),
            done: Mutex::default(),
            empty: Mutex::default(),
            files_done: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            following: Mutex::default(),
        }
    }

    /// Reports that a file is complete at the receiver.
    fn report_done(&self, tree: &Tree, file: usize, blake3: Option<String>) {
        self.files_done.fetch_add(1, Ordering::Relaxed);
        let supply = self.supply();
        let stream = supply.as_ref().and_then(|supply| supply.source().as_stream());
        let size = match stream {
            Some(stream) => stream.size().size,
            None => tree.file(file).expect("a file of the tree").size,
        };
        let (name, size) = (name_of(tree, file), Bytes(size));
        let transfer = self.events.transfer();
        self.events.send(Event::FileDone { transfer, name, size, blake3 });
    }

    fn supply(&self) -> Option<Arc<Supply>> {
        self.supply.lock().expect("no panic while held").clone()
    }

    /// Opens the session, or waits until another connection has opened it, or until the files are
    /// known.
    async fn open_or_wait(&self, conn: &mut Conn) -> Result<OpenSession, ConnError> {
        let options = &self.options;
        let request = options.transfer.wishes(&options.selection).emit();
        let hello = Hello::new(wire::files::RECEIVE, options.credential.secret(), self.run);
        conn.push(&SessionFrame::Hello(hello.asking(request)));
        // Over UDP the receiver knows from the handshake; nothing else is to change here.
        conn.tell_effort(options.transfer.dial.effort);
        if let Some(source) = self.source.get()
            && self.gate.try_ask()
        {
            return self.open(conn, None, source).await;
        }
        let id = self.hear_welcome(conn).await?;
        let source = match self.source.get() {
            Some(source) => source,
            None => work_during(conn, &self.gate, self.source.wait()).await?,
        };
        let source = Arc::clone(source);
        match conn.ping_during(self.gate.enter()).await? {
            Turn::Join(joined) => {
                conn.push(&SessionFrame::Join(joined.session.id));
                Ok(joined)
            }
            Turn::Ask => self.open(conn, Some(id), &source).await,
        }
    }

    /// Waits for the receiver's answer to the hello, and returns the session's id.
    async fn hear_welcome(&self, conn: &mut Conn) -> Result<SessionId, ConnError> {
        let remedy = "'anabranch receive' there would take files";
        let welcome = hear_welcome(conn, remedy).await?;
        let welcome = welcome.map_err(|(code, text)| self.refused(code, text))?;
        let _ = self.reports.send(Report::Announced(0, welcome.addresses));
        Ok(welcome.session)
    }

    /// Opens the session for all connections.
    async fn open(
        &self,
        conn: &mut Conn,
        id: Option<SessionId>,
        source: &Arc<Source>,
    ) -> Result<OpenSession, ConnError> {
        let asked = self.ask(conn, id, source).await;
        match &asked {
            Ok(joined) => self.gate.open(joined.clone()),
            Err(_) => self.gate.release(),
        }
        asked
    }

    /// Sends the manifest, and reads the receiver's answer; `id` is the session's, if the receiver
    /// has answered the hello already.
    async fn ask(
        &self,
        conn: &mut Conn,
        id: Option<SessionId>,
        source: &Arc<Source>,
    ) -> Result<OpenSession, ConnError> {
        let tree = source.tree();
        let id = self.send_manifest(conn, id, source).await?;
        let mut have = ExtentSet::new();
        let mut verdict = Verdict::new(tree.entries().len());
        let is_dry_run = self.options.transfer.dry_run;
        let mut granted = None;
        let mut pieces = most_pieces(source);
        loop {
            let more = conn.receive(|frame| {
                match FileFrame::try_from(frame)? {
                    FileFrame::Want(ranges) => add(&mut verdict.wanted, ranges)?,
                    FileFrame::Creates(ranges) if is_dry_run => add(&mut verdict.created, ranges)?,
                    FileFrame::Replaces(ranges) if is_dry_run => {
                        add(&mut verdict.replaced, ranges)?;
                    }
                    FileFrame::Keeps(ranges) if is_dry_run => add(&mut verdict.kept, ranges)?,
                    FileFrame::Updates(ranges) if is_dry_run => add(&mut verdict.updated, ranges)?,
                    FileFrame::Deletes(deletes) if is_dry_run => {
                        verdict.delete(&deletes).ok_or_else(|| {
                            ConnError::Unexpected("Deletes of more than there can be".into())
                        })?;
                    }
                    FileFrame::Have(ranges) => {
                        pieces = pieces.checked_sub(ranges.len()).ok_or_else(|| {
                            ConnError::Unexpected("Have of more pieces than there are".into())
                        })?;
                        for range in ranges {
                            have.insert(Extent::new(range.start, range.len));
                        }
                    }
                    FileFrame::Grant(positions) => granted = Some(positions),
                    FileFrame::Ready => return Ok(false),
                    // The receiver is still reading the data of an earlier attempt.
                    FileFrame::Session(SessionFrame::Ping(_)) => self.gate.note_working(),
                    FileFrame::Session(SessionFrame::Abort(code, text)) => {
                        return Err(self.refused(code, text));
                    }
                    other => return Err(ConnError::unexpected(&other)),
                }
                Ok(true)
            });
            if !more.await? {
                break;
            }
            self.gate.note_heard();
        }
        let peer = conn.peer().ok_or(ConnError::Closed)?;
        let (files, total) = (tree.file_count(), tree.data());
        let left_out = source.left_out().count();
        if is_dry_run {
            conn.close();
            let dry_run = verdict.dry_run(tree);
            let resumed = total - dry_run.sent;
            let agreement = Agreement { peer, files, total, resumed, left_out };
            let _ = self.reports.send(Report::DryRun(agreement, dry_run));
            // No other connection need ask: the driver ends all of them.
            return std::future::pending().await;
        }
        let want = verdict.wanted;
        // Only whole blocks of this layout count; everything else is sent again.
        let wanted = || tree.files().filter(|(index, _)| want.has(*index));
        self.files_done.store(tree.file_count() - wanted().count(), Ordering::Relaxed);
        let empty = wanted().filter(|(_, file)| file.data_len() == 0).map(|(index, _)| index);
        *self.empty.lock().expect("no panic while held") = empty.collect();
        let packing = Packing::new(tree, |index| want.has(index));
        let packing = packing.map_err(|error| ConnError::Unexpected(error.to_string()))?;
        if granted.is_some() && packing.layout().objects() > 1 {
            return Err(ConnError::Unexpected("Grant of parts of several files".into()));
        }
        let layout = match (source.as_stream(), granted) {
            (Some(stream), granted) => {
                Layout::stream(stream.size().size.min(granted.unwrap_or(u64::MAX)))
            }
            (None, Some(_)) => Layout::stream(0),
            (None, None) => packing.layout().clone(),
        };
        let have = layout.whole_blocks(&have);
        if let Some(stream) = source.as_stream() {
            check_kept(stream, &layout, &have).map_err(|error| self.give_up(error))?;
        }
        let resumed = tree.data() - layout.total() + have.total();
        let transfer = &self.options.transfer;
        let core = new_core(&transfer.scheduler, &transfer.dial.paths, &layout, &have);
        let load = Arc::new(self.supply_of(source, packing, have));
        if let Some(positions) = granted {
            load.grant(positions);
        }
        *self.supply.lock().expect("no panic while held") = Some(Arc::clone(&load));
        let session = Arc::new(Session::new(id, self.clock, self.reports.clone(), core, transfer));
        let agreement = Agreement { peer, files, total, resumed, left_out };
        session.report(Report::Established(Arc::clone(&session), agreement));
        if session.core().layout().is_growing() && !transfer.dry_run {
            if let Some(stream) = source.as_stream() {
                stream.begin().map_err(|error| self.give_up(error))?;
            }
            let following = follow(Arc::downgrade(&load), Arc::downgrade(&session));
            self.following.lock().expect("no panic while held").spawn(following);
        }
        Ok(OpenSession { session, load })
    }

    /// The files of `source` that are in `packing`, of which the receiver has `have`.
    fn supply_of(&self, source: &Arc<Source>, packing: Packing, have: ExtentSet) -> Supply {
        let tolerance = Tolerance::of(self.options.selection.strict, source.tree().file_count());
        let follows = self.is_first && tolerance == Tolerance::All;
        let tolerance = if follows { Tolerance::Follow } else { tolerance };
        Supply::new(Arc::clone(source), packing)
            .tolerating(tolerance, have)
            .compressing(self.options.transfer.compression)
    }

    /// Ends the transfer.
    fn give_up(&self, error: Error) -> ConnError {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.reports.send(Report::Fatal(error));
        ConnError::Closed
    }

    /// Reports the receiver's refusal.
    fn refused(&self, code: AbortCode, text: String) -> ConnError {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.reports.send(refusal(code, text));
        ConnError::Closed
    }

    /// Queues the folders in which the receiver deletes what the source does not have, and the
    /// patterns of what it must leave.
    fn push_mirror(&self, conn: &mut Conn, source: &Source) {
        if !self.options.transfer.delete {
            return;
        }
        source.folders().iter().for_each(|folder| conn.push(&FileFrame::Mirror(folder)));
        self.options.selection.push_filters(conn);
    }

    /// Sends the manifest, chunk by chunk: a large one must not be in memory twice. The first chunk
    /// goes with the hello, if that is not answered yet: a round trip less for few files, and for
    /// many the receiver's addresses come before the rest. Returns the session's id.
    async fn send_manifest(
        &self,
        conn: &mut Conn,
        mut id: Option<SessionId>,
        source: &Source,
    ) -> Result<SessionId, ConnError> {
        let entries = source.tree().entries();
        let attributes = source.tree().attributes_of();
        let mut chunks = wire::manifest::chunks_with(entries, attributes).peekable();
        loop {
            if let Some(chunk) = chunks.next() {
                conn.push(&FileFrame::Entries(&chunk));
            }
            let is_last = chunks.peek().is_none();
            if is_last {
                let count = u32::try_from(entries.len()).expect("a tree holds fewer");
                self.push_mirror(conn, source);
                // The receiver needs to know that something is missing, and not all that is.
                source.left_out().frames(1).for_each(|frame| conn.push(&frame));
                conn.push(&FileFrame::ManifestEnd(count));
            }
            conn.flush().await?;
            let known = match id {
                Some(known) => known,
                None => self.hear_welcome(conn).await?,
            };
            id = Some(known);
            self.gate.note_heard();
            if is_last {
                return Ok(known);
            }
        }
    }
}

/// Whole blocks and the ends of files: a receiver cannot have more pieces than that.
fn most_pieces(source: &Source) -> usize {
    let tree = source.tree();
    let blocks = usize::try_from(tree.data().0 / BLOCK).unwrap_or(usize::MAX);
    let streamed = source.as_stream().map_or(0, |stream| stream.size().size / BLOCK);
    let streamed = usize::try_from(streamed).unwrap_or(usize::MAX);
    blocks.saturating_add(streamed).saturating_add(tree.entries().len())
}

/// Adds the entries of a receiver's answer.
fn add(entries: &mut Want, ranges: Vec<Range>) -> Result<(), ConnError> {
    let offered = ranges.into_iter().try_for_each(|range| entries.add(range));
    offered.ok_or_else(|| ConnError::Unexpected("Want of entries that were not offered".into()))
}

/// Tells the core of a session how its layout grows, until all of it is known: with the stream, and
/// with what the receiver grants.
async fn follow(load: Weak<Supply>, session: Weak<Session>) {
    let (mut known, mut granted) = {
        let Some(load) = load.upgrade() else { return };
        (load.source().as_stream().map(|stream| stream.known()), load.granted())
    };
    loop {
        {
            let (Some(load), Some(session)) = (load.upgrade(), session.upgrade()) else { return };
            let stream = load.source().as_stream();
            if let Some(error) = stream.and_then(|stream| stream.take_failure()) {
                session.report(Report::Fatal(error));
                return;
            }
            let whole = Grown { size: load.packing().layout().total().0, is_end: true };
            let known = known.as_mut().map_or(whole, |known| *known.borrow_and_update());
            let granted = *granted.borrow_and_update();
            let Grown { size, is_end } = if granted < known.size {
                Grown { size: granted / BLOCK * BLOCK, is_end: false }
            } else {
                known
            };
            // The first blocks of a stream come together.
            if size >= 2 * BLOCK || is_end {
                let mut core = session.core();
                let grown = core.handle_grown(session.clock.now(), size, is_end);
                grown.expect("a stream grows by blocks, and then ends");
                session.wake(&mut core);
            }
            session.kick.notify_one();
            if is_end {
                return;
            }
        }
        let grown = async {
            match &mut known {
                Some(known) => known.changed().await,
                None => std::future::pending().await,
            }
        };
        let changed = tokio::select! {
            changed = grown => changed,
            changed = granted.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Checks that everything that a receiver lacks of a stream is still in memory: it may have been
/// restarted, and have lost what it had acknowledged.
fn check_kept(stream: &Stream, layout: &Layout, have: &ExtentSet) -> Result<(), Error> {
    let all = Extent::new(0, layout.total().0);
    if have.gaps(all).all(|gap| stream.has(gap)) {
        return Ok(());
    }
    let reason = "it has lost a part of the stream that it had acknowledged, and a stream cannot \
                  be read twice: send it again";
    Err(Error::Receiver { reason: reason.into() })
}

/// The message for a file that grew.
fn grown(path: &Path, tree: &Tree, entry: usize) -> String {
    let size = Bytes(tree.file(entry).expect("a file of the tree").size);
    format!("{} grew while it was sent: its first {size} arrived", path.display())
}

/// A file's name as announced.
fn name_of(tree: &Tree, file: usize) -> String {
    String::from_utf8_lossy(&tree.entries()[file].path).into_owned()
}
