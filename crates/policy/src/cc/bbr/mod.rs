//! BBR version 3 (Cardwell, Swett and Beshay, "BBR Congestion Control", draft-ietf-ccwg-bbr-06): a
//! model of the path, made of its bandwidth, its round-trip time and the losses it shows, decides
//! how fast to send and how much may be in flight.
//!
//! Section numbers and names in capitals or with underscores are the draft's. These points deviate
//! from it or settle a choice:
//!
//! * `P.delivered`, `P.lost` and `P.tx_in_flight` are kept by the time of sending, at a resolution
//!   of a 256th of the round-trip time. Whether a lost packet was application-limited is taken from
//!   the packet last acknowledged; a limit by `ProbeRTT` is recorded.
//! * The sender does not report the packets lost in a retransmission timeout one by one; all bytes
//!   in flight count as lost.
//! * The sender is assumed to have selective acknowledgements (`C.has_selective_acks`). A sender
//!   without, such as `NewReno`, reports one loss a round trip for any number of them; BBR then
//!   overruns short queues and should not be used. The lost ranges of a round trip are counted, as
//!   in Linux, by the acknowledgements that revealed losses.
//! * `C.is_cwnd_limited`: a packet filled the window in this round trip or the one before.
//! * `BBR.offload_budget` is one send quantum (section 5.5.8.2): a simulated host has no
//!   segmentation offload.
//! * A cycle without bandwidth samples does not advance the bandwidth filter, as in Linux.
//! * The draft leaves the response to ECN marks open (section 3.7). Here a mark, which the sender
//!   reports once a window, counts as losses beyond the threshold: it ends Startup or a probe, and
//!   otherwise lowers the short-term bounds.
//! * `ProbeRTT` takes two round trips: it is due, without a shorter round trip, after ten of them
//!   at the earliest, and the shortest one is kept for twenty. The draft's 5 and 10 s are less than
//!   that on paths of more than half a second.
//! * The time is mixed into each random draw, so that flows with the same seed do not probe at the
//!   same time.

mod filters;
mod group;
mod history;
mod loss;
mod probe_bw;
mod probe_rtt;

use units::{Bytes, Rate, Seed, Span, Time};

use self::filters::{ExtraAcked, MaxBandwidth, MinRtt};
pub(super) use self::group::Siblings;
use self::history::{History, SendSnapshot};
use super::{
    Acked, Allowance, Choke, Congestion, Lost, MAX_WINDOW, Sent, Signal, SinglePath, Start,
};

/// `BBR.PacingMarginPercent`.
const PACING_MARGIN: u64 = 1;
/// `BBR.MinPipeCwnd`, packets.
const MIN_PIPE: u64 = 4;
/// Round trips without growth by a quarter after which the pipe is full (section 5.3.1.2).
const FULL_ROUNDS: u32 = 3;
/// Round trips that Drain lasts at most (section 5.3.2).
const DRAIN_ROUNDS: u64 = 3;
/// The value of a bound that is not set.
const UNBOUNDED: u64 = u64::MAX;
const UNBOUNDED_RATE: Rate = Rate::from_bits(u64::MAX);

/// The states of section 5.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain { since_round: u64 },
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// `BBR.pacing_gain`, percent (section 5.6.1).
    fn pacing_gain(self) -> u64 {
        match self {
            State::Startup => 277,
            State::Drain { .. } => 50,
            State::Down => 90,
            State::Cruise | State::Refill | State::ProbeRtt => 100,
            State::Up => 125,
        }
    }

    /// `BBR.cwnd_gain`, percent.
    fn window_gain(self) -> u64 {
        match self {
            State::Up => 225,
            State::ProbeRtt => 50,
            _ => 200,
        }
    }

    /// `IsInAProbeBWState`.
    fn is_probe_bw(self) -> bool {
        matches!(self, State::Down | State::Cruise | State::Refill | State::Up)
    }

    /// `IsProbingBW`: whether the flow itself may cause losses by its growth.
    fn is_accelerating(self) -> bool {
        matches!(self, State::Startup | State::Refill | State::Up)
    }
}

