//! Guests of the endpoints' threads: raw datagrams under the keys of a connection.

mod common;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{pair, run};
use stripe::{Class, ConnectionKey, Guest, Options, RawArrival, RawDatagram, RawPath};
use tokio::time::sleep;
use units::{Span, Time};

/// What the test sees of a guest.
#[derive(Clone, Debug, Default)]
struct Seen {
    paths: Vec<(ConnectionKey, Vec<RawPath>)>,
    arrived: Vec<RawArrival>,
    ticks: u32,
}

/// Sends what it reads to the peer of the connection that it was told of last, and writes what
/// arrives once all of it has.
struct Shuttle {
    socket: UnixDatagram,
    seen: Arc<Mutex<Seen>>,
    to: Option<(ConnectionKey, RawPath)>,
    waiting: VecDeque<RawDatagram>,
    /// What has arrived and is not written yet.
    kept: Vec<Vec<u8>>,
    tick_at: Time,
}

impl Shuttle {
    /// A guest, and the other end of its socket.
    fn new() -> (Shuttle, UnixDatagram, Arc<Mutex<Seen>>) {
        let (socket, other) = UnixDatagram::pair().expect("there are descriptors");
        socket.set_nonblocking(true).expect("it is a socket");
        other.set_read_timeout(Some(Duration::from_secs(20))).expect("it is a socket");
        let seen = Arc::<Mutex<Seen>>::default();
        let (to, waiting, kept, tick_at) = (None, VecDeque::new(), Vec::new(), Time::ZERO);
        let known = Arc::clone(&seen);
        (Shuttle { socket, seen: known, to, waiting, kept, tick_at }, other, seen)
    }
}

impl Guest for Shuttle {
    fn source(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn handle_readable(&mut self, _: Time) {
        let mut buffer = [0; 2_000];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            let Some((connection, RawPath { path, .. })) = self.to else { continue };
            let payload = buffer[..length].to_vec();
            let is_ecn_capable = false;
            self.waiting.push_back(RawDatagram { connection, path, is_ecn_capable, payload });
        }
    }

    fn handle_raw(&mut self, _: Time, arrival: &RawArrival, payload: &[u8]) {
        self.seen.lock().expect("no panic").arrived.push(*arrival);
        self.kept.push(payload.to_vec());
    }

    fn handle_batch(&mut self) {
        for payload in self.kept.drain(..) {
            // The test may read slowly.
            let _ = self.socket.send(&payload);
        }
    }

    fn handle_paths(&mut self, _: Time, connection: ConnectionKey, paths: &[RawPath]) {
        self.to = paths.first().map(|path| (connection, *path));
        self.seen.lock().expect("no panic").paths.push((connection, paths.to_vec()));
    }

    fn handle_deadline(&mut self, now: Time) {
        self.seen.lock().expect("no panic").ticks += 1;
        self.tick_at = now + Span::from_millis(20);
    }

    fn poll_deadline(&self) -> Option<Time> {
        Some(self.tick_at)
    }

    fn poll_raw(&mut self, _: Time) -> Option<RawDatagram> {
        self.waiting.pop_front()
    }
}

