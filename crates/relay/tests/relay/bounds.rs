//! What keys may have of a relay: shares of its rate, caps, connections.

use super::*;

/// Two keys, one with eight connections: each has a half, and one that was idle has its first byte
/// soon.
#[test]
fn a_rate_is_divided_among_keys_and_not_among_connections() {
    run(async {
        let keys = [identity(), identity(), identity()];
        let peers = keys.iter().map(|own| entry(own, LOOPBACK, &[])).collect();
        let rate = (Some(Rate::mbit(40)), None);
        let relay = Relay::with(identity(), 0, peers, None, rate).await;
        let (listener, target) = destination().await;
        let mut sinks = tokio::task::JoinSet::new();
        for (own, connections) in keys[..2].iter().zip([1, 8]) {
            let client = relay.client(own);
            for _ in 0..connections {
                let (mut near, mut far) = open(&client, &relay, (&listener, &target)).await;
                greet(&mut near, &mut far).await;
                sinks.spawn(async move {
                    let writing = async { while near.write_all(&[1; 16_000]).await.is_ok() {} };
                    let mut buffer = vec![0; 65_536];
                    let reading =
                        async { while far.read(&mut buffer).await.is_ok_and(|n| n > 0) {} };
                    tokio::join!(writing, reading);
                });
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let moved = || -> Vec<u64> {
            let all = relay.service.figures();
            let of = |own: &Identity| all.iter().find(|one| one.fingerprint == own.fingerprint());
            keys[..2].iter().map(|own| of(own).unwrap().up).collect()
        };
        let (before, begin) = (moved(), tokio::time::Instant::now());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let rates: Vec<f64> = moved()
            .iter()
            .zip(before)
            .map(|(now, before)| {
                Bytes(now - before).as_f64() * 8e-6 / begin.elapsed().as_secs_f64()
            })
            .collect();
        let [one, eight] = rates[..] else { panic!("{rates:?}") };
        assert!((one / eight - 1.0).abs() < 0.1, "{rates:?} Mbit/s");
        assert!((20.0..42.0).contains(&(one + eight)), "{rates:?} Mbit/s");
        let idle = relay.client(&keys[2]);
        let (mut near, mut far) = open(&idle, &relay, (&listener, &target)).await;
        let asked = tokio::time::Instant::now();
        greet(&mut near, &mut far).await;
        let waited = asked.elapsed();
        assert!(waited < Duration::from_millis(200), "{waited:?}");
    });
}

#[test]
fn a_key_has_a_bound_and_a_monthly_cap_of_its_own() {
    run(async {
        let (own, other) = (identity(), identity());
        let cap = [(&relay::rights::RIGHTS[1], "8MB/month")];
        let peers = vec![entry(&own, LOOPBACK, &cap), bounded(&other, "8mbit")];
        let usage = tempfile::tempdir().unwrap();
        let relay = Relay::with(identity(), 0, peers, None, (None, Some(usage.path()))).await;
        let (listener, target) = destination().await;
        let (client, slow) = (relay.client(&own), relay.client(&other));
        let (mut near, mut far) = open(&slow, &relay, (&listener, &target)).await;
        let begin = tokio::time::Instant::now();
        let writing = async { near.write_all(&vec![1; 1_000_000]).await.unwrap() };
        let reading = async { far.read_exact(&mut vec![0; 1_000_000]).await.unwrap() };
        // The destination says nothing: within the patience for its first octet.
        tokio::join!(writing, reading);
        let took = begin.elapsed();
        assert!((900..1_500).contains(&took.as_millis()), "{took:?} for a second's worth");
        // What was moved is counted once a second.
        let (mut near, mut far) = open(&client, &relay, (&listener, &target)).await;
        greet(&mut near, &mut far).await;
        let writing = async { while near.write_all(&[1; 16_000]).await.is_ok() {} };
        let mut buffer = vec![0; 65_536];
        let reading = async {
            while far.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
            far.shutdown().await
        };
        let _ = tokio::join!(writing, reading);
        let refused = loop {
            if let Err(refused) = client.open(&relay.attempt(), &target).await {
                break refused;
            }
        };
        assert!(refused.to_string().contains("cap of 8.0 MB a month for this host"), "{refused}");
        let file = usage.path().join(own.fingerprint().to_string());
        assert!(std::fs::read_to_string(file).unwrap().contains("20"), "a line of this month");
    });
}

/// A destination that accepts and says nothing is given up, and holds nobody else up.
#[test]
fn half_open_connections_of_one_key_leave_others_theirs() {
    run(async {
        let (own, other) = (identity(), identity());
        let peers = vec![entry(&own, LOOPBACK, &[]), entry(&other, LOOPBACK, &[])];
        let relay = Relay::start(peers).await;
        let (listener, target) = destination().await;
        let client = relay.client(&own);
        let mut held = Vec::new();
        for _ in 0..HALF_OPEN_EACH {
            held.push(open(&client, &relay, (&listener, &target)).await);
        }
        // One more waits for a place, and nobody is dialed for it.
        let waiting = client.open(&relay.attempt(), &target).await.unwrap().into_tcp().unwrap();
        let nobody = timeout(Duration::from_millis(300), listener.accept()).await;
        assert!(nobody.is_err());
        let others = relay.client(&other);
        let (mut near, mut far) = open(&others, &relay, (&listener, &target)).await;
        greet(&mut near, &mut far).await;
        // One that is answered makes room.
        let (near, far) = &mut held[0];
        greet(near, far).await;
        let (mut far, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        let mut waiting = waiting;
        greet(&mut waiting, &mut far).await;
        // The others are given up after ten seconds.
        let (near, _) = &mut held[1];
        let ended = timeout(PATIENCE, near.read(&mut [0])).await.expect("it is given up");
        assert!(!matches!(ended, Ok(1..)));
    });
}

#[test]
fn the_oldest_of_many_control_connections_gives_way() {
    run(async {
        let own = identity();
        let relay = Relay::start(vec![entry(&own, LOOPBACK, &[])]).await;
        let (_listener, target) = destination().await;
        let mut all = Vec::new();
        for _ in 0..=CONTROLS_EACH {
            let mut conn = control(&relay, &own).await;
            assert_eq!(wish(&mut conn, &target, 1).await.map(|issued| issued.len()), Ok(1));
            all.push(conn);
        }
        let mut oldest = all.remove(0);
        oldest.push(&SessionFrame::Ping(1));
        oldest.flush().await.unwrap();
        let said = oldest.receive(|frame| match SessionFrame::try_from(frame)? {
            SessionFrame::Abort(code, _) => Ok(code),
            other => panic!("{other:?}"),
        });
        assert_eq!(said.await.unwrap(), AbortCode::Crowded);
        for conn in &mut all {
            assert!(wish(conn, &target, 1).await.is_ok(), "the others stay");
        }
    });
}
