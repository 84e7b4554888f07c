//! The description of a mesh.

use std::net::IpAddr;

use link::Profile;
use units::Seed;

use crate::translator::Behaviour;

/// A network of hosts, routers and translators, joined by links.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// All random draws come from this seed.
    pub seed: Seed,
    /// The nodes.
    pub nodes: Vec<MeshNode>,
    /// The links.
    pub links: Vec<MeshLink>,
}

/// A node.
#[derive(Clone, Debug)]
pub struct MeshNode {
    /// Its name, unique in the mesh.
    pub name: String,
    /// What it is.
    pub role: NodeRole,
    /// Prefixes behind it: others send packets to these to it.
    pub serves: Vec<(IpAddr, u8)>,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum NodeRole {
    /// A namespace.
    Host {
        /// Whether its kernel forwards packets of others.
        forwards: bool,
    },
    /// Sends packets on.
    Router,
    /// Translates the addresses of packets between its links and the one outside.
    Translator {
        /// The index of the link outside.
        outside: usize,
        /// How it translates.
        behaviour: Behaviour,
    },
}

/// A link between two nodes.
#[derive(Clone, Debug)]
pub struct MeshLink {
    /// Its name, unique in the mesh, and that of the devices of hosts.
    pub name: String,
    /// Its ends.
    pub ends: [LinkEnd; 2],
    /// What it does to packets from the first end to the second, and back.
    pub profiles: [Profile; 2],
    /// The MTU of the devices at its ends.
    pub mtu: u32,
}

/// An end of a link.
#[derive(Clone, Debug)]
pub struct LinkEnd {
    /// The index of the node.
    pub node: usize,
    /// The addresses of the node there, and the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl Description {
    /// The node that is called so.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// The link that is called so.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name)
    }

    /// The links of a node, each with the number of its end there.
    pub(super) fn links_of(&self, node: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.links.iter().enumerate().flat_map(move |(index, link)| {
            (0..2).filter(move |end| link.ends[*end].node == node).map(move |end| (index, end))
        })
    }
}
