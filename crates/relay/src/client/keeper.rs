//! The control connection of a host that uses a relay: opened, served, and opened again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use net::CongestionControl;
use net::interfaces::discover_remote;
use peer::carrier::Attempt;
use peer::conn::{Conn, ConnError};
use peer::dial::{resolve, with_remedy};
use peer::random;
use tokio::time::{Instant, interval_at, sleep, timeout};
use units::Span;
use wire::meet::Knock;
use wire::relay::{Reason, RelayFrame, SERVICE};
use wire::session::{AbortCode, Hello, SessionFrame};
use wire::tunnel::Code;

use super::association::AssociationState;
use super::ways::Ways;
use super::{ClientShared, ClientState};

/// The pause before the first attempt to connect again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The same while paths of a striped connection wait for the relay, or this host waits there or is
/// a guest.
const LONGEST_PAUSE_OF_PATHS: Duration = Duration::from_secs(2);
/// A connection that lasted so long makes the next pause short again.
const LASTED: Duration = Duration::from_secs(30);
/// The time that an attempt may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The wait for an answer to the SYN over another way than that which worked last.
const PATIENCE_ASIDE: Duration = Duration::from_secs(2);
/// The time between pings, and between looks at tickets that lapse.
const PING: Duration = Duration::from_secs(1);
/// A relay that says nothing for this long is tried another way.
const SILENCE: Duration = Duration::from_secs(5);

/// Why a control connection ended, or did not begin.
struct Ended {
    why: String,
    is_refusal: bool,
    response: Response,
}

/// What came by the way to the relay when an attempt or a connection ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Response {
    /// Nothing: the way may be to blame.
    Silent,
    /// That nobody listens there.
    Refused,
    /// Something else.
    Other,
}

impl Ended {
    fn lost(why: String) -> Ended {
        Ended { why, is_refusal: false, response: Response::Other }
    }

    fn silent() -> Ended {
        Ended { response: Response::Silent, ..Ended::lost("it does not answer".into()) }
    }

    /// There is no connection to the relay's host.
    #[expect(clippy::needless_pass_by_value, reason = "the function of `map_err`")]
    fn unconnected(error: std::io::Error) -> Ended {
        let is_refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
        let response = if is_refused { Response::Refused } else { Response::Other };
        Ended { response, ..Ended::lost(error.to_string()) }
    }
}

impl ClientShared {
    fn handle_ended(&self, Ended { why, is_refusal, .. }: Ended) {
        let mut state = self.state();
        state.failed = self.clock.now();
        state.link =
            if is_refusal { ClientState::Refused(why) } else { ClientState::Connecting(Some(why)) };
        drop(state);
        self.told.notify_waiters();
    }

    fn handle_connected(&self) {
        let mut state = self.state();
        state.link = ClientState::Open;
        state.shelves.handle_connected();
        state.gone.clear();
        state.registering.handle_connected();
        let associations = state.associations();
        drop(state);
        for own in associations {
            own.state().handle_connected();
        }
        self.told.notify_waiters();
    }

    /// Whether somebody needs the relay back soon.
    fn is_waited_for(&self) -> bool {
        let state = self.state();
        let waits = !state.associations.is_empty() || !state.registering.is_empty();
        waits || self.options.knock.is_some()
    }

    /// Frames of associations that the relay is to get.
    fn association_frames(&self) -> Vec<RelayFrame<'static>> {
        let now = self.clock.now();
        let mut state = self.state();
        let gone = std::mem::take(&mut state.gone).into_iter();
        let associations = state.associations();
        let is_tcp_alone = state.tcp_alone_until > now;
        drop(state);
        if is_tcp_alone {
            let reason = Reason::new(Code::Failed, TCP_ALONE);
            for own in associations {
                own.state().handle_dissociated(now, &reason);
            }
            return Vec::new();
        }
        let mut frames: Vec<_> = gone.map(|number| RelayFrame::Retire(number, vec![])).collect();
        for own in associations {
            let mut own = own.state();
            frames.extend(std::iter::from_fn(|| own.poll_frame(now)));
        }
        frames
    }

    /// What the relay says of an association.
    fn handle_association(&self, number: u32, handle: impl FnOnce(&mut AssociationState)) {
        // Behind the lock: the last of its holders may be this one.
        let own = self.state().associations.get(&number).and_then(Weak::upgrade);
        if let Some(own) = own {
            handle(&mut own.state());
        }
    }

    /// The relay has ended the control connection because it did not understand something. If that
    /// were associations, it is of a version without them, and hears of no more.
    fn handle_not_understood(&self) {
        let now = self.clock.now();
        self.state().registering.handle_not_understood(now);
        let associations = self.state().associations();
        if associations.iter().any(|own| own.state().awaits_answer()) {
            self.state().tcp_alone_until = now + TCP_ALONE_FOR;
        }
    }
}

