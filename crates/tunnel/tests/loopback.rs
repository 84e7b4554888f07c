//! Connections through both sides of a tunnel on loopback: ends, resets, refusals, restarts.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use common::{Far, FarOptions, Told, entry, near, run, socks, target, through, with_tunnel};
use peer::tls::ClientTls;
use peer::{AuthorizedPeers, Identity, Token};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tunnel::bounds::{MOST_CONNECTIONS, stripe_options};
use tunnel::{Forward, NearOptions, Place, TunnelError, TunnelRights, parse_target};
use wire::session::VERSION;
use wire::tunnel::{Answer, Code};

const LOCAL: (&str, &str) = ("127.0.0.1:*", "*");

/// Closes a connection with a reset.
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

fn identity() -> Identity {
    Identity::generate().unwrap()
}

fn forward(port: u16, to: &str) -> Forward {
    Forward { place: Place::Loopback(port), target: parse_target(to).unwrap() }
}

fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13).to_le_bytes()[0]).collect()
}

#[test]
fn bytes_pass_in_both_directions_and_each_may_end_first() {
    run(with_tunnel(LOCAL, socks(), async |told, _| {
        let proxy = told.address("SOCKS").await;
        let (server, port) = target().await;
        let sent = content(3_000_000);
        // The client ends first.
        let (code, mut client) = through(proxy, "127.0.0.1", port).await;
        assert_eq!(code, 0);
        let (mut inner, _) = server.accept().await.unwrap();
        let writing = async {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let echoing = async {
            let mut arrived = Vec::new();
            inner.read_to_end(&mut arrived).await.unwrap();
            inner.write_all(&arrived).await.unwrap();
            drop(inner);
            arrived
        };
        let (answer, arrived) = tokio::join!(writing, echoing);
        assert!(arrived == sent && answer == sent);
        // The server ends first.
        let (_, mut client) = through(proxy, "127.0.0.1", port).await;
        let (mut inner, _) = server.accept().await.unwrap();
        inner.write_all(b"banner").await.unwrap();
        inner.shutdown().await.unwrap();
        let mut banner = String::new();
        client.read_to_string(&mut banner).await.unwrap();
        assert_eq!(banner, "banner");
        client.write_all(b"still").await.unwrap();
        client.shutdown().await.unwrap();
        let mut rest = String::new();
        inner.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "still");
    }));
}

#[test]
fn resets_pass_in_both_directions() {
    run(with_tunnel(LOCAL, socks(), async |told, _| {
        let proxy = told.address("SOCKS").await;
        let (server, port) = target().await;
        for half_closed in [false, true] {
            for by_client in [false, true] {
                let (_, mut client) = through(proxy, "127.0.0.1", port).await;
                let (mut inner, _) = server.accept().await.unwrap();
                client.write_all(b"x").await.unwrap();
                inner.write_all(b"y").await.unwrap();
                let mut octet = [0];
                client.read_exact(&mut octet).await.unwrap();
                inner.read_exact(&mut octet).await.unwrap();
                let (mut one, mut other) =
                    if by_client { (client, inner) } else { (inner, client) };
                if half_closed {
                    one.shutdown().await.unwrap();
                    assert_eq!(other.read(&mut octet).await.unwrap(), 0);
                    // Unread data makes the end a reset.
                    other.write_all(b"unread").await.unwrap();
                    sleep(Duration::from_millis(50)).await;
                }
                reset(one);
                let failed = if half_closed {
                    other.ready(tokio::io::Interest::ERROR).await.unwrap();
                    other.take_error().unwrap().expect("a reset")
                } else {
                    other.read(&mut octet).await.expect_err("a reset")
                };
                // The latter is the kernel's for a direction that had ended before.
                let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                assert!(kinds.contains(&failed.kind()), "{by_client} {half_closed}: {failed}");
            }
        }
    }));
}

/// Clients that say nothing are more than there may be connections: neither they nor those that
/// were let in before them keep out another.
#[test]
fn silent_clients_of_a_proxy_leave_others_their_places() {
    let mut options = NearOptions { http: vec![Place::Loopback(0)], ..socks() };
    options.login = Some("anna:secret".parse().unwrap());
    run(with_tunnel(LOCAL, options, async |told, _| {
        let (socks, http) = (told.address("SOCKS").await, told.address("HTTP").await);
        let (server, port) = target().await;
        let mut silent = Vec::new();
        for number in 0..MOST_CONNECTIONS + 200 {
            silent.push(TcpStream::connect([socks, http][number % 2]).await.unwrap());
        }
        let request = format!(
            "CONNECT 127.0.0.1:{port} HTTP/1.1\r\nProxy-Authorization: Basic \
             YW5uYTpzZWNyZXQ=\r\n\r\n"
        );
        let mut client = TcpStream::connect(http).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        drop(server.accept().await.unwrap());
        // The first ones have given way, the last ones are still waited for.
        let mut octet = [0];
        assert!(silent[0].read(&mut octet).await.is_ok_and(|read| read == 0));
        let last = silent.last_mut().unwrap();
        assert!(timeout(Duration::from_millis(50), last.read(&mut octet)).await.is_err());
    }));
}

