//! A path of a connection: its handshake or subflow, its acknowledgements, and its packet size.

use alloc::collections::BTreeMap;

use units::{Bytes, Rate, Span, SubflowId, Time, TokenBucket};

use wire::ptcp::{Body, Packet};

use crate::Config;
use crate::ack_tracker::AckTracker;
use crate::repeated::Repeated;
use crate::subflow::Subflow;

/// The wait for the answer to an opening packet; doubled each time.
const FIRST_WAIT: Span = Span::from_millis(500);
/// The longest wait for such an answer.
const LONGEST_WAIT: Span = Span::from_millis(4_000);
/// The same for flights of the handshake, which has only some seconds: as long as Linux waits for
/// each of the first answers to a SYN (`tcp_syn_linear_timeouts`).
const LONGEST_FLIGHT_WAIT: Span = Span::from_millis(1_000);
/// Probes of a packet size before it counts as too large.
const SIZE_TRIES: u32 = 3;
/// The wait before new size probes after a black hole.
const SIZE_REST: Span = Span::from_secs(10);
/// Challenges to a changed address in a row.
const VALIDATION_TRIES: u32 = 8;
/// How far a path with a limited rate may be behind it and catch up: real timers are late, and so
/// is a thread that waits for a processor.
const CATCH_UP: Span = Span::from_millis(20);
/// The longest time that a packet of a path with a limited rate takes.
const LONGEST_PACKET: Span = Span::from_secs(3_600);
/// Packets up to this size are taken for small ones where full packets of the least size vanish:
/// what every line of IPv4 takes (RFC 791, section 3.1), without its headers.
const SMALL: u64 = 548;
/// The resolution of the search, in bytes.
const SIZE_STEP: u64 = 20;
/// Bytes that may be sent for each byte received before the address is known to be the peer's (RFC
/// 9000, section 8.1).
pub(crate) const AMPLIFICATION: u64 = 3;

/// The content of an ack-eliciting packet: the paper's binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// A piece of a stream.
    Data { stream: u32, offset: u64, len: u16, is_last: bool },
    /// A control message, delivered reliably.
    Control(Control),
}

/// A control message, repeated until it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The limit of a stream at the time of sending.
    StreamWindow {
        stream: u32,
    },
    /// The streams that the peer may have open, at the time of sending.
    StreamCount,
    /// A request for a receive buffer, of the size wanted at the time of sending.
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
        path: SubflowId,
    },
}

/// When a path carries data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Always.
    #[default]
    Usual,
    /// While no usual path has room for more, and more waits than the usual ones send soon.
    Overflow,
    /// While no usual path does: a path that costs money, or somebody else's.
    Reserve,
}

/// Bytes of UDP payloads of a path, headers and tags included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathBytes {
    /// Those sent.
    pub sent: Bytes,
    /// Those that arrived, repeated packets included.
    pub received: Bytes,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets that arrived.
    pub packets_received: u64,
    /// Of streams: copies of what was in flight on another path, without headers and tags.
    pub copies: Bytes,
}

/// A limit of a path's rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    rate: Rate,
    bucket: TokenBucket,
}

/// A path.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct Path {
    pub(crate) id: SubflowId,
    pub(crate) phase: PathPhase,
    pub(crate) acks: AckTracker,
    /// The token of a challenge to answer.
    pub(crate) response: Option<u64>,
    /// Probes to send regardless of the window.
    pub(crate) probes: u32,
    /// Whether the application asked for a ping over it.
    pub(crate) is_ping_due: bool,
    /// Acknowledgements were expected over this path and did not arrive.
    pub(crate) ack_path_down: bool,
    /// When a path with `ack_path_down` is tried again.
    pub(crate) ack_path_retry_at: Time,
    /// Whether the application was told that it is silent.
    pub(crate) is_told_silent: bool,
    pub(crate) last_received_at: Option<Time>,
    /// The largest UDP payload.
    pub(crate) datagram: Bytes,
    pub(crate) size: SizeProbe,
    /// Bytes that may be sent before the peer's address is validated; `None`: it is.
    pub(crate) allowed: Option<u64>,
    /// Whether its packets are ECN-capable (RFC 3168).
    pub(crate) is_ecn_capable: bool,
    /// Whether those that are say ECT(1).
    pub(crate) is_scalable: bool,
    /// The offset up to which it has carried each stream, with a redundant scheduler.
    pub(crate) copied: BTreeMap<u32, u64>,
    /// What it has carried copies of.
    pub(crate) repeated: Repeated,
    /// What was sent before over it and is in flight is late: a reader waited for it.
    pub(crate) late_before: Time,
    pub(crate) class: Class,
    pub(crate) limit: Option<RateLimit>,
    pub(crate) bytes: PathBytes,
    /// The challenge to the address of an open path that has changed.
    pub(crate) validation: Option<Opening>,
}

/// The phase of a path.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are open, and a box would be looked through for every packet"
)]
pub(crate) enum PathPhase {
    /// No answer has arrived yet.
    Opening(Opening),
    /// Open for data.
    Open(Subflow<Binding>),
}

