//! Hostile peers for `bench/bars/transfer-bad-peers`, as a process of their own. Each command ends
//! by itself, and prints a line of JSON.
//!
//! ```text
//! hostile KEY ADDRESS SERVER strangers COUNT    complete TLS and send without end
//! hostile KEY ADDRESS SERVER patterns COUNT     ask 'serve' with the worst patterns, COUNT at once
//! hostile KEY ADDRESS SERVER leave COUNT FILE   ask 'serve' to hash FILE, and leave
//! hostile KEY ADDRESS SERVER paths SECONDS FILE open paths of fetches of FILE, and only ping
//! hostile KEY ADDRESS SERVER pings SECONDS      agree with 'receive' on a file, and only ping
//! ```
//!
//! KEY is a file; ADDRESS is on loopback; SERVER is the fingerprint of the other side's key.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use peer::tls::ClientTls;
use peer::{Conn, ConnError, Fingerprint, Identity};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wire::Emit;
use wire::files::FileFrame;
use wire::files::{Ask, MAX_PAYLOAD, Range, Wishes};
use wire::frame::HEADER;
use wire::manifest::{Entry, File, Kind, chunks};
use wire::session::{Hello, SessionFrame, SessionId};

/// Strangers at a time: as many as may be on their way in, so that each gets to the end of TLS.
const AT_A_TIME: usize = 60;
/// What a stranger does is over by then.
const STRANGER_TIME: Duration = Duration::from_secs(5);
/// A command takes no longer, except for the seconds that it is given.
const MOST: Duration = Duration::from_secs(180);
/// Bytes of a write.
const CHUNK: usize = 64 << 10;

/// The other side, and the key that is shown to it.
struct Target {
    address: SocketAddr,
    tls: ClientTls,
}

impl Target {
    async fn connect(&self) -> Result<Conn, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect(self.address).await?;
        let mut conn = Conn::new(Box::new(stream), self.tls.connection()?);
        conn.handshake().await?;
        Ok(conn)
    }

    /// A connection whose hello and further frames are sent.
    async fn open(&self, frames: &[FileFrame<'_>]) -> Result<Conn, Box<dyn Error + Send + Sync>> {
        let mut conn = self.connect().await?;
        conn.push(&hello());
        for frame in frames {
            conn.push(frame);
        }
        conn.flush().await?;
        Ok(conn)
    }
}

type Outcome = Result<String, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [key, address, server, command, ref rest @ ..] = words[..] else {
        return Err("hostile KEY ADDRESS SERVER COMMAND …".into());
    };
    let address: SocketAddr = address.parse()?;
    if !address.ip().is_loopback() {
        return Err("only a host on loopback".into());
    }
    let server: Fingerprint = server.parse().map_err(|_| "SERVER is no fingerprint")?;
    let identity = Identity::load_or_generate(key.as_ref())?;
    let target = Arc::new(Target { address, tls: ClientTls::new(&identity, server)? });
    let seconds = match (command, rest) {
        ("paths", [seconds, _]) | ("pings", [seconds]) => seconds.parse()?,
        _ => 0,
    };
    let work = async {
        match (command, rest) {
            ("strangers", [count]) => strangers(address, server, count.parse()?).await,
            ("patterns", [count]) => patterns(&target, count.parse()?).await,
            ("leave", [count, file]) => leave(&target, count.parse()?, file).await,
            ("paths", [_, file]) => paths(&target, seconds, file).await,
            ("pings", [_]) => pings(&target, seconds).await,
            _ => Err("no such command".into()),
        }
    };
    println!("{}", timeout(MOST + Duration::from_secs(seconds), work).await??);
    Ok(())
}

/// Each with a key of its own.
async fn strangers(address: SocketAddr, server: Fingerprint, count: u64) -> Outcome {
    let (completed, sent) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..count {
        if tasks.len() >= AT_A_TIME {
            tasks.join_next().await;
        }
        let tls = ClientTls::new(&Identity::generate()?, server)?;
        let (completed, sent) = (Arc::clone(&completed), Arc::clone(&sent));
        tasks.spawn(async move {
            let streaming = async {
                let mut conn = Target { address, tls }.connect().await?;
                completed.fetch_add(1, Relaxed);
                stream(&mut conn, number, &sent).await?;
                Ok::<_, Box<dyn Error + Send + Sync>>(())
            };
            // The other side closes the connection.
            let _ = timeout(STRANGER_TIME, streaming).await;
        });
    }
    tasks.join_all().await;
    Ok(format!(
        r#"{{"completed": {}, "sent": {}, "seconds": {:.1}}}"#,
        completed.load(Relaxed),
        sent.load(Relaxed),
        began.elapsed().as_secs_f64()
    ))
}

/// Sends until the connection breaks.
async fn stream(conn: &mut Conn, number: u64, sent: &AtomicU64) -> Result<(), ConnError> {
    let mut ping = Vec::new();
    SessionFrame::Ping(7).emit(&mut ping);
    let pings = ping.repeat(CHUNK / ping.len());
    let chunk = match number % 4 {
        0 => vec![0xff; CHUNK],
        1 => {
            let mut block = Vec::new();
            SessionFrame::Probe(&vec![0; MAX_PAYLOAD]).emit(&mut block);
            conn.push_parts(&block[..HEADER], &[]);
            vec![0; CHUNK]
        }
        2 => pings,
        _ => {
            conn.push(&hello());
            pings
        }
    };
    loop {
        conn.push_parts(&chunk, &[]);
        conn.flush().await?;
        sent.fetch_add(CHUNK as u64, Relaxed);
    }
}

