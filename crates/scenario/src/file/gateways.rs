//! The gateways of a scenario file.

mod ways;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use harp::{Config, Sharing};
use hashbrown::HashSet;
use link::config::Problem;
use link::config::reader::{Section, Value, unknown_word};
use policy::cc::{HarpCoupling, HarpOptions};
use units::Bytes;
use wire::harp::MOST_PATHS;

use self::ways::{Distances, Ways};
use super::names::{Numbered, node, numbered, route};
use super::values::{Result, bytes_up_to, positive};
use super::{LinkSpec, Place, one_of};

const KEYS: &[&str] = &[
    "name",
    "count",
    "entry",
    "exit",
    "paths",
    "relays",
    "profile",
    "coupling",
    "sharing",
    "reorder",
    "admission",
    "choke",
    "hold",
    "pairs",
    "clocks",
    "connections",
    "overhead",
    "controller",
];

/// In place of a gateway's name: none.
const OFF: &str = "off";

const CONTROLLER_KEYS: &[&str] = &[
    "alpha",
    "full_growth",
    "beta",
    "delta",
    "threshold_least",
    "threshold_most",
    "delay_memory",
    "delay_filter",
    "foreground_queue",
    "couple_losses",
    "needed",
    "mark",
    "floor",
    "slow_start",
    "extent_by_rate",
    "memory",
    "drain",
];

/// A pair of background gateways.
#[derive(Clone, Debug)]
pub struct GatewaySpec {
    /// Its name.
    pub name: Arc<str>,
    /// The nodes of the entry and the exit.
    pub ends: [Arc<str>; 2],
    /// The names of the links of each path from the entry to the exit, as [`one_of`] reads them;
    /// empty for the shortest route. The first path is the direct one.
    pub paths: Vec<Vec<String>>,
    /// The settings of both ends.
    pub config: Config,
    /// The name of the profile from which the settings are.
    pub profile: &'static str,
    /// What tunnelling adds to a segment; `None` for the headers that it has.
    pub overhead: Option<Bytes>,
}

impl GatewaySpec {
    /// The first key by which its settings differ from those of the gateway that ships; `None` if
    /// all are the same. `sharing` and `overhead` are not looked at: both are the gateway's own.
    #[must_use]
    pub fn unlike_shipped(&self) -> Option<&'static str> {
        let (own, shipped) = (&self.config, Config::modern(self.config.paths));
        let differs = [
            ("profile", self.profile != "modern"),
            ("coupling", own.controller.coupling != shipped.controller.coupling),
            ("reorder", own.reorder.to_bits() != shipped.reorder.to_bits()),
            ("admission", own.admission != shipped.admission),
            ("choke", own.controller.chokes != shipped.controller.chokes),
            ("hold", own.holds != shipped.holds),
            ("pairs", own.pairs != shipped.pairs),
            ("clocks", own.corrects_clocks != shipped.corrects_clocks),
            ("connections", own.most_connections != shipped.most_connections),
            ("controller", own.controller != shipped.controller),
        ];
        differs.into_iter().find(|(_, differs)| *differs).map(|(key, _)| key)
    }

    /// Whether all connections between the two gateways share a controller.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.config.sharing == Sharing::Site
    }
}

/// The gateways through which a flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Through {
    /// The index of the pair in the scenario.
    pub gateway: usize,
    /// Whether the sender of the flow is behind the exit.
    pub is_reverse: bool,
}

impl Through {
    /// The indices, in [`GatewaySpec::ends`], of the gateway nearer to the sender and of the other.
    #[must_use]
    pub fn sides(self) -> [usize; 2] {
        if self.is_reverse { [1, 0] } else { [0, 1] }
    }
}

/// The gateways of a file, and how far each node is from them.
#[derive(Debug, Default)]
pub(super) struct Gateways {
    pub(super) specs: Vec<GatewaySpec>,
    ways: Ways,
    /// Of each gateway, the links from its entry and from its exit to each node.
    distances: Vec<OnceCell<[Distances; 2]>>,
}

