//! What every door shares, be it of a host that receives or of one that serves: where it listens,
//! and how connections come in that are nobody's until they have proven who they are.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use wire::Frame;
use wire::frame::{AbortCode, Hello, SessionId};

use crate::conn::{Conn, ConnError};
use crate::tls::ServerTls;
use crate::{Error, Fingerprint};

/// Connections that have proven nothing, at most; a further one displaces the oldest.
const STRANGERS: usize = 64;
/// How long one may take to prove itself.
pub(crate) const STRANGER_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes read at a time before a connection has proven itself.
const STRANGER_BYTES: usize = 4_096;
/// How long one that is refused may take to read why.
const LINGER: Duration = Duration::from_secs(1);
/// One that takes nothing of what it is told for this long is gone.
const DEAF: Duration = Duration::from_secs(30);
/// Whoever waits hears from us this often.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_millis(500);

/// The tasks of all connections, and which of these have proven nothing yet.
#[derive(Default)]
pub(crate) struct Strangers(Mutex<Crowd>);

#[derive(Default)]
struct Crowd {
    /// Oldest first.
    strangers: VecDeque<(u64, AbortHandle)>,
    next: u64,
    tasks: JoinSet<()>,
}

impl Strangers {
    /// Takes in a connection; `serve` is told its number.
    pub(crate) fn admit<F>(&self, serve: impl FnOnce(u64) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut crowd = self.crowd();
        if crowd.strangers.len() >= STRANGERS
            && let Some((_, oldest)) = crowd.strangers.pop_front()
        {
            oldest.abort();
        }
        let number = crowd.next;
        crowd.next += 1;
        while crowd.tasks.try_join_next().is_some() {}
        let task = crowd.tasks.spawn(serve(number));
        crowd.strangers.push_back((number, task));
    }

    /// Waits for a connection to prove itself; `None` if it fails to or is silent, which is
    /// nobody's business.
    pub(crate) async fn enter<T>(
        &self,
        number: u64,
        entering: impl Future<Output = Result<T, ConnError>>,
    ) -> Option<T> {
        let entered = timeout(STRANGER_PATIENCE, entering).await;
        self.crowd().strangers.retain(|(stranger, _)| *stranger != number);
        entered.ok()?.ok()
    }

    /// Ends every connection.
    pub(crate) fn close(&self) {
        self.crowd().tasks.abort_all();
    }

    fn crowd(&self) -> MutexGuard<'_, Crowd> {
        self.0.lock().expect("no panic while held")
    }
}

/// What a connection says first.
pub(crate) enum First {
    Hello(Hello),
    Join(SessionId),
}

/// Shakes hands and reads the first frame.
pub(crate) async fn greet(
    tls: &ServerTls,
    stream: TcpStream,
) -> Result<(Conn, Fingerprint, First), ConnError> {
    crate::send::tune(&stream)?;
    let connection =
        tls.connection().map_err(|error| ConnError::Io(std::io::Error::other(error)))?;
    let mut conn = Conn::new(stream, connection);
    conn.handshake().await?;
    let peer = conn.peer().ok_or(ConnError::Closed)?;
    let first = conn.receive_within(STRANGER_BYTES, |frame| match frame {
        Frame::Hello(hello) => Ok(First::Hello(hello)),
        Frame::Join(id) => Ok(First::Join(id)),
        other => Err(ConnError::Unexpected(String::from(&other))),
    });
    let first = first.await?;
    Ok((conn, peer, first))
}

/// Tells the peer why not, and closes.
pub(crate) async fn refuse(conn: &mut Conn, code: AbortCode, text: String) -> ConnError {
    conn.push(&Frame::Abort(code, text.clone()));
    let _ = timeout(Duration::from_secs(1), conn.flush()).await;
    conn.close();
    let _ = timeout(LINGER, conn.linger()).await;
    ConnError::Io(std::io::Error::other(text))
}

/// Waits for something, and pings the other side meanwhile.
pub(crate) async fn alive<T>(
    conn: &mut Conn,
    work: impl Future<Output = T>,
) -> Result<T, ConnError> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            () = tokio::time::sleep(SIGN_OF_LIFE) => {
                conn.push(&Frame::Ping(0));
                conn.flush().await?;
            }
        }
    }
}

