//! The kernel's congestion control on a path: CUBIC, or BBR if the path loses packets without a
//! queue.
//!
//! CUBIC fills a drop-tail queue and loses packets when it is full. A line that loses packets
//! itself is left idle, because the window shrinks for them too. [`policy::line_loss`] tells them
//! apart.

use std::io;

use policy::line_loss::{Counters, LineLoss};
use units::{Span, Time};

use crate::counters::TcpInfo;

/// The interval of samples of the kernel's counters: cheap, and several a round trip where it is
/// long, so that losses can be judged one by one.
pub const SAMPLE_EVERY: Span = Span::from_millis(25);

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
    watch: Option<LineLoss>,
}

impl ControlChoice {
    /// The choice that `control` asks for.
    #[must_use]
    pub fn new(control: &CongestionControl) -> ControlChoice {
        let watch = (*control == CongestionControl::Auto).then(LineLoss::default);
        ControlChoice { name: control.first().to_string(), watch }
    }

    /// The kernel's name of the present controller.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes a new sample of the counters, which is due every [`SAMPLE_EVERY`], and calls `set`
    /// with the name of another controller once, if the path loses packets without a queue.
    /// Returns the change, or its failure, as a sentence about `path`.
    pub fn update(
        &mut self,
        now: Time,
        info: &TcpInfo,
        path: &str,
        set: impl FnOnce(&str) -> io::Result<()>,
    ) -> Option<String> {
        let verdict = self.watch.as_mut()?.look(now, &sample(info))?;
        self.watch = None;
        let percent = verdict.lost * 100.0;
        Some(match set("bbr") {
            Ok(()) => {
                self.name = "bbr".into();
                format!(
                    "{path} loses {percent:.2} % of its packets without a queue: BBR takes over \
                     from CUBIC there"
                )
            }
            Err(error) => format!(
                "{path} loses {percent:.2} % of its packets without a queue and BBR would carry \
                 more, but it may not be used ({error}); as root: modprobe tcp_bbr; sysctl \
                 net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'"
            ),
        })
    }
}

/// The counters that show whose the losses are.
fn sample(info: &TcpInfo) -> Counters {
    Counters {
        rtt: Span::from(info.rtt),
        min_rtt: Span::from(info.min_rtt),
        window: info.cwnd,
        threshold: info.slow_start_threshold,
        in_flight: info.unacked,
        retransmits: info.retransmits,
        spurious: info.duplicates.into(),
        sent: info.data_segments_out,
        has_timed_out: info.timeouts > 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The names that `control` asks for while every sample has a loss at this round-trip time, the
    /// shortest being 20 ms.
    fn asked(control: &CongestionControl, rtt_ms: u64) -> (Vec<String>, Vec<String>) {
        let mut choice = ControlChoice::new(control);
        let (mut names, mut texts) = (Vec::new(), Vec::new());
        for n in 0..40 {
            let info = TcpInfo {
                rtt: Duration::from_millis(rtt_ms),
                min_rtt: Duration::from_millis(20),
                retransmits: n,
                data_segments_out: 100 * (n + 1),
                cwnd: 100,
                slow_start_threshold: Some(80),
                unacked: 100,
                ..TcpInfo::default()
            };
            let set = |name: &str| {
                names.push(name.to_string());
                Ok(())
            };
            texts.extend(choice.update(Time::ZERO + SAMPLE_EVERY * n, &info, "lan", set));
        }
        assert_eq!(choice.name(), names.last().map_or(control.first(), String::as_str));
        (names, texts)
    }

    #[test]
    fn a_line_that_loses_packets_gets_bbr_once() {
        let (names, texts) = asked(&CongestionControl::Auto, 21);
        assert_eq!(names, ["bbr"]);
        assert!(texts[0].starts_with("lan loses 0."), "{texts:?}");
        assert!(texts[0].ends_with("without a queue: BBR takes over from CUBIC there"));
    }

    #[test]
    fn a_full_queue_keeps_cubic() {
        assert!(asked(&CongestionControl::Auto, 45).0.is_empty());
    }

    #[test]
    fn a_named_controller_stays() {
        assert!(asked(&CongestionControl::Named("reno".into()), 21).0.is_empty());
    }
}
