//! The way into a session, for either direction of the data.

use std::sync::Arc;

use peer::dial::{Parting, Path};
use peer::{Conn, ConnError};
use tokio::sync::{Notify, mpsc};
use units::{Bytes, Time};
use wire::frame::SessionId;

use super::path::{Flow, PathTask};
use super::session::{Registered, Report, Session};
use crate::Error;

/// A connection's part in a session.
pub(super) struct Member<L> {
    pub(super) session: Arc<Session>,
    /// The session's name at the host of the connection.
    pub(super) joined: SessionId,
    /// The files that the session moves.
    pub(super) load: Arc<L>,
}

/// Opens a session with a listening peer.
pub(super) trait SessionOpener: Send + Sync + 'static {
    /// The files that the session moves.
    type Load: Send + Sync + 'static;
    /// The direction in which data flow over a path.
    type Flow: Flow;

    /// Brings a fresh connection to a host into the session.
    fn enter(
        &self,
        conn: &mut Conn,
        host: usize,
    ) -> impl Future<Output = Result<Member<Self::Load>, ConnError>> + Send;

    /// The data flow over a path that has joined.
    fn flow(load: &Arc<Self::Load>, joined: SessionId, path: &Path, now: Time) -> Self::Flow;

    /// Whether either side is reading files before it can agree, which may take any time.
    fn is_working(&self) -> bool;

    /// The size of the transfer, as far as it is known without a session.
    fn offered(&self) -> Bytes {
        Bytes::ZERO
    }

    /// Whether the transfer ends once both sides have agreed.
    fn is_dry_run(&self) -> bool {
        false
    }

    /// The sink has an object complete, under this hash.
    ///
    /// # Errors
    /// [`Error::Integrity`] if the source has something else.
    fn object_done(
        &self,
        _object: u32,
        _root: [u8; 32],
    ) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(()) }
    }

    /// Checks that the source is what it was.
    ///
    /// # Errors
    /// [`Error::SourceChanged`] if it is not.
    fn check_unchanged(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A session as its paths see it.
pub(super) struct Joining<O> {
    pub(super) opener: O,
    pub(super) reports: mpsc::UnboundedSender<Report>,
    pub(super) events: peer::Events,
}

impl<O: SessionOpener> peer::dial::Session for Joining<O> {
    type Member = Member<O::Load>;

    async fn join(&self, conn: &mut Conn, host: usize) -> Result<Self::Member, ConnError> {
        self.opener.enter(conn, host).await
    }

    async fn carry(
        &self,
        member: Self::Member,
        path: Arc<Path>,
        conn: Conn,
        stop: &Notify,
    ) -> Result<Parting, ConnError> {
        let Member { session, joined, load } = member;
        let registered = Registered::new(&session, &path, &conn);
        let flow = O::flow(&load, joined, &path, session.clock.now());
        PathTask::new(&session, registered.facts(), flow, conn, self.events.clone()).run(stop).await
    }

    fn reject(&self, host: usize, error: peer::Error) {
        // When nobody listens any more, the session is over anyway.
        let _ = self.reports.send(Report::HostFailed(host, error.into()));
    }
}
