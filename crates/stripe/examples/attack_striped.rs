//! A peer that takes what it can of a host's places and memory, for `bench/bars/attacks`.
//!
//! ```text
//! attack_striped FROM TO KIND CONNECTIONS SECONDS GO
//!
//! places   connections that say nothing, again and again
//! streams  connections with one packet each, of the stream with the highest number that there may
//!          be, before it is admitted
//! ranges   an admitted peer of `serve-tunnel`: data behind a byte that never comes, as much as the
//!          windows allow, over all connections
//! stays    an admitted peer of `serve-tunnel` whose connections do nothing
//! requests an admitted peer of `serve-tunnel` that asks for buffers, each larger than the one
//!          before
//! gaps     packets of which every second number is missing
//! acks     acknowledgements with as many ranges as there may be, of packets that never were
//! ```
//!
//! FROM is an address of loopback, TO one with a port. It prints a line of JSON with the octets of
//! the hash of its key, and begins once the file GO exists. At the end it prints another: how many
//! connections it opened, how many were open at the end, the bytes that the host granted to all of
//! them, the packets sent, and its processor time in seconds.

use std::error::Error;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use ptcp::Config;
use rustls::ClientConfig;
use secure::testing::{Key, client_of_anybody};
use secure::{DialEvent, Dialer, PacketNumber, Session, Settings};
use serde_json::json;
use units::{Bytes, SubflowId, Time};
use wire::Emit;
use wire::datagram::Outer;
use wire::ptcp::{Ack, Body, Packet, PacketRange, Reply, StreamData};
use wire::session::{Hello, SessionFrame};
use wire::tunnel::SERVICE;

/// The protocol of the host under attack.
const ALPN: &[u8] = b"anabranch/1";
/// The longest attack, and the wait for its beginning.
const MOST: u64 = 60;
const PATIENCE: Duration = Duration::from_secs(10);
/// The time for a handshake.
const HANDSHAKE: Duration = Duration::from_millis(500);
/// The highest number of a stream that a tunnel has.
const HIGHEST_STREAM: u32 = 2 * 4_160;
/// Bytes of a piece of a stream.
const PIECE: u16 = 1_200;
/// Packets that leave of a connection before the next one has its turn.
const TURN: usize = 64;
/// The receive buffer that it asks for.
const WANTED: u64 = 256 << 20;

/// A connection, from the handshake on.
struct Attacker {
    socket: UdpSocket,
    session: Session,
    number: u64,
    /// What the host granted: of all streams, and of the second one.
    limit: u64,
    stream_limit: u64,
    sent: u64,
    is_open: bool,
}

struct Attack {
    began: Instant,
    from: IpAddr,
    to: SocketAddr,
    tls: Arc<ClientConfig>,
    settings: Arc<Settings>,
    label: u64,
    packets: u64,
}

