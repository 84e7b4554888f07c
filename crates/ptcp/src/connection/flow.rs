//! Flow control of the connection: how much of all streams together may be under way, in both
//! directions.
//!
//! The receive buffer follows (sum of rates) x (largest round-trip time), as the paper wants it
//! (section 2): the sender knows both and says what it could use; the receiver grants it within its
//! bounds.

use units::{Bytes, Time};

use super::{Connection, Event};
use crate::Config;
use crate::path::Control;

/// Limits are counted in these.
const UNIT: u64 = 1_024;

/// Both directions.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// How much the peer lets us send.
    limit: u64,
    /// New data sent, of all streams.
    sent: u64,
    /// The receive buffer that we said we could use.
    requested_buffer: u64,
    /// When it was last doubled because the window was in the way.
    doubled_at: Option<Time>,
    /// Since when the peer has granted less than half of what it was asked for.
    refused_since: Option<Time>,
    /// Data that came, counted by the highest offset of each stream.
    arrived: u64,
    /// Data that applications have read.
    read: u64,
    /// Data that waits in order for applications to read it.
    unread: u64,
    buffer: u64,
    max_buffer: u64,
    /// The limit that the peer was told.
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
            buffer: first,
            max_buffer: config.max_receive_buffer.0.max(2 * first),
            advertised: first,
        }
    }

    /// How much new data may be sent.
    #[inline]
    pub(super) fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.sent)
    }

    #[inline]
    pub(super) fn handle_sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// The peer's limit, of which the lower half came.
    pub(super) fn raise_limit(&mut self, lower: u32) {
        let known = self.limit / UNIT;
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is compared")]
        let ahead = lower.wrapping_sub(known as u32);
        // Older acknowledgements may come late.
        if ahead < 1 << 31 {
            self.limit = known.saturating_add(u64::from(ahead)).saturating_mul(UNIT);
        }
    }

    /// New data came. Whether the peer was allowed to send it.
    pub(super) fn handle_arrived(&mut self, bytes: u64) -> bool {
        self.arrived += bytes;
        self.arrived <= self.advertised
    }

    pub(super) fn buffer(&self) -> Bytes {
        Bytes(self.buffer)
    }

    /// The limit to tell the peer. Data that nobody reads is granted again to the other streams,
    /// within the most there is.
    fn grant(&mut self) -> u64 {
        let limit = self.read + (self.buffer + self.unread).min(self.max_buffer);
        self.advertised = self.advertised.max(limit / UNIT * UNIT);
        self.advertised
    }

    /// Its lower half, as packets have it.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is sent")]
    pub(super) fn grant_lower(&mut self) -> u32 {
        (self.grant() / UNIT) as u32
    }
}

impl Connection {
    /// In order and not yet read: more, or less.
    pub(super) fn note_unread(&mut self, before: u64, after: u64) {
        self.flow.unread = self.flow.unread + after - before;
    }

    /// An application read so much of what had waited.
    pub(super) fn note_read(&mut self, now: Time, stream: u32, bytes: u64) {
        self.flow.unread -= bytes.min(self.flow.unread);
        self.count_read(stream, bytes);
        let before = self.flow.advertised;
        // Half a buffer of news is worth a packet: the peer may be waiting for it.
        if bytes > 0 && self.flow.grant() >= before + self.flow.buffer / 4 {
            self.advertise_window(now);
        }
    }

    /// Data went to the application as it came, or later.
    pub(super) fn count_read(&mut self, stream: u32, bytes: u64) {
        self.flow.read += bytes;
        let window = self.flow.buffer;
        let Some(receiving) = self.receiving.get_mut(&stream) else { return };
        if receiving.poll_limit(window).is_some() {
            self.queue_window(stream);
        }
        if self.receiving.get(&stream).is_some_and(crate::stream::recv::RecvStream::is_done) {
            self.receiving.remove(&stream);
        }
    }

