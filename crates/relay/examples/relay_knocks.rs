//! Strangers who try codes at a relay, for `bench/bars/meeting-hostile`.
//!
//! ```text
//! relay_knocks RELAY FROM COUNT PARALLEL SECONDS [FILE]
//! ```
//!
//! Attempts are made from COUNT addresses in turn, of which FROM is the first, PARALLEL at a time
//! and as fast as they end. Their nameplates are those of FILE, a number a line, which is read anew
//! for each; without it they are all numbers in turn. Whoever the relay lets through to a host
//! guesses at the words, in an exchange of which nothing but the words is wrong.
//!
//! It prints a line of JSON when it begins, and one at the end: how many attempts there were
//! (`tried`), how many failed without an answer (`failed`), when the relay let one through in
//! seconds since the begin (`admitted`), of those the ones that led to no host (`absent`), the
//! exchanges that hosts entered into for each nameplate (`guesses`, pairs), attempts that ended
//! without a word of the host (`unjudged`), and guesses that were right (`opened`).

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use peer::tls::ClientTls;
use peer::{Conn, ConnError, Identity, random};
use relay::meeting::Code;
use socket2::SockRef;
use spake2::{Ed25519Group, Password, Spake2};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wire::meet::{self, CodeFrame, Knock, NAMEPLATES};
use wire::relay::{self as control, RelayFrame, Ticket, Wish};
use wire::session::{Hello, SessionFrame};
use wire::tunnel::{Host, Target};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The time of one attempt.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause while no nameplate is known.
const PAUSE: Duration = Duration::from_millis(5);

/// What is attacked, and from where.
struct Plan {
    relay: SocketAddr,
    first: Ipv4Addr,
    count: u32,
    file: Option<PathBuf>,
    own: Identity,
    tls: ClientTls,
    began: Instant,
    told: Mutex<Told>,
}

/// What came of it so far.
#[derive(Default)]
struct Told {
    tried: u32,
    failed: u32,
    admitted: Vec<f64>,
    absent: u32,
    guesses: BTreeMap<u32, u32>,
    unjudged: u32,
    opened: u32,
}

/// What a relay says to a knock.
enum Answer {
    /// There were too many attempts.
    TooMany,
    /// It was let through, and leads to no host.
    Absent,
    /// It leads to the host.
    Ticket(Ticket),
}

impl Plan {
    fn address(&self, number: u32) -> SocketAddr {
        let own = u32::from(self.first) + number % self.count;
        SocketAddr::from((Ipv4Addr::from(own), 0))
    }

    fn nameplate(&self, number: u32) -> Outcome<Option<u32>> {
        let Some(file) = &self.file else { return Ok(Some(number % NAMEPLATES)) };
        let text = fs::read_to_string(file)?;
        let known: Vec<u32> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
        let number = usize::try_from(number)?;
        Ok(number.checked_rem(known.len()).map(|at| known[at]))
    }

    /// Attempts, until the time is over.
    async fn attack(&self, end: Instant) -> Outcome<()> {
        while Instant::now() < end {
            let number = self.tell(|told| {
                told.tried += 1;
                told.tried - 1
            });
            let Some(nameplate) = self.nameplate(number)? else {
                self.tell(|told| told.tried -= 1);
                sleep(PAUSE).await;
                continue;
            };
            match timeout(PATIENCE, self.attempt(self.address(number), nameplate)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => self.tell(|told| told.failed += 1),
            }
        }
        Ok(())
    }

    async fn attempt(&self, from: SocketAddr, nameplate: u32) -> Outcome<()> {
        let mut knocking = self.connection(self.connect(from).await?).await?;
        let answer = knock(&mut knocking, nameplate).await?;
        if let Answer::TooMany = answer {
            return Ok(());
        }
        let at = self.began.elapsed().as_secs_f64();
        self.tell(|told| told.admitted.push(at));
        let Answer::Ticket(ticket) = answer else {
            self.tell(|told| told.absent += 1);
            return Ok(());
        };
        let mut stream = self.connect(from).await?;
        stream.write_all(ticket.octets()).await?;
        let mut conn = self.connection(stream).await?;
        match self.guess(&mut conn, nameplate).await {
            Ok(false) => {}
            Ok(true) => self.tell(|told| told.opened += 1),
            Err(_) => self.tell(|told| told.unjudged += 1),
        }
        Ok(())
    }

