//! A mesh with real kernels: hosts, routers, translators, IPv4 and IPv6. Needs root or an
//! unprivileged user namespace: where it cannot run it says so and passes, except with CI=true.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use emulate::EmulationError;
use emulate::routed::{Description, RoutedMesh};
use link::Amendment;
use units::{Rate, Span};

const LIMIT: Duration = Duration::from_secs(20);
/// The time after which a datagram does not come any more. Round trips take less than 100 ms.
const SILENCE: Duration = Duration::from_millis(700);

/// Two hosts behind translators with equal addresses, a third between two routers, and a fourth
/// with two links.
const MESH: &str = "
    name = 'four'
    [host.alice]
    [host.bob]
    [host.server]
    [host.dual]
    [router.west]
    [router.east]
    [translator.easy]
    outside = 'easy-net'
    mapping = 'endpoint-independent'
    filtering = 'endpoint-independent'
    [translator.strict]
    outside = 'strict-net'
    mapping = 'address-and-port-dependent'
    filtering = 'address-and-port-dependent'
    ports = 'sequential'
    [[link]]
    name = 'alice-lan'
    between = ['alice', 'easy']
    addresses = { alice = ['192.168.1.2/24', 'fd00:a::2'], easy = ['192.168.1.1'] }
    rate = '100 Mbit/s'
    delay = '1 ms'
    queue = '256 KiB'
    [[link]]
    name = 'bob-lan'
    between = ['bob', 'strict']
    addresses = { bob = ['192.168.1.2/24', 'fd00:b::2'], strict = ['192.168.1.1'] }
    rate = '100 Mbit/s'
    delay = '1 ms'
    queue = '256 KiB'
    [[link]]
    name = 'easy-net'
    between = ['easy', 'west']
    addresses = { easy = '198.51.100.1', west = '198.51.100.254' }
    rate = '20 Mbit/s'
    delay = '10 ms'
    queue = '256 KiB'
    [[link]]
    name = 'strict-net'
    between = ['strict', 'east']
    addresses = { strict = '198.51.100.2', east = '198.51.100.253' }
    rate = '20 Mbit/s'
    delay = '10 ms'
    queue = '256 KiB'
    [[link]]
    name = 'core'
    between = ['west', 'east']
    rate = '100 Mbit/s'
    delay = '5 ms'
    queue = '256 KiB'
    [[link]]
    name = 'server-net'
    between = ['server', 'east']
    addresses = { server = ['203.0.113.1', 'fd00:c::1'] }
    rate = '100 Mbit/s'
    delay = '2 ms'
    queue = '256 KiB'
    [[link]]
    name = 'one'
    between = ['dual', 'west']
    addresses = { dual = ['203.0.113.11', 'fd00:d::1'] }
    rate = '50 Mbit/s'
    delay = '3 ms'
    queue = '256 KiB'
    [[link]]
    name = 'two'
    between = ['dual', 'east']
    addresses = { dual = ['203.0.113.12', 'fd00:d::2'] }
    rate = '50 Mbit/s'
    delay = '30 ms'
    queue = '256 KiB'
";