impl Gateways {
    /// The gateways over links that join these nodes.
    pub(super) fn read(
        list: &Value<'_>,
        links: &[LinkSpec],
        nodes: &HashSet<Arc<str>>,
    ) -> Result<Gateways> {
        let mut gateways = Gateways { ways: Ways::new(links), ..Gateways::default() };
        let mut known: HashSet<Arc<str>> = HashSet::new();
        for value in list.list()? {
            let section = value.section()?;
            section.allow(KEYS)?;
            let name = section.require("name")?;
            let section =
                section.renamed(format!("gateway.{}", name.text()?.trim_end_matches('*')));
            let names = Numbered::read(&section, &name)?;
            let mut buffer = String::new();
            for number in names.numbers() {
                let own = names.name(number, &mut buffer);
                if *own == *OFF {
                    let problem = "is what a flow without gateways says: choose another name";
                    return Err(name.error(Problem::Sense(problem)));
                }
                if !known.insert(Arc::clone(&own)) {
                    return Err(name.error(Problem::Sense("is the name of an earlier gateway too")));
                }
                let spec = gateway(&section, own, number, links, nodes, &gateways.ways)?;
                gateways.specs.push(spec);
            }
        }
        gateways.distances.resize_with(gateways.specs.len(), OnceCell::new);
        Ok(gateways)
    }

    /// The gateways that `value` names, for the flow of this number between these hosts; `None` if
    /// it is "off".
    pub(super) fn through(
        &self,
        value: &Value<'_>,
        number: u32,
        from: &Place,
        to: &Place,
    ) -> Result<Option<Through>> {
        let mut buffer = String::new();
        let name = numbered(value, number, &mut buffer)?;
        if name == OFF {
            return Ok(None);
        }
        let Some(gateway) = self.specs.iter().position(|spec| *spec.name == *name) else {
            let names = self.specs.iter().map(|spec| &*spec.name).chain([OFF]);
            return Err(value.error(unknown_word(name, names)));
        };
        let spec = &self.specs[gateway];
        if let Some(host) =
            from.hosts().iter().chain(to.hosts()).find(|host| spec.ends.contains(host))
        {
            let problem = format!(
                "has a flow that begins or ends at its own node {host}: give the flow a host \
                 behind the gateway"
            );
            return Err(value.error(Problem::Because(problem)));
        }
        let [entry, exit] = self.distances[gateway]
            .get_or_init(|| spec.ends.each_ref().map(|end| self.ways.distances_from(end)));
        let mut sides = BTreeSet::new();
        for host in from.hosts() {
            let far = |distances: &Distances| distances.links_to(host).unwrap_or(u32::MAX);
            let (near_entry, near_exit) = (far(entry), far(exit));
            // A host that no links lead to is reported where its routes are searched.
            if near_entry == near_exit && near_entry < u32::MAX {
                let problem = format!(
                    "is not clear: {host}, where the flow begins, is {near_entry} links from the \
                     entry {} and from the exit {}; move it nearer to the gateway where its data \
                     is to enter, by a link between them",
                    spec.ends[0], spec.ends[1],
                );
                return Err(value.error(Problem::Because(problem)));
            }
            sides.insert(near_exit < near_entry);
        }
        if sides.len() > 1 {
            return Err(value.error(Problem::Sense(
                "has a flow with senders behind its entry and others behind its exit: give each \
                 side a flow of its own",
            )));
        }
        Ok(Some(Through { gateway, is_reverse: sides.contains(&true) }))
    }
}

/// The gateway of this name; `number` stands for each `*`.
fn gateway(
    section: &Section<'_>,
    name: Arc<str>,
    number: u32,
    links: &[LinkSpec],
    nodes: &HashSet<Arc<str>>,
    ways: &Ways,
) -> Result<GatewaySpec> {
    let (entry, exit) = (section.require("entry")?, section.require("exit")?);
    let mut buffer = String::new();
    let ends =
        [node(&entry, number, nodes, &mut buffer)?, node(&exit, number, nodes, &mut buffer)?];
    if ends[0] == ends[1] {
        return Err(exit.error(Problem::Sense("is the entry too: they are two nodes")));
    }
    let paths = match (section.get("paths"), section.get("relays")) {
        (None, None) => vec![Vec::new()],
        (Some(value), None) => paths(&value, number, &ends, links)?,
        (None, Some(value)) => over_relays(&value, number, &ends, nodes, ways)?,
        (Some(_), Some(value)) => {
            return Err(value.error(Problem::Sense(
                "and `paths` exclude each other: list the links of all paths, or the relays",
            )));
        }
    };
    let count = u8::try_from(paths.len()).expect("there are at most eight");
    let profiles = [("modern", "modern"), ("paper", "paper")];
    let profile = section.get("profile").map_or(Ok("modern"), |value| value.word(&profiles))?;
    let config = if profile == "paper" { Config::paper(count) } else { Config::modern(count) };
    let overhead = section
        .get("overhead")
        .map(|value| bytes_up_to(&value, 1_000, "wants up to 1000 bytes"))
        .transpose()?;
    Ok(GatewaySpec { name, ends, paths, config: settings(section, config)?, profile, overhead })
}

