//! Commands of the user that run when a transfer has ended: `--on-done` and `--on-error`.
//!
//! A command is a program with its arguments, which no shell reads. Nothing that the other side
//! names is among them: names, keys and figures are on its standard input, as the lines of
//! docs/json.md, and in `ANABRANCH_…` variables.

pub(crate) mod group;
mod run;

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;

use events::{Event, Summary};
use rustix::fs::{Access, access};

use crate::exit::Failure;
use crate::name;
use crate::watch::{Watcher, json};
use run::{Job, LONGEST, Queue};

/// The lines of a transfer that its command gets, in bytes: a tree may have millions of files. Its
/// end is told however many there were.
const MOST_LINES: usize = 4 << 20;
/// The longest value of a variable, in bytes.
const MOST_VALUE: usize = 4 << 10;

/// The commands of a command line.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct HookArgs {
    /// Run COMMAND when a transfer is complete, with its events as JSON on standard input and its
    /// figures in ANABRANCH_… variables; no shell reads it (docs/hooks.md)
    #[arg(long, value_name = "COMMAND")]
    on_done: Option<HookCommand>,
    /// Run COMMAND when a transfer ends with any other exit code than 0
    #[arg(long, value_name = "COMMAND")]
    on_error: Option<HookCommand>,
}

/// The commands that run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hooks {
    pub(crate) on_done: Option<HookCommand>,
    pub(crate) on_error: Option<HookCommand>,
}

/// A program and its arguments, written as in a shell, with quotes and backslashes only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HookCommand(Vec<String>);

impl HookCommand {
    /// The program and its arguments.
    pub(crate) fn words(&self) -> &[String] {
        &self.0
    }

    /// A program that a test has.
    #[cfg(test)]
    pub(crate) fn from_words<const N: usize>(words: [&str; N]) -> HookCommand {
        HookCommand(words.map(String::from).to_vec())
    }
}

impl FromStr for HookCommand {
    type Err = String;

    /// Also looks for the program: a mistake is told before the transfer, not after it.
    fn from_str(text: &str) -> Result<HookCommand, String> {
        let words = shlex::split(text)
            .ok_or_else(|| format!("'{text}' has a quote or a backslash that nothing follows"))?;
        let Some(program) = words.first().filter(|program| !program.is_empty()) else {
            return Err("expected a program and its arguments, such as 'notify-send done'".into());
        };
        if text.contains('\0') {
            return Err("a command has no NUL".into());
        }
        if !is_there(program) {
            return Err(format!(
                "there is no program '{program}' to run (no shell reads it: for one write 'sh -c \
                 \"…\"')"
            ));
        }
        Ok(HookCommand(words))
    }
}

/// Whether a program of that name can be run, as execvp looks for it.
fn is_there(program: &str) -> bool {
    let can_run = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        return can_run(Path::new(program));
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| can_run(&folder.join(program)))
}

impl HookArgs {
    /// The commands of the command line, or else of the configuration.
    pub(crate) fn or_config(self, config: &Hooks) -> Hooks {
        Hooks {
            on_done: self.on_done.or_else(|| config.on_done.clone()),
            on_error: self.on_error.or_else(|| config.on_error.clone()),
        }
    }
}

impl Hooks {
    /// Whether nothing runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.on_done.is_none() && self.on_error.is_none()
    }

    fn of_exit(&self, code: u8) -> Option<(&'static str, &HookCommand)> {
        if code == 0 {
            self.on_done.as_ref().map(|command| ("--on-done", command))
        } else {
            self.on_error.as_ref().map(|command| ("--on-error", command))
        }
    }

    /// Lets [`at_end`] run a command for the only transfer of this process, which `watcher` shows.
    /// `folder` is where its files arrive.
    pub(crate) fn at_end(
        self,
        folder: Option<&Path>,
        watcher: Box<dyn Watcher>,
    ) -> Box<dyn Watcher> {
        if self.is_empty() {
            return watcher;
        }
        let known = Known { hooks: self, folder: absolute(folder) };
        *AT_END.lock().expect("no panic while held") =
            Some(Pending { known, record: Record::default(), summary: None });
        Box::new(AtEnd(watcher))
    }

    /// Runs a command for each transfer of a host that goes on listening.
    pub(crate) fn for_each(
        self,
        folder: Option<&Path>,
        watcher: Box<dyn Watcher>,
    ) -> Box<dyn Watcher> {
        if self.is_empty() {
            return watcher;
        }
        let known = Known { hooks: self, folder: absolute(folder) };
        Box::new(ForEach { watcher, known, records: BTreeMap::new(), queue: Queue::default() })
    }
}

