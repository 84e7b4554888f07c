//! Connections through a relay on loopback: tickets, ends, resets, rights, restarts, chains.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod codes;
mod common;
mod datagrams;
mod meetings;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use common::{Relay, attempt, bounded, destination, entry, greet, identity, open};
use peer::tls::{ClientTls, ServerTls};
use peer::{Conn, Credential, Identity, Token};
use relay::bounds::{CONTROLS_EACH, HALF_OPEN_EACH};
use relay::{Client, ClientOptions, ClientState};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use units::{Bytes, Rate};
use wire::relay::{RelayFrame, SERVICE, Ticket, Wish};
use wire::session::{AbortCode, Hello, SessionFrame};
use wire::tunnel::{Code, Target};

const LOOPBACK: &str = "127.0.0.1:*";
const PATIENCE: Duration = Duration::from_secs(20);

fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13).to_le_bytes()[0]).collect()
}

/// Runs a test on a runtime like the program's, for a bounded time.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(2 * PATIENCE, test).await.expect("it takes a few seconds") });
}

/// A control connection, as a program of its own would have it.
async fn control(relay: &Relay, own: &Identity) -> Conn {
    let stream = TcpStream::connect(relay.address).await.unwrap();
    let tls = ClientTls::new(own, relay.key.fingerprint()).unwrap();
    let mut conn = Conn::new(Box::new(stream), tls.connection().unwrap());
    conn.handshake().await.unwrap();
    conn.push(&SessionFrame::Hello(Hello::new(SERVICE, None, [0; 16])));
    conn.push(&SessionFrame::Pong(0));
    conn.flush().await.unwrap();
    conn.receive(|frame| match SessionFrame::try_from(frame)? {
        SessionFrame::Welcome(_) => Ok(()),
        other => panic!("{other:?}"),
    })
    .await
    .unwrap();
    conn
}

/// Tickets, or why there are none.
async fn wish(conn: &mut Conn, target: &Target, count: u8) -> Result<Vec<Ticket>, (Code, String)> {
    conn.push(&RelayFrame::Wish(Wish { number: 7, count, target: target.clone() }));
    conn.flush().await.unwrap();
    conn.receive(|frame| match RelayFrame::try_from(frame)? {
        RelayFrame::Tickets(issued) => Ok(Ok(issued.tickets)),
        RelayFrame::Denied(7, reason) => Ok(Err((reason.code, reason.text))),
        other => panic!("{other:?}"),
    })
    .await
    .unwrap()
}

/// What the relay says to a connection that begins so, until it closes it.
async fn said_to(relay: &Relay, begin: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(relay.address).await.unwrap();
    stream.write_all(begin).await.unwrap();
    let mut said = Vec::new();
    // A reset is an end as good as any.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("it is closed");
    said
}

#[test]
fn bytes_pass_in_both_directions_and_each_may_end_first() {
    run(async {
        let own = identity();
        let relay = Relay::start(vec![entry(&own, LOOPBACK, &[])]).await;
        let client = relay.client(&own);
        let (listener, target) = destination().await;
        let sent = content(30_000_000);
        let (mut near, mut far) = open(&client, &relay, (&listener, &target)).await;
        let writing = async {
            near.write_all(&sent).await.unwrap();
            near.shutdown().await.unwrap();
            let mut answer = Vec::new();
            near.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let echoing = async {
            let mut arrived = Vec::new();
            far.read_to_end(&mut arrived).await.unwrap();
            far.write_all(&arrived).await.unwrap();
            drop(far);
            arrived
        };
        let (answer, arrived) = tokio::join!(writing, echoing);
        assert!(arrived == sent && answer == sent);
        // The destination ends first.
        let (mut near, mut far) = open(&client, &relay, (&listener, &target)).await;
        far.write_all(b"banner").await.unwrap();
        far.shutdown().await.unwrap();
        let mut text = String::new();
        near.read_to_string(&mut text).await.unwrap();
        near.write_all(b"still").await.unwrap();
        near.shutdown().await.unwrap();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "bannerstill");
        let figures = relay.service.figures();
        assert_eq!((figures[0].up, figures[0].down), (30_000_005, 30_000_006));
    });
}

#[test]
fn resets_pass_in_both_directions() {
    run(async {
        let own = identity();
        let relay = Relay::start(vec![entry(&own, LOOPBACK, &[])]).await;
        let client = relay.client(&own);
        let (listener, target) = destination().await;
        for half_closed in [false, true] {
            for by_near in [false, true] {
                let (mut near, mut far) = open(&client, &relay, (&listener, &target)).await;
                greet(&mut near, &mut far).await;
                let (mut resets, mut other) = if by_near { (near, far) } else { (far, near) };
                if half_closed {
                    resets.shutdown().await.unwrap();
                    assert_eq!(other.read(&mut [0]).await.unwrap(), 0);
                }
                SockRef::from(&resets).set_linger(Some(Duration::ZERO)).unwrap();
                drop(resets);
                if half_closed {
                    // Writing shows it, at the latest.
                    while other.write_all(&[0; 1_000]).await.is_ok() {
                        tokio::task::yield_now().await;
                    }
                } else {
                    let error = other.read(&mut [0]).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                }
            }
        }
    });
}

