//! Figures 3 to 6: times and idle times over the file's size.

use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Align, Mean, Table, mean};

use super::trials::{By, SizeTrials, Trials};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};

const OURS: [By; 3] = [By::A, By::B, By::Sar];
/// Bounds are those of the paper's files. Of smaller ones than this, in MB, what takes the same
/// time whatever the size weighs more.
const FULL: f64 = 100.0;
/// What opening the connections may cost of them beyond what the closed forms leave room for, in
/// seconds.
const OPENING: f64 = 0.1;
/// How long the last 64 kB of a path take at 2 Mbit/s: so much is no longer moved.
const LAST: f64 = 0.27;

/// Why a transfer may be slower than it should: the emulator checks itself only.
const BUSY: &str = "programs that wait for a processor leave paths idle: an idle machine, or chrt \
                    --rr 1, may tell";

/// What is wanted of a case: the least that SAR saves of A's time and of B's. What the paper saves,
/// less what its files of 101.5 MB and a real TCP leave uncertain.
fn wanted(case: &str) -> (f64, f64) {
    if case == "case1" { (0.10, 0.05) } else { (0.44, 0.30) }
}

/// Figures 3 and 5: transfer times, and the share of them that SAR saves.
pub(super) fn times(lab: &Lab<'_>, case: &'static str) -> Result<Outcome, StudyError> {
    let trials = Trials::of(lab, case)?;
    let found = trials.found();
    let mut times =
        Panel::new(size_axis(), Axis::new("time", "s").from(0.0)).title("Overall transfer time");
    for by in By::ALL {
        times = times
            .series(Series::means(by.name(), trials.over_sizes(|sized| sized.times(by))).joined());
    }
    let fluid = |of| from_nothing(&trials, of);
    let times = times
        .series(Series::line("A if paths were fluids", fluid(|sized| sized.fluid.a)).reference())
        .series(Series::line("the ideal", fluid(|sized| sized.fluid.ideal)).reference());
    let shares =
        [(By::A, found.saved_against_a), (By::B, found.saved_against_b)].map(|(against, paper)| {
            let percents = trials.over_sizes(|sized| {
                sized.saved(against).iter().map(|share| share * 100.0).collect()
            });
            (against.name(), percents, paper)
        });
    let is_slower =
        shares.iter().flat_map(|(_, percents, _)| percents).any(|(_, mean)| mean.value < 0.0);
    let axis = Axis::new("saved", "%");
    let axis = if is_slower { axis } else { axis.from(0.0) };
    let mut saved = Panel::new(size_axis(), axis).title("Share of the time that SAR saves");
    for (against, percents, paper) in shares {
        saved = saved.series(Series::means(format!("against {against}"), percents).joined());
        if let Some(paper) = paper {
            saved = saved.series(Series::level(format!("paper, against {against}"), paper * 100.0));
        }
    }
    let (of_a, of_b) = wanted(case);
    let closed_form = trials.overall(|sized| relative(sized, By::A, sized.fluid.a));
    let ideal = trials.overall(|sized| {
        sized.times(By::Sar).iter().map(|time| sized.fluid.ideal / time).collect()
    });
    let saved_of = |against| trials.overall(|sized| sized.saved(against));
    let verdict = Verdict::new([
        Row::new(
            "A's time over its closed form",
            "",
            "fluid",
            Expected::Value(1.0),
            Tolerance { relative: 0.02, ..Tolerance::absolute(small(&trials, OPENING)) },
            closed_form,
        )
        .because(BUSY),
        Row::new(
            "ideal over SAR's time",
            "",
            "fluid",
            Expected::AtLeast(0.95),
            Tolerance::absolute(small(&trials, OPENING)),
            ideal,
        )
        .because(BUSY),
        Row::new(
            "SAR saves of A's time",
            "",
            "paper",
            Expected::AtLeast(of_a),
            Tolerance::NONE,
            saved_of(By::A),
        ),
        Row::new(
            "SAR saves of B's time",
            "",
            "paper",
            Expected::AtLeast(of_b),
            Tolerance::NONE,
            saved_of(By::B),
        ),
    ]);
    let plot = plot::Figure::new(title("Overall transfer time", case)).panel(times).panel(saved);
    Ok(outcome(&trials, verdict, plot, times_table(&trials)))
}

/// Figures 4 and 6: how long the first path to finish waits for the last.
pub(super) fn idle(lab: &Lab<'_>, case: &'static str) -> Result<Outcome, StudyError> {
    let trials = Trials::of(lab, case)?;
    let found = trials.found();
    let mut idle =
        Panel::new(size_axis(), Axis::new("idle time", "s").from(0.0)).title("Idle time");
    let mut ratio = Panel::new(size_axis(), Axis::new("idle", "%").from(0.0))
        .title("Idle time over transfer time");
    for by in OURS {
        idle = idle
            .series(Series::means(by.name(), trials.over_sizes(|sized| sized.idle(by))).joined());
        let percents = trials
            .over_sizes(|sized| sized.idle_ratio(by).iter().map(|share| share * 100.0).collect());
        ratio = ratio.series(Series::means(by.name(), percents).joined());
    }
    let idle = idle.series(
        Series::line("A if paths were fluids", from_nothing(&trials, |sized| sized.fluid.idle_a))
            .reference(),
    );
    for (by, paper) in [(By::A, found.idle_a), (By::B, found.idle_b)] {
        if let Some(paper) = paper {
            ratio = ratio.series(Series::level(format!("paper, {}", by.name()), paper * 100.0));
        }
    }
    let ratio_of = |by| trials.overall(|sized| sized.idle_ratio(by));
    let verdict = Verdict::new([
        Row::new(
            "idle under A, of its time",
            "",
            "fluid",
            Expected::Value(found.idle_fluid),
            Tolerance::absolute(0.02),
            ratio_of(By::A),
        )
        .because(BUSY),
        Row::new(
            "idle under SAR, of its time",
            "",
            "paper",
            Expected::AtMost(0.01),
            Tolerance::absolute(small(&trials, LAST)),
            ratio_of(By::Sar),
        )
        .because(BUSY),
    ]);
    let plot = plot::Figure::new(title("Idle time", case)).panel(idle).panel(ratio);
    Ok(outcome(&trials, verdict, plot, idle_table(&trials)))
}

