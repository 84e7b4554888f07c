//! Connections that share places.

use super::*;
use crate::cc::Choke;

const MSS: u64 = 1_000;
const RTT: Span = Span::from_millis(40);
const PLACE: Place = Place(7);
/// A round trip through a full queue.
const FULL: Span = Span::from_millis(90);

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

fn start() -> Start {
    Start { mss: Bytes(MSS), initial_window: Bytes(10 * MSS), rtt: Some(RTT) }
}

fn acked(bytes: u64, in_flight: u64, rtt: Span) -> Acked {
    Acked {
        bytes: Bytes(bytes),
        in_flight: Bytes(in_flight),
        sent_at: Time::ZERO,
        window_at_sending: None,
        rtt: Some(rtt),
        smoothed_rtt: rtt,
        min_rtt: rtt,
        one_way_delay: None,
        ack_delay: None,
        delivery_rate: None,
        round: 0,
        ce_packets: 0,
        ce_bytes: Bytes::ZERO,
        is_app_limited: false,
        in_recovery: false,
        slow_start_divisor: 1,
    }
}

/// A subflow of each of so many connections at one place, which has grown to 64 packets.
fn site(connections: u64) -> Site {
    let mut site = Site::new(HarpOptions::modern());
    for connection in 0..connections {
        join(&mut site, at(0), connection, PLACE);
    }
    while window(&site, 0) < 64 * MSS {
        site.handle_acked(at(1), 0, SubflowId(0), &acked(MSS, 0, RTT));
    }
    site
}

fn join(site: &mut Site, now: Time, connection: u64, place: Place) {
    site.name_place(now, connection, SubflowId(0), place);
    site.add(now, connection, SubflowId(0), &start());
}

fn window(site: &Site, connection: u64) -> u64 {
    site.allowance(connection, SubflowId(0)).window.0
}

fn send(site: &mut Site, connection: u64, in_flight: u64) {
    let (bytes, in_flight) = (Bytes(MSS), Bytes(in_flight * MSS));
    let sent = Sent { bytes, in_flight, is_retransmission: false };
    site.handle_sent(Time::ZERO, connection, SubflowId(0), &sent);
}

#[test]
fn connections_share_one_window_and_who_joins_has_an_equal_part() {
    let mut site = site(3);
    assert_eq!(window(&site, 1), 64 * MSS, "nobody else sends");
    send(&mut site, 0, 16);
    assert_eq!(window(&site, 1), 48 * MSS, "the rest");
    send(&mut site, 0, 64);
    assert_eq!(window(&site, 1), 32 * MSS, "its part");
    send(&mut site, 1, 32);
    assert_eq!(window(&site, 0), 32 * MSS, "the first one gives up as much");
    assert_eq!(window(&site, 2), 64 * MSS / 3);
}

#[test]
fn what_a_place_learnt_outlives_its_connections_for_ten_minutes() {
    for (pause, expected) in [(599, 64 * MSS), (601, MSS)] {
        let mut site = site(2);
        for connection in [0, 1] {
            site.leave(at(1), connection);
        }
        let later = at(1 + pause * 1_000);
        join(&mut site, later, 9, PLACE);
        assert_eq!(window(&site, 9), expected, "after {pause} s");
    }
}

#[test]
fn a_newcomer_in_a_full_queue_knows_the_least_delay_from_others() {
    let mut site = site(1);
    site.leave(at(1), 0);
    join(&mut site, at(2), 1, PLACE);
    let before = window(&site, 1);
    // All that it sees is a round trip of 90 ms.
    for packet in 0..40 {
        site.handle_acked(at(100 + packet), 1, SubflowId(0), &acked(MSS, 0, FULL));
    }
    assert!(window(&site, 1) < before, "{before}");
    let (standing, min_rtt) = site.standing(1, SubflowId(0)).unwrap();
    assert_eq!(min_rtt, Some(RTT));
    assert_eq!(standing.delays, Some((RTT, FULL)));
}

