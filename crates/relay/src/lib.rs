//! A relay: it carries connections between hosts that cannot, or should not, reach each other
//! another way, and reads nothing of them.
//!
//! | subject | module |
//! |---|---|
//! | tickets that were issued and not yet shown | `tickets` |
//! | how much of a path waits here | `hop` |
//! | bounds | `bounds` |

#![allow(
    clippy::missing_panics_doc,
    reason = "every panic is a broken invariant, stated at the place that relies on it"
)]

pub mod bounds;
pub mod hop;
pub mod tickets;
