//! Records that other programs hand over: over TCP or a socket in the file system, each connection
//! a stream of octets, or as datagrams, each of which is a record.

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixDatagram as StdDatagram, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use events::Events;
use rustix::net::sockopt::{set_socket_keepalive, set_socket_recv_buffer_size};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpListener, UdpSocket, UnixDatagram, UnixListener};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use wire::feed::{Form, MAX_RECORD, push_record};

use super::piece::{CHUNK, Piece};
use super::totals::Dropped;
use crate::FeedError;
use crate::bounds::{BATCH, LOCAL_CONNECTIONS};
use crate::framing::{FramingError, Splitter};

/// The pause after a failure to accept a connection, as for want of descriptors.
const PAUSE: Duration = Duration::from_secs(1);
/// The least time between two messages of one socket.
const QUIET: Duration = Duration::from_secs(10);
/// The buffer that is asked of the kernel for datagrams: it drops what does not fit.
const DATAGRAMS: usize = 4 << 20;
/// The time between looks for datagrams that were dropped.
const LOOK: Duration = Duration::from_secs(1);
/// The least octets of a datagram's buffer: UDP has no longer ones.
const DATAGRAM: usize = 64 << 10;

/// Where programs hand records over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Connections over TCP.
    Tcp(SocketAddr),
    /// Datagrams over UDP.
    Udp(SocketAddr),
    /// Connections to a socket in the file system.
    Unix(PathBuf),
    /// Datagrams to a socket in the file system.
    Datagrams(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    /// `tcp:PORT`, `udp:ADDRESS:PORT`, `unix:PATH`, `unixgram:PATH`; a port alone is one of
    /// 127.0.0.1.
    fn from_str(text: &str) -> Result<Listen, String> {
        let wanted = "expected tcp:[ADDRESS:]PORT, udp:[ADDRESS:]PORT, unix:PATH or unixgram:PATH";
        let (kind, rest) = text.split_once(':').ok_or(wanted)?;
        let address = || match rest.parse() {
            Ok(port) => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            Err(_) => rest.parse().map_err(|_| {
                format!("'{rest}' is no port and no address with a port, as 5140 or [::1]:5140")
            }),
        };
        let path = || if rest.is_empty() { Err(wanted.to_string()) } else { Ok(rest.into()) };
        match kind {
            "tcp" => address().map(Listen::Tcp),
            "udp" => address().map(Listen::Udp),
            "unix" => path().map(Listen::Unix),
            "unixgram" => path().map(Listen::Datagrams),
            _ => Err(wanted.into()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => write!(f, "tcp:{address}"),
            Listen::Udp(address) => write!(f, "udp:{address}"),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
            Listen::Datagrams(path) => write!(f, "unixgram:{}", path.display()),
        }
    }
}

/// A socket that takes records.
pub(super) struct Listener {
    /// Where it is; a port that was 0 is the one that the kernel chose.
    pub(super) at: Listen,
    socket: Socket,
}

enum Socket {
    Tcp(TcpListener),
    Udp(UdpSocket),
    Unix(UnixListener, Named),
    Datagrams(UnixDatagram, Named),
}

/// The name of a socket in the file system, which goes with it.
struct Named(PathBuf);

impl Drop for Named {
    fn drop(&mut self) {
        // What is left is taken over by the next one.
        let _ = fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Opens the socket. One in the file system whose process is gone is replaced.
    ///
    /// # Errors
    /// [`FeedError::Listen`]: another attempt may find the port free, or the address there.
    pub(super) async fn bind(at: &Listen) -> Result<Listener, FeedError> {
        let failed = |source| FeedError::Listen { at: at.to_string(), source };
        let socket = match at {
            Listen::Tcp(address) => Socket::Tcp(TcpListener::bind(address).await.map_err(failed)?),
            Listen::Udp(address) => {
                let socket = UdpSocket::bind(address).await.map_err(failed)?;
                // What the system allows is what there is.
                let _ = set_socket_recv_buffer_size(&socket, DATAGRAMS);
                Socket::Udp(socket)
            }
            Listen::Unix(path) => {
                make_way(path).map_err(failed)?;
                let socket = UnixListener::bind(path).map_err(failed)?;
                Socket::Unix(socket, Named(path.clone()))
            }
            Listen::Datagrams(path) => {
                make_way(path).map_err(failed)?;
                let socket = UnixDatagram::bind(path).map_err(failed)?;
                Socket::Datagrams(socket, Named(path.clone()))
            }
        };
        let at = match &socket {
            Socket::Tcp(socket) => Listen::Tcp(socket.local_addr().map_err(failed)?),
            Socket::Udp(socket) => Listen::Udp(socket.local_addr().map_err(failed)?),
            Socket::Unix(..) | Socket::Datagrams(..) => at.clone(),
        };
        Ok(Listener { at, socket })
    }

    /// Takes records and hands them on, as long as somebody wants them.
    pub(super) async fn run(
        self,
        form: Form,
        pieces: mpsc::Sender<io::Result<Piece>>,
        (events, dropped): (Events, Dropped),
    ) {
        let troubles = Arc::new(Troubles::new(self.at.to_string(), events));
        match self.socket {
            Socket::Tcp(socket) => accept(&socket, form, &pieces, &troubles).await,
            Socket::Unix(socket, _name) => accept(&socket, form, &pieces, &troubles).await,
            Socket::Udp(socket) => tokio::select! {
                () = datagrams(&socket, form, &pieces, &troubles) => {}
                never = count_drops(&socket, &troubles, &dropped) => match never {},
            },
            // Who writes to it waits when it is full.
            Socket::Datagrams(socket, _name) => {
                datagrams(&socket, form, &pieces, &troubles).await;
            }
        }
    }
}

/// Removes a socket that nobody listens at any more.
fn make_way(path: &Path) -> io::Result<()> {
    let is_socket = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type().is_socket(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !is_socket {
        return Err(io::Error::other("there is a file of that name, which is no socket"));
    }
    let refused = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
    let stream = StdStream::connect(path).map(drop);
    let datagram = StdDatagram::unbound().and_then(|socket| socket.connect(path));
    let is_left = |tried: &io::Result<()>| tried.as_ref().is_err_and(refused);
    // One of them is of the wrong kind, if somebody listens.
    if is_left(&stream) && is_left(&datagram) {
        return fs::remove_file(path);
    }
    Err(io::Error::other("another process listens there"))
}

/// A socket that takes connections.
trait Accept {
    type Stream: AsyncRead + Unpin + Send + 'static;

    /// The next connection, and where it comes from.
    async fn accept(&self) -> io::Result<(Self::Stream, String)>;
}

impl Accept for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn accept(&self) -> io::Result<(Self::Stream, String)> {
        let (stream, from) = TcpListener::accept(self).await?;
        // A host that has vanished gives its place back.
        let _ = set_socket_keepalive(&stream, true);
        Ok((stream, from.to_string()))
    }
}

impl Accept for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<(Self::Stream, String)> {
        let (stream, _) = UnixListener::accept(self).await?;
        let process = stream.peer_cred().ok().and_then(|who| who.pid());
        let from = process.map_or_else(|| "a process".into(), |pid| format!("process {pid}"));
        Ok((stream, from))
    }
}

/// Takes connections, so many at a time, until nobody wants records.
async fn accept(
    socket: &impl Accept,
    form: Form,
    pieces: &mpsc::Sender<io::Result<Piece>>,
    troubles: &Arc<Troubles>,
) {
    let places = Arc::new(Semaphore::new(LOCAL_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        if places.available_permits() == 0 {
            troubles.tell(&format!(
                "{LOCAL_CONNECTIONS} connections are open, as many as may be; a further one waits"
            ));
        }
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = pieces.closed() => return,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, from)) => {
                let (pieces, troubles) = (pieces.clone(), Arc::clone(troubles));
                connections.spawn(async move {
                    if let Err(error) = take_all(stream, form, &pieces).await {
                        troubles.tell(&format!("{from}: {error}"));
                    }
                    drop(place);
                });
            }
            Err(error) => {
                troubles.tell(&error.to_string());
                sleep(PAUSE).await;
            }
        }
    }
}

