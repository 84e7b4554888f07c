//! Paths of several connections: a line whose buffers hold each connection back.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Host, Scratch, fetch_options, parties, receive_options, send_options, serve_options};
use events::{Event, Events, PathState, Summary};
use files::Error;
use peer::Timetable;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{interval, timeout};
use units::Rate;

/// A line to a listening host. It reads the data of each connection at its own rate, with a small
/// buffer of the kernel in front, so that the sender's kernel finds the receive window full.
struct NarrowLine {
    port: u16,
    /// The number of connections that have carried data.
    carrying: Arc<AtomicUsize>,
}

/// Bytes that the line takes from each connection every 5 ms: 6.4 MB/s.
const SIP: usize = 32 * 1024;
/// Bytes after which a connection has joined its path and carries data.
const USED: usize = 200_000;
/// The line's buffer for each connection.
const BUFFER: u32 = 64 * 1024;

/// The way of the data.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// From the dialing side: `send`.
    In,
    /// To the dialing side: `get`.
    Out,
}

impl NarrowLine {
    /// A line to `port`. Once a second connection carries data and so many bytes of connection
    /// number `fatal` were taken, that one breaks.
    fn to(port: u16, way: Way, fatal: Option<(usize, usize)>) -> NarrowLine {
        let socket = narrow();
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let listener = socket.listen(64).expect("it listens");
        let line = NarrowLine {
            port: listener.local_addr().expect("an address").port(),
            carrying: Arc::default(),
        };
        tokio::spawn(line.carry_all(listener, port, way, fatal));
        line
    }

    fn carry_all(
        &self,
        listener: TcpListener,
        port: u16,
        way: Way,
        fatal: Option<(usize, usize)>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let carrying = Arc::clone(&self.carrying);
        async move {
            let mut number = 0;
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = narrow().connect(([127, 0, 0, 1], port).into()).await else {
                    continue;
                };
                let most = fatal.and_then(|(whom, bytes)| (whom == number).then_some(bytes));
                let (from, to) = if way == Way::In { (near, far) } else { (far, near) };
                tokio::spawn(carry(from, to, most, Arc::clone(&carrying)));
                number += 1;
            }
        }
    }
}

/// A socket with the line's buffer.
fn narrow() -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(BUFFER).expect("a smaller buffer");
    socket
}

/// Carries a connection, whose data flow from `from` to `to`, to its end or until it breaks.
async fn carry(from: TcpStream, to: TcpStream, most: Option<usize>, carrying: Arc<AtomicUsize>) {
    let (from_in, mut from_out) = from.into_split();
    let (mut to_in, mut to_out) = to.into_split();
    let answers = async move {
        let _ = tokio::io::copy(&mut to_in, &mut from_out).await;
        let _ = from_out.shutdown().await;
    };
    let data = async move {
        let (mut pace, mut passed, mut is_used) = (interval(Duration::from_millis(5)), 0, false);
        let mut buffer = vec![0; SIP];
        loop {
            pace.tick().await;
            let Ok(()) = from_in.readable().await else { return true };
            match from_in.try_read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    passed += length;
                    if passed >= USED && !std::mem::replace(&mut is_used, true) {
                        carrying.fetch_add(1, Ordering::SeqCst);
                    }
                    if to_out.write_all(&buffer[..length]).await.is_err() {
                        return true;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return true,
            }
            if most.is_some_and(|most| passed >= most) && carrying.load(Ordering::SeqCst) > 1 {
                return true;
            }
        }
        let _ = to_out.shutdown().await;
        false
    };
    tokio::select! {
        () = answers => {}
        // The answers still come; a broken line closes both sides.
        broken = data => if !broken { tokio::time::sleep(Duration::from_secs(10)).await },
    }
}

/// The account of a transfer.
struct Sent {
    outcome: Result<Summary, Error>,
    /// The most connections of the path at any time.
    connections: usize,
    /// Reasons for which the path was lost.
    losses: Vec<String>,
    notices: Vec<String>,
}

/// Runs a transfer of the dialing side.
async fn run<F>(transfer: impl FnOnce(Events) -> F) -> Sent
where
    F: Future<Output = Result<Summary, Error>>,
{
    let (events, mut heard) = common::unheard();
    let outcome = timeout(Duration::from_secs(60), transfer(events)).await;
    let outcome = outcome.expect("it ends");
    let mut sent = Sent { outcome, connections: 0, losses: Vec::new(), notices: Vec::new() };
    while let Some(event) = heard.recv().await {
        match event {
            Event::Progress(progress) => {
                let most = progress.paths.iter().map(|path| path.connections.unwrap_or(0)).max();
                sent.connections = sent.connections.max(most.unwrap_or(0));
            }
            Event::Path { event, .. } if event.state == PathState::Lost => {
                sent.losses.push(event.why);
            }
            Event::Notice { text } => sent.notices.push(text),
            _ => {}
        }
    }
    sent
}

fn assert_arrived(scratch: &Scratch, file: &Path) {
    let arrived = fs::read(scratch.inbox().join("data")).expect("it arrived");
    assert!(arrived == fs::read(file).expect("the source"), "the copy differs");
}