/// The rate sample of an acknowledgement: `RS` of section 4.1.2.1.3. Amounts in bytes.
#[derive(Clone, Copy, Debug)]
struct Sample {
    newly_acked: u64,
    /// Delivered over the packet's round trip, and before it.
    delivered: u64,
    prior_delivered: u64,
    /// Lost over the packet's round trip.
    lost: u64,
    in_flight_at_sending: u64,
    in_flight: u64,
    rate: Rate,
    rtt: Option<Span>,
    is_app_limited: bool,
}

/// The full pipe detector (section 5.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
struct FullPipe {
    rate: Rate,
    rounds: u32,
    /// `BBR.full_bw_now`.
    is_now: bool,
    /// `BBR.full_bw_reached`.
    is_reached: bool,
}

impl FullPipe {
    /// Restarts the detector from this rate.
    fn reset(&mut self, rate: Rate) {
        *self = FullPipe { rate, is_reached: self.is_reached, ..FullPipe::default() };
    }
}

/// BBR's model, state and control parameters. Volumes are in bytes; an unbounded bound is the
/// largest number.
#[derive(Clone, Debug)]
pub struct Bbr {
    /// The seed as given; `random` is its state after the draws.
    seed: Seed,
    random: Seed,
    /// The share of a round trip's bytes whose loss leaves the short-term bounds alone.
    tolerance: f64,
    /// The share of the packets that the line loses by itself; 0 as drafted.
    own_loss: f64,
    /// The inverse of the share by which a round trip that postpones `ProbeRTT` may exceed the
    /// shortest one; `None` as drafted.
    renewal: Option<u64>,
    mss: u64,
    initial_window: u64,
    // The control parameters (section 5.6).
    window: u64,
    pacing: Rate,
    quantum: u64,
    // The connection: what the draft calls C.
    delivered: u64,
    lost: u64,
    history: History,
    is_app_limited: bool,
    /// The value of `delivered` at which the packets sent under the limit of `ProbeRTT` have left
    /// the path.
    limited_until: u64,
    /// The last round trip in which a packet filled the window.
    window_limited_round: Option<u64>,
    // The state machine.
    state: State,
    is_idle_restart: bool,
    round: u64,
    is_round_start: bool,
    next_round_delivered: u64,
    /// The bandwidth-delay product at which Startup ended, for traces.
    threshold: Option<u64>,
    // The model.
    bandwidth: Rate,
    max_bandwidth: MaxBandwidth,
    min_rtt: MinRtt,
    extra_acked: ExtraAcked,
    full_pipe: FullPipe,
    loss: loss::Loss,
    probe: probe_bw::Probe,
    probe_rtt: probe_rtt::ProbeRtt,
    siblings: Siblings,
}

impl Bbr {
    /// A controller with this seed of the random waits between probes.
    #[must_use]
    pub fn new(seed: Seed) -> Bbr {
        let start = Start { mss: Bytes(1), initial_window: Bytes(1), rtt: None };
        Bbr::open(seed, 0.0, None, Time::ZERO, &start)
    }

    /// An extension of the draft: round trips that lose no more than this share, 0 to 1, of their
    /// bytes do not lower the short-term bounds. By the draft every loss lowers them until the next
    /// probe, and a path with 1 % random loss is used to four fifths.
    #[must_use]
    pub fn with_tolerance(self, tolerance: f64) -> Bbr {
        Bbr { tolerance, ..self }
    }

    /// An extension of the draft: a round trip that exceeds the shortest one by no more than one
    /// part in `parts` postpones `ProbeRTT`, because it shows that the queue was empty. By the
    /// draft only a shorter one does.
    #[must_use]
    pub fn with_renewal(self, parts: u64) -> Bbr {
        Bbr { renewal: Some(parts), ..self }
    }

