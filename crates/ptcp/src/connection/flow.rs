//! Flow control of the connection, over all streams together, in both directions.
//!
//! The receive buffer follows (sum of rates) x (largest round-trip time), as in the paper (section
//! 2). The sender knows both and requests a buffer; the receiver grants it within its bounds.

use units::{Bytes, Span, Time, TokenBucket};

use super::{Connection, Event};
use crate::config::{Config, SlowStreams};
use crate::path::Control;
use crate::stream::recv::RecvStream;
use crate::stream::send::SendStream;

/// The unit of limits, bytes.
const UNIT: u64 = 1_024;
/// Requests of the peer for a larger buffer that are answered at once.
const REQUESTS_AT_ONCE: u64 = 32;
/// One more is answered each time that this passes. Each answer is a packet over every path and a
/// look at every stream. A request that gets none is made again while the window limits the peer.
const REQUEST_EVERY: Span = Span::from_millis(10);

/// The state of both directions.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// The peer's limit on new data sent.
    limit: u64,
    /// New data sent in all streams.
    sent: u64,
    /// The receive buffer requested from the peer.
    requested_buffer: u64,
    /// When the request was last doubled because the window limited sending.
    doubled_at: Option<Time>,
    /// The time since which the peer has granted less than half of the request.
    refused_since: Option<Time>,
    /// Data received, as the sum of the highest offsets of all streams.
    arrived: u64,
    /// Data read by the application.
    read: u64,
    /// Data in order that the application has not read.
    unread: u64,
    /// The requests of the peer that may be answered.
    requests: TokenBucket,
    buffer: u64,
    max_buffer: u64,
    /// What this end has memory for, whatever the buffer is.
    allowance: u64,
    slow_streams: Option<SlowStreams>,
    /// The first windows of all streams that there may be.
    reserved: u64,
    /// The limit advertised to the peer.
    advertised: u64,
}

impl Flow {
    pub(super) fn new(config: &Config) -> Flow {
        let first = config.receive_buffer.0 / UNIT * UNIT;
        Flow {
            limit: first,
            sent: 0,
            requested_buffer: first,
            doubled_at: None,
            refused_since: None,
            arrived: 0,
            read: 0,
            unread: 0,
            requests: TokenBucket::default(),
            buffer: first,
            slow_streams: config.slow_streams,
            reserved: config.stream_window().0.saturating_mul(config.max_streams.into()),
            max_buffer: config.max_receive_buffer.0.max(2 * first),
            allowance: u64::MAX,
            advertised: first,
        }
    }

    /// The largest buffer changes. What was granted stays granted.
    pub(super) fn set_max_buffer(&mut self, bytes: Bytes) {
        self.max_buffer = bytes.0.max(2 * self.buffer);
    }

    /// The peer may have more streams, each with its first window.
    pub(super) fn set_max_streams(&mut self, config: &Config) {
        self.reserved = config.stream_window().0.saturating_mul(config.max_streams.into());
    }

    /// What the peer could make this end hold if the allowance did not bind.
    fn wanted(&self) -> u64 {
        (self.buffer + self.unread).min(self.max_buffer)
    }

    /// What this end has memory for.
    pub(super) fn allowance(&self) -> u64 {
        self.allowance
    }

    /// The peer's buffer is not as large as this end's, before anything was sent.
    pub(super) fn set_peer(&mut self, buffer: Bytes) {
        self.limit = buffer.0 / UNIT * UNIT;
        self.requested_buffer = self.limit;
    }

