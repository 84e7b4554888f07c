//! The response to losses: the short-term bounds, excessive loss, recovery and its undo (sections
//! 5.5.10, 5.5.11 and 5.6.4.4).

use units::{Bytes, Rate, Time};

use super::{Bbr, Lost, Sample, State, UNBOUNDED, UNBOUNDED_RATE, percent};

/// The inverse of `BBR.LossThresh`: 2 % is one in 50.
const LOSS_THRESHOLD: u64 = 50;
/// The fewest packets of which the line's own losses explain a share, and the largest share.
const FEWEST: f64 = 32.0;
const MOST_EXPLAINED: f64 = 0.1;
/// `BBR.Beta`, percent.
const BETA: u64 = 70;
/// `BBRStartupFullLossCnt`: lost ranges in a round trip.
const STARTUP_LOSSES: u32 = 6;

/// The short-term model and its inputs.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) bandwidth_short: Rate,
    pub(super) inflight_short: u64,
    /// The largest rate and volume delivered in this round trip.
    bandwidth_latest: Rate,
    inflight_latest: u64,
    is_in_round: bool,
    round_delivered: u64,
    is_round_start: bool,
    /// The counters of delivered and lost bytes when this round trip began; `None` after an ECN
    /// mark in it.
    unmarked_since: Option<(u64, u64)>,
    /// The number of loss events in this round trip, and the time of the last one.
    events: u32,
    last_event: Option<Time>,
    /// The window to return to (`BBR.prior_cwnd`).
    prior_window: u64,
    is_in_recovery: bool,
    /// The value of `delivered` at which the recovery from a timeout ends.
    timeout_until: Option<u64>,
    /// `BBR.undo_state` and the bounds before the losses.
    undo_state: Option<State>,
    undo_bandwidth_short: Rate,
    undo_inflight_short: u64,
    undo_inflight_long: u64,
}

impl Loss {
    pub(super) fn new() -> Loss {
        Loss {
            bandwidth_short: UNBOUNDED_RATE,
            inflight_short: UNBOUNDED,
            bandwidth_latest: Rate::ZERO,
            inflight_latest: 0,
            is_in_round: false,
            round_delivered: 0,
            is_round_start: false,
            unmarked_since: Some((0, 0)),
            events: 0,
            last_event: None,
            prior_window: 0,
            is_in_recovery: false,
            timeout_until: None,
            undo_state: None,
            undo_bandwidth_short: Rate::ZERO,
            undo_inflight_short: 0,
            undo_inflight_long: 0,
        }
    }

    /// `ResetShortTermModel`.
    pub(super) fn reset_short_term(&mut self) {
        self.bandwidth_short = UNBOUNDED_RATE;
        self.inflight_short = UNBOUNDED;
    }

    /// `ResetCongestionSignals`.
    pub(super) fn reset_signals(&mut self) {
        self.is_in_round = false;
        self.bandwidth_latest = Rate::ZERO;
        self.inflight_latest = 0;
    }
}

/// `IsInflightTooHigh`: more than the threshold of what was in flight.
fn is_too_high(lost: u64, in_flight: u64) -> bool {
    lost.saturating_mul(LOSS_THRESHOLD) > in_flight
}

impl Bbr {
    /// `UpdateLatestDeliverySignals` and `UpdateCongestionSignals` (section 5.5.10.3).
    pub(super) fn update_congestion_signals(&mut self, sample: &Sample) {
        let loss = &mut self.loss;
        loss.bandwidth_latest = loss.bandwidth_latest.max(sample.rate);
        loss.inflight_latest = loss.inflight_latest.max(sample.delivered);
        loss.is_round_start = sample.prior_delivered >= loss.round_delivered;
        if loss.is_round_start {
            loss.round_delivered = self.delivered;
        }
        self.update_max_bandwidth(sample);
        if self.loss.is_round_start {
            if !self.is_tolerable() {
                self.adapt_short_term();
            }
            self.loss.is_in_round = false;
            self.loss.unmarked_since = Some((self.delivered, self.lost));
        }
    }

    /// Whether the losses of this round trip are within the tolerance. The draft has no tolerance,
    /// so this is never true by default.
    fn is_tolerable(&self) -> bool {
        let Some((delivered, lost)) = self.round_counts() else { return false };
        let delivered = delivered.saturating_add(self.siblings.delivered);
        let lost = lost.saturating_add(self.siblings.lost);
        let share = Bytes(lost).as_f64() / Bytes(delivered.saturating_add(lost).max(1)).as_f64();
        let tolerance = self.tolerance.max(self.explained(delivered.saturating_add(lost)));
        self.tolerance > 0.0 && share <= tolerance
    }

