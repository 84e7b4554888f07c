//! Connections by the address that they come from: one address leaves others room.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

/// Counts the connections of each address, of which there are so many in all.
#[derive(Clone, Debug)]
pub(super) struct Crowds {
    most: usize,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    each: HashMap<IpAddr, usize>,
}

/// One that is counted, until dropped.
#[derive(Debug)]
pub(super) struct Counted {
    crowds: Crowds,
    from: IpAddr,
}

impl Crowds {
    pub(super) fn new(most: usize) -> Crowds {
        Crowds { most, counts: Arc::default() }
    }

    /// Counts a connection from an address, unless it has as many as there is room for others.
    pub(super) fn enter(&self, from: IpAddr) -> Option<Counted> {
        let mut counts = self.counts();
        let own = counts.each.get(&from).copied().unwrap_or_default();
        if own >= self.most - counts.all {
            return None;
        }
        counts.each.insert(from, own + 1);
        counts.all += 1;
        drop(counts);
        Some(Counted { crowds: self.clone(), from })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no panic while held")
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.crowds.counts();
        counts.all -= 1;
        if let Some(own) = counts.each.get_mut(&self.from) {
            *own -= 1;
            if *own == 0 {
                counts.each.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_others_room() {
        let crowds = Crowds::new(16);
        let enter = |last| crowds.enter(IpAddr::from([192, 0, 2, last]));
        let mut all: Vec<Vec<Counted>> = Vec::new();
        for last in 1..6 {
            all.push(std::iter::from_fn(|| enter(last)).collect());
        }
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [8, 4, 2, 1, 1]);
        assert!(enter(9).is_none());
        all.clear();
        assert!(crowds.counts().each.is_empty());
        assert_eq!(std::iter::from_fn(|| enter(9)).collect::<Vec<_>>().len(), 8);
    }
}
