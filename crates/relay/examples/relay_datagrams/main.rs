//! Datagrams through a relay's UDP side for a program that measures it: `relay_datagrams KEY RELAY
//! FINGERPRINT LABELS SECONDS`, or `relay_datagrams bare SINK PROXY LABELS SECONDS` through a proxy
//! that passes all on to SINK.
//!
//! It sends full packets with so many labels in turn for that time, as fast as it can, and then a
//! thousand small ones there and back, one at a time. It prints a line when it begins, one with the
//! bytes that arrived at the end of the first part, and one with the median round trip in
//! nanoseconds.
//!
//! `relay_datagrams honest KEY RELAY FINGERPRINT` prints its label and then, for each line that it
//! reads, the nanoseconds of a round trip, or `lost`. What else it does is in `attacks`.

mod attacks;

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use peer::tls::ClientTls;
use peer::{Conn, Identity};
use relay::Binding;
use relay::labels::PAIRS_OF_ONE;
use stripe::{Arrivals, Outgoing, UdpSocket};
use tokio::net::TcpStream;
use units::Time;
use wire::relay::{LabelPair, MOST_LABELS, RelayFrame, SERVICE};
use wire::session::{Hello, SessionFrame};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Octets of a packet, and packets of one call.
const SIZE: usize = 1_472;
const BURST: usize = 40;
const PINGS: usize = 1_000;
/// The time for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let own = UdpSocket::listening(([127, 0, 0, 1], 0).into(), false)?;
    match &words[..] {
        ["bare", sink, proxy, labels, seconds] => {
            let sink = UdpSocket::listening(sink.parse()?, false)?;
            measure(&own, &sink, proxy.parse()?, labels.parse()?, seconds.parse()?)
        }
        [key] => {
            println!("{}", Identity::load_or_generate(Path::new(key))?.fingerprint());
            Ok(())
        }
        ["honest", key, relay, fingerprint] => {
            let relay = relay.parse()?;
            let sink = UdpSocket::listening(([127, 0, 0, 1], 0).into(), false)?;
            let mut conn = control(key, relay, fingerprint).await?;
            associate(&mut conn, (relay, &own), 0, &sink, &[attacks::HONEST]).await?;
            attacks::serve_honestly(&own, &sink, relay)
        }
        ["attack", kind, relay, seconds, more @ ..] => {
            attacks::run(kind, relay.parse()?, Duration::from_secs_f64(seconds.parse()?), more)
                .await
        }
        [key, relay, fingerprint, labels, seconds] => {
            let (relay, labels) = (relay.parse()?, labels.parse()?);
            let sink = UdpSocket::listening(([127, 0, 0, 1], 0).into(), false)?;
            let mut conn = control(key, relay, fingerprint).await?;
            let numbers: Vec<u64> = (0..labels).collect();
            for (number, own_labels) in (0..).zip(numbers.chunks(PAIRS_OF_ONE)) {
                associate(&mut conn, (relay, &own), number, &sink, own_labels).await?;
                // The destination answers each of them, so that all passes.
                round_trip(&own, &sink, relay, own_labels[0])?;
            }
            measure(&own, &sink, relay, labels, seconds.parse()?)
        }
        _ => Err("KEY RELAY FINGERPRINT LABELS SECONDS, or bare SINK PROXY LABELS SECONDS".into()),
    }
}

/// A control connection to a relay.
async fn control(key: &str, relay: SocketAddr, fingerprint: &str) -> Outcome<Conn> {
    let key = Identity::load_or_generate(Path::new(key))?;
    let tls = ClientTls::new(&key, fingerprint.parse()?)?;
    let stream = TcpStream::connect(relay).await?;
    let mut conn = Conn::new(Box::new(stream), tls.connection()?);
    conn.handshake().await?;
    conn.push(&SessionFrame::Hello(Hello::new(SERVICE, None, peer::random()?)));
    conn.push(&SessionFrame::Pong(0));
    Ok(conn)
}

/// The labels there and back of a path.
fn pair(number: u64) -> LabelPair {
    let to = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    LabelPair { to, from: to - 1 }
}

