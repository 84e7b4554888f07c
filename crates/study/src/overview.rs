//! The page of all papers: what became of each figure.

use std::path::{Path, PathBuf};

use report::page::Page;
use report::{Align, Table};

use crate::error::StudyError;
use crate::figure::Study;
use crate::judgement::{FigureVerdict, JudgedFigure, Judgement};

/// What became of all papers.
#[derive(Debug)]
pub struct Overview {
    /// With which options, in a sentence; empty without any.
    options: String,
    papers: Vec<(&'static Study, Result<Judgement, String>)>,
}

impl Overview {
    /// Of no papers yet. The page says that they were made with these options.
    #[must_use]
    pub fn new(options: &[String]) -> Overview {
        let options = match options {
            [] => String::new(),
            given => format!(" Made with {}.", given.join(" ")),
        };
        Overview { options, papers: Vec::new() }
    }

    /// Adds a paper: what became of its figures, or why they could not be made.
    pub fn paper(&mut self, study: &'static Study, made: Result<Judgement, String>) {
        self.papers.push((study, made));
    }

    /// Whether all figures agree.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.count(FigureVerdict::Agrees) == self.figures().count()
    }

    /// In a line: `30 of 59 figures agree, 27 differ, 2 cannot be judged`.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |verdict| self.count(verdict);
        let agree = count(FigureVerdict::Agrees);
        let differ = match count(FigureVerdict::Differs) {
            0 => String::new(),
            1 => ", 1 differs".into(),
            differ => format!(", {differ} differ"),
        };
        let lost = match count(FigureVerdict::CannotBeJudged) {
            0 => String::new(),
            lost => format!(", {lost} cannot be judged"),
        };
        format!("{agree} of {} figures agree{differ}{lost}", self.figures().count())
    }

    /// Writes the page `index.html` into the folder that has a folder for each paper.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, StudyError> {
        let mut page = Page::new("All papers");
        page.text(&format!("{}.{}", self.summary(), self.options));
        for (study, made) in &self.papers {
            page.heading(study.title);
            let columns = [("figure", Align::Left), ("verdict", Align::Left)];
            let further = [("rows that agree", Align::Right), ("why not", Align::Left)];
            let mut table = Table::new(columns.into_iter().chain(further));
            for (title, judged) in figures_of(study, made) {
                let verdict = verdict(judged).name();
                let (rows, why) = match (judged, made) {
                    (Some(judged), _) => {
                        let all = judged.agree + judged.differ + judged.missing;
                        (format!("{} of {all}", judged.agree), judged.why.join(" · "))
                    }
                    (None, Err(why)) => ("–".into(), why.clone()),
                    (None, Ok(_)) => ("–".into(), "it was not made".into()),
                };
                table.row([title.to_owned(), verdict.to_owned(), rows, why]);
            }
            page.table(&table, "");
            if made.is_ok() {
                let address = format!("{}/index.html", study.paper);
                page.links([("its pictures, rows and tables", address.as_str())]);
            }
        }
        let path = folder.join("index.html");
        report::write(&path, page.html())?;
        Ok(path)
    }

    fn figures(&self) -> impl Iterator<Item = Option<&JudgedFigure>> {
        self.papers
            .iter()
            .flat_map(|(study, made)| figures_of(study, made).map(|(_, judged)| judged))
    }

    fn count(&self, wanted: FigureVerdict) -> usize {
        self.figures().filter(|judged| verdict(*judged) == wanted).count()
    }
}

fn verdict(judged: Option<&JudgedFigure>) -> FigureVerdict {
    judged.map_or(FigureVerdict::CannotBeJudged, JudgedFigure::verdict)
}

/// The title of each figure of a paper, and what became of it if it was made.
fn figures_of<'a>(
    study: &'static Study,
    made: &'a Result<Judgement, String>,
) -> impl Iterator<Item = (&'static str, Option<&'a JudgedFigure>)> {
    study.figures.iter().map(move |figure| {
        let made = made.as_ref().ok();
        let judged = made.and_then(|made| made.figures.iter().find(|one| one.name == figure.name));
        (figure.title, judged)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find;

    #[test]
    fn every_figure_has_its_verdict_and_its_reasons() {
        let mut overview = Overview::new(&["--seeds 1".into(), "--quick".into()]);
        let study = find("mpfast").unwrap();
        let judged = |name: &str, agree, differ, missing, why: &[&str]| JudgedFigure {
            name: name.into(),
            agree,
            differ,
            missing,
            why: why.iter().map(|why| (*why).into()).collect(),
        };
        let figures = vec![
            judged("2", 5, 0, 0, &[]),
            judged("3", 3, 1, 1, &["the queue <is> full", "no such link"]),
            judged("4", 3, 0, 1, &["no such link"]),
        ];
        overview.paper(study, Ok(Judgement { key: String::new(), figures }));
        assert_eq!(overview.summary(), "1 of 3 figures agree, 1 differs, 1 cannot be judged");
        overview.paper(find("wang2007-live").unwrap(), Err("it needs root".into()));
        assert_eq!(overview.summary(), "1 of 5 figures agree, 1 differs, 3 cannot be judged");
        assert!(!overview.agrees());
        let folder = tempfile::tempdir().unwrap();
        let page = std::fs::read_to_string(overview.write(folder.path()).unwrap()).unwrap();
        assert!(page.contains("3 cannot be judged. Made with --seeds 1 --quick."), "{page}");
        let tree = roxmltree::Document::parse(page.split_once('\n').unwrap().1).unwrap();
        let rows: Vec<String> = tree
            .descendants()
            .filter(|node| node.has_tag_name("tr"))
            .map(|row| {
                let cells = row.children().filter(roxmltree::Node::is_element);
                cells.map(|cell| cell.text().unwrap_or_default()).collect::<Vec<_>>().join(" | ")
            })
            .collect();
        let row = |start: &str| rows.iter().find(|row| row.contains(start)).unwrap().as_str();
        assert!(row("Figure 2").ends_with("agrees | 5 of 5 | "), "{rows:?}");
        let both = "differs | 3 of 5 | the queue <is> full · no such link";
        assert!(row("Figure 3").ends_with(both), "{rows:?}");
        assert!(row("Figure 4").ends_with("cannot be judged | 3 of 4 | no such link"), "{rows:?}");
        assert!(row("Draws").ends_with("cannot be judged | – | it needs root"), "{rows:?}");
        let links: Vec<&str> =
            tree.descendants().filter_map(|node| node.attribute("href")).collect();
        assert!(
            links.contains(&"mpfast/index.html") && !links.contains(&"wang2007-live/index.html")
        );
    }

    #[test]
    fn all_agree_if_each_does() {
        let mut overview = Overview::new(&[]);
        let study = find("mpfast").unwrap();
        let figures = study.figures.iter().map(|figure| JudgedFigure {
            name: figure.name.into(),
            agree: 1,
            differ: 0,
            missing: 0,
            why: Vec::new(),
        });
        overview.paper(study, Ok(Judgement { key: String::new(), figures: figures.collect() }));
        assert!(overview.agrees());
        assert_eq!(overview.summary(), "3 of 3 figures agree");
    }
}
