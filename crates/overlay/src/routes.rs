//! Paths as lists of links: several hops, several destinations, links that paths share (the paper's
//! section 2, `L_sj`).

use alloc::vec;
use alloc::vec::Vec;

use crate::instance::Selection;

/// The links of each path. An [`Instance`](crate::Instance)'s capacities are those of the links;
/// with one relay a path and one receiver a relay *is* a link, so that a [`Selection`] is the
/// special case of one link a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    paths: usize,
    starts: Vec<usize>,
    links: Vec<usize>,
}

impl Routes {
    /// The links of source 0's paths, first hop first, then of source 1's, and so on, `paths` each.
    ///
    /// # Panics
    ///
    /// If their number is no multiple of `paths`, `paths` is zero, or a path has no link.
    #[must_use]
    pub fn new<P: AsRef<[usize]>>(paths: usize, routes: impl IntoIterator<Item = P>) -> Routes {
        let (mut starts, mut links) = (vec![0], Vec::new());
        for route in routes {
            assert!(!route.as_ref().is_empty(), "a path without a link");
            links.extend_from_slice(route.as_ref());
            starts.push(links.len());
        }
        assert!(
            paths > 0 && (starts.len() - 1).is_multiple_of(paths),
            "{} for {paths} paths a source",
            starts.len() - 1
        );
        Routes { paths, starts, links }
    }

    /// Paths a source, k.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.paths
    }

    /// Number of paths of all sources.
    #[must_use]
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of sources.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.count() / self.paths
    }

    /// The links of a path, first hop first.
    #[must_use]
    pub fn of(&self, path: usize) -> &[usize] {
        &self.links[self.starts[path]..self.starts[path + 1]]
    }

    /// The link over which a path reaches its receiver.
    #[must_use]
    pub fn last(&self, path: usize) -> usize {
        self.links[self.starts[path + 1] - 1]
    }

    /// Whether each path has one link only.
    pub(crate) fn is_flat(&self) -> bool {
        self.links.len() == self.count()
    }

    /// Which paths go over each of so many links.
    pub(crate) fn members(&self, links: usize) -> Members {
        let mut starts = vec![0; links + 1];
        for &link in &self.links {
            starts[link + 1] += 1;
        }
        for link in 0..links {
            starts[link + 1] += starts[link];
        }
        let mut next = starts.clone();
        let mut paths = vec![0; self.links.len()];
        for path in 0..self.count() {
            for &link in self.of(path) {
                paths[next[link]] = path;
                next[link] += 1;
            }
        }
        Members { starts, paths }
    }
}

impl From<&Selection> for Routes {
    fn from(selection: &Selection) -> Routes {
        Routes {
            paths: selection.paths(),
            starts: (0..=selection.relays().len()).collect(),
            links: selection.relays().to_vec(),
        }
    }
}

impl From<&Routes> for Routes {
    fn from(routes: &Routes) -> Routes {
        routes.clone()
    }
}

/// The paths over each link, in one block of memory.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    starts: Vec<usize>,
    paths: Vec<usize>,
}

impl Members {
    pub(crate) fn of(&self, link: usize) -> &[usize] {
        &self.paths[self.starts[link]..self.starts[link + 1]]
    }
}
