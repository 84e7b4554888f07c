//! Asks relays what stands between this host and them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use net::Clock;
use net::clock::timer;
use net::interfaces::LocalPath;
use stripe::{Arrivals, Outgoing, UdpSocket};
use tokio::io::unix::AsyncFd;
use tokio::time::{sleep, sleep_until, timeout};
use wire::relay::SECRET;

use super::leading::ClientLeading;
use super::translator::{Translator, TranslatorTest};
use super::{Client, ClientState};

/// The time for a relay to grant an association.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between looks whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// Finds out what stands between a local address and relays, which this host may use, at these
/// addresses of one family: by the first one that answers, and by the others which address they
/// see.
///
/// # Errors
/// Why none of them tells, as text.
pub async fn find_translator(
    relays: &[(Arc<Client>, SocketAddr)],
    local: &LocalPath,
) -> Result<Translator, String> {
    let (mut found, mut socket, mut failures) = (None::<Translator>, None, Vec::new());
    let clock = Clock::start();
    for (client, relay) in relays {
        let failed = |why: String| format!("{}: {why}", client.dial());
        let leading = client.associate(None);
        let (id, secret) = match timeout(PATIENCE, granted(client, &leading)).await {
            Ok(Ok(grant)) => grant,
            Ok(Err(why)) => {
                failures.push(failed(why));
                continue;
            }
            Err(_) => {
                failures.push(failed("no answer".into()));
                continue;
            }
        };
        let socket = match &socket {
            Some(socket) => socket,
            // All are asked from the same one.
            None => {
                let opened = open(*relay, local.address, local.device());
                socket.insert(opened.map_err(|error| failed(error.to_string()))?)
            }
        };
        let (own, grant) = (socket.get_ref().local(), (id, &secret[..]));
        let mut test = match found {
            None => TranslatorTest::begin(clock.now(), grant, *relay),
            Some(_) => TranslatorTest::begin_short(clock.now(), grant, *relay),
        };
        ask(socket, clock, &mut test).await.map_err(|error| failed(error.to_string()))?;
        match (test.found(own), &mut found) {
            (Some(seen), Some(found)) => *found = found.seen_elsewhere(seen.outside),
            (Some(first), none) => *none = Some(first),
            (None, _) => failures.push(failed(
                "no answer over UDP: its port is closed to datagrams, or it is of an earlier \
                 version"
                    .into(),
            )),
        }
    }
    found.ok_or_else(|| failures.join("; "))
}

/// The same of one relay, under an association that there is.
///
/// # Errors
/// The system's.
pub(super) async fn ask_one(
    grant: (u64, &[u8]),
    relay: SocketAddr,
    local: IpAddr,
    device: Option<&str>,
) -> std::io::Result<Option<Translator>> {
    let (clock, socket) = (Clock::start(), open(relay, local, device)?);
    let mut test = TranslatorTest::begin(clock.now(), grant, relay);
    ask(&socket, clock, &mut test).await?;
    Ok(test.found(socket.get_ref().local()))
}

fn open(
    relay: SocketAddr,
    local: IpAddr,
    device: Option<&str>,
) -> std::io::Result<AsyncFd<UdpSocket>> {
    AsyncFd::new(UdpSocket::unconnected(relay, local, device)?)
}

/// The number and the secret of an association.
async fn granted(client: &Client, leading: &ClientLeading) -> Result<(u64, [u8; SECRET]), String> {
    loop {
        let state = leading.0.state();
        if let Some(grant) = state.granted() {
            return Ok((grant.id, grant.secret));
        }
        if let Some(why) = state.refusal() {
            return Err(why.to_owned());
        }
        drop(state);
        match client.state() {
            ClientState::Connecting(Some(why)) | ClientState::Refused(why) => return Err(why),
            ClientState::Parting => return Err("it is being stopped".into()),
            ClientState::Connecting(None) | ClientState::Open => {}
        }
        sleep(LOOK).await;
    }
}

/// Asks until it is over.
async fn ask(
    socket: &AsyncFd<UdpSocket>,
    clock: Clock,
    test: &mut TranslatorTest,
) -> std::io::Result<()> {
    let mut arrivals = Arrivals::default();
    loop {
        while let Some((to, bytes)) = test.poll_transmit(clock.now()) {
            let (source, ecn, segment) = (None, None, bytes.len());
            let bytes = &bytes[..];
            let asks = Outgoing { to, source, ecn, is_lower_effort: false, bytes, segment };
            // One that is not sent is one that is lost.
            let _ = socket.get_ref().send(&asks);
        }
        let Some(deadline) = test.poll_deadline() else { return Ok(()) };
        tokio::select! {
            ready = socket.readable() => {
                let (is_more, _) = arrivals.receive(socket.get_ref());
                for arrived in arrivals.drain() {
                    let from = SocketAddr::new(arrived.from.ip().to_canonical(), arrived.from.port());
                    for datagram in arrived.bytes.chunks(arrived.segment) {
                        test.handle_datagram(clock.now(), from, datagram);
                    }
                }
                if !is_more {
                    ready?.clear_ready();
                }
            }
            () = sleep_until(timer(clock, deadline)) => {}
        }
    }
}
