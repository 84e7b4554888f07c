//! What a source has to send: production, backlog, and whether it ran out of data.

use alloc::collections::VecDeque;

use units::{Bytes, Rate, Span, Time};

use super::config::Demand;

/// Data of one source.
#[derive(Clone, Debug)]
pub(super) struct Load {
    demand: Demand,
    /// Less than this is no data to send.
    packet: Bytes,
    /// The time over which production is averaged.
    window: Span,
    memory: Span,
    started: Time,
    produced: Bytes,
    backlog: Bytes,
    /// The last time at which there was no data to send.
    lacked: Time,
    /// Ends and rates of past windows, in bit/s.
    windows: VecDeque<(Time, f64)>,
    /// Begin and production of the present window.
    from: Time,
    sum: Bytes,
}

impl Load {
    pub(super) fn new(demand: Demand, packet: Bytes, window: Span, memory: Span) -> Load {
        Load {
            demand,
            packet,
            window,
            memory,
            started: Time::ZERO,
            produced: Bytes::ZERO,
            backlog: Bytes::ZERO,
            lacked: Time::ZERO,
            windows: VecDeque::new(),
            from: Time::ZERO,
            sum: Bytes::ZERO,
        }
    }

    pub(super) fn handle_start(&mut self, now: Time) {
        (self.started, self.from, self.lacked) = (now, now, now);
    }

    pub(super) fn handle_produced(&mut self, now: Time, bytes: Bytes) {
        if self.has_none() {
            self.lacked = now;
        }
        self.roll(now);
        self.sum += bytes;
        self.produced += bytes;
        self.backlog += bytes;
    }

    pub(super) fn handle_written(&mut self, now: Time, bytes: Bytes) {
        self.backlog -= bytes;
        if self.has_none() {
            self.lacked = now;
        }
    }

    /// The driver has counted what waits.
    pub(super) fn handle_backlog(&mut self, now: Time, backlog: Bytes) {
        self.backlog = backlog;
        if self.has_none() {
            self.lacked = now;
        }
    }

    /// Data that was written to a path which has failed.
    pub(super) fn handle_returned(&mut self, bytes: Bytes) {
        if let Demand::Produced { .. } = self.demand {
            self.backlog += bytes;
        }
    }

    /// Whether there was no data to send at some time since `since`.
    pub(super) fn has_lacked(&self, since: Time) -> bool {
        matches!(self.demand, Demand::Produced { .. }) && (self.has_none() || self.lacked >= since)
    }

    /// What was offered since the start, in bytes.
    pub(super) fn offered(&self, now: Time) -> f64 {
        match self.demand {
            Demand::Fixed(rate) => rate.as_f64() / 8.0 * (now - self.started).as_secs_f64(),
            Demand::Produced { .. } => self.produced.as_f64(),
        }
    }

    pub(super) fn backlog(&self) -> Bytes {
        self.backlog
    }

    /// The backlog that a source may keep up with its production at: the control clears more than
    /// the share `tolerance` of the production beside it.
    pub(super) fn bound(&self) -> f64 {
        match self.demand {
            Demand::Fixed(_) => 0.0,
            Demand::Produced { bound, .. } => self.rate() / 8.0 * bound.as_secs_f64(),
        }
    }

    /// The demand that control works for; at least a packet in an `interval`.
    pub(super) fn demand(&mut self, now: Time, interval: Span) -> Rate {
        self.roll(now);
        match self.demand {
            Demand::Fixed(rate) => rate,
            Demand::Produced { margin, clearance, clearing, .. } => {
                let rate = self.rate();
                let clear = self.backlog.as_f64() * 8.0 / clearance.as_secs_f64();
                let demand = margin * rate + clear.min(clearing * rate);
                Rate::from_bits_f64(demand).max(self.packet / interval)
            }
        }
    }

    fn has_none(&self) -> bool {
        self.backlog < self.packet
    }

    /// The highest rate of production that is remembered, in bit/s.
    fn rate(&self) -> f64 {
        match self.demand {
            Demand::Fixed(rate) => rate.as_f64(),
            Demand::Produced { first, .. } if self.windows.is_empty() => first.as_f64(),
            Demand::Produced { .. } => {
                self.windows.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
            }
        }
    }

