//! Datagrams through a relay on loopback: associations, binds, bounds, rights.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peer::Conn;
use peer::host::{Entry, Service, Services, serve_at};
use stripe::{Arrivals, EcnCodepoint, Outgoing, UdpSocket};
use tokio::time::sleep;
use units::Time;
use wire::meet::{Knock, Place};
use wire::relay::{Associated, LabelPair};

use super::meetings::knock;
use super::*;

/// An association over a control connection, with a bound socket.
struct BoundHost {
    conn: Conn,
    socket: UdpSocket,
    relay: SocketAddr,
}

fn socket() -> UdpSocket {
    UdpSocket::listening(([127, 0, 0, 1], 0).into(), false).unwrap()
}

fn send(socket: &UdpSocket, to: SocketAddr, bytes: &[u8], ecn: Option<EcnCodepoint>) {
    let segment = bytes.len();
    let outgoing = Outgoing { to, source: None, ecn, is_lower_effort: false, bytes, segment };
    // A full buffer is no matter of these tests.
    let _ = socket.send(&outgoing);
}

/// What arrives next, from where, and its codepoint; `None`: nothing in a while.
async fn next(
    socket: &UdpSocket,
    patience: Duration,
) -> Option<(Vec<u8>, SocketAddr, Option<EcnCodepoint>)> {
    let mut arrivals = Arrivals::default();
    let begin = Instant::now();
    while begin.elapsed() < patience {
        arrivals.receive(socket);
        if let Some(arrived) = arrivals.drain().next() {
            let bytes = arrived.bytes[..arrived.segment.min(arrived.bytes.len())].to_vec();
            return Some((bytes, arrived.from, arrived.ecn));
        }
        sleep(Duration::from_millis(1)).await;
    }
    None
}

fn packet(label: u64, size: usize) -> Vec<u8> {
    let mut octets = content(size);
    octets[0] = 0x40;
    octets[1..9].copy_from_slice(&label.to_be_bytes());
    octets
}

fn pair(number: u64) -> LabelPair {
    LabelPair { to: 2 * number, from: 2 * number + 1 }
}