/// How long a relay that knows nothing of associations hears of no more.
const TCP_ALONE_FOR: Span = Span::from_secs(600);
/// What is said of a relay that knows nothing of associations.
const TCP_ALONE: &str = "it is of a version that relays TCP alone";

#[expect(clippy::needless_pass_by_value, reason = "the function of `map_err`")]
fn lost(error: impl ToString) -> Ended {
    Ended::lost(error.to_string())
}

/// Keeps a control connection for ever.
pub(super) async fn keep(shared: Arc<ClientShared>) {
    let (mut pause, mut ways) = (FIRST_PAUSE, Ways::default());
    loop {
        let begin = Instant::now();
        let connected = timeout(PATIENCE, connect(&shared, &mut ways)).await;
        let ended = match connected.unwrap_or_else(|_| Err(Ended::silent())) {
            Ok(conn) => {
                ways.handle_open();
                hold(&shared, conn).await
            }
            Err(ended) => ended,
        };
        match ended.response {
            Response::Silent => ways.handle_silence(),
            Response::Refused => ways.handle_refused(),
            Response::Other => {}
        }
        tracing::debug!(relay = %shared.options.name, why = ended.why, "no control connection");
        shared.handle_ended(ended);
        if begin.elapsed() > LASTED {
            pause = FIRST_PAUSE;
        }
        let is_waited_for = shared.is_waited_for();
        let longest = if is_waited_for { LONGEST_PAUSE_OF_PATHS } else { LONGEST_PAUSE };
        sleep(pause.min(longest)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Connects the next way, and is let in.
async fn connect(shared: &ClientShared, ways: &mut Ways) -> Result<Conn, Ended> {
    let addresses = resolve(&shared.options.dial).await.map_err(lost)?;
    let attempts = attempts(&addresses);
    let attempt = &attempts[ways.next(attempts.len())];
    let connecting = shared.options.carrier.connect(attempt);
    let patience = if ways.is_other() { PATIENCE_ASIDE } else { PATIENCE };
    let connected = timeout(patience, connecting).await.map_err(|_| Ended::silent())?;
    let stream = connected.map_err(Ended::unconnected)?;
    let mut conn = Conn::new(stream, shared.tls.connection().map_err(lost)?);
    conn.handshake().await.map_err(lost)?;
    let run = random().map_err(lost)?;
    let hello = Hello::new(SERVICE, shared.options.credential.secret(), run);
    let knock = shared.options.knock.as_ref().map(Knock::request);
    let hello = hello.asking(knock.unwrap_or_default());
    conn.push(&SessionFrame::Hello(hello));
    // The first frame behind the hello opens the session.
    conn.push(&SessionFrame::Pong(0));
    conn.flush().await.map_err(lost)?;
    let answer = conn.receive(|frame| match SessionFrame::try_from(frame)? {
        SessionFrame::Welcome(_) => Ok(Ok(())),
        SessionFrame::Abort(AbortCode::Busy | AbortCode::Crowded, why) => Ok(Err(Ended::lost(why))),
        SessionFrame::Abort(_, why) => {
            Ok(Err(Ended { is_refusal: true, ..Ended::lost(with_remedy(why)) }))
        }
        other => Err(ConnError::unexpected(&other)),
    });
    answer.await.map_err(lost)??;
    shared.state().reached = Some(attempt.clone());
    Ok(conn)
}

/// The ways to connect: as the kernel chooses, and then over each interface.
fn attempts(addresses: &[SocketAddr]) -> Vec<Attempt> {
    let attempt = |device, local, remote| Attempt {
        device,
        local,
        remote,
        congestion_control: CongestionControl::Auto,
        small_segments: false,
    };
    let mut all = Vec::new();
    for remote in addresses {
        let any = match remote {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        all.push(attempt(None, any, *remote));
    }
    for remote in addresses {
        let found = discover_remote(*remote).unwrap_or_default();
        for local in found.usable {
            all.push(attempt(Some(local.interface), local.address, *remote));
        }
    }
    all
}

/// Serves a control connection until it ends.
async fn hold(shared: &ClientShared, mut conn: Conn) -> Ended {
    shared.handle_connected();
    match serve(shared, &mut conn).await {
        Ok(ended) => ended,
        Err(error) => lost(error),
    }
}

async fn serve(shared: &ClientShared, conn: &mut Conn) -> Result<Ended, ConnError> {
    let mut pings = interval_at(Instant::now() + PING, PING);
    let mut heard_at = Instant::now();
    loop {
        let now = shared.clock.now();
        let wishes: Vec<_> = std::iter::from_fn(|| shared.state().shelves.poll_wish(now)).collect();
        for wish in wishes {
            conn.push(&RelayFrame::Wish(wish));
        }
        for frame in shared.association_frames() {
            conn.push(&frame);
        }
        let registrations = shared.state().registering.poll_frames(now);
        for frame in registrations {
            conn.push(&frame);
        }
        conn.flush_to_reader().await?;
        let heard = conn.receive(|frame| handle(shared, RelayFrame::try_from(frame)?));
        tokio::select! {
            heard = heard => {
                heard_at = Instant::now();
                if let Some(ended) = heard? {
                    return Ok(ended);
                }
                shared.told.notify_waiters();
            }
            () = shared.asked.notified() => {}
            _ = pings.tick() => {
                if heard_at.elapsed() > SILENCE || is_gone(conn.stream().local_addr()) {
                    return Ok(Ended::silent());
                }
                conn.push(&SessionFrame::Ping(0));
            }
        }
    }
}

/// Whether this host no longer has the local address of a connection: nothing more can come.
fn is_gone(local: Option<SocketAddr>) -> bool {
    let Some(mut local) = local else { return false };
    local.set_port(0);
    let bound = std::net::UdpSocket::bind(local);
    bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrNotAvailable)
}

/// What the relay says. Returns why the connection has ended, if it has.
fn handle(shared: &ClientShared, frame: RelayFrame<'_>) -> Result<Option<Ended>, ConnError> {
    let now = shared.clock.now();
    match frame {
        RelayFrame::Tickets(issued) => shared.state().shelves.handle_tickets(now, issued),
        RelayFrame::Denied(number, reason) => {
            shared.state().shelves.handle_denied(now, number, reason);
        }
        RelayFrame::Failed(ticket, reason) => {
            shared.state().shelves.handle_failed(now, ticket, reason);
        }
        RelayFrame::Parting(_) => {
            let mut state = shared.state();
            state.link = ClientState::Parting;
            state.shelves.handle_connected();
        }
        RelayFrame::Associated(associated) => {
            shared.handle_association(associated.number, |own| own.handle_associated(&associated));
        }
        RelayFrame::Labelled(number, count) => {
            shared.handle_association(number, |own| own.handle_taken(count));
        }
        RelayFrame::Dissociated(number, reason) => {
            shared.handle_association(number, |own| own.handle_dissociated(now, &reason));
        }
        RelayFrame::Registered(number) => shared.state().registering.handle_registered(number),
        RelayFrame::Unregistered(number, reason) => {
            shared.state().registering.handle_unregistered(now, number, reason);
        }
        RelayFrame::Meet(number, ticket) => {
            shared.state().registering.handle_meet(number, ticket);
        }
        RelayFrame::Session(SessionFrame::Pong(_)) => {}
        RelayFrame::Session(SessionFrame::Abort(code, why)) => {
            if code == AbortCode::Protocol {
                shared.handle_not_understood();
            }
            return Ok(Some(Ended::lost(why)));
        }
        other => return Err(ConnError::unexpected(&other)),
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_this_host_has_not_is_gone() {
        let at = |text: &str| Some(text.parse().unwrap());
        assert!(!is_gone(None) && !is_gone(at("127.0.0.1:7707")));
        assert!(is_gone(at("192.0.2.7:7707")), "it is for documentation");
    }
}
