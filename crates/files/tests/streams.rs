//! Streams over real sockets on loopback.

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{Host, Scratch, parties, receive_options, send, send_options, unheard};
use files::{Error, Event, SendOptions, StreamInput, Summary};
use peer::{PathSpec, Remote, Timetable, Token};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use transfer::BLOCK;
use units::{Rate, Span};

/// Seeded bytes, the same for the same position.
fn seeded(from: u64, length: usize) -> Vec<u8> {
    let word = |at: u64| (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).to_le_bytes();
    (from..from + length as u64).map(|at| word(at)[(at % 8) as usize]).collect()
}

/// A named pipe in a scratch directory.
fn pipe(scratch: &Scratch) -> PathBuf {
    let path = scratch.0.join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");
    path
}

/// Writes seeded bytes into a pipe, in pieces of `piece` bytes with pauses; counts them. Endless
/// ones are the same in each piece, to be made faster than any network.
struct Producer {
    written: Arc<AtomicU64>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Producer {
    fn start(path: &Path, size: u64, piece: usize, pause: Duration) -> Producer {
        let (path, written) = (path.to_path_buf(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&written);
        let thread = std::thread::spawn(move || {
            let mut pipe = fs::OpenOptions::new().write(true).open(path)?;
            let mut at = 0;
            let endless = if size == u64::MAX { seeded(0, piece) } else { Vec::new() };
            while at < size {
                let length = piece.min(usize::try_from(size - at).unwrap_or(piece));
                if endless.is_empty() {
                    pipe.write_all(&seeded(at, length))?;
                } else {
                    pipe.write_all(&endless)?;
                }
                at += length as u64;
                count.store(at, Ordering::SeqCst);
                std::thread::sleep(pause);
            }
            Ok(())
        });
        Producer { written, thread }
    }
}

fn stream_options(pipe: PathBuf, port: u16, token: &Token) -> SendOptions {
    SendOptions {
        stream: Some(StreamInput::Pipe(pipe)),
        rename: Some("db.sql".into()),
        ..send_options(&[], port, token)
    }
}

/// Checks that the stream arrived with this size, and that nothing else did.
fn check_arrived(scratch: &Scratch, size: u64) {
    let arrived = fs::read(scratch.inbox().join("db.sql")).expect("it arrived");
    assert_eq!(arrived.len() as u64, size);
    assert!(arrived == seeded(0, arrived.len()), "the bytes of {size} differ");
    assert_eq!(fs::read_dir(scratch.inbox()).expect("the inbox").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_all_sizes_arrive_whole() {
    for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK, 9_000_001] {
        let scratch = Scratch::new(&format!("stream-{size}"));
        let (identity, token) = parties();
        let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
        let pipe = pipe(&scratch);
        let producer = Producer::start(&pipe, size, 100_000, Duration::ZERO);
        let (events, mut heard) = unheard();
        let options = stream_options(pipe, receiving.port, &token);
        let sent = timeout(Duration::from_secs(30), files::send(options, events)).await;
        let sent = sent.expect("it ends").expect("sent");
        let received = receiving.outcome().await.expect("received");
        producer.thread.join().expect("no panic").expect("all was read");
        let figures = |summary: &Summary| (summary.files, summary.total.0, summary.moved.0);
        assert_eq!(figures(&sent), (1, size, size));
        assert_eq!(figures(&received), (1, size, size));
        check_arrived(&scratch, size);
        let whole = blake3::hash(&seeded(0, usize::try_from(size).expect("small")));
        let mut done = Vec::new();
        while let Some(event) = heard.recv().await {
            if let Event::FileDone { name, size, blake3 } = event {
                done.push((name, size.0, blake3));
            }
        }
        assert_eq!(done, [("db.sql".to_string(), size, Some(whole.to_hex().to_string()))]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_takes_all_paths_and_survives_the_death_of_one() {
    let scratch = Scratch::new("stream-paths");
    let (identity, token) = parties();
    let mut options = receive_options(&scratch, &identity, &token);
    options.listen.addresses = vec!["0.0.0.0:0".parse().expect("an address")];
    let mut receiving = Host::receive(options).await;
    let relay = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let relayed = relay.local_addr().expect("an address").port();
    let port = receiving.port;
    // The second path dies, and does not come back.
    let relaying = tokio::spawn(async move {
        let (mut near, _) = relay.accept().await.expect("a connection");
        let mut far = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    });
    let pipe = pipe(&scratch);
    let size = 40_000_000;
    let producer = Producer::start(&pipe, size, 1 << 20, Duration::ZERO);
    let mut options = stream_options(pipe, port, &token);
    options.transfer.dial.paths = [("127.0.7.1", port), ("127.0.0.1", relayed)]
        .map(|(host, port)| PathSpec {
            max: Some(Rate::mbit(60)),
            to: Some(Remote { host: host.into(), zone: None, port }),
            ..PathSpec::over("lo")
        })
        .to_vec();
    let sending = tokio::spawn(send(options));
    receiving.has(15_000_000).await;
    relaying.abort();
    let sent = sending.await.expect("no panic").expect("sent");
    receiving.outcome().await.expect("received");
    producer.thread.join().expect("no panic").expect("all was read");
    check_arrived(&scratch, size);
    let carried: Vec<u64> = sent.paths.iter().map(|path| path.done.0).collect();
    assert!(carried.iter().sum::<u64>() >= 20_000_000, "{carried:?}");
    assert!(sent.finished_at.len() == 2, "both carried data: {:?}", sent.finished_at);
    assert!(sent.repeated.0 < 4_000_000, "{} repeated", sent.repeated);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_paths_wait_for_a_slow_producer_and_repeat_nothing() {
    let scratch = Scratch::new("stream-slow");
    let (identity, token) = parties();
    let mut options = receive_options(&scratch, &identity, &token);
    options.listen.addresses = vec!["0.0.0.0:0".parse().expect("an address")];
    let receiving = Host::receive(options).await;
    let pipe = pipe(&scratch);
    let size = 12 * BLOCK + 5;
    let producer = Producer::start(&pipe, size, 262_144, Duration::from_millis(200));
    let mut options = stream_options(pipe, receiving.port, &token);
    options.transfer.dial.paths = (1..=2)
        .map(|i| PathSpec {
            to: Some(Remote { host: format!("127.0.7.{i}"), zone: None, port: receiving.port }),
            ..PathSpec::over("lo")
        })
        .collect();
    let sent = send(options).await.expect("sent");
    receiving.outcome().await.expect("received");
    producer.thread.join().expect("no panic").expect("all was read");
    check_arrived(&scratch, size);
    // No more than the last block may go twice, at the end.
    assert!(sent.repeated.0 <= BLOCK, "{} repeated", sent.repeated);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fast_producer_waits_for_the_network() {
    let scratch = Scratch::new("stream-fast");
    let (identity, token) = parties();
    let mut receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let pipe = pipe(&scratch);
    let producer = Producer::start(&pipe, u64::MAX, 1 << 20, Duration::ZERO);
    let mut options = stream_options(pipe, receiving.port, &token);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(4)));
    let sending = tokio::spawn(send(options));
    receiving.has(100_000).await;
    // Until the producer stands still.
    let mut written = u64::MAX;
    while written != producer.written.load(Ordering::SeqCst) {
        written = producer.written.load(Ordering::SeqCst);
        assert!(written < 300 << 20, "{written} bytes were read ahead");
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    assert!(written > 200 << 20, "{written} bytes are little for a fast network");
    // The sender dies: nothing has the name.
    sending.abort();
    let _ = sending.await;
    assert!(!scratch.inbox().join("db.sql").exists());
    assert!(producer.thread.join().expect("no panic").is_err(), "nobody reads the pipe any more");
    receiving.task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_survives_a_restart_of_the_receiver() {
    let scratch = Scratch::new("stream-restart");
    let (identity, token) = parties();
    let options = receive_options(&scratch, &identity, &token);
    let (mut receiving, apart) = Host::receive_apart(options).await;
    let port = receiving.port;
    let pipe = pipe(&scratch);
    let size = 40_000_000;
    let producer = Producer::start(&pipe, size, 1 << 20, Duration::ZERO);
    let mut options = stream_options(pipe, port, &token);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(80)));
    options.transfer.dial.patience = Span::from_secs(20);
    let sending = tokio::spawn(send(options));
    receiving.has(12_000_000).await;
    apart.kill().await;
    let mut again = receive_options(&scratch, &identity, &token);
    again.listen.addresses = vec![format!("127.0.0.1:{port}").parse().expect("an address")];
    let receiving = Host::receive(again).await;
    let sent = sending.await.expect("no panic").expect("sent");
    receiving.outcome().await.expect("received");
    producer.thread.join().expect("no panic").expect("all was read");
    check_arrived(&scratch, size);
    assert!(sent.moved.0 < 32_000_000, "{} were sent again", sent.moved);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_stream_is_refused() {
    let scratch = Scratch::new("stream-bad");
    let (identity, token) = parties();
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    // The pipe is another file by the time that it is opened.
    let file = scratch.file("data", 10);
    let error = send(stream_options(file, receiving.port, &token)).await.expect_err("no pipe");
    assert!(matches!(error, Error::Source { .. }), "{error}");
    for name in ["", "a/b", "..", ".anabranch-partial"] {
        let options = SendOptions {
            rename: Some(name.into()),
            ..stream_options(scratch.0.join("none"), receiving.port, &token)
        };
        let error = send(options).await.expect_err("no name");
        assert!(matches!(error, Error::Peer(peer::Error::Usage(_))), "{name}: {error}");
    }
    receiving.task.abort();
}
