//! A path of a connection: how far it has opened, and what goes over it both ways.

use alloc::collections::BTreeMap;

use units::{Bytes, Span, Time};

use crate::Config;
use crate::ack_tracker::AckTracker;
use crate::subflow::Subflow;

/// The wait for the answer to a first packet; doubled each time.
const FIRST_WAIT: Span = Span::from_millis(500);
/// The longest wait for such an answer.
const LONGEST_WAIT: Span = Span::from_millis(4_000);
/// How often a path is asked whether it carries packets of a size.
const SIZE_TRIES: u32 = 3;
/// For how long the least size will do after large packets seem to have been lost for their size.
const SIZE_REST: Span = Span::from_secs(10);
/// A size this near to the largest that works is not worth a probe.
const SIZE_STEP: u64 = 20;
/// Bytes that may be sent for each byte received before the address is known to be the peer's (RFC
/// 9000, section 8.1).
const AMPLIFICATION: u64 = 3;

/// What a packet that wants an acknowledgement carries: the paper's binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// A piece of a stream.
    Data { stream: u32, offset: u64, len: u16, is_last: bool },
    /// Something that has to arrive.
    Control(Control),
}

/// What is said again until it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The limit of a stream, as it stands when it is sent.
    StreamWindow {
        stream: u32,
    },
    /// The receive buffer that would be used, likewise.
    BufferRequest,
    Reset {
        stream: u32,
        code: u32,
        end: u64,
    },
    Stop {
        stream: u32,
        code: u32,
    },
    Retire {
        path: u16,
    },
}

/// One path.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) id: u16,
    pub(crate) phase: PathPhase,
    pub(crate) acks: AckTracker,
    /// A challenge to answer.
    pub(crate) response: Option<u64>,
    /// Probes to send whatever the window says.
    pub(crate) probes: u32,
    /// Acknowledgements were to come over this path, and did not.
    pub(crate) ack_path_down: bool,
    /// When a path that is deaf is asked next whether it still is.
    pub(crate) ack_path_retry_at: Time,
    pub(crate) last_received_at: Option<Time>,
    /// The largest UDP payload.
    pub(crate) datagram: Bytes,
    pub(crate) size: SizeProbe,
    /// Bytes that may be sent before the peer's address is proven; `None`: it is.
    pub(crate) allowed: Option<u64>,
    /// Whether its packets may be marked instead of dropped (RFC 3168).
    pub(crate) is_ecn_capable: bool,
    /// Up to where it has carried each stream, where each path carries everything.
    pub(crate) copied: BTreeMap<u32, u64>,
}

/// How far a path has come.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are open, and a box would be looked through for every packet"
)]
pub(crate) enum PathPhase {
    /// It has not answered yet.
    Opening(Opening),
    /// It carries data.
    Open(Subflow<Binding>),
}

/// Waiting for a first answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// Packets sent so far.
    pub(crate) next: u64,
    /// The challenge; `None`: the handshake does it.
    pub(crate) token: Option<u64>,
    /// When to send it again; `None`: it is not for us to do.
    pub(crate) at: Option<Time>,
    pub(crate) tries: u32,
    pub(crate) first_at: Option<Time>,
}

/// The search for the largest packet (RFC 8899).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeProbe {
    /// A size that is too large, or was never tried.
    ceiling: u64,
    /// What is being asked: token, size, tries, when to ask again.
    pub(crate) asked: Option<(u64, u64, u32, Time)>,
    /// Nothing is asked before.
    not_before: Time,
    is_first: bool,
}

impl Path {
    pub(crate) fn new(id: u16, config: &Config, opening: Opening, is_proven: bool) -> Path {
        Path {
            id,
            phase: PathPhase::Opening(opening),
            acks: AckTracker::default(),
            response: None,
            probes: 0,
            ack_path_down: false,
            ack_path_retry_at: Time::ZERO,
            last_received_at: None,
            datagram: config.datagram.min(config.max_datagram),
            size: SizeProbe {
                ceiling: config.max_datagram.0 + SIZE_STEP,
                asked: None,
                not_before: Time::ZERO,
                is_first: true,
            },
            allowed: if is_proven { None } else { Some(0) },
            is_ecn_capable: config.ecn,
            copied: BTreeMap::new(),
        }
    }

    pub(crate) fn subflow(&self) -> Option<&Subflow<Binding>> {
        if let PathPhase::Open(subflow) = &self.phase { Some(subflow) } else { None }
    }

    pub(crate) fn subflow_mut(&mut self) -> Option<&mut Subflow<Binding>> {
        if let PathPhase::Open(subflow) = &mut self.phase { Some(subflow) } else { None }
    }

