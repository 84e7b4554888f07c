//! The source of tokens.

use alloc::boxed::Box;
use core::fmt;

use rand_core::Rng;

/// A source of tokens: unpredictable on real networks, seeded in simulations. Every cloneable
/// generator is one.
pub trait Tokens: fmt::Debug + Send {
    /// The next token.
    fn next(&mut self) -> u64;

    /// A copy, with its state.
    fn boxed_clone(&self) -> Box<dyn Tokens>;
}

impl<R: Rng + Clone + fmt::Debug + Send + 'static> Tokens for R {
    fn next(&mut self) -> u64 {
        self.next_u64()
    }

    fn boxed_clone(&self) -> Box<dyn Tokens> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Tokens> {
    fn clone(&self) -> Box<dyn Tokens> {
        (**self).boxed_clone()
    }
}
