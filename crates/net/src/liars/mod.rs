//! Peers that lie: a clear error, nothing outside the folder, no panic and no memory without bound.

mod fetch;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use transfer::digest::block_cv;
use wire::Frame;
use wire::frame::{AbortCode, Data, Hello, Range, VERSION, Welcome, Wishes};
use wire::manifest::{Entry, File, Kind, chunks};

use crate::conn::{Conn, ConnError};
use crate::tls::{ClientTls, ServerTls};
use crate::{
    CongestionControl, Credential, Error, Event, Identity, ReceiveOptions, Remote, Selection, SendOptions, Token,
};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("anabranch-liars-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("in")).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entry(path: &[u8], kind: Kind) -> Entry {
    Entry { path: path.to_vec(), kind }
}

fn file(path: &[u8], size: u64) -> Entry {
    entry(path, Kind::File(File { size, mtime: 0, mode: 0o644, hash: None, data: None }))
}

fn chunk(entries: &[Entry]) -> Vec<u8> {
    chunks(entries).next().unwrap()
}

/// A connection to a receiver of our own that has said hello.
async fn hello(scratch: &Scratch) -> Conn {
    hellos(scratch, 1).await.pop().unwrap()
}

/// Several connections of one sender to a receiver of our own, each of which has said hello.
async fn hellos(scratch: &Scratch, count: usize) -> Vec<Conn> {
    let (identity, me) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let token = Token::generate(&identity).unwrap();
    let options = ReceiveOptions {
        directory: scratch.0.join("in"),
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        port: 0,
        identity: identity.clone(),
        token: Some(token.clone()),
        holder: None,
        authorized: Vec::new(),
        keep: true,
        overwrite: false,
    };
    let (events, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(crate::receive(options, events));
    let Some(Event::Listening { addresses }) = heard.recv().await else { panic!("it does not listen") };
    // The receiver goes on as long as somebody hears it.
    tokio::spawn(async move { while heard.recv().await.is_some() {} });
    let tls = ClientTls::new(&me, identity.fingerprint()).unwrap();
    let mut conns = Vec::new();
    for _ in 0..count {
        let stream = TcpStream::connect(addresses[0]).await.unwrap();
        let mut conn = Conn::new(stream, tls.connection().unwrap());
        conn.handshake().await.unwrap();
        let secret = Some(*token.secret());
        conn.push(&Frame::Hello(Hello { version: VERSION, secret, wishes: Wishes::default() }));
        conns.push(conn);
    }
    conns
}

/// Of sessions that a sender opens at the same time, because the first answer was long in coming, one remains, and the others are let go.
#[tokio::test(flavor = "multi_thread")]
async fn of_sessions_opened_at_once_one_remains() {
    let scratch = Scratch::new("at-once");
    let entries: Vec<Entry> = (0..2_000).map(|number| file(format!("{number:04}").as_bytes(), 1)).collect();
    let mut conns = hellos(&scratch, 4).await;
    for conn in &mut conns {
        for chunk in chunks(&entries) {
            conn.push(&Frame::Entries(&chunk));
        }
        conn.push(&Frame::ManifestEnd(2_000));
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
            // Those that were opened after this one end it.
            tokio::time::sleep(Duration::from_secs(3)).await;
            conn.push(&Frame::Data(Data { position: 0, block_hash: Some(hash), payload: &bytes }));
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

/// The first frame that decides something; `None` if the connection ends.
async fn answer(conn: &mut Conn) -> Option<(String, Option<(AbortCode, String)>)> {
    let waiting = async {
        // What comes after the receiver has hung up is not read.
        let _ = conn.flush().await;
        loop {
            let told = conn.receive(|frame| match frame {
                Frame::Welcome(_)
                | Frame::Want(_)
                | Frame::Have(_)
                | Frame::Ping(_)
                | Frame::Ack(_)
                | Frame::Refused(_) => Ok(None),
                Frame::Abort(code, text) => Ok(Some(("Abort".to_string(), Some((code, text))))),
                other => Ok(Some((String::from(&other), None))),
            });
            match told.await {
                Ok(None) => {}
                Ok(told) => return told,
                Err(_) => return None,
            }
        }
    };
    timeout(Duration::from_secs(20), waiting).await.expect("it answers in time")
}

async fn refused(name: &str, chunks: &[Vec<u8>], count: u32, code: AbortCode, words: &str) {
    let scratch = Scratch::new(name);
    let mut conn = hello(&scratch).await;
    for chunk in chunks {
        conn.push(&Frame::Entries(chunk));
    }
    conn.push(&Frame::ManifestEnd(count));
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
    refused("noise", &[vec![0xff; 100]], 1, protocol, "Entries").await;
    refused("cut", &[chunk(&[file(b"a", 1)])[..7].to_vec()], 1, protocol, "cut short").await;
    refused("none", &[], 0, protocol, "add up").await;
    refused("count", &[chunk(&[file(b"a", 1)])], 2, protocol, "add up").await;
    refused("twice", &[chunk(&[file(b"a", 1), file(b"a", 1)])], 2, protocol, "two of the name").await;
    let link = entry(b"a", Kind::Symlink { mtime: 0, target: b"/etc".to_vec() });
    refused("through", &[chunk(&[link, file(b"a/passwd", 1)])], 2, protocol, "two of the name").await;
    refused("itself", &[chunk(&[entry(b"a", Kind::HardLink { to: 0 })])], 1, protocol, "another name").await;
    refused("sizes", &[chunk(&[file(b"a", u64::MAX), file(b"b", u64::MAX)])], 2, protocol, "too large").await;
    refused("room", &[chunk(&[file(b"a", 1 << 55)])], 1, AbortCode::NoSpace, "free").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_manifest_ends() {
    // Each chunk of 64 KiB says some thousand paths of four thousand bytes: that is what counts.
    let long = [b"d/".repeat(1_990), b"f".to_vec()].concat();
    let mut entries = Vec::new();
    for number in 0..2_000u32 {
        entries.push(file(&[&long[..], &number.to_be_bytes().map(|byte| byte | 0x80)].concat(), 1));
    }
    let chunk = chunk(&entries);
    refused("endless", &vec![chunk; 40], 80_000, AbortCode::Protocol, "endless manifest").await;
}

/// Agrees on two files, a large and a small one, and gives what the receiver says to these data frames.
async fn after(name: &str, data: &[Data<'_>]) -> Option<(String, Option<(AbortCode, String)>)> {
    let scratch = Scratch::new(name);
    let mut conn = hello(&scratch).await;
    conn.push(&Frame::Entries(&chunk(&[file(b"large", 300_000), file(b"small", 5_000)])));
    conn.push(&Frame::ManifestEnd(2));
    let ready = answer(&mut conn).await.expect("it answers");
    assert_eq!(ready.0, "Ready");
    for data in data {
        conn.push(&Frame::Data(data.clone()));
    }
    let answer = answer(&mut conn).await;
    let left: Vec<_> = fs::read_dir(scratch.0.join("in")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
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
        ("two-hashes", vec![data(0, &block[..4_096], Some(good)), data(0, &block[..4_096], Some([1; 32]))]),
    ];
    for (name, frames) in wrong {
        let (_, abort) = after(name, &frames).await.expect("it says why");
        let (code, text) = abort.expect("an abort");
        assert!(code == AbortCode::Protocol && !text.is_empty(), "{name}: {code:?}: {text}");
    }
    // Bytes that do not match their hash are asked for again, and not forever; overlapping ones are taken once.
    for position in [0, small] {
        let payload = if position == 0 { &block[..] } else { &block[..5_000] };
        let again: Vec<Data<'_>> = (0..20).map(|_| data(position, payload, Some([1; 32]))).collect();
        let (_, abort) = after("wrong", &again).await.expect("it says why");
        assert!(matches!(abort, Some((AbortCode::Integrity, _))), "{abort:?}");
    }
}

/// What our sender says of a receiver that answers its manifest with these frames.
async fn answered(name: &str, pings: u32, frames: Vec<Frame<'static>>) -> Error {
    let scratch = Scratch::new(name);
    fs::write(scratch.0.join("data"), vec![7; 10_000]).unwrap();
    let identity = Identity::generate().unwrap();
    let token = Token::generate(&identity).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = ServerTls::new(&identity).unwrap();
    let lying = tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let mut conn = Conn::new(stream, tls.connection().unwrap());
            let serve = async {
                conn.handshake().await?;
                let end = |frame: Frame<'_>| match frame {
                    // It knows no session to join.
                    Frame::Join(_) => Err(ConnError::Closed),
                    frame => Ok(matches!(frame, Frame::ManifestEnd(_))),
                };
                while !conn.receive(end).await? {}
                let welcome = Welcome { version: VERSION, session: [1; 16], addresses: Vec::new() };
                conn.push(&Frame::Welcome(welcome));
                for _ in 0..pings {
                    conn.push(&Frame::Ping(0));
                    conn.flush().await?;
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                for frame in &frames {
                    conn.push(frame);
                }
                conn.flush().await?;
                while conn.receive(|_| Ok(())).await.is_ok() {}
                Ok::<(), ConnError>(())
            };
            let _ = serve.await;
        }
    });
    let options = SendOptions {
        sources: vec![scratch.0.join("data")],
        rename: None,
        selection: Selection::default(),
        to: Remote { host: "127.0.0.1".into(), port },
        credential: Credential::Token(token),
        identity: Identity::generate().unwrap(),
        paths: Vec::new(),
        no_paths: Vec::new(),
        scheduler: "self-adaptive".into(),
        congestion_control: CongestionControl::Auto,
        max_rate: None,
        usage: None,
        verify: false,
        restart: false,
        overwrite: false,
        dry_run: false,
        patience: units::Span::from_secs(2),
    };
    let (events, _heard) = tokio::sync::mpsc::unbounded_channel();
    let sent = timeout(Duration::from_secs(30), crate::send(options, events))
        .await
        .unwrap_or_else(|_| panic!("{name} does not end"));
    lying.abort();
    sent.expect_err("it cannot succeed")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_lies_gets_nothing_done() {
    let want = || Frame::Want(vec![Range { start: 0, len: 1 }]);
    let cases: Vec<(&str, Vec<Frame<'static>>)> = vec![
        ("wants-more", vec![Frame::Want(vec![Range { start: 0, len: 2 }]), Frame::Ready]),
        ("wants-far", vec![Frame::Want(vec![Range { start: 1 << 60, len: 1 }]), Frame::Ready]),
        ("acks-early", vec![want(), Frame::Ready, Frame::Ack(vec![Range { start: 1 << 30, len: 4_096 }])]),
        ("done-object", vec![want(), Frame::Ready, Frame::ObjectDone(9, [0; 32])]),
    ];
    for (name, frames) in cases {
        let error = answered(name, 0, frames).await;
        let text = error.to_string();
        assert!([5, 6, 9].contains(&error.exit_code()) && !text.is_empty(), "{name}: {} {text}", error.exit_code());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_says_it_is_reading_is_waited_for() {
    let began = std::time::Instant::now();
    // Longer than the sender's patience.
    let error = answered("reading", 8, vec![Frame::Abort(AbortCode::Disk, "done reading".into())]).await;
    assert!(error.to_string().contains("done reading"), "{error}");
    assert!(began.elapsed() > Duration::from_secs(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_agrees_and_says_nothing_is_left() {
    let want = Frame::Want(vec![Range { start: 0, len: 1 }]);
    let error = answered("silent", 0, vec![want, Frame::Ready]).await;
    assert_eq!(error.exit_code(), 6, "{error}");
}