    /// `OnInit` (section 5.2.1).
    fn open(seed: Seed, tolerance: f64, renewal: Option<u64>, now: Time, start: &Start) -> Bbr {
        let mss = start.mss.0.clamp(1, MAX_WINDOW.0 / 4);
        let initial_window = start.initial_window.0.clamp(mss, MAX_WINDOW.0);
        let mut bbr = Bbr {
            seed,
            random: seed,
            tolerance,
            own_loss: 0.0,
            renewal,
            mss,
            initial_window,
            window: initial_window,
            pacing: Rate::ZERO,
            quantum: 2 * mss,
            delivered: 0,
            lost: 0,
            history: History::default(),
            is_app_limited: false,
            limited_until: 0,
            window_limited_round: None,
            state: State::Startup,
            is_idle_restart: false,
            round: 0,
            is_round_start: false,
            next_round_delivered: 0,
            threshold: None,
            bandwidth: Rate::ZERO,
            max_bandwidth: MaxBandwidth::default(),
            min_rtt: MinRtt::new(renewal),
            extra_acked: ExtraAcked::new(now),
            full_pipe: FullPipe::default(),
            loss: loss::Loss::new(),
            probe: probe_bw::Probe::new(now),
            probe_rtt: probe_rtt::ProbeRtt::default(),
            siblings: Siblings::default(),
        };
        bbr.start_pacing(Span::from_millis(1));
        bbr.set_quantum();
        bbr
    }

    /// `InitPacingRate`.
    fn start_pacing(&mut self, rtt: Span) {
        let nominal = Bytes(self.initial_window) / rtt.max(Span::from_nanos(1));
        self.pacing = Rate::from_bits(percent(nominal.as_bits(), self.state.pacing_gain()))
            .max(self.least_rate());
    }

    /// The least pacing rate: a packet a second, so that the flow never stops.
    fn least_rate(&self) -> Rate {
        Bytes(self.mss) / Span::from_secs(1)
    }

    /// `StartRound`.
    fn start_round(&mut self) {
        self.next_round_delivered = self.delivered;
    }

    /// The rate sample of an acknowledgement (section 4.1.2.3).
    fn sample(&mut self, acked: &Acked) -> Sample {
        // A packet whose sending was not reported gets the present counters.
        let fallback = SendSnapshot {
            at: acked.sent_at,
            delivered: self.delivered,
            lost: self.lost,
            in_flight: acked.in_flight.0.saturating_add(acked.bytes.0),
            is_limited: false,
        };
        let snapshot = self.history.find(acked.sent_at).unwrap_or(fallback);
        // Packets that left up to a round trip earlier may yet be found lost.
        let kept = acked.sent_at - acked.smoothed_rtt;
        self.history.forget(kept);
        self.delivered = self.delivered.saturating_add(acked.bytes.0);
        self.is_app_limited = acked.is_app_limited || snapshot.is_limited;
        Sample {
            newly_acked: acked.bytes.0,
            delivered: self.delivered - snapshot.delivered,
            prior_delivered: snapshot.delivered,
            lost: self.lost - snapshot.lost,
            in_flight_at_sending: snapshot.in_flight,
            in_flight: acked.in_flight.0,
            rate: acked.delivery_rate.unwrap_or(Rate::ZERO),
            rtt: acked.rtt,
            is_app_limited: self.is_app_limited,
        }
    }

    /// `UpdateMaxBw` with `UpdateRound` (sections 5.5.1 and 5.5.5).
    fn update_max_bandwidth(&mut self, sample: &Sample) {
        self.is_round_start = sample.prior_delivered >= self.next_round_delivered;
        if self.is_round_start {
            self.start_round();
            self.round += 1;
            self.probe.rounds += 1;
        }
        if sample.rate > Rate::ZERO
            && (sample.rate >= self.max_bandwidth.get() || !sample.is_app_limited)
        {
            self.max_bandwidth.add(sample.rate);
        }
    }

