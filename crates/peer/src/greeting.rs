//! The greeting of the side that dials, where one connection is all that a service wants.

use wire::session::{AbortCode, Hello, SessionFrame, Welcome};

use crate::Error;
use crate::conn::{Conn, ConnError};

/// Says hello, and waits until the peer lets this host in. `remedy` is what a host without the
/// service is to do. The inner error is the peer's refusal: [`Error::Refused`], or [`Error::Busy`],
/// after which another attempt may help.
///
/// # Errors
/// What became of the connection.
pub async fn say_hello(
    conn: &mut Conn,
    hello: Hello,
    remedy: &str,
) -> Result<Result<Welcome, Error>, ConnError> {
    conn.push(&SessionFrame::Hello(hello));
    conn.flush().await?;
    conn.receive(|frame| match SessionFrame::try_from(frame)? {
        SessionFrame::Welcome(welcome) => Ok(Ok(welcome)),
        SessionFrame::Abort(AbortCode::NoService, does) => {
            Ok(Err(Error::Refused { reason: format!("{does}; {remedy}") }))
        }
        SessionFrame::Abort(AbortCode::Busy | AbortCode::Crowded, reason) => {
            Ok(Err(Error::Busy { reason }))
        }
        SessionFrame::Abort(_, reason) => Ok(Err(Error::Refused { reason })),
        other => Err(ConnError::unexpected(&other)),
    })
    .await
}
