//! Both ends of a connection, and what one keeps of what it reads.

use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use tokio::net::{TcpListener, TcpStream};
use wire::feed::{FeedFrame, MAX_RECORD, Records, push_record};
use wire::session::{PROTOCOL, SessionFrame};

use super::Conn;
use crate::Identity;
use crate::tls::{ClientTls, ServerTls};

/// The protocols of an earlier build.
fn earlier() -> Vec<Vec<u8>> {
    vec![PROTOCOL.to_vec()]
}

/// The ends of a connection over loopback, each of this build or an earlier one.
pub(super) async fn ends(is_earlier: [bool; 2]) -> [Conn; 2] {
    let own = [Identity::generate().unwrap(), Identity::generate().unwrap()];
    let client = ClientTls::new(&own[0], own[1].fingerprint()).unwrap();
    let server = ServerTls::new(&own[1]).unwrap();
    let mut client: ClientConfig = (**client.config()).clone();
    let mut server: ServerConfig = (**server.config()).clone();
    if is_earlier[0] {
        client.alpn_protocols = earlier();
    }
    if is_earlier[1] {
        server.alpn_protocols = earlier();
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let dialing = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(dialing, listener.accept());
    let mut near_tls =
        ClientConnection::new(Arc::new(client), "anabranch".try_into().unwrap()).unwrap();
    let mut far_tls = ServerConnection::new(Arc::new(server)).unwrap();
    near_tls.set_buffer_limit(None);
    far_tls.set_buffer_limit(None);
    let mut near = Conn::new(Box::new(near.unwrap()), near_tls.into());
    let mut far = Conn::new(Box::new(far.unwrap().0), far_tls.into());
    let (near_done, far_done) = tokio::join!(near.handshake(), far.handshake());
    near_done.unwrap();
    far_done.unwrap();
    [near, far]
}

/// Reads until a whole frame is there, and takes it.
async fn read(conn: &mut Conn) {
    while conn.next_frame().unwrap().is_none() {
        conn.readable().await.unwrap();
        conn.try_fill(64 << 10).unwrap();
    }
}

#[tokio::test]
async fn a_frame_that_is_put_back_comes_again() {
    let [mut near, mut far] = ends([false; 2]).await;
    for number in 0..3 {
        near.push(&SessionFrame::Ping(number));
    }
    near.flush().await.unwrap();
    let mut heard = Vec::new();
    for is_put_back in [false, true, true, false, false] {
        read(&mut far).await;
        far.put_back();
        let frame = far.next_frame().unwrap().expect("it is there again");
        let SessionFrame::Ping(number) = SessionFrame::try_from(frame).unwrap() else { panic!() };
        heard.push(number);
        if is_put_back {
            far.put_back();
        }
    }
    assert_eq!(heard, [0, 1, 1, 1, 2]);
}

/// A long frame, and reads that fill the buffer, leave nothing that stays.
#[tokio::test]
async fn a_connection_that_reads_little_at_a_time_keeps_little() {
    let [mut near, mut far] = ends([false; 2]).await;
    let mut body = Vec::new();
    push_record(&mut body, &vec![0; MAX_RECORD]);
    let frame = FeedFrame::Records(Records::of(0, &body).unwrap());
    let send = async |near: &mut Conn| {
        for _ in 0..8 {
            near.push(&frame);
        }
        near.flush().await.unwrap();
    };
    let receive = async |far: &mut Conn| {
        for _ in 0..8 {
            read(far).await;
        }
        assert!(far.next_frame().unwrap().is_none());
    };
    tokio::join!(send(&mut near), receive(&mut far));
    assert!(far.inbox.capacity() > MAX_RECORD, "it is kept for the next one");
    far.read_at_most(32 << 10);
    tokio::join!(send(&mut near), receive(&mut far));
    assert!(far.inbox.capacity() <= 128 << 10, "{}", far.inbox.capacity());
    assert!(far.raw.len() <= 32 << 10, "{}", far.raw.len());
}

/// Found in the memory of a thousand sources over UDP: each had 128 KiB to read a few answers in.
#[tokio::test]
async fn a_sealed_stream_that_carries_little_has_little_room() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let dialing = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(dialing, listener.accept());
    let key = Identity::generate().unwrap().fingerprint();
    let mut near = Conn::over_carrier(Box::new(near.unwrap()), key);
    let mut far = Conn::over_carrier(Box::new(far.unwrap().0), key);
    for number in 0..100 {
        near.push(&SessionFrame::Ping(number));
        near.flush().await.unwrap();
        read(&mut far).await;
    }
    assert!(far.inbox.capacity() <= 8 << 10, "{}", far.inbox.capacity());
    // What carries much is read in large pieces soon.
    let mut body = Vec::new();
    push_record(&mut body, &vec![0; MAX_RECORD]);
    near.push(&FeedFrame::Records(Records::of(0, &body).unwrap()));
    let (flushed, ()) = tokio::join!(near.flush(), read(&mut far));
    flushed.unwrap();
    assert_eq!(far.piece, super::CARRIER_READ);
}