/// Says something on a control connection, and hears the answer.
async fn ask(conn: &mut Conn, frame: &RelayFrame<'_>) -> RelayFrame<'static> {
    conn.push(frame);
    conn.flush().await.unwrap();
    conn.receive(|frame| match RelayFrame::try_from(frame)? {
        RelayFrame::Associated(associated) => Ok(RelayFrame::Associated(associated)),
        RelayFrame::Dissociated(number, reason) => Ok(RelayFrame::Dissociated(number, reason)),
        RelayFrame::Labelled(number, count) => Ok(RelayFrame::Labelled(number, count)),
        RelayFrame::Registered(number) => Ok(RelayFrame::Registered(number)),
        other => panic!("{other:?}"),
    })
    .await
    .unwrap()
}

/// Associates a destination, registers pairs of labels and binds a socket.
async fn associate(
    relay: &Relay,
    own: &Identity,
    target: &Target,
    pairs: &[LabelPair],
) -> BoundHost {
    let conn = control(relay, own).await;
    bound(relay, conn, &RelayFrame::Associate(1, target.clone()), pairs).await
}

/// The same over a control connection that there is, by this wish.
async fn bound(
    relay: &Relay,
    mut conn: Conn,
    wish: &RelayFrame<'_>,
    pairs: &[LabelPair],
) -> BoundHost {
    let answer = ask(&mut conn, wish).await;
    let RelayFrame::Associated(Associated { number: 1, id, secret }) = answer else {
        panic!("{answer:?}")
    };
    if !pairs.is_empty() {
        let taken = ask(&mut conn, &RelayFrame::Labels(1, pairs.to_vec())).await;
        assert_eq!(taken, RelayFrame::Labelled(1, u32::try_from(pairs.len()).unwrap()));
    }
    let socket = socket();
    let mut binding = relay::Binding::begin(Time::ZERO, id, &secret, 0);
    while !binding.is_bound() {
        let asked = binding.poll_transmit(Time::ZERO).expect("it has something to ask");
        send(&socket, relay.address, &asked, None);
        let (answer, from, _) = next(&socket, PATIENCE).await.expect("it is answered");
        assert_eq!(from, relay.address);
        binding.handle_datagram(Time::ZERO, &answer);
    }
    BoundHost { conn, socket, relay: relay.address }
}

/// A relay that has a UDP side too.
async fn with_udp(peers: Vec<peer::Peer>, rate: Option<Rate>) -> Relay {
    let relay = Relay::with(identity(), 0, peers, None, (rate, None)).await;
    relay.service.open_udp(&[relay.address], relay.address.port()).unwrap();
    relay
}

#[test]
fn datagrams_pass_unchanged_with_their_marks_and_are_counted() {
    run(async {
        let own = identity();
        let relay = with_udp(vec![entry(&own, LOOPBACK, &[])], None).await;
        let far = socket();
        let target = Target::from(far.local());
        let near = associate(&relay, &own, &target, &[pair(5)]).await;
        for (size, ecn) in [
            (1_472, Some(EcnCodepoint::Ect0)),
            (60, Some(EcnCodepoint::Ce)),
            (9_000, Some(EcnCodepoint::Ect1)),
            (9, None),
        ] {
            let there = packet(10, size);
            send(&near.socket, near.relay, &there, ecn);
            let (heard, from, mark) = next(&far, PATIENCE).await.expect("it is passed on");
            assert_eq!((heard, mark), (there, ecn));
            assert_eq!(from, relay.address);
            let back = packet(11, size);
            send(&far, from, &back, ecn);
            let (heard, from, mark) = next(&near.socket, PATIENCE).await.expect("so is it");
            assert_eq!((heard, mark, from), (back, ecn, relay.address));
        }
        let figures = relay.service.figures();
        assert_eq!((figures[0].up, figures[0].down, figures[0].paths), (10_541, 10_541, 1));
    });
}

#[test]
fn strangers_and_destinations_that_are_not_permitted_get_nothing() {
    run(async {
        let own = identity();
        let permitted = socket();
        let targets = format!("127.0.0.1:{}", permitted.local().port());
        let relay = with_udp(vec![entry(&own, &targets, &[])], None).await;
        let near = associate(&relay, &own, &permitted.local().into(), &[pair(5)]).await;
        // Of a stranger, with the label that it saw; of the host, with a label that is none.
        let stranger = socket();
        send(&stranger, relay.address, &packet(10, 30), None);
        send(&stranger, relay.address, &packet(11, 1_200), None);
        send(&near.socket, relay.address, &packet(12, 1_200), None);
        send(&near.socket, relay.address, &packet(11, 1_200), None);
        send(&near.socket, relay.address, &[], None);
        send(&near.socket, relay.address, &packet(10, 100), None);
        let (heard, ..) = next(&permitted, PATIENCE).await.expect("the last one arrives");
        assert_eq!(heard.len(), 100);
        assert!(next(&stranger, Duration::from_millis(50)).await.is_none());
        let mut conn = near.conn;
        let elsewhere = socket();
        for (number, target) in [(2, elsewhere.local()), (3, ([224, 0, 0, 1], 7707).into())] {
            let answer = ask(&mut conn, &RelayFrame::Associate(number, target.into())).await;
            assert!(
                matches!(&answer, RelayFrame::Dissociated(of, why)
                    if *of == number && why.code == Code::Forbidden),
                "{answer:?}"
            );
        }
        let answer = ask(&mut conn, &RelayFrame::Labels(9, vec![pair(1)])).await;
        assert!(matches!(answer, RelayFrame::Dissociated(9, _)), "{answer:?}");
        // Labels that are another host's end the association that wants them.
        let answer = ask(&mut conn, &RelayFrame::Associate(1, permitted.local().into())).await;
        assert!(matches!(answer, RelayFrame::Dissociated(1, _)), "the number is in use");
    });
}

#[test]
fn a_key_that_is_removed_loses_its_associations_at_once() {
    run(async {
        let own = identity();
        let relay = with_udp(vec![entry(&own, LOOPBACK, &[])], None).await;
        let far = socket();
        let near = associate(&relay, &own, &far.local().into(), &[pair(5)]).await;
        send(&near.socket, near.relay, &packet(10, 100), None);
        assert!(next(&far, PATIENCE).await.is_some());
        relay.authorized.replace(vec![]);
        let begin = Instant::now();
        while relay.service.figures()[0].paths > 0 {
            assert!(begin.elapsed() < PATIENCE);
            sleep(Duration::from_millis(5)).await;
        }
        send(&near.socket, near.relay, &packet(10, 100), None);
        assert!(next(&far, Duration::from_millis(100)).await.is_none());
    });
}

#[test]
fn a_cap_that_is_used_up_ends_associations_with_that_reason() {
    run(async {
        let own = identity();
        let usage = tempfile::tempdir().unwrap();
        let cap = [(&relay::rights::RIGHTS[1], "1MB/month")];
        let peers = vec![entry(&own, LOOPBACK, &cap)];
        let relay = Relay::with(identity(), 0, peers, None, (None, Some(usage.path()))).await;
        relay.service.open_udp(&[relay.address], relay.address.port()).unwrap();
        let far = socket();
        let mut near = associate(&relay, &own, &far.local().into(), &[pair(5)]).await;
        send(&near.socket, near.relay, &packet(10, 100), None);
        let (_, from, _) = next(&far, PATIENCE).await.expect("it is passed on");
        let told = near.conn.receive(|frame| match RelayFrame::try_from(frame)? {
            RelayFrame::Dissociated(1, reason) => Ok(reason.text),
            other => panic!("{other:?}"),
        });
        let flooding = async {
            loop {
                // The destination answers, so that all passes.
                send(&far, from, &packet(11, 100), None);
                for _ in 0..20 {
                    send(&near.socket, near.relay, &packet(10, 1_200), None);
                }
                sleep(Duration::from_millis(2)).await;
            }
        };
        let why = tokio::select! {
            why = told => why.unwrap(),
            () = flooding => unreachable!("it never ends"),
        };
        assert!(why.contains("cap of 1.0 MB a month"), "{why}");
    });
}

#[test]
fn an_association_ends_when_it_is_retired() {
    run(async {
        let own = identity();
        let relay = with_udp(vec![entry(&own, LOOPBACK, &[])], None).await;
        let far = socket();
        let mut near = associate(&relay, &own, &far.local().into(), &[pair(5), pair(6)]).await;
        near.conn.push(&RelayFrame::Retire(1, vec![10]));
        let taken = ask(&mut near.conn, &RelayFrame::Labels(1, vec![pair(7)])).await;
        assert_eq!(taken, RelayFrame::Labelled(1, 3));
        send(&near.socket, near.relay, &packet(10, 100), None);
        send(&near.socket, near.relay, &packet(12, 101), None);
        assert_eq!(next(&far, PATIENCE).await.expect("of the other path").0.len(), 101);
        near.conn.push(&RelayFrame::Retire(1, vec![]));
        let answer = ask(&mut near.conn, &RelayFrame::Labels(1, vec![pair(8)])).await;
        assert!(matches!(answer, RelayFrame::Dissociated(1, _)), "{answer:?}");
        assert_eq!(relay.service.figures()[0].paths, 0);
    });
}

/// One key sends four times as much as the other; both send more than there is.
#[test]
fn a_rate_is_divided_among_keys_by_bytes() {
    run(async {
        let keys = [identity(), identity()];
        let peers = keys.iter().map(|own| entry(own, LOOPBACK, &[])).collect();
        let relay = with_udp(peers, Some(Rate::mbit(8))).await;
        let far = socket();
        let mut hosts = Vec::new();
        for (number, own) in (10..).zip(&keys) {
            hosts.push(associate(&relay, own, &far.local().into(), &[pair(number)]).await);
        }
        // The destination answers: what goes there is not few any more.
        for (host, label) in hosts.iter().zip([20, 22]) {
            send(&host.socket, host.relay, &packet(label, 100), None);
            next(&far, PATIENCE).await.expect("it arrives");
            send(&far, relay.address, &packet(label + 1, 100), None);
            next(&host.socket, PATIENCE).await.expect("so does the answer");
        }
        let mut arrived = [0_usize; 2];
        let mut arrivals = Arrivals::default();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            for _ in 0..16 {
                send(&hosts[0].socket, relay.address, &packet(20, 1_200), None);
            }
            for _ in 0..4 {
                send(&hosts[1].socket, relay.address, &packet(22, 1_200), None);
            }
            arrivals.receive(&far);
            for some in arrivals.drain() {
                for datagram in some.bytes.chunks(some.segment) {
                    let label = u64::from_be_bytes(*datagram[1..].first_chunk().unwrap());
                    arrived[usize::from(label == 22)] += datagram.len();
                }
            }
            sleep(Duration::from_millis(4)).await;
        }
        let [more, less] = arrived;
        assert!(5 * less > 4 * more && 4 * less < 5 * more, "{more} and {less} bytes");
        // What waits is bounded, and what has no room is lost.
        assert!(more + less < 2_600_000, "{more} and {less} bytes");
    });
}

