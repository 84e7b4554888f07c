//! Reno's square-root law.

use report::plot::{self, Axis, Panel, Series, number};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use scenario::RunOptions;

use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};
use crate::sweep::MeasureKey;

/// √(3/2p), in packets.
fn square_root(p: f64) -> f64 {
    (1.5 / p).sqrt()
}

pub(super) fn loss(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let window = MeasureKey::steady("flow", "reno", "window");
    let (mut verdict, mut ours, mut theory) = (Verdict::default(), Vec::new(), Vec::new());
    for (text, p) in swept.numbers("loss")? {
        let mean = swept.mean(&[("loss", &text)], &window)?;
        verdict.row(Row::new(
            format!("mean window at p = {}", number(p)),
            "packets",
            "√(3/2p)",
            Expected::Value(square_root(p)),
            Tolerance::relative(0.1),
            mean,
        ));
        ours.extend(mean.map(|mean| (p, mean)));
        theory.push((p, square_root(p)));
    }
    let panel = Panel::new(
        Axis::new("loss probability p", "").log(),
        Axis::new("mean window", "packets").log(),
    )
    .height(300)
    .series(Series::line("√(3/2p)", theory.iter().copied()).reference())
    .series(Series::line("1.31/√p", theory.iter().map(|(p, _)| (*p, 1.31 / p.sqrt()))).reference())
    .series(Series::means("Reno", ours));
    let caption = format!("Means of {} with 95 % confidence intervals.", swept.seeds());
    Ok(Outcome {
        verdict,
        pictures: vec![Picture {
            suffix: "",
            plot: plot::Figure::new("Reno under random loss").panel(panel),
            caption,
        }],
        tables: Vec::new(),
        notes: vec![
            "Some 7 % above the formula is what random loss does: with losses that come \
             independently of each other the mean is 1.31/√p, not 1.22/√p (Ott, Kemperman and \
             Mathis 1996), since the time between two losses varies and the window with it."
                .into(),
        ],
        data: swept.data(),
    })
}
