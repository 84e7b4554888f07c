//! Parses the description of a mesh from TOML.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use link::config::reader::{Section, Source, Value, read_text};
use link::config::{ConfigError, PROFILE_KEYS, Problem, profiles};
use units::{Seed, Span};

use super::description::{Description, LinkEnd, MeshLink, MeshNode, NodeRole};
use super::routes::Routes;
use crate::mesh::device_name;
use crate::translator::{Behaviour, Dependence, PortChoice};

const KEYS: &[&str] = &["name", "seed", "host", "router", "translator", "link"];
const HOST_KEYS: &[&str] = &["forwards", "serves"];
const ROUTER_KEYS: &[&str] = &["serves"];
const TRANSLATOR_KEYS: &[&str] = &[
    "outside",
    "mapping",
    "filtering",
    "ports",
    "hairpinning",
    "inbound_refresh",
    "udp_idle",
    "tcp_idle",
    "tcp_transitory",
    "echo_idle",
    "capacity",
    "ipv6",
    "serves",
];
const LINK_KEYS: &[&str] = &["name", "between", "addresses", "mtu", "up", "down"];
const KINDS: [(&str, Dependence); 3] = [
    ("endpoint-independent", Dependence::Endpoint),
    ("address-dependent", Dependence::Address),
    ("address-and-port-dependent", Dependence::AddressAndPort),
];
/// The minimum MTU of IPv6 (RFC 8200, section 5).
const MIN_MTU: u64 = 1_280;
/// The most nodes, and the most links.
const MOST: usize = 1_000;
/// The most links of a host: each is a device with a routing table.
const MOST_DEVICES: usize = 250;

type Result<T> = std::result::Result<T, ConfigError>;

impl Description {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is not valid.
    pub fn read(path: &Path) -> Result<Description> {
        let file = path.display().to_string();
        match read_text(path) {
            Ok(text) => Description::parse(&text, &file),
            Err(error) => Err(ConfigError {
                file,
                line: None,
                key: String::new(),
                problem: Problem::Read(error),
            }),
        }
    }

    /// Reads a description from `text`; `file` is its name in messages.
    ///
    /// # Errors
    /// If the text is not valid.
    pub fn parse(text: &str, file: &str) -> Result<Description> {
        description(text, file)
    }
}

