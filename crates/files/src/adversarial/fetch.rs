//! Hostile servers and hostile clients.

use std::fs;
use std::ops::Range as Span;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use transfer::digest::block_cv;
use wire::Emit;
use wire::files::FileFrame;
use wire::files::{Ask, Data, Hashes, Range};
use wire::manifest::{Entry, Kind};
use wire::session::{AbortCode, Hello, SessionFrame, VERSION, Welcome};

use super::{Scratch, chunk, entry, file, on_loopback, short_of_patience};
use crate::{Error, FetchOptions, Selection, ServeOptions, Server};
use events::{Event, Events, Summary};
use peer::tls::{ClientTls, ServerTls};
use peer::{Conn, ConnError};
use peer::{Credential, Identity, Remote, Token};

/// A file that differs from block to block.
fn content(size: usize) -> Vec<u8> {
    (0..size).map(|i| u8::try_from((i * 31 + i / 1_000) % 251).unwrap()).collect()
}

/// The chaining values of the blocks of a file.
fn hashes(bytes: &[u8]) -> Vec<[u8; 32]> {
    let offset = |index: usize| (index * 262_144) as u64;
    let blocks = bytes.chunks(262_144).enumerate();
    blocks.map(|(index, block)| block_cv(bytes.len() as u64, offset(index), block).0).collect()
}

/// A connection to a server of this crate that offers `out`, after the hello.
async fn hello_to_server(scratch: &Scratch) -> Conn {
    let (identity, me) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let token = Token::generate(&identity).unwrap();
    let port = serve(scratch, &identity, &token).await;
    let tls = ClientTls::new(&me, identity.fingerprint()).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut conn = Conn::new(Box::new(stream), tls.connection().unwrap());
    conn.handshake().await.unwrap();
    let secret = Some(*token.secret());
    conn.push(&SessionFrame::Hello(Hello::new(wire::files::SERVE, secret, [0; 16])));
    conn
}

pub(super) async fn serve(scratch: &Scratch, identity: &Identity, token: &Token) -> u16 {
    let listen = on_loopback(identity, token);
    let options =
        ServeOptions { directory: scratch.0.join("out"), listen, once: false, meetings: None };
    let (events, mut heard) = Events::observed();
    tokio::spawn(crate::serve(options, events));
    let Some(Event::Listening { addresses }) = heard.recv().await else {
        panic!("it does not listen")
    };
    // The server stops when its events are no longer received.
    tokio::spawn(async move { while heard.recv().await.is_some() {} });
    addresses[0].port()
}

