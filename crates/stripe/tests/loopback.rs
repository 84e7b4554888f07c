//! Streams, datagrams and ends of connections over real sockets of loopback.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{address, anywhere, content, listen, pair, routes, run};
use secure::testing::{Key, client, client_without_key};
use stripe::{
    Class, ConnectError, Connection, ConnectionError, DatagramError, Endpoint, Listening, Options,
    Rations, Route, RouteChange, RouteId, RouteState,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use units::Bytes;

#[test]
fn bytes_arrive_in_both_directions_over_two_routes() {
    run(async {
        let pair = pair(2, Options::default()).await;
        let sent = content(20_000_000);
        let echo = tokio::spawn({
            let far = pair.far.clone();
            async move {
                let stream = far.accept_stream().await.expect("it is opened");
                let (mut sending, mut receiving) = stream.split();
                let copied = tokio::io::copy(&mut receiving, &mut sending).await;
                sending.shutdown().await.expect("it is open");
                sending.delivered().await.expect("the peer reads");
                copied.expect("it flows")
            }
        });
        let stream = pair.near.open_stream().await.expect("it is open");
        let (mut sending, mut receiving) = stream.split();
        let write = async {
            sending.write_all(&sent).await.expect("it is open");
            sending.shutdown().await.expect("it is open");
        };
        let mut arrived = Vec::new();
        let read = receiving.read_to_end(&mut arrived);
        let ((), read) = tokio::join!(write, read);
        read.expect("it is whole");
        assert!(arrived == sent, "other bytes arrived");
        assert_eq!(echo.await.expect("no panic"), sent.len() as u64);
        let stats = pair.near.stats().await;
        assert_eq!(stats.routes.len(), 2);
        for route in &stats.routes {
            assert_eq!(route.state, RouteState::Open, "{route:?}");
            assert!(route.sent.0 > 1_000_000, "{route:?}");
        }
        assert_eq!(stats.streams, 0);
    });
}

#[test]
fn many_streams_take_little_each_before_it_is_sent() {
    run(async {
        let pair = pair(1, Options::default()).await;
        let all = vec![7; 1 << 20];
        let mut first = pair.near.open_stream().await.expect("it is open");
        let taken = first.write(&all).await.expect("it is open");
        assert_eq!(taken, 512 << 10, "one stream has all");
        let mut streams = Vec::new();
        for _ in 0..100 {
            streams.push(pair.near.open_stream().await.expect("it is open"));
        }
        for stream in &mut streams {
            let taken = stream.write(&all).await.expect("it is open");
            assert!((16 << 10..64 << 10).contains(&taken), "{taken} bytes");
        }
        drop(streams);
    });
}

/// Who asks first has the first stream, though another task is polled before.
#[test]
fn streams_come_in_the_order_in_which_they_were_asked_for() {
    run(async {
        let pair = pair(2, Options::default()).await;
        let (first, second) = (pair.near.open_stream(), pair.near.open_stream());
        let (mut second, mut first) = (second.await.expect("open"), first.await.expect("open"));
        assert!(first.id() < second.id());
        let accepting = pair.far.accept_stream();
        let behind = tokio::spawn(pair.far.accept_stream());
        second.write_all(b"second").await.expect("it is open");
        second.shutdown().await.expect("it is open");
        second.sending().delivered().await.expect("it arrives");
        first.write_all(b"first").await.expect("it is open");
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!behind.is_finished(), "another was asked for before");
        assert_eq!(accepting.await.expect("it is open").id(), first.id());
        assert_eq!(behind.await.expect("no panic").expect("it is open").id(), second.id());
    });
}

