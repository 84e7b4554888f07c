//! Hostile peers: they get a clear error, and cause no write outside the folder, no panic and no
//! unbounded use of memory.
//!
//! Senders, receivers, servers and clients, crowds of strangers, and another process that changes
//! the receiving folder.

mod archive;
mod asks;
mod crowd;
mod deletion;
mod depth;
mod fetch;
mod folders;
mod local;
mod names;
mod receiver;
mod sender;
mod stream;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::Emit;
use wire::files::FileFrame;
use wire::files::Wishes;
use wire::manifest::{Entry, File, Kind, chunks};
use wire::session::{AbortCode, Hello, SessionFrame, SessionId};

use crate::listen::{Stalls, receive_unless_stalled};
use crate::{Overwrite, ReceiveOptions, Selection, SendOptions, TransferOptions};
use events::{Event, Events};
use peer::Conn;
use peer::tls::ClientTls;
use peer::{AuthorizedPeers, Credential, Identity, ListenOptions, Peer, Remote, Token};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir()
            .join(format!("anabranch-adversarial-{name}-{}", std::process::id()));
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

/// A receiver of this crate on loopback.
struct Host {
    address: SocketAddr,
    identity: Identity,
    token: Token,
    /// The key of the sender that the token is for.
    sender: Identity,
}

impl Host {
    async fn start(scratch: &Scratch) -> Host {
        Host::start_knowing(scratch, Vec::new()).await
    }

    /// A receiver with authorized senders, which need no token.
    async fn start_knowing(scratch: &Scratch, authorized: Vec<Peer>) -> Host {
        Host::start_unless_stalled(scratch, authorized, Stalls::DEFAULT).await
    }

    /// As [`Host::start_knowing`], with other bounds of the time without data.
    async fn start_unless_stalled(
        scratch: &Scratch,
        authorized: Vec<Peer>,
        stalls: Stalls,
    ) -> Host {
        let identity = Identity::generate().unwrap();
        let token = Token::generate(&identity).unwrap();
        let options = ReceiveOptions {
            directory: scratch.0.join("in"),
            output: None,
            listen: ListenOptions {
                authorized: AuthorizedPeers::new(authorized),
                ..on_loopback(&identity, &token)
            },
            keep: true,
            parallel: 1,
            timeout: None,
            overwrite: Overwrite::OnRequest,
            allow_delete: true,
            archive: true,
            meetings: None,
        };
        let (events, mut heard) = Events::observed();
        tokio::spawn(receive_unless_stalled(options, events, stalls));
        let Some(Event::Listening { addresses }) = heard.recv().await else {
            panic!("it does not listen")
        };
        // The receiver stops when its events are no longer received.
        tokio::spawn(async move { while heard.recv().await.is_some() {} });
        Host { address: addresses[0], identity, token, sender: Identity::generate().unwrap() }
    }

    /// A connection of the holder of `me` after the handshake.
    async fn connect(&self, me: &Identity) -> Conn {
        let tls = ClientTls::new(me, self.identity.fingerprint()).unwrap();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut conn = Conn::new(Box::new(stream), tls.connection().unwrap());
        conn.handshake().await.unwrap();
        conn
    }

    /// A connection of the holder of `me` after the hello.
    async fn hello(&self, me: &Identity) -> Conn {
        let mut conn = self.connect(me).await;
        conn.push(&greeting(*self.token.secret()));
        conn
    }

    /// A connection of the sender after the agreement on this tree, and the session's id.
    async fn agree(&self, entries: &[Entry]) -> (Conn, SessionId) {
        let mut conn = self.hello(&self.sender).await;
        for chunk in chunks(entries) {
            conn.push(&FileFrame::Entries(&chunk));
        }
        conn.push(&FileFrame::ManifestEnd(u32::try_from(entries.len()).unwrap()));
        conn.flush().await.unwrap();
        let mut session = None;
        let ready = timeout(PATIENCE, async {
            while !conn
                .receive(|frame| {
                    let frame = FileFrame::try_from(frame)?;
                    if let FileFrame::Session(SessionFrame::Welcome(welcome)) = &frame {
                        session = Some(welcome.session);
                    }
                    assert!(
                        !matches!(frame, FileFrame::Session(SessionFrame::Abort(..))),
                        "{frame:?}"
                    );
                    Ok(matches!(frame, FileFrame::Ready))
                })
                .await
                .unwrap()
            {}
        });
        ready.await.expect("it answers in time");
        (conn, session.expect("it was welcome"))
    }

