//! One end of a connection: opening, closing, and both halves.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use policy::cc::Controller;
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::{Flags, Segment};

use crate::Config;
use crate::receiver::Receiver;
use crate::sender::{Data, Sender, Stats, stamp_of};

/// How often an unanswered SYN is sent before the connection is given up.
const SYN_TRIES: u32 = 8;

/// A packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// What it says.
    pub segment: Segment,
    /// Its size on the wire.
    pub bytes: Bytes,
    /// Whether it may be marked instead of dropped.
    pub is_ecn_capable: bool,
}

/// Something that the application may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is open.
    Established,
    /// Everything that the peer will ever send has been read.
    Finished,
    /// The peer has acknowledged everything, our FIN included.
    Closed,
    /// Nobody answered.
    TimedOut,
}

/// One end of a TCP connection. The order of the fields is kept: what each packet needs lies together.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Endpoint {
    id: SubflowId,
    is_ecn_capable: bool,
    is_finished: bool,
    is_closed: bool,
    headers: Bytes,
    state: State,
    /// What a probe or an answer left to be sent.
    extra: Option<Data>,
    events: VecDeque<Event>,
    receiver: Receiver,
    sender: Sender,
}

/// How far opening has come (RFC 9293, section 3.3.2); closing is the business of the halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A client before [`Endpoint::open`], a server before the first SYN.
    Idle {
        is_client: bool,
    },
    /// A SYN (of a server: with an acknowledgement) has to be sent at `at`, the `tries`th time.
    Opening {
        is_client: bool,
        tries: u32,
        at: Time,
        first_at: Option<Time>,
        window_end: u64,
    },
    Open,
    Dead,
}

impl Endpoint {
    /// The end that opens the connection. Many can share one configuration.
    #[must_use]
    pub fn client(config: impl Into<Arc<Config>>, subflow: SubflowId) -> Endpoint {
        Endpoint::new(config.into(), subflow, true)
    }

    /// The end that waits for it.
    #[must_use]
    pub fn server(config: impl Into<Arc<Config>>, subflow: SubflowId) -> Endpoint {
        Endpoint::new(config.into(), subflow, false)
    }

    fn new(config: Arc<Config>, id: SubflowId, is_client: bool) -> Endpoint {
        Endpoint {
            id,
            headers: config.headers,
            is_ecn_capable: config.ecn,
            receiver: Receiver::new(&config),
            sender: Sender::new(config, id),
            state: State::Idle { is_client },
            extra: None,
            events: VecDeque::new(),
            is_finished: false,
            is_closed: false,
        }
    }

    /// A client begins to open the connection; the controller learns of the subflow once it is open.
    pub fn open<C: Controller + ?Sized>(&mut self, now: Time, _cc: &mut C) {
        if let State::Idle { is_client: true } = self.state {
            self.state = State::Opening { is_client: true, tries: 0, at: now, first_at: None, window_end: 0 };
        }
    }

    /// The application writes so much more.
    #[inline]
    pub fn write(&mut self, bytes: Bytes) {
        self.sender.write(bytes);
    }

    /// The application writes no more.
    pub fn close(&mut self) {
        self.sender.close();
    }

    /// Whether the application reads as data comes; it does unless told otherwise.
    pub fn set_reading(&mut self, is_reading: bool) {
        self.receiver.set_reading(is_reading);
        self.note_ends();
    }

    /// Payload that arrived in order and waits for an application that does not read by itself.
    #[must_use]
    #[inline]
    pub fn readable(&self) -> Bytes {
        self.receiver.readable()
    }

    /// The application reads so much of what is [readable](Endpoint::readable).
    pub fn read(&mut self, bytes: Bytes) {
        self.receiver.read(bytes);
        self.note_ends();
    }

    /// A segment came; `is_marked`: with congestion experienced (ECN).
    #[inline]
    pub fn handle_segment<C: Controller + ?Sized>(
        &mut self,
        now: Time,
        segment: &Segment,
        is_marked: bool,
        cc: &mut C,
    ) {
        if self.state != State::Open {
            self.handle_opening(now, segment, cc);
            if self.state != State::Open || segment.flags.has(Flags::SYN) {
                return;
            }
        } else if segment.flags.has(Flags::SYN) {
            // Our acknowledgement of it was lost.
            self.receiver.handle_syn(segment.timestamp);
            return;
        }
        if segment.flags.has(Flags::ACK) {
            self.sender.handle_ack(now, segment, cc);
        }
        self.receiver.handle_segment(now, segment, is_marked);
        self.note_ends();
    }

    fn handle_opening<C: Controller + ?Sized>(&mut self, now: Time, segment: &Segment, cc: &mut C) {
        let is_syn = segment.flags.has(Flags::SYN);
        let is_ack = segment.flags.has(Flags::ACK) && segment.ack >= 1;
        let window_end = segment.ack + u64::from(segment.window);
        match self.state {
            State::Idle { is_client: false } if is_syn => {
                self.receiver.handle_syn(segment.timestamp);
                let window_end = 1 + u64::from(segment.window);
                self.state = State::Opening { is_client: false, tries: 0, at: now, first_at: None, window_end };
            }
            // It did not hear our answer; the timer sends it again anyway.
            State::Opening { is_client: false, .. } if is_syn => {}
            State::Opening { is_client, tries, first_at, .. } if is_ack && (!is_client || is_syn) => {
                if is_client {
                    self.receiver.handle_syn(segment.timestamp);
                }
                // Karn's rule: an answer to one of several SYNs says nothing of the time.
                let rtt = first_at.filter(|_| tries == 1).map(|at| now - at);
                self.state = State::Open;
                self.sender.handle_open(now, rtt, window_end, cc);
                self.events.push_back(Event::Established);
            }
            _ => {}
        }
    }

