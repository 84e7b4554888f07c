//! Named topologies: the key `topology` stands for the links that `[[link]]` would list.

mod clos;
mod transit_stub;

use std::sync::Arc;

use hashbrown::HashSet;
use link::SharedProfile;
use link::config::reader::{Section, Value};
use link::config::{ConfigError, LinkPath, Problem};
use toml::de::DeTable;
use units::{Seed, Span};

use super::LinkSpec;
use super::values::{MOST, Result, count, profile_keys, profiles, rate_seed};

/// The links of hosts in data centres and dumbbells, if nothing else is said.
const DELAY: &str = "1 ms";
const QUEUE: &str = "10000 packets";

/// The links of the topology that `value` describes; `seed` is the scenario's.
pub(super) fn links(value: &Value<'_>, seed: Seed) -> Result<Vec<LinkSpec>> {
    let section = value.section()?;
    section.allow(&["dumbbell", "parking_lot", "transit_stub", "leaf_spine", "fat_tree"])?;
    let mut kinds = section.entries();
    let (Some((kind, of_kind)), None) = (kinds.next(), kinds.next()) else {
        return Err(value.error(Problem::Sense(
            "wants one of `dumbbell`, `parking_lot`, `transit_stub`, `leaf_spine` and `fat_tree`",
        )));
    };
    let section = of_kind.section()?;
    let mut plan = Expansion { seed, links: Vec::new(), nodes: HashSet::new() };
    match kind.as_str() {
        "dumbbell" => dumbbell(&section, &mut plan),
        "parking_lot" => parking_lot(&section, &mut plan),
        "transit_stub" => transit_stub::transit_stub(&section, &mut plan),
        "leaf_spine" => clos::leaf_spine(&section, &mut plan),
        _ => clos::fat_tree(&section, &mut plan),
    }?;
    Ok(plan.links)
}

/// The links so far.
struct Expansion {
    seed: Seed,
    links: Vec<LinkSpec>,
    nodes: HashSet<Arc<str>>,
}

impl Expansion {
    /// Adds a link of a class.
    fn join(&mut self, name: String, between: [String; 2], class: &Class<'_>) -> Result<()> {
        let (up, down) = class.profiles(&name, self.seed)?;
        let between = between
            .map(|name| Arc::clone(self.nodes.get_or_insert_with(&*name, |name| name.into())));
        self.links.push(LinkSpec::new(name.into(), between, up, down));
        Ok(())
    }
}

/// Links that are alike.
struct Class<'a> {
    section: Section<'a>,
    path: Option<LinkPath>,
    both: (SharedProfile, SharedProfile),
}

impl<'a> Class<'a> {
    /// The class of a section with the keys of a link, and the keys `others`.
    fn read(
        section: Section<'a>,
        others: &[&'static str],
        path: Option<LinkPath>,
        seed: Seed,
    ) -> Result<Class<'a>> {
        allow(&section, others)?;
        let both = profiles(&section, seed, path)?;
        Ok(Class { section, path, both })
    }

    /// The class of the table `key`, over defaults.
    fn below(
        section: &Section<'a>,
        key: &str,
        defaults: &'a DeTable<'a>,
        seed: Seed,
    ) -> Result<Class<'a>> {
        Class::read(section.over_defaults(key, defaults)?, &[], None, seed)
    }

    /// The profiles of the link of this name: those of the class, unless its rates are redrawn.
    fn profiles(&self, name: &str, seed: Seed) -> Result<(SharedProfile, SharedProfile)> {
        let (up, down) = &self.both;
        if [up, down].iter().all(|one| one.profile().rate.redraw.is_none()) {
            return Ok(self.both.clone());
        }
        profiles(&self.section, rate_seed(seed, name), self.path)
    }

    /// The propagation delay there and back.
    fn rtt(&self) -> Span {
        self.both.0.delay() + self.both.1.delay()
    }
}

/// Checks that a section has the keys of a link and `others`.
fn allow(section: &Section<'_>, others: &[&'static str]) -> Result<()> {
    let link: Vec<&'static str> = profile_keys().collect();
    section.allow(&[&link, others, &["up", "down"]].concat())?;
    for which in ["up", "down"] {
        if let Some(over) = section.get(which) {
            over.section()?.allow(&link)?;
        }
    }
    Ok(())
}