    /// Ends the present window if it is long enough, and forgets old ones.
    fn roll(&mut self, now: Time) {
        let elapsed = now - self.from;
        if elapsed >= self.window {
            self.windows.push_back((now, self.sum.as_f64() * 8.0 / elapsed.as_secs_f64()));
            (self.from, self.sum) = (now, Bytes::ZERO);
        }
        while self.windows.front().is_some_and(|(end, _)| now - *end > self.memory) {
            self.windows.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn load() -> Load {
        let demand = Demand::Produced {
            first: Rate::kbit(800),
            margin: 1.03,
            clearance: Span::from_secs(30),
            clearing: 0.1,
            bound: Span::from_secs(1),
        };
        let mut load = Load::new(demand, Bytes(1_000), Span::from_secs(6), Span::from_secs(300));
        load.handle_start(at(0));
        load
    }

    /// Produces and writes a kilobyte at each step of so many milliseconds.
    fn run(load: &mut Load, from: u64, to: u64, step: u64) {
        let mut now = from;
        while now < to {
            load.handle_produced(at(now), Bytes(1_000));
            load.handle_written(at(now), Bytes(1_000));
            now += step;
        }
    }

    #[test]
    fn the_demand_has_a_margin_and_clears_the_backlog() {
        let mut load = load();
        let interval = Span::from_millis(200);
        assert_eq!(load.demand(at(0), interval), Rate::kbit(824));
        // 400 kbit/s for 12 s; the first window is over at 6 s.
        run(&mut load, 0, 12_000, 20);
        let demand = load.demand(at(12_000), interval).as_f64();
        assert!((demand - 1.03 * 400e3).abs() < 2e3, "{demand}");
        load.handle_produced(at(12_001), Bytes(30_000));
        assert!((load.demand(at(12_001), interval).as_f64() - demand - 8_000.0).abs() < 1.0);
        // No more than a tenth, however much there is.
        load.handle_produced(at(12_002), Bytes(9_000_000));
        let most = 1.13 / 1.03 * demand;
        assert!((load.demand(at(12_002), interval).as_f64() - most).abs() < 1.0);
    }

    #[test]
    fn a_pause_of_production_is_bridged_and_a_long_one_forgotten() {
        let mut load = load();
        let interval = Span::from_millis(200);
        run(&mut load, 0, 30_000, 20);
        run(&mut load, 30_000, 120_000, 40);
        let demand = load.demand(at(120_000), interval).as_f64();
        assert!((demand - 1.03 * 400e3).abs() < 3e3, "{demand}");
        run(&mut load, 120_000, 400_000, 40);
        let demand = load.demand(at(400_000), interval).as_f64();
        assert!((demand - 1.03 * 200e3).abs() < 3e3, "{demand}");
        // Nothing for ten minutes: a packet in an interval is left, and then nothing is known.
        run(&mut load, 1_000_000, 1_000_001, 1);
        assert_eq!(load.demand(at(1_000_000), interval), Rate::kbit(40));
    }

    #[test]
    fn a_source_lacks_data_until_it_has_a_packet() {
        let mut load = load();
        load.handle_produced(at(10), Bytes(999));
        assert!(load.has_lacked(at(20)));
        load.handle_produced(at(30), Bytes(2_000));
        assert!(load.has_lacked(at(30)) && !load.has_lacked(at(31)));
        load.handle_written(at(40), Bytes(1_000));
        assert!(!load.has_lacked(at(31)));
        load.handle_written(at(50), Bytes(1_000));
        load.handle_produced(at(60), Bytes(5_000));
        assert!(load.has_lacked(at(60)) && !load.has_lacked(at(61)));
    }

    #[test]
    fn a_fixed_demand_never_lacks() {
        let mut load = Load::new(
            Demand::Fixed(Rate::mbit(8)),
            Bytes(1_000),
            Span::from_secs(6),
            Span::from_secs(300),
        );
        load.handle_start(at(1_000));
        load.handle_written(at(1_500), Bytes(70_000));
        assert!(!load.has_lacked(at(0)));
        assert_eq!(load.demand(at(2_000), Span::from_millis(200)), Rate::mbit(8));
        assert!((load.offered(at(3_000)) - 2e6).abs() < 1e-6);
    }
}
