//! Connections through links: bytes are read only when the link has room for them, so that none is
//! ever dropped.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use link::config::Network;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use sys::poll::{Interest, Poller, Ready};
use units::{Bytes, Span};

use super::links::{LinkDirection, Links, is_later};
use super::patient;
use crate::driver::Control;
use crate::report::Report;

/// Payload of a full segment, and the size of its headers: bytes are charged to the link as if sent
/// in such segments.
const SEGMENT: usize = 1_448;
const SEGMENT_HEADERS: usize = 52;
/// The longest time of a chunk on the wire, so that the connections of a link alternate.
const CHUNK_TIME: Span = Span::from_millis(2);
const MAX_CHUNK_SEGMENTS: u64 = 44;
/// Bytes that the kernel may take from a sender before the link has room. It is small, because the
/// path would seem faster than it is otherwise. The kernel doubles it.
const RECEIVE_BUFFER: usize = 16 << 10;
/// Unread bytes at a receiver from which on its connection's source is not read.
const MAX_UNREAD: usize = 256 << 10;
const WAKER_KEY: u64 = u64::MAX;
/// Keys of connections: 2 × id + FIRST, plus one for the far socket.
const FIRST: u64 = 1 << 32;

pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    // Before listen, so that connections advertise it. Segments as small as a real link's, since
    // loopback's are larger than the buffer and would wait for it to be empty.
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.set_tcp_mss(u32::try_from(SEGMENT).expect("a small number"))?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(128)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// An item in transit.
#[derive(Clone, Debug)]
enum Chunk {
    Open,
    Data(Box<[u8]>),
    End,
    Reset,
}

pub(super) struct TcpProxy {
    links: Links<(u64, Chunk)>,
    listeners: Vec<TcpListener>,
    forward: SocketAddr,
    poller: Poller,
    connections: BTreeMap<u64, Connection>,
    next_id: u64,
    /// By direction: connections that have something to read, in the order of their turn.
    turns: Vec<VecDeque<u64>>,
    buffer: Vec<u8>,
}

struct Connection {
    link: usize,
    near: TcpStream,
    /// Made when the opening arrives at the far end.
    far: Option<TcpStream>,
    up: Half,
    down: Half,
    /// Sockets that hung up are removed from the poller, which would report them again and again.
    has_near_hung_up: bool,
    has_far_hung_up: bool,
}

/// One direction of a connection.
#[derive(Default)]
struct Half {
    /// The source has data; it waits for its turn and is not polled.
    is_waiting: bool,
    /// The source has ended.
    has_ended: bool,
    /// Chunks that arrived and that the destination has not taken.
    unread: VecDeque<Chunk>,
    unread_bytes: usize,
    /// Bytes of the first unread chunk that were written.
    offset: usize,
    /// The end of the stream was passed on to the destination.
    is_done: bool,
}

impl TcpProxy {
    pub(super) fn new(
        network: &Network,
        listeners: Vec<TcpListener>,
        forward: SocketAddr,
    ) -> io::Result<TcpProxy> {
        let poller = Poller::new()?;
        for (key, listener) in (0..).zip(&listeners) {
            poller.add(listener, key, Interest { readable: true, writable: false })?;
        }
        Ok(TcpProxy {
            links: Links::new(network, patient),
            turns: vec![VecDeque::new(); 2 * listeners.len()],
            listeners,
            forward,
            poller,
            connections: BTreeMap::new(),
            next_id: 0,
            buffer: vec![0; SEGMENT * 44],
        })
    }

    pub(super) fn run(&mut self, control: &Arc<Control>) -> io::Result<Report> {
        self.links.enter_thread();
        self.poller.add(&control.waker, WAKER_KEY, Interest { readable: true, writable: false })?;
        let mut ready = Vec::new();
        let mut woken = self.links.now();
        while !control.stop.load(Ordering::Acquire) {
            self.deliver();
            self.read_in_turn();
            self.links.record_busy(woken);
            let timeout = self.timeout();
            self.poller.wait(&mut ready, timeout)?;
            woken = self.links.now();
            for event in &ready {
                self.handle(*event);
            }
        }
        Ok(self.links.report())
    }

    fn timeout(&self) -> Option<Duration> {
        let room = (0..self.turns.len()).filter(|index| !self.turns[*index].is_empty());
        let room = room.filter_map(|index| self.links.next_departure(direction_at(index))).min();
        let deadline = [self.links.poll_deadline(), room].into_iter().flatten().min()?;
        Some(Duration::from(deadline - self.links.now()))
    }

