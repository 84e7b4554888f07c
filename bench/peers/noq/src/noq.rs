//! noq-proto, with the same TLS and controller.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use noq_proto::congestion::CubicConfig;
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, FourTuple, ServerConfig, StreamEvent, StreamId, Transmit, TransportConfig, VarInt,
};
use secure::testing::{self, Key};

use crate::{DATAGRAM, End, WINDOW};

/// Datagrams of one batch, as a driver with segmentation offload asks for.
const BATCH: NonZeroUsize = NonZeroUsize::new(10).expect("it is not zero");
const PIECE: usize = 64 << 10;

pub struct Noq {
    endpoint: Endpoint,
    base: Instant,
    remote: SocketAddr,
    connection: Option<(ConnectionHandle, Connection)>,
    /// The datagrams of the last batch.
    batch: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    source: Vec<u8>,
    sink: Vec<u8>,
    stream: Option<StreamId>,
    unsent: u64,
    received: u64,
}

pub fn pair(bytes: u64) -> (Noq, Noq) {
    let (ours, theirs) = (Key::generate(), Key::generate());
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(2 * WINDOW))
        .send_window(2 * u64::from(WINDOW))
        .initial_mtu(DATAGRAM)
        .congestion_controller_factory(Arc::new(CubicConfig::default()));
    let transport = Arc::new(transport);
    let tls = QuicServerConfig::try_from(testing::server(&theirs)).expect("it is TLS 1.3");
    let mut server = ServerConfig::with_crypto(Arc::new(tls));
    server.transport_config(Arc::clone(&transport));
    let base = Instant::now();
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let endpoint = |server| Endpoint::new(Arc::new(EndpointConfig::default()), server, true);
    let make = |endpoint, remote| Noq {
        endpoint,
        base,
        remote,
        connection: None,
        batch: Vec::new(),
        buffer: Vec::new(),
        source: vec![7; PIECE],
        sink: vec![0; PIECE],
        stream: None,
        unsent: 0,
        received: 0,
    };
    let mut client = make(endpoint(None), address(2));
    let server = make(endpoint(Some(Arc::new(server))), address(1));
    let tls = QuicClientConfig::try_from(testing::client(&ours, &theirs)).expect("it is TLS 1.3");
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(transport);
    let connected = client.endpoint.connect(base, config, address(2), "host");
    client.connection = Some(connected.expect("the configuration is right"));
    client.unsent = bytes;
    (client, server)
}

impl Noq {
    fn at(&self, now: u64) -> Instant {
        self.base + Duration::from_nanos(now)
    }

    /// What the endpoint and the application have to do.
    fn work(&mut self) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    self.stream = connection.streams().accept(Dir::Uni);
                }
                Event::ConnectionLost { reason } => panic!("{reason}"),
                _ => {}
            }
        }
        if self.unsent > 0 && !connection.is_handshaking() {
            if self.stream.is_none() {
                self.stream = connection.streams().open(Dir::Uni);
            }
            let Some(stream) = self.stream else { return };
            loop {
                let most = usize::try_from(self.unsent).unwrap_or(PIECE).min(PIECE);
                if most == 0 {
                    break;
                }
                match connection.send_stream(stream).write(&self.source[..most]) {
                    Ok(written) => self.unsent -= written as u64,
                    Err(_) => break,
                }
            }
        } else if let Some(stream) = self.stream.filter(|_| connection.side().is_server()) {
            let mut receiving = connection.recv_stream(stream);
            let Ok(mut chunks) = receiving.read(true) else { return };
            while let Ok(Some(chunk)) = chunks.next(PIECE) {
                self.sink[..chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                self.received += chunk.bytes.len() as u64;
            }
            let _ = chunks.finalize();
        }
    }

    fn split(&mut self, transmit: &Transmit) {
        let size = transmit.segment_size.unwrap_or(transmit.size).max(1);
        // The last one first.
        self.batch.extend(self.buffer[..transmit.size].chunks(size).rev().map(<[u8]>::to_vec));
        self.buffer.clear();
    }
}

impl End for Noq {
    fn handle(&mut self, now: u64, datagram: Vec<u8>) {
        let now = self.at(now);
        let from = FourTuple::new(self.remote, None);
        let data = BytesMut::from(bytes::Bytes::from(datagram));
        match self.endpoint.handle(now, from, None, data, &mut self.buffer) {
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, now, &mut self.buffer, None);
                self.connection = Some(accepted.unwrap_or_else(|_| panic!("it is welcome")));
                self.buffer.clear();
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                let (_, connection) = self.connection.as_mut().expect("there is one");
                connection.handle_event(event);
            }
            Some(DatagramEvent::Response(_)) => panic!("nothing is wrong"),
            None => {}
        }
        self.work();
    }

    fn poll_transmit(&mut self, now: u64) -> Option<Vec<u8>> {
        if let Some(datagram) = self.batch.pop() {
            return Some(datagram);
        }
        self.work();
        let now = self.at(now);
        let (_, connection) = self.connection.as_mut()?;
        let transmit = connection.poll_transmit(now, BATCH, &mut self.buffer)?;
        self.split(&transmit);
        self.batch.pop()
    }

    fn poll_deadline(&self) -> Option<u64> {
        let (_, connection) = self.connection.as_ref()?;
        let at = connection.poll_timeout()?;
        Some(u64::try_from((at - self.base).as_nanos()).expect("it is soon"))
    }

    fn handle_deadline(&mut self, now: u64) {
        let now = self.at(now);
        if let Some((_, connection)) = &mut self.connection {
            connection.handle_timeout(now);
        }
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn is_open(&self) -> bool {
        self.connection.as_ref().is_some_and(|(_, connection)| !connection.is_handshaking())
    }
}
