//! The text of a scenario file, with its parameters and with values set by the caller.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use link::config::reader::{Section, Source, nearest, read_text, unknown_word};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigError, Problem, Scenario, parse};
use crate::registry::Registry;

/// The text of a scenario file.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    text: String,
    sweep: Vec<(String, Vec<String>)>,
    /// Values that replace those of the text, before those of the caller.
    settings: Vec<Setting>,
    /// Those of them, and of the sweep, that the caller has set.
    given: Vec<Setting>,
    registry: Registry,
}

/// A value that replaces one of the file: a key and TOML text.
///
/// The key is a parameter, or a path to a value: `duration`, `link.bottleneck.queue`,
/// `flow.bulk.controller`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setting {
    /// The parameter or path.
    pub key: String,
    /// A TOML value; other text is a string.
    pub value: String,
}

impl Setting {
    /// Reads "link.bottleneck.rate=50 Mbit/s".
    #[must_use]
    pub fn parse(text: &str) -> Option<Setting> {
        let (key, value) = text.split_once('=')?;
        let (key, value) = (key.trim(), value.trim());
        (!key.is_empty() && !value.is_empty())
            .then(|| Setting { key: key.to_owned(), value: value.to_owned() })
    }
}

impl Document {
    /// Reads a file. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// If it cannot be read, is not TOML, or is not valid.
    pub fn load(path: &Path) -> Result<Document, ConfigError> {
        Document::load_with(path, Registry::default())
    }

    /// As [`Document::load`], with controllers and packet schedulers that a program adds.
    ///
    /// # Errors
    /// If it cannot be read, is not TOML, or is not valid.
    pub fn load_with(path: &Path, registry: Registry) -> Result<Document, ConfigError> {
        let file = path.display().to_string();
        match read_text(path) {
            Ok(text) => Document::new_with(&text, &file, registry),
            Err(error) => Err(ConfigError {
                file,
                line: None,
                key: String::new(),
                problem: Problem::Read(error),
            }),
        }
    }

    /// Makes a document of a text; `file` is its name in messages.
    ///
    /// # Errors
    /// If it is not TOML, or not valid with the first values of its sweep.
    pub fn new(text: &str, file: &str) -> Result<Document, ConfigError> {
        Document::new_with(text, file, Registry::default())
    }

    /// As [`Document::new`], with controllers and packet schedulers that a program adds.
    ///
    /// # Errors
    /// If it is not TOML, or not valid with the first values of its sweep.
    pub fn new_with(text: &str, file: &str, registry: Registry) -> Result<Document, ConfigError> {
        let mut document = Document {
            file: file.to_owned(),
            text: text.to_owned(),
            sweep: Vec::new(),
            settings: Vec::new(),
            given: Vec::new(),
            registry,
        };
        let table = document.table()?;
        let root = Section::root(document.source(), &table);
        let settings = parse::settings(&root)?;
        document.sweep = parse::sweep(&root)?;
        let document = document.replacing(&settings)?;
        document.scenario(&document.points()[0])?;
        Ok(document)
    }

    /// The document with some values set: those of the sweep by `sweep.KEY`, with a list; all
    /// others as in [`Document::scenario`]. A value that is set is not swept over.
    ///
    /// # Errors
    /// If values of the sweep are no list, or there are too many combinations.
    pub fn with(&self, settings: &[Setting]) -> Result<Document, ConfigError> {
        let mut document = self.clone();
        document.given.extend_from_slice(settings);
        document.replacing(settings).map_err(|error| document.with_option(error))
    }

    fn replacing(&self, settings: &[Setting]) -> Result<Document, ConfigError> {
        let mut document = self.clone();
        for setting in settings {
            let Some(key) = setting.key.strip_prefix("sweep.") else {
                document.sweep.retain(|(swept, _)| *swept != setting.key);
                document.settings.push(setting.clone());
                continue;
            };
            let values = self.swept_values(setting)?;
            document.settings.retain(|known| known.key != key);
            match document.sweep.iter_mut().find(|(swept, _)| swept == key) {
                Some((_, known)) => *known = values,
                None => document.sweep.push((key.to_owned(), values)),
            }
        }
        match parse::too_many(&document.sweep) {
            Some(problem) => Err(self.error("sweep", problem)),
            None => Ok(document),
        }
    }

