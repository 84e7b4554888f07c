//! Opening a path: several attempts, each a little after the one before, and the first that
//! completes its handshake wins.
//!
//! A lost SYN costs the kernel a second, and a path that comes back after a blackout is missed by a
//! connection whose timers have backed off: fresh attempts miss neither. Every second attempt
//! announces a small segment size, for lines whose MTU is smaller than they say.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::plan::Plan;
use crate::conn::{Conn, ConnError};
use crate::tls::{ClientTls, wrong_key};
use crate::{CongestionControl, Error};

/// A path that is open on the level of TLS.
pub(crate) struct Opened {
    pub(crate) conn: Conn,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: SocketAddr,
}

/// The wait before a further attempt while earlier ones are under way: how soon a line that comes
/// back is noticed.
const STAGGER: Duration = Duration::from_millis(400);
/// Attempts at that pace: half a minute. Then they become rarer.
const BRISK: usize = 75;
/// The longest wait between attempts on a path that never answers.
const LONGEST_STAGGER: Duration = Duration::from_secs(5);
/// How long most attempts wait for an answer to their SYN; every fourth waits as long as the whole
/// may take, for lines that are merely slow.
const SYN_PATIENCE: Duration = Duration::from_secs(2);
/// How long one attempt may take in all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Attempts under way at once.
const AT_ONCE: usize = 8;
/// A segment that fits every line that carries IPv6 (MTU 1280), with room for options.
const SMALL_SEGMENT: u32 = 1_180;

/// Tries to open `plan` until it succeeds; `failed` hears of each failure.
///
/// # Errors
/// [`Error::WrongPeer`] at once when the peer at the named address holds another key; otherwise
/// this goes on until it is dropped, or fails with the last failure after `most` of them.
pub(crate) async fn open(
    plan: &Arc<Plan>,
    tls: &ClientTls,
    control: &CongestionControl,
    most: Option<usize>,
    mut failed: impl FnMut(&ConnError),
) -> Result<Opened, Error> {
    let mut attempts = JoinSet::new();
    let mut number = 0;
    let mut failures = 0;
    let mut stagger = STAGGER;
    loop {
        if attempts.len() < AT_ONCE {
            let (plan, tls, control) = (Arc::clone(plan), tls.clone(), control.clone());
            attempts.spawn(async move { attempt(&plan, &tls, &control, number).await });
            number += 1;
        }
        tokio::select! {
            () = sleep(stagger) => {
                if number > BRISK {
                    stagger = (stagger * 5 / 4).min(LONGEST_STAGGER);
                }
            }
            Some(result) = attempts.join_next() => match result.expect("an attempt does not panic") {
                Ok(opened) => return Ok(opened),
                Err((remote, error)) => {
                    if let Some(wrong) = wrong_peer(plan, remote, &error) {
                        return Err(wrong);
                    }
                    failed(&error);
                    failures += 1;
                    if most.is_some_and(|most| failures >= most) {
                        return Err(failed_at(remote, &error));
                    }
                    // A refusal comes at once: do not ask again at once.
                    if !matches!(error, ConnError::Silent(_)) {
                        sleep(stagger).await;
                    }
                }
            },
        }
    }
}

/// One attempt, with small segments or with those that the interface is for.
///
/// # Errors
/// [`Error::WrongPeer`] when the peer at the named address holds another key, [`Error::NoPath`] for
/// whatever else goes wrong.
pub(crate) async fn open_once(
    plan: &Plan,
    tls: &ClientTls,
    remote: SocketAddr,
    small: bool,
) -> Result<Opened, Error> {
    let opened = attempt_at(plan, tls, &CongestionControl::Auto, remote, SYN_PATIENCE, small).await;
    opened.map_err(|error| {
        wrong_peer(plan, remote, &error).unwrap_or_else(|| failed_at(remote, &error))
    })
}

fn failed_at(remote: SocketAddr, error: &ConnError) -> Error {
    Error::NoPath { to: remote.to_string(), why: error.to_string() }
}

/// An address that the receiver announced may belong to somebody else where we are: only a wrong
/// key at the address that was named says that something is wrong.
fn wrong_peer(plan: &Plan, remote: SocketAddr, error: &ConnError) -> Option<Error> {
    let ConnError::Tls(tls) = error else { return None };
    let found = wrong_key(tls)?;
    (remote == plan.named).then(|| Error::WrongPeer { address: remote.to_string(), found })
}

async fn attempt(
    plan: &Plan,
    tls: &ClientTls,
    control: &CongestionControl,
    number: usize,
) -> Result<Opened, (SocketAddr, ConnError)> {
    let remote = plan.remote(number);
    let syn_patience = if number.is_multiple_of(4) { PATIENCE } else { SYN_PATIENCE };
    let opened = attempt_at(plan, tls, control, remote, syn_patience, number % 2 == 1).await;
    opened.map_err(|error| (remote, error))
}

async fn attempt_at(
    plan: &Plan,
    tls: &ClientTls,
    control: &CongestionControl,
    remote: SocketAddr,
    syn_patience: Duration,
    small_segments: bool,
) -> Result<Opened, ConnError> {
    let opening = async {
        let connecting = connect(plan, control, remote, small_segments);
        let stream = timeout(syn_patience, connecting)
            .await
            .map_err(|_| ConnError::Silent(syn_patience))??;
        let local = stream.local_addr().ok();
        let connection =
            tls.connection().map_err(|error| ConnError::Io(std::io::Error::other(error)))?;
        let mut conn = Conn::new(stream, connection);
        conn.handshake().await?;
        Ok(Opened { conn, local, remote })
    };
    timeout(PATIENCE, opening).await.unwrap_or(Err(ConnError::Silent(PATIENCE)))
}

async fn connect(
    plan: &Plan,
    control: &CongestionControl,
    remote: SocketAddr,
    small_segments: bool,
) -> Result<TcpStream, ConnError> {
    let socket =
        Socket::new(Domain::for_address(remote), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if let Some(device) = &plan.device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    socket.bind(&SocketAddr::new(plan.local, 0).into())?;
    if small_segments {
        socket.set_tcp_mss(SMALL_SEGMENT)?;
    }
    let name = match control {
        CongestionControl::Auto => "cubic",
        CongestionControl::Named(name) => name,
    };
    let chosen = socket.set_tcp_congestion(name.as_bytes());
    if let (Err(error), CongestionControl::Named(name)) = (chosen, control) {
        let why = format!(
            "congestion control {name}: {error}; net.ipv4.tcp_allowed_congestion_control lists \
             what is allowed"
        );
        return Err(std::io::Error::new(error.kind(), why).into());
    }
    tune(&socket)?;
    Ok(TcpSocket::from_std_stream(socket.into()).connect(remote).await?)
}

/// Options that both ends set on every path.
pub(crate) fn tune(socket: &impl AsFd) -> std::io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5));
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(60)))
}