/// Why a connection ended before its end.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}; nothing behind it is taken")]
    Framing(#[from] FramingError),
}

/// Takes the records of a connection, to its end.
async fn take_all(
    mut stream: impl AsyncRead + Unpin,
    form: Form,
    pieces: &mpsc::Sender<io::Result<Piece>>,
) -> Result<(), ConnectionError> {
    let mut splitter = Splitter::new(form);
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = stream.read(&mut chunk).await;
        let length = *read.as_ref().unwrap_or(&0);
        splitter.push(&chunk[..length]);
        let mut body = Vec::new();
        let ended = loop {
            match splitter.next_record() {
                Ok(Some(record)) => push_record(&mut body, record),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
            if body.len() as u64 >= BATCH.0 && !hand_on(&mut body, pieces).await {
                return Ok(());
            }
        };
        let is_over = length == 0 || ended.is_err();
        let ended = if length == 0 && ended.is_ok() {
            splitter.last_record().map(|last| {
                // A newline that is missing at the end is no reason to lose a line.
                if let Some(last) = last {
                    push_record(&mut body, last);
                }
            })
        } else {
            ended
        };
        let wanted = hand_on(&mut body, pieces).await;
        ended?;
        read?;
        if is_over || !wanted {
            return Ok(());
        }
    }
}

