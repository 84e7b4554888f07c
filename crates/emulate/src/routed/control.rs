//! Changes of a mesh while it runs, and questions, as lines of JSON.
//!
//! Each request is a line, and has one line as its answer; `docs/mesh.md` lists them.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::net::IpAddr;

use link::{Amendment, Loss};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use units::{Rate, Span};

use super::description::NodeRole;
use super::namespaces::{RoutedCounts, RoutedMesh};
use super::parse::interface_of;
use crate::namespaces::EmulationError;

/// The longest line of a request.
const LONGEST: u64 = 1 << 16;

/// A request.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum MeshRequest {
    Link {
        link: String,
        way: Option<LinkWay>,
        rate: Option<String>,
        delay: Option<String>,
        loss: Option<f64>,
        state: Option<LinkState>,
    },
    Addresses {
        link: String,
        node: String,
        addresses: Vec<String>,
    },
    Forget {
        translator: String,
    },
    Count {},
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum LinkWay {
    Up,
    Down,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum LinkState {
    Up,
    Down,
}

/// What is said to whoever started the mesh.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum MeshEvent {
    /// The mesh carries packets.
    Ready { hosts: BTreeMap<String, HostEntrance> },
    /// A request was carried out.
    Done,
    /// What was counted.
    Counts(RoutedCounts),
    /// A request was not carried out.
    Refused { error: String },
}

/// A host, as whoever starts a mesh sees it.
#[derive(Debug, Serialize)]
struct HostEntrance {
    /// The words before a command that let it run there.
    enter: Vec<String>,
    /// Its addresses, by device.
    addresses: BTreeMap<String, Vec<IpAddr>>,
}