async fn associate(
    conn: &mut Conn,
    (relay, own): (SocketAddr, &UdpSocket),
    number: u32,
    sink: &UdpSocket,
    labels: &[u64],
) -> Outcome<()> {
    conn.push(&RelayFrame::Associate(number, sink.local().into()));
    let pairs: Vec<LabelPair> = labels.iter().map(|number| pair(*number)).collect();
    for some in pairs.chunks(MOST_LABELS) {
        conn.push(&RelayFrame::Labels(number, some.to_vec()));
    }
    conn.flush().await?;
    let mut associated = None;
    let mut taken = 0;
    while taken < pairs.len() {
        let told = conn.receive(|frame| match RelayFrame::try_from(frame)? {
            RelayFrame::Associated(own) => Ok(Ok((Some(own), 0))),
            RelayFrame::Labelled(_, count) => Ok(Ok((None, count))),
            RelayFrame::Dissociated(_, reason) => Ok(Err(reason.text)),
            _ => Ok(Ok((None, 0))),
        });
        let (own, count) = told.await??;
        associated = own.or(associated);
        taken = taken.max(usize::try_from(count)?);
    }
    let associated = associated.ok_or("labels without an association")?;
    let began = Instant::now();
    let since = || Time::ZERO + began.elapsed().into();
    let mut binding = Binding::begin(since(), associated.id, &associated.secret, 0);
    let mut arrivals = Arrivals::default();
    while !binding.is_bound() {
        if began.elapsed() > PATIENCE {
            return Err("the relay does not answer datagrams".into());
        }
        // What the relay's other thread does not know yet, or what is lost, is sent again.
        if let Some(bytes) = binding.poll_transmit(since()) {
            send(own, relay, &bytes, bytes.len());
        }
        arrivals.receive(own);
        for arrived in arrivals.drain() {
            binding.handle_datagram(since(), arrived.bytes);
        }
    }
    Ok(())
}

fn send(socket: &UdpSocket, to: SocketAddr, bytes: &[u8], segment: usize) -> bool {
    let outgoing = Outgoing { to, source: None, ecn: None, is_lower_effort: false, bytes, segment };
    socket.send(&outgoing).is_ok()
}

fn packet(label: u64, size: usize) -> Vec<u8> {
    let mut octets = vec![0x40; size];
    octets[1..9].copy_from_slice(&label.to_be_bytes());
    octets
}

/// A small packet there, and one back.
fn round_trip(
    own: &UdpSocket,
    sink: &UdpSocket,
    relay: SocketAddr,
    number: u64,
) -> Outcome<Duration> {
    let begin = Instant::now();
    let mut arrivals = Arrivals::default();
    send(own, relay, &packet(pair(number).to, 64), 64);
    let mut heard = |socket: &UdpSocket| {
        while begin.elapsed() < PATIENCE {
            arrivals.receive(socket);
            if let Some(arrived) = arrivals.drain().next() {
                return Ok(arrived.from);
            }
        }
        Err(format!("a small packet, or its answer, did not arrive within {PATIENCE:?}"))
    };
    let back = heard(sink)?;
    send(sink, back, &packet(pair(number).from, 64), 64);
    heard(own)?;
    Ok(begin.elapsed())
}

fn measure(
    own: &UdpSocket,
    sink: &UdpSocket,
    relay: SocketAddr,
    labels: u64,
    seconds: f64,
) -> Outcome<()> {
    let bursts: Vec<Vec<u8>> =
        (0..labels).map(|number| packet(pair(number).to, SIZE).repeat(BURST)).collect();
    let (begin, length) = (Instant::now(), Duration::from_secs_f64(seconds));
    println!("begin");
    let count = thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut arrivals = Arrivals::default();
            let mut count = 0;
            while begin.elapsed() < length {
                arrivals.receive(sink);
                count += arrivals.drain().map(|arrived| arrived.bytes.len()).sum::<usize>();
            }
            count
        });
        let mut turns = bursts.iter().cycle();
        while begin.elapsed() < length {
            if let Some(burst) = turns.next()
                && !send(own, relay, burst, SIZE)
            {
                thread::yield_now();
            }
        }
        counting.join().expect("it counts")
    });
    println!("{count}");
    thread::sleep(Duration::from_millis(200));
    let mut arrivals = Arrivals::default();
    while arrivals.receive(sink).0 {}
    let mut took = Vec::new();
    for _ in 0..PINGS {
        took.push(round_trip(own, sink, relay, 0)?.as_nanos());
        thread::sleep(Duration::from_millis(1));
    }
    took.sort_unstable();
    println!("{}", took[PINGS / 2]);
    Ok(())
}