/// Hands records on; whether anybody wants more.
async fn hand_on(body: &mut Vec<u8>, pieces: &mpsc::Sender<io::Result<Piece>>) -> bool {
    let records = std::mem::take(body);
    records.is_empty() || pieces.send(Ok(Piece::Records(records))).await.is_ok()
}

/// A socket that takes datagrams.
trait Receive {
    /// The next datagram.
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// The next one, if it is here.
    fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize>;
}

impl Receive for UdpSocket {
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv(buffer).await
    }

    fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_recv(buffer)
    }
}

impl Receive for UnixDatagram {
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv(buffer).await
    }

    fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_recv(buffer)
    }
}

/// Takes datagrams, each a record, until nobody wants them.
async fn datagrams(
    socket: &impl Receive,
    form: Form,
    pieces: &mpsc::Sender<io::Result<Piece>>,
    troubles: &Troubles,
) {
    let mut buffer = vec![0; MAX_RECORD.max(DATAGRAM) + 1];
    loop {
        let mut received = tokio::select! {
            received = socket.receive(&mut buffer) => received,
            () = pieces.closed() => return,
        };
        let mut body = Vec::new();
        // Those that are here go on together.
        while let Ok(length) = received {
            if length > MAX_RECORD {
                troubles.tell("a datagram is longer than a record may be, and was cut");
            }
            push_datagram(&mut body, form, &buffer[..length.min(MAX_RECORD)]);
            if body.len() as u64 >= BATCH.0 {
                break;
            }
            received = socket.receive_now(&mut buffer);
        }
        if let Err(error) = received
            && error.kind() != ErrorKind::WouldBlock
        {
            troubles.tell(&error.to_string());
            sleep(PAUSE).await;
        }
        if !hand_on(&mut body, pieces).await {
            return;
        }
    }
}

/// Adds the record of a datagram. Where an octet ends records, a datagram with several of them has
/// several records.
fn push_datagram(body: &mut Vec<u8>, form: Form, datagram: &[u8]) {
    let end = match form {
        Form::Lines => b'\n',
        Form::Nul => 0,
        Form::Counted => return push_record(body, datagram),
    };
    let datagram = datagram.strip_suffix(&[end]).unwrap_or(datagram);
    datagram.split(|octet| *octet == end).for_each(|record| push_record(body, record));
}

/// Tells of datagrams that the kernel dropped, because they came faster than records go.
async fn count_drops(
    socket: &UdpSocket,
    troubles: &Troubles,
    lost: &Dropped,
) -> std::convert::Infallible {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = 0;
    loop {
        ticks.tick().await;
        let Ok(dropped) = sys::sockopt::dropped(socket) else { continue };
        if dropped != known
            && troubles.tell(&format!(
                "{} datagrams were lost: they came faster than they go; over TCP their sender \
                 would wait",
                dropped.wrapping_sub(known)
            ))
        {
            lost.add(u64::from(dropped.wrapping_sub(known)));
            known = dropped;
        }
    }
}

/// Says what is wrong with a socket, once in a while: who writes to it may be anybody.
struct Troubles {
    at: String,
    events: Events,
    /// When something was said last, and how much was not since.
    last: Mutex<Option<(Instant, u64)>>,
}

impl Troubles {
    fn new(at: String, events: Events) -> Troubles {
        Troubles { at, events, last: Mutex::default() }
    }

    /// Says it, unless something was said a moment ago.
    fn tell(&self, text: &str) -> bool {
        let mut last = self.last.lock().expect("no panic while held");
        let now = Instant::now();
        let left_out = match &mut *last {
            Some((at, left_out)) if now < *at + QUIET => {
                *left_out += 1;
                return false;
            }
            last => last.map_or(0, |(_, left_out)| left_out),
        };
        *last = Some((now, 0));
        drop(last);
        let more = match left_out {
            0 => String::new(),
            left_out => format!("; {left_out} such messages before were left out"),
        };
        self.events.notice(format!("{}: {text}{more}", self.at));
        true
    }
}
