//! `ProbeBW`: the cycle of down, cruise, refill and up, and the long-term bound learned from the
//! probes (section 5.3.3).

use units::{Seed, Span, Time};

use super::{Bbr, Sample, State, UNBOUNDED, percent};

/// `BBR.Headroom`, percent.
const HEADROOM: u64 = 15;
/// The least wait between probes; up to a second is added (section 5.3.3.8).
const LEAST_WAIT: Span = Span::from_secs(2);
/// The most round trips between probes; below it the number of packets in the window counts. A
/// random zero or one is subtracted.
const MOST_ROUNDS: u64 = 63;
/// The most doublings of the slope of the long-term bound.
const MOST_DOUBLINGS: u32 = 30;

/// `BBR.ack_phase`: the phase whose packets are being acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feedback {
    Init,
    Refilling,
    ProbeStarting,
    Probe,
    ProbeStopping,
}

/// The state of the cycle, and the long-term bound.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) inflight_long: u64,
    /// Round trips since the last probe, with a random zero or one added.
    pub(super) rounds: u64,
    pub(super) wait: Span,
    since: Time,
    feedback: Feedback,
    /// `BBR.is_bw_probe_sample`: the packets being acknowledged belong to a probe that has not been
    /// found too high.
    pub(super) is_sampling: bool,
    /// `BBR.prev_probe_too_high`.
    pub(super) was_too_high: bool,
    /// `BBR.prev_probe_precautionary`.
    was_precautionary: bool,
    /// The slope of the bound: it grows by a packet for each `acked_per_packet` bytes acknowledged;
    /// `acked` counts towards the next one.
    acked_per_packet: u64,
    acked: u64,
    up_rounds: u32,
}

impl Probe {
    pub(super) fn new(now: Time) -> Probe {
        Probe {
            inflight_long: UNBOUNDED,
            rounds: 0,
            wait: Span::ZERO,
            since: now,
            feedback: Feedback::Init,
            is_sampling: false,
            was_too_high: false,
            was_precautionary: false,
            acked_per_packet: UNBOUNDED,
            acked: 0,
            up_rounds: 0,
        }
    }

    /// The probe ends; the next round trip of acknowledgements still belongs to it.
    pub(super) fn stop(&mut self) {
        self.feedback = Feedback::ProbeStopping;
    }
}