#[test]
fn a_slow_reader_holds_its_writer_up_and_little_waits_between() {
    run(async {
        let own = identity();
        let relay = Relay::start(vec![entry(&own, LOOPBACK, &[])]).await;
        let client = relay.client(&own);
        let (listener, target) = destination().await;
        let small = 64 << 10;
        SockRef::from(&listener).set_recv_buffer_size(small).unwrap();
        let (mut near, mut far) = open(&client, &relay, (&listener, &target)).await;
        SockRef::from(&near).set_send_buffer_size(small).unwrap();
        greet(&mut near, &mut far).await;
        let mut sent = 0;
        while let Ok(written) = timeout(Duration::from_millis(500), near.write(&[7; 16_384])).await
        {
            sent += written.unwrap();
        }
        assert!(sent < 1 << 20, "{sent} bytes are in buffers");
        // Another path is not held up.
        let (mut near, mut far) = open(&client, &relay, (&listener, &target)).await;
        greet(&mut near, &mut far).await;
    });
}

/// Strangers, whatever they say first, hear nothing but what TLS says, and nobody is dialed.
#[test]
fn without_a_ticket_nothing_is_said_and_nobody_is_dialed() {
    run(async {
        let (own, stranger) = (identity(), identity());
        let relay = Relay::start(vec![entry(&own, LOOPBACK, &[])]).await;
        let (listener, target) = destination().await;
        for octet in [0x80, 0x9a, 0xff] {
            assert_eq!(said_to(&relay, &[octet; 64]).await, b"", "a guess");
        }
        let client = relay.client(&stranger);
        let refused = client.open(&relay.attempt(), &target).await.err().unwrap();
        assert!(refused.to_string().contains("may not use this relay"), "{refused}");
        assert!(matches!(client.state(), ClientState::Refused(_)));
        let nobody = timeout(Duration::from_millis(100), listener.accept()).await;
        assert!(nobody.is_err());
    });
}

/// More begin a ticket than there are places for, all from one address, and stay silent.
#[test]
fn half_a_ticket_keeps_nobody_out() {
    run(async {
        let own = identity();
        let relay = Relay::start(vec![entry(&own, LOOPBACK, &[])]).await;
        let client = relay.client(&own);
        let (listener, target) = destination().await;
        let mut silent = Vec::new();
        for _ in 0..200 {
            let mut stream = TcpStream::connect(relay.address).await.unwrap();
            stream.write_all(&[0x80; 7]).await.unwrap();
            silent.push(stream);
        }
        let (mut near, mut far) = open(&client, &relay, (&listener, &target)).await;
        greet(&mut near, &mut far).await;
        // The oldest gave way, and the newest are given up after ten seconds.
        for at in [0, 199] {
            let stream = &mut silent[at];
            let ended = timeout(PATIENCE, stream.read(&mut [0])).await.expect("it is given up");
            assert!(!matches!(ended, Ok(1..)));
        }
    });
}

