//! `relay_datagrams attack KIND RELAY SECONDS …`: hostile datagrams, as fast as one processor sends
//! them, and what came back, as two numbers: bytes sent and bytes received, or what the kind says.
//!
//! | kind | further words | what it does |
//! |---|---|---|
//! | `guesses` | | random labels |
//! | `replays` | LABEL | a label of another host's, from another address |
//! | `binds` | KEY FINGERPRINT | asks for challenges, and never shows one |
//! | `asks` | KEY FINGERPRINT | shows a cookie and asks what is seen, without a pause |
//! | `floods` | KEY FINGERPRINT | full packets to a destination that says nothing; received by it |
//! | `labels` | KEY FINGERPRINT | associations and labels until there are no more; those wished and those taken |

use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peer::tags::TagKey;
use relay::labels::PAIRS_OF_ONE;
use stripe::{Arrivals, UdpSocket};
use wire::bind::{BIND, BIND_TAG, BindDatagram, BindKind, COOKIE};
use wire::relay::{Associated, LabelPair, MOST_LABELS, RelayFrame};

use super::{Outcome, PATIENCE, SIZE, associate, control, packet, pair, send};

/// The number of the honest host's pair of labels.
pub(super) const HONEST: u64 = 7;
/// Datagrams that are sent at once.
const BURST: usize = 20;
/// Labels that a greedy key wants.
const WANTED: usize = 1_000_000;

/// Measures a round trip for each line that is read.
pub(super) fn serve_honestly(own: &UdpSocket, sink: &UdpSocket, relay: SocketAddr) -> Outcome<()> {
    println!("{}", pair(HONEST).to);
    for (number, line) in (1_u64..).zip(io::stdin().lock().lines()) {
        line?;
        match honest_round_trip(own, sink, relay, number) {
            Some(took) => println!("{}", took.as_nanos()),
            None => println!("lost"),
        }
    }
    Ok(())
}

/// A small packet there, and one back, by their number; what was lost is sent again.
fn honest_round_trip(
    own: &UdpSocket,
    sink: &UdpSocket,
    relay: SocketAddr,
    number: u64,
) -> Option<Duration> {
    let numbered = |label| {
        let mut octets = packet(label, 64);
        octets[9..17].copy_from_slice(&number.to_be_bytes());
        octets
    };
    let (there, back) = (numbered(pair(HONEST).to), numbered(pair(HONEST).from));
    let (begin, mut sent_at) = (Instant::now(), None::<Instant>);
    let mut arrivals = Arrivals::default();
    while begin.elapsed() < PATIENCE {
        if sent_at.is_none_or(|at| at.elapsed() > Duration::from_millis(50)) {
            send(own, relay, &there, there.len());
            sent_at = Some(Instant::now());
        }
        arrivals.receive(sink);
        let heard = arrivals.drain().filter(|arrived| *arrived.bytes == *there);
        for from in heard.map(|arrived| arrived.from).collect::<Vec<_>>() {
            send(sink, from, &back, back.len());
        }
        arrivals.receive(own);
        if arrivals.drain().any(|arrived| *arrived.bytes == *back) {
            return Some(begin.elapsed());
        }
    }
    None
}

/// Runs one of them for so long.
pub(super) async fn run(
    kind: &str,
    relay: SocketAddr,
    length: Duration,
    more: &[&str],
) -> Outcome<()> {
    let own = UdpSocket::listening(([127, 0, 0, 1], 0).into(), false)?;
    match (kind, more) {
        ("guesses", []) => {
            let mut label = u64::from_be_bytes(*peer::random()?.first_chunk().expect("it has 16"));
            let next = || {
                label = label.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
                packet(label, SIZE)
            };
            send_on(&own, &own, relay, length, next);
        }
        ("replays", [label]) => {
            let seen = packet(label.parse()?, SIZE);
            send_on(&own, &own, relay, length, || seen.clone());
        }
        ("binds" | "asks", [key, fingerprint]) => {
            let mut conn = control(key, relay, fingerprint).await?;
            // The destination of an association is not asked for its address.
            let there = UdpSocket::listening(([127, 0, 0, 1], 0).into(), false)?;
            let Associated { id, secret, .. } = granted(&mut conn, &there).await?;
            let tags = TagKey::new(&secret);
            let made = |kind, cookie| {
                let tag = [0; BIND_TAG];
                let datagram = BindDatagram { kind, association: id, route: 0, cookie, tag };
                tags.tagged(datagram).octets().to_vec()
            };
            let begins = made(BindKind::Bind, [0; COOKIE]);
            if kind == "binds" {
                send_on(&own, &own, relay, length, || begins.clone());
            } else {
                let cookie = challenge(&own, relay, &begins)?;
                let asks = made(BindKind::Ask, cookie);
                send_on(&own, &own, relay, length, || asks.clone());
            }
        }
        ("floods", [key, fingerprint]) => {
            let mut conn = control(key, relay, fingerprint).await?;
            let silent = UdpSocket::listening(([127, 0, 0, 1], 0).into(), false)?;
            associate(&mut conn, (relay, &own), 0, &silent, &[1]).await?;
            let full = packet(pair(1).to, SIZE);
            send_on(&own, &silent, relay, length, || full.clone());
        }
        ("labels", [key, fingerprint]) => {
            let mut conn = control(key, relay, fingerprint).await?;
            greedy(&mut conn, &own, length).await?;
        }
        _ => return Err(format!("no attack '{kind}' with {} words", more.len()).into()),
    }
    Ok(())
}

