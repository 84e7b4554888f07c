//! Connections in the background, between sockets of loopback: who says so, and what they share.

mod common;

use std::sync::Arc;

use common::{anywhere, listen, run};
use secure::testing::{Key, client};
use stripe::{BackgroundStats, Connection, Effort, Endpoint, Options, Route, RouteState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use units::{Bytes, PathId};

fn options(effort: Effort) -> Options {
    let mut options = Options::default();
    options.config.effort = effort;
    options
}

/// What both ends of a connection know of the background, after bytes that went there and back.
async fn known(near: &Connection, far: &Connection) -> [Option<BackgroundStats>; 2] {
    far.admit(Bytes::mib(8));
    let stream = near.open_stream().await.expect("it is open");
    let (mut sending, mut receiving) = stream.split();
    let there = async {
        sending.write_all(&vec![1; 200_000]).await.expect("it is open");
        sending.shutdown().await.expect("it is open");
        let mut back = Vec::new();
        receiving.read_to_end(&mut back).await.expect("it is whole");
        assert_eq!(back.len(), 200_000);
    };
    let back = async {
        let stream = far.accept_stream().await.expect("it comes");
        let (mut sending, mut receiving) = stream.split();
        tokio::io::copy(&mut receiving, &mut sending).await.expect("it is whole");
        sending.shutdown().await.expect("it is open");
    };
    tokio::join!(there, back);
    let stats = tokio::join!(near.stats(), far.stats());
    [stats.0, stats.1].map(|stats| stats.routes[0].background)
}

#[test]
fn one_end_that_is_in_the_background_is_enough() {
    use Effort::{Lower, LowerUnmarked, Usual};
    for (near, far) in [(Usual, Usual), (Lower, Usual), (Usual, LowerUnmarked), (Lower, Lower)] {
        run(async move {
            let (listening, key) = listen(&anywhere(), options(far));
            let endpoint = Endpoint::new().expect("there are threads");
            let tls = Arc::new(client(&Key::generate(), &key));
            let to = Route::to(listening.local_addresses()[0]);
            let dialing = endpoint.connect(vec![to], &tls, options(near));
            let (dialed, accepted) = tokio::join!(dialing, listening.accept());
            let (dialed, accepted) = (dialed.expect("it answers"), accepted.expect("it listens"));
            let agreed = [&dialed, &accepted].map(|end| end.effort().is_background());
            let found = known(&dialed, &accepted).await.map(|stats| stats.is_some());
            assert_eq!(agreed, found, "{near:?}, {far:?}");
            assert_eq!(found, [near != Usual || far != Usual; 2], "{near:?}, {far:?}");
        });
    }
}

/// The second connection knows the best rate before it has moved enough to find one.
#[test]
fn what_a_line_carries_is_known_to_the_next_connection() {
    run(async {
        let (listening, key) = listen(&anywhere(), Options::default());
        let endpoint = Endpoint::new().expect("there are threads");
        let (own, options) = (Key::generate(), options(Effort::Lower));
        let tls = Arc::new(client(&own, &key));
        let to = Route::to(listening.local_addresses()[0]);
        let connect = || async {
            let dialing = endpoint.connect(vec![to.clone()], &tls, options.clone());
            let (dialed, accepted) = tokio::join!(dialing, listening.accept());
            (dialed.expect("it answers"), accepted.expect("it listens"))
        };
        let (first, far) = connect().await;
        let [learnt, _] = known(&first, &far).await;
        let learnt = learnt.expect("it is in the background");
        first.close(0);
        first.parted().await;
        let (second, _far) = connect().await;
        let begun = second.stats().await.routes[0].background.expect("it is in the background");
        assert!(begun.best.is_some() && begun.best == learnt.best, "{learnt:?}, {begun:?}");
        assert!(begun.queue >= learnt.queue, "{learnt:?}, {begun:?}");
    });
}

/// Two routes between addresses of loopback, as far as both ends know them.
async fn two_routes(far: Options, is_background: bool) -> (Endpoint, Connection, Connection) {
    let (listening, key) = listen(&anywhere(), far);
    let endpoint = Endpoint::new().expect("there are threads");
    let tls = Arc::new(client(&Key::generate(), &key));
    let remote = listening.local_addresses()[0];
    let quiet = Route { path: PathId(1), is_background, ..Route::to(remote) };
    let dialing = endpoint.connect(vec![Route::to(remote), quiet], &tls, Options::default());
    let (dialed, accepted) = tokio::join!(dialing, listening.accept());
    let (dialed, accepted) = (dialed.expect("it answers"), accepted.expect("it listens"));
    // The listener lives as long as its endpoint.
    std::mem::forget(listening);
    (endpoint, dialed, accepted)
}

/// Which routes of an end are in the background, once both are open.
async fn in_background(end: &Connection) -> Vec<bool> {
    for _ in 0..400 {
        let routes = end.stats().await.routes;
        if routes.len() == 2 && routes.iter().all(|route| route.state == RouteState::Open) {
            return routes.iter().map(|route| route.background.is_some()).collect();
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("a route has not opened")
}

#[test]
fn a_connection_goes_into_the_background_while_it_carries_data() {
    run(async {
        let (_endpoint, near, far) = two_routes(Options::default(), false).await;
        let before = known(&near, &far).await;
        assert_eq!(before, [None, None], "neither end said anything");
        assert_eq!(in_background(&far).await, [false; 2]);
        far.set_effort(Effort::LowerUnmarked);
        let after = known(&near, &far).await;
        assert!(after[0].is_none() && after[1].is_some(), "{after:?}");
        assert_eq!(in_background(&far).await, [true; 2]);
        assert_eq!([near.effort(), far.effort()], [Effort::Usual, Effort::LowerUnmarked]);
        // There is no way back.
        far.set_effort(Effort::Usual);
        assert_eq!(in_background(&far).await, [true; 2]);
        near.set_effort(Effort::Lower);
        assert_eq!(in_background(&near).await, [true; 2]);
        assert!(known(&near, &far).await.iter().all(Option::is_some));
    });
}

#[test]
fn one_path_of_a_connection_is_in_the_background_at_both_ends() {
    run(async {
        let (_endpoint, near, far) = two_routes(Options::default(), true).await;
        assert_eq!(in_background(&near).await, [false, true]);
        assert_eq!(in_background(&far).await, [false; 2], "it was not told");
        let standings = near.standings().borrow().clone();
        assert_eq!(standings.iter().filter(|standing| standing.is_background).count(), 1);
        far.follow_standings(standings);
        assert_eq!(in_background(&far).await, [false, true]);
        assert_eq!([near.effort(), far.effort()], [Effort::Usual; 2]);
        known(&near, &far).await;
    });
}