#[test]
fn slow_readers_hold_their_senders_up_and_no_others() {
    run(with_tunnel(LOCAL, socks(), async |told, _| {
        let proxy = told.address("SOCKS").await;
        let (server, port) = target().await;
        let mut held = Vec::new();
        let mut writers = tokio::task::JoinSet::new();
        // More than would fill the buffer, with the window that each of a few gets.
        for _ in 0..60 {
            let (_, mut slow) = through(proxy, "127.0.0.1", port).await;
            held.push(server.accept().await.unwrap());
            writers.spawn(async move {
                let chunk = vec![1; 1 << 20];
                for _ in 0..64 {
                    slow.write_all(&chunk).await.unwrap();
                }
            });
        }
        sleep(Duration::from_secs(3)).await;
        assert!(writers.try_join_next().is_none(), "64 MiB without a reader");
        let (_, mut other) = through(proxy, "127.0.0.1", port).await;
        let (mut inner, _) = server.accept().await.unwrap();
        let sent = content(2_000_000);
        let writing = async {
            other.write_all(&sent).await.unwrap();
            other.shutdown().await.unwrap();
        };
        let mut arrived = Vec::new();
        let (read, ()) = tokio::join!(inner.read_to_end(&mut arrived), writing);
        read.unwrap();
        assert!(arrived == sent);
    }));
}

#[test]
fn a_client_is_told_why_there_is_no_connection() {
    run(with_tunnel(("127.0.0.1:*,*:80", ""), socks(), async |told, _| {
        let proxy = told.address("SOCKS").await;
        let (server, port) = target().await;
        drop(server);
        assert_eq!(through(proxy, "127.0.0.1", port).await.0, 5, "refused");
        assert_eq!(through(proxy, "192.0.2.7", 81).await.0, 2, "forbidden");
        assert_eq!(through(proxy, "127.0.0.2", 80).await.0, 2, "protected");
        assert_eq!(through(proxy, "no-such-host.invalid", 80).await.0, 4, "unresolved");
        let (_, mut client) = through(proxy, "192.0.2.7", 81).await;
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "the end follows");
    }));
}

#[test]
fn a_forwarded_port_needs_no_words() {
    run(async {
        let (server, port) = target().await;
        let forwards = vec![forward(0, &format!("127.0.0.1:{port}")), forward(0, "192.0.2.7:81")];
        let options = NearOptions { forwards, ..NearOptions::default() };
        with_tunnel(LOCAL, options, async |told, _| {
            let at = told.address("forward").await;
            // Whoever speaks first: the server here, the client below.
            let mut client = TcpStream::connect(at).await.unwrap();
            let (mut inner, _) = server.accept().await.unwrap();
            inner.write_all(b"banner").await.unwrap();
            let mut text = [0; 6];
            client.read_exact(&mut text).await.unwrap();
            client.write_all(b"answer").await.unwrap();
            inner.read_exact(&mut text).await.unwrap();
            assert_eq!(&text, b"answer");
            let refused = told
                .until(|report| match report {
                    events::Event::Accepting { address, .. } => Some(address.clone())
                        .filter(|address| !address.starts_with('[') && *address != at.to_string()),
                    _ => None,
                })
                .await;
            let mut client = TcpStream::connect(refused).await.unwrap();
            let failed = client.read(&mut text).await.expect_err("it is not permitted");
            assert_eq!(failed.kind(), ErrorKind::ConnectionReset);
        })
        .await;
    });
}

#[test]
fn a_port_at_the_far_side_leads_here() {
    run(async {
        let (server, port) = target().await;
        let reverse = vec![
            forward(0, &format!("127.0.0.1:{port}")),
            Forward { place: Place::Everywhere(0), target: parse_target("a:1").unwrap() },
        ];
        let options = NearOptions { reverse, ..NearOptions::default() };
        with_tunnel(LOCAL, options, async |told, _| {
            let at = told.address("the far side").await;
            let mut client = TcpStream::connect(at).await.unwrap();
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let (mut inner, _) = server.accept().await.unwrap();
            let mut text = String::new();
            inner.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "question");
            inner.write_all(b"answer").await.unwrap();
            drop(inner);
            let mut text = String::new();
            client.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "answer");
            let told = told.notice("-R *:0:a:1").await;
            assert!(told.contains("may not be asked to listen"), "{told}");
        })
        .await;
    });
}

