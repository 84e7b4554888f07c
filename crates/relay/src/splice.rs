//! Bytes from one socket to another through a pipe, which never has any between two calls.
//!
//! A pipe is two descriptors and memory of which the system gives a user little: thousands of paths
//! cannot have one each. So a thread has one for all its paths. As much is read as the other socket
//! has room for; what it does not take all the same is copied out of the pipe, so that the next
//! path finds it empty.
//!
//! What is short is copied: the pages of a pipe cost more than so few octets do.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use net::Clock;
use net::counters::tcp_info;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::param::page_size;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use socket2::SockRef;
use sys::sockopt::{set_receive_bound, set_unsent_low_water};
use tokio::io::Interest;
use tokio::net::TcpStream;
use units::{Bytes, Span};

use crate::bounds::{LEAST_HELD, LEAST_ROUND_TRIP};
use crate::hop::HopBound;
use crate::meter::PathMeter;

/// The size of a thread's pipe, if the system gives it: what any user may have by default. Packets
/// of a network card take a page each, however short they are.
const PIPE: usize = 1 << 20;

/// The size that a pipe has otherwise.
const DEFAULT_PIPE: usize = 64 << 10;

/// What is shorter is copied. More is read through the pipe as long as there is so much.
const SHORT: usize = 16 << 10;

thread_local! {
    static PIPE_OF_THREAD: RefCell<Option<Pipe>> = const { RefCell::new(None) };
    static BUFFER_OF_THREAD: RefCell<[u8; SHORT]> = const { RefCell::new([0; SHORT]) };
}

/// An empty pipe.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    size: usize,
}

impl Pipe {
    /// The pieces that it has room for, however short they are.
    fn pieces(&self) -> usize {
        self.size / page_size()
    }

    fn new() -> io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // It works with the size that it has, too.
        let size = fcntl_setpipe_size(&write, PIPE).unwrap_or(DEFAULT_PIPE);
        Ok(Pipe { read, write, size })
    }
}

/// What a step of a direction came to.
enum Moved {
    /// The socket had as much, of which `left` was not taken by the other one; whether it has no
    /// more.
    Bytes { moved: usize, left: Vec<u8>, is_all: bool },
    /// The socket has come to its end.
    End,
}

/// One direction of a path.
pub(crate) struct Direction {
    clock: Clock,
    meter: PathMeter,
    /// What the output did not take.
    left: Vec<u8>,
    /// How much may wait at the input, and at the output.
    received: HopBound,
    unsent: HopBound,
    /// Bytes for which the output is known to have room.
    room: usize,
    has_moved: bool,
    /// Whether there was more than a little the last time.
    is_bulk: bool,
    is_over: bool,
}

impl Direction {
    /// The direction from `from` to `to`, which have moved nothing yet.
    pub(crate) fn new(
        from: &TcpStream,
        to: &TcpStream,
        clock: Clock,
        meter: PathMeter,
    ) -> Direction {
        // Without these bounds it works too, only with more in between.
        let _ = set_receive_bound(from, kernel_size(LEAST_HELD));
        let _ = set_unsent_low_water(to, kernel_size(LEAST_HELD));
        let bound = HopBound::new(clock.now());
        Direction {
            clock,
            meter,
            left: Vec::new(),
            received: bound.clone(),
            unsent: bound,
            room: 0,
            has_moved: false,
            is_bulk: false,
            is_over: false,
        }
    }

