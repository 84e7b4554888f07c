//! What waits, by a model of the collector.

use proptest::prelude::*;
use wire::feed::Records;

use super::*;

const ALL: Most = Most { window: usize::MAX, piece: usize::MAX };

fn record(number: u64) -> Vec<u8> {
    format!("record {number} {}", "x".repeat(usize::try_from(number % 50).unwrap())).into_bytes()
}

/// Sends all there is to send by a way: the number of the first record, and the records.
fn send_by(backlog: &mut Backlog, way: WayId, window: usize) -> Vec<(u64, Vec<u8>)> {
    send_most(backlog, way, Most { window, ..ALL })
}

fn send_most(backlog: &mut Backlog, way: WayId, most: Most) -> Vec<(u64, Vec<u8>)> {
    let mut sent = Vec::new();
    while let Some((first, body)) = backlog.poll_send(way, Instant::now(), most) {
        let records = Records::of(first, body).unwrap();
        sent.extend((first..).zip(records.iter().map(<[u8]>::to_vec)));
    }
    sent
}

fn send(backlog: &mut Backlog) -> Vec<(u64, Vec<u8>)> {
    send_most(backlog, 0, ALL)
}

/// The only way is over, and another one begins.
fn reconnect(backlog: &mut Backlog, from: u64) -> Result<(), Gone> {
    backlog.handle_lost(0);
    backlog.handle_from(from)
}

#[test]
fn nothing_is_sent_twice_over_one_connection_and_what_is_not_safe_over_the_next() {
    let mut backlog = Backlog::new(Bytes::kib(4));
    assert_eq!(backlog.handle_from(0), Ok(()));
    (0..10).for_each(|number| backlog.push(&record(number)));
    let expected: Vec<_> = (0..10).map(|number| (number, record(number))).collect();
    assert_eq!(send(&mut backlog), expected);
    assert_eq!(send(&mut backlog), []);
    backlog.push(&record(10));
    assert_eq!(send(&mut backlog), [], "a few wait for others");
    backlog.set_arrived(10);
    assert_eq!(send(&mut backlog), [(10, record(10))]);
    backlog.handle_kept(4);
    // In the middle of a batch.
    assert_eq!(reconnect(&mut backlog, 7), Ok(()));
    let expected: Vec<_> = (7..10).map(|number| (number, record(number))).collect();
    assert_eq!(send(&mut backlog), expected);
    backlog.set_arrived(10);
    assert_eq!(send(&mut backlog), [(10, record(10))]);
    backlog.handle_kept(11);
    assert!(backlog.is_empty() && backlog.octets() == 0);
    assert_eq!(backlog.first(), 11);
}

#[test]
fn a_collector_that_has_more_skips_what_is_read_again() {
    let mut backlog = Backlog::new(Bytes::kib(4));
    backlog.push(&record(0));
    assert_eq!(backlog.handle_from(3), Ok(()));
    (1..5).for_each(|number| backlog.push(&record(number)));
    assert_eq!(send(&mut backlog), [(3, record(3)), (4, record(4))]);
}

#[test]
fn what_was_dropped_cannot_be_sent_again() {
    let mut backlog = Backlog::new(Bytes::kib(4));
    assert_eq!(backlog.handle_from(0), Ok(()));
    backlog.push(&record(0));
    send(&mut backlog);
    backlog.handle_kept(1);
    backlog.push(&record(1));
    assert_eq!(backlog.handle_from(0), Err(Gone));
    backlog.rewind(0, 0);
    (0..2).for_each(|number| backlog.push(&record(number)));
    assert_eq!(send(&mut backlog).len(), 2);
}

#[test]
fn a_slow_way_takes_a_few_records_at_a_time() {
    let mut backlog = Backlog::new(Bytes::kib(64));
    assert_eq!(backlog.handle_from(0), Ok(()));
    (0..100).for_each(|number| backlog.push(&record(number)));
    let few = Most { piece: 300, ..ALL };
    let (mut sent, mut pieces) = (Vec::new(), 0);
    while let Some((first, body)) = backlog.poll_send(0, Instant::now(), few) {
        assert!(body.len() <= 300);
        let records = Records::of(first, body).unwrap();
        sent.extend((first..).zip(records.iter().map(<[u8]>::to_vec)));
        pieces += 1;
        backlog.set_arrived(sent.len() as u64);
    }
    assert_eq!(sent, (0..100).map(|number| (number, record(number))).collect::<Vec<_>>());
    assert!((10..40).contains(&pieces), "{pieces}");
    // One that is longer goes alone.
    backlog.push(&[b'x'; 2_000]);
    assert!(backlog.poll_send(0, Instant::now(), few).is_some());
}