    /// The values in a setting of the sweep.
    fn swept_values(&self, setting: &Setting) -> Result<Vec<String>, ConfigError> {
        let text = format!("values = {}", setting.value);
        let values = DeTable::parse(&text).ok().and_then(|table| {
            let source = Source { file: &self.file, text: &text };
            let list = Section::root(source, table.get_ref()).get("values")?.list().ok()?;
            list.iter().map(|value| value.literal().ok()).collect::<Option<Vec<String>>>()
        });
        values.filter(|values| !values.is_empty()).ok_or_else(|| {
            let problem = "wants a list of values, for example [\"reno\", \"cubic\"]";
            self.error(&setting.key, Problem::Sense(problem))
        })
    }

    /// All combinations of the values of its sweep, at least one.
    #[must_use]
    pub fn points(&self) -> Vec<Vec<Setting>> {
        let mut points = vec![Vec::new()];
        for (key, values) in &self.sweep {
            let mut more = Vec::with_capacity(points.len() * values.len());
            for point in &points {
                for value in values {
                    let mut point: Vec<Setting> = point.clone();
                    point.push(Setting { key: key.clone(), value: value.clone() });
                    more.push(point);
                }
            }
            points = more;
        }
        points
    }

    /// The name of the file in messages.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The values that replace those of the text.
    pub(crate) fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The file's text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The scenario of the file, with some values changed. Of two settings of one key, the later
    /// counts.
    ///
    /// # Errors
    /// The first mistake, with its line and the nearest known name.
    pub fn scenario(&self, settings: &[Setting]) -> Result<Scenario, ConfigError> {
        self.build(settings).map_err(|error| self.with_option(error))
    }

    /// An error, with the option that caused it in place of the file and a line that has another
    /// value.
    fn with_option(&self, error: ConfigError) -> ConfigError {
        let line = error.line.and_then(|line| self.text.lines().nth(line - 1)).unwrap_or_default();
        let is_cause = |setting: &&Setting| {
            let key = setting.key.strip_prefix("sweep.").unwrap_or(&setting.key);
            let is_at = [key, &setting.key].contains(&error.key.as_str())
                || error.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
            // A parameter, where it stands.
            is_at || line.contains(&format!("\"${key}\"")) || line.contains(&format!("'${key}'"))
        };
        match self.given.iter().rev().find(is_cause) {
            None => error,
            Some(Setting { key, value }) => {
                ConfigError { file: format!("--set {key}={value}"), line: None, ..error }
            }
        }
    }

    fn build(&self, settings: &[Setting]) -> Result<Scenario, ConfigError> {
        let settings: Vec<&Setting> = self.settings.iter().chain(settings).collect();
        let values: Vec<DeValue<'_>> =
            settings.iter().map(|setting| value(&setting.value)).collect();
        let mut table = self.table()?;
        let mut parameters: BTreeMap<String, DeValue<'_>> = BTreeMap::new();
        if let Some((_, node)) = table.remove_entry("parameters") {
            let DeValue::Table(entries) = node.into_inner() else {
                return Err(self.error(
                    "parameters",
                    Problem::Type { wanted: "a table", found: "something else" },
                ));
            };
            for (name, value) in entries {
                parameters.insert(name.into_inner().into_owned(), value.into_inner());
            }
        }
        for (setting, value) in settings.iter().zip(values) {
            if let Some(slot) = parameters.get_mut(&setting.key) {
                *slot = value;
            } else {
                let parts: Vec<&str> = setting.key.split('.').collect();
                if parts.len() == 1 && !parse::TOP_KEYS.contains(&parts[0]) {
                    let names: Vec<String> = parameters
                        .keys()
                        .cloned()
                        .chain(parse::TOP_KEYS.iter().map(ToString::to_string))
                        .collect();
                    if nearest(parts[0], names.iter().map(String::as_str)).is_none() {
                        let problem = format!(
                            "is no key and no parameter; the parameters are: {}",
                            list(&parameters)
                        );
                        return Err(self.error(&setting.key, Problem::Because(problem)));
                    }
                    return Err(self.unknown(&setting.key, parts[0], &names));
                }
                self.set(&mut table, &setting.key, &parts, value)?;
            }
        }
        let source = self.source();
        for (_, node) in &mut table {
            replace(node, &parameters, source)?;
        }
        table.remove("sweep");
        table.remove("set");
        let is_shortened = settings.iter().any(|setting| setting.key == "duration");
        parse::scenario(&Section::root(source, &table), &self.registry, is_shortened)
    }

