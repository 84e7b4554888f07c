//! Scenario files with live sources, which have a simulation and a table of their own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use files::Error;
use link::config::reader::read_text;
use report::{Align, Table};
use scenario::relays::{FeedOutcome, FeedsFile, follow};
use scenario::threads::share;
use units::{Seed, Span};

use super::{SimulateArgs, progress, show, threads};

/// Sources are looked at this often.
const STEP: Span = Span::from_millis(100);

/// The file, if it has sources. Whatever else is wrong with it is for others to say.
pub(super) fn read(args: &SimulateArgs) -> Result<Option<FeedsFile>, Error> {
    let Some(text) = read_text(args.file()).ok().filter(|text| FeedsFile::is_one(text)) else {
        return Ok(None);
    };
    let views = [&args.out, &args.plot, &args.pcap, &args.trace];
    if !args.settings.is_empty() || args.show_network || views.iter().any(|view| view.is_some()) {
        return Err(Error::usage(
            "a scenario with sources takes --seeds, --jobs and --digests only: change values in \
             the file, and read the results from the table",
        ));
    }
    let file = FeedsFile::read(&text, &args.file().display().to_string());
    file.map(Some).map_err(|error| Error::usage(error.to_string()))
}

/// Runs all seeds, and prints the table.
pub(super) fn run(args: &SimulateArgs, file: &FeedsFile) -> Result<(), Error> {
    let runs = args.seeds.unwrap_or(file.runs);
    let bar = progress(usize::try_from(runs).unwrap_or(usize::MAX));
    let (next, done) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    share(threads(args.jobs), || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= runs {
                break;
            }
            let seed = Seed(file.seed.0.wrapping_add(u64::from(number)));
            let outcome = follow(&file.feeds, seed, STEP, |_, _| false);
            bar.inc(1);
            done.lock().expect("nobody panics while holding this").push((seed, outcome));
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().expect("all threads have ended");
    done.sort_by_key(|(seed, _)| seed.0);
    let mut outcomes = Vec::with_capacity(done.len());
    for (seed, outcome) in done {
        let outcome = outcome.map_err(|error| Error::usage(error.to_string()))?;
        if args.digests {
            let (digest, hops) = (outcome.digest, outcome.totals.hops);
            show(format_args!("{digest} seed {seed}, {hops} hops\n"))?;
        }
        outcomes.push(outcome);
    }
    show(format_args!("{}, {runs} runs: means, and the share of runs\n\n", file.name))?;
    show(table(file, &outcomes))
}

/// A row for each source: what it produced and what was received of it in the second half of the
/// run, and how it stood at the end.
fn table(file: &FeedsFile, outcomes: &[FeedOutcome]) -> Table {
    let mut table = Table::new([
        ("source", Align::Left),
        ("produced Mbit/s", Align::Right),
        ("received Mbit/s", Align::Right),
        ("draws", Align::Right),
        ("backlog kB", Align::Right),
        ("satisfied", Align::Right),
    ]);
    let half = file.feeds.duration / 2;
    for (source, name) in file.sources.iter().enumerate() {
        let mean = |value: &dyn Fn(&FeedOutcome) -> f64| {
            let (sum, count) = outcomes
                .iter()
                .fold((0.0, 0.0), |(sum, count), outcome| (sum + value(outcome), count + 1.0));
            sum / f64::max(count, 1.0)
        };
        let last = |outcome: &FeedOutcome| outcome.samples.last().map(|sample| sample[source]);
        let megabits = |rate: units::Rate| rate.as_f64() / 1e6;
        let end = |outcome: &FeedOutcome| STEP * outcome.samples.len() as u64;
        let draws = |outcome: &FeedOutcome| {
            let draws = last(outcome).map_or(0, |course| course.draws);
            f64::from(u32::try_from(draws).unwrap_or(u32::MAX))
        };
        table.row([
            name.clone(),
            format!(
                "{:.2}",
                mean(&|outcome| megabits(outcome.produced(source, half, end(outcome))))
            ),
            format!("{:.2}", mean(&|outcome| megabits(outcome.rate(source, half, end(outcome))))),
            format!("{:.1}", mean(&draws)),
            format!(
                "{:.0}",
                mean(&|outcome| last(outcome).map_or(0.0, |course| course.backlog.as_f64() / 1e3))
            ),
            format!(
                "{:.2}",
                mean(&|outcome| {
                    let satisfied = last(outcome).and_then(|course| course.satisfied);
                    if satisfied == Some(true) { 1.0 } else { 0.0 }
                })
            ),
        ]);
    }
    table
}