/// The table of a text of this program.
fn defaults(text: &str) -> toml::Spanned<DeTable<'_>> {
    DeTable::parse(text).expect("defaults are valid")
}

/// A number of things under `key`.
fn number(section: &Section<'_>, key: &str, usual: u32) -> Result<u32> {
    section.get(key).map_or(Ok(usual), |value| count(&value))
}

/// Checks the number of links of a topology before they are made; `key` decides most about it.
fn check_size(section: &Section<'_>, key: &str, links: u64) -> Result<()> {
    if links > MOST {
        let problem = format!("makes {links} links, and a topology has up to {MOST}");
        return Err(at(section, key, Problem::Because(problem)));
    }
    Ok(())
}

/// An error about a key that may be left out.
fn at(section: &Section<'_>, key: &str, problem: Problem) -> ConfigError {
    match section.get(key) {
        Some(value) => value.error(problem),
        None => section.error(key, problem),
    }
}

/// The links of hosts beside this main link: ten times its rate.
fn access_beside(section: &Section<'_>, seed: Seed) -> Result<String> {
    // The queue's bandwidth-delay product does not matter for the rate.
    let path = Some(LinkPath { links: 1, others: Span::ZERO });
    let (up, _) = profiles(section, seed, path)?;
    let rate = up.profile().rate.base.as_bits().saturating_mul(10).max(1);
    Ok(format!("rate = \"{rate} bit/s\"\ndelay = \"{DELAY}\"\nqueue = \"{QUEUE}\""))
}

/// `sender1` and so on, `left`, the link `bottleneck`, `right`, `receiver1` and so on.
fn dumbbell(section: &Section<'_>, plan: &mut Expansion) -> Result<()> {
    const OWN: &[&str] = &["pairs", "access"];
    allow(section, OWN)?;
    let pairs = number(section, "pairs", 1)?;
    check_size(section, "pairs", 2 * u64::from(pairs) + 1)?;
    let text = access_beside(section, plan.seed)?;
    let table = defaults(&text);
    let access = Class::below(section, "access", table.get_ref(), plan.seed)?;
    let path = LinkPath { links: 1, others: access.rtt() * 2 };
    let main = Class::read(section.clone(), OWN, Some(path), plan.seed)?;
    plan.join("bottleneck".into(), ["left".into(), "right".into()], &main)?;
    for pair in 1..=pairs {
        plan.join(format!("in{pair}"), [format!("sender{pair}"), "left".into()], &access)?;
        plan.join(format!("out{pair}"), ["right".into(), format!("receiver{pair}")], &access)?;
    }
    Ok(())
}

/// `router1`, the link `hop1`, `router2` and so on; `sender` and `receiver` at the ends, and for
/// each hop `senderN` and `receiverN`, between whom it lies alone.
fn parking_lot(section: &Section<'_>, plan: &mut Expansion) -> Result<()> {
    const OWN: &[&str] = &["hops", "access"];
    allow(section, OWN)?;
    let hops = number(section, "hops", 2)?;
    check_size(section, "hops", 3 * u64::from(hops) + 2)?;
    let text = access_beside(section, plan.seed)?;
    let table = defaults(&text);
    let access = Class::below(section, "access", table.get_ref(), plan.seed)?;
    let path = LinkPath { links: hops, others: access.rtt() * 2 };
    let main = Class::read(section.clone(), OWN, Some(path), plan.seed)?;
    let router = |number: u32| format!("router{number}");
    for hop in 1..=hops {
        plan.join(format!("hop{hop}"), [router(hop), router(hop + 1)], &main)?;
    }
    plan.join("in".into(), ["sender".into(), router(1)], &access)?;
    plan.join("out".into(), [router(hops + 1), "receiver".into()], &access)?;
    for hop in 1..=hops {
        plan.join(format!("in{hop}"), [format!("sender{hop}"), router(hop)], &access)?;
        plan.join(format!("out{hop}"), [router(hop + 1), format!("receiver{hop}")], &access)?;
    }
    Ok(())
}