#[test]
fn two_subflows_of_one_connection_share_no_place() {
    let mut site = Site::new(HarpOptions::modern());
    for (connection, id) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
        site.name_place(at(0), connection, SubflowId(id), PLACE);
        site.add(at(0), connection, SubflowId(id), &start());
    }
    assert_eq!(site.shared.len(), 2);
    assert!(site.shared.iter().all(|path| path.members.len() == 2));
    // Nor do those that nobody named a place of.
    site.add(at(0), 3, SubflowId(0), &start());
    site.add(at(0), 4, SubflowId(0), &start());
    assert_eq!(site.shared.len(), 4);
    site.name_place(at(0), 3, SubflowId(0), PLACE);
    assert_eq!(site.shared.len(), 3);
    for connection in 1..=4 {
        site.leave(at(1), connection);
    }
    assert!(site.shared.is_empty() && site.named.is_empty());
    assert_eq!(site.remembered.len(), 2);
}

/// Numbers come round; two places of one number would share a window.
#[test]
fn no_two_places_have_one_number() {
    let mut site = site(1);
    let second = Place(PLACE.0 + 1);
    join(&mut site, at(2), 1, second);
    site.leave(at(3), 1);
    let remembered = site.remembered[0].id;
    site.next = 0;
    for number in 2..5 {
        join(&mut site, at(4), number, Place(PLACE.0 + number));
    }
    let mut ids: Vec<SubflowId> = site.shared.iter().map(|path| path.id).collect();
    assert!(!ids.contains(&remembered), "{ids:?} and {remembered:?}");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn places_are_remembered_to_a_bound() {
    let mut site = site(1);
    site.leave(at(1), 0);
    for number in 100..200 {
        join(&mut site, at(2), 1, Place(number));
        site.leave(at(3), 1);
    }
    assert_eq!(site.remembered.len(), MOST_REMEMBERED);
    assert!(site.shared.is_empty());
}

#[test]
fn idle_places_do_not_weigh_in_what_a_loss_takes() {
    let mut site = site(1);
    site.leave(at(1), 0);
    join(&mut site, at(2), 1, Place(100));
    for _ in 0..31 {
        site.handle_acked(at(3), 1, SubflowId(0), &acked(MSS, 0, RTT));
    }
    let before = window(&site, 1);
    site.handle_timeout(at(500), 1, SubflowId(0), Bytes(MSS));
    assert_eq!(window(&site, 1), before / 2);
}

#[test]
fn who_sends_nothing_has_no_part_in_the_rate() {
    let mut site = site(2);
    let mut extent = |connection, in_flight| {
        let rate = Some(Rate::mbit(4));
        let acked = Acked { delivery_rate: rate, ..acked(MSS, in_flight * MSS, RTT) };
        site.handle_acked(at(2), connection, SubflowId(0), &acked);
        site.standing(connection, SubflowId(0)).expect("it is here").0.extent
    };
    // 4 Mbit/s in 40 ms.
    let alone = Bytes(20_000);
    assert_eq!(extent(0, 0), alone);
    assert_eq!(extent(1, 10), alone, "the other one had its last acknowledgement");
    assert_eq!(extent(0, 10), alone + alone);
}

#[test]
fn a_newcomer_in_a_full_queue_takes_it_for_no_part_of_the_line() {
    let mut site = site(2);
    let acked = Acked { delivery_rate: Some(Rate::mbit(4)), ..acked(MSS, 10 * MSS, FULL) };
    site.handle_acked(at(2), 1, SubflowId(0), &acked);
    let (standing, least) = site.standing(1, SubflowId(0)).expect("it is here");
    assert_eq!((standing.extent, least), (Bytes(20_000), Some(RTT)), "of 40 ms, not of 90");
}

#[test]
fn all_connections_hear_of_a_window_that_falls() {
    let mut site = site(2);
    while site.poll_changed(0).is_some() || site.poll_changed(1).is_some() {}
    // A queue that stands for more than a filter's two periods.
    for packet in 0..16 {
        site.handle_acked(at(100 + 4 * packet), 0, SubflowId(0), &acked(MSS, 0, RTT * 10));
    }
    assert_eq!(site.poll_changed(1), Some(SubflowId(0)));
    assert_eq!(site.poll_changed(1), None);
    assert_eq!(site.allowance(1, SubflowId(0)).state, Choke::Open);
}
