//! Transfers across a network of 100 routers: figure 6(c).

use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Mean, Table, mean};
use scenario::{Run, RunOptions};
use units::Bytes;

use super::{JUDGED, WIRE, cell, ratios};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};

/// Transfers of this size and more are background.
const BULK: Bytes = Bytes(10_000_000);
/// The background transfers of a run.
const TRANSFERS: usize = 5;

/// A kind of transfers of a setting; a value for each run.
struct Kind {
    /// The mean of the transfers' throughputs, in bytes of the links, Mbit/s.
    throughput: Vec<f64>,
    /// The mean of their completion times, in seconds.
    completion: Vec<f64>,
    /// The transfers of all runs that are complete at the end.
    complete: usize,
}

impl Kind {
    fn new(runs: &[&Run], is_bulk: bool) -> Kind {
        let mut kind = Kind { throughput: Vec::new(), completion: Vec::new(), complete: 0 };
        for run in runs {
            let (mut rates, mut times) = (Vec::new(), Vec::new());
            for request in run.requests.iter().filter(|it| (it.bytes >= BULK) == is_bulk) {
                let seconds = request.completion();
                #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
                let bits = 8.0 * request.bytes.0 as f64;
                rates.push(WIRE * bits / seconds / 1e6);
                times.push(seconds);
            }
            let value = |of: &[f64]| mean(of).map_or(f64::NAN, |mean| mean.value);
            kind.throughput.push(value(&rates));
            kind.completion.push(value(&times));
            kind.complete += rates.len();
        }
        kind
    }
}

/// The transfers of both kinds in a setting.
struct Setting {
    label: String,
    /// Whether there is a foreground.
    is_beside: bool,
    runs: usize,
    background: Kind,
    foreground: Kind,
}

impl Setting {
    fn new(label: String, runs: &[&Run]) -> Setting {
        let [background, foreground] = [true, false].map(|is_bulk| Kind::new(runs, is_bulk));
        let is_beside = foreground.complete > 0;
        Setting { label, is_beside, runs: runs.len(), background, foreground }
    }
}

/// Why several paths are worse than one.
const DETOURS: &str = "detours share the one link of a stub domain, and cross others: packets wait \
                       for the slowest, and a loss on any has the host halve all. With BBR at the \
                       hosts .96 in the paper's profile and .90 in the modern one; with detours at \
                       most 1 % longer 1.00 and .95";

pub(super) fn across(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let both = lab.sweep(0, RunOptions::default())?;
    let background = lab.sweep(1, RunOptions::default())?;
    let foreground = lab.sweep(2, RunOptions::default())?;
    let mut settings = vec![Setting::new("none".into(), &foreground.runs(&[])?)];
    let reno = both.runs(&[("gateway", "off"), ("profile", JUDGED)])?;
    settings.push(Setting::new("Reno".into(), &reno));
    let mut verdict = Verdict::default();
    for profile in both.values("profile")? {
        let of = |gateway: &str, label: &str| {
            let runs = both.runs(&[("gateway", gateway), ("profile", &profile)])?;
            Ok::<_, StudyError>(Setting::new(format!("{profile}, {label}"), &runs))
        };
        let [single, multi] = [of("single*", "one path")?, of("multi*", "several")?];
        let without = &settings[0].foreground.throughput;
        let row = |what: &str, by: &str, expected, values: &[f64]| {
            let what = format!("{profile}, {what}");
            Row::new(what, "", by, expected, Tolerance::NONE, mean(values))
        };
        let throughput = row(
            "background’s throughput, several paths over one",
            "the paper: more spare capacity",
            Expected::AtLeast(1.05),
            &ratios(&multi.background.throughput, &single.background.throughput),
        );
        let time = row(
            "background’s time, several paths over one",
            "the paper: sooner",
            Expected::AtMost(1.0),
            &ratios(&multi.background.completion, &single.background.completion),
        );
        verdict.row(throughput.because(DETOURS));
        verdict.row(time.because(DETOURS));
        verdict.row(row(
            "foreground’s throughput, of that alone",
            "the paper: little impact",
            Expected::AtLeast(0.9),
            &ratios(&multi.foreground.throughput, without),
        ));
        // Little impact is less than that of Reno, beside which the foreground keeps most too.
        let beside_reno = &settings[1].foreground.throughput;
        let least = Expected::AtLeast(1.0);
        let ours = mean(&ratios(&multi.foreground.throughput, beside_reno));
        let what = format!("{profile}, foreground’s throughput, of that beside Reno");
        let by = "the paper: less impact than that of Reno";
        verdict.row(Row::new(what, "", by, least, Tolerance::NONE, ours).surely());
        settings.extend([single, multi]);
        for (gateway, label) in [("single*", "one path"), ("multi*", "several")] {
            let runs = background.runs(&[("gateway", gateway), ("profile", &profile)])?;
            settings.push(Setting::new(format!("{profile}, {label}"), &runs));
        }
    }
    Ok(Outcome {
        verdict,
        pictures: vec![picture(&settings)],
        tables: vec![(
            table(&settings),
            format!("Means of {} in each of three networks.", both.seeds()),
        )],
        notes: vec![
            "Rates of links are drawn from 10 to 100 Mbit/s. A stub domain has one link to the \
             others, so that nearly all paths by relays at most half as long again go over the \
             links of the direct one."
                .into(),
        ],
        data: both.data(),
    })
}

