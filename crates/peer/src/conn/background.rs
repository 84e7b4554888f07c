//! A connection in the background: what it sends leaves the line to others.

use std::io;

use net::counters::TcpInfo;
use policy::paced::{PacedHarp, Reading};
use units::{Bytes, Rate, Span, Time};
use wire::effort::Effort;

use crate::carrier::Stream;

/// The kernel's congestion control for the background, where it may be used: TCP-LP, which yields
/// by one-way delays.
const KERNEL_LP: &str = "lp";
/// What answers losses below a pace.
const BELOW_PACE: &str = "cubic";
/// Bytes that wait in the kernel to be sent: they leave at the pace that was right before.
const UNSENT: Bytes = Bytes::kib(32);

/// How a connection leaves the line to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yielding {
    /// Its carrier does it.
    Carrier,
    /// The kernel does it, by TCP-LP.
    Kernel,
    /// A pace does it, by the round trips that the kernel reports.
    Paced,
}

impl Yielding {
    /// The kernel's name of the congestion control.
    #[must_use]
    pub fn control(self) -> &'static str {
        match self {
            Yielding::Carrier => "",
            Yielding::Kernel => KERNEL_LP,
            Yielding::Paced => BELOW_PACE,
        }
    }
}

/// The state of a connection that leaves the line to others.
pub(super) struct Background {
    pub(super) yielding: Yielding,
    paced: PacedHarp,
    pace: Option<Rate>,
}

impl Background {
    /// Prepares a stream. What its kernel refuses is left as it is: a mark, a control.
    pub(super) fn begin(stream: &dyn Stream, effort: Effort) -> Background {
        if effort == Effort::Lower {
            let _ = stream.set_lower_effort();
        }
        let yielding = match stream.set_congestion_control(KERNEL_LP) {
            Ok(()) => Yielding::Kernel,
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Yielding::Carrier,
            Err(_) => {
                let _ = stream.set_congestion_control(BELOW_PACE);
                let _ = stream.set_most_unsent(UNSENT);
                Yielding::Paced
            }
        };
        Background { yielding, paced: PacedHarp::default(), pace: None }
    }

    /// Takes a sample of the kernel's counters, and paces the stream by it.
    pub(super) fn handle_sample(&mut self, now: Time, info: &TcpInfo, stream: &dyn Stream) {
        if self.yielding != Yielding::Paced {
            return;
        }
        let rate = Some(Rate::from_bytes(info.delivery_rate));
        let reading = Reading {
            rtt: Span::from(info.rtt),
            mss: Bytes(info.mss.into()),
            acked: Bytes(info.bytes_acked),
            in_flight: info.unacked,
            retransmits: info.retransmits,
            delivery_rate: rate.filter(|_| !info.app_limited && info.delivery_rate > 0),
        };
        let pace = self.paced.handle_reading(now, &reading);
        if pace != self.pace
            && let Some(pace) = pace
        {
            self.pace = Some(pace);
            // A connection that broke fails at its next use.
            let _ = stream.set_pace(pace);
        }
    }

    /// What the line is like, where a pace knows.
    pub(super) fn stats(&self) -> Option<events::Background> {
        let standing = self.paced.standing()?;
        let least = standing.delays.map(|(least, _)| least);
        Some(events::Background {
            is_backed_off: standing.is_backed_off,
            backed_off: standing.backed_off,
            best: least.filter(|rtt| *rtt > Span::ZERO).map(|rtt| standing.extent / rtt),
            queue: standing.delays.map(|(least, most)| most - least),
        })
    }
}
