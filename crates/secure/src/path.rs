//! The paths of a session: labels, packet numbers, replays.

use std::collections::BTreeMap;
use units::SubflowId;

use rustls::Side;

use crate::PathError;
use crate::labels::{Labels, peer_of};
use crate::window::Window;

/// The most paths at a time.
const MOST_PATHS: usize = 64;

/// A path in use.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) label_in: u64,
    pub(crate) label_out: u64,
    /// The largest number that was sealed.
    pub(crate) sealed: Option<u64>,
    pub(crate) window: Window,
    /// A generation of keys and the least number that was opened with it, of the latest one.
    pub(crate) first_of: Option<(u64, u64)>,
}

/// All paths of a session.
#[derive(Debug)]
pub(crate) struct Paths {
    side: Side,
    labels: Labels,
    live: BTreeMap<SubflowId, Path>,
    /// A bit for each number that has had a path.
    used: Vec<u64>,
}

impl Paths {
    pub(crate) fn new(side: Side, labels: Labels) -> Paths {
        Paths { side, labels, live: BTreeMap::new(), used: Vec::new() }
    }

    pub(crate) fn get_mut(&mut self, number: SubflowId) -> Option<&mut Path> {
        self.live.get_mut(&number)
    }

    pub(crate) fn has(&self, number: SubflowId) -> bool {
        self.live.contains_key(&number)
    }

    /// The path that packets with this label come over.
    pub(crate) fn by_label(&self, label: u64) -> Option<SubflowId> {
        self.live.iter().find(|(_, path)| path.label_in == label).map(|(number, _)| *number)
    }

    pub(crate) fn label_in(&self, number: SubflowId) -> u64 {
        self.labels.label(peer_of(self.side), number)
    }

    pub(crate) fn label_out(&self, number: SubflowId) -> u64 {
        self.labels.label(self.side, number)
    }

    /// The number behind the largest that has had a path.
    pub(crate) fn next(&self) -> u16 {
        let last = self.used.iter().enumerate().rev().find(|(_, bits)| **bits != 0);
        let next = last.map_or(0, |(word, bits)| 64 * word + 64 - bits.leading_zeros() as usize);
        u16::try_from(next).unwrap_or(u16::MAX)
    }

    /// A path of a number that has had none.
    pub(crate) fn candidate(&self, number: SubflowId) -> Result<Path, PathError> {
        let (word, bit) = place(number);
        if self.used.get(word).is_some_and(|used| used & bit != 0) {
            return Err(PathError::Used(number));
        }
        if self.live.len() >= MOST_PATHS {
            return Err(PathError::TooMany(MOST_PATHS));
        }
        Ok(Path {
            label_in: self.label_in(number),
            label_out: self.label_out(number),
            sealed: None,
            window: Window::default(),
            first_of: None,
        })
    }

    /// Takes a candidate into use.
    pub(crate) fn insert(&mut self, number: SubflowId, path: Path) {
        let (word, bit) = place(number);
        if self.used.len() <= word {
            self.used.resize(word + 1, 0);
        }
        self.used[word] |= bit;
        self.live.insert(number, path);
    }

    /// Ends a path, or makes sure that there never is one of this number.
    pub(crate) fn retire(&mut self, number: SubflowId) {
        let (word, bit) = place(number);
        if self.used.len() <= word {
            self.used.resize(word + 1, 0);
        }
        self.used[word] |= bit;
        self.live.remove(&number);
    }
}

fn place(number: SubflowId) -> (usize, u64) {
    (usize::from(number.0 / 64), 1 << (number.0 % 64))
}
