//! Strangers at the UDP port, somebody between the ends, and peers that do not read: against real
//! sockets of loopback. What they cost is bounded, and honest peers are served meanwhile.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::between::{Between, Dice, Fate, Mischief};
use common::{anywhere, content, listen, routes, run};
use secure::testing::{Key, client, server};
use stripe::{
    Connection, ConnectionError, Endpoint, Listening, Memory, Options, Rations, Route, RouteChange,
    Stream,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use units::{Bytes, Time};

/// A listening host that answers each stream with what it was sent.
struct Echo {
    port: u16,
    key: Key,
}

impl Echo {
    fn start(options: Options) -> Echo {
        let (listening, key) = listen(&anywhere(), options);
        let port = listening.local_addresses()[0].port();
        tokio::spawn(async move {
            while let Some(connection) = listening.accept().await {
                connection.admit(Bytes::mib(64));
                tokio::spawn(echo(connection));
            }
        });
        Echo { port, key }
    }

    async fn connect(&self, routes: Vec<Route>) -> (Endpoint, Connection) {
        let endpoint = Endpoint::new().expect("there are threads");
        let tls = Arc::new(client(&Key::generate(), &self.key));
        let connected = endpoint.connect(routes, &tls, Options::default()).await;
        (endpoint, connected.expect("it answers"))
    }
}

async fn echo(connection: Connection) {
    while let Ok(stream) = connection.accept_stream().await {
        tokio::spawn(async move {
            let (mut sending, mut receiving) = stream.split();
            if tokio::io::copy(&mut receiving, &mut sending).await.is_ok() {
                let _ = sending.shutdown().await;
            }
        });
    }
}

/// Sends bytes to an echo and compares what comes back.
async fn exchange(connection: &Connection, size: usize) {
    let sent = content(size);
    let stream = connection.open_stream().await.expect("it is open");
    let (mut sending, mut receiving) = stream.split();
    let write = async {
        sending.write_all(&sent).await.expect("it is open");
        sending.shutdown().await.expect("it is open");
    };
    let mut arrived = Vec::new();
    let (read, ()) = tokio::join!(receiving.read_to_end(&mut arrived), write);
    read.expect("it is whole");
    assert!(arrived == sent, "other bytes arrived");
}

/// An exchange with somebody between the ends, who meddles with one datagram of so many.
fn meddled(seed: u64, mischief: Mischief) {
    run(async {
        let echo = Echo::start(Options::default());
        let between = Between::new(([127, 0, 0, 1], echo.port).into(), seed, mischief);
        let (_endpoint, connection) = echo.connect(vec![Route::to(between.address)]).await;
        exchange(&connection, 2_000_000).await;
        assert!(!connection.has_ended(), "seed {seed}");
        assert!(between.forwarded.load(Ordering::Relaxed) > 1_000);
    });
}

#[test]
fn flipped_bits_count_as_losses() {
    meddled(1, |dice, datagram| {
        if dice.below(50) == 0 {
            let at = usize::try_from(dice.below(datagram.len() as u64)).expect("short");
            datagram[at] ^= 1 << dice.below(8);
        }
        Fate::Passes
    });
}

#[test]
fn truncated_datagrams_count_as_losses() {
    meddled(2, |dice, datagram| {
        if dice.below(50) == 0 {
            datagram.truncate(usize::try_from(dice.below(datagram.len() as u64)).expect("short"));
        }
        Fate::Passes
    });
}

#[test]
fn replays_change_nothing() {
    meddled(3, |dice, _| if dice.below(4) == 0 { Fate::Again(3) } else { Fate::Passes });
}

#[test]
fn losses_are_repaired() {
    meddled(4, |dice, _| if dice.below(30) == 0 { Fate::Lost } else { Fate::Passes });
}

/// Resets, lists of versions, retries and noise with the right ports, from the wrong hands.
#[test]
fn answers_that_nobody_asked_for_end_nothing() {
    meddled(5, |dice, datagram| {
        if dice.below(20) != 0 {
            return Fate::Passes;
        }
        let label = datagram.get(1..9).map(<[u8]>::to_vec).unwrap_or_default();
        *datagram = match dice.below(4) {
            0 => [&[0xe3, 0, 0, 0, 0][..], &label, &[7; 16]].concat(),
            1 => [&[0xe1, 0, 0, 0, 0][..], &label, &[0x61, 0x6e, 0x62, 2]].concat(),
            2 => [&[0xe2, 0x61, 0x6e, 0x62, 1][..], &label, &[9; 40]].concat(),
            _ => (0..1_200).map(|_| dice.below(256).to_le_bytes()[0]).collect(),
        };
        Fate::Passes
    });
}

/// The address from which a peer's packets come changes with each dozen of them, as behind a
/// translator that forgets at once.
#[test]
fn addresses_that_change_keep_a_connection() {
    run(async {
        let echo = Echo::start(Options::default());
        let to: SocketAddr = ([127, 0, 0, 1], echo.port).into();
        let near = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        near.set_read_timeout(Some(Duration::from_millis(1))).expect("it is a socket");
        let address = near.local_addr().expect("it is bound");
        let stop = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&stop);
        let moves = std::thread::spawn(move || {
            let fresh = || {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
                socket.set_read_timeout(Some(Duration::from_micros(200))).expect("a socket");
                socket
            };
            let (mut far, mut passed, mut moves) = (vec![fresh()], 0u32, 0u32);
            let (mut dialing, mut buffer) = (None, vec![0; 65_536]);
            while !ends.load(Ordering::Relaxed) {
                for _ in 0..16 {
                    let Ok((length, from)) = near.recv_from(&mut buffer) else { break };
                    dialing = Some(from);
                    let _ = far.last().expect("one").send_to(&buffer[..length], to);
                    passed += 1;
                    if passed % 200 == 0 && moves < 20 {
                        moves += 1;
                        far.push(fresh());
                        // What was under way to the one before still arrives.
                        if far.len() > 2 {
                            far.remove(0);
                        }
                    }
                }
                for socket in &far {
                    while let Ok((length, _)) = socket.recv_from(&mut buffer) {
                        let Some(dialing) = dialing else { break };
                        let _ = near.send_to(&buffer[..length], dialing);
                    }
                }
            }
            moves
        });
        let (_endpoint, connection) = echo.connect(vec![Route::to(address)]).await;
        exchange(&connection, 3_000_000).await;
        stop.store(true, Ordering::Relaxed);
        let moves = moves.join().expect("no panic");
        assert!(moves >= 5, "{moves}");
    });
}

