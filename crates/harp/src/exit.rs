//! Where the data of a connection leave: packets in order, and which ones are missing.
//!
//! Packets in sequence pass at once. Others wait until those before them arrive, or for ρ times the
//! delay of the slowest path (section III-C of the paper). Once every path has delivered something
//! beyond a gap, and a quarter of a round trip has passed, what is in the gap counts as lost
//! (section III-D, which does not wait). A path that is choked, as its probes tell, or silent for
//! long has no say; if one is silent, or was not heard of yet, the gap must also have been there
//! for half of the wait, since the first packets of a path may be on their way.

use alloc::collections::BTreeMap;

use units::{Span, Time};
use wire::harp::MOST_PATHS;
use wire::tcp::Meta;

use crate::Carried;
use crate::position::Positions;

/// The wait before any round-trip time is known.
const FIRST_WAIT: Span = Span::from_millis(100);
/// A path has a say in losses for this long after its latest packet, or ten waits if that is more.
const HAS_SAY: Span = Span::from_secs(1);
/// The longest wait: hosts time out.
const LONGEST_WAIT: Span = Span::from_secs(1);
/// A gap is a loss after this part of a round trip at the earliest: packets overtake each other.
const OVERTAKEN: u64 = 4;
/// Packets that wait at most; a host's window has fewer.
const MOST_WAITING: usize = 8_192;

/// The receiving half of a connection at its gateway.
#[derive(Clone, Debug)]
pub(crate) struct Receiving<T> {
    stream: Option<ReceivedStream<T>>,
    factor: f64,
    /// The number of paths.
    count: usize,
    paths: [PathArrivals; MOST_PATHS],
}

/// The positions that arrive.
#[derive(Clone, Debug)]
struct ReceivedStream<T> {
    positions: Positions,
    /// `rcvnext`: the next position in sequence.
    next: u64,
    /// Packets beyond a gap by first position and order of arrival, since the host may send some
    /// twice; with their end and the time of their arrival.
    waiting: BTreeMap<(u64, u64), (u64, Time, T)>,
    /// The packets that have waited so far.
    count: u64,
    /// The gap that was reported last, and when.
    reported: Option<(u64, Time)>,
    /// Where `next` was put by a packet that left before those that it waited for.
    given_up: Option<u64>,
}

impl<T> ReceivedStream<T> {
    /// A stream that begins with this sequence number.
    fn new(first: u32) -> ReceivedStream<T> {
        let (positions, next) = Positions::new(first);
        let waiting = BTreeMap::new();
        ReceivedStream { positions, next, waiting, count: 0, reported: None, given_up: None }
    }
}

/// A packet that waited, and waits no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released<T> {
    pub(crate) packet: T,
    pub(crate) waited: Span,
    /// Whether something before it was missing when it left.
    pub(crate) is_expired: bool,
}

/// The paths over which something has come not long ago.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeardPaths {
    /// A bit for each; the others have no say.
    pub(crate) mask: u8,
    /// Whether they are as many as there are on this side: there is none of which the first packets
    /// may be on their way.
    pub(crate) are_all: bool,
}

/// What a path delivered.
#[derive(Clone, Copy, Debug, Default)]
struct PathArrivals {
    /// `last_byte_rcvd`: the highest position, and when the latest packet came.
    highest: Option<(u64, Time)>,
    /// Half of the round-trip time in the latest stamp.
    delay: Span,
    /// Whether its latest message is a probe.
    is_choked: bool,
}

impl<T: Carried> Receiving<T> {
    pub(crate) fn new(factor: f64, count: u8) -> Receiving<T> {
        let count = usize::from(count).min(MOST_PATHS);
        Receiving { stream: None, factor, count, paths: [PathArrivals::default(); MOST_PATHS] }
    }

    /// The host opens with this segment, or opens anew.
    pub(crate) fn handle_open(&mut self, meta: &Meta) {
        self.stream = Some(ReceivedStream::new(meta.seq.wrapping_add(meta.span())));
        self.paths = [PathArrivals::default(); MOST_PATHS];
    }

    /// The smoothed round-trip time of a path, as the other gateway knows it.
    pub(crate) fn handle_srtt(&mut self, path: usize, srtt: Span) {
        if let Some(path) = self.paths.get_mut(path) {
            path.delay = Span::from_nanos(srtt.as_nanos() / 2);
        }
    }

    /// A probe has arrived: the path is choked.
    pub(crate) fn handle_probe(&mut self, path: usize) {
        if let Some(path) = self.paths.get_mut(path) {
            path.is_choked = true;
        }
    }

