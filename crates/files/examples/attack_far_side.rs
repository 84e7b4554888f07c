//! A hostile far side of `cp` and of `get`, for `bench/bars/attacks`. It offers what nobody asked
//! for, with valid data, and ends by itself.
//!
//! ```text
//! attack_far_side far OFFER      in the place of 'anabranch far': speaks to 'cp' on its pipes
//! attack_far_side serve OFFER    in the place of 'anabranch serve': prints a line of JSON first
//! ```
//!
//! It listens on loopback only.

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Duration;

use peer::tls::ServerTls;
use peer::{Conn, ConnError, Identity, Token};
use tokio::net::TcpListener;
use tokio::time::timeout;
use transfer::digest::block_cv;
use transfer::{BLOCK, Packing, Tree};
use wire::Emit;
use wire::files::FileFrame;
use wire::files::{Data, Hashes, Range};
use wire::manifest::{Entry, File, Kind, chunks};
use wire::session::{SessionFrame, VERSION, Welcome};

/// It takes no longer, whatever the other side does.
const MOST: Duration = Duration::from_secs(60);
/// What every file of an offer is made of.
const BYTE: u8 = b'x';
/// The bytes of a file.
const SIZE: u64 = 64;

type Failure = Box<dyn Error + Send + Sync>;

/// What it answers.
#[derive(Clone)]
struct Offer {
    names: Vec<&'static str>,
    rename: Option<&'static str>,
    entries: Vec<Entry>,
    /// Whether the letters "aa" in paths become "..", which no writer of manifests permits.
    leads_up: bool,
}

impl Offer {
    fn find(name: &str) -> Option<Offer> {
        let of = |names: &[&'static str], rename, entries: Vec<Entry>| {
            Some(Offer { names: names.to_vec(), rename, entries, leads_up: false })
        };
        match name {
            "honest" => of(&["file"], None, vec![file("file")]),
            "two-renamed" => of(
                &[".bash_profile", ".ssh"],
                Some("file"),
                vec![file(".bash_profile"), file(".ssh/authorized_keys")],
            ),
            "renamed" => of(&["file"], Some(".bashrc"), vec![file("file")]),
            "other" => of(&[".bashrc"], None, vec![file(".bashrc")]),
            "beside" => of(&["file"], None, vec![file("file"), file(".bashrc")]),
            "contents" => of(&["file/"], None, vec![file(".bashrc")]),
            "link" => of(&["file"], None, vec![link("file", "../outside/planted")]),
            "through" => {
                of(&["file"], None, vec![link("file", "../outside"), file("file/planted")])
            }
            "up" => {
                let offer = of(&["file"], None, vec![file("aa/outside/planted")]);
                offer.map(|offer| Offer { leads_up: true, ..offer })
            }
            _ => None,
        }
    }

    /// The chunk of its manifest.
    fn chunk(&self) -> Vec<u8> {
        let mut chunk = chunks(&self.entries).next().expect("there are entries");
        if self.leads_up {
            let place = chunk.windows(2).position(|part| part == b"aa").expect("it is there");
            chunk[place..place + 2].copy_from_slice(b"..");
        }
        chunk
    }
}

fn file(path: &str) -> Entry {
    let file = File { size: SIZE, mtime: 0, mode: 0o644, hash: None, data: None };
    Entry { path: path.into(), kind: Kind::File(file) }
}

fn link(path: &str, target: &str) -> Entry {
    Entry { path: path.into(), kind: Kind::Symlink { mtime: 0, target: target.into() } }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [command, offer] = &words[..] else {
        return Err("attack_far_side far|serve OFFER".into());
    };
    let offer = Offer::find(offer).ok_or("no such offer")?;
    let identity = Identity::generate()?;
    let token = Token::generate(&identity)?.reveal();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    match command.as_str() {
        "far" => {
            say(&format!(r#"{{"anabranch":"{}","speaks":1}}"#, env!("CARGO_PKG_VERSION")))?;
            std::io::stdin().lock().read_line(&mut String::new())?;
            let names: Vec<String> = offer.names.iter().map(|name| os_string(name)).collect();
            let rename = offer.rename.map_or("null".into(), os_string);
            let ready =
                format!(r#""token":"{token}","addresses":["{address}"],"reached":"127.0.0.1","#);
            let served = format!(r#""rename":{rename},"names":[{}]"#, names.join(","));
            say(&format!(r#"{{"anabranch":{{"ready":{{{ready}{served}}}}}}}"#))?;
        }
        "serve" => say(&format!(r#"{{"address": "{address}", "token": "{token}"}}"#))?,
        _ => return Err("far or serve".into()),
    }
    let tls = ServerTls::new(&identity)?;
    let serving = async {
        while let Ok((stream, _)) = listener.accept().await {
            let (offer, connection) = (offer.clone(), tls.connection()?);
            tokio::spawn(async move {
                let _ = answer(Conn::new(Box::new(stream), connection), &offer).await;
            });
        }
        Ok::<_, Failure>(())
    };
    let _ = timeout(MOST, serving).await;
    Ok(())
}

/// A name of bytes, as it stands in a message of `cp`.
fn os_string(name: &str) -> String {
    format!(r#"{{"Unix":{:?}}}"#, name.as_bytes())
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Gives a client all that it wants of an offer.
async fn answer(mut conn: Conn, offer: &Offer) -> Result<(), ConnError> {
    conn.handshake().await?;
    let mut wanted: Vec<Range> = Vec::new();
    loop {
        let mut out = Vec::new();
        conn.receive(|frame| {
            match FileFrame::try_from(frame)? {
                FileFrame::Session(SessionFrame::Hello(_)) => {
                    let (version, session) = (VERSION, [1; 16]);
                    SessionFrame::Welcome(Welcome { version, session, addresses: vec![] })
                        .emit(&mut out);
                }
                FileFrame::Ask(ask) => {
                    FileFrame::Entries(&offer.chunk()).emit(&mut out);
                    let count = u32::try_from(offer.entries.len()).expect("few");
                    FileFrame::ManifestEnd(count).emit(&mut out);
                    if ask.hashes {
                        let hashes = vec![block(SIZE).1];
                        FileFrame::Hashes(Hashes { first: 0, hashes }).emit(&mut out);
                        FileFrame::Ready.emit(&mut out);
                    }
                }
                FileFrame::Want(ranges) => wanted.extend(ranges),
                FileFrame::Request(range) => {
                    if let Some((payload, hash)) = data(offer, &wanted, range) {
                        let block_hash = range.start.is_multiple_of(BLOCK).then_some(hash);
                        let position = range.start;
                        FileFrame::Data(Data { position, block_hash, payload: &payload })
                            .emit(&mut out);
                    }
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

/// The only block of an object of this size, and its hash.
fn block(size: u64) -> (Vec<u8>, [u8; 32]) {
    let payload = vec![BYTE; usize::try_from(size).expect("small")];
    let hash = block_cv(size, 0, &payload).0;
    (payload, hash)
}

/// The bytes of a range of what is wanted, and the hash of their block.
fn data(offer: &Offer, wanted: &[Range], range: Range) -> Option<(Vec<u8>, [u8; 32])> {
    let tree = Tree::new(offer.entries.clone()).ok()?;
    let is_wanted = |index: usize| {
        let index = index as u64;
        wanted.iter().any(|range| (range.start..range.start + range.len).contains(&index))
    };
    let packing = Packing::new(&tree, is_wanted).ok()?;
    let extent = packing.layout().block_extent(range.start / BLOCK)?;
    let (_, hash) = block(extent.len);
    Some((vec![BYTE; usize::try_from(range.len).ok()?], hash))
}
