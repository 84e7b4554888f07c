//! Checks the guide (`docs/guide/`): its commands run with its files, its program is the example,
//! its links are valid.
//!
//! In a page, a block of TOML begins with `# NAME.toml`, or with `# added to NAME.toml` if it is
//! appended to that file. A block of `sh` has a command on each line; they run in the page's order
//! in a new folder. A block of `text` right after it is the output of the last command, with all
//! its figures: runs are the same on every machine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn source() -> PathBuf {
    root().join("docs/guide/src")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A fenced block of a page.
struct Block {
    language: String,
    text: String,
    line: usize,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (line, text) in (1..).zip(page.lines()) {
        if let Some(language) = text.strip_prefix("```") {
            is_inside = !is_inside;
            if is_inside {
                blocks.push(Block { language: language.into(), text: String::new(), line });
            }
        } else if is_inside {
            let block = blocks.last_mut().unwrap();
            block.text.push_str(text);
            block.text.push('\n');
        }
    }
    assert!(!is_inside, "a block of code is not closed");
    blocks
}

/// The words of a command, split as in a shell.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for c in command.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words
}

/// A folder in which the commands of a page run.
struct Shell {
    page: &'static str,
    folder: PathBuf,
    /// Files that no command has used yet.
    fresh: BTreeSet<String>,
}

impl Shell {
    fn new(page: &'static str) -> Shell {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guide").join(page);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Shell { page, folder, fresh: BTreeSet::new() }
    }

    fn write(&mut self, block: &Block) {
        let place = format!("{}:{}", self.page, block.line);
        let title =
            block.text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
        let (name, before) = match title.strip_prefix("added to ") {
            Some(name) => (name, read(&self.folder.join(name)) + "\n"),
            None => (title, String::new()),
        };
        assert!(
            Path::new(name).extension().is_some_and(|it| it == "toml"),
            "{place}: a file's first line says its name, not {title:?}"
        );
        assert!(
            self.fresh.insert(name.into()),
            "{place}: no command has run {name} as it was before"
        );
        fs::write(self.folder.join(name), before + &block.text).unwrap();
    }

    fn anabranch(&self, words: &[String]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .current_dir(&self.folder)
            .args(words)
            .output()
            .unwrap()
    }

