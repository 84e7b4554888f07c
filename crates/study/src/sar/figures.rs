//! Figures 3 to 6: times and idle times over the file's size.

use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Align, Mean, Table, mean};

use super::trials::{Method, SizeTrials, Trials};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};

const OURS: [Method; 5] = [Method::A, Method::B, Method::Sar, Method::Plain, Method::Latched];
/// The two kinds of SAR that are judged.
const JUDGED: [Method; 2] = [Method::Sar, Method::Plain];
/// The bounds hold for the paper's files. With smaller files than this, in MB, constant costs weigh
/// more.
const FULL: f64 = 100.0;
/// The allowance for opening connections with small files, in seconds.
const OPENING: f64 = 0.1;
/// The time of the last 64 kB of a path at 2 Mbit/s, in seconds: that amount is not moved any more.
const LAST: f64 = 0.27;

/// A hint for slow transfers: the emulator checks only its own timing.
const BUSY: &str = "programs that wait for a processor leave paths idle: an idle machine, or chrt \
                    --rr 1, may tell";

/// How far a saving may be from the paper's, as a share of all time or of the saving: the paper
/// gives neither its delays and queues nor intervals.
const SAVED: Tolerance = Tolerance { relative: 0.1, absolute: 0.02, intervals: false };

/// Why SAR saves more of B's time than in the paper.
const STEADY: &str = "emulated paths are steadier than the paper’s switch: B’s last block on the \
                      third path nearly always falls into its slow period";

/// Why savings at a tenth of the scale are not the paper's.
const SHORT: &str = "opening connections takes a tenth of so short a transfer; try --scale 1";

/// Why small files leave paths idle.
const SHORT_IDLE: &str = "the last 64 kB of a path, which are not moved any more, take a part of \
                          so short a transfer; try --scale 1";

/// Figures 3 and 5: transfer times, and the share of them that SAR saves.
pub(super) fn times(lab: &Lab<'_>, case: &'static str) -> Result<Outcome, StudyError> {
    let trials = Trials::of(lab, case)?;
    let found = trials.found();
    let mut times =
        Panel::new(size_axis(), Axis::new("time", "s").from(0.0)).title("Overall transfer time");
    for method in Method::ALL {
        times = times.series(
            Series::means(method.name(), trials.over_sizes(|trial| trial.times(method))).joined(),
        );
    }
    let fluid = |of| from_nothing(&trials, of);
    let times = times
        .series(Series::line("A if paths were fluids", fluid(|trial| trial.fluid.a)).reference())
        .series(Series::line("the ideal", fluid(|trial| trial.fluid.ideal)).reference());
    let shares = [(Method::A, found.saved_against_a), (Method::B, found.saved_against_b)].map(
        |(against, paper)| {
            let percents = trials.over_sizes(|trial| {
                trial.saved(Method::Sar, against).iter().map(|share| share * 100.0).collect()
            });
            (against.name(), percents, paper)
        },
    );
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
    let closed_form = trials.overall(|trial| relative(trial, Method::A, trial.fluid.a));
    let ideal = trials.overall(|trial| trial.of_ideal(Method::Sar));
    let mut verdict = Verdict::new([
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
    ]);
    let findings = [(Method::A, found.saved_against_a), (Method::B, found.saved_against_b)];
    let is_short = small(&trials, OPENING) > 0.0;
    for by in JUDGED {
        for (against, paper) in findings {
            let Some(paper) = paper else { continue };
            let row = Row::new(
                format!("{} saves of {}’s time", by.name(), against.name()),
                "",
                "paper",
                Expected::Value(paper),
                SAVED,
                trials.overall(|trial| trial.saved(by, against)),
            );
            verdict.row(match against {
                _ if is_short => row.because(SHORT),
                Method::B => row.because(STEADY),
                _ => row,
            });
        }
    }
    let plot = plot::Figure::new(title("Overall transfer time", case)).panel(times).panel(saved);
    Ok(outcome(&trials, verdict, plot, times_table(&trials)))
}

/// Figures 4 and 6: the time between the end of the first path and the end of the last.
pub(super) fn idle(lab: &Lab<'_>, case: &'static str) -> Result<Outcome, StudyError> {
    let trials = Trials::of(lab, case)?;
    let found = trials.found();
    let mut idle =
        Panel::new(size_axis(), Axis::new("idle time", "s").from(0.0)).title("Idle time");
    let mut ratio = Panel::new(size_axis(), Axis::new("idle", "%").from(0.0))
        .title("Idle time over transfer time");
    for method in OURS {
        idle = idle.series(
            Series::means(method.name(), trials.over_sizes(|trial| trial.idle(method))).joined(),
        );
        let percents = trials.over_sizes(|trial| {
            trial.idle_ratio(method).iter().map(|share| share * 100.0).collect()
        });
        ratio = ratio.series(Series::means(method.name(), percents).joined());
    }
    let idle = idle.series(
        Series::line("A if paths were fluids", from_nothing(&trials, |trial| trial.fluid.idle_a))
            .reference(),
    );
    for (method, paper) in [(Method::A, found.idle_a), (Method::B, found.idle_b)] {
        if let Some(paper) = paper {
            ratio = ratio.series(Series::level(format!("paper, {}", method.name()), paper * 100.0));
        }
    }
    let ratio_of = |method| trials.overall(|trial| trial.idle_ratio(method));
    let mut verdict = Verdict::new([Row::new(
        "idle under A, of its time",
        "",
        "fluid",
        Expected::Value(found.idle_fluid),
        Tolerance::absolute(0.02),
        ratio_of(Method::A),
    )
    .because(BUSY)]);
    for (method, paper) in [(Method::A, found.idle_a), (Method::B, found.idle_b)] {
        let Some(paper) = paper else { continue };
        let what = format!("idle under {}, of its time", method.name());
        let (expected, near) = (Expected::Value(paper), Tolerance::absolute(0.02));
        let row = Row::new(what, "", "paper", expected, near, ratio_of(method));
        verdict.row(if small(&trials, LAST) > 0.0 { row.because(SHORT) } else { row });
    }
    for (method, as_what) in [(Method::Sar, ""), (Method::Latched, ", as the paper has it")] {
        let what = format!("idle under {}{as_what}, of its time", method.name());
        let least = Expected::AtMost(0.01);
        let row = Row::new(what, "", "paper", least, Tolerance::NONE, ratio_of(method));
        verdict.row(row.because(if small(&trials, LAST) > 0.0 { SHORT_IDLE } else { BUSY }));
    }
    let plot = plot::Figure::new(title("Idle time", case)).panel(idle).panel(ratio);
    Ok(outcome(&trials, verdict, plot, idle_table(&trials)))
}

