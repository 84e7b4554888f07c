//! Attempts to open a path between any of its candidates: several at once, each a little after the
//! one before. The first that completes its handshake wins.
//!
//! Candidates are tried best guess first, 250 ms apart (RFC 8305, 5), or at once when an attempt
//! fails; then all of them again and again. A lost SYN costs the kernel a second, and a connection
//! whose timers have backed off misses the end of a blackout; new attempts avoid both. Every second
//! attempt at a candidate announces a small segment size, for lines whose real MTU is smaller than
//! the interface's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use net::CongestionControl;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::candidate::Candidate;
use super::plan::{Plan, PlanKind, Via};
use super::terms::Terms;
use crate::carrier::{Attempt, Carrier};
use crate::conn::{Conn, ConnError};
use crate::tls::{ClientTls, wrong_key};
use crate::{Error, KeySource};

/// An open connection of a path.
pub struct Opened {
    /// The connection, past its handshake.
    pub conn: Conn,
    /// The local end.
    pub local: Option<SocketAddr>,
    /// The remote end.
    pub remote: SocketAddr,
}

/// The wait before the first attempt at another candidate (RFC 8305, 5: Connection Attempt Delay).
const BETWEEN_CANDIDATES: Duration = Duration::from_millis(250);
/// The wait before a further attempt once all candidates were tried. It bounds the time until a
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
/// Attempts under way at once, beside the first one at each candidate.
const AT_ONCE: usize = 8;

/// Opens connections to one host.
#[derive(Clone, Debug)]
pub struct Connector {
    tls: ClientTls,
    /// The host, as it was named.
    host: String,
    /// The source of the key that the host must have.
    known_from: KeySource,
    carrier: Arc<dyn Carrier>,
    /// That of paths with several routes.
    striped: Option<Arc<dyn Carrier>>,
    /// Those of paths over relays, by the number of the relay.
    relayed: BTreeMap<usize, Arc<dyn Carrier>>,
    congestion_control: CongestionControl,
}

impl Connector {
    /// Connections to the host of that number over the carrier of `terms`, under `tls`.
    #[must_use]
    pub fn new(terms: &Terms, host: usize, tls: ClientTls) -> Connector {
        let known_from = terms.to[host].1.key_source();
        let congestion_control = terms.options.congestion_control.clone();
        let relayed = terms.relayed.iter().filter(|((of, _), _)| *of == host);
        let relayed = relayed.map(|((_, relay), carrier)| (*relay, Arc::clone(carrier)));
        Connector {
            tls,
            host: terms.to[host].0.to_string(),
            known_from,
            carrier: Arc::clone(&terms.carrier),
            striped: terms.striped.get(&host).cloned(),
            relayed: relayed.collect(),
            congestion_control,
        }
    }

