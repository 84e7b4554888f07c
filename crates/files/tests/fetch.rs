//! Transfers that the receiving side asks for, over real sockets on loopback.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use common::{
    Host, Scratch, fetch, fetch_options, parties, receive_options, send, send_options,
    serve_options, unheard,
};
use events::Event;
use files::Error;
use peer::{
    AuthorizedPeers, Credential, Identity, May, PathSpec, Peer, Remote, Rights, Timetable, Token,
};
use tokio::time::timeout;
use units::{Rate, Span};

/// A folder that is served.
fn offered(scratch: &Scratch) -> std::path::PathBuf {
    let folder = scratch.0.join("offered");
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn same(a: &Path, b: &Path) -> bool {
    fs::read(a).expect("one file") == fs::read(b).expect("the other")
}

/// Rights with a folder and a rate of her own.
fn of_anna(may: May) -> Rights {
    let rights = Rights::from(may).with(&files::rights::RIGHTS[0], "anna").expect("a folder");
    rights.with(&peer::rights::RIGHTS[1], "16mbit").expect("a rate")
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_all_sizes_arrive_whole() {
    let scratch = Scratch::new("fetch-sizes");
    let (identity, token) = parties();
    let folder = offered(&scratch);
    let sizes = [0, 1, 4_095, 4_096, 262_143, 262_144, 262_145, 5_000_001];
    let names: Vec<String> = sizes.iter().map(|size| format!("f{size}")).collect();
    for (name, size) in names.iter().zip(sizes) {
        scratch.file(&format!("offered/{name}"), size);
    }
    let serving = Host::serve(serve_options(&folder, &identity, &token)).await;
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let got = fetch(fetch_options(&scratch, &asked, serving.port, &token)).await.expect("fetched");
    let served = serving.outcome().await.expect("served");
    assert_eq!((got.files, served.files), (sizes.len(), sizes.len()));
    assert_eq!(got.moved, got.total);
    for name in &names {
        assert!(same(&scratch.inbox().join(name), &folder.join(name)), "{name} differs");
    }
    assert_eq!(
        fs::read_dir(scratch.inbox()).expect("the inbox").count(),
        sizes.len(),
        "nothing else is left there"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_arrives_with_all_that_is_in_it() {
    let scratch = Scratch::new("fetch-tree");
    let (identity, token) = parties();
    let folder = offered(&scratch);
    fs::create_dir_all(folder.join("photos/deep/er")).expect("folders");
    for (name, size) in [("photos/a", 10), ("photos/deep/b", 300_000), ("photos/deep/er/c", 1)] {
        scratch.file(&format!("offered/{name}"), size);
    }
    fs::hard_link(folder.join("photos/a"), folder.join("photos/again")).expect("a link");
    symlink("../../nowhere", folder.join("photos/link")).expect("a link");
    let mut options = serve_options(&folder, &identity, &token);
    options.once = false;
    let serving = Host::serve(options).await;
    let mut options = fetch_options(&scratch, &["photos"], serving.port, &token);
    let got = fetch(options.clone()).await.expect("fetched");
    assert_eq!(got.files, 3);
    let inbox = scratch.inbox();
    for name in ["photos/a", "photos/deep/b", "photos/deep/er/c", "photos/again"] {
        assert!(same(&inbox.join(name), &folder.join(name)), "{name} differs");
    }
    assert_eq!(
        fs::read_link(inbox.join("photos/link")).expect("a link"),
        Path::new("../../nowhere")
    );
    // A second fetch transfers nothing. The contents of a folder can be fetched without the folder,
    // or the folder under another name.
    let again = fetch(options.clone()).await.expect("fetched");
    assert_eq!(again.moved.0, 0);
    options.rename = Some("pictures".into());
    fetch(options.clone()).await.expect("fetched");
    assert!(same(&inbox.join("pictures/deep/b"), &folder.join("photos/deep/b")));
    options.rename = None;
    options.names = vec!["photos/deep/".into()];
    options.into = scratch.0.join("other");
    fetch(options.clone()).await.expect("fetched");
    assert!(same(&scratch.0.join("other/b"), &folder.join("photos/deep/b")));
    options.names = vec!["".into()];
    options.into = scratch.0.join("all");
    options.selection.include = vec!["b".into()];
    fetch(options).await.expect("fetched");
    assert!(same(&scratch.0.join("all/photos/deep/b"), &folder.join("photos/deep/b")));
    assert!(!scratch.0.join("all/photos/a").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outside_is_given() {
    let scratch = Scratch::new("fetch-outside");
    let (identity, token) = parties();
    let folder = offered(&scratch);
    scratch.file("secret", 100);
    symlink("../secret", folder.join("way-out")).expect("a link");
    symlink(&scratch.0, folder.join("door")).expect("a link");
    let mut options = serve_options(&folder, &identity, &token);
    options.once = false;
    let serving = Host::serve(options).await;
    let mut options = fetch_options(&scratch, &[], serving.port, &token);
    for (name, code) in [
        ("../secret", 2),
        ("way-out", 3),
        ("door/secret", 3),
        ("door/", 3),
        ("nothing", 3),
        ("a/../../secret", 2),
    ] {
        options.names = vec![name.into()];
        let error = fetch(options.clone()).await.expect_err(name);
        assert_eq!(error.exit_code(), code, "{name}: {error}");
        assert!(!scratch.inbox().join("secret").exists());
    }
    // An absolute name is relative to the server's root.
    let file = scratch.file("offered/data", 100);
    options.names = vec!["/data".into()];
    fetch(options.clone()).await.expect("fetched");
    assert!(same(&scratch.inbox().join("data"), &file));
    options.transfer.dial.identity = Identity::generate().expect("a key");
    let error = fetch(options).await.expect_err("the token was used by another");
    assert!(matches!(error, Error::Peer(peer::Error::Refused { .. })), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_paths_share_one_file() {
    let scratch = Scratch::new("fetch-paths");
    let (identity, token) = parties();
    let folder = offered(&scratch);
    let file = scratch.file("offered/data", 20_000_000);
    let mut options = serve_options(&folder, &identity, &token);
    options.listen.addresses = vec!["0.0.0.0:0".parse().expect("an address")];
    let serving = Host::serve(options).await;
    let mut options = fetch_options(&scratch, &["data"], serving.port, &token);
    options.transfer.dial.paths = (1..=3)
        .map(|i| PathSpec {
            max: Some(Rate::mbit(50)),
            to: Some(Remote { host: format!("127.0.7.{i}"), zone: None, port: serving.port }),
            ..PathSpec::over("lo")
        })
        .collect();
    let got = fetch(options).await.expect("fetched");
    serving.outcome().await.expect("served");
    assert!(same(&scratch.inbox().join("data"), &file));
    assert_eq!(got.paths.len(), 3);
    assert!(got.paths.iter().all(|path| path.share > 0.2), "{:?}", got.paths);
    let rate = got.moved / got.elapsed;
    assert!(rate < Rate::mbit(160), "the bounds hold: {rate}");
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_see_what_is_theirs_at_their_rate() {
    let scratch = Scratch::new("fetch-peers");
    let (identity, token) = parties();
    let folder = offered(&scratch);
    fs::create_dir_all(folder.join("anna")).expect("a folder");
    let file = scratch.file("offered/anna/data", 2_000_000);
    let [anna, bert, carl] = [(); 3].map(|()| Identity::generate().expect("a key"));
    let mut options = serve_options(&folder, &identity, &token);
    (options.listen.token, options.once) = (None, false);
    options.listen.authorized = AuthorizedPeers::new(vec![
        Peer { name: "anna".into(), rights: of_anna(May::Get), ..Peer::from(anna.fingerprint()) },
        Peer::from(bert.fingerprint()),
        Peer { rights: May::None.into(), ..Peer::from(carl.fingerprint()) },
    ]);
    let serving = Host::serve(options).await;
    let mut options = fetch_options(&scratch, &["data"], serving.port, &token);
    options.from[0].credential = Credential::Pinned(identity.fingerprint());
    options.transfer.dial.identity = bert;
    let error = fetch(options.clone()).await.expect_err("he may only send");
    assert!(error.to_string().contains("--may both"), "{error}");
    options.transfer.dial.identity = carl;
    let error = fetch(options.clone()).await.expect_err("he may nothing").to_string();
    assert!(error.contains("neither get") && error.contains("--may get"), "{error}");
    options.transfer.dial.identity = Identity::generate().expect("a key");
    let error = fetch(options.clone()).await.expect_err("nobody knows that one");
    assert!(matches!(&error, Error::Peer(peer::Error::Refused { .. })), "{error}");
    assert!(error.to_string().contains("--may get"), "{error}");
    options.transfer.dial.identity = anna;
    let got = fetch(options).await.expect("fetched");
    assert!(same(&scratch.inbox().join("data"), &file));
    let rate = got.moved / got.elapsed;
    assert!(rate < Rate::mbit(20), "the bound holds: {rate}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_keeps_peers_in_their_folders_too() {
    let scratch = Scratch::new("receive-peers");
    let (identity, token) = parties();
    let file = scratch.file("data", 2_000_000);
    let mut options = send_options(&[&file], 0, &token);
    options.credential = Credential::Pinned(identity.fingerprint());
    let mut receive = receive_options(&scratch, &identity, &token);
    (receive.listen.token, receive.keep) = (None, true);
    let anna = Peer {
        rights: of_anna(May::Send),
        ..Peer::from(options.transfer.dial.identity.fingerprint())
    };
    for (may, why) in [
        (
            May::Get,
            "may get from this host, but not send: 'anabranch keys trust sender' with --may both",
        ),
        (
            May::None,
            "may neither send to this host nor get from it: 'anabranch keys trust sender' with \
             --may send",
        ),
    ] {
        receive.listen.authorized =
            AuthorizedPeers::new(vec![Peer { rights: of_anna(may), ..anna.clone() }]);
        let receiving = Host::receive(receive.clone()).await;
        options.to.port = receiving.port;
        let error = send(options.clone()).await.expect_err("she may not send");
        assert!(matches!(&error, Error::Peer(peer::Error::Refused { .. })), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        receiving.task.abort();
    }
    receive.listen.authorized = AuthorizedPeers::new(vec![anna]);
    let receiving = Host::receive(receive).await;
    options.to.port = receiving.port;
    let sent = send(options).await.expect("sent");
    assert!(same(&scratch.inbox().join("anna/data"), &file));
    let rate = sent.moved / sent.elapsed;
    assert!(rate < Rate::mbit(20), "the bound holds: {rate}");
    receiving.task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_target_stays_unless_told_otherwise() {
    let scratch = Scratch::new("fetch-exists");
    let (identity, token) = parties();
    let folder = offered(&scratch);
    let file = scratch.file("offered/data", 1_000);
    fs::create_dir_all(scratch.inbox()).expect("the inbox");
    fs::write(scratch.inbox().join("data"), "old").expect("an old file");
    let serving = Host::serve(serve_options(&folder, &identity, &token)).await;
    let mut options = fetch_options(&scratch, &["data"], serving.port, &token);
    let error = fetch(options.clone()).await.expect_err("it exists");
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    options.transfer.overwrite = true;
    options.transfer.dry_run = true;
    let would = fetch(options.clone()).await.expect("rehearsed");
    assert_eq!((would.files, would.total.0, would.moved.0), (1, 1_000, 0));
    assert_eq!(fs::read(scratch.inbox().join("data")).expect("still there"), b"old");
    options.transfer.dry_run = false;
    fetch(options).await.expect("replaced");
    serving.outcome().await.expect("served");
    assert!(same(&scratch.inbox().join("data"), &file));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_fetch_goes_on_where_it_was() {
    let scratch = Scratch::new("fetch-resume");
    let (identity, token) = parties();
    let folder = offered(&scratch);
    let file = scratch.file("offered/data", 20_000_000);
    let serving = Host::serve(serve_options(&folder, &identity, &token)).await;
    let mut options = fetch_options(&scratch, &["data"], serving.port, &token);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(80)));
    let (events, _heard) = unheard();
    let cut = timeout(Duration::from_secs(1), files::fetch(options.clone(), events)).await;
    assert!(cut.is_err(), "it was to be interrupted");
    options.transfer.dial.max_rate = None;
    let got = fetch(options).await.expect("fetched");
    serving.outcome().await.expect("served");
    assert!(same(&scratch.inbox().join("data"), &file));
    assert!(
        (5_000_000..17_000_000).contains(&got.moved.0),
        "{} came again or were still missing",
        got.moved
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_is_found_again() {
    let scratch = Scratch::new("fetch-restarted");
    let (identity, token) = parties();
    let folder = offered(&scratch);
    let file = scratch.file("offered/data", 20_000_000);
    let serving = Host::serve(serve_options(&folder, &identity, &token)).await;
    let port = serving.port;
    let mut options = fetch_options(&scratch, &["data"], port, &token);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(80)));
    let fetching = tokio::spawn(fetch(options));
    tokio::time::sleep(Duration::from_secs(1)).await;
    serving.task.abort();
    drop(serving.events);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut again = serve_options(&folder, &identity, &token);
    again.listen.addresses = vec![format!("127.0.0.1:{port}").parse().expect("an address")];
    let serving = Host::serve(again).await;
    let got = fetching.await.expect("no panic").expect("fetched");
    serving.outcome().await.expect("served");
    assert!(same(&scratch.inbox().join("data"), &file));
    assert!(got.elapsed > Span::from_secs(1), "{}", got.elapsed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_ends_a_fetch_and_what_came_is_kept() {
    let scratch = Scratch::new("fetch-cap");
    let (identity, token) = parties();
    let folder = offered(&scratch);
    let file = scratch.file("offered/data", 20_000_000);
    let serving = Host::serve(serve_options(&folder, &identity, &token)).await;
    let mut options = fetch_options(&scratch, &["data"], serving.port, &token);
    options.transfer.dial.usage = Some(scratch.0.join("usage"));
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(80)));
    options.transfer.dial.paths = vec!["lo,cap=8MB/month".parse().expect("a path")];
    let error = fetch(options.clone()).await.expect_err("it has a cap");
    let Error::UsedUp { done, .. } = error else { panic!("{error}") };
    assert!(done.is_some_and(|done| (4_000_000..8_000_000).contains(&done.0)), "{done:?}");
    options.transfer.dial.paths = vec![PathSpec::over("lo")];
    let got = fetch(options).await.expect("fetched");
    assert!(same(&scratch.inbox().join("data"), &file));
    assert!(got.moved.0 < 16_500_000, "{} came again", got.moved);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_changes_is_said_to() {
    let scratch = Scratch::new("fetch-changes");
    let (identity, token) = parties();
    let folder = offered(&scratch);
    let file = scratch.file("offered/data", 20_000_000);
    let serving = Host::serve(serve_options(&folder, &identity, &token)).await;
    let mut options = fetch_options(&scratch, &["data"], serving.port, &token);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(40)));
    let fetching = tokio::spawn(fetch(options));
    tokio::time::sleep(Duration::from_secs(1)).await;
    fs::write(&file, "another").expect("it changes");
    let error = fetching.await.expect("no panic").expect_err("it changed");
    assert!(
        matches!(&error, Error::SourceChanged { path } if path == Path::new("data")),
        "{error}"
    );
    assert!(!scratch.inbox().join("data").exists());
}

/// Several servers, each with a folder of its own.
async fn replicas(
    scratch: &Scratch,
    count: usize,
) -> (Vec<(Host, Token)>, Vec<std::path::PathBuf>) {
    let (mut servings, mut folders) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (identity, token) = parties();
        let folder = scratch.0.join(format!("replica{number}"));
        fs::create_dir_all(&folder).expect("a folder");
        scratch.file(&format!("replica{number}/data"), 20_000_000);
        let mut options = serve_options(&folder, &identity, &token);
        options.once = false;
        servings.push((Host::serve(options).await, token));
        folders.push(folder);
    }
    (servings, folders)
}

fn from_all(scratch: &Scratch, servings: &[(Host, Token)]) -> files::FetchOptions {
    let mut options = fetch_options(scratch, &["data"], servings[0].0.port, &servings[0].1);
    for (serving, token) in &servings[1..] {
        let more = fetch_options(scratch, &["data"], serving.port, token);
        options.from.extend(more.from);
    }
    options
}

async fn fetch_and_hear(
    options: files::FetchOptions,
) -> (Result<events::Summary, Error>, Vec<String>) {
    let (events, mut heard) = unheard();
    let got =
        timeout(Duration::from_secs(30), files::fetch(options, events)).await.expect("it ends");
    let mut notices = Vec::new();
    while let Some(event) = heard.try_recv() {
        if let Event::Notice { text } = event {
            notices.push(text);
        }
    }
    (got, notices)
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_one_file() {
    let scratch = Scratch::new("fetch-replicas");
    let (servings, folders) = replicas(&scratch, 2).await;
    let mut options = from_all(&scratch, &servings);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(200)));
    let hash = blake3::hash(&fs::read(folders[0].join("data")).expect("it is there"));
    options.blake3 = Some(*hash.as_bytes());
    let (got, notices) = fetch_and_hear(options).await;
    let got = got.expect("fetched");
    assert!(same(&scratch.inbox().join("data"), &folders[0].join("data")));
    assert_eq!(got.paths.len(), 2, "{notices:?}");
    assert!(got.paths.iter().all(|path| path.share > 0.1), "{:?}", got.paths);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_other_content_is_dropped_by_name() {
    let scratch = Scratch::new("fetch-differs");
    let (servings, folders) = replicas(&scratch, 2).await;
    let mut bytes = fs::read(folders[1].join("data")).expect("it is there");
    bytes[12_345_678] ^= 1;
    fs::write(folders[1].join("data"), &bytes).expect("written");
    let options = from_all(&scratch, &servings);
    let name = options.from[1].remote.to_string();
    let (got, notices) = fetch_and_hear(options.clone()).await;
    got.expect("fetched");
    assert!(same(&scratch.inbox().join("data"), &folders[0].join("data")));
    assert!(
        notices.iter().any(|text| text.contains(&name) && text.contains("dropped")),
        "{notices:?}"
    );
    // The requested hash decides, whichever server is named first.
    let mut options = options;
    options.blake3 = Some(*blake3::hash(&bytes).as_bytes());
    options.transfer.overwrite = true;
    options.transfer.restart = true;
    let name = options.from[0].remote.to_string();
    let (got, notices) = fetch_and_hear(options.clone()).await;
    got.expect("fetched");
    assert!(same(&scratch.inbox().join("data"), &folders[1].join("data")));
    assert!(
        notices.iter().any(|text| text.contains(&name) && text.contains("dropped")),
        "{notices:?}"
    );
    options.blake3 = Some([7; 32]);
    let (got, _) = fetch_and_hear(options).await;
    let error = got.expect_err("nobody has that");
    assert_eq!(error.exit_code(), 7, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_goes_away_leaves_the_rest_to_the_others() {
    let scratch = Scratch::new("fetch-goes");
    let (mut servings, folders) = replicas(&scratch, 2).await;
    let mut options = from_all(&scratch, &servings);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(100)));
    let fetching = tokio::spawn(fetch(options));
    tokio::time::sleep(Duration::from_millis(700)).await;
    let (gone, _) = servings.remove(0);
    gone.task.abort();
    fetching.await.expect("no panic").expect("fetched");
    assert!(same(&scratch.inbox().join("data"), &folders[1].join("data")));
}
