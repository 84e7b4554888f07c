//! `simulate`: runs a scenario file with all its values and seeds, on all processors.

mod feeds;
mod list;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::available_parallelism;

use files::Error;
use indicatif::{ProgressBar, ProgressStyle};
use report::plot::Figure;
use scenario::results::{ResultsError, Store, TableKind, summary};
use scenario::sweep::Plan;
use scenario::watch::{Capture, EventLog, figure};
use scenario::{Document, Measures, Registry, RunOptions, Scenario, ScenarioError, Setting};

/// Arguments of `simulate`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct SimulateArgs {
    /// The scenario file; --list shows the controllers and schedulers that it may name
    #[arg(required_unless_present = "list")]
    scenario: Option<PathBuf>,
    /// Change a value of the file: a parameter, or a path such as link.bottleneck.queue or
    /// flow.bulk.controller
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<Setting>,
    /// The number of seeds to run, instead of the file's `runs`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seeds: Option<u32>,
    /// The number of runs at the same time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Store every run in this folder, and write all measures as a tidy table; an interrupted sweep
    /// resumes from there
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Discard the contents of the --out folder
    #[arg(long, requires = "out")]
    restart: bool,
    /// The format of the table: csv, or parquet if the build has the feature
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "csv",
        value_parser = ["csv", "parquet"],
        requires = "out"
    )]
    format: String,
    /// The tables to write beside measures, separated by commas: requests, with a row for each
    /// completed request; delays, with the distribution of one-way delays, if the scenario measures
    /// them; flows, with the measures of each flow that arrives in the course of the run; and
    /// samples, with rates, windows, RTTs, queues and fairness over time
    #[arg(
        long,
        value_name = "TABLES",
        value_delimiter = ',',
        default_values = ["requests", "delays"],
        value_parser = TableKind::ALL.map(TableKind::name),
        requires = "out"
    )]
    tables: Vec<String>,
    /// Plot the first run over time: FILE.svg, or FILE.png or FILE.pdf if the build has the feature
    /// of this name
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Capture the packets of the first run's senders, for Wireshark
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write every event of the first run as CSV
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print the links of the first run, those of a topology included, and run nothing
    #[arg(long, conflicts_with_all = ["out", "plot", "pcap", "trace", "digests"])]
    show_network: bool,
    /// Print each run's digest, which is the same on every machine, and its hops (packets carried
    /// by links)
    #[arg(long)]
    digests: bool,
    /// List the controllers and packet schedulers that a scenario file may name, with their
    /// parameters, and the measures; run nothing
    #[arg(long, conflicts_with = "scenario")]
    list: bool,
}

impl SimulateArgs {
    fn file(&self) -> &Path {
        self.scenario.as_deref().expect("only --list goes without")
    }
}

impl SimulateArgs {
    /// The tables beside that of the measures.
    fn tables(&self) -> Vec<TableKind> {
        TableKind::ALL
            .into_iter()
            .filter(|table| self.tables.iter().any(|name| name == table.name()))
            .collect()
    }

    /// Whether a table is to be written.
    fn wants(&self, table: TableKind) -> bool {
        self.out.is_some() && self.tables().contains(&table)
    }
}

pub(super) fn setting(text: &str) -> Result<Setting, String> {
    Setting::parse(text)
        .ok_or_else(|| "expected KEY=VALUE, for example link.bottleneck.rate=50 Mbit/s".into())
}