    /// `CheckFullBWReached` (section 5.3.1.2).
    fn check_full_pipe(&mut self, sample: &Sample) {
        if self.full_pipe.is_now || !self.is_round_start || sample.is_app_limited {
            return;
        }
        if sample.rate.as_bits() >= percent(self.full_pipe.rate.as_bits(), 125) {
            self.full_pipe.reset(sample.rate);
            return;
        }
        self.full_pipe.rounds += 1;
        self.full_pipe.is_now = self.full_pipe.rounds >= FULL_ROUNDS;
        self.full_pipe.is_reached |= self.full_pipe.is_now;
    }

    /// `CheckStartupDone` and `CheckDrainDone` (sections 5.3.1 and 5.3.2).
    fn check_startup_and_drain(&mut self, now: Time, sample: &Sample, in_recovery: bool) {
        self.check_startup_loss(sample, in_recovery);
        if self.state == State::Startup && self.full_pipe.is_reached {
            self.state = State::Drain { since_round: self.round };
            self.threshold = Some(self.inflight(100));
        }
        if let State::Drain { since_round } = self.state
            && (sample.in_flight <= self.inflight(100) || self.round > since_round + DRAIN_ROUNDS)
        {
            self.start_down(now);
        }
    }

    /// `BDPMultiple`: `gain` percent of the bandwidth-delay product.
    fn bdp(&self, gain: u64) -> u64 {
        self.bdp_at(self.bandwidth, gain)
    }

    fn bdp_at(&self, bandwidth: Rate, gain: u64) -> u64 {
        self.min_rtt.get().map_or(self.initial_window, |rtt| percent((bandwidth * rtt).0, gain))
    }

    /// `BBR.MinPipeCwnd` in bytes.
    fn min_pipe(&self) -> u64 {
        MIN_PIPE * self.mss
    }

    /// `QuantizationBudget`.
    fn quantized(&self, volume: u64) -> u64 {
        let probe = if self.state == State::Up { 2 * self.mss } else { 0 };
        volume.max(self.quantum).max(self.min_pipe()).saturating_add(probe)
    }

    /// `Inflight`.
    fn inflight(&self, gain: u64) -> u64 {
        self.quantized(self.bdp(gain)).min(MAX_WINDOW.0)
    }

    /// `C.is_cwnd_limited`.
    fn is_window_limited(&self) -> bool {
        self.window_limited_round.is_some_and(|round| round + 1 >= self.round)
    }

    /// `SetPacingRateWithGain`, `gain` in percent (section 5.6.2).
    fn set_pacing(&mut self, gain: u64) {
        let bits = u128::from(self.bandwidth.as_bits()) * u128::from(gain * (100 - PACING_MARGIN))
            / 10_000;
        let rate = Rate::from_bits(u64::try_from(bits).unwrap_or(u64::MAX));
        if self.bandwidth > Rate::ZERO && (self.full_pipe.is_reached || rate > self.pacing) {
            self.pacing = rate.max(self.least_rate());
        }
    }

    /// `SetSendQuantum` (section 5.6.3).
    fn set_quantum(&mut self) {
        self.quantum = (self.pacing * Span::from_millis(1)).0.min(65_536).max(2 * self.mss);
    }

    /// `SetCwnd` (section 5.6.4.6).
    fn set_window(&mut self, newly_acked: u64) {
        let extra = self.extra_acked.get(!self.full_pipe.is_reached);
        let max_inflight = self.quantized(self.bdp(self.state.window_gain()).saturating_add(extra));
        if self.full_pipe.is_reached {
            self.window = self.window.saturating_add(newly_acked).min(max_inflight);
        } else if self.window < max_inflight || self.delivered < self.initial_window {
            self.window = self.window.saturating_add(newly_acked);
        }
        self.window = self.window.max(self.min_pipe());
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        self.window = self.window.min(self.window_cap()).min(MAX_WINDOW.0);
    }