    async fn connect(&self, from: SocketAddr) -> Outcome<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(from)?;
        let stream = socket.connect(self.relay).await?;
        // It ends without a word, and leaves no port in use.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        Ok(stream)
    }

    async fn connection(&self, stream: TcpStream) -> Outcome<Conn> {
        let mut conn = Conn::new(Box::new(stream), self.tls.connection()?);
        conn.handshake().await?;
        Ok(conn)
    }

    /// A guess at the words behind a nameplate: whether it was right.
    async fn guess(&self, conn: &mut Conn, nameplate: u32) -> Outcome<bool> {
        let host = conn.peer().ok_or(ConnError::Closed)?;
        let code = Code::generate()?.reveal();
        let (_, words) = code.split_once('-').ok_or("it has no words")?;
        let password = Password::new(format!("{nameplate:05}-{words}"));
        let [guest, host] =
            [self.own.fingerprint(), host].map(|key| spake2::Identity::new(key.as_bytes()));
        let (state, message) = Spake2::<Ed25519Group>::start_a(&password, &guest, &host);
        let message: [u8; meet::PAKE] =
            message.try_into().map_err(|_| "a message of another length")?;
        let request = nameplate.to_be_bytes().to_vec();
        let hello = Hello::new(meet::SERVICE, None, random()?).asking(request);
        conn.push(&SessionFrame::Hello(hello));
        conn.push(&CodeFrame::Pake(message));
        conn.flush().await?;
        let Some(message) = heard(conn).await? else { return Ok(false) };
        self.tell(|told| *told.guesses.entry(nameplate).or_default() += 1);
        let key = state.finish(&message).map_err(|_| "the host's message is none")?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let proof = hmac::sign(&key, b"anabranch code, guest");
        conn.push(&CodeFrame::Proof(proof.as_ref().try_into()?));
        conn.flush().await?;
        let is_right = conn.receive(|frame| match CodeFrame::try_from(frame)? {
            CodeFrame::Introduced(_) => Ok(true),
            CodeFrame::Session(SessionFrame::Abort(..)) => Ok(false),
            other => Err(ConnError::unexpected(&other)),
        });
        Ok(is_right.await?)
    }

    fn tell<T>(&self, tell: impl FnOnce(&mut Told) -> T) -> T {
        tell(&mut self.told.lock().expect("no panic while held"))
    }
}

/// Shows a nameplate to the relay.
async fn knock(conn: &mut Conn, nameplate: u32) -> Outcome<Answer> {
    let request = Knock::Nameplate(nameplate).request();
    let hello = Hello::new(control::SERVICE, None, random()?).asking(request);
    conn.push(&SessionFrame::Hello(hello));
    // A guest's ticket leads to its host, whatever the wish names.
    let target = Target { host: Host::Name("host".into()), port: 0 };
    conn.push(&RelayFrame::Wish(Wish { number: 0, count: 1, target }));
    conn.flush().await?;
    loop {
        let answer = conn.receive(|frame| match RelayFrame::try_from(frame)? {
            RelayFrame::Session(SessionFrame::Abort(_, why)) if why.starts_with("too many") => {
                Ok(Some(Answer::TooMany))
            }
            RelayFrame::Session(SessionFrame::Abort(..)) | RelayFrame::Denied(..) => {
                Ok(Some(Answer::Absent))
            }
            RelayFrame::Tickets(issued) => Ok(issued.tickets.first().copied().map(Answer::Ticket)),
            RelayFrame::Session(SessionFrame::Welcome(_)) => Ok(None),
            other => Err(ConnError::unexpected(&other)),
        });
        if let Some(answer) = answer.await? {
            return Ok(answer);
        }
    }
}

/// The host's message; `None` if it ends the exchange.
async fn heard(conn: &mut Conn) -> Outcome<Option<[u8; meet::PAKE]>> {
    loop {
        let heard = conn.receive(|frame| match CodeFrame::try_from(frame)? {
            CodeFrame::Pake(message) => Ok(Some(Some(message))),
            CodeFrame::Session(SessionFrame::Abort(..)) => Ok(Some(None)),
            CodeFrame::Session(SessionFrame::Welcome(_)) => Ok(None),
            other => Err(ConnError::unexpected(&other)),
        });
        if let Some(heard) = heard.await? {
            return Ok(heard);
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [relay, first, count, parallel, seconds, file @ ..] = &words[..] else {
        return Err("relay_knocks RELAY FROM COUNT PARALLEL SECONDS [FILE]".into());
    };
    let own = Identity::generate()?;
    let plan = Arc::new(Plan {
        relay: relay.parse()?,
        first: first.parse()?,
        count: count.parse()?,
        file: file.first().map(PathBuf::from),
        tls: ClientTls::to_any_key(&own)?,
        own,
        began: Instant::now(),
        told: Mutex::default(),
    });
    println!(r#"{{"event": "begun"}}"#);
    let end = plan.began + Duration::from_secs(seconds.parse()?);
    let mut attackers = JoinSet::new();
    for _ in 0..parallel.parse::<u32>()? {
        let plan = Arc::clone(&plan);
        attackers.spawn(async move { plan.attack(end).await });
    }
    while let Some(ended) = attackers.join_next().await {
        ended??;
    }
    let Told { tried, failed, admitted, absent, guesses, unjudged, opened } =
        plan.tell(std::mem::take);
    let guesses: Vec<[u32; 2]> = guesses.into_iter().map(|(plate, count)| [plate, count]).collect();
    let relay = format!(r#""tried": {tried}, "failed": {failed}, "admitted": {admitted:?}"#);
    let host = format!(r#""guesses": {guesses:?}, "unjudged": {unjudged}, "opened": {opened}"#);
    println!(r#"{{"event": "knocked", {relay}, "absent": {absent}, {host}}}"#);
    Ok(())
}
