//! The files under `papers/` that are built in.

use std::path::Path;

use scenario::{Document, RunOptions, Setting};
use study::STUDIES;

/// Starts that a shortened run does not reach, and others.
const EARLIER: [(&str, &str); 3] = [
    ("of = \"bottleneck\", from = \"60 s\"", "of = \"bottleneck\""),
    ("{ from = \"0 s\", to = \"150 s\" }", "{ from = \"0 s\", to = \"1 s\" }"),
    ("{ from = \"0 s\", to = \"290 s\" }", "{ from = \"0 s\", to = \"20 s\" }"),
];

/// Settings that shorten a file for a test, but let the first flows start. Windows of the file are
/// replaced, since they may end after the new duration.
fn brief(text: &str) -> Vec<Setting> {
    let windows = ("window", "[{ name = \"brief\", from = \"2 s\", to = \"3 s\" }]");
    let begin = if text.contains("\nwindow = ") { windows } else { ("warmup", "2 s") };
    [("duration", "3 s"), begin]
        .map(|(key, value)| Setting { key: key.into(), value: value.into() })
        .into()
}

#[test]
fn every_scenario_file_is_read_and_runs() {
    let mut count = 0;
    for file in STUDIES
        .iter()
        .filter(|study| ["theory", "harp", "harp-live", "mpfast", "ptcp"].contains(&study.paper))
        .flat_map(|study| study.figures)
        .flat_map(|f| f.files)
    {
        let text = EARLIER
            .iter()
            .fold(file.text.to_owned(), |text, (late, early)| text.replace(late, early));
        let document = Document::new(&text, file.name).unwrap_or_else(|error| panic!("{error}"));
        for point in document.points() {
            let settings: Vec<Setting> = point.into_iter().chain(brief(&text)).collect();
            let scenario = document.scenario(&settings).unwrap_or_else(|error| panic!("{error}"));
            let run = scenario
                .run(scenario.seed, RunOptions::default())
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(
                run.measure("all", "", "goodput").is_some_and(|goodput| goodput > 0.0),
                "{}: {settings:?}",
                file.name
            );
        }
        count += 1;
    }
    assert_eq!(count, 56, "scenario files");
}

#[test]
fn every_file_of_the_checkout_is_built_in() {
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers");
    for study in STUDIES {
        let mut built_in: Vec<&str> =
            study.figures.iter().flat_map(|f| f.files).map(|file| file.name).collect();
        built_in.sort_unstable();
        built_in.dedup();
        let entries = std::fs::read_dir(papers.join(study.paper)).unwrap();
        let mut there: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        there.sort_unstable();
        assert_eq!(there, built_in, "{}", study.paper);
    }
}

#[test]
fn names_are_unique_and_make_file_names() {
    for study in STUDIES {
        let names: Vec<&str> = study.figures.iter().map(|figure| figure.name).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{name}");
        }
    }
}
