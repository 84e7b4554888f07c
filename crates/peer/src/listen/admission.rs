//! Bounds of unauthenticated connections, and their authentication.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use wire::session::{AbortCode, Hello, SessionFrame, SessionId};

use super::predecessor;
use crate::carrier::Stream;
use crate::conn::{Conn, ConnError};
use crate::metrics::{Registry, register_budget};
use crate::tls::ServerTls;
use crate::{Fingerprint, Token};

/// The most unauthenticated connections; a further one displaces the oldest of the block of
/// addresses that has the most.
const UNAUTHENTICATED: usize = 64;
/// The time that a connection may take to authenticate.
pub const UNAUTHENTICATED_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes read at a time before a connection is authenticated.
const UNAUTHENTICATED_BYTES: usize = 4_096;
/// Bytes that a connection may send before it is authenticated: a handshake and a first frame are
/// less than 4 KiB, and frames may follow in the same packets.
const UNAUTHENTICATED_INPUT: usize = 64 << 10;
/// The time that a refused peer has to read the reason.
const LINGER: Duration = Duration::from_secs(1);

/// The tasks of all connections, and the order of the unauthenticated ones.
#[derive(Default)]
pub(crate) struct Unauthenticated(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    /// Oldest first.
    connections: VecDeque<Newcomer>,
    next: u64,
    tasks: JoinSet<()>,
}

struct Newcomer {
    number: u64,
    /// [`stripe::address_block`]
    block: u64,
    task: AbortHandle,
}

impl Pending {
    /// Makes room for a connection from `block`: whoever opens many crowds out their own.
    fn make_room(&mut self, block: u64) {
        let mut crowds = BTreeMap::from([(block, 1_usize)]);
        for one in &self.connections {
            *crowds.entry(one.block).or_default() += 1;
        }
        let crowd = |index: &usize| crowds[&self.connections[*index].block];
        let first_of_most = (0..self.connections.len()).min_by_key(|index| Reverse(crowd(index)));
        if let Some(displaced) = first_of_most.and_then(|index| self.connections.remove(index)) {
            displaced.task.abort();
        }
    }
}

impl Unauthenticated {
    /// Spawns the task of a connection; `serve` gets the connection's number.
    pub(crate) fn admit<F>(&self, from: IpAddr, serve: impl FnOnce(u64) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut pending = self.pending();
        let block = stripe::address_block(from);
        if pending.connections.len() >= UNAUTHENTICATED {
            pending.make_room(block);
        }
        let number = pending.next;
        pending.next += 1;
        while pending.tasks.try_join_next().is_some() {}
        let task = pending.tasks.spawn(serve(number));
        pending.connections.push_back(Newcomer { number, block, task });
    }

    /// Waits for a connection to authenticate; `None` if it fails, or takes longer than
    /// [`UNAUTHENTICATED_PATIENCE`].
    pub(crate) async fn authenticated<T>(
        &self,
        number: u64,
        entering: impl Future<Output = Result<T, ConnError>>,
    ) -> Option<T> {
        let entered = timeout(UNAUTHENTICATED_PATIENCE, entering).await;
        self.pending().connections.retain(|one| one.number != number);
        let entered = entered.map_err(|_| ConnError::Silent(UNAUTHENTICATED_PATIENCE));
        match entered.and_then(|entered| entered) {
            Ok(entered) => Some(entered),
            Err(error) => {
                tracing::debug!(%error, "connection not admitted");
                None
            }
        }
    }

    /// Registers the connections as a figure of that name; `what` says what they are.
    pub(crate) fn register(self: &Arc<Self>, registry: &mut Registry, name: &str, what: &str) {
        let all = Arc::clone(self);
        let count = move || all.pending().connections.len() as u64;
        register_budget(registry, name, what, None, UNAUTHENTICATED as u64, count);
    }

    /// Ends every connection.
    pub(crate) fn close(&self) {
        self.pending().tasks.abort_all();
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().expect("no panic while held")
    }
}

/// The first frame of a connection.
pub(crate) enum First {
    Hello(Hello),
    Join(SessionId),
}