fn table(settings: &[Setting]) -> Table {
    let measures = [
        "background (Mbit/s)",
        "time (s)",
        "complete",
        "foreground (Mbit/s)",
        "foreground’s time (s)",
    ];
    let mut table = super::headed(&["background", "beside"], &measures);
    for Setting { label, is_beside, runs, background, foreground } in settings {
        let shown = |values: &[f64], kind: &Kind| match kind.complete {
            0 => String::new(),
            _ => cell(values),
        };
        let complete = match background.complete {
            0 => String::new(),
            complete => format!("{complete} of {}", TRANSFERS * runs),
        };
        table.row([
            label.clone(),
            if *is_beside { "foreground" } else { "nothing" }.to_owned(),
            shown(&background.throughput, background),
            shown(&background.completion, background),
            complete,
            shown(&foreground.throughput, foreground),
            shown(&foreground.completion, foreground),
        ]);
    }
    table
}

/// A panel of the throughput of each kind of transfers, a category for each background.
fn picture(settings: &[Setting]) -> Picture {
    // Where there is no background, its throughput is no number.
    let finite = |of: &Kind| mean(&of.throughput).filter(|mean| mean.value.is_finite());
    let background = |it: &Setting| finite(&it.background);
    let foreground = |it: &Setting| finite(&it.foreground);
    let beside: Vec<&Setting> = settings.iter().filter(|it| it.is_beside).collect();
    let names: Vec<&str> = beside.iter().map(|it| it.label.as_str()).collect();
    let panel = |title: &str| {
        let x = Axis::categories("", names.iter().copied());
        let y = Axis::new("throughput of a transfer", "Mbit/s").from(0.0);
        Panel::new(x, y).title(title).height(240)
    };
    let means = |label: &str, of: &dyn Fn(&Setting) -> Option<Mean>, is_beside: bool| {
        let points = settings.iter().filter(|it| it.is_beside == is_beside).filter_map(|it| {
            let place = names.iter().position(|name| *name == it.label)?;
            #[expect(clippy::cast_precision_loss, reason = "a handful of categories")]
            Some((place as f64, of(it)?))
        });
        Series::means(label, points)
    };
    let upper = panel("Background")
        .series(means("beside the foreground", &background, true))
        .series(means("alone", &background, false));
    let lower = panel("Foreground").series(means("", &foreground, true));
    Picture {
        suffix: "",
        plot: plot::Figure::new("Transfers across a network").panel(upper).panel(lower),
        caption: "Means over the seeds and networks, with 95 % confidence intervals.".into(),
    }
}
