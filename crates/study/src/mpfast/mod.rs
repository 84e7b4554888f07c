//! "Multipath FAST TCP for Large Bandwidth-Delay Product Networks": MPFAST over disjoint paths, at
//! a shared bottleneck and in a ring.

mod balance;
mod efficiency;
mod fairness;

use report::mean;
use report::plot::number;

use crate::error::StudyError;
use crate::figure::{Figure, File, Study};
use crate::sweep::SweepResults;

/// The study.
pub const STUDY: Study = Study {
    paper: "mpfast",
    title: "MPFAST: FAST over several paths",
    about: "The settings of “Multipath FAST TCP for Large Bandwidth-Delay Product Networks” (Ha, \
            Tran, Le and Tran). MPFAST keeps α packets of a connection in the queues of its \
            paths, on each path in proportion to its rate there. The paper says nothing of α, γ, \
            how often windows are set, and the capacities of the single links of the ring: here \
            100 packets, ½, every round trip, and four links of 95 Mbit/s. Delays of links are \
            taken as one way, queues hold one bandwidth-delay product, and rates are bytes of the \
            links, headers included, sampled every 2 s. The paper compares MPFAST with wVegas in \
            figure 2(a); what other controllers do on the same networks is shown beside it and not \
            judged. What is judged is more than the paper’s algorithm: slow start, paced, that \
            ends at half of the backlog; windows weighted by measured rates; a tolerance of 3 % of \
            losses; and drains every 10 s.",
    figures: &[
        Figure {
            name: "2",
            title: "Figure 2: two disjoint paths",
            about: "Two links of 80 Mbit/s; eight CBR flows of 5 Mbit/s come to each, and go at \
                    200 s. (a) wVegas is to climb slowly and to take long again after the CBR \
                    flows, (b) MPFAST to fill both links within seconds, to keep half of them \
                    beside the CBR flows, and to have all of them back at once.",
            files: &[
                File { name: "2.toml", text: include_str!("../../../../papers/mpfast/2.toml") },
                File { name: "2a.toml", text: include_str!("../../../../papers/mpfast/2a.toml") },
            ],
            make: efficiency::disjoint,
        },
        Figure {
            name: "3",
            title: "Figure 3: beside FAST at one bottleneck",
            about: "Both subflows of a connection and a connection of FAST over one link: FAST’s \
                    window is to be almost twice that of a subflow, and each connection is to have \
                    half of the link.",
            files: &[
                File { name: "3.toml", text: include_str!("../../../../papers/mpfast/3.toml") },
                File {
                    name: "3-others.toml",
                    text: include_str!("../../../../papers/mpfast/3-others.toml"),
                },
            ],
            make: fairness::shared,
        },
        Figure {
            name: "4",
            title: "Figure 4: a ring of four links",
            about: "Four connections, each over two neighbouring links of a ring. Wherever the \
                    other traffic is, each is to have a quarter of what all links have: 95 Mbit/s, \
                    70 Mbit/s from 8 s after ten CBR flows have come, and 95 Mbit/s again.",
            files: &[File {
                name: "4.toml",
                text: include_str!("../../../../papers/mpfast/4.toml"),
            }],
            make: balance::ring,
        },
    ],
    real: None,
};

/// The note below the contrasts.
const CONTRAST: &str = "Contrast: the other controllers on the same network. The paper does not \
                        say what they do, and they are not judged.";

/// A rate over time: the end of each sample in seconds, and Mbit/s.
type RateCurve = Vec<(f64, f64)>;

/// A part of a run in seconds: after its begin, up to its end.
#[derive(Clone, Copy, Debug)]
struct Phase {
    from: f64,
    to: f64,
}

impl Phase {
    const fn new(from: f64, to: f64) -> Phase {
        Phase { from, to }
    }

    /// The samples that lie in it.
    fn of(self, curve: &RateCurve) -> impl Iterator<Item = (f64, f64)> {
        curve.iter().copied().filter(move |(at, _)| *at > self.from && *at <= self.to)
    }

    /// The mean rate; NaN without samples.
    fn mean(self, curve: &RateCurve) -> f64 {
        let rates: Vec<f64> = self.of(curve).map(|(_, rate)| rate).collect();
        mean(&rates).map_or(f64::NAN, |mean| mean.value)
    }

    /// The seconds to the end of the first sample that `is_there`; all of the phase if none is.
    fn reached(self, curve: &RateCurve, is_there: impl Fn(f64) -> bool) -> f64 {
        let first = self.of(curve).find(|(_, rate)| is_there(*rate));
        first.map_or(self.to, |(at, _)| at) - self.from
    }

    /// The seconds to the end of the first sample from which on `is_there` for all of the phase;
    /// all of the phase if it ends otherwise.
    fn settled(self, curve: &RateCurve, is_there: impl Fn(f64) -> bool) -> f64 {
        let outside = self.of(curve).filter(|(_, rate)| !is_there(*rate)).last();
        let outside = outside.map_or(self.from, |(at, _)| at);
        let first = self.of(curve).find(|(at, _)| *at > outside);
        first.map_or(self.to, |(at, _)| at) - self.from
    }
}

/// The sum of what links (`name/up`) carry over time, in one run.
fn carried(
    swept: &SweepResults,
    run: &scenario::Run,
    links: &[&str],
) -> Result<RateCurve, StudyError> {
    let mut sum = RateCurve::new();
    for link in links {
        let (at, series) = swept.link_series(run, link)?;
        if sum.is_empty() {
            sum.extend(at.iter().map(|at| (*at, 0.0)));
        }
        sum.iter_mut().zip(&series.throughput).for_each(|((_, sum), rate)| *sum += rate);
    }
    Ok(sum)
}

/// The swept controller of this name, with its parameters.
fn controller(swept: &SweepResults, name: &str) -> Result<String, StudyError> {
    let is_it = |text: &String| name_of(text) == name;
    let found = swept.values("controller")?.into_iter().find(is_it);
    found.ok_or_else(|| swept.lacks(format!("`sweep.controller` has no {name}")))
}

/// The name of a controller, without its parameters.
fn name_of(controller: &str) -> &str {
    controller.split_once('(').map_or(controller, |(name, _)| name).trim()
}

/// A cell of a table: the mean of a value over the runs.
fn cell(values: &[f64]) -> String {
    mean(values).map_or_else(String::new, |mean| number(mean.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_reaches_a_rate() {
        let curve: RateCurve = [0.0, 5.0, 9.0, 10.0, 8.0, 10.0, 10.0]
            .into_iter()
            .zip(1..)
            .map(|(rate, sample)| (f64::from(sample) * 2.0, rate))
            .collect();
        let (phase, late) = (Phase::new(0.0, 14.0), Phase::new(4.0, 8.0));
        for (found, wanted) in [
            (phase.reached(&curve, |rate| rate >= 9.0), 6.0),
            // Never.
            (phase.reached(&curve, |rate| rate > 11.0), 14.0),
            // It leaves again before.
            (phase.settled(&curve, |rate| rate >= 9.0), 12.0),
            (phase.settled(&curve, |rate| rate >= 0.0), 2.0),
            (phase.settled(&curve, |rate| rate > 11.0), 14.0),
            (late.mean(&curve), 9.5),
            (late.reached(&curve, |rate| rate >= 9.5), 4.0),
        ] {
            assert!((found - wanted).abs() < 1e-9, "{found}, not {wanted}");
        }
    }

    #[test]
    fn controllers_are_known_by_their_names() {
        assert_eq!(name_of("mpfast(alpha=100, every=1)"), "mpfast");
        assert_eq!(name_of("wvegas"), "wvegas");
    }
}