fn description(text: &str, file: &str) -> Result<Description> {
    let source = Source { file, text };
    let table = source.table()?;
    let root = Section::root(source, table.get_ref());
    root.allow(KEYS)?;
    let name = root.get("name").map_or(Ok("mesh"), |value| value.text())?.to_owned();
    let seed = root.get("seed").map_or(Ok(1), |value| value.integer()).map(Seed)?;
    let mut nodes: Vec<MeshNode> = Vec::new();
    // A translator names a link, and a link the translator.
    let mut outsides: Vec<(usize, Value<'_>)> = Vec::new();
    for kind in ["host", "router", "translator"] {
        let Some(all) = root.get(kind) else { continue };
        for (name, value) in all.section()?.entries() {
            if nodes.iter().any(|node| node.name == name) {
                return Err(value.error(Problem::Sense("is the name of another node too")));
            }
            let section = value.section()?;
            let role = match kind {
                "host" => host(&section)?,
                "router" => section.allow(ROUTER_KEYS).map(|()| NodeRole::Router)?,
                _ => {
                    let role = translator(&section)?;
                    outsides.push((nodes.len(), section.require("outside")?));
                    role
                }
            };
            let serves =
                section.get("serves").map_or(Ok(Vec::new()), |value| interfaces(&value))?;
            nodes.push(MeshNode { name, role, serves });
        }
    }
    let listed = root.require("link")?;
    let links = links(&listed, seed, &nodes)?;
    let mut description = Description { name, seed, nodes, links };
    for (index, value) in outsides {
        let link = description.link(value.text()?);
        let names = description.links.iter().map(|link| link.name.as_str());
        let link = link.ok_or_else(|| value.unknown(names))?;
        if description.links[link].ends.iter().all(|end| end.node != index) {
            return Err(value.error(Problem::Sense("is no link of this translator")));
        }
        if let NodeRole::Translator { outside, .. } = &mut description.nodes[index].role {
            *outside = link;
        }
    }
    let has_too_many = |(index, node): (usize, &MeshNode)| {
        let is_host = matches!(node.role, NodeRole::Host { .. });
        is_host && description.links_of(index).count() > MOST_DEVICES
    };
    if description.nodes.len() > MOST || description.nodes.iter().enumerate().any(has_too_many) {
        return Err(too_many(&listed));
    }
    if let Err(ambiguous) = Routes::new(&description) {
        return Err(listed.error(Problem::Because(ambiguous.to_string())));
    }
    Ok(description)
}

fn too_many(listed: &Value<'_>) -> ConfigError {
    listed.error(Problem::Because(format!(
        "a mesh has up to {MOST} nodes and {MOST} links, and a host {MOST_DEVICES} links"
    )))
}

fn host(section: &Section<'_>) -> Result<NodeRole> {
    section.allow(HOST_KEYS)?;
    let forwards = section.get("forwards").map_or(Ok(false), |value| value.boolean())?;
    Ok(NodeRole::Host { forwards })
}

fn translator(section: &Section<'_>) -> Result<NodeRole> {
    section.allow(TRANSLATOR_KEYS)?;
    let usual = Behaviour::default();
    let has = |key| section.get(key);
    let truth = |key, usual| has(key).map_or(Ok(usual), |value| value.boolean());
    let idle = |key, usual| has(key).map_or(Ok(usual), |value| value.quantity::<Span>());
    let ports = [
        ("preserve", PortChoice::Preserve),
        ("sequential", PortChoice::Sequential),
        ("random", PortChoice::Random),
    ];
    let behaviour = Behaviour {
        mapping: has("mapping").map_or(Ok(usual.mapping), |value| value.word(&KINDS))?,
        filtering: has("filtering").map_or(Ok(usual.filtering), |value| value.word(&KINDS))?,
        ports: has("ports").map_or(Ok(usual.ports), |value| value.word(&ports))?,
        hairpinning: truth("hairpinning", usual.hairpinning)?,
        inbound_refresh: truth("inbound_refresh", usual.inbound_refresh)?,
        udp_idle: idle("udp_idle", usual.udp_idle)?,
        tcp_idle: idle("tcp_idle", usual.tcp_idle)?,
        tcp_transitory: idle("tcp_transitory", usual.tcp_transitory)?,
        echo_idle: idle("echo_idle", usual.echo_idle)?,
        capacity: match has("capacity") {
            Some(value) => usize::try_from(value.integer()?).unwrap_or(usize::MAX),
            None => usual.capacity,
        },
        is_open_to_ipv6: match has("ipv6") {
            Some(value) => value.word(&[("filtered", false), ("open", true)])?,
            None => usual.is_open_to_ipv6,
        },
    };
    // The link is found once all links are known.
    Ok(NodeRole::Translator { outside: 0, behaviour })
}

fn links(listed: &Value<'_>, seed: Seed, nodes: &[MeshNode]) -> Result<Vec<MeshLink>> {
    let mut links: Vec<MeshLink> = Vec::new();
    let all = listed.list()?;
    if all.len() > MOST {
        return Err(too_many(listed));
    }
    for value in all {
        let section = value.section()?;
        let known: Vec<&'static str> = LINK_KEYS.iter().chain(PROFILE_KEYS).copied().collect();
        section.allow(&known)?;
        let name = section.require("name")?;
        let text = name.text()?;
        if device_name(text, 0) != text || text.is_empty() {
            let problem = "names a device: at most 15 letters, digits, '-' and '_'; not `lo`, not \
                           `all`";
            return Err(name.error(Problem::Sense(problem)));
        }
        if links.iter().any(|link| link.name == text) {
            return Err(name.error(Problem::Sense("is the name of an earlier link too")));
        }
        let section = section.renamed(format!("link.{text}"));
        if let Some(carry) = section.get("carry") {
            return Err(carry.error(Problem::Sense("is of network files, and not of a mesh")));
        }
        let mtu = match section.get("mtu") {
            None => 1_500,
            Some(value) => match value.integer()? {
                mtu @ MIN_MTU..=65_535 => u32::try_from(mtu).expect("it fits"),
                _ => return Err(value.error(Problem::Sense("wants 1280 to 65535 bytes"))),
            },
        };
        let draws = seed.stream(&format!("link/{text}/rate"));
        let (up, down) = profiles(&section, draws, mtu, None)?;
        let ends = ends(&section, links.len(), nodes)?;
        links.push(MeshLink { name: text.to_owned(), ends, profiles: [up, down], mtu });
    }
    Ok(links)
}

/// Reads `between` and `addresses`.
fn ends(section: &Section<'_>, number: usize, nodes: &[MeshNode]) -> Result<[LinkEnd; 2]> {
    let between = section.require("between")?;
    let names = || nodes.iter().map(|node| node.name.as_str());
    let wanted = between.list()?;
    let [first, second] = wanted.as_slice() else {
        return Err(between.error(Problem::Sense("wants two nodes, for example ['a', 'b']")));
    };
    let find = |value: &Value<'_>| -> Result<usize> {
        let text = value.text()?;
        names().position(|name| name == text).ok_or_else(|| value.unknown(names()))
    };
    let found = [find(first)?, find(second)?];
    if found[0] == found[1] {
        return Err(second.error(Problem::Sense("is the other end too")));
    }
    let addresses = match section.get("addresses") {
        None => [0, 1].map(|end| usual_addresses(number, end)),
        Some(value) => {
            let mut addresses = [Vec::new(), Vec::new()];
            for (name, value) in value.section()?.entries() {
                let end = found.iter().position(|node| nodes[*node].name == name);
                let both = found.map(|node| nodes[node].name.clone()).join("' and '");
                let end = end.ok_or_else(|| {
                    value.error(Problem::Because(format!("is no end of the link: '{both}' are")))
                })?;
                addresses[end] = interfaces(&value)?;
            }
            addresses
        }
    };
    let [one, other] = addresses;
    Ok([LinkEnd { node: found[0], addresses: one }, LinkEnd { node: found[1], addresses: other }])
}

