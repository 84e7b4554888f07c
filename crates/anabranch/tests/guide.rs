//! Checks the guide (`docs/guide/`): its commands run with its files (`guide/page.rs` has the
//! rules), its links are valid. The page on own code is checked by `examples/my-lab/tests/page.rs`,
//! which has its program.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;

#[path = "guide/page.rs"]
mod page;

use page::{Program, blocks, follow, read, root, source, words};

const ANABRANCH: Program = Program {
    name: "anabranch",
    file: env!("CARGO_BIN_EXE_anabranch"),
    has_parquet: cfg!(feature = "parquet"),
};

#[test]
fn the_page_on_the_first_simulation_runs() {
    let page = "first-simulation.md";
    let (files, commands, shell) = follow(ANABRANCH, page);
    assert!(files == 2 && commands > 4, "{files} files and {commands} commands");
    let output = shell.output(&words("simulate first.toml --set other=vega"));
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
    let (files, commands, _) = follow(ANABRANCH, "what-is-modelled.md");
    assert_eq!((files, commands), (1, 1));
}

#[test]
fn the_page_on_results_runs() {
    let page = "reading-results.md";
    let (files, commands, shell) = follow(ANABRANCH, page);
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
        ",bulk,all,goodput,",
        ",short,all,completion,",
        ",class,short,100 kB to 1 MB,completion,",
        ",line/up,all,queue,",
        ",all,,all,jain,",
    ] {
        assert!(table.contains(part), "the table lacks {part}");
    }
}

#[test]
fn the_page_on_papers_runs() {
    let (_, commands, _) = follow(ANABRANCH, "reproducing-figures.md");
    assert_eq!(commands, 1);
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
