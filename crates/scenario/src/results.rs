//! The results of a sweep: stored run by run, then written as a summary for people and as a tidy
//! table for programs.

mod copy;
mod key;
mod lock;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use report::tidy::{Key, Kind, Measure as Column, Schema, TidyError, Value, Writer};
use report::{Align, Table, WriteError};
use thiserror::Error;

use crate::file::{Document, Setting};
use crate::measures::{MEASURES, Measure, Measures};
use crate::sweep::Plan;
use lock::FolderLock;

/// An error in storing results, to be fixed by the user who chose the folder.
#[derive(Debug, Error)]
pub enum ResultsError {
    /// The folder holds something else.
    #[error(
        "{} holds the results of another scenario, or of other settings: choose another folder, or \
         start afresh with --restart",
        .0.display()
    )]
    Other(PathBuf),
    /// The folder holds results of the same program in another build.
    #[error(
        "{} holds results of another build of the program, which may differ: choose another \
         folder, or start afresh with --restart",
        .0.display()
    )]
    OtherBuild(PathBuf),
    /// Another process writes into the folder.
    #[error(
        "{} is in use by another simulation: wait until it has ended, or choose another folder",
        .0.display()
    )]
    InUse(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The folder cannot be made or emptied.
    #[error("cannot make the folder {}: {source}", path.display())]
    Folder {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A table cannot be written.
    #[error(transparent)]
    Tidy(#[from] TidyError),
}

/// A folder with a file for each finished run, so that an interrupted sweep can be resumed. A run
/// is known by what it depends on: the content of the scenario and of the files that it names, its
/// seed, and the build of the program. One process at a time has the folder. `scenario.toml` there
/// is a copy that runs by itself, with the files that it names and the values that were set.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    /// By job.
    keys: Vec<String>,
    _lock: FolderLock,
}

impl Store {
    /// Opens or makes a folder for the runs of a plan. `restart` deletes the runs that it has.
    ///
    /// # Errors
    /// If it holds results and none of them is of this plan, another process has it, or it cannot
    /// be made.
    pub fn open(
        folder: &Path,
        document: &Document,
        plan: &Plan,
        settings: &[Setting],
        restart: bool,
    ) -> Result<Store, ResultsError> {
        let runs = folder.join("runs");
        let made = |source| ResultsError::Folder { path: runs.clone(), source };
        let program = || std::env::current_exe().unwrap_or_else(|_| "the program".into());
        let build =
            key::build().map_err(|source| ResultsError::Read { path: program(), source })?;
        std::fs::create_dir_all(&runs).map_err(made)?;
        let store = Store {
            folder: folder.to_owned(),
            keys: key::keys(plan, build),
            _lock: FolderLock::new(folder)?,
        };
        if restart {
            std::fs::remove_dir_all(&runs).map_err(made)?;
            std::fs::create_dir_all(&runs).map_err(made)?;
        }
        let marker = folder.join("scenario.toml");
        let said = format!("# By build {build}.");
        let has_runs = std::fs::read_dir(&runs).map_err(made)?.next().is_some();
        if has_runs && !store.keys.iter().any(|key| store.path(key).exists()) {
            let before = std::fs::read_to_string(&marker).unwrap_or_default();
            let is_same = before.lines().any(|line| line == said);
            let folder = folder.to_owned();
            return Err(if is_same {
                ResultsError::Other(folder)
            } else {
                ResultsError::OtherBuild(folder)
            });
        }
        let copies = copy::copies(document, settings);
        let version = env!("CARGO_PKG_VERSION");
        let text = format!("# Of {}, version {version}.\n{said}\n{}", document.file(), copies.text);
        if !copies.files.is_empty() {
            let files = folder.join("files");
            std::fs::create_dir_all(&files)
                .map_err(|source| ResultsError::Folder { path: files, source })?;
        }
        for (name, content) in copies.files {
            report::write(folder.join(name), content)?;
        }
        report::write(&marker, text)?;
        Ok(store)
    }

    /// The measures of the run with this number in the plan; `None` if there is no complete file.
    #[must_use]
    pub fn load(&self, job: usize) -> Option<Measures> {
        let text = std::fs::read_to_string(self.path(&self.keys[job])).ok()?;
        let mut lines = text.lines();
        (lines.next() == Some(&header(&self.keys[job]))).then_some(())?;
        let mut measures = Measures::default();
        lines.try_for_each(|line| parse(line, &mut measures))?;
        Some(measures)
    }

    /// Stores the measures of the run with this number in the plan.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, job: usize, measures: &Measures) -> Result<(), ResultsError> {
        let mut text = header(&self.keys[job]);
        text.push('\n');
        for measure in measures {
            let (scope, name, Measure { of, window, value, .. }) =
                (measure.scope(), measure.name(), measure);
            writeln!(text, "{scope}\t{of}\t{window}\t{name}\t{value}")
                .expect("memory takes all that is written");
        }
        Ok(report::write(self.path(&self.keys[job]), text)?)
    }

    /// Writes all measures as one tidy table, `measures.csv` or `measures.parquet`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_table(
        &self,
        plan: &Plan,
        results: &[Measures],
        extension: &str,
    ) -> Result<PathBuf, ResultsError> {
        let path = self.folder.join("measures").with_extension(extension);
        let mut writer = Writer::create(&path, schema(plan))?;
        for (keys, measure) in rows(plan, results) {
            writer.row(&keys, measure.name(), measure.value)?;
        }
        writer.finish()?;
        Ok(path)
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join("runs").join(key).with_extension("tsv")
    }
}

