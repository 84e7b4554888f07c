//! Numbers of hosts and links.

/// A host of a topology, counted from zero in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(crate) u32);

/// One direction of a link of a topology, counted from zero in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u32);

impl HostId {
    /// The number.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// The number.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