/// Waits until the condition holds, for the time of [`run`] at most.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn guests_exchange_datagrams_under_the_keys_of_an_entrusted_connection() {
    run(async {
        let pair = pair(1, Options::default()).await;
        let (near, near_end, seen) = Shuttle::new();
        let (far, far_end, far_seen) = Shuttle::new();
        pair.dialing.attach(Box::new(near)).await.expect("it can be waited for");
        pair.listening.attach(Box::new(far)).await.expect("it can be waited for");
        // Before anybody is told of a path nothing is sent.
        assert!(seen.lock().expect("no panic").paths.is_empty());
        pair.near.entrust();
        pair.far.entrust();
        let is_told = |seen: &Mutex<Seen>| !seen.lock().expect("no panic").paths.is_empty();
        until(|| is_told(&seen) && is_told(&far_seen)).await;
        let told = seen.lock().expect("no panic").clone();
        let (key, paths) = &told.paths[0];
        assert_eq!(*key, pair.near.key());
        assert!(paths[0].room >= 1_150, "{paths:?}");
        for size in [1_usize, 600, 1_150] {
            near_end.send(&vec![7; size]).expect("the guest is there");
            let mut buffer = [0; 2_000];
            assert_eq!(far_end.recv(&mut buffer).expect("it arrives"), size);
            assert!(buffer[..size].iter().all(|octet| *octet == 7));
            far_end.send(&buffer[..size]).expect("the guest is there");
            assert_eq!(near_end.recv(&mut buffer).expect("it is answered"), size);
        }
        let arrived = seen.lock().expect("no panic").arrived.clone();
        assert!(arrived.len() == 3 && arrived.iter().all(|one| one.connection == *key));
        until(|| seen.lock().expect("no panic").ticks > 3).await;
        // The end of the connection is the end of its paths.
        pair.near.close(0);
        until(|| {
            let seen = seen.lock().expect("no panic");
            seen.paths.last().is_some_and(|(_, paths)| paths.is_empty())
        })
        .await;
    });
}

/// Of two paths, those that are not in reserve; both while both are.
#[test]
fn a_guest_is_told_of_paths_in_reserve_while_there_is_no_other() {
    run(async {
        let pair = pair(2, Options::default()).await;
        let (near, _end, seen) = Shuttle::new();
        pair.dialing.attach(Box::new(near)).await.expect("it can be waited for");
        pair.near.entrust();
        let told = || {
            let seen = seen.lock().expect("no panic");
            let paths = seen.paths.last().map_or(&[][..], |(_, paths)| paths);
            paths.iter().map(|path| path.path).collect::<Vec<_>>()
        };
        until(|| told().len() == 2).await;
        let both = told();
        let routes = pair.near.stats().await.routes;
        let class = |at: usize, class| pair.near.set_class(routes[at].route, class);
        class(1, Class::Reserve);
        until(|| told() == both[..1]).await;
        class(0, Class::Reserve);
        until(|| told() == both).await;
        class(1, Class::Usual);
        until(|| told() == both[1..]).await;
    });
}

#[test]
fn datagrams_of_connections_that_are_not_entrusted_are_ignored() {
    run(async {
        let pair = pair(1, Options::default()).await;
        let (near, near_end, _) = Shuttle::new();
        let (far, far_end, seen) = Shuttle::new();
        pair.dialing.attach(Box::new(near)).await.expect("it can be waited for");
        pair.listening.attach(Box::new(far)).await.expect("it can be waited for");
        pair.near.entrust();
        far_end.set_read_timeout(Some(Duration::from_millis(300))).expect("it is a socket");
        for _ in 0..20 {
            near_end.send(b"for nobody").expect("the guest is there");
            sleep(Duration::from_millis(10)).await;
        }
        assert!(far_end.recv(&mut [0; 100]).is_err(), "it arrived");
        assert!(seen.lock().expect("no panic").arrived.is_empty());
        // The connection carries on.
        let stream = pair.near.open_stream().await.expect("it is open");
        drop(stream);
        pair.far.accept_stream().await.expect("it is open");
    });
}

/// A burst larger than what a connection takes at once.
#[test]
fn a_burst_of_datagrams_arrives() {
    run(async {
        let pair = pair(1, Options::default()).await;
        let (near, near_end, told) = Shuttle::new();
        let (far, _far_end, seen) = Shuttle::new();
        pair.dialing.attach(Box::new(near)).await.expect("it can be waited for");
        pair.listening.attach(Box::new(far)).await.expect("it can be waited for");
        pair.near.entrust();
        pair.far.entrust();
        let is_told = |seen: &Mutex<Seen>| !seen.lock().expect("no panic").paths.is_empty();
        until(|| is_told(&told) && is_told(&seen)).await;
        let sending = tokio::task::spawn_blocking(move || {
            for _ in 0..400 {
                near_end.send(&[7; 1_000]).expect("the guest is there");
            }
        });
        sending.await.expect("no panic");
        until(|| seen.lock().expect("no panic").arrived.len() == 400).await;
    });
}