/// Runs the handshake and reads the first frame.
pub(crate) async fn greet(
    tls: &ServerTls,
    stream: Box<dyn Stream>,
) -> Result<(Conn, Fingerprint, First), ConnError> {
    let mut conn = if let Some(key) = stream.peer_key() {
        Conn::over_carrier(stream, key)
    } else {
        let connection = tls.connection().map_err(std::io::Error::other)?;
        Conn::new(stream, connection)
    };
    conn.set_allowance(UNAUTHENTICATED_INPUT);
    conn.handshake().await?;
    let peer = conn.peer().ok_or(ConnError::Closed)?;
    let first = match timeout(predecessor::REST, first_frame(&mut conn)).await {
        Ok(Ok(first)) => first,
        Ok(Err(error)) if predecessor::is_greeting(&conn, Some(&error)) => {
            return Err(predecessor::refuse(&mut conn).await);
        }
        Ok(Err(error)) => return Err(error),
        Err(_) if predecessor::is_greeting(&conn, None) => {
            return Err(predecessor::refuse(&mut conn).await);
        }
        Err(_) => first_frame(&mut conn).await?,
    };
    conn.set_allowance(usize::MAX);
    Ok((conn, peer, first))
}

async fn first_frame(conn: &mut Conn) -> Result<First, ConnError> {
    let first =
        conn.receive_within(UNAUTHENTICATED_BYTES, |frame| match SessionFrame::try_from(frame)? {
            SessionFrame::Hello(hello) => Ok(First::Hello(hello)),
            SessionFrame::Join(id) => Ok(First::Join(id)),
            other => Err(ConnError::unexpected(&other)),
        });
    first.await
}

/// Sends the peer the reason of a refusal, and closes the connection, within two seconds. Returns
/// the reason as an error.
pub async fn refuse(conn: &mut Conn, code: AbortCode, text: String) -> ConnError {
    conn.note_refusal(code);
    conn.push(&SessionFrame::Abort(code, text.clone()));
    let _ = timeout(Duration::from_secs(1), conn.flush()).await;
    conn.close();
    let _ = timeout(LINGER, conn.linger()).await;
    ConnError::Io(std::io::Error::other(text))
}

/// The check of a token that is good for one peer, the first that shows it.
#[derive(Debug)]
pub struct TokenCheck {
    token: Option<Token>,
    holder: Mutex<Option<Fingerprint>>,
}

/// The reason why a token does not let a peer in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    /// The peer showed no token, or there is none to show.
    NotShown,
    /// The peer showed another secret.
    Wrong,
    /// The token belongs to another peer, which showed it before or is its named holder.
    Taken,
}

impl TokenCheck {
    /// A check for `token`; with a `holder` only that peer may show it.
    #[must_use]
    pub fn new(token: Option<Token>, holder: Option<Fingerprint>) -> TokenCheck {
        TokenCheck { token, holder: Mutex::new(holder) }
    }

    /// Lets `peer` in if its hello holds the token's secret.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub fn admit(&self, hello: &Hello, peer: Fingerprint) -> Result<(), TokenRefusal> {
        let (Some(secret), Some(token)) = (&hello.secret, &self.token) else {
            return Err(TokenRefusal::NotShown);
        };
        if !token.matches(secret) {
            return Err(TokenRefusal::Wrong);
        }
        let mut holder = self.holder.lock().expect("no panic while held");
        if *holder.get_or_insert(peer) == peer { Ok(()) } else { Err(TokenRefusal::Taken) }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::Identity;
    use tokio::sync::Notify;

    fn showing(secret: Option<[u8; 16]>) -> Hello {
        Hello::new("service", secret, [0; 16])
    }

    /// A token, a hello that shows it, and the keys of two peers.
    fn setting() -> (Token, Hello, [Fingerprint; 2]) {
        let token = Token::generate(&Identity::generate().unwrap()).unwrap();
        let hello = showing(Some(*token.secret()));
        (token, hello, [1, 2].map(|octet| Fingerprint::from([octet; 32])))
    }

    #[test]
    fn a_token_belongs_to_the_first_peer_that_shows_it() {
        let (token, hello, [first, second]) = setting();
        let check = TokenCheck::new(Some(token), None);
        let other = showing(Some([0; 16]));
        assert_eq!(check.admit(&showing(None), first), Err(TokenRefusal::NotShown));
        assert_eq!(check.admit(&other, first), Err(TokenRefusal::Wrong));
        assert_eq!(check.admit(&hello, second), Ok(()), "failures take no token");
        assert_eq!(check.admit(&hello, first), Err(TokenRefusal::Taken));
        assert_eq!(check.admit(&hello, second), Ok(()), "its holder may show it again");
        assert_eq!(check.admit(&other, second), Err(TokenRefusal::Wrong));
    }

