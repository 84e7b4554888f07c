//! Whole kernel stacks through the emulator. Needs root or an unprivileged user namespace: where it
//! cannot run it says so and passes, except with CI=true.
//!
//! Processes run near and far because a namespace is a matter of threads; these tests use threads.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use emulate::{Emulation, EmulationError, address, address_v6};
use link::config::Network;

const LIMIT: Duration = Duration::from_secs(20);
const PORT: u16 = 7_707;

fn emulation(text: &str) -> Option<Emulation> {
    let network = Network::parse(text, "test", None).expect("a network");
    match Emulation::namespaces(&network) {
        Ok(emulation) => Some(emulation),
        Err(error @ EmulationError::NotPermitted(_)) => {
            assert!(
                std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                "skipped where it must not be: {error}"
            );
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const TWO: &str = "
    name = 'two'
    [[link]]
    name = 'wifi'
    rate = '40 Mbit/s'
    delay = '5 ms'
    queue = '128 KiB'
    [[link]]
    name = 'lte'
    rate = '20 Mbit/s'
    delay = '30 ms'
    queue = '256 KiB'
";

/// Sends `bytes` from near to far over TCP; returns the seconds until all were counted there.
fn transfer(emulation: &Emulation, link: usize, bytes: usize) -> f64 {
    let far = SocketAddr::from((address(link, true), PORT));
    let listener =
        emulation.far().run(|| TcpListener::bind(far)).expect("entered").expect("a free port");
    let counting = thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        connection.set_read_timeout(Some(LIMIT)).expect("a socket");
        let mut buffer = vec![0; 1 << 16];
        let mut count: usize = 0;
        while let n @ 1.. = connection.read(&mut buffer).expect("in time") {
            count += n;
        }
        count
    });
    let start = Instant::now();
    let near = || TcpStream::connect_timeout(&far, LIMIT);
    let mut stream = emulation.near().run(near).expect("entered").expect("a connection");
    stream.write_all(&vec![1; bytes]).expect("it takes it");
    drop(stream);
    assert_eq!(counting.join().expect("no panic"), bytes);
    start.elapsed().as_secs_f64()
}

#[test]
fn tcp_runs_at_the_links_rate() {
    let Some(emulation) = emulation(TWO) else { return };
    let seconds = transfer(&emulation, 0, 4_000_000);
    // 4 MB at 40 Mbit/s with headers take 0.83 s, and a handshake 10 ms. The upper bound leaves
    // room for slow machines.
    assert!((0.83..3.0).contains(&seconds), "{seconds} s");
    let report = emulation.finish().expect("it ran");
    assert!(report.links[0].up.bytes > 4_000_000, "{report:?}");
    assert_eq!(report.links[1].up.packets, 0, "the other link is idle: {report:?}");
    assert_eq!(report.tun_drops, 0);
    let span = report.last_payload_s.expect("payload") - report.first_payload_s.expect("payload");
    assert!((0.83..3.0).contains(&span), "{span} s");
}

#[test]
fn each_source_leaves_by_its_own_device() {
    let Some(emulation) = emulation(TWO) else { return };
    let echo = |ip: IpAddr| {
        emulation.far().run(|| UdpSocket::bind((ip, PORT))).expect("entered").expect("a free port")
    };
    let pairs: [(IpAddr, IpAddr); 3] = [
        (address(1, false).into(), address(1, true).into()),
        // Across: the source decides.
        (address(1, false).into(), address(0, true).into()),
        (address_v6(1, false).into(), address_v6(1, true).into()),
    ];
    for (near, far) in pairs {
        let echo = echo(far);
        let client = emulation
            .near()
            .run(|| UdpSocket::bind((near, 0)))
            .expect("entered")
            .expect("an address");
        echo.set_read_timeout(Some(LIMIT)).expect("a socket");
        client.send_to(b"hello", (far, PORT)).expect("it sends");
        let mut buffer = [0; 16];
        let (len, from) = echo.recv_from(&mut buffer).expect("in time");
        assert_eq!((&buffer[..len], from.ip()), (&b"hello"[..], near));
    }
    let report = emulation.finish().expect("it ran");
    assert_eq!(
        (report.links[0].up.packets, report.links[1].up.packets >= 3),
        (0, true),
        "{report:?}"
    );
}

#[test]
fn an_unreachable_address_says_so() {
    let text = format!("{TWO}unreachable = 'icmp'\n");
    let Some(emulation) = emulation(&text) else { return };
    let far = SocketAddr::from((address(1, true), PORT));
    let error = emulation
        .near()
        .run(|| TcpStream::connect_timeout(&far, LIMIT))
        .expect("entered")
        .expect_err("no host");
    assert_eq!(error.kind(), ErrorKind::HostUnreachable);
    let report = emulation.finish().expect("it ran");
    assert!(report.links[1].up.dropped.unreachable >= 1);
}

#[test]
fn a_delay_is_kept() {
    let Some(emulation) = emulation(TWO) else { return };
    let far = SocketAddr::from((address(1, true), PORT));
    let echo = emulation.far().run(|| UdpSocket::bind(far)).expect("entered").expect("a free port");
    let client = emulation
        .near()
        .run(|| UdpSocket::bind((address(1, false), 0)))
        .expect("entered")
        .expect("an address");
    client.set_read_timeout(Some(LIMIT)).expect("a socket");
    echo.set_read_timeout(Some(LIMIT)).expect("a socket");
    let mut buffer = [0; 16];
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        client.send_to(b"ping", far).expect("it sends");
        let (len, from) = echo.recv_from(&mut buffer).expect("in time");
        echo.send_to(&buffer[..len], from).expect("it sends");
        client.recv_from(&mut buffer).expect("in time");
        fastest = fastest.min(start.elapsed());
    }
    assert!(fastest >= Duration::from_millis(60), "{fastest:?}");
    assert!(fastest < Duration::from_millis(80), "{fastest:?}");
}
