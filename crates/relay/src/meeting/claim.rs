//! The side that was told a code: it gets the token of the host that waits at a relay.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use net::CongestionControl;
use peer::carrier::{Attempt, Carrier, Stream, Tcp};
use peer::conn::{Conn, ConnError};
use peer::dial::resolve;
use peer::tls::ClientTls;
use peer::{Error, Fingerprint, Identity, KeySource, Remote, Token, random};
use tokio::time::timeout;
use wire::meet::{CodeFrame, Introduction, Knock, SERVICE};
use wire::relay::{self, RelayFrame, Ticket, Wish};
use wire::session::{Hello, SessionFrame};
use wire::tunnel::{Host, Target};

use super::code::Code;
use super::exchange::{Exchange, Role};
use crate::client::show;

/// The time that all of it may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a code stood for.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The token of the host.
    pub token: Token,
    /// The key of the relay, as that host knows it.
    pub relay: Fingerprint,
}

/// Gets the token of the host that waits at `relay` under a code. The relay's key may be known:
/// whoever else has its place can try the code once, as any stranger can.
///
/// # Errors
/// [`Error::Refused`] if the code is not good, or the relay does not let guests in;
/// [`Error::NoPath`] if the relay or the host does not answer; [`Error::WrongPeer`] if the relay
/// has another key than the one that is known.
pub async fn claim(
    relay: &Remote,
    known: Option<Fingerprint>,
    identity: &Identity,
    code: &Code,
) -> Result<Claimed, Error> {
    let addresses = resolve(relay).await?;
    let mut why = "it has no address".to_string();
    for address in addresses {
        let claiming = claim_at(relay, address, known, identity, code);
        match timeout(PATIENCE, claiming).await {
            Ok(Err(Failed::Unreachable(text))) => why = text,
            Ok(Err(Failed::Final(error))) => return Err(error),
            Ok(Ok(claimed)) => return Ok(claimed),
            Err(_) => why = "it does not answer".into(),
        }
    }
    Err(Error::NoPath { to: format!("the relay {relay}"), why })
}

/// Why there is no token.
enum Failed {
    /// The relay was not reached at this address; another one may be.
    Unreachable(String),
    Final(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Final(error)
    }
}

async fn claim_at(
    relay: &Remote,
    address: SocketAddr,
    known: Option<Fingerprint>,
    identity: &Identity,
    code: &Code,
) -> Result<Claimed, Failed> {
    let stream = connect(address).await.map_err(|error| Failed::Unreachable(error.to_string()))?;
    let mut control = Conn::new(stream, ClientTls::to_any_key(identity)?.connection()?);
    let lost = |what: &str, error: &ConnError| {
        Failed::Final(Error::NoPath { to: what.to_string(), why: error.to_string() })
    };
    let of_relay = format!("the relay {relay}");
    control.handshake().await.map_err(|error| lost(&of_relay, &error))?;
    let found = control.peer().expect("the handshake is over");
    if known.is_some_and(|known| known != found) {
        let (host, address) = (relay.to_string(), address.to_string());
        let known_from = KeySource::Trusted;
        return Err(Error::WrongPeer { host, address, found, known_from }.into());
    }
    let ticket = ticket(&mut control, code).await.map_err(|error| lost(&of_relay, &error))??;
    let of_host = format!("the host that waits at {relay}");
    let exchange = exchange(address, ticket, identity, code);
    let why = async {
        let failed = control.receive(|frame| match RelayFrame::try_from(frame)? {
            RelayFrame::Failed(_, reason) => Ok(reason.text),
            _ => Ok("the relay has ended it".into()),
        });
        failed.await.unwrap_or_else(|error| error.to_string())
    };
    let claimed = tokio::select! {
        biased;
        exchanged = exchange => exchanged.map_err(|error| lost(&of_host, &error))??,
        why = why => return Err(Error::NoPath { to: of_host, why }.into()),
    };
    if claimed.relay != found {
        let reason = format!(
            "the relay {relay} has the key {found} here, and {} at the host that waits there: \
             somebody may be in between",
            claimed.relay
        );
        return Err(Error::Refused { reason }.into());
    }
    Ok(claimed)
}

