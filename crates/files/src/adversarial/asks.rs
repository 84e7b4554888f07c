//! An authorized peer that asks for much work, and leaves.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use peer::tls::ClientTls;
use peer::{AuthorizedPeers, Conn, Fingerprint, Identity, ListenOptions, May, Peer};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use wire::files::FileFrame;
use wire::files::{Ask, Range, Wishes};
use wire::manifest::{self, Kind};
use wire::session::{AbortCode, Hello, SessionFrame, SessionId};

use super::crowd::{is_alone, memory};
use super::{Host, NEVER, PATIENCE, Scratch, chunk};
use crate::ServeOptions;
use events::{Event, Events};

/// A server that knows some clients.
struct Offer {
    scratch: Scratch,
    address: SocketAddr,
    key: Fingerprint,
}

impl Offer {
    async fn start(name: &str, clients: &[&Identity]) -> Offer {
        let scratch = Scratch::new(name);
        let directory = scratch.0.join("out");
        fs::create_dir_all(&directory).unwrap();
        let identity = Identity::generate().unwrap();
        let known = clients
            .iter()
            .map(|client| Peer { rights: May::Both.into(), ..Peer::from(client.fingerprint()) });
        let listen = ListenOptions {
            addresses: vec!["127.0.0.1:0".parse().unwrap()],
            authorized: AuthorizedPeers::new(known.collect()),
            ..ListenOptions::new(identity.clone())
        };
        let (events, mut heard) = Events::observed();
        tokio::spawn(crate::serve(
            ServeOptions { directory, listen, once: false, meetings: None },
            events,
        ));
        let Some(Event::Listening { addresses }) = heard.recv().await else {
            panic!("it does not listen")
        };
        tokio::spawn(async move { while heard.recv().await.is_some() {} });
        Offer { scratch, address: addresses[0], key: identity.fingerprint() }
    }

    /// A connection of a client after the handshake.
    async fn connect(&self, client: &Identity) -> Conn {
        let tls = ClientTls::new(client, self.key).unwrap();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut conn = Conn::new(Box::new(stream), tls.connection().unwrap());
        conn.handshake().await.unwrap();
        conn
    }

    /// A connection of a client that has asked.
    async fn ask(&self, client: &Identity, request: &[FileFrame<'_>], checksum: bool) -> Conn {
        let mut conn = self.connect(client).await;
        conn.push(&SessionFrame::Hello(Hello::new(wire::files::SERVE, None, [0; 16])));
        for frame in request {
            conn.push(frame);
        }
        conn.push(&FileFrame::Ask(Ask { checksum, ..Ask::default() }));
        conn.flush().await.unwrap();
        conn
    }

    /// A connection of a client that has agreed to get a file, and the session's id.
    async fn agree(&self, client: &Identity) -> (Conn, SessionId) {
        let mut conn = self.ask(client, &[FileFrame::Name(b"small")], false).await;
        conn.push(&FileFrame::Want(vec![Range { start: 0, len: 1 }]));
        conn.push(&FileFrame::Ready);
        conn.push(&SessionFrame::Ping(0));
        conn.flush().await.unwrap();
        let mut session = None;
        let agreeing = async {
            while !conn
                .receive(|frame| {
                    let frame = FileFrame::try_from(frame)?;
                    if let FileFrame::Session(SessionFrame::Welcome(welcome)) = &frame {
                        session = Some(welcome.session);
                    }
                    Ok(matches!(frame, FileFrame::Session(SessionFrame::Pong(_))))
                })
                .await
                .expect("it agrees")
            {}
        };
        timeout(NEVER, agreeing).await.expect("it agrees in time");
        (conn, session.expect("it was welcome"))
    }
}

/// A client knows that its session is open before the server does: it says so itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_may_join_before_the_server_knows_of_the_session() {
    let client = Identity::generate().unwrap();
    let offer = Offer::start("early", &[&client]).await;
    fs::write(offer.scratch.0.join("out/small"), "small").unwrap();
    let mut conn = offer.ask(&client, &[FileFrame::Name(b"small")], false).await;
    let welcome = conn.receive(|frame| match FileFrame::try_from(frame)? {
        FileFrame::Session(SessionFrame::Welcome(welcome)) => Ok(welcome.session),
        other => panic!("{other:?}"),
    });
    let id = timeout(NEVER, welcome).await.expect("it answers").unwrap();
    let mut early = offer.connect(&client).await;
    early.push(&SessionFrame::Join(id));
    early.push(&SessionFrame::Ping(0));
    early.flush().await.unwrap();
    // The one overtakes the other.
    sleep(Duration::from_millis(300)).await;
    conn.push(&FileFrame::Want(vec![Range { start: 0, len: 1 }]));
    conn.push(&FileFrame::Ready);
    conn.flush().await.unwrap();
    assert_eq!(ponged(&mut early).await, Ok(()));
}