    /// New data that may be sent.
    #[inline]
    pub(super) fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.sent)
    }

    #[inline]
    pub(super) fn handle_sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// Raises the peer's limit, of which the lower 32 bits arrived.
    pub(super) fn raise_limit(&mut self, lower: u32) {
        let known = self.limit / UNIT;
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is compared")]
        let ahead = lower.wrapping_sub(known as u32);
        // Acknowledgements may be reordered.
        if ahead < 1 << 31 {
            self.limit = known.saturating_add(u64::from(ahead)).saturating_mul(UNIT);
        }
    }

    /// New data arrived. Returns whether it is within the limit.
    pub(super) fn handle_arrived(&mut self, bytes: u64) -> bool {
        self.arrived += bytes;
        self.arrived <= self.advertised
    }

    /// The unread data of a stream changed from `before` to `after` bytes.
    pub(super) fn handle_unread(&mut self, before: u64, after: u64) {
        self.unread = self.unread + after - before;
    }

    /// Whether a request of the peer is answered; it then counts.
    fn may_answer_request(&mut self, now: Time) -> bool {
        let may = self.requests.ready_at(now, REQUEST_EVERY * (REQUESTS_AT_ONCE - 1)) == now;
        if may {
            self.requests.take(now, Span::ZERO, REQUEST_EVERY);
        }
        may
    }

    pub(super) fn requested_buffer(&self) -> u64 {
        self.requested_buffer
    }

    pub(super) fn buffer(&self) -> Bytes {
        Bytes(self.buffer)
    }

    /// What the peer may send of a stream beyond what was read of it; `extra` is what it may send
    /// of all streams beyond their first windows ([`SlowStreams`]). What was granted counts, not
    /// what arrived: that all streams are granted much at once leaves the later ones nothing.
    fn stream_window(&self, extra: u64) -> u64 {
        let Some(SlowStreams { first: Bytes(first), share }) = self.slow_streams else {
            return self.buffer;
        };
        let left = self.max_buffer.saturating_sub(self.reserved).saturating_sub(extra);
        self.buffer.min(first + left / u64::from(share.max(1))).max(first)
    }

    /// The limit to advertise. Data that the application does not read is granted again to the
    /// other streams, up to `max_buffer`.
    fn grant(&mut self) -> u64 {
        let limit = self.read + self.wanted().min(self.allowance);
        self.advertised = self.advertised.max(limit / UNIT * UNIT);
        self.advertised
    }

    /// Its lower 32 bits, as in packets.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is sent")]
    pub(super) fn grant_lower(&mut self) -> u32 {
        (self.grant() / UNIT) as u32
    }
}

impl Connection {
    /// Sets what this end has memory for, in place of any amount: nothing is granted to the peer
    /// beyond it. What was granted stays granted, so that the first allowance is at least
    /// [`Config::receive_buffer`](crate::Config::receive_buffer).
    pub fn set_allowance(&mut self, now: Time, bytes: Bytes) {
        let is_short = self.flow.allowance < self.flow.wanted();
        let is_more = bytes.0 > self.flow.allowance;
        self.flow.allowance = bytes.0;
        if is_short && is_more {
            self.advertise_window(now);
        }
    }

    /// The peer has this receive buffer, as if it had asked for it.
    pub fn grant_buffer(&mut self, now: Time, bytes: Bytes) {
        self.handle_buffer_request(now, bytes.0);
    }

    /// The allowance that the peer could use: what its receive buffer is, and what waits to be
    /// read.
    #[must_use]
    pub fn wanted_allowance(&self) -> Bytes {
        Bytes(self.flow.wanted())
    }

    /// What the peer may make this end hold of its data, unread data included.
    #[must_use]
    pub fn exposure(&self) -> Bytes {
        Bytes(self.flow.advertised - self.flow.read)
    }

    /// The peer may have more streams open than it was told at the beginning, and is told.
    pub fn raise_max_streams(&mut self, most: u32) {
        if most > self.config.max_streams {
            self.config.max_streams = most;
            self.flow.set_max_streams(&self.config);
            self.outbox.push_once(Control::StreamCount);
        }
    }

    /// The application read `bytes` that had waited.
    pub(super) fn note_read(&mut self, now: Time, stream: u32, bytes: u64) {
        self.flow.unread -= bytes.min(self.flow.unread);
        self.count_read(stream, bytes);
        let before = self.flow.advertised;
        // An update of a quarter of the buffer is worth a packet: the peer may wait for it.
        let window = self.flow.buffer.min(self.flow.allowance);
        if bytes > 0 && self.flow.grant() >= before + window / 4 {
            self.advertise_window(now);
        }
    }