    /// Tries to open `plan` until it succeeds; calls `failed` with each failure. Candidates that
    /// the plan learns of meanwhile are tried at once.
    ///
    /// # Errors
    /// [`Error::WrongPeer`] when hosts with another key answer at all candidates; otherwise this
    /// goes on until it is dropped, or fails with the last failure after `most` of them.
    pub async fn open(
        &self,
        plan: &Arc<Plan>,
        most: Option<usize>,
        mut failed: impl FnMut(&ConnError),
    ) -> Result<Opened, Error> {
        let mut attempts = JoinSet::new();
        let mut tried = Tried::default();
        let mut failures = 0;
        let mut stagger = STAGGER;
        let mut next = Instant::now();
        loop {
            let changed = plan.changed();
            let candidates = plan.candidates();
            let is_first = tried.has_untried(&candidates);
            let may_start = is_first || (attempts.len() < AT_ONCE && tried.has_any(&candidates));
            tokio::select! {
                () = sleep_until(next), if may_start => {
                    let (candidate, number) = tried.next(&candidates);
                    let connector = self.of(plan);
                    let device = plan.device.clone();
                    attempts.spawn(async move {
                        let opened = connector.attempt(device, candidate, number).await;
                        opened.map_err(|error| (candidate, error))
                    });
                    if tried.total > BRISK {
                        stagger = (stagger * 5 / 4).min(LONGEST_STAGGER);
                    }
                    let more = tried.has_untried(&candidates);
                    next = Instant::now() + if more { BETWEEN_CANDIDATES } else { stagger };
                }
                // A better guess does not wait for the others.
                () = changed => if tried.has_untried(&plan.candidates()) {
                    next = Instant::now();
                },
                Some(done) = attempts.join_next() => match done.expect("attempts do not panic") {
                    Ok((opened, candidate)) => {
                        plan.prefer(candidate);
                        return Ok(opened);
                    }
                    Err((candidate, error)) => {
                        let remote = candidate.remote;
                        tracing::debug!(path = plan.name, %remote, %error, "attempt failed");
                        failed(&error);
                        failures += 1;
                        if let Some(wrong) = self.wrong_peer(plan, candidate, &error) {
                            tried.wrong.push(candidate);
                            if !tried.has_any(&plan.candidates()) {
                                return Err(wrong);
                            }
                        }
                        if most.is_some_and(|most| failures >= most) {
                            return Err(failed_at(remote, &error));
                        }
                        if tried.has_untried(&candidates) {
                            next = Instant::now();
                        } else if !matches!(error, ConnError::Silent(_)) {
                            // A refusal comes at once; the next attempt must not.
                            next = Instant::now() + stagger;
                        }
                    }
                },
            }
        }
    }

    /// The same with the carrier of this plan.
    fn of(&self, plan: &Plan) -> Connector {
        let mut connector = self.clone();
        if plan.kind == PlanKind::Striped
            && let Some(striped) = &self.striped
        {
            connector.carrier = Arc::clone(striped);
        }
        if let Via::Relay(relay) = plan.via
            && let Some(over_relay) = self.relayed.get(&relay)
        {
            connector.carrier = Arc::clone(over_relay);
        }
        connector
    }

    /// One attempt, with small segments or with those of the interface's MTU.
    ///
    /// # Errors
    /// [`Error::WrongPeer`] when the peer at the named address holds another key,
    /// [`Error::NoPath`] for any other failure.
    pub async fn open_once(
        &self,
        plan: &Plan,
        candidate: Candidate,
        small: bool,
    ) -> Result<Opened, Error> {
        let connector = self.of(plan);
        let device = plan.device.clone();
        let opened = connector.attempt_at(device, candidate, SYN_PATIENCE, small).await;
        opened.map_err(|error| {
            self.wrong_peer(plan, candidate, &error)
                .unwrap_or_else(|| failed_at(candidate.remote, &error))
        })
    }

    /// The error of a wrong key at an address that the caller named. An address that the peer
    /// announced may belong to another host in the local network, so a wrong key there is an
    /// ordinary failure; so is one behind a relay, whose word decides who answers.
    fn wrong_peer(&self, plan: &Plan, candidate: Candidate, error: &ConnError) -> Option<Error> {
        let ConnError::Tls(tls) = error else { return None };
        let found = wrong_key(tls)?;
        let (address, known_from) = (candidate.remote.to_string(), self.known_from);
        let host = self.host.clone();
        let is_sure = candidate.named && plan.via == Via::Direct;
        is_sure.then_some(Error::WrongPeer { host, address, found, known_from })
    }

    async fn attempt(
        &self,
        device: Option<String>,
        candidate: Candidate,
        number: usize,
    ) -> Result<(Opened, Candidate), ConnError> {
        let syn_patience = if number.is_multiple_of(4) { PATIENCE } else { SYN_PATIENCE };
        let opened = self.attempt_at(device, candidate, syn_patience, number % 2 == 1).await?;
        Ok((opened, candidate))
    }

