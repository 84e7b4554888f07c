//! Paths, numbers and keys of sessions, packet by packet.

use proptest::prelude::*;
use units::{Span, SubflowId, Time};
use wire::datagram::Outer;

use super::ends::Pair;
use crate::opener::OLD_KEYS;
use crate::{OpenError, PacketNumber, PathError, SealError, Session};

fn seal(
    session: &mut Session,
    now: Time,
    path: SubflowId,
    number: u64,
) -> Result<Vec<u8>, SealError> {
    let mut packet = Vec::new();
    let number = PacketNumber { path, number };
    session.seal(now, number, b"payload", &mut packet).map(|()| packet)
}

/// A packet from one to the other.
fn pass(from: &mut Session, to: &mut Session, now: Time, number: u64) {
    let mut packet = seal(from, now, SubflowId(0), number).unwrap();
    assert_eq!(to.open(now, SubflowId(0), &mut packet).unwrap().number, number);
}

fn label_of(packet: &[u8]) -> u64 {
    match Outer::parse(packet) {
        Ok(Outer::Data { label }) => label,
        other => panic!("{other:?}"),
    }
}

fn two() -> (Session, Session) {
    let (mut client, mut server) = Pair::new().sessions();
    // The pair's network has opened path 0.
    for session in [&mut client, &mut server] {
        assert_eq!(session.open_path(SubflowId(0)), Err(PathError::Used(SubflowId(0))));
    }
    (client, server)
}

#[test]
fn no_number_seals_two_packets() {
    let (mut client, _) = two();
    let now = Time::ZERO;
    seal(&mut client, now, SubflowId(0), 7).unwrap();
    for used in [0, 6, 7] {
        assert_eq!(seal(&mut client, now, SubflowId(0), used), Err(SealError::NumberUsed(used)));
    }
    seal(&mut client, now, SubflowId(0), 8).unwrap();
    // After an update neither.
    let (mut client, mut server) = two();
    pass(&mut client, &mut server, now, 3);
    pass(&mut server, &mut client, now, 3);
    assert!(client.update_keys(now));
    assert_eq!(seal(&mut client, now, SubflowId(0), 3), Err(SealError::NumberUsed(3)));
    assert_eq!(
        seal(&mut client, now, SubflowId(0), 1 << 62),
        Err(SealError::NumberTooFar(1 << 62))
    );
    let mut packet = Vec::new();
    let empty = client.seal(now, PacketNumber { path: SubflowId(0), number: 4 }, b"", &mut packet);
    assert_eq!(empty, Err(SealError::Length(0)));
    assert!(packet.is_empty());
}

#[test]
fn the_number_of_a_path_is_never_used_again() {
    let (mut client, mut server) = two();
    let now = Time::ZERO;
    client.open_path(SubflowId(5)).unwrap();
    let late = seal(&mut client, now, SubflowId(5), 0).unwrap();
    // The first packet opens the path at the peer.
    server.open(now, SubflowId(5), &mut late.clone()).unwrap();
    assert_eq!(server.open_path(SubflowId(5)), Err(PathError::Used(SubflowId(5))));
    assert_eq!(server.path_of(label_of(&late)), Some(SubflowId(5)));
    for session in [&mut client, &mut server] {
        session.retire_path(SubflowId(5));
        assert_eq!(session.open_path(SubflowId(5)), Err(PathError::Used(SubflowId(5))));
        assert_eq!(seal(session, now, SubflowId(5), 9), Err(SealError::NoPath(SubflowId(5))));
    }
    assert_eq!(server.open(now, SubflowId(5), &mut late.clone()), Err(OpenError::NoPath));
    // One that was never open may be retired too.
    client.retire_path(SubflowId(u16::MAX));
    assert_eq!(client.open_path(SubflowId(u16::MAX)), Err(PathError::Used(SubflowId(u16::MAX))));
    let mut paths = 6..;
    let error = paths.find_map(|path| client.open_path(SubflowId(path)).err());
    assert_eq!((error, paths.next()), (Some(PathError::TooMany(64)), Some(70)));
}

#[test]
fn every_path_and_direction_has_a_label_of_its_own() {
    let mut labels = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let (mut client, mut server) = two();
        for path in 0..40 {
            for session in [&mut client, &mut server] {
                let _ = session.open_path(SubflowId(path));
                labels.insert(label_of(&seal(session, Time::ZERO, SubflowId(path), 0).unwrap()));
            }
        }
    }
    assert_eq!(labels.len(), 2 * 2 * 40);
}

