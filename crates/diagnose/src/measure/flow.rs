//! One stream of a measurement, at either end: probes out, probes in, acknowledgements.

use std::sync::atomic::{AtomicU64, Ordering};

use peer::conn::{Conn, ConnError};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use wire::Emit;
use wire::measure::{MeasureFrame, Measured};
use wire::session::SessionFrame;

/// The payload of one probe.
const PROBE: usize = 64 << 10;
/// Bytes taken in at a time.
const FILL: usize = 256 << 10;
/// Probes pushed before others get their turn.
const TURN: usize = 16;

/// The counts of a stream, read while it runs.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) acknowledged: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) sent_again: AtomicU64,
    pub(super) round_trip_nanos: AtomicU64,
}

/// One stream.
pub(super) struct Flow<'a> {
    conn: &'a mut Conn,
    counts: &'a Counts,
    probe: Vec<u8>,
}

impl<'a> Flow<'a> {
    pub(super) fn new(conn: &'a mut Conn, counts: &'a Counts) -> Flow<'a> {
        let mut probe = Vec::new();
        SessionFrame::Probe(&vec![0; PROBE]).emit(&mut probe);
        Flow { conn, counts, probe }
    }

    /// Sends probes if `sends`, and takes in those of the other side, until a time or until the
    /// other side tells what it has measured.
    ///
    /// # Errors
    /// Those of the connection; [`ConnError::Closed`] if it ends.
    pub(super) async fn run(
        &mut self,
        sends: bool,
        until: Instant,
    ) -> Result<Option<Measured>, ConnError> {
        while Instant::now() < until {
            let mut is_free = self.conn.try_flush()?;
            for _ in 0..TURN {
                if !sends || !is_free {
                    break;
                }
                self.conn.push_parts(&self.probe, &[]);
                is_free = self.conn.try_flush()?;
            }
            let filled = self.conn.try_fill(FILL)?;
            let answer = self.take_frames()?;
            self.count();
            if answer.is_some() {
                return Ok(answer);
            }
            if self.conn.is_closed() {
                return Err(ConnError::Closed);
            }
            if filled > 0 || sends && is_free {
                yield_now().await;
            } else {
                tokio::select! {
                    ready = self.conn.ready() => ready?,
                    () = sleep_until(until) => {}
                }
            }
        }
        Ok(None)
    }

    fn take_frames(&mut self) -> Result<Option<Measured>, ConnError> {
        let (mut answer, mut arrived) = (None, 0);
        while let Some(frame) = self.conn.next_frame()? {
            let frame = match MeasureFrame::try_from(frame)? {
                MeasureFrame::Session(frame) => frame,
                MeasureFrame::Measured(measured) => {
                    answer = Some(measured);
                    continue;
                }
                other @ MeasureFrame::Measure(_) => return Err(ConnError::unexpected(&other)),
            };
            match frame {
                SessionFrame::Probe(bytes) => arrived += bytes.len() as u64,
                SessionFrame::Pong(bytes) => {
                    self.counts.acknowledged.store(bytes, Ordering::Relaxed);
                }
                SessionFrame::Ping(_) => {}
                SessionFrame::Abort(_, text) => return Err(ConnError::Refused(text)),
                other => return Err(ConnError::unexpected(&other)),
            }
        }
        if arrived > 0 {
            let before = self.counts.received.fetch_add(arrived, Ordering::Relaxed);
            self.conn.push(&SessionFrame::Pong(before + arrived));
        }
        Ok(answer)
    }

    /// Writes the counters of the stream down.
    fn count(&self) {
        if let Ok(info) = self.conn.counters() {
            self.counts.sent_again.store(info.retransmits, Ordering::Relaxed);
            let nanos = u64::try_from(info.rtt.as_nanos()).unwrap_or(u64::MAX);
            self.counts.round_trip_nanos.store(nanos, Ordering::Relaxed);
        }
    }
}
