//! Errors in topologies.

use thiserror::Error;

use crate::agenda::MAX_OWNERS;

/// An error in a topology.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// A node name is used twice.
    #[error("there are two nodes named '{0}': every host and router needs a name of its own")]
    DuplicateNode(String),
    /// A link name is used twice.
    #[error(
        "there are two links named '{0}': every link needs a name of its own, since its random \
         stream has it"
    )]
    DuplicateLink(String),
    /// An unknown node.
    #[error("{user} names the node '{name}', which does not exist{}", hint(nearest.as_deref()))]
    UnknownNode {
        /// The item that names it.
        user: String,
        /// The name.
        name: String,
        /// The nearest known name.
        nearest: Option<String>,
    },
    /// An unknown link.
    #[error(
        "the route from '{from}' names the link '{name}', which does not exist{}",
        hint(nearest.as_deref())
    )]
    UnknownLink {
        /// The sender of the route.
        from: String,
        /// The name.
        name: String,
        /// The nearest known name.
        nearest: Option<String>,
    },
    /// A router where a host is needed.
    #[error("{user}: '{name}' is a router, and only hosts send and receive")]
    NotAHost {
        /// The item that needs a host.
        user: String,
        /// The router.
        name: String,
    },
    /// There is no path between two hosts.
    #[error(
        "there is no route from '{from}' to '{to}': no links lead there through routers (hosts do \
         not forward)"
    )]
    NoRoute {
        /// The sender.
        from: String,
        /// The receiver.
        to: String,
    },
    /// A route with a link that does not begin where the one before it ends.
    #[error(
        "the route from '{from}' takes the link '{link}', which begins at '{begin}', but is at \
         '{at}' by then"
    )]
    BrokenRoute {
        /// The sender of the route.
        from: String,
        /// The link.
        link: String,
        /// The node where the link begins.
        begin: String,
        /// The node where the link before it ends.
        at: String,
    },
    /// A route through a host.
    #[error("the route from '{from}' leads through the host '{host}', and hosts do not forward")]
    ThroughHost {
        /// The sender of the route.
        from: String,
        /// The host.
        host: String,
    },
    /// A change to a route with other ends.
    #[error("the route from '{0}' to '{1}' cannot change to one from '{2}' to '{3}'")]
    OtherEnds(String, String, String, String),
    /// Too many links and hosts for a simulation.
    #[error("{0} links and hosts are too many: a simulation holds {MAX_OWNERS}")]
    TooLarge(usize),
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}
