//! Hostile senders.

use std::fs;
use std::time::Duration;

use tokio::time::timeout;
use transfer::digest::block_cv;
use wire::Emit;
use wire::files::FileFrame;
use wire::files::{Compressed, Data, Wishes};
use wire::manifest::{Entry, File, Kind, Part, chunks};
use wire::session::{AbortCode, Hello, SessionFrame};

use super::{Host, NEVER, PATIENCE, Scratch, answer, chunk, entry, file, greeting, hello, hellos};
use crate::listen::Stalls;
use peer::listen::MOST_CONNECTIONS;
use peer::{Identity, Peer};

/// A sender that opens several sessions at once, because the first answer was late, keeps one; the
/// others are closed.
#[tokio::test(flavor = "multi_thread")]
async fn of_sessions_opened_at_once_one_remains() {
    let scratch = Scratch::new("at-once");
    let entries: Vec<Entry> =
        (0..2_000).map(|number| file(format!("{number:04}").as_bytes(), 1)).collect();
    let mut conns = hellos(&scratch, 4).await;
    for conn in &mut conns {
        for chunk in chunks(&entries) {
            conn.push(&FileFrame::Entries(&chunk));
        }
        conn.push(&FileFrame::ManifestEnd(2_000));
    }
    let mut asking = tokio::task::JoinSet::new();
    let bytes = vec![7; 2_000];
    let hash = block_cv(2_000, 0, &bytes).0;
    for mut conn in conns {
        let bytes = bytes.clone();
        asking.spawn(async move {
            if answer(&mut conn).await.is_none_or(|(frame, _)| frame != "Ready") {
                return false;
            }
            // Sessions that were opened after this one end it.
            tokio::time::sleep(Duration::from_secs(3)).await;
            conn.push(&FileFrame::Data(Data {
                position: 0,
                block_hash: Some(hash),
                payload: &bytes,
            }));
            for expected in ["ObjectDone", "Done"] {
                if answer(&mut conn).await.is_none_or(|(frame, _)| frame != expected) {
                    return false;
                }
            }
            true
        });
    }
    let done: Vec<bool> = asking.join_all().await;
    assert_eq!(done.iter().filter(|done| **done).count(), 1, "{done:?}");
    assert_eq!(fs::read_dir(scratch.0.join("in")).unwrap().count(), 2_000);
}

