//! One end of a connection: opening, closing, and both halves.

use alloc::sync::Arc;
use core::mem;

use policy::cc::Controller;
use recovery::Sending;
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::{Flags, Segment};

use crate::accurate_ecn;
use crate::out_of_order::OutOfOrder;
use crate::receiver::Receiver;
use crate::sender::{DataFields, Sender, Stats, stamp_of};
use crate::{Config, NEVER, TimeWait};

/// Transmissions of an unanswered SYN before the connection is given up.
const SYN_TRIES: u32 = 8;

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its header.
    pub segment: Segment,
    /// Its size on the wire, headers included.
    pub bytes: Bytes,
    /// Whether it is ECN-capable.
    pub is_ecn_capable: bool,
    /// Whether it is so as a packet of a scalable congestion control: ECT(1) (RFC 9331).
    pub is_scalable: bool,
}

/// An event for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is open.
    Established,
    /// All data of the peer, up to its FIN, has been read.
    Finished,
    /// The peer has acknowledged all data and our FIN.
    Closed,
    /// The peer did not answer the SYN.
    TimedOut,
}

/// One end of a TCP connection. The order of the fields is fixed: fields that each packet needs lie
/// together in front, up to those of the sender; rarely used ones follow.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Endpoint {
    state: ConnectionState,
    /// Pending events in order, packed to the front; at most one of each kind.
    events: [Option<Event>; 3],
    is_finished: bool,
    is_closed: bool,
    /// Whether there is something in `probe`.
    has_probe: bool,
    receiver: Receiver,
    sender: Sender,
    out_of_order: OutOfOrder,
    /// A probe of the tail or of the closed window that waits to be sent.
    probe: DataFields,
    handshake: Handshake,
}

/// The state of the handshake (RFC 9293, section 3.3.2); the two halves keep that of closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    /// A client before [`Endpoint::open`], or a server before the first SYN.
    Idle,
    /// A SYN or SYN-ACK is to be sent or answered.
    Opening,
    Open,
    Dead,
}

/// The state of the handshake's SYN.
#[derive(Clone, Copy, Debug)]
struct Handshake {
    is_client: bool,
    /// How often the SYN (of a server: SYN-ACK) was sent; `at` is the time of the next
    /// transmission, `first_at` that of the first.
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

    /// The end that waits for a connection.
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

    /// The application writes `bytes` more.
    #[inline]
    pub fn write(&mut self, bytes: Bytes) {
        self.sender.write(bytes);
    }

    /// The application writes a record: a packet that carries its end carries nothing beyond it, as
    /// with `MSG_EOR` on Linux.
    pub fn write_record(&mut self, bytes: Bytes) {
        self.sender.write_record(bytes);
    }

    /// The application writes no more.
    pub fn close(&mut self) {
        self.sender.close();
    }

    /// Sets whether the application reads data as it arrives, as it does by default.
    pub fn set_reading(&mut self, is_reading: bool) {
        self.receiver.set_reading(is_reading, self.sender.config());
        self.note_ends();
    }

    /// Payload that arrived in order and that the application has not read.
    #[must_use]
    #[inline]
    pub fn readable(&self) -> Bytes {
        self.receiver.readable()
    }

    /// The application reads up to `bytes` of what is [readable](Endpoint::readable).
    pub fn read(&mut self, bytes: Bytes) {
        self.receiver.read(bytes, self.sender.config());
        self.note_ends();
    }

