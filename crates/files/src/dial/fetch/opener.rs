//! Opens the sessions with the servers, and compares their offers.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use net::Clock;
use peer::dial::{Gate, Path, Terms, Turn};
use peer::{Conn, ConnError, Fingerprint};
use tokio::sync::watch;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use transfer::{BLOCK, Cv, Layout, Tree};
use units::{Bytes, Time};
use wire::files::FileFrame;
use wire::files::{Range, Wishes};
use wire::manifest::Kind;
use wire::session::{Hello, SessionFrame, SessionId};

use super::arrival::{Arrival, ServerSession};
use super::offer::{self, Offer, Refusal};
use super::replicas::Replicas;
use crate::asked::AskedFor;
use crate::blocking::{Wanted, run_blocking};
use crate::dial::greeting::{hear_welcome, work_during};
use crate::dial::opener::{Member, SessionOpener, once_more};
use crate::dial::path::Incoming;
use crate::dial::session::{Agreement, Report, Session, new_core};
use crate::dry_run::Verdict;
use crate::listing::listing;
use crate::protocol::{error_of, want_frames};
use crate::sink::{Directory, Mirror, NOTHING_DELETED, SinkSession, Staging, Survey};
use crate::{Error, FetchOptions};
use events::{Event, Events};

/// Opens the sessions with the servers.
pub(super) struct FetchOpener {
    options: Arc<FetchOptions>,
    asked: AskedFor,
    terms: Terms,
    clock: Clock,
    reports: mpsc::UnboundedSender<Report>,
    events: Events,
    /// One for each server.
    gates: Arc<Vec<Gate<ServerSession>>>,
    /// The agreement with the first server that answered.
    agreed: tokio::sync::Mutex<Option<Agreed>>,
    /// Rings when `agreed` is set.
    changed: Notify,
    writing: Arc<Mutex<Weak<SinkSession>>>,
    /// Whether files that change are fetched once more, in another session.
    is_first: bool,
    /// Lets the core request as much as the output grants; ends with the opener.
    following: Mutex<JoinSet<()>>,
}

struct Agreed {
    session: Arc<Session>,
    arrival: Arc<Arrival>,
    tree: Tree,
    want: Vec<Range>,
    root: Option<Cv>,
    /// Label of the server of the agreement, for messages.
    first_server: String,
}

/// The wait of the other servers for the first-named one, once they are ready.
const FIRST_SERVER_WAIT: Duration = Duration::from_secs(3);
/// The wait for another transfer that has the same file open.
const LOCKED_WAIT: Duration = Duration::from_secs(3);

impl SessionOpener for FetchOpener {
    type Load = Arrival;
    type Direction = Incoming;

    async fn enter(&self, conn: &mut Conn, host: usize) -> Result<Member<Arrival>, ConnError> {
        let joined = match self.gates[host].joined() {
            Some(joined) => {
                conn.push(&SessionFrame::Join(joined.id));
                joined
            }
            None => match self.open_or_wait(conn, host).await {
                Ok(joined) => joined,
                Err(Refusal::Lost(error)) => return Err(error),
                // That the path ends is no news: the driver has the reason, and ends them all.
                Err(Refusal::Over) => return std::future::pending().await,
                Err(Refusal::Unusable(error)) => {
                    let text = error.to_string();
                    let _ = self.reports.send(Report::HostFailed(host, error));
                    if self.gates.len() == 1 {
                        return std::future::pending().await;
                    }
                    return Err(ConnError::Refused(text));
                }
            },
        };
        Ok(Member { session: joined.session, joined: joined.id, load: joined.arrival })
    }

    fn files_done(&self) -> (usize, Option<String>) {
        let writing = self.writing.lock().expect("no panic while held").upgrade();
        writing.map_or((0, None), |session| (session.files_done(), session.current()))
    }

    fn note_complete(&self) {
        let writing = self.writing.lock().expect("no panic while held").upgrade();
        for event in writing.iter().flat_map(|session| session.left_out_events()) {
            let event = match &event {
                Event::LeftOut { path, .. } if self.is_first => once_more(path),
                _ => event,
            };
            self.events.send(event);
        }
    }

    fn goes_on(&self) -> bool {
        self.is_first && self.left_out() > 0
    }

    fn left_out(&self) -> usize {
        let writing = self.writing.lock().expect("no panic while held").upgrade();
        writing.map_or(0, |session| session.left_out())
    }

    fn direction(arrival: &Arc<Arrival>, joined: SessionId, path: &Path, now: Time) -> Incoming {
        let name = path.plan.name.clone();
        Incoming::new(Arc::clone(arrival), path.plan.host, joined, name, now)
    }