/// One connection would take 16 seconds.
const SIZE: usize = 100_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_a_buffer_holds_back_gets_more_connections() {
    let scratch = Scratch::new("more");
    let (identity, token) = parties();
    let file = scratch.file("data", SIZE);
    let mut receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let mut heard = std::mem::replace(&mut receiving.events, common::unheard().1);
    let line = NarrowLine::to(receiving.port, Way::In, None);
    let mut options = send_options(&[&file], line.port, &token);
    let bound = Rate::mbit(160);
    options.transfer.dial.max_rate = Some(Timetable::always(bound));
    let sent = run(|events| files::send(options, events)).await;
    let summary = sent.outcome.expect("sent");
    receiving.outcome().await.expect("received");
    assert_arrived(&scratch, &file);
    assert!(sent.connections > 1, "{} connections", sent.connections);
    assert!(sent.losses.is_empty(), "{:?}", sent.losses);
    assert_eq!(summary.paths.len(), 1, "one path: {:?}", summary.paths);
    let rate = summary.moved / summary.elapsed;
    assert!(rate < Rate::mbit(168), "the bound holds over all connections: {rate}");
    let mut states = Vec::new();
    while let Some(event) = heard.recv().await {
        if let Event::Path { event, .. } = event {
            states.push(event.state);
        }
    }
    // The receiver may end before it reports that the path was closed.
    assert_eq!(states.first(), Some(&PathState::Active));
    assert!(states[1..].iter().all(|state| *state == PathState::Lost), "{states:?}");
    assert!(states.len() <= 2, "one path to the receiver too: {states:?}");
    let told = sent.notices.iter().filter(|text| text.contains("receive buffer")).count();
    assert_eq!(told, 1, "{:?}", sent.notices);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_brings_data_gets_more_connections_too() {
    for (fatal, name) in [(None, "get-more"), (Some((0, 3_000_000)), "get-the-first-lost")] {
        let scratch = Scratch::new(name);
        let (identity, token) = parties();
        let offered = scratch.0.join("offered");
        fs::create_dir(&offered).expect("a folder");
        let file = scratch.file("offered/data", SIZE);
        let serving = Host::serve(serve_options(&offered, &identity, &token)).await;
        let line = NarrowLine::to(serving.port, Way::Out, fatal);
        let options = fetch_options(&scratch, &["data"], line.port, &token);
        let got = run(|events| files::fetch(options, events)).await;
        let summary = got.outcome.expect("fetched");
        serving.outcome().await.expect("served");
        assert_arrived(&scratch, &file);
        assert!(line.carrying.load(Ordering::SeqCst) > 1, "{name}: there was another connection");
        assert!(got.losses.is_empty(), "{name}: {:?}", got.losses);
        assert_eq!(summary.paths.len(), 1, "{name}: one path: {:?}", summary.paths);
        assert!(summary.repeated.0 < 20_000_000, "{name}: {} came again", summary.repeated);
        if fatal.is_none() {
            assert!(got.connections > 1, "{} connections", got.connections);
            let is_told = |text: &&String| text.contains("this host's receive buffer");
            assert_eq!(got.notices.iter().filter(is_told).count(), 1, "{:?}", got.notices);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_one_connection_is_no_loss_of_the_path() {
    for (number, name) in [(0, "the-first"), (1, "a-further")] {
        let scratch = Scratch::new(name);
        let (identity, token) = parties();
        let file = scratch.file("data", SIZE);
        let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
        let line = NarrowLine::to(receiving.port, Way::In, Some((number, 3_000_000)));
        let options = send_options(&[&file], line.port, &token);
        let sent = run(|events| files::send(options, events)).await;
        let summary = sent.outcome.expect("sent");
        receiving.outcome().await.expect("received");
        assert_arrived(&scratch, &file);
        assert!(line.carrying.load(Ordering::SeqCst) > 1, "{name}: there was another connection");
        assert!(sent.losses.is_empty(), "{name}: {:?}", sent.losses);
        assert!(summary.repeated.0 < 20_000_000, "{name}: {} were sent again", summary.repeated);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_counts_all_connections_of_a_path() {
    let scratch = Scratch::new("cap-of-all");
    let (identity, token) = parties();
    let file = scratch.file("data", SIZE);
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let line = NarrowLine::to(receiving.port, Way::In, None);
    let mut options = send_options(&[&file], line.port, &token);
    let usage = scratch.0.join("usage");
    options.transfer.dial.usage = Some(usage.clone());
    options.transfer.dial.paths = vec!["lo,cap=60MB/month".parse().expect("a path")];
    let sent = run(|events| files::send(options, events)).await;
    let error = sent.outcome.expect_err("more than the cap");
    assert!(matches!(error, Error::UsedUp { .. }), "{error}");
    assert!(sent.connections > 1, "{} connections", sent.connections);
    let carried = common::counted(&usage, "lo");
    // The kernel sends segments again that the line's buffers drop, also once the cap is reached; a
    // single connection carries a sixth of this.
    assert!((55_000_000..=64_000_000).contains(&carried), "{carried}");
    receiving.task.abort();
}