fn absolute(folder: Option<&Path>) -> Option<PathBuf> {
    folder.map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf()))
}

/// What is known before a transfer.
#[derive(Debug)]
struct Known {
    hooks: Hooks,
    folder: Option<PathBuf>,
}

/// What a transfer has told until it ends.
#[derive(Debug, Default)]
struct Record {
    transfer: u32,
    peer: Option<String>,
    lines: Vec<u8>,
    /// It moves nothing: there is no end to tell of.
    is_only_asked: bool,
}

impl Record {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Started { transfer, peer, .. } => {
                (self.transfer, self.peer) = (*transfer, Some(peer.clone()));
            }
            Event::DryRun(_) | Event::Listing(_) => {
                self.is_only_asked = true;
                return;
            }
            Event::FileDone { .. } | Event::LeftOut { .. } => {}
            _ => return,
        }
        let line = json::of_event(event);
        if self.lines.len() + line.len() < MOST_LINES {
            self.add(&line);
        }
    }

    fn add(&mut self, line: &str) {
        self.lines.extend_from_slice(line.as_bytes());
        self.lines.push(b'\n');
    }

    /// The command of this end, with all that it is told.
    fn into_job(mut self, known: &Known, end: &End<'_>) -> Option<Job> {
        if self.is_only_asked {
            return None;
        }
        let (flag, HookCommand(words)) = known.hooks.of_exit(end.code)?;
        if let Some(line) = &end.line {
            self.add(line);
        }
        let result = if end.code == 0 { "done" } else { "error" };
        let mut variables = vec![
            ("ANABRANCH_RESULT", result.to_string()),
            ("ANABRANCH_EXIT_CODE", end.code.to_string()),
            ("ANABRANCH_TRANSFER", self.transfer.to_string()),
            ("ANABRANCH_ERROR", end.message.unwrap_or_default().to_string()),
            ("ANABRANCH_PEER", self.peer.unwrap_or_default()),
        ];
        let figures = end.summary.map_or([0; 3], |s| [s.files as u64, s.total.0, s.moved.0]);
        let names = ["ANABRANCH_FILES", "ANABRANCH_TOTAL", "ANABRANCH_MOVED"];
        variables.extend(names.into_iter().zip(figures.map(|figure| figure.to_string())));
        let elapsed = end.summary.map_or(0.0, |summary| summary.elapsed.as_secs_f64());
        variables.push(("ANABRANCH_ELAPSED", format!("{elapsed:.3}")));
        for (_, value) in &mut variables {
            *value = value.replace('\0', "");
            let most = (0..=MOST_VALUE.min(value.len())).rfind(|at| value.is_char_boundary(*at));
            value.truncate(most.unwrap_or(0));
        }
        let folder = known.folder.clone();
        Some(Job { flag, words: words.clone(), variables, folder, input: self.lines })
    }
}

/// How a transfer ended.
struct End<'a> {
    code: u8,
    message: Option<&'a str>,
    summary: Option<&'a Summary>,
    /// The last line of docs/json.md.
    line: Option<String>,
}

/// The transfer of this process.
static AT_END: Mutex<Option<Pending>> = Mutex::new(None);

#[derive(Debug)]
struct Pending {
    known: Known,
    record: Record,
    summary: Option<Summary>,
}

/// Notes what the command of [`at_end`] is told.
struct AtEnd(Box<dyn Watcher>);

impl Watcher for AtEnd {
    fn event(&mut self, event: &Event) {
        if let Some(pending) = &mut *AT_END.lock().expect("no panic while held") {
            pending.record.note(event);
        }
        self.0.event(event);
    }

    fn end(&mut self, result: &Result<Summary, Failure>) {
        if let Some(pending) = &mut *AT_END.lock().expect("no panic while held") {
            pending.summary = result.as_ref().ok().cloned();
        }
        self.0.end(result);
    }
}

/// Runs the command of this process's transfer, which ended with this exit code and message, and
/// waits for it. Its failure is told, and changes nothing.
pub(crate) fn at_end(code: u8, message: Option<&str>) {
    let Some(pending) = AT_END.lock().expect("no panic while held").take() else { return };
    let Pending { known, record, summary } = pending;
    let line = match (&summary, message) {
        (Some(summary), _) => Some(json::of_summary(record.transfer, summary)),
        (None, Some(message)) => Some(json::of_failure(code, message)),
        (None, None) => None,
    };
    let end = End { code, message, summary: summary.as_ref(), line };
    if let Some(job) = record.into_job(&known, &end) {
        report(&job, run::run(&job, LONGEST));
    }
}