fn mesh() -> Option<RoutedMesh> {
    match RoutedMesh::new(Description::parse(MESH, "test").expect("a mesh")) {
        Ok(mesh) => Some(mesh),
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

fn udp(mesh: &RoutedMesh, host: &str, at: &str) -> UdpSocket {
    let at: SocketAddr = at.parse().expect("an address");
    let bind = || UdpSocket::bind(at);
    let socket = mesh.namespace(host).expect("a host").run(bind).expect("entered").expect("free");
    socket.set_read_timeout(Some(LIMIT)).expect("a socket");
    socket
}

fn to(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Sends a datagram; returns the address from which it arrived, if it did.
fn passes(from: &UdpSocket, target: SocketAddr, receiver: &UdpSocket) -> Option<SocketAddr> {
    receiver.set_read_timeout(Some(SILENCE)).expect("a socket");
    from.send_to(b"hello", target).expect("it sends");
    let mut buffer = [0; 16];
    receiver.recv_from(&mut buffer).ok().map(|(_, sender)| sender)
}

#[test]
fn flows_pass_as_translators_allow() {
    let Some(mesh) = mesh() else { return };
    let server = [udp(&mesh, "server", "203.0.113.1:53"), udp(&mesh, "server", "203.0.113.1:54")];
    let alice = udp(&mesh, "alice", "192.168.1.2:5000");
    let bob = udp(&mesh, "bob", "192.168.1.2:5000");
    // Mappings: one port for all, and one for each end outside.
    let seen = |host: &UdpSocket, n: usize| {
        let target = server[n].local_addr().expect("bound");
        passes(host, target, &server[n]).expect("it goes out")
    };
    let easy = seen(&alice, 0);
    assert_eq!((easy, seen(&alice, 1)), (to("198.51.100.1:5000"), easy));
    let strict = [seen(&bob, 0), seen(&bob, 1)];
    assert_eq!(strict[0].ip(), IpAddr::from([198, 51, 100, 2]));
    assert_ne!(strict[0].port(), strict[1].port());
    // Filters: anybody, and only who was sent to.
    let dual = udp(&mesh, "dual", "203.0.113.11:9");
    assert!(passes(&dual, easy, &alice).is_some());
    assert!(passes(&dual, strict[0], &bob).is_none());
    assert!(passes(&server[1], strict[0], &bob).is_none());
    assert!(passes(&server[0], strict[0], &bob).is_some());
    // From one translator to the other: alice is found, and answers by the port that asked.
    let found = passes(&bob, easy, &alice).expect("the easy one lets it in");
    assert!(passes(&alice, found, &bob).is_some());
    // IPv6 is not translated, and filtered the same.
    let server = udp(&mesh, "server", "[fd00:c::1]:53");
    let bob = udp(&mesh, "bob", "[fd00:b::2]:5000");
    assert!(passes(&server, to("[fd00:b::2]:5000"), &bob).is_none());
    assert_eq!(passes(&bob, to("[fd00:c::1]:53"), &server), Some(to("[fd00:b::2]:5000")));
    assert!(passes(&server, to("[fd00:b::2]:5000"), &bob).is_some());
    let counts = mesh.count().expect("an answer");
    assert_eq!(counts.nodes["strict"].refused["unsolicited"], 3, "{counts:?}");
    assert!(mesh.namespace("west").is_none(), "a router has no namespace");
}

#[test]
fn a_refused_connection_says_so_through_a_translator() {
    let Some(mesh) = mesh() else { return };
    let connect = || TcpStream::connect_timeout(&to("203.0.113.1:80"), LIMIT);
    let error = mesh.namespace("alice").expect("a host").run(connect).expect("entered");
    assert_eq!(error.expect_err("closed").kind(), std::io::ErrorKind::ConnectionRefused);
    // The port of a datagram is closed: the ICMP error finds its way to the socket.
    let socket = udp(&mesh, "bob", "192.168.1.2:6000");
    socket.connect(to("203.0.113.1:99")).expect("a route");
    socket.send(b"x").expect("it sends");
    let error = socket.recv(&mut [0; 8]).expect_err("it is closed");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// The shortest of some round trips between two addresses.
fn round_trip(mesh: &RoutedMesh, from: (&str, &str), server: (&str, &str)) -> Duration {
    let (client, echo) = (udp(mesh, from.0, from.1), udp(mesh, server.0, server.1));
    let target = echo.local_addr().expect("bound");
    let mut buffer = [0; 16];
    let one = || {
        let start = Instant::now();
        client.send_to(b"ping", target).expect("it sends");
        let (len, sender) = echo.recv_from(&mut buffer).expect("in time");
        echo.send_to(&buffer[..len], sender).expect("it sends");
        client.recv_from(&mut buffer).expect("in time");
        start.elapsed()
    };
    std::iter::repeat_with(one).take(5).min().expect("five of them")
}

/// Packets that are due soon after others wait for a moment: a question does not, since nothing
/// else may be due that would wake the links.
#[test]
fn a_question_right_behind_a_packet_is_answered() {
    let Some(mesh) = mesh() else { return };
    for _ in 0..20 {
        round_trip(&mesh, ("dual", "203.0.113.11:7"), ("server", "203.0.113.1:7"));
        mesh.count().expect("an answer");
    }
}

#[test]
fn delays_are_those_of_the_links_and_change_midway() {
    let Some(mut mesh) = mesh() else { return };
    let near = |wanted: u64, found: Duration| {
        let wanted = Duration::from_millis(wanted);
        assert!(found >= wanted && found < wanted + Duration::from_millis(20), "{found:?}");
    };
    // 1 + 10 + 5 + 2 ms, and back.
    let server = ("server", "203.0.113.1:7");
    near(36, round_trip(&mesh, ("alice", "192.168.1.2:7"), server));
    near(36, round_trip(&mesh, ("alice", "[fd00:a::2]:7"), ("server", "[fd00:c::1]:7")));
    // A host with two links: the address decides, of IPv4 and IPv6.
    near(20, round_trip(&mesh, ("dual", "203.0.113.11:7"), server));
    near(64, round_trip(&mesh, ("dual", "203.0.113.12:7"), server));
    near(64, round_trip(&mesh, ("dual", "[fd00:d::2]:7"), ("server", "[fd00:c::1]:7")));
    let core = mesh.description().link("core").expect("a link");
    mesh.amend(core, true, false, Amendment::Delay(Span::from_millis(55))).expect("it runs");
    mesh.count().expect("an answer");
    near(86, round_trip(&mesh, ("alice", "192.168.1.2:7"), server));
    // An address moves: the old one is nobody's, and the new one is reached.
    let one = mesh.description().link("one").expect("a link");
    let moved: Vec<(IpAddr, u8)> = vec![(IpAddr::from([203, 0, 113, 77]), 32)];
    mesh.set_addresses(one, 0, &moved).expect("it is free");
    near(20 + 50, round_trip(&mesh, ("dual", "203.0.113.77:7"), server));
    let taken: Vec<(IpAddr, u8)> = vec![(IpAddr::from([203, 0, 113, 1]), 32)];
    let error = mesh.set_addresses(one, 0, &taken).expect_err("the server has it");
    assert!(error.to_string().contains("203.0.113.1"), "{error}");
}

#[test]
fn rates_are_those_of_the_links_and_change_midway() {
    let Some(mesh) = mesh() else { return };
    let transfer = |bytes: usize| {
        let listen = || TcpListener::bind(to("203.0.113.1:80"));
        let listener = mesh.namespace("server").expect("a host").run(listen).expect("entered");
        let listener = listener.expect("free");
        let counting = thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a connection");
            connection.set_read_timeout(Some(LIMIT)).expect("a socket");
            let mut all = Vec::new();
            connection.read_to_end(&mut all).expect("in time")
        });
        let start = Instant::now();
        let connect = || TcpStream::connect_timeout(&to("203.0.113.1:80"), LIMIT);
        let stream = mesh.namespace("alice").expect("a host").run(connect).expect("entered");
        stream.expect("it listens").write_all(&vec![1; bytes]).expect("it takes it");
        assert_eq!(counting.join().expect("no panic"), bytes);
        start.elapsed().as_secs_f64()
    };
    // 2 MB take 0.83 s at 20 Mbit/s with headers. The upper bounds leave room for slow machines.
    let seconds = transfer(2_000_000);
    assert!((0.83..3.0).contains(&seconds), "{seconds} s");
    let link = mesh.description().link("easy-net").expect("a link");
    mesh.amend(link, true, true, Amendment::Rate(Rate::mbit(5))).expect("it runs");
    mesh.count().expect("an answer");
    let seconds = transfer(1_000_000);
    assert!((1.65..6.0).contains(&seconds), "{seconds} s");
    mesh.amend(link, true, true, Amendment::Down).expect("it runs");
    mesh.count().expect("an answer");
    let (alice, server) =
        (udp(&mesh, "alice", "192.168.1.2:9"), udp(&mesh, "server", "203.0.113.1:9"));
    assert!(passes(&alice, to("203.0.113.1:9"), &server).is_none());
    let report = mesh.finish().expect("it ran");
    assert!(report.counts.links["easy-net"].up.dropped.blackout >= 1, "{report:?}");
    assert!(report.counts.links["easy-net"].up.bytes > 3_000_000, "{report:?}");
    assert_eq!((report.tun_drops, report.tun_errors), (0, 0));
}
