//! What peers and local programs may take of this host.

use std::time::Duration;

use peer::Clock;
use stripe::SlowStreams;
use tokio::time::sleep;
use units::{Bytes, Span, Time, TokenBucket};

/// Connections at a time: of this host, or of each peer.
pub const MOST_CONNECTIONS: usize = 4_096;
/// Connections that a peer opens in a second, in the long run.
pub const OPENED_A_SECOND: u32 = 1_000;
/// Connections that a peer may open at once.
pub const OPENED_AT_ONCE: u32 = 2_000;
/// Clients of proxies that have not named a target yet, or shown a login; a further one takes the
/// place of the oldest.
pub const GREETINGS: usize = 512;
/// The time for a proxy's client to name its target, and for a peer's request.
pub const PREAMBLE_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes in which a proxy's client names its target.
pub const MOST_PREAMBLE: usize = 8 << 10;
/// Striped connections of a peer; a further one takes the place of the oldest.
pub const CONNECTIONS_EACH: usize = 4;
/// Places at which a peer has this host listen.
pub const MOST_LISTENERS: usize = 64;
/// Bytes of a connection that wait to be sent.
pub const UNSENT: Bytes = Bytes::kib(128);
/// Bytes of a peer that wait for applications.
pub const RECEIVE_BUFFER: Bytes = Bytes::mib(128);
/// Bytes of a connection that wait for its application, at first and at least; those of all
/// connections are half of the buffer.
const FIRST_WINDOW: Bytes = Bytes::kib(16);
/// The fraction of the buffer's rest that one connection may take: 7 MiB of an empty one, which is
/// 560 Mbit/s over 100 ms.
const SHARE: u32 = 8;
/// Bytes of a peer that may be sent before the first update, of all connections.
const FIRST_BUFFER: Bytes = Bytes::kib(256);
/// The pause in accepting when the process has no descriptors left.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// The time that the far side's answer takes beyond [`reach::DIAL_PATIENCE`]: that of the network.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(20);

/// The options of striped connections for a tunnel: thousands of streams, of which each holds
/// little.
#[must_use]
pub fn stripe_options() -> stripe::Options {
    let mut options = stripe::Options { unsent: UNSENT, ..stripe::Options::default() };
    let streams = MOST_CONNECTIONS + MOST_LISTENERS + 1;
    options.config.receive_buffer = FIRST_BUFFER;
    options.config.slow_streams = Some(SlowStreams { first: FIRST_WINDOW, share: SHARE });
    options.config.max_streams = u32::try_from(streams).expect("a few thousand");
    options
}

/// Limits how often something happens: [`OPENED_A_SECOND`], and [`OPENED_AT_ONCE`] after a pause.
#[derive(Debug)]
pub(crate) struct Pace {
    clock: Clock,
    bucket: TokenBucket,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace { clock: Clock::start(), bucket: TokenBucket::default() }
    }

    /// Waits for its turn.
    pub(crate) async fn turn(&mut self) {
        let now = self.clock.now();
        sleep((self.next(now) - now).into()).await;
    }

    /// The time of the next turn, which is taken.
    fn next(&mut self, now: Time) -> Time {
        let one = Span::from_secs(1) / u64::from(OPENED_A_SECOND);
        self.bucket.take(now, Span::ZERO, one);
        self.bucket.ready_at(now, one * u64::from(OPENED_AT_ONCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_a_rate() {
        let now = Time::ZERO;
        let mut pace = Pace::new();
        let turns: Vec<Time> =
            (0..OPENED_AT_ONCE + OPENED_A_SECOND).map(|_| pace.next(now)).collect();
        let at_once = usize::try_from(OPENED_AT_ONCE).unwrap();
        assert!(turns[..at_once].iter().all(|turn| *turn == now));
        let last = *turns.last().unwrap() - now;
        assert_eq!(last.as_millis(), 1_000);
        // Whoever waits has the whole allowance again, and no more.
        let later = now + Span::from_secs(60);
        let turns: Vec<Time> = (0..=OPENED_AT_ONCE).map(|_| pace.next(later)).collect();
        assert!(turns[at_once - 1] == later && turns[at_once] > later);
    }
}