    /// Whether it carries data, and acknowledgements have not stopped coming.
    pub(crate) fn is_live(&self) -> bool {
        self.subflow().is_some_and(|subflow| !subflow.is_silent())
    }

    /// Whether so many bytes more may go to an address that is not proven.
    pub(crate) fn allows(&self, bytes: usize) -> bool {
        self.allowed.is_none_or(|allowed| allowed >= bytes as u64)
    }

    /// A datagram of so many bytes came.
    pub(crate) fn handle_arrived(&mut self, now: Time, bytes: usize) {
        self.last_received_at = Some(now);
        self.ack_path_down = false;
        if let Some(allowed) = &mut self.allowed {
            *allowed += AMPLIFICATION * bytes as u64;
        }
    }

    /// A datagram of so many bytes leaves.
    pub(crate) fn handle_sent(&mut self, bytes: usize) {
        if let Some(allowed) = &mut self.allowed {
            *allowed = allowed.saturating_sub(bytes as u64);
        }
    }

    /// The number of a packet that wants no acknowledgement.
    pub(crate) fn non_eliciting_number(&mut self, now: Time) -> u64 {
        match &mut self.phase {
            PathPhase::Opening(opening) => {
                opening.next += 1;
                opening.next - 1
            }
            PathPhase::Open(subflow) => subflow.handle_sent_non_eliciting(now),
        }
    }

    /// What it is asked about the size of its packets, if it is time.
    pub(crate) fn poll_size(
        &mut self,
        now: Time,
        token: impl FnOnce() -> u64,
    ) -> Option<(u64, u64)> {
        let wait = self.subflow()?.timeout();
        if !self.is_live() {
            return None;
        }
        match &mut self.size.asked {
            Some((_, _, _, at)) if *at > now => None,
            Some((token, size, tries, at)) if *tries < SIZE_TRIES => {
                *tries += 1;
                *at = now + wait;
                Some((*token, *size))
            }
            Some((_, size, ..)) => {
                self.size.ceiling = *size;
                self.size.asked = None;
                self.ask_size(now, wait, token)
            }
            None => self.ask_size(now, wait, token),
        }
    }

    fn ask_size(
        &mut self,
        now: Time,
        wait: Span,
        token: impl FnOnce() -> u64,
    ) -> Option<(u64, u64)> {
        let low = self.datagram.0;
        if low + SIZE_STEP >= self.size.ceiling || now < self.size.not_before {
            return None;
        }
        // The largest first: on most paths it is the answer.
        let size = if core::mem::take(&mut self.size.is_first) {
            self.size.ceiling - SIZE_STEP
        } else {
            low.midpoint(self.size.ceiling)
        };
        if size <= low {
            return None;
        }
        let token = token();
        self.size.asked = Some((token, size, 1, now + wait));
        Some((token, size))
    }

    /// A response came: perhaps to a question of size.
    pub(crate) fn handle_size(&mut self, token: u64) {
        if let Some((asked, size, ..)) = self.size.asked
            && asked == token
        {
            self.datagram = Bytes(size);
            self.size.asked = None;
        }
    }

    /// Large packets do not arrive any more, it seems: begin anew from the least size, after a
    /// while.
    pub(crate) fn reset_size(&mut self, now: Time, config: &Config) {
        if self.datagram > config.datagram {
            let ceiling = self.datagram.0 + SIZE_STEP;
            self.size =
                SizeProbe { ceiling, asked: None, not_before: now + SIZE_REST, is_first: true };
            self.datagram = config.datagram;
        }
    }

    /// When [`Path::poll_size`] has something to ask.
    pub(crate) fn size_at(&self) -> Option<Time> {
        let asks_again = self.size.asked.map(|(_, _, _, at)| at);
        let begins = Some(self.size.not_before).filter(|at| *at > Time::ZERO && self.size.is_first);
        asks_again.or(begins).filter(|_| self.is_live())
    }
}

impl Opening {
    /// One whose first packet leaves at `at`.
    pub(crate) fn new(token: Option<u64>, at: Option<Time>) -> Opening {
        Opening { next: 0, token, at, tries: 0, first_at: None }
    }

    /// It is sent once more.
    pub(crate) fn handle_sent(&mut self, now: Time) {
        let wait = Span::from_nanos(FIRST_WAIT.as_nanos() << self.tries.min(8)).min(LONGEST_WAIT);
        self.tries += 1;
        self.first_at = self.first_at.or(Some(now));
        self.at = Some(now + wait);
    }

    /// The round-trip time, if the answer is to the first packet.
    pub(crate) fn sample(&self, now: Time) -> Option<Span> {
        self.first_at.filter(|_| self.tries == 1).map(|at| now - at)
    }
}
