//! Transfers over a striped UDP connection: what holds over TCP holds there too.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{
    Host, Scratch, fetch, fetch_options, parties, receive_options, send, send_options,
    serve_options,
};
use events::{Event, Events};
use files::{CarrierChoice, Error, ReceiveOptions, SendOptions};
use peer::tls::ClientTls;
use peer::{AuthorizedPeers, Credential, Identity, Peer, Timetable};
use stripe::{Connection, Endpoint, Route, Stream};
use tokio::time::timeout;
use units::{Rate, Span};

fn over_udp(mut options: SendOptions) -> SendOptions {
    options.transfer.carrier = CarrierChoice::Udp(stripe::Options::default());
    options
}

fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_arrives_and_both_sides_end_soon() {
    let scratch = Scratch::new("udp");
    let (identity, token) = parties();
    let file = scratch.file("file", 8_000_000);
    let host = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let (events, mut heard) = Events::observed();
    let options = over_udp(send_options(&[&file], host.port, &token));
    let sent = timeout(Duration::from_secs(30), files::send(options, events)).await.unwrap();
    let summary = sent.unwrap();
    let ended = Instant::now();
    host.outcome().await.unwrap();
    assert!(ended.elapsed() < Duration::from_secs(2), "the receiver waited for a goodbye");
    assert!(same(&file, &scratch.inbox().join("file")));
    // The routes are the paths that people see.
    let names: Vec<_> = summary.paths.iter().map(|path| path.name.as_str()).collect();
    assert_eq!(names, ["lo"]);
    assert_eq!(summary.paths[0].congestion_control.as_deref(), Some("coupled-bbr"));
    assert!((summary.paths[0].share - 1.0).abs() < 0.01, "{:?}", summary.paths);
    let mut states = Vec::new();
    while let Some(event) = heard.try_recv() {
        if let Event::Path { event, .. } = event {
            states.push((event.name, event.state));
        }
    }
    assert!(states.iter().all(|(name, _)| name == "lo") && !states.is_empty(), "{states:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_fetched() {
    let scratch = Scratch::new("udp-fetch");
    let (identity, token) = parties();
    let folder = scratch.0.join("served");
    fs::create_dir_all(folder.join("tree/deep")).unwrap();
    for number in 0..200 {
        fs::write(folder.join(format!("tree/deep/{number}")), vec![7; number * 31]).unwrap();
    }
    fs::rename(scratch.file("large", 3_000_000), folder.join("tree/large")).unwrap();
    let host = Host::serve(serve_options(&folder, &identity, &token)).await;
    let mut options = fetch_options(&scratch, &["tree"], host.port, &token);
    options.transfer.carrier = CarrierChoice::Udp(stripe::Options::default());
    let summary = fetch(options).await.unwrap();
    host.outcome().await.unwrap();
    assert_eq!(summary.files, 201);
    assert!(same(&folder.join("tree/large"), &scratch.inbox().join("tree/large")));
    assert!(same(&folder.join("tree/deep/199"), &scratch.inbox().join("tree/deep/199")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_is_kept() {
    let scratch = Scratch::new("udp-rate");
    let (identity, token) = parties();
    let file = scratch.file("file", 2_000_000);
    let host = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let mut options = over_udp(send_options(&[&file], host.port, &token));
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(8)));
    let began = Instant::now();
    send(options).await.unwrap();
    assert!(began.elapsed() > Duration::from_millis(1_700), "{:?}", began.elapsed());
    host.outcome().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_refused() {
    let scratch = Scratch::new("udp-strangers");
    let (identity, token) = parties();
    let (other, _) = parties();
    let file = scratch.file("file", 10);
    let host = Host::receive(receive_options(&scratch, &identity, &token)).await;
    // A token of another host: its key is not there.
    let mut wrong = over_udp(send_options(&[&file], host.port, &token));
    wrong.credential = Credential::Pinned(other.fingerprint());
    wrong.transfer.dial.patience = Span::from_secs(2);
    let error = send(wrong).await.unwrap_err();
    assert!(matches!(error, Error::Peer(_)), "{error}");
    // The right key, and no token.
    let mut without = over_udp(send_options(&[&file], host.port, &token));
    without.credential = Credential::Pinned(identity.fingerprint());
    let error = send(without).await.unwrap_err();
    assert_eq!(error.exit_code(), 4, "{error}");
    assert!(!scratch.inbox().join("file").exists());
    send(over_udp(send_options(&[&file], host.port, &token))).await.unwrap();
    host.outcome().await.unwrap();
}

/// A striped connection of a key, beside those of transfers.
async fn connection_of(me: &Identity, host: &Identity, port: u16) -> (Endpoint, Connection) {
    let tls = ClientTls::new(me, host.fingerprint()).unwrap();
    let endpoint = Endpoint::new().unwrap();
    let routes = vec![Route::to(([127, 0, 0, 1], port).into())];
    let connecting = endpoint.connect(routes, tls.config(), stripe::Options::default());
    let connection = connecting.await.unwrap();
    (endpoint, connection)
}

/// Ten streams of a connection, once its peer allows them.
async fn ten_streams(connection: &Connection) -> Vec<Stream> {
    let mut streams = Vec::new();
    while streams.len() < 10 {
        streams.push(connection.open_stream().await.unwrap());
    }
    streams
}

/// How many streams a connection gets, of ten.
async fn streams_of(connection: &Connection) -> usize {
    let mut streams = Vec::new();
    while streams.len() < 10 {
        match timeout(Duration::from_millis(500), connection.open_stream()).await {
            Ok(stream) => streams.push(stream.unwrap()),
            Err(_) => break,
        }
    }
    streams.len()
}

/// What was admitted once is a stranger after its key was removed: an open connection ends, idle as
/// it is, and a later one has a stranger's streams.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_key_is_a_stranger_over_udp() {
    let scratch = Scratch::new("udp-removed");
    let (identity, token) = parties();
    let me = Identity::generate().unwrap();
    let peers = AuthorizedPeers::new(vec![Peer::from(me.fingerprint())]);
    let mut receiving = receive_options(&scratch, &identity, &token);
    receiving.listen.authorized = peers.clone();
    receiving.keep = true;
    let host = Host::receive(receiving).await;
    let file = scratch.file("file", 100_000);
    let mut sending = over_udp(send_options(&[&file], host.port, &token));
    sending.credential = Credential::Pinned(identity.fingerprint());
    sending.transfer.dial.identity = me.clone();
    send(sending).await.unwrap();
    let (_one, idle) = connection_of(&me, &identity, host.port).await;
    let _streams = ten_streams(&idle).await;
    peers.replace(Vec::new());
    let ended = timeout(Duration::from_secs(5), idle.ended()).await.unwrap();
    assert_eq!(ended, stripe::ConnectionError::ClosedByPeer { code: 0x204 });
    let (_other, later) = connection_of(&me, &identity, host.port).await;
    assert_eq!(streams_of(&later).await, 4);
    assert!(!later.has_ended(), "a stranger may yet say why it is here");
}

/// The receiver ends and is started again at its port.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_was_started_again_gets_the_rest() {
    let scratch = Scratch::new("udp-again");
    let (identity, token) = parties();
    let file = scratch.file("file", 12_000_000);
    let keeping = |options: ReceiveOptions| ReceiveOptions { keep: true, ..options };
    let options = keeping(receive_options(&scratch, &identity, &token));
    let (mut first, apart) = Host::receive_apart(options.clone()).await;
    let port = first.port;
    let mut sending = over_udp(send_options(&[&file], port, &token));
    sending.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(24)));
    sending.transfer.dial.patience = Span::from_secs(20);
    let sending = tokio::spawn(send(sending));
    first.has(3_000_000).await;
    apart.kill().await;
    // Its last words take a moment.
    while std::net::UdpSocket::bind(("127.0.0.1", port)).is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut again = options;
    again.listen.addresses = vec![([127, 0, 0, 1], port).into()];
    let (_second, _apart) = Host::receive_apart(again).await;
    let summary = sending.await.unwrap().unwrap();
    assert!(same(&file, &scratch.inbox().join("file")));
    assert!(summary.repeated.0 < 6_000_000, "{:?}", summary.repeated);
}