/// Patterns that almost match every name of letters a and b.
async fn patterns(target: &Arc<Target>, count: usize) -> Outcome {
    let patterns: Vec<String> =
        (0..256).map(|number| format!("*a{}.txt", "?".repeat(20 + number % 16))).collect();
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let (target, patterns) = (Arc::clone(target), patterns.clone());
        tasks.spawn(async move {
            let mut frames = vec![FileFrame::Name(b"")];
            frames.extend(patterns.iter().map(|pattern| FileFrame::Filter(false, pattern)));
            frames.push(FileFrame::Ask(Ask::default()));
            let mut conn = target.open(&frames).await?;
            Ok::<_, Box<dyn Error + Send + Sync>>(listed(&mut conn).await?)
        });
    }
    let (mut answered, mut refused) = (0, 0);
    for outcome in tasks.join_all().await {
        if outcome? { answered += 1 } else { refused += 1 }
    }
    Ok(format!(r#"{{"answered": {answered}, "refused": {refused}}}"#))
}

/// Whether a list comes, and not a refusal.
async fn listed(conn: &mut Conn) -> Result<bool, ConnError> {
    loop {
        let told = conn.receive(|frame| {
            Ok(match FileFrame::try_from(frame)? {
                FileFrame::ManifestEnd(_) => Some(true),
                FileFrame::Session(SessionFrame::Abort(..)) => Some(false),
                _ => None,
            })
        });
        if let Some(is_listed) = told.await? {
            return Ok(is_listed);
        }
    }
}

async fn leave(target: &Target, count: usize, file: &str) -> Outcome {
    let mut asked = Vec::new();
    for _ in 0..count {
        let ask = FileFrame::Ask(Ask { checksum: true, ..Ask::default() });
        asked.push(target.open(&[FileFrame::Name(file.as_bytes()), ask]).await?);
    }
    sleep(Duration::from_secs(2)).await;
    Ok(format!(r#"{{"asked": {}}}"#, asked.len()))
}

/// Fetch after fetch, and path after path of each, until the server takes no more.
async fn paths(target: &Target, seconds: u64, file: &str) -> Outcome {
    let mut open = Vec::new();
    'fetches: for _ in 0..16 {
        let mut conn = target
            .open(&[
                FileFrame::Name(file.as_bytes()),
                FileFrame::Ask(Ask::default()),
                FileFrame::Want(vec![Range { start: 0, len: 1 }]),
                FileFrame::Ready,
                SessionFrame::Ping(0).into(),
            ])
            .await?;
        let Ok(Some(session)) = ponged(&mut conn).await else { break };
        open.push(conn);
        for _ in 0..100 {
            let mut conn = target.connect().await?;
            conn.push(&SessionFrame::Join(session));
            conn.push(&SessionFrame::Ping(0));
            conn.flush().await?;
            if ponged(&mut conn).await.is_err() {
                break 'fetches;
            }
            open.push(conn);
        }
    }
    println!(r#"{{"event": "open", "paths": {}}}"#, open.len());
    let lost = ping_all(&mut open, seconds).await;
    Ok(format!(r#"{{"paths": {}, "lost": {lost}}}"#, open.len()))
}

/// The session that a Welcome named, once a ping is answered.
async fn ponged(conn: &mut Conn) -> Result<Option<SessionId>, ConnError> {
    let mut session = None;
    loop {
        let told = conn.receive(|frame| match FileFrame::try_from(frame)? {
            FileFrame::Session(SessionFrame::Welcome(welcome)) => {
                session = Some(welcome.session);
                Ok(false)
            }
            FileFrame::Session(SessionFrame::Abort(_, text)) => Err(ConnError::Refused(text)),
            other => Ok(matches!(other, FileFrame::Session(SessionFrame::Pong(_)))),
        });
        if told.await? {
            return Ok(session);
        }
    }
}

async fn pings(target: &Target, seconds: u64) -> Outcome {
    let file = File { size: 1 << 20, mtime: 0, mode: 0o644, hash: None, data: None };
    let entry = Entry { path: b"never".to_vec(), kind: Kind::File(file) };
    let manifest = chunks(std::slice::from_ref(&entry)).next().ok_or("an entry is a chunk")?;
    let mut conn = target
        .open(&[
            FileFrame::Entries(&manifest),
            FileFrame::ManifestEnd(1),
            SessionFrame::Ping(0).into(),
        ])
        .await?;
    ponged(&mut conn).await?;
    println!(r#"{{"event": "open", "paths": 1}}"#);
    let lost = ping_all(&mut [conn], seconds).await;
    Ok(format!(r#"{{"lost": {lost}}}"#))
}

/// Pings twice a second. Returns the number of connections that ended.
async fn ping_all(conns: &mut [Conn], seconds: u64) -> usize {
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut lost = vec![false; conns.len()];
    while Instant::now() < until {
        for (conn, lost) in conns.iter_mut().zip(&mut lost) {
            conn.push(&SessionFrame::Ping(0));
            *lost |= conn.try_flush().is_err() || conn.try_fill(CHUNK).is_err() || conn.is_closed();
            while let Ok(Some(_)) = conn.next_frame() {}
        }
        sleep(Duration::from_millis(500)).await;
    }
    lost.iter().filter(|lost| **lost).count()
}

fn hello() -> FileFrame<'static> {
    let hello = Hello::new(wire::files::RECEIVE, None, [0; 16]).asking(Wishes::default().emit());
    SessionFrame::Hello(hello).into()
}
