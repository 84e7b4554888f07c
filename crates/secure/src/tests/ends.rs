//! Ends in a network in virtual time: a dialing one and a listening one, with sessions that carry
//! numbered packets.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use testnet::{Arrival, Endpoint, Link, Network, Transmit};
use units::{Bytes, Span, SubflowId, Time};
use wire::datagram::Outer;

use crate::testing::{self as keys, Key};
use crate::{
    ConnectionId, DialEvent, Dialer, HandshakeError, Limits, ListenEvent, Listener, OpenError,
    PacketNumber, ResetTokens, Secret, Session, Settings,
};

/// The time between two data packets of one end.
const PACE: Span = Span::from_millis(1);

/// Everything that two ends need.
pub(super) struct Pair {
    pub(super) client_key: Key,
    pub(super) server_key: Key,
    pub(super) client: rustls::ClientConfig,
    pub(super) server: rustls::ServerConfig,
    pub(super) client_settings: Settings,
    pub(super) server_settings: Settings,
    pub(super) limits: Limits,
}

impl Pair {
    pub(super) fn new() -> Pair {
        let (client_key, server_key) = (Key::generate(), Key::generate());
        Pair {
            client: keys::client(&client_key, &server_key),
            server: keys::server(&server_key),
            client_key,
            server_key,
            client_settings: Settings { parameters: b"from client".into(), ..Settings::default() },
            server_settings: Settings { parameters: b"from server".into(), ..Settings::default() },
            limits: Limits::default(),
        }
    }

    pub(super) fn dialer(&self, now: Time, label: u64) -> Dialer {
        let (tls, settings) = (Arc::new(self.client.clone()), self.client_settings.clone());
        Dialer::new(&tls, &Arc::new(settings), now, label).unwrap()
    }

    pub(super) fn listener(&self) -> Listener {
        self.listener_at("192.0.2.1:7707")
    }

    /// That of a process at this address, with the same key.
    pub(super) fn listener_at(&self, address: &str) -> Listener {
        let (tls, settings) = (Arc::new(self.server.clone()), self.server_settings.clone());
        let secret = Secret::new(&[1; 32], &[address.parse().unwrap()]);
        Listener::new(&tls, &Arc::new(settings), self.limits, secret).unwrap()
    }

    /// The dialing end is number 0, the listening one number 1.
    pub(super) fn network(&self, links: Vec<Link>, seed: u64) -> Network<End> {
        let count = links.len();
        let dialer = Role::Dials(Box::new(self.dialer(Time::ZERO, 0x1111_2222_3333_4444)));
        let ends =
            [End::new(dialer, count), End::new(Role::Listens(Box::new(self.listener())), count)];
        Network::new(ends, links, seed)
    }

    /// Sessions of both sides, over a perfect link.
    pub(super) fn sessions(&self) -> (Session, Session) {
        let mut network = self.network(vec![Link::new(Span::from_millis(10))], 1);
        let limit = Time::ZERO + Span::from_secs(5);
        assert!(network.run_until(limit, |network| network.ends[0].is_confirmed()));
        let mut take = |end: usize| network.ends[end].session.take().unwrap();
        (take(0), take(1))
    }
}

/// The address that a link leads to.
pub(super) fn address(link: usize) -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 1), u16::try_from(link).unwrap()).into()
}

pub(super) enum Role {
    Dials(Box<Dialer>),
    Listens(Box<Listener>),
}

pub(super) enum Action {
    /// Sends so many data packets, over all links in turn.
    Send(u32),
    /// Updates the keys if that is possible.
    Update,
}

/// An end. Data packets are numbered, and each goes over the path of its link's index.
pub(super) struct End {
    pub(super) role: Role,
    links: usize,
    pub(super) session: Option<Session>,
    connection: Option<ConnectionId>,
    pub(super) peer_key: Option<CertificateDer<'static>>,
    pub(super) parameters: Vec<u8>,
    pub(super) tokens: Option<ResetTokens>,
    pub(super) failure: Option<HandshakeError>,
    /// Handshake datagrams sent.
    pub(super) handshake_packets: u32,
    to_send: u32,
    pub(super) sent: u32,
    send_at: Time,
    numbers: BTreeMap<SubflowId, u64>,
    /// How often each packet was opened.
    pub(super) received: BTreeMap<u32, u32>,
    pub(super) errors: BTreeMap<String, u32>,
    pub(super) updates: u32,
}

impl End {
    fn new(role: Role, links: usize) -> End {
        End {
            role,
            links,
            session: None,
            connection: None,
            peer_key: None,
            parameters: Vec::new(),
            tokens: None,
            failure: None,
            handshake_packets: 0,
            to_send: 0,
            sent: 0,
            send_at: Time::ZERO,
            numbers: BTreeMap::new(),
            received: BTreeMap::new(),
            errors: BTreeMap::new(),
            updates: 0,
        }
    }

    pub(super) fn is_established(&self) -> bool {
        self.session.is_some()
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.tokens.is_some()
    }

    fn begin(&mut self, established: crate::Established) {
        let mut session = established.session;
        for path in 0..u16::try_from(self.links).unwrap() {
            session.open_path(SubflowId(path)).unwrap();
        }
        self.session = Some(session);
        self.peer_key = Some(established.peer_key);
        self.parameters = established.parameters;
    }

