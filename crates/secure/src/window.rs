//! Which packet numbers of a path have arrived.

/// How far behind the largest number a packet may come.
pub(crate) const REACH: u64 = 4_096;

const WORDS: usize = 64;

/// The numbers that arrived of the last [`REACH`], a bit each.
#[derive(Debug)]
pub(crate) struct Window {
    /// The number behind the largest one.
    expected: u64,
    /// Number n has bit n modulo [`REACH`].
    bits: [u64; WORDS],
}

impl Default for Window {
    fn default() -> Window {
        Window { expected: 0, bits: [0; WORDS] }
    }
}

impl Window {
    /// The number behind the largest that arrived.
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// Takes a number in. Whether it is new; what is older than the window counts as known.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        if number >= self.expected {
            let new = number - self.expected + 1;
            if new >= REACH {
                self.bits = [0; WORDS];
            } else {
                for passed in self.expected..=number {
                    let (word, bit) = place(passed);
                    self.bits[word] &= !bit;
                }
            }
            self.expected = number + 1;
        } else if self.expected - number > REACH {
            return false;
        }
        let (word, bit) = place(number);
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_new
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number % REACH;
    (usize::try_from(at / 64).expect("below 64"), 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_is_new_once(
            jumps in proptest::collection::vec((0_u64..12_000, any::<bool>()), 0..400),
        ) {
            let (mut window, mut seen, mut largest) = (Window::default(), BTreeSet::new(), 0_u64);
            for (jump, is_ahead) in jumps {
                let number = if is_ahead {
                    // Small steps mostly.
                    largest + if jump % 7 == 0 { jump } else { jump % 5 }
                } else {
                    largest.saturating_sub(jump % 5_000)
                };
                let is_known = seen.contains(&number) || number + REACH < window.expected();
                prop_assert_eq!(window.insert(number), !is_known, "{} of {}", number, largest);
                seen.insert(number);
                largest = largest.max(number);
                prop_assert_eq!(window.expected(), largest.max(number) + 1);
            }
        }
    }
}
