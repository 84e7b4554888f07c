//! Why there is no session.

use peer::ConnError;
use wire::session::AbortCode;

use crate::Error;
use crate::protocol::code_of;

/// Why there is no session.
pub(super) enum Declined {
    /// The connection failed.
    Lost(ConnError),
    /// The sender is told why.
    Told(AbortCode, String),
}

impl From<ConnError> for Declined {
    fn from(error: ConnError) -> Declined {
        Declined::Lost(error)
    }
}

impl From<Error> for Declined {
    fn from(error: Error) -> Declined {
        Declined::Told(code_of(&error), error.to_string())
    }
}
