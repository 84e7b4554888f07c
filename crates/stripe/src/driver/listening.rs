//! The side that listens: handshakes, and which connection a datagram belongs to.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::ServerConfig;
use secure::{ConnectionId, Established, ListenEvent, Secret};
use sys::datagram::mapped;
use tokio::sync::mpsc;
use units::{SubflowId, Time};

use super::dialing::settings;
use super::link::{Link, Start, early};
use super::preambles::is_of_preamble;
use super::reached::Reached;
use super::routes::{RouteEnd, RouteName};
use super::sockets::{Datagram, Owner, SocketKey, Sockets};
use crate::connection::Connection;
use crate::connection::inbox::{Inbox, Key};
use crate::socket::{Outgoing, UdpSocket};
use crate::{EndpointError, Listening, Options, Rations};

/// Addresses of handshakes whose socket is remembered.
const MOST_ORIGINS: usize = 1_024;

/// The listening side of an endpoint.
pub(crate) struct Listener {
    handshakes: secure::Listener,
    options: Options,
    rations: Rations,
    unregistered: Vec<UdpSocket>,
    sockets: Vec<(SocketKey, SocketAddr)>,
    keys: HashMap<ConnectionId, Key>,
    /// The socket, and the local address, that the latest packets of strangers came to.
    origins: HashMap<SocketAddr, (SocketKey, Option<IpAddr>)>,
    accepted: VecDeque<Accepted>,
    /// The relays by way of which peers come.
    pub(super) reached: Reached,
    /// Handshakes that have failed.
    failed: Arc<AtomicU64>,
    /// `None`: nobody accepts connections any more.
    accept: Option<mpsc::Sender<Connection>>,
}

/// A peer that has completed its handshake.
pub(super) struct Accepted {
    connection: ConnectionId,
    pub(super) from: SocketAddr,
    established: Box<Established>,
}

impl Listener {
    pub(crate) fn new(
        listening: &Listening,
        tls: &Arc<ServerConfig>,
        mut options: Options,
        sockets: Vec<UdpSocket>,
        accept: mpsc::Sender<Connection>,
    ) -> Result<Listener, EndpointError> {
        options.config.holds_bytes = true;
        let mut secret = listening.secret.unwrap_or_default();
        if listening.secret.is_none() {
            aws_lc_rs::rand::fill(&mut secret).map_err(|_| EndpointError::System {
                action: "get random numbers",
                source: io::Error::other("the generator failed"),
            })?;
        }
        let told = early(&options.config, options.buffer_before_admission);
        let settings = Arc::new(settings(&told));
        let places: Vec<_> = sockets.iter().map(UdpSocket::local).collect();
        let secret = Secret::new(&secret, &places);
        Ok(Listener {
            handshakes: secure::Listener::new(tls, &settings, listening.limits, secret)?,
            options,
            rations: listening.rations.clone(),
            unregistered: sockets,
            sockets: Vec::new(),
            keys: HashMap::new(),
            origins: HashMap::new(),
            accepted: VecDeque::new(),
            reached: Reached::default(),
            failed: Arc::default(),
            accept: Some(accept),
        })
    }

    /// Waits for the sockets.
    pub(super) fn register(&mut self, sockets: &mut Sockets) -> io::Result<()> {
        for socket in self.unregistered.drain(..) {
            let local = socket.local();
            self.sockets.push((sockets.add(socket, Owner::Listening)?, local));
        }
        Ok(())
    }

    /// Whether a label is that of one of its connections or handshakes.
    pub(super) fn has_label(&self, label: u64) -> bool {
        self.handshakes.has_label(label)
    }

    /// The number of a listening socket.
    pub(super) fn number_of(&self, socket: SocketKey) -> Option<usize> {
        self.sockets.iter().position(|(key, _)| *key == socket)
    }

    /// All listening sockets, once more.
    pub(super) fn clones(&self, sockets: &Sockets) -> io::Result<Vec<UdpSocket>> {
        let open = self.sockets.iter().filter_map(|(key, _)| sockets.get(*key));
        open.map(UdpSocket::try_clone).collect()
    }

    /// Nobody accepts connections any more; those that there are live on.
    pub(super) fn stop(&mut self) {
        self.accept = None;
    }

