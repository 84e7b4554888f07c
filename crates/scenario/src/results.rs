//! The results of a sweep: stored run by run, then written as a summary for people and as a tidy
//! table for programs.

mod copy;
mod key;
mod lock;
mod summary;
mod tables;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use report::WriteError;
use report::tidy::{Key, Kind, Measure as Column, Schema, TidyError, Value, Writer};
use thiserror::Error;

use crate::file::{Document, Setting};
use crate::measures::{MEASURES, Measure, Measures};
use crate::quantities::numbers;
use crate::run::Run;
use crate::sweep::{Job, Plan};
pub use key::build;
use lock::FolderLock;
pub use summary::{Summary, summary};
pub use tables::TableKind;

/// The column of the class of a request's size.
pub(crate) const SIZE_CLASS: &str = "size_class";
/// What it holds in rows that are of no class: a text, so that the column is of one type.
pub(crate) const ALL_SIZES: &str = "all";
/// The last line of the file of a run: a file without it was cut short.
const END: &str = "# end";

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
    /// What is stored of each run beside its measures.
    tables: Vec<TableKind>,
    _lock: FolderLock,
}

impl Store {
    /// Opens or makes a folder for the runs of a plan, with those of `tables` that the plan can
    /// have. `restart` deletes the runs that it has.
    ///
    /// # Errors
    /// If it holds results and none of them is of this plan, another process has it, or it cannot
    /// be made.
    pub fn open(
        folder: &Path,
        document: &Document,
        plan: &Plan,
        settings: &[Setting],
        tables: &[TableKind],
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
            tables: tables.iter().copied().filter(|table| table.is_of(plan)).collect(),
            _lock: FolderLock::new(folder)?,
        };
        if restart {
            std::fs::remove_dir_all(&runs).map_err(made)?;
            std::fs::create_dir_all(&runs).map_err(made)?;
        }
        let marker = folder.join("scenario.toml");
        let said = format!("# By build {build}.");
        let has_runs = std::fs::read_dir(&runs).map_err(made)?.next().is_some();
        if has_runs && !store.keys.iter().any(|key| store.path(key, "tsv").exists()) {
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

    /// The measures of the run with this number in the plan; `None` if there is no complete file of
    /// them, or of a table that is wanted.
    #[must_use]
    pub fn load(&self, job: usize) -> Option<Measures> {
        for table in &self.tables {
            let text = self.read(job, &extension(*table))?;
            lines(&text).try_for_each(|line| table.row(line).map(drop))?;
        }
        let text = self.read(job, "tsv")?;
        let mut measures = Measures::default();
        lines(&text).try_for_each(|line| parse(line, &mut measures))?;
        Some(measures)
    }

    /// A file of a run; `None` if it is not there, not whole, or of another run.
    fn read(&self, job: usize, extension: &str) -> Option<String> {
        let key = &self.keys[job];
        let text = std::fs::read_to_string(self.path(key, extension)).ok()?;
        let is_whole = text.strip_suffix('\n').is_some_and(|text| text.lines().last() == Some(END));
        (is_whole && text.lines().next() == Some(&header(key))).then_some(text)
    }

    /// Stores the run with this number in the plan: its tables, and last its measures.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, job: usize, plan: &Plan, run: &Run) -> Result<(), ResultsError> {
        let key = &self.keys[job];
        let scenario = plan.scenario(&plan.jobs()[job]);
        for table in &self.tables {
            let text = format!("{}\n{}{END}\n", header(key), table.lines(scenario, run));
            report::write(self.path(key, &extension(*table)), text)?;
        }
        let mut text = header(key);
        text.push('\n');
        for measure in &run.measures {
            let (scope, name, Measure { of, size_class, window, value, .. }) =
                (measure.scope(), measure.name(), measure);
            writeln!(text, "{scope}\t{of}\t{size_class}\t{window}\t{name}\t{value}")
                .expect("memory takes all that is written");
        }
        text.extend([END, "\n"]);
        Ok(report::write(self.path(key, "tsv"), text)?)
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
        let columns = RunColumns::new(plan, extension == PARQUET);
        let mut writer = Writer::create(&path, schema_with(&columns))?;
        for (keys, measure) in rows_with(columns, plan, results) {
            writer.row(&keys, measure.name(), measure.value)?;
        }
        writer.finish()?;
        Ok(path)
    }

