//! What programs tell the driver, and how they wake it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustls::ClientConfig;
use sys::poll::Waker;
use tokio::sync::oneshot;
use units::{Bytes, Rate};

use crate::connection::Connection;
use crate::connection::cell::Untaken;
use crate::guest::Guest;
use crate::passing::Passing;
use crate::preamble::ListeningLead;
use crate::socket::UdpSocket;
use crate::stats::Stats;
use crate::{Class, ConnectError, ConnectionError, Effort, Options, PathStanding, Route, RouteId};

/// The number of a connection of an endpoint; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u64);

/// What makes what passes on datagrams of others.
pub(crate) type MakePassing = dyn FnOnce(Vec<UdpSocket>) -> io::Result<Box<dyn Passing>> + Send;

/// A wish of a program.
pub(crate) enum Command {
    Connect(Box<Connect>),
    /// A program wrote, read or ended a half of a stream.
    Touched {
        key: Key,
        stream: u32,
    },
    OpenStream {
        key: Key,
        reply: oneshot::Sender<Result<Untaken, ConnectionError>>,
    },
    SendDatagram {
        key: Key,
        bytes: Vec<u8>,
    },
    AddRoute {
        key: Key,
        route: Route,
        reply: oneshot::Sender<Result<RouteId, ConnectError>>,
    },
    RemoveRoute {
        key: Key,
        route: RouteId,
    },
    SetClass {
        key: Key,
        route: RouteId,
        class: Class,
    },
    SetRate {
        key: Key,
        route: RouteId,
        rate: Option<Rate>,
    },
    SetEffort {
        key: Key,
        effort: Effort,
    },
    FollowStandings {
        key: Key,
        standings: Vec<PathStanding>,
    },
    SetReceiveBuffer {
        key: Key,
        most: Bytes,
    },
    UpdateKeys {
        key: Key,
    },
    /// The answer is sent once something arrives.
    Ask {
        key: Key,
        heard: oneshot::Sender<()>,
    },
    Stats {
        key: Key,
        reply: oneshot::Sender<Stats>,
    },
    Close {
        key: Key,
        code: u32,
    },
    /// Peers reach the listening sockets by way of these relays.
    ListenOver {
        leads: Vec<ListeningLead>,
    },
    /// A datagram that is none of a connection's leaves from a listening socket.
    SendListening {
        to: SocketAddr,
        source: Option<IpAddr>,
        bytes: Vec<u8>,
    },
    /// What passes on datagrams of others, which is made with the listening sockets.
    PassOn {
        make: Box<MakePassing>,
        reply: oneshot::Sender<io::Result<()>>,
    },
    /// A guest moves in; the answer is what the system said.
    Attach {
        guest: Box<dyn Guest>,
        reply: oneshot::Sender<io::Result<()>>,
    },
    /// The guest may have something to send, or another deadline.
    WakeGuest,
    /// The guest has the raw datagrams of a connection.
    Entrust {
        key: Key,
    },
    /// Nobody uses the endpoint any more.
    End,
}

/// The wish for a connection.
pub(crate) struct Connect {
    pub(crate) routes: Vec<Route>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) options: Options,
    pub(crate) reply: oneshot::Sender<Result<Connection, ConnectError>>,
}

/// The commands that wait for the driver.
pub(crate) struct Inbox {
    waiting: Mutex<Vec<Command>>,
    /// Whether the driver sleeps, or is about to.
    is_asleep: AtomicBool,
    waker: Waker,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Inbox> {
        let (waiting, is_asleep) = (Mutex::default(), AtomicBool::new(false));
        Ok(Inbox { waiting, is_asleep, waker: Waker::new()? })
    }

    /// Hands a command to the driver.
    pub(crate) fn push(&self, command: Command) {
        self.waiting.lock().expect("no panic while held").push(command);
        if self.is_asleep.swap(false, Ordering::AcqRel) {
            // It can only fail if the descriptor is gone, and the driver with it.
            let _ = self.waker.wake();
        }
    }

    /// Takes all commands, into an empty vector.
    pub(crate) fn take(&self, into: &mut Vec<Command>) {
        std::mem::swap(&mut *self.waiting.lock().expect("no panic while held"), into);
    }

    /// The driver is about to sleep. Whether it may: nothing waits.
    pub(crate) fn prepare_to_sleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::Release);
        // A command that was pushed before its sender could see the flag.
        let may_sleep = self.waiting.lock().expect("no panic while held").is_empty();
        if !may_sleep {
            self.is_asleep.store(false, Ordering::Release);
        }
        may_sleep
    }

    /// The driver is awake.
    pub(crate) fn handle_awake(&self) {
        self.is_asleep.store(false, Ordering::Release);
        self.waker.clear();
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("is_asleep", &self.is_asleep).finish_non_exhaustive()
    }
}
