//! When a side asks for a sign of life: the one that dialed over each route, the one that listens
//! over all of them.

use units::{Span, Time};

/// How long the peer may be silent behind its latest data before it is asked. A translator on the
/// way may have given this host another port: then nothing that the peer sends arrives until it has
/// heard of the new one, and this host, which only listens, would not say anything.
const FIRST: Span = Span::from_secs(1);

/// The silence over one route, or over all. Each question without data behind it doubles the wait
/// for the next, up to that of a route that is idle, which keeps a translator from forgetting it:
/// they do after 30 s and more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signs {
    /// When something was sent, or data came.
    last: Time,
    /// `None`: as long as on a route that is idle.
    wait: Option<Span>,
    /// When something was sent, and when something came, or the peer was asked: acknowledgements of
    /// what goes over one route may all go over another. Who passes packets on forgets a route of
    /// one direction, as a translator does, or a relay, to which it is one of a host that does not
    /// answer.
    sent: Time,
    came: Time,
}

impl Signs {
    pub(super) fn new(now: Time) -> Signs {
        Signs { last: now, wait: None, sent: now, came: now }
    }

    /// A packet leaves.
    pub(super) fn handle_sent(&mut self, now: Time) {
        self.last = self.last.max(now);
        self.sent = self.sent.max(now);
    }

    /// A packet came.
    pub(super) fn handle_came(&mut self, now: Time) {
        self.came = self.came.max(now);
    }

    /// Something of the application arrived. Questions of the peer do not count: each side's would
    /// call forth the other's.
    pub(super) fn handle_news(&mut self, now: Time) {
        self.last = self.last.max(now);
        self.wait = Some(FIRST);
    }

    /// When the peer is to be asked, if it is after `idle` on an idle route, or one that is so in
    /// one direction.
    pub(super) fn asks_at(&self, idle: Span) -> Time {
        let behind_data = self.last + self.wait.map_or(idle, |wait| wait.min(idle));
        behind_data.min(self.sent.min(self.came) + idle)
    }

    /// When the peer is to be asked whose latest data was not long ago; `None`: not at all.
    pub(super) fn asks_after_news(&self) -> Option<Time> {
        self.wait.map(|wait| self.last + wait)
    }

    /// The peer is asked.
    pub(super) fn handle_asked(&mut self, now: Time, idle: Span) {
        (self.last, self.sent, self.came) = (now, now, now);
        self.wait = self.wait.map(|wait| wait + wait).filter(|wait| *wait < idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Span = Span::from_secs(15);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// The times of questions, in milliseconds, while nothing comes.
    fn questions(signs: &mut Signs, count: usize) -> Vec<u64> {
        let ask = |_| {
            let at = signs.asks_at(IDLE);
            signs.handle_asked(at, IDLE);
            (at - Time::ZERO).as_millis()
        };
        (0..count).map(ask).collect()
    }

    #[test]
    fn an_idle_route_is_asked_now_and_then() {
        assert_eq!(questions(&mut Signs::new(at(500)), 3), [15_500, 30_500, 45_500]);
    }

    /// The peer may be sending to an address that this host has no more.
    #[test]
    fn silence_behind_data_is_asked_about_soon_and_then_ever_more_rarely() {
        let mut signs = Signs::new(at(0));
        signs.handle_news(at(10_000));
        // The acknowledgement.
        signs.handle_sent(at(10_025));
        let expected = [11_025, 13_025, 17_025, 25_025, 40_025, 55_025];
        assert_eq!(questions(&mut signs, 6), expected);
    }

    /// One that listens keeps nothing alive.
    #[test]
    fn silence_that_lasts_is_asked_about_no_more() {
        let mut signs = Signs::new(at(0));
        assert_eq!(signs.asks_after_news(), None);
        signs.handle_news(at(10_000));
        let mut asked = Vec::new();
        while let Some(at) = signs.asks_after_news() {
            signs.handle_asked(at, IDLE);
            asked.push((at - Time::ZERO).as_millis());
        }
        assert_eq!(asked, [11_000, 13_000, 17_000, 25_000]);
        signs.handle_news(at(90_000));
        assert_eq!(signs.asks_after_news(), Some(at(91_000)));
    }

    /// As long as this host says something, the peer knows its address.
    #[test]
    fn a_host_that_speaks_asks_nothing() {
        let mut signs = Signs::new(at(0));
        signs.handle_news(at(10_000));
        for millis in (10_000..60_000).step_by(900) {
            signs.handle_sent(at(millis));
            signs.handle_came(at(millis + 25));
            assert!(signs.asks_at(IDLE) > at(millis + 900));
        }
    }

    /// Its acknowledgements, or those of what comes, go over another route.
    #[test]
    fn a_route_of_one_direction_is_asked_now_and_then() {
        let (mut sends, mut hears) = (Signs::new(at(0)), Signs::new(at(0)));
        let mut asked = [Vec::new(), Vec::new()];
        for millis in (0..50_000).step_by(100) {
            sends.handle_sent(at(millis));
            hears.handle_news(at(millis));
            hears.handle_came(at(millis));
            for (signs, asked) in [&mut sends, &mut hears].into_iter().zip(&mut asked) {
                if signs.asks_at(IDLE) <= at(millis) {
                    signs.handle_asked(at(millis), IDLE);
                    asked.push(millis);
                }
            }
        }
        assert_eq!(asked, [[15_000, 30_000, 45_000], [15_000, 30_000, 45_000]]);
    }
}
