//! docs/threat-model.md names a test for each promise: each of them exists.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names of all tests below a folder.
fn tests_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let mut is_test = false;
            for line in source.lines().map(str::trim) {
                let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
                if let Some((name, _)) = name.and_then(|rest| rest.split_once('('))
                    && std::mem::take(&mut is_test)
                {
                    found.insert(name.to_string());
                }
                is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            }
        }
    }
}

#[test]
fn every_promise_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/threat-model.md")).unwrap();
    let mut tests = BTreeSet::new();
    tests_below(&root.join("crates"), &mut tests);
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with('|') && !line.contains("---") && !line.ends_with("test |"))
        .collect();
    assert!(rows.len() >= 30, "{} rows", rows.len());
    for row in rows {
        let cell = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test in: {row}");
        for name in named {
            assert!(tests.contains(name), "there is no test '{name}': {row}");
        }
    }
}
