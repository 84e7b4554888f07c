//! A sender that says more of owners and attributes than it may.

use std::fs;

use wire::files::FileFrame;
use wire::files::Wishes;
use wire::manifest::{Attributes, AttributesOf, Entry, Extended, chunks_with};
use wire::session::{AbortCode, Hello, SessionFrame};

use super::{Host, Scratch, answer, file};

/// What a receiver that lets senders choose owners says to these chunks.
async fn refusal(
    scratch: &Scratch,
    archive: bool,
    chunks: &[&[u8]],
    count: u32,
) -> (AbortCode, String) {
    let host = Host::start(scratch).await;
    let mut conn = host.connect(&host.sender).await;
    let wishes = Wishes { archive, ..Wishes::default() };
    conn.push(&SessionFrame::Hello(
        Hello::new(wire::files::RECEIVE, Some(*host.token.secret()), [0; 16]).asking(wishes.emit()),
    ));
    for chunk in chunks {
        conn.push(&FileFrame::Entries(chunk));
    }
    conn.push(&FileFrame::ManifestEnd(count));
    let (_, abort) = answer(&mut conn).await.expect("it says why");
    assert_eq!(fs::read_dir(scratch.0.join("in")).unwrap().count(), 0, "nothing is left");
    abort.expect("an abort")
}

fn owned(extended: Vec<Extended>) -> Attributes {
    Attributes { mode: 0o4755, uid: 0, gid: 0, extended }
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_that_were_not_agreed_on_are_refused() {
    let scratch = Scratch::new("not-agreed");
    let entries = [file(b"program", 1)];
    let attributes = AttributesOf::from([(0, owned(Vec::new()))]);
    let chunk = chunks_with(&entries, &attributes).next().unwrap();
    let (code, text) = refusal(&scratch, false, &[&chunk], 1).await;
    assert!(code == AbortCode::Protocol && text.contains("bad owner"), "{code:?}: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_that_belong_to_the_host_are_refused() {
    let scratch = Scratch::new("of-the-host");
    let entries = [file(b"program", 1)];
    let note = Extended { name: b"user.overlay.x".to_vec(), value: Vec::new() };
    let attributes = AttributesOf::from([(0, owned(vec![note]))]);
    let mut chunk = chunks_with(&entries, &attributes).next().unwrap();
    let at = chunk.windows(5).position(|part| part == b"user.").unwrap();
    // As long as the other name, but for a namespace of three letters more.
    chunk.splice(at..at + 4, *b"trusted");
    chunk[at - 1] += 3;
    let (code, text) = refusal(&scratch, true, &[&chunk], 1).await;
    assert!(code == AbortCode::Protocol && text.contains("name of an attribute"), "{text}");
    // An owner that is none.
    let attributes = AttributesOf::from([(0, owned(Vec::new()))]);
    let mut chunk = chunks_with(&entries, &attributes).next().unwrap();
    let at = chunk.len() - 4;
    chunk[at..].fill(0xff);
    let (code, text) = refusal(&scratch, true, &[&chunk], 1).await;
    assert!(code == AbortCode::Protocol && text.contains("bad owner"), "{code:?}: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_without_end_do_not_fill_the_memory() {
    let scratch = Scratch::new("attributes");
    // Some fifteen bytes on the wire take ten times as much memory.
    let name = |number: u8| [&b"user."[..], &[number | 0x80, number / 128 + 1]].concat();
    let all: Vec<Extended> =
        (0..128).map(|number| Extended { name: name(number), value: Vec::new() }).collect();
    let entries: Vec<Entry> =
        (0..36u8).map(|number| file(&[b'a' + number / 6, b'a' + number % 6], 1)).collect();
    let attributes: AttributesOf = (0..36).map(|index| (index, owned(all.clone()))).collect();
    let chunk = chunks_with(&entries, &attributes).next().unwrap();
    let (code, text) = refusal(&scratch, true, &vec![&chunk[..]; 500], 18_000).await;
    assert!(code == AbortCode::Protocol && text.contains("endless manifest"), "{code:?}: {text}");
}
