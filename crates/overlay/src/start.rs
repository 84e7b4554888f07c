//! The rates that control begins with.

/// The rates that sources begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initial {
    /// Zero.
    Zero,
    /// Max-min rates (the paper's section 4): each source hands out its data in turns to whichever
    /// of its paths accepts it.
    MaxMin,
}
