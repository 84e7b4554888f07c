//! A queue in contiguous memory.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// A queue whose elements are contiguous and near the start of its memory. Thousands of flows with
/// little in flight each touch little memory, and indexing is that of a slice. The cost is one move
/// of each element on average.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    /// The removed elements that are not yet overwritten, then those in the queue.
    all: Vec<T>,
    taken: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { all: Vec::new(), taken: 0 }
    }
}

impl<T> Queue<T> {
    #[inline]
    pub(super) fn push(&mut self, item: T) {
        if self.all.len() == self.all.capacity() {
            self.make_room();
        }
        self.all.push(item);
    }

    #[inline(never)]
    fn make_room(&mut self) {
        if 2 * self.taken >= self.len().max(1) {
            self.compact();
        } else {
            // Growth to twice the capacity, but exactly: thousands of flows hold a queue each.
            self.all.reserve_exact(self.all.len().max(8));
        }
    }

    /// Removes the first `count` elements.
    #[inline]
    pub(super) fn drop_front(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.all.len() {
            self.all.clear();
            self.taken = 0;
        } else if 2 * self.taken >= self.all.len() {
            self.compact();
        }
    }

    #[inline(never)]
    fn compact(&mut self) {
        self.all.drain(..self.taken);
        self.taken = 0;
    }
}

impl<T> Deref for Queue<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.all[self.taken..]
    }
}

impl<T> DerefMut for Queue<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.all[self.taken..]
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_behaves_as_a_queue(ops in prop::collection::vec((0..20usize, 0..20usize), 1..100)) {
            let (mut queue, mut model) = (Queue::default(), VecDeque::new());
            let mut next = 0;
            for (pushes, takes) in ops {
                for _ in 0..pushes {
                    queue.push(next);
                    model.push_back(next);
                    next += 1;
                }
                let takes = takes.min(model.len());
                queue.drop_front(takes);
                model.drain(..takes);
                prop_assert_eq!(&*queue, &*model.make_contiguous());
                prop_assert!(queue.all.len() <= 2 * queue.len(), "what was taken out is no more \
                    than what is left");
            }
        }
    }
}
