//! The state of a gateway for fuzzers: packets of hosts and datagrams of a site, without a network.

use stripe::{ConnectionKey, RawArrival, RawPath};
use units::{Span, SubflowId, Time};
use wire::gateway::SALT;

use crate::offload::{DeviceHeader, Joined, Joiner, Segments};
use crate::packet::Headers;
use crate::plane::{Plane, Salts, SiteId};

/// The room of the path.
const ROOM: usize = 1_442;
/// Pieces of an input that are taken.
const MOST_PIECES: usize = 2_000;

/// Takes pieces of a kind (one octet), a length (two) and as many octets: a packet of a host on
/// this side, `10.1.0.0/24` and `fd00:1::/64`; a datagram of the site, `10.2.0.0/24` and
/// `fd00:2::/64`,
/// marked or not; time that passes; another path; or a packet of several segments behind a header
/// of the device.
///
/// # Panics
/// If a datagram is larger than the path carries, a deadline does not move, or segments that were
/// joined are not divided to the same ones.
pub fn packets(mut data: &[u8]) {
    let networks = |side: u8| {
        let all = [format!("10.{side}.0.0/24"), format!("fd00:{side}::/64")];
        all.map(|text| text.parse().expect("a network")).into()
    };
    let mut plane = Plane::new(networks(1), Box::new(|_, _| None));
    plane.add("site".into());
    let key = ConnectionKey(1);
    let salts = Salts { dialing: [1; SALT], listening: [2; SALT] };
    plane.open(SiteId(0), key, networks(2), &salts);
    let path = |room| RawPath { path: SubflowId(0), room };
    plane.handle_paths(Time::ZERO, key, &[path(ROOM)]);
    let (mut now, mut room, mut joiner) = (Time::ZERO, ROOM, Joiner::default());
    for _ in 0..MOST_PIECES {
        let Some(([kind, high, low], rest)) = data.split_first_chunk() else { return };
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        data = rest;
        let arrival =
            RawArrival { connection: key, path: SubflowId(0), at: now, is_marked: *kind % 6 == 2 };
        match kind % 6 {
            0 => plane.handle_inside(now, DeviceHeader::PLAIN, piece),
            1 | 2 => plane.handle_raw(now, &arrival, piece),
            3 => now += Span::from_millis(length as u64),
            5 => {
                if let Some((header, packet)) = DeviceHeader::parse(piece) {
                    plane.handle_inside(now, header, packet);
                }
            }
            _ => {
                room = length;
                plane.handle_paths(now, key, &[path(room)]);
            }
        }
        for _ in 0..64 {
            while let Some(packet) = plane.poll_host() {
                joiner.push(packet);
            }
            joiner.finish();
            while let Some(joined) = joiner.pop() {
                divided(joined);
            }
            while let Some(raw) = plane.poll_raw() {
                assert!(raw.payload.len() <= room && raw.connection == key);
            }
            if plane.poll_deadline().is_none_or(|at| at > now) {
                break;
            }
            plane.handle_deadline(now);
        }
        assert!(plane.poll_deadline().is_none_or(|at| at > now), "a deadline does not move");
    }
}

/// The packets in what is written to the device, divided as the kernel would.
///
/// # Panics
/// If they are others than were joined.
pub(crate) fn divided(mut joined: Joined) -> Vec<Vec<u8>> {
    let all = joined.write(&mut Vec::new(), |pieces| {
        pieces.iter().flat_map(|piece| piece.to_vec()).collect::<Vec<u8>>()
    });
    let frames: Vec<Vec<u8>> = joined.frames().iter().map(|frame| frame.to_vec()).collect();
    let (header, packet) = DeviceHeader::parse(&all).expect("it is there");
    if frames.len() == 1 {
        assert!(frames[0] == packet, "a packet is written as it is");
        return frames;
    }
    let headers = Headers::parse(packet).expect("segments are joined to one");
    let segments = Segments::new(header, packet, headers).expect("it can be divided");
    let segments: Vec<Vec<u8>> = segments.map(|(frame, _)| frame.to_vec()).collect();
    assert!(segments == frames, "{} packets are others afterwards", frames.len());
    segments
}