/// `anabranch simulate`; `registry` has what the scenario file may name.
///
/// # Errors
/// [`Error::usage`] if the scenario is invalid; [`Error::System`] if a file cannot be written.
pub(crate) fn run(args: &SimulateArgs, registry: &Registry) -> Result<(), Error> {
    if args.list {
        return show(list::names(registry));
    }
    if let Some(sources) = feeds::read(args)? {
        return feeds::run(args, &sources);
    }
    let document = Document::load_with(args.file(), registry.clone())
        .map_err(|error| Error::usage(error.to_string()))?;
    let plan = Plan::new(&document, &args.settings, args.seeds)
        .map_err(|error| scenario_error(args, &error))?;
    if let Some(late) = plan.jobs().iter().find_map(|job| plan.scenario(job).late.as_ref()) {
        errln!("warning: {late}");
    }
    let first = plan.scenario(&plan.jobs()[0]);
    if args.show_network {
        show(first.network())?;
        if let Some(gateways) = first.gateway_paths() {
            show(format_args!("\n{gateways}"))?;
        }
        return Ok(());
    }
    check_views(args, first)?;
    let store = args
        .out
        .as_deref()
        .map(|folder| {
            let mut settings = args.settings.clone();
            settings.extend(
                args.seeds.map(|seeds| Setting { key: "runs".into(), value: seeds.to_string() }),
            );
            let tables = args.tables();
            Store::open(folder, &document, &plan, &settings, &tables, args.restart)
                .map_err(results_error)
        })
        .transpose()?;
    let results = sweep(args, &plan, store.as_ref())?;
    show(summary(&plan, &results))?;
    if let Some(store) = &store {
        let path = store.write_table(&plan, &results, &args.format).map_err(results_error)?;
        errln!(
            "{} measures of {} runs: {}",
            results.iter().map(Measures::len).sum::<usize>(),
            results.len(),
            path.display()
        );
        for (path, rows) in store.write_tables(&plan, &args.format).map_err(results_error)? {
            errln!("{rows} rows: {}", path.display());
        }
    }
    let first = &plan.jobs()[0];
    write_views(args, plan.scenario(first), first.seed)
}

/// Runs all that the store does not have; gives the measures of every run.
fn sweep(args: &SimulateArgs, plan: &Plan, store: Option<&Store>) -> Result<Vec<Measures>, Error> {
    let jobs = plan.jobs();
    let results: Vec<Option<Measures>> = (0..jobs.len())
        .map(|job| store.filter(|_| !args.digests).and_then(|store| store.load(job)))
        .collect();
    let known: Vec<bool> = results.iter().map(Option::is_some).collect();
    let done = known.iter().filter(|known| **known).count();
    if done > 0 {
        errln!("{done} of {} runs are there already", jobs.len());
    }
    let bar = progress(jobs.len());
    bar.set_position(done as u64);
    let threads = threads(args.jobs);
    let state = Mutex::new((results, None));
    let swept = plan.run(
        threads,
        RunOptions { series: args.wants(TableKind::Samples) },
        |number| !known[number],
        |number, run| {
            let mut state = state.lock().expect("nobody panics while holding this");
            let mut printed = Ok(());
            if args.digests {
                printed = show(format_args!(
                    "{} seed {}, {} hops\n",
                    run.digest, run.seed, run.totals.hops
                ));
            }
            bar.inc(1);
            let stored =
                store.map_or(Ok(()), |store| store.save(number, plan, &run).map_err(results_error));
            if let Err(error) = printed.and(stored) {
                // The first error counts; running jobs still complete.
                state.1.get_or_insert(error);
            }
            state.0[number] = Some(run.measures);
            state.1.is_none()
        },
    );
    bar.finish_and_clear();
    swept.map_err(|error| scenario_error(args, &error))?;
    let (results, failure) = state.into_inner().expect("all threads have ended");
    match failure {
        Some(error) => Err(error),
        None => Ok(results.into_iter().map(|run| run.expect("all runs are done")).collect()),
    }
}

/// Prints to standard output; a closed pipe, as with `| head`, is no failure.
pub(super) fn show(text: impl Display) -> Result<(), Error> {
    match write!(io::stdout().lock(), "{text}") {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::system("print the results", source))
        }
        _ => Ok(()),
    }
}

/// A progress bar for `runs` runs, hidden without a terminal.
pub(super) fn progress(runs: usize) -> ProgressBar {
    let bar = if io::stderr().is_terminal() {
        ProgressBar::new(runs as u64)
    } else {
        ProgressBar::hidden()
    };
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left")
        .expect("a template that is tested");
    bar.set_style(style);
    bar
}

/// The number of threads: `--jobs`, or the number of processors.
pub(super) fn threads(jobs: Option<u16>) -> usize {
    jobs.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from)
}

/// Checks the files that [`write_views`] is to write, and the format of the table: a mistake is
/// said now and not after hours of runs.
fn check_views(args: &SimulateArgs, scenario: &Scenario) -> Result<(), Error> {
    if args.format == "parquet" && !cfg!(feature = "parquet") {
        return Err(Error::usage(
            "--format parquet: this build writes no Parquet: compile it with `--features parquet`, \
             or use --format csv",
        ));
    }
    if let Some(path) = &args.plot {
        check_picture(path)?;
        scenario.check_series().map_err(|error| scenario_error(args, &error))?;
    }
    if args.wants(TableKind::Samples) {
        scenario.check_series().map_err(|error| scenario_error(args, &error))?;
    }
    [&args.plot, &args.pcap, &args.trace].into_iter().flatten().try_for_each(|path| {
        check_writable(path)
            .map_err(|source| Error::usage(format!("cannot write {}: {source}", path.display())))
    })
}

