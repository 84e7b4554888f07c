//! Scenario files of live sources: `[[source]]` and `[[relay]]` entries.

use link::config::reader::{Section, Source as Text, Value};
use link::config::{ConfigError, Problem};
use overlay::{Choice, Config, Demand, Detect, Reselect, SourceConfig};
use toml::de::DeTable;
use units::{Bytes, Rate, Seed, Span};

use super::feeds::{Feed, FeedRelay, Feeds};

const TOP_KEYS: &[&str] = &[
    "name", "about", "duration", "seed", "runs", "rtt", "packet", "window", "queue", "ahead",
    "learn", "lost", "late", "chains", "relay", "source",
];
const RELAY_KEYS: &[&str] = &["name", "count", "capacity", "changes"];
const SOURCE_KEYS: &[&str] = &[
    "name",
    "count",
    "rate",
    "changes",
    "always",
    "arrives",
    "leaves",
    "direct",
    "paths",
    "choice",
    "error",
    "reselect",
    "epsilon",
    "delta",
    "interval",
    "draw",
    "tolerance",
    "grace",
    "take_back",
];

/// A scenario file with sources.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedsFile {
    /// Its name.
    pub name: String,
    /// The first seed; run `n` has the seed plus `n`.
    pub seed: Seed,
    /// The number of runs.
    pub runs: u32,
    /// The network.
    pub feeds: Feeds,
    /// The names of its sources.
    pub sources: Vec<String>,
}

impl FeedsFile {
    /// Whether a text has sources, and so is for [`FeedsFile::read`].
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        DeTable::parse(text).is_ok_and(|table| table.get_ref().contains_key("source"))
    }

    /// Reads a file; `file` is its name in messages.
    ///
    /// # Errors
    ///
    /// If it is not a scenario with sources. The message has the line and the key.
    pub fn read(text: &str, file: &str) -> Result<FeedsFile, ConfigError> {
        let source = Text { file, text };
        let table = source.table()?;
        let root = Section::root(source, table.get_ref());
        root.allow(TOP_KEYS)?;
        let mut names = Vec::new();
        let mut relays = Vec::new();
        for value in root.require("relay")?.list()? {
            let section = value.section()?;
            section.allow(RELAY_KEYS)?;
            for name in names_of(&section)? {
                names.push(name);
                relays.push(FeedRelay {
                    capacity: section.require("capacity")?.quantity()?,
                    changes: changes(&section, "capacity")?,
                });
            }
        }
        let duration = positive(&root.require("duration")?)?;
        let mut feeds = Feeds::new(&[], &[], duration);
        feeds.candidates = (0..relays.len()).map(|relay| vec![relay]).collect();
        feeds.relays = relays;
        if let Some(chains) = root.get("chains") {
            for chain in chains.list()? {
                feeds.candidates.push(self::chain(&chain, &names)?);
            }
        }
        feeds.rtt = root.get("rtt").map_or(Ok(feeds.rtt), |value| positive(&value))?;
        feeds.late = root.get("late").map_or(Ok(feeds.late), |value| value.quantity())?;
        feeds.lost = root.get("lost").map_or(Ok(feeds.lost), |value| value.probability())?;
        feeds.learn = root.get("learn").map_or(Ok(feeds.learn), |value| value.boolean())?;
        if let Some(value) = root.get("packet") {
            feeds.packet = value.quantity()?;
            if !(Bytes(1)..=Bytes(65_000)).contains(&feeds.packet) {
                return Err(value.error(Problem::Sense("wants 1 B to 65000 B")));
            }
        }
        let number = |key: &str, default: u64| {
            root.get(key).map_or(Ok(default), |value| whole(&value, 1_000_000))
        };
        (feeds.window, feeds.queue) =
            (number("window", feeds.window)?, number("queue", feeds.queue)?);
        feeds.ahead = number("ahead", feeds.ahead)?;
        let mut sources = Vec::new();
        for value in root.require("source")?.list()? {
            let section = value.section()?;
            section.allow(SOURCE_KEYS)?;
            let feed = feed(&section, feeds.candidates.len())?;
            for name in names_of(&section)? {
                sources.push(name);
                feeds.sources.push(feed.clone());
            }
        }
        let places = sources.len().saturating_mul(feeds.candidates.len() + 1);
        if places > 100_000 {
            return Err(root.error(
                "source",
                Problem::Sense("leaves more than 100000 pairs of a source and a candidate"),
            ));
        }
        Ok(FeedsFile {
            name: root.require("name")?.text()?.to_owned(),
            seed: Seed(root.get("seed").map_or(Ok(1), |value| value.integer())?),
            runs: u32::try_from(number("runs", 1)?).unwrap_or(u32::MAX),
            feeds,
            sources,
        })
    }
}

