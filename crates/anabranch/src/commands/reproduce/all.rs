//! `reproduce all`: every paper in turn, and a page of what became of each figure.
//!
//! Each paper is a process of its own: those with real programs need one that has a single thread,
//! and hear signals in their own way.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use files::Error;
use study::{Judgement, Overview, STUDIES, Study};
use sys::netns::die_with_parent;

use super::{DIFFERS, ReproduceArgs, key, study_error};
use crate::commands::simulate::show;
use crate::exit::{EXIT_CODES, Failure, USAGE};

/// # Errors
/// [`Error::usage`] for options that are of one paper; [`Error::System`] if the program cannot be
/// started or the page be written; the code of a paper that was stopped or whose options or files
/// are invalid; [`DIFFERS`] if not every figure agrees.
pub(super) fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    let out = checked(args)?;
    let program =
        std::env::current_exe().map_err(|source| Error::system("find this program", source))?;
    let mut overview = Overview::new(&given(args));
    let mut page = PathBuf::new();
    for study in STUDIES {
        let args = args.of(study, out);
        let folder = out.join(study.paper);
        let key = key(&args, study)?;
        let whole = || Judgement::read(&folder).filter(|made| made.is_whole(study, &key));
        show(format_args!("{}: {}\n\n", study.paper, study.title))?;
        let made = if let Some(made) = whole() {
            show("made before, by this program from the same files: kept\n\n")?;
            Ok(made)
        } else {
            let why = made_by(Command::new(&program).arg("reproduce").args(words(&args)))?;
            whole().ok_or_else(|| why.unwrap_or_else(|| "its folder was changed".into()))
        };
        overview.paper(study, made);
        page = overview.write(out).map_err(study_error)?;
    }
    show(format_args!("{}: {}\n", overview.summary(), page.display()))?;
    if overview.agrees() { Ok(()) } else { Err(Failure::Code(DIFFERS)) }
}

/// The folder of the page, if the options mean something for all papers.
fn checked(args: &ReproduceArgs) -> Result<&Path, Error> {
    if !args.figure.is_empty() {
        return Err(Error::usage("figures are of one paper: name it in place of all"));
    }
    let given = [
        ("--scale", args.scale.is_some()),
        ("--sizes", args.sizes.is_some()),
        ("--told", args.told),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Error::usage(format!("{option} is of one paper: name it in place of all")));
    }
    args.out.as_deref().ok_or_else(|| {
        Error::usage(
            "all papers take hours: name a folder with --out, where each is kept once it is made",
        )
    })
}

/// The options that say what the figures are worth.
fn given(args: &ReproduceArgs) -> Vec<String> {
    let seeds = args.seeds.map(|seeds| format!("--seeds {seeds}"));
    let papers = args.papers.as_ref().map(|folder| format!("--papers {}", folder.display()));
    let flags = [("--count-late", args.count_late), ("--quick", args.quick)];
    let flags = flags.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name.into());
    seeds.into_iter().chain(papers).chain(flags).collect()
}

/// Runs a paper. Returns why it could not be made, if so.
fn made_by(command: &mut Command) -> Result<Option<String>, Failure> {
    die_with_parent(command, rustix::process::Signal::TERM);
    let started = |source: io::Error| Error::system("start this program again", source);
    let status = command.status().map_err(started)?;
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => 128 + u8::try_from(signal).unwrap_or(0),
        (None, None) => u8::MAX,
    };
    match code {
        0 | DIFFERS => Ok(None),
        USAGE | 128.. => Err(Failure::Code(code)),
        code => {
            let meaning = EXIT_CODES.iter().find(|(known, _)| *known == code);
            let meaning = meaning.map_or("unknown", |(_, meaning)| *meaning);
            Ok(Some(format!("it could not be made here, exit code {code}: {meaning}")))
        }
    }
}

/// The arguments of one paper, as words of a command line.
fn words(args: &ReproduceArgs) -> Vec<OsString> {
    let mut words: Vec<OsString> = args.paper.iter().map(OsString::from).collect();
    let mut option = |name: &str, value: Option<OsString>| {
        if let Some(value) = value {
            words.extend([name.into(), value]);
        }
    };
    option("--out", args.out.clone().map(OsString::from));
    option("--papers", args.papers.clone().map(OsString::from));
    option("--seeds", args.seeds.map(|seeds| seeds.to_string().into()));
    option("--jobs", args.jobs.map(|jobs| jobs.to_string().into()));
    for (name, is_given) in [("--count-late", args.count_late), ("--quick", args.quick)] {
        if is_given {
            words.push(name.into());
        }
    }
    words
}

