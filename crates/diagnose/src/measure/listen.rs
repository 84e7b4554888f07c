//! The side that listens: it admits as a receiver does, and measures with whoever asks.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use net::Clock;
use peer::carrier::Listener;
use peer::conn::{Conn, ConnError};
use peer::listen::admission::refuse;
use peer::listen::{
    Acceptor, Admitted, Entry, Service, TokenCheck, TokenRefusal, display_address,
    further_addresses, reachable, refusal_text,
};
use peer::sockets::Sockets;
use peer::striped::carrier::StripedListener;
use peer::{AuthorizedPeers, Error, Fingerprint, ListenOptions, Peer};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use wire::Frame;
use wire::frame::{AbortCode, Hello, Measure, Measured, SessionId, VERSION};

use super::cpu;
use super::flow::{Counts, Flow};

/// The longest measurement.
const LONGEST: Duration = Duration::from_secs(3_600);
/// How long a connection may wait before it says what to measure.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the last words of a measurement may take.
const FAREWELL: Duration = Duration::from_secs(10);

/// Where a host tells people what happens, as sentences.
pub type Notices = mpsc::UnboundedSender<String>;

/// A host that measures with peers that ask, until it is dropped.
pub struct MeasuredHost {
    addresses: Vec<SocketAddr>,
    has_udp: bool,
    _acceptor: Acceptor<Measuring>,
}

struct Measuring {
    options: ListenOptions,
    token: TokenCheck,
    events: Notices,
    clock: Clock,
}

impl MeasuredHost {
    /// Listens at the addresses of `options`, with TCP and with UDP. Needs a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::System`], with the address that the kernel refused.
    pub fn start(options: ListenOptions, events: Notices) -> Result<MeasuredHost, Error> {
        let Sockets { tcp, udp, notice } = Sockets::open(&options, &stripe::Options::default())?;
        if let Some(text) = notice {
            let _ = events.send(text);
        }
        let addresses = reachable(&tcp);
        let boxed = |listener| Box::new(listener) as Box<dyn Listener>;
        let mut listeners: Vec<_> = tcp.into_iter().map(boxed).collect();
        let admitted = Admitted::new(options.authorized.clone());
        let has_udp = udp.is_ok();
        match udp {
            Ok(udp) => listeners.push(Box::new(StripedListener::new(udp, admitted.clone()))),
            Err(error) => drop(events.send(format!("{error}: only TCP is measured"))),
        }
        let token = TokenCheck::new(options.token.clone(), options.holder);
        let identity = options.identity.clone();
        let service = Arc::new(Measuring { options, token, events, clock: Clock::start() });
        let acceptor = Acceptor::start_with(service, &identity, listeners, admitted)?;
        Ok(MeasuredHost { addresses, has_udp, _acceptor: acceptor })
    }

    /// The addresses at which it can be reached.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether it listens with UDP too, whose ports may be taken.
    #[must_use]
    pub fn has_udp(&self) -> bool {
        self.has_udp
    }
}

impl Service for Measuring {
    type Session = Infallible;
    type Grant = ();

    fn find(&self, _: SessionId, _: Fingerprint) -> Option<Infallible> {
        None
    }

    fn authorized(&self) -> AuthorizedPeers {
        self.options.authorized.clone()
    }

    fn note_refused(&self, from: SocketAddr, reason: &str, unreported: u64) {
        self.say(refusal_text(from, reason, unreported));
    }

    fn authorize(&self, hello: &Hello, peer: Fingerprint) -> Result<(), String> {
        if hello.version != VERSION {
            return Err(format!(
                "it speaks protocol version {VERSION}, the other side {}",
                hello.version
            ));
        }
        let known = self.options.authorized.find(peer);
        if known.as_ref().is_some_and(Peer::may_send) {
            return Ok(());
        }
        self.token.admit(hello, peer).map_err(|refusal| {
            let text = match refusal {
                TokenRefusal::NotShown if known.is_some() => {
                    "no token was shown, and the key may not send to this host, which a \
                     measurement needs"
                }
                TokenRefusal::NotShown => {
                    "no token was shown, and the key is not among the authorized peers"
                }
                TokenRefusal::Wrong => {
                    "the token is not the one that this host printed; each start prints a new one"
                }
                TokenRefusal::Taken => "the token is another host's",
            };
            text.into()
        })
    }

    fn addresses(&self, conn: &Conn) -> Vec<SocketAddr> {
        further_addresses(conn, &self.options.addresses)
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, entry: Entry<Self>, from: SocketAddr) {
        match entry {
            Entry::Join(session) => match session {},
            // No other connection joins: nobody waits for a session.
            Entry::Open(request) => drop(request),
        }
        let name = display_address(from);
        match self.measure(&mut conn, &name).await {
            Ok(()) | Err(ConnError::Closed) => {}
            Err(error) => {
                if let ConnError::Wire(_) | ConnError::Unexpected(_) = error {
                    let _ = refuse(&mut conn, AbortCode::Protocol, error.to_string()).await;
                }
                self.say(format!("{name}: {error}"));
            }
        }
    }
}

impl Measuring {
    fn say(&self, text: String) {
        // Nobody may listen any more.
        let _ = self.events.send(text);
    }

    async fn measure(&self, conn: &mut Conn, name: &str) -> Result<(), ConnError> {
        conn.flush_to_reader().await?;
        let wish = conn.receive(|frame| match frame {
            Frame::Measure(wish) => Ok(Some(wish)),
            Frame::Ping(_) => Ok(None),
            other => Err(ConnError::Unexpected(String::from(&other))),
        });
        let wish = timeout(PATIENCE, wish).await.map_err(|_| ConnError::Silent(PATIENCE))??;
        let Some(Measure { micros, sends }) = wish else { return Ok(()) };
        let time = Duration::from_micros(micros);
        if time > LONGEST {
            let text = "a measurement may take an hour";
            return Err(refuse(conn, AbortCode::Refused, text.into()).await);
        }
        let (cpu_before, begin) = (cpu(), self.clock.now());
        let counts = Counts::default();
        let mut flow = Flow::new(conn, &counts);
        flow.run(sends, Instant::now() + time).await?;
        let received = counts.received.load(Ordering::Relaxed);
        let measured = Measured {
            received,
            sent_again: counts.sent_again.load(Ordering::Relaxed),
            cpu_micros: (cpu() - cpu_before).as_nanos() / 1_000,
        };
        conn.push(&Frame::Measured(measured));
        let seconds = (self.clock.now() - begin).as_secs_f64();
        self.say(format!("{name}: measured for {seconds:.1} s"));
        // What is on its way here is taken in, so that the answer is not lost with a reset. However
        // the connection ends, the measurement is done.
        let mut flow = Flow::new(conn, &counts);
        let _ = flow.run(false, Instant::now() + FAREWELL).await;
        Ok(())
    }
}