/// The path is in the nonce and in the label: a packet is good on one path only, and for one peer.
#[test]
fn a_packet_opens_on_its_path_only() {
    let (mut client, mut server) = two();
    let now = Time::ZERO;
    let packet = seal(&mut client, now, SubflowId(0), 0).unwrap();
    assert_eq!(server.open(now, SubflowId(1), &mut packet.clone()), Err(OpenError::NotOurs));
    assert_eq!(client.open(now, SubflowId(0), &mut packet.clone()), Err(OpenError::NotOurs));
    // With the label of another path, the nonce tells.
    client.open_path(SubflowId(1)).unwrap();
    let other = seal(&mut client, now, SubflowId(1), 0).unwrap();
    let mut moved = packet.clone();
    moved[1..9].copy_from_slice(&other[1..9]);
    assert_eq!(server.open(now, SubflowId(1), &mut moved), Err(OpenError::Forged));
    // Nothing of this has opened path 1.
    server.open_path(SubflowId(1)).unwrap();
    assert_eq!(server.open(now, SubflowId(0), &mut packet.clone()).unwrap().payload, b"payload");
    assert_eq!(server.open(now, SubflowId(0), &mut packet.clone()), Err(OpenError::Replayed));
}

#[test]
fn no_flipped_or_cut_packet_is_opened() {
    let (mut client, mut server) = two();
    let now = Time::ZERO;
    let packet = seal(&mut client, now, SubflowId(0), 0).unwrap();
    for bit in 0..8 * packet.len() {
        let mut flipped = packet.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = server.open(now, SubflowId(0), &mut flipped).unwrap_err();
        assert!(!error.is_fatal(), "bit {bit}: {error}");
    }
    for len in 0..packet.len() {
        let error = server.open(now, SubflowId(0), &mut packet[..len].to_vec()).unwrap_err();
        assert!(!error.is_fatal(), "{len}: {error}");
    }
    let mut longer = packet.clone();
    longer.push(0);
    assert_eq!(server.open(now, SubflowId(0), &mut longer), Err(OpenError::Forged));
    server.open(now, SubflowId(0), &mut packet.clone()).unwrap();
}

#[test]
fn a_key_seals_as_much_as_it_may_on_all_paths_together() {
    let (mut client, _) = two();
    client.open_path(SubflowId(1)).unwrap();
    client.set_limits(10, 10);
    for number in 0..5 {
        seal(&mut client, Time::ZERO, SubflowId(0), number).unwrap();
        seal(&mut client, Time::ZERO, SubflowId(1), number).unwrap();
    }
    for path in 0..2 {
        assert_eq!(seal(&mut client, Time::ZERO, SubflowId(path), 5), Err(SealError::KeyExhausted));
    }
    // Nobody has followed yet, so that there is no update either.
    assert!(!client.update_keys(Time::ZERO));
}

#[test]
fn forged_packets_end_a_connection_before_they_endanger_its_keys() {
    let (mut client, mut server) = two();
    server.set_limits(u64::MAX, 10);
    let now = Time::ZERO;
    let good = seal(&mut client, now, SubflowId(0), 0).unwrap();
    let mut forged = good.clone();
    *forged.last_mut().unwrap() ^= 1;
    for _ in 0..10 {
        assert_eq!(server.open(now, SubflowId(0), &mut forged.clone()), Err(OpenError::Forged));
    }
    let error = server.open(now, SubflowId(0), &mut good.clone()).unwrap_err();
    assert_eq!((error, error.is_fatal()), (OpenError::TooManyForged, true));
}

#[test]
fn keys_of_aes_have_the_limits_of_rfc_9001() {
    let (client, _) = two();
    assert_eq!(client.limits(), (1 << 23, 1 << 52));
}

#[test]
fn old_keys_open_late_packets_for_a_while_and_no_longer() {
    let (mut client, mut server) = two();
    let now = Time::ZERO;
    pass(&mut client, &mut server, now, 0);
    pass(&mut server, &mut client, now, 0);
    let late: Vec<Vec<u8>> =
        (1..3).map(|number| seal(&mut client, now, SubflowId(0), number).unwrap()).collect();
    let of_server = seal(&mut server, now, SubflowId(0), 1).unwrap();
    assert!(client.update_keys(now));
    assert!(!client.update_keys(now), "nobody has followed");
    pass(&mut client, &mut server, now, 3);
    assert_eq!((client.generation(), server.generation()), (1, 1));
    pass(&mut server, &mut client, now, 2);
    assert!(!client.update_keys(now), "the old keys are still there");
    server.open(now, SubflowId(0), &mut late[0].clone()).unwrap();
    let end = now + OLD_KEYS;
    assert_eq!(server.poll_deadline(), Some(end));
    server.handle_deadline(end);
    assert_eq!(server.poll_deadline(), None);
    assert_eq!(server.open(end, SubflowId(0), &mut late[1].clone()), Err(OpenError::Forged));
    // The client has not called `handle_deadline`: late or not, it does not open with old keys.
    assert_eq!(client.poll_deadline(), Some(end));
    assert_eq!(client.open(end, SubflowId(0), &mut of_server.clone()), Err(OpenError::Forged));
    assert!(client.update_keys(end));
    pass(&mut client, &mut server, end, 4);
    assert_eq!((client.generation(), server.generation()), (2, 2));
}