pub(super) async fn refused(
    name: &str,
    chunks: &[Vec<u8>],
    count: u32,
    code: AbortCode,
    words: &str,
) {
    let scratch = Scratch::new(name);
    let mut conn = hello(&scratch).await;
    for chunk in chunks {
        conn.push(&FileFrame::Entries(chunk));
    }
    conn.push(&FileFrame::ManifestEnd(count));
    let (_, abort) = answer(&mut conn).await.expect("it says why");
    let (found, text) = abort.expect("an abort");
    assert!(found == code && text.contains(words), "{name}: {found:?}: {text}");
    assert_eq!(fs::read_dir(scratch.0.join("in")).unwrap().count(), 0, "{name}: nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_lies_is_refused_with_a_reason() {
    let protocol = AbortCode::Protocol;
    let mut up = chunk(&[file(b"aa/b", 1)]);
    let at = up.windows(2).position(|part| part == b"aa").unwrap();
    up[at..at + 2].copy_from_slice(b"..");
    refused("up", &[up], 1, protocol, "path").await;
    // What another peer's folder below this one keeps there would be anybody's.
    let mut staged = chunk(&[file(b"deep/.anabranch-partia_/x", 1)]);
    let at = staged.iter().position(|byte| *byte == b'_').unwrap();
    staged[at] = b'l';
    refused("staged", &[staged], 1, protocol, "path").await;
    refused("noise", &[vec![0xff; 100]], 1, protocol, "Entries").await;
    refused("cut", &[chunk(&[file(b"a", 1)])[..7].to_vec()], 1, protocol, "cut short").await;
    refused("count", &[chunk(&[file(b"a", 1)])], 2, protocol, "add up").await;
    refused("twice", &[chunk(&[file(b"a", 1), file(b"a", 1)])], 2, protocol, "two of the name")
        .await;
    let link = entry(b"a", Kind::Symlink { mtime: 0, target: b"/etc".to_vec() });
    refused("through", &[chunk(&[link, file(b"a/passwd", 1)])], 2, protocol, "two of the name")
        .await;
    refused(
        "itself",
        &[chunk(&[entry(b"a", Kind::HardLink { to: 0 })])],
        1,
        protocol,
        "another name",
    )
    .await;
    refused(
        "sizes",
        &[chunk(&[file(b"a", u64::MAX - 1), file(b"b", u64::MAX - 1)])],
        2,
        protocol,
        "too large",
    )
    .await;
    refused("room", &[chunk(&[file(b"a", 1 << 55)])], 1, AbortCode::NoSpace, "free").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_manifest_ends() {
    // Each chunk of 64 KiB holds thousands of paths of four thousand bytes; the expanded size
    // counts.
    let long = [b"folder/".repeat(570), b"f".to_vec()].concat();
    let mut entries = Vec::new();
    for number in 0..2_000u32 {
        entries.push(file(&[&long[..], &number.to_be_bytes().map(|byte| byte | 0x80)].concat(), 1));
    }
    let chunk = chunk(&entries);
    refused("endless", &vec![chunk; 40], 80_000, AbortCode::Protocol, "endless manifest").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_right_behind_a_join_are_written_at_once() {
    let scratch = Scratch::new("behind-a-join");
    let host = Host::start(&scratch).await;
    let bytes = vec![7; 2_000];
    let (_conn, id) = host.agree(&[file(b"data", 2_000)]).await;
    let mut other = host.connect(&host.sender).await;
    let hash = block_cv(2_000, 0, &bytes).0;
    // Both are in one record, and nothing follows.
    other.push(&SessionFrame::Join(id));
    other.push(&FileFrame::Data(Data { position: 0, block_hash: Some(hash), payload: &bytes }));
    other.flush().await.unwrap();
    let written = timeout(PATIENCE, async {
        while fs::read(scratch.0.join("in/data")).ok().as_ref() != Some(&bytes) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    written.await.expect("the file is there");
}

/// A sender that joins its session again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_so_many_connections_and_no_more() {
    let scratch = Scratch::new("crowded");
    let host = Host::start(&scratch).await;
    let bytes = vec![7; 2_000];
    let (mut conn, id) = host.agree(&[file(b"data", 2_000)]).await;
    // Silent connections are closed after half a minute: on a slow machine the last ones come
    // later.
    let mut others = Vec::new();
    for _ in 1..MOST_CONNECTIONS {
        let mut other = host.connect(&host.sender).await;
        other.push(&SessionFrame::Join(id));
        let (frame, _) = answer(&mut other).await.expect("it answers");
        assert_eq!(frame, "Joined");
        others.push(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(5)).await;
                other.push(&SessionFrame::Ping(0));
                other.flush().await.expect("it stays open");
            }
        }));
        conn.push(&SessionFrame::Ping(0));
        conn.flush().await.unwrap();
    }
    let mut beyond = host.connect(&host.sender).await;
    beyond.push(&SessionFrame::Join(id));
    let abort = loop {
        match answer(&mut beyond).await.expect("it says why") {
            (_, Some(abort)) => break abort,
            (frame, None) => assert_eq!(frame, "Joined"),
        }
    };
    assert_eq!(abort.0, AbortCode::Crowded);
    assert!(abort.1.contains("has 128 connections"), "{}", abort.1);
    // Once one has gone there is a place again, and the session was not harmed.
    others.pop().expect("there are many").abort();
    let rejoined = timeout(PATIENCE, async {
        loop {
            let mut other = host.connect(&host.sender).await;
            other.push(&SessionFrame::Join(id));
            other.push(&SessionFrame::Ping(1));
            let answers = [answer(&mut other).await, answer(&mut other).await];
            if answers.iter().flatten().any(|(frame, _)| frame == "Pong") {
                break;
            }
        }
    });
    rejoined.await.expect("a place comes free");
    let hash = block_cv(2_000, 0, &bytes).0;
    conn.push(&FileFrame::Data(Data { position: 0, block_hash: Some(hash), payload: &bytes }));
    while answer(&mut conn).await.expect("it goes on").0 != "Done" {}
    assert!(others.iter().all(|other| !other.is_finished()), "the others are still open");
    assert_eq!(fs::read(scratch.0.join("in/data")).unwrap(), bytes);
}