    #[test]
    fn a_named_holder_is_the_only_one() {
        let (token, hello, [holder, other]) = setting();
        let check = TokenCheck::new(Some(token), Some(holder));
        assert_eq!(check.admit(&hello, other), Err(TokenRefusal::Taken));
        assert_eq!(check.admit(&hello, holder), Ok(()));
    }

    #[test]
    fn a_host_without_a_token_admits_no_secret() {
        let (_, hello, [peer, _]) = setting();
        let check = TokenCheck::new(None, Some(peer));
        assert_eq!(check.admit(&hello, peer), Err(TokenRefusal::NotShown));
    }

    /// Adds its number to a list when it is dropped.
    struct Ends(u64, Arc<Mutex<Vec<u64>>>);

    impl Drop for Ends {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[tokio::test]
    async fn one_address_does_not_crowd_out_another() {
        let connections = Arc::new(Unauthenticated::default());
        let ended = Arc::new(Mutex::new(Vec::new()));
        let admit = |from| {
            let ended = Arc::clone(&ended);
            connections.admit(address(from), |number| async move {
                let _ends = Ends(number, ended);
                pending::<()>().await;
            });
        };
        // Tasks begin before they are displaced.
        admit(1);
        for _ in 0..2 * UNAUTHENTICATED {
            admit(2);
            tokio::task::yield_now().await;
        }
        admit(3);
        while ended.lock().unwrap().len() < UNAUTHENTICATED + 2 {
            tokio::task::yield_now().await;
        }
        let ended = ended.lock().unwrap();
        assert!(ended.iter().all(|number| (1..=UNAUTHENTICATED as u64 + 2).contains(number)));
    }

    /// All are 300 ms away. A stranger with many half-open handshakes opens another whenever one of
    /// them is displaced, a thousand in a second; the handshakes of honest peers take three times
    /// as long as the way.
    #[tokio::test(start_paused = true)]
    async fn honest_peers_far_away_get_in_beside_half_open_handshakes() {
        let connections = Arc::new(Unauthenticated::default());
        let entered = Arc::new(Mutex::new(0));
        let half_open = || {
            let all = Arc::clone(&connections);
            connections.admit(address(1), move |of_one| async move {
                all.authenticated(of_one, pending::<Result<(), _>>()).await;
            });
        };
        for number in 0..3_000 {
            half_open();
            // Each has an address of its own, as honest peers have.
            if number % 100 == 50 {
                let (all, entered) = (Arc::clone(&connections), Arc::clone(&entered));
                let from = u8::try_from(10 + number / 100).unwrap();
                connections.admit(address(from), move |of_one| async move {
                    let handshake = async {
                        tokio::time::sleep(Duration::from_millis(900)).await;
                        Ok(())
                    };
                    if all.authenticated(of_one, handshake).await.is_some() {
                        *entered.lock().unwrap() += 1;
                    }
                });
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*entered.lock().unwrap(), 30, "all of them");
    }

    #[tokio::test]
    async fn the_oldest_unauthenticated_connection_gives_way() {
        let connections = Arc::new(Unauthenticated::default());
        let (ended, first) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        // The first one authenticates, and then stays; the others are silent.
        for _ in 0..=UNAUTHENTICATED {
            let (all, entered) = (Arc::clone(&connections), Arc::clone(&first));
            let ended = Arc::clone(&ended);
            connections.admit(address(1), |number| async move {
                let _ends = Ends(number, ended);
                if number == 0 {
                    all.authenticated(number, async { Ok(()) }).await;
                    entered.notify_one();
                    pending::<()>().await;
                }
                all.authenticated(number, pending::<Result<(), _>>()).await;
            });
            if connections.pending().next == 1 {
                first.notified().await;
            }
        }
        tokio::task::yield_now().await;
        assert!(ended.lock().unwrap().is_empty(), "64 are silent, and the first has entered");
        connections.admit(address(1), |_| pending());
        // The runtime drops an aborted task when it next gets to it.
        while ended.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*ended.lock().unwrap(), [1], "the oldest silent one");
        connections.close();
        while ended.lock().unwrap().len() <= UNAUTHENTICATED {
            tokio::task::yield_now().await;
        }
    }
}
