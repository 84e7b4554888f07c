//! Progress of a transfer at the receiver.

use peer::PathState;
use units::{Bytes, Rate};
use wire::session::SessionId;

use crate::rates::Rates;
use crate::sink::{Carrier, SinkSession};
use crate::{PathProgress, Progress};

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
        let of_path = |(name, path): (String, Carrier)| PathProgress {
            path: path.number,
            name,
            state: if path.connections > 0 || !session.is_running() {
                PathState::Active
            } else {
                PathState::Lost
            },
            local: None,
            remote: None,
            rate: Rate::ZERO,
            rtt: None,
            done: path.bytes,
            share: path.bytes.as_f64() / Bytes(received.0.max(1)).as_f64(),
            congestion_control: None,
            retransmits: None,
            key_updates: None,
            connections: None,
        };
        let mut paths: Vec<PathProgress> = session.paths().into_iter().map(of_path).collect();
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
