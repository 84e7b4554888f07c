//! The striped connection of the near side, opened again whenever it ends.

use std::fmt;
use std::pin::{Pin, pin};
use std::time::Duration;

use stripe::{
    Connection, ConnectionError, RouteChange, RouteEvent, RouteState, RouteStats, Stream,
};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use wire::tunnel::{Code, Parting, Request, SECRET};

use super::{NearShared, reverse};
use crate::TunnelError;
use crate::bounds::{ANSWER_PATIENCE, RECEIVE_BUFFER};
use crate::event::Report;
use crate::message::{read_answer, write_request};
use crate::place::Forward;

/// The pause before the first attempt to connect again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A connection that lasted so long makes the next pause short again.
const LASTED: Duration = Duration::from_secs(60);

/// A striped connection to the peer.
pub struct Dialed {
    /// The connection.
    pub connection: Connection,
    /// What keeps it, as long as it lasts.
    pub keeper: Box<dyn Keeper>,
}

/// What keeps a striped connection: its endpoint, and the upkeep of its routes.
pub trait Keeper: Send {
    /// Closes the connection, and waits until the peer has been told.
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl Keeper for peer::striped::Striped {
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { self.as_ref().close().await })
    }
}

impl fmt::Debug for Dialed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialed").field(&self.connection).finish()
    }
}

/// Connects, again and again, until the peer refuses this host, or `stop`.
pub(super) async fn keep(
    dial: impl AsyncFn() -> Result<Dialed, peer::Error>,
    secret: Option<[u8; SECRET]>,
    reverse: &[Forward],
    shared: &NearShared,
    holder: &watch::Sender<Option<Connection>>,
    stop: impl Future<Output = ()>,
) -> Result<(), TunnelError> {
    let mut stop = pin!(stop);
    let mut pause = FIRST_PAUSE;
    let mut was_connected = false;
    loop {
        let began = Instant::now();
        let connected = tokio::select! {
            connected = connect(&dial, secret) => connected,
            () = &mut stop => return Ok(()),
        };
        let ended = match connected {
            Ok((dialed, control)) => {
                was_connected = true;
                shared.reports.notice(format!("connected to {}", dialed.connection.remote()));
                let why = tokio::select! {
                    why = hold(&dialed.connection, control, reverse, shared, holder) => why,
                    () = &mut stop => {
                        dialed.keeper.close().await;
                        return Ok(());
                    }
                };
                holder.send_replace(None);
                if let Some(refusal) = refusal(&why) {
                    return Err(refusal.into());
                }
                why.to_string()
            }
            Err(error) if !was_connected || is_final(&error) => return Err(error.into()),
            Err(error) => error.to_string(),
        };
        if began.elapsed() > LASTED {
            pause = FIRST_PAUSE;
        }
        let seconds = pause.as_secs_f64();
        shared.reports.notice(format!(
            "no tunnel: {ended}; open connections are reset, the next attempt is in {seconds} s"
        ));
        tokio::select! {
            () = sleep(pause) => {}
            () = &mut stop => return Ok(()),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Connects, and is let in. The stream of the hello stays open.
async fn connect(
    dial: &impl AsyncFn() -> Result<Dialed, peer::Error>,
    secret: Option<[u8; SECRET]>,
) -> Result<(Dialed, Stream), peer::Error> {
    let dialed = dial().await?;
    let connection = &dialed.connection;
    connection.admit(RECEIVE_BUFFER);
    let ended = |error: ConnectionError| {
        refusal(&error).unwrap_or_else(|| peer::Error::NoPath {
            to: connection.remote().to_string(),
            why: error.to_string(),
        })
    };
    let mut control = connection.open_stream().await.map_err(ended)?;
    // Its failure shows in the answer.
    let _ = write_request(control.sending_mut(), &Request::Hello { secret }, &[]).await;
    let answer = tokio::select! {
        biased;
        error = connection.ended() => return Err(ended(error)),
        answer = read_answer(control.receiving_mut(), ANSWER_PATIENCE) => answer,
    };
    if answer.code != Code::Done {
        // The reason may arrive behind the end of the stream.
        let ending = tokio::time::timeout(Duration::from_secs(1), connection.ended()).await;
        return Err(match ending {
            Ok(error) => ended(error),
            Err(_) => peer::Error::Refused { reason: answer.text },
        });
    }
    Ok((dialed, control))
}

/// Offers the connection to programs until it ends.
async fn hold(
    connection: &Connection,
    mut control: Stream,
    reverse: &[Forward],
    shared: &NearShared,
    holder: &watch::Sender<Option<Connection>>,
) -> ConnectionError {
    let mut routes = connection.events();
    let telling = async {
        // What was open before anybody listened.
        for route in connection.stats().await.routes {
            if route.state == RouteState::Open {
                let RouteStats { route, name, .. } = route;
                let change = RouteChange::Opened;
                shared.reports.send(Report::Path(RouteEvent { route, name, change }));
            }
        }
        loop {
            match routes.recv().await {
                Ok(event) => {
                    // Addresses of the far side that move are of no interest to people.
                    if !matches!(event.change, RouteChange::Moved { .. }) {
                        shared.reports.send(Report::Path(event));
                    }
                }
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                Err(tokio::sync::broadcast::error::RecvError::Closed) => {
                    std::future::pending::<()>().await;
                }
            }
        }
    };
    holder.send_replace(Some(connection.clone()));
    let mut octet = [0];
    tokio::select! {
        error = connection.ended() => error,
        // The far side says nothing there: it ends with the connection.
        _ = control.read(&mut octet) => {
            connection.close(Parting::Stopped.code());
            connection.ended().await
        }
        () = reverse::serve(connection, reverse, shared) => connection.ended().await,
        () = telling => unreachable!("it never ends"),
    }
}

/// The error of a peer that will refuse the next attempt, too.
fn refusal(error: &ConnectionError) -> Option<peer::Error> {
    let ConnectionError::ClosedByPeer { code } = error else { return None };
    let reason = match Parting::of_code(*code)? {
        Parting::Stranger => {
            "this host may reach nothing there; 'anabranch keys trust sender' with --tunnel lets \
             it, or a token"
        }
        Parting::WrongToken => "the token is another one: a restarted host has a new one",
        Parting::TakenToken => "another host has used the token",
        Parting::Changed | Parting::Replaced | Parting::Protocol | Parting::Stopped => return None,
    };
    Some(peer::Error::Refused { reason: reason.into() })
}

/// Whether another attempt would fail in the same way.
fn is_final(error: &peer::Error) -> bool {
    matches!(
        error,
        peer::Error::Usage(_) | peer::Error::WrongPeer { .. } | peer::Error::Refused { .. }
    )
}