#[test]
fn a_window_bounds_what_is_sent_before_its_turn() {
    let mut backlog = Backlog::new(Bytes::mib(4));
    assert_eq!(backlog.handle_from(0), Ok(()));
    let long = vec![b'x'; 60_000];
    (0..10).for_each(|_| backlog.push(&long));
    let sent = |backlog: &mut Backlog, way| {
        let all = send_by(backlog, way, 130_000);
        all.iter().map(|(first, _)| *first).collect::<Vec<_>>()
    };
    assert_eq!(sent(&mut backlog, 1), [0, 1]);
    assert!(sent(&mut backlog, 2).is_empty());
    backlog.set_arrived(1);
    assert_eq!(sent(&mut backlog, 2), [2]);
    // What arrived is not sent again, and its way's end changes nothing of it.
    backlog.handle_lost(1);
    assert_eq!(sent(&mut backlog, 2), [1]);
    // Who said so is gone: what had only arrived may be lost.
    backlog.set_arrived(0);
    assert_eq!(sent(&mut backlog, 2), [0]);
}

#[test]
fn what_is_late_is_copied_once_by_each_of_a_few_ways() {
    let mut backlog = Backlog::new(Bytes::mib(4));
    assert_eq!(backlog.handle_from(0), Ok(()));
    (0..2).for_each(|number| backlog.push(&record(number)));
    let now = Instant::now();
    assert!(backlog.poll_send(1, now, ALL).is_some());
    assert!(backlog.poll_copy(2, now, now).is_none(), "it is not late");
    let later = now + std::time::Duration::from_secs(1);
    assert!(backlog.poll_copy(1, later, later).is_none(), "it is on its way there");
    assert_eq!(backlog.poll_copy(2, later, later).map(|(first, _)| first), Some(0));
    assert!(backlog.poll_copy(3, later, later).is_none(), "a copy has begun");
    let last = later + std::time::Duration::from_secs(1);
    assert!(backlog.poll_copy(3, last, last).is_some());
    assert!(backlog.poll_copy(4, last, last + std::time::Duration::from_secs(9)).is_none());
    backlog.handle_lost(1);
    backlog.handle_lost(2);
    assert_eq!(send_by(&mut backlog, 2, usize::MAX), [], "the third one carries it");
    backlog.handle_lost(3);
    assert_eq!(send_by(&mut backlog, 2, usize::MAX).len(), 2);
}

/// Found where a cap was used up early: a way that was silent for a second sent all that was on
/// its way a second time, over the same connection.
#[test]
fn what_a_silent_way_has_is_for_others_and_not_for_itself() {
    let mut backlog = Backlog::new(Bytes::mib(4));
    assert_eq!(backlog.handle_from(0), Ok(()));
    let sent = |backlog: &mut Backlog, way| {
        let all = send_by(backlog, way, usize::MAX);
        all.iter().map(|(first, _)| *first).collect::<Vec<_>>()
    };
    let long = vec![b'x'; 60_000];
    (0..3).for_each(|_| backlog.push(&long));
    assert_eq!(sent(&mut backlog, 1), [0, 1, 2]);
    backlog.set_silent(1, true);
    backlog.set_silent(1, false);
    assert!(sent(&mut backlog, 1).is_empty() && sent(&mut backlog, 2).is_empty());
    backlog.set_silent(1, true);
    backlog.set_arrived(1);
    backlog.push(&long);
    assert_eq!(sent(&mut backlog, 2), [1, 2, 3]);
    backlog.set_silent(1, false);
    backlog.handle_lost(2);
    assert_eq!(sent(&mut backlog, 1), [3], "the first way has the others still");
    assert!(backlog.is_carried_by(1) && !backlog.is_carried_by(2));
    backlog.set_silent(1, true);
    backlog.handle_lost(1);
    assert_eq!(sent(&mut backlog, 1), [1, 2, 3], "a way that begins anew is not silent");
}