/// The pixels per inch of a PNG, unless they are given.
pub(super) const DPI: u16 = 192;

/// Checks that a picture can have this name.
pub(super) fn check_picture(path: &Path) -> Result<(), Error> {
    let missing = |format: &str, feature: &str| {
        Err(Error::usage(format!(
            "{}: this build draws no {format}: compile it with `--features {feature}`, or use \
             .svg",
            path.display()
        )))
    };
    match extension(path) {
        Some("svg") => Ok(()),
        Some("png") if cfg!(feature = "png") => Ok(()),
        Some("png") => missing("PNG", "png"),
        Some("pdf") if cfg!(feature = "pdf") => Ok(()),
        Some("pdf") => missing("PDF", "pdf"),
        _ => Err(Error::usage(format!(
            "{}: a plot's name ends in .svg, .png or .pdf",
            path.display()
        ))),
    }
}

/// The extension of a file's name.
pub(super) fn extension(path: &Path) -> Option<&str> {
    path.extension().and_then(|extension| extension.to_str())
}

/// Writes a picture whose name was checked. A PNG has `dpi` pixels per inch.
pub(super) fn write_picture(path: &Path, figure: &Figure, dpi: u16) -> Result<(), Error> {
    let content = match extension(path) {
        // A pixel of the SVG is 1/96 inch.
        Some("png") => figure.png(f32::from(dpi) / 96.0),
        Some("pdf") => figure.pdf(),
        _ => Ok(figure.svg().into_bytes()),
    };
    let content = content.map_err(|error| Error::usage(error.to_string()))?;
    report::write(path, content).map_err(|error| results_error(error.into()))
}

/// Checks that a file can be written, and leaves it as it is.
fn check_writable(path: &Path) -> io::Result<()> {
    let is_new = !path.try_exists()?;
    File::options().append(true).create(true).open(path)?;
    if is_new { std::fs::remove_file(path) } else { Ok(()) }
}

/// Writes the plot, capture and trace of the first run that the arguments request.
fn write_views(args: &SimulateArgs, scenario: &Scenario, seed: units::Seed) -> Result<(), Error> {
    let wrong = |error: ScenarioError| self::scenario_error(args, &error);
    if let Some(path) = &args.plot {
        let run = scenario.run(seed, RunOptions { series: true }).map_err(wrong)?;
        let series = run.series.expect("they were asked for");
        let figure = figure(scenario, &series, &format!("{}, seed {seed}", scenario.name));
        write_picture(path, &figure, DPI)?;
    }
    if let Some(path) = &args.pcap {
        let failed = |source| Error::system(format!("write {}", path.display()), source);
        let built = scenario.build(seed).map_err(|error| wrong(error.into()))?;
        let mut capture = Capture::new(create(path)?, &built).map_err(failed)?;
        scenario.run_traced(seed, RunOptions::default(), &mut capture).map_err(wrong)?;
        capture.finish().map_err(failed)?;
    }
    if let Some(path) = &args.trace {
        let failed = |source| Error::system(format!("write {}", path.display()), source);
        let built = scenario.build(seed).map_err(|error| wrong(error.into()))?;
        let mut log = EventLog::new(create(path)?, scenario, &built).map_err(failed)?;
        scenario.run_watched(seed, RunOptions::default(), &mut log).map_err(wrong)?;
        log.finish().map_err(failed)?;
    }
    Ok(())
}

fn create(path: &Path) -> Result<BufWriter<File>, Error> {
    let file = File::create(path);
    file.map(BufWriter::new)
        .map_err(|source| Error::system(format!("write {}", path.display()), source))
}

/// The error for a scenario that cannot run, with the file's name.
fn scenario_error(args: &SimulateArgs, error: &ScenarioError) -> Error {
    Error::usage(match error {
        ScenarioError::File(error) => error.to_string(),
        error => format!("{}: {error}", args.file().display()),
    })
}

fn results_error(error: ResultsError) -> Error {
    match error {
        ResultsError::Other(_) | ResultsError::OtherBuild(_) | ResultsError::InUse(_) => {
            Error::usage(error.to_string())
        }
        error => Error::system("keep the results", io::Error::other(error)),
    }
}