    /// The options of an honest sender of these files.
    fn honest_options(&self, sources: Vec<PathBuf>) -> SendOptions {
        let mut options = send_options(sources, self.address.port(), &self.token);
        options.transfer.dial.identity = self.sender.clone();
        options
    }

    /// Checks that an honest sender can send a file. Returns the time that it took.
    async fn accepts_honest_sender(&self, scratch: &Scratch, name: &str) -> Duration {
        let source = scratch.0.join(name);
        fs::write(&source, vec![7; 100_000]).unwrap();
        let events = Events::new();
        let began = std::time::Instant::now();
        let sent =
            timeout(PATIENCE, crate::send(self.honest_options(vec![source.clone()]), events)).await;
        sent.expect("it ends").expect("an honest sender gets in");
        assert_eq!(fs::read(scratch.0.join("in").join(name)).unwrap(), fs::read(source).unwrap());
        began.elapsed()
    }
}

/// A step that takes this long will not end; a busy machine takes less.
const NEVER: Duration = Duration::from_secs(180);
/// Time limit of each step.
const PATIENCE: Duration = Duration::from_secs(30);

fn greeting(secret: [u8; 16]) -> FileFrame<'static> {
    let hello = Hello::new(wire::files::RECEIVE, Some(secret), [0; 16]);
    SessionFrame::Hello(hello.asking(Wishes::default().emit())).into()
}

fn send_options(sources: Vec<PathBuf>, port: u16, token: &Token) -> SendOptions {
    SendOptions {
        sources,
        stream: None,
        spool: None,
        rename: None,
        selection: Selection::default(),
        to: Remote { host: "127.0.0.1".into(), zone: None, port },
        credential: Credential::Token(token.clone()),
        transfer: short_of_patience(),
    }
}

/// The options of every dialing peer, hostile or not.
fn short_of_patience() -> TransferOptions {
    let mut options = TransferOptions::new(Identity::generate().unwrap());
    options.dial.patience = units::Span::from_secs(2);
    options
}

/// Listens on loopback, for the holder of a token.
fn on_loopback(identity: &Identity, token: &Token) -> ListenOptions {
    ListenOptions {
        addresses: vec!["127.0.0.1:0".parse().unwrap()],
        port: 0,
        token: Some(token.clone()),
        ..ListenOptions::new(identity.clone())
    }
}

/// Several connections of one sender to a receiver of this crate, each after the hello.
async fn hellos(scratch: &Scratch, count: usize) -> Vec<Conn> {
    let host = Host::start(scratch).await;
    let mut conns = Vec::new();
    for _ in 0..count {
        conns.push(host.hello(&host.sender).await);
    }
    conns
}

/// A connection to a receiver of this crate, after the hello.
async fn hello(scratch: &Scratch) -> Conn {
    hellos(scratch, 1).await.pop().unwrap()
}

/// The next frame that is no acknowledgement, ping or list, with code and text of an Abort; `None`
/// if the connection ends.
async fn answer(conn: &mut Conn) -> Option<(String, Option<(AbortCode, String)>)> {
    let waiting = async {
        // Data sent after the receiver has closed are not read.
        let _ = conn.flush().await;
        loop {
            let told = conn.receive(|frame| match FileFrame::try_from(frame)? {
                FileFrame::Session(
                    SessionFrame::Welcome(_) | SessionFrame::Ping(_) | SessionFrame::Pong(0),
                )
                | FileFrame::Want(_)
                | FileFrame::Have(_)
                | FileFrame::Ack(_)
                | FileFrame::Refused(_) => Ok(None),
                FileFrame::Session(SessionFrame::Abort(code, text)) => {
                    Ok(Some(("Abort".to_string(), Some((code, text)))))
                }
                other => Ok(Some((other.name().to_string(), None))),
            });
            match told.await {
                Ok(None) => {}
                Ok(told) => return told,
                Err(_) => return None,
            }
        }
    };
    timeout(NEVER, waiting).await.expect("it answers")
}