    /// A segment arrived; `is_marked`: with congestion experienced (ECN).
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
            // A repeated SYN-ACK: our acknowledgement was lost.
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
            // The SYN-ACK was lost; the timer repeats it.
            ConnectionState::Opening if is_syn && !is_client => {}
            ConnectionState::Opening if is_ack && (!is_client || is_syn) => {
                if is_client {
                    self.receiver.handle_syn(segment.timestamp);
                }
                // Karn's rule: after several SYNs the answer gives no sample.
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

    /// As [`Endpoint::poll_send`], for an open connection: hands the packet to `put` and returns
    /// whether there may be another. `put` returns the place where it stored the segment; selective
    /// acknowledgements are written there, which saves a copy.
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
        let ack = self.receiver.acknowledge(now, &self.out_of_order, config);
        let segment = ack.into_segment(seq, len, flags, stamp_of(now));
        let bytes = config.headers + Bytes(u64::from(len));
        let has_data = len > 0 || flags.has(Flags::FIN);
        let is_ecn_capable = config.ecn && has_data;
        let is_scalable = is_ecn_capable && config.is_scalable;
        let segment = put(Transmit { segment, bytes, is_ecn_capable, is_scalable });
        if ack.sack_count > 0 {
            let count = usize::from(segment.sack_count);
            self.receiver.write_blocks(&mut self.out_of_order, &mut segment.sack[..count]);
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
        let mut segment = if handshake.is_client {
            let mut segment =
                Segment { flags: Flags::SYN, timestamp: stamp_of(now), ..Segment::default() };
            self.receiver.write_window(now, &mut segment, config);
            segment
        } else {
            self.receiver.acknowledge(now, &self.out_of_order, config).into_segment(
                0,
                0,
                Flags::SYN,
                stamp_of(now),
            )
        };
        if config.accurate_ecn {
            // Both ends have the configuration; captures show how it would be agreed on.
            segment.flags = if handshake.is_client {
                Flags::SYN.with(accurate_ecn::REQUEST)
            } else {
                Flags::SYN.with(Flags::ACK).with(accurate_ecn::ANSWER)
            };
        }
        let bytes = config.headers;
        Some(Transmit { segment, bytes, is_ecn_capable: false, is_scalable: false })
    }

    /// When to call [`Endpoint::handle_deadline`] and then [`Endpoint::poll_send`].
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

    /// The deadline has come; call [`Endpoint::poll_send`] afterwards.
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

    /// Whether the other end has acknowledged all data and its end.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether all data of the other end, and its end, has been read.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// What is left of this end once nothing remains to be done: one side has closed, everything
    /// sent is acknowledged, and no timer runs. `None` before.
    #[must_use]
    pub fn time_wait(&self) -> Option<TimeWait> {
        let is_over = self.is_finished || self.is_closed;
        let is_idle = self.in_flight() == Bytes::ZERO && self.unsent() == Bytes::ZERO;
        let config = self.sender.config();
        (is_over && is_idle && self.poll_deadline().is_none()).then(|| TimeWait {
            seq: self.sender.next(),
            ack: self.receiver.next(),
            window: u32::try_from(config.receive_buffer.0).unwrap_or(u32::MAX),
            headers: u16::try_from(config.headers.0).unwrap_or(u16::MAX),
        })
    }

    /// The id of the subflow in its controller.
    #[must_use]
    pub fn subflow(&self) -> SubflowId {
        self.sender.id()
    }

    /// Payload of a full packet.
    #[must_use]
    pub fn mss(&self) -> Bytes {
        self.sender.config().mss
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

    /// Payload that has arrived, read or not and in order or not, each byte once.
    #[must_use]
    pub fn arrived(&self) -> Bytes {
        self.receiver.arrived(&self.out_of_order)
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

    /// Payload in flight.
    #[must_use]
    pub fn in_flight(&self) -> Bytes {
        self.sender.in_flight()
    }

    /// What its sender does, and what it waits for, by the last [`Endpoint::poll_send`]; `None`
    /// unless the connection is open.
    #[must_use]
    pub fn sending<C: Controller + ?Sized>(&self, now: Time, cc: &C) -> Option<Sending> {
        self.is_open().then(|| self.sender.sending(now, cc))
    }

    /// The smoothed round-trip time; `None` before the first sample.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Span> {
        self.sender.rtt().smoothed()
    }

    /// The packets that arrived marked (ECN), modulo 2^32.
    #[must_use]
    pub fn marked(&self) -> u32 {
        self.receiver.marked()
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.sender.stats()
    }
}
