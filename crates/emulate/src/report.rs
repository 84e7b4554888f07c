//! The report of a run, and whether the run counts.

use link::Counters;
use serde::Serialize;
use units::{Span, Time};

/// The emulator's share of one processor above which a run is invalid.
pub const MAX_CPU_SHARE: f64 = 0.85;
/// The lateness of one packet in a hundred above which a run is invalid.
pub const MAX_LATENESS: Span = Span::from_millis(1);
/// The least number of packets from which the 99th percentile is judged.
const MIN_SAMPLES: u64 = 200;

/// The report of a run. Times are seconds since the schedule's start, unless stated otherwise.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The network's name.
    pub network: String,
    /// Whether the emulator kept within its own bounds; if not, no figure of this run counts.
    pub valid: bool,
    /// The bounds that it exceeded.
    pub why: Vec<String>,
    /// From the schedule's start to the end of the run; 0 if it never started.
    pub seconds: f64,
    /// When the first packet with payload, of any link and direction, came in.
    pub first_payload_s: Option<f64>,
    /// When the last one arrived.
    pub last_payload_s: Option<f64>,
    /// The emulator's processor time over the run's time.
    pub cpu_share: f64,
    /// Whether the emulator ran before ordinary threads.
    pub realtime: bool,
    /// The emulator's busy periods, in which it reads no packets, in µs.
    pub busy_us: Quantiles,
    /// Packets that a device dropped before the emulator saw them.
    pub tun_drops: u64,
    /// Packets that a device did not take back.
    pub tun_errors: u64,
    /// Each link.
    pub links: Vec<LinkReport>,
}

/// One link.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// From near to far.
    pub up: DirectionReport,
    /// From far to near.
    pub down: DirectionReport,
}

/// One direction of a link. Where a link shares another's bottleneck, drops and the queue count
/// there.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DirectionReport {
    /// Packets that arrived at the other end.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Packets that did not arrive.
    pub dropped: Drops,
    /// Copies made.
    pub duplicated: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// Packets that the queue marked: congestion experienced.
    pub marked: u64,
    /// The largest backlog in bytes, the packet on the wire included.
    pub max_queue_bytes: u64,
    /// How late packets left the emulator, in µs.
    pub late_us: Quantiles,
    /// When the first packet with payload came in.
    pub first_payload_s: Option<f64>,
    /// When the last packet with payload arrived.
    pub last_payload_s: Option<f64>,
}

/// Packets dropped, by cause.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Drops {
    /// The queue was full.
    pub queue: u64,
    /// Active queue management dropped it.
    pub aqm: u64,
    /// At random.
    pub loss: u64,
    /// The link was in a blackout.
    pub blackout: u64,
    /// Too large.
    pub mtu: u64,
    /// Of a kind that the link does not carry.
    pub carry: u64,
    /// The NAT had forgotten the flow.
    pub nat: u64,
    /// The address does not exist.
    pub unreachable: u64,
}

impl From<&Counters> for Drops {
    /// What the link itself dropped.
    fn from(counters: &Counters) -> Drops {
        Drops {
            queue: counters.dropped_queue,
            aqm: counters.dropped_aqm,
            loss: counters.dropped_loss,
            blackout: counters.dropped_blackout,
            mtu: counters.dropped_mtu,
            ..Drops::default()
        }
    }
}

/// Quantiles of times in µs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50: u64,
    /// One in a hundred is above.
    pub p99: u64,
    /// The largest.
    pub max: u64,
    /// The number of samples.
    pub count: u64,
}

impl Report {
    /// Sets `valid` and `why` from the other fields.
    pub(crate) fn judge(&mut self) {
        let late = self.links.iter().flat_map(|link| {
            [("up", link.up.late_us), ("down", link.down.late_us)]
                .map(|(way, late)| (format!("{} {way}", link.name), late))
        });
        self.why = exceeded(self.tun_drops, self.cpu_share, self.busy_us, late);
        self.valid = self.why.is_empty();
    }
}

