//! The service of a host that has printed codes: it hands its token over for the right one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use peer::conn::{Conn, ConnError};
use peer::host::{Asking, Entry, Service, SessionRequest};
use peer::listen::admission::refuse;
use peer::{Fingerprint, Token};
use tokio::sync::Notify;
use tokio::time::timeout;
use wire::meet::{CodeFrame, Introduction, SERVICE};
use wire::session::{AbortCode, SessionFrame, SessionId};

use super::code::Code;
use super::exchange::{Exchange, Role};
use crate::client::Client;

/// Attempts at one code.
pub const TRIES: u32 = 3;
/// The time that an exchange may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The codes of a host that can be used.
pub(crate) struct Codes {
    token: Token,
    /// By their nameplates.
    live: Mutex<BTreeMap<u32, LiveCode>>,
}

struct LiveCode {
    code: Code,
    /// Where it is good: exchanges come through this relay alone.
    relay: Arc<Client>,
    relay_key: Fingerprint,
    tries: u32,
    /// Who has used it.
    holder: Option<Fingerprint>,
    /// Rings when it was tried once too often.
    spent: Arc<Notify>,
}

/// What an exchange needs to know of its code.
struct Attempted {
    code: Code,
    relay_key: Fingerprint,
}

/// Why there is no exchange.
const NONE: &str = "there is no such code here, or no longer";

impl Codes {
    pub(crate) fn new(token: Token) -> Codes {
        Codes { token, live: Mutex::default() }
    }

    /// A further code, for guests of that relay. The result rings when it was guessed at too often.
    pub(crate) fn add(
        &self,
        code: Code,
        relay: &Arc<Client>,
        relay_key: Fingerprint,
    ) -> Arc<Notify> {
        let (relay, spent) = (Arc::clone(relay), Arc::new(Notify::new()));
        let ring = Arc::clone(&spent);
        let nameplate = code.nameplate();
        let live = LiveCode { code, relay, relay_key, tries: 0, holder: None, spent };
        self.live().insert(nameplate, live);
        ring
    }

    /// The code of a nameplate is no longer good. Whether it was used.
    pub(crate) fn remove(&self, nameplate: u32) -> bool {
        let removed = self.live().remove(&nameplate);
        removed.is_some_and(|live| live.holder.is_some())
    }

    /// An attempt of a guest at the code of a nameplate, which counts whatever becomes of it.
    ///
    /// # Errors
    /// The reason of a refusal.
    fn attempt(&self, nameplate: u32, guest: Fingerprint) -> Result<Attempted, &'static str> {
        let mut all = self.live();
        let live = all.get_mut(&nameplate).ok_or(NONE)?;
        if live.holder.is_some_and(|holder| holder != guest) {
            return Err("the code was used by another host");
        }
        if live.tries >= TRIES {
            return Err("the code was tried too often; there is a new one");
        }
        live.tries += 1;
        Ok(Attempted { code: live.code.clone(), relay_key: live.relay_key })
    }

    /// What became of an attempt: the guest that knew the code. How many attempts are left.
    fn settle(&self, nameplate: u32, knew: Option<Fingerprint>) -> u32 {
        let mut all = self.live();
        let Some(live) = all.get_mut(&nameplate) else { return 0 };
        live.holder = live.holder.or(knew);
        let left = TRIES - live.tries;
        if left == 0 && live.holder.is_none() {
            live.spent.notify_one();
        }
        left
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<u32, LiveCode>> {
        self.live.lock().expect("no panic while held")
    }

    /// The exchange, and the token behind it. Returns whether the guest knew the code.
    async fn exchange(
        &self,
        conn: &mut Conn,
        attempted: Attempted,
        guest: Fingerprint,
        message: [u8; wire::meet::PAKE],
    ) -> Result<bool, ConnError> {
        let Attempted { code, relay_key } = attempted;
        let own = self.token.fingerprint;
        let (exchange, answer) = Exchange::begin(Role::Host, &code, guest, own);
        let Some(key) = exchange.finish(&message) else { return Ok(false) };
        conn.push(&CodeFrame::Pake(answer));
        conn.flush().await?;
        let proof = conn.receive(|frame| match CodeFrame::try_from(frame)? {
            CodeFrame::Proof(proof) => Ok(proof),
            other => Err(ConnError::unexpected(&other)),
        });
        if !key.is_proven_by(&proof.await?) {
            return Ok(false);
        }
        conn.push(&CodeFrame::Introduced(Introduction {
            proof: key.prove(),
            secret: *self.token.secret(),
            relay: *relay_key.as_bytes(),
        }));
        conn.flush().await?;
        Ok(true)
    }
}

/// The nameplate of a request.
fn nameplate_of(request: &[u8]) -> Option<u32> {
    request.try_into().ok().map(u32::from_be_bytes)
}

impl Service for Codes {
    type Session = Infallible;
    type Grant = u32;

    fn name(&self) -> &'static str {
        SERVICE
    }

    fn does(&self) -> &'static str {
        "hands over a token for a code"
    }

    /// Strangers are told nothing.
    fn tells_addresses(&self) -> bool {
        false
    }

    fn find(&self, _: SessionId, _: Fingerprint) -> Option<Infallible> {
        None
    }

    /// Strangers are let in: the exchange shows whether they know the code.
    fn authorize(&self, asking: &Asking<'_>) -> Result<u32, String> {
        let is_asked = asking.hello.service == SERVICE;
        let nameplate = nameplate_of(&asking.hello.request).filter(|_| is_asked);
        let is_live = |number: &u32| {
            let all = self.live();
            all.get(number).is_some_and(|live| live.relay.reached() == Some(asking.from))
        };
        nameplate.filter(is_live).ok_or_else(|| NONE.into())
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, entry: Entry<Self>, _: SocketAddr) {
        let request = match entry {
            Entry::Join(session) => match session {},
            Entry::Open(request) => request,
        };
        let SessionRequest { grant: nameplate, peer: guest, opening, .. } = request;
        // No other connection joins: nobody waits for a session.
        drop(opening);
        let message = conn.receive(|frame| match CodeFrame::try_from(frame)? {
            CodeFrame::Pake(message) => Ok(message),
            CodeFrame::Session(SessionFrame::Abort(_, why)) => {
                Err(ConnError::Io(std::io::Error::other(why)))
            }
            other => Err(ConnError::unexpected(&other)),
        });
        let Ok(Ok(message)) = timeout(PATIENCE, message).await else { return };
        let attempted = match self.attempt(nameplate, guest) {
            Ok(attempted) => attempted,
            Err(why) => {
                let _ = refuse(&mut conn, AbortCode::Refused, why.into()).await;
                return;
            }
        };
        let exchange = self.exchange(&mut conn, attempted, guest, message);
        let ended = timeout(PATIENCE, exchange).await;
        let knew = matches!(ended, Ok(Ok(true)));
        let left = self.settle(nameplate, knew.then_some(guest));
        if knew {
            conn.close();
            // Until the guest has read it.
            let _ = timeout(PATIENCE, conn.receive(|_| Ok(()))).await;
        } else if let Ok(Ok(false)) = ended {
            let why = match left {
                0 => "the code is wrong, and is no longer good: the host prints another one".into(),
                left => format!("the code is wrong; it can be tried {left} times more"),
            };
            let _ = refuse(&mut conn, AbortCode::Refused, why).await;
        }
    }
}
