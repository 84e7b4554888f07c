//! Searching sorted queues.

use alloc::collections::VecDeque;

/// As `VecDeque::partition_point`, in time that grows with the logarithm of the distance from the
/// end. What is looked for is usually there, and a binary search over thousands of ranges touches
/// memory far apart.
pub(crate) fn partition_from_end<T>(items: &VecDeque<T>, is_before: impl Fn(&T) -> bool) -> usize {
    let mut end = items.len();
    let mut step = 1;
    let mut begin = loop {
        let Some(probe) = end.checked_sub(step) else { break 0 };
        if is_before(&items[probe]) {
            break probe + 1;
        }
        (end, step) = (probe, 2 * step);
    };
    while begin < end {
        let middle = begin.midpoint(end);
        if is_before(&items[middle]) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_same_place() {
        for len in 0..40 {
            let items: VecDeque<u32> = (0..len).collect();
            for limit in 0..=len {
                let is_before = |item: &u32| *item < limit;
                assert_eq!(
                    partition_from_end(&items, is_before),
                    items.partition_point(is_before),
                    "{limit} of {len}"
                );
            }
        }
    }
}
