//! Rates, and signs of life.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use units::{Rate, Span};

use super::{Pair, World, run};
use crate::{Class, Connection, Options, Route, TotalRate};

/// What all routes of the near ends have sent.
async fn sent(pairs: &[Pair; 2]) -> [u64; 2] {
    let mut sums = [0, 0];
    for (sum, pair) in sums.iter_mut().zip(pairs) {
        *sum = pair.near.stats().await.routes.iter().map(|route| route.sent.0).sum();
    }
    sums
}

/// One end sends without an end, until it or the test ends; the other one reads.
fn pour(from: Connection, to: Connection) {
    tokio::spawn(async move {
        let mut stream = from.open_stream().await.expect("it is open");
        let _ = stream.write_all(&vec![1; 64 << 20]).await;
    });
    tokio::spawn(async move {
        let mut stream = to.accept_stream().await.expect("it is opened");
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    });
}

#[test]
fn connections_share_a_rate_in_turns() {
    run(async {
        let mut world = World::default();
        let total = TotalRate::new(Some(Rate::mbit(40)));
        let options = Options { max_rate: Some(total.clone()), ..Options::default() };
        // The listening ends have it too, and send hardly more than acknowledgements.
        let pairs = [world.pair(2, options.clone()).await, world.pair(1, options).await];
        for pair in &pairs {
            pour(pair.near.clone(), pair.far.clone());
        }
        world.go_on(Span::from_millis(500)).await;
        let (before, began) = (world.until(sent(&pairs)).await, world.now());
        world.go_on(Span::from_secs(2)).await;
        let (after, time) = (world.until(sent(&pairs)).await, world.now() - began);
        let rates = [0, 1].map(|at| (after[at] - before[at]) * 8_000 / time.as_micros());
        assert!((34_000..41_000).contains(&(rates[0] + rates[1])), "{rates:?} kbit/s");
        assert!(rates.iter().all(|rate| *rate > 13_000), "{rates:?} kbit/s");
        total.set(None);
        world.go_on(Span::from_secs(1)).await;
        let free = world.until(sent(&pairs)).await.iter().sum::<u64>() - after.iter().sum::<u64>();
        assert!(free > 15_000_000, "{free} bytes in a second without a bound");
    });
}

/// Each idle route has signs of life of its own in both directions, and few of them.
#[test]
fn every_idle_route_is_kept_alive() {
    run(async {
        let mut world = World::default();
        let keep_alive = Some(Span::from_millis(400));
        let pair = world.pair(3, Options { keep_alive, ..Options::default() }).await;
        let counts = async |connection: &Connection| -> Vec<(u64, u64)> {
            let stats = connection.stats().await;
            stats.routes.iter().map(|route| (route.packets, route.datagrams)).collect()
        };
        world.go_on(Span::from_millis(1_500)).await;
        let before = world.until(counts(&pair.near)).await;
        world.go_on(Span::from_secs(4)).await;
        let after = world.until(counts(&pair.near)).await;
        assert_eq!(after.len(), 3);
        for (before, after) in before.iter().zip(&after) {
            // Ten in 4 s; each is answered over the same route.
            let (asked, datagrams) = (after.0 - before.0, after.1 - before.1);
            assert!((9..=11).contains(&asked), "{before:?} {after:?}");
            assert!((2 * asked - 1..=2 * asked + 1).contains(&datagrams), "{before:?} {after:?}");
        }
        assert!(!pair.near.has_ended() && !pair.far.has_ended());
    });
}