    /// The bound of `BoundCwndForModel` (section 5.6.4.7).
    fn window_cap(&self) -> u64 {
        let long_term = match self.state {
            State::Down | State::Refill | State::Up => self.probe.inflight_long,
            State::Cruise | State::ProbeRtt => self.inflight_with_headroom(),
            State::Startup | State::Drain { .. } => UNBOUNDED,
        };
        long_term.min(self.loss.inflight_short).max(self.min_pipe())
    }
}

impl Default for Bbr {
    fn default() -> Bbr {
        Bbr::new(Seed(1))
    }
}

impl SinglePath for Bbr {
    const NAME: &'static str = "bbr";

    fn handle_start(&mut self, now: Time, start: &Start) {
        *self = Bbr::open(self.seed, self.tolerance, self.renewal, now, start);
    }

    /// `OnTransmit` and `OnPacketSent` (sections 5.2.2 and 4.1.2.2).
    fn handle_sent(&mut self, now: Time, sent: &Sent) {
        let in_flight = sent.in_flight.0;
        if in_flight <= sent.bytes.0 && !sent.is_retransmission {
            self.handle_restart(now);
        }
        if in_flight.saturating_add(self.mss) > self.window {
            self.window_limited_round = Some(self.round);
        }
        let snapshot = SendSnapshot {
            at: now,
            delivered: self.delivered,
            lost: self.lost,
            in_flight,
            is_limited: self.limited_until > self.delivered,
        };
        self.history.add(snapshot, self.min_rtt.get().unwrap_or(Span::ZERO) / 256);
    }

    /// `UpdateOnACK` (section 5.2.3).
    fn handle_acked(&mut self, now: Time, acked: &Acked) {
        let has_seen_rtt = self.min_rtt.get().is_some();
        let sample = self.sample(acked);
        self.follow_recovery(acked.in_recovery);

        self.update_congestion_signals(&sample);
        let window = self.window;
        self.extra_acked.add(now, self.round, sample.newly_acked, self.bandwidth, window);
        self.check_full_pipe(&sample);
        self.check_startup_and_drain(now, &sample, acked.in_recovery);
        self.update_probe_bw(now, &sample);
        let is_expired = self.min_rtt.update(now, sample.rtt);
        self.check_probe_rtt(now, &sample, is_expired);
        self.advance_latest_signals(&sample);
        self.bandwidth = self.max_bandwidth.get().min(self.loss.bandwidth_short);

        if let Some(rtt) = sample.rtt.filter(|_| !has_seen_rtt) {
            self.start_pacing(rtt);
        }
        self.set_pacing(self.state.pacing_gain());
        self.set_quantum();
        self.set_window(sample.newly_acked);
    }

    fn handle_lost(&mut self, now: Time, lost: &Lost) {
        self.handle_lost_packet(now, lost);
    }

    fn handle_congestion(&mut self, now: Time, congestion: &Congestion) {
        match congestion.signal {
            // `handle_lost` has counted it, packet by packet.
            Signal::Loss => {}
            Signal::Mark => self.handle_mark(now, congestion.in_flight.0),
        }
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        self.enter_timeout(in_flight.0);
    }

    fn handle_undo(&mut self, _now: Time) {
        self.undo();
    }

    fn allowance(&self) -> Allowance {
        Allowance {
            window: Bytes(self.window),
            pacing: Some(self.pacing),
            burst: Bytes(self.quantum),
            state: Choke::Open,
        }
    }

    /// The bandwidth-delay product at which Startup ended, as in Linux.
    fn threshold(&self) -> Option<Bytes> {
        self.threshold.map(Bytes)
    }

    /// BBR's model sets the rate in recovery.
    fn wants_rate_reduction(&self) -> bool {
        false
    }
}

/// `value · gain / 100`, rounded down.
fn percent(value: u64, gain: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(gain) / 100).unwrap_or(u64::MAX)
}