/// The addresses of a link that has none in the file: `10.64.N.1` and `10.64.N.2`, `fd64::N:1` and
/// `fd64::N:2`, where N counts links from one (`10.65.0.…` follows `10.64.255.…`).
fn usual_addresses(number: usize, end: usize) -> Vec<(IpAddr, u8)> {
    let number = u16::try_from(number + 1).expect("a mesh has at most 1000 links");
    let host = u8::try_from(end + 1).expect("a link has two ends");
    let [high, low] = number.to_be_bytes();
    vec![
        (Ipv4Addr::new(10, 64 + high, low, host).into(), 32),
        (Ipv6Addr::new(0xfd64, 0, 0, 0, 0, 0, number, u16::from(host)).into(), 128),
    ]
}

/// An address or several, each with or without the length of its prefix.
fn interfaces(value: &Value<'_>) -> Result<Vec<(IpAddr, u8)>> {
    if value.is_text() {
        return Ok(vec![interface(value)?]);
    }
    value.list()?.iter().map(interface).collect()
}

fn interface(value: &Value<'_>) -> Result<(IpAddr, u8)> {
    interface_of(value.text()?).ok_or_else(|| {
        value.error(Problem::Sense(
            "wants an address, possibly with the length of its prefix, for example '192.0.2.1/24'",
        ))
    })
}

