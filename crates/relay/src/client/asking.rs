//! Asks a relay what stands between a socket and it.

use std::io;
use std::net::{IpAddr, SocketAddr};

use net::Clock;
use net::clock::timer;
use stripe::plain_socket;
use tokio::net::UdpSocket;
use tokio::time::sleep_until;
use wire::bind::BIND;

use super::translator::{Translator, TranslatorTest};

/// Finds out what stands between a local address and one relay, under an association that there is.
///
/// # Errors
/// The system's.
pub(super) async fn ask_one(
    grant: (u64, &[u8]),
    relay: SocketAddr,
    local: IpAddr,
    device: Option<&str>,
) -> io::Result<Option<Translator>> {
    let (clock, socket) = (Clock::start(), open(relay, local, device)?);
    let mut test = TranslatorTest::begin(clock.now(), grant, relay);
    ask(&socket, clock, &mut test).await?;
    Ok(test.found(socket.local_addr()?))
}

/// A socket for questions.
///
/// # Errors
/// The system's.
pub(super) fn open(
    relay: SocketAddr,
    local: IpAddr,
    device: Option<&str>,
) -> io::Result<UdpSocket> {
    UdpSocket::from_std(plain_socket(relay, local, device)?)
}

/// Asks until it is over.
///
/// # Errors
/// The system's.
pub(super) async fn ask(
    socket: &UdpSocket,
    clock: Clock,
    test: &mut TranslatorTest,
) -> io::Result<()> {
    // One more octet shows what is too long.
    let mut datagram = [0; BIND + 1];
    loop {
        while let Some((to, octets)) = test.poll_transmit(clock.now()) {
            // One that is not sent is one that is lost.
            let _ = socket.send_to(&octets, to).await;
        }
        let Some(deadline) = test.poll_deadline() else { return Ok(()) };
        tokio::select! {
            heard = socket.recv_from(&mut datagram) => {
                let (length, from) = heard?;
                test.handle_datagram(clock.now(), from, &datagram[..length]);
            }
            () = sleep_until(timer(clock, deadline)) => {}
        }
    }
}
