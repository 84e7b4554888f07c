//! docs/architecture.md says which part may use which; the crates' manifests are held to it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The rows of the table: a part, and what it may use.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let table = page.split("```").nth(1).expect("the page has a table of the parts");
    let mut parts = BTreeMap::new();
    for row in table.lines().filter(|row| !row.trim().is_empty()) {
        let (name, rest) = row.split_once(char::is_whitespace).unwrap();
        // The list ends where two spaces begin the description.
        let rest = rest.trim_start();
        let (uses, _) = rest.split_once("  ").unwrap_or((rest, ""));
        let uses = if let Some(list) = uses.strip_prefix("-> ") {
            list.split(',').map(|part| part.trim().to_string()).collect()
        } else {
            assert_eq!(uses, "uses nothing", "in the row of {name}");
            BTreeSet::new()
        };
        parts.insert(name.to_string(), uses);
    }
    parts
}

/// What each crate of the workspace uses of the others, for tests and builds too.
fn actual() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let ours: BTreeSet<&str> =
        packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let used = |package: &Value| -> BTreeSet<String> {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        dependencies
            .filter_map(|d| d["name"].as_str())
            .filter(|name| ours.contains(name))
            .map(short)
            .collect()
    };
    packages
        .iter()
        .map(|package| (short(package["name"].as_str().unwrap()), used(package)))
        .collect()
}

/// A crate's name as the table has it.
fn short(name: &str) -> String {
    name.strip_prefix("anabranch-").unwrap_or(name).to_string()
}

#[test]
fn every_dependency_is_documented() {
    let (documented, actual) = (documented(), actual());
    let names =
        |parts: &BTreeMap<String, BTreeSet<String>>| parts.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&documented), names(&actual), "the table's parts and the workspace's crates");
    for (part, uses) in &actual {
        let excess: Vec<_> = uses.difference(&documented[part]).collect();
        assert!(
            excess.is_empty(),
            "{part} uses {excess:?}, which docs/architecture.md does not allow"
        );
    }
}

#[test]
fn nothing_points_upwards() {
    let documented = documented();
    // Taking away whatever uses only what is gone already must take away everything.
    let mut gone: BTreeSet<&String> = BTreeSet::new();
    loop {
        let next: Vec<_> = documented
            .iter()
            .filter(|(part, uses)| !gone.contains(part) && uses.iter().all(|u| gone.contains(u)))
            .collect();
        if next.is_empty() {
            break;
        }
        gone.extend(next.into_iter().map(|(part, _)| part));
    }
    let circle: Vec<_> = documented.keys().filter(|part| !gone.contains(part)).collect();
    assert!(circle.is_empty(), "{circle:?} use each other, or something that has no row");
}
