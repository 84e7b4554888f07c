//! Unpredictable numbers for challenges and labels.

use aws_lc_rs::rand;

/// Numbers that are asked of the library at a time.
const SUPPLY: usize = 64;

/// The system's randomness, some numbers ahead.
#[derive(Default)]
pub(crate) struct SystemTokens(Vec<u64>);

impl SystemTokens {
    /// The next number.
    pub(crate) fn draw(&mut self) -> u64 {
        if self.0.is_empty() {
            let mut octets = [0; SUPPLY * 8];
            rand::fill(&mut octets).expect("the generator was seeded when the process began");
            let (words, _) = octets.as_chunks::<8>();
            self.0.extend(words.iter().map(|word| u64::from_ne_bytes(*word)));
        }
        self.0.pop().expect("it was filled")
    }
}

impl ptcp::Tokens for SystemTokens {
    fn next(&mut self) -> u64 {
        self.draw()
    }

    /// One with numbers of its own.
    fn boxed_clone(&self) -> Box<dyn ptcp::Tokens> {
        Box::new(SystemTokens::default())
    }
}

impl std::fmt::Debug for SystemTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SystemTokens").finish_non_exhaustive()
    }
}
