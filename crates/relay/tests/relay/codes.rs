//! Codes of hosts that wait at a relay on loopback.

use std::net::SocketAddr;

use events::Event;
use peer::tls::{ClientTls, ServerTls};
use peer::{Conn, Error, Identity, Remote};
use relay::meeting::{Code, TRIES, claim};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use wire::meet::{self, Knock};
use wire::relay::{Issued, RelayFrame};
use wire::session::{AbortCode, Hello, SessionFrame, VERSION, Welcome};

use super::common::{Relay, destination, identity};
use super::meetings::{Met, knock, waiting};
use super::{PATIENCE, run, wish};

/// With a nameplate there is one ticket.
#[test]
fn an_attempt_at_a_code_has_one_connection() {
    run(async {
        let own = identity();
        let relay = waiting(&[&own]).await;
        let mut met = Met::at(&relay, &own);
        let (_, code) = met.code().await;
        let mut conn =
            knock(&relay, &identity(), Knock::Nameplate(code.nameplate())).await.expect("it waits");
        let (_, target) = destination().await;
        assert_eq!(wish(&mut conn, &target, 8).await.map(|tickets| tickets.len()), Ok(1));
        let (_, why) = wish(&mut conn, &target, 1).await.unwrap_err();
        assert!(why.contains("one connection"), "{why}");
    });
}

#[test]
fn a_code_stands_for_the_token() {
    run(async {
        let own = identity();
        let relay = waiting(&[&own]).await;
        let mut met = Met::at(&relay, &own);
        let hosting = met.serve(None);
        let (via, code) = met.code().await;
        assert_eq!(via, format!("{},{}", relay.address, relay.key.fingerprint()));
        let (dial, guest) = (Remote::from(relay.address), identity());
        let claimed = claim(&dial, None, &guest, &code).await.unwrap();
        assert_eq!(claimed.token, met.token);
        assert_eq!(claimed.relay, relay.key.fingerprint());
        // Another host is late; the same one may come again.
        let late = claim(&dial, None, &identity(), &code).await.unwrap_err();
        assert!(late.to_string().contains("used by another host"), "{late}");
        let again = claim(&dial, Some(relay.key.fingerprint()), &guest, &code).await.unwrap();
        assert_eq!(again.token, met.token);
        drop(hosting);
    });
}

#[test]
fn after_three_wrong_guesses_there_is_a_new_code() {
    run(async {
        let own = identity();
        let relay = waiting(&[&own]).await;
        let mut met = Met::at(&relay, &own);
        let _hosting = met.serve(None);
        let (_, code) = met.code().await;
        let dial = Remote::from(relay.address);
        let wrong = wrong_words(&code);
        for left in (0..TRIES).rev() {
            let error = claim(&dial, None, &identity(), &wrong).await.unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{error}");
            let words = if left == 0 { "no longer good".into() } else { format!("{left} times") };
            assert!(error.to_string().contains(&words), "{error}");
        }
        let notice = loop {
            match timeout(PATIENCE, met.heard.recv()).await.expect("it is said") {
                Some(Event::Notice { text }) => break text,
                other => drop(other),
            }
        };
        assert!(notice.contains("wrong words were tried 3 times"), "{notice}");
        let (_, new) = met.code().await;
        assert_ne!(new, code);
    });
}

/// The same nameplate with other words.
fn wrong_words(code: &Code) -> Code {
    loop {
        let words = Code::generate().unwrap().reveal();
        let (_, words) = words.split_once('-').unwrap();
        let other: Code = format!("{:05}-{words}", code.nameplate()).parse().unwrap();
        if other != *code {
            return other;
        }
    }
}