    async fn attempt_at(
        &self,
        device: Option<String>,
        Candidate { local, remote, .. }: Candidate,
        syn_patience: Duration,
        small_segments: bool,
    ) -> Result<Opened, ConnError> {
        let attempt = Attempt {
            device,
            local,
            remote,
            congestion_control: self.congestion_control.clone(),
            small_segments,
        };
        let opening = async {
            let stream = timeout(syn_patience, self.carrier.connect(&attempt))
                .await
                .map_err(|_| ConnError::Silent(syn_patience))??;
            let local = stream.local_addr();
            let mut conn = match stream.peer_key() {
                // The carrier has verified that it is the key that is wanted.
                Some(key) => Conn::over_carrier(stream, key),
                None => Conn::new(stream, self.tls.connection().map_err(std::io::Error::other)?),
            };
            conn.handshake().await?;
            Ok(Opened { conn, local, remote })
        };
        timeout(PATIENCE, opening).await.unwrap_or(Err(ConnError::Silent(PATIENCE)))
    }
}

fn failed_at(remote: SocketAddr, error: &ConnError) -> Error {
    Error::NoPath { to: remote.to_string(), why: error.to_string() }
}

/// The attempts at each candidate.
#[derive(Default)]
struct Tried {
    counts: Vec<(Candidate, usize)>,
    /// The candidate of the last attempt.
    last: Option<Candidate>,
    /// All attempts.
    total: usize,
    /// Candidates at which another host answers.
    wrong: Vec<Candidate>,
}

impl Tried {
    fn count(&self, candidate: &Candidate) -> usize {
        self.counts.iter().find(|(known, _)| known == candidate).map_or(0, |(_, count)| *count)
    }

    fn possible<'a>(&self, all: &'a [Candidate]) -> impl Iterator<Item = &'a Candidate> {
        all.iter().filter(|candidate| !self.wrong.contains(candidate))
    }

    /// Whether there is a candidate to try.
    fn has_any(&self, all: &[Candidate]) -> bool {
        self.possible(all).next().is_some()
    }

    /// Whether a candidate was not tried yet.
    fn has_untried(&self, all: &[Candidate]) -> bool {
        self.possible(all).any(|candidate| self.count(candidate) == 0)
    }

    /// The candidate of the next attempt, and the number of attempts at it before. Once every
    /// candidate was tried, every second attempt is at the best guess: it is the pair that worked,
    /// if any did, and its line may be restored.
    ///
    /// # Panics
    /// Without a candidate to try.
    fn next(&mut self, all: &[Candidate]) -> (Candidate, usize) {
        let best = *self.possible(all).next().expect("the caller has checked that there is one");
        let is_others_turn = self.has_untried(all) || self.last == Some(best);
        let others = self.possible(all).filter(|other| self.last != Some(best) || **other != best);
        let other = others.min_by_key(|candidate| self.count(candidate)).filter(|_| is_others_turn);
        let candidate = other.copied().unwrap_or(best);
        let number = self.count(&candidate);
        self.counts.retain(|(known, _)| *known != candidate);
        self.counts.push((candidate, number + 1));
        self.last = Some(candidate);
        self.total += 1;
        (candidate, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(octet: u8, named: bool) -> Candidate {
        let remote = SocketAddr::from(([192, 0, 2, octet], 7707));
        Candidate { local: [192, 0, 2, 1].into(), remote, named, near: false }
    }

    #[test]
    fn every_candidate_is_tried_before_one_is_tried_again() {
        let all @ [a, b, c] = [2, 3, 4].map(|octet| candidate(octet, true));
        let mut tried = Tried::default();
        let order: Vec<_> = (0..7).map(|_| tried.next(&all)).collect();
        assert_eq!(order, [(a, 0), (b, 0), (c, 0), (a, 1), (b, 1), (a, 2), (c, 1)]);
        assert!(!tried.has_untried(&all));
    }

    #[test]
    fn a_better_guess_is_next_and_a_wrong_host_is_not_tried_again() {
        let (guess, better) = (candidate(2, true), candidate(3, false));
        let mut tried = Tried::default();
        assert_eq!(tried.next(&[guess]), (guess, 0));
        assert_eq!(tried.next(&[better, guess]), (better, 0));
        assert_eq!(tried.next(&[better, guess]), (guess, 1));
        assert_eq!(tried.next(&[better, guess]), (better, 1));
        tried.wrong.push(better);
        assert_eq!(tried.next(&[better, guess]), (guess, 2));
        tried.wrong.push(guess);
        assert!(!tried.has_any(&[better, guess]));
    }
}
