//! Paths that stay open and over which nothing comes any more.

mod common;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{
    Host, Scratch, fetch, fetch_options, parties, receive_options, send, send_options,
    serve_options,
};
use files::{CarrierChoice, Error};
use peer::PathSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use units::Span;

/// Bytes in one direction after which the line carries nothing more, but keeps its connections.
const LAST: usize = 3_000_000;
const PATIENCE: Span = Span::from_secs(3);

/// A line to a port, for both carriers.
async fn line(port: u16) -> u16 {
    let is_dead = Arc::new(AtomicBool::new(false));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("it is bound");
    let near = UdpSocket::bind(at).expect("the same port of UDP");
    let died = Arc::clone(&is_dead);
    std::thread::spawn(move || carry_datagrams(&near, port, &died));
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(carry(near_in, far_out, Arc::clone(&is_dead)));
            tokio::spawn(carry(far_in, near_out, Arc::clone(&is_dead)));
        }
    });
    at.port()
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    is_dead: Arc<AtomicBool>,
) {
    let (mut buffer, mut carried) = (vec![0; 16_384], 0);
    loop {
        if is_dead.load(Ordering::Relaxed) {
            // The sockets stay, and nobody reads.
            std::future::pending::<()>().await;
        }
        let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
        carried += read;
        if carried > LAST {
            is_dead.store(true, Ordering::Relaxed);
        }
    }
}

/// Carries the datagrams of one host until the line dies.
fn carry_datagrams(near: &UdpSocket, port: u16, is_dead: &AtomicBool) -> ! {
    let far = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    far.connect(("127.0.0.1", port)).expect("it has an address");
    for socket in [near, &far] {
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("it is a socket");
    }
    let (mut buffer, mut dialing, mut carried) = (vec![0; 65_536], None, [0, 0]);
    while !is_dead.load(Ordering::Relaxed) {
        while let Ok((len, from)) = near.recv_from(&mut buffer) {
            dialing = Some(from);
            let _ = far.send(&buffer[..len]);
            carried[0] += len;
        }
        while let (Ok(len), Some(to)) = (far.recv(&mut buffer), dialing) {
            let _ = near.send_to(&buffer[..len], to);
            carried[1] += len;
        }
        is_dead.fetch_or(carried.iter().any(|bytes| *bytes > LAST), Ordering::Relaxed);
    }
    // A closed port would refuse packets, which is another end. Here nobody reads.
    loop {
        std::thread::park();
    }
}

/// The path over a line: others to addresses that the host announces would go around it.
fn only(line: u16) -> PathSpec {
    format!("lo,to=127.0.0.1:{line}").parse().expect("a path")
}

fn carriers() -> [CarrierChoice; 2] {
    [CarrierChoice::Tcp, CarrierChoice::Udp(stripe::Options::default())]
}

fn check(error: &Error, began: Instant) {
    let took = began.elapsed();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    // What came before the line died, and the end of the last connection.
    let most = Duration::from(PATIENCE) + Duration::from_secs(8);
    assert!(took < most, "{took:?}: {error}");
    assert!(error.to_string().contains("nothing arrived for 3 s"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_whose_path_brings_nothing_ends_when_its_patience_does() {
    for carrier in carriers() {
        let scratch = Scratch::new("standstill-send");
        let source = scratch.file("data", 40_000_000);
        let (identity, token) = parties();
        let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
        let line = line(receiving.port).await;
        let mut options = send_options(&[&source], line, &token);
        options.transfer.dial.paths = vec![only(line)];
        options.transfer.dial.patience = PATIENCE;
        options.transfer.carrier = carrier;
        let began = Instant::now();
        check(&send(options).await.expect_err("the line is dead"), began);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_whose_path_brings_nothing_ends_when_its_patience_does() {
    for carrier in carriers() {
        let scratch = Scratch::new("standstill-get");
        scratch.file("data", 40_000_000);
        let (identity, token) = parties();
        let serving = Host::serve(serve_options(&scratch.0, &identity, &token)).await;
        let line = line(serving.port).await;
        let mut options = fetch_options(&scratch, &["data"], line, &token);
        options.transfer.dial.paths = vec![only(line)];
        options.transfer.dial.patience = PATIENCE;
        options.transfer.carrier = carrier;
        let began = Instant::now();
        check(&fetch(options).await.expect_err("the line is dead"), began);
    }
}
