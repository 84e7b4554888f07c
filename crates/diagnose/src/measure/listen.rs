//! The side that listens: it admits as a receiver does, and measures with whoever asks.

use events::Events;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use net::Clock;
use peer::conn::{Conn, ConnError};
use peer::host::{Asking, Entry, Service};
use peer::listen::admission::refuse;
use peer::listen::{TokenRefusal, display_address};
use peer::{Fingerprint, Peer};
use tokio::time::{Instant, timeout};
use wire::measure::{self, Measure, MeasureFrame, Measured};
use wire::session::{AbortCode, SessionFrame, SessionId};

use super::cpu;
use super::flow::{Counts, Flow};

/// The longest measurement.
const LONGEST: Duration = Duration::from_secs(3_600);
/// How long a connection may wait before it says what to measure.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the last words of a measurement may take.
const FAREWELL: Duration = Duration::from_secs(10);

/// The service that measures with peers that ask.
pub struct Measuring {
    events: Events,
    clock: Clock,
}

impl Measuring {
    /// Tells people what was measured.
    #[must_use]
    pub fn new(events: Events) -> Arc<Measuring> {
        Arc::new(Measuring { events, clock: Clock::start() })
    }
}

impl Service for Measuring {
    type Session = Infallible;
    type Grant = ();

    fn name(&self) -> &'static str {
        measure::SERVICE
    }

    fn does(&self) -> &'static str {
        "measures"
    }

    fn find(&self, _: SessionId, _: Fingerprint) -> Option<Infallible> {
        None
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<(), String> {
        if asking.known.is_some_and(Peer::may_send) {
            return Ok(());
        }
        asking.holds_token().map_err(|refusal| {
            let text = match refusal {
                TokenRefusal::NotShown if asking.known.is_some() => {
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
                self.events.notice(format!("{name}: {error}"));
            }
        }
    }
}

impl Measuring {
    async fn measure(&self, conn: &mut Conn, name: &str) -> Result<(), ConnError> {
        conn.flush_to_reader().await?;
        let wish = conn.receive(|frame| match MeasureFrame::try_from(frame)? {
            MeasureFrame::Measure(wish) => Ok(Some(wish)),
            MeasureFrame::Session(SessionFrame::Ping(_)) => Ok(None),
            other => Err(ConnError::unexpected(&other)),
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
        conn.push(&MeasureFrame::Measured(measured));
        let seconds = (self.clock.now() - begin).as_secs_f64();
        self.events.notice(format!("{name}: measured for {seconds:.1} s"));
        // What is on its way here is taken in, so that the answer is not lost with a reset. However
        // the connection ends, the measurement is done.
        let mut flow = Flow::new(conn, &counts);
        let _ = flow.run(false, Instant::now() + FAREWELL).await;
        Ok(())
    }
}
