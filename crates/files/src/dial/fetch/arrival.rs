//! Where the data of all servers go.

use std::sync::{Arc, Mutex, Weak};

use peer::ConnError;
use peer::dial::Gate;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use transfer::Extent;
use units::{Bytes, Span, Time};
use wire::frame::{Data, Range, SessionId};

use super::opener::ServerSession;
use super::replicas::Replicas;
use crate::dial::session::Report;
use crate::sink::{self, SinkEnd, SinkSession};

/// What is agreed on brings its data here.
pub(in crate::dial) struct Arrival {
    session: Arc<SinkSession>,
    /// They hold the session, and so this.
    gates: Weak<Vec<Gate<ServerSession>>>,
    /// Of each server, when it was last waited for, and how long in all since it last sent data.
    silence: Vec<Mutex<(Time, Span)>>,
    /// What is known of the blocks, where several servers have to have the same.
    replicas: Option<Replicas>,
    reports: mpsc::UnboundedSender<Report>,
    attending: JoinHandle<()>,
}

/// Between two looks at a connection that waits.
const WAIT_STEP: Span = Span::from_millis(100);
/// A server that was found to lie may have left so many wrong blocks.
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

    /// What is written here.
    pub(in crate::dial) fn session(&self) -> &Arc<SinkSession> {
        &self.session
    }

    /// Data arrived from a server, by the path called `path`. Gives the range that is written.
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

    /// What to ask for where the core wants `extent`: all of a block that came wrong in pieces, so
    /// that it is seen who sends it.
    pub(in crate::dial) fn widened(&self, extent: Extent) -> Extent {
        match &self.replicas {
            Some(replicas) if replicas.is_contested(extent) => {
                let block = self.session.layout().block_extent(extent.start / transfer::BLOCK);
                block.unwrap_or(extent)
            }
            _ => extent,
        }
    }

    /// The most that [`Arrival::widened`] may make of `most`.
    pub(in crate::dial) fn widest(&self, most: Bytes) -> Bytes {
        let may_widen = self.replicas.as_ref().is_some_and(Replicas::has_contested);
        if may_widen { most.max(Bytes(transfer::BLOCK)) } else { most }
    }

    /// A block came wrong.
    pub(in crate::dial) fn contest(&self, range: Range) {
        let extent = Extent::new(range.start, range.len);
        if let Some(replicas) = &self.replicas
            && !self.session.has_verified(extent)
        {
            replicas.contest(extent);
        }
    }

    /// A server says that it does not know the session of that name: it has to be asked anew.
    pub(in crate::dial) fn forget(&self, server: usize, joined: SessionId) {
        if let Some(gates) = self.gates.upgrade() {
            gates[server].forget(|known| known.id == joined);
        }
    }

    /// Starts finishing if everything is there.
    pub(in crate::dial) fn finish_files(&self) {
        sink::finish_files(&self.session);
    }

    /// A connection to a server is open, and waits for data; is told now and then. Gives for how
    /// long the server has been waited for, by whatever path, since it last sent data.
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

/// Syncs what arrives, and reports the end of the session.
async fn attend(session: Arc<SinkSession>, reports: mpsc::UnboundedSender<Report>) {
    let report = match sink::attend(&session, |_| ()).await {
        SinkEnd::Complete(_, sync) => Report::Done(sync.as_micros()),
        SinkEnd::Failed(error) => Report::Fatal(error),
        SinkEnd::Superseded => return,
    };
    let _ = reports.send(report);
}