    /// The share of so many bytes that the line's own losses explain, with three standard
    /// deviations. Of few packets chance explains anything, so that it explains nothing.
    fn explained(&self, bytes: u64) -> f64 {
        let own = self.own_loss;
        let packets = Bytes(bytes).as_f64() / Bytes(self.mss).as_f64();
        if packets < FEWEST {
            return 0.0;
        }
        (own + 3.0 * libm::sqrt(own * (1.0 - own) / packets)).min(MOST_EXPLAINED)
    }

    /// The bytes delivered and lost in this round trip; `None` after an ECN mark in it.
    pub(super) fn round_counts(&self) -> Option<(u64, u64)> {
        let (delivered, lost) = self.loss.unmarked_since?;
        Some((self.delivered.saturating_sub(delivered), self.lost.saturating_sub(lost)))
    }

    /// `AdaptLowerBoundsFromCongestion`.
    fn adapt_short_term(&mut self) {
        let loss = &mut self.loss;
        if self.state.is_accelerating() || !loss.is_in_round {
            return;
        }
        if loss.bandwidth_short == UNBOUNDED_RATE {
            loss.bandwidth_short = self.max_bandwidth.get();
        }
        if loss.inflight_short == UNBOUNDED {
            loss.inflight_short = self.window;
        }
        let reduced = Rate::from_bits(percent(loss.bandwidth_short.as_bits(), BETA));
        loss.bandwidth_short = loss.bandwidth_latest.max(reduced);
        loss.inflight_short = loss.inflight_latest.max(percent(loss.inflight_short, BETA));
    }

    /// `AdvanceLatestDeliverySignals`.
    pub(super) fn advance_latest_signals(&mut self, sample: &Sample) {
        if self.loss.is_round_start {
            self.loss.bandwidth_latest = sample.rate;
            self.loss.inflight_latest = sample.delivered;
        }
    }

    /// `IsInflightTooHigh`, with all subflows at the bottleneck taken together.
    pub(super) fn is_too_high(&self, lost: u64, in_flight: u64) -> bool {
        let lost = lost.saturating_add(self.siblings.lost);
        let in_flight = in_flight.saturating_add(self.siblings.target);
        is_too_high(lost, in_flight)
            && Bytes(lost).as_f64() > self.explained(in_flight) * Bytes(in_flight).as_f64()
    }

    /// `CheckStartupHighLoss` (section 5.3.1.3).
    pub(super) fn check_startup_loss(&mut self, sample: &Sample, in_recovery: bool) {
        if self.state == State::Startup
            && self.loss.is_round_start
            && in_recovery
            && self.loss.events >= STARTUP_LOSSES
            && self.is_too_high(sample.lost, sample.in_flight_at_sending)
        {
            self.end_startup();
        }
        if self.loss.is_round_start {
            self.loss.events = 0;
        }
    }

    /// Startup ends because of losses or marks: the pipe is full.
    fn end_startup(&mut self) {
        self.loss.undo_state = Some(State::Startup);
        self.full_pipe.is_reached = true;
        self.probe.inflight_long = self.bdp(100).max(self.loss.inflight_latest);
    }

    /// `HandleLostPacket` (section 5.5.10.2).
    pub(super) fn handle_lost_packet(&mut self, now: Time, packet: &Lost) {
        self.lost = self.lost.saturating_add(packet.bytes.0);
        if self.loss.last_event != Some(now) {
            self.loss.last_event = Some(now);
            self.loss.events = self.loss.events.saturating_add(1);
        }
        self.note_loss();
        if !self.probe.is_sampling {
            return;
        }
        let snapshot = self.history.find(packet.sent_at);
        let lost = snapshot.map_or(packet.bytes.0, |snapshot| self.lost - snapshot.lost);
        let Some(Bytes(in_flight)) = packet.in_flight_at_sending else { return };
        if self.is_too_high(lost, in_flight) {
            let is_app_limited =
                self.is_app_limited || snapshot.is_some_and(|snapshot| snapshot.is_limited);
            self.handle_too_high(
                now,
                inflight_at_loss(packet.bytes.0, in_flight, lost),
                is_app_limited,
            );
        }
    }

    /// An ECN mark counts as a loss rate beyond the threshold.
    pub(super) fn handle_mark(&mut self, now: Time, in_flight: u64) {
        self.note_loss();
        self.loss.unmarked_since = None;
        if self.state == State::Startup {
            self.end_startup();
        } else if self.probe.is_sampling {
            self.handle_too_high(now, in_flight, self.is_app_limited);
        }
    }

