//! A flood of strangers at a UDP port of loopback, for `bench/bars/wire-hostile`.
//!
//! ```text
//! strangers FROM TO KIND RATE SECONDS
//!
//! hellos     first packets of handshakes, each of its own, whose answers are not read
//! tokens     the same, which show their address with the token of a retry, and then say nothing
//! versions   packets of a version that does not exist
//! noise      random octets in the form of data packets
//! ```
//!
//! FROM is an address of loopback, TO one with a port. At most RATE datagrams leave in a second. It
//! prints a line of JSON: what was sent and what came back, in datagrams and octets, and the
//! processor time that it took, in seconds.

use std::error::Error;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ptcp::Config;
use rustls::ClientConfig;
use secure::testing::{Key, client};
use secure::{Dialer, Settings};
use serde_json::json;
use units::Time;

/// The protocol of the host under attack.
const ALPN: &[u8] = b"anabranch/1";
/// Datagrams of one kind are drawn from a generator with this seed.
const SEED: u64 = 11;
/// The longest flood.
const MOST: u64 = 60;
/// The most handshakes that wait for a retry.
const MOST_WAITING: usize = 64;

/// A socket at an address of loopback, and what passed there.
struct Flood {
    socket: UdpSocket,
    to: SocketAddr,
    dice: u64,
    tls: Arc<ClientConfig>,
    settings: Arc<Settings>,
    /// Handshakes that may get a retry.
    waiting: Vec<Dialer>,
    sent: [u64; 2],
    answered: [u64; 2],
}

impl Flood {
    fn send(&mut self, datagram: &[u8]) {
        // A full buffer of the socket loses the datagram, as a line would.
        if self.socket.send_to(datagram, self.to).is_ok() {
            self.sent[0] += 1;
            self.sent[1] += datagram.len() as u64;
        }
    }

    fn random(&mut self) -> u64 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.dice
    }

    fn filled(&mut self, start: &[u8]) -> Vec<u8> {
        let mut datagram = start.to_vec();
        while datagram.len() < 1_200 {
            let octets = self.random().to_be_bytes();
            datagram.extend_from_slice(&octets[..4]);
        }
        datagram
    }

    /// A handshake's first flight. Several datagrams, as the hello is longer than one.
    fn hello(&mut self, waits: bool) -> Result<(), Box<dyn Error>> {
        let label = self.random();
        let mut dialer = Dialer::new(&self.tls, &self.settings, Time::ZERO, label)?;
        self.flight(&mut dialer);
        if waits {
            if self.waiting.len() == MOST_WAITING {
                self.waiting.remove(0);
            }
            self.waiting.push(dialer);
        }
        Ok(())
    }

    fn flight(&mut self, dialer: &mut Dialer) {
        while let Some(datagram) = dialer.poll_transmit(Time::ZERO) {
            self.send(&datagram);
        }
    }

    /// Takes what came back. Only a retry is answered.
    fn receive(&mut self) {
        let mut buffer = [0; 2_048];
        while let Ok(len) = self.socket.recv(&mut buffer) {
            self.answered[0] += 1;
            self.answered[1] += len as u64;
            // The form of a retry, and its label behind the version.
            if buffer[0] & 0xe3 != 0xe2 {
                continue;
            }
            for mut dialer in std::mem::take(&mut self.waiting) {
                dialer.handle_datagram(Time::ZERO, &mut buffer[..len].to_vec());
                let before = self.sent[0];
                self.flight(&mut dialer);
                if self.sent[0] == before {
                    self.waiting.push(dialer);
                }
            }
        }
    }

    fn one(&mut self, kind: &str) -> Result<(), Box<dyn Error>> {
        match kind {
            "hellos" => self.hello(false)?,
            "tokens" => self.hello(true)?,
            "versions" => {
                let datagram = self.filled(&[0xc0, 0x61, 0x6e, 0x62, 0xee]);
                self.send(&datagram);
            }
            "noise" => {
                let datagram = self.filled(&[0x40]);
                self.send(&datagram);
            }
            _ => return Err("no such kind".into()),
        }
        self.receive();
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, kind, rate, seconds] = &words[..] else {
        return Err("strangers FROM TO KIND RATE SECONDS".into());
    };
    let (from, to): (IpAddr, SocketAddr) = (from.parse()?, to.parse()?);
    if !from.is_loopback() || !to.ip().is_loopback() {
        return Err("only on loopback".into());
    }
    let (rate, seconds): (u64, u64) = (rate.parse()?, seconds.parse::<u64>()?.min(MOST));
    let socket = UdpSocket::bind((from, 0))?;
    socket.set_nonblocking(true)?;
    let mut tls = client(&Key::generate(), &Key::generate());
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut settings = Settings::default();
    Config::default().parameters().emit(&mut settings.parameters);
    let mut flood = Flood {
        socket,
        to,
        dice: SEED,
        tls: Arc::new(tls),
        settings: Arc::new(settings),
        waiting: Vec::new(),
        sent: [0; 2],
        answered: [0; 2],
    };
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        let due = u64::try_from(began.elapsed().as_millis())? * rate / 1_000;
        while flood.sent[0] < due && began.elapsed() < Duration::from_secs(seconds) {
            flood.one(kind)?;
        }
        flood.receive();
        sleep(Duration::from_millis(1));
    }
    let (sent, answered) = (flood.sent, flood.answered);
    let cpu = sys::poll::thread_cpu_time().as_secs_f64();
    let told = json!({
        "sent": sent[0], "sent_octets": sent[1],
        "answered": answered[0], "answered_octets": answered[1], "cpu": cpu,
    });
    println!("{told}");
    Ok(())
}
