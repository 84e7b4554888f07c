//! Several transfers at one receiver: side by side, one after the other, and the wait for a sender.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{Host, Scratch, parties, receive_options, send_options};
use events::{Event, Events, Summary};
use files::{Error, ReceiveOptions, SendOptions};
use peer::Timetable;
use tokio::time::timeout;
use units::{Rate, Span};

/// A receiver that keeps receiving, so many transfers at a time.
fn keeping(options: ReceiveOptions, parallel: usize) -> ReceiveOptions {
    ReceiveOptions { keep: true, parallel, ..options }
}

/// The same at a rate: a transfer that lasts.
fn slowly(mut options: SendOptions, rate: Rate) -> SendOptions {
    options.transfer.dial.max_rate = Some(Timetable::always(rate));
    options
}

/// The result of a send, and its notices.
async fn send(options: SendOptions) -> (Result<Summary, Error>, Vec<String>) {
    let (events, mut heard) = Events::observed();
    let sent = timeout(Duration::from_secs(60), files::send(options, events)).await;
    let mut notices = Vec::new();
    while let Some(event) = heard.try_recv() {
        if let Event::Notice { text } = event {
            notices.push(text);
        }
    }
    (sent.expect("it ends"), notices)
}

fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}

/// It took them 47 rounds: each opened a session that closed the other's.
#[tokio::test(flavor = "multi_thread")]
async fn two_sends_of_one_host_run_side_by_side() {
    let scratch = Scratch::new("side-by-side");
    let (identity, token) = parties();
    let files = ["one", "two"].map(|name| scratch.file(name, 4_000_000));
    let host = Host::receive(keeping(receive_options(&scratch, &identity, &token), 4)).await;
    let options = send_options(&[&files[0]], host.port, &token);
    let sends = files.each_ref().map(|file| {
        let options = SendOptions { sources: vec![file.clone()], ..options.clone() };
        tokio::spawn(send(slowly(options, Rate::mbit(16))))
    });
    for sent in sends {
        let (sent, notices) = sent.await.unwrap();
        assert_eq!(sent.unwrap().repeated.0, 0);
        // Neither waited, nor had to agree again.
        assert!(notices.is_empty(), "{notices:?}");
    }
    for file in &files {
        assert!(same(file, &scratch.inbox().join(file.file_name().unwrap())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_waits_for_its_turn() {
    let scratch = Scratch::new("turns");
    let (identity, token) = parties();
    let files = ["one", "two"].map(|name| scratch.file(name, 4_000_000));
    let mut host = Host::receive(keeping(receive_options(&scratch, &identity, &token), 1)).await;
    let first = send_options(&[&files[0]], host.port, &token);
    let mut second = SendOptions { sources: vec![files[1].clone()], ..first.clone() };
    second.transfer.dial.patience = Span::from_secs(60);
    let first = tokio::spawn(send(slowly(first, Rate::mbit(16))));
    host.has(100_000).await;
    let (sent, notices) = send(second).await;
    assert_eq!(sent.unwrap().repeated.0, 0);
    assert!(
        notices.len() == 1 && notices[0].contains("another transfer is under way"),
        "{notices:?}"
    );
    let (sent, notices) = first.await.unwrap();
    assert!(sent.is_ok() && notices.is_empty(), "{sent:?} {notices:?}");
    for file in &files {
        assert!(same(file, &scratch.inbox().join(file.file_name().unwrap())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_stays_busy_is_told_apart_from_one_that_is_not_there() {
    let scratch = Scratch::new("busy");
    let (identity, token) = parties();
    let files = ["one", "two"].map(|name| scratch.file(name, 4_000_000));
    // Without `keep` there is one transfer, whatever the number.
    let mut host = Host::receive(ReceiveOptions {
        parallel: 4,
        ..receive_options(&scratch, &identity, &token)
    })
    .await;
    let first = send_options(&[&files[0]], host.port, &token);
    let mut second = SendOptions { sources: vec![files[1].clone()], ..first.clone() };
    second.transfer.dial.patience = Span::from_secs(2);
    let first = tokio::spawn(send(slowly(first, Rate::mbit(6))));
    host.has(100_000).await;
    let error = send(second).await.0.unwrap_err();
    assert_eq!(error.exit_code(), 5, "{error}");
    assert!(error.to_string().contains("another transfer is under way"), "{error}");
    assert!(error.to_string().contains("--patience"), "{error}");
    first.await.unwrap().0.unwrap();
    host.outcome().await.unwrap();
    assert!(same(&files[0], &scratch.inbox().join("one")) && !scratch.inbox().join("two").exists());
}

/// Two transfers of files of one name: neither takes the other's data for its own.
#[tokio::test(flavor = "multi_thread")]
async fn transfers_of_the_same_names_are_not_side_by_side() {
    let scratch = Scratch::new("same-names");
    let (identity, token) = parties();
    let folder = scratch.inbox().parent().unwrap().join("other");
    fs::create_dir_all(&folder).unwrap();
    let files = [scratch.file("data", 4_000_000), folder.join("data")];
    fs::write(&files[1], vec![7; 3_000_000]).unwrap();
    let mut host = Host::receive(keeping(receive_options(&scratch, &identity, &token), 4)).await;
    let first = send_options(&[&files[0]], host.port, &token);
    let mut second = SendOptions { sources: vec![files[1].clone()], ..first.clone() };
    second.transfer.dial.patience = Span::from_secs(60);
    second.transfer.overwrite = true;
    let first = tokio::spawn(send(slowly(first, Rate::mbit(16))));
    host.has(100_000).await;
    let (sent, notices) = send(second).await;
    assert!(sent.is_ok(), "{sent:?}");
    assert!(notices.iter().any(|text| text.contains("of the same names")), "{notices:?}");
    assert!(first.await.unwrap().0.is_ok());
    assert!(same(&files[1], &scratch.inbox().join("data")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_does_not_wait_longer_than_it_was_told() {
    let scratch = Scratch::new("waiting");
    let (identity, token) = parties();
    let waiting = || ReceiveOptions {
        timeout: Some(Span::from_secs(1)),
        ..receive_options(&scratch, &identity, &token)
    };
    let error = Host::receive(waiting()).await.outcome().await.unwrap_err();
    assert!(matches!(error, Error::NobodyCame { .. }) && error.exit_code() == 5, "{error}");
    // A sender that leaves in the midst of a transfer.
    let file = scratch.file("data", 4_000_000);
    let mut host = Host::receive(waiting()).await;
    let options = slowly(send_options(&[&file], host.port, &token), Rate::mbit(8));
    tokio::select! {
        ended = send(options.clone()) => panic!("it was to be interrupted: {ended:?}"),
        () = host.has(500_000) => {}
    }
    let error = host.outcome().await.unwrap_err();
    assert!(matches!(error, Error::SenderGone { .. }) && error.exit_code() == 6, "{error}");
    // What arrived is kept.
    let host = Host::receive(waiting()).await;
    let again = SendOptions {
        to: send_options(&[&file], host.port, &token).to,
        ..slowly(options, Rate::mbit(400))
    };
    let sent = send(again).await.0.unwrap();
    assert!(sent.moved.0 < 4_000_000, "{}", sent.moved);
    host.outcome().await.unwrap();
    assert!(same(&file, &scratch.inbox().join("data")));
}