    /// Runs a command and checks that its files exist; gives its output.
    fn run(&mut self, command: &str) -> String {
        let words = words(command);
        assert_eq!(words[0], "anabranch", "{}: {command}", self.page);
        let output = self.anabranch(&words[1..]);
        let said = String::from_utf8(output.stderr).unwrap();
        if words.iter().any(|word| word == "parquet") && !cfg!(feature = "parquet") {
            assert!(
                !output.status.success() && said.contains("--features parquet"),
                "{command}: {said}"
            );
            return String::new();
        }
        assert!(output.status.success(), "{}: {command}: {said}", self.page);
        if words[1] == "simulate" {
            self.fresh.remove(&words[2]);
        }
        for pair in words.windows(2) {
            let wanted = match pair[0].as_str() {
                "--plot" | "--pcap" | "--trace" => vec![pair[1].clone()],
                "--out" => {
                    let table = if command.contains("parquet") {
                        "measures.parquet"
                    } else {
                        "measures.csv"
                    };
                    [table, "measures.schema.json"].map(|name| format!("{}/{name}", pair[1])).into()
                }
                _ => continue,
            };
            for name in wanted {
                let size = fs::metadata(self.folder.join(&name)).map_or(0, |data| data.len());
                assert!(size > 0, "{}: {command} wrote no {name}", self.page);
            }
        }
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Runs a page; gives the numbers of its files and commands, and its folder.
fn follow(page: &'static str) -> (usize, usize, Shell) {
    let text = read(&source().join(page));
    let mut shell = Shell::new(page);
    let (mut files, mut commands) = (0, 0);
    let mut printed = None;
    for block in blocks(&text) {
        match block.language.as_str() {
            "toml" => {
                shell.write(&block);
                files += 1;
            }
            "sh" => {
                for command in block.text.lines() {
                    printed = Some(shell.run(command));
                    commands += 1;
                }
                continue;
            }
            "text" => {
                if let Some(printed) = &printed {
                    assert_eq!(
                        &block.text, printed,
                        "{page}:{}: left is the page, right what comes out",
                        block.line
                    );
                }
            }
            "rust" | "python" | "csv" => {}
            other => panic!("{page}:{}: no check for a block of {other:?}", block.line),
        }
        printed = None;
    }
    assert!(shell.fresh.is_empty(), "{page}: no command runs {:?}", shell.fresh);
    (files, commands, shell)
}

#[test]
fn the_page_on_the_first_simulation_runs() {
    let page = "first-simulation.md";
    let (files, commands, shell) = follow(page);
    assert!(files == 2 && commands > 4, "{files} files and {commands} commands");
    let output = shell.anabranch(&words("simulate first.toml --set other=vega"));
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let message = said.trim().strip_prefix("anabranch: ").unwrap();
    assert!(
        read(&source().join(page)).contains(message),
        "the page has another message than: {message}"
    );
}

#[test]
fn the_page_on_the_model_runs() {
    let (files, commands, _) = follow("what-is-modelled.md");
    assert_eq!((files, commands), (1, 1));
}

#[test]
fn the_page_on_results_runs() {
    let page = "reading-results.md";
    let (files, commands, shell) = follow(page);
    assert!(files == 1 && commands > 4, "{files} files and {commands} commands");
    let table = read(&shell.folder.join("results/measures.csv"));
    let header = table.lines().next().unwrap();
    let shown = blocks(&read(&source().join(page)))
        .into_iter()
        .find(|block| block.language == "csv")
        .unwrap();
    assert_eq!(shown.text.lines().next(), Some(header), "the columns");
    for part in [
        ",start,",
        ",steady,",
        ",bulk,goodput,",
        ",short,completion,",
        ",line/up,queue,",
        ",all,,jain,",
    ] {
        assert!(table.contains(part), "the table lacks {part}");
    }
}

#[test]
fn the_page_on_papers_runs() {
    let (_, commands, _) = follow("reproducing-figures.md");
    assert_eq!(commands, 1);
}

/// The example has a test of its own for its behaviour.
#[test]
fn the_program_is_the_example() {
    let example = read(&root().join("crates/scenario/examples/own-controller.rs"));
    let program = example.split("\n#[cfg(test)]").next().unwrap();
    let page = read(&source().join("own-controller.md"));
    let quoted: Vec<Block> =
        blocks(&page).into_iter().filter(|block| block.language == "rust").collect();
    assert_eq!(quoted.len(), 1, "programs in the page");
    assert_eq!(quoted[0].text, program, "the page's program, and the example up to its tests");
}

/// The targets of a page's links, without other sites.
fn links(page: &str) -> Vec<&str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.starts_with('#')).collect()
}

#[test]
fn the_summary_lists_every_page_once() {
    let summary = read(&source().join("SUMMARY.md"));
    let mut listed = links(&summary);
    listed.sort_unstable();
    let entries = fs::read_dir(source())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut there: Vec<String> = entries.filter(|name| name != "SUMMARY.md").collect();
    there.sort_unstable();
    assert_eq!(listed, there);
    assert!(read(&root().join("docs/guide/book.toml")).contains("src = \"src\""));
}

#[test]
fn links_between_pages_are_valid() {
    let mut pages: Vec<PathBuf> = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    for folder in
        [root().join("docs"), source(), root().join("bench/bars"), root().join("bench/networks")]
    {
        pages.extend(fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut count = 0;
    for page in pages {
        for target in links(&read(&page)) {
            let file = target.split('#').next().unwrap();
            assert!(
                page.parent().unwrap().join(file).exists(),
                "{}: {target} leads nowhere",
                page.display()
            );
            count += 1;
        }
    }
    assert!(count > 30, "{count} links");
}
