//! One end of a connection: opening, closing, and both halves.

use alloc::sync::Arc;
use core::mem;

use policy::cc::Controller;
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::{Flags, Segment};

use crate::receiver::{OutOfOrder, Receiver};
use crate::sender::{DataFields, Sender, Stats, stamp_of};
use crate::{Config, NEVER};

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

/// One end of a TCP connection. The order of the fields is kept: what each packet needs lies
/// together in front, and ends with the sender's, which has a rest of its own; then comes what is
/// rarely needed.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Endpoint {
    state: ConnectionState,
    /// In their order, in front; there is one of each kind at most.
    events: [Option<Event>; 3],
    is_finished: bool,
    is_closed: bool,
    /// Whether there is something in `probe`.
    has_probe: bool,
    receiver: Receiver,
    sender: Sender,
    out_of_order: OutOfOrder,
    /// What a probe or an answer left to be sent.
    probe: DataFields,
    handshake: Handshake,
}

/// How far opening has come (RFC 9293, section 3.3.2); closing is the business of the halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    /// A client before [`Endpoint::open`], a server before the first SYN.
    Idle,
    /// A SYN has to be sent, and answered.
    Opening,
    Open,
    Dead,
}

/// Of a connection that is not open yet.
#[derive(Clone, Copy, Debug)]
struct Handshake {
    is_client: bool,
    /// How often the SYN (of a server: with an acknowledgement) was sent, when it is next, and when
    /// it was first.
    tries: u32,
    at: Time,
    first_at: Time,
}