    /// The peer could use a larger buffer.
    pub(super) fn handle_buffer_request(&mut self, now: Time, wanted: u64) {
        let most = self.flow.max_buffer / 2;
        let buffer = wanted.min(most).max(self.flow.buffer);
        if buffer > self.flow.buffer {
            self.flow.buffer = buffer;
            let raised: alloc::vec::Vec<u32> = self
                .receiving
                .iter_mut()
                .filter_map(|(stream, receiving)| receiving.poll_limit(buffer).map(|_| *stream))
                .collect();
            for stream in raised {
                self.queue_window(stream);
            }
        }
        // Also where nothing changed: the peer may ask because it missed the answer.
        self.advertise_window(now);
    }

    fn queue_window(&mut self, stream: u32) {
        let window = Control::StreamWindow { stream };
        if !self.controls.contains(&window) {
            self.controls.push_back(window);
            self.has_pending = true;
        }
    }

    /// Tells the peer of the window at once, over every path that something came over.
    fn advertise_window(&mut self, now: Time) {
        for path in &mut self.paths {
            if path.subflow().is_some() {
                path.acks.request_ack(now);
            }
        }
    }

    /// Says what buffer the paths could fill, when that has grown by a quarter.
    pub(super) fn ask_for_buffer(&mut self) {
        let live =
            || self.paths.iter().filter(|path| path.is_live()).filter_map(|path| path.subflow());
        let Some(longest) = live().filter_map(|subflow| subflow.rtt().smoothed()).max() else {
            return;
        };
        let needed: u128 = live()
            .filter_map(|subflow| {
                let window = u128::from(self.controller.allowance(subflow.id()).window.0);
                let rtt = u128::from(subflow.rtt().smoothed()?.as_nanos().max(1));
                Some(2 * window * u128::from(longest.as_nanos()) / rtt)
            })
            .sum();
        let needed = u64::try_from(needed).unwrap_or(u64::MAX);
        if needed > self.flow.requested_buffer + self.flow.requested_buffer / 4 {
            self.flow.requested_buffer = needed;
            self.queue_buffer_request();
        }
    }

    /// Paths had room, and the window was in the way: a larger one is asked for, twice as large
    /// each time, until the peer grants no more. Returns whether it does not.
    pub(super) fn handle_blocked(&mut self, now: Time) -> bool {
        let rtts = || self.paths.iter().filter_map(|path| path.subflow()?.rtt().smoothed());
        let (Some(fastest), Some(slowest)) = (rtts().min(), rtts().max()) else { return false };
        let under_way: u64 =
            self.sending.values().map(|sending| sending.next() - sending.delivered()).sum();
        let granted = under_way + self.flow.credit();
        let is_refused = granted < self.flow.requested_buffer / 2;
        let wait = if is_refused { slowest } else { fastest + fastest };
        if self.flow.doubled_at.is_none_or(|at| now - at > wait) {
            self.flow.doubled_at = Some(now);
            self.flow.requested_buffer = self.flow.requested_buffer.max(granted.saturating_mul(2));
            self.queue_buffer_request();
        }
        if !is_refused {
            self.flow.refused_since = None;
        }
        // An answer takes a round trip.
        is_refused && now - *self.flow.refused_since.get_or_insert(now) > slowest
    }

    pub(super) fn queue_buffer_request(&mut self) {
        if !self.controls.contains(&Control::BufferRequest) {
            self.controls.push_back(Control::BufferRequest);
            self.has_pending = true;
        }
    }

    pub(super) fn requested_buffer(&self) -> u64 {
        self.flow.requested_buffer
    }

    /// A stream's data arrived completely.
    pub(super) fn note_delivered(&mut self, stream: u32) {
        if self.sending.get(&stream).is_some_and(crate::stream::send::SendStream::is_done) {
            self.sending.remove(&stream);
            self.events.push_back(Event::Delivered { stream });
        }
    }
}
