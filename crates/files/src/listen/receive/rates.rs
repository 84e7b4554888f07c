//! Rates of received data for the display.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use peer::PathState;
use units::{Bytes, PathId, Rate, Span, Time};
use wire::frame::SessionId;

use crate::sink::SinkSession;
use crate::{PathProgress, Progress};

/// Derives rates from byte counts.
#[derive(Default)]
pub(super) struct ReceiveRates {
    session: Option<SessionId>,
    last: Option<Time>,
    seen: BTreeMap<String, (Bytes, f64)>,
}

impl ReceiveRates {
    pub(super) fn progress(&mut self, session: &SinkSession) -> Progress {
        let now = session.clock.now();
        if self.session != Some(session.id) {
            *self = ReceiveRates { session: Some(session.id), ..ReceiveRates::default() };
        }
        let began = session.began;
        let span = now - self.last.replace(now).unwrap_or(began);
        let received = session.received();
        let mut paths = Vec::new();
        for (name, carried) in session.carried() {
            let (before, rate) = self.seen.entry(name.clone()).or_default();
            if span > Span::ZERO {
                let recent = ((carried.bytes - *before) / span).as_f64();
                *rate += 0.2 * (recent - *rate);
                *before = carried.bytes;
            }
            paths.push(PathProgress {
                path: PathId(u32::try_from(paths.len()).expect("a handful of paths")),
                remote: SocketAddr::new(name.parse().unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0),
                name,
                state: PathState::Active,
                local: None,
                rate: Rate::from_bits_f64(*rate),
                rtt: Span::ZERO,
                done: carried.bytes,
                share: carried.bytes.as_f64() / Bytes(received.0.max(1)).as_f64(),
                congestion_control: String::new(),
                retransmits: 0,
                connections: 0,
            });
        }
        let total = session.total();
        let done = session.resumed() + received;
        let rate: Rate = paths.iter().map(|path| path.rate).sum();
        let is_growing = session.is_growing();
        let eta = (rate > Rate::ZERO && !is_growing).then(|| (total - done) / rate);
        Progress {
            elapsed: now - began,
            done,
            total,
            is_growing,
            rate,
            eta,
            repeated: Bytes::ZERO,
            gain: None,
            paths,
        }
    }
}
