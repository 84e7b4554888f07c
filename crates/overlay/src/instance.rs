//! Sources with demands, relays with capacities, and which source uses which relays.

use alloc::vec::Vec;

use units::Rate;

/// Sources and relays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// What each source has to deliver, m.
    pub demands: Vec<Rate>,
    /// What each relay can deliver to the receiver, a; with [`Routes`](crate::Routes) of several
    /// links, what each link can.
    pub capacities: Vec<Rate>,
}

impl Instance {
    /// All demands together.
    #[must_use]
    pub fn demand(&self) -> Rate {
        self.demands.iter().copied().sum()
    }

    /// All capacities together.
    #[must_use]
    pub fn capacity(&self) -> Rate {
        self.capacities.iter().copied().sum()
    }
}

/// The relays that each source uses: k of them, one a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    paths: usize,
    relays: Vec<usize>,
}

impl Selection {
    /// The relays of source 0's paths, then those of source 1's, and so on.
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

    /// Paths a source, k.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.paths
    }

    /// Number of sources.
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
