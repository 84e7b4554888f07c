use super::*;

/// Connections of some keys, which always have bytes, unless they have a rate of their own.
struct Bed {
    shares: Shares<u8>,
    now: Time,
    /// For each connection: its key, and the rate at which bytes come.
    connections: Vec<(u8, Option<Rate>)>,
    /// What each has that is not moved yet, and what was moved.
    ready: Vec<Bytes>,
    moved: Vec<Bytes>,
    asks: Vec<bool>,
}

impl Bed {
    fn new(rate: Option<Rate>, connections: Vec<(u8, Option<Rate>)>) -> Bed {
        let mut shares = Shares::new(rate);
        for (key, _) in &connections {
            shares.insert(*key, None);
        }
        let none = vec![Bytes::ZERO; connections.len()];
        let asks = vec![false; connections.len()];
        Bed { shares, now: Time::ZERO, connections, ready: none.clone(), moved: none, asks }
    }

    fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.now += Span::from_millis(1);
            for (at, (key, rate)) in self.connections.iter().enumerate() {
                self.ready[at] += rate.unwrap_or(Rate::mbit(10_000)) * Span::from_millis(1);
                if !self.asks[at] && self.ready[at] > Bytes::ZERO {
                    self.shares.handle_ask(*key, at as u64, Bytes::kib(64));
                    self.asks[at] = true;
                }
            }
            while let Some(Grant { connection, bytes }) = self.shares.poll_grant(self.now) {
                let at = usize::try_from(connection).unwrap();
                let moved = bytes.min(self.ready[at]);
                self.ready[at] -= moved;
                self.moved[at] += moved;
                self.shares.handle_unused(self.connections[at].0, bytes - moved);
                self.asks[at] = self.ready[at] > Bytes::ZERO;
                if self.asks[at] {
                    self.shares.handle_ask(self.connections[at].0, connection, Bytes::kib(64));
                }
            }
        }
    }

    fn of(&self, key: u8) -> Bytes {
        let own = self.connections.iter().zip(&self.moved).filter(|((own, _), _)| *own == key);
        own.map(|(_, moved)| *moved).sum()
    }
}

fn close_to(moved: Bytes, expected: u64) -> bool {
    moved.0.abs_diff(expected) <= expected / 50
}

#[test]
fn keys_have_equal_shares_whatever_the_number_of_their_connections() {
    for mbit in [2, 80, 2_000] {
        let connections = (1..=8_u8).flat_map(|key| (0..key).map(move |_| (key, None)));
        let mut bed = Bed::new(Some(Rate::mbit(mbit)), connections.collect());
        bed.run(Span::from_secs(10));
        let all: Vec<u64> = (1..=8).map(|key| bed.of(key).0).collect();
        let fair = mbit * 1_000_000 / 8 * 10 / 8;
        assert!(all.iter().all(|own| close_to(Bytes(*own), fair)), "{mbit}: {fair}, {all:?}");
    }
}

#[test]
fn what_a_key_does_not_want_is_the_others() {
    let small = Some(Rate::mbit(1));
    let mut bed = Bed::new(Some(Rate::mbit(40)), vec![(1, small), (2, None), (3, None), (3, None)]);
    bed.run(Span::from_secs(10));
    assert!(close_to(bed.of(1), 1_250_000), "{}", bed.of(1));
    for key in [2, 3] {
        assert!(close_to(bed.of(key), 39 * 1_250_000 / 2), "{key}: {}", bed.of(key));
    }
}

#[test]
fn a_key_has_a_bound_of_its_own() {
    for rate in [None, Some(Rate::mbit(50))] {
        let mut bed = Bed::new(rate, vec![(1, None), (1, None), (2, None)]);
        bed.shares.insert(1, Some(Rate::mbit(5)));
        bed.run(Span::from_secs(10));
        assert!(close_to(bed.of(1), 6_250_000), "{}", bed.of(1));
        let other = bed.of(2).0;
        assert!(rate.is_none() || close_to(Bytes(other), 45 * 1_250_000), "{other}");
    }
}