/// `seconds` over the ideal time of the smallest file, if that is smaller than the paper's files;
/// otherwise zero.
fn small(trials: &Trials, seconds: f64) -> f64 {
    let share = |trial: &SizeTrials| {
        if trial.megabytes() < FULL { seconds / trial.fluid.ideal } else { 0.0 }
    };
    trials.sizes.iter().map(share).fold(0.0, f64::max)
}

/// A value of the fluid model over the size, with a point at zero.
fn from_nothing(trials: &Trials, of: fn(&SizeTrials) -> f64) -> Vec<(f64, f64)> {
    let known = trials.sizes.iter().map(|trial| (trial.megabytes(), of(trial)));
    [(0.0, 0.0)].into_iter().chain(known).collect()
}

fn relative(trial: &SizeTrials, method: Method, to: f64) -> Vec<f64> {
    trial.times(method).iter().map(|time| time / to).collect()
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
    let mut notes = vec![
        "SAR is the program’s default, in which idle paths also steal data that others have not \
         sent and copy what would arrive late. SAR plain moves data by the paper’s plans alone. \
         SAR latched is plain and, as the paper has it, never adjusts again once all paths would \
         finish together. The ideal of all of them, and of MPTCP, is at 1448 of 1500 bytes."
            .to_owned(),
    ];
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

/// Times, and the shares that SAR saves.
fn times_table(trials: &Trials) -> Table {
    let shares = ["ideal/SAR", "ideal/MPTCP", "saved of A", "saved of B"];
    let names = Method::ALL.map(Method::name);
    let titles: Vec<&str> = ["ideal"].into_iter().chain(names).chain(shares).collect();
    let mut table = table(&titles);
    let found = trials.found();
    let none = String::new;
    // The row's name and the size, the ideal, a time for each method, and two shares of the ideal.
    let mut paper = vec!["paper".to_owned()];
    paper.resize_with(3 + Method::ALL.len() + 2, none);
    paper.extend([percent(found.saved_against_a), percent(found.saved_against_b)]);
    table.row(paper);
    for trial in &trials.sizes {
        let fluid = trial.fluid;
        let (ideal, a) = (format!("{:.2} s", fluid.ideal), format!("{:.2} s", fluid.a));
        let saved = percent(Some(fluid.saved));
        let mut cells = vec!["fluid".to_owned(), size(trial), ideal, a];
        cells.resize_with(3 + Method::ALL.len() + 2, none);
        cells.push(saved);
        table.row(cells);
        let mut cells = vec!["measured".to_owned(), size(trial), String::new()];
        cells.extend(Method::ALL.map(|method| seconds(&trial.times(method))));
        cells.extend([Method::Sar, Method::Mptcp].map(|by| {
            mean(&trial.of_ideal(by)).map_or_else(String::new, |mean| format!("{mean:.3}"))
        }));
        cells.extend(
            [Method::A, Method::B].map(|against| percents(&trial.saved(Method::Sar, against))),
        );
        table.row(cells);
    }
    table
}

/// Idle times, and their share of all time.
fn idle_table(trials: &Trials) -> Table {
    let shares = OURS.map(|method| format!("{}, of its time", method.name()));
    let titles: Vec<&str> =
        OURS.iter().map(|method| method.name()).chain(shares.iter().map(String::as_str)).collect();
    let mut table = table(&titles);
    let found = trials.found();
    let none = String::new;
    let mut paper = vec!["paper".to_owned()];
    // The row's name and the size, and a time for each method.
    paper.resize_with(2 + OURS.len(), none);
    paper.extend([percent(found.idle_a), percent(found.idle_b), "near 0".to_owned()]);
    table.row(paper);
    for trial in &trials.sizes {
        let fluid = trial.fluid;
        let mut cells = vec!["fluid".to_owned(), size(trial), format!("{:.2} s", fluid.idle_a)];
        cells.resize_with(2 + OURS.len(), none);
        cells.push(percent(Some(found.idle_fluid)));
        table.row(cells);
        let mut cells = vec!["measured".to_owned(), size(trial)];
        cells.extend(OURS.map(|method| seconds(&trial.idle(method))));
        cells.extend(OURS.map(|method| percents(&trial.idle_ratio(method))));
        table.row(cells);
    }
    table
}

fn table(titles: &[&str]) -> Table {
    let first = [("", Align::Left), ("file", Align::Right)];
    Table::new(first.into_iter().chain(titles.iter().map(|title| (*title, Align::Right))))
}

fn size(trial: &SizeTrials) -> String {
    format!("{:.2} MB", trial.megabytes())
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
