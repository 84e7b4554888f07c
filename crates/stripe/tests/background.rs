//! Connections in the background, between sockets of loopback: who says so, and what they share.

mod common;

use std::sync::Arc;

use common::{anywhere, listen, run};
use secure::testing::{Key, client};
use stripe::{BackgroundStats, Connection, Effort, Endpoint, Options, Route};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use units::Bytes;

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
