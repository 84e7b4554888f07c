//! Progress of a transfer at the receiver.

use events::{PathProgress, PathState, Progress};
use units::{Bytes, PathId, Rate};
use wire::session::SessionId;

use crate::rates::Rates;
use crate::sink::{PathShare, SinkSession};

/// Derives rates from byte counts.
#[derive(Default)]
pub(super) struct ReceiveRates {
    session: Option<SessionId>,
    rates: Rates,
}

impl ReceiveRates {
    pub(super) fn progress(&mut self, session: &SinkSession) -> Progress {
        if self.session != Some(session.id) {
            *self = ReceiveRates { session: Some(session.id), ..ReceiveRates::default() };
        }
        let (now, received) = (session.clock.now(), session.received());
        let row = |path: PathId, name: String, bytes: Bytes, is_open: bool| PathProgress {
            path,
            name,
            state: if is_open || !session.is_running() {
                PathState::Active
            } else {
                PathState::Lost
            },
            local: None,
            remote: None,
            rate: Rate::ZERO,
            rtt: None,
            done: bytes,
            share: bytes.as_f64() / Bytes(received.0.max(1)).as_f64(),
            congestion_control: None,
            retransmits: None,
            key_updates: None,
            connections: None,
            background: None,
        };
        let mut paths: Vec<PathProgress> = Vec::new();
        for (name, path) in session.paths() {
            let is_open = path.connections > 0;
            let shares = session.shares(&path);
            if shares.is_empty() {
                paths.push(row(path.number, name, path.bytes, is_open));
            }
            for PathShare { number, name, is_open: carries, bytes } in shares {
                paths.push(row(number, name, bytes, is_open && carries));
            }
        }
        paths.sort_by_key(|path| path.path);
        let mut progress = Progress {
            transfer: session.transfer,
            elapsed: now - session.began,
            files: session.tree().file_count(),
            files_done: session.files_done(),
            current: session.current(),
            done: session.resumed() + received,
            total: session.total(),
            is_growing: session.is_growing(),
            paths,
            ..Progress::default()
        };
        self.rates.apply(now, &mut progress);
        progress
    }
}
