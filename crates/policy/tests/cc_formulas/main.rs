//! The formulas, with numbers calculated from the papers and RFCs.

mod coupled;
mod delays;
mod losses;
mod marks;
mod yielding;

use policy::cc::{Acked, Congestion, Controller, Signal, Start, by_name};
use units::{Bytes, Span, SubflowId, Time};

pub(crate) const ID: SubflowId = SubflowId(1);

pub(crate) const MSS: u64 = 1_000;

pub(crate) fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "found {found}, expected {expected}");
}

pub(crate) fn acked(bytes: u64, rtt: Span, round: u64) -> Acked {
    Acked {
        bytes: Bytes(bytes),
        in_flight: Bytes::ZERO,
        sent_at: Time::ZERO,
        window_at_sending: None,
        rtt: Some(rtt),
        smoothed_rtt: rtt,
        min_rtt: rtt,
        one_way_delay: None,
        ack_delay: None,
        delivery_rate: None,
        round,
        ce_packets: 0,
        ce_bytes: Bytes::ZERO,
        is_app_limited: false,
        in_recovery: false,
        slow_start_divisor: 1,
    }
}

/// A controller with one subflow of packets of 1000 bytes.
pub(crate) struct One {
    pub(crate) controller: Box<dyn Controller>,
    pub(crate) now: Time,
    pub(crate) round: u64,
}

impl One {
    pub(crate) fn new(name: &str, packets: u64) -> One {
        One::after_handshake(name, packets, None)
    }

    pub(crate) fn after_handshake(name: &str, packets: u64, rtt: Option<Span>) -> One {
        let mut controller = by_name(name).expect("known");
        controller.handle_add(
            Time::ZERO,
            ID,
            &Start { mss: Bytes(MSS), initial_window: Bytes(packets * MSS), rtt },
        );
        One { controller, now: Time::ZERO, round: 0 }
    }

    pub(crate) fn ack(&mut self, bytes: u64) -> u64 {
        self.controller.handle_acked(
            self.now,
            ID,
            &acked(bytes, Span::from_millis(100), self.round),
        );
        self.window()
    }

    pub(crate) fn cut(&mut self, in_flight: u64) -> u64 {
        let congestion = Congestion { signal: Signal::Loss, in_flight: Bytes(in_flight) };
        self.controller.handle_congestion(self.now, ID, &congestion);
        self.window()
    }

    pub(crate) fn time_out(&mut self, in_flight: u64) -> u64 {
        self.controller.handle_timeout(self.now, ID, Bytes(in_flight));
        self.window()
    }

    pub(crate) fn undo(&mut self) -> u64 {
        self.controller.handle_undo(self.now, ID);
        self.window()
    }

    /// A round trip of ten packets with a round-trip time of `millis`, sent with a window of `old`
    /// packets.
    pub(crate) fn round(&mut self, millis: u64, old: u64) -> u64 {
        self.round += 1;
        for _ in 0..10 {
            let window_at_sending = Some(Bytes(old * MSS));
            let acked =
                Acked { window_at_sending, ..acked(MSS, Span::from_millis(millis), self.round) };
            self.controller.handle_acked(self.now, ID, &acked);
        }
        self.window()
    }

    pub(crate) fn window(&self) -> u64 {
        self.controller.allowance(ID).window.0
    }

    pub(crate) fn threshold(&self) -> Option<u64> {
        self.controller.threshold(ID).map(|threshold| threshold.0)
    }
}
