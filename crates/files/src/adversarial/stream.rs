//! Senders of streams, hostile and slow ones.

use events::Events;
use std::fs;
use std::time::Duration;

use tokio::time::timeout;
use transfer::BLOCK;
use transfer::digest::block_cv;
use units::Span;
use wire::files::FileFrame;
use wire::files::{Data, Grown};
use wire::manifest::{Entry, File, Kind, MOST_STREAMED, UNKNOWN_SIZE};
use wire::session::{AbortCode, SessionFrame};

use super::{Host, PATIENCE, Scratch, entry, file};
use crate::listen::Stalls;
use peer::{Conn, Identity, Peer};

fn stream() -> Entry {
    stream_of(0)
}

/// A stream that began at this time, which tells it from others of its name.
fn stream_of(mtime: i64) -> Entry {
    let file = File { size: UNKNOWN_SIZE, mtime, mode: 0o644, hash: None, data: None };
    entry(b"db.sql", Kind::File(file))
}

fn grown(size: u64, is_end: bool) -> FileFrame<'static> {
    FileFrame::Grown(Grown { size, is_end })
}

/// Sends block `index` of a stream of more than one block.
fn push_block(conn: &mut Conn, index: u64) {
    let bytes = vec![u8::try_from(index % 251).unwrap(); 256 * 1024];
    let hash = block_cv(u64::MAX, index * BLOCK, &bytes).0;
    let position = index * BLOCK;
    conn.push(&FileFrame::Data(Data { position, block_hash: Some(hash), payload: &bytes }));
}

/// The first abort, or `None` if the connection closes without one.
async fn aborted(conn: &mut Conn) -> Option<(AbortCode, String)> {
    let told = async {
        loop {
            let heard = conn.receive(|frame| {
                Ok(match FileFrame::try_from(frame)? {
                    FileFrame::Session(SessionFrame::Abort(code, text)) => Some((code, text)),
                    _ => None,
                })
            });
            match heard.await {
                Ok(Some(reason)) => return Some(reason),
                Ok(None) => {}
                Err(_) => return None,
            }
        }
    };
    timeout(PATIENCE, told).await.expect("it answers")
}

/// Waits for an acknowledgement.
async fn acknowledged(conn: &mut Conn) {
    let acked = async {
        while !conn
            .receive(|frame| Ok(matches!(FileFrame::try_from(frame)?, FileFrame::Ack(_))))
            .await
            .unwrap()
        {}
    };
    timeout(PATIENCE, acked).await.expect("it acknowledges");
}

/// Announces a stream that no disk can hold: the receiver says so before it has filled the disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_no_disk_can_hold_is_refused() {
    let scratch = Scratch::new("endless-stream");
    let host = Host::start(&scratch).await;
    let (mut conn, _) = host.agree(&[stream()]).await;
    conn.push(&grown(MOST_STREAMED, false));
    conn.flush().await.unwrap();
    let (code, text) = aborted(&mut conn).await.expect("it says why");
    assert_eq!(code, AbortCode::NoSpace, "{text}");
    drop(conn);
    host.accepts_honest_sender(&scratch, "honest").await;
    assert!(!scratch.0.join("in/db.sql").exists());
}