fn auto(mut options: SendOptions) -> SendOptions {
    options.transfer.carrier = CarrierChoice::Auto(stripe::Options::default());
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_shows_both_carriers() {
    let scratch = Scratch::new("udp-auto");
    let (identity, token) = parties();
    let file = scratch.file("file", 3_000_000);
    let host = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let mut options = auto(send_options(&[&file], host.port, &token));
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(20)));
    let summary = send(options).await.unwrap();
    host.outcome().await.unwrap();
    assert!(same(&file, &scratch.inbox().join("file")));
    let names: Vec<_> = summary.paths.iter().map(|path| path.name.as_str()).collect();
    assert_eq!(names, ["lo", "lo (udp)"]);
    // A transfer that is over so soon has no trial.
    assert!(summary.paths[0].share > 0.9, "{:?}", summary.paths);
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_needs_no_udp() {
    let scratch = Scratch::new("udp-none");
    let (identity, token) = parties();
    let file = scratch.file("file", 3_000_000);
    // Somebody else has the port of UDP.
    let busy = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut receiving = receive_options(&scratch, &identity, &token);
    receiving.listen.addresses = vec![busy.local_addr().unwrap()];
    let (events, mut heard) = Events::observed();
    let host = tokio::spawn(files::receive(receiving, events));
    let told = heard.recv().await.unwrap();
    assert!(
        matches!(&told, Event::Notice { text } if text.contains("TCP alone is used")),
        "{told:?}"
    );
    let port = busy.local_addr().unwrap().port();
    send(auto(send_options(&[&file], port, &token))).await.unwrap();
    host.await.unwrap().unwrap();
    assert!(same(&file, &scratch.inbox().join("file")));
}

#[test]
fn a_cap_ends_a_transfer_over_udp() {
    // What was counted is written when the tasks end, into the folder.
    let scratch = Scratch::new("udp-cap");
    tokio::runtime::Runtime::new().unwrap().block_on(ends_by_a_cap(&scratch));
}

async fn ends_by_a_cap(scratch: &Scratch) {
    let (identity, token) = parties();
    let file = scratch.file("data", 30_000_000);
    let receiving = Host::receive(receive_options(scratch, &identity, &token)).await;
    let mut options = over_udp(send_options(&[&file], receiving.port, &token));
    let usage = scratch.0.join("usage");
    options.transfer.dial.usage = Some(usage.clone());
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(40)));
    options.transfer.dial.paths = vec!["lo,cap=10MB/month".parse().unwrap()];
    let error = send(options.clone()).await.unwrap_err();
    assert!(matches!(error, Error::UsedUp { .. }) && error.exit_code() == 11, "{error}");
    assert!(error.to_string().contains("lo: its cap of 10.0 MB a month is used up"), "{error}");
    let counted = common::counted(&usage, "lo");
    assert!((7_000_000..=10_100_000).contains(&counted), "{counted}");
    options.transfer.dial.paths = vec!["lo,cap=100MB/month".parse().unwrap()];
    let sent = send(options).await.unwrap();
    receiving.outcome().await.unwrap();
    assert!(same(&file, &scratch.inbox().join("data")));
    assert!(sent.moved.0 < 25_000_000, "{sent:?}");
}
