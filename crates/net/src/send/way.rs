//! The way into a session, whichever way the data flow.

use std::sync::Arc;

use wire::frame::SessionId;

use super::session::{Entrance as OutEntrance, Session};
use crate::conn::{Conn, ConnError};
use crate::fetch;

/// The way into a session.
pub(crate) enum Entrance {
    /// With a receiver.
    Out(OutEntrance),
    /// With servers.
    In(Box<fetch::Entrance>),
}

impl Entrance {
    /// Brings a fresh connection to that host into the session; also by what name that host knows
    /// it.
    pub(crate) async fn enter(
        &self,
        conn: &mut Conn,
        server: usize,
    ) -> Result<(Arc<Session>, SessionId), ConnError> {
        match self {
            Entrance::Out(entrance) => {
                entrance.enter(conn).await.map(|session| (Arc::clone(&session), session.id))
            }
            Entrance::In(entrance) => entrance.enter(conn, server).await,
        }
    }

    /// Whether the other side is reading what is there, and says so: that may take any time.
    pub(crate) fn is_working(&self) -> bool {
        match self {
            Entrance::Out(entrance) => entrance.gate.is_working(),
            Entrance::In(entrance) => entrance.is_working(),
        }
    }
}
