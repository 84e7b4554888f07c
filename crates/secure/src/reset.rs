//! Stateless resets as the dialing side believes them.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use wire::datagram::{Outer, RESET_TOKEN};

/// The tokens by which the listening side can say that it knows a connection no more.
#[derive(Clone)]
pub struct ResetTokens(Vec<(u64, [u8; RESET_TOKEN])>);

impl ResetTokens {
    /// Tokens by the labels that they belong to.
    pub(crate) fn new(tokens: Vec<(u64, [u8; RESET_TOKEN])>) -> ResetTokens {
        ResetTokens(tokens)
    }

    /// Whether a datagram is a reset of the connection by its listening side.
    #[must_use]
    pub fn is_reset(&self, datagram: &[u8]) -> bool {
        let Ok(Outer::Reset { label, token }) = Outer::parse(datagram) else { return false };
        self.0
            .iter()
            .any(|(of, known)| *of == label && verify_slices_are_equal(known, &token).is_ok())
    }
}

impl std::fmt::Debug for ResetTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResetTokens of {} paths", self.0.len())
    }
}
