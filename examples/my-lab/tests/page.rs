//! The guide's page on own code: it has the files of this crate, and its commands run.

use std::path::Path;

#[path = "../../../crates/anabranch/tests/guide/page.rs"]
mod page;

use page::{Program, blocks, follow, read, source};

const PAGE: &str = "own-code.md";
const MY_LAB: Program =
    Program { name: "my-lab", file: env!("CARGO_BIN_EXE_my-lab"), has_parquet: false };

#[test]
fn the_page_has_the_files_of_this_crate() {
    let blocks = blocks(&read(&source().join(PAGE)));
    for name in ["src/main.rs", "src/calm.rs", "src/turns.rs", "calm.toml", "turns.toml"] {
        let file = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
        let lines = blocks.iter().find(|block| block.text == file).map(|block| block.line);
        assert!(lines.is_some(), "the page has no block that is {name}");
    }
}

#[test]
fn the_page_runs() {
    let (files, commands, shell) = follow(MY_LAB, PAGE);
    assert!(files == 3 && commands == 4, "{files} files and {commands} commands");
    // Where the page says that a controller does not fit its parameter.
    let words = ["simulate", "calm.toml", "--set", "other=calm(target=0 ms)"];
    let output = shell.output(&words.map(String::from));
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let message = said.trim().strip_prefix("my-lab: ").expect(&said);
    assert!(read(&source().join(PAGE)).contains(message), "the page lacks: {message}");
}
