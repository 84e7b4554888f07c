//! The list of all papers.

use crate::error::Unknown;
use crate::figure::Study;
use crate::{harp, mpfast, ptcp, sar, theory, wang2007};

/// All studies.
pub const STUDIES: &[&Study] = &[
    &theory::STUDY,
    &harp::STUDY,
    &harp::LIVE,
    &mpfast::STUDY,
    &ptcp::STUDY,
    &sar::STUDY,
    &wang2007::STUDY,
    &wang2007::PACKETS,
    &wang2007::LIVE,
];

/// The study of this name.
///
/// # Errors
/// If there is no such study.
pub fn find(paper: &str) -> Result<&'static Study, Unknown> {
    STUDIES
        .iter()
        .copied()
        .find(|study| study.paper == paper)
        .ok_or_else(|| Unknown::new("paper", paper, STUDIES.iter().map(|study| study.paper)))
}