fn push_all(conn: &mut Conn, frames: &[FileFrame<'_>]) {
    for frame in frames {
        conn.push(frame);
    }
}

/// Code and text of the next Abort; `None` if the connection ends.
async fn verdict(conn: &mut Conn) -> Option<(AbortCode, String)> {
    let waiting = async {
        let _ = conn.flush().await;
        loop {
            let told = conn.receive(|frame| match FileFrame::try_from(frame)? {
                FileFrame::Session(SessionFrame::Abort(code, text)) => Ok(Some((code, text))),
                _ => Ok(None),
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

fn offered(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    fs::create_dir_all(scratch.0.join("out")).unwrap();
    fs::write(scratch.0.join("out/data"), content(1_000_000)).unwrap();
    fs::write(scratch.0.join("secret"), "secret").unwrap();
    scratch
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_for_what_is_not_offered_is_refused() {
    let ask = || FileFrame::Ask(Ask::default());
    let long = [b"a/".repeat(2_040), b"b".to_vec()].concat();
    let many: Vec<FileFrame<'_>> = (0..5_000).map(|_| FileFrame::Name(b"data")).collect();
    let patterns: Vec<FileFrame<'_>> = (0..300).map(|_| FileFrame::Filter(true, "*")).collect();
    let cases: Vec<(&str, Vec<FileFrame<'_>>, &str)> = vec![
        ("up", vec![FileFrame::Name(b"../secret"), ask()], "no plain name"),
        ("up-inside", vec![FileFrame::Name(b"data/../../secret"), ask()], "no plain name"),
        ("dots", vec![FileFrame::Name(b".."), ask()], "no plain name"),
        ("nul", vec![FileFrame::Name(b"da\0ta"), ask()], "no plain name"),
        ("absolute", vec![FileFrame::Name(b"/etc/passwd"), ask()], "no plain name"),
        ("long", vec![FileFrame::Name(&long), ask()], ""),
        ("nothing", vec![ask()], "nothing was asked for"),
        ("many", many, "more than"),
        ("patterns", patterns, "more than"),
        ("missing", vec![FileFrame::Name(b"nothing"), ask()], "nothing"),
        (
            "hashes-of-all",
            vec![
                FileFrame::Name(b""),
                FileFrame::Name(b"data"),
                FileFrame::Ask(Ask { hashes: true, ..Ask::default() }),
            ],
            "",
        ),
        ("wrong-way", vec![FileFrame::Entries(b""), ask()], "Entries frame where none belongs"),
    ];
    for (name, frames, words) in cases {
        let scratch = offered(&format!("asks-{name}"));
        let mut conn = hello_to_server(&scratch).await;
        push_all(&mut conn, &frames);
        let (_, text) = verdict(&mut conn).await.unwrap_or_else(|| panic!("{name}: it says why"));
        assert!(
            text.contains(words) && !text.contains(scratch.0.to_str().unwrap()),
            "{name}: {text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_requests_what_there_is_not_is_refused() {
    let want = || {
        vec![
            FileFrame::Name(b"data"),
            FileFrame::Ask(Ask::default()),
            FileFrame::Want(vec![Range { start: 0, len: 1 }]),
            FileFrame::Ready,
        ]
    };
    let request = |start, len| FileFrame::Request(Range { start, len });
    let cases: Vec<(&str, Vec<FileFrame<'_>>)> = vec![
        ("beyond", vec![request(1 << 40, 4_096)]),
        ("end", vec![request(999_424, 4_096)]),
        ("crooked", vec![request(1, 4_096)]),
        ("two-blocks", vec![request(258_048, 8_192)]),
        ("flood", (0..200_000).map(|_| request(0, 262_144)).collect()),
        ("data", vec![FileFrame::Data(Data { position: 0, block_hash: None, payload: b"x" })]),
    ];
    for (name, frames) in cases {
        let scratch = offered(&format!("requests-{name}"));
        let mut conn = hello_to_server(&scratch).await;
        want().iter().chain(&frames).for_each(|frame| conn.push(frame));
        // A client that floods does not read: the Abort may not get through.
        match verdict(&mut conn).await {
            Some((code, text)) => {
                assert!(
                    code == AbortCode::Protocol && !text.is_empty(),
                    "{name}: {code:?}: \
                    {text}"
                );
            }
            None => assert_eq!(name, "flood"),
        }
    }
    let scratch = offered("wants-more");
    let mut conn = hello_to_server(&scratch).await;
    let frames = [
        FileFrame::Name(b"data"),
        FileFrame::Ask(Ask::default()),
        FileFrame::Want(vec![Range { start: 0, len: 2 }]),
    ];
    push_all(&mut conn, &frames);
    let (code, text) = verdict(&mut conn).await.expect("it says why");
    assert!(code == AbortCode::Protocol && text.contains("not offered"), "{code:?}: {text}");
}

/// The behaviour of a hostile server.
#[derive(Clone)]
struct Misbehaviour {
    /// Its answer to a request for files.
    answer: Vec<FileFrame<'static>>,
    /// The contents that it claims to have.
    bytes: Vec<u8>,
    /// The range of the contents that it sends wrong.
    wrong: Span<u64>,
    /// The offset between requested and sent positions; `None` if it sends nothing.
    shift: Option<u64>,
}

/// Starts a hostile server; returns its port.
async fn hostile_server(identity: &Identity, behaviour: Misbehaviour) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = ServerTls::new(identity).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (behaviour, connection) = (behaviour.clone(), tls.connection().unwrap());
            tokio::spawn(async move {
                misbehave(Conn::new(Box::new(stream), connection), &behaviour).await
            });
        }
    });
    port
}

async fn misbehave(mut conn: Conn, behaviour: &Misbehaviour) -> Result<(), ConnError> {
    conn.handshake().await?;
    let known = hashes(&behaviour.bytes);
    loop {
        let mut out = Vec::new();
        conn.receive(|frame| {
            match FileFrame::try_from(frame)? {
                FileFrame::Session(SessionFrame::Hello(_)) => welcome().emit(&mut out),
                FileFrame::Ask(_) => behaviour.answer.iter().for_each(|frame| frame.emit(&mut out)),
                FileFrame::Request(range) => {
                    let Some(shift) = behaviour.shift else { return Ok(()) };
                    let place = |position: u64| usize::try_from(position).unwrap();
                    let mut payload = behaviour.bytes
                        [place(range.start)..place(range.start + range.len)]
                        .to_vec();
                    for (at, byte) in payload.iter_mut().enumerate() {
                        *byte ^= u8::from(behaviour.wrong.contains(&(range.start + at as u64)));
                    }
                    let begins = range.start % 262_144 == 0;
                    let block_hash = begins.then(|| known[place(range.start / 262_144)]);
                    let position = range.start + shift;
                    FileFrame::Data(Data { position, block_hash, payload: &payload })
                        .emit(&mut out);
                }
                FileFrame::Session(SessionFrame::Ping(number)) => {
                    SessionFrame::Pong(number).emit(&mut out);
                }
                _ => {}
            }
            Ok(())
        })
        .await?;
        conn.push_parts(&out, &[]);
        conn.flush().await?;
    }
}

fn welcome() -> FileFrame<'static> {
    let welcome = Welcome { version: VERSION, session: [1; 16], addresses: Vec::new() };
    SessionFrame::Welcome(welcome).into()
}

/// An honest answer: one file.
fn answer(bytes: &[u8], with_hashes: bool) -> Vec<FileFrame<'static>> {
    let entries = Vec::leak(chunk(&[file(b"data", bytes.len() as u64)]));
    let mut frames = vec![FileFrame::Entries(entries), FileFrame::ManifestEnd(1)];
    if with_hashes {
        frames.extend([
            FileFrame::Hashes(Hashes { first: 0, hashes: hashes(bytes) }),
            FileFrame::Ready,
        ]);
    }
    frames
}

pub(super) fn fetch_options(scratch: &Scratch, from: Vec<Server>) -> FetchOptions {
    FetchOptions {
        from,
        names: vec!["data".into()],
        served: None,
        selection: Selection::default(),
        into: scratch.0.join("in"),
        rename: None,
        output: None,
        blake3: None,
        list: false,
        transfer: short_of_patience(),
    }
}

pub(super) fn at(port: u16, credential: Credential) -> Server {
    Server { remote: Remote { host: "127.0.0.1".into(), zone: None, port }, credential }
}

pub(super) async fn fetch(options: FetchOptions) -> (Result<Summary, Error>, Vec<String>) {
    let (events, mut heard) = Events::observed();
    let got =
        timeout(Duration::from_secs(40), crate::fetch(options, events)).await.expect("it ends");
    let mut notices = Vec::new();
    while let Some(event) = heard.try_recv() {
        if let Event::Notice { text } = event {
            notices.push(text);
        }
    }
    (got, notices)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lies_gets_nothing_accepted() {
    let bytes = content(1_000_000);
    let honest = Misbehaviour {
        answer: answer(&bytes, false),
        bytes: bytes.clone(),
        wrong: 0..0,
        shift: Some(0),
    };
    let saying = |frames| Misbehaviour { answer: frames, ..honest.clone() };
    let entries = |entries: &[Entry]| FileFrame::Entries(Vec::leak(chunk(entries)));
    let mut up = chunk(&[file(b"aa/b", 1)]);
    let place = up.windows(2).position(|part| part == b"aa").unwrap();
    up[place..place + 2].copy_from_slice(b"..");
    let link = entry(b"data", Kind::Symlink { mtime: 0, target: b"/etc".to_vec() });
    let cases: Vec<(&str, Misbehaviour, &[u8])> = vec![
        ("up", saying(vec![FileFrame::Entries(Vec::leak(up)), FileFrame::ManifestEnd(1)]), &[9]),
        (
            "unasked",
            saying(vec![entries(&[file(b".profile", 10)]), FileFrame::ManifestEnd(1)]),
            &[9],
        ),
        (
            "beside",
            saying(vec![
                entries(&[file(b"data", 10), file(b"dat", 10)]),
                FileFrame::ManifestEnd(2),
            ]),
            &[9],
        ),
        (
            "link",
            saying(vec![entries(std::slice::from_ref(&link)), FileFrame::ManifestEnd(1)]),
            &[9],
        ),
        (
            "through",
            saying(vec![entries(&[link, file(b"data/passwd", 1)]), FileFrame::ManifestEnd(2)]),
            &[9],
        ),
        ("none", saying(vec![FileFrame::ManifestEnd(0)]), &[9]),
        ("noise", saying(vec![FileFrame::Entries(&[0xff; 100]), FileFrame::ManifestEnd(1)]), &[9]),
        ("count", saying(vec![entries(&[file(b"data", 10)]), FileFrame::ManifestEnd(2)]), &[9]),
        ("done", saying(vec![FileFrame::Done(1)]), &[5, 9]),
        ("shifted", Misbehaviour { shift: Some(4_096), ..honest.clone() }, &[5, 6, 9]),
        ("mute", Misbehaviour { shift: None, ..honest.clone() }, &[6]),
        ("wrong", Misbehaviour { wrong: 300_000..300_001, ..honest.clone() }, &[7]),
    ];
    for (name, behaviour, codes) in cases {
        let scratch = Scratch::new(&format!("server-{name}"));
        let identity = Identity::generate().unwrap();
        let port = hostile_server(&identity, behaviour).await;
        let options =
            fetch_options(&scratch, vec![at(port, Credential::Pinned(identity.fingerprint()))]);
        let (got, _) = fetch(options).await;
        let error = got.expect_err(name);
        assert!(codes.contains(&error.exit_code()), "{name}: {} {error}", error.exit_code());
        let left: Vec<_> = fs::read_dir(scratch.0.join("in"))
            .unwrap()
            .map(|found| found.unwrap().file_name())
            .collect();
        assert!(left.is_empty() || left == [".anabranch-partial"], "{name}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_hashes_that_lies_is_of_no_use() {
    let bytes = content(1_000_000);
    let right = hashes(&bytes);
    let listed = |first, hashes: &[[u8; 32]]| {
        let part = FileFrame::Hashes(Hashes { first, hashes: hashes.to_vec() });
        [answer(&bytes, false), vec![part, FileFrame::Ready]].concat()
    };
    let mut swapped = right.clone();
    swapped.swap(0, 1);
    let more = [&right[..], &right[..1]].concat();
    for (name, frames) in [
        ("few", listed(0, &right[..3])),
        ("later", listed(1, &right[1..])),
        ("more", listed(0, &more)),
        ("swapped", listed(0, &swapped)),
    ] {
        let scratch = Scratch::new(&format!("hashes-{name}"));
        let identity = Identity::generate().unwrap();
        let port = hostile_server(
            &identity,
            Misbehaviour { answer: frames, bytes: bytes.clone(), wrong: 0..0, shift: Some(0) },
        )
        .await;
        let mut options =
            fetch_options(&scratch, vec![at(port, Credential::Pinned(identity.fingerprint()))]);
        options.blake3 = Some(*blake3::hash(&bytes).as_bytes());
        let error = fetch(options).await.0.expect_err(name);
        assert!([7, 9].contains(&error.exit_code()), "{name}: {error}");
        assert_eq!(fs::read_dir(scratch.0.join("in")).unwrap().count(), 0, "{name}");
    }
}

/// A server that claims the right hashes and sends other bytes, beside an honest server.
async fn beside_an_honest_one(name: &str, wrong: Span<u64>, hostile_first: bool) {
    let scratch = offered(name);
    let bytes = content(30_000_000);
    fs::write(scratch.0.join("out/data"), &bytes).unwrap();
    let (identity, lying) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let token = Token::generate(&identity).unwrap();
    let honest = at(serve(&scratch, &identity, &token).await, Credential::Token(token));
    let port = hostile_server(
        &lying,
        Misbehaviour { answer: answer(&bytes, true), bytes: bytes.clone(), wrong, shift: Some(0) },
    )
    .await;
    let dishonest = at(port, Credential::Pinned(lying.fingerprint()));
    let from = if hostile_first { vec![dishonest, honest] } else { vec![honest, dishonest] };
    let mut options = fetch_options(&scratch, from);
    options.transfer.dial.max_rate = Some(peer::Timetable::always(units::Rate::mbit(200)));
    let (got, notices) = fetch(options).await;
    got.unwrap_or_else(|error| panic!("{name}: {error}; {notices:?}"));
    assert!(fs::read(scratch.0.join("in/data")).unwrap() == bytes, "{name}");
    let named = format!("127.0.0.1:{port}");
    let said = notices.iter().any(|text| text.contains(&named) && text.contains("dropped"));
    assert!(said, "{name}: {notices:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lies_is_dropped_by_name() {
    beside_an_honest_one("lies", 0..30_000_000, false).await;
    beside_an_honest_one("lies-first", 0..30_000_000, true).await;
    // Wrong bytes after the first megabyte only: servers of other pieces of a block are not to
    // blame.
    beside_an_honest_one("lies-late", 1_000_000..30_000_000, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_agrees_and_says_nothing_is_left() {
    let bytes = content(1_000_000);
    let scratch = Scratch::new("server-silent");
    let identity = Identity::generate().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = ServerTls::new(&identity).unwrap();
    let frames = answer(&bytes, false);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut conn = Conn::new(Box::new(stream), tls.connection().unwrap());
            let frames = frames.clone();
            tokio::spawn(async move {
                conn.handshake().await?;
                while !conn
                    .receive(|frame| {
                        Ok(matches!(
                            FileFrame::try_from(frame)?,
                            FileFrame::Ask(_) | FileFrame::Session(SessionFrame::Join(_))
                        ))
                    })
                    .await?
                {}
                push_all(&mut conn, &frames);
                conn.flush().await?;
                while conn.receive(|_| Ok(())).await.is_ok() {}
                Ok::<(), ConnError>(())
            });
        }
    });
    let options =
        fetch_options(&scratch, vec![at(port, Credential::Pinned(identity.fingerprint()))]);
    let error = fetch(options).await.0.expect_err("nothing came");
    assert!([5, 6, 9].contains(&error.exit_code()), "{error}");
}
