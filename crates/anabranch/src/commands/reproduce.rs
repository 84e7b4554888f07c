//! `reproduce`: reproduces the figures of a paper or a theory, and compares them.

mod all;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use files::Error;
use report::verdict::Verdict;
use report::{Align, Table};
use study::{Context, Estimate, Experiment, Figure, Folder, STUDIES, Sizes, Study, StudyError};
use units::Bytes;

use super::simulate::{progress, show, threads};
use crate::exit::Failure;
use crate::scratch::Scratch;
use crate::signals::Signals;
use crate::testbed::{Namespaces, Stop};
use crate::threads;

/// The word for all papers, one after the other.
const ALL: &str = "all";
/// The exit code if a row differs; see [`EXIT_CODES`](crate::exit::EXIT_CODES).
const DIFFERS: u8 = 1;

/// Arguments of `reproduce`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReproduceArgs {
    /// The paper, theory, or all [default: list all papers and figures]
    paper: Option<String>,
    /// The figures [default: all]
    figure: Vec<String>,
    /// The folder for plots, tables, scenario files and a page [default: none is kept]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// The number of seeds to run, or of repetitions of real transfers, instead of the number in
    /// the files
    #[arg(
        long,
        visible_alias = "runs",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    seeds: Option<u32>,
    /// The number of runs at the same time [default: one for each processor; for real programs,
    /// one for two processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// A folder with edited files PAPER/FILE.toml, as written by --out; files that it lacks are the
    /// built-in ones
    #[arg(long, value_name = "FOLDER")]
    papers: Option<PathBuf>,
    /// For real transfers: sizes of files and times of changes, as a share of the paper's [default:
    /// 0.1 for sar-rmtp, 0.2 for harp-live]
    #[arg(long, value_name = "SHARE", value_parser = scale)]
    scale: Option<f64>,
    /// For real transfers: the first or all of the paper's files, or sizes such as 101.5MB,304.3MB
    /// [default: first]
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    sizes: Option<Sizes>,
    /// For real programs: also count runs during which the machine was too busy to emulate the
    /// links on time, with a warning
    #[arg(long)]
    count_late: bool,
    /// For real transfers: name all paths to every sender; without this, those that measure the
    /// paths' rates find the paths too
    #[arg(long)]
    told: bool,
    /// As a trial: of live sources the first case alone, of gateways the first set of paths
    #[arg(long)]
    quick: bool,
}

/// `anabranch reproduce`.
///
/// # Errors
/// [`Error::usage`] if there is no such paper or figure, or an edited file is invalid;
/// [`Error::System`] if a file cannot be written; [`DIFFERS`] if something differs from the paper.
pub(crate) fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    let Some(paper) = &args.paper else {
        return Ok(show(list())?);
    };
    if paper == ALL {
        return all::run(args);
    }
    let study = study::find(paper).map_err(usage)?;
    let figures = chosen(study, &args.figure)?;
    let mut context = context(args, study);
    let stop = Arc::new(Stop::default());
    check(args, study)?;
    let key = key(args, study)?;
    if let Some(real) = study.real {
        // Each has two programs or more, and an emulator.
        context.jobs = args.jobs.map_or(threads(None).div_ceil(2), usize::from);
        context.experiment.testbed = Some(Arc::new(
            Namespaces::new(args.count_late, args.told, Arc::clone(&stop)).map_err(study_error)?,
        ));
        let estimate = (real.estimate)(&context, &figures).map_err(study_error)?;
        show(format_args!("{}\n\n", announcement(real.what, &estimate, context.jobs)))?;
        stop_on_signals(stop)?;
    }
    // Nothing is left where nobody asked for it.
    let scratch = match &args.out {
        Some(_) => None,
        None => Some(
            Scratch::private("reproduce")
                .map_err(|source| Error::system("make a temporary folder", source))?,
        ),
    };
    let path = scratch.as_ref().map(Scratch::path).or(args.out.as_deref());
    let path = path.expect("either is there");
    let mut folder = Folder::create(path, study, key).map_err(study_error)?;
    let mut all = Verdict::default();
    for figure in figures {
        show(format_args!("{}: {}\n\n", figure.name, figure.title))?;
        let bar = progress(0);
        let outcome = folder.make(&context, figure, &|done, total| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        });
        bar.finish_and_clear();
        let outcome = outcome.map_err(study_error)?;
        for (table, caption) in &outcome.tables {
            show(format_args!("{table}{caption}\n\n"))?;
        }
        show(format_args!("{}\n", outcome.verdict))?;
        for row in outcome.verdict.rows() {
            all.row(row.clone());
        }
    }
    let kept = match scratch {
        None => folder.index().display().to_string(),
        Some(_) => "--out FOLDER keeps plots, tables and a page".into(),
    };
    show(format_args!("{}: {kept}\n", all.summary()))?;
    if all.passes() { Ok(()) } else { Err(Failure::Code(DIFFERS)) }
}

/// The options, without a testbed.
fn context(args: &ReproduceArgs, study: &Study) -> Context {
    Context {
        papers: args.papers.clone(),
        seeds: args.seeds,
        jobs: threads(args.jobs),
        experiment: experiment(args, study),
    }
}