#[test]
fn many_streams_do_not_mix() {
    run(async {
        let pair = pair(2, Options::default()).await;
        tokio::spawn({
            let far = pair.far.clone();
            async move {
                while let Ok(stream) = far.accept_stream().await {
                    tokio::spawn(async move {
                        let (mut sending, mut receiving) = stream.split();
                        tokio::io::copy(&mut receiving, &mut sending).await.expect("it flows");
                        sending.shutdown().await.expect("it is open");
                    });
                }
            }
        });
        // More than may be open at the same time.
        let mut tasks = Vec::new();
        for number in 0..400usize {
            let near = pair.near.clone();
            tasks.push(tokio::spawn(async move {
                let mut stream = near.open_stream().await.expect("it is open");
                let sent = content(1 + number * 37);
                stream.write_all(&sent).await.expect("it is open");
                stream.shutdown().await.expect("it is open");
                let mut arrived = Vec::new();
                stream.read_to_end(&mut arrived).await.expect("it is whole");
                assert!(arrived == sent, "stream {number}");
            }));
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(pair.near.stats().await.streams, 0);
    });
}

#[test]
fn a_reader_that_does_not_read_holds_its_writer_up_and_no_other() {
    run(async {
        let pair = pair(1, Options::default()).await;
        let mut slow = pair.near.open_stream().await.expect("it is open");
        let filled = timeout(Duration::from_secs(2), slow.write_all(&vec![1; 64 << 20])).await;
        assert!(filled.is_err(), "64 MiB without a reader");
        let mut other = pair.near.open_stream().await.expect("it is open");
        other.write_all(b"passes").await.expect("it is open");
        other.shutdown().await.expect("it is open");
        let first = pair.far.accept_stream().await.expect("it is opened");
        let mut second = pair.far.accept_stream().await.expect("it is opened");
        let mut text = String::new();
        second.read_to_string(&mut text).await.expect("it is whole");
        assert_eq!(text, "passes");
        drop(first);
        // The reader is gone, and so is the writer's purpose once it hears of that.
        let chunk = vec![1; 1 << 20];
        let stopped = loop {
            if let Err(stopped) = slow.write_all(&chunk).await {
                break stopped;
            }
        };
        assert_eq!(stopped.kind(), std::io::ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_half_that_is_dropped_before_its_end_is_no_end() {
    run(async {
        let pair = pair(1, Options::default()).await;
        let mut stream = pair.near.open_stream().await.expect("it is open");
        stream.write_all(b"part").await.expect("it is open");
        let mut far = pair.far.accept_stream().await.expect("it is opened");
        let mut part = [0; 4];
        far.read_exact(&mut part).await.expect("it arrived");
        drop(stream);
        let error = far.read(&mut part).await.expect_err("it is no end");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_half_may_end_before_the_other() {
    run(async {
        let pair = pair(1, Options::default()).await;
        let mut near = pair.near.open_stream().await.expect("it is open");
        near.write_all(b"question").await.expect("it is open");
        near.shutdown().await.expect("it is open");
        let mut far = pair.far.accept_stream().await.expect("it is opened");
        let mut text = String::new();
        far.read_to_string(&mut text).await.expect("it is whole");
        assert_eq!(text, "question");
        far.write_all(b"answer").await.expect("the other half is open");
        far.shutdown().await.expect("it is open");
        let mut text = String::new();
        near.read_to_string(&mut text).await.expect("it is whole");
        assert_eq!(text, "answer");
    });
}

#[test]
fn datagrams_arrive_and_have_bounds() {
    run(async {
        let pair = pair(2, Options::default()).await;
        // Of a stranger's few may wait. The answer of the driver comes behind the admission.
        pair.far.admit(Bytes::mib(1));
        pair.far.stats().await;
        let most = pair.near.max_datagram();
        assert!(most > 1_000, "{most}");
        // The search for the size goes on meanwhile.
        let refused = pair.near.send_datagram(vec![0; 60_000]);
        let Err(DatagramError::TooLarge { size: 60_000, most: then }) = refused else {
            panic!("{refused:?}")
        };
        assert!(then >= most, "{then} {most}");
        for number in 0..100u8 {
            pair.near.send_datagram(vec![number; 500]).expect("there is room");
        }
        let mut numbers = Vec::new();
        for _ in 0..100 {
            let datagram = pair.far.receive_datagram().await.expect("loopback loses none");
            assert_eq!(datagram.len(), 500);
            numbers.push(datagram[0]);
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<u8>>());
        let full = (0..2_000).find_map(|_| pair.near.send_datagram(vec![0; 10]).err());
        assert!(matches!(full, None | Some(DatagramError::Full)), "{full:?}");
    });
}

#[test]
fn a_new_connection_knows_how_large_a_datagram_may_be() {
    run(async {
        for _ in 0..50 {
            let pair = pair(1, Options::default()).await;
            let most = [pair.near.max_datagram(), pair.far.max_datagram()];
            assert!(most.iter().all(|most| *most > 1_000), "{most:?}");
        }
    });
}

#[test]
fn both_sides_learn_of_an_end() {
    run(async {
        let pair = pair(2, Options::default()).await;
        let mut stream = pair.near.open_stream().await.expect("it is open");
        stream.write_all(b"x").await.expect("it is open");
        let mut far = pair.far.accept_stream().await.expect("it is opened");
        pair.near.close(7);
        assert_eq!(pair.near.ended().await, ConnectionError::Closed);
        assert_eq!(pair.far.ended().await, ConnectionError::ClosedByPeer { code: 7 });
        stream.write_all(b"y").await.expect_err("it has ended");
        let _ = far.read(&mut [0; 8]).await;
        far.read(&mut [0; 8]).await.expect_err("it has ended");
        pair.near.open_stream().await.expect_err("it has ended");
        assert_eq!(pair.near.send_datagram(vec![1]), Err(DatagramError::Ended));
        pair.dialing.wait_idle().await;
        pair.listening.wait_idle().await;
    });
}

#[test]
fn the_last_handle_closes_the_connection() {
    run(async {
        let pair = pair(1, Options::default()).await;
        let mut stream = pair.near.open_stream().await.expect("it is open");
        drop(pair.near);
        stream.write_all(b"still open").await.expect("a stream keeps it");
        let mut far = pair.far.accept_stream().await.expect("it is opened");
        far.read_exact(&mut [0; 10]).await.expect("it arrives");
        drop(stream);
        assert_eq!(pair.far.ended().await, ConnectionError::ClosedByPeer { code: 0 });
    });
}

/// Sends so many bytes on a stream, and compares what arrives.
async fn carry(near: &Connection, far: &Connection, len: usize) {
    let mut stream = near.open_stream().await.expect("it is open");
    let sent = content(len);
    let write = async {
        stream.write_all(&sent).await.expect("it is open");
        stream.shutdown().await.expect("it is open");
    };
    let read = async {
        let mut stream = far.accept_stream().await.expect("it is opened");
        let mut arrived = Vec::new();
        stream.read_to_end(&mut arrived).await.expect("it is whole");
        arrived
    };
    let ((), arrived) = tokio::join!(write, read);
    assert!(arrived == sent, "other bytes arrived");
}

#[test]
fn routes_come_and_go() {
    run(async {
        let pair = pair(1, Options::default()).await;
        let mut events = pair.near.events();
        let port = pair.listening.local_addresses()[0].port();
        let second = routes(port, 2).pop().expect("two");
        let number = pair.near.add_route(second).await.expect("a socket");
        let opened = events.recv().await.expect("it opens");
        assert_eq!((opened.route, opened.change), (number, RouteChange::Opened));
        pair.near.remove_route(RouteId(0));
        assert_eq!(events.recv().await.expect("it goes").change, RouteChange::Removed);
        carry(&pair.near, &pair.far, 2_000_000).await;
        let stats = pair.near.stats().await;
        assert_eq!(stats.routes.iter().map(|route| route.route).collect::<Vec<_>>(), [number]);
    });
}

/// Routes that a peer opened go with the connection, and others before; what they carried counts.
#[test]
fn what_routes_carried_is_known_after_their_end() {
    run(async {
        let pair = pair(2, Options::default()).await;
        carry(&pair.near, &pair.far, 2_000_000).await;
        pair.near.remove_route(RouteId(0));
        carry(&pair.near, &pair.far, 1_000_000).await;
        pair.near.close(0);
        for (connection, is_sender) in [(&pair.near, true), (&pair.far, false)] {
            connection.forgotten().await;
            let stats = connection.recent_stats();
            let bytes = |one: &stripe::Carried| if is_sender { one.sent.0 } else { one.received.0 };
            let carried: u64 = stats.carried.iter().map(bytes).sum();
            assert!((3_000_000..4_500_000).contains(&carried), "{stats:?}");
        }
    });
}

#[test]
fn a_route_in_reserve_carries_little() {
    run(async {
        let (listening, key) = listen(&anywhere(), Options::default());
        let port = listening.local_addresses()[0].port();
        let endpoint = Endpoint::new().expect("there are threads");
        let mut both = routes(port, 2);
        both[0].class = Class::Reserve;
        let tls = Arc::new(client(&Key::generate(), &key));
        let connecting = endpoint.connect(both, &tls, Options::default());
        let (near, far) = tokio::join!(connecting, listening.accept());
        let (near, far) = (near.expect("it answers"), far.expect("it listens"));
        carry(&near, &far, 5_000_000).await;
        let stats = near.stats().await;
        let reserve = &stats.routes[1];
        assert_eq!(reserve.remote.ip(), common::address(1));
        assert!(reserve.sent.0 < 100_000, "{reserve:?}");
    });
}

/// A host without a program at that port says so at once; nobody waits for the handshake's time.
#[test]
fn refused_packets_end_the_handshake() {
    run(async {
        let (listening, key) = listen(&anywhere(), Options::default());
        let port = listening.local_addresses()[0].port();
        // The port is free again: nobody else gets it so soon.
        drop(listening);
        let endpoint = Endpoint::new().expect("there are threads");
        let tls = Arc::new(client(&Key::generate(), &key));
        let connecting = endpoint.connect(routes(port, 2), &tls, Options::default());
        let refused = timeout(Duration::from_secs(5), connecting).await.expect("half of its time");
        assert!(matches!(refused, Err(ConnectError::Refused { .. })), "{refused:?}");
    });
}

#[test]
fn a_wrong_key_ends_the_handshake_on_both_sides() {
    run(async {
        let (listening, key) = listen(&anywhere(), Options::default());
        let port = listening.local_addresses()[0].port();
        let endpoint = Endpoint::new().expect("there are threads");
        let wrong = Arc::new(client(&Key::generate(), &Key::generate()));
        let refused = endpoint.connect(routes(port, 1), &wrong, Options::default()).await;
        assert!(matches!(refused, Err(ConnectError::Handshake(_))), "{refused:?}");
        let without = Arc::new(client_without_key(&key));
        let connected = endpoint.connect(routes(port, 1), &without, Options::default()).await;
        // The side that dials may believe in it until the other one has spoken.
        if let Ok(connection) = connected {
            assert!(matches!(connection.ended().await, ConnectionError::Handshake(_)));
        }
        let accepted = timeout(Duration::from_millis(200), listening.accept()).await;
        assert!(accepted.is_err(), "nobody was admitted");
    });
}

#[test]
fn the_first_route_that_answers_is_taken() {
    run(async {
        let (listening, key) = listen(&anywhere(), Options::default());
        let port = listening.local_addresses()[0].port();
        // Nobody reads at this one.
        let mute = std::net::UdpSocket::bind("127.0.0.9:0").expect("a port is free");
        let mut both = routes(port, 2);
        both[0].remote = mute.local_addr().expect("it is bound");
        let endpoint = Endpoint::new().expect("there are threads");
        let tls = Arc::new(client(&Key::generate(), &key));
        let began = std::time::Instant::now();
        let near = endpoint.connect(both, &tls, Options::default()).await.expect("one answers");
        assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
        let far = listening.accept().await.expect("it listens");
        let mut stream = near.open_stream().await.expect("it is open");
        stream.write_all(b"over the second").await.expect("it is open");
        stream.shutdown().await.expect("it is open");
        let mut text = String::new();
        let mut arrived = far.accept_stream().await.expect("it is opened");
        arrived.read_to_string(&mut text).await.expect("it is whole");
        assert_eq!(text, "over the second");
        let states: Vec<_> = near.stats().await.routes.iter().map(|route| route.state).collect();
        assert_eq!(states, [RouteState::Opening, RouteState::Open]);
    });
}

/// Both ends of a connection from an address of loopback.
async fn crowd(endpoint: &Endpoint, listening: &Endpoint, key: &Key, from: u8) -> [Connection; 2] {
    let port = listening.local_addresses()[0].port();
    let route = Route::to((address(1), port).into()).from(address(from));
    let tls = Arc::new(client(&Key::generate(), key));
    let connecting = endpoint.connect(vec![route], &tls, Options::default());
    let (near, far) = tokio::join!(connecting, listening.accept());
    [near.expect("the handshake is no question of number"), far.expect("it listens")]
}

async fn is_crowded_out(connection: &Connection) {
    let ended = timeout(Duration::from_secs(5), connection.ended()).await;
    assert_eq!(ended.expect("it is told"), ConnectionError::ClosedByPeer { code: 0x111 });
}

#[test]
fn one_connection_too_many_is_closed() {
    run(async {
        let rations = Rations { strangers: 2, admitted: 1, ..Rations::default() };
        let (listening, key) = listen(&Listening { rations, ..anywhere() }, Options::default());
        let endpoint = Endpoint::new().expect("there are threads");
        let [welcome, far] = crowd(&endpoint, &listening, &key, 100).await;
        far.admit(Bytes::mib(1));
        let first = crowd(&endpoint, &listening, &key, 101).await;
        let _second = crowd(&endpoint, &listening, &key, 101).await;
        let third = crowd(&endpoint, &listening, &key, 101).await;
        is_crowded_out(&first[0]).await;
        // Another peer, that has as many as the first: none has more than it would.
        third[1].admit(Bytes::mib(1));
        is_crowded_out(&third[0]).await;
        assert!(!welcome.has_ended(), "what was admitted has a place of its own");
    });
}

#[test]
fn keys_are_updated_underway() {
    run(async {
        let pair = pair(2, Options::default()).await;
        let mut stream = pair.near.open_stream().await.expect("it is open");
        let sent = content(6_000_000);
        let write = async {
            for part in sent.chunks(2_000_000) {
                stream.write_all(part).await.expect("it is open");
                sleep(Duration::from_millis(1_500)).await;
                pair.near.update_keys();
            }
            stream.shutdown().await.expect("it is open");
        };
        let read = async {
            let mut far = pair.far.accept_stream().await.expect("it is opened");
            let mut arrived = Vec::new();
            far.read_to_end(&mut arrived).await.expect("it is whole");
            arrived
        };
        let ((), arrived) = tokio::join!(write, read);
        assert!(arrived == sent);
        let stats = pair.near.stats().await;
        assert!(stats.key_updates >= 2, "{}", stats.key_updates);
    });
}

/// A translator may have given it another address: it would hear nothing more, and say nothing.
#[test]
fn the_side_that_listens_asks_for_a_sign_of_life_behind_data() {
    run(async {
        let pair = pair(2, Options::default()).await;
        let asked = async || -> Vec<u64> {
            pair.far.stats().await.routes.iter().map(|route| route.packets).collect()
        };
        // Until the sizes of the paths are known: nobody has anything to say.
        let mut before = asked().await;
        loop {
            sleep(Duration::from_secs(1)).await;
            let now = asked().await;
            if std::mem::replace(&mut before, now.clone()) == now {
                break;
            }
        }
        pair.near.send_datagram(vec![1]).unwrap();
        pair.far.receive_datagram().await.unwrap();
        // Over all routes, whichever it came over.
        while asked().await.iter().zip(&before).any(|(now, before)| now <= before) {
            sleep(Duration::from_millis(50)).await;
        }
        // The answer to that is no news: neither side goes on asking the other.
        let before = pair.near.stats().await.routes.iter().map(|route| route.packets).sum::<u64>();
        sleep(Duration::from_secs(3)).await;
        let after = pair.near.stats().await.routes.iter().map(|route| route.packets).sum::<u64>();
        assert!(after <= before + 1, "{after} after {before}");
    });
}
