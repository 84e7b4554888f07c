//! Sources with demands, relays with capacities, and the relays of each source.

use alloc::vec::Vec;

use units::Rate;

/// Sources and relays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The demand of each source, m.
    pub demands: Vec<Rate>,
    /// The capacity of each relay's link to the receiver, a; where paths have several links, that
    /// of each link.
    pub capacities: Vec<Rate>,
}

impl Instance {
    /// The sum of all demands.
    #[must_use]
    pub fn demand(&self) -> Rate {
        self.demands.iter().copied().sum()
    }

    /// The sum of all capacities.
    #[must_use]
    pub fn capacity(&self) -> Rate {
        self.capacities.iter().copied().sum()
    }
}

/// The relays of each source: k of them, one per path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    paths: usize,
    relays: Vec<usize>,
}

impl Selection {
    /// A selection from a list: the relays of source 0's paths, then those of source 1's, and so
    /// on.
    ///
    /// # Panics
    ///
    /// If the list is no multiple of `paths`, or `paths` is zero.
    #[must_use]
    pub fn new(paths: usize, relays: Vec<usize>) -> Selection {
        assert!(
            paths > 0 && relays.len().is_multiple_of(paths),
            "{} relays for {paths} paths a source",
            relays.len()
        );
        Selection { paths, relays }
    }

    /// The number of paths per source, k.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.paths
    }

    /// The number of sources.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.relays.len() / self.paths
    }

    /// The relays of the source's paths.
    #[must_use]
    pub fn of(&self, source: usize) -> &[usize] {
        &self.relays[source * self.paths..][..self.paths]
    }

    pub(crate) fn of_mut(&mut self, source: usize) -> &mut [usize] {
        &mut self.relays[source * self.paths..][..self.paths]
    }

    /// The relays of all paths; path j of source s is entry `s * k + j`, here and in every list of
    /// path rates.
    #[must_use]
    pub fn relays(&self) -> &[usize] {
        &self.relays
    }
}