    fn source(&self) -> Source<'_> {
        Source { file: &self.file, text: &self.text }
    }

    pub(crate) fn error(&self, key: &str, problem: Problem) -> ConfigError {
        self.source().error(None, key, problem)
    }

    fn table(&self) -> Result<DeTable<'_>, ConfigError> {
        let parsed = DeTable::parse(&self.text).map_err(|error| {
            let offset = error.span().map(|span| span.start);
            self.source().error(offset, "", Problem::Syntax(error.message().to_owned()))
        })?;
        Ok(parsed.into_inner())
    }

    /// Sets the value at the path `rest` below `table`; `key` is the whole path, for messages.
    fn set<'a>(
        &self,
        table: &mut DeTable<'a>,
        key: &str,
        rest: &[&str],
        value: DeValue<'a>,
    ) -> Result<(), ConfigError> {
        let (part, rest) = rest.split_first().expect("a path has at least one part");
        if rest.is_empty() {
            if let Some(node) = table.get_mut(*part) {
                *node.get_mut() = value;
            } else {
                // A key that the file leaves out. An unknown one is reported when the table is
                // read, with the line of the table.
                let span = table.values().next().map_or(0..0, Spanned::span);
                let name = Spanned::new(span.clone(), Cow::Owned((*part).to_owned()));
                table.insert(name, Spanned::new(span, value));
            }
            return Ok(());
        }
        let names: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
        let Some(node) = table.get_mut(*part) else { return Err(self.unknown(key, part, &names)) };
        match node.get_mut() {
            DeValue::Table(inner) => self.set(inner, key, rest, value),
            // `link.bottleneck.rate`: the table of that name in a list of tables.
            DeValue::Array(entries) if rest.len() > 1 => {
                let wanted = rest[0].trim_end_matches('*');
                let names: Vec<String> = entries.iter().filter_map(name_of).collect();
                let found =
                    entries.iter_mut().find(|entry| name_of(entry).as_deref() == Some(wanted));
                match found.map(Spanned::get_mut) {
                    Some(DeValue::Table(inner)) => self.set(inner, key, &rest[1..], value),
                    _ => Err(self.unknown(key, wanted, &names)),
                }
            }
            _ => {
                Err(self.error(key, Problem::Because(format!("`{part}` holds no keys of its own"))))
            }
        }
    }

    fn unknown(&self, key: &str, name: &str, names: &[String]) -> ConfigError {
        self.error(key, unknown_word(name, names.iter().map(String::as_str)))
    }
}

/// The name of a link or flow in a list, without its `*`.
fn name_of(entry: &Spanned<DeValue<'_>>) -> Option<String> {
    Some(
        entry
            .get_ref()
            .as_table()?
            .get("name")?
            .get_ref()
            .as_str()?
            .trim_end_matches('*')
            .to_owned(),
    )
}

fn list(parameters: &BTreeMap<String, DeValue<'_>>) -> String {
    let names: Vec<&str> = parameters.keys().map(String::as_str).collect();
    names.join(", ")
}

/// A TOML value; other text is a string.
fn value(text: &str) -> DeValue<'_> {
    DeValue::parse(text).map_or_else(|_| DeValue::String(Cow::Borrowed(text)), Spanned::into_inner)
}

/// Replaces strings `$name` by parameters.
fn replace<'a>(
    node: &mut Spanned<DeValue<'a>>,
    parameters: &BTreeMap<String, DeValue<'a>>,
    source: Source<'_>,
) -> Result<(), ConfigError> {
    let start = node.span().start;
    match node.get_mut() {
        DeValue::Table(table) => {
            table.iter_mut().try_for_each(|(_, node)| replace(node, parameters, source))
        }
        DeValue::Array(array) => {
            array.iter_mut().try_for_each(|node| replace(node, parameters, source))
        }
        value => {
            let Some(name) = value.as_str().and_then(|text| text.strip_prefix('$')) else {
                return Ok(());
            };
            let Some(parameter) = parameters.get(name) else {
                let nearest = nearest(name, parameters.keys().map(String::as_str))
                    .map(|nearest| format!("${nearest}").into());
                let problem = match nearest {
                    Some(_) => {
                        let known = list(parameters).into();
                        Problem::UnknownWord { found: format!("${name}").into(), nearest, known }
                    }
                    None => Problem::Because(format!(
                        "there is no parameter '${name}'; there are: {}",
                        list(parameters)
                    )),
                };
                return Err(source.error(Some(start), "parameters", problem));
            };
            *value = parameter.clone();
            Ok(())
        }
    }
}
