//! Stateless resets as the dialing side believes them.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use units::SubflowId;
use wire::datagram::{Outer, RESET_TOKEN};

/// The tokens by which the listening side can say that it knows a connection no more.
#[derive(Clone)]
pub struct ResetTokens(Vec<ResetToken>);

/// That of one path.
#[derive(Clone)]
pub(crate) struct ResetToken {
    pub(crate) path: SubflowId,
    /// The label of the packets that the dialing side sends over it.
    pub(crate) label: u64,
    pub(crate) token: [u8; RESET_TOKEN],
}

impl ResetTokens {
    pub(crate) fn new(tokens: Vec<ResetToken>) -> ResetTokens {
        ResetTokens(tokens)
    }

    /// The path whose packets a datagram says that the listening side does not know, if it is a
    /// reset by that side. It ends the connection if the path is [in
    /// use](crate::Session::has_path): what answers a packet of a path that has ended may have been
    /// asked for by anybody who saw its label.
    #[must_use]
    pub fn path_of_reset(&self, datagram: &[u8]) -> Option<SubflowId> {
        let Ok(Outer::Reset { label, token }) = Outer::parse(datagram) else { return None };
        let is_its = |known: &&ResetToken| {
            known.label == label && verify_slices_are_equal(&known.token, &token).is_ok()
        };
        self.0.iter().find(is_its).map(|known| known.path)
    }
}

impl std::fmt::Debug for ResetTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResetTokens of {} paths", self.0.len())
    }
}