/// A flood of first packets and of packets of no connection, while an honest peer is served.
#[test]
fn floods_of_strangers_do_not_keep_honest_peers_out() {
    run(async {
        let echo = Echo::start(Options::default());
        let to: SocketAddr = ([127, 0, 0, 1], echo.port).into();
        let stop = Arc::<AtomicBool>::default();
        let sent = Arc::<AtomicU64>::default();
        let flood = std::thread::spawn({
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            move || {
                let mut dice = Dice(11);
                let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
                let began = Instant::now();
                while !stop.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(20) {
                    let mut datagram: Vec<u8> =
                        (0..1_200).map(|_| dice.below(256).to_le_bytes()[0]).collect();
                    if dice.below(2) == 0 {
                        // A first packet of this version, of a new label.
                        datagram[0] = 0xc0;
                        datagram[1..5].copy_from_slice(&[0x61, 0x6e, 0x62, 1]);
                        datagram[13] = 0;
                    } else {
                        datagram[0] = 0x40;
                    }
                    let _ = socket.send_to(&datagram, to);
                    // Some 10,000 a second: the processors are shared with the honest.
                    if sent.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }
        });
        let mut exchanges = 0;
        while (exchanges < 3 || sent.load(Ordering::Relaxed) < 1_000) && !flood.is_finished() {
            let (_endpoint, connection) = echo.connect(routes(echo.port, 2)).await;
            exchange(&connection, 1_000_000).await;
            exchanges += 1;
        }
        stop.store(true, Ordering::Relaxed);
        flood.join().expect("no panic");
        let sent = sent.load(Ordering::Relaxed);
        assert!(exchanges >= 3 && sent >= 1_000, "{exchanges} exchanges, {sent} datagrams");
    });
}

/// A peer that was not admitted writes into many streams that nobody reads: what it may have in
/// buffers does not grow with them.
#[test]
fn a_peer_that_was_not_admitted_fills_no_buffers() {
    run(async {
        let (listening, key) = listen(&anywhere(), Options::default());
        let port = listening.local_addresses()[0].port();
        let endpoint = Endpoint::new().expect("there are threads");
        let tls = Arc::new(client(&Key::generate(), &key));
        let connecting = endpoint.connect(routes(port, 1), &tls, Options::default());
        let (near, far) = tokio::join!(connecting, listening.accept());
        let (near, _far) = (near.expect("it answers"), far.expect("it listens"));
        let mut written = Vec::new();
        let mut streams = Vec::new();
        for number in 0..100 {
            let opening = timeout(Duration::from_millis(50), near.open_stream()).await;
            let Ok(opened) = opening else {
                assert_eq!(number, 4, "a stranger has four streams");
                break;
            };
            let mut stream = opened.expect("it is open");
            let filled = timeout(Duration::from_millis(20), async {
                let mut total = 0;
                let bytes = vec![1; 100_000];
                loop {
                    total += stream.write(&bytes).await.expect("it is open");
                    written.push(total);
                }
            });
            assert!(filled.await.is_err());
            streams.push(stream);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let acknowledged: u64 = streams.iter().map(|stream| stream.sending().acknowledged()).sum();
        // Twice the buffer before admission: what nobody reads is granted to the others once.
        assert!(acknowledged <= 130 << 10, "{acknowledged} bytes were taken");
        assert_eq!(streams.len(), 4);
    });
}

/// A host with little memory for connections, and as many connections of one key as asked for.
struct Small {
    memory: Memory,
    listening: Endpoint,
    key: Key,
    dialing: Endpoint,
}

impl Small {
    fn with(most: Bytes, each: Bytes) -> Small {
        let memory = Memory::new(most, each);
        let rations = Rations { memory: memory.clone(), ..Rations::default() };
        let (listening, key) = listen(&Listening { rations, ..anywhere() }, Options::default());
        Small { memory, listening, key, dialing: Endpoint::new().expect("there are threads") }
    }

    async fn connection(&self, own: &Key, options: Options) -> [Connection; 2] {
        let port = self.listening.local_addresses()[0].port();
        let tls = Arc::new(client(own, &self.key));
        let connecting = self.dialing.connect(routes(port, 1), &tls, options);
        let (near, far) = tokio::join!(connecting, self.listening.accept());
        let (near, far) = (near.expect("it answers"), far.expect("it listens"));
        far.admit(Bytes::mib(64));
        [near, far]
    }
}

/// Writes into a new stream as long as it is taken. Returns the stream, and what was taken.
async fn fill(connection: &Connection, most: usize) -> (Stream, usize) {
    let mut stream = connection.open_stream().await.expect("it is open");
    let mut total = 0;
    let bytes = vec![1; 100_000];
    while total < most {
        match timeout(Duration::from_millis(300), stream.write(&bytes)).await {
            Ok(taken) => total += taken.expect("it is open"),
            Err(_) => break,
        }
    }
    (stream, total)
}

/// Connections of a peer whose data nobody reads get what the memory of a peer allows, and not what
/// their receive buffers do. Another peer has its own.
#[test]
fn windows_are_opened_by_the_memory_of_the_host() {
    run(async {
        let small = Small::with(Bytes::mib(24), Bytes::mib(8));
        let own = Key::generate();
        let mut kept = Vec::new();
        for _ in 0..4 {
            let [near, far] = small.connection(&own, Options::default()).await;
            let (stream, _) = fill(&near, 16 << 20).await;
            kept.push((near, far, stream));
        }
        let acknowledged: u64 =
            kept.iter().map(|(.., stream)| stream.sending().acknowledged()).sum();
        assert!(acknowledged > 2 << 20, "{acknowledged} bytes were taken");
        // Each has a little in any case.
        assert!(acknowledged <= (8 << 20) + (3 << 18), "{acknowledged} bytes were taken");
        let taken = small.memory.taken();
        assert!(taken <= Bytes::mib(8 + 3), "{taken:?}");
        let [near, far] = small.connection(&Key::generate(), Options::default()).await;
        tokio::spawn(echo(far));
        exchange(&near, 4_000_000).await;
        assert!(kept.iter().all(|(near, ..)| !near.has_ended()), "nobody is closed for it");
        drop((kept, near));
        let gone = async {
            while small.memory.taken() > Bytes::ZERO {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(20), gone).await.expect("all of it is given back");
    });
}

/// What this side writes to a peer that does not read it counts too. All of it arrives once the
/// peer reads.
#[test]
fn writers_wait_for_the_memory_of_the_host() {
    run(async {
        let small = Small::with(Bytes::mib(24), Bytes::mib(3));
        let mut options = Options::default();
        options.config.receive_buffer = Bytes::kib(64);
        options.config.max_receive_buffer = Bytes::kib(128);
        let [near, far] = small.connection(&Key::generate(), options).await;
        let mut streams = Vec::new();
        for _ in 0..20 {
            streams.push(fill(&far, 1 << 20).await);
        }
        let taken = small.memory.taken();
        assert!(taken <= Bytes::mib(4), "{taken:?}");
        let written: usize = streams.iter().map(|(_, written)| written).sum();
        assert!(written < 4 << 20, "{written} bytes were taken");
        let more = 200_000;
        let writers: Vec<_> = streams
            .into_iter()
            .map(|(mut stream, written)| {
                tokio::spawn(async move {
                    stream.write_all(&vec![2; more]).await.expect("it is open");
                    stream.shutdown().await.expect("it is open");
                    (stream, written)
                })
            })
            .collect();
        let mut readers = Vec::new();
        for _ in 0..20 {
            let mut stream = near.accept_stream().await.expect("it was opened");
            readers.push(tokio::spawn(async move {
                let mut arrived = Vec::new();
                stream.read_to_end(&mut arrived).await.expect("it is whole");
                arrived.len()
            }));
        }
        let mut read = 0;
        for reader in readers {
            read += reader.await.expect("no panic");
        }
        for writer in writers {
            writer.await.expect("no panic");
        }
        assert_eq!(read, written + 20 * more);
    });
}

#[test]
fn a_stranger_has_few_paths_and_datagrams() {
    run(async {
        let (listening, key) = listen(&anywhere(), Options::default());
        let port = listening.local_addresses()[0].port();
        let endpoint = Endpoint::new().expect("there are threads");
        let tls = Arc::new(client(&Key::generate(), &key));
        let many = vec![Route::to(([127, 0, 0, 1], port).into()).with_weight(40)];
        let connecting = endpoint.connect(many, &tls, Options::default());
        let (near, far) = tokio::join!(connecting, listening.accept());
        let (near, far) = (near.expect("it answers"), far.expect("it listens"));
        for _ in 0..100 {
            near.send_datagram(vec![1; 1_000]).expect("there is room");
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let paths = far.stats().await.routes.len();
        assert!((1..=16).contains(&paths), "{paths} paths");
        let mut datagrams = 0;
        while timeout(Duration::from_millis(50), far.receive_datagram()).await.is_ok() {
            datagrams += 1;
        }
        assert!((1..=16).contains(&datagrams), "{datagrams} datagrams");
        // Once it is welcome it has what it asks for.
        far.admit(Bytes::mib(1));
        let opened = async {
            while far.stats().await.routes.len() < 40 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(20), opened).await.expect("its paths are opened later");
    });
}

/// Somebody who sees the packets of an idle connection, and has the token of a path's reset.
#[test]
fn a_reset_ends_no_connection_whose_peer_is_alive() {
    run(async {
        let root = [5; 32];
        let listening = Listening { secret: Some(root), ..anywhere() };
        let (far_endpoint, key) = listen(&listening, Options::default());
        let addresses = far_endpoint.local_addresses().to_vec();
        let to: SocketAddr = ([127, 0, 0, 1], addresses[0].port()).into();
        let near = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port is free"));
        let between = near.local_addr().expect("it is bound");
        let (stop, latest) = (Arc::<AtomicBool>::default(), Arc::<Mutex<_>>::default());
        let forwarding = std::thread::spawn({
            let (near, stop, latest) = (Arc::clone(&near), Arc::clone(&stop), Arc::clone(&latest));
            move || forward(&near, to, &stop, &latest)
        });
        let endpoint = Endpoint::new().expect("there are threads");
        let tls = Arc::new(client(&Key::generate(), &key));
        let options = Options { keep_alive: None, ..Options::default() };
        let connecting = endpoint.connect(vec![Route::to(between)], &tls, options);
        let (connection, far) = tokio::join!(connecting, far_endpoint.accept());
        let (connection, far) = (connection.expect("it answers"), far.expect("it listens"));
        far.admit(Bytes::mib(1));
        tokio::time::sleep(Duration::from_millis(500)).await;
        // What this host says when it has forgotten the connection, by its own secret.
        let (packet, dialing) = latest.lock().expect("no panic").clone().expect("there is one");
        let forgetful = secure::Listener::new(
            &Arc::new(server(&key)),
            &Arc::new(secure::Settings::default()),
            secure::Limits::default(),
            secure::Secret::new(&root, &addresses),
        );
        let (mut forgetful, mut packet) = (forgetful.expect("usable"), packet);
        assert!(forgetful.handle_datagram(Time::ZERO, dialing, &mut packet).is_none());
        let reset = forgetful.poll_transmit(Time::ZERO).expect("it answers").bytes;
        for _ in 0..10 {
            near.send_to(&reset, dialing).expect("it is a socket");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(!connection.has_ended(), "a live peer's connection is reset");
        // Without the peer, the same ends it.
        stop.store(true, Ordering::Relaxed);
        forwarding.join().expect("no panic");
        let began = Instant::now();
        near.send_to(&reset, dialing).expect("it is a socket");
        assert!(matches!(connection.ended().await, ConnectionError::Reset));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

/// A connection through a forwarder whose port a test may close: then the host refuses packets.
struct Refusable {
    between: SocketAddr,
    to: SocketAddr,
    forwarding: Option<(Arc<AtomicBool>, std::thread::JoinHandle<()>)>,
}

impl Refusable {
    fn new(to: SocketAddr) -> Refusable {
        let between = ([127, 0, 0, 1], 0).into();
        let mut refusable = Refusable { between, to, forwarding: None };
        refusable.open();
        refusable
    }

    fn open(&mut self) {
        let near = UdpSocket::bind(self.between).expect("the port is free");
        self.between = near.local_addr().expect("it is bound");
        let (stop, to) = (Arc::<AtomicBool>::default(), self.to);
        let forwarding = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || forward(&near, to, &stop, &Mutex::default())
        });
        self.forwarding = Some((stop, forwarding));
    }

    fn close(&mut self) {
        let (stop, forwarding) = self.forwarding.take().expect("it is open");
        stop.store(true, Ordering::Relaxed);
        forwarding.join().expect("no panic");
    }
}

/// The far side was killed, and its port is closed: the kernel there says so at once. It took the
/// idle timeout to notice.
#[test]
fn a_peer_whose_host_refuses_packets_is_gone_soon() {
    run(async {
        let echo = Echo::start(Options::default());
        let mut way = Refusable::new(([127, 0, 0, 1], echo.port).into());
        let (_endpoint, connection) = echo.connect(vec![Route::to(way.between)]).await;
        exchange(&connection, 10_000).await;
        way.close();
        let began = Instant::now();
        let mut stream = connection.open_stream().await.expect("it is alive");
        let _ = stream.write_all(&[1; 1_000]).await;
        assert!(matches!(connection.ended().await, ConnectionError::Refused));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    });
}

/// Rules of a firewall that are loaded anew, for example.
#[test]
fn a_host_that_refuses_for_a_moment_keeps_its_connections() {
    run(async {
        let echo = Echo::start(Options::default());
        let mut way = Refusable::new(([127, 0, 0, 1], echo.port).into());
        let (_endpoint, connection) = echo.connect(vec![Route::to(way.between)]).await;
        exchange(&connection, 10_000).await;
        let mut events = connection.events();
        way.close();
        let mut stream = connection.open_stream().await.expect("it is alive");
        stream.write_all(&[1; 1_000]).await.expect("there is room");
        while !matches!(events.recv().await.expect("it lives").change, RouteChange::Failing { .. })
        {
        }
        way.open();
        exchange(&connection, 10_000).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!connection.has_ended(), "what it heard meanwhile counts");
        exchange(&connection, 10_000).await;
    });
}

/// Forwards between one dialing host and a listening one, and keeps the dialing one's latest data
/// packet, with its address.
fn forward(
    near: &UdpSocket,
    to: SocketAddr,
    stop: &AtomicBool,
    latest: &Mutex<Option<(Vec<u8>, SocketAddr)>>,
) {
    let far = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    for socket in [near, &far] {
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("it is a socket");
    }
    let (mut dialing, mut buffer) = (None, vec![0; 65_536]);
    while !stop.load(Ordering::Relaxed) {
        while let Ok((length, from)) = near.recv_from(&mut buffer) {
            dialing = Some(from);
            let _ = far.send_to(&buffer[..length], to);
            if buffer[0] & 0x80 == 0 {
                *latest.lock().expect("no panic") = Some((buffer[..length].to_vec(), from));
            }
        }
        while let Ok((length, _)) = far.recv_from(&mut buffer) {
            if let Some(dialing) = dialing {
                let _ = near.send_to(&buffer[..length], dialing);
            }
        }
    }
}