async fn connect(remote: SocketAddr) -> std::io::Result<Box<dyn Stream>> {
    let local = match remote {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let congestion_control = CongestionControl::Auto;
    let attempt =
        Attempt { device: None, local, remote, congestion_control, small_segments: false };
    Tcp.connect(&attempt).await
}

/// Knocks at the relay, and gets a ticket to the host.
async fn ticket(control: &mut Conn, code: &Code) -> Result<Result<Ticket, Error>, ConnError> {
    let run = random().map_err(std::io::Error::other)?;
    let knock = Knock::Nameplate(code.nameplate());
    let hello = Hello::new(relay::SERVICE, None, run).asking(knock.request());
    control.push(&SessionFrame::Hello(hello));
    // A guest's ticket leads to its host, whatever the wish names.
    let target = Target { host: Host::Name("host".into()), port: 0 };
    control.push(&RelayFrame::Wish(Wish { number: 0, count: 1, target }));
    control.flush().await?;
    loop {
        let answer = control.receive(|frame| match RelayFrame::try_from(frame)? {
            RelayFrame::Session(SessionFrame::Welcome(_)) => Ok(None),
            RelayFrame::Session(SessionFrame::Abort(_, reason)) => Ok(Some(Err(reason))),
            RelayFrame::Denied(_, reason) => Ok(Some(Err(reason.text))),
            RelayFrame::Tickets(issued) => Ok(Some(Ok(issued.tickets[0]))),
            other => Err(ConnError::unexpected(&other)),
        });
        if let Some(answer) = answer.await? {
            return Ok(answer.map_err(|reason| Error::Refused { reason }));
        }
    }
}

/// The exchange with the host, through the relay.
async fn exchange(
    relay: SocketAddr,
    ticket: Ticket,
    identity: &Identity,
    code: &Code,
) -> Result<Result<Claimed, Error>, ConnError> {
    let stream = connect(relay).await?;
    show(&*stream, &ticket).await?;
    let other = std::io::Error::other::<Error>;
    let tls = ClientTls::to_any_key(identity).map_err(other)?;
    let mut conn = Conn::new(stream, tls.connection().map_err(other)?);
    conn.handshake().await?;
    let host = conn.peer().ok_or(ConnError::Closed)?;
    let run = random().map_err(other)?;
    let request = code.nameplate().to_be_bytes().to_vec();
    let (exchange, message) = Exchange::begin(Role::Guest, code, identity.fingerprint(), host);
    conn.push(&SessionFrame::Hello(Hello::new(SERVICE, None, run).asking(request)));
    conn.push(&CodeFrame::Pake(message));
    conn.flush().await?;
    let refused = |reason| Ok(Err(Error::Refused { reason }));
    let message = match heard(&mut conn).await? {
        Heard::Pake(message) => message,
        Heard::Refused(reason) => return refused(reason),
        Heard::Introduced(_) => return Err(ConnError::Closed),
    };
    let Some(key) = exchange.finish(&message) else {
        return refused("the host's answer is none of this exchange".into());
    };
    conn.push(&CodeFrame::Proof(key.prove()));
    conn.flush().await?;
    match heard(&mut conn).await? {
        Heard::Introduced(Introduction { proof, secret, relay }) if key.is_proven_by(&proof) => {
            let (token, relay) = (Token::of(host, secret), Fingerprint::from(relay));
            conn.close();
            let _ = conn.flush().await;
            Ok(Ok(Claimed { token, relay }))
        }
        Heard::Introduced(_) => refused(
            "who answered does not know the code: somebody is in between, or the code is another \
             host's; take a new one"
                .into(),
        ),
        Heard::Refused(reason) => refused(reason),
        Heard::Pake(_) => Err(ConnError::Closed),
    }
}

/// What a host says in an exchange.
enum Heard {
    Pake([u8; wire::meet::PAKE]),
    Introduced(Introduction),
    Refused(String),
}

async fn heard(conn: &mut Conn) -> Result<Heard, ConnError> {
    loop {
        let heard = conn.receive(|frame| match CodeFrame::try_from(frame)? {
            CodeFrame::Pake(message) => Ok(Some(Heard::Pake(message))),
            CodeFrame::Introduced(introduction) => Ok(Some(Heard::Introduced(introduction))),
            CodeFrame::Session(SessionFrame::Abort(_, why)) => Ok(Some(Heard::Refused(why))),
            CodeFrame::Session(SessionFrame::Welcome(_)) => Ok(None),
            other => Err(ConnError::unexpected(&other)),
        });
        if let Some(heard) = heard.await? {
            return Ok(heard);
        }
    }
}