    fn handle(&mut self, event: Ready) {
        if event.key == WAKER_KEY {
            return;
        }
        if event.key < FIRST {
            self.accept(usize::try_from(event.key).expect("an index"));
            return;
        }
        let id = (event.key - FIRST) / 2;
        let is_far = event.key % 2 == 1;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let link = connection.link;
        if event.hung_up && !connection.hang_up(&self.poller, is_far) {
            self.abort(id);
            return;
        }
        // Each socket is the source of one half and the destination of the other.
        let source = if is_far { &mut connection.down } else { &mut connection.up };
        if event.readable && !source.is_waiting && !source.has_ended {
            source.is_waiting = true;
            self.turns[2 * link + usize::from(is_far)].push_back(id);
        }
        if event.writable {
            self.flush(id, !is_far);
        }
        self.watch(id);
    }

    fn accept(&mut self, link: usize) {
        while let Ok((near, _)) = self.listeners[link].accept() {
            let id = self.next_id;
            self.next_id += 1;
            let ready = near.set_nonblocking(true).and_then(|()| near.set_nodelay(true));
            let added =
                ready.and_then(|()| self.poller.add(&near, FIRST + 2 * id, Interest::default()));
            if added.is_err() {
                continue;
            }
            let connection = Connection::new(link, near);
            self.connections.insert(id, connection);
            self.links.enqueue(
                LinkDirection { link, is_down: false },
                Bytes(SEGMENT_HEADERS as u64),
                id,
                (id, Chunk::Open),
            );
            self.watch(id);
        }
    }

    /// Processes the chunks that arrived at the other end.
    fn deliver(&mut self) {
        while let Some(arrival) = self.links.poll_arrival() {
            let (id, chunk) = arrival.item;
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            match chunk {
                Chunk::Reset => self.abort(id),
                Chunk::Open => match open(self.forward, &self.poller, FIRST + 2 * id + 1) {
                    Ok(far) => {
                        connection.far = Some(far);
                        self.watch(id);
                    }
                    Err(_) => self.send(id, arrival.direction.link, true, Chunk::Reset),
                },
                Chunk::Data(_) | Chunk::End => {
                    let is_down = arrival.direction.is_down;
                    connection.half(is_down).push(chunk);
                    self.flush(id, is_down);
                    self.watch(id);
                }
            }
        }
    }

    /// Reads from connections in turn, as far as the links have room.
    fn read_in_turn(&mut self) {
        for index in 0..self.turns.len() {
            let direction = direction_at(index);
            let chunk = self.chunk(direction);
            // A connection whose destination does not keep up loses its turn until it does.
            let mut skipped = VecDeque::new();
            while !self.turns[index].is_empty() && self.links.has_room(direction, charge(chunk)) {
                let Some(id) = self.turns[index].pop_front() else { break };
                match self.read(id, direction, chunk) {
                    Turn::Again => self.turns[index].push_back(id),
                    Turn::Later => skipped.push_back(id),
                    Turn::Over => {}
                }
            }
            // They are polled again after a flush.
            for id in skipped {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.half(direction.is_down).is_waiting = false;
                }
                self.watch(id);
            }
        }
    }

    fn read(&mut self, id: u64, direction: LinkDirection, chunk: usize) -> Turn {
        let Some(connection) = self.connections.get_mut(&id) else { return Turn::Over };
        if connection.half(direction.is_down).unread_bytes > MAX_UNREAD {
            return Turn::Later;
        }
        let Some(source) = connection.source(direction.is_down) else { return Turn::Over };
        let result = source.read(&mut self.buffer[..chunk]);
        let half = connection.half(direction.is_down);
        let (what, turn) = match result {
            Ok(0) => (Chunk::End, Turn::Over),
            Ok(n) => (Chunk::Data(self.buffer[..n].into()), Turn::Again),
            Err(error) if is_later(&error) => {
                half.is_waiting = false;
                self.watch(id);
                return Turn::Over;
            }
            Err(_) => (Chunk::Reset, Turn::Over),
        };
        if !matches!(what, Chunk::Data(_)) {
            half.has_ended = true;
        }
        self.send(id, direction.link, direction.is_down, what);
        self.watch(id);
        turn
    }

    fn send(&mut self, id: u64, link: usize, is_down: bool, chunk: Chunk) {
        let bytes = match &chunk {
            Chunk::Data(data) => charge(data.len()),
            Chunk::Open | Chunk::End | Chunk::Reset => Bytes(SEGMENT_HEADERS as u64),
        };
        self.links.enqueue(LinkDirection { link, is_down }, bytes, id, (id, chunk));
    }

    /// Writes unread chunks, as far as the destination takes them.
    fn flush(&mut self, id: u64, is_down: bool) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.flush(is_down) {
            self.abort(id);
        } else if connection.up.is_done && connection.down.is_done {
            self.connections.remove(&id);
        }
    }

    /// Ends a connection so that both applications see that it failed.
    fn abort(&mut self, id: u64) {
        let Some(connection) = self.connections.remove(&id) else { return };
        for socket in [Some(&connection.near), connection.far.as_ref()].into_iter().flatten() {
            // Closing without a linger of zero would look like an orderly end.
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }

    /// Updates the poller's interest in the connection's sockets.
    fn watch(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        let interest = |source: &Half, destination: &Half| Interest {
            readable: !source.is_waiting && !source.has_ended && source.unread_bytes <= MAX_UNREAD,
            writable: !destination.unread.is_empty(),
        };
        let near = interest(&connection.up, &connection.down);
        let far = interest(&connection.down, &connection.up);
        let mut changed = Ok(());
        if !connection.has_near_hung_up {
            changed = self.poller.modify(&connection.near, FIRST + 2 * id, near);
        }
        if let Some(socket) = connection.far.as_ref().filter(|_| !connection.has_far_hung_up) {
            changed = changed.and(self.poller.modify(socket, FIRST + 2 * id + 1, far));
        }
        changed.expect("both sockets were added, and are open as long as the connection is there");
    }

    /// The number of bytes to read at once.
    fn chunk(&self, direction: LinkDirection) -> usize {
        let rate = self.links.profile(direction).rate.base;
        let segments = ((rate * CHUNK_TIME).0 / 1_500).clamp(1, MAX_CHUNK_SEGMENTS);
        SEGMENT * usize::try_from(segments).expect("at most 44")
    }
}

