//! Additive increase, multiplicative decrease by delay: once a round trip, one packet more while
//! queues are short, a fifth less when they are not.

use anabranch::policy::cc::{Acked, Allowance, Congestion, SinglePath, Start};
use anabranch::policy::named::{Parameter, Signature};
use anabranch::units::{Bytes, Span, Time};

pub const SIGNATURE: Signature = Signature {
    name: Calm::NAME,
    summary: "one packet more a round trip, a fifth less when packets wait",
    parameters: &[Parameter {
        name: "target",
        default: "5 ms",
        summary: "how long packets may wait in queues, above 0",
    }],
};

#[derive(Clone, Debug, Default)]
pub struct Calm {
    /// How long its packets may wait in queues.
    target: Span,
    mss: f64,
    window: f64,
    slow_start: bool,
    round: u64,
    smallest_rtt: Option<Span>,
}

impl Calm {
    pub fn new(target: Span) -> Calm {
        Calm { target, ..Calm::default() }
    }

    fn cut(&mut self, window: f64) {
        self.window = window.max(2.0 * self.mss);
        self.slow_start = false;
    }
}

impl SinglePath for Calm {
    const NAME: &'static str = "calm";

    fn handle_start(&mut self, _now: Time, start: &Start) {
        let (mss, window) = (start.mss.as_f64(), start.initial_window.as_f64());
        *self = Calm { mss, window, slow_start: true, ..Calm::new(self.target) };
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        if acked.in_recovery || acked.is_app_limited {
            return;
        }
        self.smallest_rtt = self.smallest_rtt.into_iter().chain(acked.rtt).min();
        if self.slow_start {
            self.window += acked.bytes.as_f64();
        }
        if acked.round == self.round {
            return;
        }
        // A round trip is over. Its smallest sample counts, since others tell of the flow's own
        // bursts.
        self.round = acked.round;
        let Some(rtt) = self.smallest_rtt.take() else { return };
        if rtt - acked.min_rtt > self.target {
            self.cut(0.8 * self.window);
        } else if !self.slow_start {
            self.window += self.mss;
        }
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.cut(congestion.in_flight.as_f64() / 2.0);
    }

    fn handle_timeout(&mut self, _now: Time, _in_flight: Bytes) {
        self.cut(0.0);
    }

    fn allowance(&self) -> Allowance {
        Allowance::window(Bytes(self.window as u64))
    }
}
