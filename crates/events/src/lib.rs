//! What the parts of Anabranch tell their owner: one vocabulary, and one bus.
//!
//! Each part speaks through an [`Events`] that its caller gave it. Displays, the JSON stream and
//! the log subscribe. Every event has a number, so that a late observer asks for what it has
//! missed.
//!
//! ```
//! use events::{Event, EventId, Events};
//!
//! let events = Events::new();
//! events.notice("wwan0 looks metered, and is a backup");
//!
//! let mut heard = events.subscribe();
//! events.of_transfer(3).notice("192.0.2.7 was refused");
//! drop(events);
//!
//! assert!(matches!(heard.blocking_recv(), Some(Event::Notice { text }) if text.contains("192")));
//! assert!(heard.blocking_recv().is_none(), "nobody is left who could speak");
//! ```

#![allow(
    clippy::missing_panics_doc,
    reason = "every panic is a broken invariant, stated at the place that relies on it"
)]

mod bus;
mod changes;
mod event;
mod kept;
mod path;
mod progress;

pub use bus::{Events, Subscription};
pub use changes::{Action, Changed, DryRun, Listed, PlannedChange};
pub use event::{Event, Failed};
pub use kept::{EventId, Numbered, Since};
pub use path::{PathEvent, PathState, Reported};
pub use progress::{
    Background, FeedDemand, FeedPath, FeedProgress, PathProgress, Progress, Standstill, Summary,
};
