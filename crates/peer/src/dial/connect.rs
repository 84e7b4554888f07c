//! Attempts to open a path: several at once, each a little after the one before. The first that
//! completes its handshake wins.
//!
//! A lost SYN costs the kernel a second, and a connection whose timers have backed off misses the
//! end of a blackout; new attempts avoid both. Every second attempt announces a small segment size,
//! for lines whose real MTU is smaller than the interface's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use net::CongestionControl;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::plan::Plan;
use super::terms::Terms;
use crate::Error;
use crate::carrier::{Attempt, Carrier};
use crate::conn::{Conn, ConnError};
use crate::tls::{ClientTls, wrong_key};

/// An open connection of a path.
pub(crate) struct Opened {
    /// The connection, past its handshake.
    pub(crate) conn: Conn,
    /// The local end.
    pub(crate) local: Option<SocketAddr>,
    /// The remote end.
    pub(crate) remote: SocketAddr,
}

/// The wait before a further attempt while earlier ones are under way. It bounds the time until a
/// restored line is noticed.
const STAGGER: Duration = Duration::from_millis(400);
/// Attempts at that pace, for half a minute; later ones are rarer.
const BRISK: usize = 75;
/// The longest wait between attempts on a path that never answers.
const LONGEST_STAGGER: Duration = Duration::from_secs(5);
/// The wait of most attempts for an answer to their SYN; every fourth waits for [`PATIENCE`], for
/// lines that are merely slow.
const SYN_PATIENCE: Duration = Duration::from_secs(2);
/// The time that an attempt may take in all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Attempts under way at once.
const AT_ONCE: usize = 8;

/// Opens connections to one host.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    tls: ClientTls,
    carrier: Arc<dyn Carrier>,
    congestion_control: CongestionControl,
}

impl Connector {
    /// Connections over the carrier of `terms`, under `tls`.
    #[must_use]
    pub(crate) fn new(terms: &Terms, tls: ClientTls) -> Connector {
        let congestion_control = terms.options.congestion_control.clone();
        Connector { tls, carrier: Arc::clone(&terms.carrier), congestion_control }
    }

    /// Tries to open `plan` until it succeeds; calls `failed` with each failure.
    ///
    /// # Errors
    /// [`Error::WrongPeer`] at once when the peer at the named address holds another key; otherwise
    /// this goes on until it is dropped, or fails with the last failure after `most` of them.
    pub(crate) async fn open(
        &self,
        plan: &Arc<Plan>,
        most: Option<usize>,
        mut failed: impl FnMut(&ConnError),
    ) -> Result<Opened, Error> {
        let mut attempts = JoinSet::new();
        let mut number = 0;
        let mut failures = 0;
        let mut stagger = STAGGER;
        loop {
            if attempts.len() < AT_ONCE {
                let (connector, plan) = (self.clone(), Arc::clone(plan));
                attempts.spawn(async move { connector.attempt(&plan, number).await });
                number += 1;
            }
            tokio::select! {
                () = sleep(stagger) => {
                    if number > BRISK {
                        stagger = (stagger * 5 / 4).min(LONGEST_STAGGER);
                    }
                }
                Some(done) = attempts.join_next() => match done.expect("attempts do not panic") {
                    Ok(opened) => return Ok(opened),
                    Err((remote, error)) => {
                        tracing::debug!(path = plan.name, %remote, %error, "attempt failed");
                        if let Some(wrong) = wrong_peer(plan, remote, &error) {
                            return Err(wrong);
                        }
                        failed(&error);
                        failures += 1;
                        if most.is_some_and(|most| failures >= most) {
                            return Err(failed_at(remote, &error));
                        }
                        // A refusal comes at once; the next attempt must not.
                        if !matches!(error, ConnError::Silent(_)) {
                            sleep(stagger).await;
                        }
                    }
                },
            }
        }
    }

    /// One attempt, with small segments or with those of the interface's MTU.
    ///
    /// # Errors
    /// [`Error::WrongPeer`] when the peer at the named address holds another key,
    /// [`Error::NoPath`] for any other failure.
    pub(crate) async fn open_once(
        &self,
        plan: &Plan,
        remote: SocketAddr,
        small: bool,
    ) -> Result<Opened, Error> {
        let opened = self.attempt_at(plan, remote, SYN_PATIENCE, small).await;
        opened.map_err(|error| {
            wrong_peer(plan, remote, &error).unwrap_or_else(|| failed_at(remote, &error))
        })
    }

    async fn attempt(&self, plan: &Plan, number: usize) -> Result<Opened, (SocketAddr, ConnError)> {
        let remote = plan.remote(number);
        let syn_patience = if number.is_multiple_of(4) { PATIENCE } else { SYN_PATIENCE };
        let opened = self.attempt_at(plan, remote, syn_patience, number % 2 == 1).await;
        opened.map_err(|error| (remote, error))
    }

    async fn attempt_at(
        &self,
        plan: &Plan,
        remote: SocketAddr,
        syn_patience: Duration,
        small_segments: bool,
    ) -> Result<Opened, ConnError> {
        let attempt = Attempt {
            device: plan.device.clone(),
            local: plan.local,
            remote,
            congestion_control: self.congestion_control.clone(),
            small_segments,
        };
        let opening = async {
            let stream = timeout(syn_patience, self.carrier.connect(&attempt))
                .await
                .map_err(|_| ConnError::Silent(syn_patience))??;
            let local = stream.local_addr();
            let tls = self.tls.connection();
            let tls = tls.map_err(|error| ConnError::Io(std::io::Error::other(error)))?;
            let mut conn = Conn::new(stream, tls);
            conn.handshake().await?;
            Ok(Opened { conn, local, remote })
        };
        timeout(PATIENCE, opening).await.unwrap_or(Err(ConnError::Silent(PATIENCE)))
    }
}

fn failed_at(remote: SocketAddr, error: &ConnError) -> Error {
    Error::NoPath { to: remote.to_string(), why: error.to_string() }
}

/// The error of a wrong key at the address that the caller named. An address that the peer
/// announced may belong to another host in the local network, so a wrong key there is an ordinary
/// failure.
fn wrong_peer(plan: &Plan, remote: SocketAddr, error: &ConnError) -> Option<Error> {
    let ConnError::Tls(tls) = error else { return None };
    let found = wrong_key(tls)?;
    (remote == plan.named).then(|| Error::WrongPeer { address: remote.to_string(), found })
}