/// `192.0.2.1` or `192.0.2.1/24`.
pub(super) fn interface_of(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.map_or(Some(most), |prefix| prefix.parse().ok())?;
    (prefix <= most).then_some((address, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "rate = '10 Mbit/s'\ndelay = '1 ms'\nqueue = '64 KiB'\n";

    fn fails(text: &str, wanted: &str) {
        let error = description(text, "mesh.toml").expect_err("it is wrong").to_string();
        assert!(error.contains(wanted), "{error}");
    }

    #[test]
    fn unknown_keys_are_named() {
        fails("hots = {}", "mesh.toml:1: hots: no such key; did you mean `host`?");
        fails(
            "[host.a]\nforward = true\n",
            "host.a.forward: no such key; did you mean `forwards`?",
        );
        let two = "[host.a]\n[host.b]\n[[link]]\nname = 'x'\n";
        let text = format!("{two}between = ['a', 'c']\n{LINK}");
        fails(&text, "link.x.between: 'c' is not known here; there are: a, b");
        fails(&format!("{two}between = ['a', 'b']\nrat = 1\n{LINK}"), "link");
        let text = format!("{two}between = ['a', 'b']\naddresses = {{ c = '10.0.0.1' }}\n{LINK}");
        fails(&text, "link.x.addresses.c: is no end of the link: 'a' and 'b' are");
        let text = format!("{two}between = ['a', 'b']\naddresses = {{ a = '10.0.0' }}\n{LINK}");
        fails(&text, "link.x.addresses.a: wants an address");
    }

    /// The example of the page.
    fn example() -> String {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mesh.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        let (_, rest) = page.split_once("```toml\n").expect("an example");
        rest.split_once("```").expect("its end").0.to_owned()
    }

    #[test]
    fn the_example_of_the_page_is_a_mesh() {
        let mesh = description(&example(), "mesh.md").expect("a mesh");
        assert_eq!((mesh.nodes.len(), mesh.links.len()), (5, 5));
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_file_says_it_is_a_mesh_or_an_error(
            at in 0..2_000usize,
            length in 0..40usize,
            text in "[a-z0-9./:'\"=\\[\\]{}, \n-]{0,12}",
        ) {
            let mut changed: Vec<char> = example().chars().collect();
            let at = at.min(changed.len());
            let end = (at + length).min(changed.len());
            changed.splice(at..end, text.chars());
            let _ = description(&changed.into_iter().collect::<String>(), "mesh.md");
        }
    }

    #[test]
    fn a_mesh_has_so_many_links() {
        let links = |count: usize, name: &str| -> String {
            let link = |n| format!("[[link]]\nname = 'x{n}'\nbetween = ['{name}', 'r']\n{LINK}");
            (0..count).map(link).collect()
        };
        let nodes = "[host.a]\n[router.r]\n";
        assert!(description(&format!("{nodes}{}", links(250, "a")), "mesh.toml").is_ok());
        fails(&format!("{nodes}{}", links(251, "a")), "a host 250 links");
        fails(&format!("{nodes}{}", links(1_001, "a")), "up to 1000 nodes and 1000 links");
    }

    #[test]
    fn a_translator_has_a_link_outside() {
        let text = |outside: &str| {
            format!(
                "[host.a]\n[host.b]\n[translator.t]\noutside = '{outside}'\nmapping = \
                 'address-dependent'\n[[link]]\nname = 'x'\nbetween = ['a', 't']\n{LINK}[[link]]\n\
                 name = 'y'\nbetween = ['t', 'b']\n{LINK}[[link]]\nname = 'z'\nbetween = ['a', \
                 'b']\n{LINK}"
            )
        };
        fails(&text("w"), "translator.t.outside: 'w' is not known here");
        fails(&text("z"), "translator.t.outside: is no link of this translator");
        let mesh = description(&text("y"), "mesh.toml").expect("a mesh");
        let NodeRole::Translator { outside, behaviour } = &mesh.nodes[2].role else {
            panic!("{mesh:?}")
        };
        assert_eq!((*outside, behaviour.mapping), (1, Dependence::Address));
        assert_eq!(behaviour.filtering, Dependence::AddressAndPort);
        let usual: [IpAddr; 2] =
            ["10.64.2.1".parse().expect("IPv4"), "fd64::2:1".parse().expect("IPv6")];
        let addresses: Vec<IpAddr> =
            mesh.links[1].ends[0].addresses.iter().map(|(address, _)| *address).collect();
        assert_eq!(addresses, usual);
    }

    #[test]
    fn an_address_that_two_ends_have_is_an_error() {
        let text = format!(
            "[host.a]\n[host.b]\n[router.r]\n[[link]]\nname = 'x'\nbetween = ['a', 'r']\naddresses \
             = {{ a = '10.0.0.1' }}\n{LINK}[[link]]\nname = 'y'\nbetween = ['b', 'r']\naddresses = \
             {{ b = '10.0.0.1' }}\n{LINK}"
        );
        fails(&text, "10.0.0.1 is the address of both 'a' and 'b'");
    }
}
