//! The list of all papers.

use crate::error::Unknown;
use crate::figure::Study;
use crate::{ptcp, sar, theory, wang2007};

/// Everything that can be reproduced.
pub const STUDIES: &[&Study] =
    &[&theory::STUDY, &ptcp::STUDY, &sar::STUDY, &wang2007::STUDY, &wang2007::PACKETS];

/// The study of a name.
///
/// # Errors
/// If there is none.
pub fn find(paper: &str) -> Result<&'static Study, Unknown> {
    STUDIES
        .iter()
        .copied()
        .find(|study| study.paper == paper)
        .ok_or_else(|| Unknown::new("paper", paper, STUDIES.iter().map(|study| study.paper)))
}