    /// Writes the other tables, such as `requests.csv`. A table without rows is not written.
    /// Returns the number of rows of each.
    ///
    /// # Errors
    /// If one cannot be written, or a run of it was deleted meanwhile.
    pub fn write_tables(
        &self,
        plan: &Plan,
        extension: &str,
    ) -> Result<Vec<(PathBuf, u64)>, ResultsError> {
        let mut written = Vec::new();
        for table in &self.tables {
            let path = self.folder.join(table.name()).with_extension(extension);
            let columns = RunColumns::new(plan, extension == PARQUET);
            let mut writer = Writer::create(&path, table.schema(columns.keys()))?;
            let mut rows = 0;
            for (number, job) in plan.jobs().iter().enumerate() {
                let text = self.read(number, &self::extension(*table)).unwrap_or_default();
                let run = columns.values(job);
                for line in lines(&text) {
                    let Some((values, measure)) = table.row(line) else { continue };
                    let values: Vec<Value> = run.iter().cloned().chain(values).collect();
                    match measure {
                        Some((name, value)) => writer.row(&values, name, value)?,
                        None => writer.record(&values)?,
                    }
                    rows += 1;
                }
            }
            if rows > 0 {
                writer.finish()?;
                written.push((path, rows));
            }
        }
        Ok(written)
    }

    fn path(&self, key: &str, extension: &str) -> PathBuf {
        self.folder.join("runs").join(key).with_extension(extension)
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

/// The extension of the file of a run's part of a table.
fn extension(table: TableKind) -> String {
    format!("{}.tsv", table.name())
}

/// The format whose columns have types: there, swept quantities are numbers, which sort as such.
const PARQUET: &str = "parquet";

/// The columns that name a run.
struct RunColumns<'a> {
    swept: Vec<SweptColumn<'a>>,
}

/// A parameter of the sweep.
struct SweptColumn<'a> {
    name: &'a str,
    /// Its values as numbers in this unit, if they are to be, and are of one kind.
    unit: Option<&'static str>,
    numbers: HashMap<&'a str, f64>,
}

impl<'a> RunColumns<'a> {
    /// Those of the runs of a plan. `has_types`: quantities of one kind are numbers in one unit.
    fn new(plan: &'a Plan, has_types: bool) -> RunColumns<'a> {
        let column = |name| {
            let mut values: Vec<&str> = Vec::new();
            for setting in plan.jobs().iter().flat_map(|job| &job.point) {
                if setting.key == name && !values.contains(&setting.value.as_str()) {
                    values.push(&setting.value);
                }
            }
            let (unit, numbers) = match numbers(&values).filter(|_| has_types) {
                Some((unit, numbers)) => (Some(unit), values.into_iter().zip(numbers).collect()),
                None => (None, HashMap::new()),
            };
            SweptColumn { name, unit, numbers }
        };
        RunColumns { swept: swept(plan).into_iter().map(column).collect() }
    }

    fn keys(&self) -> impl Iterator<Item = Key> {
        let swept = self.swept.iter().map(|column| {
            let (kind, unit) = column.unit.map_or((Kind::Text, ""), |unit| (Kind::Real, unit));
            Key::new(column.name, kind, unit, "a value of the sweep")
        });
        swept.chain([Key::new("seed", Kind::Integer, "", "the run's seed")])
    }

    fn values(&self, job: &Job) -> Vec<Value> {
        let value = |column: &SweptColumn<'_>| {
            let setting = job.point.iter().find(|setting| setting.key == column.name);
            let Some(text) = setting.map(|setting| setting.value.as_str()) else {
                return Value::Missing;
            };
            let number = column.numbers.get(text);
            number.map_or_else(|| Value::from(text), |number| Value::from(*number))
        };
        let seed = Value::Integer(job.seed.0.cast_signed());
        self.swept.iter().map(value).chain([seed]).collect()
    }
}

/// The columns of the table of a plan's measures, with swept values as texts.
#[must_use]
pub fn schema(plan: &Plan) -> Schema {
    schema_with(&RunColumns::new(plan, false))
}

