//! One bottleneck, shared with a connection of a single path: figure 3.

use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Align, Table, mean};
use scenario::{Run, RunOptions};

use super::{CONTRAST, cell};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};
use crate::sweep::{MeasureKey, SweepResults};

/// α of both connections, in packets.
const ALPHA: f64 = 100.0;

const SUBFLOWS: [&str; 2] = ["multipath/0", "multipath/1"];

/// What one run shared out.
struct Shares {
    /// What the subflows deliver together over what the other connection does, in bytes of the
    /// link.
    ratio: f64,
    /// The share of each subflow in its connection's rate: θ, in equilibrium.
    weights: [f64; 2],
    /// The other connection's window over the mean of the subflows' windows.
    windows: f64,
    /// The packets that the subflows keep in the queue.
    backlog: f64,
}

impl Shares {
    fn new(swept: &SweepResults, run: &Run) -> Result<Shares, StudyError> {
        let steady = |scope, of, name| swept.sample(run, &MeasureKey::steady(scope, of, name));
        let multipath = steady("link", "exit/up", "throughput")?;
        let single = steady("link", "exit-beside/up", "throughput")?;
        let goodputs = [
            steady("subflow", SUBFLOWS[0], "goodput")?,
            steady("subflow", SUBFLOWS[1], "goodput")?,
        ];
        let windows =
            steady("subflow", SUBFLOWS[0], "window")? + steady("subflow", SUBFLOWS[1], "window")?;
        let queue = steady("link", "bottleneck/up", "queue")?;
        Ok(Shares {
            ratio: multipath / single,
            weights: goodputs.map(|goodput| goodput / (goodputs[0] + goodputs[1])),
            windows: steady("flow", "single", "window")? / (windows / 2.0),
            backlog: queue * multipath / (multipath + single),
        })
    }
}

/// The shares of all runs of a point.
fn all(swept: &SweepResults, point: &[(&str, &str)]) -> Result<Vec<Shares>, StudyError> {
    swept.runs(point)?.into_iter().map(|run| Shares::new(swept, run)).collect()
}

/// One value of each run.
fn each(shares: &[Shares], of: impl Fn(&Shares) -> f64) -> Vec<f64> {
    shares.iter().map(of).collect()
}

/// Why the subflows divide their rate otherwise.
const ANY_DIVISION: &str = "in one queue any division is an equilibrium. Where it comes to rest \
                            depends on gamma and on how often windows are set (.64 to .69 here), \
                            which the paper does not say";

fn larger(shares: &Shares) -> f64 {
    shares.weights[0].max(shares.weights[1])
}

pub(super) fn shared(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions { series: true })?;
    let others = lab.sweep(1, RunOptions::default())?;
    let shares = all(&swept, &[])?;
    let ten = Tolerance::relative(0.1);
    let weights = Tolerance::absolute(0.05);
    let row = |what, unit, by, expected, tolerance, of: &dyn Fn(&Shares) -> f64| {
        Row::new(what, unit, by, expected, tolerance, mean(&each(&shares, of)))
    };
    let verdict = Verdict::new([
        row(
            "two subflows over FAST",
            "",
            "the paper: equivalent",
            Expected::Value(1.0),
            ten,
            &|s| s.ratio,
        ),
        row(
            "FAST’s window over a subflow’s",
            "",
            "the paper: almost twice",
            Expected::Value(2.0),
            ten,
            &|s| s.windows,
        ),
        row("θ, the larger", "", "the paper", Expected::Value(0.54), weights, &larger)
            .because(ANY_DIVISION),
        row("θ, the smaller", "", "the paper", Expected::Value(0.45), weights, &|s| {
            1.0 - larger(s)
        })
        .because(ANY_DIVISION),
        row(
            "the subflows’ backlog over α: the sum of θ",
            "",
            "equation 7: 1",
            Expected::Value(1.0),
            Tolerance::relative(0.05),
            &|s| s.backlog / ALPHA,
        ),
    ]);
    let mut data = swept.data();
    data.rows.extend(others.data().rows);
    Ok(Outcome {
        verdict,
        pictures: vec![picture(&swept)?],
        tables: vec![(
            table(&others)?,
            format!(
                "{CONTRAST} Both connections are under the same controller. Means of {}.",
                others.seeds()
            ),
        )],
        notes: vec![
            "Where both subflows share one queue, any division among them is an equilibrium: each \
             keeps θα packets and has that share of the rate, whatever θ is. The paper measured \
             .54 and .45. θ is taken from the rates of the subflows, \
             and the sum of the θ that the controller uses from the queue: the part of the queue \
             that is the subflows’ is as large as their part of the link’s rate. A drain \
             empties it every 10 s, which lowers its mean."
                .into(),
        ],
        data,
    })
}

/// The windows and θ of the first run over time.
fn picture(swept: &SweepResults) -> Result<Picture, StudyError> {
    let run: &Run = swept.runs(&[])?[0];
    let time = || Axis::new("time", "s").from(0.0);
    let mut windows = Panel::new(time(), Axis::new("window", "packets").from(0.0)).height(220);
    let mut shares = Panel::new(time(), Axis::new("θ", "").from(0.0).to(1.0)).height(160);
    let (at, single) = swept.flow_series(run, "single")?;
    let curve = |values: &[f64]| at.iter().copied().zip(values.iter().copied()).collect::<Vec<_>>();
    windows = windows.series(Series::line("FAST", curve(&single.window)));
    let (_, multipath) = swept.flow_series(run, "multipath")?;
    for (number, name) in (1..).zip(SUBFLOWS) {
        let (_, subflow) = swept.flow_series(run, name)?;
        let label = format!("subflow {number}");
        windows = windows.series(Series::line(&label, curve(&subflow.window)));
        let share = subflow.goodput.iter().zip(&multipath.goodput).map(|(one, all)| one / all);
        let share: Vec<f64> = share.collect();
        let known = curve(&share).into_iter().filter(|(_, share)| share.is_finite());
        shares = shares.series(Series::line(label, known));
    }
    Ok(Picture {
        suffix: "",
        plot: plot::Figure::new("Beside FAST at one bottleneck").panel(windows).panel(shares),
        caption: "The first seed: windows, and each subflow’s share of the connection’s rate, \
                  every 2 s."
            .into(),
    })
}

fn table(others: &SweepResults) -> Result<Table, StudyError> {
    let mut table = Table::new([
        ("controller", Align::Left),
        ("two subflows over one connection", Align::Right),
        ("share of the larger subflow", Align::Right),
        ("window of the connection over a subflow’s", Align::Right),
        ("queue of the subflows (packets)", Align::Right),
    ]);
    for controller in others.values("controller")? {
        let shares = all(others, &[("controller", &controller)])?;
        let of = |of: fn(&Shares) -> f64| cell(&each(&shares, of));
        let cells = [of(|s| s.ratio), of(larger), of(|s| s.windows), of(|s| s.backlog)];
        table.row([controller.clone()].into_iter().chain(cells));
    }
    Ok(table)
}