/// The names of an entry: one, or `count` of them with a number in place of `*`.
fn names_of(section: &Section<'_>) -> Result<Vec<String>, ConfigError> {
    let value = section.require("name")?;
    let name = value.text()?;
    let Some(count) = section.get("count") else { return Ok(vec![name.to_owned()]) };
    let number = whole(&count, 10_000)?;
    if !name.contains('*') {
        return Err(value.error(Problem::Sense("wants a * for the number, since there is a count")));
    }
    Ok((1..=number).map(|number| name.replace('*', &number.to_string())).collect())
}

/// A source; `candidates` are those of all sources.
fn feed(section: &Section<'_>, candidates: usize) -> Result<Feed, ConfigError> {
    let rate: Rate = section.require("rate")?.quantity()?;
    let base = SourceConfig::live(rate);
    let or = |key: &str, default: f64, most: f64| {
        section.get(key).map_or(Ok(default), |value| share(&value, most))
    };
    let error = or("error", 0.5, 1.0)?;
    let choices = [("uniform", Choice::Uniform), ("proportional", Choice::Proportional { error })];
    let rules = [
        ("k", Some(Reselect::Paths)),
        ("1", Some(Reselect::Least)),
        ("all", Some(Reselect::Everything)),
        ("never", None),
    ];
    let control = Config {
        detect: Detect::Throughput(or("delta", 0.01, 1.0)?),
        ..Config::aiad(or("epsilon", base.control.epsilon, 1.0)?)
    };
    let direct = section.get("direct").map(|value| value.quantity()).transpose()?;
    let paths = section.get("paths").map_or(Ok(base.paths as u64), |value| whole(&value, 1_000))?;
    let paths = usize::try_from(paths).expect("at most a thousand");
    if paths > candidates + usize::from(direct.is_some()) {
        return Err(section.error("paths", Problem::Sense("leaves fewer candidates than paths")));
    }
    let judged = section.get("draw").map_or(Ok(base.judged), |value| whole(&value, 1_000_000))?;
    let takes_back = section.get("take_back").map_or(Ok(true), |value| value.boolean())?;
    let always = section.get("always").map_or(Ok(false), |value| value.boolean())?;
    let core = SourceConfig {
        demand: if always { Demand::Fixed(rate) } else { base.demand },
        paths,
        control,
        choice: section.get("choice").map_or(Ok(base.choice), |value| value.word(&choices))?,
        reselect: section.get("reselect").map_or(Ok(base.reselect), |value| value.word(&rules))?,
        interval: section.get("interval").map_or(Ok(base.interval), |value| interval(&value))?,
        judged,
        counted: judged.div_ceil(2),
        tolerance: or("tolerance", base.tolerance, 1.0)?,
        grace: section.get("grace").map_or(Ok(base.grace), |value| value.boolean())?,
        take_back: base.take_back.filter(|_| takes_back),
        ..base
    };
    let mut production = vec![(Span::ZERO, rate)];
    production.extend(changes(section, "rate")?);
    Ok(Feed {
        core,
        production,
        arrives: section.get("arrives").map_or(Ok(Span::ZERO), |value| value.quantity())?,
        leaves: section.get("leaves").map(|value| value.quantity()).transpose()?,
        direct,
    })
}

/// Later values, in order of time: `changes = [{ at = "60 s", KEY = "1 Mbit/s" }]`.
fn changes(section: &Section<'_>, key: &'static str) -> Result<Vec<(Span, Rate)>, ConfigError> {
    let Some(list) = section.get("changes") else { return Ok(Vec::new()) };
    let mut changes: Vec<(Span, Rate)> = Vec::new();
    for value in list.list()? {
        let change = value.section()?;
        change.allow(&["at", key])?;
        let at: Span = change.require("at")?.quantity()?;
        if changes.last().is_some_and(|(before, _)| *before >= at) {
            return Err(value.error(Problem::Sense("wants times that grow")));
        }
        changes.push((at, change.require(key)?.quantity()?));
    }
    Ok(changes)
}

/// The relays of a path over several, by name.
fn chain(value: &Value<'_>, names: &[String]) -> Result<Vec<usize>, ConfigError> {
    let mut relays = Vec::new();
    for name in value.list()? {
        let found = name.text()?;
        let relay = names.iter().position(|name| name == found);
        let relay = relay.ok_or_else(|| name.unknown(names.iter().map(String::as_str)))?;
        if relays.contains(&relay) {
            return Err(name.error(Problem::Sense("wants each relay once")));
        }
        relays.push(relay);
    }
    if relays.len() < 2 {
        return Err(value.error(Problem::Sense("wants at least two relays")));
    }
    Ok(relays)
}

