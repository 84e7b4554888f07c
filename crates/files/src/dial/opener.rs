//! How a connection joins a session, for both directions of the data.

use std::path::Path;
use std::sync::Arc;

use peer::dial::{self, Further, Parting};
use peer::{Conn, ConnError};
use tokio::sync::{Notify, mpsc};
use units::{Bytes, Time};
use wire::files::Archived;
use wire::session::SessionId;

use super::path::{Direction, PathTask};
use super::session::{Registered, Report, Session};
use crate::Error;
use events::{Event, Events};

/// The session that a connection joined.
pub(super) struct Member<L> {
    pub(super) session: Arc<Session>,
    /// The session's id at the host of the connection.
    pub(super) joined: SessionId,
    /// The files that the session moves.
    pub(super) load: Arc<L>,
}

/// Opens a session with a listening peer.
pub(super) trait SessionOpener: Send + Sync + 'static {
    /// The files that the session moves.
    type Load: Send + Sync + 'static;
    /// The direction in which data flow over a path.
    type Direction: Direction;

    /// Joins a fresh connection to the session, which the first connection opens.
    fn enter(
        &self,
        conn: &mut Conn,
        host: usize,
    ) -> impl Future<Output = Result<Member<Self::Load>, ConnError>> + Send;

    /// The direction of the data over a path that has joined.
    fn direction(
        load: &Arc<Self::Load>,
        joined: SessionId,
        path: &dial::Path,
        now: Time,
    ) -> Self::Direction;

    /// Whether either side is reading files before the agreement, which may take any time.
    fn is_working(&self) -> bool;

    /// The size of the transfer before a session is agreed on. The default is for a fetch, which
    /// learns the size from a server.
    fn offered(&self) -> Bytes {
        Bytes::ZERO
    }

    /// Number of files that are complete at the sink, and the file whose data are on their way.
    fn files_done(&self) -> (usize, Option<String>);

    /// Handles the report that the sink completed an object with hash `root`. The default is for a
    /// fetch, whose own sink verifies and reports its files.
    ///
    /// # Errors
    /// [`Error::Integrity`] if the source's object has another hash.
    fn object_done(
        &self,
        _object: u32,
        _root: [u8; 32],
    ) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(()) }
    }

    /// Handles the sink's report on owners and attributes. The default is for a fetch, whose own
    /// sink has told it.
    fn note_archived(&self, _archived: Archived) {}

    /// The number of files that are left out because they changed after the agreement.
    fn left_out(&self) -> usize;

    /// Whether another session follows, for the files that are left out.
    fn goes_on(&self) -> bool;

    /// The sink has everything. The default is for a fetch, whose own sink reports its files.
    fn note_complete(&self) {}

    /// Checks that the source has not changed. The default is for a fetch, whose servers check
    /// their own files.
    ///
    /// # Errors
    /// [`Error::SourceChanged`] if it has.
    fn check_unchanged(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// The message for a file that is left out, and follows in another session.
pub(super) fn once_more(path: &Path) -> Event {
    let text =
        format!("{} changed while it was sent: it follows once more, at the end", path.display());
    Event::Notice { text }
}

/// The session in which a dialer's paths carry data.
pub(super) struct Joining<O> {
    pub(super) opener: O,
    pub(super) reports: mpsc::UnboundedSender<Report>,
    pub(super) events: Events,
}

impl<O: SessionOpener> peer::dial::Session for Joining<O> {
    type Member = Member<O::Load>;

    async fn join(&self, conn: &mut Conn, host: usize) -> Result<Self::Member, ConnError> {
        self.opener.enter(conn, host).await
    }

    async fn carry(
        &self,
        member: Self::Member,
        path: Arc<dial::Path>,
        conn: Conn,
        further: Further<Self::Member>,
        stop: &Notify,
    ) -> Result<Parting, ConnError> {
        let session = Arc::clone(&member.session);
        let registered = Registered::new(&session, &path, &conn);
        let direct = |member: Self::Member| {
            let Member { session: other, joined, load } = member;
            let is_this = Arc::ptr_eq(&session, &other);
            is_this.then(|| O::direction(&load, joined, &path, session.clock.now()))
        };
        let direction = direct(member).expect("the session is the first member's");
        let (facts, events) = (registered.facts(), self.events.clone());
        PathTask::new(&session, facts, conn, direction, further, direct, events).run(stop).await
    }

    fn reject(&self, host: usize, error: peer::Error) {
        // If the driver has gone, the session is over anyway.
        let _ = self.reports.send(Report::HostFailed(host, error.into()));
    }
}
