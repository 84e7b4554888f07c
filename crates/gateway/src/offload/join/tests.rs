//! What is joined, beside a model that knows how packets were made, and divided again.

use std::net::SocketAddr;

use etherparse::{TcpHeader, TcpOptionElement};
use proptest::prelude::*;

use super::*;
use crate::packet::tests::{ends, segment};
use crate::testing::divided;

/// How a segment is made.
#[derive(Clone, Debug, PartialEq)]
struct Made {
    port: u16,
    is_v6: bool,
    seq: u32,
    id: u16,
    payload: Vec<u8>,
    /// PSH, FIN, SYN, ECE, CWR, URG.
    flags: [bool; 6],
    /// What has to be the same: time to live, class, acknowledgement, window, timestamp.
    same: [u8; 5],
    /// What is wrong: 0 nothing, 1 the checksum of TCP, 2 that of IPv4.
    wrong: u8,
}

impl Made {
    fn plain(seq: u32, id: u16, length: usize) -> Made {
        let payload = (0..length).map(|at| at.to_le_bytes()[0]).collect();
        let (is_v6, flags, same) = (false, [false; 6], [0; 5]);
        Made { port: 0, is_v6, seq, id, payload, flags, same, wrong: 0 }
    }

    fn octets(&self) -> Vec<u8> {
        let (near, far) = ends(self.is_v6);
        let from = SocketAddr::new(near.ip(), 1_000 + self.port);
        let [ttl, class, ack, window, stamp] = self.same;
        let change = |header: &mut TcpHeader| {
            header.sequence_number = self.seq;
            let [psh, fin, syn, ece, cwr, urg] = self.flags;
            (header.psh, header.fin, header.syn) = (psh, fin, syn);
            (header.ece, header.cwr, header.urg) = (ece, cwr, urg);
            header.acknowledgment_number = u32::from(ack);
            header.window_size = u16::from(window);
            let stamp = TcpOptionElement::Timestamp(u32::from(stamp), 0);
            header.set_options(&[stamp]).expect("it fits");
        };
        let mut octets = segment(from, far, &self.payload, change);
        if self.is_v6 {
            octets[1] |= class << 4;
            octets[7] = 60 + ttl;
        } else {
            replace_word(&mut octets, 0, 0x4500 | u16::from(class));
            replace_word(&mut octets, 4, self.id);
            replace_word(&mut octets, 8, u16::from_be_bytes([60 + ttl, 6]));
        }
        match self.wrong {
            1 => octets[if self.is_v6 { 57 } else { 37 }] ^= 0x10,
            2 if !self.is_v6 => octets[11] ^= 0x10,
            _ => {}
        }
        octets
    }

    fn to_kernel(&self) -> ToKernel {
        let octets = self.octets();
        let headers = Headers::parse(&octets).expect("it is TCP");
        ToKernel::segment((Frame::of(&octets), headers))
    }

    fn is_right(&self) -> bool {
        self.wrong == 0 || self.is_v6 && self.wrong == 2
    }

    /// Whether others may follow it in a packet.
    fn may_begin(&self) -> bool {
        let [psh, fin, syn, _, cwr, urg] = self.flags;
        !(psh || fin || syn || cwr || urg || self.payload.is_empty())
    }
}

