//! Whether the other gateway answers, and over which path to return what has no stamp.
//!
//! A gateway that does not answer for [`Config::dead_after`], over any path, gets nothing but
//! probes, and what hosts send takes the route that it would have without gateways. Hosts send what
//! is lost again after a fifth of a second and a round trip, and each time after twice as long: so
//! a second of silence is a pause of two, and less is enough where round trips are short. Segments
//! without payload and reports return over the direct path, unless that is silent while another one
//! delivers.

use units::{Span, Time};
use wire::harp::MOST_PATHS;

use crate::{Config, Flow};

/// The direct path is silent if it delivered nothing for so long before the latest delivery.
const SILENT_AFTER: Span = Span::from_secs(1);
/// The same of the first path where they come and go: before the other gateway, which hears nothing
/// meanwhile, takes this one for dead.
const SILENT_AFTER_LIVE: Span = Span::from_millis(300);

/// Round trips of silence that a gateway may have beyond [`Config::dead_on_short`].
const ROUND_TRIPS: u64 = 4;
/// Those that it has in any case, and a little.
const LEAST_ROUND_TRIPS: u64 = 2;
const LITTLE: Span = Span::from_millis(100);

/// What was sent to the other gateway and not answered, and the latest delivery of each path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Liveness {
    dead_after: Span,
    dead_on_short: Option<Span>,
    asks_after: Span,
    unanswered: Option<Unanswered>,
    /// When the other gateway said that nothing arrives there.
    deaf_at: Option<Time>,
    /// In either direction, by this side's numbers: the other gateway's reports tell of one.
    delivered: [Time; MOST_PATHS],
    silent_after: Span,
}

#[derive(Clone, Copy, Debug)]
struct Unanswered {
    since: Time,
    /// Of what was sent first.
    flow: Flow,
    ask_at: Time,
}

impl Liveness {
    pub(crate) fn new(config: &Config) -> Liveness {
        let Config { dead_after, dead_on_short, asks_after, .. } = *config;
        Liveness {
            dead_after,
            dead_on_short,
            asks_after,
            unanswered: None,
            deaf_at: None,
            delivered: [Time::default(); MOST_PATHS],
            silent_after: SILENT_AFTER,
        }
    }

    /// These are the paths that there are, a bit for each: they come and go.
    pub(crate) fn set_present(&mut self, mask: u8) {
        self.silent_after = SILENT_AFTER_LIVE;
        for (path, delivered) in self.delivered.iter_mut().enumerate() {
            if mask & (1 << path) == 0 {
                *delivered = Time::default();
            }
        }
    }

    /// Something that calls for an answer was sent.
    pub(crate) fn handle_sent(&mut self, now: Time, flow: Flow) {
        let first = Unanswered { since: now, flow, ask_at: now + self.asks_after };
        self.unanswered.get_or_insert(first);
    }

    /// Something of the other gateway has arrived.
    pub(crate) fn handle_heard(&mut self) {
        (self.unanswered, self.deaf_at) = (None, None);
    }

    /// The other gateway says that nothing arrives there: only this way carries.
    pub(crate) fn handle_deaf(&mut self, now: Time) {
        self.deaf_at = Some(now);
    }

    /// A path has delivered something.
    pub(crate) fn handle_delivery(&mut self, now: Time, path: u8) {
        if let Some(delivered) = self.delivered.get_mut(usize::from(path)) {
            *delivered = now;
        }
    }

    /// The path for what has no stamp.
    pub(crate) fn return_path(&self) -> u8 {
        let latest = (0_u8..).zip(self.delivered).max_by_key(|(_, at)| *at);
        match latest {
            Some((path, at)) if at > self.delivered[0] + self.silent_after => path,
            _ => 0,
        }
    }

    /// Whether the other gateway has been silent for too long. It is asked over all paths, so that
    /// the shortest round-trip time is that of an answer; it is looked up if it matters.
    pub(crate) fn is_silent(&self, now: Time, shortest: impl FnOnce() -> Option<Span>) -> bool {
        let Some(Unanswered { since, .. }) = self.unanswered else { return false };
        let Some(short) = self.dead_on_short else { return now >= since + self.dead_after };
        // Most often it was heard a moment ago.
        now >= since + short.min(self.dead_after) && now >= since + self.patience(short, shortest())
    }

    /// The silence that it may have.
    fn patience(&self, short: Span, shortest: Option<Span>) -> Span {
        let Some(rtt) = shortest else { return self.dead_after };
        let soon = (short + rtt * ROUND_TRIPS).min(self.dead_after);
        soon.max(rtt * LEAST_ROUND_TRIPS + LITTLE)
    }

    /// Whether it has, or nothing arrives there.
    pub(crate) fn is_dead(&self, now: Time, shortest: impl FnOnce() -> Option<Span>) -> bool {
        let is_deaf = self.deaf_at.is_some_and(|at| now < at + self.dead_after);
        is_deaf || self.is_silent(now, shortest)
    }

    /// The connection under which to ask by a probe over each path, if it is time to.
    pub(crate) fn poll_ask(&mut self, now: Time) -> Option<Flow> {
        let unanswered = self.unanswered.as_mut().filter(|unanswered| unanswered.ask_at <= now)?;
        unanswered.ask_at = now + self.asks_after;
        Some(unanswered.flow)
    }

    /// When to ask.
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        self.unanswered.map(|unanswered| unanswered.ask_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a gateway with this round-trip time may be silent.
    fn patience(dead_on_short: Option<Span>, shortest: Option<u64>) -> Span {
        let config = Config { dead_after: Span::from_secs(1), dead_on_short, ..Config::modern(1) };
        let mut liveness = Liveness::new(&config);
        liveness.handle_sent(Time::ZERO, 1);
        let is_silent = |millis: &u64| {
            let now = Time::ZERO + Span::from_millis(*millis);
            liveness.is_silent(now, || shortest.map(Span::from_millis))
        };
        Span::from_millis((0..10_000).find(is_silent).expect("it ends"))
    }

    #[test]
    fn a_gateway_is_dead_sooner_where_round_trips_are_short() {
        let short = Some(Span::from_millis(500));
        for (rtt, expected) in
            [(0, 500), (1, 504), (40, 660), (125, 1_000), (450, 1_000), (600, 1_300)]
        {
            assert_eq!(patience(short, Some(rtt)), Span::from_millis(expected), "{rtt} ms");
            assert_eq!(patience(None, Some(rtt)), Span::from_secs(1));
        }
        assert_eq!(patience(short, None), Span::from_secs(1));
    }
}
