//! The kernel's congestion control on a path: CUBIC, or BBR if the path loses packets without a
//! queue.
//!
//! CUBIC fills a drop-tail queue and loses packets when it is full: then the round-trip time is
//! high. Packets that are lost while the round-trip time is near its minimum were lost by the line,
//! and a window that shrinks for them leaves it idle.

use std::io;

use crate::counters::TcpInfo;

/// The kernel's congestion control on the paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// CUBIC, and BBR on a path that loses packets without a queue.
    #[default]
    Auto,
    /// The one of this kernel name, on every path.
    Named(String),
}

impl CongestionControl {
    /// The kernel's name of the controller that a connection begins with.
    #[must_use]
    pub fn first(&self) -> &str {
        match self {
            CongestionControl::Auto => "cubic",
            CongestionControl::Named(name) => name,
        }
    }
}

/// Chooses the congestion control of one connection from the kernel's counters.
#[derive(Debug)]
pub struct ControlChoice {
    name: String,
    watch: Option<LossWatch>,
}

impl ControlChoice {
    /// The choice that `control` asks for.
    #[must_use]
    pub fn new(control: &CongestionControl) -> ControlChoice {
        let watch = (*control == CongestionControl::Auto).then(LossWatch::default);
        ControlChoice { name: control.first().to_string(), watch }
    }

    /// The kernel's name of the present controller.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes a new sample of the counters, and calls `set` with the name of another controller
    /// once, if the path loses packets without a queue. Returns the change, or its failure, as a
    /// sentence about `path`.
    pub fn update(
        &mut self,
        info: &TcpInfo,
        path: &str,
        set: impl FnOnce(&str) -> io::Result<()>,
    ) -> Option<String> {
        let share = self.watch.as_mut()?.look(info)?;
        self.watch = None;
        Some(match set("bbr") {
            Ok(()) => {
                self.name = "bbr".into();
                format!(
                    "{path} loses {:.2} % of its packets without a queue: BBR takes over from \
                     CUBIC there",
                    share * 100.0
                )
            }
            Err(error) => format!(
                "{path} loses {:.2} % of its packets without a queue and BBR would carry more, but \
                 it may not be used ({error}); as root: modprobe tcp_bbr; sysctl \
                 net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'",
                share * 100.0
            ),
        })
    }
}

/// Counts samples with losses, by whether there was a queue.
#[derive(Debug, Default)]
struct LossWatch {
    segments: u64,
    retransmits: u64,
    with_queue: u32,
    without_queue: u32,
}

/// The samples with losses that a verdict needs.
const EVIDENCE: u32 = 4;
/// The share of lost packets from which they hold CUBIC back.
const WORTH_IT: f64 = 0.000_5;

impl LossWatch {
    /// The share of lost packets, once enough samples show that the line loses them.
    fn look(&mut self, info: &TcpInfo) -> Option<f64> {
        let lost = info.retransmits.saturating_sub(self.retransmits);
        self.retransmits = info.retransmits;
        self.segments = info.data_segments_out;
        if lost == 0 {
            return None;
        }
        // During a timeout nothing is acknowledged, so the round-trip time is an old one.
        let queue = info.rtt.saturating_sub(info.min_rtt);
        let threshold = (info.min_rtt / 4).max(std::time::Duration::from_millis(3));
        if queue > threshold || info.timeouts > 0 {
            self.with_queue += 1;
        } else {
            self.without_queue += 1;
        }
        if self.without_queue + self.with_queue >= EVIDENCE
            && self.without_queue >= 3 * self.with_queue
        {
            #[expect(clippy::cast_precision_loss, reason = "a share for display and a threshold")]
            let share = self.retransmits as f64 / self.segments.max(1) as f64;
            return (share >= WORTH_IT).then_some(share);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn info(retransmits: u64, rtt_ms: u64) -> TcpInfo {
        TcpInfo {
            rtt: Duration::from_millis(rtt_ms),
            min_rtt: Duration::from_millis(20),
            retransmits,
            data_segments_out: 1_000 + retransmits,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn losses_without_a_queue_are_the_lines() {
        let mut watch = LossWatch::default();
        let verdicts: Vec<_> = (1..=4).map(|n| watch.look(&info(5 * n, 22)).is_some()).collect();
        assert_eq!(verdicts, [false, false, false, true]);
    }

    #[test]
    fn losses_with_a_full_queue_are_ours() {
        let mut watch = LossWatch::default();
        assert!((1..100).all(|n| watch.look(&info(5 * n, 45)).is_none()));
    }

    #[test]
    fn a_few_odd_losses_do_not_decide() {
        let mut watch = LossWatch::default();
        assert!(
            (1..100).all(|n| watch.look(&info(5 * n, if n % 3 == 0 { 21 } else { 45 })).is_none())
        );
    }
}
