//! What a control connection has to tell its host.

use wire::relay::{Reason, Ticket};

/// News for a host that uses the relay.
pub(crate) enum Told {
    /// The data connection with this ticket came to nothing.
    Failed(Ticket, Reason),
    /// Somebody wants a connection with the host, at the place of that number of its own.
    Meet(u32, Ticket),
}