    fn poll_events(&mut self) {
        loop {
            match &mut self.role {
                Role::Dials(dialer) => match dialer.poll_event() {
                    Some(DialEvent::Established(established)) => self.begin(*established),
                    Some(DialEvent::Confirmed(tokens)) => self.tokens = Some(tokens),
                    Some(DialEvent::Failed(error)) => {
                        (self.session, self.failure) = (None, Some(error));
                    }
                    None => return,
                },
                Role::Listens(listener) => match listener.poll_event() {
                    Some(ListenEvent::Established { connection, established, .. }) => {
                        self.connection = Some(connection);
                        self.begin(*established);
                    }
                    Some(ListenEvent::Failed { error, .. }) => self.failure = Some(error),
                    None => return,
                },
            }
        }
    }

    fn open(&mut self, now: Time, path: SubflowId, packet: &mut [u8]) {
        let Some(session) = &mut self.session else { return };
        match session.open(now, path, packet) {
            Ok(opened) => {
                let number = u32::from_be_bytes(opened.payload.try_into().unwrap());
                *self.received.entry(number).or_default() += 1;
                if let Role::Dials(dialer) = &mut self.role {
                    dialer.handle_data();
                }
            }
            Err(error) => {
                assert!(!OpenError::is_fatal(error), "{error}");
                *self.errors.entry(format!("{error:?}")).or_default() += 1;
            }
        }
    }
}

impl Endpoint for End {
    type Packet = Vec<u8>;
    type Action = Action;

    fn act(&mut self, now: Time, action: Action) {
        match action {
            Action::Send(count) => {
                self.to_send += count;
                self.send_at = now;
            }
            Action::Update => {
                let session = self.session.as_mut();
                let has_updated = session.is_some_and(|session| session.update_keys(now));
                self.updates += u32::from(has_updated);
            }
        }
    }

    fn handle_packet(&mut self, now: Time, arrival: Arrival<Vec<u8>>) {
        let mut packet = arrival.packet;
        if arrival.is_corrupt {
            // A bit anywhere, the same in each run.
            let sum = packet.iter().fold(now.as_nanos(), |sum, octet| {
                sum.wrapping_mul(31).wrapping_add(u64::from(*octet))
            });
            let bit = usize::try_from(sum % (8 * packet.len() as u64)).unwrap();
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        match &mut self.role {
            Role::Listens(listener) => {
                let route = listener.handle_datagram(now, address(arrival.link), &mut packet);
                self.poll_events();
                if let Some(route) = route
                    && Some(route.connection) == self.connection
                {
                    self.open(now, route.path, &mut packet);
                }
            }
            Role::Dials(dialer) => {
                if let Ok(Outer::Data { label }) = Outer::parse(&packet) {
                    let path = self.session.as_ref().and_then(|session| session.path_of(label));
                    if let Some(path) = path {
                        self.open(now, path, &mut packet);
                    }
                } else {
                    dialer.handle_datagram(now, &mut packet);
                }
            }
        }
        self.poll_events();
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Transmit<Vec<u8>>> {
        let transmit = match &mut self.role {
            Role::Dials(dialer) => dialer.poll_transmit(now).map(|packet| {
                // Over all links in turn.
                let link = usize::try_from(self.handshake_packets).unwrap() % self.links;
                (link, packet)
            }),
            Role::Listens(listener) => listener
                .poll_transmit(now)
                .map(|transmit| (usize::from(transmit.to.port()), transmit.bytes)),
        };
        self.poll_events();
        if let Some((link, packet)) = transmit {
            self.handshake_packets += 1;
            assert!(packet.len() <= wire::datagram::FULL);
            return Some(Transmit { link, bytes: Bytes(packet.len() as u64 + 28), packet });
        }
        let session = self.session.as_mut()?;
        if self.to_send == 0 || self.send_at > now {
            return None;
        }
        let path = u16::try_from(usize::try_from(self.sent).unwrap() % self.links).unwrap();
        let number = self.numbers.entry(SubflowId(path)).or_default();
        let mut packet = Vec::new();
        let header = PacketNumber { path: SubflowId(path), number: *number };
        session.seal(now, header, &self.sent.to_be_bytes(), &mut packet).unwrap();
        *number += 1;
        self.sent += 1;
        self.to_send -= 1;
        self.send_at = now + PACE;
        Some(Transmit { link: path.into(), bytes: Bytes(packet.len() as u64 + 28), packet })
    }

    fn poll_deadline(&self) -> Option<Time> {
        let role = match &self.role {
            Role::Dials(dialer) => dialer.poll_deadline(),
            Role::Listens(listener) => listener.poll_deadline(),
        };
        let session = self.session.as_ref();
        let keys = session.and_then(Session::poll_deadline);
        let send = session.filter(|_| self.to_send > 0).map(|_| self.send_at);
        [role, keys, send].into_iter().flatten().min()
    }

    fn handle_deadline(&mut self, now: Time) {
        match &mut self.role {
            Role::Dials(dialer) => dialer.handle_deadline(now),
            Role::Listens(listener) => listener.handle_deadline(now),
        }
        if let Some(session) = &mut self.session {
            session.handle_deadline(now);
        }
        self.poll_events();
    }
}