/// The bounds that an emulator exceeded: by packets that devices dropped, by its share of a
/// processor, by its busy periods, and by its lateness at each of these places.
pub(crate) fn exceeded(
    tun_drops: u64,
    cpu_share: f64,
    busy: Quantiles,
    late: impl Iterator<Item = (String, Quantiles)>,
) -> Vec<String> {
    let mut why = Vec::new();
    if tun_drops > 0 {
        why.push(format!("devices dropped {tun_drops} packets before the emulator saw them"));
    }
    if cpu_share > MAX_CPU_SHARE {
        why.push(format!(
            "the emulator used {:.0} % of a processor, more than {:.0} %",
            cpu_share * 100.0,
            MAX_CPU_SHARE * 100.0
        ));
    }
    let limit = MAX_LATENESS.as_micros();
    let mut check = |what: String, quantiles: Quantiles| {
        if quantiles.count >= MIN_SAMPLES && quantiles.p99 > limit {
            why.push(format!(
                "{what}: one time in a hundred more than {} µs, the bound is {limit} µs",
                quantiles.p99
            ));
        }
    };
    for (place, quantiles) in late {
        check(format!("{place} was late"), quantiles);
    }
    check("the emulator was busy".into(), busy);
    why
}

/// Times in buckets of a microsecond, up to 20 ms; larger times count in the last bucket.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: Vec<u32>,
    beyond: u64,
    count: u64,
    max: u64,
}

impl Histogram {
    const BUCKETS: u64 = 20_000;

    pub(crate) fn new() -> Histogram {
        Histogram { buckets: vec![0; 20_000], beyond: 0, count: 0, max: 0 }
    }

    pub(crate) fn record(&mut self, span: Span) {
        let micros = span.as_micros();
        self.count += 1;
        self.max = self.max.max(micros);
        match usize::try_from(micros).ok().and_then(|index| self.buckets.get_mut(index)) {
            Some(bucket) => *bucket += 1,
            None => self.beyond += 1,
        }
    }

    pub(crate) fn quantiles(&self) -> Quantiles {
        Quantiles {
            p50: self.quantile(50),
            p99: self.quantile(99),
            max: self.max,
            count: self.count,
        }
    }

    /// The smallest time that at least `percent` of all do not exceed.
    fn quantile(&self, percent: u64) -> u64 {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (micros, n) in (0..Self::BUCKETS).zip(&self.buckets) {
            seen += u64::from(*n);
            if seen >= wanted {
                return micros;
            }
        }
        self.max
    }
}

/// Seconds since `start`, as reports have them.
pub(crate) fn seconds(start: Option<Time>, at: Option<Time>) -> Option<f64> {
    Some((at? - start?).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_hundred() {
        let mut histogram = Histogram::new();
        for n in 1..=100 {
            histogram.record(Span::from_micros(n));
        }
        let Quantiles { p50, p99, max, count } = histogram.quantiles();
        assert_eq!((p50, p99, max, count), (50, 99, 100, 100));
    }

    #[test]
    fn beyond_the_buckets_is_the_largest() {
        let mut histogram = Histogram::new();
        histogram.record(Span::from_secs(3));
        assert_eq!(histogram.quantiles().p50, 3_000_000);
    }

    #[test]
    fn a_run_out_of_bounds_is_invalid() {
        let mut report = Report::default();
        report.judge();
        assert!(report.valid);
        let mut late = Report::default();
        let late_us = Quantiles { p50: 1, p99: 1_500, max: 2_000, count: 1_000 };
        late.links.push(LinkReport {
            up: DirectionReport { late_us, ..DirectionReport::default() },
            ..LinkReport::default()
        });
        late.judge();
        let mut dropped = Report { tun_drops: 1, ..Report::default() };
        dropped.judge();
        let mut busy = Report { cpu_share: 0.9, ..Report::default() };
        busy.judge();
        for report in [late, dropped, busy] {
            assert!(!report.valid && report.why.len() == 1, "{report:?}");
        }
    }
}
