//! How long a session may stand still.

use units::Span;

/// The time for which a session may have paths and get no new data. Its sender pings: its disk may
/// be slow, or it may be hostile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stalls {
    /// While another sender wants to send.
    pub(crate) beside_others: Span,
    /// While nobody does.
    pub(crate) alone: Span,
}

impl Stalls {
    /// The bounds of every receiver; tests have shorter ones.
    pub(crate) const DEFAULT: Stalls =
        Stalls { beside_others: Span::from_secs(600), alone: Span::from_secs(3_600) };
}
