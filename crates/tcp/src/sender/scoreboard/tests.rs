use alloc::vec::Vec;

use super::*;
use proptest::prelude::*;

fn record(seq: u64, span: u32) -> Record {
    Record {
        seq,
        span,
        is_fin: false,
        tag: FlightTag::default(),
        is_retransmitted: false,
        is_app_limited: false,
        sent_at: Time::ZERO,
    }
}

/// A context that identifies its packet by `in_flight`, and its transmission by `window`.
fn context(seq: u64, window: u64) -> SendContext {
    SendContext { window: Bytes(window), in_flight: Bytes(seq), rates: SendSnapshot::default() }
}

fn identity(context: SendContext) -> (u64, u64) {
    (context.in_flight.0, context.window.0)
}

/// The window of the latest transmission.
fn window(is_retransmitted: bool) -> u64 {
    if is_retransmitted { 2 } else { 1 }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Push(u32),
    MarkAllLost,
    /// The arguments of this and the next three are indices among all records.
    MarkLost(usize),
    Retransmit(usize),
    Sack(usize),
    Advance(usize),
    RestoreLost,
}

fn op() -> impl Strategy<Value = Op> {
    let at = 0..12usize;
    prop_oneof![
        4 => (1..3_000u32).prop_map(Op::Push),
        3 => Just(Op::MarkAllLost),
        2 => at.clone().prop_map(Op::MarkLost),
        3 => at.clone().prop_map(Op::Retransmit),
        2 => at.clone().prop_map(Op::Sack),
        1 => at.prop_map(Op::Advance),
        1 => Just(Op::RestoreLost),
    ]
}

/// A record as the model has it.
#[derive(Clone, Copy)]
struct ModelRecord {
    seq: u64,
    span: u32,
    state: PacketState,
    is_retransmitted: bool,
}

impl ModelRecord {
    /// The identity that the scoreboard reports, if it keeps contexts.
    fn reported(self, keeps: bool) -> (u64, Option<(u64, u64)>) {
        (self.seq, keeps.then(|| (self.seq, window(self.is_retransmitted))))
    }
}

/// Compares the scoreboard with a list of records and their states. An operation with `true`
/// repeats a timeout until flights are numbered anew.
fn check_states(keeps: bool, ops: Vec<(Op, bool)>) -> Result<(), TestCaseError> {
    let mut board = Scoreboard::default();
    let mut model: Vec<ModelRecord> = Vec::new();
    let mut next = 1;
    for (op, is_often) in ops {
        match op {
            Op::Push(span) => {
                let pushed = Record { tag: board.flight(), ..record(next, span) };
                board.push(pushed, keeps.then(|| context(next, 1)));
                let state = PacketState::InFlight;
                model.push(ModelRecord { seq: next, span, state, is_retransmitted: false });
                next += u64::from(span);
            }
            Op::MarkAllLost => {
                let in_flight = model.iter().filter(|one| one.state == PacketState::InFlight);
                prop_assert_eq!(board.mark_all_lost(), in_flight.count() as u64);
                for _ in 0..if is_often { 300 } else { 0 } {
                    prop_assert_eq!(board.mark_all_lost(), 0);
                }
                for one in model.iter_mut().filter(|one| one.state == PacketState::InFlight) {
                    one.state = PacketState::Lost;
                }
            }
            Op::MarkLost(at) => {
                let Some(one) = model.get_mut(at) else { continue };
                let lost = board.mark_lost(one.seq);
                let is_lost = one.state == PacketState::InFlight;
                prop_assert_eq!(
                    lost.map(|(record, context)| (record.seq, context.map(identity))),
                    is_lost.then(|| one.reported(keeps))
                );
                if is_lost {
                    one.state = PacketState::Lost;
                }
            }
            Op::Retransmit(at) => {
                let lost = model.get_mut(at).filter(|one| one.state == PacketState::Lost);
                let Some(one) = lost else { continue };
                let again = Record {
                    tag: board.flight(),
                    is_retransmitted: true,
                    ..record(one.seq, one.span)
                };
                board.retransmit(again, keeps.then(|| context(one.seq, 2)));
                (one.state, one.is_retransmitted) = (PacketState::InFlight, true);
            }
            Op::Sack(at) => {
                let Some(one) = model.get_mut(at) else { continue };
                let mut delivered = Vec::new();
                board.sack(one.seq, one.seq + u64::from(one.span), |record, context| {
                    delivered.push((record.seq, context.copied().map(identity)));
                });
                let is_new = one.state != PacketState::Delivered;
                prop_assert_eq!(delivered, Vec::from_iter(is_new.then(|| one.reported(keeps))));
                one.state = PacketState::Delivered;
            }
            Op::Advance(count) => {
                let gone: Vec<_> = model.drain(..count.min(model.len())).collect();
                let mut delivered = Vec::new();
                let una = model.first().map_or(next, |one| one.seq);
                board.advance(una, |record, context| {
                    delivered.push((record.seq, context.copied().map(identity)));
                });
                let new = gone.iter().filter(|one| one.state != PacketState::Delivered);
                let new: Vec<_> = new.map(|one| one.reported(keeps)).collect();
                prop_assert_eq!(delivered, new);
            }
            Op::RestoreLost => {
                board.restore_lost(|_| {});
                for one in &mut model {
                    if one.state == PacketState::Lost && !one.is_retransmitted {
                        one.state = PacketState::InFlight;
                    }
                }
            }
        }
        let bytes = |state| -> u64 {
            let of_state = model.iter().filter(|one| one.state == state);
            of_state.map(|one| u64::from(one.span)).sum()
        };
        prop_assert_eq!(
            (board.in_flight, board.lost),
            (bytes(PacketState::InFlight), bytes(PacketState::Lost))
        );
        let states = board.records.iter().map(|record| (record.seq, board.state(record)));
        let expected = model.iter().map(|one| (one.seq, one.state));
        prop_assert_eq!(states.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        let first = model.iter().find(|one| one.state == PacketState::Lost).map(|one| one.seq);
        prop_assert_eq!(board.first_lost().map(|record| record.seq), first);
    }
    Ok(())
}

proptest! {
    #[test]
    fn states_match_a_list_of_records(
        keeps in any::<bool>(),
        ops in prop::collection::vec((op(), prop::bool::weighted(0.05)), 1..80),
    ) {
        check_states(keeps, ops)?;
    }

    /// Small packets among full ones, so that the guess of the index often fails.
    #[test]
    fn a_position_is_found_with_any_sizes(
        spans in prop::collection::vec(prop_oneof![Just(1_448), 1..1_448u32], 1..60),
    ) {
        let mut board = Scoreboard::default();
        let mut next = 1;
        for span in &spans {
            board.push(record(next, *span), None);
            next += u64::from(*span);
        }
        let mut from = 1;
        for span in spans {
            let to = from + u64::from(span);
            for seq in [from, u64::midpoint(from, to), to - 1] {
                prop_assert_eq!(board.find(seq).map(|record| record.seq), Some(from));
            }
            from = to;
        }
        prop_assert!(board.find(next).is_none());
        prop_assert_eq!(board.find(0).map(|record| record.seq), Some(1));
    }
}
