//! Reads a [`Scenario`] from TOML, except its flows.

use std::sync::Arc;

use hashbrown::HashSet;
use link::SharedProfile;
use link::config::Problem;
use link::config::reader::{Section, Value};
use units::{Seed, Span};

use super::gateways::Gateways;
use super::names::{Numbered, numbered, unknown_node};
use super::size_classes::SizeClasses;
use super::values::{Result, count, positive, profile_keys, profiles, rate_seed};
use super::{FlowSpec, LinkSpec, Scenario, Setting, Start, Window, flows, network, topology};
use crate::measures::MOST_WINDOWS;
use crate::registry::Registry;

/// The keys of a file.
pub(super) const TOP_KEYS: &[&str] = &[
    "name",
    "about",
    "seed",
    "runs",
    "duration",
    "warmup",
    "sample",
    "measure",
    "size_classes",
    "window",
    "parameters",
    "sweep",
    "set",
    "network",
    "topology",
    "ecmp",
    "link",
    "gateway",
    "relays",
    "flow",
];
/// The longest run.
const MOST_DURATION: Span = Span::from_secs(730 * 24 * 3_600);
/// The most periodic changes of a link in a run.
const MOST_CHANGES: u64 = 10_000_000;

/// All combinations of a sweep are in memory at once.
const MOST_COMBINATIONS: usize = 100_000;

/// `is_shortened`: the caller has set the duration.
pub(super) fn scenario(
    root: &Section<'_>,
    registry: &Registry,
    is_shortened: bool,
) -> Result<Scenario> {
    root.allow(TOP_KEYS)?;
    if let Some(about) = root.get("about") {
        about.text()?;
    }
    let name = root.require("name")?.text()?.to_owned();
    let seed = Seed(root.get("seed").map_or(Ok(1), |value| value.integer())?);
    let runs = root.get("runs").map_or(Ok(1), |value| count(&value))?;
    let duration = duration(&root.require("duration")?)?;
    let windows = windows(root, duration)?;
    let sample = root.get("sample").map_or(Ok(Span::from_millis(100)), |value| positive(&value))?;
    let mut links = match (root.get("network"), root.get("topology")) {
        (None, None) => Vec::new(),
        (Some(value), None) => network::links(&value)?,
        (None, Some(value)) => topology::links(&value, seed)?,
        (Some(_), Some(value)) => {
            return Err(value.error(Problem::Sense("stands beside `network`, which has all links")));
        }
    };
    let mut nodes: HashSet<Arc<str>> =
        links.iter().flat_map(|link| &link.between).cloned().collect();
    match root.get("link") {
        None if !links.is_empty() => {}
        _ => self::links(&root.require("link")?, seed, &mut links, &mut nodes)?,
    }
    if let Some(value) = root.get("link") {
        check_changes(&value, duration)?;
    }
    if let Some(value) = root.get("network").or_else(|| root.get("topology")) {
        check_periods(&value, &links, duration)?;
    }
    let ecmp = root.get("ecmp").map_or(Ok(false), |value| value.boolean())?;
    let gateways = match root.get("gateway") {
        None => Gateways::default(),
        Some(list) => Gateways::read(&list, &links, &nodes)?,
    };
    let relays = root.get("relays").map_or(Ok(Vec::new()), |list| relays(&list, &nodes))?;
    let list = root.require("flow")?;
    let flows = flows::flows(&list, &links, &nodes, &gateways, registry)?;
    let late = match check_starts(&list, &flows, duration) {
        Err(error) if is_shortened => Some(error.to_string()),
        checked => checked.map(|()| None)?,
    };
    let registry = registry.clone();
    let [measures_delay, measures_queues, measures_gaps] = measured(root)?;
    Ok(Scenario {
        name,
        seed,
        runs,
        duration,
        sample,
        windows,
        measures_delay,
        measures_queues,
        measures_gaps,
        size_classes: SizeClasses::read(root)?,
        links,
        ecmp,
        gateways: gateways.specs,
        relays,
        flows,
        registry,
        late,
    })
}

/// The nodes with a relay.
fn relays(list: &Value<'_>, nodes: &HashSet<Arc<str>>) -> Result<Vec<Arc<str>>> {
    let mut relays = Vec::new();
    for value in list.list()? {
        let name = value.text()?;
        let relay = nodes.get(name).ok_or_else(|| value.error(unknown_node(name, nodes)))?;
        if relays.contains(relay) {
            return Err(value.error(Problem::Sense("is named twice")));
        }
        relays.push(Arc::clone(relay));
    }
    Ok(relays)
}