/// The parameters that a plan sweeps over, in the order of the file.
fn swept(plan: &Plan) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for setting in plan.jobs().iter().flat_map(|job| &job.point) {
        if !names.contains(&setting.key.as_str()) {
            names.push(&setting.key);
        }
    }
    names
}

/// The columns of the table of a plan's measures.
#[must_use]
pub fn schema(plan: &Plan) -> Schema {
    let swept =
        swept(plan).into_iter().map(|name| Key::new(name, Kind::Text, "", "a value of the sweep"));
    let own = [
        Key::new("seed", Kind::Integer, "", "the run's seed"),
        Key::new("window", Kind::Text, "", "the time over which it was measured"),
        Key::new("scope", Kind::Text, "", "flow, group of flows, link, or all"),
        Key::new("of", Kind::Text, "", "which flow, group, or direction of a link"),
    ];
    let columns = MEASURES.iter().map(|(name, unit, meaning)| Column::new(*name, *unit, *meaning));
    Schema::new(swept.chain(own), columns)
}

/// The rows of that table: every measure of every run, with the keys of [`schema`].
pub fn rows<'a>(
    plan: &'a Plan,
    results: impl IntoIterator<Item = &'a Measures>,
) -> impl Iterator<Item = (Vec<Value>, Measure<'a>)> {
    let names = swept(plan);
    plan.jobs().iter().zip(results).flat_map(move |(job, measures)| {
        let find = |name: &&str| job.point.iter().find(|setting| setting.key == **name);
        let point: Vec<Value> = names
            .iter()
            .map(|name| find(name).map_or(Value::Missing, |s| Value::from(s.value.as_str())))
            .collect();
        measures.iter().map(move |measure| {
            let mut keys = point.clone();
            keys.push(Value::Integer(job.seed.0.cast_signed()));
            keys.extend([measure.window, measure.scope(), measure.of].map(Value::from));
            (keys, measure)
        })
    })
}

/// The first line of the file of a run, which identifies the run.
fn header(key: &str) -> String {
    format!("# run {key}")
}

/// Adds the measure of a line; `None` if the line is not valid.
fn parse(line: &str, measures: &mut Measures) -> Option<()> {
    let mut parts = line.split('\t');
    let (scope, of, window, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    measures.put_named(scope, of, window, name, parts.next()?.parse().ok()?)
}

/// Links with a higher utilisation than this are shown in the summary.
const BUSY: f64 = 0.3;

/// The means of a sweep over the steady window, one row for each point, subject and measure.
/// Subjects are groups of flows, all flows together, and busy links.
#[must_use]
pub fn summary(plan: &Plan, results: &[Measures]) -> Table {
    type RowKey<'a> = (&'a str, &'a str, &'a str, &'a str);
    let mut table = Table::new([
        ("", Align::Left),
        ("of", Align::Left),
        ("measure", Align::Left),
        ("mean", Align::Right),
        ("95 %", Align::Right),
        ("unit", Align::Left),
    ]);
    let mut start = 0;
    while start < plan.jobs().len() {
        let point = &plan.jobs()[start].point;
        let runs = plan.jobs()[start..].iter().take_while(|job| job.point == *point).count();
        // Single flows are not shown: there may be thousands.
        let is_shown =
            |m: &Measure<'_>| !matches!(m.scope(), "flow" | "subflow") && m.window == "steady";
        let shown = || results[start..start + runs].iter().flatten().filter(is_shown);
        let is_load =
            |m: &Measure<'_>| m.value > BUSY && m.scope() == "link" && m.name() == "utilisation";
        let busy: BTreeSet<&str> = shown().filter(is_load).map(|m| m.of).collect();
        let mut samples: BTreeMap<usize, (RowKey<'_>, Vec<f64>)> = BTreeMap::new();
        let mut order: BTreeMap<RowKey<'_>, usize> = BTreeMap::new();
        for m in shown() {
            if m.scope() != "link" || m.name() != "throughput" && busy.contains(m.of) {
                let key = (m.scope(), m.of, m.name(), m.unit());
                let next = order.len();
                let number = *order.entry(key).or_insert(next);
                samples.entry(number).or_insert((key, Vec::new())).1.push(m.value);
            }
        }
        let label: Vec<String> =
            point.iter().map(|Setting { key, value }| format!("{key} = {value}")).collect();
        for (scope, of, name, unit, values) in
            samples.values().map(|((a, b, c, d), values)| (*a, *b, *c, *d, values))
        {
            let is_alone =
                scope == "all" && order.keys().filter(|key| key.0 == "group").count() == 2;
            if is_alone {
                continue;
            }
            let Some(mean) = report::mean(values) else { continue };
            let of = if scope == "all" { "all flows" } else { of };
            let width = mean
                .half_width
                .map_or_else(String::new, |half| format!("± {}", report::plot::number(half)));
            let cells = [
                label.join(", "),
                of.into(),
                name.into(),
                report::plot::number(mean.value),
                width,
                unit.into(),
            ];
            table.row(cells);
        }
        start += runs;
    }
    table
}