/// The settings over those of the profile.
fn settings(section: &Section<'_>, mut config: Config) -> Result<Config> {
    if let Some(value) = section.get("controller") {
        controller(&value.section()?, &mut config.controller)?;
    }
    if let Some(value) = section.get("coupling") {
        config.controller.coupling = value.word(&[
            ("adaptive", HarpCoupling::Adaptive),
            ("joint", HarpCoupling::Joint),
            ("independent", HarpCoupling::Independent),
        ])?;
    }
    if let Some(value) = section.get("sharing") {
        config.sharing =
            value.word(&[("connection", Sharing::Connection), ("site", Sharing::Site)])?;
    }
    if let Some(value) = section.get("reorder") {
        config.reorder = at_least(&value, 0.0, "wants 0 or more, in delays of the slowest path")?;
    }
    if let Some(value) = section.get("admission") {
        config.admission = if is_off(&value) {
            None
        } else {
            let problem = "wants 1 or more, in round-trip times of the direct path, or \"off\"";
            Some(at_least(&value, 1.0, problem)?)
        };
    }
    if let Some(value) = section.get("connections") {
        let most = usize::try_from(value.integer()?).ok().filter(|most| *most > 0);
        config.most_connections =
            most.ok_or_else(|| value.error(Problem::Sense("wants 1 connection or more")))?;
    }
    for (key, slot) in [
        ("choke", &mut config.controller.chokes),
        ("hold", &mut config.holds),
        ("pairs", &mut config.pairs),
        ("clocks", &mut config.corrects_clocks),
    ] {
        if let Some(value) = section.get(key) {
            *slot = value.boolean()?;
        }
    }
    Ok(config)
}

/// The parameters of the controller over those of the profile.
fn controller(section: &Section<'_>, options: &mut HarpOptions) -> Result<()> {
    section.allow(CONTROLLER_KEYS)?;
    let lateness = &mut options.lateness;
    for (key, slot, least) in [
        ("alpha", &mut options.alpha, 0.0),
        ("beta", &mut options.beta, 0.0),
        ("delta", &mut lateness.share, 0.0),
        ("floor", &mut options.floor, 0.01),
    ] {
        if let Some(value) = section.get(key) {
            *slot = value.number()?;
            if !(least..=1.0).contains(slot) {
                let problem = format!("wants a number from {least} to 1");
                return Err(value.error(Problem::Because(problem)));
            }
        }
    }
    for (key, slot) in [("needed", &mut options.needed), ("mark", &mut options.mark)] {
        if let Some(value) = section.get(key) {
            *slot = at_least(&value, 0.0, "wants 0 or more, in weights of late packets")?;
        }
    }
    if let Some(value) = section.get("full_growth") {
        let problem = "wants 1 packet or more, or `\"off\"`";
        options.full_growth =
            if is_off(&value) { None } else { Some(at_least(&value, 1.0, problem)?) };
    }
    for (key, slot) in
        [("threshold_least", &mut lateness.least), ("delay_memory", &mut lateness.memory)]
    {
        if let Some(value) = section.get(key) {
            *slot = positive(&value)?;
        }
    }
    for (key, slot) in [
        ("threshold_most", &mut lateness.most),
        ("delay_filter", &mut lateness.filter),
        ("foreground_queue", &mut options.foreground),
        ("memory", &mut options.memory),
    ] {
        if let Some(value) = section.get(key) {
            *slot = if is_off(&value) { None } else { Some(positive(&value)?) };
        }
    }
    if let Some(value) = section.get("drain") {
        options.drain = if is_off(&value) { None } else { Some(positive(&value)?) };
        if options.drain.is_some_and(|drain| drain < HarpOptions::LEAST_DRAIN) {
            return Err(value.error(Problem::Sense("wants `\"off\"`, or 10 s and more")));
        }
    }
    if lateness.most.is_some_and(|most| most < lateness.least) {
        // At least one of both is given: the profiles have them in order.
        let given = section.get("threshold_most").or_else(|| section.get("threshold_least"));
        let value = given.expect("the section changes one of them");
        return Err(value.error(Problem::Sense("wants `threshold_least` up to `threshold_most`")));
    }
    for (key, slot) in [
        ("slow_start", &mut options.slow_start),
        ("extent_by_rate", &mut options.extent_by_rate),
        ("couple_losses", &mut options.couples_losses),
    ] {
        if let Some(value) = section.get(key) {
            *slot = value.boolean()?;
        }
    }
    Ok(())
}