/// A file of holes, which takes an hour to hash.
struct Endless(PathBuf);

/// Its size.
const ENDLESS: u64 = 8 << 40;

impl Endless {
    fn new(path: PathBuf) -> Endless {
        File::create(&path).unwrap().set_len(ENDLESS).unwrap();
        Endless(path)
    }

    /// Waits until somebody reads it.
    async fn is_read(&self) {
        let began = Instant::now();
        while self.times_open() == 0 {
            assert!(began.elapsed() < PATIENCE, "the file is hashed");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until nobody reads it.
    async fn is_left(&self) {
        let began = Instant::now();
        while self.times_open() > 0 {
            assert!(began.elapsed() < PATIENCE, "{} still read the file", self.times_open());
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The number of times that this process has it open.
    fn times_open(&self) -> usize {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter(|entry| {
            let to = fs::read_link(entry.path()).unwrap_or_default();
            to.to_string_lossy().trim_end_matches(" (deleted)") == self.0.to_string_lossy()
        })
        .count()
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        // Whoever still hashes it, where a test fails, comes to its end.
        let _ = File::options().write(true).open(&self.0).and_then(|file| file.set_len(0));
    }
}

/// The number of paths in a server's answer, or its refusal.
async fn answer(conn: &mut Conn) -> Result<u32, (AbortCode, String)> {
    let hearing = async {
        loop {
            let told = conn.receive(|frame| match FileFrame::try_from(frame)? {
                FileFrame::Session(SessionFrame::Abort(code, text)) => Ok(Some(Err((code, text)))),
                FileFrame::ManifestEnd(count) => Ok(Some(Ok(count))),
                _ => Ok(None),
            });
            if let Some(answer) = told.await.expect("it answers") {
                return answer;
            }
        }
    };
    timeout(NEVER, hearing).await.expect("it answers in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_left_is_not_worked_for() {
    let [hostile, honest] = [(); 2].map(|()| Identity::generate().unwrap());
    let offer = Offer::start("leaves", &[&hostile, &honest]).await;
    let endless = Endless::new(offer.scratch.0.join("out/endless"));
    fs::write(offer.scratch.0.join("out/small"), "small").unwrap();
    let mut asked = Vec::new();
    for _ in 0..50 {
        asked.push(offer.ask(&hostile, &[FileFrame::Name(b"endless")], true).await);
    }
    endless.is_read().await;
    // Its further requests wait, and the other client's does not.
    let mut other = offer.ask(&honest, &[FileFrame::Name(b"small")], true).await;
    assert_eq!(answer(&mut other).await, Ok(1));
    assert!(endless.times_open() <= 4, "{} threads hash", endless.times_open());
    drop(asked);
    endless.is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_loses_its_name_or_its_end_is_not_hashed_on() {
    let client = Identity::generate().unwrap();
    let offer = Offer::start("loses", &[&client]).await;
    for is_removed in [true, false] {
        let endless = Endless::new(offer.scratch.0.join("out/endless"));
        let mut conn = offer.ask(&client, &[FileFrame::Name(b"endless")], true).await;
        endless.is_read().await;
        if is_removed {
            fs::remove_file(&endless.0).unwrap();
        } else {
            File::options().write(true).open(&endless.0).unwrap().set_len(7 << 40).unwrap();
        }
        let (code, text) = answer(&mut conn).await.expect_err("it has changed");
        assert!(code == AbortCode::Changed && text.contains("endless"), "{code:?}: {text}");
        endless.is_left().await;
    }
}

/// A sender whose dry runs compare a large file.
#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_left_is_not_worked_for() {
    let scratch = Scratch::new("dry-runs");
    let endless = Endless::new(scratch.0.join("in/endless"));
    let host = Host::start(&scratch).await;
    let hash = Some([7; 32]);
    let kind =
        Kind::File(manifest::File { size: ENDLESS, mtime: 0, mode: 0o644, hash, data: None });
    let entry = manifest::Entry { path: b"endless".to_vec(), kind };
    let mut asked = Vec::new();
    for _ in 0..20 {
        let mut conn = host.connect(&host.sender).await;
        let wishes = Wishes { dry_run: true, ..Wishes::default() };
        let secret = Some(*host.token.secret());
        conn.push(&SessionFrame::Hello(
            Hello::new(wire::files::RECEIVE, secret, [0; 16]).asking(wishes.emit()),
        ));
        conn.push(&FileFrame::Entries(&chunk(std::slice::from_ref(&entry))));
        conn.push(&FileFrame::ManifestEnd(1));
        conn.flush().await.unwrap();
        asked.push(conn);
    }
    endless.is_read().await;
    host.accepts_honest_sender(&scratch, "honest").await;
    assert!(endless.times_open() <= 4, "{} threads hash", endless.times_open());
    drop(asked);
    endless.is_left().await;
}

/// The worst that was found: patterns of one extension were an automaton each, and each kept up to
/// 14 MiB of states for names that almost match.
#[tokio::test(flavor = "multi_thread")]
async fn patterns_that_almost_match_everything_take_little_memory() {
    if !is_alone("adversarial::asks::patterns_that_almost_match_everything_take_little_memory") {
        return;
    }
    let client = Identity::generate().unwrap();
    let offer = Offer::start("patterns", &[&client]).await;
    let mut draw = 1_u64;
    for _ in 0..40 {
        let letter = |_| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if draw >> 63 == 0 { 'a' } else { 'b' }
        };
        let name: String = (0..240).map(letter).collect();
        fs::write(offer.scratch.0.join("out").join(name + ".txt"), "").unwrap();
    }
    let patterns: Vec<String> =
        (0..256).map(|number| format!("*a{}.txt", "?".repeat(20 + number % 16))).collect();
    let mut request: Vec<_> =
        patterns.iter().map(|pattern| FileFrame::Filter(false, pattern)).collect();
    request.insert(0, FileFrame::Name(b""));
    let before = memory();
    let mut conn = offer.ask(&client, &request, false).await;
    let _ = answer(&mut conn).await;
    let grown = memory().saturating_sub(before) / 1_024;
    // The documented budget; without a bound it was more than 1,000.
    assert!(grown < 128, "{grown} MiB more");
    // Longer ones are refused before they are compiled.
    let long = "?*".repeat(400);
    let request: Vec<_> = [FileFrame::Name(b"")]
        .into_iter()
        .chain((0..64).map(|_| FileFrame::Filter(true, &long)))
        .collect();
    let mut conn = offer.ask(&client, &request, false).await;
    let (code, text) = answer(&mut conn).await.expect_err("it is too much");
    assert!(code == AbortCode::Refused && text.contains("16 KiB"), "{code:?}: {text}");
}

/// A client that agrees, and opens path after path that only pings.
#[tokio::test(flavor = "multi_thread")]
async fn paths_that_only_ping_leave_others_theirs() {
    let [hostile, honest] = [(); 2].map(|()| Identity::generate().unwrap());
    let offer = Offer::start("pings", &[&hostile, &honest]).await;
    fs::write(offer.scratch.0.join("out/small"), "small").unwrap();
    let (mut pinging, mut why) = (Vec::new(), None);
    'sessions: for _ in 0..4 {
        let (mut conn, id) = offer.agree(&hostile).await;
        conn.flush().await.unwrap();
        pinging.push(tokio::spawn(ping(conn)));
        for _ in 1..100 {
            let mut conn = offer.connect(&hostile).await;
            conn.push(&SessionFrame::Join(id));
            conn.push(&SessionFrame::Ping(0));
            conn.flush().await.unwrap();
            match ponged(&mut conn).await {
                Ok(()) => pinging.push(tokio::spawn(ping(conn))),
                Err(refusal) => {
                    why = Some(refusal);
                    break 'sessions;
                }
            }
        }
    }
    let (code, text) = why.expect("a host has so many connections and no more");
    assert!(code == AbortCode::Crowded && text.contains("256 of a host"), "{code:?}: {text}");
    assert_eq!(pinging.len(), 256);
    let mut other = offer.ask(&honest, &[FileFrame::Name(b"small")], false).await;
    assert_eq!(answer(&mut other).await, Ok(1));
    pinging.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Pings until the connection ends.
async fn ping(mut conn: Conn) {
    loop {
        sleep(Duration::from_secs(5)).await;
        conn.push(&SessionFrame::Ping(0));
        if conn.flush().await.is_err() {
            return;
        }
    }
}

/// Waits for the answer to a ping, or a refusal.
async fn ponged(conn: &mut Conn) -> Result<(), (AbortCode, String)> {
    let hearing = async {
        loop {
            let told = conn.receive(|frame| match FileFrame::try_from(frame)? {
                FileFrame::Session(SessionFrame::Abort(code, text)) => Ok(Some(Err((code, text)))),
                FileFrame::Session(SessionFrame::Pong(_)) => Ok(Some(Ok(()))),
                _ => Ok(None),
            });
            if let Some(answer) = told.await.expect("it answers") {
                return answer;
            }
        }
    };
    timeout(NEVER, hearing).await.expect("it answers in time")
}