/// Acknowledgements of what goes over all routes go over one of them. A relay took the far side of
/// the others for one that does not answer, and let next to nothing pass.
#[test]
fn routes_with_data_in_one_direction_are_kept_alive_in_both() {
    for is_upload in [true, false] {
        run(async move {
            let mut world = World::default();
            let keep_alive = Some(Span::from_millis(400));
            let options = Options { keep_alive, ..Options::default() };
            // The first is always the fastest.
            let routes = |world: &mut World, port| {
                let delays = [1, 60, 80].map(Span::from_millis);
                delays.map(|delay| Route::to(world.line(port, Rate::mbit(5), delay))).to_vec()
            };
            let pair = world.pair_over(routes, options).await;
            let (near, far) = (pair.near.clone(), pair.far.clone());
            let (from, to) = if is_upload { (near, far) } else { (far, near) };
            pour(from, to);
            // Of each route, what the near side has sent, and what came to it.
            let counts = async |connection: &Connection| -> Vec<[u64; 2]> {
                let routes = connection.stats().await.routes;
                routes.iter().map(|one| [one.sent.0, one.received.0]).collect()
            };
            world.go_on(Span::from_secs(2)).await;
            let mut before = world.until(counts(&pair.near)).await;
            assert_eq!(before.len(), 3);
            for _ in 0..4 {
                world.go_on(Span::from_millis(900)).await;
                let after = world.until(counts(&pair.near)).await;
                for (before, after) in before.iter().zip(&after) {
                    let grown = [0, 1].map(|at| after[at] - before[at]);
                    assert!(grown.iter().all(|grown| *grown > 0), "{is_upload}: {grown:?}");
                }
                before = after;
            }
        });
    }
}

/// A route in reserve has nothing to send, and was refused no sooner than after 15 s.
#[test]
fn a_peer_whose_program_was_killed_is_missed_soon_beside_a_route_in_reserve() {
    run(async {
        let mut world = World::default();
        let max_rate = Some(TotalRate::new(Some(Rate::mbit(20))));
        let routes = |_: &mut World, port| {
            let [usual, reserve] = [1, 2].map(|host| Route::to(([127, 0, 0, host], port).into()));
            vec![usual, Route { class: Class::Reserve, ..reserve }]
        };
        let pair = world.pair_over(routes, Options { max_rate, ..Options::default() }).await;
        let (near, far) = (pair.near.clone(), pair.far.clone());
        pour(far, near);
        world.go_on(Span::from_secs(1)).await;
        assert!(!pair.near.has_ended());
        world.kill(0);
        world.go_on(Span::from_millis(3_500)).await;
        assert!(pair.near.has_ended(), "{:?}", world.now());
    });
}

/// A service that goes on keeps a stream of its own open, for news: whoever was done waited for it.
#[test]
fn streams_of_the_peer_do_not_keep_a_connection_from_being_drained() {
    run(async {
        let mut world = World::default();
        let pair = world.pair(1, Options::default()).await;
        let (near, far) = (pair.near.clone(), pair.far.clone());
        let mut news = world.until(far.open_stream()).await.expect("it is open");
        world.until(news.write_all(b"news")).await.expect("it is open");
        let heard = world.until(near.accept_stream()).await.expect("it is opened");
        let mut stream = world.until(near.open_stream()).await.expect("it is open");
        world.until(stream.write_all(&[1; 10_000])).await.expect("it is open");
        let mut drained = pin!(near.drained());
        let early = poll_fn(|cx| Poll::Ready(drained.as_mut().poll(cx).is_ready()));
        assert!(!world.until(early).await, "a stream is in use");
        world.until(stream.shutdown()).await.expect("it is open");
        drop(stream);
        let mut arrived = Vec::new();
        let mut taken = world.until(far.accept_stream()).await.expect("it is opened");
        world.until(taken.read_to_end(&mut arrived)).await.expect("it was ended");
        assert_eq!(arrived.len(), 10_000);
        drop(taken);
        world.go_on(Span::from_millis(200)).await;
        let done = poll_fn(|cx| Poll::Ready(drained.as_mut().poll(cx).is_ready()));
        assert!(done.await && !near.has_ended(), "a stream is in use");
        drop((news, heard));
    });
}

/// A task that opened a stream was ended just when the stream was there: it was in use for ever.
#[test]
fn a_stream_that_nobody_takes_ends() {
    run(async {
        let mut world = World::default();
        let pair = world.pair(1, Options::default()).await;
        let near = pair.near.clone();
        for is_served in [false, true] {
            let mut opening = Box::pin(near.open_stream());
            let polled = poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx).is_pending()));
            assert!(polled.await, "the driver has not seen it");
            if is_served {
                world.go_on(Span::from_millis(5)).await;
            }
            drop(opening);
            world.go_on(Span::from_millis(200)).await;
            let mut drained = pin!(near.drained());
            let done = poll_fn(|cx| Poll::Ready(drained.as_mut().poll(cx).is_ready()));
            assert!(done.await && !near.has_ended(), "a stream is in use");
        }
    });
}