#[test]
fn a_unix_socket_is_its_owners_and_goes_with_the_tunnel() {
    use std::os::unix::fs::PermissionsExt;
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy");
        let options =
            NearOptions { socks: vec![Place::Unix(path.clone())], ..NearOptions::default() };
        with_tunnel(LOCAL, options, async |_, _| {
            let (server, port) = target().await;
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let mut client = tokio::net::UnixStream::connect(&path).await.unwrap();
            let request = [&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat();
            client.write_all(&request).await.unwrap();
            let (mut inner, _) = server.accept().await.unwrap();
            inner.write_all(b"banner").await.unwrap();
            let mut answer = [0; 18];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer[12..], b"banner");
        })
        .await;
    });
}

#[test]
fn a_restarted_far_side_is_found_again() {
    run(async {
        let (own, key) = (identity(), identity());
        let options =
            || FarOptions { authorized: entry(&own, "127.0.0.1:*", ""), ..FarOptions::default() };
        let far = Far::at(0, key.clone(), options());
        let address = far.address();
        let told = Told::default();
        let (server, port) = target().await;
        let test = async {
            let client = {
                let serving = far.serve();
                tokio::pin!(serving);
                let using = async {
                    let proxy = told.address("SOCKS").await;
                    let (code, client) = through(proxy, "127.0.0.1", port).await;
                    assert_eq!(code, 0);
                    client
                };
                tokio::select! { () = &mut serving => panic!(), client = using => client }
            };
            // The endpoint's connections are closed with it.
            let mut client = client;
            let failed = client.read(&mut [0]).await.expect_err("it is reset");
            assert_eq!(failed.kind(), ErrorKind::ConnectionReset);
            told.notice("no tunnel").await;
            let again = Far::soon_at(address.port(), key.clone(), options).await;
            let using = async {
                let proxy = told.address("SOCKS").await;
                let (code, mut client) = through(proxy, "127.0.0.1", port).await;
                assert_eq!(code, 0);
                let _first = server.accept().await.unwrap();
                let (mut inner, _) = server.accept().await.unwrap();
                inner.write_all(b"again").await.unwrap();
                let mut text = [0; 5];
                client.read_exact(&mut text).await.unwrap();
                assert_eq!(&text, b"again");
            };
            tokio::select! { () = again.serve() => panic!(), () = using => {} }
        };
        tokio::select! {
            ended = near(&own, (address, &key), socks(), &told) => panic!("{ended:?}"),
            () = test => {}
        }
        assert_eq!(told.count("connected"), 2);
    });
}

#[test]
fn strangers_and_wrong_tokens_are_refused_and_a_token_has_one_holder() {
    run(async {
        let token = Token::generate(&Identity::generate().unwrap()).unwrap();
        let known = identity();
        let options = FarOptions {
            // Known for something else.
            authorized: entry(&known, "", ""),
            token: Some(token.clone()),
            of_token: TunnelRights {
                reach: "127.0.0.1:*".parse().unwrap(),
                ..TunnelRights::default()
            },
        };
        let key = identity();
        let far = Far::at(0, key.clone(), options);
        let (address, told, far_told) = (far.address(), Told::default(), far.told.clone());
        let at = |own: Identity, secret: Option<[u8; 16]>| {
            let (key, address) = (key.clone(), address);
            async move {
                let options = NearOptions { secret, ..socks() };
                match near(&own, (address, &key), options, &Told::default()).await {
                    Err(TunnelError::Peer(peer::Error::Refused { reason })) => reason,
                    other => panic!("{other:?}"),
                }
            }
        };
        let holder = identity();
        let test = async {
            for (own, secret, why) in [
                (identity(), None, "may reach nothing"),
                (known.clone(), None, "may reach nothing"),
                (identity(), Some([7; 16]), "not the one"),
            ] {
                let reason = at(own, secret).await;
                assert!(reason.contains(why), "{reason}");
            }
            let options = NearOptions { secret: Some(*token.secret()), ..socks() };
            let other = async {
                told.notice("connected").await;
                let reason = at(identity(), Some(*token.secret())).await;
                assert!(reason.contains("another host"), "{reason}");
                for why in ["no token that opens", "not the one that this", "is another host's"] {
                    let told = far_told.notice(why).await;
                    assert!(
                        told.starts_with("127.0.0.1") && told.contains("was refused"),
                        "{told}"
                    );
                }
                // Four, and then one more before they are rationed.
                for _ in 0..9 {
                    at(identity(), None).await;
                }
                assert_eq!(far_told.count("was refused"), 5);
                let (server, port) = target().await;
                let proxy = told.address("SOCKS").await;
                assert_eq!(through(proxy, "127.0.0.1", port).await.0, 0);
                drop(server);
            };
            tokio::select! {
                ended = near(&holder, (address, &key), options, &told) => panic!("{ended:?}"),
                () = other => {}
            }
        };
        tokio::select! { () = far.serve() => panic!(), () = test => {} }
    });
}

