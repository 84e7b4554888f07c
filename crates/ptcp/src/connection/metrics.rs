//! What a log of a connection has of its paths.

use recovery::{SendLimit, Sending};
use units::{Bytes, Rate, Span, SubflowId, Time};

use super::Connection;

/// What limits a path at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMetrics {
    /// The congestion window.
    pub window: Bytes,
    /// Bytes sent that are neither acknowledged nor declared lost.
    pub in_flight: Bytes,
    /// The smoothed round-trip time; `None` before the first sample.
    pub smoothed_rtt: Option<Span>,
    /// The smallest round-trip time; `None` before the first sample.
    pub min_rtt: Option<Span>,
    /// The latest round-trip time; `None` before the first sample.
    pub latest_rtt: Option<Span>,
    /// The controller's pace; `None` if it sets none.
    pub pacing: Option<Rate>,
}

/// A packet that was declared lost. It may arrive after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPacket {
    /// The path it was sent over.
    pub path: SubflowId,
    /// Its number on the path.
    pub number: u64,
    /// Its size as a UDP payload.
    pub bytes: Bytes,
}

impl Connection {
    /// What limits a path at present; `None` unless it is open.
    #[must_use]
    pub fn path_metrics(&self, path: SubflowId) -> Option<PathMetrics> {
        let subflow = self.subflow(path)?;
        let (rtt, allowance) = (subflow.rtt(), self.paths.allowance(subflow.id()));
        let smoothed_rtt = rtt.smoothed();
        let sampled = |span| smoothed_rtt.map(|_| span);
        Some(PathMetrics {
            window: allowance.window,
            in_flight: subflow.in_flight(),
            smoothed_rtt,
            min_rtt: sampled(rtt.min()),
            latest_rtt: sampled(rtt.latest()),
            pacing: allowance.pacing,
        })
    }

    /// What a path does, and what its next packet with data waits for, by the last
    /// [`Connection::poll_send`]; `None` unless it is open.
    #[must_use]
    pub fn path_sending(&self, now: Time, path: SubflowId) -> Option<Sending> {
        let subflow = self.subflow(path)?;
        let allowance = self.paths.allowance(path);
        let streams = self.streams.sending();
        let limit = if streams.next(self.flow.credit(), 0).is_none() {
            // Flow control alone holds back what is unsent, since no stream has anything to send.
            let is_blocked = streams.unsent() > 0;
            if is_blocked { SendLimit::Receiver } else { SendLimit::Application }
        } else {
            subflow.limit(now, &allowance).unwrap_or(SendLimit::Scheduler)
        };
        Some(Sending { phase: self.paths.phase(subflow, &allowance), limit })
    }

    /// The next packet declared lost that was not told of, with
    /// [`Config::tells_losses`](crate::Config::tells_losses). Those of a path that is retired
    /// meanwhile are not told.
    pub fn poll_lost(&mut self) -> Option<LostPacket> {
        self.paths.iter_mut().find_map(|path| {
            let (number, bytes) = path.subflow_mut()?.poll_lost()?;
            Some(LostPacket { path: path.id, number, bytes })
        })
    }
}