/// The share that so many seconds are of the smallest file's ideal, if it is smaller than the
/// paper's.
fn small(trials: &Trials, seconds: f64) -> f64 {
    let share = |sized: &SizeTrials| {
        if sized.megabytes() < FULL { seconds / sized.fluid.ideal } else { 0.0 }
    };
    trials.sizes.iter().map(share).fold(0.0, f64::max)
}

/// Of fluids, whose times grow with the file.
fn from_nothing(trials: &Trials, of: fn(&SizeTrials) -> f64) -> Vec<(f64, f64)> {
    let known = trials.sizes.iter().map(|sized| (sized.megabytes(), of(sized)));
    [(0.0, 0.0)].into_iter().chain(known).collect()
}

fn relative(sized: &SizeTrials, by: By, to: f64) -> Vec<f64> {
    sized.times(by).iter().map(|time| time / to).collect()
}

fn size_axis() -> Axis {
    Axis::new("file", "MB").from(0.0)
}

fn title(what: &str, case: &str) -> String {
    format!("{what} in case {}", case.trim_start_matches("case"))
}

fn outcome(trials: &Trials, verdict: Verdict, plot: plot::Figure, table: Table) -> Outcome {
    let runs = trials.runs();
    let caption = format!(
        "Means of {runs} transfers each{}. Fluids have no headers but those of TCP and IP, no \
         handshakes and no slow start.",
        if runs > 1 { " with 95 % confidence intervals" } else { "" }
    );
    let mut notes = Vec::new();
    if let Some(why) = &trials.no_mptcp {
        notes.push(format!("Without the kernel’s Multipath TCP: {why}."));
    }
    Outcome {
        verdict,
        tables: vec![(table, "paper: means over its files of 101.5 to 913 MB".to_owned())],
        pictures: vec![Picture { suffix: "", plot, caption }],
        notes,
        data: trials.data(),
    }
}

/// Times, and what SAR saves.
fn times_table(trials: &Trials) -> Table {
    let titles = ["ideal", "A", "B", "SAR", "MPTCP", "ideal/SAR", "saved of A", "saved of B"];
    let mut table = table(&titles);
    let found = trials.found();
    let mut paper = vec!["paper".to_owned(); 1];
    paper.extend(["", "", "", "", "", ""].map(str::to_owned));
    paper.extend([String::new(), percent(found.saved_against_a), percent(found.saved_against_b)]);
    table.row(paper);
    for sized in &trials.sizes {
        let fluid = sized.fluid;
        let (ideal, a) = (format!("{:.2} s", fluid.ideal), format!("{:.2} s", fluid.a));
        let saved = percent(Some(fluid.saved));
        table.row([
            "fluid".into(),
            size(sized),
            ideal,
            a,
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            saved,
        ]);
        let mut cells = vec!["measured".to_owned(), size(sized), String::new()];
        cells.extend(By::ALL.map(|by| seconds(&sized.times(by))));
        let ratio: Vec<f64> = sized.times(By::Sar).iter().map(|time| fluid.ideal / time).collect();
        cells.push(mean(&ratio).map_or_else(String::new, |mean| format!("{mean:.3}")));
        cells.extend([By::A, By::B].map(|against| percents(&sized.saved(against))));
        table.row(cells);
    }
    table
}

/// Idle times, and their share of all time.
fn idle_table(trials: &Trials) -> Table {
    let mut table =
        table(&["A", "B", "SAR", "A, of its time", "B, of its time", "SAR, of its time"]);
    let found = trials.found();
    let none = String::new;
    let near_nothing = "near 0".to_owned();
    table.row([
        "paper".into(),
        none(),
        none(),
        none(),
        none(),
        percent(found.idle_a),
        percent(found.idle_b),
        near_nothing,
    ]);
    for sized in &trials.sizes {
        let fluid = sized.fluid;
        let idle = format!("{:.2} s", fluid.idle_a);
        table.row([
            "fluid".into(),
            size(sized),
            idle,
            none(),
            none(),
            percent(Some(found.idle_fluid)),
        ]);
        let mut cells = vec!["measured".to_owned(), size(sized)];
        cells.extend(OURS.map(|by| seconds(&sized.idle(by))));
        cells.extend(OURS.map(|by| percents(&sized.idle_ratio(by))));
        table.row(cells);
    }
    table
}

fn table(titles: &[&str]) -> Table {
    let first = [("", Align::Left), ("file", Align::Right)];
    Table::new(first.into_iter().chain(titles.iter().map(|title| (*title, Align::Right))))
}

fn size(sized: &SizeTrials) -> String {
    format!("{:.2} MB", sized.megabytes())
}

fn seconds(values: &[f64]) -> String {
    mean(values).map_or_else(String::new, |mean| format!("{mean:.2} s"))
}

fn percents(values: &[f64]) -> String {
    let scaled = |mean: Mean| Mean {
        value: mean.value * 100.0,
        half_width: mean.half_width.map(|half| half * 100.0),
        ..mean
    };
    mean(values).map_or_else(String::new, |mean| format!("{:.1} %", scaled(mean)))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{:.1} %", share * 100.0))
}
