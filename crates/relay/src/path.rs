//! A path: the two sockets of a data connection, until both directions have ended or one fails.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use net::Clock;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::bounds::HALF_OPEN_PATIENCE;
use crate::meter::PathMeter;
use crate::splice::{Direction, reset};

/// Moves bytes until both directions have ended; a failure of one resets both sockets. `answered`
/// is dropped once the destination has said something.
///
/// # Errors
/// That of the socket that failed; [`io::ErrorKind::TimedOut`] if the destination says nothing for
/// [`HALF_OPEN_PATIENCE`].
pub(crate) async fn carry(
    sockets: [TcpStream; 2],
    [up, down]: [PathMeter; 2],
    clock: Clock,
    answered: impl Sized,
) -> io::Result<()> {
    let [peer, destination] = &sockets;
    let up = Direction::new(peer, destination, clock, up);
    let down = Direction::new(destination, peer, clock, down);
    let carried = tokio::select! {
        carried = both(&sockets, up, down, answered) => carried,
        error = failed(peer) => Err(error),
        error = failed(destination) => Err(error),
    };
    if carried.is_err() {
        reset(sockets);
    }
    carried
}

async fn both(
    [peer, destination]: &[TcpStream; 2],
    mut up: Direction,
    mut down: Direction,
    answered: impl Sized,
) -> io::Result<()> {
    let mut is_answered = false;
    let mut step = |cx: &mut std::task::Context<'_>, until_answer: bool| {
        if !up.is_over()
            && let Poll::Ready(Err(error)) = up.poll_move(cx, peer, destination)
        {
            return Poll::Ready(Err(error));
        }
        if !down.is_over()
            && let Poll::Ready(Err(error)) = down.poll_move(cx, destination, peer)
        {
            return Poll::Ready(Err(error));
        }
        is_answered |= down.has_moved() || down.is_over();
        let is_done = if until_answer { is_answered } else { up.is_over() && down.is_over() };
        if is_done { Poll::Ready(Ok(())) } else { Poll::Pending }
    };
    let first = timeout(HALF_OPEN_PATIENCE, poll_fn(|cx| step(cx, true)));
    first.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    drop(answered);
    poll_fn(|cx| step(cx, false)).await
}

/// Waits until a socket has failed.
async fn failed(socket: &TcpStream) -> io::Error {
    let waited = socket.ready(Interest::ERROR).await;
    match (waited, socket.take_error()) {
        (Err(error), _) | (_, Err(error) | Ok(Some(error))) => error,
        (Ok(_), Ok(None)) => io::ErrorKind::ConnectionReset.into(),
    }
}