    /// The number of handshakes that have failed.
    pub(crate) fn failed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.failed)
    }

    pub(super) fn rations(&self) -> &Rations {
        &self.rations
    }

    /// A datagram arrived. A data packet of a connection is left to its link.
    pub(super) fn handle_datagram(
        &mut self,
        datagram: &mut Datagram<'_>,
    ) -> Option<(Key, SubflowId)> {
        let Datagram { bytes, from, to, at, socket, .. } = datagram;
        if is_of_preamble(bytes) {
            self.reached.handle_datagram(*at, *from, bytes);
            return None;
        }
        let route = self.handshakes.handle_datagram(*at, *from, bytes);
        if let Some(route) = route {
            return self.keys.get(&route.connection).map(|key| (*key, route.path));
        }
        if self.origins.len() >= MOST_ORIGINS {
            self.origins.clear();
        }
        self.origins.insert(*from, (*socket, *to));
        None
    }

    /// Sends what the handshakes have to send, and takes what they have come to.
    pub(super) fn send(&mut self, now: Time, sockets: &Sockets) {
        while let Some((place, bytes)) = self.reached.poll_transmit(now) {
            self.send_to(place, &bytes, sockets);
        }
        while let Some(secure::Transmit { to, bytes }) = self.handshakes.poll_transmit(now) {
            let Some((socket, source)) = self.origin(to) else { continue };
            let segment = bytes.len();
            let outgoing =
                Outgoing { to, source, ecn: None, is_lower_effort: false, bytes: &bytes, segment };
            // What does not arrive is asked for again.
            if let Err(error) = sockets.send(socket, &outgoing) {
                tracing::debug!(%to, %error, "a handshake cannot be answered");
            }
        }
        while let Some(event) = self.handshakes.poll_event() {
            match event {
                ListenEvent::Established { connection, from, established } => {
                    self.accepted.push_back(Accepted { connection, from, established });
                }
                ListenEvent::Failed { from, error } => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(%from, %error, "a handshake has failed");
                }
            }
        }
    }

    /// Sends a datagram that is none of a connection's, from the socket of the address's family.
    pub(super) fn send_to(
        &self,
        (to, source): (SocketAddr, Option<IpAddr>),
        bytes: &[u8],
        sockets: &Sockets,
    ) {
        let locals = self.sockets.iter();
        let found = locals.filter_map(|(key, local)| Some((*key, seen_from(*local, to)?)));
        let Some((socket, to)) = found.min_by_key(|(_, seen)| *seen != to) else { return };
        let source = source.map(|source| match (source, to.ip()) {
            (IpAddr::V4(ip), IpAddr::V6(_)) => ip.to_ipv6_mapped().into(),
            _ => source,
        });
        let (ecn, segment) = (None, bytes.len());
        let outgoing = Outgoing { to, source, ecn, is_lower_effort: false, bytes, segment };
        // It is repeated, or missed by nobody.
        if let Err(error) = sockets.send(socket, &outgoing) {
            tracing::debug!(%to, %error, "a datagram cannot be sent");
        }
    }

    /// The socket, and the local address, to answer from.
    fn origin(&self, to: SocketAddr) -> Option<(SocketKey, Option<IpAddr>)> {
        let of_family = |(_, local): &&(SocketKey, SocketAddr)| local.is_ipv4() == to.is_ipv4();
        let fitting = || self.sockets.iter().find(of_family).map(|(socket, _)| (*socket, None));
        self.origins.get(&to).copied().or_else(fitting)
    }

    pub(super) fn poll_accepted(&mut self) -> Option<Accepted> {
        self.accepted.pop_front()
    }

    /// Begins the connection of a peer.
    pub(super) fn begin(
        &mut self,
        now: Time,
        key: Key,
        accepted: Accepted,
        (inbox, sockets): (&Arc<Inbox>, &Sockets),
    ) -> Option<Link> {
        let Accepted { connection: listed, from, established } = accepted;
        let (socket, source) = self.origin(from)?;
        let mut route = RouteEnd::new(RouteName::of(from), socket, from);
        route.source = source;
        let share = Some(self.rations.memory.share());
        let start = Start { now, key, options: self.options.clone(), remote: from, inbox, share };
        let begun = Link::accepted(start, *established, listed, route, sockets);
        let (mut link, connection) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                tracing::debug!(%from, %error, "a peer's parameters are not usable");
                self.handshakes.close(listed);
                return None;
            }
        };
        self.keys.insert(listed, key);
        // The program may not take them as fast as they come.
        if self.accept.as_ref().is_none_or(|accept| accept.try_send(connection).is_err()) {
            tracing::debug!(%from, "too many connections");
            link.refuse(now);
        }
        Some(link)
    }

    pub(super) fn handle_path_opened(&mut self, connection: ConnectionId, path: SubflowId) {
        self.handshakes.handle_path_opened(connection, path);
    }

    pub(super) fn retire_path(&mut self, connection: ConnectionId, path: SubflowId) {
        self.handshakes.retire_path(connection, path);
    }

    /// A connection has ended.
    pub(super) fn forget(&mut self, link: &Link) {
        if let Some(listed) = link.listed {
            self.handshakes.close(listed);
            self.keys.remove(&listed);
        }
    }

    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.handshakes.poll_deadline().into_iter().chain(self.reached.poll_deadline()).min()
    }

    pub(super) fn handle_deadline(&mut self, now: Time) {
        self.handshakes.handle_deadline(now);
    }
}

/// An address as a socket with this local address has it; `None` if it reaches none of its family.
fn seen_from(local: SocketAddr, to: SocketAddr) -> Option<SocketAddr> {
    match (local.ip(), to.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => Some(to),
        // One of IPv6 at all addresses has both families.
        (IpAddr::V6(own), IpAddr::V4(_)) if own.is_unspecified() => Some(mapped(to)),
        _ => None,
    }
}