/// Sends what `next` makes, some alike at once, and counts what arrives at `there`.
fn send_on(
    own: &UdpSocket,
    there: &UdpSocket,
    relay: SocketAddr,
    length: Duration,
    mut next: impl FnMut() -> Vec<u8>,
) {
    let (begin, mut sent, mut received) = (Instant::now(), 0, 0);
    let mut arrivals = Arrivals::default();
    while begin.elapsed() < length {
        let one = next();
        let all = one.repeat(BURST);
        if send(own, relay, &all, one.len()) {
            sent += all.len();
        }
        arrivals.receive(there);
        received += arrivals.drain().map(|arrived| arrived.bytes.len()).sum::<usize>();
    }
    println!("{sent} {received}");
}

/// The cookie that an address gets.
fn challenge(own: &UdpSocket, relay: SocketAddr, begins: &[u8]) -> Outcome<[u8; COOKIE]> {
    let begin = Instant::now();
    let mut arrivals = Arrivals::default();
    while begin.elapsed() < PATIENCE {
        send(own, relay, begins, BIND);
        std::thread::sleep(Duration::from_millis(20));
        arrivals.receive(own);
        for arrived in arrivals.drain() {
            if let Ok(answer) = BindDatagram::parse(&arrived.bytes[..arrived.segment]) {
                return Ok(answer.cookie);
            }
        }
    }
    Err("no challenge".into())
}

/// An association without labels.
async fn granted(conn: &mut peer::Conn, to: &UdpSocket) -> Outcome<Associated> {
    conn.push(&RelayFrame::Associate(0, to.local().into()));
    conn.flush().await?;
    loop {
        let told = conn.receive(|frame| match RelayFrame::try_from(frame)? {
            RelayFrame::Associated(associated) => Ok(Some(Ok(associated))),
            RelayFrame::Dissociated(_, reason) => Ok(Some(Err(reason.text))),
            _ => Ok(None),
        });
        if let Some(told) = told.await? {
            return Ok(told?);
        }
    }
}

/// Wants a million labels, of as many associations as that takes; the relay's bounds hold it up.
async fn greedy(conn: &mut peer::Conn, to: &UdpSocket, length: Duration) -> Outcome<()> {
    let (begin, mut wished, mut taken) = (Instant::now(), 0, 0);
    let mut number = 0_u32;
    while wished < WANTED && begin.elapsed() < length {
        conn.push(&RelayFrame::Associate(number, to.local().into()));
        let label = |at: usize| pair(u64::from(number) << 20 | at as u64);
        let labels: Vec<LabelPair> = (0..PAIRS_OF_ONE).map(label).collect();
        for some in labels.chunks(MOST_LABELS) {
            conn.push(&RelayFrame::Labels(number, some.to_vec()));
        }
        conn.flush().await?;
        wished += labels.len();
        let mut most = 0;
        // Until it has them all, or is refused.
        while most < labels.len() {
            let told = conn.receive(|frame| match RelayFrame::try_from(frame)? {
                RelayFrame::Labelled(of, count) if of == number => Ok(Some(count)),
                RelayFrame::Dissociated(of, _) if of == number => Ok(None),
                _ => Ok(Some(0)),
            });
            let Ok(told) = tokio::time::timeout(PATIENCE, told).await else { break };
            let Some(count) = told? else { break };
            most = most.max(count as usize);
        }
        taken += most;
        number += 1;
    }
    println!("{wished} {taken}");
    Ok(())
}
