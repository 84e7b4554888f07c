//! Sets and layouts against small models that are obviously right.
#![allow(missing_docs)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use transfer::{
    BLOCK, Cv, Extent, ExtentSet, GRAIN, Layout, LayoutError, PeerError, Place, Receiver, Verdict,
};
use units::Bytes;

#[derive(Clone, Debug)]
enum Op {
    Insert(Extent),
    Remove(Extent),
    PopFront(u64),
}

fn extent() -> impl Strategy<Value = Extent> {
    (0u64..200, 0u64..40).prop_map(|(start, len)| Extent::new(start, len))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => extent().prop_map(Op::Insert),
        3 => extent().prop_map(Op::Remove),
        1 => (0u64..30).prop_map(Op::PopFront),
    ]
}

fn bytes(pieces: impl IntoIterator<Item = Extent>) -> Vec<u64> {
    pieces.into_iter().flat_map(|piece| piece.start..piece.end()).collect()
}

proptest! {
    #[test]
    fn a_set_is_its_bytes(ops in proptest::collection::vec(op(), 0..60), probe in extent()) {
        let (mut set, mut model) = (ExtentSet::new(), BTreeSet::new());
        for op in ops {
            match op {
                Op::Insert(extent) => {
                    let positions = extent.start..extent.end();
                    let fresh: Vec<u64> = positions.filter(|at| model.insert(*at)).collect();
                    prop_assert_eq!(bytes(set.insert(extent)), fresh);
                }
                Op::Remove(extent) => {
                    let positions = extent.start..extent.end();
                    let gone: Vec<u64> = positions.filter(|at| model.remove(at)).collect();
                    prop_assert_eq!(bytes(set.remove(extent)), gone);
                }
                Op::PopFront(most) => {
                    let popped = bytes(set.pop_front(most));
                    prop_assert_eq!(popped.is_empty(), most == 0 || model.is_empty());
                    let first: Vec<_> = model.iter().copied().take(popped.len()).collect();
                    prop_assert_eq!(&popped, &first);
                    for at in &popped {
                        model.remove(at);
                    }
                }
            }
            prop_assert_eq!(bytes(set.iter()), model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.total(), Bytes(model.len() as u64));
            let pieces: Vec<Extent> = set.iter().collect();
            let are_apart = pieces.windows(2).all(|pair| pair[0].end() < pair[1].start);
            prop_assert!(are_apart, "{:?} touch", pieces);
        }
        let (inside, outside): (Vec<u64>, Vec<u64>) =
            (probe.start..probe.end()).partition(|at| model.contains(at));
        prop_assert_eq!(set.contains(probe), outside.is_empty());
        prop_assert_eq!(set.intersects(probe), !inside.is_empty());
        prop_assert_eq!(bytes(set.within(probe)), inside);
        prop_assert_eq!(bytes(set.gaps(probe)), outside);
    }

    #[test]
    fn whole_blocks_are_what_the_set_has_whole(
        extents in proptest::collection::vec((0u64..14, 0u64..8, 1u64..40), 0..12),
    ) {
        let layout = layout();
        let eighth = BLOCK / 8;
        let set: ExtentSet = extents
            .iter()
            .map(|&(block, offset, len)| Extent::new(block * BLOCK + offset * eighth, len * eighth))
            .collect();
        let blocks = (0..layout.blocks()).filter_map(|block| layout.block_extent(block));
        let expected: ExtentSet = blocks.filter(|&extent| set.contains(extent)).collect();
        prop_assert_eq!(layout.whole_blocks(&set), expected);
    }

    /// Whatever a peer sends is accepted or refused without a panic, and accepted bytes are claimed
    /// once.
    #[test]
    fn a_receiver_survives_any_peer(
        ops in proptest::collection::vec((0u8..4, 0u64..4_000_000, 0u64..300_000, 0u8..2), 0..80),
        wild in any::<(u64, u64)>(),
    ) {
        let layout = layout();
        let mut receiver = Receiver::new(&layout, &ExtentSet::new());
        let mut model = BTreeSet::new();
        prop_assert!(receiver.handle_data(Extent::new(wild.0 | 1 << 40, wild.1)).is_err());
        let _ = receiver.handle_hash(wild.0, Cv([0; 32]));
        for (kind, start, len, fill) in ops {
            let align = if kind < 2 { GRAIN } else { 1 };
            let (start, len) = (start / align * align, len / align * align);
            match receiver.handle_data(Extent::new(start, len)) {
                Ok(fresh) => {
                    for piece in fresh.pieces {
                        for at in (piece.start..piece.end()).step_by(4_096) {
                            prop_assert!(model.insert(at), "{} claimed twice", at);
                        }
                        receiver.handle_written(piece).expect("a claimed piece");
                    }
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
            let _ = receiver.handle_hash(start / BLOCK, Cv([fill; 32]));
            while let Some(block) = receiver.poll_verify() {
                let mut grains = (block.extent.start..block.extent.end()).step_by(4_096);
                let whole = grains.all(|at| model.contains(&at));
                prop_assert!(whole, "{:?} is not complete", block);
                if let Verdict::Refuse(extent) = receiver.handle_verified(block.index, fill == 0) {
                    for at in (extent.start..extent.end()).step_by(4_096) {
                        model.remove(&at);
                    }
                }
            }
        }
    }
}

fn layout() -> Layout {
    Layout::new([2 * BLOCK, 0, BLOCK + 10, 7 * BLOCK].map(Bytes)).expect("good")
}

#[test]
fn positions_and_places() {
    let layout = layout();
    assert_eq!(layout.total(), Bytes(10 * BLOCK + 10));
    assert_eq!(layout.blocks(), 11);
    assert_eq!(layout.locate(2 * BLOCK), Some(Place { object: 2, offset: 0 }));
    assert_eq!(layout.locate(3 * BLOCK + 9), Some(Place { object: 2, offset: BLOCK + 9 }));
    assert_eq!(layout.locate(3 * BLOCK + 10), None);
    assert_eq!(layout.locate(4 * BLOCK), Some(Place { object: 3, offset: 0 }));
    assert_eq!(layout.locate(11 * BLOCK), None);
    assert_eq!(layout.block_extent(3), Some(Extent::new(3 * BLOCK, 10)));
    assert_eq!(layout.block_extent(11), None);
    assert_eq!(layout.block_extent(u64::MAX), None);
    assert_eq!(layout.object_extent(1).map(|extent| extent.len), Some(0));
}

#[test]
fn extents_that_no_sender_may_send() {
    let layout = layout();
    let check = |start, len| layout.check_data(Extent::new(start, len)).err();
    assert_eq!(check(0, BLOCK), None);
    assert_eq!(check(3 * BLOCK, 10), None);
    assert_eq!(check(0, 0), Some(PeerError::Empty(0)));
    assert_eq!(
        check(0, BLOCK + GRAIN),
        Some(PeerError::CrossesBlock(Extent::new(0, BLOCK + GRAIN)))
    );
    assert_eq!(check(3 * BLOCK, 11), Some(PeerError::Outside(Extent::new(3 * BLOCK, 11))));
    assert_eq!(check(1, GRAIN), Some(PeerError::Misaligned(Extent::new(1, GRAIN))));
    assert_eq!(check(0, GRAIN - 1), Some(PeerError::Misaligned(Extent::new(0, GRAIN - 1))));
    assert_eq!(
        check(u64::MAX, u64::MAX),
        Some(PeerError::Outside(Extent::new(u64::MAX, u64::MAX)))
    );
}

#[test]
fn what_lies_too_far_out_is_no_layout() {
    assert_eq!(Layout::new([1 << 55, 1 << 56].map(Bytes)), Err(LayoutError::TooLarge(1)));
}

#[test]
fn a_receiver_verifies_refuses_and_knows_the_hash() {
    let data: Vec<u8> = (0..BLOCK + 10).map(|at| u8::try_from(at % 250).expect("small")).collect();
    let layout = Layout::new([Bytes(BLOCK + 10), Bytes::ZERO]).expect("good");
    let (size, cut) = (BLOCK + 10, 256 * 1024);
    let cvs = [
        transfer::digest::block_cv(size, 0, &data[..cut]),
        transfer::digest::block_cv(size, BLOCK, &data[cut..]),
    ];
    let mut receiver = Receiver::new(&layout, &[Extent::new(BLOCK, 10)].into_iter().collect());
    assert_eq!(receiver.handle_journalled(1, cvs[1]), Ok(None));
    assert_eq!(receiver.handle_journalled(0, cvs[0]), Err(PeerError::UnknownBlock(0)));
    let whole = Extent::new(0, BLOCK);
    for good in [false, true] {
        assert_eq!(receiver.handle_data(whole).expect("good").pieces, [whole]);
        assert_eq!(receiver.handle_data(whole).expect("good").duplicate, Bytes(BLOCK));
        receiver.handle_written(whole).expect("good");
        assert_eq!(receiver.poll_verify(), None, "its hash is unknown");
        assert_eq!(receiver.handle_hash(0, cvs[0]), Ok(()));
        assert_eq!(receiver.handle_hash(0, cvs[1]), Err(PeerError::ConflictingHash(0)));
        let block = receiver.poll_verify().expect("complete");
        assert_eq!((block.expected, receiver.poll_verify()), (cvs[0], None));
        let root = Cv(*blake3::hash(&data).as_bytes());
        let expected = if good {
            Verdict::Verified { finished: Some((0, root)) }
        } else {
            Verdict::Refuse(whole)
        };
        assert_eq!(receiver.handle_verified(0, good), expected);
        assert_eq!(receiver.is_complete(), good);
        assert_eq!(receiver.root(0), good.then_some(root));
    }
    assert_eq!(receiver.root(1), Some(transfer::digest::empty_root()));
    assert_eq!((receiver.received(), receiver.refused()), (Bytes(BLOCK), 1));
}

#[test]
fn abandoned_pieces_may_come_again() {
    let mut receiver = Receiver::new(&layout(), &ExtentSet::new());
    let extent = Extent::new(0, 8_192);
    receiver.handle_data(extent).expect("good");
    receiver.handle_written(Extent::new(0, 4_096)).expect("good");
    receiver.handle_abandoned(extent);
    assert_eq!(receiver.handle_data(extent).expect("good").pieces, [Extent::new(4_096, 4_096)]);
}

#[test]
fn nothing_of_what_is_left_out_is_awaited() {
    let layout = Layout::new([Bytes(2 * BLOCK), Bytes(10)]).expect("good");
    let mut receiver = Receiver::new(&layout, &ExtentSet::new());
    let [first, second] = [Extent::new(0, BLOCK), Extent::new(BLOCK, BLOCK)];
    for (block, extent) in [(0, first), (1, second)] {
        receiver.handle_data(extent).expect("good");
        receiver.handle_written(extent).expect("good");
        receiver.handle_hash(block, Cv([1; 32])).expect("good");
    }
    // One is being hashed, the other one waits for that.
    assert_eq!(receiver.poll_verify().map(|block| block.index), Some(0));
    assert!(receiver.handle_left_out(0));
    assert!(!receiver.handle_left_out(0), "that is no news");
    assert!(!receiver.handle_left_out(2), "there is no such object");
    for block in [0, 1] {
        if block == 1 {
            assert_eq!(receiver.poll_verify().map(|block| block.index), Some(1));
        }
        // Whatever comes of it, the object never completes, and is not asked for again.
        let verdict = receiver.handle_verified(block, block == 0);
        assert_eq!(verdict, Verdict::Verified { finished: None });
    }
    assert_eq!(receiver.handle_data(second).expect("good").pieces, []);
    assert!(!receiver.is_complete());
    let last = Extent::new(2 * BLOCK, 10);
    receiver.handle_data(last).expect("good");
    receiver.handle_written(last).expect("good");
    receiver.handle_hash(2, Cv([2; 32])).expect("good");
    assert_eq!(receiver.poll_verify().map(|block| block.index), Some(2));
    let finished = Some((1, Cv([2; 32])));
    assert_eq!(receiver.handle_verified(2, true), Verdict::Verified { finished });
    assert!(receiver.is_complete());
    assert!(!receiver.handle_left_out(1), "it is complete");
}