/// Sends everything that waits, to somebody who reads it.
pub(crate) async fn tell_all(conn: &mut Conn) -> Result<(), ConnError> {
    while !conn.try_flush()? {
        timeout(DEAF, conn.writable()).await.map_err(|_| ConnError::Silent(DEAF))??;
    }
    Ok(())
}

/// Does what may take long on a thread of its own.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("looking at files does not panic")
}

/// How a failure of ours is told to the other side.
pub(crate) fn code_of(error: &Error) -> AbortCode {
    match error {
        Error::Exists { .. } | Error::InTheWay { .. } => AbortCode::Exists,
        Error::NoSpace { .. } => AbortCode::NoSpace,
        Error::Disk { .. } | Error::System { .. } => AbortCode::Disk,
        Error::Integrity { .. } => AbortCode::Integrity,
        Error::SourceChanged { .. } => AbortCode::Changed,
        Error::Source { .. } | Error::Unavailable { .. } => AbortCode::Source,
        Error::Protocol(_) => AbortCode::Protocol,
        _ => AbortCode::Refused,
    }
}

/// Opens the listening sockets: at the addresses, or at `port` of all there are.
pub(crate) fn listen(addresses: &[SocketAddr], port: u16) -> Result<Vec<TcpListener>, Error> {
    if !addresses.is_empty() {
        return addresses.iter().map(|address| bind(*address, false)).collect();
    }
    // One socket for both families where the system has both, else IPv4 alone.
    let both = bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port), true);
    let listener =
        both.or_else(|_| bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), false))?;
    Ok(vec![listener])
}

fn bind(address: SocketAddr, both_families: bool) -> Result<TcpListener, Error> {
    let open = || -> std::io::Result<TcpListener> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking(),
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(!both_families)?;
        }
        socket.bind(&address.into())?;
        socket.listen(1_024)?;
        TcpListener::from_std(socket.into())
    };
    open().map_err(|source| Error::System { action: format!("listen on {address}"), source })
}

/// The addresses that somebody may name to come here.
pub(crate) fn reachable(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for bound in listeners.iter().filter_map(|listener| listener.local_addr().ok()) {
        if !bound.ip().is_unspecified() {
            addresses.push(bound);
            continue;
        }
        for address in crate::interfaces::own_addresses() {
            if bound.is_ipv6() || address.is_ipv4() {
                addresses.push(SocketAddr::new(address, bound.port()));
            }
        }
    }
    addresses
}

/// Takes in connections at all listeners, until the set is dropped.
pub(crate) fn accept(
    listeners: Vec<TcpListener>,
    admit: impl Fn(TcpStream, SocketAddr) + Clone + Send + 'static,
) -> JoinSet<()> {
    let mut accepting = JoinSet::new();
    for listener in listeners {
        let admit = admit.clone();
        accepting.spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, from)) => admit(stream, from),
                    // Out of descriptors, most likely: the next attempt may find some.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
    }
    accepting
}

/// Addresses under which the other end of `conn` may reach this host, which listens at `listen`,
/// besides the one it used.
pub(crate) fn further_addresses(conn: &Conn, listen: &[SocketAddr]) -> Vec<SocketAddr> {
    let Ok(local) = conn.stream().local_addr() else { return Vec::new() };
    let mut addresses = vec![unmapped(local)];
    let peer = conn.stream().peer_addr().map(unmapped);
    let everywhere =
        listen.is_empty() || listen.iter().any(|address| address.ip().is_unspecified());
    if everywhere && let Ok(peer) = peer {
        let found = crate::interfaces::discover(peer.ip());
        for path in found.map(|found| found.usable).unwrap_or_default() {
            let address = SocketAddr::new(path.address, local.port());
            if !addresses.contains(&address) && addresses.len() < wire::frame::MAX_ADDRESSES {
                addresses.push(address);
            }
        }
    }
    addresses
}

/// An IPv4 address that came in on an IPv6 socket, as itself.
fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// What a connection from there is called.
pub(crate) fn display_address(address: SocketAddr) -> String {
    unmapped(address).ip().to_string()
}