enum Turn {
    Again,
    Later,
    Over,
}

fn direction_at(index: usize) -> LinkDirection {
    LinkDirection { link: index / 2, is_down: index % 2 == 1 }
}

/// The size on a link of this many bytes of payload, headers included.
fn charge(payload: usize) -> Bytes {
    Bytes((payload + payload.div_ceil(SEGMENT) * SEGMENT_HEADERS) as u64)
}

fn open(forward: SocketAddr, poller: &Poller, key: u64) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(forward), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    match socket.connect(&SockAddr::from(forward)) {
        Err(error)
            if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            return Err(error);
        }
        _ => {}
    }
    poller.add(&socket, key, Interest::default())?;
    Ok(socket.into())
}

impl Connection {
    fn new(link: usize, near: TcpStream) -> Connection {
        Connection {
            link,
            near,
            far: None,
            up: Half::default(),
            down: Half::default(),
            has_near_hung_up: false,
            has_far_hung_up: false,
        }
    }

    /// A socket hung up; data that it sent before can still be read. Returns false if the
    /// connection is useless.
    fn hang_up(&mut self, poller: &Poller, is_far: bool) -> bool {
        let (flag, socket, source, destination) = if is_far {
            (&mut self.has_far_hung_up, self.far.as_ref(), &self.down, &self.up)
        } else {
            (&mut self.has_near_hung_up, Some(&self.near), &self.up, &self.down)
        };
        if let Some(socket) = socket.filter(|_| !*flag) {
            // An error would only mean that it was removed before.
            let _ = poller.remove(socket);
        }
        *flag = true;
        !source.has_ended || destination.is_done
    }

    fn half(&mut self, is_down: bool) -> &mut Half {
        if is_down { &mut self.down } else { &mut self.up }
    }

    fn source(&mut self, is_down: bool) -> Option<&mut TcpStream> {
        if is_down { self.far.as_mut() } else { Some(&mut self.near) }
    }

    /// Returns false if the destination is gone.
    fn flush(&mut self, is_down: bool) -> bool {
        let (half, destination) = if is_down {
            (&mut self.down, Some(&mut self.near))
        } else {
            (&mut self.up, self.far.as_mut())
        };
        let Some(destination) = destination else { return true };
        while let Some(chunk) = half.unread.front() {
            let Chunk::Data(data) = chunk else {
                half.unread.pop_front();
                half.is_done = true;
                // The other side may have closed already.
                let _ = destination.shutdown(Shutdown::Write);
                continue;
            };
            match destination.write(&data[half.offset..]) {
                Ok(n) => {
                    half.offset += n;
                    half.unread_bytes -= n;
                    if half.offset == data.len() {
                        half.offset = 0;
                        half.unread.pop_front();
                    }
                }
                Err(error) if is_later(&error) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

impl Half {
    fn push(&mut self, chunk: Chunk) {
        if let Chunk::Data(data) = &chunk {
            self.unread_bytes += data.len();
        }
        self.unread.push_back(chunk);
    }
}
