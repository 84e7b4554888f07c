//! Paths as lists of links: several hops, several destinations, shared links (the paper's section
//! 2, `L_sj`).

use overlay::Selection;

/// The links of each path. The capacities of an [`Instance`](overlay::Instance) are those of the
/// links. With one relay per path and one receiver, a relay *is* a link: a [`Selection`] is the
/// special case of one link per path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    paths: usize,
    starts: Vec<usize>,
    links: Vec<usize>,
}

impl Routes {
    /// Routes from a list: the links of each path from the first hop on, for the `paths` paths of
    /// source 0, then those of source 1, and so on.
    ///
    /// # Panics
    ///
    /// If the number of paths is not a multiple of `paths`, `paths` is zero, or a path has no link.
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

    /// The number of paths per source, k.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.paths
    }

    /// The number of paths of all sources.
    #[must_use]
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The number of sources.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.count() / self.paths
    }

    /// The links of a path, from the first hop on.
    #[must_use]
    pub fn of(&self, path: usize) -> &[usize] {
        &self.links[self.starts[path]..self.starts[path + 1]]
    }

    /// The link over which a path reaches its receiver.
    #[must_use]
    pub fn last(&self, path: usize) -> usize {
        self.links[self.starts[path + 1] - 1]
    }

    /// Whether each path has exactly one link.
    pub(super) fn is_flat(&self) -> bool {
        self.links.len() == self.count()
    }

    /// The paths over each of `links` links.
    pub(super) fn members(&self, links: usize) -> Members {
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
pub(super) struct Members {
    starts: Vec<usize>,
    paths: Vec<usize>,
}

impl Members {
    pub(super) fn of(&self, link: usize) -> &[usize] {
        &self.paths[self.starts[link]..self.starts[link + 1]]
    }
}
