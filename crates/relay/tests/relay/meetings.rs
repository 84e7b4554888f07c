//! Hosts that wait at a relay on loopback, their guests, and codes.

use std::sync::Arc;
use std::time::Duration;

use events::{Event, Events, Subscription};
use peer::carrier::{Listener, Stream};
use peer::host::{Hosting, Meetings, Services, serve_at};
use peer::tls::{ClientTls, ServerTls};
use peer::{Conn, Credential, Identity, ListenOptions, Remote, Token};
use relay::bounds::{GUESTS_EACH, KNOCKS_EACH};
use relay::meeting::{Code, Invited, Meeting};
use relay::{Client, ClientOptions, ClientState, WaitState, calls};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use wire::meet::{Knock, Place};
use wire::relay::{RelayFrame, SERVICE};
use wire::session::{AbortCode, Hello, SessionFrame, VERSION, Welcome};

use super::common::{Relay, destination, entry, identity};
use super::{LOOPBACK, PATIENCE, run, wish};

/// A host that waits at a relay.
pub(super) struct Met {
    own: Identity,
    pub(super) token: Token,
    meeting: Arc<Meeting>,
    pub(super) heard: Subscription,
}

impl Met {
    pub(super) fn at(relay: &Relay, own: &Identity) -> Met {
        Met::with(relay, own, Token::generate(own).unwrap())
    }

    fn with(relay: &Relay, own: &Identity, token: Token) -> Met {
        let (events, heard) = Events::observed();
        let known = Credential::Pinned(relay.key.fingerprint());
        let options = ClientOptions::new(Remote::from(relay.address), known, own.clone());
        let meeting =
            Meeting::start(vec![options], Invited::HolderOrCode(&token), &events).unwrap();
        Met { own: own.clone(), token, meeting, heard }
    }

    /// The next code, and the relay as the command has it.
    pub(super) async fn code(&mut self) -> (String, Code) {
        loop {
            let heard = timeout(PATIENCE, self.heard.recv()).await.expect("a code is shown");
            if let Some(Event::Meeting { via, code: Some(code) }) = heard {
                return (via, code.parse().unwrap());
            }
        }
    }

    /// What accepts connections of guests.
    fn listener(&self) -> Box<dyn Listener> {
        self.meeting.listeners(7_707).pop().expect("there is one relay")
    }

    /// Serves codes, at the listener too.
    pub(super) fn serve(&self, listener: Option<Box<dyn Listener>>) -> Hosting {
        let mut listeners = self.meeting.listeners(7_707);
        listeners.extend(listener);
        let options = ListenOptions {
            token: Some(self.token.clone()),
            ..ListenOptions::new(self.own.clone())
        };
        let services = self.meeting.joins(Services::new());
        serve_at(listeners, services, options, Events::new()).unwrap()
    }

    fn guest(&self, relay: &Relay) -> Arc<Client> {
        guest(relay, &self.token)
    }
}

fn guest(relay: &Relay, token: &Token) -> Arc<Client> {
    let (dial, key) = (Remote::from(relay.address), relay.key.fingerprint());
    Client::start(ClientOptions::guest(dial, key, identity(), token)).unwrap()
}

/// Opens a connection as a guest, which knows no address of the host, and accepts it there.
async fn meet(
    relay: &Relay,
    guest: &Arc<Client>,
    listener: &mut Box<dyn Listener>,
) -> (Box<dyn Stream>, Box<dyn Stream>) {
    let (_, nobody) = destination().await;
    let near = guest.open(&relay.attempt(), &nobody).await.unwrap();
    let accepted = timeout(PATIENCE, listener.accept()).await.expect("the guest comes");
    (near, accepted.unwrap().0)
}