#[test]
fn a_ticket_that_was_seen_is_spent() {
    run(async {
        let own = identity();
        let relay = Relay::start(vec![entry(&own, LOOPBACK, &[])]).await;
        let (listener, target) = destination().await;
        let mut conn = control(&relay, &own).await;
        let tickets = wish(&mut conn, &target, 2).await.unwrap();
        let mut first = TcpStream::connect(relay.address).await.unwrap();
        first.write_all(tickets[0].octets()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        greet(&mut first, &mut far).await;
        // Who has read it on the line comes too late.
        assert_eq!(said_to(&relay, &[tickets[0].octets(), &b"replay"[..]].concat()).await, b"");
        assert!(timeout(Duration::from_millis(100), listener.accept()).await.is_err());
        // A thief who is first spends it, and the owner's connection is closed.
        let mut thief = TcpStream::connect(relay.address).await.unwrap();
        thief.write_all(tickets[1].octets()).await.unwrap();
        listener.accept().await.unwrap();
        assert_eq!(said_to(&relay, tickets[1].octets()).await, b"");
    });
}

#[test]
fn private_and_other_destinations_are_refused() {
    run(async {
        let own = identity();
        let relay = Relay::start(vec![entry(&own, "*:*,10.0.0.0/8:22", &[])]).await;
        let mut conn = control(&relay, &own).await;
        for (text, code) in [
            ("127.0.0.1:22", Some(Code::Forbidden)),
            ("[::1]:22", Some(Code::Forbidden)),
            ("169.254.169.254:80", Some(Code::Forbidden)),
            ("[::ffff:127.0.0.1]:22", Some(Code::Forbidden)),
            ("192.0.2.7:22", None),
            ("10.1.2.3:22", None),
            ("localhost:22", None),
        ] {
            let target = reach::parse_target(text).unwrap();
            let wished = wish(&mut conn, &target, 1).await;
            assert_eq!(wished.as_ref().err().map(|(code, _)| *code), code, "{text}");
            // The addresses of a name are looked at when it is dialed.
            if text.starts_with("localhost") {
                let mut stream = TcpStream::connect(relay.address).await.unwrap();
                stream.write_all(wished.unwrap()[0].octets()).await.unwrap();
                let why = conn.receive(|frame| match RelayFrame::try_from(frame)? {
                    RelayFrame::Failed(_, reason) => Ok(reason.code),
                    other => panic!("{other:?}"),
                });
                assert_eq!(why.await.unwrap(), Code::Forbidden);
            }
        }
    });
}

#[test]
fn why_a_connection_came_to_nothing_is_told() {
    run(async {
        let own = identity();
        let relay = Relay::start(vec![entry(&own, LOOPBACK, &[])]).await;
        let client = relay.client(&own);
        let (listener, target) = destination().await;
        drop(listener);
        let begin = client.now();
        let near = client.open(&relay.attempt(), &target).await.unwrap().into_tcp().unwrap();
        near.readable().await.unwrap();
        let reason = loop {
            if let Some(reason) = client.failure(&target, begin) {
                break reason;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(reason.code, Code::Refused, "{reason}");
        assert_eq!(relay.service.figures()[0].refused, 1);
    });
}

#[test]
fn a_key_that_is_removed_loses_its_paths_and_its_tickets() {
    run(async {
        let (own, other) = (identity(), identity());
        let peers = vec![entry(&own, LOOPBACK, &[]), entry(&other, LOOPBACK, &[])];
        let relay = Relay::start(peers.clone()).await;
        let (listener, target) = destination().await;
        let (client, others) = (relay.client(&own), relay.client(&other));
        let (mut near, mut far) = open(&client, &relay, (&listener, &target)).await;
        let (mut others_near, mut others_far) = open(&others, &relay, (&listener, &target)).await;
        greet(&mut near, &mut far).await;
        let mut conn = control(&relay, &own).await;
        let ticket = wish(&mut conn, &target, 1).await.unwrap()[0];
        relay.authorized.replace(peers[1..].to_vec());
        assert!(!matches!(near.read(&mut [0]).await, Ok(1..)));
        assert!(!matches!(far.read(&mut [0]).await, Ok(1..)));
        assert_eq!(said_to(&relay, ticket.octets()).await, b"");
        let ended = conn.receive(|_| Ok(())).await;
        assert!(ended.is_err(), "the control connection has ended");
        greet(&mut others_near, &mut others_far).await;
        // Back with other rights, tickets of before are worth nothing.
        let again = vec![entry(&own, "127.0.0.1:1", &[]), peers[1].clone()];
        relay.authorized.replace(again);
        assert_eq!(said_to(&relay, ticket.octets()).await, b"");
        assert!(timeout(Duration::from_millis(100), listener.accept()).await.is_err());
    });
}

/// The relay has neither end's keys: both ends of TLS know each other, and not the relay.
#[test]
fn tls_goes_from_end_to_end() {
    run(async {
        let (own, server) = (identity(), identity());
        let relay = Relay::start(vec![entry(&own, LOOPBACK, &[])]).await;
        let client = relay.client(&own);
        let (listener, target) = destination().await;
        let stream = client.open(&relay.attempt(), &target).await.unwrap();
        let tls = ClientTls::new(&own, server.fingerprint()).unwrap();
        let mut near = Conn::new(stream, tls.connection().unwrap());
        let tls = ServerTls::new(&server).unwrap();
        let accepting = async {
            let (far, _) = listener.accept().await.unwrap();
            let mut far = Conn::new(Box::new(far), tls.connection().unwrap());
            far.handshake().await.unwrap();
            far
        };
        let (ended, mut far) = tokio::join!(near.handshake(), accepting);
        ended.unwrap();
        assert_eq!(
            (near.peer(), far.peer()),
            (Some(server.fingerprint()), Some(own.fingerprint()))
        );
        // A file's worth of data arrives as it was sent.
        let sent = content(16 << 20);
        let sending = async {
            for block in sent.chunks(256 << 10) {
                near.push(&SessionFrame::Probe(block));
                near.flush().await.unwrap();
            }
        };
        let receiving = async {
            let mut arrived = Vec::new();
            while arrived.len() < 16 << 20 {
                let block = far.receive(|frame| match SessionFrame::try_from(frame)? {
                    SessionFrame::Probe(block) => Ok(block.to_vec()),
                    other => panic!("{other:?}"),
                });
                arrived.extend(block.await.unwrap());
            }
            arrived
        };
        let ((), arrived) = tokio::join!(sending, receiving);
        assert!(arrived == sent);
    });
}

#[test]
fn a_relay_may_be_the_destination_of_another_one() {
    run(async {
        let (own, first_key, second_key) = (identity(), identity(), identity());
        let peers = || vec![entry(&own, LOOPBACK, &[])];
        let first = Relay::with(first_key, 0, peers(), None, (None, None)).await;
        let second = Relay::with(second_key, 0, peers(), None, (None, None)).await;
        let (listener, target) = destination().await;
        let to_first = first.client(&own);
        let credential = Credential::Pinned(second.key.fingerprint());
        let at = Target::from(second.address);
        let options = ClientOptions::behind(&to_first, &at, credential, own.clone());
        let chain = Client::start(options).unwrap();
        let (mut near, mut far) = open(&chain, &first, (&listener, &target)).await;
        greet(&mut near, &mut far).await;
        assert_eq!(second.service.figures()[0].opened, 1);
        assert_eq!(first.service.figures()[0].opened, 2, "the control connection, and the data");
    });
}

#[test]
fn a_relay_that_is_started_again_is_used_again() {
    run(async {
        let own = identity();
        let peers = || vec![entry(&own, LOOPBACK, &[])];
        let relay = Relay::start(peers()).await;
        let client = relay.client(&own);
        let (listener, target) = destination().await;
        let (mut near, mut far) = open(&client, &relay, (&listener, &target)).await;
        greet(&mut near, &mut far).await;
        let (key, address) = (relay.key.clone(), relay.address);
        drop(relay);
        assert!(!matches!(near.read(&mut [0]).await, Ok(1..)), "its paths end with it");
        let relay = Relay::with(key, address.port(), peers(), None, (None, None)).await;
        let (mut near, mut far) = loop {
            // Tickets of before open nothing, and the relay may not be back yet. Who has not heard
            // of its end has one, and a path that ends with the relay's refusal.
            let mut near = match client.open(&attempt(address), &target).await {
                Ok(near) if client.state() == ClientState::Open => near.into_tcp().unwrap(),
                _ => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            if near.write_all(b"x").await.is_err() {
                continue;
            }
            let mut refused = [0];
            tokio::select! {
                accepted = listener.accept() => {
                    let (mut far, _) = accepted.unwrap();
                    if far.read(&mut [0]).await.is_ok_and(|length| length == 1) {
                        break (near, far);
                    }
                }
                _ = near.read(&mut refused) => {}
            }
        };
        greet(&mut near, &mut far).await;
        drop(relay);
    });
}

#[test]
fn a_relay_that_stops_says_so_and_lets_paths_end() {
    run(async {
        let own = identity();
        let relay = Relay::start(vec![entry(&own, LOOPBACK, &[])]).await;
        let client = relay.client(&own);
        let (listener, target) = destination().await;
        let (mut near, mut far) = open(&client, &relay, (&listener, &target)).await;
        greet(&mut near, &mut far).await;
        let (service, begin) = (Arc::clone(&relay.service), client.now());
        let draining = tokio::spawn(async move { service.drain().await });
        while client.state() != ClientState::Parting {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let refused = client.open(&relay.attempt(), &target).await.err().unwrap();
        assert!(refused.to_string().contains("being stopped"), "{refused}");
        assert!(client.failure(&target, begin).is_some());
        greet(&mut near, &mut far).await;
        assert!(!draining.is_finished(), "a path is open");
        drop((near, far));
        draining.await.unwrap();
    });
}

#[test]
fn a_tokens_holder_is_let_in_and_no_other() {
    run(async {
        let (key, own, other) = (identity(), identity(), identity());
        let token = Token::generate(&key).unwrap();
        let relay = Relay::with(key, 0, Vec::new(), Some(token.clone()), (None, None)).await;
        let (listener, target) = destination().await;
        let start = |own: &Identity| {
            let credential = Credential::Token(token.clone());
            let dial = peer::Remote::from(relay.address);
            Client::start(ClientOptions::new(dial, credential, own.clone())).unwrap()
        };
        let holder = start(&own);
        let (mut near, mut far) = open(&holder, &relay, (&listener, &target)).await;
        greet(&mut near, &mut far).await;
        let late = start(&other).open(&relay.attempt(), &target).await.err().unwrap();
        assert!(late.to_string().contains("another host's"), "{late}");
    });
}