/// The state of a path without an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// The next packet number.
    pub(crate) next: u64,
    /// The challenge's token; `None`: the handshake opens the path.
    pub(crate) token: Option<u64>,
    /// When to send again; `None`: not at all.
    pub(crate) at: Option<Time>,
    pub(crate) tries: u32,
    pub(crate) first_at: Option<Time>,
    /// How often the wait for an answer is doubled.
    doublings: u32,
}

/// The search for the largest packet (RFC 8899).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeProbe {
    /// The smallest size that is too large or untested.
    ceiling: u64,
    /// The probe in flight: token, size, tries, and the time of the next try.
    pub(crate) asked: Option<(u64, u64, u32, Time)>,
    /// No probe before this time.
    not_before: Time,
    is_first: bool,
}

impl Path {
    pub(crate) fn new(id: SubflowId, config: &Config, opening: Opening, is_proven: bool) -> Path {
        Path {
            id,
            phase: PathPhase::Opening(opening),
            acks: AckTracker::default(),
            response: None,
            probes: 0,
            is_ping_due: false,
            ack_path_down: false,
            ack_path_retry_at: Time::ZERO,
            is_told_silent: false,
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
            is_scalable: config.is_scalable,
            copied: BTreeMap::new(),
            repeated: Repeated::default(),
            late_before: Time::ZERO,
            class: Class::default(),
            limit: None,
            bytes: PathBytes::default(),
            validation: None,
        }
    }

    pub(crate) fn subflow(&self) -> Option<&Subflow<Binding>> {
        if let PathPhase::Open(subflow) = &self.phase { Some(subflow) } else { None }
    }

    pub(crate) fn subflow_mut(&mut self) -> Option<&mut Subflow<Binding>> {
        if let PathPhase::Open(subflow) = &mut self.phase { Some(subflow) } else { None }
    }

    /// Whether it is open and not silent.
    pub(crate) fn is_live(&self) -> bool {
        self.subflow().is_some_and(|subflow| !subflow.is_silent())
    }

    /// Whether `bytes` more may go to an address that is not validated.
    pub(crate) fn allows(&self, bytes: usize) -> bool {
        self.allowed.is_none_or(|allowed| allowed >= bytes as u64)
    }

    /// A datagram of `bytes` arrived.
    pub(crate) fn handle_arrived(&mut self, now: Time, bytes: usize) {
        self.last_received_at = Some(now);
        self.ack_path_down = false;
        self.bytes.received += Bytes(bytes as u64);
        self.bytes.packets_received += 1;
        if let Some(validation) = &mut self.validation
            && validation.at.is_none()
        {
            let rest = if validation.tries < VALIDATION_TRIES { Span::ZERO } else { LONGEST_WAIT };
            validation.at = Some(now + rest);
        }
        if let Some(allowed) = &mut self.allowed {
            *allowed += AMPLIFICATION * bytes as u64;
        }
    }

    /// A packet leaves, in a datagram of `bytes`.
    pub(crate) fn handle_sent(&mut self, now: Time, bytes: usize, body: &Body) {
        self.bytes.sent += Bytes(bytes as u64);
        self.bytes.packets_sent += 1;
        if let Some(limit) = &mut self.limit {
            let counted = if let Body::Data(data) = body { data.len.into() } else { bytes as u64 };
            limit.handle_sent(now, Bytes(counted));
        }
        if let Some(allowed) = &mut self.allowed {
            *allowed = allowed.saturating_sub(bytes as u64);
        }
    }

    /// Its address has changed: this end's if `is_own`, otherwise the peer's.
    pub(crate) fn rebind(&mut self, now: Time, token: u64, is_own: bool) {
        if let PathPhase::Opening(opening) = &mut self.phase {
            // That of a handshake has no token.
            if is_own && opening.token.is_some() {
                opening.challenge(now, token);
            }
            return;
        }
        self.validation = Some(Opening::new(Some(token), Some(now)));
        if !is_own {
            self.allowed = Some(0);
        }
    }

    /// The challenge to a changed address that is due. If too little has come from there, or there
    /// were many without an answer, the next one waits for a packet.
    pub(crate) fn poll_validation(&mut self, now: Time) -> Option<Body> {
        let allows =
            |body: &Body| self.allows(Packet { number: 0, body: body.clone() }.datagram_len());
        let validation =
            self.validation.filter(|validation| validation.at.is_some_and(|at| at <= now))?;
        let token = validation.token?;
        let bodies = [Body::Challenge { token, padding: 0 }, Body::ShortChallenge { token }];
        let challenge = bodies.into_iter().find(allows);
        let validation = self.validation.as_mut()?;
        if challenge.is_some() {
            validation.handle_sent(now);
        }
        if challenge.is_none() || validation.tries >= VALIDATION_TRIES {
            validation.at = None;
        }
        challenge
    }

    /// A response arrived; it may validate a changed address, or answer a size probe. Returns
    /// whether it has validated the address.
    pub(crate) fn handle_response(&mut self, token: u64, config: &Config) -> bool {
        let is_validated =
            self.validation.is_some_and(|validation| validation.token == Some(token));
        if is_validated {
            (self.validation, self.allowed) = (None, None);
        } else {
            self.handle_size(token, config);
        }
        is_validated
    }

