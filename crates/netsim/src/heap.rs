//! A 4-ary heap of keys.

/// Larger than every key.
pub(crate) const NEVER: u128 = u128::MAX;

/// The children of a node: four keys are a cache line.
const ARITY: usize = 4;

/// A heap of keys of 128 bits, the least first.
///
/// Removing the first key leaves a hole at the top, which the next insertion fills: almost every
/// event is followed by another of the same owner, and sinking one key costs half as much as a
/// removal and an insertion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap {
    /// The first `len` keys are the heap. [`NEVER`] pads the last group of children, so that
    /// sinking needs no special case.
    keys: Vec<u128>,
    len: usize,
    has_hole: bool,
}

impl Heap {
    pub(crate) fn push(&mut self, key: u128) {
        if self.has_hole {
            self.has_hole = false;
            self.sink(key);
        } else {
            if self.len == self.keys.len() {
                // The top, or a whole group of children.
                self.keys
                    .extend_from_slice(&[NEVER; ARITY][..if self.len == 0 { 1 } else { ARITY }]);
            }
            self.len += 1;
            self.rise(self.len - 1, key);
        }
    }

    /// The least key; [`NEVER`] if there is none.
    #[inline]
    pub(crate) fn first(&mut self) -> u128 {
        if self.has_hole {
            self.close_hole();
        }
        self.keys.first().copied().unwrap_or(NEVER)
    }

    /// Removes the least key. The caller has called [`Heap::first`].
    pub(crate) fn remove_first(&mut self) {
        self.has_hole = true;
    }

    fn close_hole(&mut self) {
        self.has_hole = false;
        self.len -= 1;
        let last = std::mem::replace(&mut self.keys[self.len], NEVER);
        if self.len > 0 {
            self.sink(last);
        }
    }

    /// Puts `key` at the top and moves it down to its place.
    fn sink(&mut self, key: u128) {
        let keys = self.keys.as_mut_slice();
        let mut hole = 0;
        let mut first = 1;
        while let Some(&[a, b, c, d]) = keys.get(first..first + ARITY) {
            // Two rounds of a tournament: the compiler makes them conditional moves.
            let (i, x) = if b < a { (1, b) } else { (0, a) };
            let (j, y) = if d < c { (3, d) } else { (2, c) };
            let (least, key_there) = if y < x { (j, y) } else { (i, x) };
            if key < key_there {
                break;
            }
            keys[hole] = key_there;
            hole = first + least;
            first = hole * ARITY + 1;
        }
        keys[hole] = key;
    }

    /// Puts `key` at `hole` and moves it up to its place.
    fn rise(&mut self, mut hole: usize, key: u128) {
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if self.keys[parent] < key {
                break;
            }
            self.keys[hole] = self.keys[parent];
            hole = parent;
        }
        self.keys[hole] = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_list(
            ops in prop::collection::vec(prop::option::of(0..50u128), 1..400),
        ) {
            let mut heap = Heap::default();
            let mut model: Vec<u128> = Vec::new();
            for op in ops {
                if let Some(key) = op {
                    heap.push(key);
                    model.insert(model.partition_point(|other| *other < key), key);
                } else if heap.first() != NEVER {
                    prop_assert_eq!(heap.first(), model.remove(0));
                    heap.remove_first();
                }
            }
            for key in model {
                prop_assert_eq!(heap.first(), key);
                heap.remove_first();
            }
            prop_assert_eq!(heap.first(), NEVER);
        }
    }
}