#[test]
fn a_peer_whose_rights_change_loses_its_connections() {
    run(async {
        let (own, key) = (identity(), identity());
        let authorized = entry(&own, "127.0.0.1:*", "");
        let far = Far::at(
            0,
            key.clone(),
            FarOptions { authorized: authorized.clone(), ..FarOptions::default() },
        );
        let (address, told) = (far.address(), Told::default());
        let (_server, port) = target().await;
        let test = async {
            let proxy = told.address("SOCKS").await;
            let (code, mut client) = through(proxy, "127.0.0.1", port).await;
            assert_eq!(code, 0);
            authorized.replace(entry(&own, "192.0.2.7:1", "").all());
            assert!(client.read(&mut [0]).await.is_err(), "it is reset");
            told.notice("no tunnel").await;
            let (code, _) = through(proxy, "127.0.0.1", port).await;
            assert_eq!(code, 2);
            authorized.replace(AuthorizedPeers::default().all());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = far.serve() => panic!(),
            () = test => panic!(),
            ended = near(&own, (address, &key), socks(), &told) => {
                assert!(matches!(ended, Err(TunnelError::Peer(peer::Error::Refused { .. }))));
            }
        }
    });
}

#[test]
fn a_peer_has_so_many_striped_connections_and_no_more() {
    run(async {
        let (own, key) = (identity(), identity());
        let authorized = entry(&own, "127.0.0.1:*", "");
        let far = Far::at(0, key.clone(), FarOptions { authorized, ..FarOptions::default() });
        let address = far.address();
        let told: Vec<Told> =
            (0..=tunnel::bounds::CONNECTIONS_EACH).map(|_| Told::default()).collect();
        let mut all = Vec::new();
        for (number, of_one) in told.iter().enumerate() {
            let before = number.checked_sub(1).map(|before| &told[before]);
            let (own, key) = (&own, &key);
            all.push(async move {
                // One that gives way before it has heard that it is let in does not come back.
                if let Some(before) = before {
                    before.notice("connected").await;
                }
                near(own, (address, key), socks(), of_one).await
            });
        }
        let test = async {
            for told in &told {
                told.notice("connected").await;
            }
            // One of them had to give way.
            tokio::select! {
                _ = told[0].notice("no tunnel") => {}
                _ = told[1].notice("no tunnel") => {}
                _ = told[2].notice("no tunnel") => {}
                _ = told[3].notice("no tunnel") => {}
                _ = told[4].notice("no tunnel") => {}
            }
        };
        let mut all = all.into_iter();
        let mut next = || all.next().unwrap();
        tokio::select! {
            () = far.serve() => panic!(),
            _ = next() => panic!(),
            _ = next() => panic!(),
            _ = next() => panic!(),
            _ = next() => panic!(),
            _ = next() => panic!(),
            () = test => {}
        }
    });
}

/// Up to version 6 a tunnel began with a message of its own, with a token's secret or without.
#[test]
fn a_near_side_of_the_version_before_is_told_so() {
    run(async {
        let (own, key) = (identity(), identity());
        let far = Far::at(0, key.clone(), FarOptions::default());
        let address = far.address();
        let test = async {
            for greeting in [vec![1, 0, 0, 0], [&[1, 0, 0, 16][..], &[7; 16]].concat()] {
                let endpoint = stripe::Endpoint::new().unwrap();
                let tls = ClientTls::new(&own, key.fingerprint()).unwrap();
                let routes = vec![stripe::Route::to(address)];
                let connected = endpoint.connect(routes, tls.config(), stripe_options()).await;
                let mut stream = connected.unwrap().open_stream().await.unwrap();
                stream.write_all(&greeting).await.unwrap();
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).await.unwrap();
                let answer = Answer::parse(&answer).unwrap();
                assert_eq!(answer.code, Code::Forbidden);
                let told =
                    format!("version {VERSION}, the one that dials version 6: install the same");
                assert!(answer.text.contains(&told), "{}", answer.text);
            }
        };
        tokio::select! { () = far.serve() => panic!(), () = test => {} }
    });
}