/// A key that was idle has its first bytes before the others have more.
#[test]
fn a_key_that_comes_is_next() {
    let mut bed = Bed::new(Some(Rate::mbit(10)), (1..=9).map(|key| (key, None)).collect());
    bed.run(Span::from_secs(1));
    bed.shares.insert(10, None);
    bed.connections.push((10, None));
    bed.ready.push(Bytes::ZERO);
    bed.moved.push(Bytes::ZERO);
    bed.asks.push(false);
    bed.run(Span::from_millis(8));
    assert!(bed.of(10) > Bytes::ZERO);
    // It makes up for nothing that it did not want.
    let before: Vec<Bytes> = bed.moved.clone();
    bed.run(Span::from_secs(2));
    let since = |key: u8| bed.of(key) - before[usize::from(key) - 1];
    let ahead = since(10).0.abs_diff(since(1).0);
    assert!(ahead <= MOST_BEHIND * 2_500, "{} and {}", since(10), since(1));
}

/// A task that wakes up late asks late: its key gets its share all the same.
#[test]
fn a_key_whose_only_connection_asks_late_has_its_share() {
    let mut shares = Shares::new(Some(Rate::mbit(40)));
    let (mut moved, mut asks_at) = ([0; 2], Time::ZERO);
    shares.insert(0, None);
    shares.insert(1, None);
    for connection in 1..9 {
        shares.handle_ask(1, connection, Bytes::kib(64));
    }
    shares.handle_ask(0, 0, Bytes::kib(64));
    let mut is_asking = true;
    for millis in 0..10_000 {
        let now = Time::ZERO + Span::from_millis(millis);
        if !is_asking && now >= asks_at {
            shares.handle_ask(0, 0, Bytes::kib(64));
            is_asking = true;
        }
        while let Some(Grant { connection, bytes }) = shares.poll_grant(now) {
            moved[usize::from(connection > 0)] += bytes.0;
            if connection == 0 {
                (is_asking, asks_at) = (false, now + Span::from_millis(3));
            } else {
                shares.handle_ask(1, connection, Bytes::kib(64));
            }
        }
    }
    assert!(moved.iter().all(|own| close_to(Bytes(*own), 25_000_000)), "{moved:?}");
}

#[test]
fn connections_of_one_key_take_turns_too() {
    let mut bed = Bed::new(Some(Rate::mbit(8)), vec![(1, None), (1, None), (1, None)]);
    bed.run(Span::from_secs(3));
    assert!(bed.moved.iter().all(|own| close_to(*own, 1_000_000)), "{:?}", bed.moved);
}

#[test]
fn nobody_is_remembered_who_has_left() {
    let mut shares = Shares::new(Some(Rate::mbit(1)));
    shares.insert('a', None);
    shares.insert('b', None);
    shares.handle_ask('a', 1, Bytes(1_000));
    shares.handle_ask('b', 2, Bytes(1_000));
    shares.handle_withdrawal('a', 1);
    shares.remove('b');
    assert_eq!((shares.poll_grant(Time::ZERO), shares.poll_deadline(Time::ZERO)), (None, None));
    shares.handle_ask('b', 2, Bytes(1_000));
    shares.handle_unused('b', Bytes(7));
    assert!(shares.keys.len() == 1 && shares.keys[&'a'].waiting.is_empty());
}

#[test]
fn another_rate_holds_from_then_on() {
    let mut bed = Bed::new(Some(Rate::mbit(80)), vec![(1, None), (2, None)]);
    bed.run(Span::from_secs(1));
    // What was granted ahead of time is little beside ten seconds.
    for (rate, expected) in [(Some(Rate::mbit(8)), 5_000_000), (Some(Rate::mbit(160)), 100_000_000)]
    {
        let before = [bed.of(1), bed.of(2)];
        assert!(bed.shares.set_rate(bed.now, rate) && !bed.shares.set_rate(bed.now, rate));
        bed.run(Span::from_secs(10));
        for (key, before) in [1, 2].into_iter().zip(before) {
            let moved = bed.of(key) - before;
            assert!(close_to(moved, expected), "{moved} of key {key} at {rate:?}");
        }
    }
    bed.shares.set_rate(bed.now, None);
    let before = bed.of(1);
    bed.run(Span::from_secs(1));
    assert!(bed.of(1) - before > Bytes(500_000_000), "as much as comes");
}
