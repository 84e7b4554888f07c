//! The striped connection of the near side, opened again whenever it ends.

use std::pin::pin;
use std::time::Duration;

use peer::Conn;
use peer::striped::{Dialed, is_final, open_service, tell_of_routes};
use stripe::{Connection, ConnectionError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use wire::closing::CloseCode;
use wire::session::Hello;
use wire::tunnel::SERVICE;

use super::{NearShared, reverse};
use crate::TunnelError;
use crate::bounds::{ANSWER_PATIENCE, RECEIVE_BUFFER};
use crate::place::Forward;

/// The pause before the first attempt to connect again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A connection that lasted so long makes the next pause short again.
const LASTED: Duration = Duration::from_secs(60);

/// Connects, again and again, until the peer refuses this host, or `stop`.
pub(super) async fn keep(
    dial: impl AsyncFn() -> Result<Dialed, peer::Error>,
    secret: Option<[u8; 16]>,
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
                shared.events.notice(format!("connected to {}", dialed.connection.remote()));
                let why = tokio::select! {
                    why = hold(&dialed.connection, control, reverse, shared, holder) => why,
                    () = &mut stop => {
                        dialed.keeper.close().await;
                        return Ok(());
                    }
                };
                holder.send_replace(None);
                why.to_string()
            }
            Err(error) if !was_connected || is_final(&error) => return Err(error.into()),
            Err(error) => error.to_string(),
        };
        if began.elapsed() > LASTED {
            pause = FIRST_PAUSE;
        }
        let seconds = pause.as_secs_f64();
        shared.events.notice(format!(
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
    secret: Option<[u8; 16]>,
) -> Result<(Dialed, Conn), peer::Error> {
    let dialed = dial().await?;
    dialed.connection.admit(RECEIVE_BUFFER);
    let hello = Hello::new(SERVICE, secret, peer::random()?);
    let remedy = "'anabranch serve-tunnel' there would let it";
    let control = open_service(&dialed.connection, hello, ANSWER_PATIENCE, remedy).await?;
    Ok((dialed, control))
}

/// Offers the connection to programs until it ends.
async fn hold(
    connection: &Connection,
    mut control: Conn,
    reverse: &[Forward],
    shared: &NearShared,
    holder: &watch::Sender<Option<Connection>>,
) -> ConnectionError {
    holder.send_replace(Some(connection.clone()));
    tokio::select! {
        error = connection.ended() => error,
        // The far side says nothing there: it ends with the connection.
        _ = control.receive(|_| Ok(())) => {
            connection.close(CloseCode::Stopped.number());
            connection.ended().await
        }
        () = reverse::serve(connection, reverse, shared) => connection.ended().await,
        () = tell_of_routes(connection, &shared.events) => unreachable!("it never ends"),
    }
}