    /// The next packet to send.
    pub fn poll_send<C: Controller + ?Sized>(&mut self, now: Time, cc: &mut C) -> Option<Transmit> {
        if self.state != State::Open {
            return self.poll_opening(now);
        }
        let mut sent = None;
        self.poll_send_into(now, cc, |transmit| &mut sent.insert(transmit).segment);
        sent
    }

    /// As [`Endpoint::poll_send`] of an open connection, which gives the packet to `put` and says whether there may be another. Selective
    /// acknowledgements are written afterwards, where `put` says that the segment stays, so that it need not be copied there.
    #[inline]
    pub fn poll_send_into<'a, C: Controller + ?Sized>(
        &mut self,
        now: Time,
        cc: &mut C,
        put: impl FnOnce(Transmit) -> &'a mut Segment,
    ) -> bool {
        if self.state != State::Open {
            return false;
        }
        let data = match self.extra.take() {
            Some(data) => Some(data),
            None => self.sender.poll_send(now, cc),
        };
        let may_have_more = data.is_some();
        let Data { seq, len, flags } = match data {
            Some(data) => data,
            None if self.receiver.is_due(now) => Data { seq: self.sender.next(), len: 0, flags: Flags::default() },
            None => return false,
        };
        let answer = self.receiver.acknowledge();
        let segment = answer.with(seq, len, flags, stamp_of(now));
        let bytes = self.headers + Bytes(u64::from(len));
        let has_data = len > 0 || flags.has(Flags::FIN);
        let segment = put(Transmit { segment, bytes, is_ecn_capable: self.is_ecn_capable && has_data });
        if answer.sack_count > 0 {
            self.receiver.write_blocks(&mut segment.sack);
        }
        may_have_more
    }

    fn poll_opening(&mut self, now: Time) -> Option<Transmit> {
        let State::Opening { is_client, tries, at, first_at, window_end } = self.state else { return None };
        if at > now {
            return None;
        }
        if tries >= SYN_TRIES {
            self.state = State::Dead;
            self.events.push_back(Event::TimedOut);
            return None;
        }
        let wait = Span::from_secs(1 << tries.min(6));
        let first_at = first_at.or(Some(now));
        self.state = State::Opening { is_client, tries: tries + 1, at: now + wait, first_at, window_end };
        let segment = if is_client {
            let mut segment = Segment { flags: Flags::SYN, timestamp: stamp_of(now), ..Segment::default() };
            self.receiver.offer(&mut segment);
            segment
        } else {
            self.receiver.acknowledge().with(0, 0, Flags::SYN, stamp_of(now))
        };
        Some(Transmit { segment, bytes: self.headers, is_ecn_capable: false })
    }

    /// When [`Endpoint::handle_deadline`] and [`Endpoint::poll_send`] want to be called.
    #[must_use]
    #[inline]
    pub fn poll_deadline(&self) -> Option<Time> {
        match self.state {
            State::Open => {
                let (sender, receiver) = (self.sender.poll_deadline(), self.receiver.poll_deadline());
                match (sender, receiver) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                }
            }
            State::Opening { at, .. } => Some(at),
            State::Idle { .. } | State::Dead => None,
        }
    }

    /// The deadline has come; [`Endpoint::poll_send`] has what follows from it.
    pub fn handle_deadline<C: Controller + ?Sized>(&mut self, now: Time, cc: &mut C) {
        if self.state == State::Open
            && let Some(data) = self.sender.handle_deadline(now, cc)
        {
            self.extra = Some(data);
        }
    }

    /// The next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    #[inline]
    fn note_ends(&mut self) {
        if !self.is_finished && self.receiver.is_finished() {
            self.is_finished = true;
            self.events.push_back(Event::Finished);
        }
        if !self.is_closed && self.sender.is_finished() {
            self.is_closed = true;
            self.events.push_back(Event::Closed);
        }
    }

    /// Which subflow of its controller's it is.
    #[must_use]
    pub fn subflow(&self) -> SubflowId {
        self.id
    }

    /// Whether the connection is open.
    #[must_use]
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Payload that the application has read, in order.
    #[must_use]
    #[inline]
    pub fn received(&self) -> Bytes {
        self.receiver.received()
    }

    /// Payload that the peer has acknowledged cumulatively.
    #[must_use]
    #[inline]
    pub fn acked(&self) -> Bytes {
        self.sender.acked()
    }

    /// Payload that was written and never sent.
    #[must_use]
    #[inline]
    pub fn unsent(&self) -> Bytes {
        Bytes(self.sender.unsent())
    }

    /// Payload under way.
    #[must_use]
    pub fn in_flight(&self) -> Bytes {
        self.sender.in_flight()
    }

    /// The smoothed round-trip time; `None` before the first sample.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Span> {
        self.sender.rtt().smoothed()
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        self.sender.stats()
    }
}