/// As few packets as may be, in order for each connection: what the joiner has to find.
fn naive(all: &[Made]) -> Vec<Vec<Made>> {
    let mut groups: Vec<(bool, Vec<Made>)> = Vec::new();
    for one in all {
        let last = groups
            .iter_mut()
            .rev()
            .find(|(_, group)| (group[0].port, group[0].is_v6) == (one.port, one.is_v6));
        let next = last.filter(|(is_open, group)| {
            let (first, before) =
                (&group[0], group.iter().map(|one| one.payload.len()).sum::<usize>());
            let follows = Made {
                seq: first.seq.wrapping_add(u32::try_from(before).expect("short")),
                id: first.id.wrapping_add(u16::try_from(group.len()).expect("few")),
                payload: one.payload.clone(),
                flags: [one.flags[0], one.flags[1], false, first.flags[3], false, false],
                wrong: one.wrong,
                ..first.clone()
            };
            let is_next =
                if one.is_v6 { Made { id: one.id, ..follows } == *one } else { follows == *one };
            let headers = if one.is_v6 { 72 } else { 52 };
            let fits = headers + before + one.payload.len() <= 65_535;
            *is_open
                && is_next
                && first.is_right()
                && one.is_right()
                && fits
                && (1..=first.payload.len()).contains(&one.payload.len())
        });
        match next {
            Some((is_open, group)) => {
                *is_open =
                    one.payload.len() == group[0].payload.len() && !one.flags[0] && !one.flags[1];
                group.push(one.clone());
            }
            None => groups.push((one.may_begin(), vec![one.clone()])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// What the joiner makes of packets: for each that is written, those in it.
fn joined(all: &[Made]) -> Vec<Vec<Vec<u8>>> {
    let mut joiner = Joiner::default();
    for one in all {
        joiner.push(one.to_kernel());
    }
    joiner.finish();
    std::iter::from_fn(|| joiner.pop()).map(divided).collect()
}

/// Packets of connections, most of which follow each other.
fn packets() -> impl Strategy<Value = Vec<Made>> {
    let one = (
        (0..3_u16, any::<bool>(), prop::sample::select(vec![0, 1, 700, 1_380, 1_380, 1_380])),
        prop::array::uniform6(prop::bool::weighted(0.03)),
        prop::array::uniform5(prop::sample::select(vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 1_u8])),
        prop::sample::select(vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2_u8]),
        (prop::bool::weighted(0.05), prop::bool::weighted(0.05), any::<u8>()),
    );
    prop::collection::vec(one, 1..150).prop_map(|all| {
        let mut next = [[(u32::MAX - 40_000, u16::MAX - 20); 2]; 3];
        let made = |((port, is_v6, length), flags, same, wrong, (skips, jumps, octet))| {
            let (seq, id) = &mut next[usize::from(port)][usize::from(is_v6)];
            *seq = seq.wrapping_add(u32::from(skips));
            *id = id.wrapping_add(u16::from(jumps));
            let payload = vec![octet; length];
            let made = Made { port, is_v6, seq: *seq, id: *id, payload, flags, same, wrong };
            *seq = seq.wrapping_add(u32::try_from(length).expect("short"));
            *id = id.wrapping_add(1);
            made
        };
        all.into_iter().map(made).collect()
    })
}

proptest! {
    #[test]
    fn packets_are_joined_as_a_model_does_and_divided_to_the_same_ones(all in packets()) {
        let mut wanted: Vec<Vec<Vec<u8>>> = naive(&all)
            .into_iter()
            .map(|group| group.iter().map(Made::octets).collect())
            .collect();
        let mut joined = joined(&all);
        // In order for each connection, whatever the order of connections.
        let ends = |packets: &Vec<Vec<u8>>| {
            let headers = Headers::parse(&packets[0]).expect("it is TCP");
            (headers.source(), headers.destination())
        };
        wanted.sort_by_key(ends);
        joined.sort_by_key(ends);
        prop_assert_eq!(joined, wanted);
    }
}

#[test]
fn a_packet_has_at_most_64_kib() {
    let all: Vec<Made> =
        (0..100_u16).map(|number| Made::plain(1_380 * u32::from(number), number, 1_380)).collect();
    let counts: Vec<usize> = joined(&all).iter().map(Vec::len).collect();
    assert_eq!(counts, [47, 47, 6]);
}

#[test]
fn connections_beyond_the_bound_let_the_oldest_leave() {
    let mut joiner = Joiner::default();
    for number in 0..=MOST_RUNS {
        let port = u16::try_from(number).expect("few");
        joiner.push(Made { port, ..Made::plain(1, 1, 100) }.to_kernel());
    }
    let first = joiner.pop().expect("the oldest has left");
    assert_eq!(divided(first), [Made::plain(1, 1, 100).octets()]);
    assert!(joiner.pop().is_none());
    joiner.finish();
    assert_eq!(std::iter::from_fn(|| joiner.pop()).count(), MOST_RUNS);
}

#[test]
fn nothing_is_joined_once_it_is_turned_off() {
    let mut joiner = Joiner::default();
    joiner.push(Made::plain(0, 0, 100).to_kernel());
    joiner.turn_off();
    joiner.push(Made::plain(100, 1, 100).to_kernel());
    let packets: Vec<_> = std::iter::from_fn(|| joiner.pop()).map(divided).collect();
    let wanted = [Made::plain(0, 0, 100).octets(), Made::plain(100, 1, 100).octets()];
    assert_eq!(packets, wanted.map(|one| vec![one]));
}

#[test]
fn joined_segments_come_apart_as_they_were() {
    let mut joiner = Joiner::default();
    let all: Vec<Made> = (0..3).map(|number| Made::plain(100 * number, 0, 100)).collect();
    let all: Vec<Made> = all.into_iter().zip(7..).map(|(made, id)| Made { id, ..made }).collect();
    for one in &all {
        joiner.push(one.to_kernel());
    }
    joiner.finish();
    let mut whole = joiner.pop().expect("they are ready");
    assert!(whole.is_several());
    whole.write(&mut Vec::new(), |pieces| assert_eq!(pieces.len(), 4));
    let apart: Vec<_> = whole.apart().flat_map(divided).collect();
    assert_eq!(apart, all.iter().map(Made::octets).collect::<Vec<_>>());
}

/// What goes back as it came does not overtake what came before it.
#[test]
fn what_is_no_segment_keeps_its_place() {
    let mut joiner = Joiner::default();
    joiner.push(Made::plain(0, 0, 100).to_kernel());
    joiner.push(ToKernel::back(DeviceHeader::PLAIN, b"no packet"));
    let first = joiner.pop().expect("it does not wait");
    assert_eq!(divided(first), [Made::plain(0, 0, 100).octets()]);
    let mut back = joiner.pop().expect("it is ready");
    back.write(&mut Vec::new(), |pieces| {
        assert_eq!(&pieces[0][..], [&[0; 10][..], b"no packet"].concat());
    });
}