fn whole(value: &Value<'_>, most: u64) -> Result<u64, ConfigError> {
    match value.integer()? {
        number if (1..=most).contains(&number) => Ok(number),
        _ => Err(value.error(Problem::Because(format!("wants a whole number from 1 to {most}")))),
    }
}

fn share(value: &Value<'_>, most: f64) -> Result<f64, ConfigError> {
    match value.number()? {
        number if (0.0..=most).contains(&number) => Ok(number),
        _ => Err(value.error(Problem::Sense("wants a number from 0 to 1"))),
    }
}

/// At least a millisecond: the receiver sends a report in each.
fn interval(value: &Value<'_>) -> Result<Span, ConfigError> {
    match value.quantity()? {
        span if span >= Span::from_millis(1) => Ok(span),
        _ => Err(value.error(Problem::Sense("wants at least 1 ms"))),
    }
}

fn positive(value: &Value<'_>) -> Result<Span, ConfigError> {
    match value.quantity()? {
        span if span > Span::ZERO => Ok(span),
        _ => Err(value.error(Problem::Sense("wants more than nothing"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        name = "feeds"
        duration = "10 s"
        chains = [["big", "small2"]]
        lost = 0.1
        late = "50 ms"
        learn = true
        [[relay]]
        name = "big"
        capacity = "9 Mbit/s"
        changes = [{ at = "5 s", capacity = "0 bit/s" }]
        [[relay]]
        name = "small*"
        count = 2
        capacity = "1 Mbit/s"
        [[source]]
        name = "camera*"
        count = 2
        rate = "3 Mbit/s"
        changes = [{ at = "2 s", rate = "1 Mbit/s" }, { at = "4 s", rate = "3 Mbit/s" }]
        reselect = "1"
        choice = "proportional"
        error = 0.25
        [[source]]
        name = "log"
        rate = "100 kbit/s"
        arrives = "1 s"
        leaves = "9 s"
        direct = "200 kbit/s"
        always = true
        paths = 5
    "#;

    #[test]
    fn all_keys_mean_something() {
        assert!(FeedsFile::is_one(TEXT) && !FeedsFile::is_one("name = 'x'"));
        let file = FeedsFile::read(TEXT, "feeds.toml").unwrap_or_else(|error| panic!("{error}"));
        let FeedsFile { feeds, sources, .. } = file;
        assert_eq!(sources, ["camera1", "camera2", "log"]);
        assert_eq!(feeds.candidates, [vec![0], vec![1], vec![2], vec![0, 2]]);
        assert_eq!((feeds.lost, feeds.late, feeds.learn), (0.1, Span::from_millis(50), true));
        assert_eq!(feeds.relays[0].changes, [(Span::from_secs(5), Rate::ZERO)]);
        let [camera, _, log] = &feeds.sources[..] else { panic!("three sources") };
        assert_eq!(camera.production.len(), 3);
        assert_eq!(camera.core.reselect, Some(Reselect::Least));
        assert_eq!(camera.core.choice, Choice::Proportional { error: 0.25 });
        assert_eq!(log.core.demand, Demand::Fixed(Rate::kbit(100)));
        assert_eq!((log.core.paths, log.direct), (5, Some(Rate::kbit(200))));
    }

    #[test]
    fn mistakes_have_a_line_and_a_key() {
        for (from, to, wanted) in [
            ("lost = 0.1", "lots = 0.1", "feeds.toml:5: lots: no such key; did you mean `lost`?"),
            ("\"small2\"]]", "\"small3\"]]", "chains: 'small3' is not known here"),
            ("\"big\", \"small2\"", "\"big\"", "chains: wants at least two relays"),
            ("at = \"4 s\"", "at = \"2 s\"", "source.changes: wants times that grow"),
            ("name = \"camera*\"", "name = \"camera\"", "source.name: wants a * for the number"),
            ("paths = 5", "paths = 6", "source.paths: leaves fewer candidates"),
            ("reselect = \"1\"", "reselect = \"2\"", "source.reselect: '2' is not known here"),
            ("error = 0.25", "error = 2.5", "source.error: wants a number from 0 to 1"),
            ("duration = \"10 s\"", "duration = \"0 s\"", "duration: wants more than nothing"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = FeedsFile::read(&TEXT.replace(from, to), "feeds.toml").unwrap_err();
            assert!(
                error.to_string().contains(wanted),
                "{to}\n  says   {error}\n  wanted {wanted}"
            );
        }
    }
}
