//! A site's gateway that is hostile, with the key of an authorized one: `hostile_site KIND GATEWAY
//! FINGERPRINT KEY SECONDS`, for the attacks of `bench/bars`. It says that everything is behind it,
//! sends up to 128,000 datagrams a second, more than its line carries, and prints their number.
//!
//! | kind | what it sends |
//! |---|---|
//! | `foreign` | packets in the name of others, and to hosts that are not behind the other |
//! | `flows` | the first packets of ever new connections to a host there |
//! | `segments` | overlapping segments of a few connections, with absurd options and lengths |
//! | `messages` | reports about connections that nobody has, probes, octets at random |

use std::env;
use std::error::Error;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etherparse::PacketBuilder;
use gateway::stripe_options;
use peer::Identity;
use peer::striped::open_service;
use peer::tls::ClientTls;
use stripe::{ConnectionKey, Endpoint, Guest, RawArrival, RawDatagram, RawPath, Route};
use units::{Bytes, Span, Time};
use wire::gateway::{GatewayFrame, Networks, SALT, SERVICE};
use wire::harp::{Header, MOST_ENTRIES, PathReport, Report, Stamp, emit};
use wire::session::Hello;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The host that is attacked, one of this site, and one of nobody's.
const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
const NOBODY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
/// Datagrams at a time, and the time between.
const BURST: usize = 64;
const PAUSE: Span = Span::from_micros(500);

#[derive(Clone, Copy)]
enum Kind {
    Foreign,
    Flows,
    Segments,
    Messages,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [kind, at, fingerprint, key, seconds] = &words[..] else {
        return Err("KIND GATEWAY FINGERPRINT KEY SECONDS".into());
    };
    let kind = match kind.as_str() {
        "foreign" => Kind::Foreign,
        "flows" => Kind::Flows,
        "segments" => Kind::Segments,
        "messages" => Kind::Messages,
        other => return Err(format!("no attack '{other}'").into()),
    };
    let identity = Identity::load_or_generate(Path::new(key))?;
    let tls = ClientTls::new(&identity, fingerprint.parse()?)?;
    let endpoint = Endpoint::new()?;
    let routes = vec![Route::to(at.parse()?)];
    let connection = endpoint.connect(routes, tls.config(), stripe_options()).await?;
    connection.admit(Bytes::mib(1));
    let hello = Hello::new(SERVICE, None, peer::random()?);
    let patience = Duration::from_secs(10);
    let mut control = open_service(&connection, hello, patience, "it would let it").await?;
    // Everything, and what it may have.
    let networks = vec![(Ipv4Addr::UNSPECIFIED.into(), 0), ([10, 3, 0, 0].into(), 24)];
    control.push(&GatewayFrame::Networks(Networks { salt: [7; SALT], networks }));
    control.flush().await?;
    let sent = Arc::new(AtomicU64::new(0));
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let flood = Flood {
        kind,
        silent,
        to: None,
        sent: Arc::clone(&sent),
        due: Time::ZERO,
        left: 0,
        dice: u64::from_be_bytes(*peer::random()?.first_chunk().expect("it has 16")),
    };
    endpoint.attach(Box::new(flood)).await?;
    connection.entrust();
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs_f64(seconds.parse()?)) => {}
        error = connection.ended() => println!("ended: {error}"),
    }
    println!("{}", sent.load(Ordering::Relaxed));
    Ok(())
}

/// What sends.
struct Flood {
    kind: Kind,
    /// Nobody sends there.
    silent: UdpSocket,
    to: Option<(ConnectionKey, RawPath)>,
    sent: Arc<AtomicU64>,
    due: Time,
    /// Of this burst.
    left: usize,
    dice: u64,
}

impl Flood {
    fn draw(&mut self) -> u64 {
        // xorshift64 (Marsaglia, 2003).
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice
    }

    #[expect(clippy::cast_possible_truncation, reason = "random bits")]
    fn port(&mut self) -> u16 {
        1_024 + (self.draw() as u16) / 2
    }

    /// A message with a packet behind it, or another one.
    #[expect(clippy::cast_possible_truncation, reason = "random bits")]
    fn message(&mut self, room: usize) -> Vec<u8> {
        let dice = self.draw();
        let (port, seq) = (self.port(), self.draw() as u32);
        let mut out = Vec::new();
        let stamp = Stamp { path: 0, sent: dice as u32, srtt: 20_000, is_paired: false };
        if matches!(self.kind, Kind::Messages) {
            match dice % 4 {
                0 => out = (0..room).map(|at| (dice >> (at % 57)) as u8).collect(),
                1 => emit(&Header::Probe(seq, stamp), &mut out),
                _ => {
                    let entry = PathReport {
                        path: dice as u8 % 8,
                        weight: 16,
                        echo: seq,
                        capacity: dice as u8,
                    };
                    let report = Report {
                        open: 255,
                        queued: 255,
                        count: 1,
                        entries: [entry; MOST_ENTRIES],
                        lost: (seq, u32::MAX),
                        is_deaf: dice.is_multiple_of(3),
                    };
                    emit(&Header::Report(seq, report), &mut out);
                }
            }
            return out;
        }
        emit(&Header::Data(stamp), &mut out);
        let (from, to) = match self.kind {
            Kind::Foreign if dice.is_multiple_of(2) => (NOBODY, VICTIM),
            Kind::Foreign => (OWN, NOBODY),
            _ => (OWN, VICTIM),
        };
        let ip = PacketBuilder::ipv4(from.octets(), to.octets(), 64);
        let packet = match self.kind {
            Kind::Segments => {
                // One of four connections, anywhere in a few windows.
                let port = 2_000 + (dice % 4) as u16;
                let seq = (dice >> 8) as u32 % 300_000;
                let options: Vec<u8> = (0..40).map(|at| (dice >> at) as u8).collect();
                ip.tcp(port, 5_400, seq, dice as u16).ack(seq).options_raw(&options)
            }
            _ => Ok(ip.tcp(port, self.port(), seq, 65_535).syn()),
        };
        let Ok(packet) = packet else { return out };
        let payload = match self.kind {
            Kind::Segments => vec![0x55; (dice >> 32) as usize % (room - 110)],
            _ => Vec::new(),
        };
        let _ = packet.write(&mut out, &payload);
        if matches!(self.kind, Kind::Segments) && dice.is_multiple_of(5) {
            out.truncate(out.len() - out.len() / 3);
        }
        out
    }
}

impl Guest for Flood {
    fn source(&self) -> BorrowedFd<'_> {
        self.silent.as_fd()
    }

    fn handle_readable(&mut self, _: Time) {}

    fn handle_raw(&mut self, _: Time, _: &RawArrival, _: &[u8]) {}

    fn handle_paths(&mut self, now: Time, connection: ConnectionKey, paths: &[RawPath]) {
        self.to = paths.first().map(|path| (connection, *path));
        self.due = now;
    }

    fn handle_deadline(&mut self, now: Time) {
        (self.left, self.due) = (BURST, now + PAUSE);
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.to.map(|_| self.due)
    }

    fn poll_raw(&mut self, _: Time) -> Option<RawDatagram> {
        let (connection, RawPath { path, room }) = self.to?;
        self.left = self.left.checked_sub(1)?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        let payload = self.message(room);
        Some(RawDatagram { connection, path, is_ecn_capable: false, payload })
    }
}
