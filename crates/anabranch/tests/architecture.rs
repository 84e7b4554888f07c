//! The crates' manifests against the table in docs/architecture.md, and the sources of every crate:
//! no circular use of modules, no type name twice.
//!
//! The sources are read line by line, as rustfmt leaves them. Test modules, comments and paths
//! through re-exports at a crate's root are not followed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The rows of the table: each part with the parts that it may use.
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

/// Each crate below `crates/` with the other ones that it uses, including those for tests and
/// builds. `examples/` has programs outside of the table, as users write them.
fn actual() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_part = |package: &&Value| {
        let manifest = package["manifest_path"].as_str().unwrap();
        Path::new(manifest).starts_with(root().join("crates"))
    };
    let packages: Vec<&Value> =
        metadata["packages"].as_array().unwrap().iter().filter(is_part).collect();
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
        .into_iter()
        .map(|package| (short(package["name"].as_str().unwrap()), used(package)))
        .collect()
}

/// A crate's name in the table.
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
    // Repeatedly removing the parts that use only removed ones must remove all.
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
    assert!(circle.is_empty(), "{circle:?} use each other, or a part without a row");
}

/// A source file of a crate, without its test modules and comments.
struct Source {
    /// Where it is in the tree of modules: `["commands", "cp"]`; empty for the root.
    module: Vec<String>,
    lines: Vec<String>,
}

/// The sources of each crate, by its name in the table.
fn crates() -> BTreeMap<String, Vec<Source>> {
    let entries = std::fs::read_dir(root().join("crates")).unwrap();
    let folders = entries.map(|entry| entry.unwrap().path());
    folders
        .map(|folder| {
            let mut sources = Vec::new();
            collect(&folder.join("src"), &[], &mut sources);
            (folder.file_name().unwrap().to_str().unwrap().to_string(), sources)
        })
        .collect()
}

/// Reads the sources below `folder`, whose module is `module`.
fn collect(folder: &Path, module: &[String], sources: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name.starts_with("tests") || name == "adversarial" {
            continue;
        }
        let child = || [module, &[name.to_string()]].concat();
        if path.is_dir() {
            collect(&path, &child(), sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let module = match name {
                "lib" | "main" | "mod" => module.to_vec(),
                _ => child(),
            };
            let text = std::fs::read_to_string(&path).unwrap();
            sources.push(Source { module, lines: code(&text) });
        }
    }
}

/// The lines of a file without comments and modules for tests.
fn code(text: &str) -> Vec<String> {
    let mut lines = text.lines();
    let mut kept = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let item = lines.next().unwrap_or_default();
            if item.trim_start().starts_with("mod ") && item.ends_with('{') {
                let indent = item.len() - item.trim_start().len();
                let end = format!("{}}}", " ".repeat(indent));
                lines.by_ref().find(|line| **line == end);
            }
        } else {
            kept.push(line.split("//").next().unwrap_or_default().to_string());
        }
    }
    kept
}

/// The identifier that a text begins with.
fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The paths below `prefix` that a text begins with: one, or one for each entry of its braces.
fn paths<'a>(text: &'a str, prefix: &[&'a str], found: &mut Vec<Vec<&'a str>>) {
    let Some(list) = text.strip_prefix('{') else {
        let name = identifier(text);
        let path = [prefix, &[name]].concat();
        match text[name.len()..].strip_prefix("::") {
            Some(rest) if !name.is_empty() => paths(rest, &path, found),
            _ => found.push(path),
        }
        return;
    };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in list.char_indices() {
        if depth == 0 && matches!(c, ',' | '}') {
            paths(list[start..at].trim_start(), prefix, found);
            start = at + 1;
        }
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            _ => {}
        }
    }
}

/// The paths within its crate that a source names, from the root on.
fn named<'a>(source: &'a Source, text: &'a str) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    for keyword in ["crate", "super"] {
        for (at, _) in text.match_indices(&format!("{keyword}::")) {
            if !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                paths(&text[at..], &[], &mut found);
            }
        }
    }
    let from_root = |path: Vec<&'a str>| {
        let ups = path.iter().take_while(|name| **name == "super").count();
        let above = if ups == 0 { 0 } else { source.module.len().checked_sub(ups)? };
        let rest = &path[ups.max(1)..];
        Some(
            source.module[..above].iter().map(String::as_str).chain(rest.iter().copied()).collect(),
        )
    };
    found.into_iter().filter_map(from_root).collect()
}

/// For each module, its children with the other ones of them that they use, they themselves or
/// what is below them.
type Uses<'a> = BTreeMap<&'a [String], BTreeMap<&'a str, BTreeSet<&'a str>>>;