/// Contradicts itself about the size, or sends what it did not announce.
#[tokio::test(flavor = "multi_thread")]
async fn sizes_that_contradict_each_other_are_refused() {
    let cases: [(&str, &[(u64, bool)]); 5] = [
        ("odd", &[(2 * BLOCK + 1, false)]),
        ("one-block", &[(BLOCK, false)]),
        ("shrunk", &[(4 * BLOCK, false), (3 * BLOCK, true)]),
        ("after-the-end", &[(5, true), (2 * BLOCK, false)]),
        ("too-much", &[(u64::MAX, true)]),
    ];
    for (name, sizes) in cases {
        let scratch = Scratch::new(&format!("stream-{name}"));
        let host = Host::start(&scratch).await;
        let (mut conn, _) = host.agree(&[stream()]).await;
        for &(size, is_end) in sizes {
            conn.push(&grown(size, is_end));
        }
        conn.flush().await.unwrap();
        let (code, text) = aborted(&mut conn).await.expect("it says why");
        assert_eq!(code, AbortCode::Protocol, "{name}: {text}");
        assert!(!scratch.0.join("in/db.sql").exists(), "{name}");
    }
    let scratch = Scratch::new("stream-ahead");
    let host = Host::start(&scratch).await;
    let (mut conn, _) = host.agree(&[stream()]).await;
    conn.push(&grown(2 * BLOCK, false));
    push_block(&mut conn, 2);
    conn.flush().await.unwrap();
    let (code, text) = aborted(&mut conn).await.expect("it says why");
    assert_eq!(code, AbortCode::Protocol, "data that were not announced: {text}");
    // The size of a file does not change.
    let (mut conn, _) = host.agree(&[file(b"data", 4 * BLOCK)]).await;
    conn.push(&grown(5 * BLOCK, false));
    conn.flush().await.unwrap();
    let (code, text) = aborted(&mut conn).await.expect("it says why");
    assert_eq!(code, AbortCode::Protocol, "a file that grows: {text}");
}

/// Dies before the end of its stream: what arrived has no name, though all of it is verified.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_an_end_gets_no_name() {
    let scratch = Scratch::new("stream-dies");
    let host = Host::start(&scratch).await;
    let (mut conn, _) = host.agree(&[stream()]).await;
    conn.push(&grown(2 * BLOCK, false));
    push_block(&mut conn, 0);
    push_block(&mut conn, 1);
    conn.flush().await.unwrap();
    acknowledged(&mut conn).await;
    drop(conn);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!scratch.0.join("in/db.sql").exists());
    // The next stream of that name begins anew.
    let (mut conn, _) = host.agree(&[stream_of(1)]).await;
    conn.push(&grown(0, true));
    conn.flush().await.unwrap();
    let done = async {
        while !conn
            .receive(|frame| Ok(matches!(FileFrame::try_from(frame)?, FileFrame::Done(_))))
            .await
            .unwrap()
        {}
    };
    timeout(PATIENCE, done).await.expect("it completes");
    assert_eq!(fs::read(scratch.0.join("in/db.sql")).unwrap(), b"");
}

/// A stream whose producer thinks is not given up; after a while another sender gets its turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_may_pause_until_another_sender_has_waited_long() {
    let scratch = Scratch::new("stream-pauses");
    let slow = Identity::generate().unwrap();
    let known = vec![Peer::from(slow.fingerprint())];
    let stalls = Stalls { beside_others: Span::from_secs(1), alone: Span::from_secs(4) };
    let mut host = Host::start_unless_stalled(&scratch, known, stalls).await;
    let honest = std::mem::replace(&mut host.sender, slow);
    let (mut conn, _) = host.agree(&[stream()]).await;
    host.sender = honest;
    conn.push(&grown(2 * BLOCK, false));
    push_block(&mut conn, 0);
    push_block(&mut conn, 1);
    let (told, mut reason) = tokio::sync::oneshot::channel();
    let pinging = tokio::spawn(async move {
        let _ = told.send(super::sender::only_pings(conn).await);
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    fs::write(scratch.0.join("other"), b"x").unwrap();
    let events = Events::new();
    let early = crate::send(host.honest_options(vec![scratch.0.join("other")]), events).await;
    early.expect_err("the stream has its turn");
    assert!(reason.try_recv().is_err(), "it was not ended");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(reason.try_recv().is_err(), "nobody else waits");
    host.accepts_honest_sender(&scratch, "honest").await;
    let reason = timeout(PATIENCE, reason).await.expect("it ends").unwrap();
    let (_, text) = reason.expect("it is told why");
    assert!(text.contains("no data for"), "{text}");
    pinging.await.unwrap();
}