proptest! {
    /// A collector that keeps what it says, and connections that break anywhere.
    #[test]
    fn each_record_arrives_once_and_in_order(
        steps in prop::collection::vec((0u8..5, 0u64..9), 1..200),
    ) {
        let mut backlog = Backlog::new(Bytes::kib(1));
        let (mut added, mut has, mut safe) = (0, 0, 0);
        prop_assert_eq!(backlog.handle_from(0), Ok(()));
        for (kind, number) in steps {
            match kind {
                0 | 1 if backlog.has_room() => {
                    backlog.push(&record(added));
                    added += 1;
                }
                2 => {
                    let few = Most { piece: usize::try_from(number).unwrap() * 50, ..ALL };
                    for (first, octets) in send_most(&mut backlog, 0, few) {
                        prop_assert_eq!(first, has, "in order");
                        prop_assert_eq!(octets, record(first));
                        has += 1;
                    }
                }
                3 => {
                    safe = (safe + number).min(has);
                    backlog.handle_kept(safe);
                }
                // The collector was killed: it has what is safe, and perhaps more.
                4 => {
                    has = (safe + number).min(has);
                    safe = has;
                    prop_assert_eq!(reconnect(&mut backlog, has), Ok(()));
                }
                _ => {}
            }
        }
        // Once what was sent has arrived, what waited for it goes.
        for _ in 0..2 {
            for (first, _) in send(&mut backlog) {
                prop_assert_eq!(first, has);
                has += 1;
            }
            backlog.set_arrived(has);
        }
        prop_assert_eq!(has, added, "all of them");
    }

    /// Several ways, each of which carries its records in order, may fall silent, and end.
    #[test]
    fn each_record_arrives_whatever_becomes_of_the_ways(
        steps in prop::collection::vec((0u8..7, 0u32..3, 0u64..9), 1..300),
    ) {
        let mut backlog = Backlog::new(Bytes::kib(2));
        let mut ways: [VecDeque<u64>; 3] = Default::default();
        let mut given: [BTreeSet<u64>; 3] = Default::default();
        let (mut added, mut there) = (0, BTreeSet::new());
        let next = |there: &BTreeSet<u64>| {
            (0..=1_000).find(|one| !there.contains(one)).unwrap()
        };
        prop_assert_eq!(backlog.handle_from(0), Ok(()));
        // In the end every way is heard again, and everything goes.
        let end = (0..40).flat_map(|_| (0..3).flat_map(|way| [(2, way, 8), (3, way, 8)]));
        let heard = (0..3).map(|way| (6, way, 0));
        for (kind, way, number) in steps.into_iter().chain(heard).chain(end) {
            let place = way as usize;
            match kind {
                0 | 1 if backlog.has_room() => {
                    backlog.push(&record(added));
                    added += 1;
                }
                2 if !backlog.silent.contains(&way) => {
                    let piece = usize::try_from(number).unwrap() * 50;
                    let most = Most { window: 1_000, piece };
                    let now = Instant::now();
                    let mut sent = backlog.poll_send(way, now, most);
                    if sent.is_none() {
                        sent = backlog.poll_copy(way, now, now);
                    }
                    let Some((first, body)) = sent else { continue };
                    let records = Records::of(first, body).unwrap();
                    for (number, octets) in (first..).zip(records.iter()) {
                        prop_assert_eq!(octets, record(number));
                        prop_assert!(given[place].insert(number), "{} twice", number);
                        ways[place].push_back(number);
                    }
                }
                3 => {
                    let arrives = ways[place].len().min(usize::try_from(number).unwrap());
                    there.extend(ways[place].drain(..arrives));
                    backlog.set_arrived(next(&there));
                }
                4 => backlog.handle_kept(next(&there).min(backlog.kept() + number)),
                5 => {
                    backlog.handle_lost(way);
                    ways[place].clear();
                    given[place].clear();
                }
                6 => backlog.set_silent(way, number > 4),
                _ => {}
            }
        }
        prop_assert_eq!(next(&there), added, "all of them");
    }
}