    /// The number of its next packet.
    pub(crate) fn next_number(&self) -> u64 {
        match &self.phase {
            PathPhase::Opening(opening) => opening.next,
            PathPhase::Open(subflow) => subflow.next_number(),
        }
    }

    /// The number of a packet that is not ack-eliciting.
    pub(crate) fn non_eliciting_number(&mut self, now: Time) -> u64 {
        match &mut self.phase {
            PathPhase::Opening(opening) => {
                opening.next += 1;
                opening.next - 1
            }
            PathPhase::Open(subflow) => subflow.handle_sent_non_eliciting(now),
        }
    }

    /// The token and size of the next size probe, if one is due.
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
        // The largest size first: most paths carry it.
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

    /// A response arrived that may answer a size probe.
    fn handle_size(&mut self, token: u64, config: &Config) {
        if let Some((asked, size, ..)) = self.size.asked
            && asked == token
        {
            self.size.asked = None;
            self.set_datagram(Bytes(size), config);
        }
    }

    /// Packets up to the size to fall back to say nothing of whether larger ones arrive.
    fn set_datagram(&mut self, datagram: Bytes, config: &Config) {
        self.datagram = datagram;
        let small = config.fallback(datagram).map_or(SMALL, |size| size.0);
        if let Some(subflow) = self.subflow_mut() {
            subflow.set_small(Bytes(small));
        }
    }

    /// Large packets may be lost for their size, or the path is down: falls back to the initial
    /// size, and probes again after a wait.
    pub(crate) fn reset_size(&mut self, now: Time, config: &Config) {
        if self.datagram > config.datagram {
            self.fall_back(now, config.datagram, self.datagram.0 + SIZE_STEP, config);
        }
    }

    /// Large packets are lost and small ones are not (RFC 8899, section 4.3): falls back to the
    /// next smaller size. Returns whether there is none, since not even the packets arrive that a
    /// path has to carry.
    pub(crate) fn handle_black_hole(&mut self, now: Time, config: &Config) -> bool {
        if self.datagram > config.datagram {
            self.reset_size(now, config);
            return false;
        }
        let Some(size) = config.fallback(self.datagram) else { return true };
        // Of the sizes above the initial one, the search before said which are too large.
        self.fall_back(now, size, self.size.ceiling, config);
        false
    }

    fn fall_back(&mut self, now: Time, to: Bytes, ceiling: u64, config: &Config) {
        self.size = SizeProbe { ceiling, asked: None, not_before: now + SIZE_REST, is_first: true };
        self.set_datagram(to, config);
    }

    /// When [`Path::poll_size`] or [`Path::poll_validation`] is due.
    pub(crate) fn asks_at(&self) -> Option<Time> {
        let validation = self.validation.and_then(|validation| validation.at);
        self.size_at().into_iter().chain(validation).min()
    }

    fn size_at(&self) -> Option<Time> {
        let asks_again = self.size.asked.map(|(_, _, _, at)| at);
        let begins = Some(self.size.not_before).filter(|at| *at > Time::ZERO && self.size.is_first);
        asks_again.or(begins).filter(|_| self.is_live())
    }
}

impl RateLimit {
    pub(crate) fn new(rate: Rate) -> RateLimit {
        RateLimit { rate, bucket: TokenBucket::default() }
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// When data may be sent again.
    pub(crate) fn allows_at(&self) -> Time {
        self.bucket.paid_at()
    }

    fn handle_sent(&mut self, now: Time, bytes: Bytes) {
        self.bucket.take(now, CATCH_UP, (bytes / self.rate).min(LONGEST_PACKET));
    }
}

impl Opening {
    /// An opening whose first packet leaves at `at`.
    pub(crate) fn new(token: Option<u64>, at: Option<Time>) -> Opening {
        Opening { next: 0, token, at, tries: 0, first_at: None, doublings: 0 }
    }

    /// Begins again with a challenge.
    pub(crate) fn challenge(&mut self, now: Time, token: u64) {
        *self = Opening { next: self.next, ..Opening::new(Some(token), Some(now)) };
    }

    /// The opening packet leaves.
    pub(crate) fn handle_sent(&mut self, now: Time) {
        let wait = FIRST_WAIT.as_nanos() << self.doublings.min(8);
        let longest = if self.token.is_none() { LONGEST_FLIGHT_WAIT } else { LONGEST_WAIT };
        let wait = Span::from_nanos(wait).min(longest);
        (self.tries, self.doublings) = (self.tries + 1, self.doublings + 1);
        self.first_at = self.first_at.or(Some(now));
        self.at = Some(now + wait);
    }

    /// Something new of an answer arrived: the rest is asked for soon, if it does not come.
    pub(crate) fn handle_progress(&mut self, now: Time) {
        if let Some(at) = &mut self.at {
            *at = now + FIRST_WAIT;
            self.doublings = 1;
        }
    }

    /// The round-trip time, if the packet was sent once (Karn's rule).
    pub(crate) fn sample(&self, now: Time) -> Option<Span> {
        self.first_at.filter(|_| self.tries == 1).map(|at| now - at)
    }
}
