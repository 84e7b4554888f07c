//! A page of the guide, whose commands run with its files.
//!
//! In a page, a block of TOML begins with `# NAME.toml`, or with `# added to NAME.toml` if it is
//! appended to that file. A block of `sh` has a command on each line; they run in the page's order
//! in a new folder. A block of `text` right after it is the output of the last command, with all
//! its figures: runs are the same on every machine.
//!
//! The example in `examples/my-lab` uses this module too, with its own program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn source() -> PathBuf {
    root().join("docs/guide/src")
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A fenced block of a page.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
    pub(crate) line: usize,
}

pub(crate) fn blocks(page: &str) -> Vec<Block> {
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
pub(crate) fn words(command: &str) -> Vec<String> {
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

/// The program of a page: its name in commands, its file.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) file: &'static str,
    /// Whether it was built with the feature `parquet`.
    pub(crate) has_parquet: bool,
}

/// A folder in which the commands of a page run.
pub(crate) struct Shell {
    program: Program,
    page: &'static str,
    pub(crate) folder: PathBuf,
    /// Files that no command has used yet.
    fresh: BTreeSet<String>,
}

impl Shell {
    fn new(program: Program, page: &'static str) -> Shell {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guide").join(page);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Shell { program, page, folder, fresh: BTreeSet::new() }
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

    pub(crate) fn output(&self, words: &[String]) -> Output {
        Command::new(self.program.file).current_dir(&self.folder).args(words).output().unwrap()
    }

    /// Runs a command and checks that its files exist; gives its output.
    fn run(&mut self, command: &str) -> String {
        let words = words(command);
        assert_eq!(words[0], self.program.name, "{}: {command}", self.page);
        let output = self.output(&words[1..]);
        let said = String::from_utf8(output.stderr).unwrap();
        if words.iter().any(|word| word == "parquet") && !self.program.has_parquet {
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
pub(crate) fn follow(program: Program, page: &'static str) -> (usize, usize, Shell) {
    let text = read(&source().join(page));
    let mut shell = Shell::new(program, page);
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
