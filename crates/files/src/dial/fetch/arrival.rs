//! The one sink of the data of all servers.

use std::sync::{Arc, Mutex, Weak};

use peer::ConnError;
use peer::dial::Gate;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use transfer::Extent;
use units::{Bytes, Span, Time};
use wire::files::{Changed, Data, Range};
use wire::session::SessionId;

use super::replicas::Replicas;
use crate::dial::session::{Report, Session};
use crate::sink::{self, SinkEnd, SinkSession};

/// An open session with a server.
#[derive(Clone)]
pub(super) struct ServerSession {
    /// The session's id at the server.
    pub(super) id: SessionId,
    pub(super) session: Arc<Session>,
    pub(super) arrival: Arc<Arrival>,
}

/// Hands the data of all servers to the session of the sink.
pub(in crate::dial) struct Arrival {
    session: Arc<SinkSession>,
    /// Weak, because the gates own the sessions, which own this.
    gates: Weak<Vec<Gate<ServerSession>>>,
    /// For each server: the last time when a path waited for it, and the total wait since its last
    /// data.
    silence: Vec<Mutex<(Time, Span)>>,
    /// The expected hashes of all blocks, if they were asked for.
    replicas: Option<Replicas>,
    reports: mpsc::UnboundedSender<Report>,
    attending: JoinHandle<()>,
}

/// The longest wait counted between two samples of a path.
const WAIT_STEP: Span = Span::from_millis(100);
/// Wrong blocks that a dropped server may have left.
const EXTRA_REFUSALS: u64 = 256;

impl Drop for Arrival {
    fn drop(&mut self) {
        self.attending.abort();
    }
}

impl Arrival {
    pub(super) fn new(
        session: Arc<SinkSession>,
        gates: &Arc<Vec<Gate<ServerSession>>>,
        replicas: Option<Replicas>,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Arrival {
        let attending = tokio::spawn(attend(Arc::clone(&session), reports.clone()));
        let silence = gates.iter().map(|_| Mutex::default()).collect();
        Arrival { session, gates: Arc::downgrade(gates), silence, replicas, reports, attending }
    }

    /// The session of the sink.
    pub(in crate::dial) fn session(&self) -> &Arc<SinkSession> {
        &self.session
    }

    /// Handles data from a server on the path called `path`. Returns the range that was written.
    pub(in crate::dial) fn handle_data(
        &self,
        server: usize,
        path: &str,
        data: &Data<'_>,
    ) -> Result<Range, ConnError> {
        self.reset_silence(server);
        let Some(replicas) = &self.replicas else { return self.session.handle_data(path, data) };
        let extent = Extent::new(data.position, data.payload.len() as u64);
        let checked = replicas.check(server, data, self.session.layout());
        for (wrong, error) in checked.mismatches {
            self.session.allow_refusals(EXTRA_REFUSALS);
            let text = error.to_string();
            let _ = self.reports.send(Report::HostFailed(wrong, error));
            if wrong == server {
                return Err(ConnError::Refused(text));
            }
        }
        let data = Data { block_hash: Some(checked.expected), ..data.clone() };
        let range = self.session.handle_data(path, &data)?;
        if self.session.has_verified(extent) {
            replicas.forget(extent);
        }
        Ok(range)
    }

    /// Handles the news of a file that changed at its server. Returns the object that is left out
    /// with it, if there is one.
    pub(in crate::dial) fn handle_changed(
        &self,
        changed: &Changed<'_>,
    ) -> Result<Option<usize>, ConnError> {
        if self.replicas.is_some() {
            return Err(ConnError::Unexpected("Changed of a file with hashes".into()));
        }
        self.session.handle_changed(changed)
    }

    /// The extent to request where the core transmits `extent`: the whole block if pieces of it
    /// came wrong, so that one server answers for it.
    pub(in crate::dial) fn widened(&self, extent: Extent) -> Extent {
        match &self.replicas {
            Some(replicas) if replicas.is_contested(extent) => {
                let block = self.session.layout().block_extent(extent.start / transfer::BLOCK);
                block.unwrap_or(extent)
            }
            _ => extent,
        }
    }

    /// The largest extent that [`Arrival::widened`] makes of `most` bytes.
    pub(in crate::dial) fn widest(&self, most: Bytes) -> Bytes {
        let may_widen = self.replicas.as_ref().is_some_and(Replicas::has_contested);
        if may_widen { most.max(Bytes(transfer::BLOCK)) } else { most }
    }

    /// Records that a block came wrong.
    pub(in crate::dial) fn contest(&self, range: Range) {
        let extent = Extent::new(range.start, range.len);
        if let Some(replicas) = &self.replicas
            && !self.session.has_verified(extent)
        {
            replicas.contest(extent);
        }
    }

    /// Forgets the session with a server that no longer knows it: the next path opens another.
    pub(in crate::dial) fn forget(&self, server: usize, joined: SessionId) {
        if let Some(gates) = self.gates.upgrade() {
            gates[server].forget(|known| known.id == joined);
        }
    }

    /// Starts finishing if everything is verified.
    pub(in crate::dial) fn finish_files(&self) {
        sink::finish_files(&self.session);
    }

    /// Counts the time that an open path waits for data of a server; each path calls it at every
    /// sample. Returns the total wait, over all paths, since the server last sent data.
    pub(in crate::dial) fn note_waiting(&self, server: usize, now: Time) -> Span {
        let mut silence = self.silence[server].lock().expect("no panic while held");
        let (last, waited) = *silence;
        *silence = (now, waited + (now - last).min(WAIT_STEP));
        silence.1
    }

    fn reset_silence(&self, server: usize) {
        *self.silence[server].lock().expect("no panic while held") =
            (self.session.clock.now(), Span::ZERO);
    }
}

/// Syncs received data, and reports the end of the session.
async fn attend(session: Arc<SinkSession>, reports: mpsc::UnboundedSender<Report>) {
    let mut seen = 0;
    let watch = |session: &SinkSession| {
        if session.writes.are_held_up(&mut seen) {
            let _ = reports.send(Report::DiskBusy);
        }
    };
    let report = match sink::attend(&session, watch).await {
        SinkEnd::Complete(_, sync) => {
            let _ = reports.send(Report::Archived(session.archived()));
            Report::Done(sync.as_micros())
        }
        SinkEnd::Failed(error) => Report::Fatal(error),
        SinkEnd::Superseded => return,
    };
    let _ = reports.send(report);
}