/// Why a request was not carried out.
#[derive(Debug, Error)]
enum RequestError {
    #[error("not a request: {0}; docs/mesh.md lists them")]
    Syntax(#[from] serde_json::Error),
    #[error("the mesh has no {kind} called '{name}'; there are: {known}")]
    Unknown { kind: &'static str, name: String, known: String },
    #[error("{key}: {error}")]
    Quantity { key: &'static str, error: units::ParseError },
    #[error("loss: wants a number from 0 to 1, not {0}")]
    Loss(f64),
    #[error("link {0}: changes nothing: give `rate`, `delay`, `loss` or `state`")]
    Nothing(String),
    #[error("link {0}: its rate is that of a trace, and stays so")]
    Traced(String),
    #[error("addresses: '{0}' is no address: write one as 192.0.2.1 or 192.0.2.1/24")]
    Address(String),
    #[error("'{node}' is not at an end of the link {link}")]
    NotThere { node: String, link: String },
    #[error("{0}")]
    World(#[from] EmulationError),
}

/// Says that the mesh is ready, and carries out requests until the input ends.
///
/// # Errors
/// If the input or the output fails.
pub fn serve(
    mesh: &mut RoutedMesh,
    mut input: impl BufRead,
    mut output: impl Write,
) -> io::Result<()> {
    say(&mut output, &MeshEvent::Ready { hosts: hosts(mesh) })?;
    loop {
        let mut line = String::new();
        if io::Read::take(&mut input, LONGEST).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let event = match handle(mesh, &line) {
            Ok(event) => event,
            Err(error) => MeshEvent::Refused { error: error.to_string() },
        };
        say(&mut output, &event)?;
    }
}

fn say(output: &mut impl Write, event: &MeshEvent) -> io::Result<()> {
    serde_json::to_writer(&mut *output, event)?;
    output.write_all(b"\n")?;
    output.flush()
}

fn hosts(mesh: &RoutedMesh) -> BTreeMap<String, HostEntrance> {
    let description = mesh.description();
    let host = |(name, enter): (String, Vec<String>)| {
        let links = description.node(&name).into_iter().flat_map(|node| description.links_of(node));
        let addresses = links.map(|(link, end)| {
            let link = &description.links[link];
            let all = link.ends[end].addresses.iter().map(|(address, _)| *address);
            (link.name.clone(), all.collect())
        });
        let addresses = addresses.collect();
        (name, HostEntrance { enter, addresses })
    };
    mesh.entrances().into_iter().map(host).collect()
}

fn handle(mesh: &mut RoutedMesh, line: &str) -> Result<MeshEvent, RequestError> {
    match serde_json::from_str(line)? {
        MeshRequest::Link { link, way, rate, delay, loss, state } => {
            let index = find_link(mesh, &link)?;
            let (up, down) = (way != Some(LinkWay::Down), way != Some(LinkWay::Up));
            let mut amendments = Vec::new();
            if let Some(rate) = rate {
                let profiles = &mesh.description().links[index].profiles;
                let meant = profiles.iter().zip([up, down]).filter(|(_, is_meant)| *is_meant);
                if meant.clone().any(|(profile, _)| profile.rate.opportunities.is_some()) {
                    return Err(RequestError::Traced(link));
                }
                amendments.push(Amendment::Rate(rate_of(&rate)?));
            }
            if let Some(delay) = delay {
                let delay: Result<Span, _> = delay.parse();
                let error = |error| RequestError::Quantity { key: "delay", error };
                amendments.push(Amendment::Delay(delay.map_err(error)?));
            }
            if let Some(loss) = loss {
                if !(0.0..=1.0).contains(&loss) {
                    return Err(RequestError::Loss(loss));
                }
                amendments.push(Amendment::Loss(Loss::of(loss)));
            }
            amendments.extend(state.map(|state| match state {
                LinkState::Up => Amendment::Up,
                LinkState::Down => Amendment::Down,
            }));
            if amendments.is_empty() {
                return Err(RequestError::Nothing(link));
            }
            for amendment in amendments {
                mesh.amend(index, up, down, amendment)?;
            }
            // The answer says that it is so.
            mesh.count()?;
            Ok(MeshEvent::Done)
        }
        MeshRequest::Addresses { link, node, addresses } => {
            let index = find_link(mesh, &link)?;
            let all: Result<Vec<(IpAddr, u8)>, RequestError> = addresses
                .into_iter()
                .map(|text| interface_of(&text).ok_or(RequestError::Address(text)))
                .collect();
            let description = mesh.description();
            let wanted = description.node(&node);
            let ends = &description.links[index].ends;
            let end = ends.iter().position(|end| Some(end.node) == wanted);
            let end = end.ok_or(RequestError::NotThere { node, link })?;
            mesh.set_addresses(index, end, &all?)?;
            mesh.count()?;
            Ok(MeshEvent::Done)
        }
        MeshRequest::Forget { translator } => {
            let nodes = &mesh.description().nodes;
            let is_translator =
                |node: usize| matches!(nodes[node].role, NodeRole::Translator { .. });
            let names: Vec<(usize, &str)> =
                nodes.iter().map(|node| node.name.as_str()).enumerate().collect();
            let names = names.into_iter().filter(|(node, _)| is_translator(*node));
            let node = find("translator", &translator, names)?;
            mesh.forget(node)?;
            mesh.count()?;
            Ok(MeshEvent::Done)
        }
        MeshRequest::Count {} => Ok(MeshEvent::Counts(mesh.count()?)),
    }
}

fn find_link(mesh: &RoutedMesh, name: &str) -> Result<usize, RequestError> {
    let links = mesh.description().links.iter().map(|link| link.name.as_str());
    find("link", name, links.enumerate())
}

fn find<'a>(
    kind: &'static str,
    name: &str,
    all: impl Iterator<Item = (usize, &'a str)>,
) -> Result<usize, RequestError> {
    let all: Vec<(usize, &str)> = all.collect();
    let found = all.iter().find(|(_, one)| *one == name).map(|(index, _)| *index);
    found.ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
        RequestError::Unknown { kind, name: name.to_owned(), known: known.join(", ") }
    })
}

/// A rate; `0` holds packets.
fn rate_of(text: &str) -> Result<Rate, RequestError> {
    if text.trim() == "0" {
        return Ok(Rate::ZERO);
    }
    text.parse().map_err(|error| RequestError::Quantity { key: "rate", error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_unknown_keys_are_not() {
        let read = |line: &str| serde_json::from_str::<MeshRequest>(line);
        let link = read(r#"{"do": "link", "link": "wifi", "way": "up", "rate": "5 Mbit/s"}"#);
        let MeshRequest::Link { link, way, rate, delay, loss, state } = link.expect("a request")
        else {
            panic!("a link")
        };
        assert_eq!(
            (link.as_str(), way, rate.as_deref()),
            ("wifi", Some(LinkWay::Up), Some("5 Mbit/s"))
        );
        assert_eq!((delay, loss, state), (None, None, None));
        assert_eq!(read(r#"{"do": "count"}"#).expect("a request"), MeshRequest::Count {});
        let error = read(r#"{"do": "link", "link": "wifi", "rat": 1}"#).expect_err("no such key");
        assert!(error.to_string().contains("rat"), "{error}");
        assert!(read(r#"{"do": "dance"}"#).is_err());
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let error = find("link", "wfi", [(0, "wifi"), (1, "lte")].into_iter()).expect_err("no");
        let wanted = "the mesh has no link called 'wfi'; there are: wifi, lte";
        assert_eq!(error.to_string(), wanted);
    }
}
