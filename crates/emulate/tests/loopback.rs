//! Real sockets through links on loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use emulate::{Loopback, LoopbackError, Protocol};
use link::config::Network;

const LIMIT: Duration = Duration::from_secs(10);

fn network(keys: &str) -> Network {
    let text = format!("name = 'test'\n[[link]]\nname = 'only'\nqueue = '64 KiB'\n{keys}\n");
    Network::parse(&text, "test", None).expect("a network")
}

/// A listener that answers each connection with what `answer` makes of all that it got.
fn server(answer: impl Fn(Vec<u8>) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.expect("a connection");
            let mut got = Vec::new();
            if connection.read_to_end(&mut got).is_ok() {
                let _ = connection.write_all(&answer(got));
            }
        }
    });
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the link listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    stream.set_write_timeout(Some(LIMIT)).expect("a socket");
    stream
}

#[test]
fn a_stream_arrives_whole_and_takes_its_time() {
    let forward = server(|got| got);
    let network = network("rate = '40 Mbit/s'\ndelay = '20 ms'");
    let loopback = Loopback::start(&network, forward, Protocol::Tcp).expect("the links start");
    let sent: Vec<u8> =
        (0..1_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let start = Instant::now();
    let mut stream = connect(loopback.addresses()[0]);
    stream.write_all(&sent).expect("it takes it");
    stream.shutdown(std::net::Shutdown::Write).expect("open");
    let mut got = Vec::new();
    stream.read_to_end(&mut got).expect("in time");
    let seconds = start.elapsed().as_secs_f64();
    assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
    // Up, then down: 1 MB in segments of 1448 takes 0.207 s each way, and 20 ms of delay. Nothing
    // can be faster.
    assert!(seconds >= 2.0 * (0.207 + 0.02), "{seconds} s");
    let report = loopback.finish().expect("it ran");
    assert!(report.links[0].up.bytes > 1_000_000 && report.links[0].down.bytes > 1_000_000);
    assert_eq!(report.links[0].up.dropped.queue, 0);
}

#[test]
fn a_refused_connection_is_reset() {
    // A port that was free a moment ago.
    let forward = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port");
    let network = network("rate = '40 Mbit/s'\ndelay = '1 ms'");
    let loopback = Loopback::start(&network, forward, Protocol::Tcp).expect("the links start");
    let mut stream = connect(loopback.addresses()[0]);
    let error = stream.read(&mut [0; 1]).expect_err("nobody is there");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_reset_stays_a_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let forward = listener.local_addr().expect("bound");
    let network = network("rate = '40 Mbit/s'\ndelay = '1 ms'");
    let loopback = Loopback::start(&network, forward, Protocol::Tcp).expect("the links start");
    let mut stream = connect(loopback.addresses()[0]);
    stream.write_all(b"half of it").expect("it takes it");
    let (mut far, _) = listener.accept().expect("a connection");
    far.set_read_timeout(Some(LIMIT)).expect("a socket");
    let mut got = [0; 10];
    far.read_exact(&mut got).expect("in time");
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket");
    drop(stream);
    let error = far.read(&mut got).expect_err("no orderly end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn an_idle_half_open_connection_costs_nothing() {
    // The client has ended and gone; the server thinks.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let forward = listener.local_addr().expect("bound");
    let network = network("rate = '40 Mbit/s'\ndelay = '1 ms'");
    let loopback = Loopback::start(&network, forward, Protocol::Tcp).expect("the links start");
    let stream = connect(loopback.addresses()[0]);
    let (mut far, _) = listener.accept().expect("a connection");
    far.set_read_timeout(Some(LIMIT)).expect("a socket");
    drop(stream);
    assert_eq!(far.read(&mut [0; 1]).expect("in time"), 0);
    // Answers to a client that is gone: it resets, and the server hears of it.
    let end = Instant::now() + LIMIT;
    while far.write_all(b"x").is_ok() {
        assert!(Instant::now() < end, "it never heard");
        thread::yield_now();
    }
    let report = loopback.finish().expect("it ran");
    assert!(report.links[0].down.packets >= 1);
}

#[test]
fn no_byte_moves_in_a_blackout() {
    let forward = server(|got| got);
    let network =
        network("rate = '40 Mbit/s'\ndelay = '1 ms'\nblackout = [{ from = '0 s', to = '300 ms' }]");
    let loopback = Loopback::start(&network, forward, Protocol::Tcp).expect("the links start");
    let start = Instant::now();
    let mut stream = connect(loopback.addresses()[0]);
    stream.write_all(b"hello").expect("it takes it");
    stream.shutdown(std::net::Shutdown::Write).expect("open");
    let mut got = Vec::new();
    stream.read_to_end(&mut got).expect("in time");
    assert_eq!(got, b"hello");
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
}

#[test]
fn connections_of_a_link_share_its_rate() {
    let forward = server(|got| got.len().to_string().into_bytes());
    let network = network("rate = '40 Mbit/s'\ndelay = '1 ms'");
    let loopback = Loopback::start(&network, forward, Protocol::Tcp).expect("the links start");
    let address = loopback.addresses()[0];
    let start = Instant::now();
    let clients: Vec<_> = (0..3)
        .map(|_| {
            thread::spawn(move || {
                let mut stream = connect(address);
                stream.write_all(&vec![7; 500_000]).expect("it takes it");
                stream.shutdown(std::net::Shutdown::Write).expect("open");
                let mut got = String::new();
                stream.read_to_string(&mut got).expect("in time");
                got
            })
        })
        .collect();
    for client in clients {
        assert_eq!(client.join().expect("no panic"), "500000");
    }
    // 1.5 MB at 40 Mbit/s with headers.
    assert!(start.elapsed().as_secs_f64() >= 0.31, "{:?}", start.elapsed());
}

#[test]
fn loss_cannot_be_done_to_tcp() {
    let forward = SocketAddr::from(([127, 0, 0, 1], 9));
    let keys = [
        "loss = 0.1",
        "aqm = 'codel'",
        "duplicate = 0.1",
        "corrupt = 0.1",
        "reorder = { probability = 0.1, delay = '1 ms' }",
        "carry = 'no-payload'",
        "nat_idle = '2 s'",
        "blackhole_above = 1280",
        "unreachable = 'silent'",
    ];
    for key in keys {
        let network = network(&format!("rate = '40 Mbit/s'\ndelay = '1 ms'\n{key}"));
        let error =
            Loopback::start(&network, forward, Protocol::Tcp).expect_err("it is unsupported");
        assert!(
            matches!(error, LoopbackError::Unsupported { what, .. } if key.starts_with(what)),
            "{error}"
        );
        assert!(error.to_string().contains("namespace mode"), "{error}");
    }
}

#[test]
fn datagrams_are_doubled_and_damaged() {
    let echo = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let forward = echo.local_addr().expect("bound");
    let network = network(
        "rate = '40 Mbit/s'\ndelay = '1 ms'\nup = { duplicate = 1 }\ndown = { corrupt = 1 }",
    );
    let loopback = Loopback::start(&network, forward, Protocol::Udp).expect("the links start");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    for socket in [&echo, &client] {
        socket.set_read_timeout(Some(LIMIT)).expect("a socket");
    }
    client.send_to(b"abc", loopback.addresses()[0]).expect("it sends");
    let mut buffer = [0; 16];
    for _ in 0..2 {
        let (len, from) = echo.recv_from(&mut buffer).expect("two copies");
        assert_eq!(&buffer[..len], b"abc");
        echo.send_to(&buffer[..len], from).expect("it sends");
    }
    for _ in 0..2 {
        let (len, from) = client.recv_from(&mut buffer).expect("two answers");
        assert_eq!(from, loopback.addresses()[0]);
        assert_eq!(&buffer[..len], b"arc", "the middle byte has one bit flipped");
    }
}