/// Manifests of one known sender that are each small enough, but not together.
#[tokio::test(flavor = "multi_thread")]
async fn many_manifests_of_a_known_sender_do_not_fill_the_memory() {
    let scratch = Scratch::new("many-manifests");
    let known = Identity::generate().unwrap();
    let host = Host::start_knowing(&scratch, vec![Peer::from(known.fingerprint())]).await;
    let long = [&[b'd'; 250][..], b"/"].concat().repeat(15);
    let name = |number: u32| [&long[..], &number.to_be_bytes().map(|byte| byte | 0x80)].concat();
    let entries: Vec<Entry> = (0..2_000).map(|number| file(&name(number), 1)).collect();
    // 7 MB of memory for each of these.
    let chunk = chunk(&entries);
    let mut lying = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let mut conn = host.connect(&known).await;
        let chunk = chunk.clone();
        lying.spawn(async move {
            conn.push(&SessionFrame::Hello(
                Hello::new(wire::files::RECEIVE, None, [0; 16]).asking(Wishes::default().emit()),
            ));
            for _ in 0..26 {
                conn.push(&FileFrame::Entries(&chunk));
            }
            loop {
                // It sends just enough to count as alive.
                conn.push(&FileFrame::Entries(&[]));
                let _ = conn.flush().await;
                let told = conn.receive(|frame| match FileFrame::try_from(frame)? {
                    FileFrame::Session(SessionFrame::Abort(code, text)) => Ok(Some((code, text))),
                    _ => Ok(None),
                });
                match timeout(Duration::from_secs(1), told).await {
                    Err(_) | Ok(Ok(None)) => {}
                    Ok(Ok(told)) => return told,
                    Ok(Err(_)) => return None,
                }
            }
        });
    }
    let refused = timeout(NEVER, lying.join_next()).await.expect("one is not heard out");
    let (code, text) = refused.unwrap().unwrap().expect("it hears why");
    assert!(
        code == AbortCode::Busy && text.contains("memory for lists of files is used up"),
        "{code:?}: {text}"
    );
    assert!(text.contains("fewer files at a time"), "{text}");
    host.accepts_honest_sender(&scratch, "honest").await;
}