fn uses<'a>(sources: &'a [Source], texts: &'a [String]) -> Uses<'a> {
    let mut uses = Uses::new();
    for source in sources {
        for depth in 0..source.module.len() {
            let (parent, child) = (&source.module[..depth], source.module[depth].as_str());
            uses.entry(parent).or_default().entry(child).or_default();
        }
    }
    for (source, text) in sources.iter().zip(texts) {
        for path in named(source, text) {
            // Where the two part, counted from the root.
            let depth =
                source.module.iter().zip(&path).take_while(|(own, name)| own == *name).count();
            let (Some(own), Some(name)) = (source.module.get(depth), path.get(depth)) else {
                continue;
            };
            let siblings = uses.get_mut(&source.module[..depth]).expect("it has this child");
            if let Some((&used, _)) = siblings.get_key_value(name) {
                siblings.entry(own).or_default().insert(used);
            }
        }
    }
    uses
}

/// The modules that `from` reaches by one use or more.
fn reachable<'a>(uses: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut pending: Vec<&str> = uses[from].iter().copied().collect();
    while let Some(module) = pending.pop() {
        if reached.insert(module) {
            pending.extend(&uses[module]);
        }
    }
    reached
}

/// The circles that there still are: the crate, the modules that use each other, and their parent
/// if it is not the root. The list may only become shorter.
const KNOWN_CIRCLES: &[&str] = &[
    "files::dial: driver fetch opener path queue session",
    "files::sink: archive mirror session settle survey",
    "stripe::connection: cell inbox",
    "stripe::driver: dialing holdings link listening routes streams",
];

/// Modules that are not above or below each other, at all levels: where two of them use each other,
/// they or what is above them are siblings.
#[test]
fn no_modules_of_a_crate_use_each_other() {
    let mut found = BTreeSet::new();
    for (name, sources) in &crates() {
        let texts: Vec<String> = sources.iter().map(|source| source.lines.join("\n")).collect();
        for (parent, uses) in uses(sources, &texts) {
            for module in uses.keys() {
                let reached = reachable(&uses, module);
                let mutual: Vec<&str> = reached
                    .iter()
                    .copied()
                    .filter(|m| reachable(&uses, m).contains(module))
                    .collect();
                if !mutual.is_empty() {
                    let path = [std::slice::from_ref(name), parent].concat().join("::");
                    found.insert(format!("{path}: {}", mutual.join(" ")));
                }
            }
        }
    }
    let known: BTreeSet<String> = KNOWN_CIRCLES.iter().map(ToString::to_string).collect();
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "modules that use each other: {new:#?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "to be taken off the list, so that they stay away: {gone:#?}");
}

#[test]
fn nested_paths_are_read() {
    let module = ["dial", "path"].map(String::from).to_vec();
    let text =
        "use super::{Plan, gate::{Gate, Key}};\nuse crate::a::b;\nlet x = super::super::c::D;";
    let source = Source { module, lines: Vec::new() };
    let found: BTreeSet<String> = named(&source, text).iter().map(|path| path.join("::")).collect();
    let wanted = ["a::b", "c::D", "dial::Plan", "dial::gate::Gate", "dial::gate::Key"];
    assert_eq!(found, wanted.map(String::from).into());
}

#[test]
fn only_secure_protects_packets() {
    let is_user = |sources: &[Source]| {
        let mut lines = sources.iter().flat_map(|source| &source.lines);
        lines.any(|line| line.contains("rustls::quic"))
    };
    let crates = crates();
    let users = crates.iter().filter(|(_, sources)| is_user(sources));
    let users: Vec<&str> = users.map(|(name, _)| name.as_str()).collect();
    assert_eq!(users, ["secure"], "the crates that use rustls::quic");
}

#[test]
fn no_crate_has_a_type_name_twice() {
    let mut found = BTreeSet::new();
    for (name, sources) in &crates() {
        let mut seen = BTreeSet::new();
        for line in sources.iter().flat_map(|source| &source.lines) {
            if let Some(defined) = defined_type(line)
                && !seen.insert(defined)
            {
                found.insert(format!("{name}: {defined}"));
            }
        }
    }
    assert!(found.is_empty(), "type names that a crate has twice: {found:#?}");
}

/// The type that a line defines; of aliases only those at a module's level.
fn defined_type(line: &str) -> Option<&str> {
    let item = line.trim_start();
    let item = match item.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => item,
    };
    let item = item.strip_prefix("unsafe ").unwrap_or(item);
    let (keyword, rest) = item.split_once(' ')?;
    let defines = matches!(keyword, "struct" | "enum" | "union" | "trait")
        || keyword == "type" && !line.starts_with(' ');
    let name = identifier(rest);
    (defines && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
}
