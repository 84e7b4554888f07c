//! Copies of a scenario and of the files that it names, which run by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::file::{Document, Setting};

/// The keys whose values name files.
const FILE_KEYS: [&str; 4] = ["network", "trace", "cdf", "arrivals"];

/// The text of a scenario with other names of files, and the files by these names.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// The scenario.
    pub(super) text: String,
    /// Contents by name, relative to the scenario.
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

/// Copies of a document whose values are replaced by `settings`, with everything that it names.
/// Files that cannot be read keep their names.
pub(super) fn copies(document: &Document, settings: &[Setting]) -> Copies {
    let mut collector = Collector { files: BTreeMap::new(), names: BTreeMap::new() };
    let folder = folder_of(Path::new(document.file()));
    let text = without_settings(document.text());
    let mut names = BTreeSet::new();
    let mut text = collector.renamed(&text, &folder, "files/", &mut names);
    let all: Vec<&Setting> = document.settings().iter().chain(settings).collect();
    if !all.is_empty() {
        text.push_str("\n# As by --set.\n[set]\n");
    }
    for (at, Setting { key, value }) in all.iter().enumerate() {
        if all[at + 1..].iter().any(|later| later.key == *key) {
            continue;
        }
        let value = if is_file_key(key) || names.contains(key.as_str()) {
            collector.add(value, &folder, "files/").unwrap_or_else(|| value.clone())
        } else {
            value.clone()
        };
        text.extend([&quoted(key), " = ", &quoted(&value), "\n"]);
    }
    Copies { text, files: collector.files }
}

struct Collector {
    files: BTreeMap<String, Vec<u8>>,
    /// The new name of each file, below the folder of copies.
    names: BTreeMap<PathBuf, String>,
}

impl Collector {
    /// The text of a file in `folder` with the new names of the files that it names, behind
    /// `prefix`. The parameters that name files are added to `parameters`.
    fn renamed(
        &mut self,
        text: &str,
        folder: &Path,
        prefix: &str,
        parameters: &mut BTreeSet<String>,
    ) -> String {
        let Ok(table) = DeTable::parse(text) else { return text.to_owned() };
        let mut strings = Vec::new();
        for (key, node) in table.get_ref() {
            list(node, &[key.get_ref()], &mut strings);
        }
        for (path, value, _) in &strings {
            if let (true, Some(name)) = (is_file_path(path), value.strip_prefix('$')) {
                parameters.insert(name.to_owned());
            }
        }
        let is_file = |path: &[String]| match path {
            [first, name, ..] if first == "parameters" => parameters.contains(name),
            [first, name, ..] if first == "sweep" => is_file_key(name) || parameters.contains(name),
            path => is_file_path(path),
        };
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        for (path, value, span) in &strings {
            if is_file(path)
                && let Some(name) = self.add(value, folder, prefix)
            {
                edits.push((span.clone(), quoted(&name)));
            }
        }
        edits.sort_by_key(|(span, _)| span.start);
        let mut text = text.to_owned();
        for (span, name) in edits.into_iter().rev() {
            text.replace_range(span, &name);
        }
        text
    }

    /// Adds the file of this name in `folder`, and those that it names; gives its new name.
    fn add(&mut self, name: &str, folder: &Path, prefix: &str) -> Option<String> {
        let path = folder.join(name);
        if let Some(known) = self.names.get(&path) {
            return Some(format!("{prefix}{known}"));
        }
        let content = std::fs::read(&path).ok()?;
        let base = path.file_name()?.to_string_lossy().into_owned();
        let known = format!("{}-{base}", self.names.len() + 1);
        self.names.insert(path.clone(), known.clone());
        let content = match String::from_utf8(content) {
            Ok(text) if path.extension().is_some_and(|it| it == "toml") => {
                // Its files lie beside it.
                self.renamed(&text, &folder_of(&path), "", &mut BTreeSet::new()).into_bytes()
            }
            Ok(text) => text.into_bytes(),
            Err(error) => error.into_bytes(),
        };
        self.files.insert(format!("files/{known}"), content);
        Some(format!("{prefix}{known}"))
    }
}

/// All strings below a node: their path of keys, their value, and their place in the text.
fn list(
    node: &Spanned<DeValue<'_>>,
    path: &[&str],
    strings: &mut Vec<(Vec<String>, String, Range<usize>)>,
) {
    match node.get_ref() {
        DeValue::Table(table) => {
            for (key, node) in table {
                list(node, &[path, &[key.get_ref()]].concat(), strings);
            }
        }
        DeValue::Array(array) => array.iter().for_each(|node| list(node, path, strings)),
        DeValue::String(text) => {
            let path = path.iter().map(ToString::to_string).collect();
            strings.push((path, text.to_string(), node.span()));
        }
        _ => {}
    }
}

/// Whether the value at a path of keys names a file.
fn is_file_path(path: &[String]) -> bool {
    path.last().is_some_and(|key| FILE_KEYS.contains(&key.as_str()))
}

/// The same of a path with dots.
fn is_file_key(key: &str) -> bool {
    key.rsplit('.').next().is_some_and(|last| FILE_KEYS.contains(&last))
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().map(Path::to_owned).unwrap_or_default()
}

/// The text up to the table `[set]` that an earlier copy ends with.
fn without_settings(text: &str) -> String {
    let end = text.find("\n[set]\n").map_or(text.len(), |at| at + 1);
    text[..end].trim_end().trim_end_matches("# As by --set.").trim_end().to_owned() + "\n"
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