/// Agrees on a large and a small file, sends these data frames, and returns the receiver's answer.
async fn after(name: &str, data: &[Data<'_>]) -> Option<(String, Option<(AbortCode, String)>)> {
    let scratch = Scratch::new(name);
    let mut conn = hello(&scratch).await;
    conn.push(&FileFrame::Entries(&chunk(&[file(b"large", 300_000), file(b"small", 5_000)])));
    conn.push(&FileFrame::ManifestEnd(2));
    let ready = answer(&mut conn).await.expect("it answers");
    assert_eq!(ready.0, "Ready");
    for data in data {
        conn.push(&FileFrame::Data(data.clone()));
    }
    let answer = answer(&mut conn).await;
    let left: Vec<_> = fs::read_dir(scratch.0.join("in"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(left.is_empty() || left == [".anabranch-partial"], "{name}: {left:?}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_lie_get_no_name() {
    let block = vec![7; 262_144];
    let good = block_cv(300_000, 0, &block).0;
    let data = |position, payload, block_hash| Data { position, block_hash, payload };
    // The small file's object begins at the third block.
    let small = 2 * 262_144;
    let wrong: [(&str, Vec<Data<'_>>); 5] = [
        ("beyond", vec![data(1 << 40, &block, None)]),
        ("between", vec![data(300_000 / 4_096 * 4_096 + 8_192, &block[..4_096], None)]),
        ("longer", vec![data(small, &block[..5_001], Some([1; 32]))]),
        ("crooked", vec![data(1, &block[..4_096], None)]),
        (
            "two-hashes",
            vec![data(0, &block[..4_096], Some(good)), data(0, &block[..4_096], Some([1; 32]))],
        ),
    ];
    for (name, frames) in wrong {
        let (_, abort) = after(name, &frames).await.expect("it says why");
        let (code, text) = abort.expect("an abort");
        assert!(code == AbortCode::Protocol && !text.is_empty(), "{name}: {code:?}: {text}");
    }
    // Bytes that do not match their hash are requested again, but not forever; overlapping bytes
    // are taken once.
    for position in [0, small] {
        let payload = if position == 0 { &block[..] } else { &block[..5_000] };
        let again: Vec<Data<'_>> =
            (0..20).map(|_| data(position, payload, Some([1; 32]))).collect();
        let (_, abort) = after("wrong", &again).await.expect("it says why");
        assert!(matches!(abort, Some((AbortCode::Integrity, _))), "{abort:?}");
    }
}

/// Offers a sparse file with invalid extents; the receiver refuses it.
#[tokio::test(flavor = "multi_thread")]
async fn extents_of_a_sparse_file_that_overlap_are_refused() {
    let good = chunk(&[entry(
        b"holes",
        Kind::File(File {
            size: 1_000,
            mtime: 0,
            mode: 0o644,
            hash: None,
            data: Some(vec![(10, 20), (50, 20)]),
        }),
    )]);
    // The last extent's offset and length end the entry: let it begin within the first one, go
    // beyond the end, or be empty.
    let at = good.len() - 16;
    for (name, offset, length) in
        [("inside", 29u64, 20u64), ("beyond-the-end", 50, u64::MAX), ("empty", 50, 0)]
    {
        let mut bad = good.clone();
        bad[at..at + 8].copy_from_slice(&offset.to_be_bytes());
        bad[at + 8..].copy_from_slice(&length.to_be_bytes());
        let read: Result<Vec<Part>, _> = wire::manifest::entries(&bad).collect();
        if let Ok(read) = read {
            panic!("{name}: {read:?}");
        }
        refused(name, &[bad], 1, AbortCode::Protocol, "Entries").await;
    }
}

/// Of overlapping extents, the bytes that arrive first count; if they are wrong, the whole block is
/// requested again.
#[tokio::test(flavor = "multi_thread")]
async fn overlapping_data_are_verified_as_a_whole() {
    let scratch = Scratch::new("overlap");
    let host = Host::start(&scratch).await;
    let (mut conn, _) = host.agree(&[file(b"large", 300_000)]).await;
    let content: Vec<u8> = (0..300_000u32).map(|at| at.to_le_bytes()[1]).collect();
    let hash = block_cv(300_000, 0, &content[..262_144]).0;
    let last = block_cv(300_000, 262_144, &content[262_144..]).0;
    let wrong = vec![1; 8_192];
    conn.push(&FileFrame::Data(Data { position: 4_096, block_hash: None, payload: &wrong }));
    conn.push(&FileFrame::Data(Data {
        position: 0,
        block_hash: Some(hash),
        payload: &content[..262_144],
    }));
    conn.push(&FileFrame::Data(Data {
        position: 262_144,
        block_hash: Some(last),
        payload: &content[262_144..],
    }));
    conn.flush().await.unwrap();
    // After the refusal the block arrives right, in overlapping pieces.
    let refused = timeout(PATIENCE, async {
        while !conn
            .receive(|f| Ok(matches!(FileFrame::try_from(f)?, FileFrame::Refused(_))))
            .await
            .unwrap()
        {}
    });
    refused.await.expect("it refuses the block");
    conn.push(&FileFrame::Data(Data {
        position: 0,
        block_hash: Some(hash),
        payload: &content[..200_704],
    }));
    conn.push(&FileFrame::Data(Data {
        position: 4_096,
        block_hash: None,
        payload: &content[4_096..262_144],
    }));
    for expected in ["ObjectDone", "Done"] {
        assert_eq!(answer(&mut conn).await.expect("it answers").0, expected);
    }
    assert_eq!(fs::read(scratch.0.join("in/large")).unwrap(), content);
}

/// Compressed data that become more or less than they claim, or that are none, end the session;
/// such that are what they claim arrive.
#[tokio::test(flavor = "multi_thread")]
async fn compressed_data_that_lie_end_the_session() {
    let content = vec![7; 200_000];
    let payload = zstd::bulk::compress(&content, 3).unwrap();
    let hash = Some(block_cv(200_000, 0, &content).0);
    let nonsense = vec![1; 1_000];
    for (name, len, payload) in [
        ("more", 100_000, &payload[..]),
        ("less", 262_144, &payload[..]),
        ("cut short", 200_000, &payload[..payload.len() - 1]),
        ("none", 200_000, &nonsense[..]),
    ] {
        let scratch = Scratch::new("compressed-wrong");
        let host = Host::start(&scratch).await;
        let (mut conn, _) = host.agree(&[file(b"data", 200_000)]).await;
        conn.push(&FileFrame::Compressed(Compressed {
            position: 0,
            block_hash: hash,
            len,
            payload,
        }));
        let (code, text) = answer(&mut conn).await.expect("it answers").1.expect("an abort");
        assert_eq!(code, AbortCode::Protocol, "{name}: {text}");
        assert!(text.contains("Compressed"), "{name}: {text}");
    }
    let scratch = Scratch::new("compressed");
    let host = Host::start(&scratch).await;
    let (mut conn, _) = host.agree(&[file(b"true", 200_000)]).await;
    let len = 200_000;
    let data = Compressed { position: 0, block_hash: hash, len, payload: &payload };
    conn.push(&FileFrame::Compressed(data));
    for expected in ["ObjectDone", "Done"] {
        assert_eq!(answer(&mut conn).await.expect("it answers").0, expected);
    }
    assert_eq!(fs::read(scratch.0.join("in/true")).unwrap(), content);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_opens_nothing_and_uses_nothing_up() {
    let scratch = Scratch::new("token");
    let host = Host::start(&scratch).await;
    for attempt in 0..20 {
        let mut conn = host.connect(&Identity::generate().unwrap()).await;
        let mut secret = *host.token.secret();
        secret[attempt % 16] ^= 1;
        conn.push(&greeting(secret));
        let (frame, abort) = answer(&mut conn).await.expect("it says why");
        assert_eq!(frame, "Abort", "a stranger learns no address of the host");
        let (code, text) = abort.expect("an abort");
        assert!(
            code == AbortCode::Refused && text.contains("token is not the one"),
            "{code:?}: {text}"
        );
    }
    host.accepts_honest_sender(&scratch, "honest").await;
    // Once the honest sender has used the token, no other key can.
    let mut conn = host.hello(&Identity::generate().unwrap()).await;
    let (_, abort) = answer(&mut conn).await.expect("it says why");
    assert!(
        abort.is_some_and(
            |(code, text)| code == AbortCode::Refused && text.contains("another sender")
        )
    );
}

/// A session's id is not secret, for example in a log: only the key that opened the session may
/// join it, and only while it lasts.
#[tokio::test(flavor = "multi_thread")]
async fn a_join_is_good_for_its_sender_and_its_session_only() {
    let scratch = Scratch::new("join");
    let host = Host::start(&scratch).await;
    let content = vec![7; 5_000];
    let (mut conn, session) = host.agree(&[file(b"first", 5_000)]).await;
    let join = async |who: &Identity| {
        let mut conn = host.connect(who).await;
        conn.push(&SessionFrame::Join(session));
        answer(&mut conn).await.expect("it answers")
    };
    let (frame, abort) = join(&Identity::generate().unwrap()).await;
    assert!(frame == "Abort" && abort.is_some_and(|(code, _)| code == AbortCode::NoSession));
    assert_eq!(join(&host.sender).await.0, "Joined");
    let hash = block_cv(5_000, 0, &content).0;
    conn.push(&FileFrame::Data(Data { position: 0, block_hash: Some(hash), payload: &content }));
    for expected in ["ObjectDone", "Done"] {
        assert_eq!(answer(&mut conn).await.expect("it answers").0, expected);
    }
    drop(conn);
    // Once the session's paths are closed, the same join fails.
    let mut known = true;
    for _ in 0..100 {
        let (frame, _) = join(&host.sender).await;
        known = frame != "Abort";
        if !known {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!known, "a session that is over can be joined for good");
    host.accepts_honest_sender(&scratch, "second").await;
}

/// A sender that never reads its acknowledgements is not read without end.
#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_never_listens_is_not_heard_for_ever() {
    let scratch = Scratch::new("deaf");
    let host = Host::start(&scratch).await;
    let (mut conn, _) = host.agree(&[file(b"tail", 4_097)]).await;
    let flood = async {
        for _ in 0..6_000 {
            for _ in 0..256 {
                // The last byte, over and over: each acknowledgement is longer than the data.
                conn.push(&FileFrame::Data(Data {
                    position: 4_096,
                    block_hash: None,
                    payload: &[7],
                }));
            }
            conn.flush().await.unwrap();
        }
    };
    let taken = timeout(Duration::from_secs(10), flood).await;
    assert!(
        taken.is_err(),
        "a million and a half answers are kept for somebody who never reads them"
    );
    drop(conn);
    host.accepts_honest_sender(&scratch, "honest").await;
}

/// The first frame of a stranger may be no longer than a hello, whatever length it announces.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_that_announces_much_is_not_waited_for() {
    let scratch = Scratch::new("announces");
    let host = Host::start(&scratch).await;
    let block = vec![0; 262_144];
    let chunk = chunks(&[file(b"a", 1)]).next().unwrap();
    for frame in [
        FileFrame::Data(Data { position: 0, block_hash: None, payload: &block }),
        FileFrame::Entries(&chunk),
        FileFrame::Ready,
    ] {
        let mut conn = host.connect(&Identity::generate().unwrap()).await;
        conn.push(&frame);
        assert!(answer(&mut conn).await.is_none(), "{}", frame.name());
    }
    host.accepts_honest_sender(&scratch, "honest").await;
}

/// A sender that agrees on a file and then only pings, until `told` hears the reason of its end.
pub(super) async fn only_pings(mut conn: peer::Conn) -> Option<(AbortCode, String)> {
    loop {
        conn.push(&SessionFrame::Ping(0));
        let _ = conn.flush().await;
        match timeout(
            Duration::from_millis(100),
            conn.receive(|frame| {
                Ok(match FileFrame::try_from(frame)? {
                    FileFrame::Session(SessionFrame::Abort(code, text)) => Some((code, text)),
                    _ => None,
                })
            }),
        )
        .await
        {
            Ok(Ok(Some(reason))) => return Some(reason),
            Ok(Err(_)) => return None,
            Ok(Ok(None)) | Err(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_only_pings_gives_way_to_another() {
    let scratch = Scratch::new("only-pings");
    let hostile = Identity::generate().unwrap();
    let known = vec![Peer::from(hostile.fingerprint())];
    let stalls = Stalls { beside_others: units::Span::from_secs(2), ..Stalls::DEFAULT };
    let mut host = Host::start_unless_stalled(&scratch, known, stalls).await;
    let honest = std::mem::replace(&mut host.sender, hostile);
    let (conn, _) = host.agree(&[file(b"data", 2_000)]).await;
    host.sender = honest;
    let pinging = tokio::spawn(only_pings(conn));
    tokio::time::sleep(Duration::from_secs(3)).await;
    host.accepts_honest_sender(&scratch, "honest").await;
    let reason = timeout(PATIENCE, pinging).await.expect("it ends").unwrap();
    let (_, text) = reason.expect("it is told why");
    assert!(text.contains("no data for"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_only_pings_is_given_up() {
    let scratch = Scratch::new("pings-for-ever");
    let stalls = Stalls { alone: units::Span::from_secs(2), ..Stalls::DEFAULT };
    let host = Host::start_unless_stalled(&scratch, Vec::new(), stalls).await;
    let (conn, _) = host.agree(&[file(b"data", 2_000)]).await;
    let reason = timeout(PATIENCE, only_pings(conn)).await.expect("it ends");
    let (_, text) = reason.expect("it is told why");
    assert!(text.contains("no data for"), "{text}");
    host.accepts_honest_sender(&scratch, "honest").await;
}