/// A relay of a version before associations: it does not understand the frame.
struct OldRelay;

impl Service for OldRelay {
    type Session = std::convert::Infallible;
    type Grant = ();

    fn name(&self) -> &'static str {
        SERVICE
    }

    fn does(&self) -> &'static str {
        "relays"
    }

    fn find(
        &self,
        _: wire::session::SessionId,
        _: peer::Fingerprint,
    ) -> Option<std::convert::Infallible> {
        None
    }

    fn authorize(&self, _: &peer::host::Asking<'_>) -> Result<(), String> {
        Ok(())
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, entry: Entry<Self>, _: SocketAddr) {
        drop(entry);
        loop {
            let _ = conn.flush_to_reader().await;
            let heard = conn.receive(|frame| {
                Ok(matches!(RelayFrame::try_from(frame)?, RelayFrame::Associate(..)))
            });
            match heard.await {
                Ok(false) => {}
                Ok(true) => {
                    let text = "frame kind 52 is unknown".to_string();
                    let code = AbortCode::Protocol;
                    let _ = peer::listen::admission::refuse(&mut conn, code, text).await;
                    return;
                }
                Err(_) => return,
            }
        }
    }
}

#[test]
fn a_relay_of_an_older_version_is_asked_once_and_named() {
    run(async {
        let (key, own) = (identity(), identity());
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let options = peer::ListenOptions {
            authorized: peer::AuthorizedPeers::new(vec![entry(&own, LOOPBACK, &[])]),
            ..peer::ListenOptions::new(key.clone())
        };
        let services = Services::new().with(&Arc::new(OldRelay));
        let events = events::Events::new();
        let _hosting = serve_at(vec![Box::new(listener)], services, options, events).unwrap();
        let known = Credential::Pinned(key.fingerprint());
        let options = ClientOptions::new(peer::Remote::from(address), known, own);
        let dialing = relay::RelayDialing::new(options);
        let to: peer::Remote = "127.0.0.1:7707".parse().unwrap();
        let leading = peer::Relaying::leading(&dialing, &to).unwrap();
        let lead = leading.lead().unwrap();
        lead.0.handle_labels(&[pair(1)]);
        let why = loop {
            match lead.0.failure() {
                Some(why) if why.contains("TCP alone") => break why,
                _ => sleep(Duration::from_millis(5)).await,
            }
        };
        assert!(why.contains(&address.to_string()), "{why}");
        // The next control connection stays.
        sleep(Duration::from_millis(600)).await;
        assert!(lead.0.failure().is_some_and(|why| why.contains("TCP alone")));
        assert!(!lead.0.is_open() && lead.0.poll_transmit(Time::ZERO).is_none());
    });
}