    /// `HandleInflightTooHigh`.
    fn handle_too_high(&mut self, now: Time, in_flight: u64, is_app_limited: bool) {
        self.probe.was_too_high = true;
        self.probe.is_sampling = false;
        if !is_app_limited {
            self.probe.inflight_long = in_flight.max(percent(self.target_inflight(), BETA));
        }
        if self.state == State::Up {
            self.loss.undo_state = Some(State::Up);
            self.start_down(now);
        }
    }

    /// `NoteLoss`.
    fn note_loss(&mut self) {
        if !self.loss.is_in_round {
            self.loss.round_delivered = self.delivered;
            self.save_state();
        }
        self.loss.is_in_round = true;
    }

    /// `SaveStateUponLoss`.
    fn save_state(&mut self) {
        self.save_window();
        self.loss.undo_state = None;
        self.loss.undo_bandwidth_short = self.loss.bandwidth_short;
        self.loss.undo_inflight_short = self.loss.inflight_short;
        self.loss.undo_inflight_long = self.probe.inflight_long;
    }

    /// `SaveCwnd`.
    pub(super) fn save_window(&mut self) {
        let is_modulated = self.loss.is_in_recovery
            || self.loss.timeout_until.is_some()
            || self.state == State::ProbeRtt;
        self.loss.prior_window =
            if is_modulated { self.loss.prior_window.max(self.window) } else { self.window };
    }

    /// `RestoreCwnd`.
    pub(super) fn restore_window(&mut self) {
        self.window = self.window.max(self.loss.prior_window);
    }

    /// Follows the sender's recovery. It ends with the sender's, or when the bytes in flight at a
    /// timeout are delivered; the window is then restored.
    pub(super) fn follow_recovery(&mut self, in_recovery: bool) {
        let mut is_over = self.loss.is_in_recovery && !in_recovery;
        self.loss.is_in_recovery = in_recovery;
        if self.loss.timeout_until.is_some_and(|until| self.delivered >= until) {
            self.loss.timeout_until = None;
            is_over = true;
        }
        if is_over {
            self.restore_window();
        }
    }

    /// `OnEnterRTO` (section 5.6.4.4). All packets count as lost, so the window is one packet.
    pub(super) fn enter_timeout(&mut self, in_flight: u64) {
        self.lost = self.lost.saturating_add(in_flight);
        self.save_state();
        self.loss.is_in_round = true;
        self.loss.timeout_until = Some(self.delivered.saturating_add(in_flight));
        self.window = self.mss;
    }

    /// `HandleSpuriousLossDetection` (section 5.5.11.2).
    pub(super) fn undo(&mut self) {
        self.restore_window();
        let loss = &mut self.loss;
        loss.timeout_until = None;
        loss.is_in_round = false;
        loss.bandwidth_short = loss.bandwidth_short.max(loss.undo_bandwidth_short);
        loss.inflight_short = loss.inflight_short.max(loss.undo_inflight_short);
        self.probe.inflight_long = self.probe.inflight_long.max(loss.undo_inflight_long);
        let undone = loss.undo_state.take();
        self.full_pipe.reset(Rate::ZERO);
        match undone {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_pipe.is_reached = false;
                if self.state != State::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(State::Up) if !matches!(self.state, State::Up | State::ProbeRtt) => {
                self.start_refill();
            }
            _ => {}
        }
    }

    /// `EnterStartup`.
    pub(super) fn enter_startup(&mut self) {
        self.state = State::Startup;
        self.threshold = None;
    }
}

/// `InflightAtLoss`: the bytes in flight when losses crossed the threshold, within a packet of
/// `size` bytes.
fn inflight_at_loss(size: u64, in_flight: u64, lost: u64) -> u64 {
    let before = in_flight.saturating_sub(size);
    let lost_before = lost.saturating_sub(size);
    let prefix =
        before.saturating_sub(lost_before.saturating_mul(LOSS_THRESHOLD)) / (LOSS_THRESHOLD - 1);
    before.saturating_add(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_above_two_percent_are_excessive() {
        assert!(!is_too_high(2_000, 100_000));
        assert!(is_too_high(2_001, 100_000));
        assert!(!is_too_high(0, 0));
        // 1000 of 98000 were lost before this packet: with p of the packet, (1000 + p) / (98000 +
        // p) = 1/50 for p = 960 / 0.98.
        assert_eq!(inflight_at_loss(2_000, 100_000, 3_000), 98_000 + 979);
        assert_eq!(inflight_at_loss(2_000, 100_000, 9_000), 98_000, "too much before");
    }
}
