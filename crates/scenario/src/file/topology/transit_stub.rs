//! Transit-stub topologies (E. W. Zegura, K. L. Calvert, S. Bhattacharjee, "How to Model an
//! Internetwork", 1996), as the program GT-ITM makes them: domains are random graphs.

use link::config::Problem;
use link::config::reader::Section;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Seed;

use super::{Class, Expansion, at, check_size, count, defaults, number};
use crate::draw;
use crate::file::values::Result;

const KEYS: &[&str] = &[
    "transits",
    "transit_nodes",
    "transit_edges",
    "stubs",
    "stub_nodes",
    "stub_edges",
    "hosts",
    "seed",
    "transit",
    "uplink",
    "stub",
    "access",
];
/// Defaults of each kind of link.
const TRANSIT: &str = "rate = \"1 Gbit/s\"\ndelay = \"20 ms\"\nqueue = \"1000 packets\"";
const UPLINK: &str = "rate = \"200 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"1000 packets\"";
const STUB: &str = "rate = \"100 Mbit/s\"\ndelay = \"2 ms\"\nqueue = \"1000 packets\"";
const ACCESS: &str = "rate = \"100 Mbit/s\"\ndelay = \"1 ms\"\nqueue = \"1000 packets\"";
/// The shares of possible links inside a domain of GT-ITM's own example, with 100 nodes in all.
const TRANSIT_EDGES: f64 = 0.6;
const STUB_EDGES: f64 = 0.42;
/// The most routers of a domain: all pairs of them are drawn.
const MOST_NODES: u32 = 1_000;
/// A graph that is not connected is drawn again this often.
const MOST_DRAWS: u32 = 1_000;

pub(super) fn transit_stub(section: &Section<'_>, plan: &mut Expansion) -> Result<()> {
    section.allow(KEYS)?;
    let transits = nodes(section, "transits", 1)?;
    let transit_nodes = nodes(section, "transit_nodes", 4)?;
    let stubs = number(section, "stubs", 3)?;
    let stub_nodes = nodes(section, "stub_nodes", 8)?;
    let pairs = |n: u32| u64::from(n) * u64::from(n - 1) / 2;
    let domains = u64::from(transits) * u64::from(transit_nodes) * u64::from(stubs);
    let of_stub = 1 + u64::from(stub_nodes) + pairs(stub_nodes);
    let hosts = section.get("hosts").map(|value| count(&value)).transpose()?;
    let links = domains.saturating_mul(of_stub)
        + u64::from(hosts.unwrap_or(0))
        + u64::from(transits) * pairs(transit_nodes)
        + pairs(transits);
    check_size(section, "stubs", links)?;
    let seed = Seed(section.get("seed").map_or(Ok(1), |value| value.integer())?);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed.stream("topology").0);
    let tables = [TRANSIT, UPLINK, STUB, ACCESS].map(defaults);
    let [transit, uplink, stub, access] = &tables;
    let transit = Class::below(section, "transit", transit.get_ref(), plan.seed)?;
    let uplink = Class::below(section, "uplink", uplink.get_ref(), plan.seed)?;
    let stub = Class::below(section, "stub", stub.get_ref(), plan.seed)?;
    let access = Class::below(section, "access", access.get_ref(), plan.seed)?;
    let router = |domain: u32, node: u32| format!("t{domain}-{node}");
    let mut transit_links = 0;
    let mut next = || {
        transit_links += 1;
        format!("transit{transit_links}")
    };
    // All transit domains are joined, each pair by a link between random routers of both.
    for first in 1..=transits {
        for second in first + 1..=transits {
            let mut any = || 1 + below(transit_nodes, &mut rng);
            plan.join(next(), [router(first, any()), router(second, any())], &transit)?;
        }
    }
    let mut routers = Vec::new();
    let mut host = 0;
    let mut attach = |router: String, plan: &mut Expansion| {
        host += 1;
        plan.join(format!("access{host}"), [format!("host{host}"), router], &access)
    };
    let (mut domain, mut stub_links) = (0, 0);
    for of in 1..=transits {
        let edges = graph(section, "transit_edges", TRANSIT_EDGES, transit_nodes, &mut rng)?;
        for (a, b) in edges {
            plan.join(next(), [router(of, a + 1), router(of, b + 1)], &transit)?;
        }
        routers.extend((1..=transit_nodes).map(|node| router(of, node)));
        for node in 1..=transit_nodes {
            for _ in 0..stubs {
                domain += 1;
                let inside = |node: u32| format!("s{domain}-{node}");
                let gate = 1 + below(stub_nodes, &mut rng);
                plan.join(format!("uplink{domain}"), [inside(gate), router(of, node)], &uplink)?;
                let edges = graph(section, "stub_edges", STUB_EDGES, stub_nodes, &mut rng)?;
                for (a, b) in edges {
                    stub_links += 1;
                    let between = [inside(a + 1), inside(b + 1)];
                    plan.join(format!("stub{stub_links}"), between, &stub)?;
                }
                routers.extend((1..=stub_nodes).map(inside));
                if hosts.is_none() {
                    (1..=stub_nodes).try_for_each(|node| attach(inside(node), plan))?;
                }
            }
        }
    }
    // A stream of their own: hosts do not change the links of the routers.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed.stream("hosts").0);
    for _ in 0..hosts.unwrap_or(0) {
        attach(routers[draw::index(&mut rng, routers.len())].clone(), plan)?;
    }
    Ok(())
}

/// A number of routers or domains whose pairs are drawn.
fn nodes(section: &Section<'_>, key: &str, usual: u32) -> Result<u32> {
    let count = number(section, key, usual)?;
    match section.get(key).filter(|_| count > MOST_NODES) {
        None => Ok(count),
        Some(value) => Err(value.error(Problem::Sense("wants up to 1000"))),
    }
}

/// The links of a random connected graph of `nodes` nodes, in which each pair is joined with the
/// probability `key`. Graphs are drawn until one is connected, so all of these are equally likely.
fn graph(
    section: &Section<'_>,
    key: &str,
    usual: f64,
    nodes: u32,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<Vec<(u32, u32)>> {
    let share = section.get(key).map_or(Ok(usual), |value| value.probability())?;
    for _ in 0..MOST_DRAWS {
        let mut edges = Vec::new();
        let mut groups: Vec<u32> = (0..nodes).collect();
        let mut rest = nodes - 1;
        for a in 0..nodes {
            for b in a + 1..nodes {
                if draw::unit(rng) > share {
                    continue;
                }
                edges.push((a, b));
                let (of_a, of_b) = (groups[a as usize], groups[b as usize]);
                if of_a != of_b {
                    groups.iter_mut().filter(|group| **group == of_b).for_each(|it| *it = of_a);
                    rest -= 1;
                }
            }
        }
        if rest == 0 {
            return Ok(edges);
        }
    }
    let problem = Problem::Because(format!(
        "makes no connected domain of {nodes} routers in {MOST_DRAWS} draws: raise it"
    ));
    Err(at(section, key, problem))
}

/// A number below `count`, each equally likely.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from 0 to less than a number of 32 bits"
)]
fn below(count: u32, rng: &mut Xoshiro256PlusPlus) -> u32 {
    ((1.0 - draw::unit(rng)) * f64::from(count)) as u32
}
