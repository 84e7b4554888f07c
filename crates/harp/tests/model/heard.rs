//! What a gateway hears of the other one, in the model.

use harp::Message;
use units::{Span, Time};

use crate::Packet;

/// What a gateway heard of the other one.
#[derive(Default)]
pub(crate) struct Heard {
    /// When each path delivered last.
    pub paths: [Time; 8],
    /// When it sent something, and heard nothing since.
    pub unanswered: Option<Time>,
}

impl Heard {
    pub(crate) fn is_dead(&self, now: Time) -> bool {
        self.unanswered.is_some_and(|since| now >= since + Span::from_secs(3))
    }

    pub(crate) fn sends(&mut self, now: Time) {
        self.unanswered.get_or_insert(now);
    }

    pub(crate) fn hears(&mut self, now: Time, message: &Message<Packet>) {
        self.unanswered = None;
        match message {
            Message::Data(stamp, _) | Message::Probe(stamp) => {
                self.paths[usize::from(stamp.path)] = now;
            }
            Message::Report(report) => {
                for entry in report.entries() {
                    self.paths[usize::from(entry.path)] = now;
                }
            }
            Message::Return(_) => {}
        }
    }

    /// The direct path, unless it was silent for a second when another one delivered.
    pub(crate) fn return_path(&self) -> u8 {
        let mut best = 0;
        for path in 1..8 {
            if self.paths[path] >= self.paths[best]
                && self.paths[path] > self.paths[0] + Span::from_secs(1)
            {
                best = path;
            }
        }
        u8::try_from(best).unwrap()
    }
}
