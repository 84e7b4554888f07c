//! Paths that a guest doubts.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};

use units::{Span, SubflowId, Time};

use super::{World, run};
use crate::{Class, Connection, ConnectionKey, Guest, Options, RawArrival, RawDatagram, RawPath};

/// How often it doubts.
const DOUBTS: u32 = 30;
/// After so long each time.
const EACH: Span = Span::from_millis(20);

/// Doubts the first of its paths so often.
#[derive(Clone, Default)]
struct Doubts {
    left: Arc<Mutex<u32>>,
    paths: Arc<Mutex<Vec<(ConnectionKey, SubflowId)>>>,
}

impl Doubts {
    fn paths(&self) -> usize {
        self.paths.lock().expect("no panic").len()
    }
}

/// Has nothing to send.
struct Doubtful {
    idle: UnixDatagram,
    doubts: Doubts,
    at: Time,
    doubted: Option<(ConnectionKey, SubflowId)>,
}

impl Guest for Doubtful {
    fn source(&self) -> BorrowedFd<'_> {
        self.idle.as_fd()
    }

    fn handle_readable(&mut self, _: Time) {}

    fn handle_raw(&mut self, _: Time, _: &RawArrival, _: &[u8]) {}

    fn handle_paths(&mut self, _: Time, connection: ConnectionKey, paths: &[RawPath]) {
        let paths = paths.iter().map(|path| (connection, path.path)).collect();
        *self.doubts.paths.lock().expect("no panic") = paths;
    }

    fn handle_deadline(&mut self, now: Time) {
        self.at = now + EACH;
        let mut left = self.doubts.left.lock().expect("no panic");
        if let Some(fewer) = left.checked_sub(1) {
            *left = fewer;
            self.doubted = self.doubts.paths.lock().expect("no panic").first().copied();
        }
    }

    fn poll_deadline(&self) -> Option<Time> {
        Some(self.at)
    }

    fn poll_doubt(&mut self) -> Option<(ConnectionKey, SubflowId)> {
        self.doubted.take()
    }

    fn poll_raw(&mut self, _: Time) -> Option<RawDatagram> {
        None
    }
}

/// Beside a path in reserve the peer is asked over a path that the guest doubts, each time.
#[test]
fn the_peer_is_asked_over_a_path_that_is_doubted_if_there_is_one_in_reserve() {
    run(async {
        let mut world = World::default();
        let pair = world.pair(2, Options::default()).await;
        let (idle, _other) = UnixDatagram::pair().expect("there are descriptors");
        let (doubts, at, doubted) = (Doubts::default(), Time::ZERO, None);
        let guest = Doubtful { idle, doubts: doubts.clone(), at, doubted };
        let attaching = pair.endpoints[0].attach(Box::new(guest));
        world.until(attaching).await.expect("it can be waited for");
        pair.near.entrust();
        // Of the first route, packets that were sent, and datagrams in both directions, while it
        // is doubted.
        let counts = async |connection: &Connection| {
            let stats = connection.stats().await;
            let route = &stats.routes[0];
            (route.packets, route.datagrams)
        };
        let doubted = async |world: &mut World| {
            let before = world.until(counts(&pair.near)).await;
            *doubts.left.lock().expect("no panic") = DOUBTS;
            world.go_on(EACH * u64::from(DOUBTS + 1)).await;
            let after = world.until(counts(&pair.near)).await;
            (after.0 - before.0, after.1 - before.1)
        };
        // Sizes have been tried by then.
        world.go_on(Span::from_secs(3)).await;
        assert_eq!(doubts.paths(), 2);
        let without = doubted(&mut world).await;
        assert!(without.1 <= 4, "{without:?}");
        let second = world.until(pair.near.stats()).await.routes[1].route;
        pair.near.set_class(second, Class::Reserve);
        world.go_on(Span::from_secs(1)).await;
        assert_eq!(doubts.paths(), 1);
        let (asked, datagrams) = doubted(&mut world).await;
        let times = u64::from(DOUBTS);
        assert!((times..times + 10).contains(&asked), "{asked}");
        // An answer waits for 25 ms, and may be that to two questions.
        let answers = datagrams - asked;
        assert!((times / 2..=asked).contains(&answers), "{asked}, {answers}");
    });
}