    /// Whether some server, or this host, is reading its files, which may take any time.
    fn is_working(&self) -> bool {
        self.gates.iter().any(Gate::is_working)
    }
}

impl FetchOpener {
    #[expect(
        clippy::too_many_arguments,
        reason = "what is asked for, of whom, and how it is reported"
    )]
    pub(super) fn new(
        options: Arc<FetchOptions>,
        asked: AskedFor,
        terms: Terms,
        clock: Clock,
        reports: mpsc::UnboundedSender<Report>,
        events: Events,
        writing: Arc<Mutex<Weak<SinkSession>>>,
        is_first: bool,
    ) -> FetchOpener {
        let gates = Arc::new(options.from.iter().map(|_| Gate::new()).collect());
        let agreed = tokio::sync::Mutex::default();
        FetchOpener {
            options,
            asked,
            terms,
            clock,
            reports,
            events,
            gates,
            agreed,
            changed: Notify::new(),
            writing,
            is_first,
            following: Mutex::default(),
        }
    }

    /// Opens a session with a server, or waits until another connection has opened it.
    async fn open_or_wait(&self, conn: &mut Conn, server: usize) -> Result<ServerSession, Refusal> {
        let secret = self.options.from[server].credential.secret();
        let request = wire::files::request_of(self.terms.options.effort);
        let hello = Hello::new(wire::files::SERVE, secret, self.terms.run).asking(request);
        conn.push(&SessionFrame::Hello(hello));
        let gate = &self.gates[server];
        if gate.try_ask() {
            return self.open_session(conn, server, None).await;
        }
        let id = self.hear_welcome(conn, server).await?;
        match conn.ping_during(gate.enter()).await? {
            Turn::Join(joined) => {
                conn.push(&SessionFrame::Join(joined.id));
                Ok(joined)
            }
            Turn::Ask => self.open_session(conn, server, Some(id)).await,
        }
    }

    /// Waits for a server's answer to the hello, and returns the id of the session there.
    async fn hear_welcome(&self, conn: &mut Conn, server: usize) -> Result<SessionId, Refusal> {
        let remedy = "'anabranch serve' there would offer files";
        let welcome = hear_welcome(conn, remedy).await?;
        let welcome = welcome.map_err(|(code, text)| Refusal::Unusable(error_of(code, text)))?;
        let _ = self.reports.send(Report::Announced(server, welcome.addresses));
        Ok(welcome.session)
    }

    /// Opens a session with a server for all connections to it.
    async fn open_session(
        &self,
        conn: &mut Conn,
        server: usize,
        id: Option<SessionId>,
    ) -> Result<ServerSession, Refusal> {
        let asked = self.ask(conn, server, id).await;
        match &asked {
            Ok(joined) => self.gates[server].open(joined.clone()),
            Err(_) => self.gates[server].release(),
        }
        asked
    }

    /// Asks a server for its offer, and agrees with it on the wanted entries; `id` is the id of the
    /// session there, if the server has answered the hello already.
    async fn ask(
        &self,
        conn: &mut Conn,
        server: usize,
        id: Option<SessionId>,
    ) -> Result<ServerSession, Refusal> {
        let gate = &self.gates[server];
        offer::push_request(conn, &self.options, &self.asked);
        conn.flush().await?;
        let id = match id {
            Some(id) => id,
            None => self.hear_welcome(conn, server).await?,
        };
        let offer = offer::read_offer(conn, &self.options, &self.asked, gate).await?;
        if let (Some(wanted), Some((_, root))) = (self.options.blake3, &offer.hashes)
            && root.0 != wanted
        {
            let what = file_name(&offer.tree);
            let detail = format!("what is there has {root}, and {} is asked for", Cv(wanted));
            return Err(Refusal::Unusable(Error::Integrity { what, detail }));
        }
        if server > 0 {
            conn.ping_during(self.wait_for_first_server()).await?;
        }
        let (session, arrival, want) = {
            let mut agreed = conn.ping_during(self.agreed.lock()).await?;
            if let Some(known) = &*agreed {
                self.compare(known, &offer)?;
                (Arc::clone(&known.session), Arc::clone(&known.arrival), known.want.clone())
            } else {
                let opened = self.open(conn, server, id, offer).await?;
                let found =
                    (Arc::clone(&opened.session), Arc::clone(&opened.arrival), opened.want.clone());
                *agreed = Some(opened);
                found
            }
        };
        self.changed.notify_waiters();
        want_frames(&want).for_each(|frame| conn.push(&frame));
        conn.push(&FileFrame::Ready);
        conn.flush().await?;
        Ok(ServerSession { id, session, arrival })
    }

    /// Waits a while for the offer of the first-named server.
    async fn wait_for_first_server(&self) {
        let mut until = Instant::now() + FIRST_SERVER_WAIT;
        loop {
            let changed = self.changed.notified();
            if self.agreed.lock().await.is_some() || Instant::now() >= until {
                return;
            }
            // The first server has answered, but may take long to read all of a file.
            if self.gates[0].is_promising() {
                until = until.max(Instant::now() + FIRST_SERVER_WAIT / 3);
            }
            let _ = tokio::time::timeout(Duration::from_millis(200), changed).await;
        }
    }

    /// Opens the sink's session with the first offer.
    async fn open(
        &self,
        conn: &mut Conn,
        server: usize,
        id: SessionId,
        offer: Offer,
    ) -> Result<Agreed, Refusal> {
        let peer = conn.peer().ok_or(ConnError::Closed)?;
        let options = &self.options;
        let wishes = options.transfer.wishes(&options.selection);
        let (into, clock, events, tree) =
            (options.into.clone(), self.clock, self.events.clone(), offer.tree.clone());
        for event in offer.left_out.events() {
            self.events.send(event);
        }
        let left_out = offer.left_out.count();
        let mirror = self.mirror(&offer);
        if options.list {
            let (files, total) = (tree.file_count(), tree.data());
            let agreement = Agreement { peer, files, total, resumed: Bytes::ZERO, left_out };
            let _ = self.reports.send(Report::Listing(agreement, listing(&tree)));
            return Err(Refusal::Over);
        }
        if wishes.dry_run {
            return Err(self.dry_run(conn, peer, tree, wishes, mirror, left_out).await?);
        }
        let is_passage = options.output.is_some();
        let opening = run_blocking(move || {
            let directory = Arc::new(Directory::open(&into)?.passing(is_passage));
            let until = Instant::now() + LOCKED_WAIT;
            loop {
                let directory = Arc::clone(&directory);
                match SinkSession::open(
                    id,
                    peer,
                    tree.clone(),
                    wishes,
                    mirror.as_ref(),
                    directory,
                    clock,
                    events.clone(),
                    &Wanted::always(),
                ) {
                    // An attempt that was just stopped may still hold the part.
                    Err(Error::Disk { source, .. })
                        if source.kind() == ErrorKind::ResourceBusy && Instant::now() < until =>
                    {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    opened => return opened,
                }
            }
        });
        let opened = work_during(conn, &self.gates[server], opening).await?;
        let session = match opened.and_then(|session| session.deliver_to(options.output.clone())) {
            Ok(mut session) => {
                session.is_followed = self.is_first && !options.selection.strict;
                Arc::new(session)
            }
            Err(error) => return Err(self.fail(error)),
        };
        *self.writing.lock().expect("no panic while held") = Arc::downgrade(&session);
        let (want, resumed) = (session.want().to_vec(), session.resumed());
        let (layout, have) = (session.layout().clone(), session.verified_extents());
        let root = offer.hashes.as_ref().map(|(_, root)| *root);
        let replicas = offer
            .hashes
            .map(|(hashes, _)| Replicas::new(hashes, file_name(&offer.tree), self.terms.clone()));
        let arrival = Arrival::new(session, &self.gates, replicas, self.reports.clone());
        arrival.finish_files();
        // The rate of an interface is known, but not its division among several servers.
        let paths =
            if self.gates.len() == 1 { options.transfer.dial.paths.as_slice() } else { &[] };
        let granted = arrival.session().delivery().map(|delivery| delivery.granted());
        let start = if granted.is_some() { Layout::stream(0) } else { layout.clone() };
        let core = new_core(&options.transfer.scheduler, paths, &start, &have);
        let arrival = Arc::new(arrival);
        let session =
            Arc::new(Session::new(id, clock, self.reports.clone(), core, &options.transfer));
        if let Some(granted) = granted {
            let following = follow(granted, layout.total().0, Arc::downgrade(&session));
            self.following.lock().expect("no panic while held").spawn(following);
        }
        let (files, total) = (offer.tree.file_count(), offer.tree.data());
        let agreement = Agreement { peer, files, total, resumed, left_out };
        session.report(Report::Established(Arc::clone(&session), agreement));
        let first_server = self.terms.label(server);
        Ok(Agreed { session, arrival, tree: offer.tree, want, root, first_server })
    }

    /// The folders in which everything is deleted that the server does not have.
    fn mirror(&self, offer: &Offer) -> Option<Mirror> {
        let Wishes { delete, force_delete, .. } =
            self.options.transfer.wishes(&self.options.selection);
        if delete && offer.left_out.count() > 0 {
            let text = NOTHING_DELETED.to_string();
            self.events.notice(text);
        }
        (delete && offer.left_out.count() == 0).then(|| Mirror {
            folders: self.asked.mirrored(&offer.tree),
            selection: self.options.selection.clone(),
            is_forced: force_delete,
        })
    }

    /// Surveys the receiving folder for a dry run, which changes nothing.
    async fn dry_run(
        &self,
        conn: &mut Conn,
        peer: Fingerprint,
        tree: Tree,
        wishes: Wishes,
        mirror: Option<Mirror>,
        left_out: usize,
    ) -> Result<Refusal, ConnError> {
        let into = self.options.into.clone();
        let (files, total) = (tree.file_count(), tree.data());
        let is_passage = self.options.output.is_some();
        let surveying = run_blocking(move || {
            let survey = if into.exists() {
                let directory = Directory::open(&into)?.passing(is_passage);
                let (staging, mirror) = (Staging::open_existing(&directory)?, mirror.as_ref());
                let wanted = Wanted::always();
                Survey::new(&directory, staging.as_ref(), &tree, wishes, mirror, &wanted)?
            } else {
                Survey::of_nothing(&tree)
            };
            Ok(Verdict::of(&survey, &tree).dry_run(&tree))
        });
        Ok(match conn.ping_during(surveying).await? {
            Ok(dry_run) => {
                let resumed = total - dry_run.sent;
                let agreement = Agreement { peer, files, total, resumed, left_out };
                let _ = self.reports.send(Report::DryRun(agreement, dry_run));
                Refusal::Over
            }
            Err(error) => self.fail(error),
        })
    }

    /// Checks that an offer is the one that was agreed on, with this or another server.
    fn compare(&self, known: &Agreed, offer: &Offer) -> Result<(), Refusal> {
        let several = self.options.from.len() > 1;
        // The first server's owners and attributes count.
        let has_same_owners = several || known.tree.attributes_of() == offer.tree.attributes_of();
        let same = has_same_owners
            && known.tree.entries().len() == offer.tree.entries().len()
            && known.tree.entries().iter().zip(offer.tree.entries()).all(|(a, b)| {
                match (&a.kind, &b.kind) {
                    // Replicas may have different names and times.
                    (Kind::File(a), Kind::File(b)) if several => {
                        (a.size, &a.data) == (b.size, &b.data)
                    }
                    (a_kind, b_kind) => a.path == b.path && a_kind == b_kind,
                }
            });
        if several {
            let what = file_name(&offer.tree);
            let size = |tree: &Tree| tree.files().next().map_or(0, |(_, file)| file.size);
            let root = offer.hashes.as_ref().map(|(_, root)| *root);
            if !same {
                let (here, there) = (size(&offer.tree), size(&known.tree));
                let detail =
                    format!("it has {here} bytes there, and {there} at {}", known.first_server);
                return Err(Refusal::Unusable(Error::Integrity { what, detail }));
            }
            if let (Some(here), Some(there)) = (root, known.root)
                && here != there
            {
                let detail = format!("it has {here} there, and {there} at {}", known.first_server);
                return Err(Refusal::Unusable(Error::Integrity { what, detail }));
            }
        } else if !same {
            let _ = self.reports.send(Report::SessionGone);
            return Err(Refusal::Over);
        }
        Ok(())
    }

    /// Reports a local error, which no other server can avoid.
    fn fail(&self, error: Error) -> Refusal {
        let _ = self.reports.send(Report::Fatal(error));
        Refusal::Over
    }
}

/// The path of the first entry of a tree.
fn file_name(tree: &Tree) -> String {
    tree.entries()
        .first()
        .map_or_else(String::new, |entry| String::from_utf8_lossy(&entry.path).into_owned())
}

/// Lets the core of a session request as much of `total` bytes as an output grants.
async fn follow(mut granted: watch::Receiver<u64>, total: u64, session: Weak<Session>) {
    loop {
        let most = *granted.borrow_and_update();
        let is_end = most >= total;
        let Some(session) = session.upgrade() else { return };
        {
            let size = if is_end { total } else { most / BLOCK * BLOCK };
            let mut core = session.core();
            let grown = core.handle_grown(session.clock.now(), size, is_end);
            grown.expect("grants grow, and are windows");
            session.wake(&mut core);
        }
        session.kick.notify_one();
        drop(session);
        if is_end || granted.changed().await.is_err() {
            return;
        }
    }
}
