//! Identifiers shared by several crates.

use core::fmt;

/// A path: local address or interface, optional relay, remote address. Never reused within a
/// transfer or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// One congestion-controlled flow of a connection; a weight of w puts w of them on one path. In a
/// striped connection it is the number that both ends know one of its paths by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubflowId(pub u16);

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path {}", self.0)
    }
}

impl fmt::Display for SubflowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subflow {}", self.0)
    }
}