/// One side says something, and the other hears it.
async fn pass(from: &dyn Stream, to: &dyn Stream, words: &[u8]) {
    std::future::poll_fn(|cx| from.poll_write_ready(cx)).await.unwrap();
    assert_eq!(from.try_write(&[std::io::IoSlice::new(words)]).unwrap(), words.len());
    let mut heard = Vec::new();
    while heard.len() < words.len() {
        std::future::poll_fn(|cx| to.poll_read_ready(cx)).await.unwrap();
        let mut buffer = [0; 64];
        match to.try_read(&mut buffer) {
            Ok(0) => panic!("it has ended"),
            Ok(length) => heard.extend_from_slice(&buffer[..length]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    assert_eq!(heard, words);
}

/// Until the host waits at the relay.
async fn until_waiting(met: &mut Met) {
    met.code().await;
}

pub(super) async fn waiting(relay_of: &[&Identity]) -> Relay {
    Relay::start(relay_of.iter().map(|own| entry(own, LOOPBACK, &[])).collect()).await
}

/// Knocks with a control connection of its own: what it is answered.
pub(super) async fn knock(relay: &Relay, own: &Identity, knock: Knock) -> Result<Conn, String> {
    let stream = TcpStream::connect(relay.address).await.unwrap();
    let tls = ClientTls::new(own, relay.key.fingerprint()).unwrap();
    let mut conn = Conn::new(Box::new(stream), tls.connection().unwrap());
    conn.handshake().await.unwrap();
    let hello = Hello::new(SERVICE, None, [0; 16]).asking(knock.request());
    conn.push(&SessionFrame::Hello(hello));
    conn.push(&SessionFrame::Pong(0));
    conn.flush().await.unwrap();
    let answer = conn.receive(|frame| match SessionFrame::try_from(frame)? {
        SessionFrame::Welcome(_) => Ok(Ok(())),
        SessionFrame::Abort(_, why) => Ok(Err(why)),
        other => panic!("{other:?}"),
    });
    answer.await.unwrap().map(|()| conn)
}

#[test]
fn who_holds_the_token_reaches_a_host_that_can_only_dial_out() {
    run(async {
        let own = identity();
        let relay = waiting(&[&own]).await;
        let mut met = Met::at(&relay, &own);
        let mut listener = met.listener();
        until_waiting(&mut met).await;
        let guest = met.guest(&relay);
        for _ in 0..3 {
            let (near, far) = meet(&relay, &guest, &mut listener).await;
            pass(&*near, &*far, b"hello").await;
            pass(&*far, &*near, b"HELLO").await;
            assert_eq!(far.local_addr().unwrap().port(), 7_707, "where the host listens");
        }
        let figures = relay.service.figures();
        assert_eq!((figures[0].fingerprint, figures[0].opened), (own.fingerprint(), 3));
        assert_eq!(figures.len(), 1, "what guests move is their host's");
    });
}

/// Of another token, and with one of the relay's own strangers.
#[test]
fn who_has_no_invitation_is_no_guest() {
    run(async {
        let own = identity();
        let relay = waiting(&[&own]).await;
        let mut met = Met::at(&relay, &own);
        until_waiting(&mut met).await;
        let stranger = guest(&relay, &Token::generate(&own).unwrap());
        let (_, target) = destination().await;
        let refused = stranger.open(&relay.attempt(), &target).await.err().unwrap();
        assert!(refused.to_string().contains("no host waits"), "{refused}");
        assert!(matches!(stranger.state(), ClientState::Refused(_)));
        let why = knock(&relay, &identity(), Knock::Invitation([0; 32])).await.err().unwrap();
        assert!(why.contains("no host waits at this relay with that token"), "{why}");
    });
}

#[test]
fn a_guest_reaches_nothing_but_its_host_and_waits_nowhere() {
    run(async {
        let own = identity();
        let relay = waiting(&[&own]).await;
        let mut met = Met::at(&relay, &own);
        let mut host = met.listener();
        until_waiting(&mut met).await;
        let guest = met.guest(&relay);
        let (listener, target) = destination().await;
        let near = guest.open(&relay.attempt(), &target).await.unwrap();
        let far = timeout(PATIENCE, host.accept()).await.unwrap().unwrap().0;
        pass(&*near, &*far, b"hello").await;
        assert!(timeout(Duration::from_millis(100), listener.accept()).await.is_err());
        let mut conn = knock(&relay, &identity(), Knock::Invitation(met.token.invitation()))
            .await
            .expect("it is invited");
        conn.push(&RelayFrame::Register(1, Place::Nameplate(1)));
        // Where its datagrams go: `guests_have_datagrams_with_their_host_alone`.
        conn.push(&RelayFrame::Associate(2, target.clone()));
        conn.flush().await.unwrap();
        for expected in ["nobody may wait", "no UDP side"] {
            let denied = conn.receive(|frame| match RelayFrame::try_from(frame)? {
                RelayFrame::Unregistered(1, why) | RelayFrame::Dissociated(2, why) => Ok(why.text),
                other => panic!("{other:?}"),
            });
            let denied = denied.await.unwrap();
            assert!(denied.contains(expected), "{denied}");
        }
    });
}

#[test]
fn a_relay_without_guests_lets_nobody_wait() {
    run(async {
        let own = identity();
        let peers = vec![entry(&own, LOOPBACK, &[])];
        let relay = Relay::without_guests(peers).await;
        let client = relay.client(&own);
        let (call, _called) = calls();
        let mut place = client.wait_at(Place::Nameplate(7), &call);
        let settled = place.state.wait_for(|state| *state != WaitState::Asking);
        let settled = timeout(PATIENCE, settled).await.unwrap().unwrap().clone();
        assert!(matches!(settled, WaitState::Denied(_)), "{settled:?}");
        let why = knock(&relay, &identity(), Knock::Nameplate(7)).await.err().unwrap();
        assert!(why.contains("takes no guests"), "{why}");
    });
}

/// An enrolled host names the place of another one; that one comes back with another connection.
#[test]
fn a_place_is_that_of_the_host_that_came_first() {
    run(async {
        let (own, other) = (identity(), identity());
        let relay = waiting(&[&own, &other]).await;
        let (call, _called) = calls();
        let place = Place::Invited([7; 32]);
        let settled = |client: Arc<Client>| {
            let mut waits = client.wait_at(place, &call);
            async move {
                let state = waits.state.wait_for(|state| *state != WaitState::Asking);
                let state = timeout(PATIENCE, state).await.unwrap().unwrap().clone();
                (state, waits)
            }
        };
        let first = settled(relay.client(&own)).await;
        assert_eq!(first.0, WaitState::Waiting);
        let second = settled(relay.client(&other)).await;
        assert!(matches!(second.0, WaitState::Denied(_)), "{:?}", second.0);
        let again = settled(relay.client(&own)).await;
        assert_eq!(again.0, WaitState::Waiting, "it is its own");
        drop((first, again));
    });
}

#[test]
fn a_relay_that_comes_back_is_waited_at_again() {
    run(async {
        let own = identity();
        let peers = || vec![entry(&own, LOOPBACK, &[])];
        let relay = waiting(&[&own]).await;
        let mut met = Met::at(&relay, &own);
        let mut listener = met.listener();
        until_waiting(&mut met).await;
        let guest = met.guest(&relay);
        let (near, far) = meet(&relay, &guest, &mut listener).await;
        pass(&*near, &*far, b"hello").await;
        let (key, port) = (relay.key.clone(), relay.address.port());
        drop((relay, near, far));
        let relay = Relay::with(key, port, peers(), None, (None, None)).await;
        let (near, far) = loop {
            let (_, nobody) = destination().await;
            if let Ok(near) = guest.open(&relay.attempt(), &nobody).await
                && let Ok(accepted) = timeout(Duration::from_secs(1), listener.accept()).await
            {
                break (near, accepted.unwrap().0);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        pass(&*near, &*far, b"again").await;
    });
}

#[test]
fn a_host_has_so_many_guests_and_no_more() {
    run(async {
        let (own, other) = (identity(), identity());
        let relay = waiting(&[&own, &other]).await;
        let (mut met, mut second) = (Met::at(&relay, &own), Met::at(&relay, &other));
        until_waiting(&mut met).await;
        until_waiting(&mut second).await;
        let mut guests = Vec::new();
        let invitation = Knock::Invitation(met.token.invitation());
        for _ in 0..GUESTS_EACH {
            let mut conn = knock(&relay, &identity(), invitation).await.expect("it is invited");
            let (_, target) = destination().await;
            wish(&mut conn, &target, 1).await.expect("a ticket");
            guests.push(conn);
        }
        let mut one_more = knock(&relay, &identity(), invitation).await.expect("it is invited");
        let refused = one_more.receive(|frame| match SessionFrame::try_from(frame)? {
            SessionFrame::Abort(AbortCode::Crowded, why) => Ok(why),
            other => panic!("{other:?}"),
        });
        assert!(refused.await.unwrap().contains("as many guests"));
        let invitation = Knock::Invitation(second.token.invitation());
        let mut of_another = knock(&relay, &identity(), invitation).await.expect("it is invited");
        let (_, target) = destination().await;
        wish(&mut of_another, &target, 1).await.expect("another host has its own");
    });
}

#[test]
fn a_sweep_of_nameplates_is_slow_and_costs_no_invitation() {
    run(async {
        let own = identity();
        let relay = waiting(&[&own]).await;
        let mut met = Met::at(&relay, &own);
        let mut listener = met.listener();
        let (_, code) = met.code().await;
        let wrong = (code.nameplate() + 1) % 100_000;
        for attempt in 0..KNOCKS_EACH + 20 {
            let why = knock(&relay, &identity(), Knock::Nameplate(wrong)).await.err().unwrap();
            let is_let_through = why.contains("no host waits at this relay with that code");
            assert_eq!(is_let_through, attempt < KNOCKS_EACH, "{why}");
        }
        let late = knock(&relay, &identity(), Knock::Nameplate(code.nameplate())).await;
        assert!(late.err().unwrap().contains("too many codes"));
        let guest = met.guest(&relay);
        let (near, far) = meet(&relay, &guest, &mut listener).await;
        pass(&*near, &*far, b"hello").await;
    });
}

/// Both are enrolled, and the host has no token; who is not, or names another key, does not find
/// it.
#[test]
fn hosts_that_may_use_the_relay_find_each_other_by_key() {
    run(async {
        let (own, other, stranger) = (identity(), identity(), identity());
        let relay = waiting(&[&own, &other]).await;
        let known = || Credential::Pinned(relay.key.fingerprint());
        let dial = Remote::from(relay.address);
        let options = ClientOptions::new(dial.clone(), known(), own.clone());
        let (events, mut heard) = Events::observed();
        let meeting = Meeting::start(vec![options], Invited::Nobody, &events).unwrap();
        let mut listener = meeting.listeners(7_707).pop().expect("there is one relay");
        while !matches!(heard.recv().await, Some(Event::Meeting { code: None, .. })) {}
        let to = |from: &Identity, host: &Identity| {
            let host = host.fingerprint();
            let options = ClientOptions::meeting(dial.clone(), known(), from.clone(), host);
            Client::start(options).unwrap()
        };
        let (near, far) = meet(&relay, &to(&other, &own), &mut listener).await;
        pass(&*near, &*far, b"hello").await;
        let (_, target) = destination().await;
        for (from, host, why) in [
            (&stranger, &own, "may not use this relay"),
            (&other, &stranger, "no host waits at this relay with that key"),
        ] {
            let refused = to(from, host).open(&relay.attempt(), &target).await.err().unwrap();
            assert!(refused.to_string().contains(why), "{refused}");
        }
        let (call, _called) = calls();
        let of_another = Place::Key(*own.fingerprint().as_bytes());
        let mut place = relay.client(&other).wait_at(of_another, &call);
        let settled = place.state.wait_for(|state| *state != WaitState::Asking);
        let settled = timeout(PATIENCE, settled).await.unwrap().unwrap().clone();
        assert!(matches!(settled, WaitState::Denied(_)), "{settled:?}");
    });
}

/// It ends the control connection over a frame that it does not know.
#[test]
fn a_relay_of_an_earlier_version_is_said_to_be_one() {
    run(async {
        let (own, older) = (identity(), identity());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dial = Remote::from(listener.local_addr().unwrap());
        let known = Credential::Pinned(older.fingerprint());
        let client = Client::start(ClientOptions::new(dial, known, own)).unwrap();
        let (call, _called) = calls();
        let mut place = client.wait_at(Place::Nameplate(7), &call);
        let serving = async {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let tls = ServerTls::new(&older).unwrap().connection().unwrap();
                let mut conn = Conn::new(Box::new(stream), tls);
                conn.handshake().await.unwrap();
                let welcome = Welcome { version: VERSION, session: [0; 16], addresses: Vec::new() };
                conn.push(&SessionFrame::Welcome(welcome));
                conn.flush().await.unwrap();
                let mut is_known = true;
                while is_known {
                    let name = conn.receive(|frame| Ok(frame.name())).await;
                    is_known = name.is_ok_and(|name| name != "Register");
                }
                let text = "frame kind 60 is unknown".to_string();
                conn.push(&SessionFrame::Abort(AbortCode::Protocol, text));
                let _ = conn.flush().await;
            }
        };
        let settled = tokio::select! {
            settled = place.state.wait_for(|state| *state != WaitState::Asking) => {
                settled.unwrap().clone()
            }
            () = serving => unreachable!("it goes on"),
        };
        let WaitState::Denied(why) = settled else { panic!("{settled:?}") };
        assert!(why.text.contains("earlier version"), "{why}");
    });
}