impl ReproduceArgs {
    /// Those of one paper: what does not apply to it is left out.
    fn of(&self, study: &Study, out: &Path) -> ReproduceArgs {
        let papers = self.papers.as_ref().filter(|papers| papers.join(study.paper).is_dir());
        ReproduceArgs {
            paper: Some(study.paper.into()),
            figure: Vec::new(),
            out: Some(out.join(study.paper)),
            seeds: self.seeds,
            jobs: self.jobs,
            papers: papers.cloned(),
            scale: None,
            sizes: None,
            count_late: self.count_late && study.real.is_some(),
            told: false,
            quick: self.quick && study.real.is_some_and(|real| real.has_trial),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ReproduceArgs,
    }

    fn args(line: &[&str]) -> ReproduceArgs {
        Line::parse_from([&["reproduce"], line].concat()).args
    }

    #[test]
    fn each_paper_has_the_options_that_apply_to_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("theory")).unwrap();
        let papers = folder.path().to_str().unwrap();
        let line = ["all", "--out", "o", "--papers", papers, "--quick", "--count-late"];
        let all = args(&[&line[..], &["--seeds", "3", "--jobs", "2"]].concat());
        let edited = format!("--papers {papers}");
        assert_eq!(given(&all), ["--seeds 3", edited.as_str(), "--count-late", "--quick"]);
        let of = |paper| words(&all.of(study::find(paper).unwrap(), Path::new("o")));
        let usual = ["--seeds", "3", "--jobs", "2"];
        let theory = ["theory", "--out", "o/theory", "--papers", papers];
        assert_eq!(of("theory"), [&theory[..], &usual].concat());
        assert_eq!(of("harp"), [&["harp", "--out", "o/harp"][..], &usual].concat());
        let real =
            |paper, out, more: &[&'static str]| [&[paper, "--out", out], &usual[..], more].concat();
        assert_eq!(of("sar-rmtp"), real("sar-rmtp", "o/sar-rmtp", &["--count-late"]));
        let both = ["--count-late", "--quick"];
        assert_eq!(of("harp-live"), real("harp-live", "o/harp-live", &both));
        for study in STUDIES {
            let words = words(&all.of(study, Path::new("o")));
            let again = args(&words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>());
            crate::commands::reproduce::check(&again, study).expect("nothing that does not apply");
            let wanted = key(&all.of(study, Path::new("o")), study).unwrap();
            assert_eq!(key(&again, study).unwrap(), wanted, "what it makes is known again");
        }
    }

    #[test]
    fn options_of_one_paper_are_refused() {
        for line in [
            &["all", "5a", "--out", "o"][..],
            &["all", "--out", "o", "--scale", "1"],
            &["all", "--out", "o", "--sizes", "all"],
            &["all", "--out", "o", "--told"],
        ] {
            let error = checked(&args(line)).unwrap_err().to_string();
            assert!(error.contains("name it in place of all"), "{error}");
        }
        let error = checked(&args(&["all"])).unwrap_err().to_string();
        assert!(error.contains("--out"), "{error}");
        assert_eq!(checked(&args(&["all", "--out", "o"])).unwrap(), Path::new("o"));
    }

    #[test]
    fn a_paper_that_cannot_be_made_is_no_end_of_the_others() {
        let ended = |script: &str| made_by(Command::new("sh").args(["-c", script]));
        assert_eq!(ended("exit 0").unwrap(), None);
        assert_eq!(ended("exit 1").unwrap(), None);
        let why = ended("exit 10").unwrap().unwrap();
        assert!(why.contains("exit code 10") && why.contains("local system"), "{why}");
        for (script, code) in [("exit 2", 2), ("exit 130", 130), ("kill -TERM $$", 143)] {
            assert!(matches!(ended(script), Err(Failure::Code(of)) if of == code), "{script}");
        }
    }
}