    /// Whether the input has come to its end, and the output has been told.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether anything was moved so far.
    pub(crate) fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Moves bytes as long as there are any and there is room for them. Ready at the end of the
    /// input, once the output has been told.
    pub(crate) fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        from: &TcpStream,
        to: &TcpStream,
    ) -> Poll<io::Result<()>> {
        loop {
            while !self.left.is_empty() {
                ready!(to.poll_write_ready(cx))?;
                match to.try_write(&self.left) {
                    Ok(written) => drop(self.left.drain(..written)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            self.left = Vec::new();
            // What the output has no room for stays at the input, and holds up its sender.
            ready!(self.poll_room(cx, to))?;
            ready!(from.poll_read_ready(cx))?;
            let granted = ready!(self.meter.poll_grant(cx, self.room));
            let mut moved = None;
            let tried = from.try_io(Interest::READABLE, || {
                let step = if self.is_bulk {
                    move_once(from, to, granted)?
                } else {
                    copy_once(from, to, granted)?
                };
                let is_all = matches!(step, Moved::Bytes { is_all: true, .. });
                moved = Some(step);
                // The kernel will tell of what comes next: asking once more would say no more.
                if is_all { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (moved, tried) {
                (Some(Moved::Bytes { moved, left, .. }), _) => {
                    self.meter.handle_moved(moved);
                    self.has_moved = true;
                    self.is_bulk = moved >= SHORT;
                    self.room = if left.is_empty() { self.room.saturating_sub(moved) } else { 0 };
                    self.left = left;
                    self.follow(from, to, moved);
                }
                (Some(Moved::End), _) => {
                    self.meter.handle_moved(0);
                    self.is_over = true;
                    return Poll::Ready(net::socket::shutdown_write(to));
                }
                (None, Err(error)) if error.kind() != ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                (None, _) => self.meter.handle_moved(0),
            }
        }
    }

    /// Waits until the output has room for half of what may wait there.
    fn poll_room(&mut self, cx: &mut Context<'_>, to: &TcpStream) -> Poll<io::Result<()>> {
        let whole = usize::try_from(self.unsent.bound().0).unwrap_or(usize::MAX) / 2;
        while self.room < whole / 4 {
            ready!(to.poll_write_ready(cx))?;
            // The socket becomes writable below half of its low-water mark. That it is looked at
            // has the kernel tell of the next time.
            match to.try_io(Interest::WRITABLE, || is_writable(to)) {
                Ok(()) => self.room = whole,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Adapts how much may wait here to the rate.
    fn follow(&mut self, from: &TcpStream, to: &TcpStream, moved: usize) {
        let (now, moved) = (self.clock.now(), Bytes(moved as u64));
        let is_due = self.received.handle_moved(now, moved);
        if !(self.unsent.handle_moved(now, moved) || is_due) {
            return;
        }
        let round_trip = tcp_info(from).map_or(Span::ZERO, |info| Span::from(info.min_rtt));
        if let Some(bound) = self.received.handle_sample(now, round_trip) {
            let _ = set_receive_bound(from, kernel_size(bound));
        }
        if let Some(bound) = self.unsent.handle_sample(now, LEAST_ROUND_TRIP) {
            let _ = set_unsent_low_water(to, kernel_size(bound));
        }
    }
}

fn kernel_size(bytes: Bytes) -> u32 {
    u32::try_from(bytes.0).expect("bounds are a few MiB")
}

/// Copies up to `most` bytes that are few.
fn copy_once(from: &TcpStream, to: &TcpStream, most: usize) -> io::Result<Moved> {
    BUFFER_OF_THREAD.with_borrow_mut(|buffer| {
        let most = most.min(SHORT);
        let length = loop {
            match rustix::io::read(from, &mut buffer[..most]) {
                Err(Errno::INTR) => {}
                read => break read?,
            }
        };
        if length == 0 {
            return Ok(Moved::End);
        }
        let written = loop {
            match rustix::io::write(to, &buffer[..length]) {
                Ok(written) => break written,
                Err(Errno::AGAIN) => break 0,
                Err(Errno::INTR) => {}
                Err(error) => return Err(broken(error)),
            }
        };
        let left = buffer[written..length].to_vec();
        Ok(Moved::Bytes { moved: length, left, is_all: length < most })
    })
}

/// Moves up to `most` bytes through this thread's pipe.
fn move_once(from: &TcpStream, to: &TcpStream, most: usize) -> io::Result<Moved> {
    PIPE_OF_THREAD.with_borrow_mut(|pipe| {
        let own = match pipe.take() {
            Some(own) => own,
            None => Pipe::new()?,
        };
        let moved = through(&own, from, to, most);
        // One that could not be emptied is closed with what it has.
        if moved.is_ok() || matches!(&moved, Err(error) if error.kind() == ErrorKind::WouldBlock) {
            *pipe = Some(own);
        }
        moved
    })
}

fn through(pipe: &Pipe, from: &TcpStream, to: &TcpStream, most: usize) -> io::Result<Moved> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    let most = most.min(pipe.size);
    let length = loop {
        match splice(from, None, &pipe.write, None, most, flags) {
            Err(Errno::INTR) => {}
            read => break read?,
        }
    };
    if length == 0 {
        return Ok(Moved::End);
    }
    let mut there = length;
    while there > 0 {
        match splice(&pipe.read, None, to, None, there, flags) {
            Ok(moved) => there -= moved,
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(broken(error)),
        }
    }
    let mut left = vec![0; there];
    let mut read = 0;
    while read < there {
        match rustix::io::read(&pipe.read, &mut left[read..]) {
            Ok(more) => read += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(broken(error)),
        }
    }
    // Less than was asked for, and not for want of pieces.
    let is_all = length < most.min(pipe.pieces());
    Ok(Moved::Bytes { moved: length, left, is_all })
}

/// A failure that is none of the input's readiness.
fn broken(error: Errno) -> io::Error {
    let error = io::Error::from(error);
    if error.kind() == ErrorKind::WouldBlock { io::Error::other(error) } else { error }
}

/// Whether a socket has room, or has failed.
fn is_writable(socket: &TcpStream) -> io::Result<()> {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if fds[0].revents().is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
}

/// Closes both sockets with a reset.
pub(crate) fn reset(sockets: [TcpStream; 2]) {
    for socket in sockets {
        // One that is gone needs no reset.
        let _ = SockRef::from(&socket.as_fd()).set_linger(Some(std::time::Duration::ZERO));
    }
}