fn is_off(value: &Value<'_>) -> bool {
    value.is_text() && value.text().is_ok_and(|text| text == OFF)
}

fn at_least(value: &Value<'_>, least: f64, problem: &'static str) -> Result<f64> {
    let number = value.number()?;
    if number < least {
        return Err(value.error(Problem::Sense(problem)));
    }
    Ok(number)
}

/// The links of each path. A number makes that many of the shortest route.
fn paths(
    value: &Value<'_>,
    number: u32,
    ends: &[Arc<str>; 2],
    links: &[LinkSpec],
) -> Result<Vec<Vec<String>>> {
    let wanted = |count: usize| {
        if (1..=MOST_PATHS).contains(&count) {
            return Ok(());
        }
        Err(value.error(Problem::Sense("wants 1 to 8 paths from the entry to the exit")))
    };
    if let Ok(count) = value.integer() {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        wanted(count)?;
        return Ok(vec![Vec::new(); count]);
    }
    let list = value.list()?;
    wanted(list.len())?;
    let path = |value: &Value<'_>| {
        let names = route(value, number, links)?;
        check_path(&names, ends, links)
            .map_err(|problem| value.error(Problem::Because(problem)))?;
        Ok(names)
    };
    list.iter().map(path).collect()
}

/// The shortest route, and a path by each relay: the shortest way there and on to the exit.
fn over_relays(
    value: &Value<'_>,
    number: u32,
    ends: &[Arc<str>; 2],
    nodes: &HashSet<Arc<str>>,
    ways: &Ways,
) -> Result<Vec<Vec<String>>> {
    let list = value.list()?;
    if !(1..MOST_PATHS).contains(&list.len()) {
        return Err(value.error(Problem::Sense("wants 1 to 7 nodes, each for a further path")));
    }
    let [entry, exit] = ends;
    let from_entry = ways.distances_from(entry);
    let path = |value: &Value<'_>| {
        let relay = node(value, number, nodes, &mut String::new())?;
        if ends.contains(&relay) {
            return Err(value.error(Problem::Sense("is an end of the pair: name a node between")));
        }
        let there = from_entry.way_to(&relay);
        let on = ways.distances_from(&relay).way_to(exit);
        let (Some(there), Some(on)) = (there, on) else {
            let problem = format!("has no way from {entry} over {relay} to {exit}");
            return Err(value.error(Problem::Because(problem)));
        };
        Ok([there, on].concat())
    };
    let further = list.iter().map(path);
    std::iter::once(Ok(Vec::new())).chain(further).collect()
}

/// Checks that links lead from the entry to the exit.
fn check_path(
    names: &[String],
    [entry, exit]: &[Arc<str>; 2],
    links: &[LinkSpec],
) -> Result<(), String> {
    // A name may stand for one of several links.
    let mut at: BTreeSet<&str> = BTreeSet::from([&**entry]);
    let listed = |nodes: &BTreeSet<&str>| nodes.iter().copied().collect::<Vec<_>>().join(" or ");
    for name in names {
        let mut next: BTreeSet<&str> = BTreeSet::new();
        for LinkSpec { name: link, directions: [up, down], between: [a, b], .. } in links {
            let is_it = **link == **name || one_of(name, link);
            if (is_it || **up == **name) && at.contains(&**a) {
                next.insert(b);
            }
            if (is_it || **down == **name) && at.contains(&**b) {
                next.insert(a);
            }
        }
        if next.is_empty() {
            return Err(format!(
                "does not lead from {entry} to {exit}: `{name}` does not begin at {}",
                listed(&at)
            ));
        }
        at = next;
    }
    if !at.contains(&**exit) {
        return Err(format!(
            "does not lead from {entry} to {exit}: it ends at {}; list all links of the path",
            listed(&at)
        ));
    }
    Ok(())
}