#[test]
fn a_relay_without_a_udp_side_says_so() {
    run(async {
        let own = identity();
        let relay = Relay::start(vec![entry(&own, LOOPBACK, &[])]).await;
        let mut conn = control(&relay, &own).await;
        let target = Target::from(SocketAddr::from(([127, 0, 0, 1], 7707)));
        let answer = ask(&mut conn, &RelayFrame::Associate(1, target)).await;
        let RelayFrame::Dissociated(1, reason) = answer else { panic!("{answer:?}") };
        assert_eq!(reason.text, "it has no UDP side");
    });
}

#[test]
fn guests_have_datagrams_with_their_host_alone() {
    run(async {
        let own = identity();
        let relay = with_udp(vec![entry(&own, LOOPBACK, &[])], None).await;
        let invitation = [7; 32];
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &invitation);
        let place = Place::Invited(hash.as_ref().try_into().unwrap());
        let mut conn = control(&relay, &own).await;
        let registered = ask(&mut conn, &RelayFrame::Register(9, place)).await;
        assert_eq!(registered, RelayFrame::Registered(9));
        let mut host = bound(&relay, conn, &RelayFrame::Await(1), &[]).await;
        let again = ask(&mut host.conn, &RelayFrame::Await(2)).await;
        assert!(matches!(again, RelayFrame::Dissociated(2, _)), "one is enough");
        let guest = knock(&relay, &identity(), Knock::Invitation(invitation)).await.unwrap();
        let elsewhere = socket();
        let wish = RelayFrame::Associate(1, Target::from(elsewhere.local()));
        let mut guest = bound(&relay, guest, &wish, &[pair(5)]).await;
        for size in [1_200, 60] {
            let there = packet(10, size);
            send(&guest.socket, relay.address, &there, None);
            let (arrived, from, _) = next(&host.socket, PATIENCE).await.expect("it arrives");
            assert_eq!((arrived == there, from), (true, relay.address));
            let back = packet(11, size);
            send(&host.socket, relay.address, &back, None);
            let (arrived, from, _) = next(&guest.socket, PATIENCE).await.expect("it arrives");
            assert_eq!((arrived == back, from), (true, relay.address));
        }
        assert!(next(&elsewhere, Duration::from_millis(50)).await.is_none());
        // A guest waits for nobody.
        let refused = ask(&mut guest.conn, &RelayFrame::Await(3)).await;
        assert!(matches!(refused, RelayFrame::Dissociated(3, _)), "{refused:?}");
        // A code is for one connection.
        ask(&mut host.conn, &RelayFrame::Register(10, Place::Nameplate(12_345))).await;
        let mut by_code = knock(&relay, &identity(), Knock::Nameplate(12_345)).await.unwrap();
        let refused = ask(&mut by_code, &wish).await;
        assert!(matches!(refused, RelayFrame::Dissociated(1, _)), "{refused:?}");
        // A host that no longer wants to be met at the place has nothing more of it.
        host.conn.push(&RelayFrame::Withdraw(9));
        ask(&mut host.conn, &RelayFrame::Register(10, Place::Nameplate(12_345))).await;
        send(&guest.socket, relay.address, &packet(10, 60), None);
        assert!(next(&host.socket, Duration::from_millis(50)).await.is_none());
    });
}