/// Who stands in for the relay, with a key of its own, and passes everything on; and a relay whose
/// key is known.
#[test]
fn a_relay_with_another_key_is_named() {
    run(async {
        let own = identity();
        let relay = waiting(&[&own]).await;
        let mut met = Met::at(&relay, &own);
        let _hosting = met.serve(None);
        let (_, code) = met.code().await;
        let (rogue, between) = (identity(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let dial = Remote::from(between.local_addr().unwrap());
        let guest = identity();
        let claiming = claim(&dial, None, &guest, &code);
        let error = tokio::select! {
            claimed = claiming => claimed.unwrap_err(),
            () = stand_in(&relay, &rogue, between, &code) => unreachable!("it goes on"),
        };
        assert!(error.to_string().contains("somebody may be in between"), "{error}");
        let (dial, known) = (Remote::from(relay.address), identity().fingerprint());
        let error = claim(&dial, Some(known), &guest, &code).await.unwrap_err();
        assert!(matches!(error, Error::WrongPeer { .. }), "{error}");
        assert!(claim(&dial, None, &guest, &code).await.is_ok(), "nothing is lost");
    });
}

/// Answers a guest as the relay would, and hands its data connection on.
async fn stand_in(relay: &Relay, own: &Identity, listener: TcpListener, code: &Code) {
    let (stream, _) = listener.accept().await.unwrap();
    let mut guest = Conn::new(Box::new(stream), ServerTls::new(own).unwrap().connection().unwrap());
    guest.handshake().await.unwrap();
    let number = Knock::Nameplate(code.nameplate());
    let mut control = knock(relay, own, number).await.expect("the host waits");
    let (_, target) = destination().await;
    let tickets = wish(&mut control, &target, 1).await.expect("a ticket");
    let welcome = Welcome { version: VERSION, session: [0; 16], addresses: Vec::new() };
    guest.push(&SessionFrame::Welcome(welcome));
    guest.push(&RelayFrame::Tickets(Issued { number: 0, seconds: 60, tickets }));
    guest.flush().await.unwrap();
    let (mut data, _) = listener.accept().await.unwrap();
    let mut onward = TcpStream::connect(relay.address).await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut data, &mut onward).await;
    std::future::pending::<()>().await;
}

/// At the port of the host itself: nobody guesses there, and no address is told.
#[test]
fn a_code_is_good_through_its_relay_alone() {
    run(async {
        let own = identity();
        let relay = waiting(&[&own]).await;
        let mut met = Met::at(&relay, &own);
        let (listener, _) = destination().await;
        let address: SocketAddr = listener.local_addr().unwrap();
        let _hosting = met.serve(Some(Box::new(listener)));
        let (_, code) = met.code().await;
        let stream = TcpStream::connect(address).await.unwrap();
        let tls = ClientTls::new(&identity(), own.fingerprint()).unwrap();
        let mut conn = Conn::new(Box::new(stream), tls.connection().unwrap());
        conn.handshake().await.unwrap();
        let request = code.nameplate().to_be_bytes().to_vec();
        conn.push(&SessionFrame::Hello(Hello::new(meet::SERVICE, None, [0; 16]).asking(request)));
        conn.flush().await.unwrap();
        let refused = conn.receive(|frame| match SessionFrame::try_from(frame)? {
            SessionFrame::Abort(AbortCode::Refused, why) => Ok(why),
            other => panic!("{other:?}"),
        });
        assert!(refused.await.unwrap().contains("no such code"));
    });
}

/// Over loopback it would be the address that was used.
#[test]
fn an_exchange_tells_no_addresses() {
    run(async {
        let own = identity();
        let relay = waiting(&[&own]).await;
        let mut met = Met::at(&relay, &own);
        let _hosting = met.serve(None);
        let (_, code) = met.code().await;
        let number = Knock::Nameplate(code.nameplate());
        let mut control = knock(&relay, &identity(), number).await.expect("it waits");
        let (_, target) = destination().await;
        let ticket = wish(&mut control, &target, 1).await.expect("a ticket")[0];
        let stream = TcpStream::connect(relay.address).await.unwrap();
        stream.writable().await.unwrap();
        assert_eq!(stream.try_write(ticket.octets()).unwrap(), 16);
        let tls = ClientTls::to_any_key(&identity()).unwrap();
        let mut conn = Conn::new(Box::new(stream), tls.connection().unwrap());
        conn.handshake().await.unwrap();
        assert_eq!(conn.peer(), Some(own.fingerprint()));
        let request = code.nameplate().to_be_bytes().to_vec();
        conn.push(&SessionFrame::Hello(Hello::new(meet::SERVICE, None, [0; 16]).asking(request)));
        conn.flush().await.unwrap();
        let addresses = conn.receive(|frame| match SessionFrame::try_from(frame)? {
            SessionFrame::Welcome(welcome) => Ok(welcome.addresses),
            other => panic!("{other:?}"),
        });
        assert_eq!(addresses.await.unwrap(), []);
    });
}
