//! Whole transfers over real sockets on loopback.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{
    Host, Scratch, counted, fetch, fetch_options, parties, receive_options, send, send_options,
    serve_options,
};
use events::{Event, Events, PathState};
use files::Error;
use peer::{AuthorizedPeers, Credential, Identity, PathSpec, Remote, Timetable, Token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use units::{Rate, Span};

#[tokio::test(flavor = "multi_thread")]
async fn files_of_all_sizes_arrive_whole() {
    let scratch = Scratch::new("sizes");
    let (identity, token) = parties();
    let sizes = [0, 1, 4_095, 4_096, 262_143, 262_144, 262_145, 5_000_001];
    let files: Vec<PathBuf> =
        sizes.iter().map(|size| scratch.file(&format!("f{size}"), *size)).collect();
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let sources: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let sent = send(send_options(&sources, receiving.port, &token)).await.expect("sent");
    let received = receiving.outcome().await.expect("received");
    assert_eq!((sent.files, received.files), (sizes.len(), sizes.len()));
    assert_eq!(received.moved, received.total);
    for (file, size) in files.iter().zip(sizes) {
        let arrived =
            fs::read(scratch.inbox().join(file.file_name().expect("a name"))).expect("it arrived");
        assert_eq!(arrived.len(), size);
        assert!(arrived == fs::read(file).expect("the source"), "{size} bytes differ");
    }
    assert_eq!(
        fs::read_dir(scratch.inbox()).expect("the inbox").count(),
        sizes.len(),
        "nothing else is left there"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn several_paths_share_one_file() {
    let scratch = Scratch::new("paths");
    let (identity, token) = parties();
    let file = scratch.file("data", 20_000_000);
    let mut options = receive_options(&scratch, &identity, &token);
    options.listen.addresses = vec!["0.0.0.0:0".parse().expect("an address")];
    let receiving = Host::receive(options).await;
    let mut options = send_options(&[&file], receiving.port, &token);
    options.transfer.dial.paths = (1..=3)
        .map(|i| PathSpec {
            max: Some(Rate::mbit(50)),
            to: Some(Remote { host: format!("127.0.7.{i}"), zone: None, port: receiving.port }),
            ..PathSpec::over("lo")
        })
        .collect();
    let sent = send(options).await.expect("sent");
    receiving.outcome().await.expect("received");
    assert_eq!(
        fs::read(scratch.inbox().join("data")).expect("arrived"),
        fs::read(&file).expect("source")
    );
    assert_eq!(sent.paths.len(), 3);
    assert!(sent.paths.iter().all(|path| path.share > 0.2), "{:?}", sent.paths);
    let rate = sent.moved / sent.elapsed;
    assert!(rate < Rate::mbit(160), "the bounds hold: {rate}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_refused() {
    let scratch = Scratch::new("token");
    let (identity, token) = parties();
    let file = scratch.file("data", 10);
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let other = Token::generate(&identity).expect("a token");
    let error = send(send_options(&[&file], receiving.port, &other)).await.expect_err("refused");
    assert!(matches!(error, Error::Peer(peer::Error::Refused { .. })), "{error}");
    let stranger = Token::generate(&Identity::generate().expect("a key")).expect("a token");
    let error =
        send(send_options(&[&file], receiving.port, &stranger)).await.expect_err("not the host");
    let Error::Peer(peer::Error::WrongPeer { found, .. }) = error else { panic!("{error}") };
    assert_eq!(found, identity.fingerprint());
    // The right token is still valid, and is then used up for others.
    send(send_options(&[&file], receiving.port, &token)).await.expect("sent");
    receiving.outcome().await.expect("received");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_may_be_one_key_holders_only() {
    let scratch = Scratch::new("holder");
    let (identity, token) = parties();
    let file = scratch.file("data", 10);
    let mut receive = receive_options(&scratch, &identity, &token);
    let mut options = send_options(&[&file], 0, &token);
    receive.listen.holder = Some(options.transfer.dial.identity.fingerprint());
    let receiving = Host::receive(receive).await;
    let error =
        send(send_options(&[&file], receiving.port, &token)).await.expect_err("another key");
    assert!(matches!(error, Error::Peer(peer::Error::Refused { .. })), "{error}");
    options.to.port = receiving.port;
    send(options).await.expect("sent");
    receiving.outcome().await.expect("received");

    let mut serve = serve_options(&scratch.0, &identity, &token);
    let mut options = fetch_options(&scratch, &["data"], 0, &token);
    options.rename = Some("again".into());
    serve.listen.holder = Some(options.transfer.dial.identity.fingerprint());
    let serving = Host::serve(serve).await;
    let error = fetch(fetch_options(&scratch, &["data"], serving.port, &token))
        .await
        .expect_err("another key");
    assert!(matches!(error, Error::Peer(peer::Error::Refused { .. })), "{error}");
    options.from[0].remote.port = serving.port;
    fetch(options).await.expect("fetched");
    serving.outcome().await.expect("served");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authorized_key_needs_no_token() {
    let scratch = Scratch::new("authorized");
    let (identity, token) = parties();
    let file = scratch.file("data", 10);
    let mut options = send_options(&[&file], 0, &token);
    options.credential = Credential::Pinned(identity.fingerprint());
    let mut receive = receive_options(&scratch, &identity, &token);
    receive.listen.token = None;
    receive.listen.authorized =
        AuthorizedPeers::new(vec![options.transfer.dial.identity.fingerprint().into()]);
    let receiving = Host::receive(receive).await;
    options.to.port = receiving.port;
    send(options).await.expect("sent");
    receiving.outcome().await.expect("received");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_target_stays_unless_told_otherwise() {
    let scratch = Scratch::new("exists");
    let (identity, token) = parties();
    let file = scratch.file("data", 1_000);
    fs::create_dir_all(scratch.inbox()).expect("the inbox");
    fs::write(scratch.inbox().join("data"), "old").expect("an old file");
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let mut options = send_options(&[&file], receiving.port, &token);
    let error = send(options.clone()).await.expect_err("it exists");
    assert_eq!(error.exit_code(), 8, "{error}");
    assert_eq!(fs::read(scratch.inbox().join("data")).expect("still there"), b"old");
    options.transfer.overwrite = true;
    send(options).await.expect("replaced");
    receiving.outcome().await.expect("received");
    assert_eq!(
        fs::read(scratch.inbox().join("data")).expect("there"),
        fs::read(&file).expect("source")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_sender_goes_on_where_it_was() {
    let scratch = Scratch::new("resume");
    let (identity, token) = parties();
    let file = scratch.file("data", 20_000_000);
    let mut receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let mut options = send_options(&[&file], receiving.port, &token);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(80)));
    tokio::select! {
        ended = send(options.clone()) => panic!("it was to be interrupted: {ended:?}"),
        () = receiving.has(9_000_000) => {}
    }
    options.transfer.dial.max_rate = None;
    let sent = send(options).await.expect("sent");
    receiving.outcome().await.expect("received");
    assert_eq!(
        fs::read(scratch.inbox().join("data")).expect("arrived"),
        fs::read(&file).expect("source")
    );
    assert!(
        (5_000_000..17_000_000).contains(&sent.moved.0),
        "{} were sent again or still missing",
        sent.moved
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_receiver_is_found_again() {
    let scratch = Scratch::new("receiver");
    let (identity, token) = parties();
    let file = scratch.file("data", 20_000_000);
    let (mut receiving, apart) =
        Host::receive_apart(receive_options(&scratch, &identity, &token)).await;
    let port = receiving.port;
    let mut options = send_options(&[&file], port, &token);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(80)));
    let sending = tokio::spawn(send(options));
    receiving.has(9_000_000).await;
    apart.kill().await;
    let mut again = receive_options(&scratch, &identity, &token);
    again.listen.addresses = vec![format!("127.0.0.1:{port}").parse().expect("an address")];
    tokio::time::sleep(Duration::from_millis(300)).await;
    let receiving = Host::receive(again).await;
    let sent = sending.await.expect("no panic").expect("sent");
    receiving.outcome().await.expect("received");
    assert!(sent.moved.0 < 17_000_000, "{} were sent again", sent.moved);
    assert_eq!(
        fs::read(scratch.inbox().join("data")).expect("arrived"),
        fs::read(&file).expect("source")
    );
}

/// Forwards connections to `port`. Once `after` bytes went to the port on the first one, nothing
/// comes back on it.
async fn mute_line(port: u16, after: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut mute_after = Some(after);
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
            let ((mut from_near, mut to_near), (mut from_far, mut to_far)) =
                (near.into_split(), far.into_split());
            let mute_after = mute_after.take().unwrap_or(usize::MAX);
            let sent = Arc::new(AtomicUsize::new(0));
            let seen = Arc::clone(&sent);
            tokio::spawn(async move {
                let mut buffer = vec![0; 65_536];
                while let Ok(length @ 1..) = from_near.read(&mut buffer).await {
                    sent.fetch_add(length, Ordering::SeqCst);
                    if to_far.write_all(&buffer[..length]).await.is_err() {
                        return;
                    }
                }
            });
            tokio::spawn(async move {
                let mut buffer = vec![0; 65_536];
                while let Ok(length @ 1..) = from_far.read(&mut buffer).await {
                    let is_mute = seen.load(Ordering::SeqCst) >= mute_after;
                    if !is_mute && to_near.write_all(&buffer[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address.port()
}

/// The only path is lost with the completion frame: the receiver waits until the sender gets it on
/// another path.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_stays_until_the_sender_knows() {
    let scratch = Scratch::new("stays");
    let (identity, token) = parties();
    let file = scratch.file("data", 1_000_000);
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let line = mute_line(receiving.port, 300_000).await;
    let sent = send(send_options(&[&file], line, &token)).await.expect("sent");
    receiving.outcome().await.expect("received");
    assert!(
        sent.elapsed > Span::from_millis(500),
        "{} is too soon for a path that stalled",
        sent.elapsed
    );
    assert_eq!(
        fs::read(scratch.inbox().join("data")).expect("arrived"),
        fs::read(&file).expect("source")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_changes_is_noticed() {
    let scratch = Scratch::new("changing");
    let (identity, token) = parties();
    let file = scratch.file("data", 20_000_000);
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let mut options = send_options(&[&file], receiving.port, &token);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(80)));
    let (events, mut heard) = Events::observed();
    let sending = tokio::spawn(files::send(options, events));
    tokio::time::sleep(Duration::from_millis(500)).await;
    fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .and_then(|mut f| std::io::Write::write_all(&mut f, b"other"))
        .expect("changed");
    let error = sending.await.expect("no panic").expect_err("it changed");
    assert!(matches!(error, Error::SourceChanged { .. }), "{error}");
    // Its connection ends because the transfer does.
    while let Some(event) = heard.try_recv() {
        let Event::Path { event, .. } = event else { continue };
        assert_ne!(event.state, PathState::Lost, "{event:?}");
    }
    assert!(!scratch.inbox().join("data").exists());
    receiving.task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_leaves_nothing() {
    let scratch = Scratch::new("dry");
    let (identity, token) = parties();
    let file = scratch.file("data", 1_000);
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let mut options = send_options(&[&file], receiving.port, &token);
    options.transfer.dry_run = true;
    send(options).await.expect("agreed");
    assert_eq!(fs::read_dir(scratch.inbox()).expect("the inbox").count(), 0);
    receiving.task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv6_carries_as_well() {
    let scratch = Scratch::new("ipv6");
    let (identity, token) = parties();
    let file = scratch.file("data", 1_000_000);
    let mut options = receive_options(&scratch, &identity, &token);
    options.listen.addresses = vec!["[::1]:0".parse().expect("an address")];
    let receiving = Host::receive(options).await;
    let mut options = send_options(&[&file], receiving.port, &token);
    options.to.host = "::1".into();
    send(options).await.expect("sent");
    receiving.outcome().await.expect("received");
    assert_eq!(
        fs::read(scratch.inbox().join("data")).expect("arrived"),
        fs::read(&file).expect("source")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_strangers_keep_nobody_out() {
    let scratch = Scratch::new("strangers");
    let (identity, token) = parties();
    let file = scratch.file("data", 100_000);
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let mut strangers = Vec::new();
    for _ in 0..200 {
        strangers.push(
            tokio::net::TcpStream::connect(("127.0.0.1", receiving.port))
                .await
                .expect("a connection"),
        );
    }
    send(send_options(&[&file], receiving.port, &token)).await.expect("sent");
    receiving.outcome().await.expect("received");
    drop(strangers);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_said_in_time() {
    let scratch = Scratch::new("nobody");
    let (_, token) = parties();
    let file = scratch.file("data", 10);
    let mut options = send_options(&[&file], 1, &token);
    options.transfer.dial.patience = Span::from_secs(1);
    let error = send(options).await.expect_err("nobody listens");
    assert!(
        matches!(&error, Error::Peer(peer::Error::NoPath { why, .. }) if why.contains("refused")),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_ends_a_transfer_that_goes_on_with_a_higher_one() {
    let scratch = Scratch::new("cap");
    let (identity, token) = parties();
    let file = scratch.file("data", 12_000_000);
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let mut options = send_options(&[&file], receiving.port, &token);
    let usage = scratch.0.join("usage");
    options.transfer.dial.usage = Some(usage.clone());
    options.transfer.dial.paths = vec!["lo,cap=5MB/month".parse().expect("a path")];
    let error = send(options.clone()).await.expect_err("more than the cap");
    assert!(matches!(error, Error::UsedUp { .. }) && error.exit_code() == 11, "{error}");
    assert!(error.to_string().contains("lo: its cap of 5.0 MB a month is used up"), "{error}");
    let carried = counted(&usage, "lo");
    assert!((4_700_000..=5_000_000).contains(&carried), "{carried}");
    // At once, without a connection.
    let error = send(options.clone()).await.expect_err("still more than the cap");
    assert!(matches!(error, Error::UsedUp { .. }), "{error}");
    // It has not asked the receiver, which has a part.
    assert!(error.to_string().contains("what arrived before is kept"), "{error}");
    assert_eq!(counted(&usage, "lo"), carried);

    // The same receiver continues the same session.
    options.transfer.dial.paths = vec!["lo,cap=50MB/month".parse().expect("a path")];
    let sent = send(options).await.expect("sent");
    receiving.outcome().await.expect("received");
    assert_eq!(
        fs::read(scratch.inbox().join("data")).expect("arrived"),
        fs::read(&file).expect("source")
    );
    assert!(sent.moved.0 < 8_000_000, "{sent:?}");
    let carried = counted(&usage, "lo");
    assert!((12_200_000..13_500_000).contains(&carried), "{carried}");
}
