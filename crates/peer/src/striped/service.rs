//! A service that takes the whole striped connection: the greeting of the side that dials.

use std::time::Duration;

use stripe::{Connection, ConnectionError};
use tokio::time::{sleep, timeout};
use wire::closing::CloseCode;
use wire::session::Hello;

use super::stream::StripedStream;
use crate::conn::{Conn, ConnError};
use crate::greeting::say_hello;
use crate::{Error, Fingerprint};

/// How long nobody asks whether a peer that has yet to answer is there. One that was killed just
/// after it acknowledged the greeting leaves nothing behind that is overdue.
const ASK: Duration = Duration::from_secs(1);

/// Says hello on a first stream, and waits until the peer lets this host in; one that does not
/// answer is asked for signs of life. The result lasts as long as the service: its end is the end
/// of both. `remedy` is what a host without the service is to do.
///
/// # Errors
/// [`Error::Refused`] with the peer's reason, [`Error::Busy`], or [`Error::NoPath`] if there is no
/// answer for so long.
pub async fn open_service(
    connection: &Connection,
    hello: Hello,
    patience: Duration,
    remedy: &str,
) -> Result<Conn, Error> {
    let lost = |why: String| Error::NoPath { to: connection.remote().to_string(), why };
    let ended = |error: ConnectionError| match error {
        ConnectionError::ClosedByPeer { code } if code == CloseCode::Protocol.number() => {
            Error::Refused { reason: OTHER_VERSION.into() }
        }
        error => lost(error.to_string()),
    };
    let stream = connection.open_stream().await.map_err(ended)?;
    let key = Fingerprint::of_spki(connection.peer_key());
    let mut conn = Conn::over_carrier(Box::new(StripedStream::new(stream)), key);
    let greeting = say_hello(&mut conn, hello, remedy);
    let asking = async {
        loop {
            sleep(ASK).await;
            // Its end is heard of beside this.
            let _ = connection.sign_of_life().await;
        }
    };
    let answer = tokio::select! {
        biased;
        answer = timeout(patience, greeting) => answer.unwrap_or(Err(ConnError::Silent(patience))),
        error = connection.ended() => return Err(ended(error)),
        () = asking => unreachable!("it asks for ever"),
    };
    match answer {
        Ok(Ok(_)) => Ok(conn),
        Ok(Err(error)) => Err(error),
        // A predecessor answers in a format of its own.
        Err(ConnError::Wire(_)) => Err(Error::Refused { reason: OTHER_VERSION.into() }),
        // The reason may arrive behind the end of the stream.
        Err(error) => match timeout(Duration::from_secs(1), connection.ended()).await {
            Ok(error) => Err(ended(error)),
            Err(_) => Err(lost(error.to_string())),
        },
    }
}

/// A predecessor does not know the greeting.
const OTHER_VERSION: &str = "it does not understand this host's greeting: it speaks another \
                             version of the protocol; install the same version of anabranch on \
                             both hosts";
