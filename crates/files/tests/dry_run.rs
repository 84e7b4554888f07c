//! Dry runs: what they find, and that they leave nothing behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::{
    Host, Scratch, fetch_options, parties, receive_options, send_options, serve_options, unheard,
};
use events::{Action, Changed, DryRun, Event};
use units::Bytes;

/// Paths, sizes and times of everything below a folder.
fn seen(folder: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let (mut all, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            all.push((path, metadata.len(), metadata.modified().unwrap()));
        }
    }
    all.sort();
    all
}

/// Names and sizes of what would change.
fn changes(dry_run: &DryRun) -> Vec<(Action, &str, Changed)> {
    let changes = dry_run.changes.iter();
    changes.map(|change| (change.action, change.name.as_str(), change.what)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_would_change_at_either_side_and_is_not_noticed() {
    let scratch = Scratch::new("would");
    let (identity, token) = parties();
    let root = scratch.0.join("tree");
    fs::create_dir_all(root.join("sub")).unwrap();
    scratch.file("tree/same", 3_000);
    for (name, size) in [("new", 700_000), ("sub/other", 2_000), ("empty", 0)] {
        scratch.file(&format!("tree/{name}"), size);
    }
    std::os::unix::fs::symlink("same", root.join("link")).unwrap();
    let inbox = scratch.inbox();
    let mut receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    fs::create_dir_all(inbox.join("tree")).unwrap();
    fs::write(inbox.join("tree/new"), "old").unwrap();
    fs::copy(root.join("same"), inbox.join("tree/same")).unwrap();
    for folder in [&root, &inbox.join("tree")] {
        let same = File::options().write(true).open(folder.join("same")).unwrap();
        same.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    }
    let before = seen(&inbox);
    let expected = [
        (Action::Create, "tree/empty", Changed::File(Bytes(0))),
        (Action::Create, "tree/link", Changed::Link),
        (Action::Replace, "tree/new", Changed::File(Bytes(700_000))),
        (Action::Create, "tree/sub", Changed::Folder),
        (Action::Create, "tree/sub/other", Changed::File(Bytes(2_000))),
    ];
    let mut options = send_options(&[&root], receiving.port, &token);
    (options.transfer.dry_run, options.transfer.overwrite) = (true, true);
    let (events, mut heard) = unheard();
    let sent = files::send(options, events).await.unwrap();
    assert_eq!((sent.moved.0, sent.repeated.0), (0, 0));
    let found = async {
        loop {
            if let Event::DryRun(dry_run) = heard.recv().await.expect("it says what it found") {
                return dry_run;
            }
        }
    };
    let found = found.await;
    assert_eq!(changes(&found), expected);
    assert_eq!((found.sent.0, found.unchanged, found.unchanged_size.0), (702_000, 1, 3_000));
    // Nothing on the screen of the receiver, which goes on waiting.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let noise = receiving.events.try_recv();
    assert!(noise.is_none(), "{noise:?}");
    receiving.task.abort();
    assert_eq!(seen(&inbox), before);

    let serving = Host::serve(serve_options(&scratch.inbox().join(".."), &identity, &token)).await;
    let mut options = fetch_options(&scratch, &["tree"], serving.port, &token);
    (options.transfer.dry_run, options.transfer.overwrite) = (true, true);
    let (events, mut heard) = unheard();
    files::fetch(options, events).await.unwrap();
    let mut found = None;
    while let Some(event) = heard.try_recv() {
        if let Event::DryRun(dry_run) = event {
            found = Some(dry_run);
        }
    }
    assert_eq!(changes(&found.expect("it says what it found")), expected);
    assert_eq!(seen(&inbox), before);
    serving.task.abort();
}
