//! The queue of FAST: α packets per flow.

use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use scenario::RunOptions;

use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};
use crate::sweep::{MeasureKey, SweepResults};

/// The α of `fast(alpha=100)`.
fn alpha(controller: &str) -> Option<f64> {
    let inside = controller.trim().strip_prefix("fast(")?.strip_suffix(')')?;
    inside.split(',').find_map(|item| item.trim().strip_prefix("alpha=")?.trim().parse().ok())
}

pub(super) fn queue(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let waiting = MeasureKey::steady("link", "bottleneck/up", "queue");
    let counts = swept.numbers("n")?;
    let mut verdict = Verdict::default();
    let mut panel =
        Panel::new(Axis::new("nα", "packets").log(), Axis::new("queue", "packets").log())
            .height(300);
    let mut ends = (f64::INFINITY, 0.0_f64);
    for controller in swept.values("controller")? {
        let alpha = alpha(&controller).ok_or_else(|| no_alpha(&swept, &controller))?;
        let mut ours = Vec::new();
        for (text, n) in &counts {
            let mean = swept.mean(&[("controller", &controller), ("n", text)], &waiting)?;
            let what = format!("queue, α = {alpha}, n = {n}");
            let tolerance = Tolerance { absolute: 2.0, relative: 0.01, intervals: false };
            verdict.row(Row::new(
                what,
                "packets",
                "nα",
                Expected::Value(n * alpha),
                tolerance,
                mean,
            ));
            ends = (ends.0.min(n * alpha), ends.1.max(n * alpha));
            ours.extend(mean.map(|mean| (n * alpha, mean)));
        }
        panel = panel.series(Series::means(format!("α = {alpha}"), ours));
    }
    let panel = panel
        .series(Series::line("nα", [ends.0, ends.1].map(|packets| (packets, packets))).reference());
    let caption =
        format!("Packets that wait, the one on the wire not counted; means of {}.", swept.seeds());
    Ok(Outcome {
        verdict,
        pictures: vec![Picture {
            suffix: "",
            plot: plot::Figure::new("FAST’s queue").panel(panel),
            caption,
        }],
        tables: Vec::new(),
        notes: Vec::new(),
        data: swept.data(),
    })
}

fn no_alpha(swept: &SweepResults, controller: &str) -> StudyError {
    swept.lacks(format!(
        "`sweep.controller` wants controllers such as fast(alpha=50), and '{controller}' is none"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_is_read_from_the_controller() {
        assert_eq!(alpha("fast(alpha=20)"), Some(20.0));
        assert_eq!(alpha("fast(gamma=0.5, alpha=100)"), Some(100.0));
        assert_eq!(alpha("vegas(alpha=2)"), None);
    }
}
