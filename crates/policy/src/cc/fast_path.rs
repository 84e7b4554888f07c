//! What FAST and MPFAST do on each path: the base and the average of the round-trip time, the
//! target of a step, and increases that are spread over the acknowledgements of a round trip.

use super::window::Window;

/// Below this round-trip time, in seconds, increments are applied at once, because acknowledgements
/// come in bursts.
const LEAST_PACED_RTT: f64 = 0.004;
/// Up to this window, in packets, increments are applied at once; they at most double it.
const LEAST_PACED_WINDOW: f64 = 4.0;

/// The moving average of the round-trip time, `avgRTT`, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Average(Option<f64>);

impl Average {
    /// Takes a sample; a window of `packets` gives as many in a round trip.
    pub(super) fn handle_rtt(&mut self, rtt: f64, packets: f64) {
        let weight = (3.0 / packets).min(0.25);
        let average = self.0.unwrap_or(rtt);
        self.0 = Some(average + weight * (rtt - average));
    }

    /// `None` before the first sample.
    pub(super) fn get(self) -> Option<f64> {
        self.0
    }
}

/// Equation 1 of the MPFAST paper, in packets, at most twice the present window: `old` is the
/// window when the acknowledged packet was sent, `backlog` how many packets are to stay in the
/// queue, and `gamma` the share of the distance in one step.
pub(super) fn target(window: &Window, old: f64, [base, average]: [f64; 2], step: Step) -> f64 {
    let window = window.packets();
    let there = old * base / average + step.backlog;
    ((1.0 - step.gamma) * window + step.gamma * there).min(2.0 * window)
}

/// The parameters of one step: α, in packets, and γ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) backlog: f64,
    pub(super) gamma: f64,
}

/// An increase that is spread over the acknowledgements of a round trip, so that it causes no burst
/// (the ns-2 module's `fast_pace`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Increment {
    /// Packets still to add.
    left: f64,
    /// Packets to add for each acknowledged one.
    step: f64,
}

impl Increment {
    /// Brings the window to `target` packets: downwards at once, upwards over a round trip.
    pub(super) fn aim(&mut self, window: &mut Window, target: f64, base: f64) {
        *self = Increment::default();
        let packets = window.packets();
        let change = target - packets;
        if change < 0.0 {
            window.set(target * window.mss());
        } else if packets <= LEAST_PACED_WINDOW || base < LEAST_PACED_RTT {
            window.add(change * window.mss());
        } else {
            *self = Increment { left: change, step: change / packets };
        }
    }

    /// Applies the part of the last increase that is due for so many acknowledged packets.
    pub(super) fn pace(&mut self, window: &mut Window, packets: f64) {
        let due = (packets * self.step).min(self.left);
        self.left -= due;
        window.add(due * window.mss());
    }
}
