//! Whether the other gateway answers, and over which path to return what has no stamp.
//!
//! A gateway that does not answer for [`Config::dead_after`], over any path, gets nothing but
//! probes, and what hosts send takes the route that it would have without gateways. Segments
//! without payload and reports return over the direct path, unless that is silent while another one
//! delivers.

use units::{Span, Time};
use wire::harp::MOST_PATHS;

use crate::{Config, Flow};

/// The direct path is silent if it delivered nothing for so long before the latest delivery.
const SILENT_AFTER: Span = Span::from_secs(1);

/// What was sent to the other gateway and not answered, and the latest delivery of each path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Liveness {
    dead_after: Span,
    asks_after: Span,
    unanswered: Option<Unanswered>,
    /// When the other gateway said that nothing arrives there.
    deaf_at: Option<Time>,
    /// In either direction: the other gateway's reports tell of one.
    delivered: [Time; MOST_PATHS],
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
        let Config { dead_after, asks_after, .. } = *config;
        let delivered = [Time::default(); MOST_PATHS];
        Liveness { dead_after, asks_after, unanswered: None, deaf_at: None, delivered }
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
            Some((path, at)) if at > self.delivered[0] + SILENT_AFTER => path,
            _ => 0,
        }
    }

    /// Whether the other gateway has been silent for too long.
    pub(crate) fn is_silent(&self, now: Time) -> bool {
        self.unanswered.is_some_and(|unanswered| now >= unanswered.since + self.dead_after)
    }

    /// Whether it has, or nothing arrives there.
    pub(crate) fn is_dead(&self, now: Time) -> bool {
        self.is_silent(now) || self.deaf_at.is_some_and(|at| now < at + self.dead_after)
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