    /// A packet with payload has arrived over a path. It is returned if it need not wait;
    /// [`Receiving::poll_ready`] has those that it lets pass.
    pub(crate) fn handle_data(&mut self, now: Time, path: usize, packet: T) -> Option<T> {
        let meta = packet.meta();
        let stream = self.stream.get_or_insert_with(|| ReceivedStream::new(meta.seq));
        let start = stream.positions.continued(meta.seq);
        let end = start + u64::from(meta.span());
        if start < stream.next {
            // Sent again by the host: it says nothing about what overtook what.
            stream.next = stream.next.max(end);
            stream.positions.reach(stream.next);
            return Some(packet);
        }
        if let Some(path) = self.paths.get_mut(path) {
            let highest = path.highest.map_or(end, |(highest, _)| highest.max(end));
            path.highest = Some((highest, now));
            path.is_choked = false;
        }
        if start == stream.next {
            stream.next = end;
            stream.positions.reach(end);
            return Some(packet);
        }
        stream.count += 1;
        stream.waiting.insert((start, stream.count), (end, now, packet));
        None
    }

    /// The next packet that need not wait any more.
    pub(crate) fn poll_ready(&mut self, now: Time) -> Option<Released<T>> {
        let wait = self.wait();
        let stream = self.stream.as_mut()?;
        let (&(start, _), &(end, since, _)) = stream.waiting.first_key_value()?;
        let is_next = start <= stream.next;
        if !is_next && now < since + wait && stream.waiting.len() <= MOST_WAITING {
            return None;
        }
        // What follows such a packet leaves without those that are missing, as it did.
        let is_expired = !is_next || stream.given_up == Some(stream.next);
        stream.next = stream.next.max(end);
        stream.positions.reach(stream.next);
        stream.given_up = is_expired.then_some(stream.next);
        let (_, (_, _, packet)) = stream.waiting.pop_first()?;
        Some(Released { packet, waited: now.since(since), is_expired })
    }

    /// When the first packet has waited long enough.
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let (_, (_, since, _)) = self.stream.as_ref()?.waiting.first_key_value()?;
        Some(*since + self.wait())
    }

    /// The missing positions, first and number, once every path has delivered beyond them; each gap
    /// once in `again`.
    pub(crate) fn poll_lost(
        &mut self,
        now: Time,
        again: Span,
        come: HeardPaths,
    ) -> Option<(u32, u32)> {
        let wait = self.wait();
        let stream = self.stream.as_mut()?;
        let (&(head, _), &(_, since, _)) = stream.waiting.first_key_value()?;
        let long = HAS_SAY.max(Span::from_nanos(10 * wait.as_nanos()));
        let open = || {
            let all = (0..).zip(&self.paths[..self.count]);
            let has_come = move |(number, _): &(u32, &PathArrivals)| come.mask & (1 << number) != 0;
            all.filter(has_come).map(|(_, path)| path).filter(|path| !path.is_choked)
        };
        let has_say = |path: &&PathArrivals| path.highest.is_some_and(|(_, at)| now < at + long);
        let is_beyond = |path: &PathArrivals| path.highest.is_some_and(|(at, _)| at > stream.next);
        let is_old = now.since(since).as_nanos() >= wait.as_nanos() / 2;
        // What was overtaken is on its way (as in RFC 8985).
        let is_settled = now.since(since).as_nanos() >= again.as_nanos() / OVERTAKEN;
        let is_lost = head > stream.next
            && is_settled
            && (is_old || come.are_all && open().all(|path| has_say(&path)))
            && open().filter(has_say).all(is_beyond);
        let is_news =
            stream.reported.is_none_or(|(at, when)| at != stream.next || now >= when + again);
        if !is_lost || !is_news {
            return None;
        }
        stream.reported = Some((stream.next, now));
        #[expect(clippy::cast_possible_truncation, reason = "positions wrap on the wire")]
        let from = stream.next as u32;
        Some((from, u32::try_from(head - stream.next).unwrap_or(u32::MAX)))
    }

    /// T: ρ times the delay of the slowest path.
    fn wait(&self) -> Span {
        let slowest = self.paths.iter().map(|path| path.delay).max().unwrap_or(Span::ZERO);
        if slowest == Span::ZERO {
            return FIRST_WAIT;
        }
        Span::from_secs_f64(self.factor * slowest.as_secs_f64()).min(LONGEST_WAIT)
    }
}
