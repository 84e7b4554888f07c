//! A list that is never empty and usually has one element.

use std::ops::{Index, IndexMut};

/// One or more elements: the first is stored inline, and read without a look at the length.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct OneOrMore<T> {
    first: T,
    rest: Box<[T]>,
}

impl<T> OneOrMore<T> {
    /// # Panics
    /// If `all` is empty.
    pub(crate) fn new(all: impl IntoIterator<Item = T>) -> OneOrMore<T> {
        let mut all = all.into_iter();
        let first = all.next().expect("there is at least one");
        OneOrMore { first, rest: all.collect() }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        1 + self.rest.len()
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        std::iter::once(&mut self.first).chain(&mut self.rest)
    }
}

impl<T> Index<usize> for OneOrMore<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        if index == 0 { &self.first } else { &self.rest[index - 1] }
    }
}

impl<T> IndexMut<usize> for OneOrMore<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        if index == 0 { &mut self.first } else { &mut self.rest[index - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_keep_their_order() {
        let mut few = OneOrMore::new([1, 2, 3]);
        few.iter_mut().for_each(|n| *n *= 10);
        few[2] += 1;
        assert_eq!((few.len(), few[0], few[1], few[2]), (3, 10, 20, 31));
        assert_eq!(few.iter().sum::<i32>(), 61);
    }
}
