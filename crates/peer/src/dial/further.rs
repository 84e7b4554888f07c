//! Further connections of a path, beside the one that it began with.
//!
//! One connection carries no more than its socket buffers hold in each round trip. The session
//! knows from its counters when that is less than the path carries; it asks here, and the
//! supervisor of the path opens another connection from the same local to the same remote address.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::conn::Conn;

/// The most connections of one path.
pub const MOST_CONNECTIONS: usize = 16;
/// The most further connections of all paths of a session. With the first connection of each path,
/// and those that a listening host has not yet given up, they stay below its own bound,
/// [`crate::listen::MOST_CONNECTIONS`].
pub(super) const MOST_FURTHER: usize = 48;

/// A connection that joined a path.
pub struct Joined<M> {
    /// The connection.
    pub conn: Conn,
    /// Its state in the session, as of a path's first connection.
    pub member: M,
    /// Its place among the further connections of the session, until dropped.
    pub place: Place,
}

/// A place among the further connections of a session, until dropped.
#[derive(Debug)]
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

/// The end of the session: asks for further connections of a path and takes them.
pub struct Further<M> {
    wishes: mpsc::UnboundedSender<()>,
    outcomes: mpsc::UnboundedReceiver<Result<Joined<M>, String>>,
    pending: usize,
}

/// The end of the supervisor: opens the connections that the session asks for.
pub(super) struct Opening<M> {
    wishes: mpsc::UnboundedReceiver<()>,
    outcomes: mpsc::UnboundedSender<Result<Joined<M>, String>>,
}

/// The two ends of a path's further connections.
pub(super) fn further<M>() -> (Further<M>, Opening<M>) {
    let (wish, wishes) = mpsc::unbounded_channel();
    let (outcome, outcomes) = mpsc::unbounded_channel();
    let further = Further { wishes: wish, outcomes, pending: 0 };
    (further, Opening { wishes, outcomes: outcome })
}

impl<M> Further<M> {
    /// Asks for another connection. [`Further::next`] returns it, or the reason why there is none.
    pub fn ask(&mut self) {
        // A supervisor that has gone drops this session too.
        if self.wishes.send(()).is_ok() {
            self.pending += 1;
        }
    }

    /// The number of connections asked for that [`Further::next`] has not returned.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Waits for a connection that was asked for; without any, for ever. Dropping the future loses
    /// none.
    ///
    /// # Errors
    /// The reason why one did not open or join, as a clause.
    pub async fn next(&mut self) -> Result<Joined<M>, String> {
        if self.pending == 0 {
            return std::future::pending().await;
        }
        let Some(outcome) = self.outcomes.recv().await else {
            self.pending = 0;
            return Err("the path is over".into());
        };
        self.pending -= 1;
        outcome
    }
}

impl<M: Send + 'static> Opening<M> {
    /// Opens a connection for each wish, several at once, as long as `places` has any. Dropping the
    /// future ends the attempts.
    pub(super) async fn serve<F>(
        mut self,
        places: Arc<Semaphore>,
        open: impl Fn() -> F,
    ) -> Infallible
    where
        F: Future<Output = Result<(Conn, M), String>> + Send + 'static,
    {
        let mut attempts = JoinSet::new();
        loop {
            tokio::select! {
                wish = self.wishes.recv() => {
                    if wish.is_none() {
                        return std::future::pending().await;
                    }
                    let Ok(permit) = Arc::clone(&places).try_acquire_owned() else {
                        self.tell(Err("the session has as many connections as it may".into()));
                        continue;
                    };
                    let opened = open();
                    attempts.spawn(async move {
                        let (conn, member) = opened.await?;
                        Ok(Joined { conn, member, place: Place { _permit: permit } })
                    });
                }
                Some(outcome) = attempts.join_next() => {
                    self.tell(outcome.expect("attempts do not panic"));
                }
            }
        }
    }

    fn tell(&self, outcome: Result<Joined<M>, String>) {
        // A session that has gone wants none.
        let _ = self.outcomes.send(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wish_that_cannot_be_granted_is_answered() {
        let (mut further, opening) = further::<()>();
        let places = Arc::new(Semaphore::new(1));
        let opening = tokio::spawn(
            opening.serve(Arc::clone(&places), || async { Err("connection refused".into()) }),
        );
        further.ask();
        let answer = further.next().await;
        assert_eq!(answer.map(|_| ()), Err("connection refused".into()));
        assert_eq!(places.available_permits(), 1, "a failed attempt keeps no place");
        places.forget_permits(1);
        further.ask();
        assert_eq!(further.pending(), 1);
        let answer = further.next().await.map(|_| ()).expect_err("no place is left");
        assert!(answer.contains("as many connections"), "{answer}");
        assert_eq!(further.pending(), 0);
        opening.abort();
    }
}