fn schema_with(run: &RunColumns<'_>) -> Schema {
    let own = [
        Key::new("window", Kind::Text, "", "the time over which it was measured"),
        Key::new(
            "scope",
            Kind::Text,
            "",
            "flow, subflow, group of flows, link, all, or class of sizes",
        ),
        Key::new("of", Kind::Text, "", "which flow, group, or direction of a link"),
        Key::new(SIZE_CLASS, Kind::Text, "", "of a class, the sizes of its requests; else all"),
    ];
    Schema::new(run.keys().chain(own), measure_columns())
}

/// The measures of a table that has them.
fn measure_columns() -> impl Iterator<Item = Column> {
    MEASURES.iter().map(|(name, unit, meaning)| Column::new(*name, *unit, *meaning))
}

/// The rows of that table: every measure of every run, with the keys of [`schema`].
pub fn rows<'a>(
    plan: &'a Plan,
    results: impl IntoIterator<Item = &'a Measures>,
) -> impl Iterator<Item = (Vec<Value>, Measure<'a>)> {
    rows_with(RunColumns::new(plan, false), plan, results)
}

fn rows_with<'a>(
    columns: RunColumns<'a>,
    plan: &'a Plan,
    results: impl IntoIterator<Item = &'a Measures>,
) -> impl Iterator<Item = (Vec<Value>, Measure<'a>)> {
    plan.jobs().iter().zip(results).flat_map(move |(job, measures)| {
        let run = columns.values(job);
        measures.iter().map(move |measure| {
            let mut keys = run.clone();
            let size_class = Some(measure.size_class).filter(|class| !class.is_empty());
            let size_class = size_class.unwrap_or(ALL_SIZES);
            let own = [measure.window, measure.scope(), measure.of, size_class];
            keys.extend(own.map(Value::from));
            (keys, measure)
        })
    })
}

/// The first line of the file of a run, which identifies the run.
fn header(key: &str) -> String {
    format!("# run {key}")
}

/// The rows of the file of a run.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip(1).take_while(|line| *line != END)
}

/// Adds the measure of a line; `None` if the line is not valid.
fn parse(line: &str, measures: &mut Measures) -> Option<()> {
    let mut parts = line.split('\t');
    let (scope, of) = (parts.next()?, (parts.next()?, parts.next()?));
    let (window, name) = (parts.next()?, parts.next()?);
    measures.put_named(scope, of, window, name, parts.next()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEPT: &str = "name = \"s\"\nduration = \"1 s\"\n[sweep]\n\"link.l.queue\" = [\"9 \
                         packets\", \"100 packets\"]\n\"flow.f.controller\" = [\"reno\", \
                         \"cubic\"]\n[[link]]\nname = \"l\"\nbetween = [\"a\", \"b\"]\nrate = \"1 \
                         Mbit/s\"\ndelay = \"1 ms\"\nqueue = \"9 packets\"\n[[flow]]\nname = \
                         \"f\"\nfrom = \"a\"\nto = \"b\"\ncontroller = \"reno\"\n";

    #[test]
    fn swept_quantities_are_numbers_where_columns_have_types() {
        let document = Document::new(SWEPT, "swept.toml").expect("nothing is wrong with it");
        let plan = Plan::new(&document, &[], None).expect("it runs");
        let rows = |has_types| -> Vec<Vec<Value>> {
            let columns = RunColumns::new(&plan, has_types);
            plan.jobs().iter().map(|job| columns.values(job)).collect()
        };
        let seed = Value::Integer(1);
        let texts =
            |queue, controller| vec![Value::from(controller), Value::from(queue), seed.clone()];
        assert_eq!(rows(false)[3], texts("100 packets", "cubic"));
        let typed = rows(true);
        assert_eq!(typed[3], vec![Value::from("cubic"), Value::Real(100.0), seed.clone()]);
        assert_eq!(typed[0], vec![Value::from("reno"), Value::Real(9.0), seed.clone()]);
        let keys: Vec<Key> = RunColumns::new(&plan, true).keys().take(2).collect();
        assert_eq!(
            keys[1],
            Key::new("link.l.queue", Kind::Real, "packets", "a value of the sweep")
        );
        assert_eq!(keys[0], Key::new("flow.f.controller", Kind::Text, "", "a value of the sweep"));
    }
}