/// What the figures depend on.
fn key(args: &ReproduceArgs, study: &Study) -> Result<String, Failure> {
    let build = scenario::results::build();
    let build = build.map_err(|source| Error::system("read this program", source))?;
    study::key(study, &context(args, study), build, &[args.told, args.count_late])
        .map_err(study_error)
}

/// Refuses options that mean nothing for the study.
fn check(args: &ReproduceArgs, study: &Study) -> Result<(), Error> {
    let Some(real) = study.real else {
        let has_any = args.scale.is_some() || args.sizes.is_some() || args.told;
        if has_any || args.count_late || args.quick {
            let text = format!(
                "{} has no real transfers; --scale, --sizes, --count-late, --told and --quick do \
                 not apply",
                study.paper
            );
            return Err(Error::usage(text));
        }
        return Ok(());
    };
    let given = [
        ("--scale", args.scale.is_some(), real.scale.is_some(), "no sizes"),
        ("--sizes", args.sizes.is_some(), real.moves_files, "no files to transfer"),
        ("--told", args.told, real.moves_files, "no files to transfer"),
        ("--quick", args.quick, real.has_trial, "no cases to leave out"),
    ];
    match given.into_iter().find(|(_, is_given, applies, _)| *is_given && !applies) {
        Some((option, _, _, lacks)) => {
            Err(Error::usage(format!("{} has {lacks}; {option} does not apply", study.paper)))
        }
        None => Ok(()),
    }
}

/// The figures of these names, each once, in the paper's order.
fn chosen(study: &'static Study, names: &[String]) -> Result<Vec<&'static Figure>, Error> {
    for name in names {
        study.figure(name).map_err(usage)?;
    }
    let is_chosen =
        |figure: &&Figure| names.is_empty() || names.iter().any(|name| name == figure.name);
    Ok(study.figures.iter().filter(is_chosen).collect())
}

/// All papers and figures.
fn list() -> Table {
    let mut table =
        Table::new([("paper", Align::Left), ("figure", Align::Left), ("title", Align::Left)]);
    table.row([ALL, "", "Every paper, one after the other, and a page of all figures"]);
    for study in STUDIES {
        table.row([study.paper, "", study.title]);
        for figure in study.figures {
            table.row(["", figure.name, figure.title]);
        }
    }
    table
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn usage(error: study::Unknown) -> Error {
    Error::usage(error.to_string())
}

fn study_error(error: StudyError) -> Failure {
    let error = match error {
        // The usual message promises that data is kept, which is not so here.
        StudyError::Stopped(signal) => return Failure::Code(128 + signal),
        StudyError::Scenario(_) | StudyError::NoPapers(_) | StudyError::Lacks { .. } => {
            Error::usage(error.to_string())
        }
        StudyError::Testbed(_) => Error::system("run programs", io::Error::other(error)),
        error => Error::system("write the figures", io::Error::other(error)),
    };
    error.into()
}

fn experiment(args: &ReproduceArgs, study: &Study) -> Experiment {
    let default = Experiment::default();
    let usual = study.real.and_then(|real| real.scale).unwrap_or(default.scale);
    Experiment {
        testbed: None,
        scale: args.scale.unwrap_or(usual),
        sizes: args.sizes.clone().unwrap_or(default.sizes),
        quick: args.quick,
    }
}

/// The number of runs and the estimated time.
fn announcement(what: &str, estimate: &Estimate, jobs: usize) -> String {
    let Estimate { runs, seconds } = *estimate;
    let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
    let seconds = (seconds / f64::from(jobs)).ceil();
    let time = if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.0} min", (seconds / 60.0).ceil())
    };
    let together = if jobs > 1 { format!(", {jobs} at a time") } else { String::new() };
    let plural = if runs == 1 { "" } else { "s" };
    format!("{runs} {what}{plural}{together}: some {time}, and more if some have to be repeated")
}

/// Ends running transfers on a signal, so that none of their processes remain.
fn stop_on_signals(stop: Arc<Stop>) -> Result<(), Error> {
    let signal_error = |source| Error::system("handle signals", source);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(signal_error)?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let waiting = threads::spawn(move || {
        stop.ask(runtime.block_on(signals.next()));
    });
    waiting.map(drop).map_err(signal_error)
}

fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse::<f64>().ok().filter(|scale| (0.001..=100.0).contains(scale));
    scale.ok_or_else(|| {
        "a share of the paper's sizes is between 0.001 and 100, such as 0.1; 1 is the paper's"
            .into()
    })
}

fn sizes(text: &str) -> Result<Sizes, String> {
    match text {
        "first" => Ok(Sizes::First),
        "all" => Ok(Sizes::All),
        list => {
            let size = |text: &str| match text.trim().parse::<Bytes>() {
                Ok(Bytes::ZERO) => Err("a size must not be zero".to_owned()),
                Ok(size) => Ok(size),
                Err(error) => Err(error.to_string()),
            };
            list.split(',').map(size).collect::<Result<_, _>>().map(Sizes::These)
        }
    }
}
