//! The output folder of a reproduction: a page, pictures, tables, and the input files.

use std::path::{Path, PathBuf};

use report::page::Page;
use report::tidy::Writer;

use crate::cache::RunCache;
use crate::error::StudyError;
use crate::figure::{Context, Lab};
use crate::figure::{Figure, Study};
use crate::judgement::{JudgedFigure, Judgement};
use crate::outcome::Outcome;
use crate::parallel::Progress;

/// What the table of a figure holds.
const EVERY: &str = "every measure of every run, those of single flows in groups of over 1,000 \
                     left out";

/// The output folder of a study.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    study: &'static Study,
    page: Page,
    judgement: Judgement,
    cache: RunCache,
}

impl Folder {
    /// Makes the folder if needed, and begins a page. What the figures depend on is in
    /// [`key`](crate::key).
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn create(path: &Path, study: &'static Study, key: String) -> Result<Folder, StudyError> {
        let path = path.to_owned();
        std::fs::create_dir_all(&path)
            .map_err(|source| StudyError::Folder { path: path.clone(), source })?;
        let mut page = Page::new(study.title);
        page.text(study.about);
        let judgement = Judgement { key, figures: Vec::new() };
        Ok(Folder { path, study, page, judgement, cache: RunCache::default() })
    }

    /// Makes a figure, writes its files and adds it to the page.
    ///
    /// # Errors
    /// If a file of the paper is not valid, or an output file cannot be written.
    pub fn make(
        &mut self,
        context: &Context,
        figure: &Figure,
        progress: Progress<'_>,
    ) -> Result<Outcome, StudyError> {
        let lab = Lab::new(context, self.study, figure, progress, &self.cache)?;
        let mut outcome = (figure.make)(&lab)?;
        if context.seeds.is_some() || context.experiment.quick {
            outcome.verdict.explain("perhaps by chance: without --seeds and --quick all is run");
        }
        let mut writer = Writer::create(
            self.path.join(figure.name).with_extension("csv"),
            outcome.data.schema.clone(),
        )?;
        for (keys, measure, value) in &outcome.data.rows {
            writer.row(keys, measure, *value)?;
        }
        writer.finish()?;
        self.page.heading(&format!("{}: {}", figure.name, figure.title));
        self.page.text(figure.about);
        for (file, (_, text)) in figure.files.iter().zip(&lab.files) {
            report::write(self.path.join(file.name), text)?;
        }
        for picture in &outcome.pictures {
            let name = format!("{}{}.svg", figure.name, picture.suffix);
            report::write(self.path.join(&name), picture.plot.svg())?;
            self.page.figure(&picture.plot, &picture.caption, [("SVG", name.as_str())]);
        }
        for (table, caption) in &outcome.tables {
            self.page.table(table, caption);
        }
        self.page.verdict(&outcome.verdict, "");
        for note in &outcome.notes {
            self.page.text(note);
        }
        let table = format!("{}.csv", figure.name);
        let schema = format!("{}.schema.json", figure.name);
        let links = [(EVERY, table.as_str()), ("what its columns mean", schema.as_str())];
        self.page
            .links(links.into_iter().chain(figure.files.iter().map(|file| (file.name, file.name))));
        self.write()?;
        self.judgement.figures.push(JudgedFigure::new(figure, &outcome.verdict));
        self.judgement.write(&self.path)?;
        Ok(outcome)
    }

    /// The path of the page.
    #[must_use]
    pub fn index(&self) -> PathBuf {
        self.path.join("index.html")
    }

    fn write(&self) -> Result<(), StudyError> {
        Ok(report::write(self.index(), self.page.html())?)
    }
}
