//! What one connection may hold of this host's memory, and how its windows follow that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use units::{Bytes, Time};

use super::link::Link;
use crate::connection::DATAGRAMS;
use crate::connection::cell::StreamMemory;
use crate::memory::{PeerKey, Share};

/// What a connection takes beside its paths, streams and data: its keys, its state machines, and
/// what its program and the driver share.
const CONNECTION: u64 = 64 << 10;
/// What a path takes: a subflow, ranges of received numbers, a window against replays.
const PATH: u64 = 16 << 10;
/// What a stream takes without data.
const STREAM: u64 = 2 << 10;
/// What a datagram that waits takes.
const DATAGRAM: u64 = 2 << 10;
/// Streams of a stranger.
const EARLY_STREAMS: u32 = 4;
/// Paths of a stranger; packets of further ones count as lost.
const EARLY_PATHS: usize = 16;
/// Datagrams of a stranger that wait to be received.
const EARLY_DATAGRAMS: usize = 16;
/// What a stranger is sent, at most, and has not acknowledged.
const EARLY_SENDING: u64 = 32 << 10;
/// What each connection of a peer that was admitted has in any case: data of the peer, data for it,
/// streams.
const LEAST_RECEIVING: u64 = 256 << 10;
const LEAST_SENDING: u64 = 128 << 10;
const LEAST_STREAMS: u32 = 128;
/// Streams that a peer has at once where there is memory; beyond it, twice as many as it uses.
const FIRST_STREAMS: u32 = 1_024;
/// What is sent and not acknowledged, or waits to be sent: 10 Gbit/s over 200 ms.
const MOST_SENDING: u64 = 256 << 20;
/// A smaller step is not worth a packet.
const STEP: u64 = 64 << 10;

/// The memory of one connection.
pub(super) struct Holdings {
    pub(super) streams: Arc<StreamMemory>,
    /// `None`: this side dialed, and its own limits count.
    counted: Option<Counted>,
}

/// That of a connection of the side that listens.
struct Counted {
    share: Share,
    /// Whether the peer was admitted.
    is_admitted: bool,
    /// What the peer may make this side hold: promised, and at most.
    allowance: u64,
    most: u64,
    /// The streams that the peer may have: promised, and at most.
    streams: u32,
    most_streams: u32,
}

impl Holdings {
    /// Those of the side that dials.
    pub(super) fn dialed() -> Holdings {
        let streams = Arc::<StreamMemory>::default();
        streams.most_sending.store(MOST_SENDING, Ordering::Relaxed);
        Holdings { streams, counted: None }
    }

    /// Those of a stranger, who may send so much, and may have so many streams once it is admitted.
    pub(super) fn of_stranger(share: Share, allowance: Bytes, most_streams: u32) -> Holdings {
        let streams = Arc::<StreamMemory>::default();
        streams.most_sending.store(EARLY_SENDING, Ordering::Relaxed);
        let counted = Counted {
            share,
            is_admitted: false,
            allowance: allowance.0,
            most: allowance.0,
            streams: early_streams(most_streams),
            most_streams,
        };
        Holdings { streams, counted: Some(counted) }
    }

    /// What is taken of the host's memory.
    pub(super) fn taken(&self) -> u64 {
        self.counted.as_ref().map_or(0, |counted| counted.share.bytes())
    }

    /// Whether the peer is nobody's yet at the side that listens.
    pub(super) fn is_strangers(&self) -> bool {
        self.counted.as_ref().is_some_and(|counted| !counted.is_admitted)
    }
}

/// The streams of a stranger.
pub(super) fn early_streams(most: u32) -> u32 {
    most.min(EARLY_STREAMS)
}

impl Link {
    /// Whether a packet may open one more path.
    pub(super) fn may_add_path(&self) -> bool {
        !self.holdings.is_strangers() || self.route_of.len() < EARLY_PATHS
    }

    /// Whether one more datagram may wait for the program.
    pub(super) fn may_keep_datagram(&self) -> bool {
        !self.holdings.is_strangers() || self.waiting_datagrams() < EARLY_DATAGRAMS
    }

    fn waiting_datagrams(&self) -> usize {
        DATAGRAMS - self.ends.datagrams.capacity()
    }