impl Handshake {
    fn new(is_client: bool) -> Handshake {
        Handshake { is_client, tries: 0, at: Time::ZERO, first_at: Time::ZERO }
    }
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
            state: ConnectionState::Idle,
            events: [None; 3],
            is_finished: false,
            is_closed: false,
            has_probe: false,
            receiver: Receiver::new(),
            sender: Sender::new(config, id),
            out_of_order: OutOfOrder::default(),
            probe: DataFields { seq: 0, len: 0, flags: Flags::default() },
            handshake: Handshake::new(is_client),
        }
    }

    /// A client begins to open the connection; the controller learns of the subflow once it is
    /// open.
    pub fn open<C: Controller + ?Sized>(&mut self, now: Time, _cc: &mut C) {
        if self.state == ConnectionState::Idle && self.handshake.is_client {
            self.state = ConnectionState::Opening;
            self.handshake.at = now;
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
        self.receiver.set_reading(is_reading, self.sender.config());
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
        self.receiver.read(bytes, self.sender.config());
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
        if self.state != ConnectionState::Open {
            self.handle_opening(now, segment, cc);
            if self.state != ConnectionState::Open || segment.flags.has(Flags::SYN) {
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
        self.receiver.handle_segment(
            now,
            segment,
            is_marked,
            &mut self.out_of_order,
            self.sender.config(),
        );
        self.note_ends();
    }

    fn handle_opening<C: Controller + ?Sized>(&mut self, now: Time, segment: &Segment, cc: &mut C) {
        let is_syn = segment.flags.has(Flags::SYN);
        let is_ack = segment.flags.has(Flags::ACK) && segment.ack >= 1;
        let window_end = segment.ack + u64::from(segment.window);
        let Handshake { is_client, tries, first_at, .. } = self.handshake;
        match self.state {
            ConnectionState::Idle if is_syn && !is_client => {
                self.receiver.handle_syn(segment.timestamp);
                self.state = ConnectionState::Opening;
                self.handshake.at = now;
            }
            // It did not hear our answer; the timer sends it again anyway.
            ConnectionState::Opening if is_syn && !is_client => {}
            ConnectionState::Opening if is_ack && (!is_client || is_syn) => {
                if is_client {
                    self.receiver.handle_syn(segment.timestamp);
                }
                // Karn's rule: an answer to one of several SYNs says nothing of the time.
                let rtt = (tries == 1).then(|| now - first_at);
                self.state = ConnectionState::Open;
                self.sender.handle_open(now, rtt, window_end, cc);
                self.push_event(Event::Established);
            }
            _ => {}
        }
    }

    /// The next packet to send.
    pub fn poll_send<C: Controller + ?Sized>(&mut self, now: Time, cc: &mut C) -> Option<Transmit> {
        if self.state != ConnectionState::Open {
            return self.poll_opening(now);
        }
        let mut sent = None;
        self.poll_send_into(now, cc, |transmit| &mut sent.insert(transmit).segment);
        sent
    }

    /// As [`Endpoint::poll_send`] of an open connection, which gives the packet to `put` and says
    /// whether there may be another. Selective acknowledgements are written afterwards, where `put`
    /// says that the segment stays, so that it need not be copied there.
    #[inline]
    pub fn poll_send_into<'a, C: Controller + ?Sized>(
        &mut self,
        now: Time,
        cc: &mut C,
        put: impl FnOnce(Transmit) -> &'a mut Segment,
    ) -> bool {
        if self.state != ConnectionState::Open {
            return false;
        }
        let data = if mem::take(&mut self.has_probe) {
            Some(self.probe)
        } else {
            self.sender.poll_send(now, cc)
        };
        let may_have_more = data.is_some();
        let DataFields { seq, len, flags } = match data {
            Some(data) => data,
            None if self.receiver.is_due(now) => {
                DataFields { seq: self.sender.next(), len: 0, flags: Flags::default() }
            }
            None => return false,
        };
        let config = self.sender.config();
        let ack = self.receiver.acknowledge(&self.out_of_order, config);
        let segment = ack.into_segment(seq, len, flags, stamp_of(now));
        let bytes = config.headers + Bytes(u64::from(len));
        let has_data = len > 0 || flags.has(Flags::FIN);
        let segment = put(Transmit { segment, bytes, is_ecn_capable: config.ecn && has_data });
        if ack.sack_count > 0 {
            self.receiver.write_blocks(&mut self.out_of_order, &mut segment.sack);
        }
        may_have_more
    }

    fn poll_opening(&mut self, now: Time) -> Option<Transmit> {
        let handshake = &mut self.handshake;
        if self.state != ConnectionState::Opening || handshake.at > now {
            return None;
        }
        if handshake.tries >= SYN_TRIES {
            self.state = ConnectionState::Dead;
            self.push_event(Event::TimedOut);
            return None;
        }
        if handshake.tries == 0 {
            handshake.first_at = now;
        }
        handshake.at = now + Span::from_secs(1 << handshake.tries.min(6));
        handshake.tries += 1;
        let config = self.sender.config();
        let segment = if handshake.is_client {
            let mut segment =
                Segment { flags: Flags::SYN, timestamp: stamp_of(now), ..Segment::default() };
            Receiver::write_window(&mut segment, config);
            segment
        } else {
            self.receiver.acknowledge(&self.out_of_order, config).into_segment(
                0,
                0,
                Flags::SYN,
                stamp_of(now),
            )
        };
        Some(Transmit { segment, bytes: config.headers, is_ecn_capable: false })
    }

    /// When [`Endpoint::handle_deadline`] and [`Endpoint::poll_send`] want to be called.
    #[must_use]
    #[inline]
    pub fn poll_deadline(&self) -> Option<Time> {
        let at = match self.state {
            ConnectionState::Open => self.sender.deadline().min(self.receiver.deadline()),
            ConnectionState::Opening => self.handshake.at,
            ConnectionState::Idle | ConnectionState::Dead => return None,
        };
        (at < NEVER).then_some(at)
    }

    /// The deadline has come; [`Endpoint::poll_send`] has what follows from it.
    pub fn handle_deadline<C: Controller + ?Sized>(&mut self, now: Time, cc: &mut C) {
        if self.state == ConnectionState::Open
            && let Some(data) = self.sender.handle_deadline(now, cc)
        {
            self.probe = data;
            self.has_probe = true;
        }
    }

    /// The next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events[0].take();
        if event.is_some() {
            self.events.rotate_left(1);
        }
        event
    }

    fn push_event(&mut self, event: Event) {
        let slot = self.events.iter_mut().find(|slot| slot.is_none());
        *slot.expect("opened, finished and closed are three; given up is none of them") =
            Some(event);
    }

    #[inline]
    fn note_ends(&mut self) {
        if !self.is_finished && self.receiver.is_finished() {
            self.is_finished = true;
            self.push_event(Event::Finished);
        }
        if !self.is_closed && self.sender.is_finished() {
            self.is_closed = true;
            self.push_event(Event::Closed);
        }
    }

    /// Which subflow of its controller's it is.
    #[must_use]
    pub fn subflow(&self) -> SubflowId {
        self.sender.id()
    }

    /// Whether the connection is open.
    #[must_use]
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state == ConnectionState::Open
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
    pub fn stats(&self) -> Stats {
        self.sender.stats()
    }
}