impl Bbr {
    /// `UpdateProbeBWCyclePhase` (section 5.3.3.9).
    pub(super) fn update_probe_bw(&mut self, now: Time, sample: &Sample) {
        if !self.full_pipe.is_reached || self.adapt_long_term(sample) {
            return;
        }
        let is_probe_over = self.state == State::Up && self.is_time_to_go_down(sample);
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe(now) => self.start_refill(),
            State::Down if self.is_time_to_cruise(sample) => self.state = State::Cruise,
            State::Refill if self.is_round_start => {
                self.probe.is_sampling = true;
                self.start_up(sample);
            }
            State::Up if is_probe_over => {
                self.probe.was_too_high = false;
                self.start_down(now);
            }
            _ => {}
        }
    }

    /// `StartProbeBW_DOWN`.
    pub(super) fn start_down(&mut self, now: Time) {
        self.loss.reset_signals();
        self.probe.acked_per_packet = UNBOUNDED;
        self.pick_wait(now);
        self.probe.since = now;
        self.probe.stop();
        self.start_round();
        self.state = State::Down;
    }

    /// `StartProbeBW_CRUISE`.
    pub(super) fn start_cruise(&mut self) {
        self.state = State::Cruise;
    }

    /// `StartProbeBW_REFILL`.
    pub(super) fn start_refill(&mut self) {
        self.loss.reset_short_term();
        self.probe.up_rounds = 0;
        self.probe.acked = 0;
        self.probe.was_precautionary = false;
        self.probe.feedback = Feedback::Refilling;
        self.start_round();
        self.state = State::Refill;
    }

    /// `StartProbeBW_UP`.
    fn start_up(&mut self, sample: &Sample) {
        self.probe.feedback = Feedback::ProbeStarting;
        self.start_round();
        self.full_pipe.reset(sample.rate);
        self.state = State::Up;
        self.raise_slope();
    }

    /// `PickProbeWait`, in whole nanoseconds, so that the result is the same on every machine.
    fn pick_wait(&mut self, now: Time) {
        self.random = Seed(self.random.0 ^ now.as_nanos()).stream("bbr");
        let Seed(draw) = self.random;
        self.probe.rounds = draw & 1;
        let part = (u128::from(draw >> 1) * u128::from(Span::from_secs(1).as_nanos())) >> 63;
        self.probe.wait = LEAST_WAIT + Span::from_nanos(u64::try_from(part).unwrap_or(u64::MAX));
    }

    /// `IsTimeToProbeBW`: the wait is over, or a Reno flow would have regained the window of its
    /// last cut.
    fn is_time_to_probe(&self, now: Time) -> bool {
        let packets = self.target_inflight().saturating_add(self.siblings.target) / self.mss;
        now > self.probe.since + self.probe.wait || self.probe.rounds >= packets.min(MOST_ROUNDS)
    }

    /// `TargetInflight`.
    pub(super) fn target_inflight(&self) -> u64 {
        self.bdp(100).min(self.window)
    }

    /// `IsTimeToCruise`.
    fn is_time_to_cruise(&self, sample: &Sample) -> bool {
        let drained = self.quantized(self.bdp_at(self.max_bandwidth.get(), 100));
        sample.in_flight <= self.inflight_with_headroom().min(drained)
    }

    /// `InflightWithHeadroom`.
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.probe.inflight_long == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = percent(self.probe.inflight_long, HEADROOM).max(self.mss);
        self.probe.inflight_long.saturating_sub(headroom).max(self.min_pipe())
    }

    /// `IsTimeToGoDown`.
    fn is_time_to_go_down(&mut self, sample: &Sample) -> bool {
        if self.probe.was_too_high && sample.in_flight >= self.probe.inflight_long {
            self.probe.was_precautionary = true;
            return true;
        }
        if self.is_window_limited() && self.window >= self.probe.inflight_long {
            // The bound, not the bandwidth, limits the flow.
            self.full_pipe.reset(sample.rate);
            return false;
        }
        self.full_pipe.is_now
    }

    /// `RaiseInflightLongtermSlope`: the growth doubles in each round trip.
    fn raise_slope(&mut self) {
        let growth = 1 << self.probe.up_rounds;
        self.probe.up_rounds = (self.probe.up_rounds + 1).min(MOST_DOUBLINGS);
        let window = self.window.saturating_add(self.siblings.window);
        self.probe.acked_per_packet = (window / growth).max(self.mss);
    }

    /// `ProbeInflightLongtermUpward`.
    fn raise_long_term(&mut self, sample: &Sample) {
        if !self.is_window_limited() || self.window < self.probe.inflight_long {
            return;
        }
        self.probe.acked = self.probe.acked.saturating_add(sample.newly_acked);
        let packets = self.probe.acked / self.probe.acked_per_packet;
        self.probe.acked -= packets * self.probe.acked_per_packet;
        self.probe.inflight_long =
            self.probe.inflight_long.saturating_add(packets.saturating_mul(self.mss));
        if self.is_round_start {
            self.raise_slope();
        }
    }

    /// `AdaptLongTermModel`. Returns whether it has changed the state.
    fn adapt_long_term(&mut self, sample: &Sample) -> bool {
        match self.probe.feedback {
            Feedback::ProbeStarting if self.is_round_start => self.probe.feedback = Feedback::Probe,
            Feedback::ProbeStopping if self.is_round_start => {
                self.probe.is_sampling = false;
                self.probe.feedback = Feedback::Init;
                if self.state.is_probe_bw() {
                    if !sample.is_app_limited {
                        self.max_bandwidth.advance();
                    }
                    if self.probe.was_precautionary && !self.probe.was_too_high {
                        self.start_refill();
                        return true;
                    }
                }
            }
            _ => {}
        }
        if !self.is_too_high(sample.lost, sample.in_flight_at_sending)
            && self.probe.inflight_long != UNBOUNDED
        {
            self.probe.inflight_long = self.probe.inflight_long.max(sample.in_flight_at_sending);
            if self.state == State::Up {
                self.raise_long_term(sample);
            }
        }
        false
    }

    /// `ExitProbeRTT` (section 5.3.4.4).
    pub(super) fn exit_probe_rtt(&mut self, now: Time) {
        self.loss.reset_short_term();
        if self.full_pipe.is_reached {
            self.start_down(now);
            self.start_cruise();
        } else {
            self.enter_startup();
        }
    }

    /// `HandleRestartFromIdle` (section 5.4.1).
    pub(super) fn handle_restart(&mut self, now: Time) {
        self.is_idle_restart = true;
        self.extra_acked.restart(now);
        if self.state.is_probe_bw() {
            self.set_pacing(100);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use units::Rate;

    #[test]
    fn waits_are_two_to_three_seconds_and_depend_on_the_seed() {
        let waits = |seed| -> Vec<(Span, u64)> {
            let mut bbr = Bbr::new(Seed(seed));
            let draws = (0..1_000).map(|secs| {
                bbr.pick_wait(Time::ZERO + Span::from_secs(secs));
                (bbr.probe.wait, bbr.probe.rounds)
            });
            draws.collect()
        };
        let drawn = waits(1);
        assert_eq!(drawn, waits(1));
        assert_ne!(drawn, waits(2));
        assert!(drawn.iter().all(|(wait, _)| (LEAST_WAIT..=Span::from_secs(3)).contains(wait)));
        let mean = drawn.iter().map(|(wait, _)| wait.as_secs_f64()).sum::<f64>() / 1_000.0;
        assert!((mean - 2.5).abs() < 0.03, "{mean}");
        let ones = drawn.iter().filter(|(_, rounds)| *rounds == 1).count();
        assert!((450..550).contains(&ones), "{ones}");
        assert_eq!(
            drawn.iter().map(|(_, rounds)| *rounds).collect::<BTreeSet<u64>>(),
            BTreeSet::from([0, 1])
        );
    }

    #[test]
    fn the_long_term_bound_rises_by_doubled_steps() {
        let mut bbr = Bbr::new(Seed(1));
        (bbr.mss, bbr.window, bbr.probe.inflight_long) = (1_000, 100_000, 100_000);
        bbr.window_limited_round = Some(0);
        bbr.raise_slope();
        let sample = Sample {
            newly_acked: 100_000,
            delivered: 0,
            prior_delivered: 0,
            lost: 0,
            in_flight_at_sending: 0,
            in_flight: 0,
            rate: Rate::ZERO,
            rtt: None,
            is_app_limited: false,
        };
        bbr.is_round_start = true;
        let steps = [(); 4].map(|()| {
            let before = bbr.probe.inflight_long;
            bbr.window = before;
            bbr.raise_long_term(&Sample { newly_acked: before, ..sample });
            (bbr.probe.inflight_long - before) / 1_000
        });
        assert_eq!(steps, [1, 2, 4, 8]);
        bbr.window -= 1;
        bbr.raise_long_term(&sample);
        assert_eq!(bbr.probe.inflight_long, 115_000, "not while the window is below it");
    }
}