    /// The peer is welcome: it may be given receive buffers of up to `most`, as the memory of the
    /// host allows, and all of its streams.
    pub(super) fn admit(&mut self, now: Time, most: Bytes, peer: Option<PeerKey>) {
        self.core.set_max_receive_buffer(most);
        if let Some(log) = &mut self.log {
            log.handle_admitted();
        }
        let memory = &self.holdings.streams;
        let Some(counted) = &mut self.holdings.counted else { return };
        counted.most = most.0.max(counted.allowance);
        let Some(peer) = peer.filter(|_| !counted.is_admitted) else { return };
        counted.is_admitted = true;
        counted.share.admit(peer);
        counted.allowance = counted.allowance.max(LEAST_RECEIVING).min(counted.most);
        memory.most_sending.fetch_max(LEAST_SENDING, Ordering::Relaxed);
        counted.streams = LEAST_STREAMS.min(counted.most_streams);
        self.settle();
        // What any peer may send at first, which a stranger may not.
        self.core.grant_buffer(now, self.first_buffer);
        self.raise_streams(FIRST_STREAMS);
        self.adapt_memory(now);
        if let Some(counted) = &self.holdings.counted {
            self.core.set_allowance(now, Bytes(counted.allowance));
            self.core.raise_max_streams(counted.streams);
        }
    }

    /// Opens windows as far as the memory of the host allows, and counts what is held.
    pub(super) fn adapt_memory(&mut self, now: Time) {
        if self.error.is_none() {
            self.open_window(now);
            let in_use = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
            self.raise_streams(in_use.saturating_mul(2));
            self.make_room_for_writers();
        }
        self.settle();
    }

    fn open_window(&mut self, now: Time) {
        let Some(counted) = self.admitted() else { return };
        let (allowance, most) = (counted.allowance, counted.most);
        let wanted = self.core.wanted_allowance().0.min(most);
        if wanted <= allowance {
            return;
        }
        let step = (wanted - allowance).max(STEP).min(most - allowance);
        let Some(counted) = self.admitted() else { return };
        let more = counted.share.grow(step, STEP.min(step));
        counted.allowance += more;
        let allowance = Bytes(counted.allowance);
        if more > 0 {
            self.core.set_allowance(now, allowance);
        }
    }

    fn raise_streams(&mut self, wanted: u32) {
        let Some(counted) = self.admitted() else { return };
        let wanted = wanted.min(counted.most_streams);
        if wanted <= counted.streams {
            return;
        }
        let bytes = u64::from(wanted - counted.streams) * STREAM;
        if counted.share.grow(bytes, bytes) > 0 {
            counted.streams = wanted;
            self.core.raise_max_streams(wanted);
        }
    }

    fn make_room_for_writers(&mut self) {
        let memory = Arc::clone(&self.holdings.streams);
        if !memory.is_short.swap(false, Ordering::AcqRel) {
            return;
        }
        let held = memory.sending.load(Ordering::Relaxed);
        let mut most = memory.most_sending.load(Ordering::Relaxed);
        if let Some(counted) = self.admitted() {
            let step = most.min(MOST_SENDING.saturating_sub(most));
            most += counted.share.grow(step, STEP);
            memory.most_sending.store(most, Ordering::Relaxed);
        }
        if held <= most - most / 8 {
            for entry in self.streams.values() {
                entry.cell.wake_writer();
            }
        } else {
            // What is acknowledged makes room.
            memory.is_short.store(true, Ordering::Release);
        }
    }

    /// Takes of the host's memory what was promised, and what is held where that is more: pieces of
    /// streams are larger than the data in them.
    fn settle(&mut self) {
        let paths = self.route_of.len() as u64;
        let datagrams = self.waiting_datagrams() as u64 * DATAGRAM;
        let memory = &self.holdings.streams;
        let receiving = memory.receiving.load(Ordering::Relaxed) + datagrams;
        let sending = memory.sending.load(Ordering::Relaxed);
        let sending = sending.max(memory.most_sending.load(Ordering::Relaxed));
        let Some(counted) = &mut self.holdings.counted else { return };
        if self.error.is_some() {
            counted.share.set(CONNECTION + paths * PATH);
            return;
        }
        let streams = u64::from(counted.streams).max(self.streams.len() as u64) * STREAM;
        let data = receiving.max(counted.allowance) + sending;
        let bytes = CONNECTION + paths * PATH + streams + data;
        if bytes != counted.share.bytes() {
            counted.share.set(bytes);
        }
    }

    fn admitted(&mut self) -> Option<&mut Counted> {
        self.holdings.counted.as_mut().filter(|counted| counted.is_admitted)
    }
}
