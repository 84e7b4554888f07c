//! `reproduce`: a paper's figures, or a theory's, beside ours.

use std::io;
use std::path::PathBuf;

use net::Error;
use report::verdict::Verdict;
use report::{Align, Table};
use study::{Context, Figure, Folder, STUDIES, Study, StudyError};

use super::simulate::{progress, show, threads};
use crate::transfer::Ended;

/// How the command ends if a row differs; [`EXIT_CODES`](crate::cli::EXIT_CODES) says so.
const DIFFERS: u8 = 1;

/// Arguments of `reproduce`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The paper; without it, what there is
    paper: Option<String>,
    /// Its figures; all if none is named
    figure: Vec<String>,
    /// Where to write pictures, tables, files and a page [default: reproduced/PAPER]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// How many seeds to run, in place of what the files say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seeds: Option<u32>,
    /// How many runs at the same time [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// A folder with edited files, PAPER/FILE.toml in it, as --out leaves them; what is not there is built in
    #[arg(long, value_name = "FOLDER")]
    papers: Option<PathBuf>,
}

/// `anabranch reproduce`.
///
/// # Errors
/// [`Error::Usage`] if there is no such paper or figure, or an edited file makes no sense; [`Error::System`] if a file cannot be written;
/// [`DIFFERS`] if something differs from the paper.
pub(crate) fn run(args: &Args) -> Result<(), Ended> {
    let Some(paper) = &args.paper else {
        return Ok(show(list())?);
    };
    let study = study::find(paper).map_err(usage)?;
    let figures = chosen(study, &args.figure)?;
    let context = Context { papers: args.papers.clone(), seeds: args.seeds, jobs: threads(args.jobs) };
    let path = args.out.clone().unwrap_or_else(|| PathBuf::from("reproduced").join(study.paper));
    let mut folder = Folder::create(&path, study).map_err(failed)?;
    let mut all = Verdict::default();
    for figure in figures {
        show(format_args!("{}: {}\n\n", figure.name, figure.title))?;
        let bar = progress(0);
        let outcome = folder.make(&context, figure, &|done, total| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        });
        bar.finish_and_clear();
        let outcome = outcome.map_err(failed)?;
        show(format_args!("{}\n", outcome.verdict))?;
        for row in outcome.verdict.rows() {
            all.row(row.clone());
        }
    }
    show(format_args!("{}: {}\n", all.summary(), folder.index().display()))?;
    if all.passes() { Ok(()) } else { Err(Ended::Code(DIFFERS)) }
}

/// The figures of these names, each once, in the paper's order.
fn chosen(study: &'static Study, names: &[String]) -> Result<Vec<&'static Figure>, Error> {
    for name in names {
        study.figure(name).map_err(usage)?;
    }
    let is_chosen = |figure: &&Figure| names.is_empty() || names.iter().any(|name| name == figure.name);
    Ok(study.figures.iter().filter(is_chosen).collect())
}

/// All papers and figures.
fn list() -> Table {
    let mut table = Table::new([("paper", Align::Left), ("figure", Align::Left), ("what it is", Align::Left)]);
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
    Error::Usage(error.to_string())
}

fn failed(error: StudyError) -> Error {
    match error {
        StudyError::Scenario(_) | StudyError::NoPapers(_) | StudyError::Lacks { .. } => Error::Usage(error.to_string()),
        error => Error::System { action: "write the figures".into(), source: io::Error::other(error) },
    }
}