/// A peer that hears nothing cannot follow: nothing is sent to it, or all of it is lost.
#[test]
fn old_keys_open_packets_until_the_peer_has_followed() {
    let (mut client, mut server) = two();
    let now = Time::ZERO;
    pass(&mut client, &mut server, now, 0);
    pass(&mut server, &mut client, now, 0);
    assert!(client.update_keys(now));
    assert_eq!(client.poll_deadline(), None);
    let later = now + OLD_KEYS + OLD_KEYS;
    client.handle_deadline(later);
    pass(&mut server, &mut client, later, 1);
    assert!(!client.update_keys(later), "nobody has followed");
    let late = seal(&mut server, later, SubflowId(0), 2).unwrap();
    pass(&mut client, &mut server, later, 1);
    pass(&mut server, &mut client, later, 3);
    assert_eq!((client.generation(), server.generation()), (1, 1));
    let end = later + OLD_KEYS;
    assert_eq!(client.poll_deadline(), Some(end));
    // Further packets do not put it off.
    pass(&mut server, &mut client, later + Span::from_secs(1), 4);
    assert_eq!(client.poll_deadline(), Some(end));
    assert_eq!(client.open(end, SubflowId(0), &mut late.clone()), Err(OpenError::Forged));
}

/// Who learns an old key cannot add packets with it behind those of the next.
#[test]
fn old_keys_are_for_old_numbers() {
    let (mut client, mut server) = two();
    let now = Time::ZERO;
    pass(&mut client, &mut server, now, 0);
    pass(&mut server, &mut client, now, 0);
    let (below, above) = (
        seal(&mut client, now, SubflowId(0), 1).unwrap(),
        seal(&mut client, now, SubflowId(0), 100).unwrap(),
    );
    // The client does what none does that keeps to the rules.
    client.forget_numbers();
    assert!(client.update_keys(now));
    pass(&mut client, &mut server, now, 50);
    server.open(now, SubflowId(0), &mut below.clone()).unwrap();
    let error = server.open(now, SubflowId(0), &mut above.clone()).unwrap_err();
    assert_eq!((error, error.is_fatal()), (OpenError::OldKeys, true));
}

#[test]
fn both_may_update_at_the_same_time() {
    let (mut client, mut server) = two();
    let now = Time::ZERO;
    pass(&mut client, &mut server, now, 0);
    pass(&mut server, &mut client, now, 0);
    let from_client = seal(&mut client, now, SubflowId(0), 1).unwrap();
    let from_server = seal(&mut server, now, SubflowId(0), 1).unwrap();
    assert!(client.update_keys(now) && server.update_keys(now));
    pass(&mut client, &mut server, now, 2);
    pass(&mut server, &mut client, now, 2);
    assert_eq!((client.generation(), server.generation()), (1, 1));
    server.open(now, SubflowId(0), &mut from_client.clone()).unwrap();
    client.open(now, SubflowId(0), &mut from_server.clone()).unwrap();
}

/// A peer can only know that we have its keys from a packet sealed with ours.
#[test]
fn an_update_that_could_not_be_followed_ends_the_connection() {
    let (mut client, mut server) = two();
    let now = Time::ZERO;
    client.pretend_followed();
    assert!(client.update_keys(now));
    let mut packet = seal(&mut client, now, SubflowId(0), 0).unwrap();
    let error = server.open(now, SubflowId(0), &mut packet).unwrap_err();
    assert_eq!((error, error.is_fatal()), (OpenError::UpdatedTooSoon, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Any order within the reach of the window, any gaps.
    #[test]
    fn numbers_are_found_whatever_arrives(
        steps in prop::collection::vec((1_u64..400, 0_usize..30), 1..300),
        len in 1_usize..40,
    ) {
        let (mut client, mut server) = two();
        let now = Time::ZERO + Span::from_secs(1);
        let (mut number, mut waiting) = (0, Vec::new());
        for (step, take) in steps {
            let mut packet = vec![0; 3];
            let header = PacketNumber { path: SubflowId(0), number };
            client.seal(now, header, &vec![7; len], &mut packet).unwrap();
            waiting.push((number, packet.split_off(3)));
            if waiting.len() > 8 {
                // None is later than the window reaches.
                let oldest = (0..waiting.len()).min_by_key(|at| waiting[*at].0).unwrap();
                let is_late = number - waiting[oldest].0 + 8 * 400 >= crate::window::REACH;
                let at = if is_late { oldest } else { take % waiting.len() };
                let (expected, mut packet) = waiting.swap_remove(at);
                let opened = server.open(now, SubflowId(0), &mut packet).unwrap();
                prop_assert_eq!((opened.number, opened.payload.len()), (expected, len));
            }
            number += step;
        }
    }
}
