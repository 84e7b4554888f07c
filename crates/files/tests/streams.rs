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
use events::{Event, Summary};
use files::{Error, SendOptions, StreamInput};
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
            if let Event::FileDone { name, size, blake3, .. } = event {
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

/// Runs a sender to its error, and returns that and what it said.
async fn fails(options: SendOptions) -> (Error, Vec<String>) {
    let (events, mut heard) = unheard();
    let sent = timeout(Duration::from_secs(60), files::send(options, events)).await;
    let error = sent.expect("it ends").expect_err("it fails");
    let mut notices = Vec::new();
    while let Some(event) = heard.recv().await {
        if let Event::Notice { text } = event {
            notices.push(text);
        }
    }
    (error, notices)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spooled_stream_is_sent_from_where_it_was_interrupted() {
    let scratch = Scratch::new("stream-spool");
    let (identity, token) = parties();
    let (mut receiving, apart) =
        Host::receive_apart(receive_options(&scratch, &identity, &token)).await;
    let pipe = pipe(&scratch);
    let spool = scratch.0.join("spool");
    let size = 30_000_000;
    // The producer outlives the network.
    let producer = Producer::start(&pipe, size, 1 << 20, Duration::from_millis(200));
    let mut options = stream_options(pipe, receiving.port, &token);
    options.spool = Some(spool.clone());
    options.transfer.dial.patience = Span::from_secs(2);
    let sending = tokio::spawn(fails(options.clone()));
    receiving.has(8_000_000).await;
    apart.kill().await;
    let (error, notices) = sending.await.expect("no panic");
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    assert!(notices.iter().any(|text| text.contains("the rest of the stream")), "{notices:?}");
    assert!(notices.last().expect("some").contains("all of the stream"), "{notices:?}");
    producer.thread.join().expect("no panic").expect("all was read");
    assert!(!scratch.inbox().join("db.sql").exists());

    // Another stream of the name must not replace it.
    let (error, _) = fails(options.clone()).await;
    assert!(error.to_string().contains("complete stream"), "{error}");

    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    options.stream = Some(StreamInput::Spool);
    options.to.port = receiving.port;
    options.transfer.verify = true;
    let sent = send(options.clone()).await.expect("sent");
    receiving.outcome().await.expect("received");
    check_arrived(&scratch, size);
    assert!(sent.moved.0 <= 23_000_000, "{} were sent again", sent.moved);
    assert_eq!(sent.total.0, size);
    assert_eq!(fs::read_dir(&spool).expect("the spool").count(), 0, "nothing is left of it");
    let (error, _) = fails(options).await;
    assert!(error.to_string().contains("there is no stream"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_a_receiver_is_spooled() {
    let scratch = Scratch::new("stream-nobody");
    let (identity, token) = parties();
    let pipe = pipe(&scratch);
    let size = 3_000_000;
    let producer = Producer::start(&pipe, size, 1 << 20, Duration::ZERO);
    // Nobody listens on this port.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let mut options = stream_options(pipe, port, &token);
    options.spool = Some(scratch.0.join("spool"));
    options.transfer.dial.patience = Span::from_secs(1);
    let (error, _) = fails(options.clone()).await;
    assert!(matches!(error, Error::Peer(peer::Error::NoPath { .. })), "{error}");
    producer.thread.join().expect("no panic").expect("all was read");
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    options.stream = Some(StreamInput::Spool);
    options.to.port = receiving.port;
    send(options).await.expect("sent");
    receiving.outcome().await.expect("received");
    check_arrived(&scratch, size);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spool_without_an_end_is_not_sent() {
    let scratch = Scratch::new("stream-torn");
    let (identity, token) = parties();
    let mut receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let pipe = pipe(&scratch);
    let producer = Producer::start(&pipe, u64::MAX, 1 << 20, Duration::from_millis(100));
    let mut options = stream_options(pipe.clone(), receiving.port, &token);
    options.spool = Some(scratch.0.join("spool"));
    let sending = tokio::spawn(send(options.clone()));
    receiving.has(2_000_000).await;
    // The sender dies while the stream goes on.
    sending.abort();
    let _ = sending.await;
    assert!(producer.thread.join().expect("no panic").is_err(), "nobody reads the pipe any more");
    options.stream = Some(StreamInput::Spool);
    let mut error = fails(options.clone()).await.0;
    for _ in 0..50 {
        // The end of a process releases the spool at once; here its tasks end one by one.
        if !error.to_string().contains("another 'anabranch send'") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        error = fails(options.clone()).await.0;
    }
    assert!(error.to_string().contains("the end of the stream"), "{error}");
    // It gives way to the next of its name.
    let producer = Producer::start(&pipe, 1_000_000, 1 << 20, Duration::ZERO);
    options.stream = Some(StreamInput::Pipe(pipe));
    send(options).await.expect("sent");
    producer.thread.join().expect("no panic").expect("all was read");
    receiving.outcome().await.expect("received");
    check_arrived(&scratch, 1_000_000);
}