/// Tells of a command that failed.
fn report(job: &Job, ended: Result<(), String>) {
    if let Err(why) = ended {
        errln!("{}: {job} {why}", name::of_program());
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the command of {}, '{}',", self.flag, self.words[0])
    }
}

/// Runs a command for each transfer that ends.
struct ForEach {
    watcher: Box<dyn Watcher>,
    known: Known,
    records: BTreeMap<u32, Record>,
    queue: Queue,
}

impl Watcher for ForEach {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Started { transfer, .. } => {
                self.records.entry(*transfer).or_default().note(event);
            }
            Event::FileDone { transfer, .. } => {
                if let Some(record) = self.records.get_mut(transfer) {
                    record.note(event);
                }
            }
            Event::Ended { transfer, result } => {
                let mut record = self.records.remove(transfer).unwrap_or_default();
                record.transfer = *transfer;
                let partial;
                let (code, message, summary) = match result {
                    Ok(summary) => {
                        partial = Failure::unless_whole(summary).err();
                        let code = partial.as_ref().map_or(0, Failure::exit_code);
                        (code, partial.as_ref().and_then(Failure::message), Some(summary))
                    }
                    Err(failed) => (failed.exit_code, Some(failed.text.clone()), None),
                };
                let line = Some(json::of_event(event));
                let end = End { code, message: message.as_deref(), summary, line };
                if let Some(job) = record.into_job(&self.known, &end) {
                    self.queue.add(job, report);
                }
            }
            _ => {}
        }
        self.watcher.event(event);
    }

    fn end(&mut self, result: &Result<Summary, Failure>) {
        self.watcher.end(result);
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    #[test]
    fn a_command_is_words_and_a_program_that_exists() {
        let words = |text: &str| text.parse().map(|HookCommand(words)| words);
        assert_eq!(
            words(r#"sh -c "echo 'a b'" '' c\ d"#).unwrap(),
            ["sh", "-c", "echo 'a b'", "", "c d"]
        );
        for (text, why) in [
            ("sh -c 'open", "has a quote"),
            ("", "expected a program"),
            ("''", "expected a program"),
            ("no-such-program-here now", "no program 'no-such-program-here'"),
            ("/etc/passwd", "no program '/etc/passwd'"),
            ("echo $(id); rm", "no program 'echo $'"),
        ] {
            match words(text) {
                Err(error) => assert!(error.contains(why), "{text}: {error}"),
                // What a shell would run is a mere argument.
                Ok(found) => assert_eq!(found[1], "$(id);", "{text}"),
            }
        }
    }

    fn known() -> Known {
        let command = |text: &str| Some(text.parse().unwrap());
        let hooks = Hooks { on_done: command("true"), on_error: command("false") };
        Known { hooks, folder: None }
    }

    fn ended(record: Record, code: u8) -> Option<Job> {
        let summary = Summary { files: 3, total: Bytes(7), ..Summary::default() };
        let end = End { code, message: None, summary: Some(&summary), line: Some("{}".into()) };
        record.into_job(&known(), &end)
    }

    #[test]
    fn the_exit_code_chooses_the_command() {
        assert_eq!(ended(Record::default(), 0).unwrap().words, ["true"]);
        for code in [1, 13, 130] {
            assert_eq!(ended(Record::default(), code).unwrap().words, ["false"], "{code}");
        }
        let record = Record { is_only_asked: true, ..Record::default() };
        assert!(ended(record, 0).is_none(), "nothing was moved");
    }

    #[test]
    fn a_tree_of_any_size_leaves_bounded_lines_and_its_end() {
        let mut record = Record::default();
        let name = "n".repeat(1_000);
        for _ in 0..10_000 {
            record.note(&Event::FileDone {
                transfer: 1,
                name: name.clone(),
                size: Bytes(1),
                blake3: None,
            });
        }
        let job = ended(record, 0).unwrap();
        assert!(job.input.len() > MOST_LINES / 2 && job.input.len() <= MOST_LINES + 1_000);
        assert!(job.input.ends_with(b"}\n{}\n"));
        let files = job.variables.iter().find(|(name, _)| *name == "ANABRANCH_FILES").unwrap();
        assert_eq!(files.1, "3");
    }

    #[test]
    fn no_text_of_the_other_side_breaks_a_variable() {
        let message = format!("a\0b{}", "ü".repeat(MOST_VALUE));
        let end = End { code: 9, message: Some(&message), summary: None, line: None };
        let job = Record::default().into_job(&known(), &end).unwrap();
        let error = &job.variables.iter().find(|(name, _)| *name == "ANABRANCH_ERROR").unwrap().1;
        assert!(error.starts_with("abü") && error.len() <= MOST_VALUE && !error.contains('\0'));
    }
}