    /// The application read `bytes` of a stream, at arrival or later.
    pub(super) fn count_read(&mut self, stream: u32, bytes: u64) {
        self.flow.read += bytes;
        let window = self.flow.stream_window(self.streams.extra());
        let limit_and_end = |receiving: &mut RecvStream| {
            (receiving.poll_limit(window).is_some(), receiving.is_done())
        };
        let Some((has_limit, is_done)) = self.streams.update_receiving(stream, limit_and_end)
        else {
            return;
        };
        if has_limit {
            self.outbox.push_once(Control::StreamWindow { stream });
        }
        if is_done {
            self.streams.remove_receiving(stream);
        }
    }

    /// The peer requests a larger buffer.
    pub(super) fn handle_buffer_request(&mut self, now: Time, wanted: u64) {
        if !self.flow.may_answer_request(now) {
            return;
        }
        let most = self.flow.max_buffer / 2;
        let buffer = wanted.min(most).max(self.flow.buffer);
        if buffer > self.flow.buffer {
            self.flow.buffer = buffer;
            let (flow, only_short) = (&self.flow, self.config.slow_streams.is_some());
            for stream in self.streams.raise_limits(only_short, |extra| flow.stream_window(extra)) {
                self.outbox.push_once(Control::StreamWindow { stream });
            }
        }
        // Even without a change: the previous answer may have been lost.
        self.advertise_window(now);
    }

    /// Advertises the window at once, over every open path that has received packets.
    fn advertise_window(&mut self, now: Time) {
        for path in self.paths.iter_mut() {
            if path.subflow().is_some() {
                path.acks.request_ack(now);
            }
        }
    }

    /// Requests the buffer that the paths could fill, if it has grown by a quarter.
    pub(super) fn ask_for_buffer(&mut self) {
        let live =
            || self.paths.iter().filter(|path| path.is_live()).filter_map(|path| path.subflow());
        let Some(longest) = live().filter_map(|subflow| subflow.rtt().smoothed()).max() else {
            return;
        };
        let needed: u128 = live()
            .filter_map(|subflow| {
                let window = u128::from(self.paths.window(subflow.id()).0);
                let rtt = u128::from(subflow.rtt().smoothed()?.as_nanos().max(1));
                Some(2 * window * u128::from(longest.as_nanos()) / rtt)
            })
            .sum();
        let needed = u64::try_from(needed).unwrap_or(u64::MAX);
        if needed > self.flow.requested_buffer + self.flow.requested_buffer / 4 {
            self.flow.requested_buffer = needed;
            self.outbox.push_once(Control::BufferRequest);
        }
    }

    /// Flow control blocked paths with room: requests a buffer twice as large each time, until the
    /// peer grants no more. Returns whether the peer refuses.
    pub(super) fn handle_blocked(&mut self, now: Time) -> bool {
        let rtts = || self.paths.subflows().filter_map(|subflow| subflow.rtt().smoothed());
        let (Some(fastest), Some(slowest)) = (rtts().min(), rtts().max()) else { return false };
        let granted = self.streams.sending().outstanding() + self.flow.credit();
        let is_refused = granted < self.flow.requested_buffer / 2;
        let wait = if is_refused { slowest } else { fastest + fastest };
        if self.flow.doubled_at.is_none_or(|at| now - at > wait) {
            self.flow.doubled_at = Some(now);
            self.flow.requested_buffer = self.flow.requested_buffer.max(granted.saturating_mul(2));
            self.outbox.push_once(Control::BufferRequest);
        }
        if !is_refused {
            self.flow.refused_since = None;
        }
        // The answer to a request takes a round trip.
        is_refused && now - *self.flow.refused_since.get_or_insert(now) > slowest
    }

    /// Data of a stream was acknowledged: removes the stream if it is complete.
    pub(super) fn note_delivered(&mut self, stream: u32) {
        if self.config.holds_bytes && self.progress.last() != Some(&stream) {
            self.progress.push(stream);
        }
        if self.streams.sending().get(stream).is_some_and(SendStream::is_done) {
            self.remove_sending(stream);
            self.streams.note_half_ended(stream);
            self.events.push_back(Event::Delivered { stream });
        }
    }
}
