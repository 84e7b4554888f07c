//! Two gateways between two hosts, beside a model that knows each byte: operations as data, checked
//! after each one. What must hold:
//!
//! - A segment passes once, and nothing but its window changes.
//! - The window that the host is told is at most the receiver's, at least a packet of it, and its
//!   right edge moves to the left by less than the unit of the field.
//! - What counts as in flight over a path is what left over it and was not acknowledged, not
//!   reported lost and not sent again.
//! - Packets reach the receiver in sequence, unless the wait is over.
//! - What returns takes the direct path, unless that is silent; hosts' packets the route without
//!   gateways if the other one is.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod heard;
mod world;

use harp::Carried;
use proptest::prelude::*;
use wire::tcp::Meta;

use world::{REPEATED, World};

/// Payload of a full packet.
const MSS: u16 = 100;
const FLOW: u32 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packet {
    number: u64,
    meta: Meta,
}

impl Carried for Packet {
    fn meta(&self) -> Meta {
        self.meta
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// The host sends so many new bytes.
    Send(u16),
    /// The host sends bytes again, this far behind the newest.
    Resend {
        back: u16,
        len: u16,
    },
    /// The host sends a segment again, this many behind the newest.
    Repeat {
        back: usize,
    },
    /// The oldest packet of a path arrives, with a mark or without, or is lost.
    Deliver {
        path: u8,
        is_marked: bool,
    },
    Drop {
        path: u8,
    },
    /// The oldest message that returns arrives, or is lost.
    Return,
    DropReturn,
    /// The receiver acknowledges, with room for so many bytes.
    Ack {
        room: u32,
    },
    /// Time passes.
    Tick {
        millis: u16,
    },
    /// The clock of the far gateway is stepped.
    Step {
        millis: u16,
    },
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    paths: u8,
    scale: u8,
    /// Whether only one of the hosts has window scaling.
    is_one_sided: bool,
    /// The first position of the sender, and of the receiver.
    first: [u32; 2],
    holds: bool,
    is_site: bool,
    /// Parts per million by which the far clock is fast.
    skew: u16,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let path = 0_u8..4;
    let op = prop_oneof![
        6 => (1..=MSS).prop_map(Op::Send),
        6 => Just(Op::Send(MSS)),
        2 => (1_u16..500, 1..=MSS).prop_map(|(back, len)| Op::Resend { back, len }),
        2 => (0..REPEATED).prop_map(|back| Op::Repeat { back }),
        12 => (path.clone(), any::<bool>())
            .prop_map(|(path, is_marked)| Op::Deliver { path, is_marked }),
        1 => path.prop_map(|path| Op::Drop { path }),
        8 => Just(Op::Return),
        1 => Just(Op::DropReturn),
        4 => (0_u32..20_000).prop_map(|room| Op::Ack { room }),
        1 => Just(Op::Ack { room: 0 }),
        4 => (0_u16..60).prop_map(|millis| Op::Tick { millis }),
        1 => (100_u16..2_000).prop_map(|millis| Op::Tick { millis }),
        1 => (0_u16..3_000).prop_map(|millis| Op::Step { millis }),
    ];
    prop::collection::vec(op, 1..250)
}

fn setting() -> impl Strategy<Value = Setting> {
    let first = prop_oneof![any::<u32>(), (u32::MAX - 20_000..=u32::MAX)];
    (
        1_u8..=4,
        0_u8..=14,
        any::<bool>(),
        [first.clone(), first],
        any::<bool>(),
        any::<bool>(),
        0_u16..=200,
    )
        .prop_map(|(paths, scale, one, first, holds, is_site, skew)| Setting {
            paths,
            scale,
            is_one_sided: one,
            first,
            holds,
            is_site,
            skew,
        })
}

fn run(setting: Setting, ops: &[Op]) {
    let mut world = World::new(setting);
    for op in ops {
        world.apply(op);
        world.check();
    }
    // In the end everything that arrived has passed.
    world.apply(&Op::Tick { millis: 5_000 });
    assert!(world.waiting.is_empty(), "{:?}", world.waiting);
    assert!(world.inside.is_empty(), "{:?}", world.inside);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn gateways_agree_with_the_model(setting in setting(), ops in ops()) {
        run(setting, &ops);
    }
}