/// The sweep of a file: keys with their values as text.
pub(super) fn sweep(root: &Section<'_>) -> Result<Vec<(String, Vec<String>)>> {
    let Some(value) = root.get("sweep") else { return Ok(Vec::new()) };
    let mut sweep = Vec::new();
    for (key, value) in value.section()?.entries() {
        let values: Vec<String> =
            value.list()?.iter().map(Value::literal).collect::<Result<_>>()?;
        if values.is_empty() {
            return Err(value.error(Problem::Sense("wants at least one value")));
        }
        sweep.push((key, values));
    }
    match too_many(&sweep) {
        Some(problem) => Err(value.error(problem)),
        None => Ok(sweep),
    }
}

/// The problem of a sweep with too many combinations.
pub(super) fn too_many(sweep: &[(String, Vec<String>)]) -> Option<Problem> {
    let combinations = sweep.iter().map(|(_, values)| values.len()).fold(1, usize::saturating_mul);
    (combinations > MOST_COMBINATIONS)
        .then_some(Problem::Sense("makes more than 100000 combinations: sweep over less at a time"))
}

/// The values that a file sets as `--set` does.
pub(super) fn settings(root: &Section<'_>) -> Result<Vec<Setting>> {
    let Some(value) = root.get("set") else { return Ok(Vec::new()) };
    let setting = |(key, value): (String, Value<'_>)| Ok(Setting { key, value: value.literal()? });
    value.section()?.entries().map(setting).collect()
}

/// Whether `measure` wants the delay of each packet, and the lengths of queues.
fn measured(root: &Section<'_>) -> Result<[bool; 3]> {
    let mut wanted = [false; 3];
    if let Some(list) = root.get("measure") {
        for value in list.list()? {
            wanted[value.word(&[("delay", 0), ("queue", 1), ("gap", 2)])?] = true;
        }
    }
    Ok(wanted)
}

fn windows(root: &Section<'_>, duration: Span) -> Result<Vec<Window>> {
    let warmup: Span = root.get("warmup").map_or(Ok(Span::ZERO), |value| value.quantity())?;
    if warmup >= duration {
        return Err(root.error("warmup", Problem::Sense("is not shorter than the `duration`")));
    }
    let mut windows = vec![Window { name: "steady".into(), from: warmup, to: duration }];
    let Some(list) = root.get("window") else { return Ok(windows) };
    let values = list.list()?;
    if values.len() >= MOST_WINDOWS {
        return Err(list.error(Problem::Sense("wants fewer than 65536 windows")));
    }
    for value in values {
        let section = value.section()?;
        section.allow(&["name", "from", "to"])?;
        let name = section.require("name")?;
        let (from, to) = (section.require("from")?.quantity()?, section.require("to")?);
        let window = Window { name: name.text()?.to_owned(), from, to: to.quantity()? };
        if windows.iter().any(|other| other.name == window.name) {
            return Err(name.error(Problem::Sense(
                "is the name of an earlier window too; `steady` is from `warmup` to the end",
            )));
        }
        if window.to <= window.from || window.to > duration {
            return Err(to.error(Problem::Sense("is not between `from` and the `duration`")));
        }
        windows.push(window);
    }
    Ok(windows)
}

/// Adds the links of the file, and the nodes that they join.
fn links(
    list: &Value<'_>,
    seed: Seed,
    links: &mut Vec<LinkSpec>,
    nodes: &mut HashSet<Arc<str>>,
) -> Result<()> {
    let keys: Vec<&'static str> =
        ["name", "between", "count", "up", "down"].into_iter().chain(profile_keys()).collect();
    let mut known: HashSet<Arc<str>> = links.iter().map(|link| Arc::clone(&link.name)).collect();
    let mut buffers = [String::new(), String::new()];
    for value in list.list()? {
        let section = value.section()?;
        section.allow(&keys)?;
        let name = section.require("name")?;
        let section = section.renamed(format!("link.{}", name.text()?.trim_end_matches('*')));
        for which in ["up", "down"] {
            if let Some(over) = section.get(which) {
                over.section()?.allow(&profile_keys().collect::<Vec<_>>())?;
            }
        }
        let between = section.require("between")?;
        let ends = between.list()?;
        let [first, second] = ends.as_slice() else {
            return Err(between
                .error(Problem::Sense("wants two nodes, for example [\"sender\", \"router\"]")));
        };
        let names = Numbered::read(&section, &name)?;
        let mut before: Option<(SharedProfile, SharedProfile)> = None;
        links.reserve(names.count() as usize);
        known.reserve(names.count() as usize);
        nodes.reserve(names.count() as usize);
        for number in names.numbers() {
            let [buffer, other] = &mut buffers;
            let name_now = names.name(number, buffer);
            if !known.insert(Arc::clone(&name_now)) {
                return Err(name.error(Problem::Sense("is the name of an earlier link too")));
            }
            // The links of an entry share their profiles, unless their rates are redrawn at random.
            let alike = before.take().filter(|(up, down)| {
                [up, down].iter().all(|one| one.profile().rate.redraw.is_none())
            });
            let (up, down) = match alike {
                Some(both) => both,
                None => profiles(&section, rate_seed(seed, &name_now), None)?,
            };
            before = Some((up.clone(), down.clone()));
            let ends = [numbered(first, number, buffer)?, numbered(second, number, other)?];
            if ends[0] == ends[1] {
                return Err(between.error(Problem::Sense("leads back to where it begins")));
            }
            links.push(LinkSpec::new(name_now, ends.map(|name| node(name, nodes)), up, down));
        }
    }
    if links.is_empty() {
        return Err(list.error(Problem::Sense("wants at least one link")));
    }
    Ok(())
}

/// The node of this name, which may be new.
fn node(name: &str, nodes: &mut HashSet<Arc<str>>) -> Arc<str> {
    Arc::clone(nodes.get_or_insert_with(name, |name| name.into()))
}

/// The length of a run. The simulator's agenda ends after two years.
fn duration(value: &Value<'_>) -> Result<Span> {
    let duration = positive(value)?;
    if duration > MOST_DURATION {
        return Err(value.error(Problem::Sense("wants at most 730 days")));
    }
    Ok(duration)
}

/// Checks that the rates and blackouts of links do not change too often to be followed.
fn check_changes(links: &Value<'_>, duration: Span) -> Result<()> {
    for link in links.list()? {
        let link = link.section()?;
        let link = match link.get("name") {
            Some(name) => link.renamed(format!("link.{}", name.text()?.trim_end_matches('*'))),
            None => link,
        };
        let mut sections = vec![link.clone()];
        for direction in ["up", "down"] {
            if let Some(value) = link.get(direction) {
                sections.push(value.section()?);
            }
        }
        for section in sections {
            let mut periods = Vec::new();
            if let Some(redraw) = section.get("redraw").filter(Value::is_table) {
                periods.extend(redraw.section()?.get("every"));
            }
            for blackout in section.get("blackout").map_or(Ok(Vec::new()), |list| list.list())? {
                periods.extend(blackout.section()?.get("every"));
            }
            for every in periods {
                let period: Span = every.quantity()?;
                if duration.as_nanos() / period.as_nanos().max(1) > MOST_CHANGES {
                    return Err(every.error(Problem::Sense(
                        "is so short that there are more than 10 million changes in a run",
                    )));
                }
            }
        }
    }
    Ok(())
}

/// The same of links that are not listed in the file.
fn check_periods(value: &Value<'_>, links: &[LinkSpec], duration: Span) -> Result<()> {
    for profile in links.iter().flat_map(|link| [&link.up, &link.down]) {
        let profile = profile.profile();
        let redraw = profile.rate.redraw.map(|redraw| redraw.every);
        let blackouts = profile.blackouts.iter().filter_map(|blackout| blackout.every);
        for period in redraw.into_iter().chain(blackouts) {
            if duration.as_nanos() / period.as_nanos().max(1) > MOST_CHANGES {
                return Err(value.error(Problem::Sense(
                    "has a link with more than 10 million changes in a run",
                )));
            }
        }
    }
    Ok(())
}

/// Checks that all flows begin within the run: a flow that never does would be counted as one that
/// got nothing. Of flows that arrive in its course, the first intervals must begin within it.
fn check_starts(list: &Value<'_>, flows: &[FlowSpec], duration: Span) -> Result<()> {
    let latest = |flow: &FlowSpec| match &flow.start {
        _ if flow.size.is_some() => Span::ZERO,
        Start::At(at) | Start::Within(_, at) => *at,
        Start::Arrival(arrivals) => arrivals.from,
    };
    let is_late = |flow: &&FlowSpec| latest(flow) >= duration;
    let Some(late) = flows.iter().find(is_late) else { return Ok(()) };
    let problem = Problem::Because(format!(
        "flow {} can begin after {}, and the run ends after {duration}: give it an earlier `start` \
         or the run a longer `duration`",
        late.name,
        latest(late),
    ));
    for entry in list.list()? {
        let section = entry.section()?;
        let pattern = section.require("name")?.text()?.to_owned();
        let (before, behind) = pattern.split_once('*').unwrap_or((&pattern, ""));
        if late.name.starts_with(before)
            && late.name.ends_with(behind)
            && let Some(start) =
                section.renamed(format!("flow.{}", pattern.trim_end_matches('*'))).get("start")
        {
            return Err(start.error(problem));
        }
    }
    Err(list.error(problem))
}