impl Attack {
    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Shakes hands.
    fn connect(&mut self) -> Result<Option<Attacker>, Box<dyn Error>> {
        let socket = UdpSocket::bind((self.from, 0))?;
        socket.connect(self.to)?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        self.label = self.label.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x1234_5677);
        let mut dialer = Dialer::new(&self.tls, &self.settings, self.now(), self.label)?;
        let (mut session, mut is_confirmed) = (None, false);
        let begun = Instant::now();
        let mut buffer = [0; 2_048];
        while begun.elapsed() < HANDSHAKE && !is_confirmed {
            while let Some(datagram) = dialer.poll_transmit(self.now()) {
                // A host that has gone answers with an error.
                let _ = socket.send(&datagram);
            }
            if let Ok(len) = socket.recv(&mut buffer) {
                dialer.handle_datagram(self.now(), &mut buffer[..len]);
            } else {
                dialer.handle_deadline(self.now());
            }
            while let Some(event) = dialer.poll_event() {
                match event {
                    DialEvent::Established(established) => session = Some(established.session),
                    DialEvent::Confirmed(_) => is_confirmed = true,
                    DialEvent::Failed(_) => return Ok(None),
                }
            }
        }
        let Some(mut session) = session else { return Ok(None) };
        session.open_path(SubflowId(0)).ok();
        socket.set_nonblocking(true)?;
        Ok(Some(Attacker {
            socket,
            session,
            number: 0,
            limit: 64 << 10,
            stream_limit: 16 << 10,
            sent: 1,
            is_open: true,
        }))
    }

    fn send(&mut self, attacker: &mut Attacker, body: Body, payload: &[u8]) {
        let packet = Packet { number: attacker.number, body };
        let mut sealed = Vec::new();
        packet.emit(&mut sealed);
        sealed.extend_from_slice(payload);
        let number = PacketNumber { path: SubflowId(0), number: attacker.number };
        attacker.number += 1;
        let mut datagram = Vec::new();
        if attacker.session.seal(self.now(), number, &sealed, &mut datagram).is_ok()
            // A full buffer of the socket loses it, as a line would.
            && attacker.socket.send(&datagram).is_ok()
        {
            self.packets += 1;
        }
    }

    /// Takes what has come. Acknowledgements are not sent.
    fn receive(&mut self, attacker: &mut Attacker) {
        let mut buffer = [0; 2_048];
        while let Ok(len) = attacker.socket.recv(&mut buffer) {
            match Outer::parse(&buffer[..len]) {
                Ok(Outer::Data { .. }) => {}
                Ok(Outer::Reset { .. }) => attacker.is_open = false,
                _ => continue,
            }
            let now = self.now();
            let Ok(opened) = attacker.session.open(now, SubflowId(0), &mut buffer[..len]) else {
                continue;
            };
            let Ok(parsed) = Packet::parse(opened.number, opened.payload) else { continue };
            match parsed.packet.body {
                Body::Ack(ack) => {
                    attacker.limit = attacker.limit.max(u64::from(ack.limit) << 10);
                }
                Body::StreamWindow { stream: 2, limit } => {
                    attacker.stream_limit = attacker.stream_limit.max(limit);
                }
                Body::Close { .. } => attacker.is_open = false,
                _ => {}
            }
        }
    }

    /// What a peer of a tunnel says first.
    fn say_hello(&mut self, attacker: &mut Attacker) {
        let mut hello = Vec::new();
        SessionFrame::Hello(Hello::new(SERVICE, None, [0; 16])).emit(&mut hello);
        let len = u16::try_from(hello.len()).expect("it is short");
        self.send(attacker, data(0, 0, len), &hello);
    }

    /// A turn of one connection.
    fn act(&mut self, attacker: &mut Attacker, kind: &str) {
        self.receive(attacker);
        if !attacker.is_open {
            return;
        }
        match kind {
            "streams" if attacker.number == 0 => {
                self.send(attacker, data(HIGHEST_STREAM, 0, 1), &[0]);
            }
            "ranges" | "stays" | "requests" if attacker.number == 0 => {
                self.say_hello(attacker);
            }
            "ranges" => {
                self.send(attacker, Body::Need { buffer: WANTED }, &[]);
                for _ in 0..TURN {
                    let end = attacker.sent + u64::from(PIECE);
                    // The first stream holds the hello.
                    if end > attacker.stream_limit || end + 1_024 > attacker.limit {
                        break;
                    }
                    self.send(attacker, data(2, attacker.sent, PIECE), &[7; PIECE as usize]);
                    attacker.sent = end;
                }
            }
            "requests" => {
                for _ in 0..TURN {
                    let buffer = WANTED + attacker.number;
                    self.send(attacker, Body::Need { buffer }, &[]);
                }
            }
            "gaps" => {
                for _ in 0..TURN {
                    attacker.number += 1;
                    self.send(
                        attacker,
                        Body::Ping { padding: 0, reply: Reply::Path(SubflowId(0)) },
                        &[],
                    );
                }
            }
            // So that the host knows a path on which to say that it closes the connection, and has
            // sent a packet that can be acknowledged.
            "acks" | "places" if attacker.number == 0 => {
                self.send(
                    attacker,
                    Body::Ping { padding: 0, reply: Reply::Path(SubflowId(0)) },
                    &[],
                );
            }
            "acks" => {
                for _ in 0..TURN {
                    // The host has sent few packets: ranges below the number 0 name nothing.
                    let range = |at: u16| PacketRange { back: 2 * at + 2, len: 1 };
                    let older = (0..32).map(range).collect();
                    let ack = Ack { largest: 0, first: 1, limit: 64, older, ..Ack::default() };
                    self.send(attacker, Body::Ack(ack), &[]);
                }
            }
            _ => {}
        }
    }
}

fn data(stream: u32, offset: u64, len: u16) -> Body {
    let reply = Reply::Path(SubflowId(0));
    Body::Data(StreamData { offset, stream, stamp: 0, len, reply, is_last: false })
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, kind, count, seconds, go] = &words[..] else {
        return Err("attack_striped FROM TO KIND CONNECTIONS SECONDS GO".into());
    };
    let (from, to): (IpAddr, SocketAddr) = (from.parse()?, to.parse()?);
    if !from.is_loopback() || !to.ip().is_loopback() {
        return Err("only on loopback".into());
    }
    let (count, seconds): (usize, u64) = (count.parse()?, seconds.parse::<u64>()?.min(MOST));
    let key = Key::generate();
    let hash = digest::digest(&digest::SHA256, key.public());
    println!("{}", json!({ "key": hash.as_ref() }));
    let waiting = Instant::now();
    while !Path::new(go).exists() {
        if waiting.elapsed() > PATIENCE {
            return Err("nobody says go".into());
        }
        sleep(Duration::from_millis(20));
    }
    let mut tls = client_of_anybody(&key);
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let config = Config { receive_buffer: Bytes::mib(64), ..Config::default() };
    let mut settings = Settings::default();
    config.parameters().emit(&mut settings.parameters);
    let (tls, settings) = (Arc::new(tls), Arc::new(settings));
    let (began, label) = (Instant::now(), u64::from(std::process::id()));
    let mut attack = Attack { began, from, to, tls, settings, label, packets: 0 };
    let (mut all, mut opened) = (Vec::new(), 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        // Whoever is turned out comes again.
        if kind != "stays" {
            all.retain(|attacker: &Attacker| attacker.is_open);
        }
        if (kind != "stays" || opened < count)
            && all.len() < count
            && let Some(attacker) = attack.connect()?
        {
            all.push(attacker);
            opened += 1;
        }
        for attacker in &mut all {
            attack.act(attacker, kind);
        }
        sleep(Duration::from_millis(1));
    }
    let open = all.iter().filter(|attacker| attacker.is_open).count();
    let granted: u64 = all.iter().map(|attacker| attacker.limit).sum();
    let cpu = sys::poll::thread_cpu_time().as_secs_f64();
    let packets = attack.packets;
    // What the host keeps of those that say goodbye it keeps for nothing.
    for attacker in &mut all {
        attack.send(attacker, Body::Close { code: 0 }, &[]);
    }
    let told = json!({
        "opened": opened, "open": open, "granted": granted, "packets": packets, "cpu": cpu,
    });
    println!("{told}");
    Ok(())
}
