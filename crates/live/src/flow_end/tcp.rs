//! The kernel's TCP: a connection over each path.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use sys::clock::Clock;

use super::clock::sleep_until;
use super::{Tally, Task};
use crate::describe::{FlowEnd, PathEnd, Source};

/// The bytes of one write. All writers of a flow share a finite source in pieces of this size.
const CHUNK: u64 = ZEROS.len() as u64;
/// What is sent.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// What a sender that is to stop may have in the send buffer without having sent it: it would be
/// sent after the stop.
const UNSENT: u32 = 64 << 10;
/// How often a sender that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);
/// The time between the writes of a source with a rate, as in the simulator.
const TICK: u64 = 10_000_000;
/// The octets of the option in each segment (RFC 7323), which the kernel counts as segment.
const TIMESTAMPS: u32 = 12;
/// Anything but the default makes the kernel pace the socket; this many bytes per second limit
/// none.
const NO_LIMIT: u64 = 1 << 50;

/// The senders of a flow.
pub(super) fn senders(
    end: &FlowEnd,
    controller: &str,
    (pacing, mss): (bool, Option<u16>),
    source: &Source,
    tally: &Arc<Tally>,
) -> io::Result<Vec<Task>> {
    let left = Arc::new(AtomicU64::new(match source {
        Source::File(bytes) => *bytes,
        Source::Bulk | Source::Stream(_) | Source::Trace(_) => u64::MAX,
    }));
    let tasks = end.paths.iter().map(|path| {
        let socket = socket(*path, 0)?;
        if socket.set_tcp_congestion(controller.as_bytes()).is_err() {
            return Err(io::Error::other(format!(
                "`controller`: this kernel has no congestion control '{controller}', or it is not \
                 allowed (sysctl net.ipv4.tcp_allowed_congestion_control)"
            )));
        }
        // As the simulator, which sends what there is.
        socket.set_tcp_nodelay(true)?;
        if let Some(mss) = mss {
            socket.set_tcp_mss(u32::from(mss) + TIMESTAMPS)?;
        }
        if pacing {
            sys::sockopt::set_max_pacing_rate(&socket, NO_LIMIT)?;
        }
        if end.stop.is_some() {
            sys::sockopt::set_unsent_low_water(&socket, UNSENT)?;
            socket.set_write_timeout(Some(LOOK))?;
        }
        let sender = Sender {
            remote: SocketAddr::from((path.remote, end.port)),
            start: end.start,
            stop: end.stop,
            source: source.clone(),
            left: Arc::clone(&left),
            tally: Arc::clone(tally),
        };
        let task: Task = Box::new(move |clock| sender.run(socket, clock));
        Ok(task)
    });
    tasks.collect()
}

/// The receivers of a flow.
pub(super) fn receivers(
    end: &FlowEnd,
    source: &Source,
    tally: &Arc<Tally>,
) -> io::Result<Vec<Task>> {
    let size = source.size();
    let tasks = end.paths.iter().enumerate().map(|(number, path)| {
        let listener = socket(*path, end.port)?;
        listener.listen(1)?;
        let tally = Arc::clone(tally);
        let task: Task = Box::new(move |clock| {
            let (socket, _) = listener.accept()?;
            receive(socket.into(), number, size, &tally, clock)
        });
        Ok(task)
    });
    tasks.collect()
}

/// A socket at the path's address here.
fn socket(path: PathEnd, port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::from((path.local, port)).into())?;
    Ok(socket)
}

fn receive(
    mut stream: TcpStream,
    path: usize,
    size: Option<u64>,
    tally: &Tally,
    clock: Clock,
) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => tally.receive(path, n as u64, size, clock),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The sender of one path.
struct Sender {
    remote: SocketAddr,
    start: u64,
    stop: Option<u64>,
    source: Source,
    /// Of a finite source: what no path has taken yet.
    left: Arc<AtomicU64>,
    tally: Arc<Tally>,
}

impl Sender {
    fn run(self, socket: Socket, clock: Clock) -> io::Result<()> {
        sleep_until(clock, self.start);
        socket.connect(&self.remote.into())?;
        let mut stream = TcpStream::from(socket);
        let shared = stream.try_clone()?;
        self.tally.connections.lock().unwrap_or_else(PoisonError::into_inner).push(shared);
        self.send(&mut stream, clock)?;
        // The connection stays open in the tally, so that its counters can be read.
        stream.shutdown(std::net::Shutdown::Write)
    }

    fn send(&self, stream: &mut TcpStream, clock: Clock) -> io::Result<()> {
        match &self.source {
            Source::Bulk => while self.write(stream, CHUNK, clock)? {},
            Source::File(_) => {
                while let bytes @ 1.. = self.take() {
                    if !self.write(stream, bytes, clock)? {
                        return Ok(());
                    }
                }
            }
            Source::Stream(rate) => {
                let mut written = 0;
                for tick in 1u64.. {
                    sleep_until(clock, self.start + tick * TICK);
                    let due = u128::from(*rate) * u128::from(tick * TICK) / 8_000_000_000;
                    let due = u64::try_from(due).unwrap_or(u64::MAX);
                    if !self.write(stream, due - written, clock)? {
                        return Ok(());
                    }
                    written = due;
                }
            }
            Source::Trace(writes) => {
                for write in writes {
                    sleep_until(clock, self.start + write.at);
                    if !self.write(stream, write.bytes, clock)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// A piece of a finite source for this path; zero at its end.
    fn take(&self) -> u64 {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left - left.min(CHUNK))
        });
        taken.unwrap_or(0).min(CHUNK)
    }

    /// Writes so many bytes; returns whether to go on.
    fn write(&self, stream: &mut TcpStream, mut bytes: u64, clock: Clock) -> io::Result<bool> {
        while bytes > 0 {
            if self.stop.is_some_and(|stop| clock.now().as_nanos() >= stop) {
                return Ok(false);
            }
            let most = usize::try_from(bytes.min(CHUNK)).unwrap_or(ZEROS.len());
            match stream.write(&ZEROS[..most]) {
                Ok(n) => bytes -= n as u64,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
